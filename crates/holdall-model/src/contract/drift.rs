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

/// A larger step begins anew, by default.
const STEP: Duration = Duration::from_millis(50);

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
        let mut drift = Self::over(rule.span("window").unwrap_or(Duration::from_secs(60)));
        drift.ppm = rule.number("ppm").unwrap_or(f64::MAX);
        drift.step = rule
            .span("step")
            .map_or(drift.step, |step| step.as_nanos() as i64);
        drift
    }

    /// Measures drift over windows of this length.
    pub fn over(window: Duration) -> Self {
        Self {
            ppm: f64::MAX,
            part: (window / PARTS as u32).as_nanos() as i64,
            step: STEP.as_nanos() as i64,
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

    /// What is wrong with a drift, if anything.
    pub fn wrong(ppm: f64, most: f64) -> Option<String> {
        (ppm.abs() > most).then(|| format!("header.stamp drifts by {ppm:.0} ppm, at most {most}"))
    }

    /// The largest drift without a fault, in millionths.
    pub fn most(&self) -> f64 {
        self.ppm
    }

    /// Ends the parts that are over at `now`, and hands out the end of each window that can be judged with its drift in millionths.
    pub fn time(&mut self, now: Timestamp, judge: &mut dyn FnMut(Timestamp, f64)) {
        while let Some(begin) = self.begin {
            let end = begin.saturating_add(self.part);
            if end > now.as_nanos() || end == i64::MAX {
                return;
            }
            self.end_part();
            self.begin = Some(end);
            self.number += 1;
            if self.lowest.len() >= PARTS_MIN {
                judge(Timestamp::from_nanos(end), self.slope());
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

    /// Their slope in millionths, by least squares. Steps between two parts, as another way of the messages makes them, do not count as drift:
    /// where lines with one slope before and after one or two steps fit much better than fewer lines, their slope is taken.
    fn slope(&self) -> f64 {
        let (first_number, first) = self.lowest.front().copied().unwrap_or_default();
        let points = self.lowest.iter().map(|(number, latency)| {
            let latency = latency.saturating_sub(first);
            Sums::of((number - first_number) as f64, latency as f64)
        });
        // The sums of the points before each place; the last has all.
        let mut before = vec![Sums::default()];
        for point in points {
            before.push(before[before.len() - 1].plus(point));
        }
        let count = self.lowest.len();
        let all = before[count];
        let best = |fits: &mut dyn Iterator<Item = (f64, f64)>| fits.min_by(|a, b| a.1.total_cmp(&b.1));
        let mut ones = (1..count).map(|at| fit(&[before[at], all.less(before[at])]));
        let pairs = (1..count).flat_map(|from| (from + 1..count).map(move |until| (from, until)));
        let mut twos = pairs.map(|(from, until)| {
            let bump = before[until].less(before[from]);
            fit(&[before[from], bump, all.less(before[until])])
        });
        let (mut slope, mut rest) = fit(&[all]);
        for (stepped, less) in [best(&mut ones), best(&mut twos)].into_iter().flatten() {
            if less * STEP_GAIN < rest {
                (slope, rest) = (stepped, less);
            }
        }
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
            drift.time(time, &mut |at, ppm| {
                found.extend(Drift::wrong(ppm, 25.0).map(|_| at.as_nanos() as f64 / 1e9));
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
    fn two_steps_of_the_latency_within_a_window_are_no_drift_and_hide_none() {
        for first in [-20e6, -3e6, -1e6, 1e6, 3e6, 20e6] {
            for (second, later) in [
                (first, 2.9),
                (-first, 0.7),
                (-first, 6.1),
                (first * 0.7, 9.0),
                (first * 2.0, 13.7),
            ] {
                let stepped = |seconds: f64| {
                    let steps = [(33.3, first), (33.3 + later, second)].into_iter();
                    30e6 + steps
                        .filter(|(at, _)| seconds > *at)
                        .map(|(_, step)| step)
                        .sum::<f64>()
                };
                assert!(found(stepped).is_empty(), "{first} {second} {later}");
                for ppm in [-50.0, 50.0] {
                    let both = found(|seconds| stepped(seconds) + seconds * ppm * 1e3);
                    let windows = 60.0 / 20.0 * PARTS as f64 - PARTS as f64;
                    assert!(
                        both.len() as f64 > windows * 0.9,
                        "{first} {second} {later} {ppm}: {both:?}"
                    );
                }
            }
        }
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
