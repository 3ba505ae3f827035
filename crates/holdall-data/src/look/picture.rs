//! A message as a picture for pages: images of all encodings that are exported, depth with a scale, grids, and point clouds from above.

use super::{
    cloud::{from_above, grid, rgb},
    scale,
};
use crate::export::ImageFields;
use holdall_media::{
    cloud::{CLOUD, COMPRESSED_CLOUD},
    compressed::{Compressed, png_pixels},
    picture_file::{ImageFormat, encode},
    pixels::Pixels,
};
use holdall_model::dynamic::TypePlan;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Quality of JPEG pictures.
const QUALITY: u8 = 82;

/// Rows and columns of pixels at most whose mean a pixel of a shrunk picture is.
const SAMPLES: usize = 3;

/// Values that decide the range of depths.
const RANGED: usize = 20_000;

/// How a picture is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PictureOptions {
    /// Most pixels of a side; pictures that are stored as JPEG, PNG or WebP keep theirs.
    pub side_max: Option<u32>,
    /// The ends of the scale of depths, in millimetres; those that the image has where none is given.
    pub range: Option<(f64, f64)>,
    /// What colours the points of a cloud: `z`, or its intensity.
    pub by: Option<String>,
}

/// A message as a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// `image/jpeg`, `image/png` or `image/webp`; of a stream for a browser that decodes, `application/octet-stream`.
    pub content_type: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// `kind`, and what a legend needs.
    pub about: Value,
}

/// Whether messages of a type can be seen as pictures.
pub fn is_picture(type_name: &str) -> bool {
    matches!(
        type_name,
        "sensor_msgs/msg/Image"
            | "sensor_msgs/msg/CompressedImage"
            | "foxglove_msgs/msg/CompressedVideo"
            | "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
            | CLOUD
            | COMPRESSED_CLOUD
            | "nav_msgs/msg/OccupancyGrid"
    )
}

/// A message as a picture.
///
/// # Errors
/// One clause: another type, or pixels that cannot be shown.
pub fn picture(plan: &TypePlan, payload: &[u8], options: &PictureOptions) -> Result<Picture, String> {
    match plan.type_name() {
        "sensor_msgs/msg/Image" | "sensor_msgs/msg/CompressedImage" => image(plan, payload, options),
        CLOUD | COMPRESSED_CLOUD => {
            let (pixels, about) = from_above(plan, payload, options.side_max, options.by.as_deref())?;
            encoded(&pixels, ImageFormat::Png, about)
        }
        "nav_msgs/msg/OccupancyGrid" => {
            let (pixels, about) = grid(plan, payload)?;
            encoded(&shrunk(&pixels, options.side_max), ImageFormat::Png, about)
        }
        other => Err(format!("messages of {other} are no pictures")),
    }
}

fn image(plan: &TypePlan, payload: &[u8], options: &PictureOptions) -> Result<Picture, String> {
    let mut fields = ImageFields::default();
    plan.walk(payload, &mut fields)
        .map_err(|error| error.to_string())?;
    let is_raw = plan.type_name() == "sensor_msgs/msg/Image";
    let pixels = if is_raw {
        fields.pixels()?
    } else {
        match fields.compressed()? {
            Compressed::File("png", bytes) if is_deep_grey(bytes) => png_pixels(bytes)?,
            Compressed::File(extension, bytes) => {
                let content_type = match extension {
                    "jpg" => "image/jpeg",
                    "png" => "image/png",
                    _ => "image/webp",
                };
                return Ok(Picture {
                    content_type,
                    bytes: bytes.to_vec(),
                    about: json!({"kind": "image", "encoding": fields.stated()}),
                });
            }
            packed => packed.pixels()?,
        }
    };
    of_pixels(&pixels, options, fields.stated())
}

/// Pixels as a picture, with the encoding that they had.
pub(super) fn of_pixels(
    pixels: &Pixels,
    options: &PictureOptions,
    encoding: &str,
) -> Result<Picture, String> {
    let mut about =
        json!({"kind": "image", "encoding": encoding, "width": pixels.width, "height": pixels.height});
    let pixels = shrunk(pixels, options.side_max);
    if !pixels.is_deep {
        return encoded(&pixels, ImageFormat::Jpeg(QUALITY), about);
    }
    if pixels.channels > 1 {
        // Eight bits are seen.
        let bytes = pixels.bytes.iter().step_by(2).copied().collect();
        let seen = Pixels {
            is_deep: false,
            bytes,
            ..pixels.into_owned()
        };
        return encoded(&seen, ImageFormat::Jpeg(QUALITY), about);
    }
    let values = || {
        pixels
            .bytes
            .chunks_exact(2)
            .map(|pair| f64::from(u16::from_be_bytes([pair[0], pair[1]])))
    };
    let count = pixels.bytes.len() / 2;
    let some = values().step_by(count.div_ceil(RANGED).max(1));
    let range = options
        .range
        .or_else(|| scale::range(some.filter(|value| *value > 0.0).collect()));
    let range = range.unwrap_or((0.0, 1.0));
    // Where nothing was measured the value is 0.
    let bytes = values().flat_map(|value| match value {
        0.0 => [0; 3],
        value => scale::colour(value, range),
    });
    let seen = rgb(pixels.width, pixels.height, bytes.collect());
    about["kind"] = json!("depth");
    about["low"] = json!(range.0);
    about["high"] = json!(range.1);
    about["legend"] = json!(scale::legend());
    encoded(&seen, ImageFormat::Png, about)
}

/// Whether a PNG has one channel of 16 bits, by its head.
fn is_deep_grey(bytes: &[u8]) -> bool {
    bytes.get(24..26) == Some(&[16, 0])
}

fn encoded(pixels: &Pixels, format: ImageFormat, about: Value) -> Result<Picture, String> {
    let (extension, bytes) = encode(pixels, format)?;
    Ok(Picture {
        content_type: if extension == "jpg" {
            "image/jpeg"
        } else {
            "image/png"
        },
        bytes,
        about,
    })
}

/// A picture with sides of at most `side_max` pixels; depths are not averaged.
fn shrunk(pixels: &Pixels, side_max: Option<u32>) -> Cow<'_, Pixels> {
    let longer = pixels.width.max(pixels.height);
    let factor = side_max.map_or(1, |most| longer.div_ceil(most.max(16))) as usize;
    if factor < 2 {
        return Cow::Borrowed(pixels);
    }
    let value_bytes = if pixels.is_deep { 2 } else { 1 };
    let pixel_bytes = pixels.channels * value_bytes;
    let row_bytes = pixels.width as usize * pixel_bytes;
    let (width, height) = (
        (pixels.width as usize / factor).max(1),
        (pixels.height as usize / factor).max(1),
    );
    let block = factor.min(pixels.width as usize).min(pixels.height as usize);
    let step = block.div_ceil(SAMPLES);
    let mut bytes = Vec::with_capacity(width * height * pixel_bytes);
    for row in 0..height {
        for column in 0..width {
            let at = row * factor * row_bytes + column * factor * pixel_bytes;
            if pixels.is_deep {
                bytes.extend_from_slice(&pixels.bytes[at..at + pixel_bytes]);
                continue;
            }
            for channel in 0..pixel_bytes {
                let (mut sum, mut count) = (0, 0);
                for y in (0..block).step_by(step) {
                    for x in (0..block).step_by(step) {
                        sum += u32::from(pixels.bytes[at + y * row_bytes + x * pixel_bytes + channel]);
                        count += 1;
                    }
                }
                bytes.push((sum / count) as u8);
            }
        }
    }
    Cow::Owned(Pixels {
        width: width as u32,
        height: height as u32,
        channels: pixels.channels,
        is_deep: pixels.is_deep,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrunk_picture_has_means_and_a_side_of_no_more_than_is_wanted() {
        let pixels = Pixels {
            width: 100,
            height: 50,
            channels: 1,
            is_deep: false,
            bytes: (0..5000).map(|at| if at % 2 == 0 { 0 } else { 200 }).collect(),
        };
        let small = shrunk(&pixels, Some(50));
        assert_eq!((small.width, small.height, small.bytes.len()), (50, 25, 1250));
        assert!(small.bytes.iter().all(|value| *value == 100));
        assert_eq!(shrunk(&pixels, Some(100)).width, 100);
        let thin = Pixels {
            width: 1,
            height: 400,
            bytes: vec![9; 400],
            ..pixels
        };
        assert_eq!(shrunk(&thin, Some(50)).bytes, [9; 50]);
    }
}
