//! What every storage backend can do when a bag is written.

use holdall_model::{
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use std::{collections::BTreeMap, path::PathBuf};

/// A channel of one storage file: dense index from 0 in the order of [`StorageWriter::add_channel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelIndex(pub u32);

/// A topic as it is stored in one file, with the definition of its type.
#[derive(Clone, Debug)]
pub struct ChannelInfo {
    /// The topic as the bag describes it.
    pub topic: TopicInfo,
    /// The definition of its type; encoding `Unknown` and empty text where none was found.
    pub definition: MessageDefinition,
}

/// A message as it is written.
#[derive(Clone, Copy)]
pub struct StoredMessage<'a> {
    /// When it was received (MCAP `log_time`, SQLite `timestamp`).
    pub log_time: Timestamp,
    /// When it was sent; equal to `log_time` where that is not known.
    pub publish_time: Timestamp,
    /// Low 32 bits of the publisher's sequence number, 0 where not known.
    pub sequence: u32,
    /// The bytes.
    pub payload: PayloadRef<'a>,
}

/// What a closed storage file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// Where it is.
    pub path: PathBuf,
    /// Messages in it.
    pub message_count: u64,
    /// Smallest log time, `None` when empty.
    pub starting_time: Option<Timestamp>,
    /// Largest log time, `None` when empty.
    pub ending_time: Option<Timestamp>,
    /// Messages per channel, indexed by [`ChannelIndex`].
    pub channel_message_counts: Vec<u64>,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// Named text records that a storage file carries beside its messages (MCAP metadata records; a table in SQLite).
pub type MetadataEntries = BTreeMap<String, String>;
