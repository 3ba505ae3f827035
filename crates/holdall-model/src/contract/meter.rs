//! Counts what a rule checked on a topic and what was wrong, and makes one violation of what is wrong without a break.

use super::{parse::Tolerance, verdict::Violation};
use crate::time::Timestamp;
use std::collections::VecDeque;

/// Violations of a rule on a topic that are kept; further ones are counted.
const KEPT_MAX: usize = 100;
/// The longest text of a violation, in bytes.
const TEXT_BYTES_MAX: usize = 400;

/// One rule on one topic.
#[derive(Debug)]
pub(super) struct Meter {
    pub rule: usize,
    tolerance: Tolerance,
    checked: u64,
    broken: u64,
    violations: u64,
    /// The last one continues.
    is_open: bool,
    kept: VecDeque<Violation>,
    /// How many of the kept ones were passed on with their beginning, and which with their end.
    begun: usize,
    ended: usize,
    /// Messages that could not be looked at.
    left_out: u64,
    unknown: Option<String>,
}

impl Meter {
    pub fn new(rule: usize, tolerance: Tolerance) -> Self {
        Self {
            rule,
            tolerance,
            checked: 0,
            broken: 0,
            violations: 0,
            is_open: false,
            kept: VecDeque::new(),
            begun: 0,
            ended: 0,
            left_out: 0,
            unknown: None,
        }
    }

    /// Takes note of a check at `time`, with what is wrong.
    pub fn note(&mut self, time: Timestamp, wrong: Option<String>) {
        self.checked += 1;
        match wrong {
            None => self.close(time),
            Some(text) => {
                self.broken += 1;
                self.open(time, text);
            }
        }
    }

    /// A violation begins, unless one has.
    pub fn open(&mut self, time: Timestamp, mut text: String) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        self.violations += 1;
        if self.kept.len() < KEPT_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            self.kept.push_back(Violation {
                rule: self.rule,
                topic: None,
                since: time,
                until: None,
                text,
            });
        }
    }

    /// The violation that has begun ends, if any.
    pub fn close(&mut self, time: Timestamp) {
        if std::mem::replace(&mut self.is_open, false)
            && self.violations <= KEPT_MAX as u64
            && let Some(last) = self.kept.back_mut()
        {
            last.until = Some(time);
        }
    }

    /// Counts a check in which nothing can be said.
    pub fn leave_out(&mut self, why: &str) {
        self.left_out += 1;
        if self.unknown.is_none() {
            self.unknown = Some(why.chars().take(TEXT_BYTES_MAX).collect());
        }
    }

    /// The rule cannot be decided, for this reason.
    pub fn set_unknown(&mut self, why: impl Into<String>) {
        self.unknown = Some(why.into());
    }

    pub fn has_checked(&self) -> bool {
        self.checked > 0
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether more is wrong than is tolerated.
    pub fn is_broken(&self) -> bool {
        match self.tolerance {
            Tolerance::Count(count) => self.violations > count,
            Tolerance::Share(share) => self.broken as f64 > share * self.checked as f64,
        }
    }

    pub fn counts(&self) -> (u64, u64, u64) {
        (self.checked, self.violations, self.left_out)
    }

    /// Why it cannot be decided: it checked nothing, or less than there was.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.kept.iter()
    }

    /// What began or ended since the last call, once more is wrong than is tolerated. The last violation that is kept does not end: others follow.
    pub fn take_news(&mut self, topic: Option<&str>, news: &mut Vec<Violation>) {
        if !self.is_broken() {
            return;
        }
        let of_topic = |violation: &Violation| Violation {
            topic: topic.map(str::to_owned),
            ..violation.clone()
        };
        for place in self.ended..self.kept.len() {
            let violation = &self.kept[place];
            if place >= self.begun {
                news.push(Violation {
                    until: None,
                    ..of_topic(violation)
                });
                self.begun = place + 1;
            }
            if violation.until.is_none() || place + 1 == KEPT_MAX {
                break;
            }
            news.push(of_topic(violation));
            self.ended = place + 1;
        }
    }
}
