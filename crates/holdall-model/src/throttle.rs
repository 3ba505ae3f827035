//! Chooses which messages to keep of a topic that is limited to a number of messages a second.

use crate::time::Timestamp;
use std::time::Duration;

/// Keeps one message in each interval. Intervals follow each other without a gap while messages come, so that a publisher that jitters
/// around the rate keeps its rate.
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    /// When the next message is kept.
    next: Option<Timestamp>,
}

impl Throttle {
    /// Keeps at most `hertz` messages a second; `None` if that is not a valid rate.
    pub fn new(hertz: f64) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / hertz).ok()?;
        Some(Self { interval, next: None })
    }

    /// Whether a message that came at `time` is kept.
    #[inline]
    pub fn keeps(&mut self, time: Timestamp) -> bool {
        let Some(next) = self.next else {
            self.next = Some(time.saturating_add(self.interval));
            return true;
        };
        if time >= next {
            let late = time.saturating_since(next);
            let from = if late < self.interval { next } else { time };
            self.next = Some(from.saturating_add(self.interval));
            return true;
        }
        // Restarts if simulation time was set back.
        let was_set_back = next.saturating_since(time) > self.interval;
        if was_set_back {
            self.next = Some(time.saturating_add(self.interval));
        }
        was_set_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(hertz: f64, times_ms: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut throttle = Throttle::new(hertz).unwrap();
        let times = times_ms.into_iter();
        times
            .filter(|ms| throttle.keeps(Timestamp::from_nanos(ms * 1_000_000)))
            .collect()
    }

    #[test]
    fn one_message_of_each_interval_is_kept() {
        assert_eq!(kept(10.0, (0..400).step_by(20)), [0, 100, 200, 300]);
        assert_eq!(kept(10.0, [0, 300, 350, 450]), [0, 300, 450]);
    }

    #[test]
    fn a_publisher_that_jitters_around_the_rate_keeps_it() {
        let jitter = (0..100).map(|number| number * 100 + if number % 2 == 0 { 0 } else { 30 });
        assert_eq!(kept(10.0, jitter).len(), 100 - 1 + 1);
        let fast = kept(10.0, (0..10_000).step_by(33));
        assert!((100..=101).contains(&fast.len()), "{}", fast.len());
    }

    #[test]
    fn time_that_is_set_back_stops_nothing() {
        assert_eq!(kept(1.0, [50_000, 50_500, 10, 500, 1_200]), [50_000, 10, 1_200]);
    }

    #[test]
    fn what_is_no_rate_throttles_nothing() {
        for hertz in [0.0, -1.0, f64::NAN, 1e-30] {
            assert!(Throttle::new(hertz).is_none(), "{hertz}");
        }
    }
}
