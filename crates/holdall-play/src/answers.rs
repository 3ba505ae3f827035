//! The topics whose messages answer those that are played: found in the graph, subscribed to, and collected.

use super::{step_ledger::Fit, steps::hex, wake::Wake};
use holdall_bag::decode::{Decoders, HeaderStamp};
use holdall_io::mutex::lock;
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{Durability, QosProfile, common_request},
    topic::{Gid, TopicInfo},
};
use holdall_transport::{EndpointInfo, GraphEvent, Sink, SubscribeRequest, Subscription, Transport};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

/// Payload bytes of answers that wait for the playing thread, which takes them at once.
const INBOX_BYTES_MAX: usize = 256 << 20;

/// Messages that have come and were not taken.
#[derive(Default)]
struct Inbox {
    /// Of which topic, and the payload.
    messages: VecDeque<(usize, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
}

/// The sink of the subscriptions to one topic.
struct Ear {
    topic: usize,
    inbox: Arc<Mutex<Inbox>>,
    wake: Arc<Wake>,
}

impl Sink for Ear {
    fn offer(&self, _header: MessageHeader, payload: Payload<'_>) {
        let mut inbox = lock(&self.inbox);
        if inbox.bytes.saturating_add(payload.len()) > INBOX_BYTES_MAX {
            inbox.dropped += 1;
        } else {
            inbox.bytes += payload.len();
            inbox.messages.push_back((self.topic, payload.to_vec()));
        }
        drop(inbox);
        self.wake.notify();
    }
}

/// One topic whose messages are answers.
struct AnswerTopic {
    name: String,
    publishers: BTreeSet<Gid>,
    /// With the type and QoS of the first publisher.
    subscription: Option<Box<dyn Subscription>>,
    /// Where its messages have their stamp, if they have one and their definition is known.
    stamp: Option<HeaderStamp>,
    messages: u64,
    unasked: u64,
    earlier: u64,
    hash: Sha256,
}

/// The messages of an answering topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerReport {
    /// How many came.
    pub messages: u64,
    /// Those that answered no message.
    pub unasked: u64,
    /// Those among them with a stamp before that of each message that waited; the others came while none waited.
    pub earlier: u64,
    /// SHA-256 of all of them in their order, each with its length before it.
    pub sha256: String,
}

/// All topics whose messages are answers.
pub(super) struct Answers {
    topics: Vec<AnswerTopic>,
    inbox: Arc<Mutex<Inbox>>,
    wake: Arc<Wake>,
    is_pumped: bool,
}

impl Answers {
    /// Waits for publishers of these topics.
    pub fn new(names: &[String], wake: &Arc<Wake>) -> Self {
        let topic = |name: &String| AnswerTopic {
            name: name.clone(),
            publishers: BTreeSet::new(),
            subscription: None,
            stamp: None,
            messages: 0,
            unasked: 0,
            earlier: 0,
            hash: Sha256::new(),
        };
        Self {
            topics: names.iter().map(topic).collect(),
            inbox: Arc::default(),
            wake: Arc::clone(wake),
            is_pumped: false,
        }
    }

    /// True if no topic answers.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Takes what a transport has seen, and subscribes to what it shows.
    pub fn note(&mut self, events: &[GraphEvent], transport: &mut dyn Transport, decoders: &mut Decoders) {
        self.is_pumped |= transport.is_pumped();
        for event in events {
            match event {
                GraphEvent::Publisher(endpoint) => {
                    let topics = &mut self.topics;
                    if let Some(index) = topics.iter().position(|topic| topic.name == endpoint.topic) {
                        topics[index].publishers.insert(endpoint.gid);
                        self.subscribe(index, endpoint, transport, decoders);
                    }
                }
                GraphEvent::PublisherGone(gid)
                | GraphEvent::PublisherLeft { gid, .. }
                | GraphEvent::PublisherSilent { gid, .. } => {
                    for topic in &mut self.topics {
                        topic.publishers.remove(gid);
                    }
                }
                _ => {}
            }
        }
    }

    fn subscribe(
        &mut self,
        index: usize,
        endpoint: &EndpointInfo,
        transport: &mut dyn Transport,
        decoders: &mut Decoders,
    ) {
        let topic = &mut self.topics[index];
        let Some(qos) = common_request([&endpoint.qos]).filter(|_| topic.subscription.is_none()) else {
            return;
        };
        let info = TopicInfo {
            name: endpoint.topic.clone(),
            type_name: endpoint.type_name.clone(),
            type_description_hash: endpoint.type_hash.clone().unwrap_or_default(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        };
        topic.stamp = stamp_of(&info, decoders);
        let request = SubscribeRequest {
            topic: info.name,
            type_name: info.type_name,
            qos: QosProfile {
                // What was published before answers nothing.
                durability: Durability::Volatile,
                ..qos
            },
        };
        let ear = Ear {
            topic: index,
            inbox: Arc::clone(&self.inbox),
            wake: Arc::clone(&self.wake),
        };
        match transport.subscribe(&request, Arc::new(ear)) {
            Ok(subscription) => topic.subscription = Some(subscription),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Where the messages of a topic have their stamp.
    pub fn stamp(&self, topic: usize) -> Option<&HeaderStamp> {
        self.topics[topic].stamp.as_ref()
    }

    /// Takes the messages that have come: the topic's number, and the message's stamp if it has one; `answer` returns what it is to those that wait.
    pub fn take(&mut self, mut answer: impl FnMut(usize, Option<i64>) -> Fit) {
        for subscription in self
            .topics
            .iter_mut()
            .filter_map(|topic| topic.subscription.as_mut())
        {
            subscription.pump();
        }
        let messages = {
            let mut inbox = lock(&self.inbox);
            inbox.bytes = 0;
            std::mem::take(&mut inbox.messages)
        };
        for (index, payload) in messages {
            let topic = &mut self.topics[index];
            topic.messages += 1;
            topic.hash.update((payload.len() as u64).to_le_bytes());
            topic.hash.update(&payload);
            let stamp = topic.stamp.as_ref().and_then(|stamp| stamp.read(&payload).ok());
            let fit = answer(index, stamp.map(|stamp| stamp.as_nanos()));
            topic.unasked += u64::from(fit != Fit::Asked);
            topic.earlier += u64::from(fit == Fit::Earlier);
        }
    }

    /// Publishers that subscriptions are matched with right now.
    pub fn matched(&self) -> usize {
        self.topics.iter().map(AnswerTopic::matched).sum()
    }

    /// The first topic without a publisher that is matched.
    pub fn without_publisher(&self) -> Option<&str> {
        let silent = self.topics.iter().find(|topic| topic.matched() == 0);
        silent.map(|topic| topic.name.as_str())
    }

    /// The first topic whose publishers are all gone.
    pub fn left(&self) -> Option<&str> {
        let is_left = |topic: &&AnswerTopic| topic.subscription.is_some() && topic.publishers.is_empty();
        self.topics.iter().find(is_left).map(|topic| topic.name.as_str())
    }

    /// Whether messages come only when they are fetched.
    pub fn is_pumped(&self) -> bool {
        self.is_pumped
    }

    /// What came, by topic.
    pub fn reports(&self) -> BTreeMap<String, AnswerReport> {
        let dropped = lock(&self.inbox).dropped;
        if dropped > 0 {
            tracing::warn!("{dropped} answers came faster than they were taken and are not counted");
        }
        let report = |topic: &AnswerTopic| AnswerReport {
            messages: topic.messages,
            unasked: topic.unasked,
            earlier: topic.earlier,
            sha256: hex(&topic.hash),
        };
        let topics = self.topics.iter();
        topics.map(|topic| (topic.name.clone(), report(topic))).collect()
    }
}

impl AnswerTopic {
    fn matched(&self) -> usize {
        let subscription = self.subscription.as_ref();
        subscription.map_or(0, |subscription| subscription.matched_publishers())
    }
}

/// Where the messages of a topic have their `header.stamp`, if they have one and their definition is known.
pub(super) fn stamp_of(topic: &TopicInfo, decoders: &mut Decoders) -> Option<HeaderStamp> {
    let decoder = decoders.find(topic).ok()?;
    HeaderStamp::of(&decoder.fields().ok()?)
}
