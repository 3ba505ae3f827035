//! From changes of the graph to decisions about recording: new topics, new publishers, and topics that cannot be recorded, each reported once.

use holdall_model::{
    selection::TopicFilter,
    time::Timestamp,
    topic::{Gid, NodeName},
};
use holdall_transport::{EndpointInfo, GraphEvent};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the recorder must do because of a change in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphDecision {
    /// Record this topic from now on. A [`GraphDecision::Publisher`] follows for each of its publishers.
    Record(TopicPlan),
    /// A recorded topic has this publisher, new or better known than before; its type may be another one than the topic's.
    Publisher(Box<EndpointInfo>),
    /// A publisher of a recorded topic is gone.
    PublisherGone {
        /// Which topic.
        topic: String,
        /// Which publisher.
        gid: Gid,
        /// How.
        departure: Departure,
    },
    /// Subscriptions use a topic without a publisher with different types, so it cannot be subscribed to yet.
    RefusedTypes {
        /// Which topic.
        topic: String,
        /// The types.
        type_names: Vec<String>,
    },
}

/// How a publisher went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It announced its end, after all that it had sent.
    Farewell,
    /// It announced its end, and the last messages it sent may be lost.
    Left {
        /// Since when the network is lost that it sent by.
        cut: Option<Timestamp>,
    },
    /// It fell silent; its last sign of life, if known.
    Silent(Option<Timestamp>),
}

/// A topic to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
    /// The hash that all its publishers announce, or empty when none does or they disagree.
    pub type_hash: String,
    /// Its publishers of this type, in no order.
    pub publishers: Vec<EndpointInfo>,
}

impl TopicPlan {
    /// Nodes that publish it.
    pub fn nodes(&self) -> Vec<NodeName> {
        let nodes: BTreeSet<NodeName> = self.publishers.iter().flat_map(nodes_to_ask).cloned().collect();
        nodes.into_iter().collect()
    }
}

/// Nodes that may know a publisher's type: its own, or those of its participant while that is not known.
pub fn nodes_to_ask(publisher: &EndpointInfo) -> &[NodeName] {
    match &publisher.node {
        Some(node) => std::slice::from_ref(node),
        None => &publisher.neighbours,
    }
}

/// Whether a topic is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Seen,
    Refused,
    Recorded,
}

/// The graph as far as one topic is concerned.
#[derive(Default)]
struct TopicGraph {
    // Boxed: a map has room for eleven, and keeps it when they are gone.
    publishers: BTreeMap<Gid, Box<EndpointInfo>>,
    subscriptions: BTreeMap<Gid, Box<EndpointInfo>>,
    state: State,
    /// The type under which it is recorded.
    type_name: String,
}

impl TopicGraph {
    /// The types that its publishers have; without one, those that its subscriptions have.
    fn type_names(&self) -> BTreeSet<&str> {
        let endpoints = if self.publishers.is_empty() {
            &self.subscriptions
        } else {
            &self.publishers
        };
        let names = endpoints.values().map(|endpoint| endpoint.type_name.as_str());
        names.collect()
    }

    /// Records it as a topic of this type, with its publishers.
    fn record_as(
        &mut self,
        name: &str,
        type_name: &str,
        filter: &TopicFilter,
        decisions: &mut Vec<GraphDecision>,
    ) {
        self.state = State::Recorded;
        type_name.clone_into(&mut self.type_name);
        let publishers = self.publishers.values();
        let of_type: Vec<_> = publishers
            .filter(|it| it.type_name == type_name)
            .map(|it| (**it).clone())
            .collect();
        decisions.push(GraphDecision::Record(TopicPlan {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            type_hash: agreed_hash(&of_type),
            publishers: of_type,
        }));
        let publishers = self.publishers.values().filter(|it| self.takes(filter, it));
        decisions.extend(publishers.cloned().map(GraphDecision::Publisher));
    }

    /// Whether a publisher's messages are requested: those of the type that the topic is recorded as always are.
    fn takes(&self, filter: &TopicFilter, publisher: &EndpointInfo) -> bool {
        let has_subscriptions = !self.subscriptions.is_empty();
        publisher.type_name == self.type_name
            || filter.decide(&publisher.topic, &publisher.type_name, true, has_subscriptions)
    }
}

fn agreed_hash(publishers: &[EndpointInfo]) -> String {
    let mut hashes = publishers.iter().map(|publisher| publisher.type_hash.as_deref());
    let first = hashes.next().flatten();
    match first {
        Some(hash) if hashes.all(|other| other == Some(hash)) => hash.to_owned(),
        _ => String::new(),
    }
}

/// The state of the graph as seen so far.
pub struct Discovery {
    filter: TopicFilter,
    topics: BTreeMap<String, TopicGraph>,
    topic_of: HashMap<Gid, String>,
    /// No more topics are added.
    closed: bool,
}

impl Discovery {
    /// Nothing has been seen.
    pub fn new(filter: TopicFilter) -> Self {
        Self {
            filter,
            topics: BTreeMap::new(),
            topic_of: HashMap::new(),
            closed: false,
        }
    }

    /// Counts a topic as recorded that was not found in the graph (`--static-topics-path`).
    pub fn add_recorded(&mut self, topic: &str, type_name: &str) {
        let topic = self.topics.entry(topic.to_owned()).or_default();
        topic.state = State::Recorded;
        type_name.clone_into(&mut topic.type_name);
    }

    /// Whether anybody publishes the topic now.
    pub fn has_publisher(&self, topic: &str) -> bool {
        let known = self.topics.get(topic);
        known.is_some_and(|known| known.state == State::Recorded || !known.publishers.is_empty())
    }

    /// Whether a publisher exists now.
    pub fn shows(&self, gid: Gid) -> bool {
        let topic = self.topic_of.get(&gid).and_then(|topic| self.topics.get(topic));
        topic.is_some_and(|topic| topic.publishers.contains_key(&gid))
    }

    /// All current publishers and subscriptions.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointInfo> {
        let topics = self.topics.values();
        topics.flat_map(|topic| {
            topic
                .publishers
                .values()
                .chain(topic.subscriptions.values())
                .map(|it| &**it)
        })
    }

    /// Whether the selection takes a topic that has publishers and subscriptions.
    pub fn selects(&self, topic: &str, type_name: &str) -> bool {
        self.filter.decide(topic, type_name, true, true)
    }

    /// Adds no topics from now on; publishers of recorded topics are still followed.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Adds topics again, those that appeared in the meantime at once; returns the resulting decisions.
    pub fn open(&mut self) -> Vec<GraphDecision> {
        let mut decisions = Vec::new();
        if std::mem::take(&mut self.closed) {
            let names: Vec<String> = self.topics.keys().cloned().collect();
            for name in names {
                self.decide(&name, &mut decisions);
            }
        }
        decisions
    }

    /// Records a topic of the graph even if the selection excludes it; `None` if the graph has no topic with this name, or none with this type.
    pub fn request(&mut self, name: &str, type_name: Option<&str>) -> Option<Vec<GraphDecision>> {
        let topic = self.topics.get_mut(name)?;
        if topic.state == State::Recorded {
            let fits = type_name.is_none_or(|wanted| wanted == topic.type_name);
            return fits.then(Vec::new);
        }
        let types = topic.type_names();
        let wanted = match type_name {
            Some(wanted) => types.into_iter().find(|it| *it == wanted),
            None => types.into_iter().next(),
        };
        let wanted = wanted?.to_owned();
        let mut decisions = Vec::new();
        topic.record_as(name, &wanted, &self.filter, &mut decisions);
        Some(decisions)
    }

    /// Applies changes of the graph; returns the resulting decisions, in order.
    pub fn apply(&mut self, events: Vec<GraphEvent>) -> Vec<GraphDecision> {
        let mut decisions = Vec::new();
        let mut changed = BTreeSet::new();
        for event in events {
            match event {
                GraphEvent::Publisher(endpoint) => {
                    changed.insert(endpoint.topic.clone());
                    self.add_publisher(endpoint, &mut decisions);
                }
                GraphEvent::Subscription(endpoint) => {
                    changed.insert(endpoint.topic.clone());
                    self.topic_of.insert(endpoint.gid, endpoint.topic.clone());
                    let topic = self.topics.entry(endpoint.topic.clone()).or_default();
                    topic.subscriptions.insert(endpoint.gid, Box::new(endpoint));
                }
                GraphEvent::PublisherGone(gid) | GraphEvent::SubscriptionGone(gid) => {
                    changed.extend(self.remove(gid, Departure::Farewell, &mut decisions));
                }
                GraphEvent::PublisherLeft { gid, cut } => {
                    changed.extend(self.remove(gid, Departure::Left { cut }, &mut decisions));
                }
                GraphEvent::PublisherSilent { gid, since } => {
                    changed.extend(self.remove(gid, Departure::Silent(since), &mut decisions));
                }
                GraphEvent::Server(_) | GraphEvent::ServerGone(_) => {}
            }
        }
        if !self.closed {
            for name in changed {
                self.decide(&name, &mut decisions);
            }
        }
        decisions
    }

    fn add_publisher(&mut self, endpoint: EndpointInfo, decisions: &mut Vec<GraphDecision>) {
        let endpoint = Box::new(endpoint);
        self.topic_of.insert(endpoint.gid, endpoint.topic.clone());
        let topic = self.topics.entry(endpoint.topic.clone()).or_default();
        if topic.state == State::Recorded && topic.takes(&self.filter, &endpoint) {
            decisions.push(GraphDecision::Publisher(endpoint.clone()));
        }
        topic.publishers.insert(endpoint.gid, endpoint);
    }

    fn remove(
        &mut self,
        gid: Gid,
        departure: Departure,
        decisions: &mut Vec<GraphDecision>,
    ) -> Option<String> {
        let name = self.topic_of.remove(&gid)?;
        let topic = self.topics.get_mut(&name)?;
        topic.subscriptions.remove(&gid);
        if topic.publishers.remove(&gid).is_some() && topic.state == State::Recorded {
            decisions.push(GraphDecision::PublisherGone {
                topic: name.clone(),
                gid,
                departure,
            });
        }
        if topic.publishers.is_empty() {
            // An empty map keeps its memory.
            topic.publishers = BTreeMap::new();
        }
        // A topic without endpoints is forgotten, so that a graph that comes and goes does not fill memory.
        if topic.state == State::Seen && topic.publishers.is_empty() && topic.subscriptions.is_empty() {
            self.topics.remove(&name);
        }
        Some(name)
    }

    fn decide(&mut self, name: &str, decisions: &mut Vec<GraphDecision>) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        if topic.state == State::Recorded {
            return;
        }
        let (has_publishers, has_subscriptions) =
            (!topic.publishers.is_empty(), !topic.subscriptions.is_empty());
        let type_names: Vec<String> = topic.type_names().into_iter().map(str::to_owned).collect();
        let takes = |type_name: &String| {
            self.filter
                .decide(name, type_name, has_publishers, has_subscriptions)
        };
        let taken: Vec<String> = type_names.iter().filter(|it| takes(it)).cloned().collect();
        match taken.as_slice() {
            [] => {}
            // Each publisher is received with its own type.
            [first, ..] if has_publishers || type_names.len() == 1 => {
                topic.record_as(name, first, &self.filter, decisions);
            }
            _ if topic.state == State::Seen => {
                topic.state = State::Refused;
                decisions.push(GraphDecision::RefusedTypes {
                    topic: name.to_owned(),
                    type_names,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{qos::QosProfile, selection::Selection};

    const STRING: &str = "std_msgs/msg/String";

    fn discovery(selection: &Selection) -> Discovery {
        let node = NodeName {
            namespace: "/".to_owned(),
            name: "recorder".to_owned(),
        };
        Discovery::new(selection.compile(&node).unwrap())
    }

    fn all() -> Selection {
        Selection {
            all_topics: true,
            ..Selection::default()
        }
    }

    fn endpoint(number: u8, topic: &str, type_name: &str, hash: Option<&str>) -> EndpointInfo {
        EndpointInfo {
            gid: Gid([number; 16]),
            topic: topic.to_owned(),
            type_name: type_name.to_owned(),
            type_hash: hash.map(str::to_owned),
            qos: QosProfile::default(),
            node: None,
            ..EndpointInfo::default()
        }
    }

    fn publisher(number: u8, topic: &str, type_name: &str, hash: Option<&str>) -> GraphEvent {
        GraphEvent::Publisher(endpoint(number, topic, type_name, hash))
    }

    fn recorded(decisions: &[GraphDecision]) -> Vec<&str> {
        fn plan(decision: &GraphDecision) -> Option<&str> {
            match decision {
                GraphDecision::Record(plan) => Some(plan.name.as_str()),
                _ => None,
            }
        }
        decisions.iter().filter_map(plan).collect()
    }

    #[test]
    fn a_new_topic_is_recorded_once_and_its_publishers_are_reported() {
        let mut discovery = discovery(&all());
        let first = discovery.apply(vec![
            publisher(1, "/a", STRING, None),
            publisher(2, "/a", STRING, None),
        ]);
        assert_eq!(recorded(&first), ["/a"]);
        assert_eq!(first.len(), 3);
        let later = discovery.apply(vec![publisher(3, "/a", STRING, None)]);
        assert!(matches!(&later[..], [GraphDecision::Publisher(endpoint)] if endpoint.gid == Gid([3; 16])));
        let gone = discovery.apply(vec![GraphEvent::PublisherGone(Gid([3; 16]))]);
        assert!(matches!(&gone[..], [GraphDecision::PublisherGone { .. }]));
    }

    const HEADER: &str = "std_msgs/msg/Header";

    /// The number of each publisher to receive.
    fn served(decisions: &[GraphDecision]) -> Vec<u8> {
        fn number(decision: &GraphDecision) -> Option<u8> {
            match decision {
                GraphDecision::Publisher(endpoint) => Some(endpoint.gid.0[0]),
                _ => None,
            }
        }
        decisions.iter().filter_map(number).collect()
    }

    #[test]
    fn publishers_of_every_type_are_received() {
        let mut discovery = discovery(&all());
        let first = discovery.apply(vec![
            publisher(1, "/a", STRING, Some("RIHS01_a")),
            publisher(2, "/a", HEADER, Some("RIHS01_b")),
        ]);
        let Some(GraphDecision::Record(plan)) = first.first() else {
            panic!("{first:?}")
        };
        assert_eq!(
            (plan.type_name.as_str(), plan.type_hash.as_str()),
            (HEADER, "RIHS01_b")
        );
        assert_eq!((recorded(&first).len(), served(&first)), (1, vec![1, 2]));
        let later = discovery.apply(vec![publisher(3, "/a", STRING, None)]);
        assert_eq!((recorded(&later).len(), served(&later)), (0, vec![3]));
    }

    #[test]
    fn publishers_of_a_type_that_is_left_out_are_not_received() {
        let selection = Selection {
            exclude_topic_types: vec![HEADER.to_owned()],
            ..all()
        };
        let mut discovery = discovery(&selection);
        let events = vec![publisher(1, "/a", STRING, None), publisher(2, "/a", HEADER, None)];
        assert_eq!(served(&discovery.apply(events)), [1]);
        assert_eq!(
            served(&discovery.apply(vec![publisher(3, "/a", HEADER, None)])),
            [] as [u8; 0]
        );
    }

    #[test]
    fn subscriptions_of_two_types_are_refused_once_until_a_publisher_shows_its_type() {
        let mut discovery = discovery(&Selection {
            include_unpublished_topics: true,
            ..all()
        });
        let subscription =
            |number, type_name| GraphEvent::Subscription(endpoint(number, "/a", type_name, None));
        let refused = discovery.apply(vec![subscription(8, STRING), subscription(9, HEADER)]);
        assert!(
            matches!(&refused[..], [GraphDecision::RefusedTypes { type_names, .. }] if type_names.len() == 2)
        );
        assert!(discovery.apply(vec![subscription(7, STRING)]).is_empty());
        let found = discovery.apply(vec![publisher(1, "/a", STRING, None)]);
        assert_eq!((recorded(&found), served(&found)), (vec!["/a"], vec![1]));
    }

    #[test]
    fn a_hash_in_dispute_is_no_hash() {
        for (hashes, agreed) in [
            ([Some("RIHS01_a"), Some("RIHS01_a")], "RIHS01_a"),
            ([Some("RIHS01_a"), Some("RIHS01_b")], ""),
            ([Some("RIHS01_a"), None], ""),
            ([None, None], ""),
        ] {
            let mut discovery = discovery(&all());
            let events = vec![
                publisher(1, "/a", STRING, hashes[0]),
                publisher(2, "/a", STRING, hashes[1]),
            ];
            let decisions = discovery.apply(events);
            let Some(GraphDecision::Record(plan)) = decisions.first() else {
                panic!("{decisions:?}")
            };
            assert_eq!(plan.type_hash, agreed, "{hashes:?}");
        }
    }

    #[test]
    fn a_topic_without_publisher_waits_for_one() {
        let mut discovery = discovery(&all());
        let subscription = GraphEvent::Subscription(endpoint(9, "/a", STRING, None));
        assert!(discovery.apply(vec![subscription]).is_empty());
        assert_eq!(
            recorded(&discovery.apply(vec![publisher(1, "/a", STRING, None)])),
            ["/a"]
        );
    }

    #[test]
    fn after_the_one_poll_only_recorded_topics_are_followed() {
        let mut discovery = discovery(&all());
        discovery.apply(vec![publisher(1, "/a", STRING, None)]);
        discovery.close();
        let decisions = discovery.apply(vec![
            publisher(2, "/b", STRING, None),
            publisher(3, "/a", STRING, None),
        ]);
        assert!(matches!(&decisions[..], [GraphDecision::Publisher(endpoint)] if endpoint.topic == "/a"));
    }
}
