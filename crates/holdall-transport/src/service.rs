//! Services: answering the requests of other nodes, and sending requests to services of other nodes.
//!
//! Payloads are serialized requests and replies as their types define them, with their encapsulation header and without
//! anything that a middleware wraps around them. Nothing here blocks: arriving requests and replies wait in bounded
//! queues.

use crate::TransportError;
use holdall_model::topic::Gid;
use std::sync::Arc;

/// Longest request and reply that is accepted, in bytes.
pub const SERVICE_BYTES_MAX: usize = 16 << 20;

/// Most requests, or replies, that wait to be taken.
pub const SERVICE_WAITING_MAX: usize = 1024;

/// Called when something has arrived, on the transport's own threads: must not block.
pub type ServiceWake = Arc<dyn Fn() + Send + Sync>;

/// Which service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceDescription {
    /// Full name, for example `/rosbag2_recorder/pause`.
    pub name: String,
    /// ROS type, for example `rosbag2_interfaces/srv/Pause`.
    pub type_name: String,
    /// RIHS01 hash of the type, if known.
    pub type_hash: Option<String>,
}

/// Identifies a request for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The client.
    pub(crate) client: Gid,
    /// The client's number of the request.
    pub(crate) number: u64,
    /// How to answer the client, if there is more than one way.
    pub(crate) wrapping: Wrapping,
}

/// The bytes before the body of a request and of its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Wrapping {
    /// Nothing: the transport relates replies to requests.
    #[default]
    Bare,
    /// The client's own identifier and number, sent back unchanged.
    #[cfg_attr(
        not(any(test, feature = "dds")),
        allow(dead_code, reason = "other transports relate by themselves")
    )]
    Header([u8; 16]),
}

/// A request that waits for its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRequest {
    /// Identifies the request in the reply.
    pub id: RequestId,
    /// The serialized request.
    pub payload: Vec<u8>,
}

/// A reply in one layout of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutReply {
    /// RIHS01 hashes of the service, its request and its reply in this layout, as the endpoints of clients announce
    /// them.
    pub hashes: Arc<[String]>,
    /// The serialized reply.
    pub payload: Vec<u8>,
}

/// A reply in every layout that its type has had: a client can read only its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutReplies {
    /// For a client that announces none of the layouts.
    pub default: Vec<u8>,
    /// For clients that announce one of these layouts.
    pub layouts: Vec<LayoutReply>,
}

impl LayoutReplies {
    /// The serialized reply for a client whose endpoints announce these hashes.
    pub fn for_client<'a>(&self, hashes: impl IntoIterator<Item = &'a str> + Clone) -> &[u8] {
        let matches = |layout: &LayoutReply| {
            let is_of_it = |hash: &&str| layout.hashes.iter().any(|known| known == hash);
            hashes.clone().into_iter().filter(is_of_it).count()
        };
        let most = self.layouts.iter().map(matches).max().unwrap_or(0);
        let best = || self.layouts.iter().filter(|layout| matches(layout) == most);
        // Layouts may have the same request, so that its hash alone does not choose.
        if most == 0 || best().any(|layout| layout.payload == self.default) {
            return &self.default;
        }
        best().next().map_or(&self.default, |layout| &layout.payload)
    }

    /// The first of these hashes that no layout has: its client may not be able to read the reply.
    pub fn unknown<'a>(&self, hashes: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        if self.layouts.is_empty() {
            return None;
        }
        let is_known = |hash: &str| {
            let mut known = self.layouts.iter().flat_map(|layout| layout.hashes.iter());
            known.any(|known| known == hash)
        };
        hashes.into_iter().find(|hash| !is_known(hash))
    }
}

impl From<Vec<u8>> for LayoutReplies {
    /// A reply of a type that has one layout.
    fn from(default: Vec<u8>) -> Self {
        Self {
            default,
            layouts: Vec::new(),
        }
    }
}

/// A service that we offer; dropping it ends it.
pub trait ServiceServer: Send {
    /// Appends the requests that have arrived, and sends replies whose client can hear them now; never blocks.
    fn poll(&mut self, requests: &mut Vec<ServiceRequest>);

    /// Answers a request in the client's layout, at once or with a later [`ServiceServer::poll`] as soon as the client can hear it.
    ///
    /// # Errors
    /// When the reply cannot be sent.
    fn reply(&mut self, id: &RequestId, replies: &LayoutReplies) -> Result<(), TransportError>;

    /// Whether replies wait for their clients: poll again soon.
    fn has_waiting_replies(&self) -> bool {
        false
    }

    /// Requests that were dropped because too many waited or they were too long, since the last call.
    fn take_dropped(&mut self) -> u64 {
        0
    }
}

/// A reply that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReply {
    /// The number that [`ServiceClient::send`] returned for the request.
    pub number: u64,
    /// The serialized reply, or why none came.
    pub payload: Result<Vec<u8>, String>,
}

/// A client of another node's service; dropping it ends it.
pub trait ServiceClient: Send {
    /// Whether a server exists and is matched both ways, so that no request and no reply is lost.
    fn is_ready(&mut self) -> bool;

    /// Sends a request; returns its number.
    ///
    /// # Errors
    /// When no server exists, or the request cannot be sent.
    fn send(&mut self, payload: &[u8]) -> Result<u64, TransportError>;

    /// Appends the replies to our own requests that have arrived; never blocks.
    fn poll(&mut self, replies: &mut Vec<ServiceReply>);
}

/// The refusal of a transport without services.
pub(crate) fn no_services(transport: &'static str, service: &ServiceDescription) -> TransportError {
    TransportError::Service {
        service: service.name.clone(),
        reason: format!("{transport} has no services"),
    }
}

/// Checks the name of a service.
pub(crate) fn check_service(service: &ServiceDescription) -> Result<(), TransportError> {
    holdall_model::names::validate_full_name(&service.name)
        .map_err(|error| service_error(&service.name, error.to_string()))
}

/// Something that a service refuses.
pub(crate) fn service_error(service: &str, reason: impl Into<String>) -> TransportError {
    TransportError::Service {
        service: service.to_owned(),
        reason: reason.into(),
    }
}

/// Refuses a request or a reply that has no encapsulation header or is too long.
pub(crate) fn check_payload(service: &str, payload: &[u8]) -> Result<(), TransportError> {
    let len = payload.len();
    if (4..=SERVICE_BYTES_MAX).contains(&len) {
        Ok(())
    } else {
        let reason = format!("a request or reply has 4 to {SERVICE_BYTES_MAX} bytes, not {len}");
        Err(service_error(service, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(hashes: &[&str], payload: u8) -> LayoutReply {
        LayoutReply {
            hashes: hashes.iter().map(|hash| (*hash).to_owned()).collect(),
            payload: vec![payload],
        }
    }

    #[test]
    fn a_client_gets_the_layout_that_its_endpoints_announce() {
        let replies = LayoutReplies {
            default: vec![1],
            layouts: vec![
                layout(&["service-1", "request", "reply-1"], 1),
                layout(&["service-2", "request", "reply-2"], 2),
                layout(&["service-3", "request-3", "reply-2"], 2),
            ],
        };
        assert_eq!(replies.unknown(["request", "reply-2"]), None);
        assert_eq!(replies.unknown(["request", "reply-9"]), Some("reply-9"));
        assert_eq!(LayoutReplies::from(vec![1]).unknown(["reply-9"]), None);
        for (announced, expected) in [
            (&["request", "reply-2"][..], 2),
            (&["request", "reply-1"], 1),
            (&["reply-2"], 2),
            (&["service-2"], 2),
            (&["request-3"], 2),
            // Not decided.
            (&["request"], 1),
            (&[], 1),
            (&["of another type"], 1),
        ] {
            let payload = replies.for_client(announced.iter().copied());
            assert_eq!(payload, [expected], "{announced:?}");
        }
    }
}
