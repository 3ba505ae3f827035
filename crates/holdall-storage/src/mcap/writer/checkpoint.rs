//! Checkpoints of the index while a file is written, so that it opens at once when it is torn.

use super::McapWriter;
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
    /// Content of earlier checkpoints: schemas, channels, bytes of chunk indexes, bytes of metadata
    /// indexes.
    schemas: usize,
    channels: usize,
    chunk_index_bytes: u64,
    metadata_index_bytes: usize,
}

impl Checkpoints {
    /// Nothing is written yet.
    pub fn new(interval_bytes: u64) -> Self {
        Self {
            interval_bytes,
            ..Self::default()
        }
    }
}

impl McapWriter {
    /// Writes a checkpoint if one is due, and returns its place. All chunks are closed.
    pub(super) fn checkpoint(&mut self, q: &mut DiskQueue) -> Result<Option<(u64, u64)>, DiskError> {
        let offset = self.output.position();
        let Some(checkpoints) = &mut self.checkpoints else {
            return Ok(None);
        };
        let last_end = checkpoints
            .last
            .map_or(HEAD_BYTES as u64, |(start, length)| start + length);
        if checkpoints.pending.is_some() || offset < last_end + checkpoints.interval_bytes {
            return Ok(None);
        }
        let catalog = &self.catalog;
        let mut records = Vec::new();
        catalog.statistics().encode(&mut records);
        for schema in &catalog.schemas[checkpoints.schemas..] {
            records.extend_from_slice(&schema.record);
        }
        for channel in &catalog.channels[checkpoints.channels..] {
            records.extend_from_slice(&channel.record);
        }
        let mut stored_bytes = checkpoints.chunk_index_bytes;
        for piece in &catalog.chunk_indexes {
            let skipped = stored_bytes.min(piece.len() as u64);
            stored_bytes -= skipped;
            // At most the length of the piece.
            records.extend_from_slice(&piece[skipped as usize..]);
        }
        records.extend_from_slice(&catalog.metadata_indexes[checkpoints.metadata_index_bytes..]);
        checkpoints.schemas = catalog.schemas.len();
        checkpoints.channels = catalog.channels.len();
        checkpoints.chunk_index_bytes = catalog.chunk_indexes_bytes;
        checkpoints.metadata_index_bytes = catalog.metadata_indexes.len();
        let mut record = Vec::new();
        Checkpoint {
            offset,
            previous: checkpoints.last,
            crc: self.output.crc_after_head(q)?,
            records: &records,
        }
        .encode(&mut record);
        let place = (offset, record.len() as u64);
        checkpoints.last = Some(place);
        self.output.put(q, &record)?;
        Ok(Some(place))
    }

    /// Notes which sync makes a checkpoint durable.
    pub(super) fn await_checkpoint(&mut self, place: Option<(u64, u64)>, token: SyncToken) {
        if let (Some(checkpoints), Some(place)) = (&mut self.checkpoints, place) {
            checkpoints.pending = Some((place, token));
        }
    }

    /// Lets the anchor point to the checkpoint that has become durable. Everything before it is durable, too.
    pub(super) fn move_anchor(&mut self, q: &mut DiskQueue) -> Result<(), DiskError> {
        let Some(checkpoints) = &mut self.checkpoints else {
            return Ok(());
        };
        let Some(((checkpoint, length), token)) = checkpoints.pending else {
            return Ok(());
        };
        if !q.is_durable(token)? {
            return Ok(());
        }
        checkpoints.pending = None;
        let number = checkpoints.slots_written + 1;
        checkpoints.slots_written = number;
        let slot = Slot {
            number,
            checkpoint,
            length,
        };
        // Two slots in turn.
        let place = SLOT_OFFSETS[(number % 2) as usize];
        self.output.rewrite_head(q, place, &slot.encode())
    }
}
