//! The recordings and playbacks that run on this machine, each watched over its control socket while pages are open.

use crate::{
    dashboard::{LiveSource, Subject, Watched},
    listen::Ended,
};
use holdall::supervise::running::{RemoteRequests, Running, RunningKind};
use holdall_io::mutex::lock;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Processes that are watched.
const WATCHED_MAX: usize = 64;

/// All that are watched, by process.
#[derive(Default)]
pub(super) struct Recorders(Mutex<BTreeMap<u32, (Running, Arc<Watched>)>>);

impl Recorders {
    /// Watches running programs, and nothing else.
    pub(super) fn follow(&self, running: &[Running], live: Option<&Arc<dyn LiveSource>>) {
        let mut watched = lock(&self.0);
        watched.retain(|_, (known, watched)| {
            let is_running = running.contains(known);
            if !is_running {
                watched.end();
            }
            is_running
        });
        for one in running {
            if watched.len() >= WATCHED_MAX || watched.contains_key(&one.process) {
                continue;
            }
            let subject = Subject {
                kind: one.kind.as_str(),
                requests: Arc::new(RemoteRequests(one.clone())),
                viewers: None,
                live: live.filter(|_| one.kind == RunningKind::Recording).cloned(),
            };
            // It may not answer: that must hold back no other.
            if let Ok(started) = Watched::start_unasked(subject, Ended::default()) {
                watched.insert(one.process, (one.clone(), started));
            }
        }
    }

    /// Known state of a process.
    pub(super) fn get(&self, process: u32) -> Option<Arc<Watched>> {
        lock(&self.0)
            .get(&process)
            .map(|(_, watched)| Arc::clone(watched))
    }

    /// The state of each in short.
    pub(super) fn json(&self) -> Vec<Value> {
        let watched = lock(&self.0);
        watched
            .iter()
            .map(|(process, (running, watched))| {
                json!({"process": process, "kind": running.kind.as_str(), "state": watched.event()})
            })
            .collect()
    }

    /// Watches none.
    pub(super) fn end(&self) {
        for (_, (_, watched)) in std::mem::take(&mut *lock(&self.0)) {
            watched.end();
        }
    }
}
