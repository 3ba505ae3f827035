//! Finds a bag's content by walking over its records: for unclosed bags and those with a damaged index.

use super::{
    Rosbag1ReaderOptions,
    chunk::{Extent, ExtentKind, Records},
    connections::Connections,
    format::{HEADER_BYTES_MAX, Head, LENGTH_BYTES, decode_record, number, op},
    resync::Resync,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::reader::source::Source,
    reader::FileCondition,
};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Records outside of chunks are read in parts of about this length.
const OPEN_BYTES: u64 = 16 << 20;

/// A record in the file; only its header is read.
#[derive(Clone, Debug)]
pub(crate) struct RecordPlace {
    header: Bytes,
    /// Offset of its data.
    pub data_start: u64,
    /// Length of its data; it may exceed the end of the file.
    pub data_bytes: u64,
}

impl RecordPlace {
    /// Reads the header of the record at `start`.
    pub fn read(source: &Source, start: u64) -> StorageResult<Self> {
        // The first bytes include nearly every header, and the length after it.
        let first = source.read_up_to(start, 512)?;
        let length_at = |bytes: &[u8], at: usize| bytes.get(at..at + 4).and_then(number).map(u64::from);
        let Some(header_bytes) = length_at(&first, 0) else {
            return Err(source.malformed(start, "a record", format!("{} bytes", first.len())));
        };
        if header_bytes > HEADER_BYTES_MAX {
            let found = format!("{header_bytes} bytes");
            return Err(source.malformed(
                start,
                format!("a header of at most {HEADER_BYTES_MAX} bytes"),
                found,
            ));
        }
        let wanted = header_bytes + 2 * LENGTH_BYTES;
        let all = if wanted > first.len() as u64 {
            source.read(start, wanted, "a record's header")?
        } else {
            first
        };
        // Bounded above.
        let header_end = (LENGTH_BYTES + header_bytes) as usize;
        let header = all.slice(LENGTH_BYTES as usize..header_end);
        let data_bytes = length_at(&all, header_end);
        match (Head::decode(&header), data_bytes) {
            (Some(_), Some(data_bytes)) => Ok(Self {
                header,
                data_start: start + wanted,
                data_bytes,
            }),
            _ => Err(source.malformed(start, "a record", "bytes that are not a record header")),
        }
    }

    /// Its header.
    pub fn head(&self) -> Head<'_> {
        // Checked when it was read.
        Head::decode(&self.header).unwrap_or_default()
    }

    /// Offset of the next record.
    pub fn end(&self) -> u64 {
        self.data_start + self.data_bytes
    }
}

/// Result of a walk.
pub(super) struct Scan {
    pub connections: Connections,
    pub extents: Vec<Extent>,
    pub compression: Option<String>,
    pub condition: FileCondition,
}

/// Walks over the records from `start` on.
///
/// # Errors
/// Only a file that cannot be read: damaged content sets the condition.
pub(super) fn scan(source: &Source, options: Rosbag1ReaderOptions, start: u64) -> StorageResult<Scan> {
    let mut walk = Walk {
        source,
        options,
        found: Scan {
            connections: Connections::default(),
            extents: Vec::new(),
            compression: None,
            condition: FileCondition::Unindexed,
        },
        resync: Resync::default(),
    };
    let mut at = start;
    // Each record has at least 8 bytes, so the walk ends.
    while at < source.len() {
        match walk.record(at) {
            Ok(Some(next)) => at = next,
            Ok(None) => break,
            Err(error @ StorageError::Disk(_)) => return Err(error),
            Err(error) => {
                walk.damaged(&error);
                match walk.resync.next_chunk(source, options, at + 1)? {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
    }
    Ok(walk.found)
}

struct Walk<'a> {
    source: &'a Source,
    options: Rosbag1ReaderOptions,
    found: Scan,
    resync: Resync,
}

impl Walk<'_> {
    /// Adds the record at `at`; returns the offset of the next one, `None` at the end of the readable part.
    fn record(&mut self, at: u64) -> StorageResult<Option<u64>> {
        let record = RecordPlace::read(self.source, at)?;
        let head = record.head();
        let is_cut = record.end() > self.source.len();
        if head.op == op::CHUNK {
            return self.chunk(at, &record, is_cut);
        }
        if is_cut {
            let found = format!(
                "{} until the end of the file",
                self.source.len() - record.data_start
            );
            let expected = format!("a record with {} bytes of data", record.data_bytes);
            return Err(self.source.malformed(at, expected, found));
        }
        if matches!(head.op, op::CONNECTION | op::MESSAGE) {
            let extent = Extent {
                start: at,
                length: record.end() - at,
                times: (i64::MAX, i64::MIN),
                kind: ExtentKind::Records,
                channels: None,
            };
            self.open_records(extent)?;
        }
        Ok(Some(record.end()))
    }

    /// Consecutive records outside of chunks are joined to parts large enough for one read.
    fn open_records(&mut self, extent: Extent) -> StorageResult<()> {
        let records = Records::load(self.source, self.options, &extent)?;
        let times = self.content(&records.0, extent.start, false)?;
        if let Some(last) = self.found.extents.last_mut()
            && last.kind == ExtentKind::Records
            && last.start + last.length == extent.start
            && last.length < OPEN_BYTES
        {
            last.length += extent.length;
            last.times = (last.times.0.min(times.0), last.times.1.max(times.1));
        } else {
            self.found.extents.push(Extent { times, ..extent });
        }
        Ok(())
    }

    fn chunk(&mut self, at: u64, record: &RecordPlace, is_cut: bool) -> StorageResult<Option<u64>> {
        let head = record.head();
        let compression = String::from_utf8_lossy(head.compression.unwrap_or_default()).into_owned();
        // A recorder writes a chunk's lengths when it closes the chunk.
        let is_open = record.data_bytes == 0 && head.size == Some(0) && record.data_start < self.source.len();
        if self.found.compression.is_none() && compression != "none" {
            self.found.compression = Some(compression.clone());
        }
        if !is_cut && !is_open {
            self.add(Extent {
                start: at,
                length: 0,
                times: (0, 0),
                kind: ExtentKind::Chunk,
                channels: None,
            });
            return Ok(Some(record.end()));
        }
        let reason = if is_open {
            "its last chunk was not closed"
        } else {
            "the file ends within a chunk"
        };
        self.found.condition = FileCondition::Damaged {
            offset: at,
            reason: reason.to_owned(),
        };
        if is_open && compression == "none" {
            // Its records follow, and possibly closed chunks after them.
            return Ok(Some(record.data_start));
        }
        // Its length may be the damage: then chunks follow it.
        let next = self
            .resync
            .next_chunk(self.source, self.options, record.data_start)?;
        self.add(Extent {
            start: record.data_start,
            length: next.unwrap_or(self.source.len()) - record.data_start,
            times: (0, 0),
            kind: ExtentKind::CutChunk(compression.into()),
            channels: None,
        });
        Ok(next)
    }

    /// Adds a part of the file if its content can be read; else records the damage, and the walk continues.
    fn add(&mut self, mut extent: Extent) {
        let is_cut = matches!(extent.kind, ExtentKind::CutChunk(_));
        let times = Records::load(self.source, self.options, &extent)
            .and_then(|records| self.content(&records.0, extent.start, is_cut));
        match times {
            Ok(times) => {
                extent.times = times;
                self.found.extents.push(extent);
            }
            Err(error) => self.damaged(&error),
        }
    }

    /// Counts a part's messages and adds its connections; returns the smallest and largest log time.
    fn content(&mut self, records: &[u8], offset: u64, is_cut: bool) -> StorageResult<(i64, i64)> {
        let mut times = (i64::MAX, i64::MIN);
        let mut unknown = BTreeSet::new();
        let mut rest = records;
        while !rest.is_empty() {
            let at = records.len() - rest.len();
            let record = match decode_record(rest) {
                Ok(record) => record,
                Err(_) if is_cut => break,
                Err(found) => {
                    let expected = format!("a record at byte {at} of its records");
                    let error = self.source.malformed(offset, expected, found);
                    // The records before it are readable.
                    self.damaged(&error);
                    break;
                }
            };
            match (record.head.op, record.head.connection, record.head.time) {
                (op::CONNECTION, Some(id), _) => {
                    let topic = record.head.topic.unwrap_or_default();
                    self.found.connections.add(id, topic, record.data);
                }
                (op::MESSAGE, Some(id), Some(time)) => {
                    if self.found.connections.count(id, 1).is_some() {
                        times = (times.0.min(time), times.1.max(time));
                    } else {
                        unknown.insert(id);
                    }
                }
                _ => {}
            }
            rest = &rest[record.len()..];
        }
        if let Some(id) = unknown.first() {
            let expected = "messages of known connections";
            let error = self
                .source
                .malformed(offset, expected, format!("connection {id}"));
            self.damaged(&error);
        }
        Ok(times)
    }

    /// Keeps the first damage.
    fn damaged(&mut self, error: &StorageError) {
        if !matches!(self.found.condition, FileCondition::Damaged { .. }) {
            self.found.condition = damage(error);
        }
    }
}

/// The file condition for this error.
pub(super) fn damage(error: &StorageError) -> FileCondition {
    let (offset, reason) = match error {
        StorageError::Malformed {
            offset,
            expected,
            found,
            ..
        } => (*offset, format!("expected {expected}, found {found}")),
        StorageError::Codec {
            offset,
            codec,
            reason,
            ..
        } => (
            *offset,
            format!("the chunk cannot be decompressed as {codec}: {reason}"),
        ),
        StorageError::TooLarge {
            offset,
            what,
            limit,
            found,
            ..
        } => (
            *offset,
            format!("{what} has {found} bytes, more than the limit of {limit}"),
        ),
        other => (0, other.to_string()),
    };
    FileCondition::Damaged { offset, reason }
}
