//! The accounts of one topic's publishers in the ledger, as the intake keeps them.

use super::{publishers::PublisherTrack, sequences::ANNOUNCED_MAX};
use crate::receive::gate::Gate;
use holdall_io::mutex::lock;
use holdall_model::{
    loss::{
        LossStage,
        ledger::{Interval, Ledger, PublisherIndex},
    },
    message::MessageHeader,
    time::Timestamp,
    topic::TopicId,
};
use std::sync::{Arc, Mutex, MutexGuard};

/// The topic's part of the ledger.
pub(super) struct Accounts {
    pub topic: TopicId,
    pub ledger: Arc<Mutex<Ledger>>,
    pub gate: Arc<Gate>,
}

impl Accounts {
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Counts what is missing of a publisher.
    pub fn add(&self, publisher: PublisherIndex, interval: Interval) {
        self.lock().miss(self.topic, publisher, interval);
    }

    /// Counts the messages from number `first` to `last` as missing.
    pub fn miss(
        &self,
        track: &PublisherTrack,
        stage: LossStage,
        first: u64,
        last: u64,
        times: [Option<Timestamp>; 2],
    ) {
        self.add(track.index, Interval::of_sequences(stage, first, last, times));
    }

    /// Counts the messages from number `first` to `last` as missing between the last message of a publisher and this one.
    pub fn miss_before(
        &self,
        track: &PublisherTrack,
        stage: LossStage,
        [first, last]: [u64; 2],
        next: &MessageHeader,
    ) {
        let interval = Interval::of_sequences(stage, first, last, [track.last_time, Some(next.log_time)]);
        self.add(
            track.index,
            interval.sent_between([track.last_published, next.publish_time]),
        );
    }

    fn unless_paused(&self, stage: LossStage) -> LossStage {
        if self.gate.is_paused() {
            LossStage::Policy
        } else {
            stage
        }
    }

    /// Logs where a publisher's numbers begin, for the account of a recorder that is killed.
    pub fn begins_at(&self, track: &PublisherTrack, sequence: Option<u64>) {
        self.lock().begins_at(self.topic, track.index, sequence);
    }

    #[cold]
    pub fn set_loss_unknown(&self) {
        self.lock().set_loss_unknown(self.topic);
    }

    pub fn set_type(&self, publisher: PublisherIndex, type_name: &str) {
        self.lock().set_publisher_type(self.topic, publisher, type_name);
    }

    pub fn arrived_late(&self, track: &PublisherTrack, sequence: u64) -> bool {
        self.lock().arrived_late(self.topic, track.index, sequence)
    }

    /// Counts the messages that a publisher that appeared while recording had sent before its first message arrived.
    pub fn count_head(&self, track: &PublisherTrack) {
        if let Some(head) = track.wanted_head() {
            let stage = self.unless_paused(LossStage::Head);
            self.miss(track, stage, head.first, head.last, [None, track.last_time]);
        }
    }

    /// Counts a claim that cannot be believed. The account then covers no numbers, as one of the messages may be another's.
    pub fn not_believed(&self, track: &mut PublisherTrack, time: Option<Timestamp>) {
        track.not_believable += 1;
        track.numbered = true;
        let mut interval = Interval::of_unknown(LossStage::NotBelievable, 1);
        (interval.first_time, interval.last_time) = (time, time);
        self.add(track.index, interval);
    }

    pub fn set_silent(&self, track: &mut PublisherTrack, since: Timestamp) {
        track.silent_since = Some(since);
        let mut ledger = self.lock();
        ledger.set_silent(self.topic, track.index, Some(since));
        if let Some(account) = ledger.publisher_mut(self.topic, track.index) {
            account.reliable = track.is_reliable;
        }
    }

    /// Counts what was announced and never arrived as lost at the tail, and writes the sums.
    pub fn close(&self, track: &mut PublisherTrack) {
        if track.sequence.received_count() == 0 {
            self.count_head(track);
        }
        if track.sequence.announces_beyond(ANNOUNCED_MAX) {
            track.sequence.drop_announcements();
            self.not_believed(track, None);
        }
        if let Some(tail) = track.sequence.miss_tail() {
            track.numbered = true;
            let stage = self.unless_paused(LossStage::Tail);
            self.miss(track, stage, tail.first, tail.last, [track.last_time, None]);
        }
        self.write(track);
    }

    /// Writes the sums of a publisher into the ledger.
    pub fn write(&self, track: &PublisherTrack) {
        let head = track.sequence.head().map_or(0, |head| head.count);
        let wanted_head = track.wanted_head().map_or(0, |head| head.count);
        let arrived = track.sequence.received_count() + track.unclear;
        let sent = [track.sequence.missing_count(), wanted_head, track.not_believable];
        let sent = sent.into_iter().fold(arrived, u64::saturating_add);
        if let Some(account) = self.lock().publisher_mut(self.topic, track.index) {
            account.received = Some(track.received);
            account.covered = track.covered();
            // A publisher that has only announced its messages is known by that.
            account.sent = (track.numbered || sent > 0).then_some(sent);
            account.sent_before = head - wanted_head;
            account.duplicates = track.duplicates;
            track.write_end(account);
        }
    }
}
