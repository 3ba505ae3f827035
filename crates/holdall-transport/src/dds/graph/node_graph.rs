//! Which endpoint belongs to which node: the `ros_discovery_info` messages of all participants.

use crate::dds::settings::qos::{DdsDurability, DdsHistory, DdsQos};
use holdall_model::{
    cdr::{CdrError, CdrReader, CdrWriter},
    topic::{Gid, NodeName},
};
use std::collections::{BTreeSet, HashMap};

/// DDS topic of the graph messages; without the prefix of ROS topics.
pub(crate) const GRAPH_TOPIC: &str = "ros_discovery_info";
/// Its DDS type.
pub(in crate::dds) const GRAPH_TYPE: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";

/// QoS of the graph topic: the last message of each participant, also for late readers.
pub(in crate::dds) fn graph_qos() -> DdsQos {
    DdsQos {
        reliable: true,
        durability: DdsDurability::TransientLocal,
        history: DdsHistory::KeepLast(1),
        ..DdsQos::default()
    }
}

/// Last byte of the GUIDs of writers (RTPS 2.5, 9.3.1.2).
const ENTITY_KIND_WRITER: u8 = 0x02;
const ENTITY_KIND_WRITER_NO_KEY: u8 = 0x03;

/// One node and its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEntities {
    /// The node.
    pub node: NodeName,
    /// Its subscriptions.
    pub readers: Vec<Gid>,
    /// Its publishers.
    pub writers: Vec<Gid>,
}

/// `rmw_dds_common/msg/ParticipantEntitiesInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParticipantEntities {
    /// The participant.
    pub participant: Gid,
    /// Its nodes.
    pub nodes: Vec<NodeEntities>,
}

/// Bytes of `rmw_dds_common/msg/Gid`: 16 since Iron, 24 (the last 8 unused) before.
const GID_BYTES: [usize; 2] = [16, 24];

impl ParticipantEntities {
    /// Reads the message as any ROS 2 distribution writes it.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, CdrError> {
        let mut outcome = Err(CdrError::Truncated {
            offset: 0,
            needed: 1,
            len: 0,
        });
        for gid_bytes in GID_BYTES {
            outcome = Self::decode_with(payload, gid_bytes);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn decode_with(payload: &[u8], gid_bytes: usize) -> Result<Self, CdrError> {
        let mut reader = CdrReader::new(payload)?;
        let participant = read_gid(&mut reader, gid_bytes)?;
        // An empty node takes two empty texts and two empty sequences: 16 bytes or more.
        let count = reader.sequence_len(16)?;
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            let node = NodeName {
                namespace: reader.text()?.to_owned(),
                name: reader.text()?.to_owned(),
            };
            let readers = read_gids(&mut reader, gid_bytes)?;
            let writers = read_gids(&mut reader, gid_bytes)?;
            nodes.push(NodeEntities {
                node,
                readers,
                writers,
            });
        }
        // More than padding at the end means that the guessed size of a gid was wrong.
        if reader.remaining() > 3 {
            return Err(CdrError::Length {
                offset: payload.len() - reader.remaining(),
                found: reader.remaining(),
            });
        }
        Ok(Self { participant, nodes })
    }

    /// The payload to publish.
    pub(in crate::dds) fn encode(&self) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        writer.bytes(&self.participant.0);
        writer.sequence_len(self.nodes.len());
        for node in &self.nodes {
            writer.text(&node.node.namespace);
            writer.text(&node.node.name);
            for gids in [&node.readers, &node.writers] {
                writer.sequence_len(gids.len());
                gids.iter().for_each(|gid| writer.bytes(&gid.0));
            }
        }
        writer.finish()
    }
}

fn read_gid(reader: &mut CdrReader<'_>, gid_bytes: usize) -> Result<Gid, CdrError> {
    let mut gid = [0; 16];
    gid.copy_from_slice(&reader.bytes(gid_bytes)?[..16]);
    Ok(Gid(gid))
}

fn read_gids(reader: &mut CdrReader<'_>, gid_bytes: usize) -> Result<Vec<Gid>, CdrError> {
    let count = reader.sequence_len(gid_bytes)?;
    (0..count).map(|_| read_gid(reader, gid_bytes)).collect()
}

/// The nodes that other participants have announced.
#[derive(Default)]
pub(in crate::dds) struct NodeGraph {
    node_of: HashMap<Gid, NodeName>,
    endpoints_of: HashMap<Gid, Vec<Gid>>,
    nodes_of: HashMap<Gid, BTreeSet<NodeName>>,
}

impl NodeGraph {
    /// Applies a participant's latest message; returns the endpoints whose node is new or different.
    pub(in crate::dds) fn update(&mut self, info: ParticipantEntities) -> Vec<Gid> {
        let mut now = HashMap::new();
        let mut nodes = BTreeSet::new();
        for node in info.nodes {
            for gid in node.readers.into_iter().chain(node.writers) {
                now.insert(gid, node.node.clone());
            }
            nodes.insert(node.node);
        }
        for gid in self.endpoints_of.remove(&info.participant).unwrap_or_default() {
            if !now.contains_key(&gid) {
                self.node_of.remove(&gid);
            }
        }
        self.endpoints_of
            .insert(info.participant, now.keys().copied().collect());
        self.nodes_of.insert(info.participant, nodes);
        now.into_iter()
            .filter_map(|(gid, node)| {
                (self.node_of.insert(gid, node.clone()).as_ref() != Some(&node)).then_some(gid)
            })
            .collect()
    }

    /// Forgets a participant that went away.
    pub(in crate::dds) fn forget(&mut self, participant: Gid) {
        for gid in self.endpoints_of.remove(&participant).unwrap_or_default() {
            self.node_of.remove(&gid);
        }
        self.nodes_of.remove(&participant);
    }

    /// The node of an endpoint, once it is known.
    pub(in crate::dds) fn node_of(&self, endpoint: Gid) -> Option<&NodeName> {
        self.node_of.get(&endpoint)
    }

    /// Publishers with their nodes, as announced.
    pub(in crate::dds) fn publishers(&self) -> impl Iterator<Item = (Gid, &NodeName)> {
        let is_writer = |gid: &Gid| matches!(gid.0[15], ENTITY_KIND_WRITER | ENTITY_KIND_WRITER_NO_KEY);
        let publishers = self.node_of.iter().filter(move |(gid, _)| is_writer(gid));
        publishers.map(|(gid, node)| (*gid, node))
    }

    /// True while some participant announces the node.
    pub(in crate::dds) fn has_node(&self, node: &NodeName) -> bool {
        self.nodes_of.values().any(|nodes| nodes.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(byte: u8) -> Gid {
        Gid([byte; 16])
    }

    fn node(name: &str) -> NodeName {
        NodeName {
            namespace: "/".to_owned(),
            name: name.to_owned(),
        }
    }

    fn info(name: &str, writers: Vec<Gid>) -> ParticipantEntities {
        let nodes = vec![NodeEntities {
            node: node(name),
            readers: vec![gid(9)],
            writers,
        }];
        ParticipantEntities {
            participant: gid(1),
            nodes,
        }
    }

    #[test]
    fn message_survives_encoding() {
        let message = info("talker", vec![gid(2), gid(3)]);
        assert_eq!(ParticipantEntities::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn gids_of_24_bytes_are_read() {
        let mut writer = CdrWriter::new();
        writer.bytes(&[1; 24]);
        writer.sequence_len(1);
        writer.text("/");
        writer.text("old");
        writer.sequence_len(0);
        writer.sequence_len(1);
        writer.bytes(&[2; 24]);
        let message = ParticipantEntities::decode(&writer.finish()).unwrap();
        assert_eq!(message.nodes[0].writers, [gid(2)]);
        assert_eq!(message.nodes[0].node, node("old"));
    }

    #[test]
    fn cut_messages_are_refused() {
        let whole = info("talker", vec![gid(2)]).encode();
        for len in 0..whole.len() {
            assert!(ParticipantEntities::decode(&whole[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn publishers_are_told_from_subscriptions_by_their_guid() {
        let mut graph = NodeGraph::default();
        graph.update(info("a", vec![gid(3)]));
        let publishers: Vec<_> = graph.publishers().collect();
        assert_eq!(publishers, [(gid(3), &node("a"))]);
    }

    #[test]
    fn graph_follows_participants() {
        let mut graph = NodeGraph::default();
        let mut changed = graph.update(info("a", vec![gid(2)]));
        changed.sort();
        assert_eq!(changed, [gid(2), gid(9)]);
        assert_eq!(graph.node_of(gid(2)), Some(&node("a")));
        assert_eq!(graph.update(info("a", vec![gid(2), gid(3)])), [gid(3)]);
        assert!(graph.has_node(&node("a")));
        assert_eq!(graph.update(info("a", vec![gid(3)])), []);
        assert_eq!(graph.node_of(gid(2)), None);
        graph.forget(gid(1));
        assert_eq!(graph.node_of(gid(3)), None);
        assert!(!graph.has_node(&node("a")));
    }
}
