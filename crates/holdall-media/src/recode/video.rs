//! Images to video and back, by `ffmpeg`: a segment of the stream at a time, each in a process of its own.
//!
//! A segment begins with a key frame and has one each second. Its pictures are given out when they are complete: each message has exactly one,
//! none depends on a later one, the parameters are where a decoder needs them, and one of them was decoded and compared with its image. Else all
//! messages of the segment keep their form.

use super::{
    Carrier, Coder, Key, Made, Sent,
    image::{Frame, Taken, channel, is_grey, is_same, restored, rgb},
};
use crate::{
    carried::{COMPRESSED_IMAGE, Coded},
    elementary::{Codec, Unit, access_units},
    ffmpeg::{Filter, PICTURE_BYTES_MAX, PROGRAM, decode, decode_each, version},
    likeness::{PSNR_MIN, psnr, ssim},
    picture_file::{ImageFormat, encode},
    pixels::Pixels,
};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_model::{
    recoding::{Exactness, ImageForm, Likeness, Recoding},
    topic::PublisherInfo,
};
use std::{ops::Range, process::Command};

/// Pixels of a segment in bytes when decoded: about the memory that each topic needs.
const SEGMENT_BYTES_MAX: usize = 128 << 20;
/// Pictures of a segment.
const SEGMENT_PICTURES_MAX: usize = 300;
/// Time between two key frames.
const KEY_NANOS: i64 = 1_000_000_000;
/// A key frame that would come later than this begins a new segment.
const KEY_NANOS_MAX: i64 = 1_250_000_000;
/// Segments that fail one after the other: after them no more are tried.
const FAILURES_MAX: u32 = 3;
/// Bytes that a picture may have beyond those of its pixels.
const PICTURE_MORE_BYTES: usize = 1 << 16;
/// Pictures of a group that is decoded.
const GROUP_PICTURES_MAX: usize = 3000;
/// Quality of image files that are made of pictures.
const JPEG_QUALITY: u8 = 95;
/// Pictures a second where nothing is known.
const RATE: usize = 30;

/// How images become video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoOptions {
    /// The codec.
    pub codec: Codec,
    /// The constant rate factor; `None` for lossless.
    pub quality: Option<u8>,
    /// The encoder's preset.
    pub preset: String,
    /// What carries the pictures.
    pub carrier: Carrier,
}

/// A message that waits for its segment.
struct Waiting {
    key: Key,
    /// Its image, or why it keeps its form.
    image: Result<Image, String>,
}

struct Image {
    taken: Taken,
    /// Checksum of the pixels, where they are compared.
    checksum: u32,
}

/// A part of the stream that one process encodes.
struct Segment {
    filter: Filter,
    waiting: Vec<Waiting>,
    pictures: usize,
    pictures_max: usize,
    /// Pictures from a key frame to the next.
    group: usize,
    first_nanos: i64,
    last_nanos: i64,
    key_nanos: i64,
    /// A picture, by its number, that is compared.
    sample: (usize, Pixels),
}

/// Encodes the images of a topic.
pub(super) struct Encoder {
    options: VideoOptions,
    form: Option<ImageForm>,
    publisher: Option<Option<Box<PublisherInfo>>>,
    /// Pictures that were given out.
    pictures: u64,
    /// Pictures a second.
    rate: usize,
    segment: Option<Segment>,
    failures: u32,
    gave_up: Option<String>,
    encoder: String,
    likeness: Likeness,
}

impl Encoder {
    pub fn new(options: VideoOptions) -> Self {
        let (encoder, gave_up) = match version() {
            Ok(version) => (version, None),
            Err(error) => (String::new(), Some(error.to_string())),
        };
        Self {
            options,
            form: None,
            publisher: None,
            pictures: 0,
            rate: RATE,
            segment: None,
            failures: 0,
            gave_up,
            encoder,
            likeness: Likeness::default(),
        }
    }

    /// Continues what another one began, of which `before` is the description.
    pub fn after(mut self, before: &Recoding) -> Self {
        self.form.clone_from(&before.image);
        self.publisher = Some(None);
        self.likeness = before.likeness.unwrap_or_default();
        self
    }

    const fn is_lossless(&self) -> bool {
        self.options.quality.is_none()
    }

    /// The image of a message, if it can be a picture of this video.
    fn frame(&mut self, message: &BagMessage) -> Result<Frame, String> {
        if let Some(reason) = &self.gave_up {
            return Err(reason.clone());
        }
        let publisher = self
            .publisher
            .get_or_insert_with(|| message.topic.publisher.clone());
        if *publisher != message.topic.publisher {
            return Err("it is from another publisher than the first image of its topic".to_owned());
        }
        if self.is_lossless() && message.topic.type_name == COMPRESSED_IMAGE {
            return Err("it is compressed already".to_owned());
        }
        let mut frame = Frame::read(message)?;
        suits(&frame, self.is_lossless())?;
        if self.is_lossless()
            && !is_same(
                &message.payload,
                &restored(&frame.form, &frame.taken, &frame.pixels),
            )
        {
            return Err(
                "it would not come back bit for bit (bytes between rows, transparent pixels, or an encoding that is converted)".to_owned(),
            );
        }
        if frame.pixels.channels == 4 {
            frame.pixels = rgb(&frame.pixels);
        }
        match &self.form {
            Some(form) if *form != frame.form => Err(format!(
                "it is {}, and the first image of its topic {}",
                said(&frame.form),
                said(form)
            )),
            Some(_) => Ok(frame),
            None => {
                self.form = Some(frame.form.clone());
                Ok(frame)
            }
        }
    }

    fn begin(&self, nanos: i64, pixels: &Pixels) -> Result<Segment, String> {
        let picture_bytes = picture_bytes(pixels.width, pixels.height);
        let pictures_max = pictures_max(picture_bytes);
        let group = self.rate.clamp(1, pictures_max);
        let mut command = encoder(&self.options, pixels, self.rate, group);
        let bytes_max = stream_bytes_max(picture_bytes) as u64;
        let filter = Filter::start(&mut command, bytes_max).map_err(|error| error.to_string())?;
        Ok(Segment {
            filter,
            waiting: Vec::new(),
            pictures: 0,
            pictures_max,
            group,
            first_nanos: nanos,
            last_nanos: nanos,
            key_nanos: nanos,
            sample: (0, pixels.clone()),
        })
    }

    /// Adds an image to the segment, which begins with it if there is none.
    fn add(&mut self, key: Key, frame: Frame) -> Result<(), (Vec<Waiting>, String)> {
        let nanos = key.log_time.as_nanos();
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => match self.begin(nanos, &frame.pixels) {
                Ok(segment) => segment,
                Err(reason) => return Err((vec![waiting(key, &frame, 0)], reason)),
            },
        };
        if segment.pictures.is_multiple_of(segment.group) {
            segment.key_nanos = nanos;
        }
        if segment.pictures == segment.group / 2 {
            segment.sample = (segment.pictures, frame.pixels.clone());
        }
        let checksum = if self.is_lossless() {
            crc32(&frame.pixels.bytes)
        } else {
            0
        };
        segment.waiting.push(waiting(key, &frame, checksum));
        segment.pictures += 1;
        segment.last_nanos = nanos;
        if let Err(error) = segment.filter.feed(frame.pixels.bytes) {
            return Err((segment.waiting, error.to_string()));
        }
        self.segment = Some(segment);
        Ok(())
    }

    fn is_due(&self, nanos: i64) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            let is_key = segment.pictures.is_multiple_of(segment.group);
            let since_key = nanos.saturating_sub(segment.key_nanos);
            segment.pictures >= segment.pictures_max
                || nanos < segment.last_nanos
                || (!is_key && since_key > KEY_NANOS_MAX)
                || since_key > 2 * KEY_NANOS_MAX
        })
    }

    /// Ends the segment and gives out its pictures, or its messages in the form that they have.
    fn end_segment(&mut self, sent: &mut Sent<'_>) {
        let Some(segment) = self.segment.take() else {
            return;
        };
        let span = segment.last_nanos.saturating_sub(segment.first_nanos);
        if segment.pictures > 1 && span > 0 {
            let rate = (segment.pictures as i64 - 1) * KEY_NANOS / span;
            self.rate = usize::try_from(rate)
                .unwrap_or(RATE)
                .clamp(1, SEGMENT_PICTURES_MAX);
        }
        let (codec, group, sample) = (self.options.codec, segment.group, segment.sample);
        let stream = segment.filter.finish().map_err(|error| error.to_string());
        let units = stream.and_then(|stream| {
            let units = access_units(codec, &stream);
            check_units(codec, &stream, &units, segment.pictures, group)?;
            self.compare(&stream, &units, &sample, &segment.waiting)?;
            Ok((stream, units))
        });
        match units {
            Ok((stream, units)) => {
                self.failures = 0;
                let mut units = units.into_iter();
                for one in segment.waiting {
                    let made = one.image.and_then(|image| {
                        let unit = units.next().ok_or("it has no picture")?;
                        let payload = self.carried(&image.taken, &stream[unit])?;
                        self.pictures += 1;
                        Ok(Bytes::from(payload))
                    });
                    sent.send(one.key, made);
                }
            }
            Err(reason) => self.fail(segment.waiting, &reason, sent),
        }
    }

    /// A picture in its message.
    fn carried(&self, taken: &Taken, data: &[u8]) -> Result<Vec<u8>, String> {
        let (codec, carrier) = (self.options.codec, self.options.carrier);
        let mut coded = Coded {
            head: taken.head(),
            format: name(codec),
            data,
        };
        if carrier != Carrier::FfmpegImageTransport {
            return Ok(coded.write(carrier.type_name()));
        }
        let form = self.form.as_ref().ok_or("it has no form")?;
        let is_grey = self.is_lossless() && is_grey(&form.encoding);
        let (target, source) = match (self.is_lossless(), is_grey) {
            (false, _) => ("rgb8", "yuv420p"),
            (true, false) => ("rgb8", "gbrp"),
            (true, true) => ("mono8", "gray"),
        };
        let format = format!("{};{source};{target};{}", codec.stream(), form.encoding);
        coded.format = &format;
        let is_key = Unit::read(codec, data)?.is_key;
        Ok(coded.write_packet([form.width, form.height], self.pictures, is_key))
    }

    /// The messages of a segment that could not be encoded keep their form.
    fn fail(&mut self, messages: Vec<Waiting>, reason: &str, sent: &mut Sent<'_>) {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.gave_up = Some(format!("{reason} ({FAILURES_MAX} times; no more was tried)"));
        }
        for one in messages {
            let why = one.image.err().unwrap_or_else(|| reason.to_owned());
            sent.send(one.key, Err(why));
        }
    }

    /// Decodes and compares: all pictures where none may differ, else the sampled one.
    fn compare(
        &mut self,
        stream: &[u8],
        units: &[Range<usize>],
        (number, image): &(usize, Pixels),
        messages: &[Waiting],
    ) -> Result<(), String> {
        let wanted = if self.is_lossless() {
            units.len()
        } else {
            number + 1
        };
        let Some(last) = wanted.checked_sub(1).and_then(|last| units.get(last)) else {
            return Err("ffmpeg made no picture".to_owned());
        };
        let bytes_max = wanted * (picture_bytes(image.width, image.height) + PICTURE_MORE_BYTES);
        let pictures = decode(self.options.codec, stream[..last.end].to_vec(), wanted, bytes_max)?;
        let plain = |picture: &Pixels| match image.channels {
            1 => Pixels {
                channels: 1,
                bytes: channel(picture),
                ..picture.clone()
            },
            _ => picture.clone(),
        };
        if self.is_lossless() {
            let images = messages.iter().filter_map(|one| one.image.as_ref().ok());
            let is_same =
                |(picture, image): (&Pixels, &Image)| crc32(&plain(picture).bytes) == image.checksum;
            return match pictures.iter().zip(images).all(is_same) {
                true => Ok(()),
                false => Err("a picture that was decoded again differs from its image".to_owned()),
            };
        }
        let Some(picture) = pictures.last().map(plain) else {
            return Err("ffmpeg made no picture".to_owned());
        };
        if (picture.width, picture.height) != (image.width, image.height) {
            return Err("a picture that was decoded again has another size than its image".to_owned());
        }
        let (psnr, ssim) = (psnr(image, &picture), ssim(image, &picture));
        if psnr < PSNR_MIN {
            return Err(format!(
                "a picture that was decoded again is not like its image (PSNR {psnr:.1} dB)"
            ));
        }
        self.likeness.add(psnr, ssim);
        Ok(())
    }
}

impl Coder for Encoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        let key = Key::of(message);
        match self.frame(message) {
            Ok(frame) => {
                if self.is_due(key.log_time.as_nanos()) {
                    self.end_segment(sent);
                }
                if let Err((messages, reason)) = self.add(key, frame) {
                    self.fail(messages, &reason, sent);
                }
            }
            Err(reason) => match &mut self.segment {
                Some(segment) => segment.waiting.push(Waiting {
                    key,
                    image: Err(reason),
                }),
                None => sent.send(key, Err(reason)),
            },
        }
        if self
            .segment
            .as_ref()
            .is_some_and(|segment| segment.waiting.len() > 2 * SEGMENT_PICTURES_MAX)
        {
            self.end_segment(sent);
        }
    }

    fn end(&mut self, sent: &mut Sent<'_>) {
        self.end_segment(sent);
    }

    fn describe(&self, about: &mut Recoding) {
        let options = &self.options;
        name(options.codec).clone_into(&mut about.codec);
        about.settings = match options.quality {
            Some(quality) => format!("crf {quality}, preset {}, key frame each second", options.preset),
            None => format!("lossless, preset {}, key frame each second", options.preset),
        };
        about.encoder.clone_from(&self.encoder);
        about.image.clone_from(&self.form);
        about.exactness = if self.is_lossless() {
            Exactness::Lossless
        } else {
            Exactness::Lossy
        };
        about.likeness = (!self.is_lossless()).then_some(self.likeness);
    }
}

/// Decodes video: what an [`Encoder`] made, or another program.
pub(super) struct Decoder {
    /// What the images were; `None` where that is not known.
    form: Option<ImageForm>,
    /// Images become files.
    is_file: bool,
    /// Each picture is given out at once when it was decoded.
    is_urgent: bool,
    /// A key frame and the pictures until the next one.
    group: Vec<(Key, Taken)>,
    codec: Option<Codec>,
    stream: Vec<u8>,
    /// The latest parameters, for key frames that have none.
    head: Vec<u8>,
    decoder: String,
}

impl Decoder {
    pub fn new(form: Option<ImageForm>) -> Self {
        Self {
            form,
            is_file: false,
            is_urgent: false,
            group: Vec::new(),
            codec: None,
            stream: Vec::new(),
            head: Vec::new(),
            decoder: version().unwrap_or_default(),
        }
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

    /// Pictures that are decoded at once, so that their number is known to be right before the first is given out.
    fn at_once_max(&self) -> Option<usize> {
        let form = self.form.as_ref().filter(|_| !self.is_urgent)?;
        Some(pictures_max(picture_bytes(form.width, form.height)))
    }

    fn read(&mut self, message: &BagMessage, sent: &mut Sent<'_>) -> Result<(), String> {
        let coded =
            Coded::read(&message.topic.type_name, &message.payload).map_err(|error| error.to_string())?;
        let codec = Codec::named(coded.format)
            .ok_or_else(|| format!("video of format {:?} is not decoded", coded.format))?;
        let unit = Unit::read(codec, coded.data)?;
        if unit.pictures != 1 {
            return Err(format!("it has {} pictures, expected one", unit.pictures));
        }
        if unit.is_key || self.codec.is_some_and(|known| known != codec) {
            self.end_group(sent);
        } else if self.group.is_empty() {
            return Err("it comes before the first key frame".to_owned());
        }
        if self.group.len() >= GROUP_PICTURES_MAX
            || (!self.group.is_empty() && self.stream.len() + coded.data.len() > stream_bytes_max(0))
        {
            return Err("too many pictures are between it and its key frame".to_owned());
        }
        if unit.parameters.is_some() {
            self.head = coded.data[..unit.head_bytes].to_vec();
        } else if unit.is_key {
            self.stream.extend_from_slice(&self.head);
        }
        self.codec = Some(codec);
        self.group.push((Key::of(message), Taken::of(&coded.head)));
        self.stream.extend_from_slice(coded.data);
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
            Some(form) if (form.width, form.height) != size => {
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
        let (group, stream) = (std::mem::take(&mut self.group), std::mem::take(&mut self.stream));
        let Some(codec) = self.codec.take().filter(|_| !group.is_empty()) else {
            return;
        };
        let mut waiting = group.iter();
        let mut give = |picture: &Pixels| {
            if let Some((key, taken)) = waiting.next() {
                sent.send(*key, self.made(taken, picture));
            }
            !sent.is_over
        };
        let form = self
            .form
            .as_ref()
            .filter(|_| self.at_once_max().is_some_and(|max| group.len() <= max));
        let done = match form {
            Some(form) => {
                let bytes_max = group.len() * (picture_bytes(form.width, form.height) + PICTURE_MORE_BYTES);
                let pictures = decode(codec, stream, group.len(), bytes_max);
                pictures.map(|pictures| _ = pictures.iter().all(&mut give))
            }
            None => decode_each(codec, stream, &mut give),
        };
        let reason = done.err().unwrap_or_else(|| "it has no picture".to_owned());
        for (key, _) in waiting {
            sent.send(*key, Err(reason.clone()));
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
    }
}

/// Bytes of a decoded picture: three for each pixel, also where an image has one.
fn picture_bytes(width: u32, height: u32) -> usize {
    let pixels = u64::from(width).saturating_mul(u64::from(height));
    pixels.saturating_mul(3).clamp(1, PICTURE_BYTES_MAX) as usize
}

/// Pictures of a segment.
fn pictures_max(picture_bytes: usize) -> usize {
    (SEGMENT_BYTES_MAX / picture_bytes).clamp(1, SEGMENT_PICTURES_MAX)
}

/// Bytes of the stream of a segment.
const fn stream_bytes_max(picture_bytes: usize) -> usize {
    SEGMENT_BYTES_MAX + picture_bytes + SEGMENT_PICTURES_MAX * PICTURE_MORE_BYTES
}

/// The encoder's process.
fn encoder(options: &VideoOptions, pixels: &Pixels, rate: usize, group: usize) -> Command {
    let size = format!("{}x{}", pixels.width, pixels.height);
    let (rate, group, preset) = (rate.to_string(), group.to_string(), options.preset.as_str());
    let is_grey = pixels.channels == 1;
    let mut command = Command::new(PROGRAM);
    command
        .args(["-hide_banner", "-loglevel", "error", "-f", "rawvideo"])
        .args(["-pix_fmt", if is_grey { "gray" } else { "rgb24" }])
        .args(["-video_size", &size, "-framerate", &rate, "-i", "-"]);
    match options.quality {
        Some(quality) => {
            // Said in the stream, so that players do not guess the colours by the size.
            command.args([
                "-vf",
                "scale=out_color_matrix=bt709:out_range=tv:flags=accurate_rnd+full_chroma_int+bicubic,format=yuv420p",
                "-color_primaries",
                "bt709",
                "-color_trc",
                "bt709",
                "-colorspace",
                "bt709",
                "-color_range",
                "tv",
                "-crf",
                &quality.to_string(),
            ]);
            let encoder = if options.codec == Codec::H264 {
                "libx264"
            } else {
                "libx265"
            };
            command.args(["-c:v", encoder]);
        }
        None if is_grey => {
            command.args(["-c:v", "libx264", "-qp", "0", "-pix_fmt", "gray"]);
        }
        None => {
            command.args(["-c:v", "libx264rgb", "-qp", "0", "-pix_fmt", "rgb24"]);
        }
    }
    let keys =
        format!("keyint={group}:min-keyint={group}:scenecut=0:bframes=0:aud=1:repeat-headers=1:open-gop=0");
    match options.codec {
        Codec::H264 => command.args(["-x264-params", &keys]),
        Codec::H265 => command.args(["-x265-params", &format!("log-level=none:{keys}")]),
    };
    command
        .args([
            "-preset",
            preset,
            "-fps_mode",
            "passthrough",
            "-flush_packets",
            "1",
        ])
        .args(["-f", options.codec.stream(), "-"]);
    command
}

/// Why an image is not a picture of a video, if so.
fn suits(frame: &Frame, is_lossless: bool) -> Result<(), String> {
    let (form, pixels) = (&frame.form, &frame.pixels);
    if pixels.is_deep {
        return Err(format!(
            "video has 8 bits for each channel, and {} more",
            form.encoding
        ));
    }
    if is_lossless {
        return Ok(());
    }
    if form.encoding.to_ascii_lowercase().starts_with("bayer") {
        return Err(format!(
            "{} is a mosaic of colours, which lossy video would blur",
            form.encoding
        ));
    }
    if !pixels.width.is_multiple_of(2) || !pixels.height.is_multiple_of(2) {
        return Err(format!("its size of {} x {} is odd", pixels.width, pixels.height));
    }
    Ok(())
}

fn said(form: &ImageForm) -> String {
    format!("{} x {} {}", form.width, form.height, form.encoding)
}

fn waiting(key: Key, frame: &Frame, checksum: u32) -> Waiting {
    Waiting {
        key,
        image: Ok(Image {
            taken: frame.taken.clone(),
            checksum,
        }),
    }
}

const fn name(codec: Codec) -> &'static str {
    match codec {
        Codec::H264 => "h264",
        Codec::H265 => "h265",
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Whether a stream is what the schema of its messages demands.
fn check_units(
    codec: Codec,
    stream: &[u8],
    units: &[Range<usize>],
    pictures: usize,
    group: usize,
) -> Result<(), String> {
    if units.len() != pictures {
        return Err(format!(
            "ffmpeg made {} pictures of {pictures} images",
            units.len()
        ));
    }
    if units.first().is_some_and(|first| first.start != 0) {
        return Err("what ffmpeg made does not begin with a picture".to_owned());
    }
    for (number, unit) in units.iter().enumerate() {
        let unit = Unit::read(codec, &stream[unit.clone()])?;
        let is_key = number.is_multiple_of(group);
        let is_right = unit.pictures == 1
            && !unit.is_reordered
            && (!is_key || unit.is_key)
            && (!unit.is_key || unit.parameters.is_some());
        if !is_right {
            return Err(format!(
                "picture {number} that ffmpeg made is not as its message needs it"
            ));
        }
    }
    Ok(())
}
