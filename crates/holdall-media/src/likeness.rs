//! How similar two images are: PSNR of all channels, SSIM of brightness.

use crate::{
    carried::{COMPRESSED_IMAGE, Coded, IMAGE, Image},
    compressed::Compressed,
    pixels::{Pixels, convert},
};
use holdall_model::recoding::Likeness;

/// PSNR of equal images.
const EQUAL_DB: f64 = 100.0;
/// What was measured counts up to this: two images that are even more alike show the same anyway.
const PSNR_ENOUGH: f64 = 40.0;
/// How much less a picture may be like its image than the least of the samples: its error may be twice as large.
const PSNR_FALL: f64 = 3.0;
const ERROR_RISE: f64 = 2.0;
/// Variance of a window that has more than the noise of a sensor.
const CONTRAST: f64 = 400.0;
/// Mean variance of windows that show something.
const STRUCTURE: f64 = 1.0;
/// Correlation of a picture with an image that it does not show.
const FOREIGN: f64 = 0.3;
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

/// How like an image a picture of it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alike {
    pub psnr: f64,
    /// Structural similarity of brightness; 1 for equal images, and for those smaller than a window.
    pub ssim: f64,
    /// The same of the windows in which the image has contrast; 1 without any. A black picture of lamps at night has a high mean of all windows.
    of_contrast: f64,
    /// The picture has structure, and it is not the image's: it shows another scene, or the same one some time ago.
    is_foreign: bool,
}

/// Compares an image with a picture of it.
pub(crate) fn alike(image: &Pixels, picture: &Pixels) -> Alike {
    let (mut all, mut contrast, mut sums) = ([0.0; 2], [0.0; 2], [0.0; 3]);
    each_window(image, picture, |window| {
        let variances = window.variances();
        let ssim = window.ssim(variances);
        let means = [
            Some(&mut all),
            (variances[0] >= CONTRAST).then_some(&mut contrast),
        ];
        for [sum, count] in means.into_iter().flatten() {
            *sum += ssim;
            *count += 1.0;
        }
        for (sum, one) in sums.iter_mut().zip(variances) {
            *sum += one;
        }
    });
    let mean = |[sum, count]: [f64; 2]| if count > 0.0 { sum / count } else { 1.0 };
    let [var_a, var_b, both] = sums;
    // An encoder that smooths away all of a noise leaves a picture without structure.
    let has_structure = var_b >= STRUCTURE * all[1] && var_b >= var_a / 4.0;
    Alike {
        psnr: psnr(image, picture),
        ssim: mean(all),
        of_contrast: mean(contrast),
        is_foreign: all[1] > 0.0 && has_structure && both < FOREIGN * (var_a * var_b).sqrt(),
    }
}

/// What a picture has to be like its image at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    psnr: f64,
    ssim: f64,
    of_contrast: f64,
}

impl Bound {
    /// Of any picture that an encoder makes, also of the worst quality.
    pub const LEAST: Self = Self {
        psnr: 15.0,
        ssim: 0.2,
        of_contrast: 0.1,
    };
    /// The bound of a picture whose image is deleted.
    const KEPT_ALONE: Self = Self {
        psnr: 15.0,
        ssim: 0.5,
        of_contrast: 0.5,
    };

    /// The bound of a picture whose image is deleted, where samples were as like their images as this.
    pub fn of_samples(samples: &Likeness) -> Self {
        let least = Self::KEPT_ALONE;
        Self {
            psnr: least.psnr.max(samples.psnr_min.min(PSNR_ENOUGH) - PSNR_FALL),
            ssim: least.ssim.max(1.0 - ERROR_RISE * (1.0 - samples.ssim_min)),
            ..least
        }
    }

    /// Compares an image with a picture of it.
    ///
    /// # Errors
    /// One clause: the picture does not show what the image does.
    pub fn compare(&self, image: &Pixels, picture: &Pixels) -> Result<Alike, String> {
        if (image.width, image.height, image.channels) != (picture.width, picture.height, picture.channels) {
            return Err("decoded again it has another size than its image".to_owned());
        }
        let found = alike(image, picture);
        let Alike { psnr, ssim, .. } = found;
        if found.is_foreign {
            return Err(format!(
                "decoded again it shows something else (PSNR {psnr:.1} dB, SSIM {ssim:.2})"
            ));
        }
        if psnr < self.psnr || ssim < self.ssim || found.of_contrast < self.of_contrast {
            return Err(format!(
                "decoded again it is not like its image (PSNR {psnr:.1} dB, SSIM {ssim:.2}, {:.2} where there is contrast; \
                 expected {:.1} dB, {:.2} and {:.2} at least)",
                found.of_contrast, self.psnr, self.ssim, self.of_contrast
            ));
        }
        Ok(found)
    }
}

/// Brightness by BT.709.
fn brightness(pixel: &[u8]) -> f64 {
    match *pixel {
        [red, green, blue, ..] => {
            0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
        }
        _ => f64::from(pixel[0]),
    }
}

/// Sums over the brightness of two images: of both, of their squares, and of their products.
#[derive(Clone, Copy, Default)]
struct Sums([f64; 5]);

impl Sums {
    fn add(&mut self, a: f64, b: f64) {
        let Self([sum_a, sum_b, sum_aa, sum_bb, sum_ab]) = self;
        *sum_a += a;
        *sum_b += b;
        *sum_aa += a * a;
        *sum_bb += b * b;
        *sum_ab += a * b;
    }

    fn means(&self) -> [f64; 5] {
        self.0.map(|sum| sum / (WINDOW * WINDOW) as f64)
    }

    /// Of both images, and what both have in common.
    fn variances(&self) -> [f64; 3] {
        let [a, b, aa, bb, ab] = self.means();
        [aa - a * a, bb - b * b, ab - a * b]
    }

    fn ssim(&self, [var_a, var_b, both]: [f64; 3]) -> f64 {
        let [a, b, ..] = self.means();
        ((2.0 * a * b + C1) * (2.0 * both + C2)) / ((a * a + b * b + C1) * (var_a + var_b + C2))
    }
}

/// The squares of `STEP` x `STEP` pixels in a row of them.
fn squares(one: &Pixels, other: &Pixels, number: usize) -> Vec<Sums> {
    let width = one.width as usize;
    let mut squares = vec![Sums::default(); width / STEP];
    for row in number * STEP..(number + 1) * STEP {
        let [a, b] = [one, other].map(|it| {
            let row_bytes = width * it.channels;
            it.bytes[row * row_bytes..][..row_bytes].chunks_exact(it.channels)
        });
        for (place, (a, b)) in a.zip(b).take(squares.len() * STEP).enumerate() {
            squares[place / STEP].add(brightness(a), brightness(b));
        }
    }
    squares
}

/// Gives `each` the windows of two images of one size: four squares that are beside each other.
fn each_window(one: &Pixels, other: &Pixels, mut each: impl FnMut(&Sums)) {
    let rows = one.height as usize / STEP;
    let mut before: Vec<Sums> = Vec::new();
    for row in 0..rows {
        let here = squares(one, other, row);
        for (upper, lower) in before.windows(2).zip(here.windows(2)) {
            let mut window = Sums::default();
            for Sums(square) in upper.iter().chain(lower) {
                for (sum, part) in window.0.iter_mut().zip(square) {
                    *sum += part;
                }
            }
            each(&window);
        }
        before = here;
    }
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
    Ok(alike(&one, &other).ssim)
}

pub(crate) fn pixels(type_name: &str, payload: &[u8]) -> Result<Pixels, String> {
    match type_name {
        IMAGE => convert(&Image::read(payload).map_err(|error| error.to_string())?),
        COMPRESSED_IMAGE => {
            let coded = Coded::read(type_name, payload).map_err(|error| error.to_string())?;
            Compressed::read(coded.data, coded.format)?.pixels()
        }
        other => Err(format!(
            "messages of {other} have no SSIM; those of {IMAGE} and {COMPRESSED_IMAGE} have"
        )),
    }
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

    /// A night picture: dark, with a texture, and lamps if wanted.
    fn night(offset: usize, has_lamps: bool) -> Pixels {
        let (width, height) = (64_usize, 48_usize);
        let of = |place: usize| {
            let (row, column) = (place / width, place % width);
            let is_lamp = has_lamps && row % 24 < 3 && column % 32 < 3;
            // Cells of 4 x 4 pixels that do not repeat.
            let cell = (row / 4 * 31 + (column + offset) / 4 * 17) * 2_654_435 % 97;
            match (is_lamp, has_lamps) {
                (true, _) => 200,
                (false, true) => 0,
                (false, false) => 12 + (cell % 13) as u8,
            }
        };
        Pixels {
            width: width as u32,
            height: height as u32,
            bytes: (0..width * height).map(of).collect(),
            ..ramp(0)
        }
    }

    fn changed(image: &Pixels, change: impl Fn(u8) -> u8) -> Pixels {
        let bytes = image.bytes.iter().map(|byte| change(*byte)).collect();
        Pixels {
            bytes,
            ..image.clone()
        }
    }

    #[test]
    fn black_frozen_and_foreign_pictures_are_refused_also_at_night() {
        let image = night(0, false);
        let mut samples = Likeness::default();
        samples.add(42.0, 0.97);
        for bound in [Bound::LEAST, Bound::of_samples(&samples)] {
            // One that lost little, and what it says of itself.
            let good = changed(&image, |byte| byte ^ 1);
            assert!(bound.compare(&image, &good).unwrap().psnr > 40.0, "{bound:?}");
            let black = changed(&image, |_| 0);
            assert!(psnr(&image, &black) > 20.0);
            for other in [&black, &night(30, false), &changed(&image, |byte| 36 - byte)] {
                let reason = bound.compare(&image, other).unwrap_err();
                assert!(reason.starts_with("decoded again it "), "{reason}");
            }
            let (lamps, off) = (night(0, true), changed(&image, |_| 0));
            assert!(alike(&lamps, &off).ssim > 0.5 && psnr(&lamps, &off) > 15.0);
            assert!(bound.compare(&lamps, &off).is_err());
        }
        // 3 dB less than the samples, and twice their distance from 1.
        let bound = Bound::of_samples(&samples);
        assert_eq!((bound.psnr, (bound.ssim * 100.0).round()), (37.0, 94.0));
        let coarse = changed(&image, |byte| byte / 16 * 16 + 7);
        assert!(Bound::LEAST.compare(&image, &coarse).is_ok());
        assert!(bound.compare(&image, &coarse).is_err());
    }

    #[test]
    fn an_encoder_may_smooth_all_of_a_noise() {
        let image = night(0, false);
        let flat = changed(&image, |_| 18);
        assert!(Bound::LEAST.compare(&image, &flat).is_ok());
    }

    #[test]
    fn equal_images_are_the_most_similar_and_others_less() {
        let ssim = |one: &Pixels, other: &Pixels| alike(one, other).ssim;
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
