//! Pictures of H.264 and H.265 video: each is decoded from the key frame before it, by a browser, or by `ffmpeg` in a process of its own.

use super::{
    Place,
    picture::{Picture, PictureOptions, of_pixels},
};
use crate::{
    export::{Codec, ImageFields, Unit, next_picture},
    ffmpeg::{Ffmpeg, FfmpegError, picture_decoder},
};
use holdall_bag::{
    decode::Fields,
    reader::{BagSet, MessageFilter},
};
use holdall_io::mutex::lock;
use holdall_model::{dynamic::TypePlan, time::Timestamp};
use serde_json::json;
use std::{
    io::{BufReader, Write},
    process::Stdio,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

/// Bytes and pictures from a key frame on, at most.
const RUN_BYTES_MAX: usize = 96 << 20;
const RUN_UNITS_MAX: usize = 3000;

/// Spans in which a key frame is looked for, each of them up to the picture.
const SPANS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(300),
];

/// How long `ffmpeg` may take for a picture.
const WITHIN: Duration = Duration::from_secs(10);

/// One decoder at once: each may take much memory.
static DECODING: Mutex<()> = Mutex::new(());

/// Why nothing is shown where no key frame was found.
const NO_KEY: &str = "no key frame of this video, with its parameters, is before this picture";

/// A part of a video: from a key frame to a picture.
#[derive(Clone, Debug, Default)]
pub struct Video {
    codec: Option<Codec>,
    /// The latest message that has parameters only.
    header: Vec<u8>,
    /// The parameters of the sequence.
    parameters: Vec<u8>,
    units: Vec<Vec<u8>>,
    bytes: usize,
    is_reordered: bool,
}

impl Video {
    /// Whether a message is a picture of video.
    pub fn is_in(plan: &TypePlan, payload: &[u8]) -> bool {
        let mut fields = ImageFields::default();
        plan.walk(payload, &mut fields).is_ok() && !matches!(fields.video(plan.type_name()), Ok(None))
    }

    /// The video until a message of a bag; `is_quick`: until the last key frame before it, which is decoded at once. With the place of its last message.
    ///
    /// # Errors
    /// One clause: another codec, a damaged stream, or none that can be decoded.
    pub fn until(
        bags: &BagSet,
        topic: &str,
        fields: &Fields,
        place: Place,
        is_quick: bool,
    ) -> Result<(Place, Self), String> {
        for span in SPANS {
            let filter = MessageFilter {
                topics: Some(Arc::new([topic.to_owned()].into())),
                from: Some(Timestamp::from_nanos(
                    place.time.as_nanos().saturating_sub(span.as_nanos() as i64),
                )),
                until: Some(place.time.saturating_add(Duration::from_nanos(1))),
                ..MessageFilter::default()
            };
            let (mut video, mut at, mut last) = (Self::default(), place, Place::default());
            for message in bags.messages(&filter) {
                let message = message.map_err(|error| error.to_string())?;
                let is_same = message.log_time == last.time;
                last = Place {
                    time: message.log_time,
                    number: if is_same { last.number + 1 } else { 0 },
                };
                if last > place {
                    break;
                }
                let payload = fields
                    .payload(&message.payload)
                    .map_err(|error| error.to_string())?;
                if video.add(fields.plan(), &payload, is_quick)? {
                    at = last;
                }
            }
            if !video.units.is_empty() {
                return Ok((at, video));
            }
        }
        Err(NO_KEY.to_owned())
    }

    /// Takes the next message of its topic; false if no picture was added. Until the first key frame nothing is kept but parameters.
    ///
    /// # Errors
    /// One clause.
    pub fn add(&mut self, plan: &TypePlan, payload: &[u8], is_quick: bool) -> Result<bool, String> {
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
            if unit.pictures == 0 {
                self.header = fields.data.to_vec();
            }
        }
        if unit.pictures == 0 || self.parameters.is_empty() {
            return Ok(false);
        }
        if unit.is_key {
            self.units.clear();
            self.bytes = 0;
            self.is_reordered = false;
        } else if self.units.is_empty() || is_quick {
            return Ok(false);
        }
        let head = if unit.is_key && unit.parameters.is_none() {
            self.header.as_slice()
        } else {
            &[]
        };
        self.bytes += head.len() + fields.data.len();
        if self.bytes > RUN_BYTES_MAX || self.units.len() >= RUN_UNITS_MAX {
            self.units.clear();
            return Err("too many pictures are between this one and the key frame before it".to_owned());
        }
        self.units.push([head, fields.data].concat());
        self.is_reordered |= unit.is_reordered;
        Ok(true)
    }

    /// The stream for a browser that decodes: the length of each message's data in four bytes, the larger ones first, and its data.
    ///
    /// # Errors
    /// No key frame.
    pub fn stream(&self) -> Result<Picture, String> {
        let codec = self.codec.filter(|_| !self.units.is_empty()).ok_or(NO_KEY)?;
        let mut bytes = Vec::with_capacity(self.bytes + 4 * self.units.len());
        for unit in &self.units {
            bytes.extend(u32::try_from(unit.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(unit);
        }
        Ok(Picture {
            content_type: "application/octet-stream",
            bytes,
            about: json!({"kind": "video", "codec": codec.full_name(&self.parameters), "encoding": codec.stream()}),
        })
    }

    /// Its last picture, by `ffmpeg`.
    ///
    /// # Errors
    /// One clause: `ffmpeg` is not installed, or what it reports.
    pub fn decoded(&self, options: &PictureOptions) -> Result<Picture, String> {
        let codec = self.codec.filter(|_| !self.units.is_empty()).ok_or(NO_KEY)?;
        if self.is_reordered && self.units.len() > 1 {
            return Err("this video has B-frames, which holdall does not put in order: a browser that decodes it shows it".to_owned());
        }
        let _one = lock(&DECODING);
        let last = format!("select=gte(n\\,{}),settb=1/25,setpts=N", self.units.len() - 1);
        let flags: [&[&str]; 2] = [&["-threads", "2"], &["-frames:v", "1"]];
        let mut command = picture_decoder(codec.stream(), &last, flags);
        let failed = |error| match error {
            FfmpegError::Missing => format!(
                "this is {} video, which this browser does not decode, and ffmpeg, which would, is not installed where holdall runs",
                codec.stream()
            ),
            FfmpegError::Failed(reason) => format!("ffmpeg: {}", holdall_model::text::one_line(&reason)),
        };
        let mut ffmpeg = Ffmpeg::start(&mut command, Stdio::piped()).map_err(failed)?;
        let (Some(mut input), Some(output)) = (ffmpeg.take_input(), ffmpeg.take_output()) else {
            return Err("ffmpeg has no pipe".to_owned());
        };
        let units = self.units.clone();
        let feed = move || units.iter().try_for_each(|unit| input.write_all(unit));
        let (sent, received) = mpsc::sync_channel(1);
        let read = move || {
            let _ = sent.send(next_picture(&mut BufReader::new(output)));
        };
        let name = |what: &str| thread::Builder::new().name(format!("video-{what}"));
        let started = name("input").spawn(feed).map(drop);
        started
            .and_then(|()| name("output").spawn(read).map(drop))
            .map_err(|error| format!("no thread can be started: {error}"))?;
        // Dropped, ffmpeg is ended, and both threads with it.
        let pixels = received
            .recv_timeout(WITHIN)
            .map_err(|_| format!("ffmpeg took longer than {} s for this picture", WITHIN.as_secs()))?;
        match pixels.map_err(|error| format!("ffmpeg: {error}"))? {
            Some(pixels) => of_pixels(&pixels, options, codec.stream()),
            None => Err(match ffmpeg.finish() {
                Ok(None) => "ffmpeg found no picture in this video".to_owned(),
                Ok(Some(reason)) => failed(FfmpegError::Failed(reason)),
                Err(error) => failed(error),
            }),
        }
    }
}
