//! A recording without threads, for a simulator: the same session, cache, drain and bag writer, run step by step.

use super::{
    RecordControl, RecordError,
    assembly::{Assembly, Output, RescueMemory, report},
    options::RecordOptions,
    status::{RecordReport, RecordStatus},
    write::survival::Survival,
};
use holdall_bag::writer::{BagFolder, OpenDisk};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::loss::ledger::Ledger;
use holdall_storage::Storage;
use holdall_transport::Transport;
use std::sync::Arc;

/// A recording whose every step is taken by its owner. Messages arrive when the transport delivers them, in the owner's thread.
pub struct SteppedRecorder(Assembly);

impl SteppedRecorder {
    /// As [`super::Recorder::start`], without starting anything.
    ///
    /// # Errors
    /// As there.
    pub fn new(
        options: RecordOptions,
        transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
        open_disk: OpenDisk,
        folder: Box<dyn BagFolder>,
    ) -> Result<Self, RecordError> {
        let memory = RescueMemory::begin(&options);
        let output = Output {
            open_disk,
            folder,
            storage: None,
        };
        Assembly::new(options, transports, clock, output, memory).map(Self)
    }

    /// As [`SteppedRecorder::new`], with the caller's storage: one broken on purpose, to test that this is noticed.
    ///
    /// # Errors
    /// As there.
    pub fn with_storage(
        options: RecordOptions,
        transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
        open_disk: OpenDisk,
        folder: Box<dyn BagFolder>,
        storage: &'static dyn Storage,
    ) -> Result<Self, RecordError> {
        let memory = RescueMemory::begin(&options);
        let output = Output {
            open_disk,
            folder,
            storage: Some(storage),
        };
        Assembly::new(options, transports, clock, output, memory).map(Self)
    }

    /// The recording's control; the owner must act on a requested stop.
    pub fn control(&self) -> RecordControl {
        self.0.control.clone()
    }

    /// The recording's present state.
    pub fn status(&self) -> RecordStatus {
        self.0.view.status()
    }

    /// Polls the graph, moves messages by hand, asks for definitions: the work of the recorder's own thread.
    pub fn step_session(&mut self) {
        let now = self.0.view.clock.monotonic();
        self.0.session.step(now);
    }

    /// Writes the oldest messages and does other due work: the work of the drain's thread. False if the cache was empty.
    pub fn step_drain(&mut self) -> bool {
        let segment = self.0.view.parts.cache.try_take();
        let has_messages = segment.is_some();
        let now = self.0.view.clock.monotonic();
        self.0.drain.step(segment, now);
        if let Some(judging) = &self.0.view.parts.judging {
            judging.step(now);
        }
        has_messages
    }

    /// Memory that the cache takes, used or ready for use, in bytes.
    pub fn cache_memory_bytes(&self) -> usize {
        self.0.view.parts.cache.memory_bytes()
    }

    /// Whether the disk or a file has failed, so that nothing is stored any more.
    pub fn has_failed(&self) -> bool {
        self.0.view.parts.drain.has_failed()
    }

    /// The memory that survives the process; the recording continues to use it.
    pub fn survival(&self) -> Survival {
        self.0.survival.clone()
    }

    /// The present account of messages.
    pub fn ledger(&self) -> Ledger {
        lock(&self.0.view.parts.ledger).clone()
    }

    /// Ends the recording as the threads would.
    pub fn stop(self) -> RecordReport {
        self.stop_with_ledger().0
    }

    /// Asks the recording to end: it need not contain messages sent from now on.
    pub fn begin_stop(&mut self) {
        self.0.session.note_stop();
    }

    /// As [`SteppedRecorder::stop`], with the ledger from memory: a bag on a failed disk does not have it.
    pub fn stop_with_ledger(mut self) -> (RecordReport, Ledger) {
        self.0.session.poll_announcements();
        self.0.session.note_stop();
        self.0.session.ask_ends();
        self.0.session.end_questions();
        self.0.session.close();
        self.0.view.parts.cache.close();
        // Bounded by the contents of the cache: no more messages come in.
        while self.step_drain() {}
        let Assembly {
            mut drain,
            view,
            survival,
            ..
        } = self.0;
        drain.finish();
        let closed = drain.close(&*view.clock);
        survival.end(&closed.directory);
        let report = report(closed, &view);
        let ledger = lock(&view.parts.ledger).clone();
        (report, ledger)
    }
}
