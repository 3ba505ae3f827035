//! The message indexes after a chunk: read, and compared with its messages.

use crate::{
    error::StorageResult,
    mcap::{
        format::{INDEX_ENTRY_BYTES, INDEX_PREFIX_BYTES, index_entries, op, take_record},
        reader::{extent::little_endian, index::Extent, source::Source},
    },
};
use std::collections::BTreeMap;

/// Longest message indexes of one chunk that are copied unchanged.
const INDEXES_BYTES_MAX: u64 = 64 << 20;

/// The message indexes after a chunk.
pub(super) struct Indexes {
    /// The offset of their end.
    pub end: u64,
    pub bytes: bytes::Bytes,
    /// By channel: the record's offset from the first one, and its number of messages.
    pub channels: BTreeMap<u16, (u64, u64)>,
}

impl Indexes {
    /// The message indexes after a chunk; `None` when they are incomplete or not contiguous.
    pub(super) fn read(source: &Source, extent: &Extent) -> StorageResult<Option<Self>> {
        let Some(channels) = &extent.channels else {
            return Ok(None);
        };
        let start = extent.start + extent.length;
        let Some((_, last)) = channels.iter().max_by_key(|(_, offset)| *offset) else {
            return Ok(None);
        };
        let Some(end) = indexes_end(source, extent, *last)? else {
            return Ok(None);
        };
        if *last < start || end > source.len() || end - start > INDEXES_BYTES_MAX {
            return Ok(None);
        }
        let bytes = source.read(start, end - start, "message indexes")?;
        let found = index_channels(&bytes);
        let is_same = |found: &BTreeMap<u16, (u64, u64)>| {
            found.len() == channels.len()
                && channels
                    .iter()
                    .all(|(id, offset)| found.get(id).is_some_and(|(at, _)| start + at == *offset))
        };
        Ok(found
            .filter(is_same)
            .map(|channels| Self { end, bytes, channels }))
    }

    /// Smallest and largest log time of a chunk with these messages by channel (log time and offset); `None` if it has none, or the
    /// indexes do not list exactly these.
    pub(super) fn times(&self, messages: &BTreeMap<u16, Vec<(u64, u64)>>) -> Option<(u64, u64)> {
        if !messages.keys().eq(self.channels.keys()) {
            return None;
        }
        let mut times: Option<(u64, u64)> = None;
        for (id, found) in messages {
            let (at, count) = *self.channels.get(id)?;
            let start = usize::try_from(at).ok()? + INDEX_PREFIX_BYTES;
            let listed = self.bytes.get(start..)?.chunks_exact(INDEX_ENTRY_BYTES);
            let listed = listed.take(usize::try_from(count).ok()?).map(|entry| {
                let (time, offset) = entry.split_at(8);
                (little_endian(time), little_endian(offset))
            });
            let is_same = listed.clone().eq(found.iter().copied()) || {
                // Some writers sort them by time.
                let (mut listed, mut found) = (listed.collect::<Vec<_>>(), found.clone());
                listed.sort_unstable();
                found.sort_unstable();
                listed == found
            };
            if !is_same {
                return None;
            }
            for (time, _) in found {
                let (first, last) = times.unwrap_or((*time, *time));
                times = Some((first.min(*time), last.max(*time)));
            }
        }
        times
    }
}

/// End of the message indexes of a chunk: as its chunk index states, else by the length of the last of them.
fn indexes_end(source: &Source, extent: &Extent, last: u64) -> StorageResult<Option<u64>> {
    if extent.indexes_end > last {
        return Ok(Some(extent.indexes_end));
    }
    let prefix = source.read_up_to(last, 9)?;
    let length = prefix.get(1..9).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    let length = length.map(u64::from_le_bytes);
    Ok(length.and_then(|length| last.checked_add(9)?.checked_add(length)))
}

/// The channels of message index records, each with the record's offset and its number of messages; `None`
/// for any other bytes.
fn index_channels(bytes: &[u8]) -> Option<BTreeMap<u16, (u64, u64)>> {
    let mut found = BTreeMap::new();
    let mut rest = bytes;
    loop {
        let at = (bytes.len() - rest.len()) as u64;
        let Some((opcode, body)) = take_record(&mut rest).ok()? else {
            return Some(found);
        };
        let (id, entries) = index_entries(body).filter(|_| opcode == op::MESSAGE_INDEX)?;
        found.insert(id, (at, (entries.len() / INDEX_ENTRY_BYTES) as u64));
    }
}
