//! Accounts made after the recorder's end, from its log.

use super::{Interval, PublisherAccount, TopicAccount, publisher::BEFORE_ARRIVAL};
use crate::loss::LossStage;

/// Stages of missing messages that had been received; includes those that a ring in memory evicts, and those that a pause leaves out.
pub const AFTER_ARRIVAL: [LossStage; 5] = [
    LossStage::Cache,
    LossStage::Policy,
    LossStage::Compression,
    LossStage::Storage,
    LossStage::Shutdown,
];

/// A change of the missing messages in a publisher's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// These are missing.
    Missing(Interval),
    /// This message was counted as missing and has come. It may be counted again after that: dropped by the cache, or left out in a pause.
    Late(u64),
}

impl TopicAccount {
    /// Adds a publisher with its recorded messages and its losses, in the order in which they were counted.
    pub fn put_in(&mut self, mut publisher: PublisherAccount, losses: &[Loss]) {
        for loss in losses {
            match loss {
                Loss::Missing(interval) => {
                    // Held through a pause and dropped then: its recorder may have died before it took back that it was left out.
                    if let Some(sequence) = interval.first_sequence.filter(|_| interval.count == 1)
                        && interval.stage != LossStage::Policy
                    {
                        publisher.remove(sequence, &[LossStage::Policy]);
                    }
                    publisher.add(*interval);
                }
                Loss::Late(sequence) => drop(publisher.remove(*sequence, &BEFORE_ARRIVAL)),
            }
        }
        self.publishers.push(publisher);
    }

    /// Counts a message of the publisher at a place as missing, unless it is counted; one without a publisher goes to the first.
    pub fn miss_of(&mut self, place: Option<usize>, interval: Interval) {
        if self.publishers.is_empty() {
            self.publishers.push(PublisherAccount::default());
        }
        let place = place.filter(|place| *place < self.publishers.len()).unwrap_or(0);
        let publisher = &mut self.publishers[place];
        let is_known = |sequence| publisher.intervals.iter().any(|known| known.contains(sequence));
        if !interval.first_sequence.is_some_and(is_known) {
            publisher.add(interval);
        }
    }

    /// Takes back that a message of the publisher at a place was dropped after it had been received.
    pub fn find_of(&mut self, place: Option<usize>, sequence: u64) {
        if let Some(publisher) = place.and_then(|place| self.publishers.get_mut(place)) {
            publisher.remove(sequence, &AFTER_ARRIVAL);
        }
    }

    /// Sets which sequence numbers the account of the publisher at a place covers: from `first`, or the first missing number before it,
    /// as many as are recorded or missing with a number. Call this when both are known.
    pub fn cover(&mut self, place: usize, first: u64) {
        let Some(publisher) = self.publishers.get_mut(place) else {
            return;
        };
        let all = publisher.recorded.saturating_add(publisher.missing_total());
        let all = all - publisher.missing(LossStage::NotBelievable);
        let missing = publisher
            .intervals
            .iter()
            .filter_map(|interval| interval.first_sequence);
        let first = missing.fold(first, u64::min);
        let last = all.checked_sub(1).and_then(|more| first.checked_add(more));
        publisher.covered = last.map(|last| [first, last]);
    }

    /// As [`Self::cover`], for a publisher whose last message is known: those before it that are neither recorded nor missing are lost at the
    /// storage. Returns their number.
    pub fn lose_until(&mut self, place: usize, first: u64, last: Option<u64>) -> u64 {
        self.cover(place, first);
        let Some(publisher) = self.publishers.get_mut(place) else {
            return 0;
        };
        let end = publisher.covered.map(|[_, end]| end);
        let lost = last.zip(end).map_or(0, |(last, end)| last.saturating_sub(end));
        if lost > 0 {
            publisher.add(Interval::of_unknown(LossStage::Storage, lost));
            self.cover(place, first);
        }
        lost
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
