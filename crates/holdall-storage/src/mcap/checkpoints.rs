//! Reads a torn file's checkpoints, which list the data before the last durable one.

use super::{
    format::{
        ChunkIndex, MetadataIndex, RECORD_PREFIX_BYTES, Record, Statistics,
        checkpoint::{Checkpoint, HEAD_BYTES, newest_slots},
        op, take_record,
    },
    reader::{
        index::{Definitions, Extent, ExtentKind},
        source::Source,
    },
};
use crate::error::StorageResult;
use std::collections::BTreeMap;

/// A file with more checkpoints than this was not written by this program; it holds petabytes.
const CHECKPOINTS_MAX: usize = 1 << 24;

/// The content that a file's checkpoints list.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub definitions: Definitions,
    pub statistics: Statistics,
    /// Chunk indexes by offset of the chunk.
    pub chunks: BTreeMap<u64, ChunkIndex>,
    pub metadata: Vec<MetadataIndex>,
    /// End of the last checkpoint: the file has to be read from here on.
    pub end: u64,
    /// Checksum of the file from [`HEAD_BYTES`] to the offset.
    pub crc: Option<(u32, u64)>,
}

/// Reads the newest complete chain of checkpoints; `None` when the file has none.
///
/// # Errors
/// A file that cannot be read; damage is not an error here.
pub(crate) fn load(source: &Source) -> StorageResult<Option<Known>> {
    let head = source.read_up_to(0, HEAD_BYTES as u64)?;
    for slot in newest_slots(&head) {
        if let Some(known) = chain(source, (slot.checkpoint, slot.length))? {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

fn chain(source: &Source, last: (u64, u64)) -> StorageResult<Option<Known>> {
    let mut known = Known {
        end: last.0.saturating_add(last.1),
        ..Known::default()
    };
    let mut next = Some(last);
    // From the last to the first; each precedes the one that names it.
    for number in 0..CHECKPOINTS_MAX {
        let Some((start, length)) = next else {
            return Ok(Some(known));
        };
        let inside = start.checked_add(length).is_some_and(|end| end <= source.len());
        if !inside || length < RECORD_PREFIX_BYTES as u64 {
            return Ok(None);
        }
        let bytes = source.read(start, length, "checkpoint")?;
        let mut rest = &bytes[..];
        let Ok(Some((op::CHECKPOINT, body))) = take_record(&mut rest) else {
            return Ok(None);
        };
        let Ok(checkpoint) = Checkpoint::decode(body, start) else {
            return Ok(None);
        };
        if number == 0 {
            known.crc = checkpoint.crc.map(|crc| (crc, start));
        }
        if !add_records(&mut known, checkpoint.records, number == 0, start) {
            return Ok(None);
        }
        next = checkpoint.previous;
        if next.is_some_and(|(previous, _)| previous >= start) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Adds the records of one checkpoint; false for anything but whole records of chunks before `before`.
fn add_records(known: &mut Known, records: &[u8], is_last: bool, before: u64) -> bool {
    let mut rest = records;
    while let Ok(taken) = take_record(&mut rest) {
        let Some((opcode, body)) = taken else {
            return true;
        };
        match Record::decode(opcode, body) {
            Ok(Record::Statistics(statistics)) if is_last => known.statistics = statistics,
            Ok(Record::Statistics(_)) => {}
            Ok(Record::Schema(schema)) => known.definitions.add_schema(&schema),
            Ok(Record::Channel(channel)) => known.definitions.add_channel(channel),
            Ok(Record::ChunkIndex(index)) => {
                let end = index.chunk_start_offset.checked_add(index.chunk_length);
                if end.is_none_or(|end| end > before) {
                    return false;
                }
                known.chunks.insert(index.chunk_start_offset, index);
            }
            Ok(Record::MetadataIndex(index)) => known.metadata.push(index),
            _ => return false,
        }
    }
    false
}

/// A chunk as the reader's extent.
pub(crate) fn extent(index: &ChunkIndex) -> Extent {
    let channels: Box<[(u16, u64)]> = index
        .message_index_offsets
        .iter()
        .map(|(id, offset)| (*id, *offset))
        .collect();
    Extent {
        start: index.chunk_start_offset,
        length: index.chunk_length,
        times: (index.message_start_time, index.message_end_time),
        kind: ExtentKind::Chunk {
            compression: index.compression.as_str().into(),
            size: index.uncompressed_size,
        },
        channels: Some(channels).filter(|channels| !channels.is_empty()),
        indexes_end: index
            .chunk_start_offset
            .saturating_add(index.chunk_length)
            .saturating_add(index.message_index_length),
    }
}
