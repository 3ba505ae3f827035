//! Publishers: serialized messages to a topic, byte for byte.

use super::{discovery::OwnPublishers, ffi_entity::RawPublisher, structures::Typed};
use crate::{Publisher, TransportError};
use holdall_model::topic::Gid;
use std::time::Duration;

/// A publisher of a topic.
pub(super) struct RmwPublisher {
    pub topic: String,
    pub raw: RawPublisher,
    /// The serializer, if messages leave as structures.
    pub typed: Option<Typed>,
    pub own: OwnPublishers,
}

impl Publisher for RmwPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        let refused = |reason: String| TransportError::Publish {
            topic: self.topic.clone(),
            reason,
        };
        // Implementations read the encapsulation header without a look at the length.
        if payload.len() < 4 {
            let len = payload.len();
            return Err(refused(format!(
                "a serialized message has 4 bytes or more, not {len}"
            )));
        }
        let Some(typed) = &mut self.typed else {
            return self.raw.publish(payload).map_err(refused);
        };
        let number = typed.number_of(payload).map_err(refused)?;
        typed.structure.publish(&self.raw, number).map_err(refused)
    }

    fn matched_subscriptions(&self) -> usize {
        self.raw.matched()
    }

    fn wait_for_acked(&mut self, timeout: Duration) -> bool {
        self.raw.wait_for_acked(timeout).unwrap_or_else(|reason| {
            tracing::debug!("cannot wait for acknowledgements on {}: {reason}", self.topic);
            true
        })
    }
}

impl Drop for RmwPublisher {
    fn drop(&mut self) {
        self.own.remove(Gid(self.raw.gid));
    }
}
