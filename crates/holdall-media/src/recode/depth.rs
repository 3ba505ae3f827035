//! Images of 16 bits without loss, as `compressed_depth_image_transport` has them: RVL (Wilson, "Fast lossless depth image compression", 2017).

use super::{
    Coder, Key, Sent,
    image::{Frame, Taken, is_same, restored},
};
use crate::{
    carried::{COMPRESSED_IMAGE, Coded},
    compressed::{Compressed, DEPTH_HEAD_BYTES},
};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_model::recoding::{ImageForm, Recoding};

/// Encodes the images of a topic, each on its own.
#[derive(Default)]
pub(super) struct Encoder {
    form: Option<ImageForm>,
}

impl Encoder {
    /// Continues what another one began, of which `before` is the description.
    pub fn after(before: &Recoding) -> Self {
        Self {
            form: before.image.clone(),
        }
    }

    fn encode(&mut self, message: &BagMessage) -> Result<Vec<u8>, String> {
        let frame = Frame::read(message)?;
        if !matches!(frame.form.encoding.as_str(), "16UC1" | "mono16") {
            return Err(format!(
                "{} is not one number of 16 bits for each pixel",
                frame.form.encoding
            ));
        }
        let form = self.form.get_or_insert_with(|| frame.form.clone());
        // Each image says its size; its encoding and order of bytes are in the account of the topic.
        if (&form.encoding, form.is_bigendian) != (&frame.form.encoding, frame.form.is_bigendian) {
            return Err(
                "its encoding or order of bytes is not that of the first image of its topic".to_owned(),
            );
        }
        if !is_same(&message.payload, &restored(form, &frame.taken, &frame.pixels)) {
            return Err("it would not come back bit for bit (bytes between rows)".to_owned());
        }
        let (pairs, _) = frame.pixels.bytes.as_chunks::<2>();
        let numbers: Vec<u16> = pairs.iter().map(|bytes| u16::from_be_bytes(*bytes)).collect();
        let mut data = vec![0; DEPTH_HEAD_BYTES];
        data.extend(frame.pixels.width.to_le_bytes());
        data.extend(frame.pixels.height.to_le_bytes());
        append_rvl(&mut data, &numbers);
        let format = format!("{}; compressedDepth rvl", form.encoding);
        // Decoded again: an image that would come back different stays.
        match Compressed::read(&data, &format)? {
            Compressed::Depth(depth) if depth.pixels() == frame.pixels => {}
            _ => return Err("decoded again it differs".to_owned()),
        }
        let coded = Coded {
            head: frame.taken.head(),
            format: &format,
            data: &data,
        };
        Ok(coded.write(COMPRESSED_IMAGE))
    }
}

impl Coder for Encoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        sent.send(Key::of(message), self.encode(message).map(Bytes::from));
    }

    fn end(&mut self, _: &mut Sent<'_>) {}

    fn describe(&self, about: &mut Recoding) {
        "rvl".clone_into(&mut about.codec);
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

    fn decode(&self, message: &BagMessage) -> Result<Vec<u8>, String> {
        let coded = Coded::read(COMPRESSED_IMAGE, &message.payload).map_err(|error| error.to_string())?;
        match Compressed::read(coded.data, coded.format)? {
            Compressed::Depth(depth) => Ok(restored(&self.form, &Taken::of(&coded.head), &depth.pixels())),
            Compressed::File(..) => Err("it is not depth of RVL".to_owned()),
        }
    }
}

impl Coder for Decoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        sent.send(Key::of(message), self.decode(message).map(Bytes::from));
    }

    fn end(&mut self, _: &mut Sent<'_>) {}

    fn describe(&self, about: &mut Recoding) {
        about.image = Some(self.form.clone());
    }
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
                let decoder = Decoder::new(encoder.form.unwrap());
                assert_eq!(
                    decoder.decode(&after).unwrap(),
                    before.payload,
                    "{encoding} {width} x {height}"
                );
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
    fn what_would_not_come_back_stays() {
        let padded = Image {
            height: 2,
            width: 1,
            encoding: "16UC1",
            step: 4,
            data: &[1, 2, 3, 4, 5, 6, 7, 8],
            ..Image::default()
        };
        let reason = Encoder::default().encode(&message(0, &padded)).unwrap_err();
        assert!(reason.contains("bit for bit"), "{reason}");
        let grey = Image {
            height: 1,
            width: 1,
            encoding: "mono8",
            step: 1,
            data: &[1],
            ..Image::default()
        };
        assert!(
            Encoder::default()
                .encode(&message(0, &grey))
                .unwrap_err()
                .contains("mono8")
        );
    }
}
