//! Images without loss: of each number the difference to the same channel of the pixel before, its bytes apart, all of it by zstd. Any data of an
//! image comes back byte for byte, also bytes between rows (docs/formats/recoded.md).

use crate::{carried::Image, compressed::DecodedImage, pixels::numbers};
use zstd::{bulk, zstd_safe::CParameter};

/// The format text of messages with it, after the encoding of the image.
pub const FORMAT: &str = "holdall planes 1";
/// Most bytes of an image's data.
const BYTES_MAX: usize = 1 << 28;
/// Bytes before the planes.
const HEAD_BYTES: usize = 16;
/// As of columns of points: after it little is gained.
const LEVEL: i32 = 3;

/// The data of an image in planes.
///
/// # Errors
/// One clause: an encoding whose numbers are not known, an image that is too large.
pub fn encode(image: &Image<'_>) -> Result<Vec<u8>, String> {
    let (bytes, channels) =
        numbers(image.encoding).ok_or_else(|| format!("its encoding {:?} is not known", image.encoding))?;
    let length = image.data.len();
    if length > BYTES_MAX {
        return Err(format!("its data has {length} bytes, more than {BYTES_MAX}"));
    }
    let mut content = Vec::with_capacity(HEAD_BYTES + length);
    for number in [image.width, image.height, image.step] {
        content.extend(number.to_le_bytes());
    }
    content.extend([image.is_bigendian, bytes as u8]);
    content.extend((channels as u16).to_le_bytes());
    content.resize(HEAD_BYTES + length, 0);
    let planes = &mut content[HEAD_BYTES..];
    let is_big = image.is_bigendian != 0;
    match bytes {
        1 => divide::<1>(image.data, planes, channels, is_big),
        2 => divide::<2>(image.data, planes, channels, is_big),
        4 => divide::<4>(image.data, planes, channels, is_big),
        _ => divide::<8>(image.data, planes, channels, is_big),
    }
    let packed = bulk::Compressor::new(LEVEL).and_then(|mut compressor| {
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        compressor.compress(&content)
    });
    packed.map_err(|error| error.to_string())
}

/// The image again, which was of this encoding.
///
/// # Errors
/// One clause: data that is cut off, damaged or too large.
pub fn decode(packed: &[u8], encoding: &str) -> Result<DecodedImage, String> {
    let damaged = |why: &str| format!("an image of planes is cut off or damaged: {why}");
    let content = bulk::decompress(packed, HEAD_BYTES + BYTES_MAX).map_err(|e| damaged(&e.to_string()))?;
    let short = || damaged("its head is missing");
    let (head, planes) = content.split_first_chunk::<HEAD_BYTES>().ok_or_else(short)?;
    let word = |at: usize| {
        head[at..]
            .first_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let (is_bigendian, bytes) = (head[12], head[13]);
    let channels = usize::from(u16::from_le_bytes([head[14], head[15]]));
    let mut data = vec![0; planes.len()];
    let is_big = is_bigendian != 0;
    match bytes {
        _ if channels == 0 => return Err(damaged("a pixel has no numbers")),
        1 => join::<1>(planes, &mut data, channels, is_big),
        2 => join::<2>(planes, &mut data, channels, is_big),
        4 => join::<4>(planes, &mut data, channels, is_big),
        8 => join::<8>(planes, &mut data, channels, is_big),
        _ => return Err(damaged(&format!("a number has {bytes} bytes, not 1, 2, 4 or 8"))),
    }
    Ok(DecodedImage {
        width: word(0),
        height: word(4),
        encoding: encoding.to_owned(),
        is_bigendian,
        step: word(8),
        data,
    })
}

/// The differences of numbers of `N` bytes as planes; what is less than a number at the end stays.
fn divide<const N: usize>(data: &[u8], planes: &mut [u8], channels: usize, is_big: bool) {
    let (numbers, rest) = data.as_chunks::<N>();
    let count = numbers.len();
    planes[N * count..].copy_from_slice(rest);
    let mut planes: Vec<&mut [u8]> = planes.chunks_exact_mut(count.max(1)).take(N).collect();
    for (place, bytes) in numbers.iter().enumerate() {
        let before = place
            .checked_sub(channels)
            .map_or(0, |at| value(numbers[at], is_big));
        let difference = value(*bytes, is_big).wrapping_sub(before);
        // The sign is the lowest bit, so that small differences have empty high bytes.
        let sign = (difference >> (8 * N - 1)) & 1;
        let folded = (difference << 1) ^ 0_u64.wrapping_sub(sign);
        for (byte, plane) in planes.iter_mut().enumerate() {
            plane[place] = (folded >> (8 * byte)) as u8;
        }
    }
}

/// The numbers again.
fn join<const N: usize>(planes: &[u8], data: &mut [u8], channels: usize, is_big: bool) {
    let (numbers, rest) = data.as_chunks_mut::<N>();
    let count = numbers.len();
    rest.copy_from_slice(&planes[N * count..]);
    for place in 0..count {
        let folded = (0..N).fold(0, |all, byte| {
            all | u64::from(planes[byte * count + place]) << (8 * byte)
        });
        let difference = (folded >> 1) ^ 0_u64.wrapping_sub(folded & 1);
        let before = place
            .checked_sub(channels)
            .map_or(0, |at| value(numbers[at], is_big));
        let little = before.wrapping_add(difference).to_le_bytes();
        numbers[place].copy_from_slice(&little[..N]);
        if is_big {
            numbers[place].reverse();
        }
    }
}

fn value<const N: usize>(mut bytes: [u8; N], is_big: bool) -> u64 {
    if is_big {
        bytes.reverse();
    }
    let mut little = [0; 8];
    little[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(little)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pixels::convert;

    fn image<'a>(encoding: &'a str, is_bigendian: u8, data: &'a [u8]) -> Image<'a> {
        Image {
            width: 3,
            height: 2,
            encoding,
            is_bigendian,
            step: 13,
            data,
            ..Image::default()
        }
    }

    #[test]
    fn values_that_are_no_numbers_come_back() {
        let patterns = [
            0x7fc0_0001_u32,
            0xffc0_dead,
            0x7f80_0001,
            0x7f80_0000,
            0xff80_0000,
            0x8000_0000,
            0,
            1,
            0x3f80_0000,
        ];
        for is_big in [0, 1] {
            let bytes = |bits: &u32| {
                if is_big == 0 {
                    bits.to_le_bytes()
                } else {
                    bits.to_be_bytes()
                }
            };
            let data: Vec<u8> = patterns.iter().flat_map(bytes).collect();
            let before = image("32FC1", is_big, &data);
            let found = decode(&encode(&before).unwrap(), "32FC1").unwrap();
            assert_eq!(found.image(), before);
        }
    }

    #[test]
    fn damaged_planes_are_refused_in_one_clause() {
        let data: Vec<u8> = (0..26).collect();
        let packed = encode(&image("rgb16", 0, &data)).unwrap();
        let refused = |packed: &[u8]| {
            let reason = decode(packed, "rgb16").unwrap_err();
            assert!(
                reason.starts_with("an image of planes is cut off or damaged: "),
                "{reason}"
            );
        };
        (0..packed.len()).for_each(|length| refused(&packed[..length]));
        for place in 4..packed.len() {
            let mut changed = packed.clone();
            changed[place] ^= 0x10;
            if decode(&changed, "rgb16").is_ok_and(|found| found.image() == image("rgb16", 0, &data)) {
                continue;
            }
            refused(&changed);
        }
        for (bytes, channels) in [(3, 1), (0, 1), (2, 0), (16, 1)] {
            let head = [&[0; 13][..], &[bytes, channels, 0], &[0; 8]].concat();
            refused(&bulk::compress(&head, LEVEL).unwrap());
        }
        let large = vec![0; HEAD_BYTES + BYTES_MAX + 1];
        refused(&bulk::compress(&large, LEVEL).unwrap());
        assert!(
            encode(&image("mono8", 0, &large))
                .unwrap_err()
                .contains("more than")
        );
        assert!(encode(&image("", 0, &[])).unwrap_err().contains("is not known"));
    }

    #[test]
    fn any_data_comes_back_and_no_content_panics() {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as u8
        };
        for encoding in [
            "mono8",
            "rgb16",
            "bayer_rggb16",
            "32FC1",
            "64FC3",
            "16SC2",
            "yuv422",
            "nv12",
            "BGRA8",
            "32SC(5)",
        ] {
            for length in (0..80).chain([1000]) {
                let data: Vec<u8> = (0..length).map(|_| next()).collect();
                let before = image(encoding, next() % 3, &data);
                let found = decode(&encode(&before).unwrap(), encoding).unwrap();
                assert_eq!(found.image(), before);
                let _ = convert(&found.image());
                if let Ok(found) = decode(&bulk::compress(&data, LEVEL).unwrap(), encoding) {
                    let _ = convert(&found.image());
                }
            }
        }
    }
}
