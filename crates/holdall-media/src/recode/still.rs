//! Images without loss, each on its own: depth of 16 bits as `compressed_depth_image_transport` has it (RVL: Wilson, "Fast lossless depth image
//! compression", 2017), others as planes.

use super::{
    Coder, Key, Sent,
    image::{Frame, Taken, form_of, is_same, restored},
};
use crate::{
    carried::{COMPRESSED_IMAGE, Coded, IMAGE, Image},
    compressed::{Compressed, DEPTH_HEAD_BYTES, RVL_PIXELS_MAX},
    pixels::{is_shown, numbers},
    planes,
};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_model::recoding::{ImageForm, Recoding};

/// The codec of topics with planes, in the account.
const PLANES: &str = "planes";
/// The format text of depth, after its encoding.
const RVL: &str = "compressedDepth rvl";

/// Whether lossless video does not hold the images of a topic, by one of them: more than 8 bits, an encoding that would be converted, bytes between rows.
/// `None` for a message that does not show it.
pub(super) fn is_needed(message: &BagMessage) -> Option<bool> {
    if message.topic.type_name != IMAGE {
        return Frame::read(message).is_ok().then_some(false);
    }
    let image = Image::read(&message.payload).ok()?;
    numbers(image.encoding)?;
    match Frame::read(message) {
        Ok(frame) if frame.pixels.is_deep => Some(true),
        Ok(frame) => {
            let again = restored(&frame.form, &frame.taken, &frame.pixels);
            Some(!is_same(&message.payload, &again))
        }
        Err(_) => (!is_shown(image.encoding)).then_some(true),
    }
}

/// Encodes the images of a topic.
#[derive(Default)]
pub(super) struct Encoder {
    form: Option<ImageForm>,
    has_planes: bool,
}

impl Encoder {
    /// Continues what another one began, of which `before` is the description.
    pub fn after(before: &Recoding) -> Self {
        Self {
            form: before.image.clone(),
            has_planes: before.codec == PLANES,
        }
    }

    fn encode(&mut self, message: &BagMessage) -> Result<Vec<u8>, String> {
        let topic = &message.topic;
        if topic.type_name != IMAGE || topic.serialization_format != "cdr" {
            return Err(format!(
                "it is a {} as {}",
                topic.type_name, topic.serialization_format
            ));
        }
        let image = Image::read(&message.payload).map_err(|error| error.to_string())?;
        let form = self.form.clone().unwrap_or_else(|| form_of(&image));
        let depth = rvl(&image, &form);
        let is_plane = depth.is_none();
        let (name, data) = match depth {
            Some(data) => (RVL, data),
            None => (planes::FORMAT, planes::encode(&image)?),
        };
        let coded = Coded {
            head: image.head,
            format: &format!("{}; {name}", image.encoding),
            data: &data,
        };
        let payload = coded.write(COMPRESSED_IMAGE);
        // Decoded again: an image that would come back different stays.
        if !is_same(&message.payload, &decode(&form, &payload)?) {
            return Err("it would not come back bit for bit".to_owned());
        }
        self.form.get_or_insert(form);
        self.has_planes |= is_plane;
        Ok(payload)
    }
}

impl Coder for Encoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        sent.send(Key::of(message), self.encode(message).map(Bytes::from));
    }

    fn end(&mut self, _: &mut Sent<'_>) {}

    fn describe(&self, about: &mut Recoding) {
        if self.has_planes { PLANES } else { "rvl" }.clone_into(&mut about.codec);
        about.encoder = format!("holdall {}", env!("CARGO_PKG_VERSION"));
        about.image.clone_from(&self.form);
    }
}

/// Decodes what an [`Encoder`] made.
pub(super) struct Decoder {
    form: ImageForm,
}

impl Decoder {
    pub const fn new(form: ImageForm) -> Self {
        Self { form }
    }
}

/// The message of an image; `form` has what RVL does not.
fn decode(form: &ImageForm, payload: &[u8]) -> Result<Vec<u8>, String> {
    let coded = Coded::read(COMPRESSED_IMAGE, payload).map_err(|error| error.to_string())?;
    match Compressed::read(coded.data, coded.format)? {
        Compressed::Depth(depth) => {
            // A merged topic has one account, maybe of images in another encoding; the message states its own.
            let encoding = coded.format.split(';').next().unwrap_or_default().trim();
            let is_bigendian = if encoding == form.encoding {
                form.is_bigendian
            } else {
                0
            };
            let form = ImageForm {
                encoding: encoding.to_owned(),
                is_bigendian,
                ..form.clone()
            };
            Ok(restored(&form, &Taken::of(&coded.head), &depth.pixels()))
        }
        Compressed::Image(image) => {
            let head = coded.head;
            Ok(Image {
                head,
                ..image.image()
            }
            .write())
        }
        Compressed::File(..) => Err("it is neither depth of RVL nor planes".to_owned()),
    }
}

impl Coder for Decoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        sent.send(
            Key::of(message),
            decode(&self.form, &message.payload).map(Bytes::from),
        );
    }

    fn end(&mut self, _: &mut Sent<'_>) {}

    fn describe(&self, about: &mut Recoding) {
        about.image = Some(self.form.clone());
    }
}

/// Depth of 16 bits as RVL, which states its size; its encoding and order of bytes are in the account of the topic. `None` for an image that is not of
/// the topic's `form`, or has bytes between rows.
fn rvl(image: &Image<'_>, form: &ImageForm) -> Option<Vec<u8>> {
    let of_form = (image.encoding, image.is_bigendian) == (form.encoding.as_str(), form.is_bigendian);
    let is_depth = matches!(image.encoding, "16UC1" | "mono16");
    let length = u64::from(image.height) * u64::from(image.step);
    let is_whole = image.data.len() as u64 == length && u64::from(image.step) == 2 * u64::from(image.width);
    if !of_form || !is_depth || !is_whole || !(1..=2 * RVL_PIXELS_MAX as u64).contains(&length) {
        return None;
    }
    let (pairs, _) = image.data.as_chunks::<2>();
    let number = |bytes: &[u8; 2]| match image.is_bigendian {
        0 => u16::from_le_bytes(*bytes),
        _ => u16::from_be_bytes(*bytes),
    };
    let numbers: Vec<u16> = pairs.iter().map(number).collect();
    let mut data = vec![0; DEPTH_HEAD_BYTES];
    data.extend(image.width.to_le_bytes());
    data.extend(image.height.to_le_bytes());
    append_rvl(&mut data, &numbers);
    Some(data)
}

/// Numbers of 3 bits a nibble, eight nibbles a word.
struct Nibbles<'a> {
    out: &'a mut Vec<u8>,
    word: u32,
    filled: u32,
}

impl Nibbles<'_> {
    fn put(&mut self, mut value: u32) {
        loop {
            let nibble = (value & 7) | if value > 7 { 8 } else { 0 };
            value >>= 3;
            self.word = (self.word << 4) | nibble;
            self.filled += 1;
            if self.filled == 8 {
                self.end_word();
            }
            if value == 0 {
                return;
            }
        }
    }

    fn end_word(&mut self) {
        if self.filled > 0 {
            let word = self.word << (4 * (8 - self.filled));
            self.out.extend(word.to_le_bytes());
        }
        (self.word, self.filled) = (0, 0);
    }
}

/// Runs of empty pixels, and of differences between the others.
fn append_rvl(out: &mut Vec<u8>, numbers: &[u16]) {
    let mut nibbles = Nibbles {
        out,
        word: 0,
        filled: 0,
    };
    let (mut rest, mut last) = (numbers, 0_i32);
    while !rest.is_empty() {
        let empty = rest.iter().take_while(|number| **number == 0).count();
        rest = &rest[empty..];
        let measured = rest.iter().take_while(|number| **number != 0).count();
        nibbles.put(empty as u32);
        nibbles.put(measured as u32);
        for number in &rest[..measured] {
            let difference = i32::from(*number) - last;
            nibbles.put(((difference << 1) ^ (difference >> 31)).cast_unsigned());
            last = i32::from(*number);
        }
        rest = &rest[measured..];
    }
    nibbles.end_word();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{carried::Image, recode::image::tests::message};

    #[test]
    fn depth_comes_back_byte_for_byte() {
        for (height, step, seed) in [(7_u32, 10_u32, 1_u32), (1, 2, 5), (30, 14, 9)] {
            let width = step / 2;
            let mut state = seed;
            let data: Vec<u8> = (0..width * height)
                .flat_map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let number = if state & 0x300 == 0 {
                        0
                    } else {
                        (state >> 16) as u16
                    };
                    number.to_le_bytes()
                })
                .collect();
            for encoding in ["16UC1", "mono16"] {
                let image = Image {
                    height,
                    width,
                    encoding,
                    step,
                    data: &data,
                    ..Image::default()
                };
                let before = message(3, &image);
                let mut encoder = Encoder::default();
                let mut after = before.clone();
                after.payload = encoder.encode(&before).unwrap().into();
                assert!(!encoder.has_planes);
                // The account of a merged topic may have the form of other images.
                let form = encoder.form.unwrap();
                let other = ImageForm {
                    encoding: "32FC1".to_owned(),
                    ..form.clone()
                };
                for form in [form, other] {
                    assert_eq!(
                        decode(&form, &after.payload).unwrap(),
                        before.payload,
                        "{encoding} {width} x {height}"
                    );
                }
            }
        }
    }

    #[test]
    fn padding_has_no_meaning() {
        let image = Image {
            height: 1,
            width: 2,
            encoding: "16UC1",
            step: 4,
            data: &[1, 2, 3, 4],
            ..Image::default()
        };
        let mut message = message(0, &image);
        let mut payload = message.payload.to_vec();
        // After the NUL of an empty frame_id, and after the last field.
        assert_eq!(payload[16..20], [0; 4]);
        payload[18] = 0xfb;
        payload.extend([7; 3]);
        message.payload = payload.clone().into();
        Encoder::default().encode(&message).unwrap();
        payload.push(7);
        message.payload = payload.into();
        assert!(Encoder::default().encode(&message).is_err());
    }

    #[test]
    fn what_video_and_rvl_do_not_hold_is_planes() {
        let data: Vec<u8> = (0..48).collect();
        for (encoding, step, is_needed_for) in [
            ("mono8", 2, false),
            ("rgb8", 6, false),
            ("mono8", 3, true),
            ("RGB8", 6, true),
            ("rgba8", 8, true),
            ("yuv422", 4, true),
            ("nv12", 2, true),
            ("32FC1", 9, true),
            ("16SC1", 4, true),
            ("rgb16", 12, true),
            ("mono16", 5, true),
        ] {
            let image = Image {
                height: 2,
                width: 2,
                encoding,
                step,
                data: &data[..3 * step as usize],
                ..Image::default()
            };
            let image = Image {
                data: if is_needed_for {
                    image.data
                } else {
                    &data[..2 * step as usize]
                },
                ..image
            };
            let before = message(3, &image);
            assert_eq!(is_needed(&before), Some(is_needed_for), "{encoding} {step}");
            let mut encoder = Encoder::default();
            let payload = encoder.encode(&before).unwrap();
            assert!(encoder.has_planes, "{encoding}");
            assert_eq!(
                decode(&ImageForm::default(), &payload).unwrap(),
                before.payload,
                "{encoding}"
            );
        }
        let lying = Image {
            height: 9,
            width: 9,
            encoding: "rgb8",
            step: 1,
            ..Image::default()
        };
        assert_eq!(is_needed(&message(0, &lying)), None);
        let unknown = message(
            0,
            &Image {
                encoding: "sepia",
                ..lying
            },
        );
        assert_eq!(is_needed(&unknown), None);
        let reason = Encoder::default().encode(&unknown).unwrap_err();
        assert!(reason.contains("\"sepia\" is not known"), "{reason}");
    }
}
