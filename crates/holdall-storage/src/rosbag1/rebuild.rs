//! Repairs a ROS 1 bag as `rosbag reindex` does: rewrites it with an index of everything readable, and replaces the old file.

use super::{
    Rosbag1Reader, Rosbag1ReaderOptions,
    chunk::{Extent, ExtentKind, Records},
    format::{MAGIC, decode_record, op},
    recover::RecordPlace,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::reader::source::Source,
    reader::{FileCondition, StorageReader},
    repair::Repaired,
    storage::RepairTarget,
};
use bytes::Bytes;
use holdall_io::{
    disk::{DiskError, Operation},
    fs,
    output::OutputDisk,
    unfinished::Unfinished,
};
use holdall_model::time::Timestamp;
use holdall_model::units::counted;
use std::{collections::BTreeMap, path::Path};

/// Length of the bag header's record, which its data pads.
const BAG_HEADER_BYTES: usize = 4096;

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Places that are listed; the others are counted.
const UNSAVED_MAX: usize = 100;

/// Bytes of the new file.
enum Piece {
    /// New ones.
    Bytes(Vec<u8>),
    /// Unpacked ones.
    Unpacked(Bytes),
    /// Bytes of the old file: offset and number.
    Copied(u64, u64),
}

/// A chunk of the new file.
struct Chunk {
    position: u64,
    times: (i64, i64),
    /// Number of messages by connection.
    counts: BTreeMap<u32, u32>,
}

/// The new file in the making.
struct Rebuild<'a> {
    source: &'a Source,
    pieces: Vec<Piece>,
    /// Its current length.
    bytes: u64,
    /// Connection records by number.
    connections: BTreeMap<u32, Vec<u8>>,
    chunks: Vec<Chunk>,
    unsaved: Vec<String>,
    unsaved_count: u64,
}

/// As [`crate::storage::Storage::repair`].
pub(super) fn repair(path: &Path, target: RepairTarget) -> StorageResult<Option<Repaired>> {
    let reader = Rosbag1Reader::open(path)?;
    let (index, condition) = (reader.index(), &reader.summary().condition);
    let mut made = Rebuild {
        source: &index.source,
        pieces: Vec::new(),
        bytes: (MAGIC.len() + BAG_HEADER_BYTES) as u64,
        connections: BTreeMap::new(),
        chunks: Vec::new(),
        unsaved: Vec::new(),
        unsaved_count: 0,
    };
    if *condition == FileCondition::Complete {
        if target == RepairTarget::InPlace {
            return Ok(None);
        }
        made.add_listed_connections()?;
    }
    for (number, extent) in index.extents.iter().enumerate() {
        let following = index
            .extents
            .get(number + 1)
            .map_or(index.source.len(), |next| next.start);
        made.extent(extent, following)?;
    }
    if *condition == FileCondition::Complete && made.unsaved_count == 0 {
        return Ok(None);
    }
    if let FileCondition::Damaged { offset, reason } = condition {
        // Other records after it are the content of the chunk that has no end.
        let mut after = index.extents.iter().filter(|extent| extent.start > *offset);
        let is_inside = after.any(|extent| extent.kind == ExtentKind::Chunk);
        if target == RepairTarget::InPlace && (is_inside || made.unsaved_count > 0) {
            return Err(StorageError::NotInPlace {
                path: path.to_owned(),
                reason: "it is damaged before its end",
            });
        }
        // If only the index is damaged, all messages are before it.
        if !made.is_in_index(*offset) {
            made.leave_out(format!("what is damaged at byte {offset}: {reason}"));
        }
    }
    if made.chunks.is_empty() {
        return Ok(None);
    }
    made.write(path).map(Some)
}

impl Rebuild<'_> {
    /// Connections that are in the index; the chunk that introduced one may be damaged.
    fn add_listed_connections(&mut self) -> StorageResult<()> {
        let first = RecordPlace::read(self.source, MAGIC.len() as u64)?;
        let mut at = first.head().index_position.unwrap_or(self.source.len());
        while at < self.source.len() {
            let record = RecordPlace::read(self.source, at)?;
            let head = record.head();
            if let (op::CONNECTION, Some(id)) = (head.op, head.connection) {
                let bytes = self.source.read(at, record.end() - at, "a connection")?;
                self.connections.entry(id).or_insert_with(|| bytes.to_vec());
            }
            at = record.end();
        }
        Ok(())
    }

    /// Whether the file was closed, and this offset is in its index.
    fn is_in_index(&self, offset: u64) -> bool {
        let first = RecordPlace::read(self.source, MAGIC.len() as u64);
        let index = first.ok().and_then(|first| first.head().index_position);
        index.is_some_and(|start| start > 0 && offset >= start)
    }

    fn leave_out(&mut self, what: String) {
        self.unsaved_count += 1;
        if self.unsaved.len() < UNSAVED_MAX {
            self.unsaved.push(what);
        }
    }

    /// Adds a part of the old file as a chunk; bare records become one. `following` is the offset of the next part.
    fn extent(&mut self, extent: &Extent, following: u64) -> StorageResult<()> {
        let records = match Records::load(self.source, Rosbag1ReaderOptions::default(), extent) {
            Ok(records) => records.0,
            Err(error @ StorageError::Disk(_)) => return Err(error),
            Err(error) => {
                self.leave_out(lost(extent, &error.to_string()));
                return Ok(());
            }
        };
        let Some((chunk, index, whole)) = self.read(extent, &records) else {
            return Ok(());
        };
        match &extent.kind {
            ExtentKind::Chunk if whole == records.len() => {
                let record = RecordPlace::read(self.source, extent.start)?;
                let end = record.end().min(following.max(extent.start));
                self.put(Piece::Copied(extent.start, end - extent.start));
            }
            ExtentKind::Records if whole == records.len() => {
                self.put(Piece::Bytes(chunk_head(whole)));
                self.put(Piece::Copied(extent.start, extent.length));
            }
            _ => {
                self.put(Piece::Bytes(chunk_head(whole)));
                self.put(Piece::Unpacked(records.slice(..whole)));
            }
        }
        self.put(Piece::Bytes(index));
        self.chunks.push(chunk);
        Ok(())
    }

    /// The content of a part: its chunk and message indexes, and the end of its whole records. `None` for a part without
    /// messages.
    fn read(&mut self, extent: &Extent, records: &Bytes) -> Option<(Chunk, Vec<u8>, usize)> {
        let mut entries: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut chunk = Chunk {
            position: self.bytes,
            times: (i64::MAX, i64::MIN),
            counts: BTreeMap::new(),
        };
        let (mut at, mut unknown) = (0, 0u64);
        while let Some(rest) = records.get(at..).filter(|rest| !rest.is_empty()) {
            let record = match decode_record(rest) {
                Ok(record) => record,
                // The rest of a chunk that was cut off.
                Err(_) if matches!(extent.kind, ExtentKind::CutChunk(_)) => break,
                Err(found) => {
                    self.leave_out(lost(extent, &format!("expected a record, found {found}")));
                    break;
                }
            };
            match (record.head.op, record.head.connection, record.head.time) {
                (op::CONNECTION, Some(id), _) => {
                    let raw = || rest[..record.len()].to_vec();
                    self.connections.entry(id).or_insert_with(raw);
                }
                (op::MESSAGE, Some(id), Some(time)) if self.connections.contains_key(&id) => {
                    let listed = entries.entry(id).or_default();
                    listed.extend_from_slice(&stamp(time));
                    // A chunk has at most 1 GiB.
                    listed.extend_from_slice(&(at as u32).to_le_bytes());
                    chunk.times = (chunk.times.0.min(time), chunk.times.1.max(time));
                    *chunk.counts.entry(id).or_default() += 1;
                }
                (op::MESSAGE, ..) => unknown += 1,
                _ => {}
            }
            at += record.len();
        }
        if unknown > 0 {
            self.leave_out(format!(
                "{} of the part at byte {}, of an unknown connection",
                counted(unknown, "message"),
                extent.start
            ));
        }
        let index = entries.iter().flat_map(|(id, entries)| {
            let header = [
                field("op", &[op::INDEX_DATA]),
                field("ver", &1u32.to_le_bytes()),
                field("conn", &id.to_le_bytes()),
                field("count", &((entries.len() / 12) as u32).to_le_bytes()),
            ];
            record(&header.concat(), entries)
        });
        (!entries.is_empty()).then(|| (chunk, index.collect(), at))
    }

    fn put(&mut self, piece: Piece) {
        self.bytes += match &piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Unpacked(bytes) => bytes.len() as u64,
            Piece::Copied(_, bytes) => *bytes,
        };
        self.pieces.push(piece);
    }

    /// Connections and chunks, at the end of the file.
    fn index(&self) -> Vec<u8> {
        let mut index: Vec<u8> = self.connections.values().flatten().copied().collect();
        for chunk in &self.chunks {
            let header = [
                field("op", &[op::CHUNK_INFO]),
                field("ver", &1u32.to_le_bytes()),
                field("chunk_pos", &chunk.position.to_le_bytes()),
                field("start_time", &stamp(chunk.times.0)),
                field("end_time", &stamp(chunk.times.1)),
                field("count", &(chunk.counts.len() as u32).to_le_bytes()),
            ];
            let counts = chunk.counts.iter();
            let counts = counts.flat_map(|(id, count)| [id.to_le_bytes(), count.to_le_bytes()].concat());
            index.extend(record(&header.concat(), &counts.collect::<Vec<u8>>()));
        }
        index
    }

    /// The bag header, with its record padded to its fixed length.
    fn bag_header(&self) -> Vec<u8> {
        let header = [
            field("op", &[op::BAG_HEADER]),
            field("index_pos", &self.bytes.to_le_bytes()),
            field("conn_count", &(self.connections.len() as u32).to_le_bytes()),
            field("chunk_count", &(self.chunks.len() as u32).to_le_bytes()),
        ]
        .concat();
        let padding = BAG_HEADER_BYTES.saturating_sub(header.len() + 8);
        record(&header, &vec![b' '; padding])
    }

    /// Writes the new file next to the old one, and renames it to its place when it is durable.
    fn write(self, path: &Path) -> StorageResult<Repaired> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".partial");
        let temporary = path.with_file_name(name);
        fs::remove_regular_file(&temporary)?;
        let read = fs::file_numbers(path)?;
        let _unfinished = Unfinished::new(&temporary);
        let mut disk = OutputDisk::to_replace(path)?;
        let index = self.index();
        let mut out = disk.create_new(&temporary, self.bytes + index.len() as u64)?;
        out.append(MAGIC)?;
        out.append(&self.bag_header())?;
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => out.append(bytes)?,
                Piece::Unpacked(bytes) => out.append(bytes)?,
                Piece::Copied(start, bytes) => {
                    let (mut at, end) = (*start, start + bytes);
                    while at < end {
                        let piece = self.source.read(at, (end - at).min(PIECE_BYTES), "a chunk")?;
                        out.append(&piece)?;
                        at += piece.len() as u64;
                    }
                }
            }
        }
        out.append(&index)?;
        out.finish()?;
        disk.finish()?;
        if fs::file_numbers(path)? != read {
            let what = std::io::Error::other("another file took its name; it was left unchanged");
            return Err(DiskError::new(path, Operation::Rename, what).into());
        }
        fs::rename_over(&temporary, path)?;
        let mut unsaved = self.unsaved;
        let more = self.unsaved_count - unsaved.len() as u64;
        if more > 0 {
            unsaved.push(format!("and {more} more damaged places"));
        }
        let counts = self.chunks.iter().flat_map(|chunk| chunk.counts.values());
        Ok(Repaired {
            messages: counts.map(|count| u64::from(*count)).sum(),
            tail_bytes: index.len() as u64,
            unsaved,
        })
    }
}

/// The content of an unreadable part, by the index.
fn lost(extent: &Extent, reason: &str) -> String {
    let Some(channels) = &extent.channels else {
        return format!("{reason}: an unknown number of messages cannot be read");
    };
    let count: u64 = channels.iter().map(|(_, count)| count).sum();
    let [first, last] =
        [extent.times.0, extent.times.1].map(|nanos| Timestamp::from_nanos(nanos).to_utc_text());
    let messages = counted(count, "message");
    format!("{reason}: {messages} of {first} to {last} cannot be read")
}

/// The beginning of an uncompressed chunk with this many bytes of records.
fn chunk_head(bytes: usize) -> Vec<u8> {
    // A chunk has at most 1 GiB.
    let bytes = (bytes as u32).to_le_bytes();
    let header = [
        field("op", &[op::CHUNK]),
        field("compression", b"none"),
        field("size", &bytes),
    ]
    .concat();
    [&(header.len() as u32).to_le_bytes()[..], &header, &bytes].concat()
}

/// A field of a header.
fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let bytes = (name.len() + 1 + value.len()) as u32;
    [&bytes.to_le_bytes()[..], name.as_bytes(), b"=", value].concat()
}

/// A record of a header and data.
fn record(header: &[u8], data: &[u8]) -> Vec<u8> {
    let lengths = [header.len(), data.len()].map(|bytes| (bytes as u32).to_le_bytes());
    [&lengths[0][..], header, &lengths[1], data].concat()
}

/// A time as seconds and nanoseconds.
fn stamp(nanos: i64) -> [u8; 8] {
    // Times of messages have 32 bits of each.
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(seconds as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&(nanos as u32).to_le_bytes());
    bytes
}
