//! Content that a file repeats from its bag: just enough to be read by itself, so that many short files are not mostly repetitions.

use super::{current::CurrentFile, topics::Topics};

/// The most bytes of a file's own metadata without topics.
const METADATA_BYTES: u64 = 2048;

/// Content that a file repeats from the bag (its topics, the account so far) is at most this part of the file.
const REPEATED_PART_MAX: u64 = 8;

/// The room in one file.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    pub topics: &'a Topics,
    /// The length at which files end, in bytes.
    pub bytes_max: Option<u64>,
    /// No file was begun after the bag's first one.
    pub is_only_file: bool,
}

impl Room<'_> {
    /// The most bytes for the account of all messages at the end of a file before the last one, when it has `written` bytes.
    pub fn repeated_bytes_max(written: u64) -> u64 {
        (written / REPEATED_PART_MAX).max(64 << 10)
    }

    /// Bytes of the topics in the metadata record at the end of the file. A bag's only file has them,
    /// as in rosbag2's files, unless files are limited to a short length. In further files the channels name the topics,
    /// and the bag has `metadata.yaml`.
    pub fn ending_topics_bytes(&self) -> u64 {
        let bytes = self.topics.metadata_bytes();
        let is_short = |max: u64| bytes > max / REPEATED_PART_MAX;
        if !self.is_only_file || self.bytes_max.is_some_and(is_short) {
            return 0;
        }
        bytes
    }

    /// Bytes kept free for the end of the file.
    pub fn end_bytes(&self) -> u64 {
        let max = self.bytes_max.unwrap_or(u64::MAX);
        let channels = Some(self.topics.channel_bytes()).filter(|bytes| *bytes <= max / REPEATED_PART_MAX);
        METADATA_BYTES + self.ending_topics_bytes() + channels.unwrap_or(0)
    }

    /// Whether a file gets channels for topics without messages in it, so that it names them
    /// too, unless it would hold little else. The last file has them wherever they fit.
    pub fn has_room_for_empty_channels(&self, current: &CurrentFile, is_last: bool) -> bool {
        let added = self.topics.channel_bytes_without(current.topics_with_channel());
        let written = current.bytes_written();
        let length = written + METADATA_BYTES + self.ending_topics_bytes() + added;
        let fits = self.bytes_max.is_none_or(|max| length <= max);
        fits && (is_last || added <= Self::repeated_bytes_max(written))
    }
}
