//! The graph from DDS discovery and the nodes' own messages, as events.

use super::node_graph::{GRAPH_TOPIC, GRAPH_TYPE, NodeGraph, ParticipantEntities, graph_qos};
use crate::dds::{
    ffi::{
        drops::Drops,
        entity::{BuiltinChange, BuiltinEndpoint, BuiltinKind, BuiltinReader, DdsError, Participant, Reader},
        globals::elapsed,
        hosts::Hosts,
    },
    reach::lives::{Lives, Parting, time_of},
    settings::qos::{DdsHistory, DdsQos, profile_of, type_hash_in},
    wire::locators::GuidPrefix,
};
use crate::{EndpointInfo, GraphEvent, GraphWake, Identity, ServerInfo, Unreached, graph_news::GraphNews};
use holdall_model::{
    names::dds::{RosName, name_from_dds, type_from_dds},
    time::Timestamp,
    topic::{Gid, NodeName},
    unheard::{NotHeard, NotHeardKind},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    os::fd::RawFd,
    sync::Arc,
    time::Duration,
};

struct Known {
    info: EndpointInfo,
    participant: Gid,
    kind: BuiltinKind,
}

impl Known {
    fn event(&self) -> GraphEvent {
        match self.kind {
            BuiltinKind::Publications => GraphEvent::Publisher(self.info.clone()),
            BuiltinKind::Subscriptions => GraphEvent::Subscription(self.info.clone()),
        }
    }
}

/// Follows the graph.
pub(in crate::dds) struct Discovery {
    /// Endpoints have appeared, changed or left since the last poll.
    news: Arc<GraphNews>,
    publications: BuiltinReader,
    subscriptions: BuiltinReader,
    hosts: Hosts,
    graph_messages: Reader,
    graph: NodeGraph,
    /// Endpoints of other participants on ROS topics.
    known: HashMap<Gid, Known>,
    /// Participant of each writer of graph messages.
    graph_writers: HashMap<Gid, Gid>,
    /// The leases of participants with publishers.
    lives: Lives,
    drops: Drops,
    participant: Arc<Participant>,
    type_services: TypeServices,
    /// Writers of replies: each service has one.
    servers: HashSet<Gid>,
    /// Writers that discovery shows, whatever their topics.
    writers: HashSet<Gid>,
    /// Writers that only their nodes announce, and since when (monotonic time).
    undiscovered: HashMap<Gid, Duration>,
}

/// How long the announcement of a writer may come after its node's: Fast DDS takes up to 2 s, a lossy network longer.
const WRITER_LATE_MAX: Duration = Duration::from_secs(8);

/// Nodes that answer type requests, by the writer of their replies. Discovery shows these writers together
/// with the publishers; the message that assigns endpoints to nodes comes up to 2 s later from Fast DDS
/// (measured on one host).
#[derive(Default)]
struct TypeServices(HashMap<Gid, NodeName>);

/// Most nodes of one participant that are asked for a type.
const NEIGHBOURS_MAX: usize = 16;

impl TypeServices {
    /// Notes a writer when it belongs to such a service; true when it is new.
    fn notice(&mut self, endpoint: &BuiltinEndpoint, kind: BuiltinKind) -> bool {
        if kind != BuiltinKind::Publications {
            return false;
        }
        let RosName::ServiceReply(service) = name_from_dds(&endpoint.topic) else {
            return false;
        };
        let node = service.strip_suffix("/get_type_description").and_then(node_name);
        node.is_some_and(|node| self.0.insert(endpoint.gid, node).is_none())
    }

    /// The nodes of an endpoint's participant.
    fn neighbours(&self, endpoint: Gid) -> Vec<NodeName> {
        let of_participant = self
            .0
            .iter()
            .filter(|(gid, _)| has_same_participant(**gid, endpoint));
        let mut nodes: Vec<NodeName> = of_participant.map(|(_, node)| node.clone()).collect();
        nodes.sort();
        nodes.truncate(NEIGHBOURS_MAX);
        nodes
    }
}

/// Namespace and name of a node's full name.
fn node_name(full_name: &str) -> Option<NodeName> {
    let (namespace, name) = full_name.rsplit_once('/')?;
    (!name.is_empty()).then(|| NodeName {
        namespace: if namespace.is_empty() { "/" } else { namespace }.to_owned(),
        name: name.to_owned(),
    })
}

/// Whether nothing can be lost on the way from another participant.
fn is_near(own: &Participant, other: Gid) -> bool {
    let announcing = own.domain().announcing();
    announcing.is_some_and(|announcing| announcing.is_near(other))
}

/// Whether two endpoints have the same GUID prefix.
fn has_same_participant(one: Gid, other: Gid) -> bool {
    one.0[..12] == other.0[..12]
}

impl Discovery {
    /// Starts to follow the graph.
    pub(in crate::dds) fn new(
        participant: &Arc<Participant>,
        sockets: BTreeSet<RawFd>,
    ) -> Result<Self, DdsError> {
        let qos = DdsQos {
            history: DdsHistory::KeepAll,
            // Each new endpoint announces all our endpoints again: after 3 000 subscriptions 72 MB waited here.
            ignores_own: true,
            ..graph_qos()
        };
        let news = Arc::<GraphNews>::default();
        Ok(Self {
            publications: BuiltinReader::new(participant, BuiltinKind::Publications, &news)?,
            subscriptions: BuiltinReader::new(participant, BuiltinKind::Subscriptions, &news)?,
            news,
            hosts: Hosts::new(participant)?,
            graph_messages: Reader::new(participant, GRAPH_TOPIC, GRAPH_TYPE, &qos, None)?,
            graph: NodeGraph::default(),
            known: HashMap::new(),
            graph_writers: HashMap::new(),
            lives: Lives::default(),
            drops: Drops::new(sockets),
            participant: Arc::clone(participant),
            type_services: TypeServices::default(),
            servers: HashSet::new(),
            writers: HashSet::new(),
            undiscovered: HashMap::new(),
        })
    }

    /// Appends what changed since the last call; never blocks.
    pub(in crate::dds) fn poll(
        &mut self,
        events: &mut Vec<GraphEvent>,
        now: Timestamp,
    ) -> Result<(), DdsError> {
        // Taken before the poll, so that the next poll sees changes that arrive during this one.
        self.news.take();
        let at = (self.follow_leases(), now);
        let has_dropped = self.drops.follow(at.0);
        let Self {
            publications,
            subscriptions,
            hosts,
            graph,
            known,
            graph_writers,
            lives,
            type_services,
            servers,
            writers,
            graph_messages,
            participant,
            ..
        } = self;
        hosts.poll()?;
        for (reader, kind) in [
            (&*publications, BuiltinKind::Publications),
            (&*subscriptions, BuiltinKind::Subscriptions),
        ] {
            reader.take(|change| match change {
                BuiltinChange::Alive(endpoint) if endpoint.own => {}
                BuiltinChange::Alive(endpoint) => {
                    if kind == BuiltinKind::Publications {
                        writers.insert(endpoint.gid);
                    }
                    if endpoint.topic == GRAPH_TOPIC && kind == BuiltinKind::Publications {
                        graph_writers.insert(endpoint.gid, endpoint.participant);
                    }
                    if type_services.notice(&endpoint, kind) {
                        events.extend(with_neighbours(known, type_services, endpoint.gid));
                    }
                    if let Some(server) = server_of(&endpoint, kind)
                        && servers.insert(server.gid)
                    {
                        events.push(GraphEvent::Server(server));
                    }
                    events.extend(appeared(endpoint, kind, graph, hosts, type_services, known));
                }
                BuiltinChange::Gone(gid) => {
                    writers.remove(&gid);
                    type_services.0.remove(&gid);
                    if servers.remove(&gid) {
                        events.push(GraphEvent::ServerGone(gid));
                    }
                    if let Some(participant) = graph_writers.remove(&gid) {
                        graph.forget(participant);
                    }
                    events.extend(known.remove(&gid).map(|known| match kind {
                        BuiltinKind::Publications => {
                            let announcing = participant.domain().announcing();
                            let how = Parting {
                                is_alive: graph_messages.lease_of(known.participant).is_some(),
                                is_sure: !has_dropped && is_near(participant, known.participant),
                                cut: announcing.and_then(|announcing| announcing.lost(known.participant)),
                            };
                            lives.gone(gid, known.participant, how, at)
                        }
                        BuiltinKind::Subscriptions => GraphEvent::SubscriptionGone(gid),
                    }));
                }
            })?;
        }
        self.note_leases(events);
        self.read_graph_messages(events);
        Ok(())
    }

    /// Reads the leases of participants again; returns the elapsed time of the reading.
    fn follow_leases(&mut self) -> i64 {
        let Self {
            lives,
            graph_messages,
            ..
        } = self;
        lives.poll(|participant| graph_messages.lease_of(participant));
        elapsed()
    }

    /// Notes the leases of participants that have new publishers, and forgets those without any.
    fn note_leases(&mut self, events: &[GraphEvent]) {
        for event in events {
            if let GraphEvent::Publisher(info) = event
                && let Some(known) = self.known.get(&info.gid)
                && let Some(lease) = self.graph_messages.lease_of(known.participant)
            {
                self.lives.note(known.participant, lease);
            }
        }
        let is_gone = |event: &GraphEvent| {
            matches!(
                event,
                GraphEvent::PublisherGone(_)
                    | GraphEvent::PublisherLeft { .. }
                    | GraphEvent::PublisherSilent { .. }
            )
        };
        if events.iter().any(is_gone) {
            let there: HashSet<Gid> = self.known.values().map(|known| known.participant).collect();
            self.lives.keep(|participant| there.contains(&participant));
        }
    }

    /// The last sign of life of a publisher's participant; `now` is the current time of day.
    pub(in crate::dds) fn last_heard(&self, publisher: Gid, now: Timestamp) -> Option<Timestamp> {
        let known = self.known.get(&publisher)?;
        let lease = self.graph_messages.lease_of(known.participant);
        let lease = lease.or_else(|| self.lives.of(known.participant))?;
        Some(time_of(lease.heard, elapsed(), now))
    }

    fn read_graph_messages(&mut self, events: &mut Vec<GraphEvent>) {
        let mut batch = Vec::new();
        let mut payload = Vec::new();
        loop {
            self.graph_messages.take(&mut batch);
            if batch.is_empty() {
                return;
            }
            for received in batch.drain(..) {
                // Messages of other participants of this process come without an origin; their endpoints are not reported.
                let Some((writer, _)) = received.sample.origin() else {
                    continue;
                };
                payload.clear();
                received
                    .sample
                    .pieces()
                    .for_each(|piece| payload.extend_from_slice(piece));
                match ParticipantEntities::decode(&payload) {
                    Ok(info) => self.update_nodes(info, events),
                    Err(error) => tracing::debug!("{GRAPH_TOPIC} of {writer} is malformed: {error}"),
                }
            }
        }
    }

    fn update_nodes(&mut self, info: ParticipantEntities, events: &mut Vec<GraphEvent>) {
        for gid in self.graph.update(info) {
            if let Some(known) = self.known.get_mut(&gid) {
                known.info.node = self.graph.node_of(gid).cloned();
                events.push(known.event());
            }
        }
    }

    /// Nodes that announce publishers which discovery does not show, for a while at `now` (monotonic time).
    pub(in crate::dds) fn undiscovered(&mut self, now: Duration) -> Vec<Unreached> {
        let missing = || {
            let publishers = self.graph.publishers();
            publishers.filter(|(gid, _)| !self.writers.contains(gid))
        };
        let since: HashMap<Gid, Duration> = missing()
            .map(|(gid, _)| (gid, self.undiscovered.get(&gid).copied().unwrap_or(now)))
            .collect();
        let is_late = |gid: &Gid| {
            since
                .get(gid)
                .is_some_and(|since| now >= *since + WRITER_LATE_MAX)
        };
        let nodes: BTreeSet<NodeName> = missing()
            .filter(|(gid, _)| is_late(gid))
            .map(|(_, node)| node.clone())
            .collect();
        self.undiscovered = since;
        let found = nodes.into_iter().map(|node| Unreached {
            about: NotHeard {
                who: node.to_string(),
                kind: NotHeardKind::NotDiscovered,
                reason: "it announces publishers (ros_discovery_info) that discovery does not show"
                    .to_owned(),
                topics: Vec::new(),
            },
            identity: Identity::Node(node),
        });
        found.collect()
    }

    /// The participants with an endpoint in discovery, by the first twelve bytes of their GUIDs.
    pub(in crate::dds) fn participants(&self) -> HashSet<GuidPrefix> {
        let prefix = |gid: &Gid| -> GuidPrefix { std::array::from_fn(|index| gid.0[index]) };
        self.writers.iter().chain(self.known.keys()).map(prefix).collect()
    }

    /// Whether our own participant still takes part.
    pub(in crate::dds) fn takes_part(&self) -> bool {
        self.graph_messages.takes_part()
    }

    /// True when there is something to poll for.
    pub(in crate::dds) fn has_news(&self) -> bool {
        self.news.is_pending()
    }

    /// Calls `wake` whenever there is something to poll for.
    pub(in crate::dds) fn wake_on_news(&self, wake: GraphWake) {
        self.news.call(wake);
    }

    /// True while some participant announces the node, or its service for types.
    pub(in crate::dds) fn has_node(&self, node: &NodeName) -> bool {
        self.graph.has_node(node) || self.type_services.0.values().any(|known| known == node)
    }
}

/// Events for the endpoints of a participant that now has a node that can be asked for types.
fn with_neighbours(
    known: &mut HashMap<Gid, Known>,
    type_services: &TypeServices,
    of: Gid,
) -> Vec<GraphEvent> {
    let nameless = known
        .values_mut()
        .filter(|known| known.info.node.is_none() && has_same_participant(known.info.gid, of));
    let changed = nameless.map(|known| {
        known.info.neighbours = type_services.neighbours(of);
        known.event()
    });
    changed.collect()
}

/// The server that an endpoint belongs to: the writer of its replies.
fn server_of(endpoint: &BuiltinEndpoint, kind: BuiltinKind) -> Option<ServerInfo> {
    if kind != BuiltinKind::Publications {
        return None;
    }
    let RosName::ServiceReply(service) = name_from_dds(&endpoint.topic) else {
        return None;
    };
    let type_name = type_from_dds(&endpoint.type_name);
    Some(ServerInfo {
        gid: endpoint.gid,
        service,
        type_name: type_name
            .strip_suffix("_Response")
            .unwrap_or(&type_name)
            .to_owned(),
    })
}

/// Notes an endpoint; returns an event when it is on a ROS topic and new or different.
fn appeared(
    endpoint: BuiltinEndpoint,
    kind: BuiltinKind,
    graph: &NodeGraph,
    hosts: &Hosts,
    type_services: &TypeServices,
    known: &mut HashMap<Gid, Known>,
) -> Option<GraphEvent> {
    let RosName::Topic(topic) = name_from_dds(&endpoint.topic) else {
        return None;
    };
    let before = known.get(&endpoint.gid).map(|known| &known.info);
    let info = EndpointInfo {
        gid: endpoint.gid,
        topic,
        type_name: type_from_dds(&endpoint.type_name),
        type_hash: type_hash_in(&endpoint.qos.user_data),
        qos: profile_of(&endpoint.qos, endpoint.gid),
        node: graph.node_of(endpoint.gid).cloned(),
        neighbours: type_services.neighbours(endpoint.gid),
        host: hosts.of(endpoint.participant).map(str::to_owned),
        // An endpoint with another QoS is announced with another time.
        created: before.map_or_else(|| created(&endpoint), |before| before.created),
        ..EndpointInfo::default()
    };
    if before == Some(&info) {
        return None;
    }
    let participant = endpoint.participant;
    let entry = Known {
        info,
        participant,
        kind,
    };
    let event = entry.event();
    known.insert(endpoint.gid, entry);
    Some(event)
}

/// Vendors (the first two bytes of a GUID) whose participants send the time with their announcements; where
/// it is missing, Cyclone uses the time of arrival. Checked for Fast DDS and Cyclone DDS.
const VENDORS_THAT_TELL_THE_TIME: [[u8; 2]; 2] = [[0x01, 0x0f], [0x01, 0x10]];

/// When an endpoint was created, where its vendor sends that.
fn created(endpoint: &BuiltinEndpoint) -> Option<Timestamp> {
    let tells = |vendor: &[u8; 2]| endpoint.gid.0.starts_with(vendor);
    let is_told = VENDORS_THAT_TELL_THE_TIME.iter().any(tells) && endpoint.announced_nanos > 0;
    is_told.then(|| Timestamp::from_nanos(endpoint.announced_nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::{
        ffi::entity::Domain,
        graph::announcement::{EndpointKind, NodeAnnouncement},
    };

    #[test]
    fn our_own_announcements_do_not_wait_in_our_memory() {
        let settings = "<CycloneDDS><Domain><General><AllowMulticast>false</AllowMulticast></General></Domain></CycloneDDS>";
        let domain = Domain::new(97, false, false, |_| Ok(settings.to_owned())).unwrap();
        let domain = Arc::new(domain);
        let participant = Arc::new(Participant::new(Arc::clone(&domain), b"", &[]).unwrap());
        let other = Arc::new(Participant::new(domain, b"", &[]).unwrap());
        let discovery = Discovery::new(&participant, BTreeSet::new()).unwrap();
        let waiting = || {
            let mut batch = Vec::new();
            discovery.graph_messages.take(&mut batch);
            batch.len()
        };
        // Within a process, a write delivers the message to its readers.
        for (of, expected) in [(&participant, 0), (&other, 4)] {
            let node = node_name("/recorder").unwrap();
            let announcement = NodeAnnouncement::new(of, node).unwrap();
            for byte in 0..3 {
                announcement.add(EndpointKind::Reader, Gid([byte; 16]));
            }
            assert_eq!(waiting(), expected);
        }
    }
}
