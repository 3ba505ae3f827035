//! Gaps: parts of the file in which the records cannot be followed, and are again after it.

use super::{
    Scan,
    resync::{Known, Resumed, Resync, is_chunk_of_other_length, may_follow},
};
use crate::{
    error::StorageResult,
    mcap::{
        format::{RECORD_PREFIX_BYTES, op},
        reader::{
            source::Source,
            walk::{Step, Walk},
        },
    },
    reader::FileCondition,
};

impl Resync {
    /// Where this step of the walk goes wrong and where to continue, when it leads no further or cannot be trusted, and good records are
    /// after it.
    pub fn after_step(
        &mut self,
        source: &Source,
        walk: &mut Walk<'_>,
        step: Step,
        known: impl FnOnce() -> Known,
    ) -> StorageResult<Option<(u64, Resumed)>> {
        let (from, kept_until) = match step {
            Step::End => return Ok(None),
            Step::Cut(place) => (place.start, place.start),
            Step::NoRecord(at) => (at, at),
            Step::Record(place) => {
                let is_other = is_chunk_of_other_length(walk, &place)?;
                let is_followed = is_at_end(step) || may_follow(walk, source, place.end())?;
                // The checksum of a chunk shows whether it is good.
                if is_followed || (place.opcode == op::CHUNK && !is_other) {
                    return Ok(None);
                }
                // A record may have swallowed those that follow it: by its length only the file is known to continue after it.
                let kept_until = if is_other { u64::MAX } else { place.end() };
                (place.start, kept_until)
            }
        };
        let Some(resumed) = self.next(source, from + 1, &known())? else {
            return Ok(None);
        };
        // A record that is whole stays, unless the rest would be too short for one that takes its place.
        let stays = kept_until.saturating_add(RECORD_PREFIX_BYTES as u64) <= resumed.start;
        if matches!(step, Step::Record(_)) && stays {
            return Ok(None);
        }
        Ok(Some((from, resumed)))
    }
}

impl Scan {
    /// Adds to the condition of the file that it has further gaps.
    pub(super) fn name_gaps(&mut self) {
        let gaps = self.structure.gaps.iter();
        if let FileCondition::Damaged { offset, reason } = &mut self.condition {
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

/// Whether the data ends with this step.
fn is_at_end(step: Step) -> bool {
    match step {
        Step::Record(place) if place.opcode == op::DATA_END => place.body_bytes == 4,
        Step::Record(place) if place.opcode == op::FOOTER => place.body_bytes == 20,
        _ => false,
    }
}
