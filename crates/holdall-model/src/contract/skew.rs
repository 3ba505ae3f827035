//! The skew between two topics: the time from each `header.stamp` of the first to the nearest one of the second.

use super::{meter::Meter, parse::Rule};
use crate::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// Stamps that wait for their partner.
const WAITING_MAX: usize = 1024;

/// A rule about the skew of two topics.
#[derive(Debug)]
pub(super) struct Skew {
    pub topics: [String; 2],
    max: i64,
    /// Stamps of the first topic with their log times.
    waiting: VecDeque<(i64, Timestamp)>,
    /// The last stamps of the second, in order.
    others: VecDeque<i64>,
    pub meter: Meter,
}

impl Skew {
    pub fn new(rule: &Rule, meter: Meter) -> Self {
        let names = rule.names("topics");
        Self {
            topics: [names[0].clone(), names[1].clone()],
            max: rule
                .span("max")
                .unwrap_or(Duration::MAX)
                .as_nanos()
                .try_into()
                .unwrap_or(i64::MAX),
            waiting: VecDeque::new(),
            others: VecDeque::new(),
            meter,
        }
    }

    /// Takes a message's stamp.
    pub fn message(&mut self, topic: &str, time: Timestamp, stamp: i64) {
        self.time(time);
        if topic == self.topics[0] {
            self.waiting.push_back((stamp, time));
            if self.waiting.len() > WAITING_MAX {
                self.judge_first();
            }
        }
        if topic == self.topics[1] {
            self.others.push_back(stamp);
            if self.others.len() > WAITING_MAX {
                self.others.pop_front();
            }
            while self.waiting.front().is_some_and(|(first, _)| *first <= stamp) {
                self.judge_first();
            }
        }
    }

    /// A stamp whose partner did not come within twice the bound, one second at least, has none.
    pub fn time(&mut self, now: Timestamp) {
        let patience =
            Duration::from_nanos(self.max.unsigned_abs().saturating_mul(2)).max(Duration::from_secs(1));
        while self
            .waiting
            .front()
            .is_some_and(|(_, time)| time.saturating_add(patience) < now)
        {
            self.judge_first();
        }
    }

    /// Forgets the stamps until now, of which some are unknown.
    pub fn interrupt(&mut self, reason: &str) {
        self.waiting.clear();
        self.others.clear();
        self.meter.leave_out(reason);
    }

    /// Judges what waits at the end.
    pub fn end(&mut self, now: Timestamp) {
        // The last ones may have lost their partner by the end itself.
        let patience = Duration::from_nanos(self.max.unsigned_abs());
        while let Some((_, time)) = self.waiting.front() {
            if time.saturating_add(patience) > now {
                break;
            }
            self.judge_first();
        }
    }

    fn judge_first(&mut self) {
        let Some((stamp, time)) = self.waiting.pop_front() else {
            return;
        };
        let distance = |other: &i64| other.saturating_sub(stamp).saturating_abs();
        let nearest = self.others.iter().map(distance).min();
        while self.others.len() > 1 && self.others[1] <= stamp {
            self.others.pop_front();
        }
        let wrong = match nearest {
            Some(nearest) if nearest <= self.max => None,
            Some(nearest) => Some(format!(
                "the nearest stamp of {} is {:.1} ms away, at most {:.1} ms",
                self.topics[1],
                nearest as f64 / 1e6,
                self.max as f64 / 1e6
            )),
            None => Some(format!("no stamp of {}", self.topics[1])),
        };
        self.meter.note(time, wrong);
    }
}
