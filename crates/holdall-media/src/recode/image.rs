//! One image of a message as pixels for an encoder, and the message again from pixels.

use crate::{
    carried::{COMPRESSED_IMAGE, Coded, Head, IMAGE, Image},
    compressed::{Compressed, file_pixels},
    pixels::{Pixels, convert},
};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_model::recoding::ImageForm;

/// The head of an image's message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    sec: u32,
    nanosec: u32,
    frame_id: String,
}

impl Taken {
    pub fn of(head: &Head<'_>) -> Self {
        Self {
            sec: head.sec,
            nanosec: head.nanosec,
            frame_id: head.frame_id.to_owned(),
        }
    }

    pub fn head(&self) -> Head<'_> {
        Head {
            sec: self.sec,
            nanosec: self.nanosec,
            frame_id: &self.frame_id,
        }
    }
}

pub(super) fn form_of(image: &Image<'_>) -> ImageForm {
    ImageForm {
        width: image.width,
        height: image.height,
        encoding: image.encoding.to_owned(),
        is_bigendian: image.is_bigendian,
    }
}

/// The pixels of an image as an encoder takes them.
#[derive(Clone)]
pub(super) struct Raw {
    pub width: u32,
    pub height: u32,
    /// The order of their channels, as `ffmpeg` names it: `gray`, `rgb24`, `bgr24`.
    pub order: &'static str,
    pub bytes: Bytes,
}

impl Raw {
    /// The pixels where they are in a message, if an encoder takes them so: without padding, 8 bits for each channel.
    pub fn of(message: &BagMessage) -> Option<(Taken, ImageForm, Self)> {
        let topic = &message.topic;
        let is_image = topic.type_name == IMAGE && topic.serialization_format == "cdr";
        let image = Image::read(&message.payload).ok().filter(|_| is_image)?;
        let (order, pixel_bytes) = match image.encoding {
            "mono8" | "8UC1" => ("gray", 1),
            "rgb8" => ("rgb24", 3),
            "bgr8" | "8UC3" => ("bgr24", 3),
            _ => return None,
        };
        let row = image.width.checked_mul(pixel_bytes)?;
        let length = (row as usize).checked_mul(image.height as usize)?;
        let data = image.data.get(..length)?;
        let raw = Self {
            width: image.width,
            height: image.height,
            order,
            bytes: message.payload.slice_ref(data),
        };
        (row == image.step && length > 0).then(|| (Taken::of(&image.head), form_of(&image), raw))
    }

    /// What an encoder is started for.
    pub const fn layout(&self) -> (u32, u32, &'static str) {
        (self.width, self.height, self.order)
    }
}

impl From<Pixels> for Raw {
    /// For one or three channels of 8 bits.
    fn from(pixels: Pixels) -> Self {
        Self {
            width: pixels.width,
            height: pixels.height,
            order: if pixels.channels == 1 { "gray" } else { "rgb24" },
            bytes: pixels.bytes.into(),
        }
    }
}

/// An image out of a message.
pub(super) struct Frame {
    pub taken: Taken,
    pub form: ImageForm,
    pub pixels: Pixels,
}

impl Frame {
    /// Reads a message of `sensor_msgs`; a clause for one that is not an image, or one of an encoding that is not known.
    pub fn read(message: &BagMessage) -> Result<Self, String> {
        if message.topic.serialization_format != "cdr" {
            return Err(format!(
                "its messages are {}, not CDR",
                message.topic.serialization_format
            ));
        }
        match message.topic.type_name.as_str() {
            IMAGE => Self::of_pixels(&message.payload),
            COMPRESSED_IMAGE => Self::of_file(&message.payload),
            other => Err(format!("a {other} is not an image")),
        }
    }

    fn of_pixels(payload: &[u8]) -> Result<Self, String> {
        let image = Image::read(payload).map_err(|error| error.to_string())?;
        let pixels = convert(&image)?;
        Ok(Self {
            taken: Taken::of(&image.head),
            form: form_of(&image),
            pixels,
        })
    }

    fn of_file(payload: &[u8]) -> Result<Self, String> {
        let coded = Coded::read(COMPRESSED_IMAGE, payload).map_err(|error| error.to_string())?;
        let pixels = match Compressed::read(coded.data, coded.format)? {
            Compressed::File(extension, bytes) if std::ptr::eq(bytes, coded.data) => {
                file_pixels(extension, bytes)?
            }
            _ => return Err("it is compressed depth, or planes".to_owned()),
        };
        Ok(Self {
            taken: Taken::of(&coded.head),
            form: ImageForm {
                width: pixels.width,
                height: pixels.height,
                encoding: if pixels.channels == 1 { "mono8" } else { "rgb8" }.to_owned(),
                is_bigendian: 0,
            },
            pixels,
        })
    }
}

/// Bytes after the last field: transports and recorders pad to a multiple of four.
const END_BYTES_MAX: usize = 3;

/// Whether a payload has nothing beyond what was written anew from its fields. Padding between fields has no meaning: middlewares leave in it what
/// was in their memory.
pub(super) fn has_no_more(payload: &[u8], written: &[u8]) -> bool {
    payload.len() <= written.len() + END_BYTES_MAX
}

/// Whether an image's message that was made again has the fields that it had, bit for bit.
pub(super) fn is_same(payload: &[u8], again: &[u8]) -> bool {
    let fields = Image::read(payload).ok();
    fields.is_some() && fields == Image::read(again).ok() && has_no_more(payload, again)
}

/// How the pixels of an encoding are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Grey,
    Deep,
    /// Places of red, green and blue, and the number of channels.
    Colours([usize; 3], usize),
}

fn order(encoding: &str) -> Option<Order> {
    Some(match encoding {
        "mono8" | "8UC1" | "bayer_rggb8" | "bayer_bggr8" | "bayer_gbrg8" | "bayer_grbg8" => Order::Grey,
        "mono16" | "16UC1" | "bayer_rggb16" | "bayer_bggr16" | "bayer_gbrg16" | "bayer_grbg16" => Order::Deep,
        "rgb8" => Order::Colours([0, 1, 2], 3),
        "bgr8" | "8UC3" => Order::Colours([2, 1, 0], 3),
        "rgba8" => Order::Colours([0, 1, 2], 4),
        "bgra8" | "8UC4" => Order::Colours([2, 1, 0], 4),
        _ => return None,
    })
}

/// Whether pixels of an encoding have one channel.
pub(super) fn is_grey(encoding: &str) -> bool {
    matches!(order(encoding), Some(Order::Grey | Order::Deep))
}

/// The message of an image in the form that it had; one whose encoding cannot be written is `rgb8`. Alpha is opaque.
pub(super) fn restored(form: &ImageForm, taken: &Taken, pixels: &Pixels) -> Vec<u8> {
    let known = order(&form.encoding);
    let (encoding, order) = match known {
        Some(order) => (form.encoding.as_str(), order),
        None => ("rgb8", Order::Colours([0, 1, 2], 3)),
    };
    let is_big = form.is_bigendian != 0;
    let (data, pixel_bytes) = match order {
        Order::Grey => (channel(pixels), 1),
        Order::Deep => {
            let mut bytes = pixels.bytes.clone();
            if !is_big {
                bytes
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .for_each(|value| value.reverse());
            }
            (bytes, 2)
        }
        Order::Colours(places, channels) => (colours(pixels, places, channels), channels),
    };
    let image = Image {
        head: taken.head(),
        height: pixels.height,
        width: pixels.width,
        encoding,
        is_bigendian: if known.is_some() { form.is_bigendian } else { 0 },
        step: pixels.width.saturating_mul(pixel_bytes as u32),
        data: &data,
    };
    image.write()
}

/// The one channel of a grey image, which a decoder returns as three equal ones.
pub(super) fn channel(pixels: &Pixels) -> Vec<u8> {
    match pixels.channels {
        1 => pixels.bytes.clone(),
        channels => pixels.bytes.iter().skip(1).step_by(channels).copied().collect(),
    }
}

/// Whether no pixel of 8 bits a channel is transparent.
pub(super) fn is_opaque(pixels: &Pixels) -> bool {
    pixels.channels != 4
        || pixels
            .bytes
            .iter()
            .skip(3)
            .step_by(4)
            .all(|alpha| *alpha == u8::MAX)
}

/// The same in red, green and blue.
pub(super) fn rgb(pixels: &Pixels) -> Pixels {
    Pixels {
        channels: 3,
        bytes: colours(pixels, [0, 1, 2], 3),
        ..*pixels
    }
}

fn colours(pixels: &Pixels, places: [usize; 3], channels: usize) -> Vec<u8> {
    if (places, channels, pixels.channels) == ([0, 1, 2], 3, 3) {
        return pixels.bytes.clone();
    }
    let mut data = vec![u8::MAX; pixels.bytes.len() / pixels.channels.max(1) * channels];
    for (from, to) in pixels
        .bytes
        .chunks_exact(pixels.channels.max(1))
        .zip(data.chunks_exact_mut(channels))
    {
        for (channel, place) in places.iter().enumerate() {
            to[*place] = from[channel.min(from.len() - 1)];
        }
    }
    data
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use holdall_model::{time::Timestamp, topic::TopicInfo};
    use std::sync::Arc;

    /// A message with an image.
    pub fn message(nanos: i64, image: &Image<'_>) -> BagMessage {
        let time = Timestamp::from_nanos(nanos);
        let topic = TopicInfo {
            name: "/camera".to_owned(),
            type_name: IMAGE.to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        };
        BagMessage {
            topic: Arc::new(topic),
            stamp: time,
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload: image.write().into(),
        }
    }

    #[test]
    fn messages_are_made_again_from_their_pixels() {
        let data: Vec<u8> = (0..24).collect();
        for (encoding, pixel_bytes, is_bigendian) in [
            ("mono8", 1, 1),
            ("rgb8", 3, 0),
            ("bgr8", 3, 0),
            ("8UC3", 3, 0),
            ("16UC1", 2, 0),
            ("mono16", 2, 1),
            ("bayer_rggb8", 1, 0),
        ] {
            let image = Image {
                head: Head {
                    sec: 1,
                    nanosec: 2,
                    frame_id: "lens",
                },
                height: 2,
                width: 4,
                encoding,
                is_bigendian,
                step: 4 * pixel_bytes,
                data: &data[..8 * pixel_bytes as usize],
            };
            let frame = Frame::read(&message(0, &image)).ok().unwrap();
            assert_eq!(
                restored(&frame.form, &frame.taken, &frame.pixels),
                image.write(),
                "{encoding}"
            );
        }
        let opaque = [1, 2, 3, 255, 4, 5, 6, 255];
        for encoding in ["rgba8", "bgra8"] {
            let image = Image {
                height: 1,
                width: 2,
                encoding,
                step: 8,
                data: &opaque,
                ..Image::default()
            };
            let frame = Frame::read(&message(0, &image)).ok().unwrap();
            assert_eq!(
                restored(&frame.form, &frame.taken, &frame.pixels),
                image.write(),
                "{encoding}"
            );
        }
        let image = Image {
            height: 1,
            width: 2,
            encoding: "yuv422",
            step: 4,
            data: &[128, 235, 128, 16],
            ..Image::default()
        };
        let frame = Frame::read(&message(0, &image)).ok().unwrap();
        let again = restored(&frame.form, &frame.taken, &frame.pixels);
        assert_eq!(Image::read(&again).unwrap().encoding, "rgb8");
    }

    #[test]
    fn pixels_without_padding_are_encoded_where_they_are() {
        let data: Vec<u8> = (0..24).collect();
        let image = |encoding, step| Image {
            height: 2,
            width: 4,
            encoding,
            step,
            data: &data,
            ..Image::default()
        };
        for (encoding, step, order) in [
            ("mono8", 4, "gray"),
            ("rgb8", 12, "rgb24"),
            ("bgr8", 12, "bgr24"),
            ("8UC3", 12, "bgr24"),
        ] {
            let message = message(0, &image(encoding, step));
            let (_, form, raw) = Raw::of(&message).unwrap();
            assert_eq!(raw.layout(), (4, 2, order));
            assert_eq!(raw.bytes, data[..2 * step as usize]);
            assert!(message.payload.as_ptr_range().contains(&raw.bytes.as_ptr()));
            assert_eq!(form, Frame::read(&message).unwrap().form);
        }
        for (encoding, step) in [
            ("mono8", 5),
            ("rgb8", 13),
            ("rgb8", 11),
            ("rgba8", 16),
            ("16UC1", 8),
        ] {
            assert!(
                Raw::of(&message(0, &image(encoding, step))).is_none(),
                "{encoding}"
            );
        }
    }

    #[test]
    fn what_is_no_image_has_one_clause() {
        let lying = Image {
            height: 2,
            width: 2,
            encoding: "rgb8",
            step: 5,
            data: &[0; 12],
            ..Image::default()
        };
        let reason = Frame::read(&message(0, &lying)).err().unwrap();
        assert!(reason.contains("does not fit"), "{reason}");
        let mut torn = message(0, &lying);
        torn.payload = torn.payload.slice(..20);
        assert!(Frame::read(&torn).is_err());
    }
}
