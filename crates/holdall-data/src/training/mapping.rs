//! Which fields become which features of a dataset, at which rate, and where episodes begin and end: a YAML file.

use holdall_bag::decode::TimeBase;
use holdall_model::yaml::{self, YamlError};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Features that a dataset may have.
const FEATURES_MAX: usize = 1000;
/// Names of columns that every LeRobot dataset has.
const RESERVED: [&str; 6] = [
    "timestamp",
    "frame_index",
    "episode_index",
    "index",
    "task_index",
    "task",
];

/// The contents of a dataset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Frames per second.
    pub fps: u32,
    /// The kind of robot, for readers of the dataset.
    #[serde(default)]
    pub robot_type: Option<String>,
    /// The task of episodes that name none.
    #[serde(default)]
    pub task: String,
    /// Greatest distance in seconds between a frame and the message that it takes; the length of a frame for `None`.
    #[serde(default)]
    pub tolerance_s: Option<f64>,
    /// Which message a frame takes.
    #[serde(default)]
    pub sample: Sample,
    /// The clock of messages and frames.
    #[serde(default, alias = "time")]
    pub stamp: TimeBase,
    /// Handling of a frame for which a feature has no message within the tolerance.
    #[serde(default)]
    pub missing: Missing,
    /// Where episodes begin and end.
    #[serde(default)]
    pub episodes: Episodes,
    /// How videos are encoded.
    #[serde(default)]
    pub video: VideoOptions,
    /// The features by name.
    pub features: BTreeMap<String, Feature>,
}

/// Which message a frame takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sample {
    /// The one nearest in time.
    #[default]
    Nearest,
    /// The last one until then: nothing of the future, as a policy sees it.
    Latest,
}

/// Handling of a frame for which a feature has no message within the tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// It takes the last message before it, and is counted.
    #[default]
    Hold,
    /// The episode ends there, and another one begins when all features have messages again.
    Split,
    /// The export fails.
    Fail,
}

/// Where episodes begin and end.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Episodes {
    /// Divider of a bag.
    #[serde(default)]
    pub by: Divider,
    /// With `marker`: a pattern for the whole name of markers that begin an episode; all markers for `None`.
    #[serde(default)]
    pub start: Option<String>,
    /// With `marker`: a pattern for markers that end one; the next beginning, and the end of the bag, do too.
    #[serde(default)]
    pub end: Option<String>,
    /// With `topic`: its name.
    #[serde(default)]
    pub topic: Option<String>,
    /// With `topic`: the clock of its messages if it is not that of the mapping.
    #[serde(default, alias = "time")]
    pub stamp: Option<TimeBase>,
    /// With `topic`: the field whose changes divide; an episode is a span where it is not false, 0 or empty.
    #[serde(default)]
    pub field: Option<String>,
    /// With `gap`: seconds without a message of any feature that end an episode.
    #[serde(default)]
    pub gap_s: Option<f64>,
    /// Shorter episodes, in seconds, are left out.
    #[serde(default)]
    pub min_s: f64,
    /// With `episode`: a pattern for the whole outcome of those that are taken; all that were stopped for `None`.
    #[serde(default)]
    pub outcome: Option<String>,
    /// The marker's name, the field's value, or the episode's own task is the episode's task.
    #[serde(default)]
    pub is_task: bool,
}

/// Divider of a bag into episodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Divider {
    /// Nothing: each bag is one.
    #[default]
    Bag,
    /// Markers.
    Marker,
    /// Episodes that were recorded as such and stopped.
    Episode,
    /// The values of a field.
    Topic,
    /// Pauses.
    Gap,
}

/// A feature.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Its topic.
    pub topic: String,
    /// The clock of this topic's messages if it is not that of the mapping: commands often have no `header.stamp`.
    #[serde(default, alias = "time")]
    pub stamp: Option<TimeBase>,
    /// The fields whose numbers it has, in this order, with dots between levels and parts of arrays in brackets (`position`, `pose.position.x`,
    /// `effort[2]`, `data[0:6]`); empty for images.
    #[serde(default)]
    pub fields: Vec<String>,
    /// The kind of its numbers.
    #[serde(default)]
    pub dtype: Dtype,
    /// The names of its numbers.
    #[serde(default)]
    pub names: Vec<String>,
    /// A field of names, as long as `fields`: the elements called `names` are read in that order, whatever order a message
    /// has them in (`name` of `sensor_msgs/msg/JointState`).
    #[serde(default)]
    pub names_field: Option<String>,
    /// Images are a video, encoded by the program `ffmpeg`, instead of PNG.
    #[serde(default)]
    pub video: bool,
}

/// The kind of a feature's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    #[default]
    Float32,
    /// 64-bit floats.
    Float64,
    /// 64-bit integers.
    Int64,
    /// 32-bit integers.
    Int32,
    /// Booleans.
    Bool,
    /// One text.
    String,
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Bool => "bool",
            Self::String => "string",
        })
    }
}

/// How videos are encoded; the defaults are LeRobot's. Recorded video is copied where nothing is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VideoOptions {
    /// The encoder, as ffmpeg names it; for `None` `libsvtav1`, or `libx264` where ffmpeg lacks that.
    pub codec: Option<String>,
    /// Quality: lower is better; 30 for `None`.
    pub crf: Option<u32>,
    /// Frames from one that can be decoded on its own to the next; 2 for `None`.
    pub gop: Option<u32>,
}

impl Feature {
    /// Whether it is images.
    pub fn is_image(&self) -> bool {
        self.fields.is_empty()
    }
}

impl Mapping {
    /// Reads a mapping.
    ///
    /// # Errors
    /// Text that is not a mapping, with its line; settings that exclude each other.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let mapping: Self = yaml::read_into(text)?;
        mapping.check().map_err(|reason| YamlError::new(1, reason))?;
        Ok(mapping)
    }

    /// The same with another clock.
    ///
    /// # Errors
    /// A topic that would have two.
    pub fn with_stamp(self, stamp: TimeBase) -> Result<Self, String> {
        let changed = Self { stamp, ..self };
        changed.stamps()?;
        Ok(changed)
    }

    /// Nanoseconds between a frame and its message at most.
    pub fn tolerance_ns(&self) -> i64 {
        let seconds = self.tolerance_s.unwrap_or(1.0 / f64::from(self.fps.max(1)));
        nanos(seconds)
    }

    /// Frames that an episode has at least.
    pub fn frames_min(&self) -> u64 {
        let frames = (self.episodes.min_s * f64::from(self.fps)).ceil();
        // The cast saturates.
        (frames as u64).max(1)
    }

    /// The topics whose clock is not that of the mapping.
    ///
    /// # Errors
    /// A topic with two clocks.
    pub(super) fn stamps(&self) -> Result<BTreeMap<String, TimeBase>, String> {
        let features = self
            .features
            .values()
            .map(|feature| (&feature.topic, feature.stamp));
        let dividing = self
            .episodes
            .topic
            .iter()
            .map(|topic| (topic, self.episodes.stamp));
        let mut found: BTreeMap<&String, TimeBase> = BTreeMap::new();
        for (topic, stamp) in features.chain(dividing) {
            let stamp = stamp.unwrap_or(self.stamp);
            if *found.entry(topic).or_insert(stamp) != stamp {
                return Err(format!("stamp: the topic {topic} has two different ones"));
            }
        }
        let others = found.into_iter().filter(|(_, stamp)| *stamp != self.stamp);
        Ok(others.map(|(topic, stamp)| (topic.clone(), stamp)).collect())
    }

    fn check(&self) -> Result<(), String> {
        self.stamps()?;
        if !(1..=1000).contains(&self.fps) {
            return Err(format!("fps: {} is not from 1 to 1000", self.fps));
        }
        if self.features.is_empty() || self.features.len() > FEATURES_MAX {
            return Err(format!("features: from 1 to {FEATURES_MAX} are expected"));
        }
        let spans = [
            ("tolerance_s", self.tolerance_s),
            ("episodes.gap_s", self.episodes.gap_s),
            ("episodes.min_s", Some(self.episodes.min_s)),
        ];
        for (name, span) in spans {
            if span.is_some_and(|span| !(0.0..=1e6).contains(&span)) {
                return Err(format!(
                    "{name}: a number of seconds from 0 to 1000000 is expected"
                ));
            }
        }
        for (name, feature) in &self.features {
            feature
                .check(name)
                .map_err(|reason| format!("features.{name}: {reason}"))?;
        }
        self.episodes
            .check()
            .map_err(|reason| format!("episodes: {reason}"))
    }
}

impl Episodes {
    fn check(&self) -> Result<(), String> {
        let needed = match self.by {
            Divider::Topic if self.topic.is_none() || self.field.is_none() => "topic and field",
            Divider::Gap if self.gap_s.is_none() => "gap_s",
            _ => "",
        };
        if !needed.is_empty() {
            return Err(format!("{:?} needs {needed}", self.by).to_lowercase());
        }
        let given = [
            (
                self.start.is_some() || self.end.is_some(),
                Divider::Marker,
                "start and end",
            ),
            (
                self.topic.is_some() || self.field.is_some() || self.stamp.is_some(),
                Divider::Topic,
                "topic, field and stamp",
            ),
            (self.gap_s.is_some(), Divider::Gap, "gap_s"),
            (self.outcome.is_some(), Divider::Episode, "outcome"),
        ];
        for (is_given, by, names) in given {
            if is_given && self.by != by {
                return Err(format!("{names} is for by: {}", format!("{by:?}").to_lowercase()));
            }
        }
        Ok(())
    }
}

impl Feature {
    fn check(&self, name: &str) -> Result<(), String> {
        if RESERVED.contains(&name) {
            return Err("every dataset has a column of this name".to_owned());
        }
        if name.is_empty() || name.contains('/') {
            return Err("a name without / is expected".to_owned());
        }
        if self.is_image() && (!self.names.is_empty() || self.names_field.is_some()) {
            return Err("names are for features with fields; without fields it is images".to_owned());
        }
        if self.video && !self.is_image() {
            return Err("video is for features without fields, which are images".to_owned());
        }
        if self.names_field.is_some() && self.names.is_empty() {
            return Err("names_field needs names, the elements that are taken".to_owned());
        }
        if self.dtype == Dtype::String && self.fields.len() != 1 {
            return Err("a string is one field".to_owned());
        }
        Ok(())
    }
}

/// Seconds as nanoseconds.
pub(super) fn nanos(seconds: f64) -> i64 {
    // The cast saturates.
    (seconds * 1e9).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_defaults_and_refuses_what_excludes_itself() {
        let mapping = Mapping::parse("fps: 20\nfeatures:\n  action: {topic: /a, fields: [data]}\n").unwrap();
        assert_eq!((mapping.tolerance_ns(), mapping.frames_min()), (50_000_000, 1));
        assert_eq!(mapping.features["action"].dtype, Dtype::Float32);
        let refused = |text: &str| Mapping::parse(text).unwrap_err().to_string();
        let with = |more: &str| format!("fps: 20\nfeatures:\n  a: {{topic: /a, fields: [data]}}\n{more}");
        for (more, word) in [
            ("episodes: {by: topic}", "topic and field"),
            ("episodes: {by: gap}", "gap_s"),
            ("episodes: {by: gap, gap_s: 1, start: x}", "start and end"),
            ("episodes: {by: marker, outcome: success}", "outcome"),
            ("tolerance_s: -1", "tolerance_s"),
            ("sample: best", "sample"),
            ("stamp: header", "stamp"),
            ("speed: 3", "speed"),
        ] {
            let text = refused(&with(more));
            assert!(text.contains(word), "{more}: {text}");
        }
        for (feature, word) in [
            ("index: {topic: /a, fields: [x]}", "column"),
            ("a/b: {topic: /a, fields: [x]}", "without /"),
            ("a: {topic: /a, video: true, fields: [x]}", "video"),
            ("a: {topic: /a, names: [x]}", "names"),
            ("a: {topic: /a, fields: [x], names_field: name}", "names_field"),
            ("a: {topic: /a, fields: [x, y], dtype: string}", "one field"),
            (
                "a: {topic: /a, fields: [x]}\n  b: {topic: /a, fields: [y], stamp: header.stamp}",
                "two different",
            ),
        ] {
            let text = refused(&format!("fps: 20\nfeatures:\n  {feature}\n"));
            assert!(text.contains(word), "{feature}: {text}");
        }
        assert!(refused("fps: 0\nfeatures: {a: {topic: /a}}").contains("fps"));
    }
}
