//! Sinks that transports deliver to: the intake by one of its subscriptions, with messages that several transports bring recognised.

use super::Intake;
use crate::receive::merging::Merging;
use holdall_model::{
    loss::LossStage,
    message::{MessageHeader, Payload},
    topic::Gid,
};
use holdall_transport::Sink;
use std::sync::Arc;

/// A further subscription's sink.
pub(super) struct SubscriptionSink {
    pub(super) intake: Arc<Intake>,
    pub(super) bit: u64,
}

impl Sink for SubscriptionSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        self.intake.receive(self.bit, header, payload);
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.intake.announce(publisher, last_sequence);
    }
}

/// The sink for a topic that several transports may bring.
pub(super) struct MergingSink {
    pub(super) intake: Arc<Intake>,
    pub(super) bit: u64,
    pub(super) transport: usize,
    pub(super) merging: Arc<Merging>,
}

impl Sink for MergingSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let is_duplicate = self.merging.is_duplicate(self.transport, &header, &payload);
        let payload = if is_duplicate {
            Err(LossStage::Policy)
        } else {
            Ok(payload)
        };
        self.intake.take(self.bit, header, payload);
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.intake.announce(publisher, last_sequence);
    }
}
