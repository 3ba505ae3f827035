//! The interface of a storage backend for reading.

use crate::{
    error::StorageResult,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use bytes::Bytes;
use holdall_model::time::Timestamp;
use std::path::PathBuf;

/// A channel of a storage file with its number of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSummary {
    /// The topic and its definition.
    pub info: ChannelInfo,
    /// Number of messages in this channel.
    pub message_count: u64,
}

/// Whether a storage file is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileCondition {
    /// The file has its summary and index.
    #[default]
    Complete,
    /// The file is complete, but was written without an index: everything was found by reading it.
    Unindexed,
    /// The file was cut off or is damaged: what could be read is returned.
    Damaged {
        /// Offset of the first damage, in bytes from the start of the file.
        offset: u64,
        /// What is wrong, one clause.
        reason: String,
    },
}

/// Content of a storage file, as far as known without reading the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSummary {
    /// The file's path.
    pub path: PathBuf,
    /// Id of the backend.
    pub storage_id: &'static str,
    /// The program that wrote the file, if the file names it.
    pub library: Option<String>,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of messages.
    pub message_count: u64,
    /// Smallest log time, `None` when empty.
    pub starting_time: Option<Timestamp>,
    /// Largest log time, `None` when empty.
    pub ending_time: Option<Timestamp>,
    /// Channels, indexed by [`ChannelIndex`]. Several may have the same topic.
    pub channels: Vec<ChannelSummary>,
    /// Named text records in file order.
    pub metadata: Vec<(String, MetadataEntries)>,
    /// How chunks are compressed; `None` when they are not, or when that is unknown without reading.
    pub compression: Option<String>,
    /// Whether the file is whole.
    pub condition: FileCondition,
}

impl StorageSummary {
    /// The last metadata record of this name: if one was written at open and again at close, the one from the
    /// close.
    pub fn last_metadata(&self, name: &str) -> Option<&MetadataEntries> {
        self.metadata
            .iter()
            .rev()
            .find(|(found, _)| found == name)
            .map(|(_, entries)| entries)
    }

    /// rosbag2's own description of the bag (YAML without the wrapper key), if the file has it.
    pub fn rosbag2_metadata(&self) -> Option<&str> {
        self.last_metadata("rosbag2")?
            .get("serialized_metadata")
            .map(String::as_str)
    }
}

/// The order of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOrder {
    /// By reception time; messages of the same time in file order.
    #[default]
    LogTime,
    /// By send time. The file is read twice.
    PublishTime,
    /// File order.
    File,
}

/// Which messages are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadQuery {
    /// Only these channels; `None` for all.
    pub channels: Option<Vec<ChannelIndex>>,
    /// Only messages of this log time or later.
    pub start: Option<Timestamp>,
    /// Only messages of this log time or earlier.
    pub end: Option<Timestamp>,
    /// The order in which they are returned.
    pub order: ReadOrder,
}

/// A message read from a file. The payload is a slice of the decompressed chunk, which stays in memory while
/// one of its payloads does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadMessage {
    /// Index in [`StorageSummary::channels`].
    pub channel: ChannelIndex,
    /// Reception time.
    pub log_time: Timestamp,
    /// Send time; equal to `log_time` if the file does not store it.
    pub publish_time: Timestamp,
    /// Low 32 bits of the publisher's sequence number, 0 if unknown.
    pub sequence: u32,
    /// The bytes.
    pub payload: Bytes,
}

/// Messages in order. After an error the iteration may continue after the damage, or end.
pub type Messages = Box<dyn Iterator<Item = StorageResult<ReadMessage>> + Send>;

/// A storage file open for reading. Several iterations may run at once; to seek, start a new one.
pub trait StorageReader: Send + Sync {
    /// Content of the file. If the format does not store the number of messages, the first call counts them.
    fn summary(&self) -> &StorageSummary;

    /// The summary without counting: channels, metadata and condition; counts and times may be missing (zero
    /// and `None`).
    fn outline(&self) -> &StorageSummary {
        self.summary()
    }

    /// The messages that `query` selects, in its order, with bounded memory.
    ///
    /// # Errors
    /// A file that cannot be read, or a channel that it does not have.
    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages>;
}
