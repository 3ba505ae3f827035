//! Clocks: the system's, or one that a simulator drives.

use holdall_model::time::Timestamp;
use rustix::{
    io::Errno,
    thread::{clock_nanosleep_absolute, set_current_timer_slack},
    time::{ClockId, Timespec},
};
use std::{
    num::NonZeroU64,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A source of time. Implementations must be cheap (tens of nanoseconds): the receive path reads it once per
/// message.
pub trait Clock: Send + Sync {
    /// Time of day; may jump in both directions when it is set.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point; never decreases. For spans, rates and deadlines.
    fn monotonic(&self) -> Duration;

    /// Blocks the caller until [`Clock::monotonic`] has reached `deadline`; returns at once when it has already.
    ///
    /// The default sleeps on the system's timer for the time left; a clock that a simulator drives moves itself
    /// instead.
    fn sleep_until(&self, deadline: Duration) {
        while let Some(left) = deadline
            .checked_sub(self.monotonic())
            .filter(|left| !left.is_zero())
        {
            std::thread::sleep(left);
        }
    }
}

/// Requests that the kernel wake the calling thread as exactly as it can, instead of up to 50 µs later to
/// save power.
///
/// For threads that must act at an exact time (`PR_SET_TIMERSLACK`, see prctl(2)); a refusal is harmless.
pub fn wake_this_thread_exactly() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// The operating system's clocks (`CLOCK_REALTIME` and `CLOCK_MONOTONIC`).
///
/// ```
/// use holdall_io::clock::{Clock, SystemClock};
///
/// let before = SystemClock.monotonic();
/// assert!(SystemClock.monotonic() >= before && SystemClock.now().as_nanos() > 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks")]
    fn now(&self) -> Timestamp {
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        };
        Timestamp::from_nanos(nanos)
    }

    fn monotonic(&self) -> Duration {
        let mut ts = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Not by rustix, which looks for the kernel's function itself and crashes below valgrind.
        // SAFETY: `ts` is a valid timespec to write to; CLOCK_MONOTONIC exists on every Linux.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
        Duration::new(ts.tv_sec.unsigned_abs(), u32::try_from(ts.tv_nsec).unwrap_or(0))
    }

    fn sleep_until(&self, deadline: Duration) {
        // A deadline that does not fit the kernel's type is 292 billion years away.
        let request = Timespec {
            tv_sec: i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: deadline.subsec_nanos().into(),
        };
        // Any error but an interruption (a valid time gives no other) must not become an endless loop.
        while clock_nanosleep_absolute(ClockId::Monotonic, &request) == Err(Errno::INTR) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_until_returns_no_earlier_than_the_deadline() {
        wake_this_thread_exactly();
        let deadline = SystemClock.monotonic() + Duration::from_micros(300);
        SystemClock.sleep_until(deadline);
        assert!(SystemClock.monotonic() >= deadline);
    }

    #[test]
    fn sleep_until_a_past_deadline_returns() {
        SystemClock.sleep_until(Duration::ZERO);
    }
}
