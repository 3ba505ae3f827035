//! Where the recorder's thread waits between two steps: a stop, or something to look at, ends the wait.

use crate::mutex::lock;
use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A wait that ends this late means that the process was stopped, or its machine slept; a busy machine delays it by less.
pub const STOPPED_MIN: Duration = Duration::from_millis(500);

/// A failure found within this time after such a wait is attributed to it.
const CONSEQUENCE_MAX: Duration = Duration::from_secs(5);

/// A span in which this process did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    until: Duration,
    /// How long it was.
    pub span: Duration,
}

impl Absence {
    /// The absence that a wait shows: it was planned to end at most `at_most` after `began`, and has ended now (monotonic time).
    pub fn of_wait(began: Duration, at_most: Duration, now: Duration) -> Option<Self> {
        let span = now.saturating_sub(began.saturating_add(at_most));
        (span >= STOPPED_MIN).then_some(Self { until: now, span })
    }

    /// Whether it explains what is found at `now`.
    pub fn explains(&self, now: Duration) -> bool {
        now.saturating_sub(self.until) < CONSEQUENCE_MAX
    }
}

#[derive(Debug, Default)]
struct State {
    /// Why the recording should end.
    stop: Option<String>,
    /// The last one.
    absence: Option<Absence>,
    finished: bool,
    /// There is something to look at.
    is_woken: bool,
}

/// Shared by the recorder's thread and everything that it waits for.
#[derive(Debug, Default)]
pub struct StepWait {
    state: Mutex<State>,
    changed: Condvar,
}

impl StepWait {
    fn wait(&self, at_most: Duration, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let (state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), at_most, |state| !until(state))
            .unwrap_or_else(PoisonError::into_inner);
        state
    }

    /// There is something to look at: the next step comes soon. From any thread; never blocks for long.
    pub fn wake(&self) {
        if !std::mem::replace(&mut lock(&self.state).is_woken, true) {
            self.changed.notify_all();
        }
    }

    /// Waits until there is news or the recording should end, at most this long; true if there is news.
    pub fn wait_news(&self, at_most: Duration) -> bool {
        let mut state = self.wait(at_most, |state| state.is_woken || state.stop.is_some());
        std::mem::take(&mut state.is_woken)
    }

    /// Notes that this process did not run for a while.
    pub fn note_absence(&self, absence: Absence) {
        lock(&self.state).absence = Some(absence);
    }

    /// How long this process did not run, if that explains the findings at `now`.
    pub fn absence(&self, now: Duration) -> Option<Duration> {
        let absence = lock(&self.state).absence?;
        absence.explains(now).then_some(absence.span)
    }

    /// Waits until the recording should end; false if `at_most` ran out before.
    pub fn wait_stop(&self, at_most: Duration) -> bool {
        self.wait(at_most, |state| state.stop.is_some()).stop.is_some()
    }

    /// Waits until the recording has ended; false if `at_most` ran out before.
    pub fn wait_finished(&self, at_most: Duration) -> bool {
        self.wait(at_most, |state| state.finished).finished
    }

    /// True until an end was requested or came.
    pub fn is_recording(&self) -> bool {
        let state = lock(&self.state);
        state.stop.is_none() && !state.finished
    }

    /// Ends the recording; the first reason counts.
    pub fn stop(&self, reason: String) {
        lock(&self.state).stop.get_or_insert(reason);
        self.changed.notify_all();
    }

    /// Why it should end, once a stop was requested.
    pub fn stop_reason(&self) -> Option<String> {
        lock(&self.state).stop.clone()
    }

    /// The recording has ended.
    pub fn set_finished(&self) {
        lock(&self.state).finished = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_wait_that_ends_half_a_second_late_is_an_absence_that_explains_what_follows() {
        let seconds = Duration::from_secs;
        assert_eq!(Absence::of_wait(seconds(1), LONG, seconds(2)), None);
        let busy = Absence::of_wait(
            seconds(1),
            Duration::from_millis(100),
            Duration::from_millis(1500),
        );
        assert_eq!(busy, None);
        let wait = StepWait::default();
        let absence = Absence::of_wait(seconds(1), seconds(1), seconds(29)).unwrap();
        wait.note_absence(absence);
        assert_eq!(wait.absence(seconds(30)), Some(seconds(27)));
        assert_eq!(wait.absence(seconds(40)), None);
    }

    #[test]
    fn news_that_came_before_the_wait_ends_it_and_counts_once() {
        let wait = StepWait::default();
        wait.wake();
        wait.wake();
        assert!(wait.wait_news(LONG));
        assert!(!wait.wait_news(Duration::ZERO));
    }

    #[test]
    fn news_and_a_stop_from_another_thread_end_the_wait() {
        let wait = StepWait::default();
        std::thread::scope(|scope| {
            scope.spawn(|| wait.wake());
            assert!(wait.wait_news(LONG));
            assert!(!wait.wait_stop(Duration::ZERO));
            scope.spawn(|| wait.stop("done".to_owned()));
            assert!(!wait.wait_news(LONG), "a stop is no news");
        });
        assert!(wait.wait_stop(LONG));
        wait.stop("again".to_owned());
        assert_eq!(wait.stop_reason().as_deref(), Some("done"));
    }
}
