//! Lets the playing thread wait for a time or a signal, whichever comes first.

use holdall_io::{clock::Clock, mutex::lock};
use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// End of a wait that is left to the clock's exact sleep; a command is seen at most this much later.
const EXACT_SLEEP: Duration = Duration::from_millis(1);

/// Wakes the playing thread; a call before the wait is not lost.
#[derive(Debug, Default)]
pub(super) struct Wake {
    called: Mutex<bool>,
    signal: Condvar,
}

impl Wake {
    /// Ends the current wait, or the next one.
    pub fn notify(&self) {
        *lock(&self.called) = true;
        self.signal.notify_all();
    }

    /// Waits to be notified; false if `timeout` ran out.
    pub fn wait_for(&self, timeout: Duration) -> bool {
        let called = lock(&self.called);
        let waited = self.signal.wait_timeout_while(called, timeout, |called| !*called);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits until `deadline` on `clock`'s monotonic time, exactly; returns early when notified.
    pub fn wait_until(&self, clock: &dyn Clock, deadline: Duration) {
        let left = deadline.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return;
        }
        if left > EXACT_SLEEP && self.wait_for(left - EXACT_SLEEP) {
            return;
        }
        clock.sleep_until(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn a_notification_before_the_wait_is_not_lost() {
        let wake = Wake::default();
        wake.notify();
        assert!(wake.wait_for(Duration::ZERO));
        assert!(!wake.wait_for(Duration::ZERO));
    }

    #[test]
    fn a_notified_wait_ends_long_before_its_deadline() {
        let wake = Wake::default();
        wake.notify();
        let deadline = SystemClock.monotonic() + Duration::from_secs(3600);
        wake.wait_until(&SystemClock, deadline);
        assert!(SystemClock.monotonic() < deadline);
    }

    #[test]
    fn a_wait_ends_no_earlier_than_its_deadline() {
        let deadline = SystemClock.monotonic() + Duration::from_millis(3);
        Wake::default().wait_until(&SystemClock, deadline);
        assert!(SystemClock.monotonic() >= deadline);
    }
}
