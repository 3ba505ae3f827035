//! Sequence numbers: gaps, late messages, publishers that begin again, and announcements of publishers.

use super::{
    Intake,
    publishers::{PublisherTrack, Publishers},
};
use crate::receive::gate::Passage;
use holdall_model::{
    loss::{LossStage, Observation, gap_max},
    message::MessageHeader,
    time::Timestamp,
    topic::Gid,
};

/// Messages that a publisher can have announced since the last one that arrived, whenever that was.
pub(super) const ANNOUNCED_MAX: u64 = 10_000_000;

impl PublisherTrack {
    /// Follows the sequence of the messages of one publisher.
    #[inline]
    pub(super) fn follow(&mut self, bit: u64, sequence: u64, time: Timestamp) -> Observation {
        self.subscriptions |= bit;
        self.numbered = true;
        self.sequence
            .observe_within(sequence, || gap_max(self.last_time, time))
    }

    /// When it published the earliest of its messages that came. What comes after a silence may be of another life, and says nothing of this one.
    fn note_published(&mut self, observation: Observation, published: Option<Timestamp>) {
        match observation {
            Observation::First => self.first_published = published,
            Observation::Gap { .. } | Observation::Late | Observation::Early | Observation::Unclear
                if published.is_some() && !self.is_after_silence() =>
            {
                self.first_published = self.first_published.min(published);
            }
            _ => {}
        }
    }

    fn is_after_silence(&self) -> bool {
        self.came_back || self.silent_since.is_some()
    }

    /// Whether a number that has come before is the same message: several subscriptions bring it, or a publisher that was silent sends again what
    /// it keeps. What was published later than everything before it belongs to another life of the publisher; after a silence also what was
    /// published earlier, by a computer that has begun without a clock.
    fn repeats(&self, published: Option<Timestamp>) -> bool {
        let is_silent = self.is_after_silence();
        match published {
            Some(_) if is_silent => (self.first_published..=self.published_before).contains(&published),
            Some(_) => self.subscriptions.count_ones() > 1 && published <= self.published_before,
            // Rather stored twice than not at all.
            None => !is_silent && self.subscriptions.count_ones() > 1,
        }
    }
}

impl Publishers {
    /// Every case but the next message in order. Returns the track that the message belongs to, `None` for a duplicate.
    #[cold]
    pub(super) fn follow_exception(
        &mut self,
        index: usize,
        observation: Observation,
        sequence: u64,
        header: &MessageHeader,
        passage: Passage,
    ) -> Option<usize> {
        let (published, time) = (header.publish_time, header.log_time);
        let (track, accounts) = self.at(index);
        track.published_before = track.published_before.max(track.last_published);
        // One that comes before the first may not have been stored when the process dies; an unclear one is counted twice.
        match observation {
            Observation::First => accounts.begins_at(track, Some(sequence)),
            Observation::Gap { first, .. } if first > sequence => accounts.begins_at(track, None),
            Observation::Early | Observation::Unclear => accounts.begins_at(track, None),
            _ => {}
        }
        // While the recording is paused nothing is wanted, wherever it was lost.
        let stage = match passage {
            Passage::Shut => LossStage::Policy,
            Passage::Open => LossStage::Transport,
        };
        track.note_published(observation, published);
        match observation {
            Observation::First | Observation::InOrder => {}
            // Before the first one: the history that a second, stronger subscription brings.
            Observation::Gap { first, last } if first > sequence => {
                if !accounts.arrived_late(track, sequence) {
                    accounts.miss(track, stage, first, last, [Some(time), track.last_time]);
                }
            }
            Observation::Gap { first, last } => {
                accounts.miss_before(track, stage, [first, last], header);
            }
            Observation::Late | Observation::Early => drop(accounts.arrived_late(track, sequence)),
            // Rather stored twice than not at all.
            Observation::Unclear => {
                if !accounts.arrived_late(track, sequence) {
                    track.unclear += 1;
                }
            }
            Observation::Duplicate if track.repeats(published) => {
                track.duplicates += 1;
                return None;
            }
            // Two in a row: it does number from there.
            Observation::NotBelievable
                if track
                    .last_not_believed
                    .is_some_and(|last| last.checked_add(1) == Some(sequence)) =>
            {
                return Some(self.begin_again(index, sequence, published));
            }
            Observation::NotBelievable => {
                track.last_not_believed = Some(sequence);
                track.unclear += 1;
                accounts.not_believed(track, Some(time));
            }
            Observation::Duplicate => return Some(self.begin_again(index, sequence, published)),
        }
        if track.sequence.received_count() == 1 {
            accounts.count_head(track);
        }
        Some(index)
    }
}

impl Intake {
    pub(super) fn announce(&self, gid: Gid, last_sequence: u64) {
        let mut state = self.lock();
        state.publishers.of(gid).0.sequence.announced(last_sequence);
    }

    /// Applies what a subscription returns about announced sequences. Returns the publishers whose numbers cannot be believed, with the number
    /// that the next message of each has.
    #[must_use = "a subscription that was misled drops what is real"]
    pub fn announced_sequences(&self, sequences: &[(Gid, u64)]) -> Vec<(Gid, u64)> {
        let mut misled = Vec::new();
        for &(gid, last) in sequences {
            let mut state = self.lock();
            let (track, accounts) = state.publishers.of(gid);
            let next = track.sequence.next_expected();
            let is_counted = track
                .last_not_believed
                .is_some_and(|forged| (next..=last).contains(&forged));
            if !is_counted && !track.sequence.is_too_far(last, ANNOUNCED_MAX) {
                track.sequence.announced(last);
                continue;
            }
            if !is_counted {
                // Once, also where the subscription keeps announcing it.
                track.last_not_believed = Some(last);
                accounts.not_believed(track, None);
            }
            misled.push((gid, next));
        }
        misled
    }
}
