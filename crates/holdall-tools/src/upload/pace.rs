//! When the next part may be sent: by a rate, and by times of the day.

use super::UploadError;
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long a wait lasts before it is checked whether the upload was stopped.
const STEP: Duration = Duration::from_millis(100);

/// When parts may be sent.
#[derive(Clone)]
pub struct Allowed(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Allowed {
    /// Always allowed.
    pub fn always() -> Self {
        Self(Arc::new(|| Duration::ZERO))
    }

    /// When `wait` returns zero; else it returns about how long it takes until then.
    pub fn when(wait: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(wait))
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allowed")
    }
}

/// The pace of one upload.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: Option<u64>,
    allowed: Allowed,
    /// When the next part may be sent, by the monotonic clock.
    next: Mutex<Duration>,
}

impl Pace {
    pub(super) fn new(bytes_per_s: Option<u64>, allowed: Allowed) -> Self {
        Self {
            bytes_per_s,
            allowed,
            next: Mutex::default(),
        }
    }

    /// Waits until this many bytes may be sent.
    ///
    /// # Errors
    /// When the upload is stopped.
    pub(super) fn wait(&self, bytes: u64, stop_flag: &AtomicBool) -> Result<(), UploadError> {
        let until = self.reserve(bytes, SystemClock.monotonic());
        loop {
            if stop_flag.load(Ordering::Relaxed) {
                return Err(UploadError::Stopped);
            }
            let left = until
                .saturating_sub(SystemClock.monotonic())
                .max((self.allowed.0)());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }

    /// When this many bytes, ready `now`, may be sent.
    fn reserve(&self, bytes: u64, now: Duration) -> Duration {
        let Some(rate) = self.bytes_per_s else {
            return now;
        };
        let mut next = lock(&self.next);
        let begin = (*next).max(now);
        *next = begin + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_holds_on_average() {
        let pace = Pace::new(Some(1 << 20), Allowed::always());
        let second = Duration::from_secs(1);
        assert_eq!(pace.reserve(1 << 20, second), second);
        assert_eq!(pace.reserve(2 << 20, second), 2 * second);
        assert_eq!(pace.reserve(1, second), 4 * second);
        // A pause is not made up for.
        assert_eq!(pace.reserve(1 << 20, 60 * second), 60 * second);
        assert_eq!(
            Pace::new(None, Allowed::always()).reserve(1 << 40, second),
            second
        );
    }

    #[test]
    fn a_stopped_upload_does_not_wait_for_its_time() {
        let pace = Pace::new(None, Allowed::when(|| Duration::from_secs(3600)));
        assert!(matches!(
            pace.wait(1, &AtomicBool::new(true)),
            Err(UploadError::Stopped)
        ));
    }
}
