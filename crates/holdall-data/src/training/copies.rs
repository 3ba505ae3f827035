//! Recorded video in the videos of a dataset without encoding it anew: the episodes whose frames are its pictures one after another, and why others are not.

use super::{
    Feature, TrainingError, TrainingFormat, TrainingOptions, VideoOptions, VideoReport, render::Item,
};
use bytes::Bytes;
use holdall_bag::reader::{BagMessage, BagSet};
use holdall_media::{
    carried::{Coded, may_be_video},
    elementary::{Chain, Codec, MISSING, Unit},
    ffmpeg::pixel_format,
    mp4::parameters,
    recode::Plain,
};
use holdall_model::time::Timestamp;
use std::sync::Arc;

/// The format of pixels of the videos that are encoded here.
pub(super) const PIXEL_FORMAT: &str = "yuv420p";

/// A message of recorded video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Its number among the messages of its topic.
    number: u64,
    received: Timestamp,
    publisher: Option<String>,
    pub codec: Codec,
    unit: Unit,
    pub data: Bytes,
}

impl Recorded {
    /// `None` for a message that is not part of a video.
    pub fn read(message: &BagMessage, number: u64) -> Option<Self> {
        let type_name = &message.topic.type_name;
        let coded = may_be_video(type_name).then(|| Coded::read(type_name, &message.payload).ok())??;
        let codec = Codec::named(coded.format)?;
        Some(Self {
            number,
            received: message.log_time,
            publisher: message
                .topic
                .publisher
                .as_ref()
                .map(|publisher| publisher.gid.clone()),
            codec,
            unit: Unit::read(codec, coded.data).ok()?,
            data: Bytes::copy_from_slice(coded.data),
        })
    }

    /// Decoding can begin with it.
    pub const fn is_key(&self) -> bool {
        self.unit.is_key
    }
}

/// The beginning of a video: its codec, its parameter sets, and its key frame.
type Head = (Codec, Vec<Vec<u8>>, Bytes);

/// Follows the recorded pictures that the frames of an episode take.
#[derive(Default)]
pub(super) struct Following {
    head: Option<Head>,
    last: Option<Recorded>,
    chain: Chain,
}

impl Following {
    /// Takes the picture of the next frame.
    ///
    /// # Errors
    /// One clause: why the video of the episode is not a copy.
    pub fn next(&mut self, picture: Option<&Recorded>) -> Result<(), String> {
        let picture = picture.ok_or("a message has no picture of a video")?;
        let (codec, unit) = (picture.codec, &picture.unit);
        if !matches!(codec, Codec::H264 | Codec::H265) {
            return Err(format!("H.264 and H.265 are copied, not {}", codec.format()));
        }
        if unit.pictures != 1 || unit.is_reordered {
            return Err("a message has not exactly one picture, or the video has B-frames".to_owned());
        }
        let sets = parameters(codec, &picture.data);
        let (Some(last), Some(head)) = (&self.last, &self.head) else {
            if !unit.is_key || unit.parameters.is_none() {
                return Err("it begins between two key frames".to_owned());
            }
            self.head = Some((codec, sets, picture.data.clone()));
            return self.link(picture);
        };
        let reason = if picture.number == last.number {
            "a frame repeats a picture: fewer come than fps, or one is missing"
        } else if picture.number != last.number + 1 || picture.received < last.received {
            "a frame skips a picture: more come than fps"
        } else if picture.publisher != last.publisher {
            "its pictures are of several publishers"
        } else if codec != head.0 || !(sets.is_empty() || sets == head.1) {
            "the parameters of its video change"
        } else {
            return self.link(picture);
        };
        Err(reason.to_owned())
    }

    fn link(&mut self, picture: &Recorded) -> Result<(), String> {
        self.last = Some(picture.clone());
        match self.chain.has_gap_before(picture.codec, &picture.data) {
            true => Err(MISSING.to_owned()),
            false => Ok(()),
        }
    }
}

/// The copied video of a camera.
#[derive(Clone)]
pub(super) struct Copied {
    pub codec: Codec,
    /// As ffmpeg names it.
    pub pixel_format: String,
    /// For each episode, whether it is a copy.
    pub episodes: Vec<bool>,
}

/// A feature.
struct Camera {
    feature: String,
    /// The bags have video of it, which becomes video.
    is_recorded: bool,
    /// Its episodes are not judged yet.
    is_open: bool,
    copied: Option<Copied>,
    /// Why the first episode that is encoded is not a copy.
    reason: Option<String>,
}

/// For each feature, which episodes are copied.
pub(super) struct Copies(Vec<Camera>);

impl Copies {
    /// Finds the cameras whose recorded video may be copied.
    pub fn find(bags: &BagSet, options: &TrainingOptions) -> Result<Self, TrainingError> {
        let mapping = &options.mapping;
        let is_video = |feature: &Feature| feature.video && options.format == TrainingFormat::LeRobot;
        let features = mapping.features.values().filter(|feature| is_video(feature));
        let names: Vec<&str> = features.map(|feature| feature.topic.as_str()).collect();
        let mut topics = bags.topics();
        topics.retain(|topic| names.contains(&topic.name.as_str()) && may_be_video(&topic.type_name));
        let plain = Plain::find(bags, &topics).map_err(|reason| TrainingError::Decoder { reason })?;
        topics.retain(|topic| plain.type_name(topic) != topic.type_name);
        let refusal = if mapping.video != VideoOptions::default() {
            Some("the mapping sets how video is encoded")
        } else if !options.choice.questions.is_empty() {
            Some("conditions leave out messages")
        } else {
            None
        };
        let cameras = mapping.features.iter().map(|(name, feature)| {
            let is_recorded = is_video(feature) && topics.iter().any(|topic| topic.name == feature.topic);
            Camera {
                feature: name.clone(),
                is_recorded,
                is_open: is_recorded && refusal.is_none(),
                copied: None,
                reason: refusal.map(str::to_owned),
            }
        });
        Ok(Self(cameras.collect()))
    }

    /// Whether the recorded pictures of a feature are needed.
    pub fn is_followed(&self, feature: usize) -> bool {
        let camera = &self.0[feature];
        camera.is_open || camera.copied.is_some()
    }

    /// What judges the episodes, if any may be copied.
    pub fn judge(&self) -> Option<Judge> {
        let is_any = self.0.iter().any(|camera| camera.is_open);
        is_any.then(|| Judge(self.0.iter().map(|_| Judged::default()).collect()))
    }

    /// Decides when all episodes were judged: a camera has one codec and one format of pixels. `can_encode`: whether episodes that are encoded can have
    /// that codec.
    pub fn settle(&mut self, judge: Judge, can_encode: impl Fn(Codec) -> bool) {
        for (camera, judged) in self.0.iter_mut().zip(judge.0) {
            if !std::mem::take(&mut camera.is_open) {
                continue;
            }
            camera.reason = judged.reason;
            let Some((codec, _, key)) = judged.head else {
                continue;
            };
            let pixel_format = pixel_format(codec, &key).unwrap_or_default();
            let is_same = pixel_format == PIXEL_FORMAT && can_encode(codec);
            if pixel_format.is_empty() || (judged.episodes.contains(&false) && !is_same) {
                let before = camera.reason.take();
                let before = before.map_or_else(String::new, |reason| format!("{reason}; so "));
                let name = codec.name();
                camera.reason = Some(format!(
                    "{before}no episode is copied: {name} of {pixel_format:?} is not encoded here"
                ));
                continue;
            }
            camera.copied = Some(Copied {
                codec,
                pixel_format,
                episodes: judged.episodes,
            });
        }
    }

    /// Encodes all episodes of a feature; false if they are already.
    pub fn refuse(&mut self, feature: &str, reason: &str) -> bool {
        let found = self.0.iter_mut().find(|camera| camera.feature == feature);
        found.is_some_and(|camera| {
            camera.reason = Some(reason.to_owned());
            camera.copied.take().is_some()
        })
    }

    /// For each feature, its copied video, if it has some.
    pub fn copied(&self) -> Vec<Option<Copied>> {
        self.0.iter().map(|camera| camera.copied.clone()).collect()
    }

    /// What became of the recorded video of a feature in the first `episodes`.
    pub fn report(&self, feature: usize, episodes: u64) -> Option<VideoReport> {
        let camera = self.0.get(feature).filter(|camera| camera.is_recorded)?;
        let copies = camera.copied.iter().flat_map(|copied| &copied.episodes);
        let copies = copies.take(usize::try_from(episodes).unwrap_or(usize::MAX));
        let copied = copies.filter(|is_copied| **is_copied).count() as u64;
        Some(VideoReport {
            copied,
            encoded: episodes.saturating_sub(copied),
            first_reason: camera.reason.clone(),
        })
    }
}

/// What is known of a feature's episodes.
#[derive(Default)]
struct Judged {
    following: Following,
    /// Why the open episode is not a copy.
    misfit: Option<String>,
    /// That of the first episode that is a copy.
    head: Option<Head>,
    /// For each episode, whether it is a copy.
    episodes: Vec<bool>,
    reason: Option<String>,
}

/// Judges the episodes of all features.
pub(super) struct Judge(Vec<Judged>);

impl Judge {
    /// Judges a frame of the open episode.
    pub fn frame(&mut self, items: &[Arc<Item>]) {
        for (judged, item) in self.0.iter_mut().zip(items) {
            if let Item::Picture(picture) = &**item
                && judged.misfit.is_none()
            {
                judged.misfit = judged.following.next(picture.recorded.as_ref()).err();
            }
        }
    }

    /// Ends the open episode.
    pub fn end(&mut self) {
        for judged in &mut self.0 {
            let following = std::mem::take(&mut judged.following);
            let mut misfit = judged.misfit.take();
            match (&judged.head, &following.head) {
                _ if misfit.is_some() => {}
                (Some(first), Some(head)) if (first.0, &first.1) != (head.0, &head.1) => {
                    misfit = Some("its video has other parameters than that of copied episodes".to_owned());
                }
                (None, _) => judged.head = following.head,
                _ => {}
            }
            judged.episodes.push(misfit.is_none());
            if let Some(misfit) = misfit {
                let number = judged.episodes.len() - 1;
                judged.reason.get_or_insert(format!("episode {number}: {misfit}"));
            }
        }
    }
}
