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

/// The messages that a subscription brings.
pub(crate) enum Brought {
    /// Messages of the topic.
    Own,
    /// Messages that other transports may bring, too: those that another one has brought are left out, and counted at stage `policy`.
    Merged { transport: usize, merging: Arc<Merging> },
    /// Messages of publishers of another type: counted as lost unless `is_kept`.
    OtherType { type_name: Arc<str>, is_kept: bool },
}

/// The sink of one of a topic's subscriptions.
pub(super) struct SubscriptionSink {
    pub(super) intake: Arc<Intake>,
    pub(super) bit: u64,
    pub(super) brought: Brought,
}

impl Sink for SubscriptionSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let left_out = match &self.brought {
            Brought::Own => None,
            Brought::Merged { transport, merging } => merging
                .is_duplicate(*transport, &header, &payload)
                .then_some(LossStage::Policy),
            Brought::OtherType { type_name, is_kept } => {
                // Before its first message is offered: messages may come before discovery has reported their publisher.
                self.intake.publisher_of_type(header.publisher, type_name);
                (!is_kept).then_some(LossStage::AnotherType)
            }
        };
        self.intake
            .take(self.bit, header, left_out.map_or(Ok(payload), Err));
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.intake.announce(publisher, last_sequence);
    }
}
