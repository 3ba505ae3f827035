//! Listens to live topics without storing them: rates, sizes, losses, delays, and messages as they come.

mod heard;

pub use heard::{HeardMessage, Spread};

use heard::Heard;
use holdall_io::clock::Clock;
use holdall_model::{
    dynamic::{
        TypePlan,
        expression::{ExpressionError, Predicate},
    },
    interface::{Definition, bundle::Bundle},
    qos::{QosProfile, common_request},
    selection::TopicFilter,
    topic::{Gid, MessageDefinition, NodeName},
};
use holdall_record::Definitions;
use holdall_transport::{
    EndpointInfo, GraphEvent, SubscribeRequest, Subscription, Transport, TransportError,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Time between two polls of the graph without news.
const GRAPH_INTERVAL: Duration = Duration::from_millis(200);

/// Options of a listener.
pub struct ListenOptions {
    /// Which topics.
    pub filter: TopicFilter,
    /// Folders that are searched for definitions first.
    pub ament_prefixes: Vec<PathBuf>,
    /// Arrivals that spreads are made of; older ones are forgotten.
    pub window: usize,
    /// Keep messages for [`Listener::take_messages`], up to some 64 MiB for each topic.
    pub keeps_messages: bool,
    /// Leave out messages for which this condition is not true. Messages of a type that is not known yet are left out, too.
    pub condition: Option<String>,
    /// Measures the periods between messages.
    pub clock: Arc<dyn Clock>,
}

/// Why a listener ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A transport has failed for good.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The condition does not fit the type of a topic.
    #[error(transparent)]
    Condition(#[from] ExpressionError),
}

/// Statistics of one topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicReading {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
    /// Publishers now.
    pub publishers: usize,
    /// Messages so far.
    pub messages: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Messages that are missing between those of a publisher.
    pub lost: u64,
    /// Messages that were kept for too long and dropped.
    pub not_kept: u64,
    /// Messages that the condition could not be applied to, because their type is not known.
    pub untested: u64,
    /// Seconds between two messages.
    pub periods: Spread,
    /// Payload bytes.
    pub sizes: Spread,
    /// Seconds from the stamp in the message's header to its arrival, for types with a header.
    pub delays: Option<Spread>,
}

/// One topic that is listened to.
struct Topic {
    type_name: String,
    publishers: BTreeMap<Gid, (usize, EndpointInfo)>,
    heard: Arc<Heard>,
    plan: Option<Arc<TypePlan>>,
    subscriptions: Vec<(usize, QosProfile, Box<dyn Subscription>)>,
}

/// Listens to topics. Only the transports receive by themselves: call [`Listener::step`] several times a second.
pub struct Listener {
    options: ListenOptions,
    transports: Vec<Box<dyn Transport>>,
    definitions: Definitions,
    topics: BTreeMap<String, Topic>,
    next_graph: Duration,
}

impl Listener {
    /// Listens through these transports.
    pub fn new(options: ListenOptions, transports: Vec<Box<dyn Transport>>) -> Self {
        let definitions = Definitions::new(options.ament_prefixes.clone(), |name| {
            Bundle::embedded().get(name)
        });
        Self {
            options,
            transports,
            definitions,
            topics: BTreeMap::new(),
            next_graph: Duration::ZERO,
        }
    }

    /// Follows the graph and subscribes to the topics that it shows. `now` is monotonic.
    ///
    /// # Errors
    /// A transport that has failed for good; a condition that does not fit the type of a topic.
    pub fn step(&mut self, now: Duration) -> Result<(), ListenError> {
        if now >= self.next_graph || self.transports.iter().any(|transport| transport.has_graph_news()) {
            self.next_graph = now + GRAPH_INTERVAL;
            self.poll_graph()?;
            self.definitions.ask(&mut self.transports, now);
            self.find_plans()?;
            self.subscribe();
        }
        for topic in self.topics.values_mut() {
            for (_, _, subscription) in &mut topic.subscriptions {
                subscription.pump();
            }
        }
        Ok(())
    }

    fn poll_graph(&mut self) -> Result<(), TransportError> {
        let mut events = Vec::new();
        for (number, transport) in self.transports.iter_mut().enumerate() {
            transport.poll_graph(&mut events)?;
            for event in events.drain(..) {
                match event {
                    GraphEvent::Publisher(endpoint)
                        if self.options.filter.takes(&endpoint.topic, &endpoint.type_name) =>
                    {
                        note_publisher(&mut self.topics, &self.options, number, endpoint);
                    }
                    GraphEvent::PublisherGone(gid)
                    | GraphEvent::PublisherLeft { gid, .. }
                    | GraphEvent::PublisherSilent { gid, .. } => {
                        for topic in self.topics.values_mut() {
                            topic.publishers.remove(&gid);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn find_plans(&mut self) -> Result<(), ListenError> {
        for topic in self.topics.values_mut().filter(|topic| topic.plan.is_none()) {
            let offers = || topic.publishers.values().map(|(_, endpoint)| endpoint);
            let hash = offers()
                .find_map(|endpoint| endpoint.type_hash.clone())
                .unwrap_or_default();
            let nodes: BTreeSet<NodeName> = offers().flat_map(nodes_of).cloned().collect();
            let nodes: Vec<NodeName> = nodes.into_iter().collect();
            let found = self.definitions.find(&topic.type_name, &hash, &nodes);
            topic.plan = found.and_then(|definition| plan_of(&definition)).map(Arc::new);
            if let Some(plan) = &topic.plan {
                topic.heard.set_stamped(begins_with_header(plan));
                if let Some(condition) = &self.options.condition {
                    topic
                        .heard
                        .set_condition(Predicate::compile(Arc::clone(plan), condition)?);
                }
            }
        }
        Ok(())
    }

    fn subscribe(&mut self) {
        for (name, topic) in &mut self.topics {
            for (number, transport) in self.transports.iter_mut().enumerate() {
                let here = topic.publishers.values().filter(|(of, _)| *of == number);
                let Some(qos) = common_request(here.map(|(_, endpoint)| &endpoint.qos)) else {
                    continue;
                };
                if topic
                    .subscriptions
                    .iter()
                    .any(|(of, known, _)| (*of, *known) == (number, qos))
                {
                    continue;
                }
                let request = SubscribeRequest {
                    topic: name.clone(),
                    type_name: topic.type_name.clone(),
                    qos,
                };
                let sink = Arc::clone(&topic.heard);
                match transport.subscribe(&request, sink) {
                    Ok(subscription) => {
                        // One that is weaker or stronger than needed now would bring messages twice.
                        topic.subscriptions.retain(|(of, _, _)| *of != number);
                        topic.subscriptions.push((number, qos, subscription));
                    }
                    Err(error) => tracing::debug!("{error}"),
                }
            }
        }
    }

    /// Statistics of each topic so far, by name.
    pub fn topics(&self) -> Vec<TopicReading> {
        let reading = |(name, topic): (&String, &Topic)| TopicReading {
            name: name.clone(),
            type_name: topic.type_name.clone(),
            publishers: topic.publishers.len(),
            ..topic.heard.reading()
        };
        self.topics.iter().map(reading).collect()
    }

    /// How the messages of a topic are decoded, once that is known.
    pub fn plan(&self, topic: &str) -> Option<Arc<TypePlan>> {
        self.topics.get(topic)?.plan.clone()
    }

    /// The messages that have come since the last call, by topic and in their order.
    pub fn take_messages(&mut self) -> Vec<(String, Vec<HeardMessage>)> {
        let taken = self
            .topics
            .iter()
            .map(|(name, topic)| (name.clone(), topic.heard.take()));
        taken.filter(|(_, messages)| !messages.is_empty()).collect()
    }
}

fn note_publisher(
    topics: &mut BTreeMap<String, Topic>,
    options: &ListenOptions,
    number: usize,
    endpoint: EndpointInfo,
) {
    let topic = topics.entry(endpoint.topic.clone()).or_insert_with(|| Topic {
        type_name: endpoint.type_name.clone(),
        publishers: BTreeMap::new(),
        heard: Arc::new(Heard::new(options)),
        plan: None,
        subscriptions: Vec::new(),
    });
    if topic.type_name == endpoint.type_name {
        topic.publishers.insert(endpoint.gid, (number, endpoint));
    }
}

/// Nodes that may know a publisher's type.
fn nodes_of(publisher: &EndpointInfo) -> &[NodeName] {
    publisher
        .node
        .as_ref()
        .map_or(publisher.neighbours.as_slice(), std::slice::from_ref)
}

fn plan_of(definition: &MessageDefinition) -> Option<TypePlan> {
    let bundle = Bundle::embedded();
    let definition = Definition::from_stored(definition, |name| bundle.get(name)).ok()?;
    TypePlan::compile(&definition).ok()
}

/// Whether a type's first field is a header, whose first field is a stamp.
fn begins_with_header(plan: &TypePlan) -> bool {
    let is_first = plan.root().field("header").is_some_and(|(index, _)| index == 0);
    is_first
        && plan
            .part("header")
            .is_some_and(|part| part.type_name() == "std_msgs/msg/Header")
}

#[cfg(test)]
mod tests;
