//! Images to video, by `ffmpeg` or this program: an encoder runs on from segment to segment, a decoder has a process for each.
//!
//! A segment begins with a key frame and has one only. Its pictures are given out when they are complete: each message has exactly one, none depends
//! on a later one, the parameters are where a decoder needs them, and of some segments one picture was decoded and compared with its image, of lossless
//! ones all. Else all messages of the segment keep their form.

use super::{
    Carrier, Coder, Key, Sent,
    encoder::{Engine, OWN, Refused, Shape, check, choose, is_followed, may_be_own, settings, start},
    image::{Frame, Raw, Taken, channel, is_grey, is_opaque, is_same, restored, rgb},
};
use crate::{
    carried::{COMPRESSED_IMAGE, Coded},
    elementary::{Codec, Pictures, Unit},
    ffmpeg::{PICTURE_BYTES_MAX, STALL, Stop, decode, version},
    likeness::Bound,
    pixels::Pixels,
};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_model::{
    recoding::{Exactness, ImageForm, Likeness, Recoding, Step},
    topic::PublisherInfo,
};
use std::{collections::VecDeque, time::Duration};

/// Pixels of a segment in bytes when decoded: about the memory that each topic needs.
const SEGMENT_BYTES_MAX: usize = 128 << 20;
/// Pictures of a segment.
const SEGMENT_PICTURES_MAX: usize = 300;
/// A segment is over after a quarter more than the time that it is to have.
const SPAN_PARTS: u32 = 4;
/// Segments that fail one after the other: after them another encoder is tried, or none.
const FAILURES_MAX: u32 = 3;
/// Bytes that a picture may have beyond those of its pixels.
pub(super) const PICTURE_MORE_BYTES: usize = 1 << 16;
/// Pictures a second where nothing is known.
const RATE: usize = 30;
/// The encoder of AV1 takes no more.
const RATE_MAX: usize = 240;
/// While recording, a picture of one segment in ten is compared with its image, and of the first one of each process.
const COMPARED_EACH: u64 = 10;

/// Images of another publisher, or of another size, take the place of those that did not come for this long.
const SILENT_NANOS: i64 = 2_000_000_000;
/// Sizes that the images of a topic have, and changes that are listed.
const SIZES_MAX: usize = 16;
const CHANGES_MAX: usize = 100;

/// How images become video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoOptions {
    /// The codec.
    pub codec: Codec,
    /// The constant rate factor; `None` for lossless.
    pub quality: Option<u8>,
    /// The encoder's preset.
    pub preset: String,
    /// The encoder that is tried first, as ffmpeg names it, or `hardware` for those that a codec has; others are those of ffmpeg's libraries.
    pub encoder: Option<String>,
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

/// A key frame and the pictures until the next one.
struct Segment {
    waiting: Vec<Waiting>,
    pictures: usize,
    size: [u32; 2],
    first_nanos: i64,
    last_nanos: i64,
    /// A picture, by its number, that is compared with the image of a message.
    sample: Option<(usize, BagMessage)>,
}

impl Segment {
    /// Pictures a second; `None` for a single one.
    fn rate(&self) -> Option<usize> {
        let span = self.last_nanos.saturating_sub(self.first_nanos);
        if self.pictures < 2 || span <= 0 {
            return None;
        }
        let rate = (self.pictures as i64 - 1) * 1_000_000_000 / span;
        let rate = usize::try_from(rate).unwrap_or(RATE);
        Some(rate.clamp(1, RATE_MAX))
    }
}

/// A running encoder, and what has not come out of it.
struct Run {
    engine: Box<dyn Engine>,
    stream: Pictures,
    made: VecDeque<Vec<u8>>,
    /// The last one is being filled; others are complete.
    segments: VecDeque<Segment>,
    shape: Shape,
    /// What its images have to be.
    layout: (u32, u32, &'static str),
    /// Segments that it has begun.
    begun: u64,
}

impl Run {
    /// The segment that takes the next picture.
    fn open(&mut self) -> Option<&mut Segment> {
        let group = self.shape.group;
        self.segments
            .back_mut()
            .filter(|segment| segment.pictures < group)
    }
}

/// Which images of a topic are encoded, and when the last of them was logged.
struct Origin {
    publisher: Option<Box<PublisherInfo>>,
    size: [u32; 2],
    last_nanos: i64,
}

/// Encodes the images of a topic.
pub(super) struct Encoder {
    options: VideoOptions,
    /// That of the first image.
    form: Option<ImageForm>,
    /// Sizes of later ones.
    sizes: Vec<[u32; 2]>,
    origin: Option<Origin>,
    /// What was changed by itself and not returned.
    changes: Vec<Step>,
    /// Pictures that were given out.
    pictures: u64,
    /// Pictures a second.
    rate: usize,
    /// Time from a key frame to the next.
    span: Duration,
    is_live: bool,
    /// Bytes of the images of a segment, at most.
    segment_bytes_max: usize,
    ease: u8,
    stop: Stop,
    run: Option<Run>,
    failures: u32,
    gave_up: Option<String>,
    /// The program with its version.
    program: String,
    /// The encoder that works.
    chosen: Option<String>,
    refused: Refused,
    likeness: Likeness,
}

impl Encoder {
    pub fn new(options: VideoOptions, stop: &Stop) -> Self {
        let (program, gave_up) = match version(stop) {
            Ok(version) => (version, None),
            Err(_) if may_be_own(&options) => (String::new(), None),
            Err(error) => (String::new(), Some(error.to_string())),
        };
        Self {
            options,
            form: None,
            sizes: Vec::new(),
            origin: None,
            changes: Vec::new(),
            pictures: 0,
            rate: RATE,
            span: Duration::from_secs(1),
            is_live: false,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            ease: 0,
            stop: stop.clone(),
            run: None,
            failures: 0,
            gave_up,
            program,
            chosen: None,
            refused: Refused::default(),
            likeness: Likeness::default(),
        }
    }

    /// Continues, while a recording runs, what another one began, of which `before` is the description; its segments have this `span`, and what
    /// it had refused stays refused.
    pub fn live_after(mut self, before: &Recoding, span: Duration, refused: &Refused) -> Self {
        self.form.clone_from(&before.image);
        self.sizes.clone_from(&before.sizes);
        self.refused = refused.clone();
        self.likeness = before.likeness.unwrap_or_default();
        self.is_live = true;
        self.span = span;
        self
    }

    /// Whether this program encodes.
    fn is_own(&self) -> bool {
        self.chosen.as_ref().is_some_and(|name| name == OWN)
    }

    const fn is_lossless(&self) -> bool {
        self.options.quality.is_none()
    }

    /// The image of a message, if it can be a picture of this video.
    fn frame(&mut self, message: &BagMessage) -> Result<(Taken, Raw), String> {
        if let Some(reason) = &self.gave_up {
            return Err(reason.clone());
        }
        let (taken, form, image) = match Raw::of(message).filter(|_| !self.is_lossless()) {
            Some(found) => found,
            None => self.converted(message)?,
        };
        suits(&form, false, self.is_lossless())?;
        self.accept(message, &form)?;
        Ok((taken, image))
    }

    /// The same of an image that an encoder does not take where it is.
    fn converted(&self, message: &BagMessage) -> Result<(Taken, ImageForm, Raw), String> {
        if self.is_lossless() && message.topic.type_name == COMPRESSED_IMAGE {
            return Err("it is compressed already".to_owned());
        }
        let Frame {
            taken,
            form,
            mut pixels,
        } = Frame::read(message)?;
        suits(&form, pixels.is_deep, self.is_lossless())?;
        if self.is_lossless() && !is_same(&message.payload, &restored(&form, &taken, &pixels)) {
            return Err(
                "it would not come back bit for bit (bytes between rows, transparent pixels, or an encoding that is converted)".to_owned(),
            );
        }
        if !is_opaque(&pixels) {
            return Err("it has transparent pixels, which video does not have".to_owned());
        }
        if pixels.channels == 4 {
            pixels = rgb(&pixels);
        }
        Ok((taken, form, pixels.into()))
    }

    /// Accepts an image of the publisher and the size that are encoded. Others take their place when those have not come for some time.
    fn accept(&mut self, message: &BagMessage, form: &ImageForm) -> Result<(), String> {
        let (nanos, size) = (message.log_time.as_nanos(), [form.width, form.height]);
        let publisher = &message.topic.publisher;
        let before = self.origin.as_ref();
        let is_over = before.is_none_or(|it| nanos.saturating_sub(it.last_nanos) > SILENT_NANOS);
        let is_of_another = match self.is_live {
            // A recorder decides by itself when one publisher follows another.
            true => publisher.is_some(),
            false => !is_over && before.is_some_and(|it| it.publisher != *publisher),
        };
        if is_of_another {
            return Err("it is from another publisher than the images before it".to_owned());
        }
        let first = self.form.get_or_insert_with(|| form.clone());
        let first_size = [first.width, first.height];
        let last_size = before.map_or(first_size, |it| it.size);
        let is_new = size != first_size && !self.sizes.contains(&size);
        let is_other = (&first.encoding, first.is_bigendian) != (&form.encoding, form.is_bigendian);
        if is_other || (size != last_size && !is_over) || (is_new && self.sizes.len() >= SIZES_MAX) {
            let [width, height] = last_size;
            let last = format!("{width} x {height} {}", first.encoding);
            return Err(format!("it is {}, and the images before it {last}", said(form)));
        }
        let what = match before {
            _ if size != last_size => Some(format!("images of {} x {} pixels", size[0], size[1])),
            Some(before) if before.publisher != *publisher => Some("images of another publisher".to_owned()),
            _ => None,
        };
        if let Some(what) = what.filter(|_| self.changes.len() < CHANGES_MAX) {
            self.changes.push(Step { time: nanos, what });
        }
        if is_new {
            self.sizes.push(size);
        }
        self.origin = Some(Origin {
            publisher: publisher.clone(),
            size,
            last_nanos: nanos,
        });
        Ok(())
    }

    /// What the next process is to do.
    fn shape(&self, picture_bytes: usize) -> Shape {
        let fits = self.segment_bytes_max / picture_bytes.max(1);
        let pictures = (self.rate as f64 * self.span.as_secs_f64()).round() as usize;
        Shape {
            rate: self.rate,
            group: pictures.min(fits).clamp(1, pictures_max(picture_bytes)),
            is_live: self.is_live,
            ease: self.ease,
        }
    }

    fn begin(&mut self, image: &Raw) -> Result<Run, String> {
        let picture_bytes = picture_bytes(image.width, image.height);
        let shape = self.shape(picture_bytes);
        let name = match self.chosen.take() {
            Some(chosen) => chosen,
            None => choose(&self.options, image, &self.refused, (self.is_live, &self.stop))?,
        };
        let bytes_max = stream_bytes_max(picture_bytes);
        let limits = (bytes_max, STALL, &self.stop);
        let engine = start((&self.options, &name), image, &shape, limits);
        self.chosen = Some(name);
        Ok(Run {
            engine: engine?,
            stream: Pictures::new(self.options.codec, bytes_max),
            made: VecDeque::new(),
            segments: VecDeque::new(),
            shape,
            layout: image.layout(),
            begun: 0,
        })
    }

    /// Adds the image of a message to the segment, or to a new one.
    fn add(&mut self, message: &BagMessage, taken: Taken, image: Raw) -> Result<(), String> {
        let key = Key::of(message);
        let nanos = key.log_time.as_nanos();
        let checksum = match self.is_lossless() {
            true => crc32fast::hash(&image.bytes),
            false => 0,
        };
        let mut run = match self.run.take() {
            Some(run) => run,
            None => self.begin(&image)?,
        };
        if run.open().is_none() {
            let is_compared = !self.is_live || run.begun.is_multiple_of(COMPARED_EACH);
            run.begun += 1;
            run.segments.push_back(Segment {
                waiting: Vec::new(),
                pictures: 0,
                size: [image.width, image.height],
                first_nanos: nanos,
                last_nanos: nanos,
                sample: (is_compared && !self.is_lossless()).then(|| (0, message.clone())),
            });
        }
        let half = run.shape.group / 2;
        if let Some(segment) = run.segments.back_mut() {
            if let Some(sample) = segment.sample.as_mut().filter(|_| segment.pictures == half) {
                *sample = (half, message.clone());
            }
            segment.waiting.push(Waiting {
                key,
                image: Ok(Image { taken, checksum }),
            });
            segment.pictures += 1;
            segment.last_nanos = nanos;
        }
        let fed = run.engine.feed(image.bytes);
        self.run = Some(run);
        fed
    }

    /// Whether the process must end before a picture of this time: its groups would not be what they are to be.
    fn is_due(&self, nanos: i64, layout: (u32, u32, &str)) -> bool {
        let Some((run, last)) = self
            .run
            .as_ref()
            .and_then(|run| Some((run, run.segments.back()?)))
        else {
            return false;
        };
        let span_max = self.span + self.span / SPAN_PARTS;
        let since = |begin: i64| Duration::from_nanos(nanos.saturating_sub(begin).max(0).cast_unsigned());
        if self.ease != run.shape.ease
            || run.layout != layout
            || nanos < last.last_nanos
            || since(last.last_nanos) > span_max
        {
            return true;
        }
        if last.pictures < run.shape.group {
            return since(last.first_nanos) > span_max;
        }
        let wanted = self.shape(picture_bytes(layout.0, layout.1));
        wanted.group.abs_diff(run.shape.group) > run.shape.group / 4
    }

    /// Gives out the segments whose pictures have come.
    fn deliver(&mut self, sent: &mut Sent<'_>) -> Result<(), String> {
        let Some(run) = &mut self.run else {
            return Ok(());
        };
        let part = run.engine.take()?;
        if !part.is_empty() {
            run.made.extend(run.stream.add(&part, false)?);
        }
        while let Some(run) = &mut self.run
            && let Some(first) = run.segments.front()
            && first.pictures == run.shape.group
            && run.made.len() >= first.pictures
        {
            let made: Vec<_> = run.made.drain(..run.shape.group).collect();
            self.rate = first.rate().unwrap_or(self.rate);
            let Some(segment) = run.segments.pop_front() else {
                break;
            };
            if let Err((segment, reason)) = self.give_out(segment, &made, sent) {
                if let Some(run) = &mut self.run {
                    run.segments.push_front(segment);
                }
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Ends the process, and gives out all pictures, or messages in the form that they have.
    fn end_run(&mut self, sent: &mut Sent<'_>) {
        let delivered = self.deliver(sent);
        let Some(run) = self.run.take() else {
            return;
        };
        let Run {
            engine,
            mut stream,
            mut made,
            mut segments,
            ..
        } = run;
        let rest = delivered.and_then(|()| {
            let rest = engine.finish()?;
            stream.add(&rest, true)
        });
        let mut failed = rest.map(|rest| made.extend(rest)).err();
        let mut kept = Vec::new();
        while let Some(segment) = segments.pop_front() {
            if failed.is_some() {
                kept.extend(segment.waiting);
                continue;
            }
            self.rate = segment.rate().unwrap_or(self.rate);
            let count = match segments.is_empty() {
                true => made.len(),
                false => made.len().min(segment.pictures),
            };
            let own: Vec<_> = made.drain(..count).collect();
            if let Err((segment, reason)) = self.give_out(segment, &own, sent) {
                kept = segment.waiting;
                failed = Some(reason);
            }
        }
        if let Some(reason) = failed {
            self.fail(kept, &reason, sent);
        }
    }

    /// The process is of no use any more: all its messages keep their form.
    fn fail_run(&mut self, reason: &str, sent: &mut Sent<'_>) {
        let segments = self.run.take().map(|run| run.segments).unwrap_or_default();
        let waiting = segments.into_iter().flat_map(|segment| segment.waiting);
        self.fail(waiting.collect(), reason, sent);
    }

    /// Gives out a segment, or returns it where a picture is not right.
    fn give_out(
        &mut self,
        segment: Segment,
        made: &[Vec<u8>],
        sent: &mut Sent<'_>,
    ) -> Result<(), (Segment, String)> {
        let checked = check(self.options.codec, made, segment.pictures);
        if let Err(reason) = checked.and_then(|()| self.compare(made, &segment)) {
            return Err((segment, reason));
        }
        self.failures = 0;
        let mut made = made.iter();
        for one in segment.waiting {
            let message = one.image.and_then(|image| {
                let data = made.next().ok_or("it has no picture")?;
                let payload = self.carried(&image.taken, segment.size, data)?;
                self.pictures += 1;
                Ok(Bytes::from(payload))
            });
            sent.send(one.key, message);
        }
        Ok(())
    }

    /// A picture in its message.
    fn carried(&self, taken: &Taken, size: [u32; 2], data: &[u8]) -> Result<Vec<u8>, String> {
        let (codec, carrier) = (self.options.codec, self.options.carrier);
        let mut coded = Coded {
            head: taken.head(),
            format: codec.format(),
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
        let format = format!("{};{source};{target};{}", codec.name(), form.encoding);
        coded.format = &format;
        let is_key = Unit::read(codec, data)?.is_key;
        Ok(coded.write_packet(size, self.pictures, is_key))
    }

    /// The messages of a segment that could not be encoded keep their form.
    fn fail(&mut self, messages: Vec<Waiting>, reason: &str, sent: &mut Sent<'_>) {
        if messages.is_empty() {
            return;
        }
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.replace_encoder(&format!("{reason}, {FAILURES_MAX} times in a row"));
        }
        for one in messages {
            let why = one.image.err().unwrap_or_else(|| reason.to_owned());
            sent.send(one.key, Err(why));
        }
    }

    /// Another encoder takes the place of one that fails again and again; without one no more is tried.
    fn replace_encoder(&mut self, reason: &str) {
        let failed = self.chosen.clone();
        match failed.filter(|name| is_followed(&self.options, name)) {
            Some(name) => {
                let clause = self.refused.add(&name, reason);
                tracing::warn!("{clause}; another one encodes");
                self.chosen = None;
                self.failures = 0;
            }
            None => self.gave_up = Some(reason.to_owned()),
        }
    }

    /// Decodes and compares: all pictures where none may differ, else the sampled one.
    fn compare(&mut self, made: &[Vec<u8>], segment: &Segment) -> Result<(), String> {
        let wanted = match (&segment.sample, self.is_lossless()) {
            (_, true) => made.len(),
            (Some((number, _)), false) => number + 1,
            (None, false) => return Ok(()),
        };
        let Some(made) = made.get(..wanted) else {
            return Err("the encoder made no picture".to_owned());
        };
        let form = self.form.as_ref().ok_or("it has no form")?;
        let [width, height] = segment.size;
        let bytes_max = wanted * (picture_bytes(width, height) + PICTURE_MORE_BYTES);
        let pictures = match self.is_own() {
            true => vec![own_picture(made)?],
            false => decode(self.options.codec, made, (0, bytes_max), &self.stop)?,
        };
        let is_grey = is_grey(&form.encoding);
        let plain = |picture: &Pixels| match is_grey {
            true => Pixels {
                channels: 1,
                bytes: channel(picture),
                ..picture.clone()
            },
            false => picture.clone(),
        };
        if self.is_lossless() {
            let images = segment.waiting.iter().filter_map(|one| one.image.as_ref().ok());
            let is_same = |(picture, image): (&Pixels, &Image)| {
                crc32fast::hash(&plain(picture).bytes) == image.checksum
            };
            return match pictures.iter().zip(images).all(is_same) {
                true => Ok(()),
                false => Err("a picture that was decoded again differs from its image".to_owned()),
            };
        }
        let (Some(picture), Some((_, message))) = (pictures.last(), &segment.sample) else {
            return Err("the encoder made no picture".to_owned());
        };
        let mut image = Frame::read(message)?.pixels;
        if image.channels == 4 {
            image = rgb(&image);
        }
        let found = Bound::LEAST.compare(&image, &plain(picture));
        let found = found.map_err(|reason| format!("one of its pictures was checked: {reason}"))?;
        self.likeness.add(found.psnr, found.ssim);
        Ok(())
    }
}

impl Coder for Encoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        let key = Key::of(message);
        match self.frame(message) {
            Ok((taken, image)) => {
                if self.is_due(key.log_time.as_nanos(), image.layout()) {
                    self.end_run(sent);
                }
                if let Err(reason) = self.add(message, taken, image) {
                    if self.run.is_none() {
                        let image = Err(reason.clone());
                        self.fail(vec![Waiting { key, image }], &reason, sent);
                    }
                    self.fail_run(&reason, sent);
                }
            }
            Err(reason) => match self.run.as_mut().and_then(|run| run.segments.back_mut()) {
                Some(segment) => segment.waiting.push(Waiting {
                    key,
                    image: Err(reason),
                }),
                None => sent.send(key, Err(reason)),
            },
        }
        if let Err(reason) = self.deliver(sent) {
            self.fail_run(&reason, sent);
        }
        let last = self.run.as_ref().and_then(|run| run.segments.back());
        if last.is_some_and(|last| last.waiting.len() > 2 * SEGMENT_PICTURES_MAX) {
            self.end_run(sent);
        }
    }

    fn end(&mut self, sent: &mut Sent<'_>) {
        self.end_run(sent);
    }

    fn set_limits(&mut self, ease: u8, segment_bytes_max: usize) {
        self.ease = ease;
        self.segment_bytes_max = segment_bytes_max;
    }

    fn gave_up(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }

    fn take_changes(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.changes)
    }

    fn describe(&self, about: &mut Recoding) {
        let options = &self.options;
        options.codec.format().clone_into(&mut about.codec);
        about.settings = self.chosen.as_ref().map_or_else(String::new, |name| {
            let apart = (self.span + self.span / SPAN_PARTS).as_secs_f64();
            format!("{}, key frames at most {apart} s apart", settings(options, name))
        });
        match self.is_own() {
            true => about.encoder.clear(),
            false => about.encoder.clone_from(&self.program),
        }
        if let Some(name) = &self.chosen {
            if !about.encoder.is_empty() {
                about.encoder.push(' ');
            }
            about.encoder.push_str(name);
        }
        for clause in self.refused.clauses() {
            about.encoder.push_str("; ");
            about.encoder.push_str(&clause);
        }
        about.image.clone_from(&self.form);
        about.sizes.clone_from(&self.sizes);
        about.exactness = if self.is_lossless() {
            Exactness::Lossless
        } else {
            Exactness::Lossy
        };
        about.likeness = (!self.is_lossless()).then_some(self.likeness);
    }
}

/// The last of some pictures that this program made.
#[cfg(feature = "openh264")]
fn own_picture(made: &[Vec<u8>]) -> Result<Pixels, String> {
    super::inside::decode_last(made)
}

#[cfg(not(feature = "openh264"))]
fn own_picture(_: &[Vec<u8>]) -> Result<Pixels, String> {
    Err("this build has no encoder".to_owned())
}

/// Bytes of a decoded picture: three for each pixel, also where an image has one.
pub(super) fn picture_bytes(width: u32, height: u32) -> usize {
    let pixels = u64::from(width).saturating_mul(u64::from(height));
    pixels.saturating_mul(3).clamp(1, PICTURE_BYTES_MAX) as usize
}

/// Pictures of a segment.
pub(super) fn pictures_max(picture_bytes: usize) -> usize {
    (SEGMENT_BYTES_MAX / picture_bytes).clamp(1, SEGMENT_PICTURES_MAX)
}

/// Bytes of the stream of a segment.
pub(super) const fn stream_bytes_max(picture_bytes: usize) -> usize {
    SEGMENT_BYTES_MAX + picture_bytes + SEGMENT_PICTURES_MAX * PICTURE_MORE_BYTES
}

/// Why an image is not a picture of a video, if so.
fn suits(form: &ImageForm, is_deep: bool, is_lossless: bool) -> Result<(), String> {
    if is_deep {
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
    if !form.width.is_multiple_of(2) || !form.height.is_multiple_of(2) {
        return Err(format!("its size of {} x {} is odd", form.width, form.height));
    }
    Ok(())
}

fn said(form: &ImageForm) -> String {
    format!("{} x {} {}", form.width, form.height, form.encoding)
}
