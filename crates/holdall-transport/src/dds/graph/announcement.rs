//! Our own node in the graph: what we announce on `ros_discovery_info`.

use super::node_graph::{GRAPH_TOPIC, GRAPH_TYPE, NodeEntities, ParticipantEntities, graph_qos};
use crate::dds::ffi::entity::{DdsError, Participant, Writer};
use holdall_io::mutex::lock;
use holdall_model::topic::{Gid, NodeName};
use std::sync::{Arc, Mutex};

/// Announces our node and its endpoints to other participants.
pub(in crate::dds) struct NodeAnnouncement {
    writer: Writer,
    entities: Mutex<ParticipantEntities>,
}

/// Which list of our node contains an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum EndpointKind {
    Reader,
    Writer,
}

impl NodeAnnouncement {
    /// Announces a node without endpoints.
    pub(in crate::dds) fn new(participant: &Arc<Participant>, node: NodeName) -> Result<Self, DdsError> {
        let writer = Writer::new(participant, GRAPH_TOPIC, GRAPH_TYPE, &graph_qos())?;
        let nodes = vec![NodeEntities {
            node,
            readers: Vec::new(),
            writers: Vec::new(),
        }];
        let entities = ParticipantEntities {
            participant: participant.gid(),
            nodes,
        };
        writer.write(&entities.encode())?;
        Ok(Self {
            writer,
            entities: Mutex::new(entities),
        })
    }

    /// Adds one of our endpoints.
    pub(in crate::dds) fn add(&self, kind: EndpointKind, gid: Gid) {
        self.change(kind, |gids| gids.push(gid));
    }

    /// Removes one of our endpoints.
    pub(in crate::dds) fn remove(&self, kind: EndpointKind, gid: Gid) {
        self.change(kind, |gids| gids.retain(|other| *other != gid));
    }

    fn change(&self, kind: EndpointKind, change: impl FnOnce(&mut Vec<Gid>)) {
        let mut entities = lock(&self.entities);
        if let Some(node) = entities.nodes.first_mut() {
            change(match kind {
                EndpointKind::Reader => &mut node.readers,
                EndpointKind::Writer => &mut node.writers,
            });
        }
        // Written under the lock, so that the last message contains the last state.
        if let Err(error) = self.writer.write(&entities.encode()) {
            tracing::warn!("cannot announce our node: {error}");
        }
    }
}
