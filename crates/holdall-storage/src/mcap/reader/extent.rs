//! Loads one extent, checks it, and finds the wanted messages in it.

use super::{
    McapReaderOptions,
    checksum::{compare, sum},
    codec::decompress,
    index::{ChunkParts, Extent, ExtentKind, FileIndex, chunk_header_bytes, signed},
    source::Source,
    walk::{RecordPlace, Step, Walk},
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::format::{
        Fields, FormatError, INDEX_ENTRY_BYTES, INDEX_PREFIX_BYTES, MESSAGE_HEADER_BYTES,
        MESSAGE_PREFIX_BYTES, MessageHeader, RECORD_PREFIX_BYTES, op, take_record,
    },
    reader::{ReadMessage, ReadOrder, ReadQuery},
};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Uncompressed extents larger than this are not loaded: their messages are read one by one, without the
/// checksum.
const WHOLE_BYTES_MAX: u64 = 64 << 20;

/// A chunk with fewer bytes than this for each wanted message is read whole.
const BYTES_PER_WANTED_MIN: u64 = 64 << 10;

/// Chunks up to this length are read whole from a bucket.
const REMOTE_CHUNK_BYTES_MAX: u64 = 16 << 20;

/// A query in terms of the file's channel numbers.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Wanted channels by number; empty for all.
    channels: Vec<bool>,
    start: u64,
    end: u64,
    pub order: ReadOrder,
}

impl Wanted {
    pub fn new(index: &FileIndex, query: &ReadQuery) -> Self {
        let mut channels = Vec::new();
        if let Some(selected) = &query.channels {
            channels = vec![false; index.channel_of_id.len().max(1)];
            for id in selected
                .iter()
                .filter_map(|channel| index.ids.get(channel.0 as usize))
            {
                channels[usize::from(*id)] = true;
            }
        }
        let nanos = |time: holdall_model::time::Timestamp| u64::try_from(time.as_nanos()).ok();
        Self {
            channels,
            start: query.start.map_or(0, |start| nanos(start).unwrap_or(0)),
            // Stored times are unsigned: none is before 1970.
            end: query.end.map_or(u64::MAX, |end| nanos(end).unwrap_or(0)),
            order: query.order,
        }
    }

    fn has_channel(&self, id: u16) -> bool {
        self.channels.is_empty() || self.channels.get(usize::from(id)).copied().unwrap_or(false)
    }

    /// The entry of the message whose record begins at `offset`, if it is wanted.
    fn entry(&self, header: &MessageHeader, offset: u64) -> Option<Entry> {
        let is_wanted =
            self.has_channel(header.channel_id) && (self.start..=self.end).contains(&header.log_time);
        let time = if self.order == ReadOrder::PublishTime {
            header.publish_time
        } else {
            header.log_time
        };
        is_wanted.then_some(Entry { time, offset })
    }

    /// Whether all messages of the extent are wanted, as far as its index shows.
    pub(crate) fn takes_all(&self, extent: &Extent) -> bool {
        self.takes_times(extent.times)
            && match &extent.channels {
                Some(ids) => ids
                    .iter()
                    .all(|(id, offset)| *offset != 0 && self.has_channel(*id)),
                None => false,
            }
    }

    /// Whether messages of these smallest and largest log times are all wanted.
    pub(crate) fn takes_times(&self, (first, last): (u64, u64)) -> bool {
        first >= self.start && last <= self.end
    }

    /// Whether the extent may have wanted messages.
    pub(crate) fn may_be_in(&self, extent: &Extent) -> bool {
        extent.times.0 <= self.end
            && extent.times.1 >= self.start
            && extent
                .channels
                .as_ref()
                .is_none_or(|ids| ids.iter().any(|(id, _)| self.has_channel(*id)))
    }
}

/// A wanted message of a loaded extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Log time or publish time, depending on the order.
    pub time: u64,
    /// Offset of its record in the records.
    pub offset: u64,
}

/// An extent's records.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    source: Source,
    /// Their offset in `source`.
    start: u64,
    end: u64,
    /// Added to an offset in `source` for errors.
    file_offset: u64,
    /// Memory that they use.
    pub loaded_bytes: u64,
}

impl Records {
    /// Finds the wanted messages of an extent: by its message indexes when the wanted messages are few and
    /// large, else by reading all of it.
    pub fn find(
        index: &FileIndex,
        options: McapReaderOptions,
        extent: &Extent,
        wanted: &Wanted,
    ) -> StorageResult<(Self, Vec<Entry>)> {
        if !options.is_verified
            && let Some(found) = Self::find_by_index(&index.source, extent, wanted)?
        {
            return Ok(found);
        }
        let records = Self::load(index, options, extent)?;
        let entries = records.entries(wanted)?;
        Ok((records, entries))
    }

    /// `None` when the whole extent must be read: it is compressed, has no message indexes, many of its
    /// messages are wanted, or the indexes are not valid. Messages found in this way are read without the
    /// chunk's checksum.
    fn find_by_index(
        source: &Source,
        extent: &Extent,
        wanted: &Wanted,
    ) -> StorageResult<Option<(Self, Vec<Entry>)>> {
        let (ExtentKind::Chunk { compression, size }, Some(channels)) = (&extent.kind, &extent.channels)
        else {
            return Ok(None);
        };
        if wanted.channels.is_empty() || wanted.order == ReadOrder::PublishTime || !compression.is_empty() {
            return Ok(None);
        }
        // A request for each message takes longer than the chunk.
        if source.is_remote() && extent.length <= REMOTE_CHUNK_BYTES_MAX {
            return Ok(None);
        }
        let count_max = size / BYTES_PER_WANTED_MIN;
        let mut entries = Vec::new();
        for (id, offset) in channels.iter().filter(|(id, _)| wanted.has_channel(*id)) {
            let prefix = source.read_up_to(*offset, INDEX_PREFIX_BYTES as u64)?;
            let left = count_max.saturating_sub(entries.len() as u64);
            let Some(count) = index_entry_count(&prefix, *id).filter(|count| *count <= left) else {
                return Ok(None);
            };
            let bytes = source.read_up_to(
                offset + INDEX_PREFIX_BYTES as u64,
                count * INDEX_ENTRY_BYTES as u64,
            )?;
            for entry in bytes.chunks_exact(INDEX_ENTRY_BYTES) {
                let (time, offset) = entry.split_at(8);
                entries.push(Entry {
                    time: little_endian(time),
                    offset: little_endian(offset),
                });
            }
        }
        let mut walk = Walk::new(source, extent.start, extent.start + extent.length).sparse();
        let (start, parts) = chunk_header(source, &mut walk, extent)?;
        let inside = |entry: &Entry| entry.offset < parts.stored;
        if !entries.iter().all(inside) {
            return Ok(None);
        }
        entries.retain(|entry| (wanted.start..=wanted.end).contains(&entry.time));
        entries.iter_mut().for_each(|entry| entry.offset += start);
        if wanted.order == ReadOrder::File {
            entries.sort_by_key(|entry| entry.offset);
        } else {
            entries.sort_by_key(|entry| (entry.time, entry.offset));
        }
        Ok(Some((
            Self::in_file(source, start, start + parts.stored),
            entries,
        )))
    }

    /// Makes an extent's records readable.
    pub fn load(index: &FileIndex, options: McapReaderOptions, extent: &Extent) -> StorageResult<Self> {
        let source = &index.source;
        match &extent.kind {
            ExtentKind::Records if extent.length <= WHOLE_BYTES_MAX => Ok(Self::in_memory(
                source,
                extent.start,
                source.read(extent.start, extent.length, "messages")?,
            )),
            ExtentKind::Records => Ok(Self::in_file(source, extent.start, extent.start + extent.length)),
            ExtentKind::Chunk { compression, .. }
                if compression.is_empty() && extent.length > WHOLE_BYTES_MAX =>
            {
                let mut walk = Walk::new(source, extent.start, extent.start + extent.length);
                let (records_start, parts) = chunk_header(source, &mut walk, extent)?;
                let end = records_start + parts.stored;
                if options.is_verified && parts.crc != 0 {
                    compare(
                        source,
                        extent.start,
                        parts.crc,
                        sum(source, (records_start, end))?,
                    )?;
                }
                Ok(Self::in_file(source, records_start, end))
            }
            ExtentKind::Chunk { .. } => Self::load_chunk(source, options, extent),
        }
    }

    fn in_memory(source: &Source, file_offset: u64, bytes: Bytes) -> Self {
        let len = bytes.len() as u64;
        Self {
            source: Source::memory(source.path(), bytes),
            start: 0,
            end: len,
            file_offset,
            loaded_bytes: len,
        }
    }

    fn in_file(source: &Source, start: u64, end: u64) -> Self {
        Self {
            source: source.clone(),
            start,
            end,
            file_offset: 0,
            loaded_bytes: 0,
        }
    }

    fn load_chunk(source: &Source, options: McapReaderOptions, extent: &Extent) -> StorageResult<Self> {
        let whole = Source::memory(source.path(), source.read(extent.start, extent.length, "chunk")?);
        let mut walk = Walk::new(&whole, 0, whole.len());
        let (records_start, parts) = chunk_header(
            &whole,
            &mut walk,
            &Extent {
                start: 0,
                ..extent.clone()
            },
        )
        .map_err(|error| shifted(error, extent.start))?;
        let stored = whole.read(records_start, parts.stored, "chunk")?;
        let records = if parts.compression.is_empty() {
            stored
        } else {
            if parts.size > options.chunk_bytes_max {
                return Err(StorageError::TooLarge {
                    path: source.path().to_owned(),
                    offset: extent.start,
                    what: "the chunk",
                    limit: options.chunk_bytes_max,
                    found: parts.size,
                });
            }
            let decompressed = decompress(&parts.compression, &stored, parts.size).map_err(|reason| {
                StorageError::Codec {
                    path: source.path().to_owned(),
                    action: "decompress",
                    offset: extent.start,
                    codec: parts.compression.clone(),
                    reason,
                }
            })?;
            Bytes::from(decompressed)
        };
        let found = if parts.crc == 0 {
            0
        } else {
            crc32fast::hash(&records)
        };
        compare(source, extent.start, parts.crc, found)?;
        Ok(Self::in_memory(source, extent.start + records_start, records))
    }

    /// The bytes of a chunk's records as the file has them; `None` where those in memory are decompressed or missing.
    pub(crate) fn as_stored(&self, parts: &ChunkParts) -> Option<&[u8]> {
        let bytes = self.source.as_memory().filter(|_| parts.compression.is_empty())?;
        // A file in memory has its chunks within it; both ends were checked against its length.
        let stored = &bytes[self.start as usize..self.end as usize];
        (stored.len() as u64 == parts.stored).then_some(stored)
    }

    /// Finds the wanted messages, in file order or by time.
    pub fn entries(&self, wanted: &Wanted) -> StorageResult<Vec<Entry>> {
        let mut entries = Vec::new();
        self.for_each_message(|header, offset| entries.extend(wanted.entry(header, offset)))?;
        if wanted.order != ReadOrder::File && !entries.is_sorted_by_key(|entry| entry.time) {
            // Stable: messages of the same time keep the file's order.
            entries.sort_by_key(|entry| entry.time);
        }
        Ok(entries)
    }

    /// Log time and offset of each message in file order, by channel number: the content of message indexes.
    pub(crate) fn message_indexes(&self) -> StorageResult<BTreeMap<u16, Vec<(u64, u64)>>> {
        let mut indexes: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
        self.for_each_message(|header, offset| {
            let entries = indexes.entry(header.channel_id).or_default();
            entries.push((header.log_time, offset - self.start));
        })?;
        Ok(indexes)
    }

    fn for_each_message(&self, visit: impl FnMut(&MessageHeader, u64)) -> StorageResult<()> {
        match self.source.as_memory() {
            Some(bytes) => self.for_each_in_memory(bytes, visit),
            None => self.for_each_in_file(visit),
        }
    }

    fn for_each_in_memory(
        &self,
        bytes: &Bytes,
        mut visit: impl FnMut(&MessageHeader, u64),
    ) -> StorageResult<()> {
        // The whole source, or less when it is a whole file in memory; both ends were checked against its
        // length.
        let whole = &bytes[..self.end as usize];
        let mut rest = &whole[self.start as usize..];
        loop {
            let offset = (whole.len() - rest.len()) as u64;
            let unparsed = |error: FormatError| {
                self.malformed(offset + error.offset as u64, error.expected, error.found)
            };
            let Some((opcode, body)) = take_record(&mut rest).map_err(unparsed)? else {
                return Ok(());
            };
            if opcode == op::MESSAGE {
                let header = MessageHeader::decode(&mut Fields::new(body)).map_err(unparsed)?;
                visit(&header, offset);
            }
        }
    }

    fn for_each_in_file(&self, mut visit: impl FnMut(&MessageHeader, u64)) -> StorageResult<()> {
        let mut walk = Walk::new(&self.source, self.start, self.end);
        loop {
            match walk.step()? {
                Step::Record(place) if place.opcode == op::MESSAGE => {
                    let Some(header) = walk.message_header(&place)? else {
                        return Err(self.malformed(place.start, "a message", "too few bytes for its header"));
                    };
                    visit(&header, place.start);
                }
                Step::Record(_) => {}
                Step::End => return Ok(()),
                Step::Cut(RecordPlace { start, .. }) | Step::NoRecord(start) => {
                    return Err(self.malformed(start, "a whole record", "a record that exceeds the chunk"));
                }
            }
        }
    }

    /// The message whose record is at `offset`.
    pub fn message(&self, index: &FileIndex, offset: u64) -> StorageResult<ReadMessage> {
        let short = || self.malformed(offset, "a message", "too few bytes for its header");
        let mut prefix = [0; MESSAGE_PREFIX_BYTES];
        match self.source.as_memory() {
            Some(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(MESSAGE_PREFIX_BYTES);
                prefix.copy_from_slice(bytes.get(start..end).ok_or_else(short)?);
            }
            None => {
                let read = self.source.read_up_to(offset, MESSAGE_PREFIX_BYTES as u64)?;
                prefix
                    .get_mut(..read.len())
                    .filter(|all| all.len() == MESSAGE_PREFIX_BYTES)
                    .ok_or_else(short)?
                    .copy_from_slice(&read);
            }
        }
        let (head, fields) = prefix.split_at(RECORD_PREFIX_BYTES);
        if head[0] != op::MESSAGE {
            return Err(self.malformed(offset, "a message", format!("a record of kind {}", head[0])));
        }
        let body_bytes = little_endian(&head[1..]);
        let header = MessageHeader::decode(&mut Fields::new(fields)).map_err(|_| short())?;
        let payload_bytes = body_bytes
            .checked_sub(MESSAGE_HEADER_BYTES as u64)
            .ok_or_else(short)?;
        let payload_start = offset + MESSAGE_PREFIX_BYTES as u64;
        if payload_bytes > self.end.saturating_sub(payload_start) {
            return Err(self.malformed(
                offset,
                "a message inside its chunk",
                format!("{payload_bytes} bytes"),
            ));
        }
        let payload = self.source.read(payload_start, payload_bytes, "message")?;
        let channel = index
            .channel_of_id
            .get(usize::from(header.channel_id))
            .copied()
            .flatten()
            .ok_or_else(|| {
                self.malformed(
                    offset,
                    "a message of a known channel",
                    format!("channel {}", header.channel_id),
                )
            })?;
        Ok(ReadMessage {
            channel,
            log_time: signed(header.log_time),
            publish_time: signed(header.publish_time),
            sequence: header.sequence,
            payload,
        })
    }

    fn malformed(&self, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> StorageError {
        self.source.malformed(self.file_offset + offset, expected, found)
    }
}

/// Number of entries of channel `id`'s message index that begins with these bytes; `None` for any other
/// bytes.
fn index_entry_count(prefix: &[u8], id: u16) -> Option<u64> {
    let (opcode, body) = prefix.split_first()?;
    let entries_bytes = u64::from(u32::from_le_bytes(body.get(10..14)?.try_into().ok()?));
    let is_index = *opcode == op::MESSAGE_INDEX
        && body.get(8..10)? == id.to_le_bytes()
        && little_endian(body.get(..8)?) >= 6 + entries_bytes;
    (is_index && entries_bytes.is_multiple_of(INDEX_ENTRY_BYTES as u64))
        .then_some(entries_bytes / INDEX_ENTRY_BYTES as u64)
}

pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The same error with its offset in the file.
fn shifted(error: StorageError, by: u64) -> StorageError {
    match error {
        StorageError::Malformed {
            path,
            offset,
            expected,
            found,
        } => StorageError::Malformed {
            path,
            offset: offset + by,
            expected,
            found,
        },
        other => other,
    }
}

/// Reads a chunk's header; the offset of its records in the source, and the header's fields.
fn chunk_header(source: &Source, walk: &mut Walk<'_>, extent: &Extent) -> StorageResult<(u64, ChunkParts)> {
    let wrong =
        |found: String| source.malformed(extent.start, format!("a chunk of {} bytes", extent.length), found);
    let place = match walk.step()? {
        Step::Record(place) if place.opcode == op::CHUNK => place,
        other => return Err(wrong(other.to_string())),
    };
    let Some((header_bytes, parts)) = chunk_header_bytes(walk, place.body_start(), place.body_bytes)? else {
        return Err(wrong("too few bytes for its header".into()));
    };
    let records_start = place.body_start() + header_bytes as u64;
    if parts.stored > place.end() - records_start
        || (parts.compression.is_empty() && parts.size != parts.stored)
    {
        return Err(wrong(format!(
            "{} bytes of records, {} when decompressed",
            parts.stored, parts.size
        )));
    }
    Ok((records_start, parts))
}
