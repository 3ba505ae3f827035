//! Decodes video to images. A process of `ffmpeg` takes one or more key frames with the pictures that follow, and ends at the first that cannot be decoded.

use super::{
    Coder, Key, Made, Sent,
    image::{Taken, restored},
    video::{PICTURE_MORE_BYTES, picture_bytes, pictures_max, stream_bytes_max},
};
use crate::{
    carried::{COMPRESSED_IMAGE, Coded},
    compressed::is_file,
    elementary::{Codec, MISSING, Unit, before_missing},
    ffmpeg::{Stop, decode, decode_each, version},
    picture_file::{ImageFormat, encode},
    pixels::Pixels,
};
use holdall_bag::reader::BagMessage;
use holdall_model::recoding::{ImageForm, Recoding};

/// Pictures of a group that is decoded.
const GROUP_PICTURES_MAX: usize = 3000;
/// Short groups share a process until they have this many pictures or bytes: some cameras send only key frames.
const TOGETHER_MAX: usize = 60;
const TOGETHER_BYTES_MAX: usize = 8 << 20;

/// Why a message has no image though nothing is wrong with it.
const BEFORE_KEY: &str = "it comes before the first key frame";
const NO_PICTURE: &str = "it has no picture";

/// Whether a message has no image though nothing is wrong with it: it comes before the first key frame, or has no picture.
pub fn is_beside(reason: &str) -> bool {
    [BEFORE_KEY, NO_PICTURE].contains(&reason)
}

/// Quality of image files that are made of pictures.
const JPEG_QUALITY: u8 = 95;

/// Decodes video: what `video::Encoder` made, or another program.
pub(super) struct Decoder {
    /// What the images were; `None` where that is not known.
    form: Option<ImageForm>,
    /// Other sizes that they had later.
    sizes: Vec<[u32; 2]>,
    /// Images become files.
    is_file: bool,
    /// Each picture is given out at once when it was decoded.
    is_urgent: bool,
    /// Messages that are decoded together, from a key frame on; `None` for those without a picture.
    group: Vec<(Key, Option<Taken>)>,
    /// Places of key frames in `made`.
    keys: Vec<usize>,
    /// Parameters of the last key frame.
    parameters: Option<Vec<u8>>,
    /// The pictures may be shown in another order than they were sent in.
    is_reordered: bool,
    /// A key frame has come.
    has_begun: bool,
    codec: Option<Codec>,
    made: Vec<Vec<u8>>,
    made_bytes: usize,
    /// The latest parameters, for key frames that have none.
    head: Vec<u8>,
    decoder: String,
}

impl Decoder {
    pub fn new(form: Option<ImageForm>) -> Self {
        Self {
            form,
            sizes: Vec::new(),
            is_file: false,
            is_urgent: false,
            group: Vec::new(),
            keys: Vec::new(),
            parameters: None,
            is_reordered: false,
            has_begun: false,
            codec: None,
            made: Vec::new(),
            made_bytes: 0,
            head: Vec::new(),
            decoder: version(&Stop::default()).unwrap_or_default(),
        }
    }

    /// The images had these sizes too.
    pub fn sized(mut self, sizes: Vec<[u32; 2]>) -> Self {
        self.sizes = sizes;
        self
    }

    /// Makes JPEG files of the images.
    pub fn into_files(mut self) -> Self {
        self.is_file = true;
        self
    }

    /// Gives each picture out at once when it was decoded.
    pub fn urgent(mut self) -> Self {
        self.is_urgent = true;
        self
    }

    /// Continues a video that began with these parameters.
    pub fn after_head(mut self, head: Vec<u8>) -> Self {
        self.head = head;
        self
    }

    /// Bytes of a picture that is decoded at once with others, so that their number is known to be right before the first is given out.
    fn picture_bytes_max(&self) -> Option<usize> {
        let form = self.form.as_ref().filter(|_| !self.is_urgent)?;
        let first = [form.width, form.height];
        let sizes = self.sizes.iter().chain([&first]);
        sizes.map(|[width, height]| picture_bytes(*width, *height)).max()
    }

    fn read(&mut self, message: &BagMessage, sent: &mut Sent<'_>) -> Result<(), String> {
        let coded =
            Coded::read(&message.topic.type_name, &message.payload).map_err(|error| error.to_string())?;
        if message.topic.type_name == COMPRESSED_IMAGE && is_file(coded.data) {
            // The encoder kept it between its pictures.
            return self.add_void(message, sent);
        }
        let codec = Codec::named(coded.format)
            .ok_or_else(|| format!("video of format {:?} is not decoded", coded.format))?;
        let unit = Unit::read(codec, coded.data)?;
        if unit.pictures > 1 {
            return Err(format!("it has {} pictures, expected one", unit.pictures));
        }
        if unit.pictures == 0 {
            if unit.parameters.is_some() {
                if unit.parameters != self.parameters {
                    self.end_group(sent);
                }
                self.head = coded.data.to_vec();
                self.parameters = unit.parameters;
            }
            return self.add_void(message, sent);
        }
        if self.codec.is_some_and(|known| known != codec) || (unit.is_key && !self.goes_on(codec, &unit)) {
            self.end_group(sent);
        }
        self.has_begun |= unit.is_key;
        if self.group.is_empty() && !unit.is_key {
            let reason = match self.has_begun {
                true => "it follows one that cannot be decoded, without a key frame between",
                false => BEFORE_KEY,
            };
            return Err(reason.to_owned());
        }
        self.is_reordered |= unit.is_reordered;
        if self.group.len() >= GROUP_PICTURES_MAX
            || (!self.group.is_empty() && self.made_bytes + coded.data.len() > stream_bytes_max(0))
        {
            return Err("too many pictures are between it and its key frame".to_owned());
        }
        let mut made = Vec::new();
        if unit.parameters.is_some() {
            self.head = coded.data[..unit.head_bytes].to_vec();
        } else if unit.is_key {
            made.extend_from_slice(&self.head);
        }
        made.extend_from_slice(coded.data);
        if unit.is_key {
            self.keys.push(self.made.len());
            self.parameters = unit.parameters.or(self.parameters.take());
        }
        self.codec = Some(codec);
        self.group.push((Key::of(message), Some(Taken::of(&coded.head))));
        self.made_bytes += made.len();
        self.made.push(made);
        Ok(())
    }

    /// Whether a key frame is decoded together with what came before.
    fn goes_on(&self, codec: Codec, unit: &Unit) -> bool {
        let is_small = self.made.len() < TOGETHER_MAX && self.made_bytes < TOGETHER_BYTES_MAX;
        // In other codecs the size may change without new parameters.
        let is_same = matches!(codec, Codec::H264 | Codec::H265)
            && (unit.parameters.is_none() || unit.parameters == self.parameters);
        is_small && is_same && self.picture_bytes_max().is_none()
    }

    /// Takes a message without a picture, in its turn.
    fn add_void(&mut self, message: &BagMessage, sent: &mut Sent<'_>) -> Result<(), String> {
        let key = Key::of(message);
        match self.group.len() {
            0 => sent.send(key, Err(NO_PICTURE.to_owned())),
            GROUP_PICTURES_MAX.. => return Err(NO_PICTURE.to_owned()),
            _ => self.group.push((key, None)),
        }
        Ok(())
    }

    /// The message of a picture.
    fn made(&self, taken: &Taken, picture: &Pixels) -> Made {
        if self.is_file {
            let (_, data) = encode(picture, ImageFormat::Jpeg(JPEG_QUALITY))?;
            let coded = Coded {
                head: taken.head(),
                format: "rgb8; jpeg compressed bgr8",
                data: &data,
            };
            return Ok(coded.write(COMPRESSED_IMAGE).into());
        }
        let size = (picture.width, picture.height);
        match &self.form {
            Some(form)
                if !self.is_urgent
                    && (form.width, form.height) != size
                    && !self.sizes.contains(&[size.0, size.1]) =>
            {
                Err("its picture has another size than the bag says".to_owned())
            }
            Some(form) => Ok(restored(form, taken, picture).into()),
            None => {
                let form = ImageForm {
                    width: picture.width,
                    height: picture.height,
                    encoding: "rgb8".to_owned(),
                    is_bigendian: 0,
                };
                Ok(restored(&form, taken, picture).into())
            }
        }
    }

    fn end_group(&mut self, sent: &mut Sent<'_>) {
        let (group, made) = (std::mem::take(&mut self.group), std::mem::take(&mut self.made));
        let keys = std::mem::take(&mut self.keys);
        self.made_bytes = 0;
        let is_reordered = std::mem::take(&mut self.is_reordered);
        let Some(codec) = self.codec.take().filter(|_| !made.is_empty()) else {
            return;
        };
        let at_once = self.picture_bytes_max();
        let at_once = at_once.filter(|bytes| made.len() <= pictures_max(*bytes));
        let none = || Err(NO_PICTURE.to_owned());
        let (mut waiting, mut next) = (group.iter(), 0);
        while next < made.len() && !sent.is_over {
            let whole = next + before_missing(codec, &made[next..]);
            let mut given = next;
            let mut give = |picture: &Pixels| {
                for (key, taken) in waiting.by_ref() {
                    let image = taken.as_ref().map(|taken| self.made(taken, picture));
                    let is_picture = image.is_some();
                    sent.send(*key, image.unwrap_or_else(none));
                    if is_picture {
                        given += 1;
                        break;
                    }
                }
                !sent.is_over
            };
            let done = match at_once {
                _ if is_reordered => {
                    Err("video with B-frames: its pictures are in another order than its messages".to_owned())
                }
                Some(picture_bytes) => {
                    let bytes_max = made.len() * (picture_bytes + PICTURE_MORE_BYTES);
                    let pictures = decode(codec, &made[next..whole], (0, bytes_max), &Stop::default());
                    pictures.map(|pictures| _ = pictures.iter().all(&mut give))
                }
                None => decode_each(codec, &made[next..whole], &mut give),
            };
            let reason = match done {
                Err(reason) => reason,
                Ok(()) if given == whole => MISSING.to_owned(),
                Ok(()) => "ffmpeg made no picture of it".to_owned(),
            };
            // Pictures up to the next key frame depend on the one that failed.
            next = keys
                .iter()
                .copied()
                .find(|key| *key > given)
                .unwrap_or(made.len());
            while given < next
                && let Some((key, taken)) = waiting.next()
            {
                given += usize::from(taken.is_some());
                sent.send(
                    *key,
                    Err(taken.as_ref().map_or(NO_PICTURE, |_| &reason).to_owned()),
                );
            }
        }
        for (key, _) in waiting {
            sent.send(*key, none());
        }
    }
}

impl Coder for Decoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        if let Err(reason) = self.read(message, sent) {
            self.end_group(sent);
            sent.send(Key::of(message), Err(reason));
        }
    }

    fn end(&mut self, sent: &mut Sent<'_>) {
        self.end_group(sent);
    }

    fn describe(&self, about: &mut Recoding) {
        about.encoder.clone_from(&self.decoder);
        about.image.clone_from(&self.form);
        about.sizes.clone_from(&self.sizes);
    }
}
