//! State that the participants of a memory network share: endpoints, matches, events not yet polled.

use super::{
    discovery::Inbox,
    publisher::MemoryPublisher,
    qos::History,
    service::{Calling, Offered},
    subscription::Delivery,
};
use crate::{EndpointInfo, GraphEvent, GraphWake, PublishRequest, TypeDescriptionReply, TypeSource};
use holdall_io::mutex::lock;
use holdall_io::{clock::Clock, survivor::Region};
use holdall_model::{
    message::MessageHeader,
    qos::is_compatible,
    topic::{Gid, NodeName},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

/// A participant's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TransportId(u64);

/// A publisher of the network.
pub(super) struct Offer {
    pub owner: Option<TransportId>,
    pub info: EndpointInfo,
    /// Last sequence number that was used.
    pub sequence: u64,
    /// Its link is lost: none of its messages arrive.
    pub is_cut: bool,
    /// Messages for late subscriptions.
    pub history: History,
}

/// A subscription of the network.
pub(super) struct Request {
    pub owner: TransportId,
    pub info: EndpointInfo,
    pub delivery: Arc<Delivery>,
}

/// A message that is kept for late subscriptions.
#[derive(Clone)]
pub(super) struct Kept {
    pub header: MessageHeader,
    pub payload: Arc<[u8]>,
}

#[derive(Default)]
pub(super) struct State {
    next_id: u64,
    inboxes: BTreeMap<TransportId, Inbox>,
    pub offers: BTreeMap<Gid, Offer>,
    pub requests: BTreeMap<Gid, Request>,
    pub servers: BTreeMap<Gid, Offered>,
    pub clients: BTreeMap<Gid, Calling>,
    descriptions: HashMap<(NodeName, String), Result<Vec<TypeSource>, String>>,
    failure: Option<String>,
}

impl State {
    /// Reports an event to every participant but `owner`.
    pub fn notify(&mut self, owner: Option<TransportId>, event: &GraphEvent) {
        for (id, inbox) in &mut self.inboxes {
            if Some(*id) != owner {
                inbox.notify(event.clone());
            }
        }
    }

    /// A GUID that is not used yet.
    pub(crate) fn new_gid(&mut self) -> Gid {
        self.next_id += 1;
        let mut gid = [0; 16];
        gid[8..].copy_from_slice(&self.next_id.to_be_bytes());
        Gid(gid)
    }

    /// Whether an offer and a request match.
    pub fn matches(offer: &EndpointInfo, request: &EndpointInfo) -> bool {
        offer.topic == request.topic
            && offer.type_name == request.type_name
            && is_compatible(&offer.qos, &request.qos)
    }
}

/// A network inside this process; clones are the same network.
#[derive(Clone, Default)]
pub struct MemoryNetwork(Arc<Mutex<State>>);

impl MemoryNetwork {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }

    /// A publisher of a node without a separate transport, for scripts.
    pub fn publisher(
        &self,
        node: &NodeName,
        request: &PublishRequest,
        clock: &Arc<dyn Clock>,
    ) -> MemoryPublisher {
        self.publisher_of(None, node, request, clock)
    }

    /// Makes a node answer requests for a type from now on, including those already sent.
    pub fn describe(&self, node: &NodeName, type_name: &str, sources: Result<Vec<TypeSource>, String>) {
        self.state()
            .descriptions
            .insert((node.clone(), type_name.to_owned()), sources);
    }

    /// Requests for types that have no answer yet, of all participants.
    pub fn open_questions(&self) -> usize {
        self.state()
            .inboxes
            .values()
            .map(|inbox| inbox.questions.len())
            .sum()
    }

    /// Makes [`crate::Transport::poll_graph`] of all participants fail from now on.
    pub fn fail(&self, reason: &str) {
        self.state().failure = Some(reason.to_owned());
    }

    /// Large payloads are in buffers of this region from now on, in pieces, as DDS receives them.
    pub fn receive_into(&self, region: &Region) {
        let deliveries: Vec<_> = self
            .state()
            .requests
            .values()
            .map(|request| Arc::clone(&request.delivery))
            .collect();
        for delivery in deliveries {
            delivery.receive_into(region);
        }
    }

    pub(super) fn publisher_of(
        &self,
        owner: Option<TransportId>,
        node: &NodeName,
        request: &PublishRequest,
        clock: &Arc<dyn Clock>,
    ) -> MemoryPublisher {
        let mut state = self.state();
        let info = EndpointInfo {
            gid: state.new_gid(),
            topic: request.topic.clone(),
            type_name: request.type_name.clone(),
            type_hash: request.type_hash.clone(),
            qos: request.qos,
            node: Some(node.clone()),
            ..EndpointInfo::default()
        };
        let gid = info.gid;
        state.notify(owner, &GraphEvent::Publisher(info.clone()));
        state.offers.insert(
            gid,
            Offer {
                owner,
                history: History::of(&info.qos),
                info,
                sequence: 0,
                is_cut: false,
            },
        );
        drop(state);
        MemoryPublisher::new(self.clone(), gid, Arc::clone(clock))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    pub(super) fn join(&self) -> TransportId {
        let mut state = self.state();
        state.next_id += 1;
        let id = TransportId(state.next_id);
        let publishers = state
            .offers
            .values()
            .map(|offer| GraphEvent::Publisher(offer.info.clone()));
        let subscriptions = state
            .requests
            .values()
            .map(|request| GraphEvent::Subscription(request.info.clone()));
        let servers = state
            .servers
            .values()
            .map(|offered| GraphEvent::Server(offered.info.clone()));
        let events = publishers.chain(subscriptions).chain(servers).collect();
        state.inboxes.insert(
            id,
            Inbox {
                events,
                ..Inbox::default()
            },
        );
        id
    }

    pub(super) fn leave(&self, id: TransportId) {
        self.state().inboxes.remove(&id);
    }

    /// Appends the events not yet polled; returns why the network has failed, when it has.
    pub(super) fn take_events(&self, id: TransportId, events: &mut Vec<GraphEvent>) -> Option<String> {
        let mut state = self.state();
        if let Some(inbox) = state.inboxes.get_mut(&id) {
            events.append(&mut inbox.events);
        }
        state.failure.clone()
    }

    /// Calls `wake` whenever there are new events for a participant.
    pub(super) fn wake_on_events(&self, id: TransportId, wake: GraphWake) {
        if let Some(inbox) = self.state().inboxes.get_mut(&id) {
            if !inbox.events.is_empty() {
                wake();
            }
            inbox.wake = Some(wake);
        }
    }

    /// Whether there are events that a participant has not polled yet.
    pub(super) fn has_events(&self, id: TransportId) -> bool {
        let state = self.state();
        let inbox = state.inboxes.get(&id);
        inbox.is_some_and(|inbox| !inbox.events.is_empty())
    }

    pub(super) fn ask(&self, id: TransportId, node: &NodeName, type_name: &str, type_hash: &str) {
        if let Some(inbox) = self.state().inboxes.get_mut(&id) {
            inbox.ask(node, type_name, type_hash);
        }
    }

    pub(super) fn take_replies(&self, id: TransportId, replies: &mut Vec<TypeDescriptionReply>) {
        let mut state = self.state();
        let State {
            inboxes,
            descriptions,
            ..
        } = &mut *state;
        if let Some(inbox) = inboxes.get_mut(&id) {
            inbox.answer(descriptions, replies);
        }
    }
}
