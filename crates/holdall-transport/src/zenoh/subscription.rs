//! Subscriptions: samples to a sink, each with the values of its attachment; a second input is the history
//! for late joining.

use super::{
    attachment::Attachment,
    discovery::Graph,
    history::SeenSequences,
    loan::Lender,
    session::{Declared, OpenSession},
    token::{EntityKind, TokenTopic, data_key, hash_in},
};
use crate::{Sink, SubscribeRequest, Subscription};
use ::zenoh::{
    Wait,
    bytes::ZBytes,
    pubsub::Subscriber,
    sample::{Sample, SampleFields, SampleKind},
};
use holdall_io::clock::Clock;
use holdall_model::{message::MessageHeader, qos::Durability, time::Timestamp};
use std::sync::{
    Arc, OnceLock, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

/// The receiver of one subscription's samples, on zenoh's threads.
pub(super) struct Receiver {
    pub topic: String,
    pub type_name: String,
    /// Empty once the subscription has ended.
    sink: RwLock<Option<Arc<dyn Sink>>>,
    clock: Arc<dyn Clock>,
    lender: Arc<Lender>,
    /// The messages that have arrived already, if messages can arrive twice: live and from a publisher's
    /// cache.
    seen: Option<SeenSequences>,
    first_hash: OnceLock<String>,
    logged: Logged,
}

/// Warnings that are logged once for each topic.
#[derive(Default)]
struct Logged {
    malformed: AtomicBool,
    bare: AtomicBool,
    other_hash: AtomicBool,
}

fn first_time(logged: &AtomicBool) -> bool {
    !logged.load(Ordering::Relaxed) && !logged.swap(true, Ordering::Relaxed)
}

impl Receiver {
    /// Accepts a sample, live or from a cache.
    pub(super) fn take(&self, sample: Sample) {
        let gate = self.sink.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sink) = gate.as_ref() else { return };
        let SampleFields {
            key_expr,
            payload,
            kind,
            attachment,
            ..
        } = sample.into();
        if kind != SampleKind::Put {
            return;
        }
        let log_time = self.clock.now();
        self.check_hash(key_expr.as_str());
        let origin = self.origin(attachment.as_ref());
        if let (Some(seen), Some(origin)) = (&self.seen, &origin)
            && !seen.is_new(origin.gid, origin.sequence)
        {
            return;
        }
        let header = MessageHeader {
            publisher: origin.map(|origin| origin.gid),
            sequence: origin.map(|origin| origin.sequence),
            publish_time: origin
                .and_then(|origin| origin.source_nanos)
                .map(Timestamp::from_nanos),
            log_time,
        };
        self.lender
            .offer(header.publisher, payload, |payload| sink.offer(header, payload));
    }

    /// Its publisher; a message that does not name one is kept anyway.
    fn origin(&self, attachment: Option<&ZBytes>) -> Option<Attachment> {
        let Some(attachment) = attachment else {
            if first_time(&self.logged.bare) {
                tracing::warn!(
                    "{}: a message has no rmw_zenoh attachment; it is recorded, but losses of its publisher cannot be detected",
                    self.topic
                );
            }
            return None;
        };
        match Attachment::decode(&attachment.to_bytes()) {
            Ok(origin) => Some(origin),
            Err(error) => {
                if first_time(&self.logged.malformed) {
                    tracing::warn!(
                        "{}: a message has a malformed attachment ({error}); it is recorded, but losses of its publisher cannot be detected",
                        self.topic
                    );
                }
                None
            }
        }
    }

    fn check_hash(&self, key: &str) {
        let Some(hash) = hash_in(key) else { return };
        let first = self.first_hash.get_or_init(|| hash.to_owned());
        if first != hash && first_time(&self.logged.other_hash) {
            tracing::warn!(
                "{}: publishers disagree about the definition of {}: messages come with {first} and with {hash}",
                self.topic,
                self.type_name
            );
        }
    }

    /// Ends delivery; no call of the sink happens after this has returned.
    fn close(&self) {
        *self.sink.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether messages of publishers' caches are requested.
    pub(super) fn wants_history(&self) -> bool {
        self.seen.is_some()
    }
}

/// State that the subscriptions of a session share.
pub(super) struct Surroundings {
    pub session: Arc<OpenSession>,
    pub graph: Arc<Graph>,
    pub lender: Arc<Lender>,
    pub clock: Arc<dyn Clock>,
}

/// A subscription of a topic.
pub(super) struct ZenohSubscription {
    receiver: Arc<Receiver>,
    graph: Arc<Graph>,
    // Undeclared before the session may be closed.
    _subscriber: Subscriber<()>,
    _declared: Declared,
    _session: Arc<OpenSession>,
}

impl ZenohSubscription {
    /// Subscribes, whatever hash publishers have.
    pub(super) fn new(
        surroundings: &Surroundings,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> ::zenoh::Result<Self> {
        let Surroundings {
            session,
            graph,
            lender,
            clock,
        } = surroundings;
        let SubscribeRequest {
            topic,
            type_name,
            qos,
        } = request;
        let latched = qos.durability == Durability::TransientLocal;
        let receiver = Arc::new(Receiver {
            topic: topic.clone(),
            type_name: type_name.clone(),
            sink: RwLock::new(Some(sink)),
            clock: Arc::clone(clock),
            lender: Arc::clone(lender),
            seen: latched.then(SeenSequences::default),
            first_hash: OnceLock::new(),
            logged: Logged::default(),
        });
        let entity = session.entity(
            EntityKind::Subscription,
            TokenTopic {
                name: topic.clone(),
                type_name: type_name.clone(),
                type_hash: graph.hash_of(topic, type_name),
                qos: *qos,
            },
        );
        let taker = Arc::clone(&receiver);
        let subscriber = session
            .zenoh()
            .declare_subscriber(data_key(session.domain_id(), topic, type_name, None))
            .callback(move |sample| taker.take(sample))
            .wait()?;
        if latched {
            super::history::ask_all(session, &receiver)?;
        }
        Ok(Self {
            receiver,
            graph: Arc::clone(graph),
            _subscriber: subscriber,
            _declared: session.declare(entity)?,
            _session: Arc::clone(session),
        })
    }

    /// The receiver of its samples.
    pub(super) fn receiver(&self) -> &Arc<Receiver> {
        &self.receiver
    }
}

impl Subscription for ZenohSubscription {
    fn matched_publishers(&self) -> usize {
        self.graph
            .publishers(&self.receiver.topic, &self.receiver.type_name)
    }
}

impl Drop for ZenohSubscription {
    fn drop(&mut self) {
        self.receiver.close();
    }
}
