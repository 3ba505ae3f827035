//! Publishers: a recorded service is offered again unchanged, any other topic as a service in the way of
//! `rmw_iceoryx2`.

use super::{
    ffi::{self, OpenService, RawPublisher, Service},
    header::HeaderLayout,
    names,
    service::ServiceFacts,
    subscription::gid,
};
use crate::{PublishRequest, Publisher, TransportError};
use holdall_io::clock::Clock;
use holdall_model::topic::Gid;
use iceoryx2::{
    node::Node,
    port::notifier::Notifier,
    prelude::{AllocationStrategy, AttributeSpecifier, BackpressureStrategy, ServiceName},
    service::port_factory::PortFactory as _,
};
use std::{sync::Arc, time::Duration};

/// The payload type of Flatbuffers, whose services need a schema that the bag does not contain.
const FLATBUFFER: &str = "iox2::Flatbuffer";

/// Slices that fit without allocating more shared memory.
const FIRST_SLICE_BYTES: usize = 4096;

/// A publisher of a service.
pub(super) struct Iceoryx2Publisher {
    topic: String,
    service: OpenService,
    publisher: RawPublisher,
    notifier: Option<Notifier<Service>>,
    facts: ServiceFacts,
    layout: HeaderLayout,
    gid: Gid,
    sequence: u64,
    clock: Arc<dyn Clock>,
}

impl Iceoryx2Publisher {
    /// Opens the service, or creates it when it does not exist; the error is a sentence.
    pub fn new(
        node: &Node<Service>,
        request: &PublishRequest,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let facts = wanted(request)?;
        let service = open_or_create(node, &facts)?;
        let elements = FIRST_SLICE_BYTES.div_ceil(facts.payload.size.max(1));
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(if facts.payload.is_slice { elements } else { 1 })
            .allocation_strategy(if facts.payload.is_slice {
                AllocationStrategy::PowerOfTwo
            } else {
                AllocationStrategy::Static
            })
            .max_loaned_samples(1)
            // A subscriber that hangs must not block playback; messages that it does not receive are counted.
            .backpressure_strategy(BackpressureStrategy::DiscardData)
            .create()
            .map_err(|error| format!("iceoryx2 makes no publisher ({error:?})"))?;
        let name = ServiceName::new(&facts.name).map_err(|error| format!("{error:?}"))?;
        let events = node.service_builder(&name).event().open_or_create().ok();
        let notifier = events.and_then(|events| events.notifier_builder().create().ok());
        Ok(Self {
            topic: request.topic.clone(),
            gid: gid(publisher.id().value()),
            layout: facts.header_layout(),
            service,
            publisher,
            notifier,
            facts,
            sequence: 0,
            clock,
        })
    }

    fn refused(&self, reason: String) -> TransportError {
        TransportError::Publish {
            topic: self.topic.clone(),
            reason,
        }
    }

    /// Splits a recorded message into header and payload.
    fn parts<'a>(&self, message: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), String> {
        let split = message.split_at_checked(self.facts.recorded_header_bytes());
        let (header, payload) = split.ok_or_else(|| {
            let (size, wanted) = (message.len(), self.facts.header.size);
            format!("a message of {size} bytes is shorter than the service's user header of {wanted}")
        })?;
        let size = self.facts.payload.size;
        let fits = if self.facts.payload.is_slice {
            size == 0 && payload.is_empty() || size > 0 && payload.len().is_multiple_of(size)
        } else {
            payload.len() == size
        };
        if !fits {
            let (found, name) = (payload.len(), &self.facts.payload.name);
            return Err(format!(
                "a payload of {found} bytes does not fit the service's type {name} of {size}"
            ));
        }
        Ok((header, payload))
    }
}

/// The service for a request.
fn wanted(request: &PublishRequest) -> Result<ServiceFacts, String> {
    let Some(origin) = request
        .origin
        .as_ref()
        .filter(|origin| !origin.details.is_empty())
    else {
        let hash = request.type_hash.as_deref();
        return Ok(ServiceFacts::for_ros(
            &request.topic,
            &request.type_name,
            hash,
            &request.qos,
        ));
    };
    let mut facts = ServiceFacts::from_details(&origin.details)?;
    facts.name = names::renamed_service(&facts.name, &request.topic);
    if facts.payload.name == FLATBUFFER {
        return Err(
            "Flatbuffers cannot be offered again: the schema of the service is not in the bag".to_owned(),
        );
    }
    Ok(facts)
}

fn open_or_create(node: &Node<Service>, facts: &ServiceFacts) -> Result<OpenService, String> {
    let invalid =
        |error: &dyn std::fmt::Debug| format!("iceoryx2 does not allow {:?}: {error:?}", facts.name);
    let name = ServiceName::new(&facts.name).map_err(|error| invalid(&error))?;
    let (payload, header) = (facts.payload.detail()?, facts.header.detail()?);
    // An existing service is used with its own limits.
    if let Ok(open) = ffi::service_builder(node, &name, &payload, &header).open() {
        return Ok(open);
    }
    let mut attributes = AttributeSpecifier::new();
    for (key, value) in &facts.attributes {
        let key = key.as_str().try_into().map_err(|error| invalid(&error))?;
        let value = value.as_str().try_into().map_err(|error| invalid(&error))?;
        attributes = attributes.define(&key, &value).map_err(|error| invalid(&error))?;
    }
    ffi::service_builder(node, &name, &payload, &header)
        .subscriber_max_buffer_size(facts.buffer_size)
        .subscriber_max_borrowed_samples(facts.borrowed_max)
        .history_size(facts.history_size)
        .enable_safe_overflow(facts.overflows)
        .max_publishers(facts.publishers_max)
        .max_subscribers(facts.subscribers_max)
        .max_nodes(facts.nodes_max)
        .create_with_attributes(&attributes)
        .map_err(|error| format!("iceoryx2 cannot offer the service {:?} ({error:?})", facts.name))
}

impl Publisher for Iceoryx2Publisher {
    fn publish(&mut self, message: &[u8]) -> Result<(), TransportError> {
        let (recorded, payload) = self.parts(message).map_err(|reason| self.refused(reason))?;
        self.sequence += 1;
        // Subscribers detect losses by these numbers, so they count this publisher's messages, not the
        // recorded publisher's.
        let own;
        let header = if self.layout.is_reported_whole() {
            own = self.layout.write(self.gid, self.clock.now(), self.sequence);
            &own
        } else {
            recorded
        };
        let subscribers = self.matched_subscriptions();
        let sent = ffi::send(&self.publisher, header, payload, self.facts.payload.size);
        let reached = sent.map_err(|reason| self.refused(format!("iceoryx2 did not send it: {reason}")))?;
        if let Some(notifier) = &self.notifier
            && let Err(error) = notifier.notify()
        {
            tracing::debug!("{}: subscribers are not woken: {error:?}", self.topic);
        }
        if reached < subscribers && !self.facts.overflows {
            let missed = subscribers - reached;
            return Err(self.refused(format!("the buffers of {missed} subscriber(s) are full")));
        }
        Ok(())
    }

    fn matched_subscriptions(&self) -> usize {
        self.service.dynamic_config().number_of_subscribers()
    }

    fn wait_for_acked(&mut self, _timeout: Duration) -> bool {
        // Sent messages are in the subscribers' buffers, and stay there after the publisher is dropped.
        true
    }
}
