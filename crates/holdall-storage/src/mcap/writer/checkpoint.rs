//! Checkpoints of the index while a file is written, so that it opens at once when it is torn.

use super::{
    catalog::{Catalog, Mark},
    output::Output,
};
use crate::mcap::format::checkpoint::{Checkpoint, HEAD_BYTES, SLOT_OFFSETS, Slot};
use holdall_io::{
    disk::DiskError,
    queue::{DiskQueue, SyncToken},
};

/// How far the checkpoints of a file have come.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// A checkpoint is written with the first sync after this many bytes.
    interval_bytes: u64,
    /// The last one that was written: place and length.
    last: Option<(u64, u64)>,
    slots_written: u64,
    /// Written and not known to be durable: only then does the anchor point to it.
    pending: Option<((u64, u64), SyncToken)>,
    /// The content of earlier checkpoints.
    mark: Mark,
}

impl Checkpoints {
    /// Nothing is written yet.
    pub fn new(interval_bytes: u64) -> Self {
        Self {
            interval_bytes,
            ..Self::default()
        }
    }

    /// Makes the file durable, with a checkpoint at its end if one is due. All chunks are closed.
    pub(crate) fn make_durable(
        &mut self,
        q: &mut DiskQueue,
        catalog: &Catalog,
        output: &mut Output,
    ) -> Result<SyncToken, DiskError> {
        let offset = output.position();
        let last_end = self
            .last
            .map_or(HEAD_BYTES as u64, |(start, length)| start + length);
        if self.pending.is_some() || offset < last_end + self.interval_bytes {
            return output.make_durable(q);
        }
        let mut record = Vec::new();
        Checkpoint {
            offset,
            previous: self.last,
            crc: output.crc_after_head(q)?,
            records: &catalog.records_since(&mut self.mark),
        }
        .encode(&mut record);
        let place = (offset, record.len() as u64);
        self.last = Some(place);
        output.put(q, &record)?;
        let token = output.make_durable(q)?;
        self.pending = Some((place, token));
        Ok(token)
    }

    /// Lets the anchor point to the checkpoint that has become durable. Everything before it is durable, too.
    pub(crate) fn move_anchor(&mut self, q: &mut DiskQueue, output: &mut Output) -> Result<(), DiskError> {
        let Some(((checkpoint, length), token)) = self.pending else {
            return Ok(());
        };
        if !q.is_durable(token)? {
            return Ok(());
        }
        self.pending = None;
        self.slots_written += 1;
        let number = self.slots_written;
        let slot = Slot {
            number,
            checkpoint,
            length,
        };
        // Two slots in turn.
        let place = SLOT_OFFSETS[(number % 2) as usize];
        output.rewrite_head(q, place, &slot.encode())
    }
}
