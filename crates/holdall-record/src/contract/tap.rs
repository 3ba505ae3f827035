//! What the drain hands to the judge: topics and messages as they go into the bag, the time, and the end.

use super::Judging;
use crate::{cache::CacheEntry, trigger::MessageTime};
use holdall_bag::writer::BagTopic;
use holdall_model::{
    contract::{Arrival, Contract, ContractRecord, Ending, Feed},
    loss::ledger::Ledger,
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use std::{sync::Arc, time::Duration};

/// The drain's side of a judge.
pub(crate) struct Tap {
    judging: Arc<Judging>,
    contract: Arc<Contract>,
    feed: Feed,
    time: MessageTime,
    /// Messages come into the bag much later than they were received: their times are the only ones.
    is_late: bool,
    /// The bag has the record of its beginning.
    has_begun: bool,
}

impl Tap {
    pub fn new(judging: &Arc<Judging>, contract: &Arc<Contract>, time: MessageTime, is_late: bool) -> Self {
        Self {
            judging: Arc::clone(judging),
            contract: Arc::clone(contract),
            feed: Feed::new(Arc::clone(contract)),
            time,
            is_late,
            has_begun: false,
        }
    }

    /// The bag's next topic.
    pub fn topic(&mut self, info: TopicInfo, definition: MessageDefinition) {
        self.feed.topic(info, definition);
    }

    pub fn define(&mut self, topic: BagTopic, definition: &MessageDefinition) {
        self.feed.define(topic.0, definition.clone());
    }

    /// A message of the bag.
    #[inline]
    pub fn message(&mut self, topic: BagTopic, entry: &CacheEntry, payload: PayloadRef<'_>) {
        let arrival = Arrival {
            log_time: entry.log_time,
            publish_time: entry.publish_time.unwrap_or(entry.log_time),
        };
        self.feed.message(topic.0, arrival, payload);
    }

    /// Passes on what has come at `now` (monotonic): everything until `last`, or until now if nothing waits, but what is held back for `held`.
    pub fn pass(&mut self, last: Option<Timestamp>, held: Duration, now: Duration) {
        if !self.feed.is_due(now) {
            return;
        }
        let present = || (self.time.now)().map(|steady| self.time.watch.stamp_of(steady));
        let until = last.or_else(present).filter(|_| !self.is_late);
        let until =
            until.map(|until| Timestamp::from_nanos(until.as_nanos().saturating_sub(held.as_nanos() as i64)));
        let batch = self.feed.take(until, now);
        self.judging.offer(batch);
    }

    /// The record of the beginning, until [`Self::begun`].
    pub fn beginning(&self) -> Option<ContractRecord> {
        let (start, _) = self.feed.span().filter(|_| !self.has_begun)?;
        Some(ContractRecord {
            contract: self.contract.text.clone(),
            start,
            ..ContractRecord::default()
        })
    }

    /// The bag has it.
    pub fn begun(&mut self) {
        self.has_begun = true;
    }

    /// Judges the end at `now` (monotonic). A judge that has failed leaves the outcome unknown.
    pub fn end(&mut self, ledger: &Ledger, disk_left: Option<u64>, now: Duration) -> ContractRecord {
        let batch = self.feed.take(None, now);
        self.judging.offer(batch);
        let (start, end) = self.feed.span().unwrap_or_default();
        let ending = Ending {
            start,
            end,
            disk_left,
            ..Ending::default()
        };
        let verdict = self.judging.end(&ending.clone().with_account(ledger), now);
        let outcome = self.judging.status().outcome;
        ContractRecord::of(&self.contract.text, &ending, outcome, verdict.as_ref())
    }
}

/// Its judge's thread ends with it.
impl Drop for Tap {
    fn drop(&mut self) {
        self.judging.close();
    }
}
