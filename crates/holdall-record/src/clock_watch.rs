//! Watches the clock that stamps messages: finds its jumps, and converts its times to a clock without jumps.

use super::write::drain::DrainShared;
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    marker::Marker,
    time::Timestamp,
    time_line::{ClockJump, TimeLine},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The most jumps of one recording that are named; further ones are counted.
const NAMED_MAX: usize = 100;

/// Longest time between two readings of monotonic time around one of the time of day; if it is longer, the thread was interrupted.
const READING_MAX: Duration = Duration::from_millis(5);

/// Attempts to read both clocks at once; the next look is soon.
const READINGS_MAX: usize = 3;

/// Jumps of the clock that stamps a recording's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockJumps {
    /// All of them.
    pub count: u64,
    /// The first ones, at most 100, in their order.
    pub named: Vec<ClockJump>,
}

/// Known facts about the clock that stamps messages. Shared by the parts that receive, keep and write them.
pub(super) struct ClockWatch {
    clock: Arc<dyn Clock>,
    is_simulated: bool,
    line: Mutex<TimeLine>,
    named: Mutex<Vec<ClockJump>>,
    /// As in `line`, to be read for each batch of messages.
    jumps: AtomicU64,
    drain: Arc<DrainShared>,
}

impl fmt::Debug for ClockWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockWatch")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl ClockWatch {
    /// Watches the time of day of `clock`, or with `is_simulated` what comes on `/clock`. Jumps become markers of `drain`.
    pub fn new(clock: Arc<dyn Clock>, is_simulated: bool, drain: Arc<DrainShared>) -> Self {
        let watch = Self {
            clock,
            is_simulated,
            line: Mutex::default(),
            named: Mutex::default(),
            jumps: AtomicU64::new(0),
            drain,
        };
        watch.look();
        watch
    }

    /// Looks at the time of day. A message that was stamped before this call is of a time that is known.
    pub fn look(&self) {
        if self.is_simulated {
            return;
        }
        // Read under the lock, so that readings are noted in order.
        let mut line = lock(&self.line);
        let jump = self
            .read()
            .and_then(|(now, monotonic)| line.see_wall(now, monotonic));
        self.note(jump, &line);
        drop(line);
        self.report(jump);
    }

    /// Takes note of a message on `/clock`.
    pub fn see_simulated(&self, time: Timestamp) {
        let mut line = lock(&self.line);
        let jump = line.see_simulated(time, self.clock.monotonic());
        self.note(jump, &line);
        drop(line);
        self.report(jump);
    }

    fn read(&self) -> Option<(Timestamp, Duration)> {
        let read = || {
            let before = self.clock.monotonic();
            let now = self.clock.now();
            let after = self.clock.monotonic();
            (after.saturating_sub(before) <= READING_MAX).then_some((now, after))
        };
        (0..READINGS_MAX).find_map(|_| read())
    }

    fn note(&self, jump: Option<ClockJump>, line: &TimeLine) {
        if jump.is_some() {
            self.jumps.store(line.jumps(), Ordering::Release);
        }
    }

    /// A jump is a warning and a marker.
    fn report(&self, jump: Option<ClockJump>) {
        let Some(jump) = jump else { return };
        let mut named = lock(&self.named);
        if named.len() == NAMED_MAX {
            return;
        }
        named.push(jump);
        let is_last = named.len() == NAMED_MAX;
        drop(named);
        let more = if is_last {
            "; further jumps are counted only"
        } else {
            ""
        };
        tracing::warn!("{jump}: the log times of messages jump with it, spans are measured without it{more}");
        self.drain.mark(Marker::of_jump(jump));
    }

    /// Jumps so far.
    pub fn count(&self) -> u64 {
        self.jumps.load(Ordering::Acquire)
    }

    /// Whether one of the jumps with these numbers, from 0 and without the last, was back. Those that are not named may have been.
    pub fn jumped_back_since(&self, first: u64, end: u64) -> bool {
        let named = lock(&self.named);
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        (place(first)..place(end).min(NAMED_MAX + 1))
            .any(|number| named.get(number).is_none_or(|jump| jump.is_back()))
    }

    /// Jumps so far, with their details.
    pub fn jumps(&self) -> ClockJumps {
        ClockJumps {
            count: self.count(),
            named: lock(&self.named).clone(),
        }
    }

    /// The present in time that does not jump, as of the last look.
    pub fn steady_now(&self) -> Timestamp {
        lock(&self.line).now()
    }

    /// Looks, and gives what says how long ago a time of day was, without jumps since: it can be called where nothing may be written.
    pub fn ago(&self) -> impl Fn(Timestamp) -> Duration {
        self.look();
        |time| {
            if self.is_simulated {
                // The jumps of the time of day are not watched.
                return self.clock.now().saturating_since(time);
            }
            let line = lock(&self.line);
            line.now().saturating_since(line.steady_of(time))
        }
    }

    /// When a message was stamped, in time that does not jump.
    pub fn steady_of(&self, stamp: Timestamp) -> Timestamp {
        lock(&self.line).steady_of(stamp)
    }

    /// Reading of the clock at such a time.
    pub fn stamp_of(&self, steady: Timestamp) -> Timestamp {
        lock(&self.line).stamp_of(steady)
    }

    /// How many jumps were before a message was stamped.
    pub fn jumps_before(&self, stamp: Timestamp) -> u64 {
        lock(&self.line).jumps_before(stamp)
    }
}
