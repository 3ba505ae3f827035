//! iceoryx2 as a transport: one node of this process and its two threads.

use super::{
    NAME, SERIALIZATION_FORMAT,
    discovery::{Discovery, DiscoveryWake},
    ffi::Service,
    folders::overlong_path,
    publisher::Iceoryx2Publisher,
    subscription::{Iceoryx2Subscription, RECEIVE_THREAD, Receiving, Slot},
};
use crate::{
    EndProof, GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport,
    TransportError, registry::Backend,
};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use iceoryx2::{
    node::Node,
    prelude::{LogLevel, NodeBuilder, NodeName, SignalHandlingMode, set_log_level_from_env_or},
};
use std::{
    fmt::Display,
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

/// The entry of this transport for the registry.
pub(crate) static BACKEND: Backend = Backend {
    open: |options| {
        let transport = Iceoryx2Transport::new(&options.node.name, Arc::clone(&options.clock))?;
        Ok(Box::new(transport))
    },
    receives: |thread| thread == RECEIVE_THREAD,
    missing: |_| None,
};

/// A node of iceoryx2.
pub struct Iceoryx2Transport {
    node: Arc<Node<Service>>,
    receiving: Arc<Receiving>,
    wake: Arc<DiscoveryWake>,
    events: Arc<Mutex<Vec<GraphEvent>>>,
    threads: Vec<JoinHandle<()>>,
    clock: Arc<dyn Clock>,
}

impl Iceoryx2Transport {
    /// Joins the services of this host as a node of this name. iceoryx2's own configuration
    /// (`config/iceoryx2.toml`, the user's, the system's) states where they are.
    ///
    /// # Errors
    /// When iceoryx2 cannot make a node, for example because its folders cannot be written.
    pub fn new(node_name: &str, clock: Arc<dyn Clock>) -> Result<Self, TransportError> {
        fn failed(what: &str, error: impl Display) -> TransportError {
            TransportError::Start {
                transport: NAME,
                reason: format!("{what}: {error}"),
            }
        }
        // This crate logs everything that matters itself; IOX2_LOG_LEVEL enables iceoryx2's log.
        set_log_level_from_env_or(LogLevel::Fatal);
        let name =
            NodeName::new(node_name).map_err(|error| failed("its node's name", format!("{error:?}")))?;
        let node = NodeBuilder::new()
            .name(&name)
            // Signals are handled by the program.
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<Service>()
            .map_err(|error| {
                let folder = iceoryx2::prelude::Config::global_config()
                    .global
                    .root_path()
                    .to_string();
                failed(
                    "it cannot make a node; see that its folder can be written",
                    format!("{folder} ({error:?})"),
                )
            })?;
        let node = Arc::new(node);
        let receiving = Arc::new(Receiving::new().map_err(|error| failed("no wake-up", error))?);
        let wake = Arc::new(DiscoveryWake::default());
        let events = Arc::default();
        let discovery = Discovery {
            node: Arc::clone(&node),
            clock: Arc::clone(&clock),
            receiving: Arc::clone(&receiving),
            wake: Arc::clone(&wake),
            events: Arc::clone(&events),
        };
        let mut transport = Self {
            node,
            receiving,
            wake,
            events,
            threads: Vec::new(),
            clock,
        };
        let receive_thread = transport.receiving.start();
        transport
            .threads
            .push(receive_thread.map_err(|error| failed("no thread", error))?);
        transport
            .threads
            .push(discovery.start().map_err(|error| failed("no thread", error))?);
        Ok(transport)
    }
}

impl Transport for Iceoryx2Transport {
    fn end_proof(&self) -> EndProof {
        EndProof::OfAll
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        events.append(&mut lock(&self.events));
        if self.threads.iter().any(JoinHandle::is_finished) {
            return Err(TransportError::Failed {
                transport: NAME,
                reason: "one of its threads ended unexpectedly; see the log".to_owned(),
            });
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        let slot = Arc::new(Slot::new(request.topic.clone(), request.type_name.clone(), sink));
        self.receiving.add(Arc::clone(&slot));
        self.wake.wake();
        Ok(Box::new(Iceoryx2Subscription {
            slot,
            discovery: Arc::clone(&self.wake),
            is_drained: false,
        }))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        let publisher = Iceoryx2Publisher::new(&self.node, request, Arc::clone(&self.clock));
        let publisher = publisher.map_err(|reason| TransportError::Topic {
            topic: request.topic.clone(),
            reason,
        })?;
        Ok(Box::new(publisher))
    }

    fn carries(&self, serialization_format: &str) -> bool {
        matches!(serialization_format, "" | "cdr" | SERIALIZATION_FORMAT)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Drop for Iceoryx2Transport {
    fn drop(&mut self) {
        self.wake.stop();
        self.receiving.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has been reported already.
            let _ = thread.join();
        }
        // The end of a node lists its folder.
        if let Some(path) = overlong_path(&self.node.config().global.root_path().to_string()) {
            tracing::warn!(
                "iceoryx2: the path {:?} is too long for iceoryx2; this node is left to be cleaned up by others",
                path.display().to_string()
            );
            std::mem::forget(Arc::clone(&self.node));
        }
    }
}
