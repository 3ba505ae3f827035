//! Controls a running playback from other threads: accepts commands, returns snapshots.

use super::{
    schedule::{Schedule, is_rate_valid},
    status::{LatenessMeter, PlayPhase, PlayStatus},
};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Commands that may wait; a keyboard that repeats can never fill memory.
const COMMANDS_MAX: usize = 1024;

/// Of a wait, what is left to the clock's exact sleep; a command is seen at most this much later.
const EXACT_SLEEP: Duration = Duration::from_millis(1);

/// What a user asks of a running playback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Command {
    Pause,
    Resume,
    Toggle,
    /// Play this many messages at once, while paused.
    Next(u64),
    Rate(f64),
    Seek(Timestamp),
    Stop,
}

/// Wakes the playing thread; a call before the wait is not lost.
#[derive(Debug, Default)]
pub(super) struct Wake {
    called: Mutex<bool>,
    signal: Condvar,
}

impl Wake {
    /// Ends the current wait, or the next one.
    pub fn notify(&self) {
        *lock(&self.called) = true;
        self.signal.notify_all();
    }

    /// Waits to be notified; false when `timeout` ran out.
    pub fn wait_for(&self, timeout: Duration) -> bool {
        let called = lock(&self.called);
        let waited = self.signal.wait_timeout_while(called, timeout, |called| !*called);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits to be notified, however long it takes.
    pub fn wait(&self) {
        let called = lock(&self.called);
        let mut called = self
            .signal
            .wait_while(called, |called| !*called)
            .unwrap_or_else(PoisonError::into_inner);
        *called = false;
    }

    /// Waits until `deadline` on `clock`'s monotonic time, exactly; returns early when notified.
    pub fn wait_until(&self, clock: &dyn Clock, deadline: Duration) {
        let left = deadline.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return;
        }
        if left > EXACT_SLEEP && self.wait_for(left - EXACT_SLEEP) {
            return;
        }
        clock.sleep_until(deadline);
    }
}

/// What the playing thread shows to others, renewed after each step.
#[derive(Debug)]
pub(super) struct Progress {
    pub phase: PlayPhase,
    pub paused: bool,
    pub schedule: Schedule,
    pub start: Timestamp,
    pub duration: Duration,
    pub round: u64,
    pub published: u64,
    pub refused: u64,
    pub starved: u64,
    pub lateness: LatenessMeter,
}

impl Progress {
    /// Playback of a range of bag time, before its first step.
    pub fn new(schedule: Schedule, start: Timestamp, duration: Duration) -> Self {
        Self {
            phase: PlayPhase::Preparing,
            paused: false,
            schedule,
            start,
            duration,
            round: 1,
            published: 0,
            refused: 0,
            starved: 0,
            lateness: LatenessMeter::new(),
        }
    }

    /// The snapshot for users.
    pub fn status(&self, now: Duration) -> PlayStatus {
        PlayStatus {
            phase: self.phase,
            position: self.schedule.position(now),
            start: self.start,
            duration: self.duration,
            rate: self.schedule.rate(),
            paused: self.paused,
            round: self.round,
            published: self.published,
            refused: self.refused,
            starved: self.starved,
            lateness: self.lateness.summary(),
        }
    }
}

/// What the playing thread and its controls have in common.
pub(super) struct Shared {
    pub commands: Mutex<VecDeque<Command>>,
    pub progress: Arc<Mutex<Progress>>,
    pub wake: Arc<Wake>,
    pub clock: Arc<dyn Clock>,
}

impl Shared {
    /// Takes the next command.
    pub(crate) fn next_command(&self) -> Option<Command> {
        lock(&self.commands).pop_front()
    }

    /// True when a stop waits to be taken.
    pub(crate) fn is_stop_asked(&self) -> bool {
        lock(&self.commands).contains(&Command::Stop)
    }

    /// The snapshot for users.
    pub fn status(&self) -> PlayStatus {
        lock(&self.progress).status(self.clock.monotonic())
    }
}

/// Steers a running playback; clones steer the same one. Commands after its end do nothing.
#[derive(Clone)]
pub struct PlayControl {
    pub(super) shared: Arc<Shared>,
}

impl PlayControl {
    /// Stops bag time.
    pub fn pause(&self) {
        self.send(Command::Pause);
    }

    /// Lets bag time move on.
    pub fn resume(&self) {
        self.send(Command::Resume);
    }

    /// Pauses or resumes, whichever it is time for.
    pub fn toggle(&self) {
        self.send(Command::Toggle);
    }

    /// Plays the next `count` messages at once and sets bag time to the last one's stamp. Only while paused.
    pub fn next(&self, count: u64) {
        self.send(Command::Next(count));
    }

    /// Changes the speed from now on; false, and nothing done, when `rate` is not a sensible number above zero.
    pub fn set_rate(&self, rate: f64) -> bool {
        let valid = is_rate_valid(rate);
        if valid {
            self.send(Command::Rate(rate));
        }
        valid
    }

    /// Continues with the first message at or after `to`, clamped to the range that is played.
    pub fn seek(&self, to: Timestamp) {
        self.send(Command::Seek(to));
    }

    /// Ends the playback.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// A snapshot of the playback.
    pub fn status(&self) -> PlayStatus {
        self.shared.status()
    }

    fn send(&self, command: Command) {
        let mut commands = lock(&self.shared.commands);
        if commands.len() < COMMANDS_MAX || command == Command::Stop {
            commands.push_back(command);
        }
        drop(commands);
        self.shared.wake.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn a_notification_before_the_wait_is_not_lost() {
        let wake = Wake::default();
        wake.notify();
        wake.wait();
        assert!(!wake.wait_for(Duration::ZERO));
    }

    #[test]
    fn a_notified_wait_ends_long_before_its_deadline() {
        let wake = Wake::default();
        wake.notify();
        let deadline = SystemClock.monotonic() + Duration::from_secs(3600);
        wake.wait_until(&SystemClock, deadline);
        assert!(SystemClock.monotonic() < deadline);
    }

    #[test]
    fn a_wait_ends_no_earlier_than_its_deadline() {
        let deadline = SystemClock.monotonic() + Duration::from_millis(3);
        Wake::default().wait_until(&SystemClock, deadline);
        assert!(SystemClock.monotonic() >= deadline);
    }
}
