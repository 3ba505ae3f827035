//! Counts written messages in runs of one publisher, so that the ledger is locked once for many.

use crate::cache::CacheEntry;
use holdall_model::{
    loss::ledger::{Ledger, PublisherIndex},
    topic::TopicId,
};

/// A run of messages of one publisher that were written.
struct Run {
    topic: TopicId,
    publisher: PublisherIndex,
    count: u64,
    bytes: u64,
}

/// Messages that were written and are not in the ledger yet.
#[derive(Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    #[inline]
    pub fn count(&mut self, entry: &CacheEntry, bytes: u64) {
        match self.0.last_mut() {
            Some(run) if run.topic == entry.topic && run.publisher == entry.publisher => {
                run.count += 1;
                run.bytes += bytes;
            }
            _ => {
                let (topic, publisher) = (entry.topic, entry.publisher);
                self.0.push(Run {
                    topic,
                    publisher,
                    count: 1,
                    bytes,
                });
            }
        }
    }

    /// Puts the runs into the ledger.
    pub fn count_into(&mut self, ledger: &mut Ledger) {
        for run in self.0.drain(..) {
            ledger.record(run.topic, run.publisher, run.count, run.bytes);
        }
    }
}
