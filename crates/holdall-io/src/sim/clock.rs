//! A clock that does not advance until it is moved.

use crate::clock::Clock;
use holdall_model::time::Timestamp;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Simulated time. Clones share it.
#[derive(Clone, Debug)]
pub struct SimClock {
    start: Timestamp,
    elapsed_nanos: Arc<AtomicU64>,
    /// How far the time of day was set forward or back since the start.
    set_nanos: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock whose time of day is `start` now.
    pub fn new(start: Timestamp) -> Self {
        Self {
            start,
            elapsed_nanos: Arc::new(AtomicU64::new(0)),
            set_nanos: Arc::default(),
        }
    }

    /// Moves it forward.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.elapsed_nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the time of day forward (or back, when negative), as an operator or NTP does;
    /// [`Clock::monotonic`] is not affected.
    pub fn set_by(&self, nanos: i64) {
        self.set_nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Moves it forward to `moment` (of [`Clock::monotonic`]), unless it has already reached it.
    pub fn advance_to(&self, moment: Duration) {
        let nanos = u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX);
        self.elapsed_nanos.fetch_max(nanos, Ordering::SeqCst);
    }
}

impl Default for SimClock {
    /// Starts on 2001-09-09, 10^9 seconds after the epoch.
    fn default() -> Self {
        Self::new(Timestamp::from_nanos(1_000_000_000_000_000_000))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let going = self.start.saturating_add(self.monotonic());
        Timestamp::from_nanos(
            going
                .as_nanos()
                .saturating_add(self.set_nanos.load(Ordering::SeqCst)),
        )
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Duration) {
        self.advance_to(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_moves_time_and_clones_see_it() {
        let clock = SimClock::default();
        let other = clock.clone();
        let before = other.now();
        clock.sleep_until(Duration::from_secs(2));
        clock.sleep_until(Duration::from_secs(1));
        assert_eq!(other.monotonic(), Duration::from_secs(2));
        assert_eq!(other.now().saturating_since(before), Duration::from_secs(2));
    }

    #[test]
    fn setting_the_time_of_day_leaves_spans_alone() {
        let clock = SimClock::default();
        let (before, monotonic) = (clock.now(), clock.monotonic());
        clock.clone().set_by(-5_000);
        assert_eq!(clock.now().as_nanos(), before.as_nanos() - 5_000);
        assert_eq!(clock.monotonic(), monotonic);
    }
}
