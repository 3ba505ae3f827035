//! Finds what is in a file that has no index, or was cut off, by reading it from front to end.

use super::{
    checkpoints::{self, Known},
    format::{
        ChunkIndex, MAGIC, MESSAGE_PREFIX_BYTES, MessageHeader, MetadataIndex, RECORD_PREFIX_BYTES, Record,
        op,
    },
    reader::{
        codec::decompress,
        index::{ChunkParts, Definitions, Extent, ExtentKind, chunk_header_bytes},
        source::Source,
        summary::{has_footer, read_metadata},
        walk::{RecordPlace, Step, Walk},
    },
};
use crate::{error::StorageResult, reader::FileCondition, writer::MetadataEntries};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Messages outside of chunks are gathered to extents of this length.
const EXTENT_BYTES: u64 = 4 << 20;
/// Chunks this near to the end of a file without an end are checked against their checksum: when a recording
/// stops hard, blocks that were in flight to the disk may be missing in between.
const SUSPECT_BYTES: u64 = 256 << 20;
/// What a disk writes at once or not at all, at least.
const SECTOR_BYTES: u64 = 512;
/// The last sector of a file may be a short one. A message that ends in fewer zeros than this cannot be judged.
const SHORT_SECTOR_BYTES_MIN: usize = 17;
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

/// What a repair needs to know in addition.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    /// Chunks by their start, as the summary would list them; those that cannot be read included.
    pub chunks: BTreeMap<u64, ChunkIndex>,
    pub metadata: Vec<MetadataIndex>,
    /// Whole records end here: from here on nothing is read.
    pub end: u64,
    /// The last chunk, cut off, of which the messages up to [`Self::end`] can be read.
    pub cut_chunk: Option<u64>,
    /// The last record is cut off: one sentence.
    pub cut: Option<String>,
    /// Records of which nothing can be read, by where they begin: what they are called, and that place.
    pub torn: Vec<(&'static str, u64)>,
    /// A checkpoint lists what is before it.
    pub has_checkpoint: bool,
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
                has_checkpoint: true,
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

    /// A record that is whole by its length, and of which nothing can be read.
    fn tear(&mut self, what: &'static str, start: u64, reason: impl Into<String>) {
        self.structure.torn.push((what, start));
        self.damage(start, reason);
    }

    fn widen(&mut self, times: (u64, u64)) {
        let (min, max) = self.times.unwrap_or(times);
        self.times = Some((min.min(times.0), max.max(times.1)));
    }
}

/// Messages of one extent, with the definitions before them.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<u16, u64>,
    times: Option<(u64, u64)>,
    definitions: Definitions,
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
        has_end: has_footer(source)?,
        found: known.unwrap_or_default(),
        open: None,
        recent: VecDeque::new(),
    };
    let mut walk = Walk::new(source, start, source.len());
    scanner.found.structure.end = start;
    loop {
        match scanner.step(&mut walk)? {
            Step::Record(place) if place.opcode == op::DATA_END || place.opcode == op::FOOTER => {
                if !scanner.has_end {
                    let reason = "expected a footer at the end of the file, found none: it was not closed";
                    scanner.found.damage(place.start, reason);
                }
                break;
            }
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

/// An extent that may turn out to be near the end of a file without an end.
struct Recent {
    extent: Extent,
    tally: Tally,
    /// Of an uncompressed chunk: its checksum, and where its records begin.
    unchecked: Option<(ChunkParts, u64)>,
}

struct Scanner<'a> {
    source: &'a Source,
    /// The file has a footer. Everything before it was durable when that was written: without one, blocks may be missing.
    has_end: bool,
    found: Scan,
    /// The extent of messages outside of chunks that is being gathered.
    open: Option<(Extent, Tally)>,
    /// Extents of the last [`SUSPECT_BYTES`], in order.
    recent: VecDeque<Recent>,
}

impl Scanner<'_> {
    /// The next record. A record whose length field spans two sectors, of which the second never reached the disk, does not count.
    fn step(&self, walk: &mut Walk<'_>) -> StorageResult<Step> {
        let step = walk.step()?;
        let (Step::Record(place) | Step::Cut(place)) = step else {
            return Ok(step);
        };
        let last = place.start + RECORD_PREFIX_BYTES as u64 - 1;
        let is_split = place.start / SECTOR_BYTES != last / SECTOR_BYTES;
        if is_split && !self.has_end && self.has_empty_sector((last, last + 1), SHORT_SECTOR_BYTES_MIN)? {
            return Ok(Step::NoRecord(place.start));
        }
        Ok(step)
    }

    /// A record of the data section that is no chunk.
    fn bare(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        match place.opcode {
            op::MESSAGE => self.bare_message(walk, &place)?,
            op::ATTACHMENT => self
                .found
                .attachments
                .push((place.start, place.end() - place.start)),
            op::METADATA => self.metadata(walk, &place)?,
            op::MESSAGE_INDEX => self.message_index(walk, place)?,
            _ => self.bare_definition(walk, place)?,
        }
        Ok(())
    }

    fn bare_message(&mut self, walk: &mut Walk<'_>, place: &RecordPlace) -> StorageResult<()> {
        let Some(header) = walk.message_header(place)? else {
            let reason = "expected a message, found fewer bytes than its header has";
            self.found.tear("message", place.start, reason);
            return Ok(());
        };
        // A message that may not be identifiable has its own extent, so that no other is dropped with it.
        let is_known = self.found.definitions.channels.contains_key(&header.channel_id);
        if !is_known {
            self.close_records();
        }
        let (extent, tally) = self.open.get_or_insert_with(|| {
            let extent = Extent {
                start: place.start,
                kind: ExtentKind::Records,
                ..Extent::default()
            };
            (extent, Tally::default())
        });
        tally.note(&header);
        extent.length = place.end() - extent.start;
        if extent.length >= EXTENT_BYTES || !is_known {
            self.close_records();
        }
        Ok(())
    }

    fn metadata(&mut self, walk: &mut Walk<'_>, place: &RecordPlace) -> StorageResult<()> {
        if self.is_holed(place)? {
            return Ok(());
        }
        let body = walk.body(place)?;
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
            Err(error) => self.found.tear("record", place.start, error.to_string()),
        }
        Ok(())
    }

    /// Whether a part of a record that describes messages never reached the disk: of a file without an end, a sector
    /// that it touches has nothing but zeros, including the short sector at the end of the file: it is better to
    /// drop a whole record that ends in zeros, whose messages are found without it. The record is dropped then.
    fn is_holed(&mut self, place: &RecordPlace) -> StorageResult<bool> {
        let is_holed = !self.has_end && self.has_empty_sector((place.start, place.end()), 1)?;
        if is_holed {
            let reason = "a part of this record never reached the disk";
            self.found.tear("record", place.start, reason);
        }
        Ok(is_holed)
    }

    /// Notes the place of a channel's index of the preceding chunk.
    fn message_index(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        if self.is_holed(&place)? {
            return Ok(());
        }
        let is_behind = |chunk: &ChunkIndex| {
            chunk.chunk_start_offset + chunk.chunk_length + chunk.message_index_length == place.start
        };
        let last = self.found.structure.chunks.last_entry();
        match (last, &walk.peek(place.body_start(), place.body_bytes.min(2))?[..]) {
            (Some(mut chunk), &[low, high]) if is_behind(chunk.get()) => {
                let (chunk, channel) = (chunk.get_mut(), u16::from_le_bytes([low, high]));
                chunk.message_index_offsets.insert(channel, place.start);
                chunk.message_index_length += place.end() - place.start;
            }
            // Its chunk is torn, or an index between.
            _ if !self.has_end => {
                let reason = "expected a chunk before its message index, found none";
                self.found.tear("record", place.start, reason);
            }
            _ => {}
        }
        Ok(())
    }

    fn bare_definition(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        let is_one = place.opcode == op::SCHEMA || place.opcode == op::CHANNEL;
        if !is_one || self.is_holed(&place)? {
            return Ok(());
        }
        let mut tally = Tally::default();
        self.definition(walk, place, &mut tally.definitions)?;
        let known = &self.found.definitions;
        if tally.definitions.channels.values().all(|it| known.has_schema(it)) {
            self.found.definitions.add(tally.definitions, false);
            return Ok(());
        }
        // Its schema may be in a chunk that is not yet applied.
        self.close_records();
        let extent = Extent {
            start: place.start,
            length: place.end() - place.start,
            ..Extent::default()
        };
        self.note_recent(Recent {
            extent,
            tally,
            unchecked: None,
        });
        Ok(())
    }

    fn definition(
        &mut self,
        walk: &mut Walk<'_>,
        place: RecordPlace,
        definitions: &mut Definitions,
    ) -> StorageResult<()> {
        if place.opcode != op::SCHEMA && place.opcode != op::CHANNEL {
            return Ok(());
        }
        let body = walk.body(&place)?;
        match Record::decode(place.opcode, &body) {
            Ok(Record::Schema(schema)) => definitions.add_schema(&schema),
            Ok(Record::Channel(channel)) => definitions.add_channel(channel),
            Ok(_) => {}
            Err(error) => self.found.damage(place.start, error.to_string()),
        }
        Ok(())
    }

    fn close_records(&mut self) {
        if let Some((extent, tally)) = self.open.take() {
            self.note_recent(Recent {
                extent,
                tally,
                unchecked: None,
            });
        }
    }

    fn apply_extent(&mut self, mut extent: Extent, tally: Tally) {
        // The chunk that introduced the channel is lost; without it these messages cannot be identified. The
        // extent's definitions are dropped with it: a repair marks the whole of it.
        let [known, own] = [&self.found.definitions.channels, &tally.definitions.channels];
        let is_unknown = |id: &&u16| !known.contains_key(id) && !own.contains_key(id);
        if let Some(unknown) = tally.counts.keys().find(is_unknown) {
            let reason = format!("messages of channel {unknown}, whose definition is missing");
            self.found.tear(extent.kind.name(), extent.start, reason);
            return;
        }
        if !self.found.definitions.add(tally.definitions, !self.has_end) {
            let reason = "a channel whose schema is missing";
            self.found.tear(extent.kind.name(), extent.start, reason);
            return;
        }
        let Some(times) = tally.times else { return };
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
            let reason = "expected a chunk, found fewer bytes than its header has";
            self.found.tear("chunk", place.start, reason);
            return Ok(());
        };
        let records_start = place.body_start() + header_bytes as u64;
        if parts.stored != place.end() - records_start {
            let reason = "expected a chunk, found another length than it says";
            self.found.tear("chunk", place.start, reason);
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
            let mut inner = walk.within(records_start, records_start + parts.stored);
            let tally = self.records(&mut inner, place.start)?;
            self.note_recent(Recent {
                extent,
                tally,
                unchecked: Some((parts, records_start)),
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
                self.found
                    .tear("chunk", place.start, "chunk checksum does not match");
            }
            Ok(records) => {
                let records = Source::memory(self.source.path(), Bytes::from(records));
                let tally = self.records(&mut Walk::new(&records, 0, records.len()), place.start)?;
                self.note_recent(Recent {
                    extent,
                    tally,
                    unchecked: None,
                });
            }
            Err(reason) => {
                let reason = format!("chunk cannot be decompressed: {reason}");
                self.found.tear("chunk", place.start, reason);
            }
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
                self.apply_extent(extent, tally);
            }
        }
    }

    /// Applies the last extents; in a file without an end a chunk only if its checksum matches.
    fn close_recent(&mut self) -> StorageResult<()> {
        for Recent {
            extent,
            tally,
            unchecked,
        } in std::mem::take(&mut self.recent)
        {
            let holds = match &unchecked {
                Some((parts, records_start)) if !self.has_end => {
                    self.checksum_holds(parts, *records_start)?
                }
                _ => true,
            };
            if holds {
                self.apply_extent(extent, tally);
            } else {
                let reason = "chunk checksum does not match: a part of it never reached the disk";
                self.found.tear("chunk", extent.start, reason);
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

    /// Walks over the records of a chunk.
    fn records(&mut self, walk: &mut Walk<'_>, chunk_start: u64) -> StorageResult<Tally> {
        let mut tally = Tally::default();
        loop {
            match walk.step()? {
                Step::Record(place) if place.opcode == op::MESSAGE => match walk.message_header(&place)? {
                    Some(header) => tally.note(&header),
                    None => self
                        .found
                        .damage(chunk_start, "the chunk has a message without header"),
                },
                Step::Record(place) => self.definition(walk, place, &mut tally.definitions)?,
                Step::End => return Ok(tally),
                Step::Cut(_) | Step::NoRecord(_) => {
                    self.found
                        .damage(chunk_start, "the chunk ends in the middle of a record");
                    return Ok(tally);
                }
            }
        }
    }

    /// As [`Self::records`] for a chunk whose end is missing, so that its checksum proves nothing: its blocks may have
    /// reached the disk in any order, and one that did not reads as zeros. It ends before the first record that is partly
    /// or wholly in such a block, and before the first message that cannot be identified. Also returns where it ends.
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
            let is_message = place.opcode == op::MESSAGE;
            let short_min = if is_message { SHORT_SECTOR_BYTES_MIN } else { 1 };
            if self.has_empty_sector((place.start, place.end()), short_min)? {
                break;
            }
            if is_message {
                let known = [&self.found.definitions, &tally.definitions];
                match walk.message_header(&place)? {
                    Some(header)
                        if known
                            .iter()
                            .any(|it| it.channels.contains_key(&header.channel_id)) =>
                    {
                        tally.note(&header);
                    }
                    _ => break,
                }
            } else {
                let mut one = Definitions::default();
                self.definition(walk, place, &mut one)?;
                let known = &self.found.definitions;
                if one
                    .channels
                    .values()
                    .any(|it| !known.has_schema(it) && !tally.definitions.has_schema(it))
                {
                    break;
                }
                tally.definitions.add(one, false);
            }
            whole_until = Some(place.end());
        }
        self.found
            .damage(chunk_start, "the chunk ends in the middle of a record");
        Ok((tally, whole_until))
    }

    /// Whether a sector that these bytes touch has nothing but zeros. The last one of the file counts from `short_min` bytes on.
    fn has_empty_sector(&self, (start, end): (u64, u64), short_min: usize) -> StorageResult<bool> {
        let mut at = start - start % SECTOR_BYTES;
        while at < end {
            let wanted = (end.next_multiple_of(SECTOR_BYTES) - at).min(EXTENT_BYTES);
            let piece = self.source.read_up_to(at, wanted)?;
            if piece.is_empty() {
                return Ok(false);
            }
            let mut sectors = piece.chunks(SECTOR_BYTES as usize);
            if sectors.any(|sector| sector.len() >= short_min && sector.iter().all(|byte| *byte == 0)) {
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
        // The records before it define which channels are known.
        self.close_recent()?;
        let mut inner = Walk::new(self.source, start, self.source.len());
        let (tally, whole_until) = self.whole_records(&mut inner, place.start)?;
        if let Some(end) = whole_until.filter(|end| *end >= start + MESSAGE_PREFIX_BYTES as u64) {
            let extent = Extent {
                start,
                length: end - start,
                kind: ExtentKind::Records,
                ..Extent::default()
            };
            self.apply_extent(extent, tally);
            self.found.structure.cut_chunk = Some(place.start);
            self.found.structure.end = end;
        }
        Ok(())
    }
}
