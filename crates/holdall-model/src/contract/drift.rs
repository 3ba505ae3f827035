//! The drift of `header.stamp` against the recorder's clock: the slope of the latency over a window.

use super::parse::Rule;
use crate::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// Parts of a window: each has one value, the shortest of its latencies, which delays do not move.
const PARTS: usize = 24;
/// Parts that must have messages.
const PARTS_MIN: usize = 18;

/// A rule about drift.
#[derive(Debug)]
pub(super) struct Drift {
    ppm: f64,
    part: i64,
    step: i64,
    begin: Option<i64>,
    /// The shortest latency of the present part.
    shortest: Option<i64>,
    /// Those of the parts before, with their numbers.
    lowest: VecDeque<(i64, i64)>,
    number: i64,
}

impl Drift {
    pub fn new(rule: &Rule) -> Self {
        let window = rule.span("window").unwrap_or(Duration::from_secs(60));
        let step = rule.span("step").unwrap_or(Duration::from_millis(50));
        Self {
            ppm: rule.number("ppm").unwrap_or(f64::MAX),
            part: (window / PARTS as u32).as_nanos() as i64,
            step: step.as_nanos() as i64,
            begin: None,
            shortest: None,
            lowest: VecDeque::new(),
            number: 0,
        }
    }

    /// Takes a message's latency in nanoseconds, after the time until it.
    pub fn message(&mut self, time: Timestamp, latency: i64) {
        self.begin.get_or_insert(time.as_nanos());
        self.shortest = Some(self.shortest.map_or(latency, |shortest| shortest.min(latency)));
    }

    /// Ends the parts that are over at `now`, and hands out the end of each window that can be judged with what is wrong.
    pub fn time(&mut self, now: Timestamp, judge: &mut dyn FnMut(Timestamp, Option<String>)) {
        while let Some(begin) = self.begin {
            let end = begin.saturating_add(self.part);
            if end > now.as_nanos() || end == i64::MAX {
                return;
            }
            self.end_part();
            self.begin = Some(end);
            self.number += 1;
            if self.lowest.len() >= PARTS_MIN {
                let ppm = self.slope();
                let is_wrong = ppm.abs() > self.ppm;
                judge(
                    Timestamp::from_nanos(end),
                    is_wrong.then(|| format!("header.stamp drifts by {:.0} ppm, at most {}", ppm, self.ppm)),
                );
            } else if self.lowest.is_empty() {
                let parts = now.as_nanos().saturating_sub(end) / self.part;
                self.begin = Some(end.saturating_add(parts.saturating_mul(self.part)));
            }
        }
    }

    fn end_part(&mut self) {
        let oldest = self.number - PARTS as i64;
        while self.lowest.front().is_some_and(|(number, _)| *number <= oldest) {
            self.lowest.pop_front();
        }
        let Some(shortest) = self.shortest.take() else {
            return;
        };
        let step = |(_, last): &(i64, i64)| shortest.saturating_sub(*last).saturating_abs();
        if self.lowest.back().is_some_and(|last| step(last) > self.step) {
            self.lowest.clear();
        }
        self.lowest.push_back((self.number, shortest));
    }

    /// Their slope in millionths, by least squares.
    fn slope(&self) -> f64 {
        let (first_number, first) = self.lowest.front().copied().unwrap_or_default();
        let points = || {
            self.lowest.iter().map(move |(number, latency)| {
                (
                    (number - first_number) as f64 * self.part as f64,
                    latency.saturating_sub(first) as f64,
                )
            })
        };
        let count = self.lowest.len() as f64;
        let (sum_x, sum_y) = points().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (above, below) = points().fold((0.0, 0.0), |(above, below), (x, y)| {
            (
                above + (x - mean_x) * (y - mean_y),
                below + (x - mean_x) * (x - mean_x),
            )
        });
        above / below * 1e6
    }
}
