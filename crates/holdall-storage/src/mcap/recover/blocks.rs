//! The blocks of a file, some of which may have never reached the disk when it was not closed.

use super::{EXTENT_BYTES, SECTOR_BYTES, SHORT_SECTOR_BYTES_MIN};
use crate::{
    error::StorageResult,
    mcap::{
        format::RECORD_PREFIX_BYTES,
        reader::{
            checksum::sum,
            index::ChunkParts,
            source::Source,
            summary::has_footer,
            walk::{RecordPlace, Step, Walk},
        },
    },
};

/// The file.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    source: &'a Source,
    /// The file has a footer. Everything before it was durable when that was written: without one, blocks may be missing.
    has_end: bool,
}

impl<'a> Blocks<'a> {
    pub fn new(source: &'a Source) -> StorageResult<Self> {
        let has_end = has_footer(source)?;
        Ok(Self { source, has_end })
    }

    pub fn source(self) -> &'a Source {
        self.source
    }

    pub fn has_end(self) -> bool {
        self.has_end
    }

    /// The next record. A record does not count if its length field spans two sectors and the second never reached the disk.
    pub fn step(self, walk: &mut Walk<'_>) -> StorageResult<Step> {
        let step = walk.step()?;
        let (Step::Record(place) | Step::Cut(place)) = step else {
            return Ok(step);
        };
        let last = place.start + RECORD_PREFIX_BYTES as u64 - 1;
        let is_split = place.start / SECTOR_BYTES != last / SECTOR_BYTES;
        if is_split && !self.has_end && self.has_empty_sector(last, last + 1, SHORT_SECTOR_BYTES_MIN)? {
            return Ok(Step::NoRecord(place.start));
        }
        Ok(step)
    }

    /// Whether a part of a record never reached the disk: of a file without an end, a sector that it touches has nothing but zeros,
    /// including the short sector at the end of the file: it is better to drop a whole record that ends in zeros, whose messages are
    /// found without it.
    pub fn lacks_part_of(self, place: &RecordPlace) -> StorageResult<bool> {
        Ok(!self.has_end && self.has_empty_sector(place.start, place.end(), 1)?)
    }

    /// Whether the checksum of a chunk whose records begin there is the one that it states.
    pub(crate) fn checksum_holds(self, parts: &ChunkParts, records_start: u64) -> StorageResult<bool> {
        if parts.crc == 0 {
            return Ok(true);
        }
        Ok(sum(self.source, (records_start, records_start + parts.stored))? == parts.crc)
    }

    /// Whether a sector that these bytes touch has nothing but zeros. The last one of the file counts from `short_min` bytes on.
    pub fn has_empty_sector(self, start: u64, end: u64, short_min: usize) -> StorageResult<bool> {
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
}
