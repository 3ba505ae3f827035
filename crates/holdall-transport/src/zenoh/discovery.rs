//! The graph from liveliness tokens: zenoh's threads note tokens that appear and leave, the recorder
//! polls the changes.

use super::{
    links::{Links, Shown},
    token::{EntityKind, Token, TokenTopic, gid_of},
};
use crate::{EndpointInfo, GraphEvent, ServerInfo};
use holdall_io::mutex::lock;
use holdall_model::{
    qos::Durability,
    topic::{Gid, NodeName},
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Malformed tokens that are logged, one line each; a larger number means more than a few bad tokens.
const REFUSED_TOLD_MAX: usize = 32;

/// How long a session that is reached through a router must have other tokens after a publisher's, so that it has withdrawn that one itself: a
/// router withdraws all that a session has left, at once.
const OUTLIVES_MIN: Duration = Duration::from_secs(1);

/// A publisher or subscription that exists.
struct Endpoint {
    kind: EntityKind,
    session: Arc<str>,
    info: EndpointInfo,
}

/// A publisher that keeps messages for late subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LatchedPublisher {
    /// Full ROS topic name.
    pub topic: String,
    /// ROS type.
    pub type_name: String,
    /// The session that it belongs to.
    pub session: Arc<str>,
}

/// A service that exists.
struct Server {
    name: String,
    type_name: String,
    type_hash: Option<String>,
}

/// How many publishers and subscriptions a topic has.
#[derive(Clone, Copy, Default)]
struct Counts {
    publishers: usize,
    subscriptions: usize,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<Gid, Endpoint>,
    servers: HashMap<Gid, Server>,
    counts: HashMap<(String, String), Counts>,
    /// Entities that have appeared or left since the last poll.
    changed: HashSet<Gid>,
    /// Servers that have appeared or left since the last poll.
    changed_servers: HashSet<Gid>,
    /// Servers that have been reported to the recorder.
    reported_servers: HashSet<Gid>,
    /// Entities that have been reported to the recorder.
    reported: HashMap<Gid, EntityKind>,
    refused: HashSet<Gid>,
    links: Links,
    /// Entities that left since the last poll because the links to their session broke.
    lost: HashSet<Gid>,
    /// The tokens that each session has, of any kind.
    tokens_of: HashMap<String, HashSet<Gid>>,
    /// Publishers that left and are not reported yet, with their sessions, since a poll at a monotonic time: no link shows why.
    unexplained: HashMap<Gid, (Arc<str>, Option<Duration>)>,
}

/// Declarations of other sessions; shared by all parts of a session.
pub(super) struct Graph {
    /// This session, whose tokens are left out.
    own_session: String,
    state: Mutex<State>,
}

impl Graph {
    /// A graph without participants.
    pub(super) fn new(own_session: &str) -> Self {
        Self {
            own_session: own_session.to_owned(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Notes a token that appeared. Called on zenoh's threads.
    pub(super) fn appeared(&self, key: &str) {
        let gid = gid_of(key);
        let token = match Token::decode(key) {
            Ok(token) => token,
            Err(error) => {
                let mut state = self.lock();
                if state.refused.len() < REFUSED_TOLD_MAX && state.refused.insert(gid) {
                    tracing::warn!("zenoh: ignoring {key:?}, which is not a token of rmw_zenoh: {error}");
                }
                return;
            }
        };
        if token.session == self.own_session {
            return;
        }
        let mut state = self.lock();
        let of_session = state.tokens_of.entry(token.session.clone()).or_default();
        of_session.insert(gid);
        let Token {
            session,
            kind,
            node,
            topic: Some(topic),
            ..
        } = token
        else {
            return;
        };
        match kind {
            EntityKind::Publisher | EntityKind::Subscription => {
                state.add(gid, kind, session.into(), endpoint_info(gid, node, topic));
            }
            EntityKind::Server => {
                let TokenTopic {
                    name,
                    type_name,
                    type_hash,
                    ..
                } = topic;
                let server = Server {
                    name,
                    type_name,
                    type_hash,
                };
                state.servers.insert(gid, server);
                state.changed_servers.insert(gid);
            }
            EntityKind::Client | EntityKind::Node => {}
        }
    }

    /// Applies changes of links. Called on zenoh's threads.
    pub(super) fn follow_links(&self, apply: impl FnOnce(&mut Links)) {
        apply(&mut self.lock().links);
    }

    /// Notes a token that left. Called on zenoh's threads.
    pub(super) fn vanished(&self, key: &str) {
        let gid = gid_of(key);
        let session = Token::decode(key).ok().map(|token| token.session);
        let mut state = self.lock();
        if let Some(session) = session
            && let Some(tokens) = state.tokens_of.get_mut(&session)
        {
            tokens.remove(&gid);
            if tokens.is_empty() {
                state.tokens_of.remove(&session);
            }
        }
        if state.servers.remove(&gid).is_some() {
            state.changed_servers.insert(gid);
        }
        state.remove(gid);
    }

    /// Appends changes since the last call, `now` in monotonic time; returns the publishers that appeared and keep messages
    /// for late subscriptions.
    pub(super) fn poll(&self, now: Duration, events: &mut Vec<GraphEvent>) -> Vec<LatchedPublisher> {
        let mut state = self.lock();
        state.explain(now);
        state.poll_servers(events);
        let State {
            endpoints,
            changed,
            reported,
            lost,
            ..
        } = &mut *state;
        let mut latched = Vec::new();
        for gid in changed.drain() {
            match (endpoints.get(&gid), reported.get(&gid)) {
                (Some(endpoint), None) => {
                    reported.insert(gid, endpoint.kind);
                    events.push(endpoint.event());
                    latched.extend(endpoint.latched());
                }
                (None, Some(kind)) => {
                    events.push(match kind {
                        EntityKind::Subscription => GraphEvent::SubscriptionGone(gid),
                        _ if lost.contains(&gid) => GraphEvent::PublisherSilent { gid, since: None },
                        _ => GraphEvent::PublisherGone(gid),
                    });
                    reported.remove(&gid);
                }
                // Left and returned: the token is the same as before, but messages that were sent in between
                // may be in the cache.
                (Some(endpoint), Some(_)) => latched.extend(endpoint.latched()),
                (None, None) => {}
            }
        }
        lost.clear();
        latched
    }

    /// Publishers of a topic that exist now.
    pub(super) fn publishers(&self, topic: &str, type_name: &str) -> usize {
        self.counts(topic, type_name).publishers
    }

    /// Subscriptions of a topic that exist now.
    pub(super) fn subscriptions(&self, topic: &str, type_name: &str) -> usize {
        self.counts(topic, type_name).subscriptions
    }

    fn counts(&self, topic: &str, type_name: &str) -> Counts {
        let key = (topic.to_owned(), type_name.to_owned());
        self.lock().counts.get(&key).copied().unwrap_or_default()
    }

    /// The hash that some endpoint of a topic announces.
    pub(super) fn hash_of(&self, topic: &str, type_name: &str) -> Option<String> {
        let state = self.lock();
        let mut on_topic = state
            .endpoints
            .values()
            .filter(|endpoint| endpoint.info.topic == topic && endpoint.info.type_name == type_name);
        on_topic.find_map(|endpoint| endpoint.info.type_hash.clone())
    }

    /// The session that a publisher belongs to.
    pub(super) fn session_of(&self, publisher: Gid) -> Option<Arc<str>> {
        let state = self.lock();
        state
            .endpoints
            .get(&publisher)
            .map(|endpoint| Arc::clone(&endpoint.session))
    }

    /// Type and hash of a service that exists.
    pub(super) fn service(&self, name: &str) -> Option<(String, Option<String>)> {
        let state = self.lock();
        let server = state.servers.values().find(|server| server.name == name)?;
        Some((server.type_name.clone(), server.type_hash.clone()))
    }
}

impl State {
    /// Decides how publishers left that no link explains: a session which has other tokens later has withdrawn them. One that has none left
    /// may have ended properly or not.
    fn explain(&mut self, now: Duration) {
        let Self {
            unexplained,
            tokens_of,
            changed,
            lost,
            ..
        } = self;
        unexplained.retain(|gid, (session, since)| {
            let outlives = tokens_of.contains_key(&**session);
            let since = *since.get_or_insert(now);
            if outlives && now < since + OUTLIVES_MIN {
                return true;
            }
            if !outlives {
                lost.insert(*gid);
            }
            changed.insert(*gid);
            false
        });
    }

    fn poll_servers(&mut self, events: &mut Vec<GraphEvent>) {
        for gid in std::mem::take(&mut self.changed_servers) {
            match self.servers.get(&gid) {
                Some(server) if self.reported_servers.insert(gid) => {
                    events.push(GraphEvent::Server(ServerInfo {
                        gid,
                        service: server.name.clone(),
                        type_name: server.type_name.clone(),
                    }));
                }
                None if self.reported_servers.remove(&gid) => events.push(GraphEvent::ServerGone(gid)),
                _ => {}
            }
        }
    }

    fn add(&mut self, gid: Gid, kind: EntityKind, session: Arc<str>, info: EndpointInfo) {
        let key = (info.topic.clone(), info.type_name.clone());
        let endpoint = Endpoint { kind, session, info };
        self.lost.remove(&gid);
        self.unexplained.remove(&gid);
        if self.endpoints.insert(gid, endpoint).is_none() {
            let counts = self.counts.entry(key).or_default();
            match kind {
                EntityKind::Subscription => counts.subscriptions += 1,
                _ => counts.publishers += 1,
            }
        }
        self.changed.insert(gid);
    }

    fn remove(&mut self, gid: Gid) {
        let Some(endpoint) = self.endpoints.remove(&gid) else {
            return;
        };
        let shown = self.links.shown(&endpoint.session);
        let key = (endpoint.info.topic, endpoint.info.type_name);
        if let Some(counts) = self.counts.get_mut(&key) {
            match endpoint.kind {
                EntityKind::Subscription => counts.subscriptions -= 1,
                _ => counts.publishers -= 1,
            }
            if counts.publishers == 0 && counts.subscriptions == 0 {
                self.counts.remove(&key);
            }
        }
        // An endpoint that appeared and left between two polls is not reported, so that such tokens do not
        // fill memory.
        self.changed.remove(&gid);
        match (self.reported.get(&gid), shown) {
            (Some(EntityKind::Publisher), Shown::Nothing) => {
                self.unexplained.insert(gid, (endpoint.session, None));
            }
            (Some(_), shown) => {
                if shown == Shown::Lost {
                    self.lost.insert(gid);
                }
                self.changed.insert(gid);
            }
            (None, _) => {}
        }
    }
}

impl Endpoint {
    fn event(&self) -> GraphEvent {
        match self.kind {
            EntityKind::Subscription => GraphEvent::Subscription(self.info.clone()),
            _ => GraphEvent::Publisher(self.info.clone()),
        }
    }

    fn latched(&self) -> Option<LatchedPublisher> {
        let keeps =
            self.kind == EntityKind::Publisher && self.info.qos.durability == Durability::TransientLocal;
        keeps.then(|| LatchedPublisher {
            topic: self.info.topic.clone(),
            type_name: self.info.type_name.clone(),
            session: Arc::clone(&self.session),
        })
    }
}

fn endpoint_info(gid: Gid, node: NodeName, topic: TokenTopic) -> EndpointInfo {
    EndpointInfo {
        gid,
        topic: topic.name,
        type_name: topic.type_name,
        type_hash: topic.type_hash,
        qos: topic.qos,
        node: Some(node),
        ..EndpointInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QOS: &str = "::,10:,:,:,,";
    const LATCHED: &str = ":1:,1:,:,:,,";

    fn token(session: &str, entity: u32, kind: &str, qos: &str) -> String {
        format!(
            "@ros2_lv/0/{session}/0/{entity}/{kind}/%/%/talker/%a/std_msgs::msg::dds_::String_/RIHS01_x/{qos}"
        )
    }

    fn poll(graph: &Graph) -> (Vec<GraphEvent>, Vec<LatchedPublisher>) {
        let mut events = Vec::new();
        let latched = graph.poll(Duration::ZERO, &mut events);
        (events, latched)
    }

    #[test]
    fn endpoints_come_and_go_and_are_counted() {
        let graph = Graph::new("me");
        let publisher = token("them", 1, "MP", QOS);
        graph.follow_links(|links| links.made("them", ("here".to_owned(), "there".to_owned())));
        graph.appeared(&publisher);
        graph.appeared(&token("them", 2, "MS", QOS));
        graph.appeared(&token("them", 3, "NN", QOS));
        let (events, latched) = poll(&graph);
        assert_eq!((events.len(), latched.len()), (2, 0));
        let type_name = "std_msgs/msg/String";
        assert_eq!(
            (
                graph.publishers("/a", type_name),
                graph.subscriptions("/a", type_name)
            ),
            (1, 1)
        );
        assert_eq!(graph.hash_of("/a", type_name).as_deref(), Some("RIHS01_x"));
        assert_eq!(graph.session_of(gid_of(&publisher)).as_deref(), Some("them"));
        graph.vanished(&publisher);
        assert_eq!(poll(&graph).0, [GraphEvent::PublisherGone(gid_of(&publisher))]);
        assert_eq!(graph.publishers("/a", type_name), 0);
        assert!(poll(&graph).0.is_empty());
    }

    #[test]
    fn what_leaves_after_its_last_link_broke_said_no_farewell() {
        let graph = Graph::new("me");
        let (killed, ended) = (token("killed", 1, "MP", QOS), token("ended", 1, "MP", QOS));
        let ends = ("here".to_owned(), "there".to_owned());
        for (session, key) in [("killed", &killed), ("ended", &ended)] {
            graph.follow_links(|links| links.made(session, ends.clone()));
            graph.appeared(key);
        }
        poll(&graph);
        graph.vanished(&ended);
        graph.follow_links(|links| links.closed("ended"));
        assert_eq!(poll(&graph).0, [GraphEvent::PublisherGone(gid_of(&ended))]);
        let leaves = || {
            graph.follow_links(|links| links.broke("killed", &ends));
            graph.vanished(&killed);
            graph.follow_links(|links| links.closed("killed"));
        };
        leaves();
        let silent = GraphEvent::PublisherSilent {
            gid: gid_of(&killed),
            since: None,
        };
        assert_eq!(poll(&graph).0, [silent]);
        // A publisher that came back announces its end.
        graph.follow_links(|links| links.made("killed", ends.clone()));
        graph.appeared(&killed);
        poll(&graph);
        graph.vanished(&killed);
        assert_eq!(poll(&graph).0, [GraphEvent::PublisherGone(gid_of(&killed))]);
    }

    #[test]
    fn behind_a_router_only_a_session_that_lives_on_has_withdrawn_a_publisher() {
        let graph = Graph::new("me");
        let node = "@ros2_lv/0/them/0/0/NN/%/%/talker";
        let publishers = [1, 2].map(|number| token("them", number, "MP", QOS));
        let [one, other] = [0, 1].map(|number: usize| gid_of(&publishers[number]));
        graph.follow_links(|links| links.made("router", ("here".to_owned(), "there".to_owned())));
        graph.appeared(node);
        publishers.iter().for_each(|key| graph.appeared(key));
        poll(&graph);
        let at = |seconds: f64| {
            let mut events = Vec::new();
            graph.poll(Duration::from_secs_f64(seconds), &mut events);
            events
        };
        graph.vanished(&publishers[0]);
        assert_eq!(at(5.0), []);
        assert_eq!(at(5.9), []);
        assert_eq!(at(6.0), [GraphEvent::PublisherGone(one)]);
        graph.vanished(&publishers[1]);
        graph.vanished(node);
        let silent = GraphEvent::PublisherSilent {
            gid: other,
            since: None,
        };
        assert_eq!(at(6.1), [silent]);
        assert_eq!(at(9.0), []);
    }

    #[test]
    fn our_own_are_not_shown() {
        let graph = Graph::new("me");
        graph.appeared(&token("me", 1, "MP", QOS));
        assert!(poll(&graph).0.is_empty());
    }

    #[test]
    fn what_came_and_went_between_two_polls_is_no_news() {
        let graph = Graph::new("me");
        let publisher = token("them", 1, "MP", LATCHED);
        graph.appeared(&publisher);
        graph.vanished(&publisher);
        assert_eq!(poll(&graph), (Vec::new(), Vec::new()));
        graph.appeared(&publisher);
        assert_eq!((poll(&graph).0.len(), poll(&graph).1.len()), (1, 0));
        // A router left and returned: the graph is unchanged, but a cache may hold missed messages.
        graph.vanished(&publisher);
        graph.appeared(&publisher);
        let (events, latched) = poll(&graph);
        assert_eq!((events.len(), latched.len()), (0, 1));
        assert_eq!(&*latched[0].session, "them");
    }

    #[test]
    fn malformed_tokens_are_left_out() {
        let graph = Graph::new("me");
        for number in 0..100 {
            graph.appeared(&format!("@ros2_lv/0/them/0/{number}/MP"));
        }
        assert_eq!(graph.lock().refused.len(), REFUSED_TOLD_MAX);
        assert!(poll(&graph).0.is_empty());
        graph.vanished("@ros2_lv/0/them/0/1/MP");
    }

    #[test]
    fn services_are_found_by_name() {
        let graph = Graph::new("me");
        let server = token("them", 4, "SS", QOS);
        graph.appeared(&server);
        assert_eq!(
            graph.service("/a"),
            Some(("std_msgs/msg/String".to_owned(), Some("RIHS01_x".to_owned())))
        );
        graph.vanished(&server);
        assert_eq!(graph.service("/a"), None);
    }
}
