//! The drain keeps arenas until the system has their messages.

use super::delivery::Delivery;
use crate::{
    cache::{Segment, SharedCache},
    write::retained::Retained,
};

/// Segments whose messages were given away.
pub(super) struct Retaining {
    /// `None` unless messages survive the process.
    retained: Option<Retained>,
    /// Large messages were written that do not survive, and the system may not have them.
    has_large: bool,
}

impl Retaining {
    /// Keeps segments of this cache, if they are in memory that survives.
    pub fn new(cache: &SharedCache) -> Self {
        Self {
            retained: Retained::new(cache.source(), cache.shape()),
            has_large: false,
        }
    }

    /// Whether messages survive the process.
    pub fn is_on(&self) -> bool {
        self.retained.is_some()
    }

    /// Returns a segment whose messages were given to the storage writer, the packing, or the waiting topics.
    pub fn release_segment(
        &mut self,
        segment: Segment,
        cache: &SharedCache,
        holds_waiting: bool,
        delivery: &Delivery,
    ) {
        self.has_large |= segment.has_unkept();
        let retained = &mut self.retained;
        cache.release_after(segment, |segment| {
            if let Some(retained) = retained {
                retained.keep(segment, holds_waiting, delivery.progress());
            }
        });
    }

    /// Releases arenas whose messages the system has, and asks for more where too many wait.
    pub fn release(&mut self, delivery: &mut Delivery) {
        let Some(retained) = &mut self.retained else {
            return;
        };
        if delivery.writer().has_failed() {
            // Messages that are not in the bag are in the ledger.
            self.retained = None;
            return;
        }
        let bag = delivery.writer().bag();
        let handed_over = if retained.is_pressing() {
            bag.hand_over()
        } else if self.has_large {
            bag.hand_over_large().map(|done| self.has_large = !done)
        } else {
            Ok(())
        };
        retained.release(delivery.progress_of_system());
        if let Err(error) = handed_over {
            delivery.writer().fail(error);
        }
    }
}
