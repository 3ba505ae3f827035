//! When a bag continues in a new storage file: by size and by span of log time, decided before each message.

use crate::writer::SplitOptions;
use holdall_model::time::Timestamp;

/// The most bytes that a message adds to a file in addition to its payload: record header, index entry, its
/// share of a chunk.
const MESSAGE_OVERHEAD_BYTES: u64 = 128;

/// Watches one file after the other.
#[derive(Clone, Debug)]
pub(crate) struct SplitRule {
    options: SplitOptions,
    /// The file's length was at most this when it was last read, plus what was written since.
    bytes_at_most: u64,
    /// Since then the file grew by something other than messages.
    must_ask: bool,
    messages: u64,
    first_log_time: Option<Timestamp>,
    last_log_time: Option<Timestamp>,
}

impl SplitRule {
    /// A rule for the first file.
    pub fn new(options: SplitOptions) -> Self {
        Self {
            options,
            bytes_at_most: 0,
            must_ask: true,
            messages: 0,
            first_log_time: None,
            last_log_time: None,
        }
    }

    /// True when the next message belongs in a new file. `length` returns the length that the current file
    /// would have if it were closed now; it is called only when the limit is near.
    #[inline]
    pub fn is_due(
        &mut self,
        log_time: Timestamp,
        payload_bytes: usize,
        length: impl FnOnce() -> u64,
    ) -> bool {
        if self.messages == 0 {
            return false;
        }
        if let (Some(duration_max), Some(first)) = (self.options.duration_max, self.first_log_time)
            && log_time.saturating_since(first) > duration_max
        {
            return true;
        }
        let Some(bytes_max) = self.options.bytes_max else {
            return false;
        };
        let next = payload_bytes as u64 + MESSAGE_OVERHEAD_BYTES;
        if !self.must_ask && self.bytes_at_most + next <= bytes_max {
            return false;
        }
        self.bytes_at_most = length();
        self.must_ask = false;
        self.bytes_at_most + next > bytes_max
    }

    /// Takes note of a message that was written.
    #[inline]
    pub fn written(&mut self, log_time: Timestamp, payload_bytes: usize) {
        self.messages += 1;
        self.bytes_at_most += payload_bytes as u64 + MESSAGE_OVERHEAD_BYTES;
        self.first_log_time = self.first_log_time.or(Some(log_time));
        self.last_log_time = Some(log_time);
    }

    /// True when the next file should be opened and reserved, so that it is there when it is needed.
    pub(crate) fn is_near(&self) -> bool {
        let near_bytes = self
            .options
            .bytes_max
            .is_some_and(|max| self.bytes_at_most >= max / 4 * 3);
        let near_span = match (self.options.duration_max, self.first_log_time, self.last_log_time) {
            (Some(max), Some(first), Some(last)) => last.saturating_since(first) >= max / 4 * 3,
            _ => false,
        };
        near_bytes || near_span
    }

    /// Begins with a new file.
    pub fn begin_file(&mut self) {
        *self = Self::new(self.options.clone());
    }

    /// Reads the file's length before the next message, because the file grew by something other than
    /// messages.
    pub(crate) fn reread_length(&mut self) {
        self.must_ask = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn without_limits_it_is_never_due() {
        let mut rule = SplitRule::new(SplitOptions::default());
        rule.written(at(0), 1 << 30);
        assert!(!rule.is_due(at(i64::MAX), 1 << 30, || u64::MAX));
        assert!(!rule.is_near());
    }

    #[test]
    fn a_file_never_grows_beyond_its_limit_unless_one_message_does() {
        let mut rule = SplitRule::new(SplitOptions {
            bytes_max: Some(10_000),
            ..SplitOptions::default()
        });
        assert!(!rule.is_due(at(0), 50_000, || 0), "a first message always fits");
        let mut length = 100;
        for _ in 0..9 {
            assert!(!rule.is_due(at(0), 1000, || length), "at {length}");
            rule.written(at(0), 1000);
            length += 1040;
        }
        assert!(rule.is_near());
        assert!(rule.is_due(at(0), 1000, || length));
        rule.begin_file();
        assert!(!rule.is_due(at(0), 1000, || 0));
    }

    #[test]
    fn a_span_longer_than_its_limit_splits() {
        let duration_max = Some(Duration::from_nanos(100));
        let mut rule = SplitRule::new(SplitOptions {
            duration_max,
            ..SplitOptions::default()
        });
        rule.written(at(1000), 1);
        assert!(!rule.is_due(at(1100), 1, || 0));
        assert!(rule.is_due(at(1101), 1, || 0));
        assert!(
            !rule.is_due(at(500), 1, || 0),
            "a clock that jumps back splits nothing"
        );
        rule.written(at(1080), 1);
        assert!(rule.is_near());
    }
}
