//! Brings extents into the output: copied unchanged where nothing in them changes, else unpacked.

use super::{ChunkCodec, Numbers, READER, SpliceInput, Tail};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{
            ChunkHeader, ChunkIndex, INDEX_ENTRY_BYTES, MessageHeader, encode_message_index, message_prefix,
            op, take_record,
        },
        packer::RecordPacker,
        reader::{
            extent::{Records, Wanted},
            index::{ChunkParts, Extent, ExtentKind, chunk_header_bytes},
            source::Source,
            walk::Walk,
        },
    },
    reader::ReadMessage,
};
use holdall_io::output::OutputFile;
use std::collections::BTreeMap;

/// Longest message indexes of one chunk that are copied unchanged.
const INDEXES_BYTES_MAX: u64 = 64 << 20;
/// So many bytes in a bucket are copied at once: they were announced, and are dropped soon after they were first read.
const REMOTE_RUN_BYTES: u64 = 4 << 20;
/// A rebuilt chunk is closed from this many bytes on, if its source was larger.
const CHUNK_BYTES_MAX: usize = 64 << 20;

/// Contiguous bytes of one input that are copied to the output in one piece.
struct Run {
    input: usize,
    start: u64,
    end: u64,
}

/// The message indexes after a chunk.
struct Indexes {
    /// The offset of their end.
    end: u64,
    bytes: bytes::Bytes,
    /// By channel: the record's offset from the first one, and its number of messages.
    channels: BTreeMap<u16, (u64, u64)>,
}

/// The copy's state.
pub(super) struct Copier<'a, 'd> {
    inputs: &'a [&'a SpliceInput],
    numbers: &'a Numbers,
    /// When set, every chunk is rebuilt with it.
    codec: Option<&'a ChunkCodec>,
    out: &'a mut OutputFile<'d>,
    tail: &'a mut Tail,
    run: Option<Run>,
    copied_chunks: u64,
    copied_bytes: u64,
    unpacked: u64,
    /// Records of the chunk that is being rebuilt.
    records: Vec<u8>,
    /// Its messages by channel.
    entries: BTreeMap<u16, Vec<(u64, u64)>>,
    /// The packer for rebuilt chunks, kept from the last one.
    packer: Option<(ChunkCodec, RecordPacker)>,
    packed: Vec<u8>,
}

impl<'a, 'd> Copier<'a, 'd> {
    pub fn new(
        inputs: &'a [&'a SpliceInput],
        numbers: &'a Numbers,
        codec: Option<&'a ChunkCodec>,
        out: &'a mut OutputFile<'d>,
        tail: &'a mut Tail,
    ) -> Self {
        Self {
            inputs,
            numbers,
            codec,
            out,
            tail,
            run: None,
            copied_chunks: 0,
            copied_bytes: 0,
            unpacked: 0,
            records: Vec::new(),
            entries: BTreeMap::new(),
            packer: None,
            packed: Vec::new(),
        }
    }

    /// Copies what is pending; returns chunks copied, their bytes, and extents that were unpacked.
    pub fn finish(mut self) -> StorageResult<(u64, u64, u64)> {
        self.end_run()?;
        Ok((self.copied_chunks, self.copied_bytes, self.unpacked))
    }

    /// Copies or unpacks one extent.
    pub(crate) fn extent(&mut self, input: usize, extent: &Extent, wanted: &Wanted) -> StorageResult<()> {
        if self.codec.is_none()
            && self.numbers.is_kept[input]
            && wanted.takes_all(extent)
            && let Some(indexes) = self.indexes(input, extent)?
        {
            return self.copy(input, extent, &indexes);
        }
        self.unpack(input, extent, wanted)
    }

    /// The message indexes after a chunk; `None` when they are incomplete or not contiguous.
    fn indexes(&self, input: usize, extent: &Extent) -> StorageResult<Option<Indexes>> {
        let Some(channels) = &extent.channels else {
            return Ok(None);
        };
        let source = &self.inputs[input].index.source;
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
            .map(|channels| Indexes { end, bytes, channels }))
    }

    /// Copies a chunk and its message indexes unchanged.
    fn copy(&mut self, input: usize, extent: &Extent, indexes: &Indexes) -> StorageResult<()> {
        let source = &self.inputs[input].index.source;
        let (head, parts) = chunk_head(source, extent)?;
        let follows = self
            .run
            .as_ref()
            .is_some_and(|run| run.input == input && run.end == extent.start);
        if !follows {
            self.end_run()?;
            self.run = Some(Run {
                input,
                start: extent.start,
                end: extent.start,
            });
        }
        let at = self.position();
        if let Some(run) = &mut self.run {
            run.end = indexes.end;
        }
        self.tail.sum(&head);
        let crc = Some(parts.crc).filter(|crc| parts.compression.is_empty() && *crc != 0);
        self.tail.sum_known(crc, extent.length - head.len() as u64);
        self.tail.sum(&indexes.bytes);
        self.tail.note_chunk(
            &ChunkIndex {
                message_start_time: parts.times.0,
                message_end_time: parts.times.1,
                chunk_start_offset: at,
                chunk_length: extent.length,
                message_index_offsets: indexes
                    .channels
                    .iter()
                    .map(|(id, (offset, _))| (*id, at + extent.length + offset))
                    .collect(),
                message_index_length: indexes.bytes.len() as u64,
                compression: parts.compression,
                compressed_size: parts.stored,
                uncompressed_size: parts.size,
            },
            indexes.channels.iter().map(|(id, (_, count))| (*id, *count)),
        );
        self.copied_chunks += 1;
        self.copied_bytes += indexes.end - extent.start;
        let run_bytes = self.run.as_ref().map_or(0, |run| run.end - run.start);
        if source.is_remote() && run_bytes >= REMOTE_RUN_BYTES {
            self.end_run()?;
        }
        Ok(())
    }

    /// The output offset of the next byte, including bytes that are still to be copied.
    fn position(&self) -> u64 {
        self.out.len_bytes() + self.run.as_ref().map_or(0, |run| run.end - run.start)
    }

    fn end_run(&mut self) -> StorageResult<()> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let source = &self.inputs[run.input].index.source;
        match source.as_file() {
            Some(file) => self.out.append_from(file, run.start, run.end - run.start)?,
            None => self
                .out
                .append(&source.read(run.start, run.end - run.start, "chunks")?)?,
        }
        Ok(())
    }

    /// Puts an extent's wanted messages into new chunks.
    fn unpack(&mut self, input: usize, extent: &Extent, wanted: &Wanted) -> StorageResult<()> {
        self.end_run()?;
        let index = &self.inputs[input].index;
        // What is in a bucket was announced.
        if !index.source.is_remote() {
            let next = extent.start + extent.length;
            index.source.will_need(next, extent.length.min(16 << 20));
        }
        let records = Records::load(index, READER, extent)?;
        let codec = match (self.codec, &extent.kind) {
            (Some(codec), _) => codec.clone(),
            (None, ExtentKind::Chunk { compression, .. }) => ChunkCodec::of_chunk(compression),
            (None, ExtentKind::Records) => ChunkCodec::of_chunk(""),
        };
        for entry in records.entries(wanted)? {
            let message = records.message(index, entry.offset)?;
            let place = message.channel.0 as usize;
            let Some(id) = self.numbers.of_channel[input].get(place).copied().flatten() else {
                continue;
            };
            self.add(id, &message);
            if self.records.len() >= CHUNK_BYTES_MAX {
                self.close_chunk(&codec)?;
            }
        }
        self.close_chunk(&codec)?;
        self.unpacked += 1;
        Ok(())
    }

    fn add(&mut self, id: u16, message: &ReadMessage) {
        let unsigned = |time: holdall_model::time::Timestamp| u64::try_from(time.as_nanos()).unwrap_or(0);
        let header = MessageHeader {
            channel_id: id,
            sequence: message.sequence,
            log_time: unsigned(message.log_time),
            publish_time: unsigned(message.publish_time),
        };
        let entry = (header.log_time, self.records.len() as u64);
        self.entries.entry(id).or_default().push(entry);
        self.records
            .extend_from_slice(&message_prefix(&header, message.payload.len()));
        self.records.extend_from_slice(&message.payload);
    }

    /// Writes the rebuilt chunk, compressed like its source.
    fn close_chunk(&mut self, codec: &ChunkCodec) -> StorageResult<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.records);
        let entries = std::mem::take(&mut self.entries);
        let mut packed = std::mem::take(&mut self.packed);
        let is_packed = self.pack(codec, &records, &mut packed)?;
        let (compression, stored) = if is_packed {
            (codec.compression.as_str(), packed.as_slice())
        } else {
            ("", records.as_slice())
        };
        let times = entries.values().flatten().map(|(time, _)| *time);
        let (first, last) = times.fold((u64::MAX, 0), |(min, max), time| (min.min(time), max.max(time)));
        let header = ChunkHeader {
            message_start_time: first,
            message_end_time: last,
            uncompressed_size: records.len() as u64,
            uncompressed_crc: crc32fast::hash(&records),
            compression: compression.into(),
            compressed_size: stored.len() as u64,
        };
        let at = self.out.len_bytes();
        let mut bytes = Vec::new();
        header.encode_prefix(&mut bytes);
        let chunk_length = (bytes.len() + stored.len()) as u64;
        self.tail.put(self.out, &bytes)?;
        if is_packed {
            self.tail.sum(stored);
        } else {
            self.tail
                .sum_known(Some(header.uncompressed_crc), stored.len() as u64);
        }
        self.out.append(stored)?;
        bytes.clear();
        let mut offsets = BTreeMap::new();
        for (id, entries) in &entries {
            offsets.insert(*id, at + chunk_length + bytes.len() as u64);
            encode_message_index(&mut bytes, *id, entries);
        }
        self.tail.put(self.out, &bytes)?;
        self.tail.note_chunk(
            &ChunkIndex {
                message_start_time: first,
                message_end_time: last,
                chunk_start_offset: at,
                chunk_length,
                message_index_offsets: offsets,
                message_index_length: bytes.len() as u64,
                compression: compression.to_owned(),
                compressed_size: stored.len() as u64,
                uncompressed_size: records.len() as u64,
            },
            entries.iter().map(|(id, entries)| (*id, entries.len() as u64)),
        );
        // The memory is reused for the next chunk.
        self.records = records;
        self.records.clear();
        self.packed = packed;
        Ok(())
    }

    /// Compresses; false when there is no codec, or the result is not smaller.
    fn pack(&mut self, codec: &ChunkCodec, records: &[u8], packed: &mut Vec<u8>) -> StorageResult<bool> {
        let packer = match &mut self.packer {
            Some((known, packer)) if known == codec => packer,
            other => &mut other.insert((codec.clone(), codec.packer())).1,
        };
        let is_packed =
            packer
                .pack(codec.compression, records, packed)
                .map_err(|error| StorageError::Codec {
                    path: self.inputs[0].index.source.path().to_owned(),
                    action: "compress",
                    offset: 0,
                    codec: codec.compression.as_str().to_owned(),
                    reason: error.to_string(),
                })?;
        Ok(is_packed && packed.len() < records.len())
    }
}

/// Where the message indexes of a chunk end: as its index states, else by the length of the last of them.
fn indexes_end(source: &Source, extent: &Extent, last: u64) -> StorageResult<Option<u64>> {
    if extent.indexes_end > last {
        return Ok(Some(extent.indexes_end));
    }
    let prefix = source.read_up_to(last, 9)?;
    let length = prefix.get(1..9).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    let length = length.map(u64::from_le_bytes);
    Ok(length.and_then(|length| last.checked_add(9)?.checked_add(length)))
}

/// Opcode, length and header of a chunk, and the header's fields.
fn chunk_head(source: &Source, extent: &Extent) -> StorageResult<(bytes::Bytes, ChunkParts)> {
    let mut walk = Walk::new(source, extent.start, extent.start + extent.length).sparse();
    let found = chunk_header_bytes(&mut walk, extent.start + 9, extent.length.saturating_sub(9))?;
    let whole = found.filter(|(count, parts)| parts.stored + *count as u64 + 9 == extent.length);
    let Some((count, parts)) = whole else {
        return Err(source.malformed(
            extent.start,
            "a chunk as long as its index says",
            "another length",
        ));
    };
    let head = source.read(extent.start, count as u64 + 9, "chunk")?;
    if head.first() != Some(&op::CHUNK) {
        return Err(source.malformed(extent.start, "a chunk, as the index says", "another record"));
    }
    // Readers of the copy also use the record's own length.
    let body_bytes = extent.length - 9;
    if head.get(1..9) != Some(&body_bytes.to_le_bytes()) {
        let expected = format!("a chunk of {body_bytes} bytes, as the index says");
        return Err(source.malformed(extent.start, expected, "another length"));
    }
    Ok((head, parts))
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
        let id = u16::from_le_bytes(*body.first_chunk::<2>()?);
        let entries = body.len().checked_sub(6)?;
        if opcode != op::MESSAGE_INDEX || entries % INDEX_ENTRY_BYTES != 0 {
            return None;
        }
        found.insert(id, (at, (entries / INDEX_ENTRY_BYTES) as u64));
    }
}
