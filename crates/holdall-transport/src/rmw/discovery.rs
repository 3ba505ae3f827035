//! The graph: its present state in rmw, compared with the one before.

use super::{farewells::Farewells, ffi::Endpoint, qos::profile_of};
use crate::{EndpointInfo, GraphEvent, Identity, ServerInfo, Unreached};
use holdall_io::mutex::lock;
use holdall_model::{
    topic::{Gid, NodeName},
    unheard::{NotHeard, NotHeardKind},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

/// The node name that implementations show until they know a node.
const UNKNOWN_NODE: &str = "_NODE_NAME_UNKNOWN_";

/// How long the farewell of a publisher that is gone may take: another thread of the implementation brings it.
const FAREWELL_LATE_MAX: Duration = Duration::from_secs(1);

/// Publishers of this process, which are not reported.
#[derive(Clone, Default)]
pub(super) struct OwnPublishers(Arc<Mutex<HashSet<Gid>>>);

impl OwnPublishers {
    pub(super) fn add(&self, gid: Gid) {
        lock(&self.0).insert(gid);
    }

    pub(super) fn remove(&self, gid: Gid) {
        lock(&self.0).remove(&gid);
    }

    fn contains(&self, gid: Gid) -> bool {
        lock(&self.0).contains(&gid)
    }
}

/// Follows the graph.
pub(super) struct Discovery {
    node: NodeName,
    own: OwnPublishers,
    /// Known endpoints by identifier; true for publishers.
    known: HashMap<Gid, (EndpointInfo, bool)>,
    farewells: Arc<Farewells>,
    /// Publishers that are gone without a farewell, and since when (monotonic time).
    leaving: HashMap<Gid, Duration>,
    servers: BTreeMap<(String, String), Gid>,
    /// Publishers of types without a type support.
    not_heard: BTreeMap<NotHeard, Gid>,
}

impl Discovery {
    /// Nothing was seen; `node` is our own.
    pub(super) fn new(node: NodeName, own: OwnPublishers, farewells: Arc<Farewells>) -> Self {
        Self {
            node,
            own,
            known: HashMap::new(),
            farewells,
            leaving: HashMap::new(),
            servers: BTreeMap::new(),
            not_heard: BTreeMap::new(),
        }
    }

    /// Whether it is not yet decided how some publishers left, so that the graph must be compared again.
    pub(super) fn awaits_farewell(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Appends the differences since the last call, `now` in monotonic time. `lacks` returns why a type cannot be received: endpoints of such types are
    /// not reported.
    pub(super) fn compare(
        &mut self,
        endpoints: Vec<Endpoint>,
        mut lacks: impl FnMut(&str) -> Option<String>,
        now: Duration,
        events: &mut Vec<GraphEvent>,
    ) {
        let mut present = HashSet::new();
        for endpoint in endpoints {
            let gid = Gid(endpoint.gid);
            let node = node_of(&endpoint);
            let is_own =
                self.own.contains(gid) || (!endpoint.is_publisher && node.as_ref() == Some(&self.node));
            if is_own {
                continue;
            }
            if let Some(reason) = lacks(&endpoint.type_name) {
                // Another transport of this program may have such a publisher.
                if endpoint.is_publisher
                    && let Some(node) = node.filter(|node| *node != self.node)
                {
                    let about = NotHeard {
                        who: node.to_string(),
                        kind: NotHeardKind::NoTypeSupport,
                        reason,
                        topics: vec![endpoint.topic],
                    };
                    self.not_heard.insert(about, gid);
                }
                continue;
            }
            present.insert(gid);
            let is_publisher = endpoint.is_publisher;
            let info = EndpointInfo {
                gid,
                topic: endpoint.topic,
                type_name: endpoint.type_name,
                type_hash: endpoint.type_hash,
                qos: profile_of(&endpoint.qos),
                node,
                ..EndpointInfo::default()
            };
            if self.known.get(&gid).is_some_and(|(known, _)| *known == info) {
                continue;
            }
            self.known.insert(gid, (info.clone(), is_publisher));
            events.push(if is_publisher {
                GraphEvent::Publisher(info)
            } else {
                GraphEvent::Subscription(info)
            });
        }
        self.part(&present, now, events);
    }

    /// Appends what is gone.
    fn part(&mut self, present: &HashSet<Gid>, now: Duration, events: &mut Vec<GraphEvent>) {
        let Self {
            known,
            leaving,
            farewells,
            ..
        } = self;
        known.retain(|gid, (_, is_publisher)| {
            if present.contains(gid) {
                leaving.remove(gid);
                return true;
            }
            let gone_at = *leaving.entry(*gid).or_insert(now);
            events.push(if !*is_publisher {
                GraphEvent::SubscriptionGone(*gid)
            } else if farewells.take(*gid, gone_at) {
                GraphEvent::PublisherGone(*gid)
            } else if now < gone_at + FAREWELL_LATE_MAX {
                return true;
            } else {
                GraphEvent::PublisherSilent {
                    gid: *gid,
                    since: None,
                }
            });
            leaving.remove(gid);
            false
        });
    }

    /// The same for services. rmw identifies no servers, so a service counts as one.
    pub(super) fn compare_services(&mut self, services: Vec<(String, String)>, events: &mut Vec<GraphEvent>) {
        // Leaves out this program's own services on another transport.
        let own = format!("{}/", self.node);
        let services = services.into_iter().filter(|(name, _)| !name.starts_with(&own));
        let now: BTreeSet<(String, String)> = services.collect();
        self.servers.retain(|service, gid| {
            let is_present = now.contains(service);
            if !is_present {
                events.push(GraphEvent::ServerGone(*gid));
            }
            is_present
        });
        for service in now {
            if self.servers.contains_key(&service) {
                continue;
            }
            let gid = gid_of_service(&service);
            events.push(GraphEvent::Server(ServerInfo {
                gid,
                service: service.0.clone(),
                type_name: service.1.clone(),
            }));
            self.servers.insert(service, gid);
        }
    }

    /// Publishers of types without a type support, all that were seen.
    pub(super) fn not_heard(&self) -> Vec<Unreached> {
        let unreached = |(about, gid): (&NotHeard, &Gid)| Unreached {
            about: about.clone(),
            identity: Identity::Publisher(*gid),
        };
        self.not_heard.iter().map(unreached).collect()
    }
}

fn node_of(endpoint: &Endpoint) -> Option<NodeName> {
    let is_known = !endpoint.node_name.is_empty() && endpoint.node_name != UNKNOWN_NODE;
    is_known.then(|| NodeName {
        namespace: endpoint.node_namespace.clone(),
        name: endpoint.node_name.clone(),
    })
}

fn gid_of_service(service: &(String, String)) -> Gid {
    let mut gid = [0; 16];
    for (part, salt) in gid.chunks_exact_mut(8).zip([1_u8, 2]) {
        let mut hasher = DefaultHasher::new();
        (salt, service).hash(&mut hasher);
        part.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    Gid(gid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rmw::ffi::Qos;
    use holdall_io::clock::SystemClock;

    fn endpoint(number: u8, topic: &str, node: &str, is_publisher: bool) -> Endpoint {
        Endpoint {
            topic: topic.to_owned(),
            type_name: "std_msgs/msg/String".to_owned(),
            node_name: node.to_owned(),
            node_namespace: "/".to_owned(),
            type_hash: None,
            gid: [number; 16],
            is_publisher,
            qos: Qos::default(),
        }
    }

    fn discovery() -> Discovery {
        let farewells = Arc::new(Farewells::new(Arc::new(SystemClock)));
        Discovery::new(NodeName::in_root("recorder"), OwnPublishers::default(), farewells)
    }

    #[test]
    fn only_what_changes_is_reported() {
        let mut discovery = discovery();
        let mut poll = |endpoints: Vec<Endpoint>| {
            let mut events = Vec::new();
            discovery.compare(endpoints, |_| None, Duration::ZERO, &mut events);
            events
        };
        let talker = |node| endpoint(1, "/a", node, true);
        let found = poll(vec![talker(UNKNOWN_NODE), endpoint(2, "/a", "listener", false)]);
        assert!(
            matches!(&found[..], [GraphEvent::Publisher(info), GraphEvent::Subscription(_)] if info.node.is_none())
        );
        let better = poll(vec![talker("talker"), endpoint(2, "/a", "listener", false)]);
        assert!(
            matches!(&better[..], [GraphEvent::Publisher(info)] if info.node == Some(NodeName::in_root("talker")))
        );
        assert_eq!(
            poll(vec![talker("talker")]),
            [GraphEvent::SubscriptionGone(Gid([2; 16]))]
        );
        assert_eq!(poll(vec![talker("talker")]), []);
        // How it went is not decided yet.
        assert_eq!(poll(Vec::new()), []);
        assert_eq!(poll(vec![talker("talker")]), []);
    }

    #[test]
    fn a_publisher_without_a_farewell_is_silent() {
        let mut discovery = discovery();
        let farewells = Arc::clone(&discovery.farewells);
        let mut events = Vec::new();
        let both = vec![
            endpoint(1, "/a", "talker", true),
            endpoint(2, "/b", "talker", true),
        ];
        discovery.compare(both, |_| None, Duration::ZERO, &mut events);
        events.clear();
        let gone_at = Duration::from_secs(5);
        discovery.compare(Vec::new(), |_| None, gone_at, &mut events);
        assert!(events.is_empty() && discovery.awaits_farewell());
        farewells.say(Gid([1; 16]));
        discovery.compare(Vec::new(), |_| None, gone_at, &mut events);
        assert_eq!(
            std::mem::take(&mut events),
            [GraphEvent::PublisherGone(Gid([1; 16]))]
        );
        discovery.compare(Vec::new(), |_| None, gone_at + FAREWELL_LATE_MAX, &mut events);
        let silent = GraphEvent::PublisherSilent {
            gid: Gid([2; 16]),
            since: None,
        };
        assert_eq!(events, [silent]);
        assert!(!discovery.awaits_farewell());
    }

    #[test]
    fn our_own_endpoints_are_not_reported() {
        let mut discovery = discovery();
        discovery.own.add(Gid([3; 16]));
        let mut events = Vec::new();
        let own = vec![
            endpoint(3, "/events", "recorder", true),
            endpoint(4, "/a", "recorder", false),
        ];
        discovery.compare(own, |_| None, Duration::ZERO, &mut events);
        assert_eq!(events, []);
    }

    #[test]
    fn publishers_without_a_type_support_are_named_and_not_reported() {
        let mut discovery = discovery();
        let mut events = Vec::new();
        for _ in 0..2 {
            let endpoints = vec![
                endpoint(1, "/a", "talker", true),
                endpoint(2, "/a", "listener", false),
            ];
            discovery.compare(
                endpoints,
                |_| Some("absent".to_owned()),
                Duration::ZERO,
                &mut events,
            );
        }
        assert_eq!(events, []);
        let [one] = &discovery.not_heard()[..] else {
            panic!("not one")
        };
        assert_eq!(
            (one.about.who.as_str(), one.about.topics.as_slice()),
            ("/talker", &["/a".to_owned()][..])
        );
    }

    #[test]
    fn services_come_and_go() {
        let mut discovery = discovery();
        let mut events = Vec::new();
        let service = ("/add".to_owned(), "a/srv/Add".to_owned());
        for list in [vec![service.clone()], vec![service], Vec::new()] {
            discovery.compare_services(list, &mut events);
        }
        let [GraphEvent::Server(server), GraphEvent::ServerGone(gid)] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((server.service.as_str(), &server.gid), ("/add", gid));
    }
}
