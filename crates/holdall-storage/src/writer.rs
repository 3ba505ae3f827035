//! The interface of a storage backend for writing.

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

/// A topic of one file, with the definition of its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelInfo {
    /// The topic as described in the bag.
    pub topic: TopicInfo,
    /// The definition of its type; encoding `Unknown` and empty text if none was found.
    pub definition: MessageDefinition,
}

/// A message to be written.
#[derive(Clone, Copy)]
pub struct StoredMessage<'a> {
    /// Reception time (MCAP `log_time`, SQLite `timestamp`).
    pub log_time: Timestamp,
    /// Send time; equal to `log_time` if unknown.
    pub publish_time: Timestamp,
    /// Low 32 bits of the publisher's sequence number, 0 if unknown.
    pub sequence: u32,
    /// The bytes.
    pub payload: PayloadRef<'a>,
}

/// Content of a closed storage file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// The file's path.
    pub path: PathBuf,
    /// Number of messages.
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

/// Entries of a named text record that a storage file has in addition to its messages (MCAP metadata records;
/// a table in SQLite).
pub type MetadataEntries = BTreeMap<String, String>;

/// A storage file that is being written.
///
/// The caller is one thread (or a simulator's step) that owns the disk queue; no call here waits for the disk
/// while the queue has free blocks. After an error the file must not be written any more: further calls may
/// return the error again.
pub trait StorageWriter: Send {
    /// Adds a channel; it appears in the file at its first message, or at the end when it has none.
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

    /// Current content of the file, including open chunks; `bytes` is [`Self::bytes_written`].
    fn summary(&self) -> FileSummary;

    /// The length in bytes that the file would have if it were finished now (an upper estimate while codecs
    /// are running).
    fn bytes_written(&self) -> u64;

    /// Advances work that needs no new message, such as finished compressions. Cheap; called between batches.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn step(&mut self, q: &mut DiskQueue) -> StorageResult<()>;

    /// Closes every open chunk (or transaction), so that all messages so far can be read once their bytes are
    /// on the disk.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn close_chunks(&mut self, q: &mut DiskQueue) -> StorageResult<()>;

    /// Number of messages, counted from the first in write order, whose bytes the system has: they survive a
    /// killed process and can be read. A power cut may lose them.
    fn handed(&mut self, q: &DiskQueue) -> u64;

    /// [`Self::close_chunks`], then submits every byte to the disk without a sync: soon all messages so far
    /// are [`Self::handed`].
    ///
    /// # Errors
    /// A failed disk or codec.
    fn hand_over(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.close_chunks(q)
    }

    /// Submits large messages (64 KiB and more), whose only copy is in this process, as soon as that is
    /// cheap; false when it must be called again.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn hand_over_large(&mut self, q: &mut DiskQueue) -> StorageResult<bool> {
        self.close_chunks(q)?;
        Ok(true)
    }

    /// [`Self::close_chunks`], then submits every byte to the disk and requests a sync; `None` when the
    /// backend has synced already. The messages so far are durable once [`DiskQueue::is_durable`] is true for
    /// the token.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>>;

    /// Writes the end of the file (the given records, index, summary), closes the file and returns it to the
    /// queue.
    ///
    /// # Errors
    /// A failed disk or codec.
    fn finish(
        self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary>;
}
