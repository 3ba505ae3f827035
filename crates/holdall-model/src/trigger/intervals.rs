//! The spans of time around events to keep: a union, in order.

use crate::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// Spans with both their ends, in order, without overlaps.
#[derive(Clone, Debug, Default)]
pub struct Intervals(VecDeque<(Timestamp, Timestamp)>);

impl Intervals {
    /// Adds the span from `before` an event to `after` it.
    pub fn add_around(&mut self, event: Timestamp, before: Duration, after: Duration) {
        let nanos = i64::try_from(before.as_nanos()).unwrap_or(i64::MAX);
        let start = Timestamp::from_nanos(event.as_nanos().saturating_sub(nanos));
        self.add(start, event.saturating_add(after));
    }

    /// Adds a span.
    pub fn add(&mut self, mut start: Timestamp, mut end: Timestamp) {
        let from = self.0.partition_point(|(_, end)| *end < start);
        let until = self.0.partition_point(|(begin, _)| *begin <= end);
        if from < until {
            start = start.min(self.0[from].0);
            end = end.max(self.0[until - 1].1);
            self.0.drain(from..until);
        }
        self.0.insert(from, (start, end));
    }

    /// Whether a time is in one of them.
    pub fn contains(&self, time: Timestamp) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < time);
        self.0.get(at).is_some_and(|(start, _)| *start <= time)
    }

    /// The length of all of them.
    pub fn total(&self) -> Duration {
        let lengths = self.0.iter().map(|(start, end)| end.saturating_since(*start));
        lengths.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The end of the last one.
    pub fn end(&self) -> Option<Timestamp> {
        self.0.back().map(|(_, end)| *end)
    }

    /// Forgets those that ended before a time.
    pub fn forget_before(&mut self, time: Timestamp) {
        while self.0.front().is_some_and(|(_, end)| *end < time) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(nanos: i64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn spans_that_touch_are_one() {
        let mut spans = Intervals::default();
        for (start, end) in [(50, 60), (10, 20), (20, 30), (80, 90), (25, 55)] {
            spans.add(time(start), time(end));
        }
        assert_eq!(spans.0, [(time(10), time(60)), (time(80), time(90))]);
        assert_eq!(spans.end(), Some(time(90)));
        spans.forget_before(time(61));
        assert_eq!(spans.0, [(time(80), time(90))]);
        let nanos = Duration::from_nanos;
        spans.add_around(time(100), nanos(10), nanos(5));
        assert_eq!(spans.0, [(time(80), time(105))]);
        spans.add_around(time(0), Duration::MAX, Duration::MAX);
        assert_eq!(spans.0, [(time(i64::MIN + 1), time(i64::MAX))]);
    }

    proptest! {
        #[test]
        fn a_time_is_in_the_union_of_all(spans in prop::collection::vec((0_i64..200, 0_i64..30), 0..20)) {
            let mut union = Intervals::default();
            for &(start, length) in &spans {
                union.add(time(start), time(start + length));
            }
            for now in -1..240 {
                let wanted = spans.iter().any(|&(start, length)| (start..=start + length).contains(&now));
                prop_assert_eq!(union.contains(time(now)), wanted, "{}", now);
            }
            prop_assert!(union.0.iter().zip(union.0.iter().skip(1)).all(|(a, b)| a.1 < b.0));
        }
    }
}
