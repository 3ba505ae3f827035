//! When a bag continues in a new storage file: by size and by span of time, decided before each message.

use crate::{
    file_class::{FileClasses, RingLimit},
    time::Timestamp,
    time_line::JUMP_NANOS_MIN,
};
use std::{fmt, sync::Arc, time::Duration};

/// The most topics that leave files with others for files of their own.
const TOPICS_ALONE_MAX: usize = 8;

/// When to continue in a new storage file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// At this many bytes (`-b`).
    pub bytes_max: Option<u64>,
    /// After this span of log time (`-d`).
    pub duration_max: Option<Duration>,
    /// Keep only this many newest files (`--max-bag-files`).
    pub files_max: Option<u32>,
    /// Topics with files of their own (`--separate`), and those that a ring keeps (`--lane`).
    pub classes: FileClasses,
    /// Most bytes a second of a topic in shared files: with more it leaves them for files of its own (`--separate-above`).
    pub shared_bytes_per_second_max: Option<u64>,
    /// Keep only this much of the newest messages (`--ring`).
    pub ring: Option<RingLimit>,
}

impl SplitOptions {
    /// The most files that are written at a time.
    pub fn streams_max(&self) -> usize {
        let alone = self.shared_max().map_or(0, |_| TOPICS_ALONE_MAX);
        self.classes.count() + alone
    }

    /// The most bytes a second of a topic in shared files. Where files are removed, each file more would take the place of an older one: topics stay.
    pub fn shared_max(&self) -> Option<u64> {
        let is_removed = self.ring.is_some() || self.files_max.is_some();
        self.shared_bytes_per_second_max.filter(|_| !is_removed)
    }

    /// Whether files are begun or removed by time.
    pub fn measures_spans(&self) -> bool {
        self.duration_max.is_some() || matches!(self.ring, Some(RingLimit::Span(_)))
    }
}

/// The time of a message on a clock that does not jump, by its log time.
pub type SteadyOf = Arc<dyn Fn(Timestamp) -> Timestamp + Send + Sync>;

/// The most bytes that a message adds to a file in addition to its payload: record header, index entry, its
/// share of a chunk.
const MESSAGE_OVERHEAD_BYTES: u64 = 128;

/// Watches one file after the other.
pub struct SplitRule {
    options: SplitOptions,
    steady: Option<SteadyOf>,
    /// The file's length was at most this when it was last read, plus what was written since.
    bytes_at_most: u64,
    /// Since then the file grew by something other than messages.
    must_ask: bool,
    messages: u64,
    /// Times of the file's messages that are not known to jump.
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl fmt::Debug for SplitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitRule")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl SplitRule {
    /// A rule for the first file.
    pub fn new(options: SplitOptions) -> Self {
        Self {
            options,
            steady: None,
            bytes_at_most: 0,
            must_ask: true,
            messages: 0,
            first: None,
            last: None,
        }
    }

    /// Measures spans by a clock that does not jump, instead of by log times.
    pub fn measure_by(&mut self, steady: SteadyOf) {
        self.steady = Some(steady);
    }

    /// Whether the current file has messages.
    pub fn has_messages(&self) -> bool {
        self.messages > 0
    }

    /// The time of a message on the clock that spans are measured by.
    pub fn time_of(&self, log_time: Timestamp) -> Timestamp {
        self.steady.as_ref().map_or(log_time, |steady| steady(log_time))
    }

    /// True if the next message belongs in a new file. `length` returns the length that the current file
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
        if let (Some(duration_max), Some(first)) = (self.options.duration_max, self.first)
            && self.time_of(log_time).saturating_since(first) > duration_max
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
        if self.options.duration_max.is_some() {
            self.note_time(log_time);
        }
    }

    /// If log times jump back, the span continues from the later time: a file must not grow until they have caught up.
    fn note_time(&mut self, log_time: Timestamp) {
        let time = self.time_of(log_time);
        let (first, last) = (self.first.unwrap_or(time), self.last.unwrap_or(time));
        let back = last.as_nanos().saturating_sub(time.as_nanos());
        self.first = Some(if back >= JUMP_NANOS_MIN {
            Timestamp::from_nanos(first.as_nanos().saturating_sub(back))
        } else {
            first
        });
        self.last = Some(time);
    }

    /// True if it is time to open and reserve the next file, so that it is ready when needed.
    pub fn is_near(&self) -> bool {
        let near_bytes = self
            .options
            .bytes_max
            .is_some_and(|max| self.bytes_at_most >= max / 4 * 3);
        let near_span = match (self.options.duration_max, self.first, self.last) {
            (Some(max), Some(first), Some(last)) => last.saturating_since(first) >= max / 4 * 3,
            _ => false,
        };
        near_bytes || near_span
    }

    /// Begins with a new file.
    pub fn begin_file(&mut self) {
        *self = Self {
            steady: self.steady.take(),
            ..Self::new(self.options.clone())
        };
    }

    /// Reads the file's length before the next message, because the file grew by something other than
    /// messages.
    pub fn reread_length(&mut self) {
        self.must_ask = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_span_goes_on_where_log_times_go_back_and_is_measured_by_a_clock_that_does_not_jump() {
        let second = |number: i64| at(number * 1_000_000_000);
        let options = SplitOptions {
            duration_max: Some(Duration::from_secs(10)),
            ..SplitOptions::default()
        };
        let mut rule = SplitRule::new(options.clone());
        for number in [100, 104, 3, 8] {
            assert!(!rule.is_due(second(number), 1, || 0), "{number}");
            rule.written(second(number), 1);
        }
        assert!(
            rule.is_due(second(10), 1, || 0),
            "four seconds, and seven after the jump"
        );
        // One hour forward after 1004.
        let steady = |time: Timestamp| match time.as_nanos() / 1_000_000_000 {
            after @ 4000.. => at((after - 3600) * 1_000_000_000),
            _ => time,
        };
        let mut rule = SplitRule::new(options);
        rule.measure_by(Arc::new(steady));
        for number in [1000, 1004, 4605, 4610] {
            assert!(!rule.is_due(second(number), 1, || 0), "{number}");
            rule.written(second(number), 1);
        }
        assert!(rule.is_due(second(4611), 1, || 0));
    }
}
