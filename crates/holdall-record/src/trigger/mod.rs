//! A recording that waits for events: the last messages stay in memory until an event shows whether they are wanted.

mod conditions;
mod options;
mod ring;
mod status;

pub(super) use conditions::{Conditions, MessageTime};
pub use options::{Trigger, TriggerOptions};
pub(super) use ring::{Ring, RingPayload};
pub use status::{TriggerCount, TriggerStatus};

use holdall_model::{time::Timestamp, trigger::Intervals};
use std::time::Duration;

/// How much longer than necessary messages are kept: an event is seen a little after its time.
const SLACK: Duration = Duration::from_secs(1);

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// An event wants it.
    Write,
    /// No event can want it now.
    LeaveOut,
    /// It is still to be seen.
    Open,
}

/// The state of a recording that waits for events. All times are of a clock that does not jump.
pub(super) struct Triggered {
    pub time: MessageTime,
    pub ring: Ring,
    pub conditions: Conditions,
    pub status: TriggerStatus,
    before: Duration,
    after: Duration,
    wanted: Intervals,
    /// The time of the last message, or a later one when nothing comes.
    now: Option<Timestamp>,
    /// Messages that an event could have needed were evicted for lack of memory, and that was logged.
    pub is_short_known: bool,
    /// When the status is published next.
    pub next_status: Duration,
    /// When topics that have not appeared are named in the log, once.
    pub absent_due: Option<Duration>,
}

impl Triggered {
    pub fn new(options: &TriggerOptions, time: MessageTime) -> Self {
        Self {
            time,
            ring: Ring::new(options.ring_bytes_max),
            conditions: Conditions::new(&options.triggers),
            status: TriggerStatus::new(&options.triggers),
            before: options.before,
            after: options.after,
            wanted: Intervals::default(),
            now: None,
            is_short_known: false,
            next_status: Duration::ZERO,
            absent_due: None,
        }
    }

    /// How long to keep messages before an event.
    pub fn before(&self) -> Duration {
        self.before
    }

    /// Messages around this time are wanted; true if nothing was being recorded.
    pub fn event(&mut self, time: Timestamp) -> bool {
        self.wanted.add_around(time, self.before, self.after);
        !std::mem::replace(&mut self.status.is_recording, true)
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
    fn fate(&self, time: Timestamp) -> Fate {
        if self.wanted.contains(time) {
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

    /// The fate of the oldest message.
    pub fn oldest_fate(&self) -> Option<Fate> {
        self.ring.oldest_time().map(|time| self.fate(time))
    }

    /// Whether all that the last event wants has come and was written. `is_caught_up`: nothing waits to come into the ring.
    pub fn is_over(&self, is_caught_up: bool) -> bool {
        let is_past = |end: Timestamp| self.now.is_some_and(|now| now > end);
        let is_past = self.wanted.end().is_none_or(is_past);
        // A message after the end shows that those before it have come.
        let has_later = || {
            self.ring
                .newest()
                .is_some_and(|newest| !self.wanted.contains(newest))
        };
        self.status.is_recording && is_past && (is_caught_up || has_later()) && self.has_passed_end()
    }

    /// Whether the ring has no more messages that the last event can need: a message of unknown status is older than the wanted ones.
    fn has_passed_end(&self) -> bool {
        let oldest = self.ring.oldest_time().zip(self.wanted.end());
        oldest.is_none_or(|(oldest, end)| oldest > end)
    }

    /// Forgets spans that no message in the ring or to come can be in.
    pub fn forget_old(&mut self) {
        let Some(now) = self.now else { return };
        let kept = self.before.saturating_add(SLACK).saturating_add(SLACK);
        let nanos = i64::try_from(kept.as_nanos()).unwrap_or(i64::MAX);
        let horizon = Timestamp::from_nanos(now.as_nanos().saturating_sub(nanos));
        let oldest = self
            .ring
            .oldest_time()
            .map_or(horizon, |oldest| oldest.min(horizon));
        self.wanted.forget_before(oldest);
    }
}
