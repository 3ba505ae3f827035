//! Topics whose message definition is still being asked for, with the messages held back for them, bounded in time and bytes.

use crate::cache::CacheEntry;
use holdall_model::{
    message::{Loan, PayloadRef},
    qos::QosProfile,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// How long a topic's messages are held back for its definition, at most and at least: held messages are in no file yet, so a
/// short loss window shortens the wait.
const DEFINITION_WAIT_MAX: Duration = Duration::from_secs(2);
const DEFINITION_WAIT_MIN: Duration = Duration::from_secs(1);

/// The payload of a message that is held back.
pub(crate) enum HeldPayload {
    /// Copied out of its segment.
    Bytes(Box<[u8]>),
    /// The transport's memory, with its pinned bytes.
    Loan(Box<dyn Loan>, usize),
}

impl HeldPayload {
    /// As a storage writer sees it.
    pub(crate) fn as_payload(&self) -> PayloadRef<'_> {
        match self {
            Self::Bytes(bytes) => PayloadRef::Bytes(bytes),
            Self::Loan(loan, _) => PayloadRef::Loan(loan.as_ref()),
        }
    }

    /// As a loan.
    pub(crate) fn into_loan(self) -> Box<dyn Loan> {
        match self {
            Self::Bytes(bytes) => Box::new(bytes),
            Self::Loan(loan, _) => loan,
        }
    }

    /// Memory that it keeps, in bytes.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Loan(_, pinned_bytes) => *pinned_bytes,
        }
    }
}

/// Messages that are held back, oldest first.
pub type Held = VecDeque<(CacheEntry, HeldPayload)>;

/// A topic that waits no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    /// Its number.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    type_name: String,
}

impl Overdue {
    /// The definition that it is recorded with.
    pub(crate) fn without_definition(&self) -> MessageDefinition {
        MessageDefinition::unknown(&self.type_name)
    }
}

struct WaitingTopic {
    info: TopicInfo,
    /// When the first of its messages was received, at the earliest; a topic without messages can wait for ever.
    since: Option<Duration>,
    held: Held,
    held_bytes: usize,
}

/// All topics that wait.
pub(crate) struct WaitingTopics {
    wait_max: Duration,
    bytes_max: usize,
    held_bytes: usize,
    topics: BTreeMap<TopicId, WaitingTopic>,
}

impl WaitingTopics {
    /// Nothing waits; at most `bytes_max` will be held back, and no longer than suits a loss window.
    pub fn new(bytes_max: usize, loss_window: Option<Duration>) -> Self {
        let wait_max = loss_window.map_or(DEFINITION_WAIT_MAX, |window| window * 3 / 4);
        Self {
            wait_max: wait_max.clamp(DEFINITION_WAIT_MIN, DEFINITION_WAIT_MAX),
            bytes_max,
            held_bytes: 0,
            topics: BTreeMap::new(),
        }
    }

    /// Lets a topic wait.
    pub fn add(&mut self, topic: TopicId, info: TopicInfo) {
        self.topics.insert(
            topic,
            WaitingTopic {
                info,
                since: None,
                held: Held::new(),
                held_bytes: 0,
            },
        );
    }

    /// Adds what a publisher offers to its topic; false if none of its type waits.
    pub fn add_offer(&mut self, topic: TopicId, type_name: &str, qos: QosProfile) -> bool {
        let topic = self.topics.get_mut(&topic);
        topic.is_some_and(|topic| topic.info.add_offer_of(type_name, qos))
    }

    /// Whether messages are held back.
    pub fn has_messages(&self) -> bool {
        self.topics.values().any(|topic| !topic.held.is_empty())
    }

    /// Whether a topic waits.
    #[inline]
    pub fn contains(&self, topic: TopicId) -> bool {
        !self.topics.is_empty() && self.topics.contains_key(&topic)
    }

    /// Holds a message back that was received at `received` or later: time in the cache counts toward its
    /// wait and toward the loss window. Returns the topics that must not wait any longer because too much is
    /// held.
    pub fn hold(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) -> Vec<Overdue> {
        let bytes = payload.held_bytes() + size_of::<(CacheEntry, HeldPayload)>();
        if let Some(topic) = self.topics.get_mut(&entry.topic) {
            topic.since.get_or_insert(received);
            topic.held.push_back((entry, payload));
            topic.held_bytes += bytes;
            self.held_bytes += bytes;
        }
        if self.held_bytes <= self.bytes_max {
            return Vec::new();
        }
        let largest = self.topics.iter().max_by_key(|(_, topic)| topic.held_bytes);
        largest
            .map(|(id, topic)| overdue_topic(*id, topic))
            .into_iter()
            .collect()
    }

    /// Ends a topic's wait; returns the held messages.
    pub fn remove(&mut self, topic: TopicId) -> Option<(TopicInfo, Held)> {
        let topic = self.topics.remove(&topic)?;
        self.held_bytes -= topic.held_bytes;
        Some((topic.info, topic.held))
    }

    /// Topics whose messages have waited for too long.
    pub(crate) fn overdue(&self, now: Duration) -> Vec<Overdue> {
        let late = |topic: &WaitingTopic| {
            topic
                .since
                .is_some_and(|since| now.saturating_sub(since) >= self.wait_max)
        };
        self.topics
            .iter()
            .filter(|(_, topic)| late(topic))
            .map(|(id, topic)| overdue_topic(*id, topic))
            .collect()
    }

    /// When the oldest message that is held back was received, at the earliest.
    pub fn oldest(&self) -> Option<Duration> {
        self.topics.values().filter_map(|topic| topic.since).min()
    }

    /// All topics that wait.
    pub fn all(&self) -> Vec<Overdue> {
        self.topics
            .iter()
            .map(|(id, topic)| overdue_topic(*id, topic))
            .collect()
    }
}

fn overdue_topic(id: TopicId, topic: &WaitingTopic) -> Overdue {
    Overdue {
        id,
        name: topic.info.name.clone(),
        type_name: topic.info.type_name.clone(),
    }
}
