//! How similar two images are: PSNR of all channels, SSIM of brightness.

use crate::{
    carried::{COMPRESSED_IMAGE, Coded, IMAGE, Image},
    compressed::{Compressed, file_pixels},
    pixels::{Pixels, convert},
};

/// PSNR of equal images.
const EQUAL_DB: f64 = 100.0;
/// An image that is less like another one than this, in dB, does not show the same.
pub const PSNR_MIN: f64 = 15.0;
/// Side of the windows of SSIM, and the distance between two of them, as ffmpeg's filter has them.
const WINDOW: usize = 8;
const STEP: usize = 4;
/// The constants of SSIM for values of 8 bits.
const C1: f64 = 6.5025;
const C2: f64 = 58.5225;

/// Peak signal-to-noise ratio in dB of two images of the same size and channels, of 8 bits.
pub fn psnr(one: &Pixels, other: &Pixels) -> f64 {
    let pairs = one.bytes.iter().zip(&other.bytes);
    let sum: u64 = pairs.map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum();
    if sum == 0 || one.bytes.is_empty() {
        return EQUAL_DB;
    }
    10.0 * (255.0 * 255.0 * one.bytes.len() as f64 / sum as f64).log10()
}

/// Brightness by BT.709.
fn brightness(pixels: &Pixels) -> Vec<f64> {
    match pixels.channels {
        1 => pixels.bytes.iter().map(|byte| f64::from(*byte)).collect(),
        channels => {
            let pixels = pixels.bytes.chunks_exact(channels);
            pixels
                .map(|it| 0.2126 * f64::from(it[0]) + 0.7152 * f64::from(it[1]) + 0.0722 * f64::from(it[2]))
                .collect()
        }
    }
}

/// Structural similarity of brightness; 1 for equal images, and for those smaller than a window.
pub fn ssim(one: &Pixels, other: &Pixels) -> f64 {
    let (width, height) = (one.width as usize, one.height as usize);
    if width < WINDOW || height < WINDOW {
        return 1.0;
    }
    let (a, b) = (brightness(one), brightness(other));
    let (mut sum, mut windows) = (0.0, 0.0);
    for top in (0..=height - WINDOW).step_by(STEP) {
        for left in (0..=width - WINDOW).step_by(STEP) {
            sum += of_window(&a, &b, top * width + left, width);
            windows += 1.0;
        }
    }
    sum / windows
}

/// Structural similarity of the images in two messages.
///
/// # Errors
/// One clause: messages without an image of 8 bits a channel, images of different sizes, and those smaller than a window.
pub fn ssim_of_messages(type_name: &str, one: &[u8], other: &[u8]) -> Result<f64, String> {
    let [one, other] = [pixels(type_name, one)?, pixels(type_name, other)?];
    if (one.width, one.height) != (other.width, other.height) {
        return Err(format!(
            "{} x {} pixels became {} x {}",
            one.width, one.height, other.width, other.height
        ));
    }
    if (one.width.min(one.height) as usize) < WINDOW {
        return Err(format!(
            "images smaller than {WINDOW} x {WINDOW} pixels have no SSIM"
        ));
    }
    if one.is_deep || other.is_deep {
        return Err("SSIM is that of images with 8 bits a channel; use tolerances for others".to_owned());
    }
    Ok(ssim(&one, &other))
}

pub(crate) fn pixels(type_name: &str, payload: &[u8]) -> Result<Pixels, String> {
    match type_name {
        IMAGE => convert(&Image::read(payload).map_err(|error| error.to_string())?),
        COMPRESSED_IMAGE => {
            let coded = Coded::read(type_name, payload).map_err(|error| error.to_string())?;
            match Compressed::read(coded.data, coded.format)? {
                Compressed::File(extension, bytes) => file_pixels(extension, bytes),
                Compressed::Depth(depth) => Ok(depth.pixels()),
            }
        }
        other => Err(format!(
            "messages of {other} have no SSIM; those of {IMAGE} and {COMPRESSED_IMAGE} have"
        )),
    }
}

fn of_window(a: &[f64], b: &[f64], begin: usize, width: usize) -> f64 {
    let (mut sum_a, mut sum_b, mut sum_aa, mut sum_bb, mut sum_ab) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for row in 0..WINDOW {
        let at = begin + row * width;
        for (a, b) in a[at..at + WINDOW].iter().zip(&b[at..at + WINDOW]) {
            sum_a += a;
            sum_b += b;
            sum_aa += a * a;
            sum_bb += b * b;
            sum_ab += a * b;
        }
    }
    let count = (WINDOW * WINDOW) as f64;
    let (mean_a, mean_b) = (sum_a / count, sum_b / count);
    let (var_a, var_b) = (sum_aa / count - mean_a * mean_a, sum_bb / count - mean_b * mean_b);
    let both = sum_ab / count - mean_a * mean_b;
    ((2.0 * mean_a * mean_b + C1) * (2.0 * both + C2))
        / ((mean_a * mean_a + mean_b * mean_b + C1) * (var_a + var_b + C2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(offset: u8) -> Pixels {
        Pixels {
            width: 16,
            height: 12,
            channels: 1,
            is_deep: false,
            bytes: (0..16 * 12)
                .map(|place| (place % 16 * 8) as u8 + offset)
                .collect(),
        }
    }

    #[test]
    fn equal_images_are_the_most_similar_and_others_less() {
        assert_eq!(psnr(&ramp(0), &ramp(0)), EQUAL_DB);
        assert!((ssim(&ramp(0), &ramp(0)) - 1.0).abs() < 1e-9);
        // An error of 1 everywhere is 20 log10(255) dB.
        assert!((psnr(&ramp(0), &ramp(1)) - 48.13).abs() < 0.01);
        let flat = Pixels {
            bytes: vec![64; 16 * 12],
            ..ramp(0)
        };
        assert!(ssim(&ramp(0), &flat) < 0.3, "{}", ssim(&ramp(0), &flat));
        let tiny = Pixels {
            width: 2,
            height: 1,
            bytes: vec![1, 2],
            ..ramp(0)
        };
        assert_eq!(ssim(&tiny, &tiny), 1.0);
    }

    #[test]
    fn messages_without_a_comparable_image_are_refused() {
        let message = |encoding, side: u32, data: &[u8]| {
            let image = Image {
                width: side,
                height: side,
                step: data.len() as u32 / side,
                encoding,
                data,
                ..Image::default()
            };
            image.write()
        };
        let of = |one: &[u8], other: &[u8]| ssim_of_messages(IMAGE, one, other);
        let large = message("mono8", 16, &[5; 256]);
        assert!((of(&large, &large).unwrap() - 1.0).abs() < 1e-9);
        for (other, word) in [
            (message("mono8", 8, &[5; 64]), "16 x 16 pixels became 8 x 8"),
            (message("16UC1", 16, &[5; 512]), "8 bits a channel"),
            (message("64FC1", 16, &[5; 2048]), "not written"),
            (Vec::new(), ""),
        ] {
            let error = of(&large, &other).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let tiny = message("mono8", 4, &[5; 16]);
        assert!(of(&tiny, &tiny).unwrap_err().contains("smaller than 8 x 8"));
        let other = ssim_of_messages("std_msgs/msg/String", &large, &large).unwrap_err();
        assert!(other.contains("have no SSIM"), "{other}");
    }
}
