//! What the drain hands to the judge: topics and messages as they go into the bag, the time, and the end.

use super::Judging;
use crate::{cache::CacheEntry, trigger::MessageTime};
use holdall_bag::writer::BagTopic;
use holdall_model::{
    contract::{Arrival, Contract, ContractRecord, Ending, Feed},
    episode::Episode,
    loss::ledger::Ledger,
    message::PayloadRef,
    qos::QosProfile,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest contract that each file has, in bytes; a longer one is in the first file only.
const REPEATED_BYTES_MAX: usize = 64 << 10;

/// The drain's side of a judge.
pub(crate) struct Tap {
    judging: Arc<Judging>,
    contract: Arc<Contract>,
    feed: Feed,
    /// The feed's numbers by the topics of the bag; `None` for those whose messages were seen as they were received.
    numbers: Vec<Option<u32>>,
    /// The feed's numbers of those.
    received: BTreeMap<TopicId, u32>,
    time: MessageTime,
    /// Messages come into the bag much later than they were received: their times are the only ones.
    is_late: bool,
    /// The file that is written has the record of the beginning.
    has_begun: bool,
}

impl Tap {
    pub fn new(judging: &Arc<Judging>, contract: &Arc<Contract>, time: MessageTime, is_late: bool) -> Self {
        Self {
            judging: Arc::clone(judging),
            contract: Arc::clone(contract),
            feed: Feed::new(Arc::clone(contract)),
            numbers: Vec::new(),
            received: BTreeMap::new(),
            time,
            is_late,
            has_begun: false,
        }
    }

    /// The bag's next topic; `None` for one of another form.
    pub fn topic(&mut self, judged: Option<(TopicInfo, MessageDefinition)>) {
        let number = judged.map(|(info, definition)| self.feed.topic(info, definition));
        self.numbers.push(number);
    }

    /// A topic whose messages get another form: they are judged as they were received.
    pub fn add_received(&mut self, topic: TopicId, info: &TopicInfo, definition: &MessageDefinition) {
        let number = self.feed.topic(info.clone(), definition.clone());
        self.received.insert(topic, number);
    }

    /// Whether messages of a topic's own type are judged as they were received.
    pub fn has_received(&self, topic: TopicId) -> bool {
        self.received.contains_key(&topic)
    }

    #[inline]
    fn number(&self, topic: BagTopic) -> Option<u32> {
        self.numbers.get(topic.0 as usize).copied().flatten()
    }

    pub fn define(&mut self, topic: BagTopic, definition: &MessageDefinition) {
        if let Some(number) = self.number(topic) {
            self.feed.define(number, definition.clone());
        }
    }

    pub fn define_received(&mut self, topic: TopicId, definition: &MessageDefinition) {
        if let Some(number) = self.received.get(&topic) {
            self.feed.define(*number, definition.clone());
        }
    }

    /// A publisher of a topic offers this.
    pub fn offer(&mut self, topic: BagTopic, qos: QosProfile) {
        if let Some(number) = self.number(topic) {
            self.feed.offer(number, qos);
        }
    }

    pub fn offer_received(&mut self, topic: TopicId, qos: QosProfile) {
        if let Some(number) = self.received.get(&topic) {
            self.feed.offer(*number, qos);
        }
    }

    /// A message of the bag.
    #[inline]
    pub fn message(&mut self, topic: BagTopic, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if let Some(number) = self.number(topic) {
            self.feed.message(number, arrival(entry), payload);
        }
    }

    /// A message that gets another form.
    pub fn received(&mut self, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if let Some(number) = self.received.get(&entry.topic) {
            self.feed.message(*number, arrival(entry), payload);
        }
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

    /// The record of the beginning, until [`Self::begun`], and for each new file.
    pub fn beginning(&self) -> Option<ContractRecord> {
        let (start, _) = self.feed.span().filter(|_| !self.has_begun)?;
        Some(ContractRecord {
            contract: self.contract.text.clone(),
            start,
            ..ContractRecord::default()
        })
    }

    /// The file that is written has it.
    pub fn begun(&mut self) {
        self.has_begun = true;
    }

    /// The messages that follow are in a new file, which is to have it, too: a ring removes the ones before.
    pub fn file_begun(&mut self) {
        self.has_begun &= self.contract.text.len() > REPEATED_BYTES_MAX;
    }

    /// Judges the end at `now` (monotonic). A judge that has failed leaves the outcome unknown.
    pub fn end(
        &mut self,
        ledger: &Ledger,
        episodes: Vec<Episode>,
        disk_left: Option<u64>,
        now: Duration,
    ) -> ContractRecord {
        let batch = self.feed.take(None, now);
        self.judging.offer(batch);
        let (start, end) = self.feed.span().unwrap_or_default();
        let ending = Ending {
            start,
            end,
            disk_left,
            episodes,
            ..Ending::default()
        };
        let verdict = self.judging.end(&ending.clone().with_account(ledger), now);
        let outcome = self.judging.status().outcome;
        ContractRecord::of(&self.contract.text, &ending, outcome, verdict.as_ref())
    }
}

fn arrival(entry: &CacheEntry) -> Arrival {
    Arrival {
        log_time: entry.log_time,
        publish_time: entry.publish_time.unwrap_or(entry.log_time),
    }
}

/// Its judge's thread ends with it.
impl Drop for Tap {
    fn drop(&mut self) {
        self.judging.close();
    }
}
