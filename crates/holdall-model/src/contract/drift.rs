//! The drift of `header.stamp` against the recorder's clock: the slope of the latency over a window.

use super::parse::Rule;
use crate::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// Parts of a window: each has one value, the shortest of its latencies, which delays do not move.
const PARTS: usize = 24;
/// Parts that must have messages.
const PARTS_MIN: usize = 18;
/// A step is one if a single line leaves more than this many times the squares that two lines leave.
const STEP_GAIN: f64 = 4.0;

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

    /// Their slope in millionths, by least squares. A step between two parts, as another way of the messages makes it, does not count as drift:
    /// where lines with one slope before and after a step fit much better than one line, their slope is taken.
    fn slope(&self) -> f64 {
        let (first_number, first) = self.lowest.front().copied().unwrap_or_default();
        let points = self.lowest.iter().map(|(number, latency)| {
            let latency = latency.saturating_sub(first);
            Sums::of((number - first_number) as f64, latency as f64)
        });
        let all = points.clone().fold(Sums::default(), Sums::plus);
        let (line, line_rest) = fit(&[all]);
        let (mut before, mut best) = (Sums::default(), (line, line_rest));
        for point in points.take(self.lowest.len().saturating_sub(1)) {
            before = before.plus(point);
            let stepped = fit(&[before, all.less(before)]);
            if stepped.1 < best.1 {
                best = stepped;
            }
        }
        let slope = if best.1 * STEP_GAIN < line_rest {
            best.0
        } else {
            line
        };
        slope / self.part as f64 * 1e6
    }
}

/// Sums over points, from which lines through them are made: their number, x, y, x·x, x·y and y·y.
#[derive(Clone, Copy, Debug, Default)]
struct Sums([f64; 6]);

impl Sums {
    fn of(x: f64, y: f64) -> Self {
        Self([1.0, x, y, x * x, x * y, y * y])
    }

    fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + other.0[at]))
    }

    fn less(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - other.0[at]))
    }

    /// x·x, x·y and y·y around the mean.
    fn around_mean(self) -> [f64; 3] {
        let [count, x, y, xx, xy, yy] = self.0;
        [xx - x * x / count, xy - x * y / count, yy - y * y / count]
    }
}

/// The slope that lines through all groups of points have in common, and the sum of the squares that they leave.
fn fit(groups: &[Sums]) -> (f64, f64) {
    let sums = groups.iter().map(|group| group.around_mean());
    let [xx, xy, yy] = sums.fold([0.0; 3], |sum, group| {
        std::array::from_fn(|at| sum[at] + group[at])
    });
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    (slope, (yy - slope * xy).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;

    /// What a rule of 25 ppm over 20 s finds in 60 s of latencies in nanoseconds.
    fn found(latency: impl Fn(f64) -> f64) -> Vec<f64> {
        let contract = "version: 1\ntopics: {/a: {drift: {ppm: 25, window: 20s}}}";
        let mut drift = Drift::new(&Contract::parse(contract).unwrap().rules[0]);
        let mut found = Vec::new();
        for message in 0..1200_i32 {
            let seconds = f64::from(message) / 20.0;
            let time = Timestamp::from_nanos((seconds * 1e9) as i64);
            drift.time(time, &mut |at, wrong| {
                found.extend(wrong.map(|_| at.as_nanos() as f64 / 1e9))
            });
            // Delays from 0 to 1 ms.
            let delay = f64::from(message.wrapping_mul(7919) % 1000) * 1e3;
            drift.message(time, (latency(seconds) + delay) as i64);
        }
        found
    }

    #[test]
    fn a_step_of_the_latency_is_no_drift_and_hides_none() {
        for step in [-20e6, -3e6, -1e6, 1e6, 3e6, 20e6] {
            let stepped = |seconds: f64| 30e6 + if seconds > 33.3 { step } else { 0.0 };
            assert!(found(stepped).is_empty(), "{step}");
            for ppm in [-50.0, 50.0] {
                let both = found(|seconds| stepped(seconds) + seconds * ppm * 1e3);
                let windows = 60.0 / 20.0 * PARTS as f64 - PARTS as f64;
                assert!(both.len() as f64 > windows * 0.9, "{step} {ppm}: {both:?}");
            }
        }
        assert!(found(|seconds| 30e6 + seconds * 5e3).is_empty());
    }

    #[test]
    fn a_drift_that_begins_is_found_within_the_window() {
        let begun = found(|seconds| 30e6 + (seconds - 30.0).max(0.0) * 50e3);
        assert!(
            begun.first().is_some_and(|at| (30.0..50.0).contains(at)),
            "{begun:?}"
        );
    }
}
