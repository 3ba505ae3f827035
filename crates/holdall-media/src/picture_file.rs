//! Writes pixels as PNG and JPEG files.

use crate::pixels::Pixels;

/// The format of raw images. Images that are compressed already keep their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// Lossless.
    Png,
    /// JPEG with this quality, 1 to 100. Images of 16 bits are written as PNG anyway.
    Jpeg(u8),
}

/// An image file, with its extension.
///
/// # Errors
/// One clause for pixels that the format cannot hold.
pub fn encode(pixels: &Pixels, format: ImageFormat) -> Result<(&'static str, Vec<u8>), String> {
    let mut out = Vec::new();
    let narrow = u16::try_from(pixels.width)
        .ok()
        .zip(u16::try_from(pixels.height).ok());
    match (format, narrow) {
        (ImageFormat::Jpeg(quality), Some((width, height))) if !pixels.is_deep => {
            let colours = match pixels.channels {
                1 => jpeg_encoder::ColorType::Luma,
                3 => jpeg_encoder::ColorType::Rgb,
                _ => jpeg_encoder::ColorType::Rgba,
            };
            jpeg_encoder::Encoder::new(&mut out, quality)
                .encode(&pixels.bytes, width, height, colours)
                .map_err(|error| error.to_string())?;
            Ok(("jpg", out))
        }
        _ => {
            let mut encoder = png::Encoder::new(&mut out, pixels.width, pixels.height);
            encoder.set_color(match pixels.channels {
                1 => png::ColorType::Grayscale,
                3 => png::ColorType::Rgb,
                _ => png::ColorType::Rgba,
            });
            encoder.set_depth(if pixels.is_deep {
                png::BitDepth::Sixteen
            } else {
                png::BitDepth::Eight
            });
            encoder.set_compression(png::Compression::Fast);
            let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
            writer
                .write_image_data(&pixels.bytes)
                .map_err(|error| error.to_string())?;
            writer.finish().map_err(|error| error.to_string())?;
            Ok(("png", out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_written_in_the_requested_format() {
        let pixels = Pixels {
            width: 2,
            height: 1,
            channels: 3,
            is_deep: false,
            bytes: vec![0, 1, 2, 3, 4, 5],
        };
        let (extension, bytes) = encode(&pixels, ImageFormat::Png).unwrap();
        assert_eq!((extension, bytes.starts_with(b"\x89PNG")), ("png", true));
        let (extension, bytes) = encode(&pixels, ImageFormat::Jpeg(90)).unwrap();
        assert_eq!((extension, bytes.starts_with(b"\xff\xd8\xff")), ("jpg", true));
        let deep = Pixels {
            channels: 1,
            is_deep: true,
            bytes: vec![0; 4],
            ..pixels
        };
        assert_eq!(encode(&deep, ImageFormat::Jpeg(90)).unwrap().0, "png");
    }
}
