//! Where a subscription of the bridge delivers.

use super::{hub::Channel, sim_time::SimTime};
use holdall_model::message::{MessageHeader, Payload};
use holdall_transport::Sink;
use std::sync::Arc;

/// Where a subscription delivers: to the viewers' queues, which never wait.
pub(super) struct ChannelSink {
    pub channel: Arc<Channel>,
    /// Among the channel's.
    pub subscription: u64,
    /// Messages get its time, if known.
    pub sim_time: Option<Arc<SimTime>>,
}

impl Sink for ChannelSink {
    fn offer(&self, mut header: MessageHeader, payload: Payload<'_>) {
        if let Some(now) = self.sim_time.as_ref().and_then(|time| time.now()) {
            header.log_time = now;
        }
        self.channel.feed().offer(self.subscription, &header, payload);
    }
}
