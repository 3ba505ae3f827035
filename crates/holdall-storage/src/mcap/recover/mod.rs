//! Recovers the structure of a file that has no index, or was cut off, by reading it from front to end.

mod blocks;
mod chunk;
mod end;
mod gaps;
mod records;
pub(super) mod resync;
mod unidentified;

use super::{
    checkpoints,
    format::{ChunkIndex, MAGIC, MessageHeader, MetadataIndex, op},
    reader::{
        index::{ChunkParts, Definitions, Extent},
        source::Source,
        summary::read_metadata,
        walk::{Step, Walk},
    },
};
use crate::{error::StorageResult, reader::FileCondition, writer::MetadataEntries};
use blocks::Blocks;
use resync::{Gap, Known, Resync, indexed_before};
use std::collections::{BTreeMap, VecDeque};
use unidentified::Unidentified;

/// Messages outside of chunks are gathered to extents of this length.
const EXTENT_BYTES: u64 = 4 << 20;
/// Chunks this near to the end of a file without an end are checked against their checksum: when a recording
/// stops hard, blocks that were in flight to the disk may be missing in between.
const SUSPECT_BYTES: u64 = 256 << 20;
/// The least number of bytes that a disk writes as a whole or not at all.
const SECTOR_BYTES: u64 = 512;
/// The last sector of a file may be a short one. A message that ends in fewer zeros than this cannot be judged.
const SHORT_SECTOR_BYTES_MIN: usize = 17;
/// A compressed chunk is not decompressed into more than this.
pub(crate) const CHUNK_BYTES_MAX: u64 = 1 << 30;

/// The result of a scan.
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

/// Additional facts for a repair.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    /// Chunks by their start, as the summary would list them; those that cannot be read included.
    pub chunks: BTreeMap<u64, ChunkIndex>,
    pub metadata: Vec<MetadataIndex>,
    /// Whole records end here: from here on nothing is read.
    pub end: u64,
    /// The last chunk if it is cut off; its messages up to [`Self::end`] can be read.
    pub cut_chunk: Option<u64>,
    /// The last record is cut off: one sentence.
    pub cut: Option<String>,
    /// Unreadable records in the order of their offsets: kind and offset.
    pub torn: Vec<(&'static str, u64)>,
    /// Message indexes of an unreadable chunk, by their beginning.
    pub orphans: Vec<u64>,
    /// Where the records cannot be followed, in order; good ones are after each.
    pub gaps: Vec<Gap>,
    /// Definitions that some messages lack, because those before them are lost; from further back in the file.
    pub late: Option<Late>,
    /// A checkpoint lists everything before it.
    pub has_checkpoint: bool,
    /// Checksum of the file from the head to an offset, from a checkpoint.
    pub crc: Option<(u32, u64)>,
}

/// Definitions that come after messages that need them.
#[derive(Debug)]
pub(crate) struct Late {
    /// Where the first extent with such messages begins.
    pub before: u64,
    pub definitions: Definitions,
}

impl Scan {
    /// The part before the last checkpoint; `None` when its metadata cannot be read.
    fn from_known(source: &Source, known: checkpoints::Known) -> Option<Self> {
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

    /// Notes a record that is whole by its length but cannot be read.
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
/// The file cannot be read. Faults in it are not errors but noted as its condition.
pub(crate) fn scan(source: &Source) -> StorageResult<Scan> {
    let known = checkpoints::load(source)?.and_then(|known| Scan::from_known(source, known));
    let start = known
        .as_ref()
        .map_or(MAGIC.len() as u64, |known| known.structure.end);
    let blocks = Blocks::new(source)?;
    let mut scanner = Scanner {
        blocks,
        found: known.unwrap_or_default(),
        open: None,
        recent: VecDeque::new(),
        resync: Resync::default(),
        unidentified: Unidentified::new(blocks.has_end()),
    };
    let mut walk = Walk::new(source, start, source.len());
    scanner.found.structure.end = start;
    loop {
        let step = blocks.step(&mut walk)?;
        if let Some(end) = scanner.pass_gap(&mut walk, step)? {
            walk = Walk::new(source, end, source.len());
        } else if !scanner.take(&mut walk, step)? {
            break;
        }
    }
    scanner.close_records();
    scanner.close_recent()?;
    scanner.unidentified.identify(&mut scanner.found);
    scanner.found.extents.sort_by_key(|extent| extent.start);
    scanner.found.name_gaps();
    Ok(scanner.found)
}

/// An extent that may turn out to be near the end of a file without an end.
struct Recent {
    extent: Extent,
    tally: Tally,
    /// For an uncompressed chunk: its checksum, and the offset of its records.
    unchecked: Option<(ChunkParts, u64)>,
}

struct Scanner<'a> {
    blocks: Blocks<'a>,
    found: Scan,
    /// The extent of messages outside of chunks that is being gathered.
    open: Option<(Extent, Tally)>,
    /// Extents of the last [`SUSPECT_BYTES`], in order.
    recent: VecDeque<Recent>,
    resync: Resync,
    unidentified: Unidentified,
}

impl Scanner<'_> {
    /// Takes what the next step of the walk has found; false at the end of what can be read.
    fn take(&mut self, walk: &mut Walk<'_>, step: Step) -> StorageResult<bool> {
        match step {
            Step::Record(place) if place.opcode == op::DATA_END || place.opcode == op::FOOTER => {
                if !self.blocks.has_end() {
                    let reason = "expected a footer at the end of the file, found none: it was not closed";
                    self.found.damage(place.start, reason);
                }
                self.unidentified.add_summary(walk)?;
                return Ok(false);
            }
            Step::Record(place) if place.opcode == op::CHUNK => {
                self.close_records();
                self.chunk(walk, place)?;
                self.found.structure.end = place.end();
                return Ok(true);
            }
            Step::Record(place) => {
                self.bare(walk, place)?;
                self.found.structure.end = place.end();
                return Ok(true);
            }
            Step::Cut(place) => {
                self.close_records();
                self.cut(walk, place)?;
            }
            Step::NoRecord(at) if self.blocks.has_end() => {
                let bytes = self.blocks.source().len().saturating_sub(at);
                self.found.structure.cut = Some(format!(
                    "no record can be followed in the {bytes} bytes from byte {at} to the end of the file"
                ));
                let reason = "expected a record, found zeros or a few bytes, and no chunk after them";
                self.found.damage(at, reason);
            }
            Step::NoRecord(at) => {
                self.found.damage(
                    at,
                    "expected a record, found zeros or a few bytes: the file was not closed",
                );
            }
            Step::End => {
                self.found.damage(
                    self.blocks.source().len(),
                    "expected the end of the data, found the end of the file: it was not closed",
                );
            }
        }
        Ok(false)
    }

    /// Where to continue, when this step of the walk leads no further or cannot be trusted, and good records are after it.
    fn pass_gap(&mut self, walk: &mut Walk<'_>, step: Step) -> StorageResult<Option<u64>> {
        let source = self.blocks.source();
        let known = || {
            let open = self.open.iter().map(|(_, tally)| tally);
            let not_applied = self.recent.iter().map(|it| &it.tally).chain(open);
            let not_applied = not_applied.flat_map(|tally| tally.definitions.channels.keys());
            let applied = self.found.definitions.channels.keys();
            Known {
                channels: applied.chain(not_applied).copied().collect(),
                has_end: self.blocks.has_end(),
                is_bare: self.found.structure.chunks.is_empty(),
            }
        };
        let Some((from, resumed)) = self.resync.after_step(source, walk, step, known)? else {
            return Ok(None);
        };
        self.close_records();
        let before = self.found.structure.chunks.values().next_back();
        let gap = Gap {
            start: from,
            end: resumed.start,
            indexed: indexed_before(source, (from + 1, resumed.start))?,
            between: (before.map(|chunk| chunk.message_end_time), resumed.first_time),
        };
        self.found.damage(gap.start, gap.to_string());
        self.found.structure.gaps.push(gap);
        Ok(Some(resumed.start))
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
                Some((parts, records_start)) if !self.blocks.has_end() => {
                    self.blocks.checksum_holds(parts, *records_start)?
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

    fn close_records(&mut self) {
        if let Some((extent, tally)) = self.open.take() {
            self.note_recent(Recent {
                extent,
                tally,
                unchecked: None,
            });
        }
    }

    fn apply_extent(&mut self, extent: Extent, tally: Tally) {
        self.unidentified.apply(&mut self.found, extent, tally, true);
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
}
