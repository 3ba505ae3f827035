//! From what the graph shows to what is recorded: new topics, new publishers, and topics that cannot be recorded, each reported once.

use holdall_model::{
    selection::TopicFilter,
    topic::{Gid, NodeName},
};
use holdall_transport::{EndpointInfo, GraphEvent};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the graph asks the recorder to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphDecision {
    /// Record this topic from now on. A [`GraphDecision::Publisher`] follows for each of its publishers.
    Record(TopicPlan),
    /// A recorded topic has this publisher, new or better known than before.
    Publisher(Box<EndpointInfo>),
    /// A publisher of a recorded topic is gone.
    PublisherGone {
        /// Which topic.
        topic: String,
        /// Which publisher.
        gid: Gid,
    },
    /// Endpoints use a topic with different types, so it cannot be recorded.
    RefusedTypes {
        /// Which topic.
        topic: String,
        /// The types.
        type_names: Vec<String>,
    },
}

/// A topic to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
    /// The hash that all publishers announce, or empty when none does or they disagree.
    pub type_hash: String,
    /// Its publishers, in no order.
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
    publishers: BTreeMap<Gid, EndpointInfo>,
    subscriptions: BTreeMap<Gid, EndpointInfo>,
    state: State,
}

impl TopicGraph {
    fn type_names(&self) -> BTreeSet<&str> {
        let endpoints = self.publishers.values().chain(self.subscriptions.values());
        endpoints.map(|endpoint| endpoint.type_name.as_str()).collect()
    }

    fn agreed_hash(&self) -> String {
        let mut hashes = self
            .publishers
            .values()
            .map(|publisher| publisher.type_hash.as_deref());
        let first = hashes.next().flatten();
        match first {
            Some(hash) if hashes.all(|other| other == Some(hash)) => hash.to_owned(),
            _ => String::new(),
        }
    }
}

/// What the graph has shown so far.
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
    pub fn add_recorded(&mut self, topic: &str) {
        self.topics.entry(topic.to_owned()).or_default().state = State::Recorded;
    }

    /// Adds no topics from now on; publishers of recorded topics are still followed.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Applies changes of the graph; returns what must be done about them, in order.
    pub fn take_in(&mut self, events: Vec<GraphEvent>) -> Vec<GraphDecision> {
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
                    topic.subscriptions.insert(endpoint.gid, endpoint);
                }
                GraphEvent::PublisherGone(gid) | GraphEvent::SubscriptionGone(gid) => {
                    changed.extend(self.remove(gid, &mut decisions));
                }
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
        self.topic_of.insert(endpoint.gid, endpoint.topic.clone());
        let topic = self.topics.entry(endpoint.topic.clone()).or_default();
        if topic.state == State::Recorded {
            decisions.push(GraphDecision::Publisher(Box::new(endpoint.clone())));
        }
        topic.publishers.insert(endpoint.gid, endpoint);
    }

    fn remove(&mut self, gid: Gid, decisions: &mut Vec<GraphDecision>) -> Option<String> {
        let name = self.topic_of.remove(&gid)?;
        let topic = self.topics.get_mut(&name)?;
        topic.subscriptions.remove(&gid);
        if topic.publishers.remove(&gid).is_some() && topic.state == State::Recorded {
            decisions.push(GraphDecision::PublisherGone {
                topic: name.clone(),
                gid,
            });
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
        if !type_names.iter().any(takes) {
            return;
        }
        if let [type_name] = type_names.as_slice() {
            topic.state = State::Recorded;
            decisions.push(GraphDecision::Record(TopicPlan {
                name: name.to_owned(),
                type_name: type_name.clone(),
                type_hash: topic.agreed_hash(),
                publishers: topic.publishers.values().cloned().collect(),
            }));
            decisions.extend(
                topic
                    .publishers
                    .values()
                    .cloned()
                    .map(Box::new)
                    .map(GraphDecision::Publisher),
            );
        } else if topic.state == State::Seen {
            topic.state = State::Refused;
            decisions.push(GraphDecision::RefusedTypes {
                topic: name.to_owned(),
                type_names,
            });
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
        let first = discovery.take_in(vec![
            publisher(1, "/a", STRING, None),
            publisher(2, "/a", STRING, None),
        ]);
        assert_eq!(recorded(&first), ["/a"]);
        assert_eq!(first.len(), 3);
        let later = discovery.take_in(vec![publisher(3, "/a", STRING, None)]);
        assert!(matches!(&later[..], [GraphDecision::Publisher(endpoint)] if endpoint.gid == Gid([3; 16])));
        let gone = discovery.take_in(vec![GraphEvent::PublisherGone(Gid([3; 16]))]);
        assert!(matches!(&gone[..], [GraphDecision::PublisherGone { .. }]));
    }

    #[test]
    fn a_topic_of_two_types_is_refused_once_and_recorded_when_they_agree() {
        let mut discovery = discovery(&all());
        let subscription = GraphEvent::Subscription(endpoint(9, "/a", "std_msgs/msg/Header", None));
        let refused = discovery.take_in(vec![publisher(1, "/a", STRING, None), subscription]);
        assert!(
            matches!(&refused[..], [GraphDecision::RefusedTypes { type_names, .. }] if type_names.len() == 2)
        );
        assert!(
            discovery
                .take_in(vec![publisher(2, "/a", STRING, None)])
                .is_empty()
        );
        let agreed = discovery.take_in(vec![GraphEvent::SubscriptionGone(Gid([9; 16]))]);
        assert_eq!(recorded(&agreed), ["/a"]);
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
            let decisions = discovery.take_in(events);
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
        assert!(discovery.take_in(vec![subscription]).is_empty());
        assert_eq!(
            recorded(&discovery.take_in(vec![publisher(1, "/a", STRING, None)])),
            ["/a"]
        );
    }

    #[test]
    fn after_the_one_poll_only_recorded_topics_are_followed() {
        let mut discovery = discovery(&all());
        discovery.take_in(vec![publisher(1, "/a", STRING, None)]);
        discovery.close();
        let decisions = discovery.take_in(vec![
            publisher(2, "/b", STRING, None),
            publisher(3, "/a", STRING, None),
        ]);
        assert!(matches!(&decisions[..], [GraphDecision::Publisher(endpoint)] if endpoint.topic == "/a"));
    }
}
