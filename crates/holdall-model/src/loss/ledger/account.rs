//! The accounts of one topic: what each publisher sent, what of it is in the bag, what is missing.

use super::{INTERVALS_MAX, Interval, places::FoldedPlaces};
use crate::{
    loss::{LossStage, total},
    topic::PublisherInfo,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is known about one publisher's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherAccount {
    /// Its identifier in hexadecimal digits; `None` for messages whose transport does not name the publisher.
    pub gid: Option<String>,
    /// Its node, where discovery named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The computer that it runs on, where discovery named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Short name of the transport that discovered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The type of its messages, where that is another one than its topic's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Messages that it is known to have sent while they were wanted: arrived, skipped, or announced. `None` without sequence
    /// numbers, and until the recording is closed.
    pub sent: Option<u64>,
    /// Messages that arrived, duplicates left out; counted on arrival, while `recorded` is counted after the
    /// storage file. `None` until the recording is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// First and last sequence number that the account covers; `None` without sequence numbers, and until the recording is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<[u64; 2]>,
    /// Messages that it had sent before the recording, as far as its sequence numbers show; no loss.
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

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PublisherAccount {
    /// Its identity, as a bag distinguishes publishers; `None` when its transport does not name it.
    pub fn info(&self) -> Option<PublisherInfo> {
        Some(PublisherInfo {
            gid: self.gid.clone()?,
            node: self.node.clone(),
            host: self.host.clone(),
            transport: self.transport.clone(),
        })
    }

    /// Missing messages of one stage.
    pub fn missing(&self, stage: LossStage) -> u64 {
        total(
            self.intervals
                .iter()
                .filter(|i| i.stage == stage)
                .map(|i| &i.count),
        )
    }

    /// Missing messages of all stages, those left out on request included.
    pub fn missing_total(&self) -> u64 {
        total(self.intervals.iter().map(|interval| &interval.count))
    }

    /// Messages that must be recorded or missing: all that it sent, or all that arrived where it is not known how many it sent.
    /// `None` until the recording is closed.
    pub fn expected(&self) -> Option<u64> {
        self.sent.or(self.received)
    }

    /// True when every message known to be sent, or to have arrived, is recorded or missing.
    pub fn is_balanced(&self) -> bool {
        self.expected()
            .is_none_or(|expected| expected == self.recorded.saturating_add(self.missing_total()))
    }

    /// True when the account is closed and adds up, and so nothing is in flight.
    pub(super) fn is_settled(&self) -> bool {
        self.expected().is_some() && self.is_balanced()
    }

    /// The sequence numbers of its messages in the bag: all that are covered except those that are missing.
    /// `None` where they are not known, because intervals were merged or only the number is known.
    pub fn recorded_ranges(&self) -> Option<Vec<[u64; 2]>> {
        let [mut next, last] = self.covered?;
        let mut missing = Vec::with_capacity(self.intervals.len());
        for interval in &self.intervals {
            missing.push((interval.first_sequence?, interval.last_sequence?));
            if interval.merged {
                return None;
            }
        }
        missing.sort_unstable();
        let mut ranges = Vec::new();
        for (first_missing, last_missing) in missing {
            if next < first_missing {
                ranges.push([next, first_missing - 1]);
            }
            next = next.max(last_missing.checked_add(1)?);
        }
        if next <= last {
            ranges.push([next, last]);
        }
        Some(ranges)
    }

    pub(super) fn add(&mut self, interval: Interval) {
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

    /// Counts the first message that is missing at a stage as recorded.
    fn find_first(&mut self, stage: LossStage) {
        let Some(index) = self.intervals.iter().position(|interval| interval.stage == stage) else {
            return;
        };
        self.recorded += 1;
        let interval = &mut self.intervals[index];
        interval.count -= 1;
        if interval.count == 0 {
            self.intervals.remove(index);
        } else if !interval.merged {
            interval.first_sequence = interval.first_sequence.map(|first| first + 1);
        }
    }

    /// Takes a message out of the interval of one of these stages that counted it missing.
    pub(super) fn remove(&mut self, sequence: u64, stages: &[LossStage]) -> Option<LossStage> {
        let index = self
            .intervals
            .iter()
            .rposition(|interval| stages.contains(&interval.stage) && interval.contains(sequence))?;
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

/// Stages at which messages are counted as missing that may still arrive.
pub(super) const BEFORE_ARRIVAL: [LossStage; 4] = [
    LossStage::Head,
    LossStage::Transport,
    LossStage::Tail,
    LossStage::Policy,
];

/// Publishers that are gone and whose accounts added up, as one: so that a topic whose publishers come and go for ever takes bounded
/// memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoldedPublishers {
    /// How many they were.
    pub publishers: u64,
    /// Messages that they sent, or that arrived from those without sequence numbers.
    pub sent: u64,
    /// Messages that they had sent before the recording.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_before: u64,
    /// Messages of them that arrived.
    pub received: u64,
    /// Messages of them in the bag.
    pub recorded: u64,
    /// Messages of them that came twice.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// What is missing, by stage.
    pub missing: BTreeMap<LossStage, u64>,
}

impl FoldedPublishers {
    pub(super) fn add(&mut self, account: &PublisherAccount) {
        self.publishers += 1;
        for (sum, count) in [
            (&mut self.sent, account.expected().unwrap_or(0)),
            (&mut self.sent_before, account.sent_before),
            (&mut self.received, account.received.unwrap_or(0)),
            (&mut self.recorded, account.recorded),
            (&mut self.duplicates, account.duplicates),
        ] {
            *sum = sum.saturating_add(count);
        }
        for interval in &account.intervals {
            let sum = self.missing.entry(interval.stage).or_insert(0);
            *sum = sum.saturating_add(interval.count);
        }
    }

    /// Missing messages of all stages.
    pub fn missing_total(&self) -> u64 {
        total(self.missing.values())
    }

    /// Counts one that was lost at the storage as recorded; false when there is none.
    fn find_one(&mut self) -> bool {
        let Some(count) = self.missing.get_mut(&LossStage::Storage) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.missing.remove(&LossStage::Storage);
        }
        self.recorded += 1;
        true
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
    /// Messages of the recording that a tool left out on request when it made this bag out of others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Messages that a tool left out on request with their publishers, whose accounts are none of this bag's; not in `recorded`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_with_publisher: u64,
    /// Messages that a tool put in from bags without an account, of which nothing else is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unaccounted: u64,
    /// Missing messages by stage; stages without any are absent. `policy` is what was left out on request and no loss.
    pub missing: BTreeMap<LossStage, u64>,
    /// True when the transport gives no sequence numbers, so that its losses cannot be known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loss_unknown: bool,
    /// By publisher.
    pub publishers: Vec<PublisherAccount>,
    /// Publishers that are gone, where there were many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<FoldedPublishers>,
    /// Places among the publishers that were folded.
    #[serde(skip)]
    pub(super) places: FoldedPlaces,
}

impl TopicAccount {
    /// Messages that are in the bag now: recorded, and not removed or left out since, with those that came from elsewhere.
    pub fn in_bag(&self) -> u64 {
        let put_in = self.recorded.saturating_add(self.unaccounted);
        put_in.saturating_sub(self.removed).saturating_sub(self.left_out)
    }

    /// Messages left out on request: by the recording, and by tools since.
    pub fn left_out_in_all(&self) -> u64 {
        let by_recording = self.missing.get(&LossStage::Policy).copied().unwrap_or(0);
        by_recording + self.left_out_by_tools()
    }

    /// Messages that tools left out on request.
    pub const fn left_out_by_tools(&self) -> u64 {
        self.left_out.saturating_add(self.left_out_with_publisher)
    }

    /// Adds a publisher and returns its place: that of a folded one, or a new one.
    pub(super) fn open(&mut self, publisher: PublisherAccount) -> usize {
        if let Some(place) = self.places.take() {
            self.publishers[place] = publisher;
            return place;
        }
        self.publishers.push(publisher);
        self.publishers.len() - 1
    }

    /// Adds a settled account to the sum of those that are gone.
    pub(super) fn fold(&mut self, place: usize) -> bool {
        let Some(publisher) = self.publishers.get_mut(place) else {
            return false;
        };
        if !publisher.is_settled() {
            return false;
        }
        self.folded.get_or_insert_default().add(publisher);
        let has_messages = publisher.recorded > 0 || publisher.missing(LossStage::Storage) > 0;
        *publisher = PublisherAccount::default();
        self.places.add(place, has_messages);
        true
    }

    /// Takes back that messages of the publisher at this place were recorded.
    pub(super) fn take_back_of(&mut self, place: usize, interval: Interval) {
        if self.places.contains(place) {
            if let Some(folded) = &mut self.folded {
                folded.recorded = folded.recorded.saturating_sub(interval.count);
                let sum = folded.missing.entry(interval.stage).or_insert(0);
                *sum = sum.saturating_add(interval.count);
            }
        } else if let Some(known) = self.publishers.get_mut(place) {
            known.recorded = known.recorded.saturating_sub(interval.count);
            known.add(interval);
        } else {
            return;
        }
        self.forget_bytes(interval.count);
        self.recorded = self.recorded.saturating_sub(interval.count);
        let sum = self.missing.entry(interval.stage).or_insert(0);
        *sum = sum.saturating_add(interval.count);
    }

    /// Takes the bytes of so many messages from what was recorded: how long each was is not known any more, so they count as long as the
    /// average one.
    fn forget_bytes(&mut self, count: u64) {
        let bytes = u128::from(self.recorded_bytes) * u128::from(count.min(self.recorded));
        // At most what was recorded.
        self.recorded_bytes -= (bytes / u128::from(self.recorded.max(1))) as u64;
    }

    /// Takes back that a message of the publisher at this place was lost at the storage.
    pub(super) fn found_of(&mut self, place: usize, sequence: u64) {
        let found = if self.places.contains(place) {
            self.folded.as_mut().is_some_and(FoldedPublishers::find_one)
        } else {
            self.publishers.get_mut(place).is_some_and(|known| {
                let found = known.remove(sequence, &[LossStage::Storage]).is_some();
                known.recorded += u64::from(found);
                found
            })
        };
        if found {
            self.add_average();
            self.miss_one_less(LossStage::Storage);
        }
    }

    /// Counts one more message as recorded, as long as the average one.
    fn add_average(&mut self) {
        self.recorded_bytes += self.recorded_bytes / self.recorded.max(1);
        self.recorded += 1;
    }

    /// Takes back that so many messages were recorded, the last ones of any publisher.
    pub(super) fn take_back(&mut self, count: u64) {
        let mut left = count.min(self.recorded);
        if left == 0 {
            return;
        }
        self.forget_bytes(left);
        self.recorded -= left;
        *self.missing.entry(LossStage::Storage).or_insert(0) += left;
        for publisher in self.publishers.iter_mut().rev() {
            let count = left.min(publisher.recorded);
            if count > 0 {
                publisher.recorded -= count;
                publisher.add(Interval::of_unknown(LossStage::Storage, count));
                left -= count;
            }
        }
        if let Some(folded) = &mut self.folded
            && left > 0
        {
            folded.recorded -= left.min(folded.recorded);
            *folded.missing.entry(LossStage::Storage).or_insert(0) += left;
        }
    }

    /// Takes back that one message was lost at the storage: the first one.
    pub(super) fn found_one(&mut self) {
        let first_of = |publisher: &PublisherAccount| {
            let lost = |interval: &&Interval| interval.stage == LossStage::Storage;
            let interval = publisher.intervals.iter().find(lost)?;
            Some((interval.first_time, interval.first_sequence))
        };
        let earliest = self
            .publishers
            .iter_mut()
            .filter(|publisher| first_of(publisher).is_some())
            .min_by_key(|publisher| first_of(publisher));
        let found = match earliest {
            Some(publisher) => {
                publisher.find_first(LossStage::Storage);
                true
            }
            None => self.folded.as_mut().is_some_and(FoldedPublishers::find_one),
        };
        if found {
            self.add_average();
            self.miss_one_less(LossStage::Storage);
        }
    }

    pub(super) fn miss_one_less(&mut self, stage: LossStage) {
        if let Some(count) = self.missing.get_mut(&stage) {
            *count -= 1;
            if *count == 0 {
                self.missing.remove(&stage);
            }
        }
    }

    /// The account without the places that no publisher has.
    pub(super) fn compacted(&self) -> Self {
        let mut copy = self.clone();
        let mut place = 0;
        copy.publishers.retain(|_| {
            place += 1;
            !self.places.contains(place - 1)
        });
        copy.places = FoldedPlaces::default();
        copy
    }

    /// The sums only.
    pub(super) fn without_publishers(&self) -> Self {
        Self {
            name: self.name.clone(),
            missing: self.missing.clone(),
            publishers: Vec::new(),
            folded: None,
            places: FoldedPlaces::default(),
            ..*self
        }
    }

    /// What does not add up, one sentence each.
    pub(super) fn audit(&self) -> Vec<String> {
        let mut faults: Vec<String> = self
            .publishers
            .iter()
            .filter(|publisher| !publisher.is_balanced())
            .map(|publisher| {
                format!(
                    "{}: publisher {} {} {}, but {} recorded and {} missing are accounted for",
                    self.name,
                    publisher.gid.as_deref().unwrap_or("unknown"),
                    if publisher.sent.is_some() {
                        "sent"
                    } else {
                        "was heard"
                    },
                    publisher.expected().unwrap_or(0),
                    publisher.recorded,
                    publisher.missing_total(),
                )
            })
            .collect();
        let by_stage = total(self.missing.values());
        let (recorded, missing) = (self.recorded_by_publishers(), self.missing_by_publishers());
        // A checkpoint of sums only has no publishers to compare with.
        if self.publishers.is_empty() && self.folded.is_none() {
            return faults;
        }
        if missing != by_stage {
            faults.push(format!(
                "{}: {by_stage} missing by stage, {missing} by publisher",
                self.name
            ));
        }
        if recorded != self.recorded {
            faults.push(format!(
                "{}: {} recorded by topic, {recorded} by publisher",
                self.name, self.recorded
            ));
        }
        faults
    }

    /// Missing messages by publisher, summed up.
    pub(super) fn missing_by_publishers(&self) -> u64 {
        let folded = self.folded.as_ref().map_or(0, FoldedPublishers::missing_total);
        let live: Vec<u64> = self
            .publishers
            .iter()
            .map(PublisherAccount::missing_total)
            .collect();
        folded.saturating_add(total(&live))
    }

    /// Recorded messages by publisher, summed up.
    pub(super) fn recorded_by_publishers(&self) -> u64 {
        let folded = self.folded.as_ref().map_or(0, |folded| folded.recorded);
        let live = total(self.publishers.iter().map(|publisher| &publisher.recorded));
        folded.saturating_add(live)
    }

    /// Lost messages, without those left out on request.
    pub fn lost(&self) -> u64 {
        let lost = self
            .missing
            .iter()
            .filter(|(stage, _)| **stage != LossStage::Policy);
        total(lost.map(|(_, count)| count))
    }
}
