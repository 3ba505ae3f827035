//! Names other nodes that publish the played topics, because a subscription gets the messages of both, and subscriptions that have other
//! definitions of their types.

use super::{playback::Playback, read_ahead::ReadAhead};
use holdall_io::clock::Clock;
use holdall_transport::{GraphEvent, Transport};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Time between two looks at the graph.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Topics that every node publishes.
const OF_EVERY_NODE: [&str; 2] = ["/rosout", "/parameter_events"];

/// Topics that a line names; more are counted.
const NAMED_MAX: usize = 5;

/// The look-out for other publishers.
pub(super) struct Neighbours {
    /// Played topics not known to have another publisher.
    topics: BTreeSet<String>,
    /// Other publishers whose nodes were not known at the last look, by their topics.
    nameless: BTreeMap<String, String>,
    /// Types and hashes of played topics; without those whose subscriptions were found to have others.
    types: BTreeMap<String, Vec<(String, String)>>,
    next: Duration,
}

impl Neighbours {
    /// Looks out for publishers of these topics.
    pub fn new(topics: impl Iterator<Item = String>, types: BTreeMap<String, Vec<(String, String)>>) -> Self {
        let is_of_few = |topic: &String| !OF_EVERY_NODE.contains(&topic.as_str());
        Self {
            topics: topics.filter(is_of_few).collect(),
            nameless: BTreeMap::new(),
            types,
            next: Duration::ZERO,
        }
    }

    /// Looks when it is time, always before the playback has begun, and logs what was found; returns when to look next (monotonic time).
    pub fn look(
        &mut self,
        clock: &dyn Clock,
        transports: &mut [Box<dyn Transport>],
        playback: &mut Playback<ReadAhead>,
    ) -> Duration {
        let now = clock.monotonic();
        if playback.has_begun() && now < self.next {
            return self.next;
        }
        let steps = playback.steps();
        let mut events = Vec::new();
        for transport in transports {
            let seen = events.len();
            if let Err(error) = transport.poll_graph(&mut events) {
                tracing::debug!("the player sees no more of other publishers: {error}");
            }
            steps.note_graph(&events[seen..], transport.as_mut());
        }
        self.next = now + steps.look_interval().unwrap_or(LOOK_INTERVAL);
        for sentence in self.misfits(&events) {
            tracing::warn!("{sentence}");
        }
        if let Some(sentence) = self.note(events) {
            tracing::warn!("{sentence}");
        }
        self.next
    }

    /// A sentence for each topic with a subscription of another type or definition, once.
    fn misfits(&mut self, events: &[GraphEvent]) -> Vec<String> {
        let mut sentences = Vec::new();
        for event in events {
            let GraphEvent::Subscription(endpoint) = event else {
                continue;
            };
            let Some(types) = self.types.get(&endpoint.topic) else {
                continue;
            };
            // Not every transport knows the type.
            let is_its = |name: &String| endpoint.type_name == *name || !endpoint.type_name.contains('/');
            let found = endpoint.type_hash.as_deref().unwrap_or_default();
            let fits = |(name, hash): &(String, String)| {
                is_its(name) && (found.is_empty() || hash.is_empty() || found == hash)
            };
            let of_type = types.iter().find(|(name, _)| is_its(name));
            let Some((type_name, hash)) = of_type.or(types.first()).filter(|_| !types.iter().any(fits))
            else {
                continue;
            };
            let is_other_type = !is_its(type_name);
            let who = endpoint.node.as_ref().or(endpoint.neighbours.first());
            let who = who.map_or_else(|| "a subscription".to_owned(), ToString::to_string);
            let what = match is_other_type {
                true => format!("subscribes to {}, and {type_name} is played", endpoint.type_name),
                false => format!("has another definition of {type_name} than the bag ({found}, not {hash})"),
            };
            sentences.push(format!(
                "{}: {who} {what}: it gets no messages or misreads them; `holdall migrate` makes a bag for it",
                endpoint.topic
            ));
            self.types.remove(&endpoint.topic);
        }
        sentences
    }

    /// A sentence about other publishers that have not been named; each topic is named once.
    fn note(&mut self, events: Vec<GraphEvent>) -> Option<String> {
        let mut found = std::mem::take(&mut self.nameless);
        for event in events {
            let GraphEvent::Publisher(endpoint) = event else {
                continue;
            };
            if !self.topics.contains(&endpoint.topic) {
                continue;
            }
            match endpoint.node.as_ref().or(endpoint.neighbours.first()) {
                Some(node) => drop(found.insert(endpoint.topic, node.to_string())),
                // A node is known a little later than its publisher.
                None if !found.contains_key(&endpoint.topic) => {
                    self.nameless.insert(endpoint.topic, endpoint.gid.to_string());
                }
                None => {}
            }
        }
        self.nameless.retain(|topic, _| !found.contains_key(topic));
        self.topics.retain(|topic| !found.contains_key(topic));
        let named = found.iter().take(NAMED_MAX);
        let named: Vec<String> = named.map(|(topic, node)| format!("{topic} by {node}")).collect();
        let more = match found.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| {
            format!(
                "also published while it is played, so that subscriptions get the messages of both: {}{more}",
                named.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::topic::{Gid, NodeName};
    use holdall_transport::EndpointInfo;

    fn publisher(topic: &str, node: Option<&str>) -> GraphEvent {
        GraphEvent::Publisher(EndpointInfo {
            topic: topic.to_owned(),
            gid: Gid([7; 16]),
            node: node.map(|name| NodeName {
                namespace: "/".to_owned(),
                name: name.to_owned(),
            }),
            ..EndpointInfo::default()
        })
    }

    #[test]
    fn another_publisher_of_what_is_played_is_named_once() {
        let topics = ["/tf", "/clock", "/rosout"].map(str::to_owned);
        let mut neighbours = Neighbours::new(topics.into_iter(), BTreeMap::new());
        let live = || {
            vec![
                publisher("/tf", Some("robot")),
                publisher("/other", Some("robot")),
                publisher("/rosout", Some("robot")),
            ]
        };
        let sentence = neighbours.note(live()).unwrap();
        assert!(sentence.ends_with("of both: /tf by /robot"), "{sentence}");
        assert_eq!(neighbours.note(live()), None);
        assert_eq!(neighbours.note(vec![publisher("/clock", None)]), None);
        let sentence = neighbours.note(Vec::new()).unwrap();
        assert!(sentence.contains("/clock by 0707"), "{sentence}");
    }

    #[test]
    fn a_subscription_with_another_definition_is_named_once() {
        let (types, hash) = (("a/msg/A".to_owned(), "RIHS01_aa".to_owned()), |hash: &str| {
            GraphEvent::Subscription(EndpointInfo {
                topic: "/a".to_owned(),
                type_name: "a/msg/A".to_owned(),
                type_hash: Some(hash.to_owned()),
                node: Some(NodeName::in_root("old")),
                ..EndpointInfo::default()
            })
        });
        let mut neighbours = Neighbours::new([].into_iter(), [("/a".to_owned(), vec![types.clone()])].into());
        assert_eq!(neighbours.misfits(&[hash("RIHS01_aa"), hash("")]), [""; 0]);
        let both = vec![("b/msg/B".to_owned(), "RIHS01_bb".to_owned()), types];
        let mut of_two = Neighbours::new([].into_iter(), [("/a".to_owned(), both)].into());
        assert_eq!(of_two.misfits(&[hash("RIHS01_aa")]), [""; 0]);
        let found = neighbours.misfits(&[hash("RIHS01_bb"), hash("RIHS01_bb")]);
        assert!(
            found.len() == 1 && found[0].starts_with("/a: /old has another definition of a/msg/A"),
            "{found:?}"
        );
    }

    #[test]
    fn of_many_topics_five_are_named() {
        let topic = |number: usize| format!("/t{number}");
        let mut neighbours = Neighbours::new((0..9).map(topic), BTreeMap::new());
        let live = (0..9)
            .map(|number| publisher(&topic(number), Some("n")))
            .collect();
        let sentence = neighbours.note(live).unwrap();
        assert!(sentence.ends_with("/t4 by /n and 4 more"), "{sentence}");
    }
}
