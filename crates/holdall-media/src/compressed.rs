//! The image in a `sensor_msgs/msg/CompressedImage`: a JPEG, PNG or WebP file, depth as `compressed_depth_image_transport` packs it, or planes.
//!
//! Depth has a head of 12 bytes: a number that no reader needs, and two floats A and B. After it is a PNG of 16 bits, or RVL (Wilson, "Fast
//! lossless depth image compression", 2017) after its width and height. The meaning of its numbers depends on the encoding before compression, which
//! is the first word of the format text: millimetres for `16UC1`, and for `32FC1` the inverse depth: A / (number - B) is metres.

use crate::{
    carried::Image,
    pixels::{Pixels, convert, millimetres},
    planes,
};
use std::io::Cursor;

const PNG_MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG_MAGIC: &[u8] = b"\xff\xd8\xff";
/// Length of the head of compressed depth.
pub const DEPTH_HEAD_BYTES: usize = 12;
/// Most pixels of an image: larger sizes in damaged headers are not allocated.
const PIXELS_MAX: usize = 1 << 28;
/// The same for RVL, in which a few bytes may stand for any number of empty pixels.
pub(crate) const RVL_PIXELS_MAX: usize = 1 << 26;

/// Whether data begins as a PNG or a JPEG does.
pub fn is_file(data: &[u8]) -> bool {
    data.starts_with(PNG_MAGIC) || data.starts_with(JPEG_MAGIC)
}

/// Contents of a compressed image.
#[derive(Clone, Debug, PartialEq)]
pub enum Compressed<'a> {
    /// A file: its extension (`jpg`, `png`, `webp`) and its bytes.
    File(&'static str, &'a [u8]),
    /// Depth, which is not stored as a file.
    Depth(Depth),
    /// An image of any encoding, without loss.
    Image(DecodedImage),
}

/// A depth image.
#[derive(Clone, Debug, PartialEq)]
pub struct Depth {
    width: u32,
    height: u32,
    values: DepthValues,
}

#[derive(Clone, Debug, PartialEq)]
enum DepthValues {
    /// 0 if nothing was measured.
    Millimetres(Vec<u16>),
    /// NaN if nothing was measured.
    Metres(Vec<f32>),
}

impl<'a> Compressed<'a> {
    /// Reads the data of a message. Files are recognized by their first bytes, whatever the format text states.
    ///
    /// # Errors
    /// One clause for data that is none of them, and for depth and planes that are damaged or have an unknown encoding.
    pub fn read(data: &'a [u8], format: &str) -> Result<Self, String> {
        let (encoding, transport) = format.split_once(';').unwrap_or(("", format));
        let (encoding, transport) = (encoding.trim(), transport.trim());
        if transport == planes::FORMAT {
            return planes::decode(data, encoding).map(Self::Image);
        }
        let states_depth = transport.starts_with("compressedDepth");
        let packed = data.get(DEPTH_HEAD_BYTES..).unwrap_or_default();
        let is_png = packed.starts_with(PNG_MAGIC);
        if is_png || (states_depth && transport.ends_with("rvl")) {
            return depth(data, packed, encoding, is_png, format);
        }
        if states_depth {
            return Err(format!(
                "a compressed depth image ({format:?}) is neither PNG nor RVL after its head of {DEPTH_HEAD_BYTES} bytes: it begins with {}",
                begin(data)
            ));
        }
        if data.starts_with(JPEG_MAGIC) {
            Ok(Self::File("jpg", data))
        } else if data.starts_with(PNG_MAGIC) {
            Ok(Self::File("png", data))
        } else if data.starts_with(b"RIFF") && data.get(8..12) == Some(b"WEBP") {
            Ok(Self::File("webp", data))
        } else {
            Err(format!(
                "a compressed image ({format:?}) is neither JPEG, PNG nor WebP: it begins with {}",
                begin(data)
            ))
        }
    }

    /// The pixels, decoded.
    ///
    /// # Errors
    /// One clause: a file that is damaged or not decoded, an encoding that is not shown.
    pub fn pixels(&self) -> Result<Pixels, String> {
        match self {
            Self::File(extension, bytes) => file_pixels(extension, bytes),
            Self::Depth(depth) => Ok(depth.pixels()),
            Self::Image(image) => convert(&image.image()),
        }
    }
}

/// The first bytes of data, for a sentence.
fn begin(data: &[u8]) -> String {
    data.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn depth<'a>(
    data: &[u8],
    packed: &'a [u8],
    encoding: &str,
    is_png: bool,
    format: &str,
) -> Result<Compressed<'a>, String> {
    let is_inverse = match encoding.to_ascii_lowercase().as_str() {
        "16uc1" | "mono16" => false,
        "32fc1" => true,
        _ => {
            return Err(format!(
                "a compressed depth image has the format {format:?}, which does not name its encoding: 16UC1 and 32FC1 are known"
            ));
        }
    };
    if is_png && !is_inverse {
        return Ok(Compressed::File("png", packed));
    }
    let (width, height, numbers) = if is_png { depth_png(packed)? } else { rvl(packed)? };
    let values = if is_inverse {
        DepthValues::Metres(metres(&numbers, data)?)
    } else {
        DepthValues::Millimetres(numbers)
    };
    Ok(Compressed::Depth(Depth {
        width,
        height,
        values,
    }))
}

/// Quantized inverse depth as metres.
fn metres(numbers: &[u16], head: &[u8]) -> Result<Vec<f32>, String> {
    let float = |at: usize| {
        head.get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(f32::from_le_bytes)
    };
    let (Some(a), Some(b)) = (float(4), float(8)) else {
        return Err("a compressed depth image is shorter than its head".to_owned());
    };
    if !(a.is_finite() && b.is_finite() && a > 0.0) {
        return Err(format!(
            "the head of a compressed depth image of 32FC1 has the parameters {a} and {b}, by which it cannot be converted to metres"
        ));
    }
    let metres = numbers.iter().map(|number| match number {
        0 => f32::NAN,
        number => a / (f32::from(*number) - b),
    });
    Ok(metres.collect())
}

fn depth_png(packed: &[u8]) -> Result<(u32, u32, Vec<u16>), String> {
    let pixels = png_pixels(packed)?;
    if !pixels.is_deep || pixels.channels != 1 {
        let bits = if pixels.is_deep { 16 } else { 8 };
        return Err(format!(
            "a compressed depth image is a PNG of {} channels of {bits} bits, expected one of 16",
            pixels.channels
        ));
    }
    let numbers = pixels
        .bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u16::from_be_bytes(*bytes));
    Ok((pixels.width, pixels.height, numbers.collect()))
}

/// Width, height and numbers of RVL: runs of empty pixels and of differences, as numbers of 3 bits a nibble in words of 32 bits.
fn rvl(packed: &[u8]) -> Result<(u32, u32, Vec<u16>), String> {
    let torn = || "a depth image of RVL is cut off or damaged".to_owned();
    let (words, _) = packed.as_chunks::<4>();
    let mut words = words.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let (width, height) = words.next().zip(words.next()).ok_or_else(torn)?;
    let pixels = (width as usize).checked_mul(height as usize);
    let pixels = pixels
        .filter(|pixels| (1..=RVL_PIXELS_MAX).contains(pixels))
        .ok_or_else(|| format!("a depth image of RVL has {width} x {height} pixels"))?;
    let mut nibbles = words.flat_map(|word| (0..8).rev().map(move |place| (word >> (4 * place)) & 0xf));
    let mut next = || {
        let mut value = 0_u32;
        for bits in (0..33).step_by(3) {
            let nibble = nibbles.next()?;
            value |= (nibble & 7).checked_shl(bits)?;
            if nibble & 8 == 0 {
                return Some(value);
            }
        }
        None
    };
    let mut numbers = Vec::new();
    let mut number = 0_i32;
    while numbers.len() < pixels {
        let empty = next().ok_or_else(torn)? as usize;
        let left = pixels - numbers.len();
        numbers.resize(
            numbers.len() + Some(empty).filter(|empty| *empty <= left).ok_or_else(torn)?,
            0,
        );
        let measured = next().ok_or_else(torn)? as usize;
        if measured > pixels - numbers.len() || empty + measured == 0 {
            return Err(torn());
        }
        for _ in 0..measured {
            let zigzag = next().ok_or_else(torn)?;
            let difference = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
            number = number.wrapping_add(difference);
            // As its encoder has them: numbers of 16 bits.
            numbers.push(number as u16);
        }
    }
    Ok((width, height, numbers))
}

impl Depth {
    /// Its pixels in millimetres, as an image of encoding `16UC1` has them (REP 118).
    pub fn pixels(&self) -> Pixels {
        let bytes = match &self.values {
            DepthValues::Millimetres(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
            DepthValues::Metres(values) => values
                .iter()
                .flat_map(|value| millimetres(*value).to_be_bytes())
                .collect(),
        };
        Pixels {
            width: self.width,
            height: self.height,
            channels: 1,
            is_deep: true,
            bytes,
        }
    }
}

/// The pixels of a PNG; palettes and fewer than 8 bits are expanded, and grey with alpha is grey.
pub fn png_pixels(bytes: &[u8]) -> Result<Pixels, String> {
    let failed = |error: png::DecodingError| format!("a PNG cannot be decoded: {error}");
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(failed)?;
    let length = reader
        .output_buffer_size()
        .filter(|length| *length <= 8 * PIXELS_MAX);
    let length = length.ok_or("a PNG is too large")?;
    let mut pixels = vec![0; length];
    let info = reader.next_frame(&mut pixels).map_err(failed)?;
    pixels.truncate(info.buffer_size());
    let is_deep = info.bit_depth == png::BitDepth::Sixteen;
    let channels = info.color_type.samples();
    let (channels, bytes) = if channels == 2 {
        // Grey with alpha.
        let value = if is_deep { 2 } else { 1 };
        let grey = pixels.chunks_exact(2 * value).flat_map(|pixel| &pixel[..value]);
        (1, grey.copied().collect())
    } else {
        (channels, pixels)
    };
    Ok(Pixels {
        width: info.width,
        height: info.height,
        channels,
        is_deep,
        bytes,
    })
}

/// A compressed image that was decoded, as a `sensor_msgs/msg/Image` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedImage {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `mono8`, `rgb8`, `rgba8`, `mono16`, `rgb16`, `rgba16`; for depth `16UC1` (millimetres) or `32FC1` (metres); for planes any.
    pub encoding: String,
    /// The order of bytes, 0 except for planes.
    pub is_bigendian: u8,
    /// Bytes in a row, without padding, except for planes.
    pub step: u32,
    /// All rows.
    pub data: Vec<u8>,
}

impl DecodedImage {
    /// The same as a message has it.
    pub fn image(&self) -> Image<'_> {
        Image {
            height: self.height,
            width: self.width,
            encoding: &self.encoding,
            is_bigendian: self.is_bigendian,
            step: self.step,
            data: &self.data,
            ..Image::default()
        }
    }
}

/// Decodes the data of a `sensor_msgs/msg/CompressedImage`: JPEG, PNG, depth of `compressed_depth_image_transport`, or planes.
///
/// # Errors
/// One clause for data that cannot be decoded.
pub fn decode_image(data: &[u8], format: &str) -> Result<DecodedImage, String> {
    let (pixels, is_depth) = match Compressed::read(data, format)? {
        Compressed::Depth(Depth {
            width,
            height,
            values: DepthValues::Metres(values),
        }) => {
            return Ok(DecodedImage {
                width,
                height,
                encoding: "32FC1".to_owned(),
                is_bigendian: 0,
                step: width.saturating_mul(4),
                data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            });
        }
        Compressed::Image(image) => return Ok(image),
        Compressed::Depth(depth) => (depth.pixels(), true),
        Compressed::File(extension, bytes) => (file_pixels(extension, bytes)?, !std::ptr::eq(bytes, data)),
    };
    let encoding = match (pixels.channels, pixels.is_deep) {
        (1, true) if is_depth => "16UC1",
        (1, false) => "mono8",
        (1, true) => "mono16",
        (3, false) => "rgb8",
        (3, true) => "rgb16",
        (_, false) => "rgba8",
        (_, true) => "rgba16",
    };
    let mut data = pixels.bytes;
    if pixels.is_deep {
        data.as_chunks_mut::<2>()
            .0
            .iter_mut()
            .for_each(|value| value.reverse());
    }
    Ok(DecodedImage {
        width: pixels.width,
        height: pixels.height,
        encoding: encoding.to_owned(),
        is_bigendian: 0,
        step: (data.len() / pixels.height.max(1) as usize) as u32,
        data,
    })
}

/// The pixels of a file in a compressed image.
pub fn file_pixels(extension: &str, bytes: &[u8]) -> Result<Pixels, String> {
    match extension {
        "png" => png_pixels(bytes),
        "jpg" => jpeg_pixels(bytes),
        other => Err(format!("images as {other} are not decoded; JPEG and PNG are")),
    }
}

fn jpeg_pixels(bytes: &[u8]) -> Result<Pixels, String> {
    use zune_jpeg::{
        JpegDecoder,
        zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
    };
    let failed = |error: zune_jpeg::errors::DecodeErrors| format!("a JPEG cannot be decoded: {error}");
    let options = DecoderOptions::default();
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(failed)?;
    let is_grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let wanted = if is_grey {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    decoder.set_options(options.jpeg_set_out_colorspace(wanted));
    let info = decoder.info().ok_or("a JPEG without a size")?;
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    if usize::from(info.width) * usize::from(info.height) > PIXELS_MAX {
        return Err("a JPEG is too large".to_owned());
    }
    Ok(Pixels {
        width,
        height,
        channels: if is_grey { 1 } else { 3 },
        is_deep: false,
        bytes: decoder.decode().map_err(failed)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture_file::{ImageFormat, encode};

    /// A head with the parameters that the transport has for `quantization` and `metres_max`.
    fn head(a: f32, b: f32) -> Vec<u8> {
        [&[0; 4][..], &a.to_le_bytes(), &b.to_le_bytes()].concat()
    }

    fn deep(width: u32, numbers: &[u16]) -> Pixels {
        Pixels {
            width,
            height: numbers.len() as u32 / width,
            channels: 1,
            is_deep: true,
            bytes: numbers.iter().flat_map(|number| number.to_be_bytes()).collect(),
        }
    }

    fn png(width: u32, numbers: &[u16]) -> Vec<u8> {
        encode(&deep(width, numbers), ImageFormat::Png).unwrap().1
    }

    #[test]
    fn files_are_recognized_by_their_bytes() {
        assert_eq!(
            Compressed::read(b"\xff\xd8\xff\xe0", "png").unwrap(),
            Compressed::File("jpg", b"\xff\xd8\xff\xe0")
        );
        assert!(
            Compressed::read(b"nothing", "jpeg")
                .unwrap_err()
                .contains("6e6f7468696e67")
        );
        assert!(Compressed::read(b"", "jpeg").is_err());
    }

    #[test]
    fn depth_of_16_bits_is_millimetres_and_of_floats_the_inverse() {
        let (a, b) = (10_100.0_f32, -1009.0_f32);
        let metres = [0.5_f32, 0.501, 1.0, 3.0, 9.5];
        let mut numbers: Vec<u16> = metres.iter().map(|depth| (a / depth + b) as u16).collect();
        numbers.push(0);
        let data = [head(a, b), png(3, &numbers)].concat();
        for format in ["16UC1; compressedDepth", "16UC1; compressedDepth png"] {
            assert_eq!(
                Compressed::read(&data, format).unwrap(),
                Compressed::File("png", &data[DEPTH_HEAD_BYTES..])
            );
        }
        for format in ["32FC1; compressedDepth", "32FC1; compressedDepth png"] {
            let Compressed::Depth(depth) = Compressed::read(&data, format).unwrap() else {
                panic!("a file");
            };
            let DepthValues::Metres(found) = &depth.values else {
                panic!("millimetres");
            };
            for (found, metres) in found.iter().zip(metres) {
                // One step of the quantization.
                let step = metres * metres / a;
                assert!((found - metres).abs() <= step, "{found} for {metres}");
            }
            assert!(found[5].is_nan());
            assert_eq!((depth.width, depth.height), (3, 2));
            let shown = depth.pixels();
            assert_eq!(&shown.bytes[10..], [0, 0]);
            assert_eq!(
                u16::from_be_bytes([shown.bytes[4], shown.bytes[5]]).abs_diff(1000),
                0
            );
        }
        for (format, word) in [
            ("compressedDepth png", "does not name its encoding"),
            ("png", "does not name"),
            ("8UC1; compressedDepth png", "does not name"),
        ] {
            let error = Compressed::read(&data, format).unwrap_err();
            assert!(error.contains(word), "{format}: {error}");
        }
        for (a, b) in [(0.0, 0.0), (f32::NAN, 1.0), (-1.0, 1.0), (1.0, f32::INFINITY)] {
            let data = [head(a, b), png(3, &numbers)].concat();
            let error = Compressed::read(&data, "32FC1; compressedDepth").unwrap_err();
            assert!(error.contains("parameters"), "{error}");
        }
        let plain = png(3, &numbers);
        assert!(Compressed::read(&plain, "32FC1; compressedDepth png").is_err());
        let colours = Pixels {
            channels: 3,
            is_deep: false,
            bytes: vec![0; 9],
            ..deep(3, &[0; 3])
        };
        let colours = encode(&colours, ImageFormat::Png).unwrap().1;
        assert!(Compressed::read(&[head(a, b), colours].concat(), "32FC1; compressedDepth").is_err());
    }

    /// The encoder of RVL as its paper has it.
    fn packed_rvl(width: u32, numbers: &[u16]) -> Vec<u8> {
        fn put(nibbles: &mut Vec<u32>, mut value: u32) {
            loop {
                let low = value & 7;
                value >>= 3;
                nibbles.push(if value > 0 { low | 8 } else { low });
                if value == 0 {
                    return;
                }
            }
        }
        let (mut nibbles, mut at, mut before) = (Vec::new(), 0, 0_i32);
        while at < numbers.len() {
            let empty = numbers[at..].iter().take_while(|number| **number == 0).count();
            at += empty;
            let measured = numbers[at..].iter().take_while(|number| **number != 0).count();
            put(&mut nibbles, empty as u32);
            put(&mut nibbles, measured as u32);
            for number in &numbers[at..at + measured] {
                let difference = i32::from(*number) - before;
                put(&mut nibbles, ((difference << 1) ^ (difference >> 31)) as u32);
                before = i32::from(*number);
            }
            at += measured;
        }
        let words = nibbles.chunks(8).map(|chunk| {
            let word = chunk.iter().fold(0, |word, nibble| (word << 4) | nibble);
            word << (4 * (8 - chunk.len()))
        });
        let sizes = [width, numbers.len() as u32 / width];
        sizes
            .into_iter()
            .chain(words)
            .flat_map(u32::to_le_bytes)
            .collect()
    }

    #[test]
    fn rvl_is_decoded_to_what_it_was_made_of() {
        let numbers: Vec<u16> = (0..400_u32)
            .map(|place| match place % 37 {
                0..9 => 0,
                _ => (place * 7919 % 65_536) as u16,
            })
            .collect();
        let data = [head(10_100.0, -1009.0), packed_rvl(20, &numbers)].concat();
        let Compressed::Depth(depth) = Compressed::read(&data, "16UC1; compressedDepth rvl").unwrap() else {
            panic!("a file");
        };
        assert_eq!(depth.pixels(), deep(20, &numbers));
        for cut in 0..data.len() - 4 {
            assert!(
                Compressed::read(&data[..cut], "16UC1; compressedDepth rvl").is_err(),
                "{cut}"
            );
        }
        let huge = [head(1.0, 0.0), vec![0xff; 64]].concat();
        assert!(Compressed::read(&huge, "16UC1; compressedDepth rvl").is_err());
        let nothing = [head(1.0, 0.0), vec![1, 0, 0, 0, 1, 0, 0, 0], vec![0; 64]].concat();
        assert!(Compressed::read(&nothing, "16UC1; compressedDepth rvl").is_err());
    }

    #[test]
    fn files_are_decoded_to_what_they_were_made_of() {
        let pixels = |width: u32, height: u32, channels: usize, is_deep: bool| {
            let values = width as usize * height as usize * channels * if is_deep { 2 } else { 1 };
            Pixels {
                width,
                height,
                channels,
                is_deep,
                bytes: (0..values).map(|place| (place * 7 % 251) as u8).collect(),
            }
        };
        for (channels, is_deep) in [(1, false), (3, false), (4, false), (1, true), (3, true)] {
            let made = pixels(5, 3, channels, is_deep);
            let (extension, bytes) = encode(&made, ImageFormat::Png).unwrap();
            assert_eq!((extension, png_pixels(&bytes).unwrap()), ("png", made));
        }
        for channels in [1, 3] {
            let made = Pixels {
                bytes: vec![90; 64 * channels],
                ..pixels(8, 8, channels, false)
            };
            let (_, bytes) = encode(&made, ImageFormat::Jpeg(95)).unwrap();
            let found = jpeg_pixels(&bytes).unwrap();
            assert_eq!(
                (found.channels, found.width, found.bytes.len()),
                (channels, 8, made.bytes.len())
            );
            assert!(
                found.bytes.iter().all(|value| value.abs_diff(90) < 4),
                "{found:?}"
            );
        }
        assert!(jpeg_pixels(b"\xff\xd8\xff\xe0").is_err() && png_pixels(b"\x89PNG\r\n\x1a\n").is_err());
    }

    #[test]
    fn decoded_images_are_those_of_plain_image_messages() {
        let decoded = decode_image(&png(2, &[1, 0x0203]), "mono16; png compressed").unwrap();
        assert_eq!(
            (decoded.encoding.as_str(), decoded.data),
            ("mono16", vec![1, 0, 3, 2])
        );
        let data = [head(0.0, 0.0), png(2, &[1, 0x0203])].concat();
        let decoded = decode_image(&data, "16UC1; compressedDepth png").unwrap();
        assert_eq!(
            (decoded.encoding.as_str(), decoded.data),
            ("16UC1", vec![1, 0, 3, 2])
        );
        let data = [head(100.0, 0.0), png(1, &[50])].concat();
        let decoded = decode_image(&data, "32FC1; compressedDepth").unwrap();
        assert_eq!(
            (decoded.encoding.as_str(), decoded.data),
            ("32FC1", 2_f32.to_le_bytes().to_vec())
        );
    }
}
