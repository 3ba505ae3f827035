//! What every storage backend can do when a bag is written.

use crate::error::StorageResult;
use holdall_io::queue::{DiskQueue, SyncToken};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// One storage file that is being written.
///
/// The caller is one thread (or a simulator's step) that owns the disk queue; nothing here waits for the disk while the
/// queue has free blocks. After an error the file is given up: further calls may return the error again.
pub trait StorageWriter: Send {
    /// Makes a channel; it appears in the file at its first message, or at the end when there is none.
    ///
    /// # Errors
    /// More channels than the format can number.
    fn add_channel(&mut self, q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex>;

    /// Appends a message. The payload is not needed after the call.
    ///
    /// # Errors
    /// An unknown channel, a failed disk, a failed codec.
    fn write(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()>;

    /// Appends a named text record.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn write_metadata(
        &mut self,
        q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()>;

    /// What is in the file so far, open chunks included; `bytes` is [`Self::bytes_written`].
    fn summary(&self) -> FileSummary;

    /// What the file's length would be in bytes if it were finished now (an estimate from above where codecs are at work).
    fn bytes_written(&self) -> u64;

    /// Moves on what needs no new message: finished compressions, for example. Cheap; to be called between batches.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn step(&mut self, q: &mut DiskQueue) -> StorageResult<()>;

    /// Closes every open chunk (or transaction), so that all messages so far can be read once their bytes are on the disk.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn close_chunks(&mut self, q: &mut DiskQueue) -> StorageResult<()>;

    /// [`Self::close_chunks`], then hands every byte to the disk and asks for a sync; `None` when the backend has synced already.
    /// The messages so far are durable when [`DiskQueue::is_durable`] says so of the token.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>>;

    /// Writes what belongs to the end (the given records, index, summary) and hands the file back to the queue, closed.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn finish(
        self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary>;
}
