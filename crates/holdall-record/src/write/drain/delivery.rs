//! The way of a message into the bag: it may have to wait for its topic's definition, then it may be packed, then it is written.

use super::{
    packing::{Packed, Packing},
    recoding::Recoding,
    writer::Writer,
};
use crate::{
    cache::{CacheEntry, SharedCache},
    write::{
        retained::Progress,
        waiting::{HeldPayload, Overdue, WaitingTopics},
    },
};
use holdall_bag::writer::{CompressionOptions, WriteError};
use holdall_io::wait::Wait;
use holdall_model::{
    loss::LossStage,
    marker::Marker,
    message::PayloadRef,
    qos::QosProfile,
    recoding::live::LiveRecoding,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::{sync::Arc, time::Duration};

/// What comes next for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// It is held back for its definition: [`Delivery::take`] needs its payload.
    Wait,
    /// It is packed, or gets another form: [`Delivery::take`] needs its payload.
    Pack,
    /// [`Delivery::write`] is enough; its payload may remain where it is.
    Write,
}

/// Messages between the cache and the bag.
pub(super) struct Delivery {
    cache: Arc<SharedCache>,
    waiting: WaitingTopics,
    packing: Packing,
    recoding: Recoding,
    writer: Writer,
    /// Messages that were given away when places of publishers were last freed.
    given_at_freeing: u64,
    /// Topics that had too little room to wait for their definitions.
    given_up: Vec<(TopicId, MessageDefinition)>,
}

impl Delivery {
    /// Holds back at most a quarter of what the cache has, no longer than suits a loss window.
    pub fn new(writer: Writer, cache: Arc<SharedCache>, max_loss_window: Option<Duration>) -> Self {
        Self {
            waiting: WaitingTopics::new(cache.bytes_max() / 4, max_loss_window),
            cache,
            packing: Packing::default(),
            recoding: Recoding::default(),
            writer,
            given_at_freeing: 0,
            given_up: Vec::new(),
        }
    }

    /// Packs payloads before they are written.
    ///
    /// # Errors
    /// When the system gives no threads for it.
    pub fn start_packing(&mut self, options: &CompressionOptions) -> Result<(), WriteError> {
        self.packing = Packing::start(options)?;
        self.writer.set_packed();
        Ok(())
    }

    /// Gives messages another form before they are written.
    pub fn start_recoding(&mut self, recoding: &LiveRecoding, max_loss_window: Option<Duration>) {
        self.recoding = Recoding::start(recoding, max_loss_window);
    }

    /// The end of the way.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// The same, when no more messages come.
    pub fn into_writer(self) -> Writer {
        self.writer
    }

    /// Messages of this topic will come; `None` while its definition is being asked for.
    pub fn add_topic(&mut self, topic: TopicId, info: TopicInfo, definition: Option<MessageDefinition>) {
        match definition {
            Some(definition) if self.is_recoded(topic, &info) => {
                if let Some(followers) = self.writer.followers() {
                    followers.add_topic(topic, &info, &definition, true);
                }
                self.writer.judge_received_topic(topic, &info, &definition);
                self.recoding.add(topic, info, definition);
            }
            Some(definition) => self.writer.add_topic(topic, info, definition),
            None => self.waiting.add(topic, info),
        }
    }

    /// A publisher of a topic offers this.
    pub fn add_offer(&mut self, topic: TopicId, type_name: &str, qos: QosProfile) {
        if !self.waiting.add_offer(topic, type_name, qos) {
            let has_forms = self.recoding.add_offer(topic, type_name, qos);
            self.writer.add_offer(topic, type_name, has_forms, qos);
        }
    }

    /// Whether the messages of a topic get another form. A picture that a file repeats at its beginning would lack those that it depends on.
    fn is_recoded(&self, topic: TopicId, info: &TopicInfo) -> bool {
        let takes = self.recoding.takes(info);
        let is_repeated = takes && self.writer.repeats(topic);
        if is_repeated {
            tracing::warn!(
                "{}: recorded without another form: each file repeats its last messages",
                info.name
            );
        }
        takes && !is_repeated
    }

    /// Gives a topic its definition, and writes the messages held back for it.
    pub fn define(&mut self, topic: TopicId, definition: MessageDefinition) {
        if self.writer.define_other(topic, &definition) {
            return;
        }
        // A topic whose messages no longer wait is in the bag.
        let received = self.waiting.oldest().unwrap_or_default();
        let Some((info, held)) = self.waiting.remove(topic) else {
            self.recoding.define(topic, &definition);
            return self.writer.define(topic, definition);
        };
        self.add_topic(topic, info, Some(definition));
        for (entry, payload) in held {
            self.pack_or_write(entry, payload, received);
        }
        self.writer.count_runs();
    }

    /// Topics whose messages have waited for too long. Call [`Self::define`] with each.
    pub fn overdue(&self, now: Duration) -> Vec<Overdue> {
        self.waiting.overdue(now)
    }

    /// All topics that wait.
    pub fn all_waiting(&self) -> Vec<Overdue> {
        self.waiting.all()
    }

    /// Takes the topics that had too little room to wait since the last call, with the definitions that they were recorded with.
    pub fn take_given_up(&mut self) -> Vec<(TopicId, MessageDefinition)> {
        std::mem::take(&mut self.given_up)
    }

    /// When the oldest message that is held back was received, at the earliest.
    pub fn oldest_waiting(&self) -> Option<Duration> {
        let recoding = self.recoding.oldest().map(|(_, received)| received);
        [self.waiting.oldest(), recoding].into_iter().flatten().min()
    }

    /// The topic whose messages have waited longest for their new form, and for how long.
    pub fn waits_for_encoder(&self, now: Duration) -> Option<(&str, Duration)> {
        let (topic, received) = self.recoding.oldest()?;
        Some((topic, now.saturating_sub(received)))
    }

    /// What comes next for a message of a topic.
    #[inline]
    pub fn route(&self, topic: TopicId) -> Route {
        if self.waiting.contains(topic) {
            Route::Wait
        } else if self.packing.is_on() || self.recoding.has(topic) {
            Route::Pack
        } else {
            Route::Write
        }
    }

    /// Takes a message that was received at `received` or later. The cache is charged for its payload until it is written.
    pub fn take(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) {
        match self.route(entry.topic) {
            Route::Wait => self.hold(entry, payload, received),
            Route::Pack | Route::Write => self.pack_or_write(entry, payload, received),
        }
    }

    /// Holds a message back until its topic's definition arrives.
    fn hold(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) {
        for topic in self.waiting.hold(entry, payload, received) {
            tracing::warn!(
                "{}: too many messages wait for its definition; recorded without one",
                topic.name
            );
            let definition = topic.without_definition();
            self.given_up.push((topic.id, definition.clone()));
            self.define(topic.id, definition);
        }
    }

    fn pack_or_write(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) {
        if self.recoding.has(entry.topic) && !self.writer.has_further_type(&entry) {
            if let Some(followers) = self.writer.followers() {
                followers.received(&entry, payload.as_payload());
            }
            self.writer.judge_received(&entry, payload.as_payload());
            return self.recoding.give(entry, payload, received);
        }
        if self.packing.is_on() {
            return self.pack(entry, payload);
        }
        self.write(entry, payload.as_payload());
        let pinned_bytes = payload.held_bytes();
        drop(payload);
        self.cache.loan_returned(entry.topic, pinned_bytes);
    }

    /// Gives a payload to be packed. When too many are in flight, waits for the oldest, or drops it where the options request that.
    fn pack(&mut self, entry: CacheEntry, payload: HeldPayload) {
        // Each turn takes one out of flight.
        while let Some(oldest) = self.packing.make_room() {
            self.write_packed(oldest);
        }
        self.writer.judge_unpacked(&entry, payload.as_payload());
        self.packing.submit(entry, payload);
    }

    /// Writes packed payloads, in order, or all in flight.
    pub fn write_all_packed(&mut self, wait: Wait) {
        while let Some(packed) = self.packing.take_ready(wait) {
            self.write_packed(packed);
        }
        self.writer.count_runs();
    }

    fn write_packed(&mut self, packed: Packed) {
        let Packed { message, payload } = packed;
        let entry = message.entry;
        match payload {
            Some(Ok(packed)) => self
                .writer
                .write(entry, PayloadRef::Bytes(&packed), message.bytes),
            Some(Err(error)) => {
                tracing::error!("cannot compress a message: {error}");
                self.writer.lose(&entry, LossStage::Compression);
            }
            None => self.writer.lose(&entry, LossStage::Compression),
        }
        self.cache.loan_returned(entry.topic, message.held_bytes);
    }

    /// Writes messages that got another form, or kept theirs; with `wait` all that were given away.
    pub fn write_all_recoded(&mut self, wait: Wait) {
        loop {
            let room_bytes = self.room_for_recoding(wait);
            while let Some(message) = self.recoding.take_back(room_bytes, wait, &mut self.writer) {
                if message.is_left_out {
                    let payload = PayloadRef::Loan(&*message.payload);
                    self.writer.leave_out(&message.entry, Some(payload));
                } else {
                    self.writer.write_recoded(&message);
                }
                self.cache.loan_returned(message.entry.topic, message.held_bytes);
            }
            if wait == Wait::No || self.recoding.back() == self.recoding.given() {
                break;
            }
        }
        self.writer.count_runs();
    }

    /// What messages may hold that are away: half of the cache. Nothing where other messages fill the rest while these are waited for:
    /// only this takes those out of the cache.
    fn room_for_recoding(&self, wait: Wait) -> usize {
        let room_bytes = self.cache.bytes_max() / 2;
        if wait == Wait::UntilReady && self.cache.held_bytes() > room_bytes + room_bytes / 2 {
            return 0;
        }
        room_bytes
    }

    /// Frees places of publishers that have ended, when none of their messages is away any more.
    pub fn free_places(&mut self) {
        if self.recoding.back() >= self.given_at_freeing && self.writer.free_places() {
            self.given_at_freeing = self.recoding.given();
        }
    }

    /// Puts the account of what was done to messages into the file, where it is due.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn note_recoding(&mut self, now: Duration) -> Result<(), WriteError> {
        self.recoding.note(self.writer.bag(), now)
    }

    /// The markers of what gives messages another form, since the last call.
    pub fn take_markers(&mut self) -> Vec<Marker> {
        self.recoding.take_markers()
    }

    /// Ends what gives messages another form, when all are in the bag: what it did.
    pub fn end_recoding(&mut self) -> Option<(String, String)> {
        self.recoding.end(&mut self.writer)
    }

    /// Writes a message without packing.
    #[inline]
    pub fn write(&mut self, entry: CacheEntry, payload: PayloadRef<'_>) {
        self.writer.write(entry, payload, payload.len());
    }

    /// Passes on what was written until `now` (monotonic) to the judge; `last` is the log time of the last message that was taken.
    pub fn pass_to_judge(&mut self, last: Option<Timestamp>, now: Duration) {
        let held = self.oldest_waiting();
        let held = held.map_or(Duration::ZERO, |oldest| now.saturating_sub(oldest));
        self.writer.pass_to_judge(last, held, now);
    }

    /// Continues in a new file, after everything in flight.
    pub fn split(&mut self) {
        self.write_all_packed(Wait::UntilReady);
        self.write_all_recoded(Wait::UntilReady);
        self.writer.split();
    }

    /// What is charged for the memory of messages until they are written.
    pub fn cache(&self) -> &SharedCache {
        &self.cache
    }

    /// How far messages are that came here.
    pub fn progress(&self) -> Progress {
        Progress {
            packing: self.packing.given() + self.recoding.given(),
            packed: self.packing.back() + self.recoding.back(),
            written: self.writer.written(),
            ..Progress::default()
        }
    }

    /// As [`Self::progress`], with what the system has.
    pub fn progress_of_system(&mut self) -> Progress {
        Progress {
            handed: self.writer.bag().handed(),
            has_waiting: self.waiting.has_messages(),
            ..self.progress()
        }
    }
}
