//! The account of one publisher: how much it sent, how much of it is in the bag, and what is missing.

use super::{INTERVALS_MAX, Interval};
use crate::{
    loss::{LossStage, UnknownEnds, total},
    time::Timestamp,
    topic::PublisherInfo,
};
use serde::{Deserialize, Serialize};

/// The account of one publisher's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherAccount {
    /// Its identifier in hexadecimal digits; `None` for messages whose transport does not name the publisher.
    pub gid: Option<String>,
    /// Its node, if discovery named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The computer that it runs on, if discovery named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Short name of the transport that discovered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The type of its messages, if it differs from its topic's.
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
    /// Whether it may have sent more after the last message that arrived: no announcement, farewell or later message shows
    /// its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_unknown: bool,
    /// The last sign of life of a publisher that went silent: without a farewell, or without an answer at the end. Its end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// It was received reliably.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reliable: bool,
    /// Messages in the bag.
    pub recorded: u64,
    /// Messages that came once more over another subscription and were not stored again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Missing messages.
    pub intervals: Vec<Interval>,
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

    /// Whether its end is not known, as a sum of one.
    pub fn unknown_end(&self) -> UnknownEnds {
        if !self.end_unknown {
            return UnknownEnds::default();
        }
        let silent = self.silent_since.is_some();
        UnknownEnds {
            publishers: 1,
            silent: u64::from(silent),
            silent_reliable: u64::from(silent && self.reliable),
            silent_since: self.silent_since,
        }
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

    /// Messages that must be recorded or missing: all that it sent, or all that arrived if the number sent is unknown.
    /// `None` until the recording is closed.
    pub fn expected(&self) -> Option<u64> {
        self.sent.or(self.received)
    }

    /// True when every message known to be sent, or to have arrived, is recorded or missing.
    pub fn is_balanced(&self) -> bool {
        self.expected()
            .is_none_or(|expected| expected == self.recorded.saturating_add(self.missing_total()))
    }

    /// The covered sequence numbers, if their count differs from the recorded and missing ones. Claims that are not believable have no
    /// number.
    pub(super) fn covers_others(&self) -> Option<[u64; 2]> {
        let numbered =
            self.recorded.saturating_add(self.missing_total()) - self.missing(LossStage::NotBelievable);
        let is_same = |[first, last]: &[u64; 2]| {
            let more = numbered.checked_sub(1);
            more.is_some() && last.checked_sub(*first) == more
        };
        self.covered.filter(|covered| !is_same(covered))
    }

    /// True when the account is closed and adds up, and so nothing is in flight.
    pub(super) fn is_settled(&self) -> bool {
        self.expected().is_some() && self.is_balanced()
    }

    /// The sequence numbers of its messages in the bag: all that are covered except those that are missing.
    /// `None` if they are not known, because intervals were merged or only the number is known.
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
    pub(super) fn find_first(&mut self, stage: LossStage) {
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

// Serde calls it with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(in crate::loss) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Stages at which messages count as missing although they may still arrive.
pub(super) const BEFORE_ARRIVAL: [LossStage; 4] = [
    LossStage::Head,
    LossStage::Transport,
    LossStage::Tail,
    LossStage::Policy,
];
