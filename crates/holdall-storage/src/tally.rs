//! The counts of a file's writer, in any format: messages of each channel, the first time and the last.

use crate::{
    error::{StorageError, StorageResult},
    writer::{ChannelIndex, FileSummary},
};
use holdall_model::time::Timestamp;
use std::path::{Path, PathBuf};

/// The counts of one file.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    path: PathBuf,
    counts: Vec<u64>,
    /// The smallest and the largest log time in nanoseconds.
    times: Option<(i64, i64)>,
}

impl Tally {
    /// The counts of the file at `path`, to which nothing is written yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            counts: Vec::new(),
            times: None,
        }
    }

    /// Number of messages in each channel.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Messages of all channels.
    pub fn messages(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The smallest and the largest log time in nanoseconds.
    pub fn times(&self) -> Option<(i64, i64)> {
        self.times
    }

    /// The index that the next channel gets.
    ///
    /// # Errors
    /// More channels than can be numbered.
    pub(crate) fn next_channel(&self) -> StorageResult<ChannelIndex> {
        u32::try_from(self.counts.len())
            .map(ChannelIndex)
            .map_err(|_| StorageError::TooMany {
                path: self.path.clone(),
                what: "channels",
                limit: u64::from(u32::MAX),
            })
    }

    /// Counts a channel that has been added to the file.
    pub fn add_channel(&mut self) {
        self.counts.push(0);
    }

    /// The index of a channel in lists of all channels.
    ///
    /// # Errors
    /// A channel that was never added.
    pub fn place(&self, channel: ChannelIndex) -> StorageResult<usize> {
        let (place, count) = (channel.0 as usize, self.counts.len());
        if place < count {
            return Ok(place);
        }
        Err(StorageError::UnknownChannel {
            path: self.path.clone(),
            index: channel.0,
            count,
        })
    }

    /// Counts a message of the channel at `place`.
    pub fn count(&mut self, place: usize, log_time_nanos: i64) {
        self.counts[place] += 1;
        let (start, end) = self.times.unwrap_or((log_time_nanos, log_time_nanos));
        self.times = Some((start.min(log_time_nanos), end.max(log_time_nanos)));
    }

    /// The summary of the file, which is `bytes` long.
    pub fn summary(&self, bytes: u64) -> FileSummary {
        FileSummary {
            path: self.path.clone(),
            message_count: self.counts.iter().sum(),
            starting_time: self.times.map(|(start, _)| Timestamp::from_nanos(start)),
            ending_time: self.times.map(|(_, end)| Timestamp::from_nanos(end)),
            channel_message_counts: self.counts.clone(),
            bytes,
        }
    }
}
