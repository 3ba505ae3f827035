//! Pictures of video: each is decoded from the key frame before it, by a browser, or by `ffmpeg` in a process of its own.

use super::{
    Place,
    picture::{Picture, PictureOptions, of_pixels},
};
use crate::export::ImageFields;
use holdall_bag::{
    decode::Fields,
    reader::{BagMessage, BagSet, MessageFilter},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_media::{
    elementary::{Codec, MISSING, Unit, before_missing},
    ffmpeg::{FfmpegError, decode_from},
    pixels::Pixels,
};
use holdall_model::{dynamic::TypePlan, time::Timestamp, topic::TopicInfo};
use holdall_tools::tools::listed_key;
use serde_json::json;
use std::{
    sync::{Arc, Mutex, MutexGuard, TryLockError},
    time::Duration,
};

/// Bytes and pictures from a key frame on, at most.
const RUN_BYTES_MAX: usize = 96 << 20;
const RUN_UNITS_MAX: usize = 3000;

/// Spans in which a key frame is looked for where the bag lists none, each of them up to the picture.
const SPANS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(300),
];

/// How long each may take for a picture: reading from the key frame on, the wait for the decoder, `ffmpeg`.
const WITHIN: Duration = Duration::from_secs(10);

/// Time between two looks whether the decoder is free.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Messages at the beginning of a topic that are searched for parameters.
const FIRST_MAX: usize = 100;

/// One decoder at once: each may take much memory.
static DECODING: Mutex<()> = Mutex::new(());

/// Why nothing is shown where no key frame was found.
const NO_KEY: &str = "no key frame of this video, with its parameters, is before this picture";

/// A part of a video: from a key frame to a picture.
#[derive(Clone, Debug, Default)]
pub struct Video {
    codec: Option<Codec>,
    /// What came before the first picture of the latest message with parameters.
    header: Arc<[u8]>,
    /// The parameters of the sequence.
    parameters: Vec<u8>,
    /// They allow pictures in another order than that of the messages.
    may_reorder: bool,
    units: Vec<Arc<[u8]>>,
    bytes: usize,
    is_reordered: bool,
    /// A key frame came before any parameters.
    lacks_parameters: bool,
    /// Why what came last cannot be decoded: one clause.
    refused: Option<String>,
}

impl Video {
    /// Whether a message is a picture of video.
    pub fn is_in(plan: &TypePlan, payload: &[u8]) -> bool {
        let mut fields = ImageFields::default();
        plan.walk(payload, &mut fields).is_ok() && !matches!(fields.video(plan.type_name()), Ok(None))
    }

    /// The video of a publisher until a message of a bag; `is_quick`: until the last key frame before it, which is decoded at once. With the place of
    /// its last message. `topic`: that of the message, with its publisher.
    ///
    /// # Errors
    /// One clause: another codec, a damaged stream, or none that can be decoded.
    pub fn until(
        bags: &BagSet,
        topic: &TopicInfo,
        fields: &Fields,
        place: Place,
        is_quick: bool,
    ) -> Result<(Place, Self), String> {
        let mut search = Search {
            bags,
            topic,
            fields,
            until: SystemClock.monotonic() + WITHIN,
            start: Self::default(),
        };
        let found = search.back_from(place, is_quick)?;
        if !found.1.units.is_empty() || !found.1.lacks_parameters {
            return found.1.reason().map_or(Ok(found), Err);
        }
        // Some encoders send their parameters once, at the beginning.
        search.take_first_parameters()?;
        let found = search.back_from(place, is_quick)?;
        found.1.reason().map_or(Ok(found), Err)
    }

    /// Why it has no picture, if so.
    fn reason(&self) -> Option<String> {
        let refused = || self.refused.clone().unwrap_or_else(|| NO_KEY.to_owned());
        self.units.is_empty().then(refused)
    }

    /// Takes the next message of its topic; false if no picture was added. Until a key frame nothing is kept but parameters; after what cannot be
    /// decoded, too.
    pub fn add(&mut self, plan: &TypePlan, payload: &[u8], is_quick: bool) -> bool {
        self.take(plan, payload, is_quick).unwrap_or_else(|reason| {
            self.units.clear();
            self.refused = Some(reason);
            false
        })
    }

    fn take(&mut self, plan: &TypePlan, payload: &[u8], is_quick: bool) -> Result<bool, String> {
        let mut fields = ImageFields::default();
        plan.walk(payload, &mut fields)
            .map_err(|error| error.to_string())?;
        let Some(codec) = fields.video(plan.type_name())? else {
            return Ok(false);
        };
        let unit = Unit::read(codec, fields.data)?;
        if self.codec != Some(codec) {
            *self = Self {
                codec: Some(codec),
                ..Self::default()
            };
        }
        if let Some(parameters) = &unit.parameters {
            self.parameters.clone_from(parameters);
            self.header = fields.data[..unit.head_bytes].into();
            self.may_reorder = unit.is_reordered;
        }
        if unit.pictures > 1 {
            return Err(format!("a message has {} pictures, expected one", unit.pictures));
        }
        if self.parameters.is_empty() {
            self.lacks_parameters |= unit.is_key;
            return Ok(false);
        }
        if unit.pictures == 0 {
            return Ok(false);
        }
        if unit.is_key {
            self.units.clear();
            self.bytes = 0;
            self.is_reordered = self.may_reorder;
            self.refused = None;
        } else if self.units.is_empty() || is_quick {
            return Ok(false);
        }
        let head = match unit.is_key && unit.parameters.is_none() {
            true => &*self.header,
            false => &[],
        };
        self.bytes += head.len() + fields.data.len();
        if self.bytes > RUN_BYTES_MAX || self.units.len() >= RUN_UNITS_MAX {
            return Err("too many pictures are between this one and the key frame before it".to_owned());
        }
        self.units.push([head, fields.data].concat().into());
        self.is_reordered |= unit.is_reordered;
        Ok(true)
    }

    /// Its codec, if it has a picture and no gap before it.
    fn whole(&self) -> Result<Codec, String> {
        match (self.codec, self.reason()) {
            (Some(codec), None) if before_missing(codec, &self.units) < self.units.len() => {
                Err(MISSING.to_owned())
            }
            (Some(codec), None) => Ok(codec),
            (_, reason) => Err(reason.unwrap_or_else(|| NO_KEY.to_owned())),
        }
    }

    /// The stream for a browser that decodes: the length of each message's data in four bytes, the larger ones first, and its data.
    ///
    /// # Errors
    /// No key frame.
    pub fn stream(&self) -> Result<Picture, String> {
        let codec = self.whole()?;
        let mut bytes = Vec::with_capacity(self.bytes + 4 * self.units.len());
        for unit in &self.units {
            bytes.extend(u32::try_from(unit.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(unit);
        }
        Ok(Picture {
            content_type: "application/octet-stream",
            bytes,
            about: json!({"kind": "video", "codec": codec.full_name(&self.parameters), "encoding": codec.name()}),
        })
    }

    /// Its last picture, by `ffmpeg`.
    ///
    /// # Errors
    /// One clause: `ffmpeg` is not installed, or what it reports.
    pub fn decoded(&self, options: &PictureOptions) -> Result<Picture, String> {
        let codec = self.whole()?;
        if self.is_reordered && self.units.len() > 1 {
            return Err("this video has B-frames, which holdall does not put in order: a browser that decodes it shows it".to_owned());
        }
        let _one = one_decoder()?;
        let mut last = None;
        let mut take = |picture: &Pixels| {
            last = Some(of_pixels(picture, options, codec.name()));
            false
        };
        let decoded = decode_from(codec, &self.units, (self.units.len() - 1, WITHIN), &mut take);
        match (last, decoded) {
            (Some(picture), _) => picture,
            (None, Ok(())) => Err("ffmpeg found no picture in this video".to_owned()),
            (None, Err(reason)) if reason == FfmpegError::Missing.to_string() => Err(format!(
                "this is {} video, which this browser does not decode, and ffmpeg, which would, is not installed where holdall runs",
                codec.name()
            )),
            (None, Err(reason)) => Err(reason),
        }
    }
}

/// Waits for the one decoder, which others may use.
fn one_decoder() -> Result<MutexGuard<'static, ()>, String> {
    let until = SystemClock.monotonic() + WITHIN;
    loop {
        match DECODING.try_lock() {
            Ok(one) => return Ok(one),
            Err(TryLockError::Poisoned(one)) => return Ok(one.into_inner()),
            Err(TryLockError::WouldBlock) if SystemClock.monotonic() < until => {
                SystemClock.sleep_until(SystemClock.monotonic() + LOOK_AGAIN);
            }
            Err(TryLockError::WouldBlock) => {
                return Err("other pictures are being decoded, try again".to_owned());
            }
        }
    }
}

/// Looks for the part of a video before a message.
struct Search<'a> {
    bags: &'a BagSet,
    topic: &'a TopicInfo,
    fields: &'a Fields,
    /// It ends then (monotonic).
    until: Duration,
    /// What is known before the first message.
    start: Video,
}

impl Search<'_> {
    fn filter(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> MessageFilter {
        MessageFilter {
            topics: Some(Arc::new([self.topic.name.clone()].into())),
            from,
            until,
            ..MessageFilter::default()
        }
    }

    /// Whether a message is from the publisher whose video is wanted.
    fn is_its(&self, message: &BagMessage) -> bool {
        let gid = |topic: &TopicInfo| topic.publisher.as_ref().map(|publisher| publisher.gid.clone());
        gid(&message.topic) == gid(self.topic)
    }

    /// The next message; an error when the time for it is over.
    fn check_time(&self) -> Result<(), String> {
        if SystemClock.monotonic() < self.until {
            return Ok(());
        }
        Err(format!(
            "no key frame was found within {} s of reading before this picture",
            WITHIN.as_secs()
        ))
    }

    fn back_from(&self, place: Place, is_quick: bool) -> Result<(Place, Video), String> {
        let (mut video, mut at) = (self.start.clone(), place);
        let until = place.time.saturating_add(Duration::from_nanos(1));
        let spans = SPANS.map(|span| place.time.as_nanos().saturating_sub(span.as_nanos() as i64));
        let listed = listed_key(self.bags, &self.topic.name, place.time);
        for from in listed.into_iter().chain(spans.map(Timestamp::from_nanos)) {
            let filter = self.filter(Some(from), Some(until));
            video = self.start.clone();
            let mut last = Place::default();
            for message in self.bags.messages(&filter) {
                self.check_time()?;
                let message = message.map_err(|error| error.to_string())?;
                let is_same = message.log_time == last.time;
                last = Place {
                    time: message.log_time,
                    number: if is_same { last.number + 1 } else { 0 },
                };
                if last > place {
                    break;
                }
                if !self.is_its(&message) {
                    continue;
                }
                let payload = self.fields.payload(&message.payload);
                let payload = payload.map_err(|error| error.to_string())?;
                if video.add(self.fields.plan(), &payload, is_quick) {
                    at = last;
                }
            }
            if !video.units.is_empty() {
                break;
            }
        }
        Ok((at, video))
    }

    /// Begins with the first parameters of the topic from now on.
    fn take_first_parameters(&mut self) -> Result<(), String> {
        let mut video = Video::default();
        for message in self.bags.messages(&self.filter(None, None)).take(FIRST_MAX) {
            self.check_time()?;
            let message = message.map_err(|error| error.to_string())?;
            if !self.is_its(&message) {
                continue;
            }
            let payload = self.fields.payload(&message.payload);
            let payload = payload.map_err(|error| error.to_string())?;
            video.add(self.fields.plan(), &payload, true);
            if !video.parameters.is_empty() {
                break;
            }
        }
        video.units.clear();
        video.bytes = 0;
        self.start = video;
        Ok(())
    }
}
