//! Writes all messages of a choice into a new bag, one by one.

use super::Written;
use crate::tools::{
    SplitAt, ToolError,
    change::Changer,
    choice::Chooser,
    latched::{InputState, OutputState},
    left_out::Damage,
    pictures::unit_of,
    recode::Recode,
    relabel::Relabel,
    unreadable::unreadable_by_topic,
};
use holdall_bag::{
    decode::{ChoiceError, Decoders, MessageChoice},
    reader::{Bag, BagMessage, BagSet},
    writer::{
        BagOptions, BagTopic, BagWriter, CompressionMode, LatchedMessage, PayloadPacking, PublisherSlot,
        TopicCount, bag_places,
    },
};
use holdall_io::wait::Wait;
use holdall_io::{block::BlockPoolOptions, mutex::lock, os::DiskMode, sealed::Seal};
use holdall_model::{
    message::PayloadRef,
    recoding::Recoding,
    repeated::RepeatedMessage,
    time::Timestamp,
    time_line::JUMP_NANOS_MIN,
    topic::{MessageDefinition, PublisherInfo, TopicInfo},
};
use holdall_storage::writer::{ChannelInfo, MetadataEntries, StoredMessage};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

/// Messages between two checks for the writer's other work.
const MESSAGES_PER_STEP: u64 = 64;

/// The closing records of a bag, made from the number of its messages, of those that files repeat, and of those that cannot be read, by
/// topic.
type ClosingRecords<'a> = dyn Fn(&Counts, &Counts, Option<&Counts>) -> Vec<(String, MetadataEntries)> + 'a;

/// Numbers of messages by topic.
type Counts = BTreeMap<String, u64>;

/// A topic's type, by name and type.
type TopicKey = (String, String);

/// Rewrites all messages.
pub(super) struct Rewrite<'a> {
    set: &'a BagSet,
    chooser: Chooser,
    changer: Changer,
    relabel: Relabel,
    recoder: Option<&'a mut dyn Recode>,
    /// The descriptions of topics in their new form, by those that messages share.
    forms: HashMap<usize, (Arc<TopicInfo>, Option<Arc<TopicInfo>>)>,
    /// What was done to the messages of the inputs before.
    recoded_before: Vec<Recoding>,
    /// The last payload that was changed.
    changed: Vec<u8>,
    bag: BagWriter,
    topics: HashMap<TopicKey, Option<BagTopic>>,
    /// The target of each topic description that messages share, so that names are compared once per file.
    known: HashMap<usize, (Arc<TopicInfo>, Option<Target>)>,
    /// Numbers of publishers by topic.
    slots: HashMap<(u32, PublisherInfo), PublisherSlot>,
    next_slot: HashMap<u32, u32>,
    definitions: HashMap<String, MessageDefinition>,
    splitter: Splitter,
    /// Set for rosbag2's message compression.
    packing: Option<PayloadPacking<Packed>>,
    written: Written,
    /// Number of messages written, by topic.
    by_topic: BTreeMap<String, u64>,
    /// If files repeat latched messages: those of the inputs, and those that the next file repeats.
    latched: Option<(InputState<'a>, Arc<Mutex<OutputState>>)>,
}

/// A message's target: a topic, and the publisher if the input stores it.
type Target = (BagTopic, Option<PublisherSlot>);

/// The fields of a message other than its payload.
struct Packed {
    target: Target,
    topic: Arc<TopicInfo>,
    log_time: Timestamp,
    publish_time: Timestamp,
    sequence: u32,
    /// Whether a picture of video is a key frame; `None` for other messages.
    is_key: Option<bool>,
}

/// The account of what was done to messages, with the counts of what was written.
fn reduced(
    recoded: Option<(String, String)>,
    (topics, relabel): (&HashMap<TopicKey, Option<BagTopic>>, &Relabel),
    written: &[TopicCount],
) -> BTreeMap<String, String> {
    let mut recoded: BTreeMap<String, String> = recoded.into_iter().collect();
    Recoding::reduce(&mut recoded, |name, kind| {
        let is_it = |(key, _): &(&TopicKey, _)| key.1 == kind && relabel.name(&key.0) == name;
        let made = topics.iter().filter(is_it).filter_map(|(_, topic)| *topic);
        let made: Vec<BagTopic> = made.collect();
        let counts = written.iter().filter(|count| made.contains(&count.topic));
        counts.map(|count| count.messages).sum()
    });
    recoded
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(
        set: &'a BagSet,
        (options, seal): (BagOptions, Option<Seal>),
        (chooser, changer, relabel): (Chooser, Changer, Relabel),
        (split, latched): (SplitAt, Option<InputState<'a>>),
        recoder: Option<&'a mut dyn Recode>,
    ) -> Result<Self, ToolError> {
        let mut definitions = HashMap::new();
        for bag in set.bags() {
            for definition in bag.definitions()? {
                definitions
                    .entry(definition.type_name.clone())
                    .or_insert(definition);
            }
        }
        let packing = match options.compression.mode {
            CompressionMode::Message => {
                Some(PayloadPacking::start(&options.compression).map_err(ToolError::Compression)?)
            }
            CompressionMode::None | CompressionMode::File => None,
        };
        let recoded_before = Recoding::list_in(&options.custom_data);
        let (disk, folder) = bag_places(DiskMode::Auto, BlockPoolOptions::default(), seal);
        let mut bag = BagWriter::create(options, disk, folder)?;
        // The directory is made under another name.
        bag.set_unseen();
        let latched = latched.map(|inputs| (inputs, OutputState::begin(&mut bag)));
        let mut rewrite = Self {
            set,
            chooser,
            changer,
            relabel,
            recoder,
            forms: HashMap::new(),
            recoded_before,
            changed: Vec::new(),
            bag,
            topics: HashMap::new(),
            known: HashMap::new(),
            slots: HashMap::new(),
            next_slot: HashMap::new(),
            definitions,
            splitter: Splitter::new(&split, set.has_runs()),
            packing,
            written: Written::default(),
            by_topic: BTreeMap::new(),
            latched,
        };
        for topic in set.topics() {
            match rewrite.form_of(&topic) {
                Some(form) => rewrite.topic(&form)?,
                None => rewrite.topic(&topic)?,
            };
        }
        Ok(rewrite)
    }

    /// The description of a topic in its new form, if it has one.
    fn form_of(&mut self, topic: &TopicInfo) -> Option<TopicInfo> {
        let form = self.recoder.as_ref()?.form(topic)?;
        let recoded = TopicInfo {
            type_name: form.type_name.clone(),
            type_description_hash: form.type_description_hash.clone(),
            ..topic.clone()
        };
        self.definitions.entry(form.type_name.clone()).or_insert(form);
        Some(recoded)
    }

    /// The message in its new form, if it gets one.
    fn recoded(&mut self, message: BagMessage) -> BagMessage {
        if self.recoder.is_none() {
            return message;
        }
        let key = Arc::as_ptr(&message.topic) as usize;
        if !self.forms.contains_key(&key) {
            let form = self.form_of(&message.topic).map(Arc::new);
            self.forms.insert(key, (Arc::clone(&message.topic), form));
        }
        let form = self.forms.get(&key).and_then(|(_, form)| form.clone());
        let recoded = self.recoder.as_mut().zip(form);
        let recoded = recoded.and_then(|(recoder, topic)| Some((topic, recoder.recode(&message)?)));
        match recoded {
            Some((topic, payload)) => BagMessage {
                topic,
                payload,
                ..message
            },
            None => message,
        }
    }

    /// The output's topic; `None` for one that is not selected.
    fn topic(&mut self, info: &TopicInfo) -> Result<Option<BagTopic>, ToolError> {
        let key = (info.name.clone(), info.type_name.clone());
        if let Some(known) = self.topics.get(&key) {
            return Ok(*known);
        }
        let topic = if self.chooser.takes_topic(&info.name, &info.type_name) {
            let service = info.type_name.strip_suffix("_Event").unwrap_or(&info.type_name);
            let definition = self
                .definitions
                .get(&info.type_name)
                .or_else(|| self.definitions.get(service));
            let mut topic = info.as_whole();
            let migrated = self.changer.migrations.relabel(&mut topic);
            topic.name = self.relabel.name(&info.name);
            let definition = migrated.or(definition).cloned();
            Some(self.bag.add_topic(ChannelInfo {
                topic,
                definition: definition.unwrap_or_else(|| MessageDefinition {
                    type_name: info.type_name.clone(),
                    ..MessageDefinition::default()
                }),
            })?)
        } else {
            None
        };
        self.topics.insert(key, topic);
        Ok(topic)
    }

    fn target_of(&mut self, message: &BagMessage) -> Result<Option<Target>, ToolError> {
        let key = Arc::as_ptr(&message.topic) as usize;
        if let Some((_, target)) = self.known.get(&key) {
            return Ok(*target);
        }
        let is_taken = self.chooser.takes_channel(&message.topic);
        let topic = self.topic(&message.topic)?.filter(|_| is_taken);
        let target = topic.map(|topic| (topic, self.slot(topic, &message.topic)));
        self.known.insert(key, (Arc::clone(&message.topic), target));
        Ok(target)
    }

    fn slot(&mut self, topic: BagTopic, info: &TopicInfo) -> Option<PublisherSlot> {
        let key = (topic.0, info.publisher.as_deref()?.clone());
        if let Some(slot) = self.slots.get(&key) {
            return Some(*slot);
        }
        let next = self.next_slot.entry(topic.0).or_default();
        let slot = PublisherSlot(*next);
        *next += 1;
        self.slots.insert(key, slot);
        Some(slot)
    }

    pub(super) fn run(
        mut self,
        choice: &MessageChoice,
        records: &ClosingRecords<'_>,
        damage: &mut Damage,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Written, ToolError> {
        let total: u64 = self.set.bags().iter().map(Bag::size_bytes).sum();
        let mut done = 0;
        if let Some(from) = choice.from {
            self.keep_before(from)?;
        }
        let (mut decoders, mut seen) = (Decoders::new(self.set.clone()), 0u64);
        for message in choice.messages(self.set, &mut decoders)? {
            let message = match message {
                Ok(message) => message,
                Err(ChoiceError::Bag(error)) if error.is_damage() => {
                    let topics = &self.topics;
                    damage.add_error(self.set, &error, &|topic| {
                        let mut all = topics.iter();
                        all.any(|((name, _), taken)| name == topic && taken.is_some())
                    });
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            done += message.payload.len() as u64;
            seen += 1;
            let message = self.recoded(message);
            self.message(&message)?;
            if seen.is_multiple_of(MESSAGES_PER_STEP) {
                self.bag.step()?;
                progress(done.min(total), total);
            }
        }
        while self.write_packed()? {}
        let by_topic = std::mem::take(&mut self.by_topic).into_iter();
        let by_topic = by_topic
            .map(|(name, count)| (self.relabel.name(&name), count))
            .collect();
        let repeated = self.repeated_by_topic();
        let span = (choice.from, choice.until);
        let damaged = damage.first().map(|_| -> BTreeMap<String, u64> {
            let unreadable = unreadable_by_topic(damage, self.set.bags(), span);
            let named = unreadable.into_iter();
            named
                .map(|(name, count)| (self.relabel.name(&name), count))
                .collect()
        });
        let records = records(&by_topic, &repeated, damaged.as_ref());
        let recoded = self.end_recoding();
        let (topics, relabel) = (&self.topics, &self.relabel);
        let closed = self.bag.close(records, None, |end| {
            let recoded = reduced(recoded, (topics, relabel), &end.messages);
            damage.custom_data().into_iter().chain(recoded).collect()
        });
        if let Some(failure) = closed.failure {
            return Err(failure.into());
        }
        self.written.bytes = closed
            .files
            .iter()
            .map(|file| holdall_io::fs::file_len(file).unwrap_or(0))
            .sum();
        self.written.files = closed.files;
        self.written.changed_messages = self.changer.count;
        self.changer.warn();
        Ok(self.written)
    }

    /// What was done to messages, here and before.
    fn end_recoding(&mut self) -> Option<(String, String)> {
        if let Some(recoder) = &mut self.recoder {
            self.written.recoded = recoder.finish();
        }
        let mut done = std::mem::take(&mut self.recoded_before);
        done.extend_from_slice(&self.written.recoded);
        Recoding::list_to_custom_data(&done)
    }

    /// Messages that files repeat, by the output's names of topics.
    fn repeated_by_topic(&self) -> BTreeMap<String, u64> {
        let counts = self.bag.repeated_by_topic();
        let topics = self.topics.iter().filter_map(|((name, _), topic)| {
            let count = counts.iter().find(|count| Some(count.topic) == *topic)?;
            Some((self.relabel.name(name), count.messages))
        });
        topics.collect()
    }

    /// Keeps the latched messages that were valid before the first message.
    fn keep_before(&mut self, from: Timestamp) -> Result<(), ToolError> {
        let state = match &self.latched {
            Some((inputs, _)) => inputs.before(from)?,
            None => return Ok(()),
        };
        for message in state {
            let Some(target) = self.target_of(&message)? else {
                continue;
            };
            let mut changed = Vec::new();
            let is_changed = self.changer.change(&message, &mut changed)?;
            let payload = if is_changed {
                changed
            } else {
                message.payload.to_vec()
            };
            let about = Packed {
                target,
                topic: Arc::clone(&message.topic),
                log_time: message.log_time,
                publish_time: message.publish_time,
                sequence: message.sequence,
                is_key: self.is_key(&message),
            };
            self.keep_latched(&about, &payload, None);
        }
        Ok(())
    }

    /// Whether a picture of video is a key frame; `None` for other messages, and where files repeat nothing.
    fn is_key(&self, message: &BagMessage) -> Option<bool> {
        let (inputs, _) = self.latched.as_ref()?;
        let unit = inputs.is_video(&message.topic).then(|| unit_of(message))?;
        Some(unit.is_some_and(|unit| unit.is_key))
    }

    /// Keeps a message for the beginnings of the next files, if it is latched or part of a video. `file`: the number of the file that has it.
    fn keep_latched(&self, about: &Packed, payload: &[u8], file: Option<u32>) {
        let Some((inputs, outputs)) = &self.latched else {
            return;
        };
        let depth = inputs.depth(&about.topic);
        if depth.is_none() && about.is_key.is_none() {
            return;
        }
        let message = LatchedMessage {
            topic: about.target.0,
            publisher: about.topic.publisher.as_deref().cloned(),
            publish_time: self.relabel.shift.apply(about.publish_time),
            sequence: about.sequence,
            payload: Arc::new(payload.to_vec()),
            is_packed: self.packing.is_some() && file.is_some(),
            origin: RepeatedMessage { id: 0, file },
        };
        match (about.is_key, depth) {
            (Some(is_key), _) => lock(outputs).keep_picture(message, is_key),
            (None, Some(depth)) => lock(outputs).keep(message, depth),
            (None, None) => {}
        }
    }

    fn message(&mut self, message: &BagMessage) -> Result<(), ToolError> {
        let Some(target) = self.target_of(message)? else {
            return Ok(());
        };
        if !self.chooser.takes_now(&message.topic.name, message.log_time) {
            return Ok(());
        }
        match self.by_topic.get_mut(&message.topic.name) {
            Some(count) => *count += 1,
            None => {
                self.by_topic.insert(message.topic.name.clone(), 1);
            }
        }
        let about = Packed {
            target,
            topic: Arc::clone(&message.topic),
            log_time: message.log_time,
            publish_time: message.publish_time,
            sequence: message.sequence,
            is_key: self.is_key(message),
        };
        while self.packing.as_ref().is_some_and(PayloadPacking::is_full) {
            self.write_packed()?;
        }
        let mut changed = std::mem::take(&mut self.changed);
        let is_changed = self.changer.change(message, &mut changed)?;
        let payload: &[u8] = if is_changed { &changed } else { &message.payload };
        let done = match &mut self.packing {
            Some(packing) => {
                packing.submit(about, Box::new(Box::<[u8]>::from(payload.to_vec())));
                Ok(())
            }
            None => self.write(&about, payload),
        };
        self.changed = changed;
        done
    }

    /// Writes the oldest message that is being packed; false if there is none.
    fn write_packed(&mut self) -> Result<bool, ToolError> {
        let Some((about, packed)) = self
            .packing
            .as_mut()
            .and_then(|packing| packing.take_ready(Wait::UntilReady))
        else {
            return Ok(false);
        };
        let packed = packed.map_err(ToolError::Compression)?;
        self.write(&about, &packed)?;
        Ok(true)
    }

    fn write(&mut self, about: &Packed, payload: &[u8]) -> Result<(), ToolError> {
        if self.splitter.is_due(about.log_time) {
            self.bag.split()?;
        }
        let (topic, publisher) = about.target;
        if let Some((_, outputs)) = self.latched.as_ref().filter(|_| about.is_key == Some(true)) {
            let gid = about
                .topic
                .publisher
                .as_ref()
                .map(|publisher| publisher.gid.as_str());
            lock(outputs).end_run(topic, gid);
        }
        self.bag.write_of(
            topic,
            publisher,
            StoredMessage {
                log_time: self.relabel.shift.apply(about.log_time),
                publish_time: self.relabel.shift.apply(about.publish_time),
                sequence: about.sequence,
                payload: PayloadRef::Bytes(payload),
            },
            || about.topic.publisher.as_deref().cloned(),
        )?;
        self.written.messages += 1;
        if self.latched.is_some() {
            self.keep_latched(about, payload, self.bag.file_number());
        }
        Ok(())
    }
}

/// Decides when to start a new file: by number of messages, at given times, and where the clock of an input jumped back, because the messages
/// of one file are read by their times.
struct Splitter {
    count_max: Option<u64>,
    count: u64,
    /// The next one last.
    times: Vec<Timestamp>,
    has_runs: bool,
    last: Timestamp,
}

impl Splitter {
    fn new(split: &SplitAt, has_runs: bool) -> Self {
        let mut times = split.times.clone();
        times.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            count_max: split.count_max,
            count: 0,
            times,
            has_runs,
            last: Timestamp::from_nanos(i64::MIN),
        }
    }

    /// True if the next message starts a new file.
    fn is_due(&mut self, log_time: Timestamp) -> bool {
        let mut is_due = self.count_max.is_some_and(|max| self.count >= max);
        while self.times.last().is_some_and(|time| log_time >= *time) {
            self.times.pop();
            // No file exists before the first message.
            is_due |= self.count > 0;
        }
        let back = self.last.as_nanos().saturating_sub(log_time.as_nanos());
        is_due |= self.has_runs && self.count > 0 && back >= JUMP_NANOS_MIN;
        self.last = log_time;
        if is_due {
            self.count = 0;
        }
        self.count += 1;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(split: &SplitAt, times: &[i64]) -> Vec<i64> {
        let mut splitter = Splitter::new(split, true);
        let due = times
            .iter()
            .filter(|time| splitter.is_due(Timestamp::from_nanos(**time)));
        due.copied().collect()
    }

    #[test]
    fn files_end_after_a_number_and_at_times() {
        let by_count = SplitAt {
            count_max: Some(3),
            ..Default::default()
        };
        assert_eq!(splits(&by_count, &[1, 2, 3, 4, 5, 6, 7]), [4, 7]);
        let at = |nanos: &[i64]| SplitAt {
            times: nanos.iter().map(|nanos| Timestamp::from_nanos(*nanos)).collect(),
            ..Default::default()
        };
        assert_eq!(splits(&at(&[5, 3, 100]), &[1, 2, 3, 4, 5, 6]), [3, 5]);
        assert_eq!(splits(&at(&[0, 3]), &[1, 2, 9]), [9], "an empty file is not made");
        let again = [
            1_000_000_000,
            2_000_000_000,
            1_950_000_000,
            500_000_000,
            600_000_000,
        ];
        assert_eq!(splits(&SplitAt::default(), &again), [500_000_000]);
    }
}
