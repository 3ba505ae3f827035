//! The end of a file that was not closed: which part of a cut chunk is whole.

use super::{SHORT_SECTOR_BYTES_MIN, Scan, Tally, blocks::Blocks};
use crate::{
    error::StorageResult,
    mcap::{
        format::op,
        reader::{
            index::Definitions,
            walk::{Step, Walk},
        },
    },
};

impl Scan {
    /// As [`Self::records`] for a chunk whose end is missing, so that its checksum proves nothing: its blocks may have
    /// reached the disk in any order, and one that did not reads as zeros. It ends before the first record that is partly
    /// or wholly in such a block, and before the first message that cannot be identified. Also returns where it ends.
    pub(super) fn whole_records(
        &mut self,
        blocks: Blocks<'_>,
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
            if blocks.has_empty_sector(place.start, place.end(), short_min)? {
                break;
            }
            if is_message {
                let known = [&self.definitions, &tally.definitions];
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
                let known = &self.definitions;
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
        self.damage(chunk_start, "the chunk ends in the middle of a record");
        Ok((tally, whole_until))
    }
}
