//! Definitions that are repeated elsewhere in the file, for messages whose own were in a part that is lost.

use super::{Late, Scanner, Tally};
use crate::{
    error::StorageResult,
    mcap::{
        format::{Record, checkpoint::Checkpoint, op, take_record},
        reader::{
            index::Definitions,
            walk::{RecordPlace, Step, Walk},
        },
    },
};
use std::collections::BTreeSet;

impl Scanner<'_> {
    /// Notes the definitions of a summary, which begins at the next record.
    pub(super) fn spare_summary(&mut self, walk: &mut Walk<'_>) -> StorageResult<()> {
        let mut spare = std::mem::take(&mut self.spare);
        while let Step::Record(place) = walk.step()? {
            let is_one = place.opcode == op::SCHEMA || place.opcode == op::CHANNEL;
            if is_one && let Ok(record) = Record::decode(place.opcode, &walk.body(&place)?) {
                add(&mut spare, record);
            }
        }
        self.spare = spare;
        Ok(())
    }

    /// Notes the definitions of a checkpoint.
    pub(super) fn spare_checkpoint(&mut self, walk: &mut Walk<'_>, place: RecordPlace) -> StorageResult<()> {
        if !self.has_end && self.has_empty_sector((place.start, place.end()), 1)? {
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
    pub(super) fn identify(&mut self) {
        let waiting = std::mem::take(&mut self.unidentified);
        if waiting.is_empty() {
            return;
        }
        for (extent, tally) in waiting {
            let (start, lacked, waiting) = (extent.start, self.lacked(&tally), self.unidentified.len());
            self.found.definitions.add(lacked.clone());
            self.apply_extent(extent, tally, false);
            if self.unidentified.len() == waiting && !lacked.is_empty() {
                let late = self.found.structure.late.get_or_insert_with(|| Late {
                    before: start,
                    definitions: Definitions::default(),
                });
                late.before = late.before.min(start);
                late.definitions.add(lacked);
            }
        }
        for (extent, tally) in std::mem::take(&mut self.unidentified) {
            let known = &self.found.definitions.channels;
            let own = &tally.definitions.channels;
            let unknown = tally
                .counts
                .keys()
                .find(|id| !known.contains_key(id) && !own.contains_key(id));
            let reason = match unknown {
                Some(unknown) => format!("messages of channel {unknown}, whose definition is missing"),
                None => "a channel whose schema is missing".to_owned(),
            };
            self.found.tear(extent.kind.name(), extent.start, reason);
        }
    }

    /// The definitions that these messages and channels need and do not bring, as far as the file has them anywhere.
    fn lacked(&self, tally: &Tally) -> Definitions {
        let (own, all) = (&tally.definitions, [&self.found.definitions, &self.spare]);
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
