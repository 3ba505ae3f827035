//! A run of messages that are not in the bag: how many, which, when, and where they were lost.

use crate::{loss::LossStage, time::Timestamp};
use serde::{Deserialize, Serialize};

/// A run of messages of one publisher that are not in the bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The stage that lost them.
    pub stage: LossStage,
    /// First sequence number, if known.
    pub first_sequence: Option<u64>,
    /// Last sequence number, if known.
    pub last_sequence: Option<u64>,
    /// Log time of the first one, or of the message before it.
    pub first_time: Option<Timestamp>,
    /// Log time of the last one, or of the message after it.
    pub last_time: Option<Timestamp>,
    /// When the message before the first one was published, by its publisher's clock, if known: messages that arrive in a burst have log times
    /// that say little of when the others were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_after: Option<Timestamp>,
    /// When the message after the last one was published, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_before: Option<Timestamp>,
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
            sent_after: None,
            sent_before: None,
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
            sent_after: None,
            sent_before: None,
            count: 1,
            merged: false,
        }
    }

    /// The same messages, sent between these times of publication.
    #[must_use]
    pub fn sent_between(self, [sent_after, sent_before]: [Option<Timestamp>; 2]) -> Self {
        Self {
            sent_after,
            sent_before,
            ..self
        }
    }

    /// From when to when they were sent or, where that is not known, missed; `None` at an end of which nothing is known.
    pub fn span(&self) -> [Option<Timestamp>; 2] {
        [
            self.sent_after.or(self.first_time),
            self.sent_before.or(self.last_time),
        ]
    }

    /// Whether the messages beside it show that all of it was before or after this span of log times.
    pub(super) fn is_outside(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> bool {
        let is_before = || self.last_time.zip(from).is_some_and(|(last, from)| last < from);
        let is_after = || {
            self.first_time
                .zip(until)
                .is_some_and(|(first, until)| first > until)
        };
        !self.merged && (is_before() || is_after())
    }

    /// Missing messages with unknown sequence numbers.
    pub fn of_unknown(stage: LossStage, count: u64) -> Self {
        Self {
            stage,
            first_sequence: None,
            last_sequence: None,
            first_time: None,
            last_time: None,
            sent_after: None,
            sent_before: None,
            count,
            merged: false,
        }
    }

    /// True when `next` continues where this one ends.
    pub(super) fn is_followed_by(&self, next: &Self) -> bool {
        self.stage == next.stage
            && match (self.last_sequence, next.first_sequence) {
                (Some(last), Some(first)) => last.checked_add(1) == Some(first),
                (None, None) => true,
                _ => false,
            }
    }

    pub(super) fn extend_to(&mut self, next: &Self) {
        self.last_sequence = next.last_sequence.max(self.last_sequence);
        self.first_sequence = match (self.first_sequence, next.first_sequence) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        self.last_time = next.last_time.or(self.last_time);
        self.sent_before = next.sent_before.or(self.sent_before);
        self.sent_after = self.sent_after.or(next.sent_after);
        self.first_time = self.first_time.or(next.first_time);
        self.count = self.count.saturating_add(next.count);
    }

    pub(super) fn contains(&self, sequence: u64) -> bool {
        matches!((self.first_sequence, self.last_sequence), (Some(first), Some(last)) if (first..=last).contains(&sequence))
    }
}
