//! An open service and its publishers, for reports to the recorder.

use super::{
    ffi::{self, OpenService, Service},
    names::{self, this_host},
    service::ServiceFacts,
    subscription::{Receiver, gid},
};
use crate::{EndpointInfo, GraphEvent};
use holdall_io::{clock::Clock, mutex::lock, process};
use holdall_model::{time::Timestamp, topic::NodeName};
use iceoryx2::{
    identifiers::UniqueNodeId,
    node::{Node, NodeState, NodeView},
    port::{DegradationAction, DegradationCause, DegradationInfo},
    prelude::{CallbackProgression, Config, ServiceName},
    service::port_factory::PortFactory as _,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

/// Other nodes, by id.
#[derive(Default)]
pub(super) struct Nodes {
    /// Names that were looked up; includes nodes without a name.
    names: BTreeMap<u128, Option<NodeName>>,
    /// Dead nodes of the last listing.
    dead: BTreeSet<u128>,
    /// Whether each process checked in this poll has ended: one process has publishers of many services.
    ended: BTreeMap<u32, bool>,
}

impl Nodes {
    /// Begins a poll: processes are looked at anew.
    pub fn begin_poll(&mut self) {
        self.ended.clear();
    }

    fn has_ended(&mut self, process: u32) -> bool {
        *self
            .ended
            .entry(process)
            .or_insert_with(|| !process::runs(process))
    }

    /// Notes which nodes have died, before their resources are freed.
    pub fn note_dead(&mut self, config: &Config) {
        let mut dead = BTreeSet::new();
        let note = |state: NodeState<Service>| {
            if let NodeState::Dead(node) = state {
                dead.insert(node.id().value());
            }
            CallbackProgression::Continue
        };
        if Node::<Service>::list(config, note).is_ok() {
            self.dead = dead;
        }
    }

    fn name_of(&mut self, id: &UniqueNodeId, config: &Config) -> Option<NodeName> {
        if !self.names.contains_key(&id.value()) {
            // Ids of nodes that are gone are never queried again.
            self.names.clear();
            let note = |state: NodeState<Service>| {
                if let NodeState::Alive(node) = state {
                    let details = node.details().as_ref();
                    let name = details.and_then(|details| names::node_name(&details.name().to_string()));
                    self.names.insert(node.id().value(), name);
                }
                CallbackProgression::Continue
            };
            if let Err(error) = Node::<Service>::list(config, note) {
                tracing::debug!("iceoryx2 does not list its nodes: {error:?}");
            }
            self.names.entry(id.value()).or_default();
        }
        self.names.get(&id.value()).cloned().flatten()
    }
}

/// A publisher of a service.
struct KnownPublisher {
    node: u128,
    /// Its process, if it can be seen.
    process: Option<u32>,
    /// When its process was last seen to run.
    lived: Timestamp,
    /// Its process has ended, and it has not.
    has_died: bool,
}

impl KnownPublisher {
    fn new(node: &UniqueNodeId, now: Timestamp) -> Self {
        let process = node.pid::<Service>().ok();
        let process = process.and_then(|process| u32::try_from(process.value()).ok());
        Self {
            node: node.value(),
            process: process.filter(|process| process::runs(*process)),
            lived: now,
            has_died: false,
        }
    }

    /// The event for its end.
    fn gone(&self, id: u128, nodes: &Nodes) -> GraphEvent {
        if self.has_died || nodes.dead.contains(&self.node) {
            return GraphEvent::PublisherSilent {
                gid: gid(id),
                since: self.process.map(|_| self.lived),
            };
        }
        GraphEvent::PublisherGone(gid(id))
    }
}

/// A service that exists.
pub(super) struct KnownService {
    pub facts: ServiceFacts,
    pub topic: String,
    open: OpenService,
    publishers: BTreeMap<u128, KnownPublisher>,
    /// Polls in a row that found no publisher and no other node.
    pub deserted: u32,
}

/// Logs once for each publisher that its memory cannot be opened, for example because it was removed.
fn log_unopened(
    topic: &str,
) -> impl Fn(DegradationCause, &DegradationInfo) -> DegradationAction + Send + use<> {
    let (topic, logged) = (topic.to_owned(), Mutex::new(BTreeSet::new()));
    move |_, info| {
        let mut logged = lock(&logged);
        if logged.insert(info.sender_port_id) {
            tracing::warn!(
                "{topic}: the shared memory of publisher {} cannot be opened; its messages are not recorded, and their number is unknown",
                gid(info.sender_port_id)
            );
        }
        DegradationAction::Ignore
    }
}

impl KnownService {
    /// Opens a service that was listed.
    pub fn open(node: &Node<Service>, facts: ServiceFacts, topic: String) -> Result<Self, String> {
        let name = ServiceName::new(&facts.name).map_err(|error| format!("{error:?}"))?;
        let (payload, header) = (facts.payload.detail()?, facts.header.detail()?);
        let open = ffi::service_builder(node, &name, &payload, &header)
            .open()
            .map_err(|error| format!("{error:?}"))?;
        Ok(Self {
            facts,
            topic,
            open,
            publishers: BTreeMap::new(),
            deserted: 0,
        })
    }

    pub(crate) fn publisher_count(&self) -> usize {
        self.publishers.len()
    }

    /// Creates a subscriber with the largest buffer that the service allows.
    pub fn receiver(&self, node: &Node<Service>, clock: Arc<dyn Clock>) -> Result<Receiver, String> {
        let subscriber = self
            .open
            .subscriber_builder()
            .set_degradation_handler(log_unopened(&self.topic))
            .create()
            .map_err(|error| format!("{error:?}"))?;
        let name = ServiceName::new(&self.facts.name).map_err(|error| format!("{error:?}"))?;
        // Publishers may notify of new messages through an event service of the same name. We never create
        // it.
        let events = node.service_builder(&name).event().open().ok();
        let listener = events.and_then(|events| events.listener_builder().create().ok());
        Ok(Receiver::new(
            subscriber,
            listener,
            &self.facts,
            &self.topic,
            clock,
        ))
    }

    /// Appends which publishers appeared and left by `now`.
    pub fn poll(
        &mut self,
        node: &Node<Service>,
        nodes: &mut Nodes,
        now: Timestamp,
        events: &mut Vec<GraphEvent>,
    ) {
        // Looked at before the list: a process that ends properly takes its publishers away first.
        let mut has_ended = |it: &KnownPublisher| it.process.is_some_and(|process| nodes.has_ended(process));
        let ended = self.publishers.iter().filter(|(_, it)| has_ended(it));
        let ended: BTreeSet<u128> = ended.map(|(id, _)| *id).collect();
        let mut here = BTreeSet::new();
        let mut found = Vec::new();
        self.open.dynamic_config().list_publishers(|details| {
            if details.node_id != *node.id() {
                here.insert(details.publisher_id.value());
                if !self.publishers.contains_key(&details.publisher_id.value()) {
                    found.push((details.publisher_id.value(), details.node_id));
                }
            }
            CallbackProgression::Continue
        });
        for (id, node_id) in found {
            self.publishers.insert(id, KnownPublisher::new(&node_id, now));
            events.push(GraphEvent::Publisher(EndpointInfo {
                gid: gid(id),
                topic: self.topic.clone(),
                type_name: self.facts.type_name().to_owned(),
                type_hash: self.facts.type_hash().map(str::to_owned),
                qos: self.facts.qos(),
                node: nodes.name_of(&node_id, node.config()),
                neighbours: Vec::new(),
                host: this_host().map(str::to_owned),
                created: None,
                serialization_format: self.facts.serialization_format(),
                details: self.facts.to_details(),
            }));
        }
        self.publishers.retain(|id, publisher| {
            if !here.contains(id) {
                events.push(publisher.gone(*id, nodes));
                return false;
            }
            publisher.has_died |= ended.contains(id);
            if !publisher.has_died {
                publisher.lived = now;
            }
            true
        });
        self.deserted = if self.publishers.is_empty() && !self.has_other_nodes(node) {
            self.deserted.saturating_add(1)
        } else {
            0
        };
    }

    /// Whether any node but `node` has it open.
    fn has_other_nodes(&self, node: &Node<Service>) -> bool {
        let mut others = false;
        let look = |state: NodeState<Service>| {
            others |= matches!(state, NodeState::Alive(_)) && state.node_id() != node.id();
            CallbackProgression::Continue
        };
        // When the list cannot be read, the service is kept.
        self.open.nodes(look).is_err() || others
    }

    /// The events for its end: all its publishers are gone.
    pub fn end(&self, nodes: &Nodes) -> impl Iterator<Item = GraphEvent> {
        let publishers = self.publishers.iter();
        publishers.map(|(id, publisher)| publisher.gone(*id, nodes))
    }
}
