//! Converts the pixels of `sensor_msgs/msg/Image` to those of PNG and JPEG.

use crate::carried::Image;

/// The layout of an encoding's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// This many bytes per pixel; the second field has the channels' offsets in output order.
    Bytes(usize, &'static [usize]),
    /// This many 16-bit words per pixel; the second field has the channels' offsets in output order.
    Words(usize, &'static [usize]),
    /// 32-bit floats: metres are converted to millimetres.
    Depth,
    /// Two pixels in four bytes: offsets of both brightnesses, then of blue and red difference.
    Yuv([usize; 4]),
    /// A plane of brightness, then one of pairs of differences.
    Planes {
        /// A pair for each two pixels of each second row, instead of one for each pixel.
        is_half: bool,
        /// The red difference is the first of a pair.
        is_red_first: bool,
    },
}

/// An image without row padding: 8 or 16 bits (big endian, as in PNG) per channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 1, 3 or 4.
    pub channels: usize,
    /// 16 bits for each channel.
    pub is_deep: bool,
    /// All rows.
    pub bytes: Vec<u8>,
}

/// The layout of an encoding of `sensor_msgs/image_encodings.hpp`, which some drivers write in the other case; colours of unnamed encodings
/// have OpenCV's order (blue first).
fn layout(encoding: &str) -> Option<Layout> {
    named(encoding)
        .or_else(|| named(&encoding.to_ascii_lowercase()))
        .or_else(|| named(&encoding.to_ascii_uppercase()))
}

fn named(encoding: &str) -> Option<Layout> {
    Some(match encoding {
        "mono8" | "8UC1" => Layout::Bytes(1, &[0]),
        "rgb8" => Layout::Bytes(3, &[0, 1, 2]),
        "bgr8" | "8UC3" => Layout::Bytes(3, &[2, 1, 0]),
        "rgba8" => Layout::Bytes(4, &[0, 1, 2, 3]),
        "bgra8" | "8UC4" => Layout::Bytes(4, &[2, 1, 0, 3]),
        "mono16" | "16UC1" => Layout::Words(1, &[0]),
        "rgb16" => Layout::Words(3, &[0, 1, 2]),
        "bgr16" | "16UC3" => Layout::Words(3, &[2, 1, 0]),
        "rgba16" => Layout::Words(4, &[0, 1, 2, 3]),
        "bgra16" | "16UC4" => Layout::Words(4, &[2, 1, 0, 3]),
        "32FC1" => Layout::Depth,
        // UYVY
        "yuv422" | "uyvy" => Layout::Yuv([1, 3, 0, 2]),
        // YUYV
        "yuv422_yuy2" | "yuyv" => Layout::Yuv([0, 2, 1, 3]),
        "nv12" | "nv21" => Layout::Planes {
            is_half: true,
            is_red_first: encoding == "nv21",
        },
        "nv24" => Layout::Planes {
            is_half: false,
            is_red_first: false,
        },
        "bayer_rggb8" | "bayer_bggr8" | "bayer_gbrg8" | "bayer_grbg8" => Layout::Bytes(1, &[0]),
        "bayer_rggb16" | "bayer_bggr16" | "bayer_gbrg16" | "bayer_grbg16" => Layout::Words(1, &[0]),
        _ => return None,
    })
}

/// Bytes of a number and numbers of a pixel of an encoding, also of OpenCV's names that are not shown, as `16SC1`. Two pixels share the differences of
/// colour of `yuv422`, and a plane of them has pairs.
pub(crate) fn numbers(encoding: &str) -> Option<(usize, usize)> {
    Some(match layout(encoding) {
        Some(Layout::Bytes(channels, _)) => (1, channels),
        Some(Layout::Words(channels, _)) => (2, channels),
        Some(Layout::Depth) => (4, 1),
        Some(Layout::Yuv(_)) => (1, 4),
        Some(Layout::Planes { .. }) => (1, 2),
        None => {
            let (bits, channels) = encoding.split_once(['U', 'S', 'F'])?;
            let channels: u16 = channels
                .strip_prefix('C')?
                .trim_matches(['(', ')'])
                .parse()
                .ok()?;
            let place = ["8", "16", "32", "64"].iter().position(|known| *known == bits)?;
            (1 << place, usize::from(channels.max(1)))
        }
    })
}

/// Whether images of an encoding can be converted.
pub(crate) fn is_shown(encoding: &str) -> bool {
    layout(encoding).is_some()
}

/// Why an encoding is not written. PNG and JPEG are unsigned: negative values would become large ones.
fn unknown(encoding: &str) -> String {
    if matches!(encoding.as_bytes(), [b'1'..=b'9', .., b'S', b'C', b'1'..=b'9']) {
        return format!(
            "images of encoding {encoding:?} have signed pixels, which neither PNG nor JPEG can hold; a Parquet table can"
        );
    }
    format!(
        "images of encoding {encoding:?} are not written; known are mono, rgb, bgr, rgba, bgra of 8 and 16 bits, 8UC1, 8UC3, 8UC4, \
         16UC1, 16UC3, 16UC4, 32FC1, bayer, yuv422, nv12, nv21 and nv24"
    )
}

/// Converts an image; one clause when that is not possible.
pub fn convert(image: &Image<'_>) -> Result<Pixels, String> {
    let layout = layout(image.encoding).ok_or_else(|| unknown(image.encoding))?;
    let (width, height, step) = (image.width as usize, image.height as usize, image.step as usize);
    let (pixel_bytes, channels, is_deep) = match layout {
        Layout::Bytes(size, order) => (size, order.len(), false),
        Layout::Words(size, order) => (2 * size, order.len(), true),
        Layout::Depth => (4, 1, true),
        Layout::Yuv(_) => (2, 3, false),
        Layout::Planes { .. } => (1, 3, false),
    };
    let row_bytes = width.checked_mul(pixel_bytes).filter(|bytes| *bytes <= step);
    let needed = height
        .checked_sub(1)
        .and_then(|rows| rows.checked_mul(step))
        .zip(row_bytes)
        .and_then(|(before, last)| before.checked_add(last));
    let (Some(row_bytes), true) = (
        row_bytes,
        width > 0 && needed.is_some_and(|needed| needed <= image.data.len()),
    ) else {
        return Err(format!(
            "an image of {width} x {height} pixels {} with {step} bytes a row does not fit its {} bytes of data",
            image.encoding,
            image.data.len()
        ));
    };
    let in_pairs = matches!(layout, Layout::Yuv(_) | Layout::Planes { is_half: true, .. });
    if in_pairs && !width.is_multiple_of(2) {
        return Err(format!("{} needs an even width, found {width}", image.encoding));
    }
    let mut bytes = Vec::with_capacity(width * height * channels * if is_deep { 2 } else { 1 });
    let colours = match layout {
        Layout::Planes { is_half, .. } => colour_rows(image, is_half)?,
        _ => Vec::new(),
    };
    for (number, row) in image.data.chunks(step).take(height).enumerate() {
        let row = &row[..row_bytes];
        match layout {
            Layout::Planes {
                is_half,
                is_red_first,
            } => {
                append_planes(&mut bytes, row, colours[number], is_half, is_red_first);
            }
            _ => append_row(&mut bytes, row, layout, image.is_bigendian != 0),
        }
    }
    Ok(Pixels {
        width: image.width,
        height: image.height,
        channels,
        is_deep,
        bytes,
    })
}

/// The differences of colour of each row of an image in planes.
fn colour_rows<'a>(image: &Image<'a>, is_half: bool) -> Result<Vec<&'a [u8]>, String> {
    let (width, height, step) = (image.width as usize, image.height as usize, image.step as usize);
    let (row_bytes, step_bytes) = if is_half {
        (width, step)
    } else {
        (2 * width, 2 * step)
    };
    let plane = height
        .checked_mul(step)
        .and_then(|begin| image.data.get(begin..))
        .unwrap_or_default();
    let row = |number: usize| {
        let begin = if is_half { number / 2 } else { number }.checked_mul(step_bytes)?;
        plane.get(begin..begin.checked_add(row_bytes)?)
    };
    (0..height).map(row).collect::<Option<_>>().ok_or_else(|| {
        format!(
            "an image of {width} x {height} pixels {} with {step} bytes a row does not fit its {} bytes of data",
            image.encoding,
            image.data.len()
        )
    })
}

/// A row of brightness with its differences of colour.
fn append_planes(out: &mut Vec<u8>, row: &[u8], colours: &[u8], is_half: bool, is_red_first: bool) {
    for (place, brightness) in row.iter().enumerate() {
        let pair = 2 * if is_half { place / 2 } else { place };
        let (first, second) = (colours[pair], colours[pair + 1]);
        let (blue, red) = if is_red_first {
            (second, first)
        } else {
            (first, second)
        };
        out.extend(colour(*brightness, blue, red));
    }
}

fn append_row(out: &mut Vec<u8>, row: &[u8], layout: Layout, is_big_endian: bool) {
    match layout {
        Layout::Bytes(size, order)
            if order.iter().enumerate().all(|(at, from)| at == *from) && size == order.len() =>
        {
            out.extend_from_slice(row);
        }
        Layout::Bytes(size, order) => {
            for pixel in row.chunks_exact(size) {
                out.extend(order.iter().map(|from| pixel[*from]));
            }
        }
        Layout::Words(size, order) => {
            for pixel in row.chunks_exact(2 * size) {
                for from in order {
                    let (first, second) = (pixel[2 * from], pixel[2 * from + 1]);
                    out.extend(if is_big_endian {
                        [first, second]
                    } else {
                        [second, first]
                    });
                }
            }
        }
        Layout::Depth => {
            for pixel in row.chunks_exact(4) {
                let bits = [pixel[0], pixel[1], pixel[2], pixel[3]];
                let metres = if is_big_endian {
                    f32::from_be_bytes(bits)
                } else {
                    f32::from_le_bytes(bits)
                };
                out.extend(millimetres(metres).to_be_bytes());
            }
        }
        Layout::Yuv([first, second, blue, red]) => {
            for pair in row.chunks_exact(4) {
                out.extend(colour(pair[first], pair[blue], pair[red]));
                out.extend(colour(pair[second], pair[blue], pair[red]));
            }
        }
        Layout::Planes { .. } => {}
    }
}

/// As in `16UC1` depth images (REP 118): 0 where nothing was measured, at most 65.535 m.
pub fn millimetres(metres: f32) -> u16 {
    // The cast saturates, and converts NaN to zero.
    (metres * 1000.0).round() as u16
}

/// ITU-R BT.601 with limited range, in integers.
fn colour(brightness: u8, blue: u8, red: u8) -> [u8; 3] {
    let (y, u, v) = (
        298 * (i32::from(brightness) - 16),
        i32::from(blue) - 128,
        i32::from(red) - 128,
    );
    let limit = |value: i32| ((value + 128) >> 8).clamp(0, 255) as u8;
    [
        limit(y + 409 * v),
        limit(y - 100 * u - 208 * v),
        limit(y + 516 * u),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image<'a>(encoding: &'a str, width: u32, height: u32, step: u32, data: &'a [u8]) -> Image<'a> {
        Image {
            width,
            height,
            encoding,
            step,
            data,
            ..Image::default()
        }
    }

    #[test]
    fn channels_come_in_the_order_of_png_without_padding() {
        let data = [1, 2, 3, 99, 4, 5, 6, 99];
        let pixels = |encoding| convert(&image(encoding, 1, 2, 4, &data)).unwrap().bytes;
        assert_eq!(pixels("rgb8"), [1, 2, 3, 4, 5, 6]);
        assert_eq!(pixels("bgr8"), [3, 2, 1, 6, 5, 4]);
        assert_eq!(pixels("bgra8"), [3, 2, 1, 99, 6, 5, 4, 99]);
        assert_eq!(pixels("mono8"), [1, 4]);
        assert_eq!(pixels("bayer_rggb8"), [1, 4]);
        assert_eq!(pixels("16UC1"), [2, 1, 5, 4]);
    }

    #[test]
    fn depth_in_metres_becomes_millimetres() {
        let mut data = Vec::new();
        for metres in [1.2345_f32, f32::NAN, f32::INFINITY, -1.0, 100.0] {
            data.extend(metres.to_le_bytes());
        }
        let pixels = convert(&image("32FC1", 5, 1, 20, &data)).unwrap();
        let values: Vec<u16> = pixels
            .bytes
            .chunks(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        assert_eq!(values, [1235, 0, 65535, 0, 65535]);
    }

    #[test]
    fn brightness_without_colour_is_grey() {
        let pixels = convert(&image("yuv422_yuy2", 2, 1, 4, &[235, 128, 16, 128])).unwrap();
        assert_eq!(pixels.bytes, [255, 255, 255, 0, 0, 0]);
        let pixels = convert(&image("yuv422", 2, 1, 4, &[128, 235, 128, 16])).unwrap();
        assert_eq!(pixels.bytes, [255, 255, 255, 0, 0, 0]);
        // Pure red of BT.601.
        let pixels = convert(&image("yuv422", 2, 1, 4, &[90, 81, 240, 81])).unwrap();
        assert!(
            pixels.bytes[0] > 250 && pixels.bytes[1] < 5 && pixels.bytes[2] < 5,
            "{pixels:?}"
        );
    }

    #[test]
    fn planes_of_brightness_and_colour_are_joined() {
        // Pure red, in limited range: brightness 81, blue difference 90, red difference 240.
        let reds = |pixels: &Pixels| pixels.bytes.chunks(3).all(|p| p[0] > 250 && p[1] < 5 && p[2] < 5);
        let brightness = [81, 81, 0, 81, 81, 0, 81, 81];
        let planes = |differences: &[u8]| [&brightness[..], &[0], differences].concat();
        for (encoding, differences) in [
            ("nv12", &[90, 240, 0, 90, 240][..]),
            ("NV21", &[240, 90, 0, 240, 90]),
            (
                "nv24",
                &[90, 240, 90, 240, 0, 0, 90, 240, 90, 240, 0, 0, 90, 240, 90, 240],
            ),
        ] {
            let data = planes(differences);
            let pixels = convert(&image(encoding, 2, 3, 3, &data)).unwrap();
            assert!(
                reds(&pixels) && pixels.bytes.len() == 18,
                "{encoding}: {pixels:?}"
            );
            let short = convert(&image(encoding, 2, 3, 3, &data[..data.len() - 1]));
            assert!(short.unwrap_err().contains("does not fit"), "{encoding}");
        }
    }

    #[test]
    fn the_case_of_an_encoding_is_ignored() {
        for encoding in ["RGB8", "Rgb8", "MONO16", "8uc1", "32fc1", "YUYV", "uyvy"] {
            assert!(layout(encoding).is_some(), "{encoding}");
        }
    }

    #[test]
    fn pixels_that_png_cannot_hold_are_refused() {
        for signed in ["8SC1", "16SC1", "16SC3", "32SC1"] {
            let error = convert(&image(signed, 1, 1, 4, &[0xd0, 0x8a, 0, 0])).unwrap_err();
            assert!(error.contains(signed) && error.contains("signed"), "{error}");
        }
        for unknown in [
            "",
            "8UC2",
            "64FC1",
            "bayer_8",
            "bayer_rgbw8",
            "bayer_rggb12_8",
            "rgb",
        ] {
            let error = convert(&image(unknown, 1, 1, 8, &[0; 8])).unwrap_err();
            assert!(error.contains("are not written"), "{unknown}: {error}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for (width, height, step) in [
            (2, 2, 4),
            (1, 3, 4),
            (u32::MAX, u32::MAX, u32::MAX),
            (0, 1, 4),
            (1, 0, 4),
            (1, 1, 2),
        ] {
            let error = convert(&image("rgb8", width, height, step, &[0; 8])).unwrap_err();
            assert!(error.contains("does not fit"), "{error}");
        }
        assert!(
            convert(&image("jpeg", 1, 1, 1, &[0]))
                .unwrap_err()
                .contains("encoding \"jpeg\"")
        );
        assert!(
            convert(&image("yuv422", 1, 1, 4, &[0; 4]))
                .unwrap_err()
                .contains("even")
        );
    }
}
