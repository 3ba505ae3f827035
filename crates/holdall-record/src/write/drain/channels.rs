//! Which topic of the bag a message belongs to: one for each topic of the recording, and one for each further type of its publishers.

use crate::cache::CacheEntry;
use holdall_bag::writer::BagTopic;
use holdall_io::mutex::lock;
use holdall_model::{
    loss::ledger::{Ledger, PublisherIndex},
    topic::TopicId,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

/// The bag's topics, by those of the recording.
#[derive(Default)]
pub(super) struct Channels {
    /// Indexed by [`TopicId`]; `None` while the topic's definition is being waited for.
    own: Vec<Option<BagTopic>>,
    /// The other way round: indexed by [`BagTopic`].
    of_bag: Vec<TopicId>,
    /// The further types of topics; nearly always none.
    others: BTreeMap<TopicId, Vec<(String, BagTopic)>>,
    /// Where the messages of a publisher go; `None` for one of its topic's own type.
    of_publisher: HashMap<(TopicId, PublisherIndex), Option<BagTopic>>,
}

impl Channels {
    /// The bag's topic for messages of a topic's own type, once it is in the bag.
    #[inline]
    pub fn own(&self, topic: TopicId) -> Option<BagTopic> {
        self.own.get(topic.0 as usize).copied().flatten()
    }

    pub fn add_own(&mut self, topic: TopicId, added: BagTopic) {
        self.add(topic, added);
        let index = topic.0 as usize;
        if index >= self.own.len() {
            self.own.resize(index + 1, None);
        }
        self.own[index] = Some(added);
    }

    pub fn add_other(&mut self, topic: TopicId, type_name: String, added: BagTopic) {
        self.add(topic, added);
        self.others.entry(topic).or_default().push((type_name, added));
    }

    fn add(&mut self, topic: TopicId, added: BagTopic) {
        self.of_bag.push(topic);
        debug_assert_eq!(self.of_bag.len(), added.0 as usize + 1, "bags count from 0");
    }

    /// The bag's topic that a message belongs to, by its topic and its publisher's type.
    #[inline]
    pub fn find(&mut self, entry: &CacheEntry, ledger: &Mutex<Ledger>) -> Option<BagTopic> {
        let own = self.own(entry.topic);
        if self.others.is_empty() {
            return own;
        }
        self.find_other(entry, ledger).or(own)
    }

    fn find_other(&mut self, entry: &CacheEntry, ledger: &Mutex<Ledger>) -> Option<BagTopic> {
        self.others.get(&entry.topic)?;
        let key = (entry.topic, entry.publisher);
        if let Some(known) = self.of_publisher.get(&key) {
            return *known;
        }
        let ledger = lock(ledger);
        // It has its type since before its first message was offered.
        let account = ledger.publisher(entry.topic, entry.publisher);
        let type_name = account.and_then(|account| account.type_name.as_deref());
        let topic = type_name.and_then(|name| self.other(entry.topic, name));
        self.of_publisher.insert(key, topic);
        topic
    }

    /// The bag's topic for messages of one of a topic's further types.
    pub fn other(&self, topic: TopicId, type_name: &str) -> Option<BagTopic> {
        let mut types = self.others_of(topic).iter();
        types
            .find(|(known, _)| known == type_name)
            .map(|(_, topic)| *topic)
    }

    fn others_of(&self, topic: TopicId) -> &[(String, BagTopic)] {
        self.others.get(&topic).map_or(&[], Vec::as_slice)
    }

    /// A publisher's number now belongs to another one.
    pub fn forget(&mut self, topic: TopicId, publisher: PublisherIndex) {
        self.of_publisher.remove(&(topic, publisher));
    }

    /// All topics of the bag that have messages of a topic.
    pub fn all(&self, topic: TopicId) -> impl Iterator<Item = BagTopic> {
        let others = self.others_of(topic).iter();
        self.own(topic).into_iter().chain(others.map(|(_, topic)| *topic))
    }

    /// The topic of the recording that one of the bag belongs to.
    pub fn topic_of(&self, topic: BagTopic) -> Option<TopicId> {
        self.of_bag.get(topic.0 as usize).copied()
    }

    /// Topics of the recording by the bag's numbers.
    pub fn of_bag(&self) -> &[TopicId] {
        &self.of_bag
    }
}
