//! Which messages the events of a recording want, by their times. All times are of a clock that does not jump.

use super::Intervals;
use crate::time::Timestamp;
use std::time::Duration;

/// How much longer than necessary messages are kept: an event is seen a little after its time.
const SLACK: Duration = Duration::from_secs(1);

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// An event wants it.
    Write,
    /// No event can want it now.
    LeaveOut,
    /// It is still to be seen.
    Open,
}

/// The spans around events, and the present.
#[derive(Debug)]
pub struct Wanted {
    before: Duration,
    after: Duration,
    spans: Intervals,
    /// The time of the last message, or a later one when nothing comes.
    now: Option<Timestamp>,
}

impl Wanted {
    /// No event yet; messages are kept for `before`, and wanted until `after` an event.
    pub fn new(before: Duration, after: Duration) -> Self {
        Self {
            before,
            after,
            spans: Intervals::default(),
            now: None,
        }
    }

    /// How long to keep messages before an event.
    pub fn before(&self) -> Duration {
        self.before
    }

    /// An event: messages around this time are wanted.
    pub fn add_around(&mut self, time: Timestamp) {
        self.spans.add_around(time, self.before, self.after);
    }

    /// Takes note of the time.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = self.now.max(Some(now));
    }

    /// The present time, once it is known.
    pub fn now(&self) -> Option<Timestamp> {
        self.now
    }

    /// The fate of a message that came then.
    pub fn fate(&self, time: Timestamp) -> Fate {
        if self.spans.contains(time) {
            return Fate::Write;
        }
        let kept = self.before.saturating_add(SLACK);
        let is_old = |now: Timestamp| now.saturating_since(time) > kept;
        if self.now.is_some_and(is_old) {
            Fate::LeaveOut
        } else {
            Fate::Open
        }
    }

    /// Whether all that the last event wants has come and was written. `oldest` and `newest` are the times of messages that are kept;
    /// `is_caught_up`: nothing waits to come to them.
    pub fn is_over(&self, oldest: Option<Timestamp>, newest: Option<Timestamp>, is_caught_up: bool) -> bool {
        let is_past = |end: Timestamp| self.now.is_some_and(|now| now > end);
        let is_past = self.spans.end().is_none_or(is_past);
        // A message after the end shows that those before it have come.
        let has_later = newest.is_some_and(|newest| !self.spans.contains(newest));
        // A message whose fate is open is older than the wanted ones.
        let has_passed_end = || {
            let oldest = oldest.zip(self.spans.end());
            oldest.is_none_or(|(oldest, end)| oldest > end)
        };
        is_past && (is_caught_up || has_later) && has_passed_end()
    }

    /// Forgets spans that no message to come, and none since `oldest`, can be in.
    pub fn forget_old(&mut self, oldest: Option<Timestamp>) {
        let Some(now) = self.now else { return };
        let kept = self.before.saturating_add(SLACK).saturating_add(SLACK);
        let nanos = i64::try_from(kept.as_nanos()).unwrap_or(i64::MAX);
        let horizon = Timestamp::from_nanos(now.as_nanos().saturating_sub(nanos));
        let oldest = oldest.map_or(horizon, |oldest| oldest.min(horizon));
        self.spans.forget_before(oldest);
    }
}
