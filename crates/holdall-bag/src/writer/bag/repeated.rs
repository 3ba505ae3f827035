//! Content that a file repeats from its bag: just enough to be read by itself, so that many short files are not mostly repetitions.

use super::{BagTopic, BagWriter, PastFile, TopicCount};
use crate::writer::metadata::{BagFacts, FileFacts, bag_metadata};
use holdall_model::{
    metadata::BagMetadata,
    qos::profiles_to_text,
    topic::{TopicInfo, TopicOrigin},
};
use holdall_storage::writer::ChannelInfo;

/// The most bytes of a file's own metadata: without topics, for each topic, and for each QoS profile.
pub(super) const METADATA_BYTES: u64 = 2048;
const TOPIC_METADATA_BYTES: u64 = 512;
const PROFILE_METADATA_BYTES: u64 = 768;
/// The most bytes that a channel needs in a file in addition to its texts.
const CHANNEL_BYTES: u64 = 192;

/// Content that a file repeats from the bag (its topics, the account so far) is at most this part of the file.
const REPEATED_PART_MAX: u64 = 8;

impl BagWriter {
    /// The most bytes for the account of all messages at the end of a file before the last one.
    pub(super) fn repeated_bytes_max(&self) -> u64 {
        let written = self
            .current
            .as_ref()
            .map_or(0, |current| current.writer.bytes_written());
        (written / REPEATED_PART_MAX).max(64 << 10)
    }

    /// Bytes of the topics in the metadata record at the end of the current file. A bag's only file has them,
    /// as in rosbag2's files, unless files are limited to a short length. In further files the channels name the topics,
    /// and the bag has `metadata.yaml`.
    pub(super) fn ending_topics_bytes(&self) -> u64 {
        let is_short = |max: u64| self.topics_bytes > max / REPEATED_PART_MAX;
        if self.files_begun > 1 || self.options.split.bytes_max.is_some_and(is_short) {
            return 0;
        }
        self.topics_bytes
    }

    /// Bytes kept free for the end of the current file.
    pub(super) fn end_bytes(&self) -> u64 {
        let max = self.options.split.bytes_max.unwrap_or(u64::MAX);
        let channels = Some(self.channels_bytes).filter(|bytes| *bytes <= max / REPEATED_PART_MAX);
        METADATA_BYTES + self.ending_topics_bytes() + channels.unwrap_or(0)
    }

    /// Bytes of all files, were the current one closed now; files that are removed again count, packed files with their length before.
    pub fn length(&self) -> u64 {
        let current = self.current.as_ref();
        self.past_bytes + current.map_or(0, |current| current.writer.bytes_written() + self.end_bytes())
    }

    /// Whether the current file gets channels for topics without messages in it, so that it names them
    /// too, unless it would hold little else. The last file has them wherever they fit.
    pub(super) fn has_room_for_empty_channels(&self, is_last: bool) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        let infos = current.channels.with_channel().into_iter();
        let infos = infos.filter_map(|topic: BagTopic| self.topics.get(topic.0 as usize));
        let added = self.channels_bytes - infos.map(channel_bytes).sum::<u64>();
        let (written, max) = (current.writer.bytes_written(), self.options.split.bytes_max);
        let fits = max.is_none_or(|max| written + METADATA_BYTES + self.ending_topics_bytes() + added <= max);
        fits && (is_last || added <= self.repeated_bytes_max())
    }

    /// The content of the metadata record of the newest finished file: this file alone. With all files in
    /// each record, hundreds of short files contained little else.
    pub(super) fn own_metadata(&self, past: &PastFile) -> BagMetadata {
        let topics: &[ChannelInfo] = if self.ending_topics_bytes() > 0 {
            &self.topics
        } else {
            &[]
        };
        let counts = by_place(topics.len(), past.content.stored());
        let facts = BagFacts {
            storage_id: self.options.storage.id(),
            compression: self.options.compression.mode,
            custom_data: &self.options.custom_data,
            ros_distro: self.options.ros_distro.as_deref(),
        };
        let file = FileFacts {
            name: &past.name,
            summary: &past.content.summary,
            is_packed: false,
        };
        let topics = topics.iter().map(|topic| &topic.topic).zip(counts);
        bag_metadata(&facts, topics, &[file])
    }
}

/// The counts of the first `topics` topics, by their place.
pub(super) fn by_place<'a>(topics: usize, counts: impl IntoIterator<Item = &'a TopicCount>) -> Vec<u64> {
    let mut by_place = vec![0; topics];
    for count in counts {
        if let Some(sum) = by_place.get_mut(count.topic.0 as usize) {
            *sum += count.messages;
        }
    }
    by_place
}

/// The most bytes that a topic needs in a metadata record.
pub(super) fn metadata_bytes(topic: &TopicInfo) -> u64 {
    let texts = topic.name.len() + topic.type_name.len() + topic.type_description_hash.len();
    TOPIC_METADATA_BYTES + texts as u64 + PROFILE_METADATA_BYTES * topic.offered_qos_profiles.len() as u64
}

/// The most bytes that a topic's channel needs in a file: channel and definition are both stored twice.
pub(super) fn channel_bytes(info: &ChannelInfo) -> u64 {
    let topic = &info.topic;
    let texts = topic.name.len() + topic.type_name.len() + topic.type_description_hash.len();
    let origin = topic.origin.iter().flat_map(TopicOrigin::to_texts);
    let origin: usize = origin.map(|(key, text)| key.len() + text.len() + 8).sum();
    let qos = profiles_to_text(&topic.offered_qos_profiles).len();
    2 * (CHANNEL_BYTES + (texts + origin + qos + info.definition.text.len()) as u64)
}
