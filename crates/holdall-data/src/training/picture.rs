//! The images of a feature out of messages: as PNG or JPEG in a table, as plain pixels for a video, and some pixels for statistics.

use super::copies::Recorded;
use crate::export::ImageFields;
use holdall_media::{
    compressed::{Compressed, file_pixels},
    picture_file::{ImageFormat, encode},
    pixels::Pixels,
};
use holdall_model::dynamic::TypePlan;

/// Images whose longer side has this many pixels or more are sampled for statistics, as LeRobot does.
const SAMPLED_SIDE: u32 = 300;
/// About how many pixels of a side are sampled.
const SAMPLE_SIDE: u32 = 150;

/// An image that is ready to be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Picture {
    pub width: u32,
    pub height: u32,
    /// 1 or 3.
    pub channels: usize,
    /// 16 bits for each channel.
    pub is_deep: bool,
    /// `png` or `jpg`; empty for plain pixels.
    pub extension: &'static str,
    pub bytes: Vec<u8>,
    /// Some pixels, one channel after another in each.
    pub sample: Vec<u16>,
    /// The message of recorded video that it is from.
    pub recorded: Option<Recorded>,
}

/// The image of a message: plain pixels for a video, else a file.
///
/// # Errors
/// A payload that does not fit its type; pixels that cannot be converted.
pub(super) fn read(plan: &TypePlan, payload: &[u8], is_video: bool) -> Result<Picture, String> {
    let mut fields = ImageFields::default();
    plan.walk(payload, &mut fields)
        .map_err(|error| error.to_string())?;
    if plan.type_name() != "sensor_msgs/msg/CompressedImage" {
        let pixels = plain_colours(fields.pixels()?);
        return stored(pixels, None, is_video);
    }
    match fields.compressed()? {
        Compressed::File(extension, bytes) => {
            let pixels = plain_colours(file_pixels(extension, bytes)?);
            stored(pixels, Some((extension, bytes)), is_video)
        }
        packed => stored(plain_colours(packed.pixels()?), None, is_video),
    }
}

/// Whether messages of a type are images.
pub(super) fn is_image(type_name: &str) -> bool {
    matches!(
        type_name,
        "sensor_msgs/msg/Image" | "sensor_msgs/msg/CompressedImage"
    )
}

fn stored(pixels: Pixels, file: Option<(&'static str, &[u8])>, is_video: bool) -> Result<Picture, String> {
    let sample = sample(&pixels);
    let (extension, bytes) = match file {
        _ if is_video => ("", Vec::new()),
        Some((extension, bytes)) => (extension, bytes.to_vec()),
        None => encode(&pixels, ImageFormat::Png)?,
    };
    Ok(Picture {
        width: pixels.width,
        height: pixels.height,
        channels: pixels.channels,
        is_deep: pixels.is_deep,
        extension,
        bytes: if is_video { pixels.bytes } else { bytes },
        sample,
        recorded: None,
    })
}

/// Colours of 8 bits without a fourth channel: readers of datasets expect no others. Depth keeps its 16 bits.
fn plain_colours(pixels: Pixels) -> Pixels {
    let value = if pixels.is_deep { 2 } else { 1 };
    if pixels.channels < 3 || (pixels.channels == 3 && !pixels.is_deep) {
        return pixels;
    }
    let colours = pixels.bytes.chunks_exact(pixels.channels * value);
    let bytes = colours.flat_map(|pixel| pixel.iter().step_by(value).take(3));
    Pixels {
        channels: 3,
        is_deep: false,
        bytes: bytes.copied().collect(),
        ..pixels
    }
}

/// Every nth pixel of every nth row.
fn sample(pixels: &Pixels) -> Vec<u16> {
    let longer = pixels.width.max(pixels.height);
    let step = if longer < SAMPLED_SIDE {
        1
    } else {
        longer / SAMPLE_SIDE
    } as usize;
    let value = if pixels.is_deep { 2 } else { 1 };
    let pixel = value * pixels.channels;
    let rows = pixels
        .bytes
        .chunks_exact(pixel * pixels.width as usize)
        .step_by(step);
    let found = rows.flat_map(|row| row.chunks_exact(pixel).step_by(step));
    let values = found.flat_map(|pixel| pixel.chunks_exact(value));
    values
        .map(|value| value.iter().fold(0, |sum, byte| (sum << 8) | u16::from(*byte)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(width: u32, height: u32, channels: usize, is_deep: bool) -> Pixels {
        let values = width as usize * height as usize * channels * if is_deep { 2 } else { 1 };
        Pixels {
            width,
            height,
            channels,
            is_deep,
            bytes: (0..values).map(|place| (place * 7 % 251) as u8).collect(),
        }
    }

    #[test]
    fn large_images_are_sampled_and_alpha_is_left_out() {
        assert_eq!(sample(&pixels(600, 300, 3, false)).len(), 150 * 75 * 3);
        assert_eq!(sample(&pixels(2, 1, 1, true)), [0x0007, 0x0e15]);
        let plain = plain_colours(pixels(2, 1, 4, false));
        assert_eq!((plain.channels, plain.bytes), (3, vec![0, 7, 14, 28, 35, 42]));
    }
}
