//! The latched messages that each file repeats at its beginning: the state that a late subscription would have got then.

use super::{BagTopic, BagWriter, TopicCount, WriteError};
use crate::writer::CompressionMode;
use holdall_model::{
    message::PayloadRef,
    repeated::{
        BagRepeats, FileRepeats, REPEATED_RECORD, RepeatedChannel, RepeatedMessage, repeats_to_custom_data,
    },
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

/// Where the state comes from, and which file has it already.
pub(super) struct Latched {
    state: LatchedState,
    file: Option<u32>,
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

    fn add(&mut self, topic: BagTopic) {
        match self.topics.iter_mut().find(|count| count.topic == topic) {
            Some(count) => count.messages += 1,
            None => self.topics.push(TopicCount { topic, messages: 1 }),
        }
    }
}

impl BagWriter {
    /// Repeats the messages that `state` returns at the beginning of each file.
    pub fn set_latched(&mut self, state: LatchedState) {
        self.latched = Some(Box::new(Latched {
            state,
            file: None,
            recording: None,
            has_warned: false,
        }));
    }

    /// Writes the state before the first message of the current file; all later calls do nothing.
    pub(super) fn repeat_latched(&mut self, log_time: Timestamp) -> Result<(), WriteError> {
        let Some(latched) = &mut self.latched else {
            return Ok(());
        };
        let number = self.current.as_ref().map(|current| current.number);
        if number.is_none() || latched.file == number {
            return Ok(());
        }
        latched.file = number;
        let directory = &self.options.directory;
        let recording = latched.recording.get_or_insert_with(|| {
            let name = directory.file_name().unwrap_or(directory.as_os_str());
            format!("{}@{}", name.to_string_lossy(), log_time.as_nanos())
        });
        let recording = recording.clone();
        let messages = (latched.state)(log_time);
        let max = self.options.split.bytes_max.map(|max| max / REPEATED_PART_MAX);
        let fitting = newest(&messages, max.unwrap_or(u64::MAX));
        if fitting.len() < messages.len() && !std::mem::replace(&mut latched.has_warned, true) {
            tracing::warn!(
                "the latched messages take more than half of a file: the oldest of them are not repeated"
            );
        }
        self.write_head(recording, log_time, fitting)?;
        self.split.reread_length();
        Ok(())
    }

    fn write_head(
        &mut self,
        recording: String,
        log_time: Timestamp,
        messages: &[LatchedMessage],
    ) -> Result<(), WriteError> {
        let mut marks: BTreeMap<(u32, Option<String>), Vec<RepeatedMessage>> = BTreeMap::new();
        let (mut channels, mut head): (Vec<ChannelIndex>, FileHead) = (Vec::new(), FileHead::default());
        for message in messages {
            let (channel, publisher) = self.make_channel(message.topic, message.publisher.clone())?;
            channels.push(channel);
            let marks = marks.entry((message.topic.0, publisher)).or_default();
            marks.push(message.origin);
            head.add(message.topic);
        }
        let mark = |((topic, publisher), messages): ((u32, Option<String>), Vec<RepeatedMessage>)| {
            let info = &self.topics.get(topic as usize)?.topic;
            Some(RepeatedChannel {
                topic: info.name.clone(),
                type_name: info.type_name.clone(),
                publisher,
                messages,
            })
        };
        let channels_of_mark = marks.into_iter().filter_map(mark).collect();
        let Some(current) = &mut self.current else {
            return Err(WriteError::Failed);
        };
        let mark = FileRepeats {
            recording,
            file: current.number,
            time: log_time,
            channels: channels_of_mark,
        };
        // First: a file that is cut off within them has the mark.
        current
            .writer
            .write_metadata(&mut self.queue, REPEATED_RECORD, &mark.entries())?;
        head.mark = Some(Box::new(mark));
        current.head = head;
        for (message, channel) in messages.iter().zip(channels) {
            let packed = match self.options.compression.mode {
                CompressionMode::Message if !message.is_packed => Some(pack(&message.payload)?),
                _ => None,
            };
            let stored = StoredMessage {
                log_time,
                publish_time: message.publish_time,
                sequence: message.sequence,
                payload: PayloadRef::Bytes(packed.as_deref().unwrap_or(&message.payload)),
            };
            current.writer.write(&mut self.queue, channel, stored)?;
        }
        Ok(())
    }

    /// The marks of all files, for `custom_data`.
    pub(super) fn marks(&self) -> Option<(String, String)> {
        let past = self
            .past
            .iter()
            .map(|past| (&past.name, past.content.head.mark.as_ref()));
        let current = self
            .current
            .iter()
            .map(|file| (&file.name, file.head.mark.as_ref()));
        let marks = past
            .chain(current)
            .filter_map(|(name, mark)| Some((name.clone(), mark?.as_ref().clone())));
        repeats_to_custom_data(&marks.collect::<BagRepeats>())
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
