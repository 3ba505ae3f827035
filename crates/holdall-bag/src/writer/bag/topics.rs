//! The topics of a bag, and the most bytes that a file needs to name them all.

use super::{BagTopic, UndefinedTopic, WriteError};
use holdall_model::{
    qos::{QosProfile, profiles_to_text},
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo, TopicOrigin},
};
use holdall_storage::writer::ChannelInfo;

/// The most bytes of a topic in a metadata record in addition to its texts, and of each of its QoS profiles.
const TOPIC_METADATA_BYTES: u64 = 512;
const PROFILE_METADATA_BYTES: u64 = 768;
/// The most bytes that a channel needs in a file in addition to its texts.
const CHANNEL_BYTES: u64 = 192;

/// All topics, in the order of their numbers.
#[derive(Default)]
pub(super) struct Topics {
    infos: Vec<ChannelInfo>,
    metadata_bytes: u64,
    channel_bytes: u64,
}

impl Topics {
    pub fn add(&mut self, info: ChannelInfo) -> BagTopic {
        self.metadata_bytes += metadata_bytes(&info.topic);
        self.channel_bytes += channel_bytes(&info);
        self.infos.push(info);
        // More topics than 32 bits can count do not fit into memory.
        BagTopic((self.infos.len() - 1) as u32)
    }

    /// Sets the definition of a topic, and returns whether it had none; `None` for an unknown topic.
    pub fn define(&mut self, topic: BagTopic, definition: MessageDefinition) -> Option<bool> {
        let info = self.infos.get_mut(topic.0 as usize)?;
        let is_news =
            info.definition.encoding == DefinitionEncoding::Unknown && info.definition != definition;
        self.channel_bytes -= channel_bytes(info);
        info.definition = definition;
        self.channel_bytes += channel_bytes(info);
        Some(is_news)
    }

    /// Adds what a publisher of a topic offers; false if that is known, and for an unknown topic.
    pub fn add_offer(&mut self, topic: BagTopic, qos: QosProfile) -> bool {
        let Some(info) = self.infos.get_mut(topic.0 as usize) else {
            return false;
        };
        self.metadata_bytes -= metadata_bytes(&info.topic);
        self.channel_bytes -= channel_bytes(info);
        let is_new = info.topic.add_offer(qos);
        self.metadata_bytes += metadata_bytes(&info.topic);
        self.channel_bytes += channel_bytes(info);
        is_new
    }

    /// Topics without a definition, with their types, by name.
    pub fn undefined(&self) -> Vec<UndefinedTopic> {
        let unknown = |info: &&ChannelInfo| info.definition.encoding == DefinitionEncoding::Unknown;
        let undefined = self.infos.iter().filter(unknown).map(|info| UndefinedTopic {
            name: info.topic.name.clone(),
            type_name: info.topic.type_name.clone(),
        });
        let mut undefined: Vec<UndefinedTopic> = undefined.collect();
        undefined.sort();
        undefined
    }

    pub fn all(&self) -> &[ChannelInfo] {
        &self.infos
    }

    /// # Errors
    /// A topic that was never added.
    pub fn get(&self, topic: BagTopic) -> Result<&ChannelInfo, WriteError> {
        self.infos
            .get(topic.0 as usize)
            .ok_or(WriteError::UnknownTopic { index: topic.0 })
    }

    /// The number of the topic with the name and type of another bag's topic.
    pub fn place_of(&self, other: &TopicInfo) -> Option<usize> {
        let is_match =
            |info: &ChannelInfo| info.topic.name == other.name && info.topic.type_name == other.type_name;
        self.infos.iter().position(is_match)
    }

    /// The most bytes that all of them need in a metadata record.
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    /// The most bytes that the channels of all of them need in a file.
    pub fn channel_bytes(&self) -> u64 {
        self.channel_bytes
    }

    /// The most bytes that the channels of all other topics need in a file.
    pub fn channel_bytes_without(&self, topics: impl IntoIterator<Item = BagTopic>) -> u64 {
        let infos = topics
            .into_iter()
            .filter_map(|topic| self.infos.get(topic.0 as usize));
        self.channel_bytes - infos.map(channel_bytes).sum::<u64>()
    }
}

fn metadata_bytes(topic: &TopicInfo) -> u64 {
    let texts = topic.name.len() + topic.type_name.len() + topic.type_description_hash.len();
    TOPIC_METADATA_BYTES + texts as u64 + PROFILE_METADATA_BYTES * topic.offered_qos_profiles.len() as u64
}

/// The most bytes that a topic's channel needs in a file: channel and definition are both stored twice.
fn channel_bytes(info: &ChannelInfo) -> u64 {
    let topic = &info.topic;
    let texts = topic.name.len() + topic.type_name.len() + topic.type_description_hash.len();
    let origin = topic.origin.iter().flat_map(TopicOrigin::to_texts);
    let origin: usize = origin.map(|(key, text)| key.len() + text.len() + 8).sum();
    let qos = profiles_to_text(&topic.offered_qos_profiles).len();
    2 * (CHANNEL_BYTES + (texts + origin + qos + info.definition.text.len()) as u64)
}
