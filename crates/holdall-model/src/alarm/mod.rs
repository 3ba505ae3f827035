//! Alarms: states of a recording that a machine should hear of, each with its beginning and its end.

mod list;
mod topic;

pub use list::{AlarmList, AlarmStatus, AlarmSubject, AlarmWatchStatus};
pub use topic::WatchedTopic;

use crate::time::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// A watched topic sends nothing.
    Silent,
    /// A watched topic sends less than its bound.
    Rate,
    /// Messages are lost.
    Loss,
    /// The disk is full soon, or nothing can be written any more.
    Disk,
    /// Publishers went silent without a farewell: what they sent last is not known.
    EndUnknown,
    /// A rule of the contract is broken.
    Contract,
}

impl AlarmKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Silent,
        Self::Rate,
        Self::Loss,
        Self::Disk,
        Self::EndUnknown,
        Self::Contract,
    ];

    /// The name, as reports, metrics and commands have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Rate => "rate",
            Self::Loss => "loss",
            Self::Disk => "disk",
            Self::EndUnknown => "end_unknown",
            Self::Contract => "contract",
        }
    }
}

/// An alarm that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alarm {
    /// What it is about.
    pub kind: AlarmKind,
    /// Full name of its topic; `None` for an alarm about the whole recording.
    pub topic: Option<String>,
    /// One clause for people.
    pub text: String,
    /// When it began.
    #[serde(rename = "since_ns")]
    pub since: Timestamp,
    /// When it ended; `None` while it is active.
    #[serde(rename = "until_ns")]
    pub until: Option<Timestamp>,
}

impl Alarm {
    /// `begin`, or `end` once it is over.
    pub const fn state(&self) -> &'static str {
        match self.until {
            None => "begin",
            Some(_) => "end",
        }
    }
}

/// A condition that comes back within this many times its calm span flaps.
const FLAP_FACTOR: u32 = 10;

/// The longest calm span that a flapping condition needs.
const CALM_MAX: Duration = Duration::from_secs(300);

/// A change of an [`AlarmLatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmEdge {
    /// The alarm begins.
    Begin,
    /// The alarm ends.
    End,
}

/// Makes an alarm of a condition: it begins at once, and ends when the condition has not held for its calm span. That span doubles each time a
/// condition comes back soon, so that one that flaps stays a single alarm.
#[derive(Clone, Copy, Debug)]
pub struct AlarmLatch {
    /// The calm span of a condition that does not flap.
    calm_min: Duration,
    calm: Duration,
    /// When the condition held last, while the alarm is active.
    held: Option<Duration>,
    /// When the last alarm ended.
    ended: Option<Duration>,
}

impl AlarmLatch {
    /// No alarm.
    pub fn new(calm: Duration) -> Self {
        Self {
            calm_min: calm,
            calm,
            held: None,
            ended: None,
        }
    }

    /// Takes note of whether the condition holds at `now`, which is monotonic.
    pub fn note(&mut self, holds: bool, now: Duration) -> Option<AlarmEdge> {
        let Some(held) = self.held else {
            return holds.then(|| self.begin(now));
        };
        if holds {
            self.held = Some(now);
            return None;
        }
        (now.saturating_sub(held) >= self.calm).then(|| {
            (self.held, self.ended) = (None, Some(now));
            AlarmEdge::End
        })
    }

    fn begin(&mut self, now: Duration) -> AlarmEdge {
        let recently = |ended| now.saturating_sub(ended) < self.calm * FLAP_FACTOR;
        self.calm = if self.ended.is_some_and(recently) {
            (self.calm * 2).min(CALM_MAX).max(self.calm_min)
        } else {
            self.calm_min
        };
        self.held = Some(now);
        AlarmEdge::Begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_alarm_begins_at_once_and_ends_after_its_calm_span() {
        let mut latch = AlarmLatch::new(5 * SECOND);
        assert_eq!(latch.note(false, SECOND), None);
        assert_eq!(latch.note(true, 2 * SECOND), Some(AlarmEdge::Begin));
        assert_eq!(latch.note(true, 3 * SECOND), None);
        assert_eq!(latch.note(false, 7 * SECOND), None);
        assert_eq!(latch.note(false, 8 * SECOND), Some(AlarmEdge::End));
        assert_eq!(latch.note(false, 9 * SECOND), None);
        // Long after: its calm span is the first one again.
        assert_eq!(latch.note(true, 900 * SECOND), Some(AlarmEdge::Begin));
        assert_eq!(latch.note(false, 905 * SECOND), Some(AlarmEdge::End));
    }

    /// Alarms of a condition that holds for `on` and then does not for `off`, for two hours.
    fn alarms(on: u32, off: u32) -> usize {
        let mut latch = AlarmLatch::new(5 * SECOND);
        let begun =
            |second: &u32| latch.note(second % (on + off) < on, SECOND * *second) == Some(AlarmEdge::Begin);
        (0..7200).filter(begun).count()
    }

    #[test]
    fn a_condition_that_flaps_is_few_alarms() {
        assert_eq!(alarms(1, 4), 1, "shorter than the calm span");
        assert_eq!(alarms(10, 10), 3, "calm for 5 s, then 10 s, then never for 20 s");
        let most = (1..20)
            .flat_map(|on| (1..80).map(move |off| alarms(on, off)))
            .max();
        assert!(
            most.unwrap() <= 7200 / 55 + 1,
            "{most:?}: one that comes back more slowly does not flap"
        );
    }

    proptest! {
        #[test]
        fn beginnings_and_ends_alternate(held in prop::collection::vec((any::<bool>(), 0_u64..20), 0..200)) {
            let (mut latch, mut now, mut last) = (AlarmLatch::new(5 * SECOND), Duration::ZERO, AlarmEdge::End);
            for (holds, span) in held {
                now += SECOND * u32::try_from(span).unwrap();
                if let Some(edge) = latch.note(holds, now) {
                    prop_assert_ne!(edge, last);
                    prop_assert_eq!(holds, edge == AlarmEdge::Begin);
                    last = edge;
                }
            }
        }
    }
}
