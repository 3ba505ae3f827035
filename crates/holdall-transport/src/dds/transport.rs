//! The DDS transport itself: joins a domain and creates subscriptions and publishers.

use crate::dds::{
    ffi::{
        alloc::place_receive_buffers,
        announcing_again::announce_endpoints_again,
        entity::{DdsError, Domain, Participant},
        log::take_over_messages,
    },
    graph::{announcement::NodeAnnouncement, discovery::Discovery, peers::NamedPeers},
    publisher::DdsPublisher,
    reach::{networks::NetworkLog, unheard::Unheard},
    services::{
        server::{DdsClient, DdsServer},
        type_description::TypeDescriptions,
    },
    settings::{
        config::{
            ConfigOptions, DdsEnvironment, Interfaces, cyclone_config, participant_index_max,
            small_buffer_warning,
        },
        security::Security,
    },
    subscription::{DdsSubscription, PinnedBuffers, Sockets, receives},
};
use crate::{
    EndProof, GraphEvent, GraphWake, PublishRequest, Publisher, ServiceClient, ServiceDescription,
    ServiceServer, ServiceWake, Sink, SubscribeRequest, Subscription, Transport, TransportError,
    TypeDescriptionReply, Unreached,
    registry::{Backend, OpenError},
    service::{check_service, service_error},
};
use holdall_io::{
    clock::Clock,
    process::free_descriptors,
    socket::{InterfaceAddress, interface_addresses, raise_receive_buffers, udp_sockets},
};
use holdall_model::{
    network::Network,
    time::Timestamp,
    topic::{Gid, NodeName},
};
use std::{collections::BTreeSet, os::fd::RawFd, sync::Arc, time::Duration};

const NAME: &str = "dds";

/// What the registry knows of it.
pub(crate) static BACKEND: Backend = Backend {
    open: |options| {
        let environment = DdsEnvironment::from_variables(options.variable);
        environment.check().map_err(OpenError::Variable)?;
        let security = Security::of(options.variable, options.enclave).map_err(OpenError::Variable)?;
        if let Some(warning) = security.1 {
            tracing::warn!("{warning}");
        }
        let dds = DdsOptions {
            environment,
            security: security.0,
            ..DdsOptions::for_node(options.node)
        };
        let joined = DdsTransport::new(&dds, Arc::clone(&options.clock));
        Ok(Box::new(joined.map_err(|error| match error {
            // The keystore that the variables name does not admit us.
            TransportError::Start { reason, .. } if dds.security.is_on() => OpenError::Variable(reason),
            error => error.into(),
        })?))
    },
    // Cyclone's.
    receives,
    missing: |_| None,
};

/// Socket receive buffer to request by default, in bytes: 4 × 6.2 MB at 30 Hz lost nothing from 32 MB on.
pub(crate) const SOCKET_RECEIVE_BUFFER_BYTES_DEFAULT: usize = 64 << 20;

/// How to join a ROS domain.
#[derive(Clone, Debug)]
pub struct DdsOptions {
    /// The ROS domain; `None` takes it from the environment.
    pub domain_id: Option<u32>,
    /// Node to show in the graph.
    pub node: NodeName,
    /// ROS's variables.
    pub environment: DdsEnvironment,
    /// How it takes part in a secured domain.
    pub security: Security,
    /// Receive buffer to request for each socket, in bytes.
    pub socket_receive_buffer_bytes: usize,
}

impl DdsOptions {
    /// A node that no variable of the environment decides about.
    pub fn for_node(node: &NodeName) -> Self {
        Self {
            domain_id: None,
            node: node.clone(),
            environment: DdsEnvironment::default(),
            security: Security::default(),
            socket_receive_buffer_bytes: SOCKET_RECEIVE_BUFFER_BYTES_DEFAULT,
        }
    }
}

/// The transport. Subscriptions, publishers and loans may outlive it.
pub struct DdsTransport {
    discovery: Discovery,
    announcement: Arc<NodeAnnouncement>,
    pinned: Arc<PinnedBuffers>,
    sockets: Arc<Sockets>,
    participant: Arc<Participant>,
    type_descriptions: TypeDescriptions,
    clock: Arc<dyn Clock>,
    warnings: Vec<String>,
    addresses_looked_up: Option<Duration>,
    network_log: NetworkLog,
    /// Number of announcements of all endpoints that are still due.
    rounds_due: u32,
    /// The domain and the highest participant index.
    ports: (u32, u32),
    unheard: Unheard,
    security: Security,
    _named_peers: Option<NamedPeers>,
}

/// How often the addresses of this machine are looked up.
const ADDRESSES_EVERY: Duration = Duration::from_millis(500);

/// Number of announcements of all endpoints when a network is lost that peers are reached by: the first packets of another way may be lost.
const CUT_ROUNDS: u32 = 3;

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
        enough_descriptors().map_err(start)?;
        place_receive_buffers();
        take_over_messages();
        load_security(options).map_err(start)?;
        let sockets_before = udp_sockets();
        let domain = start_domain(ros_domain, options).map_err(start)?;
        let mut network_log = NetworkLog::default();
        if let Some(announcing) = domain.announcing() {
            network_log.note(announcing.begin(&interface_addresses()));
        }
        let domain = Arc::new(domain);
        let participant = join(&domain, &options.security).map_err(start)?;
        let sockets: BTreeSet<_> = udp_sockets().difference(&sockets_before).copied().collect();
        let mut warnings = if options.environment.rules_receive_buffers() {
            Vec::new()
        } else {
            raise_socket_buffers(&sockets, options.socket_receive_buffer_bytes)
        };
        warnings.extend(options.environment.server_warning());
        warnings.extend(options.environment.profiles_warning());
        let named_peers = start_named_peers(ros_domain, options, &domain, &mut warnings).map_err(start)?;
        let mut own = [0; 12];
        own.copy_from_slice(&participant.gid().0[..12]);
        Ok(Self {
            unheard: Unheard::new(
                own,
                ros_domain,
                options.environment.listening(),
                options.security.is_on(),
            ),
            security: options.security.clone(),
            discovery: Discovery::new(&participant, sockets.clone()).map_err(failed)?,
            announcement: Arc::new(
                NodeAnnouncement::new(&participant, options.node.clone()).map_err(failed)?,
            ),
            pinned: Arc::new(PinnedBuffers::default()),
            sockets: Arc::new(Sockets::new(sockets)),
            participant,
            type_descriptions: TypeDescriptions::default(),
            clock,
            warnings,
            addresses_looked_up: None,
            network_log,
            rounds_due: 0,
            ports: (ros_domain, participant_index_max(ros_domain)),
            _named_peers: named_peers,
        })
    }

    /// Follows the addresses of this machine: an interface may come and go while a recording runs. Notices that a secured participant has
    /// expired.
    fn look_up_addresses(&mut self) -> Result<(), TransportError> {
        let now = self.clock.monotonic();
        if self
            .addresses_looked_up
            .is_some_and(|last| now < last + ADDRESSES_EVERY)
        {
            return Ok(());
        }
        self.addresses_looked_up = Some(now);
        if let Some(announcing) = self.participant.domain().announcing() {
            let (networks, is_cut) = announcing.follow(&interface_addresses(), self.ports);
            self.network_log.note(networks);
            if is_cut {
                self.rounds_due = CUT_ROUNDS;
            }
        }
        if self.rounds_due > 0 {
            self.rounds_due -= 1;
            announce_endpoints_again(self.participant.entity());
        }
        if self.security.is_on() && !self.discovery.takes_part() {
            return Err(TransportError::Failed {
                transport: NAME,
                reason: self.security.expiry(),
            });
        }
        Ok(())
    }
}

/// Joins a domain as one participant.
fn join(domain: &Arc<Domain>, security: &Security) -> Result<Arc<Participant>, String> {
    let user_data = security.user_data();
    let joined = Participant::new(Arc::clone(domain), user_data.as_bytes(), &security.properties());
    joined.map(Arc::new).map_err(|error| {
        let refusal = security.refusal(&error.reason);
        refusal.unwrap_or_else(|| error.to_string())
    })
}

/// Loads what a secured domain needs, where it may be one.
#[cfg(feature = "sros2")]
fn load_security(options: &DdsOptions) -> Result<(), String> {
    // Cyclone's own configuration can ask for security, and for TCP with TLS.
    let uri = options.environment.cyclonedds_uri.as_deref().unwrap_or_default();
    let uri = uri.to_ascii_lowercase();
    if options.security.is_on()
        || ["file:", "<security", "<ssl"]
            .iter()
            .any(|sign| uri.contains(sign))
    {
        let loaded = crate::dds::ffi::handshake::load_openssl();
        // A configuration may use neither after all; one that does ends the process with a sentence.
        return if options.security.is_on() { loaded } else { Ok(()) };
    }
    Ok(())
}

#[cfg(not(feature = "sros2"))]
fn load_security(_: &DdsOptions) -> Result<(), String> {
    Ok(())
}

/// Descriptors that Cyclone and we open at the start, with some to spare: 17 with one interface, four more with each other one.
const DESCRIPTORS_MIN: u64 = 40;

/// Cyclone's clean-up crashes when it gets no descriptors for its sockets, so they are counted before.
fn enough_descriptors() -> Result<(), String> {
    match free_descriptors(DESCRIPTORS_MIN) {
        Some(free) if free < DESCRIPTORS_MIN => Err(format!(
            "only {free} more files and sockets can be open, and it needs {DESCRIPTORS_MIN}; raise the limit: ulimit -n 1024"
        )),
        _ => Ok(()),
    }
}

fn start_domain(ros_domain: u32, options: &DdsOptions) -> Result<Domain, String> {
    // An interface that is named twice is an error to Cyclone, so only the user's choice is passed.
    let is_network =
        |address: &InterfaceAddress| address.is_up && !address.is_loopback && address.has_multicast;
    let has_network = interface_addresses().iter().any(is_network);
    let interfaces = options.environment.interfaces(has_network);
    let security = options.security.configuration();
    let is_users = options.environment.cyclonedds_uri.is_some();
    Domain::new(
        ros_domain,
        is_users,
        interfaces != Interfaces::Users,
        |external_domain_id| {
            let config = ConfigOptions {
                domain: ros_domain,
                external_domain_id,
                socket_receive_buffer_bytes: options.socket_receive_buffer_bytes,
                process_id: std::process::id(),
                interfaces,
                security: &security,
            };
            cyclone_config(&options.environment, config)
        },
    )
}

/// Looks for the static peers that are given by name; logs which peers cannot be reached.
fn start_named_peers(
    ros_domain: u32,
    options: &DdsOptions,
    domain: &Arc<Domain>,
    warnings: &mut Vec<String>,
) -> Result<Option<NamedPeers>, String> {
    let peers = options.environment.peers()?;
    for peer in peers.ignored {
        warnings.push(format!(
            "ROS_STATIC_PEERS: {peer} is ignored: only IPv4 addresses and names can be peers"
        ));
    }
    if peers.named.is_empty() {
        return Ok(None);
    }
    if domain.announcing().is_none() {
        let names: Vec<_> = peers.named.into_iter().map(|peer| peer.host).collect();
        warnings.push(format!(
            "ROS_STATIC_PEERS: {} ignored: give addresses where DDS does not use UDP over IPv4",
            names.join(", ")
        ));
        return Ok(None);
    }
    let ports = (ros_domain, participant_index_max(ros_domain));
    let started = NamedPeers::start(peers.named, ports, domain);
    started
        .map(Some)
        .map_err(|error| format!("no thread for ROS_STATIC_PEERS: {error}"))
}

/// Raises the receive buffers of the sockets that Cyclone has opened; returns a warning where the system forbids it.
fn raise_socket_buffers(sockets: &BTreeSet<RawFd>, bytes: usize) -> Vec<String> {
    let reached = raise_receive_buffers(sockets, bytes);
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
        self.look_up_addresses()?;
        self.discovery
            .poll(events, self.clock.now())
            .map_err(|error| TransportError::Failed {
                transport: NAME,
                reason: error.to_string(),
            })
    }

    fn has_graph_news(&self) -> bool {
        self.discovery.has_news()
    }

    fn wake_on_graph_news(&mut self, wake: GraphWake) {
        self.discovery.wake_on_news(wake);
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
            &self.sockets,
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

    fn serve(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        check_service(service)?;
        if self.participant.domain().announcing().is_none() {
            // Cyclone's packets cannot be changed here, see `reply_identity`.
            tracing::debug!(
                "{}: clients on Fast DDS get no replies without UDP over IPv4",
                service.name
            );
        }
        DdsServer::new(&self.participant, &self.announcement, service, wake, &self.clock)
            .map(|server| Box::new(server) as Box<dyn ServiceServer>)
            .map_err(|error| service_error(&service.name, error.to_string()))
    }

    fn client(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        check_service(service)?;
        DdsClient::new(&self.participant, Some(&self.announcement), service, wake)
            .map(|client| Box::new(client) as Box<dyn ServiceClient>)
            .map_err(|error| service_error(&service.name, error.to_string()))
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

    fn end_proof(&self) -> EndProof {
        EndProof::OfReliable
    }

    fn silent_for(&self, publisher: Gid) -> Option<Duration> {
        // It goes by a clock that is not set, and writes it as a time of day.
        let now = self.clock.now();
        let heard = self.discovery.last_heard(publisher, now)?;
        Some(now.saturating_since(heard))
    }

    fn not_heard(&mut self) -> Vec<Unreached> {
        let now = self.clock.monotonic();
        let discovery = &self.discovery;
        let mut all = self.unheard.poll(now, || discovery.participants());
        all.extend(self.discovery.undiscovered(now));
        all
    }

    fn networks(&self) -> Vec<Network> {
        self.network_log.networks().to_vec()
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
