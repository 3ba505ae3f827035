//! Publishers: serialized messages to a DDS topic, byte for byte.

use crate::dds::{
    ffi::entity::{DdsError, Participant, Writer},
    graph::announcement::{EndpointKind, NodeAnnouncement},
    settings::qos::{DdsHistory, dds_topic, keeping_unacknowledged, writer_qos},
};
use crate::{Delivery, PublishRequest, Publisher, TransportError};
use holdall_model::names::dds::type_to_dds;
use std::{sync::Arc, time::Duration};

/// A publisher of a topic.
pub(super) struct DdsPublisher {
    topic: String,
    /// Messages that it keeps until they are acknowledged; `None` where that was not requested.
    kept_max: Option<u64>,
    writer: Writer,
    announcement: Arc<NodeAnnouncement>,
    /// Messages and bytes since an acknowledgement was requested.
    since_request: (u32, usize),
}

/// One message in this many requests an acknowledgement: at 10 000 messages a second, 78 requests are sent.
const REQUEST_EVERY: u32 = 128;

/// Or one message in this many bytes.
const REQUEST_EVERY_BYTES: usize = 4 << 20;

impl DdsPublisher {
    /// Creates a publisher.
    pub(super) fn new(
        participant: &Arc<Participant>,
        announcement: &Arc<NodeAnnouncement>,
        request: &PublishRequest,
    ) -> Result<Self, DdsError> {
        let topic = dds_topic(&request.topic, &request.qos);
        let type_name = type_to_dds(&request.type_name);
        let offered = writer_qos(&request.qos, request.type_hash.as_deref());
        let keeping = Some(offered.clone())
            .filter(|_| request.keep_unacknowledged)
            .and_then(keeping_unacknowledged);
        let kept_max = keeping.as_ref().and_then(|qos| match qos.history {
            DdsHistory::KeepLast(depth) => Some(u64::from(depth)),
            DdsHistory::KeepAll => None,
        });
        let qos = keeping.unwrap_or(offered);
        let writer = Writer::new(participant, &topic, &type_name, &qos)?;
        announcement.add(EndpointKind::Writer, writer.gid());
        Ok(Self {
            topic: request.topic.clone(),
            kept_max,
            writer,
            announcement: Arc::clone(announcement),
            since_request: (0, 0),
        })
    }

    /// Requests acknowledgements now and then, so that kept messages can be released: Cyclone requests none during a stream.
    fn request_acknowledgement(&mut self, len: usize) {
        let (messages, bytes) = (self.since_request.0 + 1, self.since_request.1.saturating_add(len));
        self.since_request = (messages, bytes);
        if messages >= REQUEST_EVERY || bytes >= REQUEST_EVERY_BYTES {
            self.since_request = (0, 0);
            self.writer.request_acknowledgement();
        }
    }

    fn refused(&self, reason: String) -> TransportError {
        TransportError::Publish {
            topic: self.topic.clone(),
            reason,
        }
    }
}

impl Publisher for DdsPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        // DDS reads the encapsulation header and would send garbage without one.
        if payload.len() < 4 {
            let len = payload.len();
            return Err(self.refused(format!("a serialized message has 4 bytes or more, not {len}")));
        }
        if self.kept_max.is_some() {
            self.request_acknowledgement(payload.len());
        }
        self.writer
            .write(payload)
            .map_err(|error| self.refused(error.to_string()))
    }

    fn matched_subscriptions(&self) -> usize {
        self.writer.matched()
    }

    fn delivery(&self) -> Option<Delivery> {
        let kept_max = self.kept_max?;
        let (acknowledged, reliable_subscriptions) = self.writer.acknowledged()?;
        Some(Delivery {
            acknowledged,
            subscriptions: self.writer.matched(),
            reliable_subscriptions,
            kept_max,
        })
    }

    fn wait_for_acked(&mut self, timeout: Duration) -> bool {
        let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        self.writer.wait_for_acks(nanos).unwrap_or_else(|error| {
            tracing::warn!("cannot wait for acknowledgements on {}: {error}", self.topic);
            false
        })
    }
}

impl Drop for DdsPublisher {
    fn drop(&mut self) {
        self.announcement.remove(EndpointKind::Writer, self.writer.gid());
    }
}
