//! H.264 in this process, by the library OpenH264, for computers without `ffmpeg` (docs/adr/0025). It sees images of the user and what it made of them,
//! nothing else.

use super::{
    encoder::{Engine, OWN, PRESETS, Shape, quality_of},
    image::Raw,
    video::VideoOptions,
};
use crate::pixels::Pixels;
use bytes::Bytes;
use openh264::{
    Error, OpenH264API,
    decoder::{DecodeOptions, Decoder, Flush},
    encoder::{
        BitRate, Complexity, Encoder, EncoderConfig, FrameRate, IntraFramePeriod, QpRange, RateControlMode,
        VuiConfig,
    },
    formats::YUVSource,
};

/// What begins a picture of the stream.
const DELIMITER: [u8; 6] = [0, 0, 0, 1, 9, 0xf0];
/// What it aims at, and does not reach: the quality is fixed.
const BITS_PER_S: u32 = 100_000_000;

/// A picture of 8 bits in the colours of BT.709, of the range from 16 on, with a colour for four pixels.
struct Planes {
    width: usize,
    height: usize,
    luma: Vec<u8>,
    /// Blue, then red.
    chroma: [Vec<u8>; 2],
}

impl YUVSource for Planes {
    fn dimensions(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    fn strides(&self) -> (usize, usize, usize) {
        (self.width, self.width / 2, self.width / 2)
    }

    fn y(&self) -> &[u8] {
        &self.luma
    }

    fn u(&self) -> &[u8] {
        &self.chroma[0]
    }

    fn v(&self) -> &[u8] {
        &self.chroma[1]
    }
}

/// Fractions of 2^16: what red, green and blue add to luma, to blue and to red.
const LUMA: [i32; 3] = [11_966, 40_254, 4_064];
const BLUE: [i32; 3] = [-6_596, -22_189, 28_785];
const RED: [i32; 3] = [28_785, -26_145, -2_640];
/// What grey adds: 219 steps from 16 on.
const GREY: i32 = 56_284;

impl Planes {
    /// For images of even sizes.
    fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            luma: vec![0; width * height],
            chroma: [(); 2].map(|()| vec![128; width * height / 4]),
        }
    }

    fn set(&mut self, pixels: &[u8], order: &str) {
        let round = |sum: i32, bits: u32| ((sum + (1 << (bits - 1))) >> bits) as u8;
        if order == "gray" {
            let luma = self.luma.iter_mut().zip(pixels);
            luma.for_each(|(to, grey)| *to = round(GREY * i32::from(*grey) + (16 << 16), 16));
            return;
        }
        let is_blue_first = order == "bgr24";
        let [to_luma, to_blue, to_red] = [LUMA, BLUE, RED].map(|[red, green, blue]| match is_blue_first {
            true => [blue, green, red],
            false => [red, green, blue],
        });
        let of = |pixel: &[u8], parts: [i32; 3]| {
            parts[0] * i32::from(pixel[0]) + parts[1] * i32::from(pixel[1]) + parts[2] * i32::from(pixel[2])
        };
        for (to, pixel) in self.luma.iter_mut().zip(pixels.chunks_exact(3)) {
            *to = round(of(pixel, to_luma) + (16 << 16), 16);
        }
        let [blue, red] = &mut self.chroma;
        let half = self.width / 2;
        let rows = pixels.chunks_exact(6 * self.width);
        for ((rows, blue), red) in rows
            .zip(blue.chunks_exact_mut(half))
            .zip(red.chunks_exact_mut(half))
        {
            let (upper, lower) = rows.split_at(3 * self.width);
            let pairs = upper.chunks_exact(6).zip(lower.chunks_exact(6));
            for ((upper, lower), (blue, red)) in pairs.zip(blue.iter_mut().zip(red)) {
                let sum = |parts| {
                    [upper, lower]
                        .iter()
                        .flat_map(|pair| pair.chunks_exact(3))
                        .map(|pixel| of(pixel, parts))
                        .sum::<i32>()
                };
                *blue = round(sum(to_blue) + (128 << 18), 18);
                *red = round(sum(to_red) + (128 << 18), 18);
            }
        }
    }
}

/// A running encoder.
struct Inside {
    encoder: Encoder,
    planes: Planes,
    order: &'static str,
    made: Vec<u8>,
}

fn said(error: Error) -> String {
    format!("{OWN}: {error}")
}

/// Starts an encoder for images like this one.
///
/// # Errors
/// One clause: the library refuses the settings.
pub(super) fn start(options: &VideoOptions, image: &Raw, shape: &Shape) -> Result<Box<dyn Engine>, String> {
    let quality = quality_of(options, shape);
    let preset = PRESETS.iter().position(|(name, _)| *name == options.preset);
    let complexity = match preset.unwrap_or(0) {
        ..4 => Complexity::Low,
        4..6 => Complexity::Medium,
        _ => Complexity::High,
    };
    let config = EncoderConfig::new()
        .rate_control_mode(RateControlMode::Bufferbased)
        .bitrate(BitRate::from_bps(BITS_PER_S))
        .qp(QpRange::new(quality, quality))
        .skip_frames(false)
        .scene_change_detect(false)
        .background_detection(false)
        .adaptive_quantization(false)
        .complexity(complexity)
        .num_threads(1)
        .max_frame_rate(FrameRate::from_hz(shape.rate as f32))
        .intra_frame_period(IntraFramePeriod::from_num_frames(shape.group as u32))
        .vui(VuiConfig::bt709());
    Ok(Box::new(Inside {
        encoder: Encoder::with_api_config(OpenH264API::from_source(), config).map_err(said)?,
        planes: Planes::new(image.width as usize, image.height as usize),
        order: image.order,
        made: Vec::new(),
    }))
}

impl Engine for Inside {
    fn feed(&mut self, pixels: Bytes) -> Result<(), String> {
        self.planes.set(&pixels, self.order);
        let picture = self.encoder.encode(&self.planes).map_err(said)?;
        self.made.extend(DELIMITER);
        picture.write_vec(&mut self.made);
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<u8>, String> {
        Ok(std::mem::take(&mut self.made))
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, String> {
        Ok(self.made)
    }
}

/// The last of some pictures, the first of which is a key frame.
///
/// # Errors
/// One clause: pictures that are not decoded.
pub(super) fn decode_last(made: &[Vec<u8>]) -> Result<Pixels, String> {
    let none = || format!("{OWN} decoded no picture");
    let (last, before) = made.split_last().ok_or_else(none)?;
    let mut decoder = Decoder::new().map_err(said)?;
    let flushed = || DecodeOptions::new().flush_after_decode(Flush::Flush);
    for data in before {
        decoder.decode_with_options(data, flushed()).map_err(said)?;
    }
    let picture = decoder.decode_with_options(last, flushed()).map_err(said)?;
    picture.map(|picture| pixels(&picture)).ok_or_else(none)
}

/// Red, green and blue again.
fn pixels(picture: &impl YUVSource) -> Pixels {
    let (width, height) = picture.dimensions();
    let (rows, chroma_rows, _) = picture.strides();
    let mut bytes = Vec::with_capacity(3 * width * height);
    for row in 0..height {
        for column in 0..width {
            let luma = 1.164_384 * (f32::from(picture.y()[row * rows + column]) - 16.0);
            let at = row / 2 * chroma_rows + column / 2;
            let (blue, red) = (
                f32::from(picture.u()[at]) - 128.0,
                f32::from(picture.v()[at]) - 128.0,
            );
            let colours = [
                luma + 1.792_741 * red,
                luma - 0.213_249 * blue - 0.532_909 * red,
                luma + 2.112_402 * blue,
            ];
            // Rounded; what is out of range is the end of the range.
            bytes.extend(colours.map(|colour| (colour + 0.5) as u8));
        }
    }
    Pixels {
        width: width as u32,
        height: height as u32,
        channels: 3,
        is_deep: false,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        elementary::{Codec, Pictures},
        likeness::psnr,
        recode::{How, Rule, encoder::check},
    };

    fn image(number: usize, channels: usize) -> Pixels {
        // No multiples of the 16 pixels that are encoded together.
        let (width, height) = (70_usize, 46);
        let of = |place: usize, channel: usize| {
            let (row, column) = (place / width, place % width);
            ((row * 2 + column * 2 + number) / (channel + 1)) as u8
        };
        Pixels {
            width: width as u32,
            height: height as u32,
            channels,
            is_deep: false,
            bytes: (0..width * height)
                .flat_map(|place| (0..channels).map(move |channel| of(place, channel)))
                .collect(),
        }
    }

    #[test]
    fn each_image_is_a_picture_like_it_and_groups_begin_with_key_frames() {
        for channels in [3, 1] {
            let rule = Rule::video("/a=h264,quality=16,encoder=openh264").unwrap();
            let How::Video(options) = rule.how() else { panic!() };
            let shape = Shape {
                rate: 30,
                group: 5,
                is_live: true,
                ease: 0,
            };
            let mut engine = start(options, &image(0, channels).into(), &shape).unwrap();
            let mut stream = Pictures::new(Codec::H264, 1 << 20);
            let mut made = Vec::new();
            for number in 0..20 {
                engine.feed(image(number, channels).bytes.into()).unwrap();
                made.extend(stream.add(&engine.take().unwrap(), false).unwrap());
            }
            made.extend(stream.add(&engine.finish().unwrap(), true).unwrap());
            assert_eq!(made.len(), 20);
            for (number, group) in made.chunks(5).enumerate() {
                check(Codec::H264, group, 5).unwrap();
                let mut wanted = image(5 * number + 4, channels);
                if channels == 1 {
                    wanted.bytes = wanted.bytes.iter().flat_map(|grey| [*grey; 3]).collect();
                    wanted.channels = 3;
                }
                let apart = psnr(&wanted, &decode_last(group).unwrap());
                assert!(apart > 36.0, "{apart}");
            }
        }
    }

    #[test]
    fn garbage_is_no_picture() {
        assert!(decode_last(&[vec![0, 0, 0, 1, 9, 0xf0, 1, 2, 3]]).is_err());
        assert!(decode_last(&[]).unwrap_err().contains("no picture"));
    }
}
