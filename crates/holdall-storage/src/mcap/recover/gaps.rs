//! Gaps: parts of the file in which the records cannot be followed, and are again after it.

use super::{
    Scanner,
    resync::{Gap, Known, indexed_before, is_chunk_of_other_length, may_follow},
};
use crate::{
    error::StorageResult,
    mcap::{
        format::{RECORD_PREFIX_BYTES, op},
        reader::walk::{Step, Walk},
    },
    reader::FileCondition,
};

impl Scanner<'_> {
    /// Where to continue, when this step of the walk leads no further or is no longer to be trusted, and good records are after it.
    pub(super) fn pass_gap(&mut self, walk: &mut Walk<'_>, step: Step) -> StorageResult<Option<u64>> {
        let (from, kept_until) = match step {
            Step::End => return Ok(None),
            Step::Cut(place) => (place.start, place.start),
            Step::NoRecord(at) => (at, at),
            Step::Record(place) => {
                let is_other = is_chunk_of_other_length(walk, &place)?;
                let is_followed = self.is_at_end(step) || may_follow(walk, self.source, place.end())?;
                // The checksum of a chunk shows whether it is good.
                if is_followed || (place.opcode == op::CHUNK && !is_other) {
                    return Ok(None);
                }
                // A record may have swallowed those that follow it: by its length only the file is known to continue after it.
                let kept_until = if is_other { u64::MAX } else { place.end() };
                (place.start, kept_until)
            }
        };
        let Some(resumed) = self.resync.next(self.source, from + 1, &self.known())? else {
            return Ok(None);
        };
        // A record that is whole stays, unless the rest would be too short for one that takes its place.
        let stays = kept_until.saturating_add(RECORD_PREFIX_BYTES as u64) <= resumed.start;
        if matches!(step, Step::Record(_)) && stays {
            return Ok(None);
        }
        self.close_records();
        let before = self.found.structure.chunks.values().next_back();
        let gap = Gap {
            start: from,
            end: resumed.start,
            indexed: indexed_before(self.source, (from + 1, resumed.start))?,
            between: (before.map(|chunk| chunk.message_end_time), resumed.first_time),
        };
        self.found.damage(gap.start, gap.to_string());
        self.found.structure.gaps.push(gap);
        Ok(Some(resumed.start))
    }

    fn known(&self) -> Known {
        let recent = self.recent.iter().map(|it| &it.tally);
        let open = self.open.iter().map(|(_, tally)| tally);
        let applied = self.found.definitions.channels.keys();
        let not_applied = recent
            .chain(open)
            .flat_map(|tally| tally.definitions.channels.keys());
        Known {
            channels: applied.chain(not_applied).copied().collect(),
            has_end: self.has_end,
            is_bare: self.found.structure.chunks.is_empty(),
        }
    }

    /// Whether the data ends with this step.
    fn is_at_end(&self, step: Step) -> bool {
        match step {
            Step::Record(place) if place.opcode == op::DATA_END => place.body_bytes == 4,
            Step::Record(place) if place.opcode == op::FOOTER => place.body_bytes == 20,
            _ => false,
        }
    }

    /// Adds to the condition of the file that it has further gaps.
    pub(super) fn name_gaps(&mut self) {
        let gaps = self.found.structure.gaps.iter();
        if let FileCondition::Damaged { offset, reason } = &mut self.found.condition {
            let more = gaps.filter(|gap| gap.start != *offset);
            let more: Vec<String> = more.map(|gap| format!("byte {}: {gap}", gap.start)).collect();
            if let Some(first) = more.first() {
                let rest = match more.len() - 1 {
                    0 => String::new(),
                    rest => format!(" and {rest} more gaps"),
                };
                reason.push_str(&format!("; at {first}{rest}"));
            }
        }
    }
}
