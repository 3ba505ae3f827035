//! Where a file has messages, by its index alone: the parts that are read at once, and each channel's messages over time.

use super::{
    extent::Wanted,
    index::{Extent, ExtentKind, FileIndex, signed},
};
use crate::{
    error::StorageResult,
    mcap::format::{INDEX_ENTRY_BYTES, INDEX_PREFIX_BYTES},
    reader::{FilePart, ReadQuery, TimeCells},
    writer::ChannelIndex,
};
use holdall_model::time::Timestamp;

/// Message indexes that are read where a chunk is longer than a cell, and their bytes. Beyond these a chunk's messages are counted as if they
/// were evenly distributed.
const READS_MAX: usize = 2_048;
const READ_BYTES_MAX: u64 = 32 << 20;

/// The parts that may have messages of these channels.
pub(super) fn parts(index: &FileIndex, channels: Option<&[ChannelIndex]>) -> StorageResult<Vec<FilePart>> {
    let query = ReadQuery {
        channels: channels.map(<[ChannelIndex]>::to_vec),
        ..ReadQuery::default()
    };
    let wanted = Wanted::new(index, &query);
    let part = |extent: &Extent| FilePart {
        times: (signed(extent.times.0), signed(extent.times.1)),
        bytes: match extent.kind {
            ExtentKind::Chunk { size, .. } => size,
            ExtentKind::Records => extent.length,
        },
    };
    let extents = index.extents()?;
    Ok(extents
        .iter()
        .filter(|extent| wanted.may_be_in(extent))
        .map(part)
        .collect())
}

/// A channel's message index: its channel, its place and its number of entries.
struct ChannelEntries {
    channel: ChannelIndex,
    offset: u64,
    count: u64,
}

/// Counts each channel's messages; false where the file has no message indexes.
pub(super) fn count(index: &FileIndex, cells: &mut TimeCells) -> StorageResult<bool> {
    let extents = index.extents()?;
    let mut found = Vec::with_capacity(extents.len());
    for extent in extents.iter() {
        let Some(entries) = entries(index, extent) else {
            return Ok(false);
        };
        found.push(entries);
    }
    let (mut reads, mut bytes) = (0, 0);
    for (extent, entries) in extents.iter().zip(found) {
        let between = (
            cells.cell(signed(extent.times.0)),
            cells.cell(signed(extent.times.1)),
        );
        for entries in entries {
            let length = entries.count.saturating_mul(INDEX_ENTRY_BYTES as u64);
            let is_read = between.0 < between.1
                && entries.count > 0
                && reads < READS_MAX
                && bytes + length <= READ_BYTES_MAX;
            if !is_read {
                cells.spread(entries.channel, between, entries.count);
                continue;
            }
            reads += 1;
            bytes += length;
            let times = index
                .source
                .read_up_to(entries.offset + INDEX_PREFIX_BYTES as u64, length)?;
            for entry in times.chunks_exact(INDEX_ENTRY_BYTES) {
                let nanos = u64::from_le_bytes(entry[..8].try_into().unwrap_or_default());
                let time: Timestamp = signed(nanos);
                cells.add(entries.channel, cells.cell(time), 1);
            }
        }
    }
    Ok(true)
}

/// The message indexes of a chunk: each ends where the next one begins. `None` where that is not how they are stored.
fn entries(index: &FileIndex, extent: &Extent) -> Option<Vec<ChannelEntries>> {
    let mut channels = extent.channels.as_ref()?.to_vec();
    channels.sort_unstable_by_key(|(_, offset)| *offset);
    let end = Some(extent.indexes_end).filter(|end| *end <= index.source.len())?;
    let nexts = channels.iter().skip(1).map(|(_, offset)| *offset).chain([end]);
    let mut found = Vec::with_capacity(channels.len());
    for ((id, offset), next) in channels.iter().zip(nexts) {
        let bytes = next
            .checked_sub(*offset)?
            .checked_sub(INDEX_PREFIX_BYTES as u64)?;
        if *offset == 0 || bytes % INDEX_ENTRY_BYTES as u64 != 0 {
            return None;
        }
        // A channel that the file does not define has no messages that can be read.
        if let Some(channel) = index.channel_of_id.get(usize::from(*id)).copied().flatten() {
            found.push(ChannelEntries {
                channel,
                offset: *offset,
                count: bytes / INDEX_ENTRY_BYTES as u64,
            });
        }
    }
    Some(found)
}
