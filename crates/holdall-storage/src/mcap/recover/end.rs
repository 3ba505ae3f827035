//! The end of a file that was not closed: which of its last blocks reached the disk, and which part of a cut record is
//! whole.

use super::{EXTENT_BYTES, Recent, SECTOR_BYTES, SHORT_SECTOR_BYTES_MIN, Scanner, Tally};
use crate::{
    error::StorageResult,
    mcap::{
        format::{MESSAGE_PREFIX_BYTES, op},
        reader::{
            index::{Definitions, Extent, ExtentKind, chunk_header_bytes},
            walk::{RecordPlace, Step, Walk},
        },
    },
};

impl Scanner<'_> {
    /// Applies the last extents; in a file without an end a chunk only if its checksum matches.
    pub(super) fn close_recent(&mut self) -> StorageResult<()> {
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
                self.apply_extent(extent, tally, true);
            } else {
                let reason = "chunk checksum does not match: a part of it never reached the disk";
                self.found.tear("chunk", extent.start, reason);
            }
        }
        Ok(())
    }

    /// The last record, cut off: of an uncompressed chunk the whole messages are kept.
    pub(super) fn cut(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
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
            self.apply_extent(extent, tally, true);
            self.found.structure.cut_chunk = Some(place.start);
            self.found.structure.end = end;
        }
        Ok(())
    }

    /// As [`Self::records`] for a chunk whose end is missing, so that its checksum proves nothing: its blocks may have
    /// reached the disk in any order, and one that did not reads as zeros. It ends before the first record that is partly
    /// or wholly in such a block, and before the first message that cannot be identified. Also returns where it ends.
    pub(super) fn whole_records(
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
            } else if place.opcode != op::SCHEMA && place.opcode != op::CHANNEL {
                // The records of the chunk have ended.
                break;
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
                tally.definitions.add(one);
            }
            whole_until = Some(place.end());
        }
        self.found
            .damage(chunk_start, "the chunk ends in the middle of a record");
        Ok((tally, whole_until))
    }

    /// Whether a sector that these bytes touch has nothing but zeros. The last one of the file counts from `short_min` bytes on.
    pub(super) fn has_empty_sector(&self, (start, end): (u64, u64), short_min: usize) -> StorageResult<bool> {
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
