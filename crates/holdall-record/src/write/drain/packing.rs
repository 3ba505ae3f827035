//! Payloads that are packed by other threads before they are written.

use super::Drain;
use crate::{
    cache::{CacheEntry, Place, Segment},
    write::waiting::HeldPayload,
};
use holdall_bag::writer::CopiedPayload;
use holdall_io::wait::Wait;
use holdall_model::{
    loss::LossStage,
    message::{Loan, PayloadRef},
    topic::TopicId,
};
use std::io;

/// A message whose payload is being packed.
pub(super) struct InPacking {
    pub(super) entry: CacheEntry,
    /// Length of its payload as it was sent.
    pub(super) bytes: usize,
    /// Bytes that the cache is charged for it.
    pub(super) held_bytes: usize,
}

impl Drain {
    /// Takes a message's payload out of its segment; the cache continues to count its memory.
    pub(super) fn take_out(
        &self,
        segment: &mut Segment,
        place: Place,
        topic: TopicId,
    ) -> Option<HeldPayload> {
        if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
            return Some(HeldPayload::Loan(loan, pinned_bytes));
        }
        let PayloadRef::Bytes(bytes) = segment.message(place)?.payload else {
            return None;
        };
        self.cache.hold(topic, bytes.len());
        Some(HeldPayload::Bytes(bytes.into()))
    }

    /// Submits a payload to be packed. When too many are in flight, waits for the oldest, or drops it where the options request that.
    pub(super) fn pack(&mut self, entry: CacheEntry, payload: HeldPayload) {
        let message = InPacking {
            entry,
            bytes: payload.as_payload().len(),
            held_bytes: payload.held_bytes(),
        };
        let payload: Box<dyn Loan> = match payload {
            HeldPayload::Bytes(bytes) => Box::new(CopiedPayload(bytes)),
            HeldPayload::Loan(loan, _) => loan,
        };
        // Each turn takes one out of flight.
        while let Some(packing) = self.packing.as_mut().filter(|packing| packing.is_full()) {
            let dropped = packing.drops_oldest().then(|| packing.drop_oldest()).flatten();
            if let Some(oldest) = dropped {
                self.progress.packed += 1;
                self.lose(&oldest.entry, LossStage::Compression);
                self.cache.loan_returned(oldest.entry.topic, oldest.held_bytes);
            } else if let Some((oldest, packed)) = packing.take_ready(Wait::UntilReady) {
                self.write_one_packed(&oldest, packed);
            }
        }
        if let Some(packing) = &mut self.packing {
            self.progress.packing += 1;
            packing.submit(message, payload);
        }
    }

    /// Writes packed payloads, in order, or all in flight.
    pub(super) fn write_packed(&mut self, wait: Wait) {
        while let Some((message, packed)) = self.packing.as_mut().and_then(|packing| packing.take_ready(wait))
        {
            self.write_one_packed(&message, packed);
        }
        self.count_runs();
    }

    pub(super) fn write_one_packed(&mut self, message: &InPacking, packed: io::Result<Vec<u8>>) {
        let InPacking { entry, bytes, .. } = *message;
        self.progress.packed += 1;
        match packed {
            Ok(packed) => self.write(entry, PayloadRef::Bytes(&packed), bytes),
            Err(error) => {
                tracing::error!("cannot compress a message: {error}");
                self.lose(&entry, LossStage::Compression);
            }
        }
        self.cache.loan_returned(entry.topic, message.held_bytes);
    }
}
