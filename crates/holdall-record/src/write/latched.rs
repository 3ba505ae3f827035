//! Keeps the last messages of latched topics, for the beginnings of the next files.

use crate::{cache::CacheEntry, clock_watch::ClockWatch};
use holdall_bag::writer::{BagTopic, LatchedMessage};
use holdall_io::mutex::lock;
use holdall_model::{
    loss::ledger::{Ledger, PublisherIndex},
    message::PayloadRef,
    repeated::RepeatedMessage,
    time::Timestamp,
    topic::{PublisherInfo, TopicId},
};
use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

/// The most bytes of payloads that are kept; the oldest messages are dropped first.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// The most publishers of a topic whose messages are kept; of more, those that have not sent for the longest time are dropped.
const PUBLISHERS_MAX: usize = 64;

/// Which topics' last messages each file repeats at its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepeatOptions {
    /// By full name, with the number of messages of each publisher (`--repeat-transient-local`).
    pub topics: BTreeMap<String, NonZeroU32>,
    /// For all other topics with a transient-local publisher (`--repeat-all-transient-local`); `None` for none of them.
    pub all: Option<NonZeroU32>,
}

impl RepeatOptions {
    /// Nothing is repeated.
    pub fn is_none(&self) -> bool {
        self.topics.is_empty() && self.all.is_none()
    }
}

/// A message that is kept.
struct Kept {
    /// When it came, in time that does not jump.
    came: Timestamp,
    /// `None` for a message of its topic's own type, whose place the drain may not know yet.
    place: Option<BagTopic>,
    publisher: Option<PublisherInfo>,
    publish_time: Timestamp,
    sequence: u32,
    payload: Arc<Vec<u8>>,
    is_packed: bool,
    origin: RepeatedMessage,
}

impl Kept {
    fn message(&self, topic: BagTopic) -> LatchedMessage {
        LatchedMessage {
            topic,
            publisher: self.publisher.clone(),
            publish_time: self.publish_time,
            sequence: self.sequence,
            payload: Arc::clone(&self.payload),
            is_packed: self.is_packed,
            origin: self.origin,
        }
    }
}

/// Where the bag has a message.
pub(crate) struct InBag {
    pub topic: BagTopic,
    /// Number of the file.
    pub file: Option<u32>,
    pub is_packed: bool,
}

/// The last messages of the chosen topics; shared by the parts that see messages go.
pub(crate) struct LatchedKeeper {
    options: RepeatOptions,
    /// Publishers are not distinguished in the bag.
    merge_publishers: bool,
    time: Option<Arc<ClockWatch>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How many messages of each publisher; by topic.
    depths: BTreeMap<TopicId, usize>,
    /// Where messages of a topic's own type are in the bag.
    places: BTreeMap<TopicId, BagTopic>,
    kept: BTreeMap<(TopicId, PublisherIndex), VecDeque<Kept>>,
    bytes: usize,
    /// Number of messages that were ever kept.
    count: u64,
    has_warned: bool,
}

impl LatchedKeeper {
    /// A keeper, if there are messages to repeat. `time` watches the clock that stamps messages.
    pub(crate) fn new(
        options: &RepeatOptions,
        merge_publishers: bool,
        time: Option<&Arc<ClockWatch>>,
    ) -> Option<Arc<Self>> {
        (!options.is_none()).then(|| {
            Arc::new(Self {
                options: options.clone(),
                merge_publishers,
                time: time.cloned(),
                inner: Mutex::default(),
            })
        })
    }

    /// Whether a topic was named; its subscriptions request latched messages, whatever else was chosen.
    pub fn names(&self, topic: &str) -> bool {
        self.options.topics.contains_key(topic)
    }

    /// Takes note of a topic, before its first message comes. `has_latched`: one of its publishers keeps messages for late subscriptions.
    pub fn add_topic(&self, topic: TopicId, name: &str, has_latched: bool) {
        let named = self.options.topics.get(name).copied();
        if let Some(depth) = named.or(self.options.all.filter(|_| has_latched)) {
            lock(&self.inner).depths.insert(topic, depth.get() as usize);
        }
    }

    /// Takes note of a topic's place in the bag.
    pub fn place(&self, topic: TopicId, place: BagTopic) {
        lock(&self.inner).places.insert(topic, place);
    }

    /// Whether messages of a topic are kept.
    pub fn keeps(&self, topic: TopicId) -> bool {
        lock(&self.inner).depths.contains_key(&topic)
    }

    /// Keeps a message that was written.
    pub fn keep_written(
        &self,
        entry: &CacheEntry,
        publisher: Option<PublisherInfo>,
        payload: PayloadRef<'_>,
        place: &InBag,
    ) {
        let kept = self.kept(entry, publisher, payload, place.file);
        lock(&self.inner).keep(
            entry,
            Kept {
                place: Some(place.topic),
                is_packed: place.is_packed,
                ..kept
            },
        );
    }

    /// Keeps a latched message that is not written, because a ring has dropped it: a late subscription would get it. What has another type
    /// than its topic has no place in the bag yet, and is not kept.
    pub fn keep_dropped(&self, entry: &CacheEntry, payload: PayloadRef<'_>, ledger: &Mutex<Ledger>) {
        if !self.keeps(entry.topic) {
            return;
        }
        let ledger = lock(ledger);
        let publisher = ledger.publisher(entry.topic, entry.publisher);
        if publisher.is_some_and(|publisher| publisher.type_name.is_some()) {
            return;
        }
        let publisher = publisher.and_then(|publisher| publisher.info());
        drop(ledger);
        let kept = self.kept(entry, publisher, payload, None);
        lock(&self.inner).keep(entry, kept);
    }

    /// Copies the payload, outside of the lock.
    fn kept(
        &self,
        entry: &CacheEntry,
        publisher: Option<PublisherInfo>,
        payload: PayloadRef<'_>,
        file: Option<u32>,
    ) -> Kept {
        let mut bytes = Vec::with_capacity(payload.len());
        payload.for_each_slice(|slice| bytes.extend_from_slice(slice));
        Kept {
            came: self.steady_of(entry.log_time),
            place: None,
            publisher: publisher.filter(|_| !self.merge_publishers),
            publish_time: entry.publish_time.unwrap_or(entry.log_time),
            // As in the bag: MCAP has room for the low 32 bits.
            sequence: entry.sequence.unwrap_or(0) as u32,
            payload: bytes.into(),
            is_packed: false,
            origin: RepeatedMessage { id: 0, file },
        }
    }

    /// The time of a log time on a clock that does not jump.
    fn steady_of(&self, log_time: Timestamp) -> Timestamp {
        self.time
            .as_ref()
            .map_or(log_time, |time| time.steady_of(log_time))
    }

    /// Messages kept up to a log time, oldest first.
    pub fn messages(&self, until: Timestamp) -> Vec<LatchedMessage> {
        let until = self.steady_of(until);
        let inner = lock(&self.inner);
        let mut kept: Vec<(Timestamp, LatchedMessage)> = Vec::new();
        for ((topic, _), messages) in &inner.kept {
            let own = inner.places.get(topic).copied();
            let until = messages.iter().filter(|message| message.came <= until);
            kept.extend(until.filter_map(|it| Some((it.came, it.message(it.place.or(own)?)))));
        }
        kept.sort_by_key(|(came, _)| *came);
        kept.into_iter().map(|(_, message)| message).collect()
    }
}

impl Inner {
    fn keep(&mut self, entry: &CacheEntry, mut message: Kept) {
        let Some(depth) = self.depths.get(&entry.topic).copied() else {
            return;
        };
        message.origin.id = self.count;
        self.count += 1;
        let added = message.payload.len();
        let of_publisher = self.kept.entry((entry.topic, entry.publisher)).or_default();
        // The ring drops a message while the drain writes an older one.
        let place = of_publisher.partition_point(|kept| kept.came <= message.came);
        of_publisher.insert(place, message);
        self.bytes += added;
        while of_publisher.len() > depth
            && let Some(oldest) = of_publisher.pop_front()
        {
            self.bytes -= oldest.payload.len();
        }
        self.bound_publishers(entry.topic);
        self.bound_bytes();
    }

    fn bound_publishers(&mut self, topic: TopicId) {
        let range = (topic, PublisherIndex(0))..=(topic, PublisherIndex(u32::MAX));
        if self.kept.range(range.clone()).count() <= PUBLISHERS_MAX {
            return;
        }
        let last = |kept: &VecDeque<Kept>| kept.back().map(|kept| kept.came);
        let silent = self.kept.range(range).min_by_key(|(_, kept)| last(kept));
        if let Some(key) = silent.map(|(key, _)| *key) {
            self.remove(key);
        }
    }

    fn bound_bytes(&mut self) {
        while self.bytes > KEPT_BYTES_MAX {
            let first = |kept: &VecDeque<Kept>| kept.front().map(|kept| kept.came);
            let oldest = self.kept.iter().min_by_key(|(_, kept)| first(kept));
            let Some(key) = oldest.map(|(key, _)| *key) else {
                return;
            };
            if !std::mem::replace(&mut self.has_warned, true) {
                tracing::warn!(
                    "more than {KEPT_BYTES_MAX} bytes of latched messages: the oldest are not repeated"
                );
            }
            let dropped = self.kept.get_mut(&key).and_then(VecDeque::pop_front);
            self.bytes -= dropped.map_or(0, |dropped| dropped.payload.len());
            if self.kept.get(&key).is_some_and(VecDeque::is_empty) {
                self.kept.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: (TopicId, PublisherIndex)) {
        let removed = self.kept.remove(&key).unwrap_or_default();
        let bytes: usize = removed.iter().map(|kept| kept.payload.len()).sum();
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(depth: u32) -> Arc<LatchedKeeper> {
        let options = RepeatOptions {
            topics: BTreeMap::new(),
            all: NonZeroU32::new(depth),
        };
        let keeper = LatchedKeeper::new(&options, false, None).expect("something is repeated");
        keeper.add_topic(TopicId(0), "/map", true);
        keeper.add_topic(TopicId(1), "/scan", false);
        keeper
    }

    fn keep(keeper: &LatchedKeeper, (topic, publisher): (u32, u32), nanos: i64) {
        let entry = CacheEntry {
            log_time: Timestamp::from_nanos(nanos),
            publish_time: None,
            sequence: None,
            topic: TopicId(topic),
            publisher: PublisherIndex(publisher),
        };
        let payload = nanos.to_le_bytes();
        let place = InBag {
            topic: BagTopic(topic),
            file: Some(0),
            is_packed: false,
        };
        keeper.keep_written(&entry, None, PayloadRef::Bytes(&payload), &place);
    }

    fn kept(keeper: &LatchedKeeper, until: i64) -> Vec<i64> {
        let messages = keeper.messages(Timestamp::from_nanos(until));
        messages
            .iter()
            .map(|message| message.publish_time.as_nanos())
            .collect()
    }

    #[test]
    fn the_last_messages_of_each_publisher_of_a_latched_topic_are_kept_in_order() {
        let keeper = keeper(2);
        for (publisher, nanos) in [(0, 1), (1, 2), (0, 5), (0, 3), (0, 9)] {
            keep(&keeper, (0, publisher), nanos);
        }
        keep(&keeper, (1, 0), 4);
        assert_eq!(kept(&keeper, 100), [2, 5, 9]);
        assert_eq!(kept(&keeper, 8), [2, 5], "what comes later is no state of now");
    }

    #[test]
    fn publishers_that_come_and_go_take_no_more_memory() {
        let keeper = keeper(1);
        (0..1000).for_each(|number| keep(&keeper, (0, number), i64::from(number)));
        let newest = (1000 - PUBLISHERS_MAX as i64..1000).collect::<Vec<_>>();
        assert_eq!(kept(&keeper, 1000), newest);
        assert_eq!(lock(&keeper.inner).bytes, 8 * PUBLISHERS_MAX);
    }
}
