//! When a recording ends by itself: after a span, a size or a number of messages.

use crate::{
    split::{SplitOptions, SplitRule},
    time::Timestamp,
    units::counted,
};
use std::{fmt, time::Duration};

/// Limits of a recording; `None` means no limit. Messages that arrive after a limit is reached are left out on request, not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingLimits {
    /// How long it runs, pauses included (`--max-recording-duration`).
    pub duration_max: Option<Duration>,
    /// Bytes of all its storage files together (`--max-recording-size`); a first message always fits.
    pub bytes_max: Option<u64>,
    /// Messages in the bag (`--max-recording-messages`).
    pub messages_max: Option<u64>,
}

/// The limit that has ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// [`RecordingLimits::duration_max`].
    Duration(Duration),
    /// [`RecordingLimits::bytes_max`].
    Bytes(u64),
    /// [`RecordingLimits::messages_max`].
    Messages(u64),
}

impl ReachedLimit {
    /// Its name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Duration(_) => "max_recording_duration",
            Self::Bytes(_) => "max_recording_size",
            Self::Messages(_) => "max_recording_messages",
        }
    }
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(span) => write!(f, "it has run for the requested {} s", span.as_secs_f64()),
            Self::Bytes(bytes) => write!(f, "the next message would exceed the requested {bytes} bytes"),
            Self::Messages(count) => write!(f, "it has the requested {}", counted(*count, "message")),
        }
    }
}

/// Watches the messages that the drain writes.
pub struct LimitGuard {
    messages_max: Option<u64>,
    bytes_max: Option<u64>,
    /// The whole bag as if it were one file that must not be split.
    size: SplitRule,
    messages: u64,
    reached: Option<ReachedLimit>,
}

impl LimitGuard {
    /// A watch that counts messages or bytes; `None` if neither has a limit.
    pub fn watch(limits: RecordingLimits) -> Option<Self> {
        let is_needed = limits.messages_max.is_some() || limits.bytes_max.is_some();
        is_needed.then(|| Self::new(limits))
    }

    /// Nothing is written yet.
    pub fn new(limits: RecordingLimits) -> Self {
        Self {
            messages_max: limits.messages_max,
            bytes_max: limits.bytes_max,
            size: SplitRule::new(SplitOptions {
                bytes_max: limits.bytes_max,
                ..SplitOptions::default()
            }),
            messages: 0,
            reached: (limits.messages_max == Some(0)).then_some(ReachedLimit::Messages(0)),
        }
    }

    /// The limit that the next message would exceed. `length` returns the bytes that the bag has; it is called only near the limit.
    pub fn reached_before(
        &mut self,
        log_time: Timestamp,
        payload_bytes: usize,
        length: impl FnOnce() -> u64,
    ) -> Option<ReachedLimit> {
        if self.reached.is_none()
            && let Some(bytes_max) = self.bytes_max
            && self.size.is_due(log_time, payload_bytes, length)
        {
            self.reached = Some(ReachedLimit::Bytes(bytes_max));
        }
        self.reached
    }

    /// Takes note of a message that was written; returns a limit that it has reached.
    pub fn written(&mut self, log_time: Timestamp, payload_bytes: usize) -> Option<ReachedLimit> {
        self.messages += 1;
        if self.bytes_max.is_some() {
            self.size.written(log_time, payload_bytes);
        }
        if self.messages_max == Some(self.messages) {
            self.reached = Some(ReachedLimit::Messages(self.messages));
        }
        self.reached
    }

    /// Reads the bag's length before the next message: it grew by something other than messages.
    pub fn reread_length(&mut self) {
        self.size.reread_length();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(limits: RecordingLimits) -> LimitGuard {
        LimitGuard::new(limits)
    }

    #[test]
    fn the_last_message_that_fits_is_written() {
        let time = Timestamp::from_nanos(0);
        let mut messages = guard(RecordingLimits {
            messages_max: Some(2),
            ..RecordingLimits::default()
        });
        assert_eq!(messages.written(time, 10), None);
        assert_eq!(messages.written(time, 10), Some(ReachedLimit::Messages(2)));
        assert!(messages.reached_before(time, 0, || 0).is_some());
        let mut bytes = guard(RecordingLimits {
            bytes_max: Some(1000),
            ..RecordingLimits::default()
        });
        assert_eq!(
            bytes.reached_before(time, 5000, || 0),
            None,
            "a first message always fits"
        );
        bytes.written(time, 100);
        assert_eq!(bytes.reached_before(time, 100, || 400), None);
        bytes.written(time, 100);
        bytes.reread_length();
        let reached = bytes.reached_before(time, 100, || 900);
        assert_eq!(reached, Some(ReachedLimit::Bytes(1000)));
        assert_eq!(
            bytes.reached_before(time, 1, || 0),
            reached,
            "a limit stays reached"
        );
    }

    #[test]
    fn without_limits_nothing_is_reached() {
        let mut none = guard(RecordingLimits::default());
        let time = Timestamp::from_nanos(0);
        assert_eq!(none.reached_before(time, 1 << 30, || u64::MAX), None);
        assert_eq!(none.written(time, 1 << 30), None);
    }
}
