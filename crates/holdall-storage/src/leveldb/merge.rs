//! Messages of many tables and logs in stamp order; each source is opened when it is due.

use super::{
    format::{ByteOrder, Malformed, batch_entries, split_key, table::BlockEntries},
    recover::{Table, log_reader, malformed},
};
use crate::{
    error::{StorageError, StorageResult},
    reader::ReadMessage,
    writer::ChannelIndex,
};
use bytes::Bytes;
use holdall_io::fs::File;
use holdall_model::time::Timestamp;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    path::{Path, PathBuf},
};

/// Messages of one stamp that are sorted by write order; longer runs keep the stored order.
const RUN_MAX: usize = 1024;
/// Messages of one log whose places are kept; LevelDB's logs are a few megabytes long.
const LOG_ENTRIES_MAX: usize = 16 << 20;

/// A message of a database.
#[derive(Debug)]
struct Entry {
    stamp: i64,
    sequence: u64,
    value: Bytes,
}

/// The place of a message in a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogPlace {
    stamp: i64,
    sequence: u64,
    /// Offset of its record.
    record: u64,
    /// Offset of its value in the record.
    begin: usize,
    len: usize,
}

/// The messages of a log by stamp.
pub(super) struct LogPlaces(pub VecDeque<LogPlace>, Option<StorageError>);

impl LogPlaces {
    /// Reads a log from start to end, and keeps the places of its messages.
    pub fn read(path: &Path, byte_order: ByteOrder) -> StorageResult<Self> {
        let file = File::open(path)?;
        let mut reader = log_reader(&file, 0);
        let (mut places, mut damage) = (Vec::new(), None);
        while let Some(record) = reader.next_record()? {
            let record = match record {
                Ok(record) => record,
                Err(what) => {
                    damage.get_or_insert_with(|| malformed(path, what));
                    continue;
                }
            };
            for entry in batch_entries(&record.bytes) {
                let place = entry.ok().and_then(|entry| {
                    let value = entry.value?;
                    Some(LogPlace {
                        stamp: byte_order.stamp(entry.key)?,
                        sequence: entry.sequence,
                        record: record.offset,
                        begin: value.as_ptr() as usize - record.bytes.as_ptr() as usize,
                        len: value.len(),
                    })
                });
                match place {
                    Some(place) => places.push(place),
                    None => {
                        let what = Malformed::at(record.offset, "a stamp and a message", "other bytes");
                        damage.get_or_insert_with(|| malformed(path, what));
                    }
                }
            }
            if places.len() > LOG_ENTRIES_MAX {
                return Err(StorageError::TooLarge {
                    path: path.to_owned(),
                    offset: record.offset,
                    what: "a log (in messages)",
                    limit: LOG_ENTRIES_MAX as u64,
                    found: places.len() as u64,
                });
            }
        }
        places.sort_by_key(|place| (place.stamp, place.sequence));
        Ok(Self(places.into(), damage))
    }
}

/// One table or log.
pub(super) struct Source {
    channel: ChannelIndex,
    byte_order: ByteOrder,
    path: PathBuf,
    /// Lower bound of its stamps.
    first: i64,
    /// Upper bound of its stamps.
    last: i64,
    state: State,
}

enum State {
    Failed(StorageError),
    ClosedTable,
    ClosedLog,
    Table(TableCursor),
    Log(LogCursor),
    Done,
}

struct TableCursor {
    table: Table,
    next_block: usize,
    entries: Option<BlockEntries>,
    /// Messages of the same stamp, in write order.
    run: VecDeque<Entry>,
    ahead: Option<StorageResult<Entry>>,
    is_done: bool,
}

struct LogCursor {
    places: VecDeque<LogPlace>,
    file: File,
    /// The last record read, and its offset.
    record: Option<(u64, Bytes)>,
    damage: Option<StorageError>,
}

impl Source {
    /// A source that could not be opened: returns its error once.
    pub fn failed(channel: ChannelIndex, error: StorageError) -> Self {
        Self {
            channel,
            byte_order: ByteOrder::default(),
            path: PathBuf::new(),
            first: i64::MIN,
            last: i64::MAX,
            state: State::Failed(error),
        }
    }

    /// A table with stamps from `first` to `last`.
    pub fn table(channel: ChannelIndex, path: PathBuf, byte_order: ByteOrder, first: i64, last: i64) -> Self {
        Self {
            channel,
            byte_order,
            path,
            first,
            last,
            state: State::ClosedTable,
        }
    }

    /// A log.
    pub fn log(channel: ChannelIndex, path: PathBuf, byte_order: ByteOrder) -> Self {
        Self {
            channel,
            byte_order,
            path,
            first: i64::MIN,
            last: i64::MAX,
            state: State::ClosedLog,
        }
    }

    fn open(&mut self, start: i64) -> StorageResult<()> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Failed(error) => return Err(error),
            State::ClosedTable => {
                let table = Table::open(&self.path)?;
                let order = self.byte_order;
                let is_before = |key: &[u8]| {
                    let stamp = split_key(key).and_then(|(key, ..)| order.stamp(key));
                    stamp.is_some_and(|stamp| stamp < start)
                };
                let next_block = table
                    .blocks
                    .iter()
                    .take_while(|(last, _)| is_before(last))
                    .count();
                self.state = State::Table(TableCursor {
                    table,
                    next_block,
                    entries: None,
                    run: VecDeque::new(),
                    ahead: None,
                    is_done: false,
                });
            }
            State::ClosedLog => {
                let LogPlaces(places, damage) = LogPlaces::read(&self.path, self.byte_order)?;
                self.state = State::Log(LogCursor {
                    places,
                    file: File::open(&self.path)?,
                    record: None,
                    damage,
                });
            }
            other => self.state = other,
        }
        Ok(())
    }

    fn next(&mut self, start: i64, end: i64) -> Option<StorageResult<Entry>> {
        match &mut self.state {
            State::Table(cursor) => cursor.next(self.byte_order, start, end),
            State::Log(cursor) => cursor.next(start, end),
            _ => None,
        }
    }
}

impl TableCursor {
    fn next(&mut self, order: ByteOrder, start: i64, end: i64) -> Option<StorageResult<Entry>> {
        if let Some(entry) = self.run.pop_front() {
            return Some(Ok(entry));
        }
        let first = match self.ahead.take().or_else(|| self.entry(order, start, end))? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        let stamp = first.stamp;
        self.run.push_back(first);
        while self.run.len() < RUN_MAX {
            match self.entry(order, start, end) {
                Some(Ok(entry)) if entry.stamp == stamp => self.run.push_front(entry),
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        self.run.pop_front().map(Ok)
    }

    /// The next entry in stored order: newest first where stamps are equal.
    fn entry(&mut self, order: ByteOrder, start: i64, end: i64) -> Option<StorageResult<Entry>> {
        while !self.is_done {
            let Some(entries) = &mut self.entries else {
                if self.next_block >= self.table.blocks.len() {
                    self.is_done = true;
                    break;
                }
                self.next_block += 1;
                match self.table.entries(self.next_block - 1) {
                    Ok(entries) => self.entries = Some(entries),
                    Err(error) => return Some(Err(error)),
                }
                continue;
            };
            let Some(found) = entries.next_entry() else {
                self.entries = None;
                continue;
            };
            let split = found.and_then(|(key, value)| {
                let (key, sequence, is_value) = split_key(key)?;
                let stamp = order.stamp(key)?;
                Some((
                    Entry {
                        stamp,
                        sequence,
                        value,
                    },
                    is_value,
                ))
            });
            match split {
                Some((entry, _)) if entry.stamp > end => self.is_done = true,
                Some((entry, true)) if entry.stamp >= start => return Some(Ok(entry)),
                Some(_) => {}
                None => {
                    let offset = self.table.blocks[self.next_block - 1].1.offset;
                    let what = Malformed::at(offset, "a stamp and a message", "other bytes");
                    return Some(Err(malformed(self.table.path(), what)));
                }
            }
        }
        None
    }
}

impl LogCursor {
    fn next(&mut self, start: i64, end: i64) -> Option<StorageResult<Entry>> {
        while let Some(place) = self.places.pop_front() {
            if place.stamp > end {
                self.places.clear();
            } else if place.stamp >= start {
                return Some(self.read(place));
            }
        }
        self.damage.take().map(Err)
    }

    fn read(&mut self, place: LogPlace) -> StorageResult<Entry> {
        let is_present = self.record.as_ref().is_some_and(|(at, _)| *at == place.record);
        if !is_present {
            let record = log_reader(&self.file, place.record).next_record()?;
            let bytes = match record {
                Some(Ok(record)) => record.bytes,
                Some(Err(what)) => return Err(malformed(self.file.path(), what)),
                None => Vec::new(),
            };
            self.record = Some((place.record, Bytes::from(bytes)));
        }
        let range = place.begin..place.begin + place.len;
        let record = self.record.as_ref().map(|(_, record)| record);
        match record.filter(|record| record.len() >= range.end) {
            Some(record) => Ok(Entry {
                stamp: place.stamp,
                sequence: place.sequence,
                value: record.slice(range),
            }),
            None => {
                let what = Malformed::at(place.record, "the message that was there", "a shorter log");
                Err(malformed(self.file.path(), what))
            }
        }
    }
}

/// Messages by stamp, then by topic, then in write order. Includes older messages that a newer one of the
/// same stamp hides, while LevelDB keeps their bytes.
pub(super) struct TopicMessages {
    sources: Vec<Source>,
    heads: Vec<Option<Entry>>,
    /// Stamp, topic and sequence of each source's head; a source that is not open has the earliest it may
    /// contain.
    next: BinaryHeap<Reverse<(i64, ChannelIndex, u64, usize)>>,
    start: i64,
    end: i64,
    first_error: Option<StorageError>,
    /// The last message returned: a table and the log that it was made from may both have it.
    last: Option<(ChannelIndex, i64, u64)>,
}

impl TopicMessages {
    /// Merges the sources within bounds of stamps; returns `first_error` first.
    pub fn new(sources: Vec<Source>, start: i64, end: i64, first_error: Option<StorageError>) -> Self {
        let mut next = BinaryHeap::new();
        for (index, source) in sources.iter().enumerate() {
            if source.last >= start && source.first <= end {
                next.push(Reverse((source.first, source.channel, 0, index)));
            }
        }
        Self {
            heads: sources.iter().map(|_| None).collect(),
            sources,
            next,
            start,
            end,
            first_error,
            last: None,
        }
    }

    /// Takes a source's next entry as its head; after an error the source keeps its position.
    fn advance(&mut self, index: usize, earliest: i64) -> Option<StorageError> {
        let channel = self.sources[index].channel;
        match self.sources[index].next(self.start, self.end) {
            Some(Ok(entry)) => {
                self.next
                    .push(Reverse((entry.stamp, channel, entry.sequence, index)));
                self.heads[index] = Some(entry);
                None
            }
            Some(Err(error)) => {
                self.next.push(Reverse((earliest, channel, 0, index)));
                Some(error)
            }
            None => {
                self.sources[index].state = State::Done;
                None
            }
        }
    }
}

impl Iterator for TopicMessages {
    type Item = StorageResult<ReadMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.first_error.take() {
            return Some(Err(error));
        }
        // Bounded: each pass opens or ends a source, returns a message, or skips one that was already
        // returned.
        loop {
            let Reverse((stamp, channel, _, index)) = self.next.pop()?;
            let Some(entry) = self.heads[index].take() else {
                let opened = self.sources[index].open(self.start);
                let failed = opened.err().or_else(|| self.advance(index, stamp));
                if let Some(error) = failed {
                    return Some(Err(error));
                }
                continue;
            };
            self.first_error = self.advance(index, stamp);
            let this = (channel, entry.stamp, entry.sequence);
            if self.last.replace(this) == Some(this) {
                if let Some(error) = self.first_error.take() {
                    return Some(Err(error));
                }
                continue;
            }
            let time = Timestamp::from_nanos(entry.stamp);
            return Some(Ok(ReadMessage {
                channel,
                log_time: time,
                publish_time: time,
                sequence: 0,
                payload: entry.value,
            }));
        }
    }
}
