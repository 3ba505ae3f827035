//! Wakes the node's thread when a request has arrived; a call before the wait is not lost.

use super::state::Next;
use holdall_io::{clock::Clock, mutex::lock};
use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Time between two polls for events without a wake-up: a client that does not hear this node yet, an answer of another thread.
const SOON: Duration = Duration::from_millis(2);

/// Longest wait for a time of day: the clock may be set.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    is_called: bool,
    is_ended: bool,
}

/// Notified from any thread.
#[derive(Default)]
pub(super) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

impl Signal {
    /// Ends the current wait, or the next one.
    pub fn notify(&self) {
        lock(&self.state).is_called = true;
        self.changed.notify_all();
    }

    /// Ends all waits.
    pub fn end(&self) {
        lock(&self.state).is_ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next step; false if there is none.
    pub fn wait(&self, next: Next, clock: &dyn Clock) -> bool {
        let at_most = match next {
            Next::Signal => None,
            Next::Soon => Some(SOON),
            Next::At(time) => Some(time.saturating_since(clock.now()).min(LONGEST)),
        };
        let state = lock(&self.state);
        let is_idle = |state: &mut State| !(state.is_called || state.is_ended);
        let mut state = match at_most {
            None => self
                .changed
                .wait_while(state, is_idle)
                .unwrap_or_else(PoisonError::into_inner),
            Some(at_most) => {
                let waited = self.changed.wait_timeout_while(state, at_most, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.is_called = false;
        !state.is_ended
    }
}
