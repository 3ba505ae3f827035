//! One way to record: the recorder, its publishers, the storage.

use super::values::by_name;
use crate::error::{BenchError, BenchResult};
use clap::ValueEnum;
use holdall_storage::{StorageOptions, storage_by_id};
use serde::{Deserialize, Serialize};
use std::{fmt, fs, str::FromStr};

by_name!(RecorderKind, PublisherKind, SelectionKind);

/// How messages get from the producers to the recorder.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Directly into the recorder's cache, in one process.
    #[default]
    None,
    /// DDS, with publishers in a separate process.
    Dds,
    /// Shared memory through iceoryx2, with publishers in a separate process.
    Iceoryx2,
    /// Zenoh, with publishers in a separate process.
    Zenoh,
}

impl Transport {
    /// The value for `--transport`; `None` without one.
    pub fn flag(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Dds => Some("dds"),
            Self::Iceoryx2 => Some("iceoryx2"),
            Self::Zenoh => Some("zenoh"),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no_transport",
            Self::Dds => "transport",
            Self::Iceoryx2 => "iceoryx2",
            Self::Zenoh => "zenoh",
        })
    }
}

/// The recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum RecorderKind {
    /// This program.
    #[default]
    Holdall,
    /// A writer that stores in the receiving thread, as recorders did before double buffering.
    Synchronous,
    /// A double buffer like rosbag2's, in front of the `mcap` crate or of a bare SQLite loop.
    DoubleBuffered,
    /// `ros2 bag record`, if it is installed.
    Ros2Bag,
    /// `rosbag record` of ROS 1 with publishers of ROS 1, if they are installed.
    Rosbag,
    /// No recorder: messages are counted and discarded. Without a transport the rest is the cost of the generator
    /// itself, with one that of taking.
    Discard,
}

impl RecorderKind {
    /// Whether this transport can reach it.
    pub(crate) fn is_reached_over(self, transport: Transport) -> bool {
        transport != Transport::None || !self.is_foreign()
    }

    /// Multiple of its cache size that it may hold: recorders with two buffers hold it twice.
    pub fn buffers(self) -> u64 {
        match self {
            Self::DoubleBuffered | Self::Ros2Bag => 2,
            Self::Holdall | Self::Synchronous | Self::Rosbag | Self::Discard => 1,
        }
    }

    /// Whether it is a writer of this crate, which runs in a separate process when a transport is used.
    pub(crate) fn is_rival(self) -> bool {
        matches!(self, Self::Synchronous | Self::DoubleBuffered | Self::Discard)
    }

    /// Whether it is another project's program, which can only be reached over a transport.
    pub(crate) fn is_foreign(self) -> bool {
        matches!(self, Self::Ros2Bag | Self::Rosbag)
    }
}

/// The publishers, over a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublisherKind {
    /// Our own, with the transport's own library (Cyclone for DDS); rospy for [`RecorderKind::Rosbag`].
    #[default]
    Own,
    /// Nodes of rclpy with their installed middleware.
    Rclpy,
}

/// How the recorder selects topics, over a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionKind {
    /// By an expression that matches the benchmark's topics, as in rosbag2's launch file.
    #[default]
    Regex,
    /// All topics.
    All,
    /// Each topic by its name.
    Names,
}

/// Rate of a playback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlayRate {
    /// A rate in thousandths of real time.
    Milli(u32),
    /// As fast as possible.
    Unlimited,
}

impl PlayRate {
    /// In the form that the player accepts.
    pub fn factor(self) -> f64 {
        match self {
            Self::Milli(milli) => f64::from(milli) / 1e3,
            // The schedule is then late from the first message, and the player never waits.
            Self::Unlimited => 1e6,
        }
    }
}

impl FromStr for PlayRate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let milli = text.parse::<f64>().map_or(0.0, |rate| rate * 1000.0);
        match text {
            "unlimited" => Ok(Self::Unlimited),
            // Between 1 and a million, so it fits.
            _ if (1.0..=1e6).contains(&milli) => Ok(Self::Milli(milli.round() as u32)),
            _ => Err("expected a rate between 0.001 and 1000, or unlimited"),
        }
    }
}

impl fmt::Display for PlayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Milli(_) => write!(f, "×{}", self.factor()),
            Self::Unlimited => f.write_str("flat out"),
        }
    }
}

/// One combination of the lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Setting {
    /// The recorder (not in rosbag2's files).
    pub recorder: RecorderKind,
    /// The publishers over a transport (not in rosbag2's files).
    #[serde(default)]
    pub publishers: PublisherKind,
    /// How topics are selected over a transport (not in rosbag2's files).
    #[serde(default)]
    pub selection: SelectionKind,
    /// The recording is played back at this rate, and the playback is measured (not in rosbag2's files).
    #[serde(default)]
    pub play_rate: Option<PlayRate>,
    /// Storage backend.
    pub storage_id: String,
    /// Cache in bytes.
    pub max_cache_size_bytes: u64,
    /// A new file begins at this many bytes; `None` for one file.
    pub max_bag_size_bytes: Option<u64>,
    /// Compression format, `None` for none.
    pub compression: Option<String>,
    /// Messages that may wait for compression.
    pub compression_queue_size: u32,
    /// Threads that compress; 0 for one for each core.
    pub compression_threads: u32,
    /// The storage's own configuration file, or its text in one line, which begins with a brace.
    pub storage_config_file: Option<String>,
    /// The storage's preset (not in rosbag2's files).
    pub storage_preset_profile: Option<String>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            recorder: RecorderKind::default(),
            publishers: PublisherKind::default(),
            selection: SelectionKind::default(),
            play_rate: None,
            storage_id: "mcap".to_owned(),
            max_cache_size_bytes: 100_000_000,
            max_bag_size_bytes: None,
            compression: None,
            compression_queue_size: 1,
            compression_threads: 0,
            storage_config_file: None,
            storage_preset_profile: None,
        }
    }
}

impl Setting {
    /// The storage's options.
    ///
    /// # Errors
    /// A configuration file that cannot be read.
    pub(crate) fn storage_options(&self) -> BenchResult<StorageOptions> {
        let config = match &self.storage_config_file {
            None => None,
            Some(text) if is_text(text) => Some(text.clone()),
            Some(name) => Some(fs::read_to_string(name).map_err(BenchError::io("read", name))?),
        };
        Ok(StorageOptions {
            preset: self.storage_preset_profile.clone(),
            config,
            ..StorageOptions::default()
        })
    }

    /// The text of its storage's configuration, where it has no file.
    pub(crate) fn config_text(&self) -> Option<&str> {
        self.storage_config_file.as_deref().filter(|text| is_text(text))
    }

    /// Why its storage cannot have its options, such as the pragmas of SQLite for MCAP in a file that combines every storage with every
    /// configuration; `None` when it can.
    ///
    /// # Errors
    /// A configuration file that cannot be read.
    pub(crate) fn misfit(&self) -> BenchResult<Option<String>> {
        let options = self.storage_options()?;
        // The `mcap` crate gets the options of our storage, a bare loop has its own.
        let by_crate = self.recorder.is_rival() && self.storage_id == "mcap";
        if self.recorder != RecorderKind::Holdall && !by_crate {
            return Ok(None);
        }
        let checked = storage_by_id(&self.storage_id).and_then(|storage| storage.check_options(&options));
        Ok(checked.err().map(|error| error.to_string()))
    }

    /// The folder of a run, named as in rosbag2's launch file; settings that it does not have follow.
    pub(crate) fn run_folder(&self, repetition: u32) -> String {
        let or = |value: &Option<String>, absent: &str| value.clone().unwrap_or_else(|| absent.to_owned());
        let config = or(&self.storage_config_file, "default_config");
        // A path would create subfolders.
        let config = config.rsplit('/').next().unwrap_or_default().to_owned();
        let mut name = format!(
            "run_{repetition}_{}_{}_{}_{}_{}_{config}_{}",
            self.storage_id,
            self.max_cache_size_bytes,
            or(&self.compression, "default_compression"),
            self.compression_queue_size,
            self.compression_threads,
            self.max_bag_size_bytes.unwrap_or(0),
        );
        let mut also = |part: String| {
            name.push('_');
            name.push_str(&part);
        };
        if let Some(preset) = &self.storage_preset_profile {
            also(preset.clone());
        }
        if self.recorder != RecorderKind::Holdall {
            also(self.recorder.to_string());
        }
        if self.publishers != PublisherKind::default() {
            also(self.publishers.to_string());
        }
        if self.selection != SelectionKind::default() {
            also(self.selection.to_string());
        }
        match self.play_rate {
            Some(PlayRate::Milli(milli)) => also(format!("play{milli}")),
            Some(PlayRate::Unlimited) => also("playflat".to_owned()),
            None => {}
        }
        name
    }
}

/// Whether the name of a configuration file is its text.
fn is_text(name: &str) -> bool {
    name.starts_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_configuration_needs_no_file() {
        let with = |recorder, text: &str| Setting {
            recorder,
            storage_config_file: Some(text.to_owned()),
            ..Setting::default()
        };
        for recorder in [RecorderKind::Holdall, RecorderKind::Synchronous] {
            let setting = with(recorder, r#"{"noChunkCRC":true}"#);
            assert_eq!(setting.misfit().unwrap(), None);
            assert_eq!(
                setting.storage_options().unwrap().config.as_deref(),
                setting.config_text()
            );
            let of_sqlite = with(recorder, r#"{"write":{"pragmas":[]}}"#);
            assert!(of_sqlite.misfit().unwrap().unwrap().contains("write"));
        }
        assert!(with(RecorderKind::Holdall, "no/such.yaml").misfit().is_err());
    }
}
