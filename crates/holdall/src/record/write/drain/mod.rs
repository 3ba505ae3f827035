//! The drain: takes segments from the cache and writes their messages, holding back those whose definition is still being asked for.

mod places;
mod retain;
mod thread;
mod types;

pub use super::options::DrainOptions;
pub use thread::DrainThread;
use types::OtherTypes;

use super::{
    checkpoint::{Checkpoints, account_for, by_topic_of_recording, ledger_record},
    durability::{Arrivals, LossWindow, Verdict},
    journal::Journal,
    options::{OnDiskFull, RING_FREE_SPACE_BYTES},
    retained::{Progress, Retained},
    space::too_little_space,
    survival::SurvivalLog,
    waiting::{HeldPayload, WaitingTopics},
};
use crate::{
    record::{
        cache::{CacheEntry, Place, Segment, SharedCache, Stored},
        events::FinishedFile,
        lock::lock,
    },
    writer::{
        BagError, BagTopic, BagWriter, ClosedBag, CompressionMode, CompressionOptions, CopiedPayload,
        PayloadPacking, PublisherSlot,
    },
};
use holdall_io::clock::Clock;
use holdall_model::{
    loss::{
        DURABILITY_RECORD, DurabilityStatus, LossStage,
        ledger::{Interval, Ledger, PublisherIndex, Restart},
    },
    message::{Loan, PayloadRef},
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use holdall_storage::writer::{ChannelInfo, StoredMessage};
use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How often the disk's free space is reported.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is checked when some space must stay free: a fast disk writes a third of a gigabyte in that time.
const SPACE_GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// How fast the blocks of a removed file become free: ext4 takes 120 to 190 ms for 1 GB. Waiting longer than
/// that, a second for small files too, let a fast recording fill the disk in the meantime.
const FREED_BYTES_PER_NANO: u64 = 5;

/// The most finished files that wait to be reported to other nodes.
const FINISHED_FILES_MAX: usize = 1024;

/// What the recorder asks of the drain, in order.
#[derive(Clone, Debug)]
pub enum DrainCommand {
    /// Messages of this topic will come.
    AddTopic {
        /// Its number in the recording.
        topic: TopicId,
        /// How the bag describes it.
        info: TopicInfo,
        /// Its definition; `None` while it is being asked for.
        definition: Option<MessageDefinition>,
    },
    /// Messages of this topic with another type will come.
    AddType {
        /// The topic's number in the recording.
        topic: TopicId,
        /// How the bag describes the topic of that type.
        info: TopicInfo,
        /// The type's definition; encoding `Unknown` while it is being asked for.
        definition: MessageDefinition,
    },
    /// The definition that a node was asked for, or that there is none.
    Define {
        /// Its topic.
        topic: TopicId,
        /// The definition; encoding `Unknown` when there is none.
        definition: MessageDefinition,
    },
    /// Continue in a new file.
    Split,
    /// Continue in a new file because the current one makes no progress: the reason, for the ledger.
    Restart(String),
    /// Write what the ring of snapshot mode holds, into a file of its own.
    Snapshot,
}

/// What others may know about the drain.
#[derive(Clone, Debug, Default)]
pub struct DrainStatus {
    /// The file being written.
    pub current_file: PathBuf,
    /// Free bytes where the bag is.
    pub available_bytes: Option<u64>,
    /// Why nothing more is stored, if that is so: one sentence.
    pub failure: Option<String>,
    /// Files begun on request or because a limit was reached, the first one not counted.
    pub splits: u64,
    /// What is durable, and how well the loss window was kept.
    pub durability: DurabilityStatus,
    /// Durable messages by topic, indexed by [`TopicId`].
    pub durable: Vec<u64>,
    /// Why the recording should be ended, if it should: one sentence.
    pub must_end: Option<String>,
}

/// What the drain shares with the recorder.
#[derive(Debug, Default)]
pub struct DrainShared {
    commands: Mutex<VecDeque<DrainCommand>>,
    status: Mutex<DrainStatus>,
    finished: Mutex<Vec<FinishedFile>>,
    survival: SurvivalLog,
}

impl DrainShared {
    /// Logs topics and definitions for a rescue before their messages come.
    pub fn surviving(survival: SurvivalLog) -> Self {
        Self {
            survival,
            ..Self::default()
        }
    }

    /// Queues a command for the drain; call [`SharedCache::wake`] when it should not wait for the next message.
    pub fn command(&self, command: DrainCommand) {
        command.log_to(&self.survival);
        lock(&self.commands).push_back(command);
    }

    /// Files that were finished since the last call; the last one of a recording is not among them.
    pub fn take_finished(&self) -> Vec<FinishedFile> {
        std::mem::take(&mut *lock(&self.finished))
    }

    /// Nothing more is stored.
    pub fn has_failed(&self) -> bool {
        lock(&self.status).failure.is_some()
    }

    /// The recording should be ended.
    pub fn must_end(&self) -> bool {
        lock(&self.status).must_end.is_some()
    }

    fn current_file(&self) -> PathBuf {
        lock(&self.status).current_file.clone()
    }

    /// A snapshot of the drain's state.
    pub fn status(&self) -> DrainStatus {
        lock(&self.status).clone()
    }
}

/// A run of messages of one publisher that were written.
struct Run {
    topic: TopicId,
    publisher: PublisherIndex,
    count: u64,
    bytes: u64,
}

/// A message whose payload is being packed.
struct InPacking {
    entry: CacheEntry,
    /// Length of its payload as it was sent.
    bytes: usize,
    /// What the cache is charged with for it, in bytes.
    held_bytes: usize,
}

/// Writes what the cache holds. Has no thread and no clock of its own: each step is given the time.
pub struct Drain {
    bag: BagWriter,
    cache: Arc<SharedCache>,
    ledger: Arc<Mutex<Ledger>>,
    shared: Arc<DrainShared>,
    /// Indexed by [`TopicId`]; `None` while the topic's definition is being waited for.
    topics: Vec<Option<BagTopic>>,
    /// The other way round: indexed by [`BagTopic`].
    of_bag: Vec<TopicId>,
    other_types: OtherTypes,
    waiting: WaitingTopics,
    runs: Vec<Run>,
    /// There for message compression.
    packing: Option<PayloadPacking<InPacking>>,
    failure: Option<BagError>,
    options: DrainOptions,
    window: LossWindow,
    arrivals: Arrivals,
    /// Messages by topic that the sync in flight covers.
    syncing: Vec<u64>,
    /// What was written and is not durable.
    journal: Journal,
    /// The journal's place that the sync in flight covers.
    syncing_journal: u64,
    /// The journal's end when places of folded publishers were last released.
    places_given: u64,
    next_space: Duration,
    next_space_guard: Duration,
    checkpoints: Checkpoints,
    /// There where messages survive the process.
    retained: Option<Retained>,
    progress: Progress,
    /// Large messages were written that do not survive, and the system may not have them.
    has_large: bool,
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
            of_bag: Vec::new(),
            other_types: OtherTypes::default(),
            waiting,
            runs: Vec::new(),
            packing: None,
            failure: None,
            options,
            window: LossWindow::new(options.max_loss_window),
            arrivals: Arrivals::default(),
            syncing: Vec::new(),
            journal: Journal::default(),
            syncing_journal: 0,
            places_given: 0,
            next_space: Duration::ZERO,
            next_space_guard: Duration::ZERO,
            checkpoints: Checkpoints::default(),
            retained: None,
            progress: Progress::default(),
            has_large: false,
        };
        drain.begin_retaining();
        drain
            .bag
            .set_end_records(drain.checkpoints.end_records(&drain.ledger));
        drain.update_status(|status| status.durability = drain.window.status().clone());
        drain
    }

    /// Packs payloads before they are written, where the options say so.
    ///
    /// # Errors
    /// When the system gives no threads for it.
    pub fn with_compression(mut self, options: &CompressionOptions) -> Result<Self, BagError> {
        if options.mode == CompressionMode::Message {
            self.packing = Some(PayloadPacking::start(options).map_err(BagError::Threads)?);
        }
        Ok(self)
    }

    /// Does everything that is due at `now` (monotonic time), beginning with the messages of `segment`.
    pub fn step(&mut self, segment: Option<Segment>, now: Duration) {
        self.run_commands();
        if let Some(segment) = segment {
            let oldest = self.arrivals.take().filter(|_| !self.options.snapshot);
            let received = oldest.unwrap_or(now);
            self.window.received(received);
            self.write_segment(segment, received);
        }
        self.write_packed(false);
        self.arrivals.sample(now, self.cache.queued_segments() as u64);
        for topic in self.waiting.overdue(now) {
            tracing::warn!(
                "{}: no node sent its message definition in time; recorded without",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
        if let Err(error) = self.maintain_bag(now) {
            self.fail(error);
        }
        self.release_retained();
    }

    /// Runs the queued commands.
    fn run_commands(&mut self) {
        loop {
            // Taken one by one, so that the lock is not held while one is carried out.
            let Some(command) = lock(&self.shared.commands).pop_front() else {
                return;
            };
            match command {
                DrainCommand::AddTopic {
                    topic,
                    info,
                    definition,
                } => {
                    self.add_topic(topic, info, definition);
                }
                DrainCommand::AddType {
                    topic,
                    info,
                    definition,
                } => self.add_type(topic, info, definition),
                DrainCommand::Define { topic, definition } => self.define(topic, definition),
                DrainCommand::Split => self.split(),
                DrainCommand::Restart(reason) => {
                    let time = self.checkpoints.last_written();
                    lock(&self.ledger).restarted(Restart { time, reason });
                    self.split();
                }
                DrainCommand::Snapshot => {
                    self.split();
                    self.cache.dump();
                }
            }
        }
    }

    fn add_topic(&mut self, topic: TopicId, info: TopicInfo, definition: Option<MessageDefinition>) {
        let index = topic.0 as usize;
        if index >= self.topics.len() {
            self.topics.resize(index + 1, None);
        }
        match definition {
            Some(definition) => self.add_to_bag(topic, info, definition),
            None => self.waiting.add(topic, info),
        }
    }

    fn add_to_bag(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        match self.bag.add_topic(ChannelInfo {
            topic: info,
            definition,
        }) {
            Ok(added) => {
                self.topics[topic.0 as usize] = Some(added);
                self.of_bag.push(topic);
                debug_assert_eq!(self.of_bag.len(), added.0 as usize + 1, "bags count from 0");
            }
            Err(error) => self.fail(error),
        }
    }

    /// Gives a topic its definition, and writes what was held back for it.
    fn define(&mut self, topic: TopicId, definition: MessageDefinition) {
        if self.define_other(topic, &definition) {
            return;
        }
        match self.waiting.remove(topic) {
            Some((info, held)) => {
                self.add_to_bag(topic, info, definition);
                for (entry, payload) in held {
                    if self.packing.is_some() {
                        self.pack(entry, payload);
                        continue;
                    }
                    self.write(entry, payload.as_payload(), payload.as_payload().len());
                    let pinned_bytes = payload.held_bytes();
                    drop(payload);
                    self.cache.loan_returned(topic, pinned_bytes);
                }
                self.count_runs();
            }
            // The topic's messages no longer waited.
            None => {
                if let Some(Some(topic)) = self.topics.get(topic.0 as usize)
                    && let Some(name) = self.bag.set_definition(*topic, definition)
                {
                    tracing::info!("{name}: its message definition has come, and is in the bag");
                }
            }
        }
    }

    fn split(&mut self) {
        self.write_packed(true);
        if self.failure.is_none() {
            match self.bag.split() {
                Ok(()) => self.report_split(),
                Err(error) => self.fail(error),
            }
        }
    }

    fn report_split(&self) {
        let closed = self.shared.current_file();
        self.update_status(|status| status.splits += 1);
        let opened = self.shared.current_file();
        tracing::info!("now recording into {}", opened.display());
        let mut finished = lock(&self.shared.finished);
        // In a recording whose session is never stepped nothing takes them.
        if finished.len() < FINISHED_FILES_MAX {
            finished.push(FinishedFile {
                closed,
                opened: Some(opened),
            });
        }
    }

    /// Writes what a segment holds; nothing in it was received before `received`.
    fn write_segment(&mut self, mut segment: Segment, received: Duration) {
        self.forget_vacated();
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
        self.give_back(segment, holds_waiting);
    }

    #[inline]
    fn is_waiting(&self, topic: TopicId) -> bool {
        let added = matches!(self.topics.get(topic.0 as usize), Some(Some(_)));
        !added && self.waiting.contains(topic)
    }

    /// Takes a message's payload out of its segment; the cache continues to count its memory.
    fn take_out(&self, segment: &mut Segment, place: Place, topic: TopicId) -> Option<HeldPayload> {
        if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
            return Some(HeldPayload::Loan(loan, pinned_bytes));
        }
        let PayloadRef::Bytes(bytes) = segment.message(place)?.payload else {
            return None;
        };
        self.cache.hold(topic, bytes.len());
        Some(HeldPayload::Bytes(bytes.into()))
    }

    /// Holds a message back until its topic's definition is there.
    fn hold(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) {
        for topic in self.waiting.hold(entry, payload, received) {
            tracing::warn!(
                "{}: too many messages wait for its definition; recorded without",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
    }

    /// Submits a payload to be packed. When too many are in flight, waits for the oldest, or drops it where the options request that.
    fn pack(&mut self, entry: CacheEntry, payload: HeldPayload) {
        let message = InPacking {
            entry,
            bytes: payload.as_payload().len(),
            held_bytes: payload.held_bytes(),
        };
        let payload: Box<dyn Loan> = match payload {
            HeldPayload::Bytes(bytes) => Box::new(CopiedPayload(bytes)),
            HeldPayload::Loan(loan, _) => loan,
        };
        // Each turn takes one out of what is in flight.
        while let Some(packing) = self.packing.as_mut().filter(|packing| packing.is_full()) {
            let given_up = packing.gives_up().then(|| packing.give_up_oldest()).flatten();
            if let Some(oldest) = given_up {
                self.progress.packed += 1;
                self.lose(&oldest.entry, LossStage::Compression);
                self.cache.loan_returned(oldest.entry.topic, oldest.held_bytes);
            } else if let Some((oldest, packed)) = packing.take_ready(true) {
                self.write_one_packed(&oldest, packed);
            }
        }
        if let Some(packing) = &mut self.packing {
            self.progress.packing += 1;
            packing.submit(message, payload);
        }
    }

    /// Writes what is packed, in order; with `wait`, all that is in flight.
    fn write_packed(&mut self, wait: bool) {
        while let Some((message, packed)) = self.packing.as_mut().and_then(|packing| packing.take_ready(wait))
        {
            self.write_one_packed(&message, packed);
        }
        self.count_runs();
    }

    fn write_one_packed(&mut self, message: &InPacking, packed: io::Result<Vec<u8>>) {
        let InPacking { entry, bytes, .. } = *message;
        self.progress.packed += 1;
        match packed {
            Ok(packed) => self.write(entry, PayloadRef::Bytes(&packed), bytes),
            Err(error) => {
                tracing::error!("a message could not be packed: {error}");
                self.lose(&entry, LossStage::Compression);
            }
        }
        self.cache.loan_returned(entry.topic, message.held_bytes);
    }

    /// Writes one message, or counts it as lost. `bytes` is the length of its payload as it was sent.
    #[inline]
    fn write(&mut self, entry: CacheEntry, payload: PayloadRef<'_>, bytes: usize) {
        let topic = self.bag_topic(&entry);
        let (None, Some(topic)) = (&self.failure, topic) else {
            return self.lose(&entry, LossStage::Storage);
        };
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
                self.count(&entry, bytes as u64);
            }
            Err(error) => {
                // It may be whole in the file even so.
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

    /// The first failure stays: what comes after it is lost, and counted.
    #[cold]
    fn fail(&mut self, error: BagError) {
        if self.failure.is_none() {
            tracing::error!("recording ends early: {error}");
            self.update_status(|status| status.failure = Some(error.to_string()));
            self.failure = Some(error);
        }
    }

    /// Maintains what the bag needs in addition to messages.
    fn maintain_bag(&mut self, now: Duration) -> Result<(), BagError> {
        // A failure may have come after the ring had removed a file.
        self.count_removed();
        if self.failure.is_some() {
            return Ok(());
        }
        self.bag.step()?;
        self.maintain_durability(now)?;
        self.give_places_free();
        self.count_removed();
        if let Some((name, entries)) = self.checkpoints.record(&self.ledger, now) {
            self.bag.write_record(&name, &entries)?;
        }
        self.maintain_space(now)
    }

    /// Requests syncs in time, and reports what has become durable.
    fn maintain_durability(&mut self, now: Duration) -> Result<(), BagError> {
        if self.window.is_in_flight() && self.bag.is_durable()? {
            self.journal.forget_before(self.syncing_journal);
            let verdict = self.window.ended(now, self.syncing.iter().sum());
            self.warn_of(verdict);
            let durability = self.window.status().clone();
            let mut status = lock(&self.shared.status);
            status.durability = durability;
            std::mem::swap(&mut status.durable, &mut self.syncing);
        }
        let verdict = self.window.look(now);
        self.warn_of(verdict);
        if self.window.is_due(now) {
            self.write_packed(true);
            self.bag.make_durable()?;
            self.syncing_journal = self.journal.end();
            self.syncing.clear();
            self.syncing
                .extend(lock(&self.ledger).topics.iter().map(|topic| topic.recorded));
            self.window.begun(now);
            // What is held back is in no file yet.
            if let Some(held) = self.waiting.oldest() {
                self.window.received(held);
            }
        }
        Ok(())
    }

    /// Warns once when the loss window cannot be kept; the report and the bag have the details.
    fn warn_of(&mut self, verdict: Verdict) {
        if let (Verdict::FirstMiss(age), Some(window)) = (verdict, self.options.max_loss_window) {
            tracing::warn!(
                "the disk is too slow for --max-loss-window {:.1} s: a power cut now would take the last {:.1} s",
                window.as_secs_f64(),
                age.as_secs_f64(),
            );
        }
        if verdict != Verdict::Kept {
            lock(&self.shared.status).durability = self.window.status().clone();
        }
    }

    /// Reports how much space is free, and does what the options request when it is too little.
    fn maintain_space(&mut self, now: Duration) -> Result<(), BagError> {
        if now >= self.next_space {
            self.next_space = now + SPACE_INTERVAL;
            self.update_status(|_| {});
        }
        let ring = self.options.on_disk_full == OnDiskFull::Ring;
        let wanted = self
            .options
            .min_free_space_bytes
            .or(ring.then_some(RING_FREE_SPACE_BYTES));
        let Some(wanted) = wanted.filter(|_| now >= self.next_space_guard) else {
            return Ok(());
        };
        self.next_space_guard = now + SPACE_GUARD_INTERVAL;
        let Some(available) = self.bag.available_bytes().filter(|available| *available < wanted) else {
            return Ok(());
        };
        if ring && let Some(bytes) = self.bag.give_up_oldest()? {
            // The system frees the blocks of a removed file in the background.
            self.next_space_guard += Duration::from_nanos(bytes / FREED_BYTES_PER_NANO);
            return Ok(());
        }
        let can_wait = ring && self.bag.has_file_to_give_up();
        if !can_wait && lock(&self.shared.status).must_end.is_none() {
            let on_full = self.options.on_disk_full;
            let reason = too_little_space(self.bag.directory(), available, wanted, on_full);
            tracing::warn!("{reason}");
            self.update_status(|status| status.must_end = Some(reason));
        }
        Ok(())
    }

    /// When something must be done although nothing arrives.
    fn next_deadline(&self) -> Option<Duration> {
        self.window.next_begin().filter(|_| self.failure.is_none())
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

    /// Writes what is still held back, when no more segments will come.
    pub fn finish(&mut self) {
        self.run_commands();
        for topic in self.waiting.all() {
            tracing::warn!(
                "{}: its message definition was not told before the end",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
        self.write_packed(true);
    }

    fn count_removed(&mut self) {
        let vanished = self.bag.take_vanished();
        if !vanished.is_empty() {
            self.count_runs();
            self.update_status(|_| {});
        }
        for count in vanished {
            if let Some(topic) = self.of_bag.get(count.topic.0 as usize) {
                lock(&self.ledger).lose_recorded(*topic, count.messages);
            }
        }
        for count in self.bag.take_removed() {
            if let Some(topic) = self.of_bag.get(count.topic.0 as usize) {
                lock(&self.ledger).remove(*topic, count.messages);
            }
        }
    }

    /// Ends the bag, with the ledger in it. `clock` measures how long what was not yet durable had to wait.
    pub fn close(mut self, clock: &dyn Clock) -> ClosedBag {
        let settled = match &self.failure {
            None => self.bag.replace_vanished().and_then(|_| self.bag.wait_settled()),
            Some(_) => Ok(()),
        };
        if let Err(error) = settled {
            self.fail(error);
        }
        self.count_removed();
        let Self {
            bag,
            ledger,
            of_bag,
            failure,
            shared,
            mut window,
            journal,
            ..
        } = self;
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
            let mut custom_data = account_for(&mut lock(&ledger), &of_bag, end, &journal);
            custom_data.extend(window.status().custom_data());
            custom_data
        });
        let in_files = by_topic_of_recording(&of_bag, &closed.messages);
        let account_faults = lock(&ledger).audit_files(&in_files);
        ClosedBag {
            account_faults,
            ..closed
        }
    }
}
