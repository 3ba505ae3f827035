//! Messages and bytes per second over the last moments, from counters that only grow.

use std::{collections::VecDeque, time::Duration};

/// Rates are taken over this span.
const WINDOW: Duration = Duration::from_secs(2);
/// Enough for a reading every 100 ms over the window.
const SAMPLES_MAX: usize = 32;

/// Two counters at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    messages: u64,
    bytes: u64,
}

/// Rates over the last moments.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    samples: VecDeque<Sample>,
}

/// Messages and bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Messages per second.
    pub messages_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

impl RateMeter {
    /// Adds the counters at a time and returns the rates since about two seconds before.
    pub fn update(&mut self, at: Duration, messages: u64, bytes: u64) -> Rates {
        while self.samples.len() >= SAMPLES_MAX
            || self
                .samples
                .get(1)
                .is_some_and(|second| at.saturating_sub(second.at) >= WINDOW)
        {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at, messages, bytes });
        let Some(first) = self.samples.front() else {
            return Rates::default();
        };
        let span_s = at.saturating_sub(first.at).as_secs_f64();
        if span_s <= 0.0 {
            return Rates::default();
        }
        let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / span_s;
        Rates {
            messages_per_s: per_s(messages, first.messages),
            bytes_per_s: per_s(bytes, first.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_shows_its_rate_and_a_stopped_one_falls_to_zero() {
        let mut meter = RateMeter::default();
        let mut rates = Rates::default();
        for tick in 0..50_u64 {
            rates = meter.update(Duration::from_millis(tick * 100), tick * 100, tick * 5000);
        }
        assert!((rates.messages_per_s - 1000.0).abs() < 1e-6, "{rates:?}");
        assert!((rates.bytes_per_s - 50_000.0).abs() < 1e-6, "{rates:?}");
        for tick in 50..75 {
            rates = meter.update(Duration::from_millis(tick * 100), 4900, 245_000);
        }
        assert_eq!(rates, Rates::default());
    }

    #[test]
    fn the_first_look_has_no_rate() {
        assert_eq!(
            RateMeter::default().update(Duration::from_secs(1), 10, 10),
            Rates::default()
        );
    }

    #[test]
    fn polls_that_come_fast_are_bounded() {
        let mut meter = RateMeter::default();
        for tick in 0..10_000 {
            meter.update(Duration::from_micros(tick), tick, tick);
        }
        assert!(meter.samples.len() <= SAMPLES_MAX);
    }
}
