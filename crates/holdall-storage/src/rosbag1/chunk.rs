//! Loads one part of a bag into memory and finds the wanted messages in it.

use super::{
    Rosbag1ReaderOptions,
    codec::{Expect, decompress},
    format::{decode_record, op},
    reader::FileIndex,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::reader::source::Source,
    reader::{ReadMessage, ReadQuery},
    writer::ChannelIndex,
};
use bytes::Bytes;
use holdall_model::time::Timestamp;

/// How an [`Extent`]'s records are stored in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    /// A chunk record that is not read yet.
    Chunk,
    /// The data of a chunk that is cut off, with its compression.
    CutChunk(Box<str>),
    /// Records outside of chunks.
    Records,
}

/// A part of the file that holds messages and is read as a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset of the chunk's record, of the cut chunk's data, or of the first record.
    pub start: u64,
    /// Its length; 0 for a chunk, whose record has it.
    pub length: u64,
    /// Smallest and largest log time in nanoseconds.
    pub times: (i64, i64),
    /// How its records are stored.
    pub kind: ExtentKind,
    /// Channels with messages in it, each with their number; `None` when unknown.
    pub channels: Option<Box<[(ChannelIndex, u64)]>>,
}

/// A query in terms of the file's channels.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Wanted channels; empty for all.
    channels: Vec<bool>,
    start: i64,
    end: i64,
}

impl Wanted {
    pub fn new(channel_count: usize, query: &ReadQuery) -> Self {
        let mut channels = Vec::new();
        if let Some(selected) = &query.channels {
            channels = vec![false; channel_count.max(1)];
            for channel in selected {
                channels[channel.0 as usize] = true;
            }
        }
        Self {
            channels,
            start: query.start.map_or(i64::MIN, Timestamp::as_nanos),
            end: query.end.map_or(i64::MAX, Timestamp::as_nanos),
        }
    }

    fn has_channel(&self, channel: ChannelIndex) -> bool {
        self.channels.is_empty() || self.channels.get(channel.0 as usize).copied().unwrap_or(false)
    }

    fn takes(&self, channel: ChannelIndex, time: i64) -> bool {
        self.has_channel(channel) && (self.start..=self.end).contains(&time)
    }

    /// Whether the extent may have wanted messages.
    pub(crate) fn may_be_in(&self, extent: &Extent) -> bool {
        extent.times.0 <= self.end
            && extent.times.1 >= self.start
            && extent
                .channels
                .as_ref()
                .is_none_or(|channels| channels.iter().any(|(channel, _)| self.has_channel(*channel)))
    }
}

/// A wanted message of a loaded extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub time: i64,
    channel: ChannelIndex,
    /// Offset of its payload in the records, and its length.
    start: u32,
    length: u32,
}

/// An extent's records in memory.
#[derive(Clone, Debug)]
pub(super) struct Records(pub Bytes);

impl Records {
    /// Reads and decompresses the records of an extent.
    pub fn load(source: &Source, options: Rosbag1ReaderOptions, extent: &Extent) -> StorageResult<Self> {
        match &extent.kind {
            ExtentKind::Records => {
                check_size(source, options, extent.start, extent.length)?;
                source.read(extent.start, extent.length, "records").map(Self)
            }
            ExtentKind::CutChunk(compression) => {
                check_size(source, options, extent.start, extent.length)?;
                let stored = source.read(extent.start, extent.length, "the chunk")?;
                let expect = Expect::UpTo(options.chunk_bytes_max);
                let records = decompress(compression, stored, expect);
                records
                    .map(Self)
                    .map_err(|reason| codec_error(source, extent.start, compression, reason))
            }
            ExtentKind::Chunk => load_chunk(source, options, extent.start),
        }
    }

    /// The wanted messages in file order, and the damage among the others, if any.
    pub fn entries(
        &self,
        index: &FileIndex,
        extent: &Extent,
        wanted: &Wanted,
    ) -> (Vec<Entry>, Option<StorageError>) {
        let mut entries = Vec::new();
        let mut damage = None;
        let is_cut = matches!(extent.kind, ExtentKind::CutChunk(_));
        let mut at = 0;
        while let Some(rest) = self.0.get(at..).filter(|rest| !rest.is_empty()) {
            let malformed = |expected: &str, found: String| {
                let expected = format!("{expected} at byte {at} of its records");
                Some(index.source.malformed(extent.start, expected, found))
            };
            let record = match decode_record(rest) {
                Ok(record) => record,
                Err(found) => {
                    // The summary already reports a cut chunk.
                    damage = if is_cut {
                        None
                    } else {
                        malformed("a record", found.to_owned())
                    };
                    break;
                }
            };
            if record.head.op == op::MESSAGE {
                let number = record.head.connection;
                let channel = number.and_then(|number| index.channel_of_connection.get(&number));
                match (channel, record.head.time) {
                    (Some(channel), Some(time)) => {
                        if wanted.takes(*channel, time) {
                            entries.push(Entry {
                                time,
                                channel: *channel,
                                // Extents have at most 1 GiB.
                                start: (at + record.data_start) as u32,
                                length: record.data.len() as u32,
                            });
                        }
                    }
                    _ => {
                        let found = format!("connection {number:?} at time {:?}", record.head.time);
                        damage = damage.or_else(|| malformed("a message of a known connection", found));
                    }
                }
            }
            at += record.len();
        }
        (entries, damage)
    }

    /// The message of an entry; it keeps all records of the extent in memory.
    pub fn message(&self, entry: Entry) -> ReadMessage {
        let start = entry.start as usize;
        let time = Timestamp::from_nanos(entry.time);
        ReadMessage {
            channel: entry.channel,
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload: self.0.slice(start..start + entry.length as usize),
        }
    }
}

fn load_chunk(source: &Source, options: Rosbag1ReaderOptions, start: u64) -> StorageResult<Records> {
    let record = super::recover::RecordPlace::read(source, start)?;
    let head = record.head();
    let (op::CHUNK, Some(compression), Some(size)) = (head.op, head.compression, head.size) else {
        return Err(source.malformed(start, "a chunk", format!("a record of kind {}", head.op)));
    };
    let compression = String::from_utf8_lossy(compression).into_owned();
    check_size(source, options, start, u64::from(size))?;
    check_size(source, options, start, record.data_bytes)?;
    let stored = source.read(record.data_start, record.data_bytes, "the chunk")?;
    let records = decompress(&compression, stored, Expect::Exactly(u64::from(size)));
    records
        .map(Records)
        .map_err(|reason| codec_error(source, start, &compression, reason))
}

fn check_size(source: &Source, options: Rosbag1ReaderOptions, offset: u64, bytes: u64) -> StorageResult<()> {
    if bytes <= options.chunk_bytes_max {
        return Ok(());
    }
    Err(StorageError::TooLarge {
        path: source.path().to_owned(),
        offset,
        what: "the chunk",
        limit: options.chunk_bytes_max,
        found: bytes,
    })
}

fn codec_error(source: &Source, offset: u64, codec: &str, reason: String) -> StorageError {
    StorageError::Codec {
        path: source.path().to_owned(),
        action: "decompress",
        offset,
        codec: codec.to_owned(),
        reason,
    }
}
