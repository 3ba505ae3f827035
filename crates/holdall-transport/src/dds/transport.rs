//! The DDS transport itself: joins a domain and creates subscriptions and publishers.

use super::{
    announcement::NodeAnnouncement,
    config::{ConfigOptions, DdsEnvironment, cyclone_config, small_buffer_warning},
    discovery::Discovery,
    ffi_entity::{DdsError, Domain, Participant},
    publisher::DdsPublisher,
    subscription::{DdsSubscription, PinnedBuffers},
    type_description::TypeDescriptions,
};
use crate::{
    GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport, TransportError,
    TypeDescriptionReply,
};
use holdall_io::{
    clock::Clock,
    socket::{has_network, raise_receive_buffers, udp_sockets},
};
use holdall_model::{time::Timestamp, topic::NodeName};
use std::{collections::BTreeSet, os::fd::RawFd, sync::Arc};

const NAME: &str = "dds";

/// Socket receive buffer to request by default, in bytes: 4 × 6.2 MB at 30 Hz lost nothing from 32 MB on.
pub const SOCKET_RECEIVE_BUFFER_BYTES_DEFAULT: usize = 64 << 20;

/// How to join a ROS domain.
#[derive(Clone, Debug)]
pub struct DdsOptions {
    /// The ROS domain; `None` takes it from the environment.
    pub domain_id: Option<u32>,
    /// Node to show in the graph.
    pub node_name: String,
    /// Its namespace, beginning with `/`.
    pub node_namespace: String,
    /// ROS's variables.
    pub environment: DdsEnvironment,
    /// Receive buffer to request for each socket, in bytes.
    pub socket_receive_buffer_bytes: usize,
}

impl DdsOptions {
    /// A node with the environment of this process.
    pub fn for_node(node_name: &str) -> Self {
        Self {
            domain_id: None,
            node_name: node_name.to_owned(),
            node_namespace: "/".to_owned(),
            environment: DdsEnvironment::from_process(),
            socket_receive_buffer_bytes: SOCKET_RECEIVE_BUFFER_BYTES_DEFAULT,
        }
    }
}

/// The transport. Subscriptions, publishers and loans may outlive it.
pub struct DdsTransport {
    discovery: Discovery,
    announcement: Arc<NodeAnnouncement>,
    pinned: Arc<PinnedBuffers>,
    participant: Arc<Participant>,
    type_descriptions: TypeDescriptions,
    clock: Arc<dyn Clock>,
    warnings: Vec<String>,
}

impl DdsTransport {
    /// Joins the domain.
    ///
    /// # Errors
    /// [`TransportError::Start`] for a bad environment variable or when Cyclone DDS does not start.
    pub fn new(options: &DdsOptions, clock: Arc<dyn Clock>) -> Result<Self, TransportError> {
        let start = |reason: String| TransportError::Start {
            transport: NAME,
            reason,
        };
        let failed = |error: DdsError| start(error.to_string());
        let ros_domain = match options.domain_id {
            Some(id) => id,
            None => options.environment.domain().map_err(start)?,
        };
        let sockets_before = udp_sockets();
        let domain = start_domain(ros_domain, options).map_err(start)?;
        let participant = Arc::new(Participant::new(Arc::new(domain), b"enclave=/;").map_err(failed)?);
        let node = NodeName {
            namespace: options.node_namespace.clone(),
            name: options.node_name.clone(),
        };
        Ok(Self {
            discovery: Discovery::new(&participant).map_err(failed)?,
            announcement: Arc::new(NodeAnnouncement::new(&participant, node).map_err(failed)?),
            pinned: Arc::new(PinnedBuffers::default()),
            participant,
            type_descriptions: TypeDescriptions::default(),
            clock,
            warnings: raise_socket_buffers(&sockets_before, options.socket_receive_buffer_bytes),
        })
    }
}

fn start_domain(ros_domain: u32, options: &DdsOptions) -> Result<Domain, String> {
    // An interface that is named twice is an error to Cyclone, so only the user's choice is passed.
    let add_loopback = has_network() && !options.environment.names_interfaces();
    Domain::new(ros_domain, |external_domain_id| {
        let config = ConfigOptions {
            domain: ros_domain,
            external_domain_id,
            socket_receive_buffer_bytes: options.socket_receive_buffer_bytes,
            process_id: std::process::id(),
            add_loopback,
        };
        cyclone_config(&options.environment, config)
    })
}

/// Raises the receive buffers of the sockets that Cyclone has opened; returns a warning where the system forbids it.
fn raise_socket_buffers(before: &BTreeSet<RawFd>, bytes: usize) -> Vec<String> {
    let ours = udp_sockets().difference(before).copied().collect();
    let reached = raise_receive_buffers(&ours, bytes);
    reached
        .and_then(|reached| small_buffer_warning(reached, bytes))
        .into_iter()
        .collect()
}

impl Transport for DdsTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        self.discovery
            .poll(events)
            .map_err(|error| TransportError::Failed {
                transport: NAME,
                reason: error.to_string(),
            })
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        DdsSubscription::new(
            &self.participant,
            &self.announcement,
            &self.pinned,
            &self.clock,
            request,
            sink,
        )
        .map(|subscription| Box::new(subscription) as Box<dyn Subscription>)
        .map_err(|error| refused(&request.topic, &error))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        DdsPublisher::new(&self.participant, &self.announcement, request)
            .map(|publisher| Box::new(publisher) as Box<dyn Publisher>)
            .map_err(|error| refused(&request.topic, &error))
    }

    fn request_type_description(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        self.type_descriptions
            .ask(&self.participant, node, type_name, type_hash);
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        let Self {
            type_descriptions,
            discovery,
            clock,
            ..
        } = self;
        type_descriptions.poll(clock.monotonic(), |node| discovery.has_node(node), replies);
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn refused(topic: &str, error: &DdsError) -> TransportError {
    TransportError::Topic {
        topic: topic.to_owned(),
        reason: error.to_string(),
    }
}
