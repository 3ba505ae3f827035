//! Where the recorder's thread waits between two steps: a stop, or something to look at, ends the wait.

use holdall_io::mutex::lock;
use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Debug, Default)]
struct State {
    /// Why the recording is to end.
    stop: Option<String>,
    finished: bool,
    /// There is something to look at.
    is_woken: bool,
}

/// Shared by the recorder's thread and everything that it waits for.
#[derive(Debug, Default)]
pub(in crate::record) struct StepWait {
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
    pub(in crate::record) fn wake(&self) {
        if !std::mem::replace(&mut lock(&self.state).is_woken, true) {
            self.changed.notify_all();
        }
    }

    /// Waits until there is something to look at or the recording is to end, at most this long; true when there is something to look at.
    pub(super) fn wait_news(&self, at_most: Duration) -> bool {
        let mut state = self.wait(at_most, |state| state.is_woken || state.stop.is_some());
        std::mem::take(&mut state.is_woken)
    }

    /// Waits until the recording is to end; false when `at_most` ran out before.
    pub(super) fn wait_stop(&self, at_most: Duration) -> bool {
        self.wait(at_most, |state| state.stop.is_some()).stop.is_some()
    }

    /// Waits until the recording has ended; false when `at_most` ran out before.
    pub(super) fn wait_finished(&self, at_most: Duration) -> bool {
        self.wait(at_most, |state| state.finished).finished
    }

    /// True until an end was requested or came.
    pub(super) fn is_recording(&self) -> bool {
        let state = lock(&self.state);
        state.stop.is_none() && !state.finished
    }

    /// Ends the recording; the first reason counts.
    pub(super) fn stop(&self, reason: String) {
        lock(&self.state).stop.get_or_insert(reason);
        self.changed.notify_all();
    }

    /// Why it is to end, once a stop was requested.
    pub(super) fn stop_reason(&self) -> Option<String> {
        lock(&self.state).stop.clone()
    }

    pub(super) fn set_finished(&self) {
        lock(&self.state).finished = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

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
