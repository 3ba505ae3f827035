//! What every storage backend can do when a bag is read.

use crate::{
    error::StorageResult,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use bytes::Bytes;
use holdall_model::time::Timestamp;
use std::path::PathBuf;

/// A channel of a storage file and how many messages it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSummary {
    /// The topic and its definition.
    pub info: ChannelInfo,
    /// Messages of this channel.
    pub message_count: u64,
}

/// Whether a storage file is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileCondition {
    /// The file has its end and its index.
    #[default]
    Complete,
    /// The file is whole, but was written without what makes it quick to open: everything was found by reading it.
    Unindexed,
    /// The file was cut off or is damaged: what could be read is there.
    Damaged {
        /// Where the first trouble is, in bytes from the start of the file.
        offset: u64,
        /// What it is, one clause.
        reason: String,
    },
}

/// What a storage file holds, as far as it is told without reading the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSummary {
    /// Where it is.
    pub path: PathBuf,
    /// Id of the backend.
    pub storage_id: &'static str,
    /// The program that wrote the file, where it says so.
    pub library: Option<String>,
    /// Length of the file.
    pub file_bytes: u64,
    /// Messages in it.
    pub message_count: u64,
    /// Smallest log time, `None` when empty.
    pub starting_time: Option<Timestamp>,
    /// Largest log time, `None` when empty.
    pub ending_time: Option<Timestamp>,
    /// Channels; [`ChannelIndex`] is the place in this list. Several may have the same topic.
    pub channels: Vec<ChannelSummary>,
    /// Named text records in the order of the file.
    pub metadata: Vec<(String, MetadataEntries)>,
    /// How chunks are compressed, `None` when they are not or that is not known without reading.
    pub compression: Option<String>,
    /// Whether the file is whole.
    pub condition: FileCondition,
}

impl StorageSummary {
    /// The last metadata record of this name: where one was written at open and again at close, the one from the close.
    pub fn last_metadata(&self, name: &str) -> Option<&MetadataEntries> {
        self.metadata
            .iter()
            .rev()
            .find(|(found, _)| found == name)
            .map(|(_, entries)| entries)
    }

    /// rosbag2's own description of the bag (YAML without the wrapper key), where the file carries it.
    pub fn rosbag2_metadata(&self) -> Option<&str> {
        self.last_metadata("rosbag2")?
            .get("serialized_metadata")
            .map(String::as_str)
    }
}

/// In which order messages come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOrder {
    /// As they were received; messages of the same time as they lie in the file.
    #[default]
    LogTime,
    /// As they were sent. The file is read twice.
    PublishTime,
    /// As they lie in the file.
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
    /// In which order.
    pub order: ReadOrder,
}

/// A message as it is read. The payload is a part of the decompressed chunk, which stays in memory as long as one of its payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadMessage {
    /// Place in [`StorageSummary::channels`].
    pub channel: ChannelIndex,
    /// When it was received.
    pub log_time: Timestamp,
    /// When it was sent; equal to `log_time` where the file does not tell.
    pub publish_time: Timestamp,
    /// Low 32 bits of the publisher's sequence number, 0 where not known.
    pub sequence: u32,
    /// The bytes.
    pub payload: Bytes,
}

/// Messages one after the other. After an error the iteration may go on behind the damage, or end.
pub type Messages = Box<dyn Iterator<Item = StorageResult<ReadMessage>> + Send>;

/// One storage file that is being read. Several iterations may go on at once; seeking is a new one.
pub trait StorageReader: Send + Sync {
    /// What the file holds. Where the format does not tell how many messages there are, the first call counts them.
    fn summary(&self) -> &StorageSummary;

    /// The same as far as it is told at once: channels, metadata and condition; counts and times may be missing (zero and `None`).
    fn outline(&self) -> &StorageSummary {
        self.summary()
    }

    /// The wanted messages in the wanted order, with bounded memory.
    ///
    /// # Errors
    /// A file that cannot be read, or a channel that it does not have.
    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages>;
}
