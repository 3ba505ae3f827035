//! What was valid where a file of a tool's output begins, latched messages and the pictures that video needs: it repeats them, marked, as its first messages.

use super::{
    ToolError,
    choice::Chooser,
    pictures::{RUN_BYTES_MAX, Video, video_topics},
};
use crate::tools::Choice;
use holdall_bag::{
    reader::{BagMessage, BagSet, LatestWanted, MessageFilter, PublisherChoice},
    writer::{
        BagOptions, BagTopic, BagWriter, CompressionOptions, LatchedMessage, PublisherSlot, SplitOptions,
        bag_places,
    },
};
use holdall_io::{
    block::BlockPoolOptions, fs, mutex::lock, os::DiskMode, output::remove_dir_all, sealed::Seal,
};
use holdall_model::{
    message::PayloadRef,
    qos::Durability,
    repeated::{FileRepeats, RepeatedChannel, RepeatedMessage},
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use holdall_storage::{
    Storage, StorageOptions,
    chunks::{ChunkFile, ChunkStorage},
    writer::{ChannelInfo, StoredMessage},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// The most messages that make up the state of a topic whose publishers the bag does not distinguish.
const DEPTH_MAX: usize = 1000;

/// The most publishers of a topic whose messages are repeated: those that sent last.
const PUBLISHERS_MAX: usize = 64;

/// The memory that writes a file of repeated messages.
const HEAD_BLOCKS: BlockPoolOptions = BlockPoolOptions {
    block_bytes: 1 << 20,
    block_count: 4,
    huge_pages: false,
};

/// The latched topics of the inputs and those of video, and their state at each time.
pub(super) struct InputState<'a> {
    set: &'a BagSet,
    wanted: LatestWanted,
    video: Vec<TopicInfo>,
    of_video: MessageFilter,
    publishers: Option<PublisherChoice>,
}

impl<'a> InputState<'a> {
    /// The state of the selected topics; `None` if none of them is latched or video. A topic whose messages are selected by their fields has no
    /// state: its last message may be an unwanted one.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(set: &'a BagSet, choice: &Choice, chooser: &Chooser) -> Result<Option<Self>, ToolError> {
        let asked: BTreeSet<&str> = choice
            .questions
            .iter()
            .map(|question| question.topic.as_str())
            .collect();
        let is_taken = |topic: &TopicInfo| {
            chooser.takes_topic(&topic.name, &topic.type_name) && !asked.contains(topic.name.as_str())
        };
        let (video, of_video) = video_topics(set, &is_taken, chooser.publishers())?;
        let is_latched = |topic: &TopicInfo| {
            let mut offers = topic.offered_qos_profiles.iter();
            offers.any(|offer| offer.durability == Durability::TransientLocal)
                && is_taken(topic)
                && !video.iter().any(|one| one.name == topic.name)
        };
        let topics = set.topics().into_iter().filter(is_latched);
        let wanted: LatestWanted = topics
            .map(|topic| {
                let depth = topic.offered_qos_profiles.len().clamp(1, DEPTH_MAX);
                (topic.name, depth)
            })
            .collect();
        Ok((!wanted.is_empty() || !video.is_empty()).then(|| Self {
            set,
            wanted,
            video,
            of_video,
            publishers: chooser.publishers().cloned(),
        }))
    }

    /// Whether a topic is video: its pictures need those from the key frame before on.
    pub fn is_video(&self, topic: &TopicInfo) -> bool {
        let is_it = |one: &TopicInfo| (&one.name, &one.type_name) == (&topic.name, &topic.type_name);
        self.video.iter().any(is_it)
    }

    /// How many messages of a channel make up its state; `None` for a topic that is not latched.
    pub fn depth(&self, topic: &TopicInfo) -> Option<usize> {
        let depth = self.wanted.get(&topic.name).copied()?;
        Some(if topic.publisher.is_some() { 1 } else { depth })
    }

    /// The last messages before `time`, oldest first, after the pictures that video needs.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn before(&self, time: Timestamp) -> Result<Vec<BagMessage>, ToolError> {
        let publishers = self.publishers.as_ref();
        let found = self.set.latest_before(time, &self.wanted, publishers)?;
        let mut publishers: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut last: Vec<BagMessage> = Vec::new();
        for message in found.into_iter().rev() {
            let count = publishers.entry(message.topic.name.as_str().into()).or_default();
            *count += 1;
            if *count <= PUBLISHERS_MAX.max(self.wanted.get(&message.topic.name).copied().unwrap_or(0)) {
                last.push(message);
            }
        }
        last.reverse();
        let mut needed = Vec::new();
        for topic in &self.video {
            needed.extend(Video::new(self.set, topic, &self.of_video).needed_at(time)?);
        }
        needed.extend(last);
        Ok(needed)
    }

    /// About how many bytes of payloads a file repeats: as many as at the end.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn bytes(&self) -> Result<u64, ToolError> {
        let last = self.before(Timestamp::from_nanos(i64::MAX))?;
        Ok(last.iter().map(|message| message.payload.len() as u64).sum())
    }

    /// The topics that have a message at this time: it would be taken for a repeated one.
    fn topics_at(&self, time: Timestamp) -> Result<BTreeSet<String>, ToolError> {
        let filter = MessageFilter {
            from: Some(time),
            until: Some(time),
            topics: Some(Arc::new(self.wanted.keys().cloned().collect())),
            ..MessageFilter::default()
        };
        let mut topics = BTreeSet::new();
        for message in self.set.messages(&filter) {
            match message {
                Ok(message) => _ = topics.insert(message.topic.name.clone()),
                // It is noted where the messages are copied.
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(topics)
    }
}

/// The state while messages are written one by one.
#[derive(Default)]
pub(super) struct OutputState {
    /// By topic and identifier of the publisher.
    kept: BTreeMap<(u32, Option<String>), VecDeque<LatchedMessage>>,
    /// Pictures of video from the last key frame on, in the same way, and their bytes.
    pictures: BTreeMap<(u32, Option<String>), (Vec<LatchedMessage>, usize)>,
    count: u64,
}

impl OutputState {
    /// Lets the output repeat the kept messages.
    pub fn begin(bag: &mut BagWriter) -> Arc<Mutex<Self>> {
        let state = Arc::new(Mutex::new(Self::default()));
        let shared = Arc::clone(&state);
        bag.set_latched(Box::new(move |_| lock(&shared).messages()));
        state
    }

    /// Keeps a message, and as many before it of the same publisher as `depth` allows.
    pub fn keep(&mut self, mut message: LatchedMessage, depth: usize) {
        message.origin.id = self.count;
        self.count += 1;
        let gid = message.publisher.as_ref().map(|publisher| publisher.gid.clone());
        let of_publisher = self.kept.entry((message.topic.0, gid)).or_default();
        of_publisher.push_back(message);
        while of_publisher.len() > depth {
            of_publisher.pop_front();
        }
    }

    /// Keeps a picture, and those before it that it needs.
    pub fn keep_picture(&mut self, mut message: LatchedMessage, is_key: bool) {
        message.origin.id = self.count;
        self.count += 1;
        let gid = message.publisher.as_ref().map(|publisher| publisher.gid.clone());
        let (run, bytes) = self.pictures.entry((message.topic.0, gid)).or_default();
        if is_key || *bytes + message.payload.len() > RUN_BYTES_MAX {
            run.clear();
            *bytes = 0;
        }
        if is_key || !run.is_empty() {
            *bytes += message.payload.len();
            run.push(message);
        }
    }

    /// A key frame comes next: it needs nothing.
    pub fn end_run(&mut self, topic: BagTopic, publisher: Option<&str>) {
        self.pictures.remove(&(topic.0, publisher.map(str::to_owned)));
    }

    /// Kept messages, oldest first, after the pictures of video: where not all fit into a file, the first ones are left out.
    fn messages(&self) -> Vec<LatchedMessage> {
        let runs = self.pictures.values().flat_map(|(run, _)| run);
        let mut messages: Vec<LatchedMessage> = runs.cloned().collect();
        let pictures = messages.len();
        let mut topics: BTreeMap<u32, Vec<&VecDeque<LatchedMessage>>> = BTreeMap::new();
        for ((topic, _), kept) in &self.kept {
            topics.entry(*topic).or_default().push(kept);
        }
        for mut publishers in topics.into_values() {
            publishers.sort_by_key(|kept| kept.back().map(|last| std::cmp::Reverse(last.origin.id)));
            let last = publishers.into_iter().take(PUBLISHERS_MAX);
            messages.extend(last.flatten().cloned());
        }
        messages[pictures..].sort_by_key(|message| message.origin.id);
        messages
    }
}

/// A message that was repeated: topic, type, publisher, log and publish time, sequence number.
type Kept = (String, String, Option<String>, [Timestamp; 2], u32);

/// Makes the repeated content of files whose chunks are copied: a small file of the same storage, whose chunk goes first.
pub(super) struct Heads<'a> {
    state: &'a InputState<'a>,
    storage: &'static dyn Storage,
    chunks: &'static dyn ChunkStorage,
    /// Where the small files are made; removed after each.
    directory: PathBuf,
    seal: Option<Seal>,
    recording: String,
    /// First and last log time of each output file.
    ranges: Vec<(Option<Timestamp>, Option<Timestamp>)>,
    definitions: HashMap<String, MessageDefinition>,
    /// Numbers of the messages that were repeated.
    ids: HashMap<Kept, u64>,
}

/// Messages that one file repeats.
pub(super) struct Head {
    /// Its mark.
    pub mark: FileRepeats,
    /// The file with the messages; `None` if there are none.
    pub input: Option<Box<dyn ChunkFile>>,
    directory: PathBuf,
}

impl Drop for Head {
    fn drop(&mut self) {
        self.input = None;
        if let Err(error) = remove_dir_all(&self.directory) {
            tracing::debug!("{}: {error}", self.directory.display());
        }
    }
}

impl<'a> Heads<'a> {
    /// For output files with these first and last log times.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn new(
        state: &'a InputState<'a>,
        storage: &'static dyn Storage,
        chunks: &'static dyn ChunkStorage,
        output: &Path,
        seal: Option<&Seal>,
        ranges: &[(Option<Timestamp>, Option<Timestamp>)],
    ) -> Result<Self, ToolError> {
        let mut definitions = HashMap::new();
        for bag in state.set.bags() {
            let of_bag = bag.definitions()?.into_iter();
            definitions.extend(of_bag.map(|definition| (definition.type_name.clone(), definition)));
        }
        let name = output.file_name().unwrap_or(output.as_os_str()).to_string_lossy();
        let begin = state.set.log_times().map_or(0, |(first, _)| first.as_nanos());
        Ok(Self {
            state,
            storage,
            chunks,
            directory: output.with_file_name("repeated"),
            seal: seal.cloned(),
            recording: format!("{name}@{begin}/{}", ranges.len()),
            ranges: ranges.to_vec(),
            definitions,
            ids: HashMap::new(),
        })
    }

    /// Messages that the output file with this number repeats.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn of(&mut self, number: usize) -> Result<Head, ToolError> {
        let from = self.ranges[number].0;
        let mut head = Head {
            mark: FileRepeats {
                recording: self.recording.clone(),
                // A bag has fewer files than that.
                file: number as u32,
                time: from.unwrap_or_default(),
                channels: Vec::new(),
            },
            input: None,
            directory: self.directory.clone(),
        };
        let Some(from) = from else {
            return Ok(head);
        };
        let mut messages = self.state.before(from)?;
        if !messages.is_empty() {
            let at = self.state.topics_at(from)?;
            messages.retain(|message| !at.contains(&message.topic.name));
        }
        if messages.is_empty() {
            return Ok(head);
        }
        head.mark.channels = self.channels(&messages);
        let file = self.write(&messages, from)?;
        head.input = Some(self.chunks.open(&file)?);
        Ok(head)
    }

    fn channels(&mut self, messages: &[BagMessage]) -> Vec<RepeatedChannel> {
        let mut channels: Vec<RepeatedChannel> = Vec::new();
        for message in messages {
            let topic = &message.topic;
            let publisher = topic.publisher.as_ref().map(|publisher| publisher.gid.clone());
            let key = (
                topic.name.clone(),
                topic.type_name.clone(),
                publisher.clone(),
                [message.log_time, message.publish_time],
                message.sequence,
            );
            let next = self.ids.len() as u64;
            let copy = RepeatedMessage {
                id: *self.ids.entry(key).or_insert(next),
                file: self.file_of(message.log_time),
            };
            let is_match = |channel: &&mut RepeatedChannel| {
                channel.topic == topic.name
                    && channel.type_name == topic.type_name
                    && channel.publisher == publisher
            };
            match channels.iter_mut().find(is_match) {
                Some(channel) => channel.messages.push(copy),
                None => channels.push(RepeatedChannel {
                    topic: topic.name.clone(),
                    type_name: topic.type_name.clone(),
                    publisher,
                    messages: vec![copy],
                }),
            }
        }
        channels
    }

    /// The output file that has the messages of this time.
    fn file_of(&self, time: Timestamp) -> Option<u32> {
        let is_in = |(from, until): &(Option<Timestamp>, Option<Timestamp>)| {
            from.is_none_or(|from| from <= time) && until.is_none_or(|until| time <= until)
        };
        self.ranges.iter().position(is_in).map(|number| number as u32)
    }

    /// Writes the messages into a file, all with the same log time.
    fn write(&self, messages: &[BagMessage], log_time: Timestamp) -> Result<PathBuf, ToolError> {
        let options = BagOptions {
            directory: self.directory.clone(),
            storage: self.storage,
            storage_options: StorageOptions::default(),
            split: SplitOptions::default(),
            compression: CompressionOptions::default(),
            custom_data: BTreeMap::new(),
            ros_distro: None,
            memory: None,
        };
        let (disk, folder) = bag_places(DiskMode::Buffered, HEAD_BLOCKS, self.seal.clone());
        let mut bag = BagWriter::create(options, disk, folder)?;
        let mut topics: HashMap<(&str, &str), BagTopic> = HashMap::new();
        let mut slots: HashMap<(u32, &str), PublisherSlot> = HashMap::new();
        for message in messages {
            let info = &message.topic;
            let key = (info.name.as_str(), info.type_name.as_str());
            let topic = match topics.get(&key) {
                Some(topic) => *topic,
                None => {
                    let topic = bag.add_topic(self.channel_info(info))?;
                    topics.insert(key, topic);
                    topic
                }
            };
            let next = PublisherSlot(slots.len() as u32);
            let publisher = info.publisher.as_deref();
            let slot = publisher.map(|publisher| *slots.entry((topic.0, &publisher.gid)).or_insert(next));
            let stored = StoredMessage {
                log_time,
                publish_time: message.publish_time,
                sequence: message.sequence,
                payload: PayloadRef::Bytes(&message.payload),
            };
            bag.write_of(topic, slot, stored, || publisher.cloned())?;
        }
        let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
        if let Some(failure) = closed.failure {
            return Err(failure.into());
        }
        let file = closed.files.into_iter().next();
        file.filter(|file| fs::exists(file).unwrap_or(false))
            .ok_or_else(|| ToolError::OutputName {
                path: self.directory.clone(),
            })
    }

    fn channel_info(&self, info: &TopicInfo) -> ChannelInfo {
        let definition = self.definitions.get(&info.type_name).cloned();
        ChannelInfo {
            topic: info.as_whole(),
            definition: definition.unwrap_or_else(|| MessageDefinition {
                type_name: info.type_name.clone(),
                ..MessageDefinition::default()
            }),
        }
    }
}
