//! Counts written messages in runs of one publisher, so that the ledger is locked once for many.

use crate::cache::CacheEntry;
use holdall_io::prefetch::prefetch_lines;
use holdall_model::{
    loss::ledger::{Ledger, PublisherIndex},
    topic::TopicId,
};

/// Runs between fetching an account and counting into it.
const AHEAD: usize = 8;

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
        for (at, run) in self.0.iter().enumerate() {
            // With thousands of topics their accounts are not in the processor's caches.
            if let Some(later) = self.0.get(at + AHEAD)
                && let Some(account) = ledger.publisher(later.topic, later.publisher)
            {
                prefetch_lines(&account.recorded, 0..1);
            }
            ledger.record(run.topic, run.publisher, run.count, run.bytes);
        }
        self.0.clear();
    }
}
