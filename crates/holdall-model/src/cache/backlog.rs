//! Decides when the memory of a backlog is released: not between bursts, but soon after the last one.

use std::time::Duration;

/// The smallest backlog whose memory is worth releasing, in bytes.
const WORTH_BYTES: usize = 32 << 20;
/// The backlog is over when it is at most this part of its former size.
const OVER_PART: usize = 8;
/// How long the backlog must have been over.
const OVER_SPAN: Duration = Duration::from_secs(2);

/// The largest backlog since memory was last released, and how long it has been over.
#[derive(Debug, Default)]
pub struct Backlog {
    largest_bytes: usize,
    over_since: Option<Duration>,
}

impl Backlog {
    /// Notes that messages hold this many bytes at `now`; true if memory should be released.
    pub fn note(&mut self, held_bytes: usize, now: Duration) -> bool {
        self.largest_bytes = self.largest_bytes.max(held_bytes);
        if self.largest_bytes < WORTH_BYTES || held_bytes > self.largest_bytes / OVER_PART {
            self.over_since = None;
            return false;
        }
        let since = *self.over_since.get_or_insert(now);
        if now.saturating_sub(since) < OVER_SPAN {
            return false;
        }
        *self = Self::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_once_after_a_large_backlog() {
        let (mut backlog, second) = (Backlog::default(), Duration::from_secs(1));
        assert!(!backlog.note(WORTH_BYTES - 1, second));
        assert!(!backlog.note(0, 9 * second), "too small");
        assert!(!backlog.note(100 << 20, 10 * second));
        assert!(!backlog.note(1 << 20, 11 * second));
        assert!(!backlog.note(20 << 20, 12 * second), "the next burst");
        assert!(!backlog.note(0, 13 * second));
        assert!(!backlog.note(0, 14 * second));
        assert!(backlog.note(0, 15 * second));
        assert!(!backlog.note(0, 30 * second), "once");
    }
}
