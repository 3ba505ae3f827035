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
    /// The file was cut off or is damaged; its readable part is returned.
    Damaged {
        /// Offset of the first damage, in bytes from the start of the file.
        offset: u64,
        /// The fault, one clause.
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
    /// Compares each part that has a checksum with it before a message of it is returned, also where only a few are wanted.
    pub verified: bool,
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

/// A part of a file that is read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Smallest and largest log time of its messages.
    pub times: (Timestamp, Timestamp),
    /// Bytes of its records when they are decompressed.
    pub bytes: u64,
}

/// The entry of a file's index for a part, which itself may be unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexedPart {
    /// Offset of the part in the file.
    pub offset: u64,
    /// Smallest and largest log time of its messages.
    pub times: (Timestamp, Timestamp),
    /// Number of messages by channel; `None` if the index does not have them.
    pub messages: Option<Vec<(ChannelIndex, u64)>>,
}

/// Messages of each channel over time, counted in cells of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeCells {
    start: i64,
    /// Nanoseconds, at least 1.
    span: i64,
    cells: usize,
    /// Cells before and after them, for what is outside: 0 or 1.
    outer: usize,
    /// Counts by [`ChannelIndex`]; empty for a channel without a message.
    counts: Vec<Vec<u64>>,
}

/// `count * part / whole`, rounded down. Numbers that fit are divided as such, which takes a fraction of the time.
fn share(count: u64, part: u64, whole: u64) -> u64 {
    match count.checked_mul(part) {
        Some(product) => product / whole,
        None => u64::try_from(u128::from(count) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX),
    }
}

impl TimeCells {
    /// `cells` cells from the first of these times to the second, both included.
    pub fn new((start, end): (Timestamp, Timestamp), cells: usize) -> Self {
        Self {
            start: start.as_nanos(),
            span: end.as_nanos().saturating_sub(start.as_nanos()).max(1),
            cells: cells.max(1),
            outer: 0,
            counts: Vec::new(),
        }
    }

    /// As [`Self::new`], with a cell before them for what is earlier, and one after them for what is later.
    pub fn of_part(times: (Timestamp, Timestamp), cells: usize) -> Self {
        Self {
            outer: 1,
            ..Self::new(times, cells)
        }
    }

    /// The cell of a time; a time outside of all has the first or the last one.
    pub fn cell(&self, time: Timestamp) -> usize {
        let offset = time.as_nanos().saturating_sub(self.start);
        if offset < 0 {
            return 0;
        }
        if offset > self.span {
            return self.cells + 2 * self.outer - 1;
        }
        let place = share(offset.unsigned_abs(), self.cells as u64, self.span.unsigned_abs());
        self.outer + usize::try_from(place).unwrap_or(0).min(self.cells - 1)
    }

    /// Counts `count` messages of a channel in one cell.
    pub fn add(&mut self, channel: ChannelIndex, cell: usize, count: u64) {
        let place = channel.0 as usize;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, Vec::new());
        }
        let counts = &mut self.counts[place];
        counts.resize(self.cells + 2 * self.outer, 0);
        if let Some(found) = counts.get_mut(cell) {
            *found = found.saturating_add(count);
        }
    }

    /// Spreads the count of messages evenly between the cells of the first and the last one, when only those are known.
    pub fn spread(&mut self, channel: ChannelIndex, (first, last): (usize, usize), count: u64) {
        let width = last.saturating_sub(first) as u64 + 1;
        for (number, cell) in (0..).zip(first..=last) {
            let until = |number: u64| share(count, number, width);
            self.add(channel, cell, until(number + 1) - until(number));
        }
    }

    /// The counts of a channel, one for each cell; empty without a message.
    pub fn of(&self, channel: ChannelIndex) -> &[u64] {
        self.counts.get(channel.0 as usize).map_or(&[], Vec::as_slice)
    }
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

    /// The parts of the file that may have messages of `channels` (all for `None`) and are each read as a whole; empty if the
    /// file has none, or if they are not known without reading the messages.
    ///
    /// # Errors
    /// An index that cannot be read.
    fn parts(&self, channels: Option<&[ChannelIndex]>) -> StorageResult<Vec<FilePart>> {
        let _ = channels;
        Ok(Vec::new())
    }

    /// The entry of the file's index for the part at this offset, which need not be readable; `None` if no index has
    /// it.
    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        let _ = offset;
        None
    }

    /// Counts the messages of each channel over time by the file's index. False if that is not possible without reading the
    /// messages; `cells` are unchanged then.
    ///
    /// # Errors
    /// An index that cannot be read.
    fn count_over_time(&self, cells: &mut TimeCells) -> StorageResult<bool> {
        let _ = cells;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_cells_of_equal_length_and_spread_counts_keep_their_sum() {
        let time = Timestamp::from_nanos;
        let mut cells = TimeCells::new((time(100), time(200)), 4);
        let found: Vec<usize> = [0, 100, 124, 125, 175, 199, 200, i64::MAX]
            .map(|nanos| cells.cell(time(nanos)))
            .into();
        assert_eq!(found, [0, 0, 0, 1, 3, 3, 3, 3]);
        cells.spread(ChannelIndex(2), (1, 3), 10);
        cells.add(ChannelIndex(2), 0, 1);
        assert_eq!(cells.of(ChannelIndex(2)), [1, 3, 3, 4]);
        assert_eq!(cells.of(ChannelIndex(7)), [0; 0]);
        let mut point = TimeCells::new((time(5), time(5)), 3);
        point.add(ChannelIndex(0), point.cell(time(5)), 1);
        assert_eq!(point.of(ChannelIndex(0)).iter().sum::<u64>(), 1);
    }

    #[test]
    fn products_beyond_64_bits_are_divided_exactly() {
        let time = Timestamp::from_nanos;
        let all = TimeCells::new((time(0), time(i64::MAX)), 1000);
        let found = [i64::MAX / 4, i64::MAX / 2 + 1, i64::MAX - 1].map(|nanos| all.cell(time(nanos)));
        assert_eq!(found, [249, 500, 999]);
        let mut all = TimeCells::new((time(0), time(10)), 3);
        all.spread(ChannelIndex(0), (0, 2), u64::MAX);
        assert_eq!(all.of(ChannelIndex(0)), [u64::MAX / 3; 3]);
    }
}
