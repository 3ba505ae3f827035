//! Messages whose own definitions were in a part of the file that is lost, and definitions that are repeated elsewhere in it.

use super::{Late, Scan, Tally, blocks::Blocks};
use crate::{
    error::StorageResult,
    mcap::{
        format::{Channel, Record, checkpoint::Checkpoint, op, take_record},
        reader::{
            index::{Definitions, Extent},
            walk::{RecordPlace, Step, Walk},
        },
    },
};
use std::collections::BTreeSet;

/// Messages that wait for their definitions.
pub(super) struct Unidentified {
    /// The file is closed: it may have had a channel without its schema from the start.
    has_end: bool,
    /// Definitions of checkpoints and of a summary, for chunks whose own were in one that is lost.
    spare: Definitions,
    /// Extents with messages of channels that are not known so far.
    waiting: Vec<(Extent, Tally)>,
}

impl Unidentified {
    pub fn new(has_end: bool) -> Self {
        Self {
            has_end,
            spare: Definitions::default(),
            waiting: Vec::new(),
        }
    }

    /// Counts an extent in; one whose definitions are not known waits for them. `may_wait`: they may still be found.
    pub fn apply(&mut self, found: &mut Scan, mut extent: Extent, tally: Tally, may_wait: bool) {
        // The chunk that introduced the channel is lost.
        let [known, own] = [&found.definitions, &tally.definitions];
        let is_unknown = |id: &u16| !known.channels.contains_key(id) && !own.channels.contains_key(id);
        let has_schema = |channel: &Channel| own.has_schema(channel) || known.has_schema(channel);
        let lacks_schema = (may_wait || !self.has_end) && !own.channels.values().all(has_schema);
        if lacks_schema || tally.counts.keys().any(is_unknown) {
            self.waiting.push((extent, tally));
            return;
        }
        found.definitions.add(tally.definitions);
        let Some(times) = tally.times else { return };
        extent.times = times;
        extent.channels = Some(tally.counts.keys().map(|id| (*id, 0)).collect());
        found.widen(times);
        for (channel, count) in tally.counts {
            *found.counts.entry(channel).or_default() += count;
        }
        found.extents.push(extent);
    }

    /// Notes the definitions of a summary, which begins at the next record.
    pub fn add_summary(&mut self, walk: &mut Walk<'_>) -> StorageResult<()> {
        while let Step::Record(place) = walk.step()? {
            let is_one = place.opcode == op::SCHEMA || place.opcode == op::CHANNEL;
            if is_one && let Ok(record) = Record::decode(place.opcode, &walk.body(&place)?) {
                add(&mut self.spare, record);
            }
        }
        Ok(())
    }

    /// Notes the definitions of a checkpoint.
    pub fn add_checkpoint(
        &mut self,
        blocks: Blocks<'_>,
        walk: &mut Walk<'_>,
        place: RecordPlace,
    ) -> StorageResult<()> {
        if blocks.lacks_part_of(&place)? {
            return Ok(());
        }
        let body = walk.body(&place)?;
        let Ok(checkpoint) = Checkpoint::decode(&body, place.start) else {
            return Ok(());
        };
        let mut rest = checkpoint.records;
        while let Ok(Some((opcode, body))) = take_record(&mut rest) {
            if let Ok(record) = Record::decode(opcode, body) {
                add(&mut self.spare, record);
            }
        }
        Ok(())
    }

    /// Takes the extents whose channels are known by now. The others cannot be identified: their definitions are dropped with
    /// them, because a repair marks the whole of each.
    pub fn identify(&mut self, found: &mut Scan) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return;
        }
        for (extent, tally) in waiting {
            let (start, lacked, waiting) = (extent.start, self.lacked(found, &tally), self.waiting.len());
            found.definitions.add(lacked.clone());
            self.apply(found, extent, tally, false);
            if self.waiting.len() == waiting && !lacked.is_empty() {
                let late = found.structure.late.get_or_insert_with(|| Late {
                    before: start,
                    definitions: Definitions::default(),
                });
                late.before = late.before.min(start);
                late.definitions.add(lacked);
            }
        }
        for (extent, tally) in std::mem::take(&mut self.waiting) {
            let known = &found.definitions.channels;
            let own = &tally.definitions.channels;
            let unknown = tally
                .counts
                .keys()
                .find(|id| !known.contains_key(id) && !own.contains_key(id));
            let reason = match unknown {
                Some(unknown) => format!("messages of channel {unknown}, whose definition is missing"),
                None => "a channel whose schema is missing".to_owned(),
            };
            found.tear(extent.kind.name(), extent.start, reason);
        }
    }

    /// The definitions that these messages and channels need and do not bring, as far as the file has them anywhere.
    fn lacked(&self, found: &Scan, tally: &Tally) -> Definitions {
        let (own, all) = (&tally.definitions, [&found.definitions, &self.spare]);
        let mut lacked = Definitions::default();
        let needed = tally.counts.keys().filter(|id| !own.channels.contains_key(id));
        for channel in needed.filter_map(|id| all.iter().find_map(|it| it.channels.get(id))) {
            lacked.add_channel(channel.clone());
        }
        let channels = lacked.channels.values().chain(own.channels.values());
        let schemas: BTreeSet<u16> = channels.map(|channel| channel.schema_id).collect();
        for id in schemas.iter().filter(|id| !own.schemas.contains_key(id)) {
            if let Some(schema) = all.iter().find_map(|it| it.schemas.get(id)) {
                lacked.schemas.insert(*id, schema.clone());
            }
        }
        lacked
    }
}

fn add(definitions: &mut Definitions, record: Record<'_>) {
    match record {
        Record::Schema(schema) => definitions.add_schema(&schema),
        Record::Channel(channel) => definitions.add_channel(channel),
        _ => {}
    }
}
