//! Latencies in nanoseconds, from the median to the worst, merged over threads.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest time that the histogram distinguishes; longer ones count as this.
const NANOS_MAX: u64 = 600_000_000_000;

/// Times of many like events, to three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// The histogram rounds; the longest is kept exactly.
    worst_nanos: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, NANOS_MAX, 3).expect("1 to 6e11 at 3 digits are valid bounds");
        Self {
            histogram,
            worst_nanos: 0,
        }
    }
}

impl Latencies {
    /// Counts one event.
    #[inline]
    pub fn record(&mut self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
        self.worst_nanos = self.worst_nanos.max(nanos);
    }

    /// Adds the events of another thread.
    pub fn merge(&mut self, other: &Self) {
        // Same bounds everywhere, so no value can be out of range.
        let _same_bounds = self.histogram.add(&other.histogram).is_ok();
        self.worst_nanos = self.worst_nanos.max(other.worst_nanos);
    }

    /// Recorded times in microseconds, to three digits, and how many of each.
    pub(crate) fn pairs_us(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded
            .map(|one| (one.value_iterated_to() / 1000, one.count_at_value()))
            .collect()
    }

    /// The current percentiles; `None` without an event.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.histogram.is_empty() {
            return None;
        }
        let at = |share| self.histogram.value_at_quantile(share).min(self.worst_nanos);
        Some(LatencySummary {
            count: self.histogram.len(),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            p99_99_ns: at(0.9999),
            max_ns: self.worst_nanos,
        })
    }
}

/// Percentiles of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Events.
    pub count: u64,
    /// Half are at most this, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 are at most this.
    pub p99_ns: u64,
    /// 999 of 1000 are at most this.
    pub p99_9_ns: u64,
    /// 9999 of 10 000 are at most this.
    pub p99_99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_times() {
        let mut latencies = Latencies::default();
        (1..=10_000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let summary = latencies.summary().unwrap();
        let close = |found: u64, expected: u64| found.abs_diff(expected) * 500 <= expected;
        assert_eq!((summary.count, summary.max_ns), (10_000, 10_000_000));
        assert!(
            close(summary.p50_ns, 5_000_000) && close(summary.p99_ns, 9_900_000),
            "{summary:?}"
        );
        assert!(
            close(summary.p99_9_ns, 9_990_000) && close(summary.p99_99_ns, 9_999_000),
            "{summary:?}"
        );
    }

    #[test]
    fn merged_threads_count_together() {
        let (mut a, mut b) = (Latencies::default(), Latencies::default());
        a.record(Duration::from_nanos(10));
        b.record(Duration::from_secs(3));
        a.merge(&b);
        let summary = a.summary().unwrap();
        assert_eq!(
            (summary.count, summary.p50_ns, summary.max_ns),
            (2, 10, 3_000_000_000)
        );
    }

    #[test]
    fn without_events_there_is_no_summary() {
        assert_eq!(Latencies::default().summary(), None);
    }
}
