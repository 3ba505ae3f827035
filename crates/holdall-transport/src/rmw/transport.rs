//! The transport itself: joins through the rmw implementation that is sourced, and creates subscriptions and publishers.

use super::{
    discovery::{Discovery, OwnPublishers},
    farewells::Farewells,
    ffi::{Context, Join, Shim, TypeSupport},
    ffi_entity::{RawPublisher, RawSubscription},
    ffi_service::Side,
    installation::Installation,
    publisher::RmwPublisher,
    qos::{offer_of, request_of},
    receiving::{RECEIVE_THREAD, Receiving, Slot},
    service::RmwService,
    structures::{self, Typed},
    subscription::RmwSubscription,
    types::Types,
};
use crate::{
    GraphEvent, GraphWake, PublishRequest, Publisher, ServiceClient, ServiceDescription, ServiceServer,
    ServiceWake, Sink, SubscribeRequest, Subscription, Transport, TransportError, Unreached,
    dds::{DdsEnvironment, GRAPH_TOPIC},
    registry::{Backend, OpenError},
};
use holdall_io::clock::Clock;
use holdall_model::{
    qos::{Durability, QosProfile},
    time::Timestamp,
    topic::{Gid, NodeName},
};
use std::{ffi::OsString, path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

const NAME: &str = "rmw";

/// The entry of this transport for the registry.
pub(crate) static BACKEND: Backend = Backend {
    open: |options| {
        let rmw =
            RmwOptions::from_environment(options.node, options.variable).map_err(OpenError::Variable)?;
        Ok(Box::new(RmwTransport::new(
            &rmw,
            options.variable,
            Arc::clone(&options.clock),
        )?))
    },
    receives: |thread| thread == RECEIVE_THREAD,
    missing: |variable| {
        let find = || {
            let options = RmwOptions::from_environment(&NodeName::in_root(NAME), variable)?;
            Installation::find(variable)?.shim(&options.cache, options.compiler)
        };
        find().err()
    },
};

/// The ROS type of the announcements of participants about their nodes.
const GRAPH_TYPE: &str = "rmw_dds_common/msg/ParticipantEntitiesInfo";

/// Shortest time between two looks at the whole graph.
const GRAPH_EVERY: Duration = Duration::from_millis(50);

/// How to join.
#[derive(Clone, Debug)]
pub struct RmwOptions {
    /// Node to show in the graph.
    pub node: NodeName,
    /// ROS's variables for domain, range and peers.
    pub environment: DdsEnvironment,
    /// Folder in which the compiled shim is kept.
    pub cache: PathBuf,
    /// The C compiler.
    pub compiler: OsString,
}

impl RmwOptions {
    /// Opens the transport that the environment selects; `variable` returns variables that are set
    /// and not empty.
    ///
    /// # Errors
    /// One sentence about a variable with a bad value, or one that is missing.
    pub fn from_environment(
        node: &NodeName,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let environment = DdsEnvironment::from_variables(variable);
        environment.check()?;
        if variable("ROS_SECURITY_ENABLE").is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
            return Err(
                "ROS_SECURITY_ENABLE is true: this program cannot join a secured domain through rmw yet"
                    .to_owned(),
            );
        }
        let cache = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))
            .ok_or("neither XDG_CACHE_HOME nor HOME is set, and what is compiled for rmw is kept there")?;
        Ok(Self {
            node: node.clone(),
            environment,
            cache: cache.join("holdall/rmw"),
            compiler: variable("CC").unwrap_or_else(|| "cc".to_owned()).into(),
        })
    }
}

/// The transport. Subscriptions, publishers and loans may outlive it.
pub struct RmwTransport {
    discovery: Discovery,
    /// The subscription that brings farewells.
    _farewells: Option<RmwSubscription>,
    types: Types,
    own: OwnPublishers,
    context: Arc<Context>,
    receiving: Arc<Receiving>,
    thread: Option<JoinHandle<()>>,
    clock: Arc<dyn Clock>,
    next_graph: Duration,
    /// Messages are structures, for measurements.
    is_typed: bool,
}

impl RmwTransport {
    /// Joins; the first time with an installation of ROS 2, a part is compiled against its headers.
    ///
    /// # Errors
    /// [`TransportError::Start`] when no ROS 2 is sourced, the part cannot be compiled, or the implementation refuses.
    pub fn new(
        options: &RmwOptions,
        variable: &dyn Fn(&str) -> Option<String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TransportError> {
        let start = |reason: String| TransportError::Start {
            transport: NAME,
            reason,
        };
        let installation = Installation::find(variable).map_err(start)?;
        let path = installation
            .shim(&options.cache, options.compiler.clone())
            .map_err(start)?;
        let shim = Shim::load(&path).map_err(start)?;
        let (range, peers) = options.environment.range_for_rmw().map_err(start)?;
        let join = Join {
            node_name: &options.node.name,
            node_namespace: &options.node.namespace,
            domain: options.environment.domain().map_err(start)?,
            range,
            peers: &peers,
        };
        let (context, waiter) = Context::open(&shim, &join).map_err(start)?;
        tracing::info!(
            "joined through {} ({})",
            shim.implementation(),
            installation.implementation
        );
        let receiving = Receiving::new(Arc::clone(&context));
        let thread = receiving.start(waiter, Arc::clone(&clock));
        let thread = thread.map_err(|error| start(format!("no thread: {error}")))?;
        let own = OwnPublishers::default();
        let farewells = Arc::new(Farewells::new(Arc::clone(&clock)));
        let discovery = Discovery::new(options.node.clone(), own.clone(), Arc::clone(&farewells));
        let mut types = Types::new(shim);
        let farewells = follow_farewells(&context, &receiving, &mut types, farewells);
        Ok(Self {
            discovery,
            _farewells: farewells,
            types,
            own,
            context,
            receiving,
            thread: Some(thread),
            clock,
            next_graph: Duration::ZERO,
            is_typed: structures::are_wanted(variable),
        })
    }
}

/// Subscribes to the announcements of participants about their publishers. With an implementation that has no such topic, no farewell of a publisher
/// is known.
fn follow_farewells(
    context: &Arc<Context>,
    receiving: &Arc<Receiving>,
    types: &mut Types,
    farewells: Arc<dyn Sink>,
) -> Option<RmwSubscription> {
    let qos = request_of(&QosProfile {
        durability: Durability::TransientLocal,
        avoid_ros_namespace_conventions: true,
        ..QosProfile::ROS_DEFAULT
    });
    let opened = types
        .get(GRAPH_TYPE)
        .and_then(|types| RawSubscription::new(context, types, GRAPH_TOPIC, &qos));
    match opened {
        Ok(raw) => {
            let slot = Arc::new(Slot::new(raw, GRAPH_TOPIC, farewells, None));
            receiving.add(Arc::clone(&slot));
            Some(RmwSubscription {
                slot,
                receiving: Arc::clone(receiving),
            })
        }
        Err(reason) => {
            tracing::info!("rmw: each publisher that leaves counts as silent: no {GRAPH_TOPIC}: {reason}");
            None
        }
    }
}

impl RmwTransport {
    /// The structure of a topic's messages, if they are passed as structures.
    fn typed(&self, types: TypeSupport, type_name: &str) -> Result<Option<Typed>, String> {
        self.is_typed
            .then(|| Typed::new(&self.context.shim, types, type_name))
            .transpose()
    }

    fn service(
        &self,
        service: &ServiceDescription,
        side: Side,
        wake: ServiceWake,
    ) -> Result<RmwService, TransportError> {
        RmwService::open(&self.context, &self.receiving, service, side, wake)
    }
}

impl Transport for RmwTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        let failed = |reason: String| TransportError::Failed {
            transport: NAME,
            reason,
        };
        if let Some(reason) = self.receiving.failure() {
            return Err(failed(reason));
        }
        if !self.receiving.take_graph_news() && !self.discovery.awaits_farewell() {
            return Ok(());
        }
        let now = self.clock.monotonic();
        self.next_graph = now + GRAPH_EVERY;
        let Self {
            discovery,
            types,
            context,
            ..
        } = self;
        discovery.compare(
            context.endpoints().map_err(failed)?,
            |name| types.get(name).err(),
            now,
            events,
        );
        discovery.compare_services(context.services().map_err(failed)?, events);
        Ok(())
    }

    fn has_graph_news(&self) -> bool {
        self.receiving.has_graph_news() && self.clock.monotonic() >= self.next_graph
    }

    fn wake_on_graph_news(&mut self, wake: GraphWake) {
        self.receiving.wake_on_graph_news(wake);
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        let refused = |reason: String| TransportError::Topic {
            topic: request.topic.clone(),
            reason,
        };
        let types = self.types.get(&request.type_name).map_err(refused)?;
        let typed = self.typed(types, &request.type_name).map_err(refused)?;
        let qos = request_of(&request.qos);
        let subscription =
            RawSubscription::new(&self.context, types, &request.topic, &qos).map_err(refused)?;
        let slot = Arc::new(Slot::new(subscription, &request.topic, sink, typed));
        self.receiving.add(Arc::clone(&slot));
        Ok(Box::new(RmwSubscription {
            slot,
            receiving: Arc::clone(&self.receiving),
        }))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        let refused = |reason: String| TransportError::Topic {
            topic: request.topic.clone(),
            reason,
        };
        let types = self.types.get(&request.type_name).map_err(refused)?;
        let typed = self.typed(types, &request.type_name).map_err(refused)?;
        let qos = offer_of(&request.qos);
        let raw = RawPublisher::new(&self.context, types, &request.topic, &qos).map_err(refused)?;
        self.own.add(Gid(raw.gid));
        Ok(Box::new(RmwPublisher {
            topic: request.topic.clone(),
            raw,
            typed,
            own: self.own.clone(),
        }))
    }

    fn serve(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        Ok(Box::new(self.service(service, Side::Server, wake)?))
    }

    fn client(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        Ok(Box::new(self.service(service, Side::Client, wake)?))
    }

    fn not_heard(&mut self) -> Vec<Unreached> {
        self.discovery.not_heard()
    }

    fn completes_others(&self) -> bool {
        true
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Drop for RmwTransport {
    fn drop(&mut self) {
        self.receiving.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been reported already.
            let _ = thread.join();
        }
    }
}
