//! Subscriptions of a memory network: delivery to sinks, small payloads borrowed, large ones lent in slices.

use super::network::{Kept, MemoryNetwork, Offer, Request, State, TransportId};
use crate::{EndpointInfo, GraphEvent, Sink, SubscribeRequest, Subscription};
use holdall_io::mutex::lock;
use holdall_io::{
    clock::Clock,
    survivor::{ReceivedBytes, Region},
};
use holdall_model::{
    message::{Kept as LoanKept, Loan, MessageHeader, Payload},
    qos::Reliability,
    topic::{Gid, NodeName},
};
use std::sync::{Arc, Mutex};

/// Payloads of at least this size are lent, as by the DDS transport.
const LOAN_BYTES_MIN: usize = 64 << 10;

/// Longest slice of a loan; short enough that a test's loan has several.
const SLICE_BYTES_MAX: usize = 16_000;

/// A payload that is shared with the network.
struct SharedLoan(Arc<[u8]>);

impl Loan for SharedLoan {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.0.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.0.chunks(SLICE_BYTES_MAX).for_each(visit);
    }
}

/// A payload in buffers of a region, as that of a received DDS message.
struct BufferLoan {
    received: Arc<ReceivedBytes>,
    len: usize,
}

impl Loan for BufferLoan {
    fn len(&self) -> usize {
        self.len
    }

    fn pinned_bytes(&self) -> usize {
        self.received.pinned_bytes()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.received.pieces().for_each(visit);
    }

    fn keep(&self) -> Option<LoanKept> {
        Some(Arc::clone(&self.received) as LoanKept)
    }
}

/// The path to one sink, closed when its subscription ends.
pub(super) struct Delivery {
    /// Held during a call, so that the subscription's end waits for it.
    sink: Mutex<Option<Arc<dyn Sink>>>,
    clock: Arc<dyn Clock>,
    /// Memory for large payloads; `None` for the heap.
    region: Mutex<Option<Region>>,
}

impl Delivery {
    /// See [`MemoryNetwork::receive_into`].
    pub fn receive_into(&self, region: &Region) {
        *lock(&self.region) = Some(region.clone());
    }

    fn loan(&self, payload: &Arc<[u8]>) -> Box<dyn Loan> {
        let region = lock(&self.region);
        let received = region
            .as_ref()
            .and_then(|region| region.receive(payload, SLICE_BYTES_MAX));
        match received {
            Some(received) => Box::new(BufferLoan {
                received: Arc::new(received),
                len: payload.len(),
            }),
            None => Box::new(SharedLoan(Arc::clone(payload))),
        }
    }

    /// Stamps a message and passes it to the sink.
    pub fn deliver(&self, kept: &Kept) {
        let sink = lock(&self.sink);
        let Some(sink) = &*sink else { return };
        let header = MessageHeader {
            log_time: self.clock.now(),
            ..kept.header
        };
        if kept.payload.len() >= LOAN_BYTES_MIN {
            sink.offer(header, Payload::Loaned(self.loan(&kept.payload)));
        } else {
            sink.offer(header, Payload::Borrowed(&kept.payload));
        }
    }

    /// Passes an announcement to the sink.
    pub fn announce(&self, publisher: Gid, last_sequence: u64) {
        if let Some(sink) = &*lock(&self.sink) {
            sink.announced(publisher, last_sequence);
        }
    }

    fn close(&self) {
        *lock(&self.sink) = None;
    }
}

/// A subscription; dropping it ends it.
pub(super) struct MemorySubscription {
    network: MemoryNetwork,
    gid: Gid,
}

impl MemorySubscription {
    /// Subscribes, and delivers the messages that transient-local publishers have kept.
    pub fn new(
        network: &MemoryNetwork,
        owner: TransportId,
        node: &NodeName,
        clock: &Arc<dyn Clock>,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let delivery = Arc::new(Delivery {
            sink: Mutex::new(Some(sink)),
            clock: Arc::clone(clock),
            region: Mutex::new(None),
        });
        let mut state = network.state();
        let info = EndpointInfo {
            gid: state.new_gid(),
            topic: request.topic.clone(),
            type_name: request.type_name.clone(),
            type_hash: None,
            qos: request.qos,
            node: Some(node.clone()),
            ..EndpointInfo::default()
        };
        let gid = info.gid;
        let earlier: Vec<_> = state
            .offers
            .values()
            .filter(|offer| State::matches(&offer.info, &info))
            .flat_map(|offer| offer.history.for_late(&info.qos))
            .collect();
        state.notify(Some(owner), &GraphEvent::Subscription(info.clone()));
        state.requests.insert(
            gid,
            Request {
                owner,
                info,
                delivery: Arc::clone(&delivery),
            },
        );
        drop(state);
        earlier.iter().for_each(|kept| delivery.deliver(kept));
        Self {
            network: network.clone(),
            gid,
        }
    }
}

impl Subscription for MemorySubscription {
    fn matched_publishers(&self) -> usize {
        let state = self.network.state();
        let Some(request) = state.requests.get(&self.gid) else {
            return 0;
        };
        let offers = state.offers.values();
        offers
            .filter(|offer| State::matches(&offer.info, &request.info))
            .count()
    }

    fn announced_sequences(&self) -> Vec<(Gid, u64)> {
        let state = self.network.state();
        let Some(request) = state.requests.get(&self.gid) else {
            return Vec::new();
        };
        // A publisher that has sent nothing announces nothing, as over DDS: its next message may still come before the
        // match.
        let offers = state.offers.values().filter(|offer| offer.sequence > 0);
        let heard = offers.filter(|offer| hears(&request.info, offer));
        heard.map(|offer| (offer.info.gid, offer.sequence)).collect()
    }

    fn has_answered(&self, publisher: Gid) -> bool {
        let state = self.network.state();
        let request = state.requests.get(&self.gid);
        let offer = state.offers.get(&publisher);
        request
            .zip(offer)
            .is_some_and(|(request, offer)| hears(&request.info, offer))
    }
}

/// Whether a subscription receives a publisher's announcements.
fn hears(request: &EndpointInfo, offer: &Offer) -> bool {
    let is_reliable = |info: &EndpointInfo| info.qos.reliability == Reliability::Reliable;
    !offer.is_cut && is_reliable(request) && is_reliable(&offer.info) && State::matches(&offer.info, request)
}

impl Drop for MemorySubscription {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let Some(request) = state.requests.remove(&self.gid) else {
            return;
        };
        state.notify(Some(request.owner), &GraphEvent::SubscriptionGone(self.gid));
        drop(state);
        request.delivery.close();
    }
}
