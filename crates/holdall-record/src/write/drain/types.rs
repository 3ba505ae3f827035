//! Topics with publishers of several types: each further type is a separate topic of the bag with the same name.

use super::Drain;
use crate::cache::CacheEntry;
use holdall_bag::writer::BagTopic;
use holdall_io::mutex::lock;
use holdall_model::loss::ledger::PublisherIndex;
use holdall_model::topic::{MessageDefinition, TopicId, TopicInfo};
use holdall_storage::writer::ChannelInfo;
use std::collections::{BTreeMap, HashMap};

/// The further types of topics; nearly always none.
#[derive(Default)]
pub(super) struct OtherTypes {
    topics: BTreeMap<TopicId, Vec<(String, BagTopic)>>,
    /// Where the messages of a publisher go; `None` for one of its topic's own type.
    of_publisher: HashMap<(TopicId, PublisherIndex), Option<BagTopic>>,
}

impl OtherTypes {
    fn of_topic(&self, topic: TopicId) -> &[(String, BagTopic)] {
        self.topics.get(&topic).map_or(&[], Vec::as_slice)
    }

    fn of_type(&self, topic: TopicId, type_name: &str) -> Option<BagTopic> {
        let mut types = self.of_topic(topic).iter();
        types
            .find(|(known, _)| known == type_name)
            .map(|(_, topic)| *topic)
    }
}

impl Drain {
    pub(super) fn add_type(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        let type_name = info.type_name.clone();
        match self.bag.add_topic(ChannelInfo {
            topic: info,
            definition,
        }) {
            Ok(added) => {
                self.topic_of_bag.push(topic);
                debug_assert_eq!(self.topic_of_bag.len(), added.0 as usize + 1, "bags count from 0");
                let types = self.other_types.topics.entry(topic).or_default();
                types.push((type_name, added));
            }
            Err(error) => self.fail(error),
        }
    }

    /// The bag's topic that a message belongs to, by its topic and its publisher's type.
    #[inline]
    pub(super) fn bag_topic(&mut self, entry: &CacheEntry) -> Option<BagTopic> {
        let own = self.topics.get(entry.topic.0 as usize).copied().flatten();
        if self.other_types.topics.is_empty() {
            return own;
        }
        self.other_topic(entry).or(own)
    }

    fn other_topic(&mut self, entry: &CacheEntry) -> Option<BagTopic> {
        let key = (entry.topic, entry.publisher);
        if let Some(known) = self.other_types.of_publisher.get(&key) {
            return *known;
        }
        self.other_types.topics.get(&entry.topic)?;
        let ledger = lock(&self.ledger);
        // It has its type since before its first message was offered.
        let account = ledger.publisher(entry.topic, entry.publisher);
        let type_name = account.and_then(|account| account.type_name.as_deref());
        let topic = type_name.and_then(|name| self.other_types.of_type(entry.topic, name));
        self.other_types.of_publisher.insert(key, topic);
        topic
    }

    /// Gives one of a topic's further types its definition; false if it is none of these.
    pub(super) fn define_other(&mut self, topic: TopicId, definition: &MessageDefinition) -> bool {
        let Some(other) = self.other_types.of_type(topic, &definition.type_name) else {
            return false;
        };
        if let Some(name) = self.bag.set_definition(other, definition.clone()) {
            tracing::info!(
                "{name}: a node sent the message definition of {}; it is in the bag now",
                definition.type_name
            );
        }
        true
    }

    /// A publisher's number now belongs to another one.
    pub(super) fn forget_type(&mut self, topic: TopicId, publisher: PublisherIndex) {
        self.other_types.of_publisher.remove(&(topic, publisher));
    }

    /// The bag's topics of a topic of the recording.
    pub(super) fn bag_topics(&self, topic: TopicId) -> Vec<BagTopic> {
        let own = self.topics.get(topic.0 as usize).copied().flatten();
        let others = self.other_types.of_topic(topic).iter();
        own.into_iter().chain(others.map(|(_, topic)| *topic)).collect()
    }
}
