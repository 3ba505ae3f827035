//! A bag's metadata: the content of `metadata.yaml`, which MCAP and SQLite files hold as well.

mod read;
mod write;

pub use read::MetadataError;

use crate::{time::Timestamp, topic::TopicInfo};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The version that is written; versions 1 to 9 are read.
pub(crate) const METADATA_VERSION: u32 = 9;

/// Longest `metadata.yaml` that is read; that of a bag of 100 000 files has about 20 MB, and parsing needs three times as much memory.
pub const METADATA_BYTES_MAX: u64 = 64 << 20;

/// Key in `custom_data` while a bag is being written: the id of the memory that holds the messages not stored yet. A copy of the bag
/// has it, too.
pub const MEMORY_KEY: &str = "holdall.memory";

/// A bag's metadata (rosbag2 `BagMetadata`). Its JSON form has rosbag2's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BagMetadata {
    /// Version of the text it was read from; [`METADATA_VERSION`] is always written.
    pub version: u32,
    /// Storage backend, for example `mcap`.
    pub storage_identifier: String,
    /// Time from the first to the last log time.
    #[serde(with = "nanoseconds")]
    pub duration: Duration,
    /// Smallest log time; `None` for a bag without messages.
    #[serde(with = "nanoseconds_since_epoch")]
    pub starting_time: Option<Timestamp>,
    /// Messages in all files.
    pub message_count: u64,
    /// Topics with their messages in all files.
    pub topics_with_message_count: Vec<TopicWithMessageCount>,
    /// Compression plugin of rosbag2's own compression, for example `zstd`; empty for none. MCAP chunk
    /// compression does not count.
    pub compression_format: String,
    /// `FILE`, `MESSAGE`, or empty for none.
    pub compression_mode: String,
    /// Storage files, relative to the bag's directory.
    pub relative_file_paths: Vec<String>,
    /// The content of each storage file; empty before version 5.
    pub files: Vec<FileInformation>,
    /// Texts that the user wants to keep, by key.
    pub custom_data: BTreeMap<String, String>,
    /// `ROS_DISTRO` of the recorder, if it was set.
    pub ros_distro: Option<String>,
}

impl Default for BagMetadata {
    fn default() -> Self {
        Self {
            version: METADATA_VERSION,
            storage_identifier: String::new(),
            duration: Duration::ZERO,
            starting_time: None,
            message_count: 0,
            topics_with_message_count: Vec::new(),
            compression_format: String::new(),
            compression_mode: String::new(),
            relative_file_paths: Vec::new(),
            files: Vec::new(),
            custom_data: BTreeMap::new(),
            ros_distro: None,
        }
    }
}

impl BagMetadata {
    /// Largest log time; `None` for a bag without messages.
    pub fn ending_time(&self) -> Option<Timestamp> {
        self.starting_time
            .map(|start| start.saturating_add(self.duration))
    }
}

/// A topic of a bag and how many messages it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicWithMessageCount {
    /// The topic.
    pub topic_metadata: TopicInfo,
    /// Its messages in all files.
    pub message_count: u64,
}

/// The content of one storage file of a bag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInformation {
    /// Relative to the bag's directory.
    pub path: String,
    /// Smallest log time; `None` for a file without messages.
    #[serde(with = "nanoseconds_since_epoch")]
    pub starting_time: Option<Timestamp>,
    /// Time from the first to the last log time.
    #[serde(with = "nanoseconds")]
    pub duration: Duration,
    /// Messages in the file.
    pub message_count: u64,
}

/// Spans in JSON: `{"nanoseconds": 5}`.
mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    #[derive(Serialize, Deserialize)]
    struct Form {
        nanoseconds: u64,
    }

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let nanoseconds = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Form { nanoseconds }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Form::deserialize(deserializer).map(|form| Duration::from_nanos(form.nanoseconds))
    }
}

/// Points in time in JSON: `{"nanoseconds_since_epoch": 5}`, or null.
mod nanoseconds_since_epoch {
    use crate::time::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Form {
        nanoseconds_since_epoch: Timestamp,
    }

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|nanoseconds_since_epoch| Form {
            nanoseconds_since_epoch,
        })
        .serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let form = Option::<Form>::deserialize(deserializer)?;
        Ok(form.map(|form| form.nanoseconds_since_epoch))
    }
}

/// The time that rosbag2 writes for "no messages" (the largest that fits).
const NO_STARTING_TIME: i64 = i64::MAX;
/// The one top key of `metadata.yaml`.
const WRAPPER_KEY: &str = "rosbag2_bagfile_information";
