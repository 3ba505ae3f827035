//! Rates over windows that begin anew many times within their length.

use super::parse::Rule;
use crate::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// Parts of a window, at least; a part takes no more than half a second if that is possible.
const PARTS_MIN: u32 = 4;
const PARTS_MAX: u32 = 512;
const PART_MAX: Duration = Duration::from_millis(500);

/// A rule about the rate of a topic.
#[derive(Debug)]
pub(super) struct RateWindows {
    min: Option<f64>,
    max: Option<f64>,
    window: Duration,
    part: i64,
    parts: usize,
    /// Messages in the parts of the window that are over.
    counts: VecDeque<u64>,
    sum: u64,
    /// Messages in the present part, and its begin.
    count: u64,
    begin: Option<i64>,
    /// The last window was without messages: those after it are not judged again.
    is_silent: bool,
}

impl RateWindows {
    pub fn new(rule: &Rule) -> Self {
        let window = rule.span("window").unwrap_or(Duration::from_secs(5));
        let parts = window.as_nanos().div_ceil(PART_MAX.as_nanos());
        let parts = u32::try_from(parts)
            .unwrap_or(PARTS_MAX)
            .clamp(PARTS_MIN, PARTS_MAX);
        Self {
            min: rule.number("min"),
            max: rule.number("max"),
            window,
            part: (window / parts).as_nanos() as i64,
            parts: parts as usize,
            counts: VecDeque::new(),
            sum: 0,
            count: 0,
            begin: None,
            is_silent: false,
        }
    }

    /// Takes a message, after the time until it.
    pub fn message(&mut self, time: Timestamp) {
        self.begin.get_or_insert(time.as_nanos());
        self.count += 1;
        self.is_silent = false;
    }

    /// Ends the parts that are over at `now`, and hands out each whole window's end with what is wrong.
    pub fn time(&mut self, now: Timestamp, judge: &mut dyn FnMut(Timestamp, Option<String>)) {
        while let Some(begin) = self.begin {
            let end = begin.saturating_add(self.part);
            if end > now.as_nanos() || end == i64::MAX {
                return;
            }
            self.counts.push_back(self.count);
            self.sum += self.count;
            if self.counts.len() > self.parts {
                self.sum -= self.counts.pop_front().unwrap_or(0);
            }
            if self.counts.len() == self.parts && !self.is_silent {
                self.is_silent = self.sum == 0;
                judge(Timestamp::from_nanos(end), self.wrong());
            }
            self.count = 0;
            self.begin = Some(end);
            if self.is_silent {
                let parts = now.as_nanos().saturating_sub(end) / self.part;
                self.begin = Some(end.saturating_add(parts.saturating_mul(self.part)));
            }
        }
    }

    /// A window may hold one message more or less than its length times the rate.
    fn wrong(&self) -> Option<String> {
        let seconds = self.window.as_secs_f64();
        let found = self.sum as f64;
        let is_low = self.min.is_some_and(|min| found + 1.0 < min * seconds);
        let is_high = self.max.is_some_and(|max| found - 1.0 > max * seconds);
        let bound = match (is_low, is_high) {
            (true, _) => format!("at least {}", self.min.unwrap_or_default()),
            (_, true) => format!("at most {}", self.max.unwrap_or_default()),
            _ => return None,
        };
        Some(format!(
            "{:.2} messages a second over {seconds} s, {bound}",
            found / seconds
        ))
    }
}
