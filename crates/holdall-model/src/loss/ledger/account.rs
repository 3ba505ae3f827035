//! The accounts of one topic: how much each publisher sent, how much of it is in the bag, and what is missing.

use super::{
    Interval,
    folded::FoldedPublishers,
    places::FoldedPlaces,
    publisher::{PublisherAccount, is_zero},
};
use crate::{
    loss::{LossStage, UnknownEnds, total},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One topic's part of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicAccount {
    /// Full ROS name.
    pub name: String,
    /// Messages in the bag.
    pub recorded: u64,
    /// Payload bytes in the bag.
    pub recorded_bytes: u64,
    /// Messages that were in the bag until the ring of files removed their file (`--ring`, `--max-bag-files`). Older bags call them
    /// `removed`.
    #[serde(default, alias = "removed", skip_serializing_if = "is_zero")]
    pub expired: u64,
    /// Messages of the recording that a tool left out on request when it made this bag out of others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Messages that a tool left out on request with their publishers, whose accounts do not belong to this bag; not in
    /// `recorded`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_with_publisher: u64,
    /// Messages that a tool added from bags without an account; nothing else is known about them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unaccounted: u64,
    /// Messages that the bag's files repeat at their beginnings: each is recorded once, and counted here for each copy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u64,
    /// Missing messages by stage; stages without any are absent. `policy` counts messages left out on request, which is
    /// not a loss.
    pub missing: BTreeMap<LossStage, u64>,
    /// True when the transport gives no sequence numbers, so that its losses cannot be known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loss_unknown: bool,
    /// Accounts by publisher.
    pub publishers: Vec<PublisherAccount>,
    /// Publishers that are gone, if there were many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<FoldedPublishers>,
    /// Ends that are not known of publishers that are not listed: folded, or where the account has sums only.
    #[serde(default, skip_serializing_if = "UnknownEnds::is_none")]
    pub unlisted_ends: UnknownEnds,
    /// Places among the publishers that were folded.
    #[serde(skip)]
    pub(super) places: FoldedPlaces,
}

impl TopicAccount {
    /// Messages that are in the bag now: recorded, and not expired or left out since, with those that came from elsewhere.
    pub fn in_bag(&self) -> u64 {
        let put_in = self.recorded.saturating_add(self.unaccounted);
        put_in.saturating_sub(self.expired).saturating_sub(self.left_out)
    }

    /// Publishers whose messages after the last one that arrived are not known.
    pub fn unknown_ends(&self) -> UnknownEnds {
        let listed = self.publishers.iter().map(PublisherAccount::unknown_end);
        UnknownEnds::of_all(listed.chain([self.unlisted_ends]))
    }

    /// How many these are.
    pub fn ends_unknown(&self) -> u64 {
        self.unknown_ends().publishers
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
        if self.publishers.is_empty() {
            // Most topics have one.
            self.publishers.reserve_exact(1);
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
        self.unlisted_ends.add(&publisher.unknown_end());
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

    /// Subtracts the bytes of `count` messages from the recorded ones. The length of each is no longer known, so they count with the
    /// average length.
    fn forget_bytes(&mut self, count: u64) {
        let bytes = u128::from(self.recorded_bytes) * u128::from(count.min(self.recorded));
        // At most the recorded bytes.
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

    /// Takes back `count` recorded messages, the last ones of any publisher.
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

    pub(super) fn narrow_to(&mut self, from: Option<Timestamp>, until: Option<Timestamp>) {
        let mut moved = 0;
        for interval in self
            .publishers
            .iter_mut()
            .flat_map(|publisher| &mut publisher.intervals)
        {
            if interval.stage != LossStage::Policy && interval.is_outside(from, until) {
                let missing = self.missing.entry(interval.stage).or_insert(0);
                *missing = missing.saturating_sub(interval.count);
                moved += interval.count;
                interval.stage = LossStage::Policy;
            }
        }
        if moved > 0 {
            *self.missing.entry(LossStage::Policy).or_insert(0) += moved;
        }
        self.missing.retain(|_, count| *count > 0);
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
            unlisted_ends: self.unknown_ends(),
            places: FoldedPlaces::default(),
            ..*self
        }
    }

    /// Sums that do not add up, one sentence each.
    pub(super) fn audit(&self) -> Vec<String> {
        let publishers = self.publishers.iter();
        let mut faults: Vec<String> = publishers.filter_map(|one| self.audit_of(one)).collect();
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

    /// A sum of one publisher that does not add up, in a sentence.
    fn audit_of(&self, publisher: &PublisherAccount) -> Option<String> {
        let knows = match (publisher.is_balanced(), publisher.covers_others()) {
            (false, _) if publisher.sent.is_some() => format!("sent {}", publisher.sent.unwrap_or(0)),
            (false, _) => format!("was heard {}", publisher.received.unwrap_or(0)),
            (true, Some([first, last])) => format!("has the sequence numbers {first} to {last}"),
            (true, None) => return None,
        };
        Some(format!(
            "{}: publisher {} {knows}, but {} recorded and {} missing are accounted for",
            self.name,
            publisher.gid.as_deref().unwrap_or("unknown"),
            publisher.recorded,
            publisher.missing_total(),
        ))
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
