//! Plans the repair of a torn file: the writes and their order, chosen so that everything readable stays readable at each step.

use super::{
    McapStorage,
    format::{
        ChunkHeader, ChunkIndex, FOOTER_AND_MAGIC_BYTES, Footer, MAGIC, MessageHeader, MetadataIndex,
        RECORD_PREFIX_BYTES, Statistics, SummaryOffset, checkpoint::HEAD_BYTES, encode_data_end,
        encode_metadata, op, put_record,
    },
    late,
    reader::{
        McapReaderOptions,
        extent::Records,
        index::{Extent, FileIndex, chunk_header_bytes},
        source::Source,
        walk::{RecordPlace, Step, Walk},
    },
    recover::{self, Scan, resync::Gap},
};
use crate::RepairTarget;
use crate::{
    error::{StorageError, StorageResult},
    reader::FileCondition,
    repair::{RepairPlan, RepairStep, Repaired},
    storage::Storage,
    writer::MetadataEntries,
};
use crc32fast::Hasher;
use std::collections::BTreeMap;

/// The content of message indexes, by channel number: log time and place in the chunk's records of each
/// message.
type MessageEntries = BTreeMap<u16, Vec<(u64, u64)>>;

/// The bytes that a disk writes as a whole or not at all.
const SECTOR_BYTES: u64 = 512;
/// Bytes that are read at once for a checksum.
const PIECE_BYTES: u64 = 4 << 20;

/// Plans the summary and footer of a torn file; `None` for a file that has them. `records` go before them.
///
/// The order: definitions that messages lack are put before them, because what is cut off may be where they are from; the file is cut
/// after the last whole record, because nothing after it could be read, so that lost parts of the rest read as zeros; torn records are
/// marked (one byte each; no part of them could be read) and a cut-off chunk is shortened to its whole messages (one sector); then the
/// tail is written, and last its footer, which states that the tail is complete. A sync separates all of these. A copy needs none of these
/// guarantees while it is being repaired.
///
/// # Errors
/// A file that cannot be read, or whose last chunk cannot be shortened in place.
pub(super) fn plan(
    source: &Source,
    records: &[(&str, MetadataEntries)],
    target: RepairTarget,
) -> StorageResult<Option<RepairPlan>> {
    let index = FileIndex::open(source.clone())?;
    if index.summary.condition == FileCondition::Complete {
        return Ok(None);
    }
    let found = recover::scan(source)?;
    let mut chunks = found.structure.chunks.clone();
    let reindexed = reindexed_last(&index, &found)?;
    let end_of = |chunk: &ChunkIndex| chunk.chunk_start_offset + chunk.chunk_length;
    let end = reindexed
        .as_ref()
        .map_or(found.structure.end, |(chunk, _)| end_of(chunk));
    let (mut steps, taken) = match late::place(source, &found.structure) {
        // A check of the copy finds that they are missing.
        Err(StorageError::NotInPlace { .. }) if target == RepairTarget::Copy => (Vec::new(), None),
        placed => placed?.map_or_else(Default::default, |it| (it.steps, Some(it.start))),
    };
    steps.extend([RepairStep::SetLength(end), RepairStep::Sync]);
    let (marks, mut unsaved) = mark_damage(source, &found, &mut chunks, end, target, taken)?;
    steps.extend(marks);
    unsaved.extend(found.structure.cut.clone());
    let begin = reindexed.as_ref().map(|(chunk, _)| chunk.chunk_start_offset);
    // If some message indexes of a chunk are gone, the remaining ones would hide the channels without one.
    for extent in found.extents.iter().filter(|extent| Some(extent.start) != begin) {
        if let Some(chunk) = chunks.get_mut(&extent.start)
            && let Some(ids) = &extent.channels
            && ids.len() != chunk.message_index_offsets.len()
        {
            let offsets = std::mem::take(&mut chunk.message_index_offsets);
            steps.extend(offsets.values().map(|it| RepairStep::write(*it, vec![op::TORN])));
            chunk.message_index_length = 0;
        }
    }
    let mut tail = Tail::new(end);
    if end == MAGIC.len() as u64 {
        // Cut off within its first record, without which readers refuse it.
        let beginning = McapStorage.beginning().unwrap_or_default();
        tail.bytes.extend(beginning.into_iter().skip(MAGIC.len()));
    }
    if let Some(start) = found.structure.cut_chunk {
        let shortened = shorten(source, (start, found.structure.end), target)?;
        steps.push(RepairStep::write(start, shortened.header));
        chunks.insert(start, tail.index_chunk(shortened.chunk, &shortened.messages));
    } else if let Some((chunk, messages)) = reindexed {
        chunks.insert(chunk.chunk_start_offset, tail.index_chunk(chunk, &messages));
    }
    steps.push(RepairStep::Sync);
    tail.put_definitions(&found);
    tail.put_records(&found, records);
    let crc = data_crc(source, &found, &steps, &tail)?;
    tail.put_end(&found, &chunks, crc);
    let tail_bytes = tail.bytes.len() as u64;
    let footer = tail.bytes.split_off(tail.bytes.len() - FOOTER_AND_MAGIC_BYTES);
    let footer_start = tail.position();
    steps.extend([
        RepairStep::write(tail.start, tail.bytes),
        RepairStep::Sync,
        RepairStep::write(footer_start, footer),
        RepairStep::Sync,
    ]);
    Ok(Some(RepairPlan {
        path: source.path().to_owned(),
        steps,
        outcome: Repaired {
            messages: found.counts.values().sum(),
            tail_bytes,
            unsaved,
        },
    }))
}

/// The steps that make what cannot be read before `end` records that no reader looks into, except what is at `taken`, and a sentence on
/// each; torn chunks are removed.
fn mark_damage(
    source: &Source,
    found: &Scan,
    chunks: &mut BTreeMap<u64, ChunkIndex>,
    end: u64,
    target: RepairTarget,
    taken: Option<u64>,
) -> StorageResult<(Vec<RepairStep>, Vec<String>)> {
    let (mut steps, mut unsaved) = (Vec::new(), Vec::new());
    for (what, start) in found.structure.torn.iter().filter(|(_, start)| *start < end) {
        let indexes = chunks.remove(start).map(|chunk| chunk.message_index_offsets);
        let indexes = indexes.iter().flat_map(BTreeMap::values);
        for torn in [start]
            .into_iter()
            .chain(indexes)
            .filter(|it| Some(**it) != taken)
        {
            steps.push(RepairStep::write(*torn, vec![op::TORN]));
        }
        unsaved.push(format!("the {what} at byte {start} is torn and cannot be read"));
    }
    let orphans = found.structure.orphans.iter().filter(|start| **start < end);
    steps.extend(orphans.map(|start| RepairStep::write(*start, vec![op::TORN])));
    for gap in &found.structure.gaps {
        match bridge(source, gap) {
            _ if Some(gap.start) == taken => {}
            // A check of the copy finds it.
            Err(_) if target == RepairTarget::Copy => {}
            step => steps.push(step?),
        }
        unsaved.push(format!("at byte {}: {gap}", gap.start));
    }
    Ok((steps, unsaved))
}

/// Makes a gap one record that no reader looks into, so that all of them come to what is after it.
fn bridge(source: &Source, gap: &Gap) -> StorageResult<RepairStep> {
    let Some(length) = (gap.end - gap.start).checked_sub(RECORD_PREFIX_BYTES as u64) else {
        return Err(StorageError::NotInPlace {
            path: source.path().to_owned(),
            reason: "the damaged bytes before a good chunk are fewer than a record has",
        });
    };
    let mut prefix = vec![op::TORN];
    prefix.extend_from_slice(&length.to_le_bytes());
    Ok(RepairStep::write(gap.start, prefix))
}

/// The last chunk, when only message indexes follow it and some of them are cut off or torn, and the content
/// of all of them: readers that use indexes skip channels without one. They replace the remaining indexes.
/// `None` also for files that have no message indexes.
fn reindexed_last(index: &FileIndex, found: &Scan) -> StorageResult<Option<(ChunkIndex, MessageEntries)>> {
    let torn = |start: u64| found.structure.torn.iter().any(|(_, torn)| *torn == start);
    let whole = found
        .structure
        .chunks
        .values()
        .filter(|chunk| !torn(chunk.chunk_start_offset));
    let mut from_last = whole.rev();
    let Some(last) = from_last.next().filter(|_| found.structure.cut_chunk.is_none()) else {
        return Ok(None);
    };
    let has_before = from_last
        .next()
        .is_none_or(|chunk| chunk.message_index_length > 0);
    let mut after_last = Walk::new(
        &index.source,
        last.chunk_start_offset + last.chunk_length,
        found.structure.end,
    );
    loop {
        match after_last.step()? {
            Step::Record(place) if place.opcode == op::MESSAGE_INDEX => {}
            Step::End if has_before => break,
            _ => return Ok(None),
        }
    }
    let is_last = |extent: &&Extent| extent.start == last.chunk_start_offset;
    let extent = found.extents.iter().find(is_last);
    // An unreadable chunk stays without an index: the repair must not fail because of it.
    let records = extent.and_then(|extent| Records::load(index, McapReaderOptions::default(), extent).ok());
    let Some(messages) = records.and_then(|records| records.message_indexes().ok()) else {
        return Ok(None);
    };
    let chunk = ChunkIndex {
        message_index_offsets: BTreeMap::new(),
        message_index_length: 0,
        ..last.clone()
    };
    let is_complete = messages.keys().eq(last.message_index_offsets.keys());
    Ok((!is_complete).then_some((chunk, messages)))
}

/// The repaired form of a cut-off chunk.
struct Shortened {
    header: Vec<u8>,
    chunk: ChunkIndex,
    messages: MessageEntries,
}

/// A header for the chunk at `start` that ends it at `end`.
fn shorten(source: &Source, (start, end): (u64, u64), target: RepairTarget) -> StorageResult<Shortened> {
    let not_in_place = |reason| StorageError::NotInPlace {
        path: source.path().to_owned(),
        reason,
    };
    let place = RecordPlace {
        opcode: op::CHUNK,
        start,
        body_bytes: source.len().saturating_sub(start),
    };
    let mut walk = Walk::new(source, start, source.len());
    let Some((header_bytes, _)) = chunk_header_bytes(&mut walk, place.body_start(), place.body_bytes)? else {
        return Err(not_in_place("its last chunk has no whole header"));
    };
    let records_start = place.body_start() + header_bytes as u64;
    if target == RepairTarget::InPlace && start / SECTOR_BYTES != (records_start - 1) / SECTOR_BYTES {
        return Err(not_in_place(
            "the header of its last chunk spans two sectors of the disk",
        ));
    }
    let (mut messages, mut times) = (MessageEntries::new(), None);
    let mut inner = Walk::new(source, records_start, end);
    while let Step::Record(record) = inner.step()? {
        if record.opcode != op::MESSAGE {
            continue;
        }
        if let Some(MessageHeader {
            channel_id, log_time, ..
        }) = inner.message_header(&record)?
        {
            let (min, max) = times.unwrap_or((log_time, log_time));
            times = Some((log_time.min(min), log_time.max(max)));
            messages
                .entry(channel_id)
                .or_default()
                .push((log_time, record.start - records_start));
        }
    }
    let (first, last) = times.unwrap_or((0, 0));
    let mut crc = Hasher::new();
    hash(source, &mut crc, (records_start, end), &[])?;
    let size = end - records_start;
    let header = ChunkHeader {
        message_start_time: first,
        message_end_time: last,
        uncompressed_size: size,
        uncompressed_crc: crc.finalize(),
        compressed_size: size,
        ..ChunkHeader::default()
    };
    let mut prefix = Vec::new();
    header.encode_prefix(&mut prefix);
    let chunk = ChunkIndex {
        message_start_time: first,
        message_end_time: last,
        chunk_start_offset: start,
        chunk_length: end - start,
        compressed_size: size,
        uncompressed_size: size,
        ..ChunkIndex::default()
    };
    Ok(Shortened {
        header: prefix,
        chunk,
        messages,
    })
}

/// Adds a part of the file to a checksum, as it will be after `steps`.
fn hash(
    source: &Source,
    crc: &mut Hasher,
    (start, end): (u64, u64),
    steps: &[RepairStep],
) -> StorageResult<()> {
    let mut at = start;
    while at < end {
        let mut piece = source.read(at, (end - at).min(PIECE_BYTES), "file")?.to_vec();
        steps.iter().for_each(|step| step.overlay(at, &mut piece));
        crc.update(&piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// The checksum of the data section. If no checkpoint covers most of it, it is left out (0), because the whole file would have to be
/// read; each chunk has its own.
fn data_crc(source: &Source, found: &Scan, steps: &[RepairStep], tail: &Tail) -> StorageResult<u32> {
    let Some((known, offset)) = found.structure.crc else {
        return Ok(0);
    };
    let mut crc = Hasher::new();
    hash(source, &mut crc, (0, HEAD_BYTES as u64), steps)?;
    let mut rest = Hasher::new_with_initial_len(known, offset - HEAD_BYTES as u64);
    hash(source, &mut rest, (offset, tail.start), steps)?;
    rest.update(&tail.bytes);
    crc.combine(&rest);
    Ok(crc.finalize())
}

/// The records written after the last whole record.
struct Tail {
    start: u64,
    bytes: Vec<u8>,
    metadata: Vec<MetadataIndex>,
}

impl Tail {
    fn new(start: u64) -> Self {
        Self {
            start,
            bytes: Vec::new(),
            metadata: Vec::new(),
        }
    }

    fn position(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Message indexes of the chunk right before the tail.
    fn index_chunk(&mut self, mut chunk: ChunkIndex, messages: &MessageEntries) -> ChunkIndex {
        for (channel, entries) in messages {
            chunk.message_index_offsets.insert(*channel, self.position());
            put_record(&mut self.bytes, op::MESSAGE_INDEX, |out| {
                out.extend_from_slice(&channel.to_le_bytes());
                // Entries of a chunk are far below 4 GiB.
                out.extend_from_slice(&((entries.len() * 16) as u32).to_le_bytes());
                for (time, offset) in entries {
                    out.extend_from_slice(&time.to_le_bytes());
                    out.extend_from_slice(&offset.to_le_bytes());
                }
            });
        }
        chunk.message_index_length = self.bytes.len() as u64;
        chunk
    }

    /// Channels that a checkpoint lists may not be in the data yet.
    fn put_definitions(&mut self, found: &Scan) {
        if found.structure.has_checkpoint {
            self.put_group(op::SCHEMA, found, &BTreeMap::new());
            self.put_group(op::CHANNEL, found, &BTreeMap::new());
        }
    }

    fn put_records(&mut self, found: &Scan, records: &[(&str, MetadataEntries)]) {
        self.metadata.clone_from(&found.structure.metadata);
        for (name, entries) in records {
            let offset = self.position();
            encode_metadata(&mut self.bytes, name, entries);
            self.metadata.push(MetadataIndex {
                offset,
                length: self.position() - offset,
                name: (*name).to_owned(),
            });
        }
    }

    /// Everything from the data section's end on.
    fn put_end(&mut self, found: &Scan, chunks: &BTreeMap<u64, ChunkIndex>, data_crc: u32) {
        encode_data_end(&mut self.bytes, data_crc);
        let (summary, mut offsets) = (self.bytes.len(), Vec::new());
        let summary_start = self.position();
        for opcode in [
            op::SCHEMA,
            op::CHANNEL,
            op::STATISTICS,
            op::CHUNK_INDEX,
            op::METADATA_INDEX,
        ] {
            let group_start = self.position();
            self.put_group(opcode, found, chunks);
            SummaryOffset::encode_group(opcode, group_start, self.position(), &mut offsets);
        }
        let summary_offset_start = self.position();
        self.bytes.extend_from_slice(&offsets);
        self.bytes.reserve(FOOTER_AND_MAGIC_BYTES);
        Footer {
            summary_start,
            summary_offset_start,
            summary_crc: 0,
        }
        .encode_without_crc(&mut self.bytes);
        let crc = crc32fast::hash(&self.bytes[summary..]);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.bytes.extend_from_slice(&MAGIC);
    }

    fn put_group(&mut self, opcode: u8, found: &Scan, chunks: &BTreeMap<u64, ChunkIndex>) {
        let out = &mut self.bytes;
        match opcode {
            op::SCHEMA => found.definitions.encode_schemas(out),
            op::CHANNEL => found.definitions.encode_channels(out),
            op::STATISTICS => statistics(found, chunks.len(), self.metadata.len()).encode(out),
            op::CHUNK_INDEX => {
                for chunk in chunks.values() {
                    let offsets = chunk
                        .message_index_offsets
                        .iter()
                        .map(|(id, offset)| (*id, *offset));
                    chunk.encode(out, offsets);
                }
            }
            _ => self.metadata.iter().for_each(|index| index.encode(out)),
        }
    }
}

fn statistics(found: &Scan, chunks: usize, metadata: usize) -> Statistics {
    let (message_start_time, message_end_time) = found.times.unwrap_or((0, 0));
    Statistics {
        message_count: found.counts.values().sum(),
        // A file numbers schemas and channels with 16 bits.
        schema_count: found.definitions.schemas.len() as u16,
        channel_count: found.definitions.channels.len() as u32,
        attachment_count: u32::try_from(found.attachments.len()).unwrap_or(u32::MAX),
        metadata_count: u32::try_from(metadata).unwrap_or(u32::MAX),
        chunk_count: u32::try_from(chunks).unwrap_or(u32::MAX),
        message_start_time,
        message_end_time,
        channel_message_counts: found.counts.clone(),
    }
}
