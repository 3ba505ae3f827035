//! A transport inside one process, for tests: publishers that follow a script, with gaps, late joiners, QoS and loans.
//!
//! Everything happens on the caller's thread and at once: when `publish` returns, all matched sinks have been called.

mod discovery;
mod network;
mod publisher;
mod qos;
mod service;
mod subscription;

pub use network::MemoryNetwork;
pub use publisher::MemoryPublisher;

use crate::{
    EndProof, GraphEvent, GraphWake, PublishRequest, Publisher, ServiceClient, ServiceDescription,
    ServiceServer, ServiceWake, Sink, SubscribeRequest, Subscription, Transport, TransportError,
    TypeDescriptionReply, service::check_service,
};
use holdall_io::clock::Clock;
use holdall_model::{time::Timestamp, topic::NodeName};
use network::TransportId;
use service::{MemoryClient, MemoryServer};
use std::sync::Arc;
use subscription::MemorySubscription;

/// One participant of a [`MemoryNetwork`].
pub struct MemoryTransport {
    network: MemoryNetwork,
    id: TransportId,
    node: NodeName,
    clock: Arc<dyn Clock>,
}

impl MemoryTransport {
    /// Joins a network under a node's name.
    pub fn new(network: &MemoryNetwork, node: NodeName, clock: Arc<dyn Clock>) -> Self {
        Self {
            id: network.join(),
            network: network.clone(),
            node,
            clock,
        }
    }
}

impl Transport for MemoryTransport {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        if let Some(reason) = self.network.take_events(self.id, events) {
            return Err(TransportError::Failed {
                transport: "memory",
                reason,
            });
        }
        Ok(())
    }

    fn has_graph_news(&self) -> bool {
        self.network.has_events(self.id)
    }

    fn wake_on_graph_news(&mut self, wake: GraphWake) {
        self.network.wake_on_events(self.id, wake);
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        check_name(&request.topic)?;
        let subscription =
            MemorySubscription::new(&self.network, self.id, &self.node, &self.clock, request, sink);
        Ok(Box::new(subscription))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        check_name(&request.topic)?;
        Ok(Box::new(self.network.publisher_of(
            Some(self.id),
            &self.node,
            request,
            &self.clock,
        )))
    }

    fn serve(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        check_service(service)?;
        Ok(Box::new(MemoryServer::new(&self.network, self.id, service, wake)))
    }

    fn client(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        check_service(service)?;
        Ok(Box::new(MemoryClient::new(&self.network, service, wake)))
    }

    fn request_type_description(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        self.network.ask(self.id, node, type_name, type_hash);
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        self.network.take_replies(self.id, replies);
    }

    fn end_proof(&self) -> EndProof {
        EndProof::OfReliable
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.network.leave(self.id);
    }
}

/// The names that DDS refuses, so that tests of refusals need no DDS.
fn check_name(topic: &str) -> Result<(), TransportError> {
    holdall_model::names::validate_full_name(topic).map_err(|error| TransportError::Topic {
        topic: topic.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
