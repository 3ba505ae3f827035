//! Writes messages into the bag, one after the other, and accounts for each: written, left out, or lost after the first failure.

use super::{channels::Channels, followers::Followers, runs::Runs, shared::DrainShared, watch::Watch};
use crate::{
    cache::CacheEntry,
    clock_watch::ClockWatch,
    contract::Tap,
    events::FinishedFile,
    write::{
        checkpoint::{Checkpoints, account_for, by_topic_of_recording, count_repeated, ledger_record},
        drain::DrainStatus,
        journal::Journal,
        latched::{InBag, LatchedKeeper},
        options::DrainOptions,
    },
};
use holdall_bag::writer::{BagTopic, BagWriter, ClosedBag, PublisherSlot, WriteError};
use holdall_io::mutex::lock;
use holdall_model::{
    contract::{CONTRACT_RECORD, ContractRecord},
    episode::Episode,
    loss::{
        LossStage,
        ledger::{Interval, Ledger},
    },
    message::PayloadRef,
    qos::QosProfile,
    recoding::live::Recoded,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use holdall_storage::writer::{ChannelInfo, MetadataEntries, StoredMessage};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The bag that is being written, and the account of what is in it.
pub(super) struct Writer {
    bag: BagWriter,
    channels: Channels,
    ledger: Arc<Mutex<Ledger>>,
    shared: Arc<DrainShared>,
    runs: Runs,
    /// Messages that were written and are not durable.
    journal: Journal,
    /// The journal's end when places of folded publishers were last released.
    places_released_at: u64,
    /// Messages that were given to the bag.
    written: u64,
    watch: Watch,
    /// After it nothing more is written.
    failure: Option<WriteError>,
    merge_publishers: bool,
    /// Payloads come packed.
    is_packed: bool,
    /// `None` without a contract.
    tap: Option<Box<Tap>>,
    /// `None` unless something follows the messages.
    followers: Option<Box<Followers>>,
}

impl Writer {
    pub fn new(
        bag: BagWriter,
        ledger: Arc<Mutex<Ledger>>,
        shared: Arc<DrainShared>,
        options: &DrainOptions,
    ) -> Self {
        Self {
            bag,
            channels: Channels::default(),
            ledger,
            shared,
            runs: Runs::default(),
            journal: Journal::default(),
            places_released_at: 0,
            written: 0,
            watch: Watch::new(options.limits),
            failure: None,
            merge_publishers: options.merge_publishers,
            is_packed: false,
            tap: None,
            followers: None,
        }
    }

    /// The bag, for work other than messages.
    pub fn bag(&mut self) -> &mut BagWriter {
        &mut self.bag
    }

    /// Payloads are packed before they come.
    pub fn set_packed(&mut self) {
        self.is_packed = true;
    }

    /// Repeats the messages that `keeper` has at the beginning of each file.
    pub fn set_latched(&mut self, keeper: Arc<LatchedKeeper>) {
        self.watch.set_latched(Arc::clone(&keeper));
        self.bag
            .set_latched(Box::new(move |begin| keeper.messages(begin)));
    }

    /// Has spans measured by a clock that does not jump, and a new file begun where the one that stamps messages jumps back.
    pub fn set_clock(&mut self, clock: Arc<ClockWatch>, measures_spans: bool) {
        if measures_spans {
            let of_bag = Arc::clone(&clock);
            self.bag
                .measure_spans_by(Arc::new(move |stamp| of_bag.steady_of(stamp)));
        }
        self.watch.set_clock(clock);
    }

    /// Has what is written judged by a contract.
    pub fn set_tap(&mut self, tap: Tap) {
        self.tap = Some(Box::new(tap));
    }

    /// Has what is written followed.
    pub fn set_followers(&mut self, followers: Option<Box<Followers>>) {
        self.followers = followers;
    }

    /// What follows the messages, if anything.
    pub fn followers(&mut self) -> Option<&mut Followers> {
        self.followers.as_deref_mut()
    }

    /// Passes on what was written to the judge; see [`Tap::pass`].
    pub fn pass_to_judge(&mut self, last: Option<Timestamp>, held: Duration, now: Duration) {
        if let Some(tap) = &mut self.tap {
            tap.pass(last, held, now);
        }
    }

    /// Lets the judge see a message before it is packed.
    pub fn judge_unpacked(&mut self, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if (self.tap.is_some() || self.followers.is_some())
            && let Some(topic) = self.channels.find(entry, &self.ledger)
        {
            self.judge(topic, entry, payload);
        }
    }

    /// Lets the judge know of a topic whose messages get another form before they are written: it sees them as they were received.
    pub fn judge_received_topic(&mut self, topic: TopicId, info: &TopicInfo, definition: &MessageDefinition) {
        if let Some(tap) = &mut self.tap {
            tap.add_received(topic, info, definition);
        }
    }

    /// Lets the judge see a message of such a topic.
    pub fn judge_received(&mut self, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if let Some(tap) = &mut self.tap {
            tap.received(entry, payload);
        }
    }

    /// Lets the judge and the followers see a message of a topic of the bag.
    #[inline]
    fn judge(&mut self, topic: BagTopic, entry: &CacheEntry, payload: PayloadRef<'_>) {
        if let Some(tap) = &mut self.tap {
            tap.message(topic, entry, payload);
        }
        if let Some(followers) = &mut self.followers
            && self.channels.own(entry.topic) == Some(topic)
        {
            followers.message(entry, payload);
        }
    }

    /// Puts the record of the contract into the bag once the recording has begun.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn write_contract(&mut self) -> Result<(), WriteError> {
        if let Some(tap) = &mut self.tap
            && let Some(record) = tap.beginning()
            && self.bag.write_record(CONTRACT_RECORD, &record.entries())?
        {
            tap.begun();
        }
        Ok(())
    }

    /// The record of the contract at the end, when all messages are in the bag; `None` without a contract.
    pub fn end_contract(&mut self, episodes: Vec<Episode>, now: Duration) -> Option<ContractRecord> {
        let tap = self.tap.as_mut()?;
        let ledger = lock(&self.ledger).clone();
        Some(tap.end(&ledger, episodes, self.bag.available_bytes(), now))
    }

    /// Checks the clock after messages were taken and before they are written.
    pub fn check_clock(&mut self) {
        self.watch.check_clock();
    }

    /// Whether a message has its topic's own type, as far as is known.
    pub fn is_of_own_type(&mut self, entry: &CacheEntry) -> bool {
        let own = self.channels.own(entry.topic);
        own.is_none() || self.channels.find(entry, &self.ledger) == own
    }

    /// Whether files repeat the last messages of a topic.
    pub fn repeats(&self, topic: TopicId) -> bool {
        self.watch.repeats(topic)
    }

    /// Whether a type is one of a topic's further types.
    pub fn has_other_type(&self, topic: TopicId, type_name: &str) -> bool {
        self.channels.other(topic, type_name).is_some()
    }

    pub fn add_topic(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        let is_judged = self.tap.as_ref().is_some_and(|tap| !tap.has_received(topic));
        let judged = is_judged.then(|| (info.clone(), definition.clone()));
        if let Some(followers) = &mut self.followers {
            followers.add_topic(topic, &info, &definition, false);
        }
        match self.bag.add_topic(ChannelInfo {
            topic: info,
            definition,
        }) {
            Ok(added) => {
                self.channels.add_own(topic, added);
                self.watch.place(topic, added);
                self.judge_topic(judged);
            }
            Err(error) => self.fail(error),
        }
    }

    fn judge_topic(&mut self, judged: Option<(TopicInfo, MessageDefinition)>) {
        if let Some(tap) = &mut self.tap {
            tap.topic(judged);
        }
    }

    /// Adds a further type of a topic: a separate topic of the bag with the same name.
    pub fn add_type(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        let judged = self.tap.is_some().then(|| (info.clone(), definition.clone()));
        self.add_other(topic, info, definition, judged);
    }

    /// Adds the type of another form that messages of a topic get.
    pub fn add_form(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        self.add_other(topic, info, definition, None);
    }

    fn add_other(
        &mut self,
        topic: TopicId,
        info: TopicInfo,
        definition: MessageDefinition,
        judged: Option<(TopicInfo, MessageDefinition)>,
    ) {
        let type_name = info.type_name.clone();
        match self.bag.add_topic(ChannelInfo {
            topic: info,
            definition,
        }) {
            Ok(added) => {
                self.channels.add_other(topic, type_name, added);
                self.judge_topic(judged);
            }
            Err(error) => self.fail(error),
        }
    }

    /// A publisher of a topic offers this; with `has_forms` messages of its type have several types in the bag.
    pub fn add_offer(&mut self, topic: TopicId, type_name: &str, has_forms: bool, qos: QosProfile) {
        let of_type = self.channels.other(topic, type_name).or(self.channels.own(topic));
        let places: Vec<BagTopic> = match has_forms {
            true => self.channels.all(topic).collect(),
            false => of_type.into_iter().collect(),
        };
        for place in places {
            self.bag.add_offer(place, qos);
            if let Some(tap) = &mut self.tap {
                tap.offer(place, qos);
            }
        }
        if let Some(tap) = self.tap.as_mut().filter(|_| has_forms) {
            tap.offer_received(topic, qos);
        }
    }

    /// Gives a topic that is in the bag its definition.
    pub fn define(&mut self, topic: TopicId, definition: MessageDefinition) {
        if let Some(followers) = &mut self.followers {
            followers.define(topic, &definition);
        }
        if let Some(tap) = &mut self.tap {
            tap.define_received(topic, &definition);
        }
        let Some(own) = self.channels.own(topic) else {
            return;
        };
        if let Some(tap) = &mut self.tap {
            tap.define(own, &definition);
        }
        if let Some(name) = self.bag.set_definition(own, definition) {
            tracing::info!("{name}: a node sent the message definition; it is in the bag now");
        }
    }

    /// Gives one of a topic's further types its definition; false if it is none of these.
    pub fn define_other(&mut self, topic: TopicId, definition: &MessageDefinition) -> bool {
        let Some(other) = self.channels.other(topic, &definition.type_name) else {
            return false;
        };
        if let Some(tap) = &mut self.tap {
            tap.define(other, definition);
        }
        if let Some(name) = self.bag.set_definition(other, definition.clone()) {
            tracing::info!(
                "{name}: a node sent the message definition of {}; it is in the bag now",
                definition.type_name
            );
        }
        true
    }

    /// Called before messages that were just taken: forgets publishers whose places they may have (all messages of the former owners are
    /// in the bag), and reads the bag's length anew.
    pub fn begin_messages(&mut self) {
        let vacated = lock(&self.ledger).take_vacated();
        for (topic, publisher) in vacated {
            for topic in self.channels.all(topic) {
                self.bag.forget_publisher(topic, PublisherSlot(publisher.0));
            }
            self.channels.forget(topic, publisher);
        }
        self.watch.reread_length();
    }

    /// Writes one message, or counts it as lost. `bytes` is the length of its payload as it was sent.
    #[inline]
    pub fn write(&mut self, entry: CacheEntry, payload: PayloadRef<'_>, bytes: usize) {
        let topic = self.channels.find(&entry, &self.ledger);
        self.write_to(topic, entry, payload, bytes);
    }

    /// Writes a message that was away to get another form, and which may depend on those before it.
    pub fn write_recoded(&mut self, message: &Recoded) {
        let entry = message.entry;
        let topic = match message.into {
            Some(into) => self.channels.other(entry.topic, into),
            None => self.channels.own(entry.topic),
        };
        self.bag.keep_together(Some(message.run_bytes));
        self.write_to(topic, entry, PayloadRef::Loan(&*message.payload), message.bytes);
        self.bag.keep_together(None);
    }

    /// Whether a message has one of its topic's further types.
    pub fn has_further_type(&mut self, entry: &CacheEntry) -> bool {
        let found = self.channels.find(entry, &self.ledger);
        found.is_some() && found != self.channels.own(entry.topic)
    }

    #[inline]
    fn write_to(
        &mut self,
        topic: Option<BagTopic>,
        entry: CacheEntry,
        payload: PayloadRef<'_>,
        bytes: usize,
    ) {
        let (None, Some(topic)) = (&self.failure, topic) else {
            return self.lose(&entry, LossStage::Storage);
        };
        if self.watch.is_needed() && self.must_leave_out(entry.log_time, payload.len()) {
            return self.lose(&entry, LossStage::Policy);
        }
        let message = StoredMessage {
            log_time: entry.log_time,
            publish_time: entry.publish_time.unwrap_or(entry.log_time),
            // MCAP has room for the low 32 bits.
            sequence: entry.sequence.unwrap_or(0) as u32,
            payload,
        };
        let publisher = (!self.merge_publishers).then_some(PublisherSlot(entry.publisher.0));
        let who = || lock(&self.ledger).publisher(entry.topic, entry.publisher)?.info();
        match self.bag.write_of(topic, publisher, message, who) {
            Ok(split) => {
                if split {
                    self.report_split();
                }
                self.journal.written(self.bag.file_number(), &entry);
                self.written += 1;
                if !self.is_packed {
                    self.judge(topic, &entry, payload);
                }
                if self.watch.is_needed() {
                    self.watch_written(&entry, topic, payload);
                }
                self.runs.count(&entry, bytes as u64);
            }
            Err(error) => {
                // It may still be whole in the file.
                self.journal.refused(self.bag.file_number(), &entry);
                self.fail(error);
                self.lose(&entry, LossStage::Storage);
            }
        }
    }

    /// Does the work due before a message is written; true if the recording is over before it. Begins a new file where the clock has jumped
    /// back before this message: times of one file do not come twice, and files are read one after the other. So does one of before the
    /// jump that was held back until after it.
    #[cold]
    fn must_leave_out(&mut self, log_time: Timestamp, payload_bytes: usize) -> bool {
        if self.watch.jumped_back_before(log_time) && self.bag.has_messages() {
            self.split();
        }
        let bag = &self.bag;
        let reached = self
            .watch
            .reached_before(log_time, payload_bytes, || bag.length());
        reached.inspect(|limit| self.shared.reach(*limit)).is_some()
    }

    #[cold]
    fn watch_written(&mut self, entry: &CacheEntry, topic: BagTopic, payload: PayloadRef<'_>) {
        let place = InBag {
            topic,
            file: self.bag.file_number(),
            is_packed: self.is_packed,
        };
        if let Some(limit) = self.watch.written(entry, payload, &place, &self.ledger) {
            self.shared.reach(limit);
        }
    }

    /// Counts a message that is not in the bag.
    #[cold]
    pub fn lose(&self, entry: &CacheEntry, stage: LossStage) {
        let interval = Interval::of_message(stage, entry.sequence, entry.log_time);
        lock(&self.ledger).miss(entry.topic, entry.publisher, interval);
    }

    /// Counts a message that was not requested. A late subscription would still get it where it is latched.
    pub fn leave_out(&self, entry: &CacheEntry, payload: Option<PayloadRef<'_>>) {
        self.lose(entry, LossStage::Policy);
        self.watch.left_out(entry, payload, &self.ledger);
    }

    /// Accounts for the messages written since the last call.
    pub fn count_runs(&mut self) {
        self.runs.count_into(&mut lock(&self.ledger));
    }

    /// Accounts for messages of files that were deleted or that the ring removed.
    pub fn count_expired(&mut self) {
        let vanished = self.bag.take_vanished();
        if !vanished.is_empty() {
            self.count_runs();
            self.update_status(|_| {});
        }
        for count in vanished {
            if let Some(topic) = self.channels.topic_of(count.topic) {
                lock(&self.ledger).lose_recorded(topic, count.messages);
            }
        }
        let expired = self.bag.take_expired();
        if !expired.is_empty() {
            let until = self.bag.expired_until();
            self.update_status(|status| status.ring.expired_until = until);
        }
        for count in expired {
            if let Some(topic) = self.channels.topic_of(count.topic) {
                lock(&self.ledger).expire(topic, count.messages);
            }
        }
    }

    /// Continues in a new file.
    pub fn split(&mut self) {
        if self.failure.is_none() {
            match self.bag.split() {
                Ok(()) => self.report_split(),
                Err(error) => self.fail(error),
            }
        }
    }

    fn report_split(&mut self) {
        let with_records = self.bag.current_path();
        for (closed, opened) in self.bag.take_splits() {
            self.update_status(|status| status.splits += 1);
            if let Some(tap) = self
                .tap
                .as_mut()
                .filter(|_| with_records.as_ref() == Some(&opened))
            {
                tap.file_begun();
            }
            tracing::info!("now recording into {}", opened.display());
            self.shared.add_finished(FinishedFile { closed, opened });
        }
    }

    /// Whether nothing more is written.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The first failure stays: messages after it are lost, and counted. If the file was deleted or replaced, the recording continues
    /// in a new one instead.
    #[cold]
    pub fn fail(&mut self, error: WriteError) {
        if self.failure.is_none() {
            let error = match self.bag.replace_vanished_after(&error) {
                Ok(true) => return self.count_expired(),
                Ok(false) => error,
                Err(no_new_file) => no_new_file,
            };
            tracing::error!("recording ends early: {error}");
            self.update_status(|status| status.failure = Some(error.to_string()));
            self.shared.wake_recorder();
            self.failure = Some(error);
        }
    }

    /// Publishes the file that is written and the free space, and what `change` does.
    pub fn update_status(&self, change: impl FnOnce(&mut DrainStatus)) {
        let current_file = self.bag.current_path();
        let available_bytes = self.bag.available_bytes();
        self.shared.update_status(|status| {
            status.available_bytes = available_bytes;
            if let Some(path) = current_file {
                status.current_file = path;
            }
            change(status);
        });
    }

    /// Messages that were given to the bag.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The journal's end: what was written so far.
    pub fn journal_end(&self) -> u64 {
        self.journal.end()
    }

    /// Everything before this place of the journal is durable.
    pub fn is_durable_before(&mut self, place: u64) {
        self.journal.forget_before(place);
    }

    /// Releases the places of folded publishers whose messages the journal has forgotten, for other
    /// publishers; false if that is not yet due.
    pub fn free_places(&mut self) -> bool {
        let is_new = self.journal.end() != self.places_released_at;
        let is_due = is_new && self.journal.start() >= self.places_released_at;
        if is_due {
            self.places_released_at = self.journal.end();
            lock(&self.ledger).release_places();
        }
        is_due
    }

    /// Puts the ledger's sums into the bag when they are due at `now`.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn write_checkpoint(
        &mut self,
        checkpoints: &mut Checkpoints,
        now: Duration,
    ) -> Result<(), WriteError> {
        if let Some((name, entries)) = checkpoints.record(&self.ledger, now) {
            self.bag.write_record(&name, &entries)?;
        }
        Ok(())
    }

    /// Waits for the files that are closed in the background, and replaces a last one that was deleted.
    pub fn settle(&mut self) {
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
        self.count_expired();
    }

    /// Ends the bag, with the ledger and `records` in it. `custom_data` gives what else `metadata.yaml` has, when it is known whether the
    /// bag has failed.
    pub fn close(
        self,
        records: impl IntoIterator<Item = (String, MetadataEntries)>,
        custom_data: impl FnOnce(bool) -> BTreeMap<String, String>,
    ) -> ClosedBag {
        let Self {
            bag,
            channels,
            ledger,
            failure,
            journal,
            ..
        } = self;
        let topic_of_bag = channels.of_bag();
        count_repeated(&mut lock(&ledger), topic_of_bag, &bag.repeated_by_topic());
        let mut all_records = vec![ledger_record(&lock(&ledger))];
        all_records.extend(records);
        let closed = bag.close(all_records, failure, |end| {
            let others = custom_data(end.failed);
            let mut entries = account_for(&mut lock(&ledger), topic_of_bag, end, &journal);
            entries.extend(others);
            entries
        });
        let in_files = by_topic_of_recording(topic_of_bag, &closed.messages);
        let account_faults = lock(&ledger).audit_files(&in_files);
        ClosedBag {
            account_faults,
            ..closed
        }
    }
}
