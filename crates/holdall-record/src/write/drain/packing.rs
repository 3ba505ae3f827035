//! Payloads that are packed by other threads before they are written.

use crate::{cache::CacheEntry, write::waiting::HeldPayload};
use holdall_bag::writer::{CompressionOptions, PayloadPacking, WriteError};
use holdall_io::wait::Wait;
use std::io;

/// A message whose payload is packed by another thread.
pub(super) struct InPacking {
    pub entry: CacheEntry,
    /// Length of its payload as it was sent.
    pub bytes: usize,
    /// Bytes that the cache is charged for it.
    pub held_bytes: usize,
}

/// A message that comes back.
pub(super) struct Packed {
    pub message: InPacking,
    /// `None` if it was dropped to make room.
    pub payload: Option<io::Result<Vec<u8>>>,
}

/// Message compression, if it was asked for.
#[derive(Default)]
pub(super) struct Packing {
    threads: Option<PayloadPacking<InPacking>>,
    /// Messages that were given to be packed.
    given: u64,
    /// Messages that came back from there, or were dropped.
    back: u64,
}

impl Packing {
    /// Starts its threads.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn start(options: &CompressionOptions) -> Result<Self, WriteError> {
        Ok(Self {
            threads: Some(PayloadPacking::start(options).map_err(WriteError::Threads)?),
            ..Self::default()
        })
    }

    /// Whether payloads are packed.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.threads.is_some()
    }

    pub fn given(&self) -> u64 {
        self.given
    }

    pub fn back(&self) -> u64 {
        self.back
    }

    /// When too many are in flight, waits for the oldest, or drops it where the options request that. `None` when there is room.
    pub fn make_room(&mut self) -> Option<Packed> {
        let threads = self.threads.as_mut().filter(|threads| threads.is_full())?;
        let dropped = threads.drops_oldest().then(|| threads.drop_oldest()).flatten();
        if let Some(message) = dropped {
            self.back += 1;
            return Some(Packed {
                message,
                payload: None,
            });
        }
        self.take_ready(Wait::UntilReady)
    }

    /// Gives a payload to be packed.
    pub fn submit(&mut self, entry: CacheEntry, payload: HeldPayload) {
        let Some(threads) = &mut self.threads else { return };
        let message = InPacking {
            entry,
            bytes: payload.as_payload().len(),
            held_bytes: payload.held_bytes(),
        };
        self.given += 1;
        threads.submit(message, payload.into_loan());
    }

    /// The oldest message, if its payload is packed.
    pub fn take_ready(&mut self, wait: Wait) -> Option<Packed> {
        let (message, packed) = self.threads.as_mut()?.take_ready(wait)?;
        self.back += 1;
        Some(Packed {
            message,
            payload: Some(packed),
        })
    }
}
