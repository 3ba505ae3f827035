//! The loss ledger: for each topic and publisher what was recorded, what is missing, and whether the sum is right.

use super::cache::PublisherIndex;
use holdall_model::{
    loss::LossStage,
    time::Timestamp,
    topic::{Gid, TopicId},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the MCAP metadata record (or table row) that carries the ledger in a bag.
pub const LEDGER_RECORD: &str = "holdall:loss";

/// Key of the ledger's JSON text in that record.
pub const LEDGER_KEY: &str = "ledger";

/// Intervals kept per publisher; more are merged into the last one of their stage, whose count stays right.
const INTERVALS_MAX: usize = 1024;

/// A run of messages of one publisher that are not in the bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Where they were lost.
    pub stage: LossStage,
    /// First sequence number, where known.
    pub first_sequence: Option<u64>,
    /// Last sequence number, where known.
    pub last_sequence: Option<u64>,
    /// Log time of the first one, or of the message before it.
    pub first_time: Option<Timestamp>,
    /// Log time of the last one, or of the message after it.
    pub last_time: Option<Timestamp>,
    /// How many; less than the sequence numbers span when `merged`.
    pub count: u64,
    /// True when intervals were merged to bound memory: messages within the span were recorded, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
}

impl Interval {
    /// Messages of known sequence numbers, noticed between two points in time.
    pub fn of_sequences(stage: LossStage, first: u64, last: u64, times: [Option<Timestamp>; 2]) -> Self {
        Self {
            stage,
            first_sequence: Some(first),
            last_sequence: Some(last),
            first_time: times[0],
            last_time: times[1],
            count: last.saturating_sub(first).saturating_add(1),
            merged: false,
        }
    }

    /// One message.
    pub fn of_message(stage: LossStage, sequence: Option<u64>, time: Timestamp) -> Self {
        Self {
            stage,
            first_sequence: sequence,
            last_sequence: sequence,
            first_time: Some(time),
            last_time: Some(time),
            count: 1,
            merged: false,
        }
    }

    /// Messages of which only the number is known.
    pub fn of_unknown(stage: LossStage, count: u64) -> Self {
        Self {
            stage,
            first_sequence: None,
            last_sequence: None,
            first_time: None,
            last_time: None,
            count,
            merged: false,
        }
    }

    /// True when `next` goes on where this one ends.
    fn is_followed_by(&self, next: &Self) -> bool {
        self.stage == next.stage
            && match (self.last_sequence, next.first_sequence) {
                (Some(last), Some(first)) => last.checked_add(1) == Some(first),
                (None, None) => true,
                _ => false,
            }
    }

    fn extend_to(&mut self, next: &Self) {
        self.last_sequence = next.last_sequence.max(self.last_sequence);
        self.first_sequence = match (self.first_sequence, next.first_sequence) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        self.last_time = next.last_time.or(self.last_time);
        self.first_time = self.first_time.or(next.first_time);
        self.count += next.count;
    }

    fn contains(&self, sequence: u64) -> bool {
        matches!((self.first_sequence, self.last_sequence), (Some(first), Some(last)) if (first..=last).contains(&sequence))
    }
}

/// What is known about one publisher's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherAccount {
    /// Its identifier in hexadecimal digits; `None` for messages whose transport does not tell.
    pub gid: Option<String>,
    /// Its node, where discovery told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Messages that it is known to have sent while they were wanted: arrived, skipped, or announced. `None` without sequence
    /// numbers, and until the recording is closed.
    pub sent: Option<u64>,
    /// Messages that it had sent before the recording, as far as its sequence numbers tell; no loss.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_before: u64,
    /// Messages in the bag.
    pub recorded: u64,
    /// Messages that came once more over another subscription and were not stored again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// What is missing.
    pub intervals: Vec<Interval>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PublisherAccount {
    /// Missing messages of one stage.
    pub fn missing(&self, stage: LossStage) -> u64 {
        self.intervals
            .iter()
            .filter(|i| i.stage == stage)
            .map(|i| i.count)
            .sum()
    }

    /// Missing messages of all stages, those left out on request included.
    pub fn missing_total(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.count).sum()
    }

    /// True when every message known to be sent is recorded or missing; always true without sequence numbers.
    pub fn is_balanced(&self) -> bool {
        self.sent
            .is_none_or(|sent| sent == self.recorded + self.missing_total())
    }

    fn add(&mut self, interval: Interval) {
        if let Some(last) = self.intervals.last_mut()
            && last.is_followed_by(&interval)
        {
            last.extend_to(&interval);
            return;
        }
        if self.intervals.len() >= INTERVALS_MAX
            && let Some(same) = self
                .intervals
                .iter_mut()
                .rev()
                .find(|known| known.stage == interval.stage)
        {
            same.extend_to(&interval);
            same.merged = true;
            return;
        }
        self.intervals.push(interval);
    }

    /// Takes a message that arrived late out of the interval that counted it missing.
    fn remove(&mut self, sequence: u64) -> Option<LossStage> {
        let index = self.intervals.iter().rposition(|interval| {
            let before_arrival = [LossStage::Head, LossStage::Transport, LossStage::Policy];
            before_arrival.contains(&interval.stage) && interval.contains(sequence)
        })?;
        let interval = &mut self.intervals[index];
        let stage = interval.stage;
        interval.count -= 1;
        if interval.count == 0 {
            self.intervals.remove(index);
        } else if !interval.merged {
            let mut rest = *interval;
            if interval.first_sequence == Some(sequence) {
                interval.first_sequence = Some(sequence + 1);
            } else {
                interval.last_sequence = Some(sequence - 1);
                rest.first_sequence = Some(sequence + 1);
                interval.count = sequence - interval.first_sequence.unwrap_or(sequence);
                rest.count -= interval.count;
                if rest.count > 0 {
                    self.intervals.insert(index + 1, rest);
                }
            }
        }
        Some(stage)
    }
}

/// One topic's part of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicAccount {
    /// Full ROS name.
    pub name: String,
    /// Messages in the bag.
    pub recorded: u64,
    /// Payload bytes in the bag.
    pub recorded_bytes: u64,
    /// Messages that were in the bag until the ring of files removed their file (`--max-bag-files`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed: u64,
    /// Missing messages by stage; stages without any are absent. `policy` is what was left out on request and no loss.
    pub missing: BTreeMap<LossStage, u64>,
    /// True when the transport gives no sequence numbers, so that losses on its way cannot be known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loss_unknown: bool,
    /// By publisher.
    pub publishers: Vec<PublisherAccount>,
}

impl TopicAccount {
    /// Lost messages, without those left out on request.
    pub fn lost(&self) -> u64 {
        self.missing
            .iter()
            .filter(|(stage, _)| **stage != LossStage::Policy)
            .map(|(_, count)| count)
            .sum()
    }
}

/// All topics' accounts. Its JSON form is what a bag carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Version of this form.
    pub version: u32,
    /// In the order of subscription, indexed by [`TopicId`].
    pub topics: Vec<TopicAccount>,
}

impl Ledger {
    /// Version that is written.
    pub const VERSION: u32 = 1;

    /// An empty ledger.
    pub fn new() -> Self {
        Self {
            version: Self::VERSION,
            topics: Vec::new(),
        }
    }

    /// Opens the account of the next topic.
    pub fn add_topic(&mut self, name: &str) -> TopicId {
        self.topics.push(TopicAccount {
            name: name.to_owned(),
            ..TopicAccount::default()
        });
        // More topics than 32 bits can count do not fit into memory.
        TopicId((self.topics.len() - 1) as u32)
    }

    /// Opens the account of a topic's next publisher; `None` for one that does not tell who it is.
    pub fn add_publisher(&mut self, topic: TopicId, gid: Option<Gid>) -> PublisherIndex {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return PublisherIndex(0);
        };
        let gid = gid.map(|gid| gid.to_string());
        account.publishers.push(PublisherAccount {
            gid,
            ..PublisherAccount::default()
        });
        PublisherIndex((account.publishers.len() - 1) as u32)
    }

    /// One publisher's account.
    pub fn publisher_mut(
        &mut self,
        topic: TopicId,
        publisher: PublisherIndex,
    ) -> Option<&mut PublisherAccount> {
        self.topics
            .get_mut(topic.0 as usize)?
            .publishers
            .get_mut(publisher.0 as usize)
    }

    /// Says that a topic's transport gives no sequence numbers.
    pub fn set_loss_unknown(&mut self, topic: TopicId) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.loss_unknown = true;
        }
    }

    /// Counts messages as missing.
    pub fn miss(&mut self, topic: TopicId, publisher: PublisherIndex, interval: Interval) {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return;
        };
        *account.missing.entry(interval.stage).or_insert(0) += interval.count;
        if let Some(publisher) = account.publishers.get_mut(publisher.0 as usize) {
            publisher.add(interval);
        }
    }

    /// Takes back that a message was counted as missing before it arrived; false when it was not.
    pub fn arrived_late(&mut self, topic: TopicId, publisher: PublisherIndex, sequence: u64) -> bool {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return false;
        };
        let Some(publisher) = account.publishers.get_mut(publisher.0 as usize) else {
            return false;
        };
        let Some(stage) = publisher.remove(sequence) else {
            return false;
        };
        if let Some(count) = account.missing.get_mut(&stage) {
            *count -= 1;
            if *count == 0 {
                account.missing.remove(&stage);
            }
        }
        true
    }

    /// Counts messages as recorded.
    pub fn record(&mut self, topic: TopicId, publisher: PublisherIndex, count: u64, bytes: u64) {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return;
        };
        account.recorded += count;
        account.recorded_bytes += bytes;
        if let Some(publisher) = account.publishers.get_mut(publisher.0 as usize) {
            publisher.recorded += count;
        }
    }

    /// Counts messages as no longer in the bag, because the ring of files went over them.
    pub fn remove(&mut self, topic: TopicId, count: u64) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.removed += count;
        }
    }

    /// Takes back that messages were recorded: the disk failed behind them. They are the last ones of the topic; which publisher
    /// sent them is exact when there is one.
    pub fn take_back(&mut self, topic: TopicId, count: u64) {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return;
        };
        let mut left = count.min(account.recorded);
        account.recorded -= left;
        if left > 0 {
            *account.missing.entry(LossStage::Storage).or_insert(0) += left;
        }
        for publisher in account.publishers.iter_mut().rev() {
            let count = left.min(publisher.recorded);
            if count > 0 {
                publisher.recorded -= count;
                publisher.add(Interval::of_unknown(LossStage::Storage, count));
                left -= count;
            }
        }
    }

    /// Messages that were recorded.
    pub fn recorded(&self) -> u64 {
        self.topics.iter().map(|topic| topic.recorded).sum()
    }

    /// Lost messages of all topics, without those left out on request.
    pub fn lost(&self) -> u64 {
        self.topics.iter().map(TopicAccount::lost).sum()
    }

    /// The accounts that do not add up, one sentence each; empty when every message known to be sent is accounted for.
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for topic in &self.topics {
            for publisher in topic
                .publishers
                .iter()
                .filter(|publisher| !publisher.is_balanced())
            {
                faults.push(format!(
                    "{}: publisher {} sent {}, but {} recorded and {} missing are accounted for",
                    topic.name,
                    publisher.gid.as_deref().unwrap_or("unknown"),
                    publisher.sent.unwrap_or(0),
                    publisher.recorded,
                    publisher.missing_total(),
                ));
            }
            let by_publishers: u64 = topic.publishers.iter().map(PublisherAccount::missing_total).sum();
            let by_stage: u64 = topic.missing.values().sum();
            if by_publishers != by_stage {
                faults.push(format!(
                    "{}: {by_stage} missing by stage, {by_publishers} by publisher",
                    topic.name
                ));
            }
        }
        faults
    }

    /// The text that a bag carries.
    pub fn to_json(&self) -> String {
        // Maps with text keys, numbers and strings only: nothing that JSON cannot hold.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text that a bag carries.
    ///
    /// # Errors
    /// When it is not a ledger.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// What goes into `custom_data` of `metadata.yaml`: nothing unless something was lost.
    pub fn custom_data(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::new();
        let lost = self.lost();
        if lost > 0 {
            entries.insert("holdall.lost".to_owned(), lost.to_string());
            for topic in self.topics.iter().filter(|topic| topic.lost() > 0) {
                let stages: Vec<String> = topic
                    .missing
                    .iter()
                    .filter(|(stage, _)| **stage != LossStage::Policy)
                    .map(|(stage, count)| format!("{}={count}", stage.as_str()))
                    .collect();
                entries.insert(format!("holdall.lost.{}", topic.name), stages.join(" "));
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOPIC: TopicId = TopicId(0);
    const PUBLISHER: PublisherIndex = PublisherIndex(0);

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        ledger.add_topic("/t");
        ledger.add_publisher(TOPIC, Some(Gid([7; 16])));
        ledger
    }

    fn gap(first: u64, last: u64) -> Interval {
        Interval::of_sequences(LossStage::Transport, first, last, [None, None])
    }

    fn missing_sequences(ledger: &Ledger) -> Vec<u64> {
        let intervals = &ledger.topics[0].publishers[0].intervals;
        intervals
            .iter()
            .flat_map(|i| i.first_sequence.unwrap()..=i.last_sequence.unwrap())
            .collect()
    }

    #[test]
    fn neighbours_become_one_interval() {
        let mut ledger = ledger();
        for sequence in 5..1000 {
            let time = Timestamp::from_nanos(sequence as i64);
            ledger.miss(
                TOPIC,
                PUBLISHER,
                Interval::of_message(LossStage::Cache, Some(sequence), time),
            );
        }
        let intervals = &ledger.topics[0].publishers[0].intervals;
        assert_eq!(intervals.len(), 1);
        assert_eq!(
            (intervals[0].first_sequence, intervals[0].last_sequence),
            (Some(5), Some(999))
        );
        assert_eq!(ledger.lost(), 995);
    }

    #[test]
    fn intervals_are_bounded_and_their_count_stays_right() {
        let mut ledger = ledger();
        for sequence in 0..10_000 {
            ledger.miss(TOPIC, PUBLISHER, gap(sequence * 2, sequence * 2));
        }
        let account = &ledger.topics[0].publishers[0];
        assert!(account.intervals.len() <= INTERVALS_MAX);
        assert_eq!(account.missing_total(), 10_000);
        assert!(account.intervals.last().unwrap().merged);
    }

    #[test]
    fn json_text_reads_back_the_same() {
        let mut ledger = ledger();
        ledger.miss(TOPIC, PUBLISHER, gap(3, 9));
        ledger.record(TOPIC, PUBLISHER, 2, 200);
        assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger);
    }

    #[test]
    fn custom_data_is_empty_without_a_loss() {
        let mut ledger = ledger();
        ledger.miss(
            TOPIC,
            PUBLISHER,
            Interval {
                stage: LossStage::Policy,
                ..gap(1, 5)
            },
        );
        assert!(ledger.custom_data().is_empty());
        ledger.miss(TOPIC, PUBLISHER, gap(6, 7));
        assert_eq!(ledger.custom_data()["holdall.lost"], "2");
        assert_eq!(ledger.custom_data()["holdall.lost./t"], "transport=2");
    }

    #[test]
    fn an_account_that_does_not_add_up_is_named() {
        let mut ledger = ledger();
        ledger.publisher_mut(TOPIC, PUBLISHER).unwrap().sent = Some(10);
        ledger.record(TOPIC, PUBLISHER, 8, 0);
        assert_eq!(ledger.audit().len(), 1);
        ledger.miss(TOPIC, PUBLISHER, gap(4, 5));
        assert_eq!(ledger.audit(), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn late_messages_leave_exactly_the_others_missing(gaps in prop::collection::vec((1..4u64, 1..6u64), 1..20), late in prop::collection::vec(0..120u64, 0..60)) {
            let mut ledger = ledger();
            let mut model = std::collections::BTreeSet::new();
            let mut next = 0;
            for (skip, len) in gaps {
                next += skip;
                ledger.miss(TOPIC, PUBLISHER, gap(next, next + len - 1));
                model.extend(next..next + len);
                next += len;
            }
            for sequence in late {
                prop_assert_eq!(ledger.arrived_late(TOPIC, PUBLISHER, sequence), model.remove(&sequence));
                prop_assert_eq!(ledger.lost(), model.len() as u64);
            }
            prop_assert_eq!(missing_sequences(&ledger), model.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(ledger.topics[0].publishers[0].missing_total(), ledger.lost());
        }
    }
}
