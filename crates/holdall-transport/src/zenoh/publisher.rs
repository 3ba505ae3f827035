//! Publishers that real rmw_zenoh peers accept as their own kind: token, key, attachment, and a cache from
//! which late subscriptions get history.

use super::{
    attachment::Attachment,
    discovery::Graph,
    session::{Declared, OpenSession},
    subscription::Surroundings,
    token::{EntityKind, NO_HASH, TokenTopic, data_key},
};
use crate::{PublishRequest, Publisher, TransportError};
use ::zenoh::{
    Wait,
    qos::{CongestionControl, Reliability as ZenohReliability},
};
use holdall_io::clock::Clock;
use holdall_model::qos::{Durability, History, QosProfile, Reliability};
use std::{sync::Arc, time::Duration};
use zenoh_ext::{AdvancedPublisher, AdvancedPublisherBuilderExt, CacheConfig, MissDetectionConfig};

/// Messages that a cache without depth (`KeepAll`) keeps.
const KEEP_ALL_DEPTH: usize = 1000;

/// How often reliable publishers with a cache announce the number of their last message (rmw_zenoh's choice).
const HEARTBEAT_PERIOD: Duration = Duration::from_millis(500);

/// A publisher of a topic.
pub(super) struct ZenohPublisher {
    request: PublishRequest,
    publisher: AdvancedPublisher<'static>,
    declared: Declared,
    sequence: u64,
    clock: Arc<dyn Clock>,
    graph: Arc<Graph>,
    _session: Arc<OpenSession>,
}

impl ZenohPublisher {
    /// Creates a publisher.
    pub(super) fn new(surroundings: &Surroundings, request: &PublishRequest) -> ::zenoh::Result<Self> {
        let Surroundings {
            session,
            graph,
            clock,
            ..
        } = surroundings;
        let PublishRequest {
            topic,
            type_name,
            type_hash,
            qos,
            ..
        } = request;
        let hash = type_hash.as_deref().unwrap_or(NO_HASH);
        let key = data_key(session.domain_id(), topic, type_name, Some(hash));
        let publisher = declare(session, key, qos)?;
        let entity = session.entity(
            EntityKind::Publisher,
            TokenTopic {
                name: topic.clone(),
                type_name: type_name.clone(),
                type_hash: type_hash.clone(),
                qos: *qos,
            },
        );
        Ok(Self {
            request: request.clone(),
            publisher,
            // After the publisher and its cache, so that they can be queried as soon as the token is seen.
            declared: session.declare(entity)?,
            sequence: 0,
            clock: Arc::clone(clock),
            graph: Arc::clone(graph),
            _session: Arc::clone(session),
        })
    }
}

fn declare(
    session: &OpenSession,
    key: String,
    qos: &QosProfile,
) -> ::zenoh::Result<AdvancedPublisher<'static>> {
    let reliable = qos.reliability != Reliability::BestEffort;
    // rmw_zenoh drops messages that a slow subscriber does not accept; a bag that is played reliably must
    // arrive.
    let (reliability, congestion) = if reliable {
        (ZenohReliability::Reliable, CongestionControl::Block)
    } else {
        (ZenohReliability::BestEffort, CongestionControl::Drop)
    };
    let mut builder = session
        .zenoh()
        .declare_publisher(key)
        .reliability(reliability)
        .congestion_control(congestion)
        .advanced();
    if qos.durability == Durability::TransientLocal {
        let depth = match qos.history {
            History::KeepAll => KEEP_ALL_DEPTH,
            _ => usize::try_from(qos.depth).unwrap_or(usize::MAX).max(1),
        };
        builder = builder
            .cache(CacheConfig::default().max_samples(depth))
            .publisher_detection();
        if reliable {
            builder = builder
                .sample_miss_detection(MissDetectionConfig::default().sporadic_heartbeat(HEARTBEAT_PERIOD));
        }
    }
    builder.wait()
}

impl Publisher for ZenohPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        self.sequence += 1;
        let attachment = Attachment {
            sequence: self.sequence,
            source_nanos: Some(self.clock.now().as_nanos()),
            gid: self.declared.gid,
        };
        self.publisher
            .put(payload)
            .attachment(attachment.encode())
            .wait()
            .map_err(|error| TransportError::Publish {
                topic: self.request.topic.clone(),
                reason: error.to_string(),
            })
    }

    fn matched_subscriptions(&self) -> usize {
        let PublishRequest { topic, type_name, .. } = &self.request;
        let reached = self
            .publisher
            .matching_status()
            .wait()
            .is_ok_and(|status| status.matching());
        // A token may be seen before data can reach its subscription; and subscriptions of plain zenoh have no token.
        if reached {
            self.graph.subscriptions(topic, type_name).max(1)
        } else {
            0
        }
    }

    fn wait_for_acked(&mut self, _timeout: Duration) -> bool {
        // zenoh has no acknowledgements: a put message is in flight, and closing the session sends the queued
        // ones.
        true
    }
}
