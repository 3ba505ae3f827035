//! Decides when the memory of a backlog is released: not between bursts, but soon after the last one.

use std::time::Duration;

/// The smallest backlog whose memory is worth releasing, in bytes.
const WORTH_BYTES: usize = 32 << 20;
/// The backlog is over when it is at most this part of its former size.
const OVER_PART: usize = 8;
/// How long the backlog must have been over.
const OVER_SPAN: Duration = Duration::from_secs(2);

/// Time between two releases while the backlog lasts.
const UNUSED_INTERVAL: Duration = Duration::from_secs(1);

/// Memory to release now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// None.
    Nothing,
    /// Buffers of the shared region that were not used since the last time: the backlog lasts.
    Unused,
    /// All that is not in use: the backlog is over.
    Idle,
}

/// The largest backlog since memory was last released, and how long it has been over.
#[derive(Debug, Default)]
pub struct Backlog {
    largest_bytes: usize,
    over_since: Option<Duration>,
    next_unused: Duration,
}

impl Backlog {
    /// Notes that messages hold this many bytes at `now`; the memory that should be released.
    pub fn note(&mut self, held_bytes: usize, now: Duration) -> Release {
        self.largest_bytes = self.largest_bytes.max(held_bytes);
        if self.largest_bytes < WORTH_BYTES {
            return Release::Nothing;
        }
        if held_bytes > self.largest_bytes / OVER_PART {
            self.over_since = None;
            if now < self.next_unused {
                return Release::Nothing;
            }
            self.next_unused = now + UNUSED_INTERVAL;
            return Release::Unused;
        }
        let since = *self.over_since.get_or_insert(now);
        if now.saturating_sub(since) < OVER_SPAN {
            return Release::Nothing;
        }
        *self = Self::default();
        Release::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_once_after_a_large_backlog() {
        let (mut backlog, second) = (Backlog::default(), Duration::from_secs(1));
        let mut note = |bytes, seconds| backlog.note(bytes, seconds * second);
        assert_eq!(note(WORTH_BYTES - 1, 1), Release::Nothing);
        assert_eq!(note(0, 9), Release::Nothing, "too small");
        assert_eq!(note(100 << 20, 10), Release::Unused);
        assert_eq!(note(1 << 20, 11), Release::Nothing);
        assert_eq!(note(20 << 20, 12), Release::Unused, "the next burst");
        assert_eq!(note(0, 13), Release::Nothing);
        assert_eq!(note(0, 14), Release::Nothing);
        assert_eq!(note(0, 15), Release::Idle);
        assert_eq!(note(0, 30), Release::Nothing, "once");
    }

    #[test]
    fn a_backlog_that_lasts_releases_unused_memory_each_second() {
        let mut backlog = Backlog::default();
        let mut note = |millis| backlog.note(100 << 20, Duration::from_millis(millis));
        assert_eq!(
            [5000, 5100, 5999, 6000].map(&mut note),
            [
                Release::Unused,
                Release::Nothing,
                Release::Nothing,
                Release::Unused
            ]
        );
    }
}
