//! Publishers of a memory network: plain ones, and the actions that a script can make them do.

use super::network::{Kept, MemoryNetwork, State};
use crate::{GraphEvent, Publisher, TransportError};
use holdall_io::clock::Clock;
use holdall_model::{message::MessageHeader, time::Timestamp, topic::Gid};
use std::{sync::Arc, time::Duration};

/// A publisher; dropping it ends it.
pub struct MemoryPublisher {
    network: MemoryNetwork,
    gid: Gid,
    clock: Arc<dyn Clock>,
}

impl MemoryPublisher {
    pub(super) fn new(network: MemoryNetwork, gid: Gid, clock: Arc<dyn Clock>) -> Self {
        Self { network, gid, clock }
    }

    /// Its identifier.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Sends a message stamped by the publisher's clock.
    pub fn send(&self, payload: &[u8]) {
        self.send_at(payload, self.clock.now());
    }

    /// Sends a message with this publish time.
    pub fn send_at(&self, payload: &[u8], publish_time: Timestamp) {
        let payload: Arc<[u8]> = payload.into();
        let mut state = self.network.state();
        let Some(offer) = state.offers.get_mut(&self.gid) else {
            return;
        };
        offer.sequence += 1;
        let header = MessageHeader {
            publisher: Some(self.gid),
            sequence: Some(offer.sequence),
            publish_time: Some(publish_time),
            log_time: publish_time,
        };
        let kept = Kept { header, payload };
        offer.history.push(kept.clone());
        if offer.is_cut {
            return;
        }
        let info = offer.info.clone();
        let deliveries: Vec<_> = state
            .requests
            .values()
            .filter(|request| State::matches(&info, &request.info))
            .map(|request| Arc::clone(&request.delivery))
            .collect();
        // Sinks may use the network themselves.
        drop(state);
        deliveries.iter().for_each(|delivery| delivery.deliver(&kept));
    }

    /// Uses up sequence numbers as if `count` messages had been sent and lost in flight.
    pub fn lose(&self, count: u64) {
        if let Some(offer) = self.network.state().offers.get_mut(&self.gid) {
            offer.sequence += count;
        }
    }

    /// Loses its link: it sends on, and nothing of that arrives, its farewell neither.
    pub fn cut(&self) {
        if let Some(offer) = self.network.state().offers.get_mut(&self.gid) {
            offer.is_cut = true;
        }
    }

    /// Lets its lease expire: the others do not hear it any more, without a farewell.
    pub fn expire(&self) {
        self.cut();
        let state = &mut *self.network.state();
        if let Some(owner) = state.offers.get(&self.gid).map(|offer| offer.owner) {
            let since = Some(self.clock.now());
            state.notify(owner, &GraphEvent::PublisherSilent { gid: self.gid, since });
        }
    }

    /// Announces the last sequence number to the sinks, as a HEARTBEAT does.
    pub fn announce(&self) {
        let state = self.network.state();
        let Some(offer) = state.offers.get(&self.gid).filter(|offer| !offer.is_cut) else {
            return;
        };
        let last = offer.sequence;
        let deliveries: Vec<_> = state
            .requests
            .values()
            .filter(|request| State::matches(&offer.info, &request.info))
            .map(|request| Arc::clone(&request.delivery))
            .collect();
        drop(state);
        deliveries
            .iter()
            .for_each(|delivery| delivery.announce(self.gid, last));
    }
}

impl Publisher for MemoryPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        self.send(payload);
        Ok(())
    }

    fn matched_subscriptions(&self) -> usize {
        let state = self.network.state();
        let Some(offer) = state.offers.get(&self.gid) else {
            return 0;
        };
        state
            .requests
            .values()
            .filter(|request| State::matches(&offer.info, &request.info))
            .count()
    }

    fn wait_for_acked(&mut self, _timeout: Duration) -> bool {
        // Sending returns after delivery.
        true
    }
}

impl Drop for MemoryPublisher {
    fn drop(&mut self) {
        let mut state = self.network.state();
        if let Some(offer) = state.offers.remove(&self.gid)
            && !offer.is_cut
        {
            state.notify(offer.owner, &GraphEvent::PublisherGone(self.gid));
        }
    }
}
