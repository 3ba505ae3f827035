//! An open service and its publishers, for reports to the recorder.

use super::{
    ffi::{self, OpenService, Service},
    names::{self, this_host},
    service::ServiceFacts,
    subscription::{Receiver, gid},
};
use crate::{EndpointInfo, GraphEvent};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::topic::NodeName;
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

/// Names of nodes that were looked up, by id; includes nodes without a name.
#[derive(Default)]
pub(super) struct NodeNames(BTreeMap<u128, Option<NodeName>>);

impl NodeNames {
    fn of(&mut self, id: &UniqueNodeId, config: &Config) -> Option<NodeName> {
        if !self.0.contains_key(&id.value()) {
            // Ids of nodes that are gone are never queried again.
            self.0.clear();
            let note = |state: NodeState<Service>| {
                if let NodeState::Alive(node) = state {
                    let details = node.details().as_ref();
                    let name = details.and_then(|details| names::node_name(&details.name().to_string()));
                    self.0.insert(node.id().value(), name);
                }
                CallbackProgression::Continue
            };
            if let Err(error) = Node::<Service>::list(config, note) {
                tracing::debug!("iceoryx2 does not list its nodes: {error:?}");
            }
            self.0.entry(id.value()).or_default();
        }
        self.0.get(&id.value()).cloned().flatten()
    }
}

/// A service that exists.
pub(super) struct KnownService {
    pub facts: ServiceFacts,
    pub topic: String,
    open: OpenService,
    publishers: BTreeSet<u128>,
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
            publishers: BTreeSet::new(),
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

    /// Appends which publishers appeared and left.
    pub fn poll(&mut self, node: &Node<Service>, names: &mut NodeNames, events: &mut Vec<GraphEvent>) {
        let mut here = BTreeSet::new();
        let mut found = Vec::new();
        self.open.dynamic_config().list_publishers(|details| {
            if details.node_id != *node.id() {
                here.insert(details.publisher_id.value());
                if !self.publishers.contains(&details.publisher_id.value()) {
                    found.push((details.publisher_id.value(), details.node_id));
                }
            }
            CallbackProgression::Continue
        });
        for (id, node_id) in found {
            events.push(GraphEvent::Publisher(EndpointInfo {
                gid: gid(id),
                topic: self.topic.clone(),
                type_name: self.facts.type_name().to_owned(),
                type_hash: self.facts.type_hash().map(str::to_owned),
                qos: self.facts.qos(),
                node: names.of(&node_id, node.config()),
                neighbours: Vec::new(),
                host: this_host().map(str::to_owned),
                created: None,
                serialization_format: self.facts.serialization_format(),
                details: self.facts.to_details(),
            }));
        }
        let gone = self.publishers.difference(&here);
        events.extend(gone.map(|id| GraphEvent::PublisherGone(gid(*id))));
        self.publishers = here;
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
    pub fn end(&self) -> impl Iterator<Item = GraphEvent> {
        self.publishers
            .iter()
            .map(|id| GraphEvent::PublisherGone(gid(*id)))
    }
}
