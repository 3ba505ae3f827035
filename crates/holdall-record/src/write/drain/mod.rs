//! The drain: takes segments from the cache and writes their messages, holding back those whose definition is still being asked for.

mod channels;
mod commands;
mod delivery;
mod durable;
mod followers;
mod markers;
mod packing;
mod promoting;
mod recoding;
mod retain;
mod runs;
mod shared;
mod space;
mod thread;
mod triggered;
mod watch;
mod writer;

pub use super::options::DrainOptions;
pub use commands::DrainCommand;
pub use promoting::{PromoteOptions, RingWindow};
pub(crate) use shared::COMMANDS_MAX;
pub use shared::{DrainShared, DrainStatus};
pub use thread::DrainThread;
pub(crate) use triggered::RequestedEvent;

use super::{checkpoint::Checkpoints, latched::LatchedKeeper, waiting::HeldPayload};
use crate::{
    cache::{Place, Segment, SharedCache, Stored, Waited},
    clock_watch::ClockWatch,
    contract::Tap,
    options::TriggerOptions,
    trigger::{Episodes, MessageTime},
};
use delivery::{Delivery, Route};
use durable::Durable;
use followers::Followers;
use holdall_bag::writer::{BagWriter, ClosedBag, CompressionMode, CompressionOptions, WriteError};
use holdall_io::{clock::Clock, disk::WritePath, mutex::lock, wait::Wait};
use holdall_model::{
    contract::ContractRecord,
    loss::ledger::{Ledger, Restart},
    message::PayloadRef,
    recoding::live::LiveRecoding,
    topic::{MessageDefinition, TopicId},
    unheard::{names_to_custom_data, not_heard_to_custom_data},
};
use markers::Markers;
use promoting::Promoting;
use retain::Retaining;
use shared::DrainRequests;
use space::Space;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use triggered::Triggered;
use writer::Writer;

/// How long messages may gather before the drain writes a segment that is not full: few wake-ups, little delay.
const GATHER_MAX: Duration = Duration::from_millis(5);

/// Writes the contents of the cache. Has no thread and no clock: each step receives the time.
pub struct Drain {
    cache: Arc<SharedCache>,
    ledger: Arc<Mutex<Ledger>>,
    shared: Arc<DrainShared>,
    /// What comes out of the cache or the ring goes here.
    delivery: Delivery,
    durable: Durable,
    retaining: Retaining,
    checkpoints: Checkpoints,
    markers: Markers,
    space: Space,
    /// `None` unless the recording waits for events.
    triggered: Option<Box<Triggered>>,
    /// Files that are complete are listed.
    lists_complete_files: bool,
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
        mut bag: BagWriter,
        cache: Arc<SharedCache>,
        ledger: Arc<Mutex<Ledger>>,
        shared: Arc<DrainShared>,
        options: DrainOptions,
    ) -> Self {
        let retaining = Retaining::new(&cache);
        if retaining.is_on() {
            bag.track_handed();
        }
        let checkpoints = Checkpoints::default();
        bag.set_end_records(checkpoints.end_records(&ledger));
        let (write_path, written_bytes) = (bag.write_path(), bag.written_bytes());
        log_write_path(&write_path);
        let writer = Writer::new(bag, Arc::clone(&ledger), Arc::clone(&shared), &options);
        let space = Space::new(&options);
        writer.update_status(|status| {
            (status.write_path, status.written_bytes) = (write_path, written_bytes);
            (status.ring.kept_free_bytes, status.ring.makes_room) = space.kept_free();
        });
        Self {
            delivery: Delivery::new(writer, Arc::clone(&cache), options.max_loss_window),
            cache,
            ledger,
            durable: Durable::new(&options, Arc::clone(&shared)),
            shared,
            retaining,
            checkpoints,
            markers: Markers::default(),
            space,
            triggered: None,
            lists_complete_files: options.lists_complete_files,
        }
    }

    /// Packs payloads before they are written, if the options ask for it.
    ///
    /// # Errors
    /// When the system gives no threads for it.
    pub(crate) fn with_compression(mut self, options: &CompressionOptions) -> Result<Self, WriteError> {
        if options.mode == CompressionMode::Message {
            self.delivery.start_packing(options)?;
        }
        Ok(self)
    }

    /// Gives messages another form before they are written, if the options ask for it.
    pub(crate) fn with_recoding(mut self, recoding: Option<&LiveRecoding>) -> Self {
        if let Some(recoding) = recoding {
            self.delivery.start_recoding(recoding, self.durable.window());
        }
        self
    }

    /// Keeps messages until an event shows that they are wanted.
    pub(crate) fn with_triggers(mut self, options: Option<&TriggerOptions>, time: MessageTime) -> Self {
        self.triggered =
            options.map(|options| Box::new(Triggered::new(options, time, Arc::clone(&self.shared))));
        self
    }

    /// Has what is written judged by a contract. Called before the first topic.
    pub(crate) fn with_contract(mut self, tap: Option<Tap>) -> Self {
        if let Some(tap) = tap {
            self.delivery.writer().set_tap(tap);
        }
        self
    }

    /// Has episodes started and stopped by what is written, and parts of the ring in `directory` promoted. Called before the first topic.
    pub(crate) fn with_followers(
        mut self,
        episodes: Option<Episodes>,
        promote: Option<PromoteOptions>,
        directory: &Path,
        time: MessageTime,
    ) -> Self {
        let shared = Arc::clone(&self.shared);
        let promoting = promote.map(|options| Promoting::new(options, directory.to_owned(), time, shared));
        self.delivery
            .writer()
            .set_followers(Followers::new(episodes, promoting));
        self
    }

    /// Repeats the messages that `keeper` has at the beginning of each file. Called before the first message.
    pub(crate) fn with_latched(mut self, keeper: Option<Arc<LatchedKeeper>>) -> Self {
        if let Some(keeper) = keeper {
            self.delivery.writer().set_latched(keeper);
        }
        self
    }

    /// Has spans measured by a clock that does not jump, and a new file begun where the one that stamps messages jumps back.
    pub(crate) fn with_clock(mut self, time: Arc<ClockWatch>, measures_spans: bool) -> Self {
        self.delivery.writer().set_clock(time, measures_spans);
        self
    }

    /// Waits for a segment and writes it; false if the recorder has closed the cache and it is empty.
    fn wait_and_step(&mut self, clock: &dyn Clock) -> bool {
        let has_due = |triggered: &Triggered| triggered.has_due_messages();
        if self.triggered.as_deref().is_some_and(has_due) {
            let segment = self.cache.try_take();
            self.step(segment, clock.monotonic());
            return true;
        }
        let has_failed = self.delivery.writer().has_failed();
        let idle = self.durable.idle(has_failed, GATHER_MAX, || clock.monotonic());
        let began = clock.monotonic();
        let waited = self.cache.wait(GATHER_MAX, idle);
        self.durable.waited(began, GATHER_MAX + idle, clock.monotonic());
        match waited {
            Waited::Segment(segment) => self.step(Some(segment), clock.monotonic()),
            Waited::Idle => self.step(None, clock.monotonic()),
            Waited::Finished => {
                self.finish();
                return false;
            }
        }
        true
    }

    /// Takes note of a panic; false if the recording had failed before it.
    fn fail_by_bug(&mut self) -> bool {
        let writer = self.delivery.writer();
        let is_first = !writer.has_failed();
        if is_first {
            writer.fail(WriteError::Internal);
        }
        is_first
    }

    /// Does everything that is due at `now` (monotonic time), beginning with the messages of `segment`.
    pub fn step(&mut self, segment: Option<Segment>, now: Duration) {
        self.delivery.writer().check_clock();
        self.run_commands();
        let last = segment.as_ref().and_then(Segment::last_log_time);
        if self.triggered.is_some() {
            self.step_triggered(segment, now);
        } else if let Some(segment) = segment {
            let received = self.durable.segment_taken(now);
            self.write_segment(segment, received);
        }
        self.delivery.write_all_packed(Wait::No);
        self.delivery.write_all_recoded(Wait::No);
        self.durable
            .sample_arrivals(now, self.cache.queued_segments() as u64);
        for topic in self.delivery.overdue(now) {
            tracing::warn!(
                "{}: no node sent its message definition in time; recorded without one",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
        self.follow_given_up();
        self.mark_episodes(false);
        if let Some(promoting) = self.promoting() {
            promoting.step(last, now);
        }
        self.delivery.pass_to_judge(last, now);
        if let Err(error) = self.maintain(now) {
            self.delivery.writer().fail(error);
        }
        self.retaining.release(&mut self.delivery);
    }

    /// Runs the queued commands, and then the requests. One new file serves all of these.
    fn run_commands(&mut self) {
        // Taken one by one, so that the lock is not held while one is carried out.
        while let Some(command) = self.shared.next_command() {
            match command {
                DrainCommand::AddTopic {
                    topic,
                    info,
                    definition,
                } => {
                    if let Some(triggered) = &mut self.triggered {
                        triggered.add_topic(topic, &info, definition.as_ref());
                    }
                    self.delivery.add_topic(topic, info, definition);
                }
                DrainCommand::AddType {
                    topic,
                    info,
                    definition,
                } => self.delivery.writer().add_type(topic, info, definition),
                DrainCommand::Offer {
                    topic,
                    type_name,
                    qos,
                } => self.delivery.add_offer(topic, &type_name, qos),
                DrainCommand::Define { topics, definition } => {
                    for topic in topics {
                        self.define(topic, definition.clone());
                    }
                }
            }
        }
        let DrainRequests {
            new_file,
            restart,
            snapshot,
            markers,
            events,
        } = self.shared.take_requests();
        if let Some(reason) = restart {
            let time = self.checkpoints.last_written();
            lock(&self.ledger).restarted(Restart { time, reason });
        }
        if new_file {
            self.delivery.split();
        }
        if snapshot {
            self.cache.dump();
        }
        self.markers.add(markers);
        if let Some(triggered) = &mut self.triggered {
            triggered.add_requested(events);
            self.markers.add(triggered.take_markers());
        } else if let Some(promoting) = self.promoting() {
            promoting.add_requested(events);
        }
    }

    /// The events that promote parts of the ring, if there are any.
    fn promoting(&mut self) -> Option<&mut Promoting> {
        self.delivery.writer().followers()?.promoting()
    }

    /// Gives a topic its definition, and writes the messages held back for it.
    fn define(&mut self, topic: TopicId, definition: MessageDefinition) {
        self.define_for_triggers(topic, &definition);
        self.delivery.define(topic, definition);
    }

    /// Lets triggers know of the topics that had too little room to wait.
    fn follow_given_up(&mut self) {
        for (topic, definition) in self.delivery.take_given_up() {
            self.define_for_triggers(topic, &definition);
        }
    }

    fn define_for_triggers(&mut self, topic: TopicId, definition: &MessageDefinition) {
        if let Some(triggered) = &mut self.triggered
            && !self
                .delivery
                .writer()
                .has_other_type(topic, &definition.type_name)
        {
            triggered.define(topic, definition);
        }
    }

    /// Writes the contents of a segment; nothing in it was received before `received`.
    fn write_segment(&mut self, mut segment: Segment, received: Duration) {
        self.delivery.writer().begin_messages();
        let last_log_time = segment.last_log_time();
        let mut place = Place::default();
        let mut holds_waiting = false;
        while let Some(Stored {
            entry, payload, next, ..
        }) = segment.message(place)
        {
            match self.delivery.route(entry.topic) {
                Route::Write => {
                    self.delivery.write(entry, payload);
                    if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
                        drop(loan);
                        self.cache.loan_returned(entry.topic, pinned_bytes);
                    }
                }
                route => {
                    holds_waiting |= route == Route::Wait;
                    if let Some(payload) = take_out(&mut segment, place, &self.cache) {
                        self.delivery.take(entry, payload, received);
                    }
                }
            }
            place = next;
        }
        if let Some(last) = last_log_time {
            self.checkpoints.written_until(last);
        }
        self.delivery.writer().count_runs();
        self.retaining
            .release_segment(segment, &self.cache, holds_waiting, &self.delivery);
    }

    /// Does the work due at `now` of a recording that waits for events, beginning with a segment that comes into the ring.
    fn step_triggered(&mut self, mut segment: Option<Segment>, now: Duration) {
        let Some(triggered) = &mut self.triggered else {
            return;
        };
        let is_caught_up = segment.is_none();
        triggered.begin_step(segment.as_mut(), &mut self.delivery, now);
        if let Some(segment) = segment {
            self.retaining
                .release_segment(segment, &self.cache, false, &self.delivery);
        }
        if let Some(last) = triggered.release_decided(&mut self.delivery) {
            self.durable.received(now);
            self.checkpoints.written_until(last);
        }
        self.markers.add(triggered.take_markers());
        let is_over = triggered.ends_events(is_caught_up);
        if is_over {
            // The next events have another file.
            self.write_markers();
            self.delivery.split();
        }
        if let Some(triggered) = &mut self.triggered {
            triggered.end_step();
        }
    }

    /// Puts requested markers into the current file, if nothing has failed.
    fn write_markers(&mut self) {
        let writer = self.delivery.writer();
        if !writer.has_failed()
            && let Err(error) = self.markers.write(writer.bag())
        {
            writer.fail(error);
        }
    }

    /// Does work that is due without a message: the bag's own, syncs for the loss window, files that the ring removed.
    fn maintain(&mut self, now: Duration) -> Result<(), WriteError> {
        // A failure may have come after the ring had removed a file.
        self.delivery.writer().count_expired();
        if self.delivery.writer().has_failed() {
            return Ok(());
        }
        let bag = self.delivery.writer().bag();
        bag.step()?;
        if self.lists_complete_files {
            self.shared.add_complete(|| bag.take_complete());
        }
        self.maintain_durability(now)?;
        self.delivery.note_recoding(now)?;
        self.delivery.free_places();
        let writer = self.delivery.writer();
        writer.count_expired();
        self.markers.write(writer.bag())?;
        writer.write_contract()?;
        writer.write_checkpoint(&mut self.checkpoints, now)?;
        self.space.maintain(now, writer, &self.shared)
    }

    /// Requests syncs in time, and reports durable messages.
    fn maintain_durability(&mut self, now: Duration) -> Result<(), WriteError> {
        if self.durable.is_syncing() && self.delivery.writer().bag().is_durable()? {
            let place = self.durable.sync_ended(now, self.delivery.waits_for_encoder(now));
            self.delivery.writer().is_durable_before(place);
        }
        if self.durable.is_due(now, self.delivery.waits_for_encoder(now)) {
            self.delivery.write_all_packed(Wait::UntilReady);
            let writer = self.delivery.writer();
            writer.bag().make_durable()?;
            let journal_end = writer.journal_end();
            let held = self.delivery.oldest_waiting();
            self.durable
                .sync_begun(now, journal_end, &lock(&self.ledger), held);
        }
        Ok(())
    }

    /// Writes messages still held back, when no more segments will come.
    pub fn finish(&mut self) {
        self.run_commands();
        if let Some(triggered) = &mut self.triggered {
            triggered.finish(&mut self.delivery, &self.checkpoints);
        }
        self.follow_given_up();
        for topic in self.delivery.all_waiting() {
            tracing::warn!(
                "{}: no node sent its message definition before the end",
                topic.name
            );
            self.define(topic.id, topic.without_definition());
        }
        self.delivery.write_all_packed(Wait::UntilReady);
        self.delivery.write_all_recoded(Wait::UntilReady);
        self.mark_episodes(true);
        self.run_commands();
        if let Some(promoting) = self.promoting() {
            promoting.finish();
        }
    }

    /// Requests markers of the episodes that messages have started and stopped, and of topics whose encoders do not follow.
    fn mark_episodes(&mut self, is_end: bool) {
        let followers = self.delivery.writer().followers();
        let episodes = followers.map(|followers| followers.take_episode_markers(is_end));
        for marker in episodes.into_iter().flatten().chain(self.delivery.take_markers()) {
            tracing::info!("{}", marker.name);
            if !self.shared.mark(marker) {
                tracing::warn!("a marker is not in the bag: it has as many as it may have");
            }
        }
    }

    /// Ends the bag, with the ledger in it. `clock` measures how long messages not yet durable had to wait.
    pub fn close(mut self, clock: &dyn Clock) -> ClosedBag {
        self.delivery.writer().settle();
        self.write_markers();
        let recoded = self.delivery.end_recoding();
        let episodes = self.markers.episodes();
        let writer = self.delivery.writer();
        let judged = writer.end_contract(episodes, clock.monotonic());
        let Self {
            ledger,
            shared,
            delivery,
            mut durable,
            markers,
            ..
        } = self;
        let of_contract = judged.as_ref().map(ContractRecord::named);
        let records = durable.record().into_iter().chain(of_contract);
        let closed = delivery.into_writer().close(records, |has_failed| {
            if !has_failed {
                durable.closed(clock.monotonic(), &lock(&ledger));
            }
            let mut custom_data = durable.end();
            custom_data.extend(markers.end());
            custom_data.extend(recoded);
            custom_data.extend(judged.map(|record| record.custom_data()));
            custom_data.extend(names_to_custom_data(&shared.unheard_services()));
            custom_data.extend(not_heard_to_custom_data(&shared.not_heard()));
            custom_data
        });
        if self.lists_complete_files {
            shared.add_last_complete(&closed.complete);
        }
        closed
    }
}

/// Takes a message's payload out of its segment; the cache continues to count its memory.
fn take_out(segment: &mut Segment, place: Place, cache: &SharedCache) -> Option<HeldPayload> {
    if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
        return Some(HeldPayload::Loan(loan, pinned_bytes));
    }
    let Stored { entry, payload, .. } = segment.message(place)?;
    let PayloadRef::Bytes(bytes) = payload else {
        return None;
    };
    cache.hold(entry.topic, bytes.len());
    Some(HeldPayload::Bytes(bytes.into()))
}
