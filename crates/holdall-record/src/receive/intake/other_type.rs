//! Publishers whose type is not their topic's: their identities, and the sink of the subscription that receives them.

use super::Intake;
use holdall_model::{
    loss::LossStage,
    message::{MessageHeader, Payload},
    topic::Gid,
};
use holdall_transport::Sink;
use std::{collections::HashMap, sync::Arc};

/// By publisher: the type. Nearly always empty, so it takes one word.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "a word in the line of each topic that the receive path reads, instead of six"
)]
pub(super) struct OtherTypes(Option<Box<HashMap<Option<Gid>, Arc<str>>>>);

impl OtherTypes {
    /// A publisher's type, if it is not the topic's.
    pub(super) fn of(&self, publisher: Option<Gid>) -> Option<&str> {
        Some(&**self.0.as_ref()?.get(&publisher)?)
    }

    /// Forgets a publisher that is gone.
    pub(super) fn forget(&mut self, publisher: Gid) {
        if let Some(types) = &mut self.0 {
            types.remove(&Some(publisher));
        }
    }

    /// Remembers a publisher's type; false if it is known.
    fn add(&mut self, publisher: Option<Gid>, type_name: &Arc<str>) -> bool {
        if self.of(publisher) == Some(&**type_name) {
            return false;
        }
        let types = self.0.get_or_insert_default();
        types.insert(publisher, Arc::clone(type_name));
        true
    }
}

impl Intake {
    /// Sets that a publisher has another type than the topic, before or after its first message.
    pub(crate) fn publisher_of_type(&self, publisher: Option<Gid>, type_name: &Arc<str>) {
        let mut state = self.lock();
        if !state.other_types.add(publisher, type_name) {
            return;
        }
        // A new track is given its type when it is made.
        if let Some(place) = state.by_gid.get(&publisher).copied() {
            let index = state.tracks[place].index;
            self.ledger().set_publisher_type(self.topic, index, type_name);
        }
    }

    /// As [`Intake::sink`], for a subscription to publishers of another type. Their messages are counted as lost unless `is_kept`.
    pub(crate) fn sink_of_type(
        self: &Arc<Self>,
        number: usize,
        type_name: &Arc<str>,
        is_kept: bool,
    ) -> Arc<dyn Sink> {
        Arc::new(OtherTypeSink {
            intake: Arc::clone(self),
            bit: 1 << number.min(63),
            type_name: Arc::clone(type_name),
            is_kept,
        })
    }
}

/// The sink of a subscription to another type. It sets the type of each publisher before its first message is offered, as messages
/// may come before discovery has reported who sends them.
struct OtherTypeSink {
    intake: Arc<Intake>,
    bit: u64,
    type_name: Arc<str>,
    is_kept: bool,
}

impl Sink for OtherTypeSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        self.intake.publisher_of_type(header.publisher, &self.type_name);
        let payload = if self.is_kept {
            Ok(payload)
        } else {
            Err(LossStage::AnotherType)
        };
        self.intake.take(self.bit, header, payload);
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.intake.announce(publisher, last_sequence);
    }
}
