//! Accounts that are made after the recorder's end, from what it had logged.

use super::{Interval, PublisherAccount, TopicAccount, account::BEFORE_ARRIVAL};

impl TopicAccount {
    /// Adds a publisher with what it has recorded, what of it is missing, and what of that has come late.
    pub fn put_in(&mut self, mut publisher: PublisherAccount, missing: &[Interval], late: &[u64]) {
        for interval in missing {
            publisher.add(*interval);
        }
        for sequence in late {
            publisher.remove(*sequence, &BEFORE_ARRIVAL);
        }
        self.publishers.push(publisher);
    }

    /// Counts messages of the publisher at a place as missing; those without a publisher go to the first.
    pub fn miss_of(&mut self, place: Option<usize>, interval: Interval) {
        if self.publishers.is_empty() {
            self.publishers.push(PublisherAccount::default());
        }
        let place = place.filter(|place| *place < self.publishers.len()).unwrap_or(0);
        self.publishers[place].add(interval);
    }

    /// Sums the publishers up: all that they are known to have sent is recorded or missing.
    pub fn close(&mut self) {
        for publisher in &mut self.publishers {
            let all = publisher.recorded.saturating_add(publisher.missing_total());
            publisher.received = Some(all);
            publisher.sent = (!self.loss_unknown).then_some(all);
            for interval in &publisher.intervals {
                *self.missing.entry(interval.stage).or_insert(0) += interval.count;
            }
        }
        self.recorded = self.publishers.iter().map(|publisher| publisher.recorded).sum();
    }
}
