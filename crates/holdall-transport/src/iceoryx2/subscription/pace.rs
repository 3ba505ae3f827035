//! How often subscribers without a wake-up are polled: often enough that their buffers do not fill, seldom at
//! rest.

use std::time::Duration;

/// Shortest time between two polls.
const SHORTEST: Duration = Duration::from_micros(20);

/// At rest a subscriber is polled once in this time for each sample that its buffer can hold.
const REST_PER_SAMPLE: Duration = Duration::from_micros(500);

/// Limits of the time between two polls at rest: 1000 polls in a second cost less than 1 % of a core, and a
/// burst after a rest should not fill a small buffer before the next poll.
const REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// The time between two polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    interval: Duration,
}

impl Pace {
    /// Starts at rest.
    pub fn new() -> Self {
        Self { interval: REST.0 }
    }

    /// The time until the next poll, after one that found `fullest` samples of one publisher in a buffer of
    /// `buffer_size` (of the subscriber where that share was largest); `smallest_buffer` is the smallest of
    /// all subscribers.
    pub fn after(&mut self, fullest: usize, buffer_size: usize, smallest_buffer: usize) -> Duration {
        let samples = u32::try_from(smallest_buffer).unwrap_or(u32::MAX);
        let rest = REST_PER_SAMPLE.saturating_mul(samples).clamp(REST.0, REST.1);
        if fullest >= 2 && fullest * 2 > buffer_size {
            self.interval = (self.interval / 2).max(SHORTEST);
        } else if fullest * 4 <= buffer_size || fullest < 2 {
            self.interval = self.interval.saturating_mul(9) / 8;
        }
        self.interval = self.interval.clamp(SHORTEST, rest);
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_buffers_are_polled_more_often_until_they_are_not_full_any_more() {
        let mut pace = Pace::new();
        for _ in 0..20 {
            pace.after(100, 100, 100);
        }
        assert_eq!(pace.after(100, 100, 100), SHORTEST);
        let held = pace.after(40, 100, 100);
        assert_eq!(pace.after(40, 100, 100), held, "neither full nor nearly empty");
    }

    #[test]
    fn at_rest_looks_become_seldom() {
        let mut pace = Pace::new();
        for _ in 0..100 {
            pace.after(64, 64, 64);
        }
        let mut longest = Duration::ZERO;
        for _ in 0..200 {
            longest = pace.after(0, 64, 64);
        }
        assert_eq!(longest, REST.1);
        // One camera image at a time in a buffer of two is rest too.
        for _ in 0..200 {
            longest = pace.after(1, 2, 2);
        }
        assert_eq!(longest, REST.0);
    }
}
