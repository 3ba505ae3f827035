//! The loss ledger: for each topic and publisher the recorded and the missing messages, and whether they add up.

mod account;
mod folded;
mod interval;
mod log;
mod missing_files;
mod places;
mod publisher;
mod rescued;

pub use account::TopicAccount;
pub use folded::FoldedPublishers;
pub use interval::Interval;
pub use log::{AccountChange, AccountLog};
pub use missing_files::MissingFile;
pub use publisher::PublisherAccount;
pub use rescued::{AFTER_ARRIVAL, Loss};

use crate::{
    loss::{LossStage, LossSums, UnknownEnds, total},
    time::Timestamp,
    topic::{Gid, PublisherInfo, TopicId},
};
use log::Log;
use publisher::BEFORE_ARRIVAL;
pub(super) use publisher::is_zero;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Name of the MCAP metadata record (or table row) that carries the ledger in a bag.
pub const LEDGER_RECORD: &str = "holdall:loss";

/// Name of the records that carry the ledger during the recording: its sums now and then within a file, all
/// of it at the end of each file but the last.
pub const CHECKPOINT_RECORD: &str = "holdall:loss_checkpoint";

/// Key of the ledger's JSON text in these records.
pub const LEDGER_KEY: &str = "ledger";

/// Key in `custom_data` of `metadata.yaml` that carries the sums as JSON, if the last storage file could not be ended.
pub const LEDGER_CUSTOM_KEY: &str = "holdall.ledger";

/// Intervals kept per publisher; more are merged into the last one of their stage, whose count stays right.
const INTERVALS_MAX: usize = 1024;

/// Restarts kept one by one; of further ones only the number is kept.
const RESTARTS_MAX: usize = 256;

/// Dense index of a publisher within its topic; the topic's intake hands it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherIndex(pub u32);

/// All topics' accounts. A bag carries its JSON form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Version of this form.
    pub version: u32,
    /// In the order of subscription, indexed by [`TopicId`].
    pub topics: Vec<TopicAccount>,
    /// When the ledger was written, if before the end of the recording: it does not include later messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Timestamp>,
    /// Times at which the storage file made no progress and the recording continued in a new one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<Restart>,
    /// How many more there were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_left_out: u64,
    /// Storage files that are gone, or have lost messages since: found by a tool after the recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_files: Vec<MissingFile>,
    /// Places whose publisher was folded: the next publisher there is another one.
    #[serde(skip)]
    vacated: Vec<(TopicId, PublisherIndex)>,
    /// Some publisher was folded.
    #[serde(skip)]
    has_folded: bool,
    /// The log of changes.
    #[serde(skip)]
    log: Log,
}

/// A new storage file that was begun because the old one made no progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// When.
    pub time: Timestamp,
    /// Why, in one sentence.
    pub reason: String,
}

impl Ledger {
    /// Version that is written.
    pub(crate) const VERSION: u32 = 1;

    /// An empty ledger.
    pub fn new() -> Self {
        Self {
            version: Self::VERSION,
            ..Self::default()
        }
    }

    /// An empty ledger that logs its changes to `log`, if given.
    pub fn logged(log: Option<Arc<dyn AccountLog>>) -> Self {
        Self {
            log: Log(log),
            ..Self::new()
        }
    }

    /// Notes that the recording continued in a new file.
    pub fn restarted(&mut self, restart: Restart) {
        if self.restarts.len() < RESTARTS_MAX {
            self.restarts.push(restart);
        } else {
            self.restarts_left_out += 1;
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

    /// Opens the account of a topic's next publisher; `None` for one without an identifier.
    pub fn add_publisher(&mut self, topic: TopicId, gid: Option<Gid>) -> PublisherIndex {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return PublisherIndex(0);
        };
        let publisher = PublisherAccount {
            gid: gid.map(|gid| gid.to_string()),
            ..PublisherAccount::default()
        };
        let index = account.open(publisher);
        let gid = account
            .publishers
            .get(index)
            .and_then(|publisher| publisher.gid.as_ref());
        // More publishers than 32 bits can count do not fit into memory.
        let publisher = index as u32;
        self.log.add(|| AccountChange::Publisher {
            topic,
            publisher,
            gid: gid.cloned(),
        });
        PublisherIndex(publisher)
    }

    /// Sets the description of a publisher by discovery. Known facts stay: a node that ends withdraws its
    /// name before its publishers go.
    pub fn describe_publisher(&mut self, topic: TopicId, publisher: PublisherIndex, who: PublisherInfo) {
        let Some(account) = self.publisher_mut(topic, publisher) else {
            return;
        };
        account.node = who.node.or(account.node.take());
        account.host = who.host.or(account.host.take());
        account.transport = who.transport.or(account.transport.take());
        let event = AccountChange::Who {
            topic,
            publisher: publisher.0,
            node: account.node.clone(),
            host: account.host.clone(),
            transport: account.transport.clone(),
        };
        self.log.add(|| event);
    }

    /// Sets that a publisher's messages have another type than its topic.
    pub fn set_publisher_type(&mut self, topic: TopicId, publisher: PublisherIndex, type_name: &str) {
        if let Some(account) = self.publisher_mut(topic, publisher) {
            account.type_name = Some(type_name.to_owned());
            self.log.add(|| AccountChange::PublisherType {
                topic,
                publisher: publisher.0,
                type_name: type_name.to_owned(),
            });
        }
    }

    /// Folds the closed account of a publisher that is gone into its topic's sum, so that its place can be
    /// taken by another; false while messages of it are still in flight.
    pub fn fold(&mut self, topic: TopicId, publisher: PublisherIndex) -> bool {
        let account = self.topics.get_mut(topic.0 as usize);
        let is_folded = account.is_some_and(|account| account.fold(publisher.0 as usize));
        if is_folded {
            self.vacated.push((topic, publisher));
            self.has_folded = true;
        }
        is_folded
    }

    /// Places that were vacated since the last call, for a caller that tracks which publisher has which
    /// place.
    pub fn take_vacated(&mut self) -> Vec<(TopicId, PublisherIndex)> {
        std::mem::take(&mut self.vacated)
    }

    /// Call this when messages recorded before the previous call can no longer be taken back: other
    /// publishers may then take the places of those folded before it.
    pub fn release_places(&mut self) {
        if self.has_folded {
            self.topics.iter_mut().for_each(|topic| topic.places.turn());
        }
    }

    /// One publisher's account.
    pub fn publisher(&self, topic: TopicId, publisher: PublisherIndex) -> Option<&PublisherAccount> {
        let publishers = &self.topics.get(topic.0 as usize)?.publishers;
        publishers.get(publisher.0 as usize)
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

    /// Notes that a topic's transport gives no sequence numbers.
    pub fn set_loss_unknown(&mut self, topic: TopicId) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.loss_unknown = true;
            self.log.add(|| AccountChange::LossUnknown { topic });
        }
    }

    /// Logs the lowest sequence number that has come from a publisher; `None` once it cannot be known which numbers its account covers.
    pub fn begins_at(&self, topic: TopicId, publisher: PublisherIndex, sequence: Option<u64>) {
        self.log.add(|| AccountChange::First {
            topic,
            publisher: publisher.0,
            sequence,
        });
    }

    /// Notes that a publisher went silent without a farewell, and when it gave its last sign of life; `None` when it is back.
    pub fn set_silent(&mut self, topic: TopicId, publisher: PublisherIndex, since: Option<Timestamp>) {
        let Some(account) = self.publisher_mut(topic, publisher) else {
            return;
        };
        if account.silent_since == since {
            return;
        }
        account.silent_since = since;
        account.end_unknown = since.is_some();
        self.log.add(|| AccountChange::Silent {
            topic,
            publisher: publisher.0,
            since,
        });
    }

    /// Counts messages as missing.
    pub fn miss(&mut self, topic: TopicId, publisher: PublisherIndex, interval: Interval) {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return;
        };
        let missing = account.missing.entry(interval.stage).or_insert(0);
        *missing = missing.saturating_add(interval.count);
        self.log.add(|| AccountChange::Miss {
            topic,
            publisher: publisher.0,
            interval,
        });
        if let Some(publisher) = account.publishers.get_mut(publisher.0 as usize) {
            publisher.add(interval);
        }
    }

    /// Takes back that a message was counted as missing before it arrived; false when it was not.
    pub fn arrived_late(&mut self, topic: TopicId, publisher: PublisherIndex, sequence: u64) -> bool {
        self.wanted_instead(topic, publisher, sequence, &BEFORE_ARRIVAL)
    }

    /// Takes back that a message was left out on request, because it is recorded after all; false if it was not.
    pub fn wanted_after_all(&mut self, topic: TopicId, publisher: PublisherIndex, sequence: u64) -> bool {
        self.wanted_instead(topic, publisher, sequence, &[LossStage::Policy])
    }

    /// Whether a message was left out on request.
    pub fn is_left_out(&self, topic: TopicId, publisher: PublisherIndex, sequence: u64) -> bool {
        let account = self.topics.get(topic.0 as usize);
        let publisher = account.and_then(|account| account.publishers.get(publisher.0 as usize));
        publisher.is_some_and(|known| {
            let mut left_out = known.intervals.iter().filter(|at| at.stage == LossStage::Policy);
            left_out.any(|interval| interval.contains(sequence))
        })
    }

    fn wanted_instead(
        &mut self,
        topic: TopicId,
        publisher: PublisherIndex,
        sequence: u64,
        stages: &[LossStage],
    ) -> bool {
        let Some(account) = self.topics.get_mut(topic.0 as usize) else {
            return false;
        };
        let Some(known) = account.publishers.get_mut(publisher.0 as usize) else {
            return false;
        };
        let Some(stage) = known.remove(sequence, stages) else {
            return false;
        };
        self.log.add(|| AccountChange::Late {
            topic,
            publisher: publisher.0,
            sequence,
        });
        account.miss_one_less(stage);
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

    /// Counts messages as no longer in the bag, because the ring of files removed them.
    pub fn expire(&mut self, topic: TopicId, count: u64) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.expired += count;
            self.log.add(|| AccountChange::Expired { topic, count });
        }
    }

    /// The account of a part of the bag by log time: what was lost before or after it counts as left out on request.
    /// Losses whose times are not known stay.
    pub fn narrow_to(&mut self, from: Option<Timestamp>, until: Option<Timestamp>) {
        for topic in &mut self.topics {
            topic.narrow_to(from, until);
        }
    }

    /// Takes back `count` recorded messages of a topic: others deleted their file. Which messages they were is not known.
    pub fn lose_recorded(&mut self, topic: TopicId, count: u64) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.take_back(count);
        }
    }

    /// Takes back that a message was recorded: the disk failed after it.
    pub fn take_back(&mut self, topic: TopicId, publisher: PublisherIndex, interval: Interval) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.take_back_of(publisher.0 as usize, interval);
        }
    }

    /// Takes back that a message was lost at the storage: it is whole in the file.
    pub fn found_after_all(&mut self, topic: TopicId, publisher: PublisherIndex, sequence: u64) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.found_of(publisher.0 as usize, sequence);
        }
    }

    /// Corrects a topic to `in_bag` messages in the bag after the disk has failed, when it is not known
    /// which ones they are: the surplus or missing ones count as the last ones, and publishers are
    /// distinguished by number only.
    pub fn found(&mut self, topic: TopicId, in_bag: u64) {
        if let Some(account) = self.topics.get_mut(topic.0 as usize) {
            account.take_back(account.in_bag().saturating_sub(in_bag));
            for _ in account.in_bag()..in_bag {
                account.found_one();
            }
        }
    }

    /// Messages that were recorded.
    pub fn recorded(&self) -> u64 {
        total(self.topics.iter().map(|topic| &topic.recorded))
    }

    /// Lost messages of all topics, without those left out on request.
    pub fn lost(&self) -> u64 {
        let lost = self.topics.iter().map(TopicAccount::lost);
        lost.fold(0, u64::saturating_add)
    }

    /// Publishers of all topics whose end is not known.
    pub fn unknown_ends(&self) -> UnknownEnds {
        UnknownEnds::of_all(self.topics.iter().map(TopicAccount::unknown_ends))
    }

    /// The accounts that do not add up, one sentence each; empty when every message known to be sent or to have arrived is accounted
    /// for. Complete once the recording is closed.
    pub fn audit(&self) -> Vec<String> {
        self.topics.iter().flat_map(TopicAccount::audit).collect()
    }

    /// Compares with the messages that the storage files count themselves, `in_files` by topic in the ledger's order; one sentence for
    /// each topic where that is another number.
    pub fn audit_files(&self, in_files: &[u64]) -> Vec<String> {
        let count = |index: usize| in_files.get(index).copied().unwrap_or(0);
        let topics = self.topics.iter().enumerate();
        topics
            .filter(|(index, topic)| topic.in_bag() != count(*index))
            .map(|(index, topic)| {
                format!(
                    "{}: {} were written into the bag by the recorder's count, {} by the files'",
                    topic.name,
                    topic.in_bag(),
                    count(index)
                )
            })
            .collect()
    }

    /// A copy of the ledger so far, for a bag whose recording continues. `with_intervals` keeps which
    /// messages are missing, not only how many.
    pub fn checkpoint(&self, now: Timestamp, with_intervals: bool) -> Self {
        let mut copy = if with_intervals { self.clone() } else { self.sums() };
        copy.checkpoint = Some(now);
        copy
    }

    /// The sums by topic, without publishers.
    pub fn sums(&self) -> Self {
        Self {
            topics: self.topics.iter().map(TopicAccount::without_publishers).collect(),
            restarts: self.restarts.clone(),
            restarts_left_out: self.restarts_left_out,
            missing_files: self.missing_files.clone(),
            ..Self::new()
        }
    }

    /// The text that a bag carries.
    pub fn to_json(&self) -> String {
        let topics = self.topics.iter().map(TopicAccount::compacted).collect();
        let compact = Self {
            version: self.version,
            topics,
            checkpoint: self.checkpoint,
            restarts: self.restarts.clone(),
            restarts_left_out: self.restarts_left_out,
            missing_files: self.missing_files.clone(),
            vacated: Vec::new(),
            has_folded: false,
            log: Log::default(),
        };
        // Only maps with text keys, numbers and strings, which JSON can hold.
        serde_json::to_string(&compact).unwrap_or_default()
    }

    /// Reads the text that a bag carries.
    ///
    /// # Errors
    /// When it is not a ledger.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The entries for `custom_data` of `metadata.yaml`: none unless something was lost, or a publisher went silent. The sum is that of
    /// lost messages.
    pub fn custom_data(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::new();
        if self.lost() > 0 {
            let sums = LossSums::of_all(self.topics.iter().map(|topic| &topic.missing));
            entries.insert("holdall.lost".to_owned(), sums.lost.to_string());
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
        let silent = self
            .topics
            .iter()
            .map(|topic| (topic, topic.unknown_ends().silent));
        let silent: Vec<_> = silent.filter(|(_, silent)| *silent > 0).collect();
        if !silent.is_empty() {
            let all = total(silent.iter().map(|(_, count)| count));
            entries.insert("holdall.end_unknown".to_owned(), all.to_string());
            for (topic, count) in silent {
                entries.insert(format!("holdall.end_unknown.{}", topic.name), count.to_string());
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests;
