//! Finds the messages of a file by its index alone: the parts that are read at once, and each channel's messages over
//! time.

use super::{
    extent::Wanted,
    index::{Extent, ExtentKind, FileIndex, signed},
};
use crate::{
    error::StorageResult,
    mcap::format::{INDEX_ENTRY_BYTES, INDEX_PREFIX_BYTES},
    reader::{FilePart, IndexedPart, ReadQuery, TimeCells},
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
    /// None for a channel that the file does not define: it has no messages that can be read.
    channel: Option<ChannelIndex>,
    offset: u64,
    count: u64,
}

/// Counts each channel's messages; false if the file has no message indexes.
pub(super) fn count(index: &FileIndex, cells: &mut TimeCells) -> StorageResult<bool> {
    let extents = index.extents()?;
    let mut found = Vec::new();
    // First whether all can be counted: `cells` stay unchanged otherwise.
    for extent in extents.iter() {
        if entries(index, extent, &mut found).is_none() {
            return Ok(false);
        }
    }
    let (mut reads, mut bytes) = (0, 0);
    for extent in extents.iter() {
        let between = (
            cells.cell(signed(extent.times.0)),
            cells.cell(signed(extent.times.1)),
        );
        if entries(index, extent, &mut found).is_none() {
            return Ok(false);
        }
        for entries in &found {
            let Some(channel) = entries.channel else {
                continue;
            };
            let length = entries.count.saturating_mul(INDEX_ENTRY_BYTES as u64);
            let is_read = between.0 < between.1
                && entries.count > 0
                && reads < READS_MAX
                && bytes + length <= READ_BYTES_MAX;
            if !is_read {
                cells.spread(channel, between, entries.count);
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
                cells.add(channel, cells.cell(time), 1);
            }
        }
    }
    Ok(true)
}

/// The entry of the index for the part at this offset.
pub(crate) fn part_at(index: &FileIndex, offset: u64) -> Option<IndexedPart> {
    let extents = index.extents().ok()?;
    let before = extents.partition_point(|extent| extent.start <= offset);
    let extent = extents.get(before.checked_sub(1)?)?;
    if offset >= extent.start + extent.length {
        return None;
    }
    let mut found = Vec::new();
    let counted = entries(index, extent, &mut found);
    let of_channel = |entries: &ChannelEntries| Some((entries.channel?, entries.count));
    Some(IndexedPart {
        offset: extent.start,
        times: (signed(extent.times.0), signed(extent.times.1)),
        messages: counted.map(|()| found.iter().filter_map(of_channel).collect()),
    })
}

/// The message indexes of a chunk: each ends where the next one begins. `None` if that is not how they are stored.
fn entries(index: &FileIndex, extent: &Extent, found: &mut Vec<ChannelEntries>) -> Option<()> {
    found.clear();
    let channels = extent.channels.as_ref()?;
    let end = Some(extent.indexes_end).filter(|end| *end <= index.source.len())?;
    let place = |(id, offset): &(u16, u64)| ChannelEntries {
        channel: index.channel_of_id.get(usize::from(*id)).copied().flatten(),
        offset: *offset,
        count: 0,
    };
    found.extend(channels.iter().map(place));
    if !found.is_sorted_by_key(|entries| entries.offset) {
        found.sort_by_key(|entries| entries.offset);
    }
    for at in 0..found.len() {
        let next = found.get(at + 1).map_or(end, |next| next.offset);
        let bytes = next
            .checked_sub(found[at].offset)?
            .checked_sub(INDEX_PREFIX_BYTES as u64)?;
        if found[at].offset == 0 || bytes % INDEX_ENTRY_BYTES as u64 != 0 {
            return None;
        }
        found[at].count = bytes / INDEX_ENTRY_BYTES as u64;
    }
    Some(())
}
