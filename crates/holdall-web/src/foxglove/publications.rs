//! Publications of viewers.

use super::protocol::ClientChannel;
use holdall_model::{interface::bundle::Bundle, qos::QosProfile};
use holdall_transport::{PublishRequest, Publisher, Transport};
use std::collections::BTreeMap;

/// Publishers of all viewers.
const PUBLISHERS_MAX: usize = 256;

/// The publishers of all viewers, by viewer and its channel.
#[derive(Default)]
pub(super) struct Publications(BTreeMap<(u64, u32), Box<dyn Publisher>>);

impl Publications {
    /// A viewer begins to publish, over the first transport.
    pub(super) fn begin(
        &mut self,
        transports: &mut [Box<dyn Transport>],
        client: u64,
        channel: ClientChannel,
    ) {
        if self.0.len() >= PUBLISHERS_MAX {
            tracing::warn!(
                "viewers publish on {PUBLISHERS_MAX} topics already; {} is refused",
                channel.topic
            );
            return;
        }
        let hash = Bundle::embedded()
            .type_hash(&channel.schema_name)
            .map(str::to_owned);
        let request = PublishRequest {
            topic: channel.topic,
            type_name: channel.schema_name,
            type_hash: hash,
            qos: QosProfile::ROS_DEFAULT,
            ..PublishRequest::default()
        };
        let Some(transport) = transports.first_mut() else {
            return;
        };
        match transport.publish(&request) {
            Ok(publisher) => drop(self.0.insert((client, channel.id), publisher)),
            Err(error) => tracing::warn!("a viewer cannot publish: {error}"),
        }
    }

    /// Publishes a message of a viewer.
    pub(super) fn publish(&mut self, client: u64, channel: u32, payload: &[u8]) {
        if let Some(publisher) = self.0.get_mut(&(client, channel))
            && let Err(error) = publisher.publish(payload)
        {
            tracing::warn!("a viewer's message is not published: {error}");
        }
    }

    /// A viewer stops publishing on a channel.
    pub(super) fn end(&mut self, client: u64, channel: u32) {
        self.0.remove(&(client, channel));
    }

    /// A viewer is gone.
    pub(super) fn forget(&mut self, client: u64) {
        self.0.retain(|(of, _), _| *of != client);
    }
}
