//! Clocks: the system's, or one that a simulator drives.

use holdall_model::time::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of time. Implementations must be cheap (tens of nanoseconds): the receive path asks once per message.
pub trait Clock: Send + Sync {
    /// Time of day; may jump in both directions when it is set.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point; never goes back. For spans, rates and deadlines.
    fn monotonic(&self) -> Duration;
}

/// The operating system's clocks (`CLOCK_REALTIME` and `CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        };
        Timestamp::from_nanos(nanos)
    }

    fn monotonic(&self) -> Duration {
        let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `ts` is a valid timespec to write to; CLOCK_MONOTONIC exists on every Linux.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
        Duration::new(ts.tv_sec.unsigned_abs(), u32::try_from(ts.tv_nsec).unwrap_or(0))
    }
}
