//! Control of a running recording, from any thread.

use super::{cache::SharedCache, receive::gate::Gate, write::drain::DrainShared};
use holdall_io::mutex::lock;
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Debug, Default)]
struct Requests {
    /// Why the recording is to end.
    stop: Option<String>,
    finished: bool,
}

#[derive(Debug, Default)]
struct RequestBox {
    requests: Mutex<Requests>,
    changed: Condvar,
}

impl RequestBox {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        lock(&self.requests)
    }

    fn wait(&self, at_most: Duration, until: impl Fn(&Requests) -> bool) -> bool {
        let (requests, _) = self
            .changed
            .wait_timeout_while(self.lock(), at_most, |requests| !until(requests))
            .unwrap_or_else(PoisonError::into_inner);
        until(&requests)
    }
}

/// Controls a recording. Cheap to clone; does nothing to a recording that has ended.
#[derive(Clone)]
pub struct RecordControl {
    gate: Arc<Gate>,
    cache: Arc<SharedCache>,
    drain: Arc<DrainShared>,
    snapshot_mode: bool,
    requests: Arc<RequestBox>,
}

impl RecordControl {
    pub(super) fn new(
        gate: Arc<Gate>,
        cache: Arc<SharedCache>,
        drain: Arc<DrainShared>,
        snapshot_mode: bool,
    ) -> Self {
        Self {
            gate,
            cache,
            drain,
            snapshot_mode,
            requests: Arc::default(),
        }
    }

    /// Stores nothing that arrives from now on.
    pub fn pause(&self) {
        if !self.gate.set_paused(true) {
            tracing::info!("paused");
        }
    }

    /// Stores what arrives from now on.
    pub fn resume(&self) {
        if self.gate.set_paused(false) {
            tracing::info!("resumed");
        }
    }

    /// Pauses or resumes; returns whether it is paused now.
    pub fn toggle_pause(&self) -> bool {
        let paused = self.gate.toggle_paused();
        tracing::info!("{}", if paused { "paused" } else { "resumed" });
        paused
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.gate.is_paused()
    }

    /// Continues in a new file. Requests that come before it has begun are one.
    pub fn split(&self) {
        self.drain.split();
        self.cache.wake();
    }

    /// Continues in a new file because the current one makes no progress; the ledger records this and the
    /// reason.
    pub(crate) fn continue_in_new_file(&self, reason: String) {
        self.drain.restart(reason);
        self.cache.wake();
    }

    /// Writes what the ring holds; false when the recording is not in snapshot mode.
    pub fn snapshot(&self) -> bool {
        if self.snapshot_mode {
            self.drain.snapshot();
            self.cache.wake();
        }
        self.snapshot_mode
    }

    /// Ends the recording; everything received is still stored. `reason` goes to the log; the first one counts.
    pub fn stop(&self, reason: impl Into<String>) {
        self.requests.lock().stop.get_or_insert_with(|| reason.into());
        self.requests.changed.notify_all();
    }

    /// Why it is to end, once a stop was requested.
    pub fn stop_reason(&self) -> Option<String> {
        self.requests.lock().stop.clone()
    }

    /// Waits until it is to end; false when `at_most` ran out before.
    pub(super) fn wait_stop(&self, at_most: Duration) -> bool {
        self.requests.wait(at_most, |requests| requests.stop.is_some())
    }

    /// Waits until it has ended; false when `at_most` ran out before.
    pub fn wait_finished(&self, at_most: Duration) -> bool {
        self.requests.wait(at_most, |requests| requests.finished)
    }

    pub(super) fn set_finished(&self) {
        self.requests.lock().finished = true;
        self.requests.changed.notify_all();
    }
}
