//! The latched messages that each file repeats at its beginning: the state that a late subscription would have got then.

use super::{
    BagTopic, TopicCount, WriteError, classes::TopicsOfClass, current::CurrentFile, place::Place,
    topics::Topics,
};
use crate::writer::CompressionMode;
use holdall_model::{
    message::PayloadRef,
    repeated::{FileRepeats, RepeatedChannel, RepeatedMessage},
    time::Timestamp,
    topic::PublisherInfo,
};
use holdall_storage::{
    compression::PayloadPacker,
    writer::{ChannelIndex, StoredMessage},
};
use std::{collections::BTreeMap, sync::Arc};

/// Repeated messages take at most this part of a file with a limit: otherwise each file would hold little else.
const REPEATED_PART_MAX: u64 = 2;

/// A message that the next file repeats.
#[derive(Clone, Debug)]
pub struct LatchedMessage {
    /// Its topic.
    pub topic: BagTopic,
    /// Its publisher, if it is known.
    pub publisher: Option<PublisherInfo>,
    /// When it was sent: the copy has this time too.
    pub publish_time: Timestamp,
    /// Its number in the bag's storage.
    pub sequence: u32,
    /// Its bytes in that storage.
    pub payload: Arc<Vec<u8>>,
    /// Its payload is compressed as the bag's messages are.
    pub is_packed: bool,
    /// The message's identity, and the file in which it was recorded.
    pub origin: RepeatedMessage,
}

/// Returns the messages to repeat, oldest first. Called when a file gets its first message, before that is written, with its log time.
pub(crate) type LatchedState = Box<dyn Fn(Timestamp) -> Vec<LatchedMessage> + Send>;

/// Where the state comes from.
pub(super) struct Latched {
    state: LatchedState,
    /// Identifies the recording in the marks; known from its first message on.
    recording: Option<String>,
    has_warned: bool,
}

/// Messages that a file repeats.
#[derive(Clone, Debug, Default)]
pub(super) struct FileHead {
    /// Its mark; `None` if files repeat nothing.
    pub mark: Option<Box<FileRepeats>>,
    /// Repeated messages by topic.
    pub topics: Vec<TopicCount>,
    /// Bytes of their payloads.
    pub bytes: BTreeMap<BagTopic, u64>,
}

impl FileHead {
    /// Repeated messages of all topics.
    pub fn messages(&self) -> u64 {
        self.topics.iter().map(|count| count.messages).sum()
    }

    /// Takes the repeated messages out of counts by topic.
    pub fn take_from(&self, counts: &mut Vec<TopicCount>) {
        for repeated in &self.topics {
            let count = counts.iter_mut().find(|count| count.topic == repeated.topic);
            if let Some(count) = count {
                count.messages = count.messages.saturating_sub(repeated.messages);
            }
        }
        if !self.topics.is_empty() {
            counts.retain(|count| count.messages > 0);
        }
    }

    fn add(&mut self, message: &LatchedMessage) {
        let topic = message.topic;
        *self.bytes.entry(topic).or_default() += message.payload.len() as u64;
        match self.topics.iter_mut().find(|count| count.topic == topic) {
            Some(count) => count.messages += 1,
            None => self.topics.push(TopicCount { topic, messages: 1 }),
        }
    }
}

impl Latched {
    /// Repeats what `state` returns.
    pub fn new(state: LatchedState) -> Self {
        Self {
            state,
            recording: None,
            has_warned: false,
        }
    }

    /// Writes the state of the topics of the file's class before the first message of the current file; all later calls do nothing. True when
    /// the file has grown.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn repeat(
        &mut self,
        current: &mut CurrentFile,
        place: &mut Place,
        (topics, of_class): (&Topics, TopicsOfClass<'_>),
        log_time: Timestamp,
    ) -> Result<bool, WriteError> {
        if current.head().mark.is_some() {
            return Ok(false);
        }
        let directory = &place.options.directory;
        let recording = self.recording.get_or_insert_with(|| {
            let name = directory.file_name().unwrap_or(directory.as_os_str());
            format!("{}@{}", name.to_string_lossy(), log_time.as_nanos())
        });
        let mut mark = FileRepeats {
            recording: recording.clone(),
            file: current.number(),
            time: log_time,
            channels: Vec::new(),
        };
        let mut messages = (self.state)(log_time);
        messages.retain(|message| of_class.has(message.topic));
        let max = place.bytes_max().map(|max| max / REPEATED_PART_MAX);
        let fitting = newest(&messages, max.unwrap_or(u64::MAX));
        if fitting.len() < messages.len() && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "the latched messages take more than half of a file: the oldest of them are not repeated"
            );
        }
        let mut marks: BTreeMap<(BagTopic, Option<String>), Vec<RepeatedMessage>> = BTreeMap::new();
        let (mut channels, mut head): (Vec<ChannelIndex>, FileHead) = (Vec::new(), FileHead::default());
        for message in fitting {
            let publisher = message.publisher.clone();
            let (channel, publisher) = current.make_channel(place, topics, message.topic, publisher)?;
            channels.push(channel);
            marks
                .entry((message.topic, publisher))
                .or_default()
                .push(message.origin);
            head.add(message);
        }
        for ((topic, publisher), messages) in marks {
            let info = &topics.get(topic)?.topic;
            mark.channels.push(RepeatedChannel {
                topic: info.name.clone(),
                type_name: info.type_name.clone(),
                publisher,
                messages,
            });
        }
        current.begin_head(&mut place.queue, mark, head)?;
        for (message, channel) in fitting.iter().zip(channels) {
            let packed = match place.options.compression.mode {
                CompressionMode::Message if !message.is_packed => Some(pack(&message.payload)?),
                _ => None,
            };
            let stored = StoredMessage {
                log_time,
                publish_time: message.publish_time,
                sequence: message.sequence,
                payload: PayloadRef::Bytes(packed.as_deref().unwrap_or(&message.payload)),
            };
            current.write(&mut place.queue, channel, stored)?;
        }
        Ok(true)
    }
}

/// As many of the newest messages as fit.
fn newest(messages: &[LatchedMessage], bytes_max: u64) -> &[LatchedMessage] {
    let mut bytes = 0u64;
    let fits = |message: &&LatchedMessage| {
        bytes = bytes.saturating_add(message.payload.len() as u64);
        bytes <= bytes_max
    };
    let count = messages.iter().rev().take_while(fits).count();
    &messages[messages.len() - count..]
}

fn pack(payload: &[u8]) -> Result<Vec<u8>, WriteError> {
    let packed = PayloadPacker::new().and_then(|mut packer| packer.pack(payload));
    packed.map_err(WriteError::Threads)
}
