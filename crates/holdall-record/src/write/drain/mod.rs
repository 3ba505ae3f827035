//! The drain: takes segments from the cache and writes their messages, holding back those whose definition is still being asked for.

mod commands;
mod durable;
mod limits;
mod markers;
mod packing;
mod places;
mod retain;
mod shared;
mod space;
mod thread;
mod triggered;
mod types;

pub use super::options::DrainOptions;
pub use commands::DrainCommand;
use holdall_io::wait::Wait;
use holdall_io::{disk::WritePath, mutex::lock, range_lock::Waiting};
use holdall_model::unheard::{names_to_custom_data, not_heard_to_custom_data};
use limits::Watch;
use markers::custom_data_of;
use packing::InPacking;
pub(crate) use shared::COMMANDS_MAX;
use shared::DrainRequests;
pub use shared::{DrainShared, DrainStatus};
use space::SpaceGuard;
pub use thread::DrainThread;
pub(crate) use triggered::RequestedEvent;
use types::OtherTypes;

use super::{
    checkpoint::{Checkpoints, account_for, by_topic_of_recording, count_repeated, ledger_record},
    durability::{Arrivals, LossWindow},
    journal::Journal,
    retained::{Progress, Retained},
    waiting::{HeldPayload, WaitingTopics},
};
use crate::{
    cache::{CacheEntry, Place, Segment, SharedCache, Stored},
    clock_watch::ClockWatch,
    step_wait::Absence,
    trigger::Triggered,
};
use holdall_bag::writer::{
    BagTopic, BagWriter, ClosedBag, CompressionMode, CompressionOptions, PayloadPacking, PublisherSlot,
    WriteError,
};
use holdall_io::clock::Clock;
use holdall_model::{
    loss::{
        DURABILITY_RECORD, LossStage,
        ledger::{Interval, Ledger, PublisherIndex},
    },
    marker::Marker,
    message::PayloadRef,
    topic::TopicId,
};
use holdall_storage::writer::StoredMessage;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A run of messages of one publisher that were written.
struct Run {
    topic: TopicId,
    publisher: PublisherIndex,
    count: u64,
    bytes: u64,
}

/// Writes the contents of the cache. Has no thread and no clock: each step receives the time.
pub struct Drain {
    bag: BagWriter,
    cache: Arc<SharedCache>,
    ledger: Arc<Mutex<Ledger>>,
    shared: Arc<DrainShared>,
    /// Indexed by [`TopicId`]; `None` while the topic's definition is being waited for.
    topics: Vec<Option<BagTopic>>,
    /// The other way round: indexed by [`BagTopic`].
    topic_of_bag: Vec<TopicId>,
    other_types: OtherTypes,
    waiting: WaitingTopics,
    runs: Vec<Run>,
    /// Set for message compression.
    packing: Option<PayloadPacking<InPacking>>,
    failure: Option<WriteError>,
    options: DrainOptions,
    /// `None` unless something depends on each message that is written.
    watch: Option<Box<Watch>>,
    window: LossWindow,
    arrivals: Arrivals,
    /// Messages by topic that the sync in flight covers.
    syncing: Vec<u64>,
    /// Messages that were written and are not durable.
    journal: Journal,
    /// The journal's place that the sync in flight covers.
    syncing_journal: u64,
    /// The journal's end when places of folded publishers were last released.
    places_released_at: u64,
    next_space: Duration,
    space_guard: SpaceGuard,
    checkpoints: Checkpoints,
    /// In the files; and requested while no file was open.
    markers: Vec<Marker>,
    unwritten_markers: Vec<Marker>,
    /// `None` unless messages survive the process.
    retained: Option<Retained>,
    progress: Progress,
    /// Large messages were written that do not survive, and the system may not have them.
    has_large: bool,
    /// `None` unless the recording waits for events.
    triggered: Option<Box<Triggered>>,
    /// When the last step was, in monotonic time.
    last_step: Duration,
    /// A span in which this process did not run, as long as it can explain findings.
    absence: Option<Absence>,
    /// How long writes had waited for other programs in all when the last sync ended.
    held_before: Duration,
    /// Set when the clock that stamps messages is watched.
    time: Option<Arc<ClockWatch>>,
}

fn log_write_path(path: &WritePath) {
    match path.reason() {
        Some(reason) => tracing::info!(
            "writing through the page cache, because the direct path is not possible: {reason}"
        ),
        None => tracing::debug!("files are written on the {} path", path.as_str()),
    }
}

impl Drain {
    /// A drain from `cache` into `bag`.
    pub fn new(
        bag: BagWriter,
        cache: Arc<SharedCache>,
        ledger: Arc<Mutex<Ledger>>,
        shared: Arc<DrainShared>,
        options: DrainOptions,
    ) -> Self {
        let waiting = WaitingTopics::new(cache.bytes_max() / 4, options.max_loss_window);
        let mut drain = Self {
            bag,
            cache,
            ledger,
            shared,
            topics: Vec::new(),
            topic_of_bag: Vec::new(),
            other_types: OtherTypes::default(),
            waiting,
            runs: Vec::new(),
            packing: None,
            failure: None,
            options,
            watch: Watch::of(options.limits, None),
            window: LossWindow::new(options.max_loss_window),
            arrivals: Arrivals::default(),
            syncing: Vec::new(),
            journal: Journal::default(),
            syncing_journal: 0,
            places_released_at: 0,
            next_space: Duration::ZERO,
            space_guard: SpaceGuard::default(),
            checkpoints: Checkpoints::default(),
            markers: Vec::new(),
            unwritten_markers: Vec::new(),
            retained: None,
            progress: Progress::default(),
            has_large: false,
            triggered: None,
            last_step: Duration::ZERO,
            absence: None,
            held_before: Waiting::total(),
            time: None,
        };
        drain.begin_retaining();
        drain
            .bag
            .set_end_records(drain.checkpoints.end_records(&drain.ledger));
        let write_path = drain.bag.write_path();
        log_write_path(&write_path);
        drain.update_status(|status| {
            status.durability = drain.window.status().clone();
            status.write_path = write_path;
        });
        drain
    }

    /// Packs payloads before they are written, if the options ask for it.
    ///
    /// # Errors
    /// When the system gives no threads for it.
    pub(crate) fn with_compression(mut self, options: &CompressionOptions) -> Result<Self, WriteError> {
        if options.mode == CompressionMode::Message {
            self.packing = Some(PayloadPacking::start(options).map_err(WriteError::Threads)?);
        }
        Ok(self)
    }

    /// Does everything that is due at `now` (monotonic time), beginning with the messages of `segment`.
    pub fn step(&mut self, segment: Option<Segment>, now: Duration) {
        self.last_step = now;
        self.check_clock();
        self.run_commands();
        if self.triggered.is_some() {
            self.step_triggered(segment, now);
        } else if let Some(segment) = segment {
            let oldest = self.arrivals.take().filter(|_| !self.options.snapshot);
            let received = oldest.unwrap_or(now);
            self.window.received(received);
            self.write_segment(segment, received);
        }
        self.write_packed(Wait::No);
        self.arrivals.sample(now, self.cache.queued_segments() as u64);
        for topic in self.waiting.overdue(now) {
            tracing::warn!(
                "{}: no node sent its message definition in time; recorded without one",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
        if let Err(error) = self.maintain_bag(now) {
            self.fail(error);
        }
        self.release_retained();
    }

    /// Writes the contents of a segment; nothing in it was received before `received`.
    fn write_segment(&mut self, mut segment: Segment, received: Duration) {
        self.forget_vacated();
        if let Some(watch) = &mut self.watch {
            watch.reread_length();
        }
        let last_log_time = segment.last_log_time();
        let mut place = Place::default();
        let mut holds_waiting = false;
        while let Some(Stored {
            entry, payload, next, ..
        }) = segment.message(place)
        {
            if self.is_waiting(entry.topic) {
                holds_waiting = true;
                if let Some(payload) = self.take_out(&mut segment, place, entry.topic) {
                    self.hold(entry, payload, received);
                }
            } else if self.packing.is_some() {
                if let Some(payload) = self.take_out(&mut segment, place, entry.topic) {
                    self.pack(entry, payload);
                }
            } else {
                self.write(entry, payload, payload.len());
                if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
                    drop(loan);
                    self.cache.loan_returned(entry.topic, pinned_bytes);
                }
            }
            place = next;
        }
        if let Some(last) = last_log_time {
            self.checkpoints.written_until(last);
        }
        self.count_runs();
        self.release_segment(segment, holds_waiting);
    }

    #[inline]
    fn is_waiting(&self, topic: TopicId) -> bool {
        let added = matches!(self.topics.get(topic.0 as usize), Some(Some(_)));
        !added && self.waiting.contains(topic)
    }

    /// Holds a message back until its topic's definition arrives.
    fn hold(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) {
        for topic in self.waiting.hold(entry, payload, received) {
            tracing::warn!(
                "{}: too many messages wait for its definition; recorded without one",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
    }

    /// Writes one message, or counts it as lost. `bytes` is the length of its payload as it was sent.
    #[inline]
    fn write(&mut self, entry: CacheEntry, payload: PayloadRef<'_>, bytes: usize) {
        let topic = self.bag_topic(&entry);
        let (None, Some(topic)) = (&self.failure, topic) else {
            return self.lose(&entry, LossStage::Storage);
        };
        if self.watch.is_some() && self.must_leave_out(entry.log_time, payload.len()) {
            return self.lose(&entry, LossStage::Policy);
        }
        let message = StoredMessage {
            log_time: entry.log_time,
            publish_time: entry.publish_time.unwrap_or(entry.log_time),
            // MCAP has room for the low 32 bits.
            sequence: entry.sequence.unwrap_or(0) as u32,
            payload,
        };
        let publisher = (!self.options.merge_publishers).then_some(PublisherSlot(entry.publisher.0));
        let who = || lock(&self.ledger).publisher(entry.topic, entry.publisher)?.info();
        match self.bag.write_of((topic, publisher), message, who) {
            Ok(split) => {
                if split {
                    self.report_split();
                }
                self.journal.written(self.bag.file_number(), &entry);
                self.progress.written += 1;
                if self.watch.is_some() {
                    self.watch_written(&entry, topic, payload);
                }
                self.count(&entry, bytes as u64);
            }
            Err(error) => {
                // It may still be whole in the file.
                self.journal.refused(self.bag.file_number(), &entry);
                self.fail(error);
                self.lose(&entry, LossStage::Storage);
            }
        }
    }

    #[inline]
    fn count(&mut self, entry: &CacheEntry, bytes: u64) {
        match self.runs.last_mut() {
            Some(run) if run.topic == entry.topic && run.publisher == entry.publisher => {
                run.count += 1;
                run.bytes += bytes;
            }
            _ => {
                let (topic, publisher) = (entry.topic, entry.publisher);
                self.runs.push(Run {
                    topic,
                    publisher,
                    count: 1,
                    bytes,
                });
            }
        }
    }

    fn count_runs(&mut self) {
        let mut ledger = lock(&self.ledger);
        for run in self.runs.drain(..) {
            ledger.record(run.topic, run.publisher, run.count, run.bytes);
        }
    }

    #[cold]
    fn lose(&self, entry: &CacheEntry, stage: LossStage) {
        let interval = Interval::of_message(stage, entry.sequence, entry.log_time);
        lock(&self.ledger).miss(entry.topic, entry.publisher, interval);
    }

    /// The first failure stays: messages after it are lost, and counted. If the file was deleted or replaced, the recording continues
    /// in a new one instead.
    #[cold]
    fn fail(&mut self, error: WriteError) {
        if self.failure.is_none() {
            let error = match self.bag.replace_vanished_after(&error) {
                Ok(true) => return self.count_removed(),
                Ok(false) => error,
                Err(no_new_file) => no_new_file,
            };
            tracing::error!("recording ends early: {error}");
            self.update_status(|status| status.failure = Some(error.to_string()));
            self.shared.wake_recorder();
            self.failure = Some(error);
        }
    }

    fn update_status(&self, change: impl FnOnce(&mut DrainStatus)) {
        let current_file = self.bag.current_path();
        let available_bytes = self.bag.available_bytes();
        let mut status = lock(&self.shared.status);
        status.available_bytes = available_bytes;
        if let Some(path) = current_file {
            status.current_file = path;
        }
        change(&mut status);
    }

    /// Writes messages still held back, when no more segments will come.
    pub fn finish(&mut self) {
        self.run_commands();
        self.finish_triggered();
        for topic in self.waiting.all() {
            tracing::warn!(
                "{}: no node sent its message definition before the end",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
        self.write_packed(Wait::UntilReady);
    }

    /// Ends the bag, with the ledger in it. `clock` measures how long messages not yet durable had to wait.
    pub fn close(mut self, clock: &dyn Clock) -> ClosedBag {
        let settled = match &self.failure {
            None => self
                .bag
                .replace_vanished_at_end()
                .and_then(|_| self.bag.wait_settled()),
            Some(_) => Ok(()),
        };
        if let Err(error) = settled {
            self.fail(error);
        }
        self.count_removed();
        self.write_markers_at_end();
        let Self {
            bag,
            ledger,
            topic_of_bag,
            failure,
            shared,
            mut window,
            journal,
            markers,
            options,
            ..
        } = self;
        count_repeated(&mut lock(&ledger), &topic_of_bag, &bag.repeated_by_topic());
        let mut records = vec![ledger_record(&lock(&ledger))];
        if window.status().window.is_some() {
            records.push((DURABILITY_RECORD.to_owned(), window.status().entries()));
        }
        let closed = bag.close(records, failure, |end| {
            if !end.failed {
                let ledger = lock(&ledger);
                window.closed(clock.monotonic(), ledger.recorded());
                lock(&shared.status).durable = ledger.topics.iter().map(|topic| topic.recorded).collect();
            }
            lock(&shared.status).durability = window.status().clone();
            let mut custom_data = account_for(&mut lock(&ledger), &topic_of_bag, end, &journal);
            custom_data.extend(window.status().custom_data());
            custom_data.extend(custom_data_of(&markers));
            custom_data.extend(names_to_custom_data(&shared.unheard_services()));
            custom_data.extend(not_heard_to_custom_data(&shared.not_heard()));
            custom_data
        });
        if options.lists_complete_files {
            lock(&shared.complete).extend(closed.complete.iter().cloned());
        }
        let in_files = by_topic_of_recording(&topic_of_bag, &closed.messages);
        let account_faults = lock(&ledger).audit_files(&in_files);
        ClosedBag {
            account_faults,
            ..closed
        }
    }
}
