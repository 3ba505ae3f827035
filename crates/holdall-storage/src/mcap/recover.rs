//! Finds what is in a file that has no index, or was cut off, by reading it from front to end.

use super::{
    checkpoints::{self, Known},
    format::{ChunkIndex, MAGIC, MESSAGE_PREFIX_BYTES, MessageHeader, MetadataIndex, Record, op},
    reader::{
        codec::decompress,
        index::{ChunkParts, Definitions, Extent, ExtentKind, chunk_header_bytes},
        source::Source,
        summary::read_metadata,
        walk::{RecordPlace, Step, Walk},
    },
};
use crate::{error::StorageResult, reader::FileCondition, writer::MetadataEntries};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Messages outside of chunks are gathered to extents of this length.
const EXTENT_BYTES: u64 = 4 << 20;
/// Chunks this near to the end of a file without an end are checked against their checksum: when a recording stops hard, blocks that
/// were on their way to the disk may be missing in between.
const SUSPECT_BYTES: u64 = 256 << 20;
/// What a disk writes at once or not at all, at least.
const SECTOR_BYTES: u64 = 512;
/// A compressed chunk is not decompressed into more than this.
pub(crate) const CHUNK_BYTES_MAX: u64 = 1 << 30;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub definitions: Definitions,
    /// Messages by channel number.
    pub counts: BTreeMap<u16, u64>,
    pub extents: Vec<Extent>,
    pub metadata: Vec<(String, MetadataEntries)>,
    /// Place and length of each attachment record.
    pub attachments: Vec<(u64, u64)>,
    pub times: Option<(u64, u64)>,
    /// The first compression found.
    pub compression: Option<String>,
    pub condition: FileCondition,
    pub structure: Structure,
}

/// What a repair needs to know besides.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    /// Chunks by where they begin, as the summary would tell them; those that cannot be read included.
    pub chunks: BTreeMap<u64, ChunkIndex>,
    pub metadata: Vec<MetadataIndex>,
    /// Whole records end here: from here on nothing is read.
    pub end: u64,
    /// The last chunk, cut off, of which the messages up to [`Self::end`] can be read.
    pub cut_chunk: Option<u64>,
    /// The last record is cut off: one sentence.
    pub cut: Option<String>,
    /// Chunks of which no message can be read, by where they begin.
    pub torn: Vec<u64>,
    /// Checksum of the file from the head to an offset, from a checkpoint.
    pub crc: Option<(u32, u64)>,
}

impl Scan {
    /// What is before the last checkpoint; `None` when its metadata cannot be read.
    fn from_known(source: &Source, known: Known) -> Option<Self> {
        let statistics = known.statistics;
        let metadata = known
            .metadata
            .iter()
            .map(|index| read_metadata(source, index).ok());
        Some(Self {
            metadata: metadata.collect::<Option<_>>()?,
            // This program writes none while it records.
            attachments: Default::default(),
            definitions: known.definitions,
            counts: statistics.channel_message_counts,
            extents: known.chunks.values().map(checkpoints::extent).collect(),
            times: (statistics.message_count > 0)
                .then_some((statistics.message_start_time, statistics.message_end_time)),
            compression: known
                .chunks
                .values()
                .map(|chunk| &chunk.compression)
                .find(|name| !name.is_empty())
                .cloned(),
            condition: FileCondition::Complete,
            structure: Structure {
                chunks: known.chunks,
                metadata: known.metadata,
                end: known.end,
                crc: known.crc,
                ..Structure::default()
            },
        })
    }

    fn damage(&mut self, offset: u64, reason: impl Into<String>) {
        if self.condition == FileCondition::Complete {
            self.condition = FileCondition::Damaged {
                offset,
                reason: reason.into(),
            };
        }
    }

    /// A chunk that is whole by its length, and of which no message can be read.
    fn tear(&mut self, start: u64, reason: impl Into<String>) {
        self.structure.torn.push(start);
        self.damage(start, reason);
    }

    fn widen(&mut self, times: (u64, u64)) {
        let (min, max) = self.times.unwrap_or(times);
        self.times = Some((min.min(times.0), max.max(times.1)));
    }
}

/// Messages of one extent.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<u16, u64>,
    times: Option<(u64, u64)>,
}

impl Tally {
    fn note(&mut self, header: &MessageHeader) {
        *self.counts.entry(header.channel_id).or_default() += 1;
        let (min, max) = self.times.unwrap_or((header.log_time, header.log_time));
        self.times = Some((min.min(header.log_time), max.max(header.log_time)));
    }
}

/// Reads the file, large payloads excepted: from its last checkpoint on, or the whole of it when it has none.
///
/// # Errors
/// The file cannot be read. What is wrong in it is no error here but noted as its condition.
pub(crate) fn scan(source: &Source) -> StorageResult<Scan> {
    let known = checkpoints::load(source)?.and_then(|known| Scan::from_known(source, known));
    let start = known
        .as_ref()
        .map_or(MAGIC.len() as u64, |known| known.structure.end);
    let mut scanner = Scanner {
        source,
        found: known.unwrap_or_default(),
        open: None,
        recent: VecDeque::new(),
    };
    let mut walk = Walk::new(source, start, source.len());
    scanner.found.structure.end = start;
    loop {
        match walk.step()? {
            Step::Record(place) if place.opcode == op::DATA_END || place.opcode == op::FOOTER => break,
            Step::Record(place) if place.opcode == op::CHUNK => {
                scanner.close_records();
                scanner.chunk(&mut walk, place)?;
                scanner.found.structure.end = place.end();
            }
            Step::Record(place) => {
                scanner.bare(&mut walk, place)?;
                scanner.found.structure.end = place.end();
            }
            Step::Cut(place) => {
                scanner.close_records();
                scanner.cut(&mut walk, place)?;
                break;
            }
            Step::NoRecord(at) => {
                scanner.found.damage(
                    at,
                    "expected a record, found zeros or a few bytes: the file was not closed",
                );
                break;
            }
            Step::End => {
                scanner.found.damage(
                    source.len(),
                    "expected the end of the data, found the end of the file: it was not closed",
                );
                break;
            }
        }
    }
    scanner.close_records();
    scanner.close_recent()?;
    scanner.found.extents.sort_by_key(|extent| extent.start);
    Ok(scanner.found)
}

/// An uncompressed chunk that may turn out to lie near the end of a file without an end.
struct Recent {
    extent: Extent,
    tally: Tally,
    parts: ChunkParts,
    records_start: u64,
}

struct Scanner<'a> {
    source: &'a Source,
    found: Scan,
    /// The extent of messages outside of chunks that is being gathered.
    open: Option<(Extent, Tally)>,
    /// The last [`SUSPECT_BYTES`] of uncompressed chunks.
    recent: VecDeque<Recent>,
}

impl Scanner<'_> {
    /// A record of the data section that is no chunk.
    fn bare(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        match place.opcode {
            op::MESSAGE => {
                let Some(header) = walk.message_header(&place)? else {
                    self.found.damage(
                        place.start,
                        "expected a message, found fewer bytes than its header has",
                    );
                    return Ok(());
                };
                let (extent, tally) = self.open.get_or_insert_with(|| {
                    (
                        Extent {
                            start: place.start,
                            kind: ExtentKind::Records,
                            ..Extent::default()
                        },
                        Tally::default(),
                    )
                });
                tally.note(&header);
                extent.length = place.end() - extent.start;
                if extent.length >= EXTENT_BYTES {
                    self.close_records();
                }
            }
            op::ATTACHMENT => self
                .found
                .attachments
                .push((place.start, place.end() - place.start)),
            op::METADATA => {
                let body = walk.body(&place)?;
                match Record::decode(place.opcode, &body) {
                    Ok(Record::Metadata(metadata)) => {
                        self.found.structure.metadata.push(MetadataIndex {
                            offset: place.start,
                            length: place.end() - place.start,
                            name: metadata.name.clone(),
                        });
                        self.found.metadata.push((metadata.name, metadata.metadata));
                    }
                    Ok(_) => {}
                    Err(error) => self.found.damage(place.start, error.to_string()),
                }
            }
            op::MESSAGE_INDEX => self.message_index(walk, place)?,
            _ => self.definition(walk, place)?,
        }
        Ok(())
    }

    /// Notes where a channel's index of the chunk before it lies.
    fn message_index(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let Some(mut last) = self.found.structure.chunks.last_entry() else {
            return Ok(());
        };
        let chunk = last.get_mut();
        let behind = chunk.chunk_start_offset + chunk.chunk_length + chunk.message_index_length;
        if behind == place.start
            && let [low, high] = walk.peek(place.body_start(), place.body_bytes.min(2))?[..]
        {
            let channel = u16::from_le_bytes([low, high]);
            chunk.message_index_offsets.insert(channel, place.start);
            chunk.message_index_length += place.end() - place.start;
        }
        Ok(())
    }

    fn definition(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        if place.opcode != op::SCHEMA && place.opcode != op::CHANNEL {
            return Ok(());
        }
        let body = walk.body(&place)?;
        match Record::decode(place.opcode, &body) {
            Ok(Record::Schema(schema)) => self.found.definitions.add_schema(&schema),
            Ok(Record::Channel(channel)) => self.found.definitions.add_channel(channel),
            Ok(_) => {}
            Err(error) => self.found.damage(place.start, error.to_string()),
        }
        Ok(())
    }

    fn close_records(&mut self) {
        if let Some((extent, tally)) = self.open.take() {
            self.take_in(extent, tally);
        }
    }

    fn take_in(&mut self, mut extent: Extent, tally: Tally) {
        let Some(times) = tally.times else { return };
        // The chunk that introduced the channel is lost; without it nobody can tell what these messages are.
        let known = &self.found.definitions.channels;
        if let Some(unknown) = tally.counts.keys().find(|id| !known.contains_key(id)) {
            let reason = format!("messages of channel {unknown}, whose definition is missing");
            self.found.damage(extent.start, reason);
            return;
        }
        extent.times = times;
        extent.channels = Some(tally.counts.keys().map(|id| (*id, 0)).collect());
        self.found.widen(times);
        for (channel, count) in tally.counts {
            *self.found.counts.entry(channel).or_default() += count;
        }
        self.found.extents.push(extent);
    }

    fn chunk(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let Some((header_bytes, parts)) = chunk_header_bytes(walk, place.body_start(), place.body_bytes)?
        else {
            self.found.damage(
                place.start,
                "expected a chunk, found fewer bytes than its header has",
            );
            return Ok(());
        };
        let records_start = place.body_start() + header_bytes as u64;
        if parts.stored > place.end() - records_start {
            self.found
                .damage(place.start, "expected a chunk, found fewer bytes than it says");
            return Ok(());
        }
        let index = ChunkIndex {
            message_start_time: parts.times.0,
            message_end_time: parts.times.1,
            chunk_start_offset: place.start,
            chunk_length: place.end() - place.start,
            compression: parts.compression.clone(),
            compressed_size: parts.stored,
            uncompressed_size: parts.size,
            ..ChunkIndex::default()
        };
        self.found.structure.chunks.insert(place.start, index);
        let extent = Extent {
            start: place.start,
            length: place.end() - place.start,
            kind: ExtentKind::Chunk {
                compression: parts.compression.as_str().into(),
                size: parts.size,
            },
            ..Extent::default()
        };
        if parts.compression.is_empty() {
            let mut inner = Walk::new(self.source, records_start, records_start + parts.stored);
            let (tally, _) = self.records(&mut inner, place.start)?;
            self.note_recent(Recent {
                extent,
                tally,
                parts,
                records_start,
            });
            return Ok(());
        }
        self.found
            .compression
            .get_or_insert_with(|| parts.compression.clone());
        let stored = self.source.read(records_start, parts.stored, "chunk")?;
        let records = if parts.size > CHUNK_BYTES_MAX {
            Err(format!(
                "{} bytes are more than the limit of {CHUNK_BYTES_MAX}",
                parts.size
            ))
        } else {
            decompress(&parts.compression, &stored, parts.size)
        };
        match records {
            Ok(records) if parts.crc != 0 && crc32fast::hash(&records) != parts.crc => {
                self.found.tear(place.start, "chunk checksum does not match");
            }
            Ok(records) => {
                let records = Source::memory(self.source.path(), Bytes::from(records));
                let (tally, _) = self.records(&mut Walk::new(&records, 0, records.len()), place.start)?;
                self.take_in(extent, tally);
            }
            Err(reason) => self
                .found
                .tear(place.start, format!("chunk cannot be decompressed: {reason}")),
        }
        Ok(())
    }

    fn note_recent(&mut self, chunk: Recent) {
        let window_start = chunk.extent.start.saturating_sub(SUSPECT_BYTES);
        self.recent.push_back(chunk);
        while self
            .recent
            .front()
            .is_some_and(|first| first.extent.start < window_start)
        {
            if let Some(Recent { extent, tally, .. }) = self.recent.pop_front() {
                self.take_in(extent, tally);
            }
        }
    }

    /// Takes in the last chunks, those of a file without an end only if their checksum holds.
    fn close_recent(&mut self) -> StorageResult<()> {
        let is_whole = self.found.condition == FileCondition::Complete;
        for Recent {
            extent,
            tally,
            parts,
            records_start,
        } in std::mem::take(&mut self.recent)
        {
            if is_whole || self.checksum_holds(&parts, records_start)? {
                self.take_in(extent, tally);
            } else {
                let reason = "chunk checksum does not match: a part of it never reached the disk";
                self.found.tear(extent.start, reason);
            }
        }
        Ok(())
    }

    fn checksum_holds(&self, parts: &ChunkParts, records_start: u64) -> StorageResult<bool> {
        if parts.crc == 0 {
            return Ok(true);
        }
        let mut crc = crc32fast::Hasher::new();
        let (mut at, end) = (records_start, records_start + parts.stored);
        while at < end {
            let piece = self.source.read_up_to(at, (end - at).min(EXTENT_BYTES))?;
            crc.update(&piece);
            at += piece.len() as u64;
        }
        Ok(crc.finalize() == parts.crc)
    }

    /// Walks over the records of a chunk; the messages, and where the last whole record ends.
    fn records(&mut self, walk: &mut Walk<'_>, chunk_start: u64) -> StorageResult<(Tally, Option<u64>)> {
        let mut tally = Tally::default();
        let mut whole_until = None;
        loop {
            match walk.step()? {
                Step::Record(place) => {
                    if place.opcode == op::MESSAGE {
                        match walk.message_header(&place)? {
                            Some(header) => tally.note(&header),
                            None => self
                                .found
                                .damage(chunk_start, "the chunk has a message without header"),
                        }
                    } else {
                        self.definition(walk, place)?;
                    }
                    whole_until = Some(place.end());
                }
                Step::End => return Ok((tally, whole_until)),
                Step::Cut(_) | Step::NoRecord(_) => {
                    self.found
                        .damage(chunk_start, "the chunk ends in the middle of a record");
                    return Ok((tally, whole_until));
                }
            }
        }
    }

    /// As [`Self::records`] for a chunk whose end is missing, so that its checksum tells nothing: blocks of it may have reached the disk in
    /// any order, and one that did not reads as zeros. It ends before the first record that lies in such a block, in part or whole.
    fn whole_records(
        &mut self,
        walk: &mut Walk<'_>,
        chunk_start: u64,
    ) -> StorageResult<(Tally, Option<u64>)> {
        let mut tally = Tally::default();
        let mut whole_until = None;
        loop {
            let Step::Record(place) = walk.step()? else {
                break;
            };
            if self.has_empty_sector(place.start, place.end())? {
                break;
            }
            if place.opcode == op::MESSAGE {
                match walk.message_header(&place)? {
                    Some(header) => tally.note(&header),
                    None => break,
                }
            } else {
                self.definition(walk, place)?;
            }
            whole_until = Some(place.end());
        }
        self.found
            .damage(chunk_start, "the chunk ends in the middle of a record");
        Ok((tally, whole_until))
    }

    /// Whether a sector that these bytes touch has nothing but zeros.
    fn has_empty_sector(&self, start: u64, end: u64) -> StorageResult<bool> {
        let mut at = start - start % SECTOR_BYTES;
        while at < end {
            let wanted = (end.next_multiple_of(SECTOR_BYTES) - at).min(EXTENT_BYTES);
            let piece = self.source.read_up_to(at, wanted)?;
            if piece.is_empty() {
                return Ok(false);
            }
            if piece
                .chunks(SECTOR_BYTES as usize)
                .any(|sector| sector.iter().all(|byte| *byte == 0))
            {
                return Ok(true);
            }
            at += piece.len() as u64;
        }
        Ok(false)
    }

    /// The last record, cut off: of an uncompressed chunk the whole messages are kept.
    fn cut(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let missing = place
            .body_bytes
            .saturating_sub(self.source.len().saturating_sub(place.body_start()));
        self.found.structure.cut = Some(format!(
            "the last record, at byte {}, is cut off: {missing} bytes of it are missing",
            place.start
        ));
        self.found.damage(
            place.start,
            format!("the last record lacks {missing} bytes: the file was cut off"),
        );
        if place.opcode != op::CHUNK {
            return Ok(());
        }
        let Some((header_bytes, parts)) = chunk_header_bytes(walk, place.body_start(), place.body_bytes)?
        else {
            return Ok(());
        };
        if !parts.compression.is_empty() {
            return Ok(());
        }
        let start = place.body_start() + header_bytes as u64;
        let mut inner = Walk::new(self.source, start, self.source.len());
        let (tally, whole_until) = self.whole_records(&mut inner, place.start)?;
        if let Some(end) = whole_until.filter(|end| *end >= start + MESSAGE_PREFIX_BYTES as u64) {
            let extent = Extent {
                start,
                length: end - start,
                kind: ExtentKind::Records,
                ..Extent::default()
            };
            self.take_in(extent, tally);
            self.found.structure.cut_chunk = Some(place.start);
            self.found.structure.end = end;
        }
        Ok(())
    }
}
