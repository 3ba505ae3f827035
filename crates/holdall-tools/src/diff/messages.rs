//! Matches each message with its counterpart in the other bag, in time order with bounded memory.

use super::DiffOptions;
use bytes::Bytes;
use holdall_bag::reader::{BagMessage, BagSet, MessageFilter, Messages, ReadError};
use holdall_model::time::Timestamp;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasher, Hasher, RandomState},
    iter::Peekable,
};

/// One of the two bags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// A message that only one bag has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lone {
    /// Which bag.
    pub side: Side,
    /// Its topic.
    pub topic: String,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Reception time in nanoseconds since 1970.
    pub log_time: i64,
    /// Its bytes.
    #[serde(skip)]
    pub payload: Bytes,
    /// Length of the payload in bytes.
    pub payload_bytes: u64,
}

/// Identifies a message. Two 64-bit hashes with random keys: wrong with a probability of 2^-128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    topic: u32,
    log_time: i64,
    hash: [u64; 2],
    bytes: usize,
}

/// A message waiting for its counterpart.
struct Waiting {
    side: Side,
    count: u64,
    /// Kept for the first ones only, so that memory is bounded.
    message: Option<BagMessage>,
}

/// Bytes of payloads of waiting messages that are kept in memory together.
const KEPT_BYTES_MAX: usize = 64 << 20;

pub(super) struct Matcher {
    pub matched: u64,
    pub lone_by_topic: BTreeMap<String, [u64; 2]>,
    pub listed: Vec<Lone>,
    told_max: usize,
    waiting_max: usize,
    waiting: HashMap<Key, Waiting>,
    /// In the order of arrival.
    order: VecDeque<Key>,
    kept_bytes: usize,
    topics: HashMap<String, u32>,
    names: Vec<String>,
    hashers: [RandomState; 2],
}

impl Matcher {
    /// Reads both bags to their ends.
    pub fn run(first: &BagSet, second: &BagSet, options: &DiffOptions) -> Result<Self, ReadError> {
        let mut matcher = Self {
            matched: 0,
            lone_by_topic: BTreeMap::new(),
            listed: Vec::new(),
            told_max: options.told_max,
            waiting_max: options.waiting_max.max(1),
            waiting: HashMap::new(),
            order: VecDeque::new(),
            kept_bytes: 0,
            topics: HashMap::new(),
            names: Vec::new(),
            hashers: [RandomState::new(), RandomState::new()],
        };
        let all = MessageFilter::default();
        let mut first = first.messages(&all).peekable();
        let mut second = second.messages(&all).peekable();
        loop {
            // Advances the bag with the earlier message, so that equal messages meet soon.
            let side = match (stamp(&mut first), stamp(&mut second)) {
                (None, None) => break,
                (Some(_), None) => Side::First,
                (None, Some(_)) => Side::Second,
                (Some(first), Some(second)) if second < first => Side::Second,
                (Some(first), Some(second)) if first < second => Side::First,
                _ if matcher.last_waiting() == Some(Side::First) => Side::Second,
                _ => Side::First,
            };
            let next = match side {
                Side::First => first.next(),
                Side::Second => second.next(),
            };
            if let Some(message) = next {
                matcher.add(side, message?);
            }
        }
        while matcher.count_oldest_as_lone() {}
        matcher.listed.sort_by_key(|lone| lone.log_time);
        Ok(matcher)
    }

    fn last_waiting(&self) -> Option<Side> {
        let key = self.order.back()?;
        self.waiting.get(key).map(|waiting| waiting.side)
    }

    fn add(&mut self, side: Side, message: BagMessage) {
        let key = self.key(&message);
        match self.waiting.get_mut(&key) {
            Some(waiting) if waiting.side != side => {
                self.matched += 1;
                waiting.count -= 1;
                if waiting.count == 0
                    && let Some(Waiting {
                        message: Some(kept), ..
                    }) = self.waiting.remove(&key)
                {
                    self.kept_bytes -= kept.payload.len();
                }
                // The key in `order` is skipped when it is due; in an ordered bag it is the last or the first
                // one.
                if self.order.back() == Some(&key) && !self.waiting.contains_key(&key) {
                    self.order.pop_back();
                }
                while self
                    .order
                    .front()
                    .is_some_and(|front| !self.waiting.contains_key(front))
                {
                    self.order.pop_front();
                }
            }
            Some(waiting) => waiting.count += 1,
            None => self.wait(key, side, message),
        }
    }

    fn wait(&mut self, key: Key, side: Side, message: BagMessage) {
        let bytes = message.payload.len();
        // A payload may keep a whole chunk in memory: those that are kept are copied.
        let kept = (self.kept_bytes + bytes <= KEPT_BYTES_MAX).then(|| {
            self.kept_bytes += bytes;
            BagMessage {
                payload: Bytes::copy_from_slice(&message.payload),
                ..message
            }
        });
        self.waiting.insert(
            key,
            Waiting {
                side,
                count: 1,
                message: kept,
            },
        );
        self.order.push_back(key);
        // Keys of matched messages may remain in between: both lengths are bounded.
        while self.waiting.len() > self.waiting_max || self.order.len() > 2 * self.waiting_max {
            if !self.count_oldest_as_lone() {
                break;
            }
        }
    }

    /// Counts the message that has waited longest as missing in the other bag; false if none waits.
    fn count_oldest_as_lone(&mut self) -> bool {
        let Some(key) = self.order.pop_front() else {
            return false;
        };
        let Some(Waiting { side, count, message }) = self.waiting.remove(&key) else {
            return true;
        };
        let name = &self.names[key.topic as usize];
        let counts = self.lone_by_topic.entry(name.clone()).or_default();
        counts[side as usize] += count;
        if let Some(message) = &message {
            self.kept_bytes -= message.payload.len();
        }
        if self.listed.len() < self.told_max {
            self.listed.push(Lone {
                side,
                topic: name.clone(),
                type_name: message
                    .as_ref()
                    .map(|message| message.topic.type_name.clone())
                    .unwrap_or_default(),
                log_time: key.log_time,
                payload: message.map(|message| message.payload).unwrap_or_default(),
                payload_bytes: key.bytes as u64,
            });
        }
        true
    }

    fn key(&mut self, message: &BagMessage) -> Key {
        let topic = match self.topics.get(&message.topic.name) {
            Some(topic) => *topic,
            None => {
                let topic = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                self.names.push(message.topic.name.clone());
                self.topics.insert(message.topic.name.clone(), topic);
                topic
            }
        };
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(&message.payload);
            hasher.finish()
        };
        Key {
            topic,
            log_time: message.log_time.as_nanos(),
            hash: [hash(&self.hashers[0]), hash(&self.hashers[1])],
            bytes: message.payload.len(),
        }
    }
}

/// Stamp of a bag's next message; an error sorts first.
fn stamp(messages: &mut Peekable<Messages>) -> Option<Timestamp> {
    messages.peek().map(|message| match message {
        Ok(message) => message.log_time,
        Err(_) => Timestamp::from_nanos(i64::MIN),
    })
}
