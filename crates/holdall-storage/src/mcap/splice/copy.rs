//! Brings extents into the output: copied unchanged where they are sound and nothing in them changes, else unpacked.

use super::{ChunkCodec, Numbers, READER, SpliceInput, Tail, indexes::Indexes};
use crate::{
    chunks::{LeftOutPart, SpliceChoice},
    error::{StorageError, StorageResult},
    mcap::{
        format::{ChunkHeader, ChunkIndex, MessageHeader, encode_message_index, message_prefix, op},
        packer::RecordPacker,
        reader::{
            density::part_at,
            extent::{Records, Wanted},
            index::{ChunkParts, Extent, ExtentKind, chunk_header_bytes, signed},
            source::Source,
            walk::Walk,
        },
    },
    reader::ReadMessage,
    writer::ChannelIndex,
};
use holdall_io::output::OutputFile;
use std::collections::BTreeMap;

/// Compressed chunks of this many bytes are copied at once: soon after they were checked, while they are in memory.
const RUN_BYTES: u64 = 4 << 20;
/// A rebuilt chunk is closed from this many bytes on, if its source was larger.
const CHUNK_BYTES_MAX: usize = 64 << 20;

/// Contiguous bytes of one input that are copied to the output in one piece.
struct Run {
    input: usize,
    start: u64,
    end: u64,
}

/// The copy's state.
pub(super) struct Copier<'a, 'd> {
    inputs: &'a [&'a SpliceInput],
    numbers: &'a Numbers,
    choice: &'a SpliceChoice,
    /// When set, every chunk is rebuilt with it.
    codec: Option<&'a ChunkCodec>,
    out: &'a mut OutputFile<'d>,
    tail: &'a mut Tail,
    run: Option<Run>,
    copied_chunks: u64,
    copied_bytes: u64,
    unpacked: u64,
    left_out: Vec<LeftOutPart>,
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
        choice: &'a SpliceChoice,
        codec: Option<&'a ChunkCodec>,
        out: &'a mut OutputFile<'d>,
        tail: &'a mut Tail,
    ) -> Self {
        Self {
            inputs,
            numbers,
            choice,
            codec,
            out,
            tail,
            run: None,
            copied_chunks: 0,
            copied_bytes: 0,
            unpacked: 0,
            left_out: Vec::new(),
            records: Vec::new(),
            entries: BTreeMap::new(),
            packer: None,
            packed: Vec::new(),
        }
    }

    /// Copies pending chunks; returns the number of chunks copied, their bytes, the number of extents unpacked, and the
    /// parts left out.
    pub fn finish(mut self) -> StorageResult<(u64, u64, u64, Vec<LeftOutPart>)> {
        self.end_run()?;
        Ok((
            self.copied_chunks,
            self.copied_bytes,
            self.unpacked,
            self.left_out,
        ))
    }

    /// Copies or unpacks one extent, or leaves it out when it is damaged and the choice allows it.
    pub(crate) fn extent_or_leave_out(
        &mut self,
        input: usize,
        extent: &Extent,
        wanted: &Wanted,
    ) -> StorageResult<()> {
        match self.extent(input, extent, wanted) {
            Err(error) if self.choice.leaves_out_damage && error.is_damage() => {
                let index = &self.inputs[input].index;
                let part = part_at(index, extent.start).and_then(|part| part.messages);
                let taken = self
                    .choice
                    .channels
                    .get(input)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let is_taken = |channel: &(ChannelIndex, u64)| taken.get(channel.0.0 as usize) == Some(&true);
                self.left_out.push(LeftOutPart {
                    input,
                    reason: error.to_string(),
                    offset: extent.start,
                    times: (signed(extent.times.0), signed(extent.times.1)),
                    messages: part.map(|channels| channels.into_iter().filter(is_taken).collect()),
                });
                Ok(())
            }
            done => done,
        }
    }

    /// Copies or unpacks one extent.
    fn extent(&mut self, input: usize, extent: &Extent, wanted: &Wanted) -> StorageResult<()> {
        let index = &self.inputs[input].index;
        let records = Records::load(index, READER, extent)?;
        if self.codec.is_none()
            && self.numbers.is_kept[input]
            && wanted.takes_all(extent)
            && let Some(indexes) = Indexes::read(&index.source, extent)?
            && let Some(times) = indexes.times(&records.message_indexes()?)
            && wanted.takes_times(times)
        {
            let (head, parts) = chunk_head(&index.source, extent)?;
            if parts.times == times {
                return self.copy(input, extent, &records, &head, parts, &indexes);
            }
        }
        self.unpack(input, extent, wanted, &records)
    }

    /// Copies a chunk and its message indexes unchanged.
    fn copy(
        &mut self,
        input: usize,
        extent: &Extent,
        records: &Records,
        head: &[u8],
        parts: ChunkParts,
        indexes: &Indexes,
    ) -> StorageResult<()> {
        let at = match records.as_stored(&parts) {
            // Written from memory: the system may have dropped these bytes of a large file, and would read them from the disk again.
            Some(stored) => {
                self.end_run()?;
                let at = self.out.len_bytes();
                for part in [head, stored, &indexes.bytes] {
                    self.out.append(part)?;
                }
                at
            }
            None => self.continue_run(input, extent.start, indexes.end)?,
        };
        self.tail.sum(head);
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
        if self.run_bytes() >= RUN_BYTES {
            self.end_run()?;
        }
        Ok(())
    }

    /// Has bytes of an input copied with those before them; returns their offset in the output.
    fn continue_run(&mut self, input: usize, start: u64, end: u64) -> StorageResult<u64> {
        let follows = |run: &Run| run.input == input && run.end == start;
        if !self.run.as_ref().is_some_and(follows) {
            self.end_run()?;
        }
        let at = self.out.len_bytes() + self.run_bytes();
        self.run.get_or_insert(Run { input, start, end }).end = end;
        Ok(at)
    }

    fn run_bytes(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.end - run.start)
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
    fn unpack(
        &mut self,
        input: usize,
        extent: &Extent,
        wanted: &Wanted,
        records: &Records,
    ) -> StorageResult<()> {
        self.end_run()?;
        let index = &self.inputs[input].index;
        let codec = match (self.codec, &extent.kind) {
            (Some(codec), _) => codec.clone(),
            (None, ExtentKind::Chunk { compression, .. }) => ChunkCodec::of_chunk(compression),
            (None, ExtentKind::Records) => ChunkCodec::of_chunk(""),
        };
        for entry in records.entries(wanted)? {
            let message = match records.message(index, entry.offset) {
                Ok(message) => message,
                // The rest of the chunk is whole.
                Err(error) if self.choice.leaves_out_damage && error.is_damage() => {
                    self.leave_out_one(input, extent, &error);
                    continue;
                }
                Err(error) => return Err(error),
            };
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

    /// Notes a message of the extent that cannot be returned: those of an extent are listed once.
    fn leave_out_one(&mut self, input: usize, extent: &Extent, error: &StorageError) {
        let is_known = |part: &LeftOutPart| part.input == input && part.offset == extent.start;
        if !self.left_out.last().is_some_and(is_known) {
            self.left_out.push(LeftOutPart {
                input,
                reason: error.to_string(),
                offset: extent.start,
                times: (signed(extent.times.0), signed(extent.times.1)),
                messages: None,
            });
        }
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

    /// Compresses; false without a codec, or when the result is not smaller.
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
