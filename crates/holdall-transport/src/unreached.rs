//! Nodes and publishers that a transport cannot receive, and how they are recognized where another one does.

use crate::EndpointInfo;
use holdall_model::{
    topic::{Gid, NodeName},
    unheard::NotHeard,
};

/// A node or publisher that a transport cannot receive, and how it would be recognized where another transport does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The report for the user.
    pub about: NotHeard,
    /// Its identity.
    pub identity: Identity,
}

/// The identity of a node or publisher that cannot be received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A participant of DDS: the prefix of the identifiers of all its endpoints.
    Participant([u8; 12]),
    /// A process of this computer with Fast DDS.
    Process(u32),
    /// A node.
    Node(NodeName),
    /// A publisher.
    Publisher(Gid),
}

/// Fast DDS's number among vendors (RTPS 2.5, 9.3.2), with which its identifiers begin.
const FAST_DDS: [u8; 2] = [1, 15];

impl Identity {
    /// Whether this endpoint is its own.
    pub fn has(&self, endpoint: &EndpointInfo) -> bool {
        let gid = &endpoint.gid.0;
        match self {
            Self::Participant(prefix) => gid.starts_with(prefix),
            // Fast DDS identifies participants by vendor, host, the lower half of the process and a random number.
            Self::Process(process) => gid.starts_with(&FAST_DDS) && gid[4..6] == process.to_le_bytes()[..2],
            Self::Node(node) => endpoint.node.as_ref() == Some(node),
            Self::Publisher(publisher) => endpoint.gid == *publisher,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_shows_whose_it_is() {
        let mut gid = [7; 16];
        gid[..2].copy_from_slice(&FAST_DDS);
        gid[4..6].copy_from_slice(&[0x34, 0x12]);
        let endpoint = EndpointInfo {
            gid: Gid(gid),
            node: Some(NodeName::in_root("talker")),
            ..EndpointInfo::default()
        };
        let [mut participant, mut other] = [[7; 12]; 2];
        participant.copy_from_slice(&gid[..12]);
        other[0] = 1;
        for (identity, is_own) in [
            (Identity::Participant(participant), true),
            (Identity::Participant(other), false),
            (Identity::Process(0x9_1234), true),
            (Identity::Process(0x9_1235), false),
            (Identity::Node(NodeName::in_root("talker")), true),
            (Identity::Node(NodeName::in_root("other")), false),
            (Identity::Publisher(Gid(gid)), true),
            (Identity::Publisher(Gid([7; 16])), false),
        ] {
            assert_eq!(identity.has(&endpoint), is_own, "{identity:?}");
        }
    }
}
