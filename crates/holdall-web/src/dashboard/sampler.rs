//! Asks the subject for its state twice a second, so that the number of clients does not matter to it.

use super::{
    LiveSource, Subject,
    state::{Snapshot, State},
};
use crate::listen::Ended;
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Time between two states, and so the shortest time between two events.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Newest {
    number: u64,
    snapshot: Arc<Snapshot>,
}

/// The newest state of the subject.
pub(super) struct Sampler {
    subject: Subject,
    state: Mutex<State>,
    newest: Mutex<Newest>,
    changed: Condvar,
}

impl Sampler {
    pub(super) fn new(subject: Subject) -> Self {
        Self {
            subject,
            state: Mutex::default(),
            newest: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Samples until the server has ended.
    pub(super) fn run(&self, ended: &Ended) {
        let mut next = SystemClock.monotonic();
        while !ended.is_set() {
            self.sample();
            next = (next + INTERVAL).max(SystemClock.monotonic());
            SystemClock.sleep_until(next);
        }
        self.changed.notify_all();
    }

    /// Takes one state; the first one before clients are served.
    pub(super) fn sample(&self) {
        let now = SystemClock.monotonic();
        let subject = &self.subject;
        let mut reply = subject.requests.execute("status", &json!({"request": "status"}));
        if let (Some(viewers), true) = (&subject.viewers, reply["status"].is_object()) {
            reply["status"]["viewers"] = viewers.json();
        }
        if let (Some(live), true) = (&subject.live, reply["status"].is_object()) {
            let status = &mut reply["status"];
            let there = status["host"]["domain"].as_str().map(str::to_owned);
            let here = live.domain();
            // Topics of another domain are not heard here.
            status["looks"] = json!(there.is_none() || here.is_none() || there == here);
        }
        let names = subject.requests.names();
        let snapshot = Arc::new(lock(&self.state).note(&reply, subject.kind, names, now));
        let mut newest = lock(&self.newest);
        newest.number += 1;
        newest.snapshot = snapshot;
        drop(newest);
        self.changed.notify_all();
    }

    /// The newest state.
    pub(super) fn newest(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.newest).snapshot)
    }

    /// A state that is newer than the one with this number; the same one when none came in time.
    pub(super) fn newer(&self, number: u64) -> (u64, Arc<Snapshot>) {
        let (newest, _) = self
            .changed
            .wait_timeout_while(lock(&self.newest), 2 * INTERVAL, |newest| newest.number == number)
            .unwrap_or_else(PoisonError::into_inner);
        (newest.number, Arc::clone(&newest.snapshot))
    }

    /// The rates of the last seconds, and what a recording remembers of its whole time.
    pub(super) fn history(&self) -> String {
        let mut history = lock(&self.state).history();
        let past = self.request("history", &json!({"request": "history"}));
        history["past"] = past.map(|mut reply| reply["past"].take()).unwrap_or_default();
        history.to_string()
    }

    /// Where its topics can be listened to.
    pub(super) fn live(&self) -> Option<&Arc<dyn LiveSource>> {
        self.subject.live.as_ref()
    }

    /// Carries out a request; `None` if the subject has no such one.
    pub(super) fn request(&self, name: &str, arguments: &Value) -> Option<Value> {
        let name = self
            .subject
            .requests
            .names()
            .iter()
            .find(|known| **known == name)?;
        Some(self.subject.requests.execute(name, arguments))
    }
}
