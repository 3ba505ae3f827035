//! State that the drain shares with the recorder: its queue of commands, its state, and its finished files.

use super::{DrainCommand, RequestedEvent, RingWindow};
use crate::{
    events::FinishedFile, limits::ReachedLimit, step_wait::StepWait, trigger::TriggerStatus,
    write::survival::SurvivalLog,
};
use holdall_io::{disk::WritePath, mutex::lock};
use holdall_model::unheard::NotHeard;
use holdall_model::{
    free_space::RingState,
    loss::DurabilityStatus,
    marker::{MARKERS_MAX, Marker},
    network::Network,
    trigger::CopyFault,
};
use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Public state of the drain.
#[derive(Clone, Debug, Default)]
pub struct DrainStatus {
    /// The file being written.
    pub current_file: PathBuf,
    /// The way that its files take to the disk.
    pub write_path: WritePath,
    /// Bytes that the disk has taken; it counts while the drain waits for the disk, too.
    pub written_bytes: Arc<AtomicU64>,
    /// Free bytes where the bag is.
    pub available_bytes: Option<u64>,
    /// When they are used up at the present rate, once that is known; never where the oldest files make room.
    pub full_in: Option<Duration>,
    /// Why nothing more is stored, if so: one sentence.
    pub failure: Option<String>,
    /// Files begun on request or because a limit was reached, the first one not counted.
    pub splits: u64,
    /// How much is durable, and how well the loss window was kept.
    pub durability: DurabilityStatus,
    /// Durable messages by topic, indexed by [`TopicId`].
    pub durable: Vec<u64>,
    /// Why the recording should be ended, if it should: one sentence.
    pub must_end: Option<String>,
    /// The limit that ends the recording, once it is reached.
    pub reached: Option<ReachedLimit>,
    /// `None` unless the recording waits for events, or copies what is around them.
    pub triggered: Option<TriggerStatus>,
    /// What a copy of a part of the ring needs to know.
    pub ring: RingState,
}

/// The most commands that wait for the drain: it waits for the disk, and nodes bring topics in that time.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// Requests that wait for the drain. Those of one kind are one: no message comes between them.
#[derive(Debug, Default)]
pub(super) struct DrainRequests {
    /// Continue in a new file.
    pub new_file: bool,
    /// The current file makes no progress: the first reason, for the ledger.
    pub restart: Option<String>,
    /// Write the contents of snapshot mode's ring.
    pub snapshot: bool,
    /// Markers to put into the current file.
    pub markers: Vec<Marker>,
    /// Events to record.
    pub events: Vec<RequestedEvent>,
}

/// The most finished files that wait to be reported to other nodes.
const FINISHED_FILES_MAX: usize = 1024;

/// So many complete files that no caller has taken are enough.
const COMPLETE_FILES_MAX: usize = 1024;

/// So many parts of a ring that no caller has taken are enough: each keeps files.
const RING_WINDOWS_MAX: usize = 32;

/// State that the drain shares with the recorder.
#[derive(Debug, Default)]
pub struct DrainShared {
    /// At most [`COMMANDS_MAX`].
    commands: Mutex<VecDeque<DrainCommand>>,
    requests: Mutex<DrainRequests>,
    status: Mutex<DrainStatus>,
    finished: Mutex<Vec<FinishedFile>>,
    /// Files that are whole and durable, where the recording lists them.
    complete: Mutex<Vec<PathBuf>>,
    /// Parts of the ring that events want, at most [`RING_WINDOWS_MAX`].
    ring_windows: Mutex<Vec<RingWindow>>,
    survival: SurvivalLog,
    /// Markers requested so far.
    markers: AtomicUsize,
    /// Services whose calls cannot be recorded.
    unheard_services: Mutex<BTreeSet<String>>,
    /// At most [`NOT_HEARD_MAX`].
    not_heard: Mutex<BTreeSet<NotHeard>>,
    /// As the transports last listed them.
    networks: Mutex<Vec<Network>>,
    /// Wakes the recorder's thread.
    wait: Arc<StepWait>,
}

/// The most nodes and publishers that are named as not heard.
const NOT_HEARD_MAX: usize = 1_000;

impl DrainShared {
    /// Logs topics and definitions for a rescue before their messages come, and signals `wait` when there is news.
    pub(crate) fn new(survival: SurvivalLog, wait: Arc<StepWait>) -> Self {
        Self {
            survival,
            wait,
            ..Self::default()
        }
    }

    /// Whether the queue takes another command. Only one thread queues commands, so the answer holds until it does.
    pub fn has_room(&self) -> bool {
        lock(&self.commands).len() < COMMANDS_MAX
    }

    /// Queues a command for the drain, where [`DrainShared::has_room`]; call [`SharedCache::wake`] when it should not wait for the next
    /// message.
    pub fn command(&self, command: DrainCommand) {
        command.log_to(&self.survival);
        let mut commands = lock(&self.commands);
        debug_assert!(commands.len() < COMMANDS_MAX, "a full queue takes no command");
        commands.push_back(command);
    }

    /// The oldest command, for the drain.
    pub(super) fn next_command(&self) -> Option<DrainCommand> {
        lock(&self.commands).pop_front()
    }

    /// The requests since the last call, for the drain.
    pub(super) fn take_requests(&self) -> DrainRequests {
        std::mem::take(&mut *lock(&self.requests))
    }

    /// Stores which services have no introspection, for the bag and the report.
    pub fn set_unheard_services(&self, names: BTreeSet<String>) {
        *lock(&self.unheard_services) = names;
    }

    /// Services without introspection, as last stored.
    pub fn unheard_services(&self) -> BTreeSet<String> {
        lock(&self.unheard_services).clone()
    }

    /// Adds nodes and publishers that are not heard, for the bag and the report; returns the new ones.
    pub(crate) fn add_not_heard(&self, found: Vec<NotHeard>) -> Vec<NotHeard> {
        let mut all = lock(&self.not_heard);
        let mut new = Vec::new();
        for one in found {
            if all.len() < NOT_HEARD_MAX && all.insert(one.clone()) {
                new.push(one);
            }
        }
        new
    }

    /// Nodes and publishers not heard so far.
    pub fn not_heard(&self) -> BTreeSet<NotHeard> {
        lock(&self.not_heard).clone()
    }

    /// Stores which networks are used, for the report.
    pub(crate) fn set_networks(&self, networks: Vec<Network>) {
        *lock(&self.networks) = networks;
    }

    /// The networks as last stored.
    pub fn networks(&self) -> Vec<Network> {
        lock(&self.networks).clone()
    }

    /// Requests a new file; one that is already requested serves this request, too.
    pub fn split(&self) {
        lock(&self.requests).new_file = true;
    }

    /// Requests a new file because the current one makes no progress. The ledger records the first reason of several that wait.
    pub fn restart(&self, reason: String) {
        let mut requests = lock(&self.requests);
        requests.new_file = true;
        requests.restart.get_or_insert(reason);
    }

    /// Requests the contents of snapshot mode's ring, in a separate file.
    pub fn snapshot(&self) {
        let mut requests = lock(&self.requests);
        requests.new_file = true;
        requests.snapshot = true;
    }

    /// Requests a marker in the current file; false if the recording has as many as it may have.
    pub fn mark(&self, marker: Marker) -> bool {
        let has_room = self.reserve_marker();
        if has_room {
            lock(&self.requests).markers.push(marker);
        }
        has_room
    }

    /// Takes the place of one marker; false if the recording has as many as it may have.
    pub(super) fn reserve_marker(&self) -> bool {
        let has_room = self.markers.fetch_add(1, Ordering::Relaxed) < MARKERS_MAX;
        if !has_room {
            self.markers.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Requests an event; false if too many wait.
    pub(crate) fn trigger(&self, event: RequestedEvent) -> bool {
        let mut requests = lock(&self.requests);
        let has_room = requests.events.len() < MARKERS_MAX;
        if has_room {
            requests.events.push(event);
        }
        has_room
    }

    /// Lists a finished file for [`Self::take_finished`]. In a recording whose session is never stepped nothing takes them, and only the
    /// first ones are listed.
    pub(super) fn add_finished(&self, file: FinishedFile) {
        let mut finished = lock(&self.finished);
        if finished.len() < FINISHED_FILES_MAX {
            finished.push(file);
        }
        drop(finished);
        self.wake_recorder();
    }

    /// Lists complete files for [`Self::take_complete`], as far as there is room; the others follow.
    pub(super) fn add_complete(&self, take: impl FnOnce() -> Vec<PathBuf>) {
        let mut complete = lock(&self.complete);
        if complete.len() < COMPLETE_FILES_MAX {
            complete.extend(take());
        }
    }

    /// Lists the complete files at the end, all of them.
    pub(super) fn add_last_complete(&self, files: &[PathBuf]) {
        lock(&self.complete).extend_from_slice(files);
    }

    /// Files that were finished since the last call; the last one of a recording is not among them.
    pub(crate) fn take_finished(&self) -> Vec<FinishedFile> {
        std::mem::take(&mut *lock(&self.finished))
    }

    /// Files that are complete since the last call.
    pub(crate) fn take_complete(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *lock(&self.complete))
    }

    /// Lists a part of the ring for [`Self::take_ring_windows`], if there is room.
    pub(super) fn add_ring_window(&self, window: RingWindow) {
        let mut windows = lock(&self.ring_windows);
        if windows.len() < RING_WINDOWS_MAX {
            windows.push(window);
            return;
        }
        drop(windows);
        let fault = CopyFault {
            output: None,
            event: window.reason,
            span: window.span,
            is_made: false,
            reason: format!("{RING_WINDOWS_MAX} copies wait already"),
        };
        tracing::warn!("{fault}");
        self.note_copy(Some(fault));
    }

    /// Takes note of a copy of a part of the ring that has ended; without a fault it is whole.
    pub(crate) fn note_copy(&self, fault: Option<CopyFault>) {
        self.update_status(|status| {
            if let Some(events) = &mut status.triggered {
                events.copies.add(fault);
            }
        });
    }

    /// How long this process did not run, as the recorder's thread saw it, if that explains the findings at `now`.
    pub(super) fn absence(&self, now: Duration) -> Option<Duration> {
        self.wait.absence(now)
    }

    /// Parts of the ring that events want since the last call.
    pub(crate) fn take_ring_windows(&self) -> Vec<RingWindow> {
        std::mem::take(&mut *lock(&self.ring_windows))
    }

    /// Nothing more is stored.
    pub fn has_failed(&self) -> bool {
        lock(&self.status).failure.is_some()
    }

    /// The recording should be ended.
    pub(crate) fn must_end(&self) -> bool {
        lock(&self.status).must_end.is_some()
    }

    /// The limit that ends the recording, once it is reached.
    pub(crate) fn reached(&self) -> Option<ReachedLimit> {
        lock(&self.status).reached
    }

    /// Takes note of a limit that was reached; the first one counts.
    pub(crate) fn reach(&self, limit: ReachedLimit) {
        lock(&self.status).reached.get_or_insert(limit);
        self.wait.wake();
    }

    /// Something is new for the recorder's thread: a finished file, or a reason to end.
    pub(super) fn wake_recorder(&self) {
        self.wait.wake();
    }

    pub(super) fn update_status(&self, change: impl FnOnce(&mut DrainStatus)) {
        change(&mut lock(&self.status));
    }

    /// A snapshot of the drain's state.
    pub fn status(&self) -> DrainStatus {
        lock(&self.status).clone()
    }
}
