//! The interface of every transport: report the graph, subscribe without knowing types, publish serialized messages.

use crate::{
    graph_news::GraphWake,
    service::{ServiceClient, ServiceDescription, ServiceServer, ServiceWake, no_services},
    unreached::Unreached,
};
use holdall_model::{
    interface::IndividualTypeDescription,
    message::{MessageHeader, Payload},
    network::Network,
    qos::QosProfile,
    time::Timestamp,
    topic::{Gid, NodeName, TopicOrigin},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Another participant's publisher or subscription, from discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointInfo {
    /// Identifier on the transport.
    pub gid: Gid,
    /// Full ROS topic name, for example `/camera/image_raw`; services and actions appear under their topics' ROS names.
    pub topic: String,
    /// ROS type, for example `sensor_msgs/msg/Image`.
    pub type_name: String,
    /// RIHS01 hash of the type, if announced.
    pub type_hash: Option<String>,
    /// The QoS that it offers or requests.
    pub qos: QosProfile,
    /// Its node, once known.
    pub node: Option<NodeName>,
    /// Nodes that can be queried for its type while `node` is not known: those of its participant with the
    /// service for that.
    pub neighbours: Vec<NodeName>,
    /// Name of the computer that it runs on, if the transport reports it.
    pub host: Option<String>,
    /// When it was created, by the clock of its machine; `None` if discovery does not report it.
    pub created: Option<Timestamp>,
    /// How its payloads are serialized where that is not `cdr`.
    pub serialization_format: Option<&'static str>,
    /// Details that the transport needs, in addition to name, type and QoS, to offer such a topic
    /// again ([`holdall_model::topic::TopicOrigin`]).
    pub details: BTreeMap<String, String>,
}

/// A change in the graph. Endpoints of this process's own participant are never reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphEvent {
    /// A publisher appeared, or something about a known one changed (its node became known).
    Publisher(EndpointInfo),
    /// A publisher announced that it went away: provided that the transport's [`EndProof`] covers it, no message of it is missing beyond
    /// those that arrived or were announced.
    PublisherGone(Gid),
    /// A publisher announced that it went away, but its last messages may be lost on the way, and their announcement too.
    PublisherLeft {
        /// The publisher.
        gid: Gid,
        /// Since when the network is lost that it sends by, where the announcement came over another one: messages sent after that may be missing.
        cut: Option<Timestamp>,
    },
    /// A publisher is gone without an announcement: its process was killed, its link was lost, or its lease has expired.
    PublisherSilent {
        /// The publisher.
        gid: Gid,
        /// Its last sign of life by this computer's time of day, if the transport knows it.
        since: Option<Timestamp>,
    },
    /// A subscription appeared or changed.
    Subscription(EndpointInfo),
    /// A subscription went away.
    SubscriptionGone(Gid),
    /// A service has a server.
    Server(ServerInfo),
    /// A server went away.
    ServerGone(Gid),
}

/// A server of a service, as the graph shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Identifies the server.
    pub gid: Gid,
    /// Full ROS name of the service.
    pub service: String,
    /// ROS type of the service: `example_interfaces/srv/AddTwoInts`.
    pub type_name: String,
}

/// The proof of how many messages a publisher has sent, so that losses at its end are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndProof {
    /// Nothing but a later message.
    LaterMessage,
    /// Reliable publishers announce it, and answer when they are asked ([`Subscription::ask_ends`]); for others only a later message shows it.
    OfReliable,
    /// All publishers answer.
    OfAll,
}

/// The receiver of a subscription's messages. Called on the transport's own threads: must not block and must not wait
/// for I/O.
pub trait Sink: Send + Sync {
    /// Accepts a message, or counts it as dropped; the transport need not distinguish.
    fn offer(&self, header: MessageHeader, payload: Payload<'_>);

    /// The publisher announced its last sequence number (DDS HEARTBEAT), whether or not the messages arrived.
    fn announced(&self, _publisher: Gid, _last_sequence: u64) {}
}

/// The topic to subscribe to.
#[derive(Clone, Debug)]
pub struct SubscribeRequest {
    /// Full ROS topic name.
    pub topic: String,
    /// ROS type.
    pub type_name: String,
    /// The QoS to request; the transport keeps everything it receives whatever `history` is.
    pub qos: QosProfile,
}

/// A live subscription; dropping it ends it. No call of the sink happens after drop has returned.
pub trait Subscription: Send {
    /// Moves messages for transports that do not push on their own threads; returns the number moved.
    fn pump(&mut self) -> usize {
        0
    }

    /// Publishers matched right now.
    fn matched_publishers(&self) -> usize;

    /// The publishers that are matched right now, if the transport knows them.
    fn matched(&self) -> Option<Vec<Gid>> {
        None
    }

    /// The last sequence numbers that matched publishers have announced (DDS HEARTBEAT), for losses at the
    /// tail.
    fn announced_sequences(&self) -> Vec<(Gid, u64)> {
        Vec::new()
    }

    /// Asks the matched publishers how much they have sent, as far as the transport can. Call it again until they have answered: it may wait
    /// for messages in the transport's buffers, because these are older than the question.
    fn ask_ends(&mut self) {}

    /// Whether a publisher has answered: everything it had sent until then has arrived or is in
    /// [`Subscription::announced_sequences`].
    fn has_answered(&self, _publisher: Gid) -> bool {
        false
    }

    /// Accepts the publisher's messages from number `next` on again. Call this after a forged number far from it: a reader that delivers
    /// in order would then drop real messages, or wait for messages that never arrive. Does nothing if the reader delivers all numbers.
    fn expect_next(&self, _publisher: Gid, _next: u64) {}
}

/// The topic to publish.
#[derive(Clone, Debug, Default)]
pub struct PublishRequest {
    /// Full ROS topic name.
    pub topic: String,
    /// ROS type.
    pub type_name: String,
    /// RIHS01 hash to announce, if known.
    pub type_hash: Option<String>,
    /// The QoS to offer.
    pub qos: QosProfile,
    /// How payloads are serialized; empty for `cdr`.
    pub serialization_format: String,
    /// The topic's origin, when the same transport recorded it.
    pub origin: Option<TopicOrigin>,
    /// Keep messages for reliable subscriptions until these have acknowledged them, beyond the depth that
    /// `qos` offers; see [`Publisher::delivery`]. The caller bounds the memory that this takes.
    pub keep_unacknowledged: bool,
}

/// How far a publisher's messages have come, counted from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Messages that all matched reliable subscriptions have acknowledged; without one, all.
    pub acknowledged: u64,
    /// Subscriptions matched right now.
    pub subscriptions: usize,
    /// Those among them that acknowledge: the reliable ones of other processes.
    pub reliable_subscriptions: usize,
    /// Messages after these that it keeps; with one more, the oldest of them can no longer be sent again.
    pub kept_max: u64,
}

/// A live publisher; dropping it ends it.
pub trait Publisher: Send {
    /// Sends one serialized message (with its encapsulation header where the format has one).
    ///
    /// # Errors
    /// When the transport refuses the message, for example because a reliable reader blocked it for too long.
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError>;

    /// As [`Publisher::publish`], for a message that was recorded at `log_time`; most transports have no place for it.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    fn publish_at(&mut self, payload: &[u8], _log_time: Timestamp) -> Result<(), TransportError> {
        self.publish(payload)
    }

    /// Subscriptions matched right now.
    fn matched_subscriptions(&self) -> usize;

    /// How far its messages have come; `None` if acknowledgements are not known or not requested.
    fn delivery(&self) -> Option<Delivery> {
        None
    }

    /// Waits until all matched reliable subscriptions have acknowledged everything; false when `timeout` ran out.
    fn wait_for_acked(&mut self, timeout: Duration) -> bool;
}

/// One source text of a type description (`type_description_interfaces/msg/TypeSource`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSource {
    /// ROS type, for example `std_msgs/msg/Header`.
    pub type_name: String,
    /// `msg`, `srv`, `action`, `idl`, `dynamic` or `implicit`.
    pub encoding: String,
    /// The text as written by the author.
    pub text: String,
}

/// A node's answer to `get_type_description`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeDescriptionReply {
    /// The type that was requested.
    pub type_name: String,
    /// The hash that was requested.
    pub type_hash: String,
    /// Its sources and those of all nested types, or why they are missing.
    pub sources: Result<Vec<TypeSource>, String>,
    /// The fields of the type and of all nested ones, as far as the node sends them: types derived from
    /// services and actions have no source.
    pub descriptions: Vec<IndividualTypeDescription>,
}

/// A way to reach live topics.
pub trait Transport: Send {
    /// Short name, for example `dds`.
    fn name(&self) -> &'static str;

    /// Appends changes of the graph since the last call; never blocks.
    ///
    /// # Errors
    /// When the transport has failed for good.
    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError>;

    /// True when the graph is known to have changed, so that it is worth polling at once; transports that do not know return false.
    fn has_graph_news(&self) -> bool {
        false
    }

    /// Calls `wake` once after each poll that is followed by a change of the graph, at once where there is one already, so that nothing needs
    /// to ask [`Transport::has_graph_news`] many times a second; transports that do not know never call it.
    fn wake_on_graph_news(&mut self, _wake: GraphWake) {}

    /// Whether its subscriptions receive only in [`Subscription::pump`]: it has no threads.
    fn is_pumped(&self) -> bool {
        false
    }

    /// Subscribes to a topic without knowing its type.
    ///
    /// # Errors
    /// When the name or the QoS is refused.
    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError>;

    /// Creates a publisher.
    ///
    /// # Errors
    /// When the name or the QoS is refused.
    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError>;

    /// Offers a service; `wake` is called when a request has arrived.
    ///
    /// # Errors
    /// When the transport has no services, or refuses the name.
    fn serve(
        &mut self,
        service: &ServiceDescription,
        _wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        Err(no_services(self.name(), service))
    }

    /// Creates a client of another node's service; `wake` is called when a reply has arrived.
    ///
    /// # Errors
    /// When the transport has no services, or refuses the name.
    fn client(
        &mut self,
        service: &ServiceDescription,
        _wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        Err(no_services(self.name(), service))
    }

    /// Whether it carries payloads that are serialized this way.
    fn carries(&self, serialization_format: &str) -> bool {
        matches!(serialization_format, "" | "cdr")
    }

    /// Requests the sources of a type from a node; the answer comes from
    /// [`Transport::poll_type_descriptions`]. Repeating a request is harmless.
    fn request_type_description(&mut self, _node: &NodeName, _type_name: &str, _type_hash: &str) {}

    /// Appends answers that have arrived; never blocks.
    fn poll_type_descriptions(&mut self, _replies: &mut Vec<TypeDescriptionReply>) {}

    /// Things that a user should know once at the start (for example a socket buffer that could not be
    /// raised), one sentence each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Existing nodes and publishers that this transport cannot receive, as far as it can know; call it about once a second. Never
    /// blocks for long: it may read some files.
    fn not_heard(&mut self) -> Vec<Unreached> {
        Vec::new()
    }

    /// The networks of this computer, and whether they are used, as of the last [`Transport::poll_graph`]; at most
    /// [`NETWORKS_MAX`](holdall_model::network::NETWORKS_MAX). Empty for a transport that does not choose them.
    fn networks(&self) -> Vec<Network> {
        Vec::new()
    }

    /// Whether it only completes other transports: next to another one it is used only for publishers that no other transport
    /// shows.
    fn completes_others(&self) -> bool {
        false
    }

    /// The proof of the number of messages that a publisher has sent.
    fn end_proof(&self) -> EndProof {
        EndProof::LaterMessage
    }

    /// How long ago a publisher gave its last sign of life, by a clock that is not set, if the transport knows it.
    fn silent_for(&self, _publisher: Gid) -> Option<Duration> {
        None
    }

    /// The time on the clock that stamps `log_time`.
    fn now(&self) -> Timestamp;
}

/// Why a transport could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The transport could not be started.
    #[error("cannot start {transport}: {reason}")]
    Start {
        /// Which transport.
        transport: &'static str,
        /// One sentence that names a remedy.
        reason: String,
    },
    /// A name, type or QoS that this transport cannot carry.
    #[error("cannot use topic {topic}: {reason}")]
    Topic {
        /// Full ROS topic name.
        topic: String,
        /// One sentence.
        reason: String,
    },
    /// A message was refused.
    #[error("cannot publish on {topic}: {reason}")]
    Publish {
        /// Full ROS topic name.
        topic: String,
        /// One sentence.
        reason: String,
    },
    /// A service cannot be offered or called, or a request or reply was refused.
    #[error("service {service}: {reason}")]
    Service {
        /// Full ROS name.
        service: String,
        /// One sentence.
        reason: String,
    },
    /// The transport failed for good.
    #[error("{transport} failed: {reason}")]
    Failed {
        /// Which transport.
        transport: &'static str,
        /// One sentence.
        reason: String,
    },
}
