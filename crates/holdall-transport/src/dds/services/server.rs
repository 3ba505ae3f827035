//! Services over DDS, for nodes on Fast DDS and on Cyclone DDS.
//!
//! Requests go to `rq/<service>Request`, replies to `rr/<service>Reply`, which all servers and clients of a service share. The two families of rmw
//! mark the client of a reply in two ways: rmw_fastrtps by the *related sample identity* of a reply ([`crate::dds::wire::reply_identity`]), rmw_cyclonedds by a
//! header in the payload ([`crate::dds::wire::service_header`]). A client of the latter has `clientid=` in the user data of its request writer; a server is
//! known by `serviceid=` in that of its reply writer. The vendor in an endpoint's identifier is not enough: in a secured domain identifiers are made
//! from certificates.

use super::{
    inbox::{Arrived, Inbox, InboxHandler},
    other_types::OtherTypes,
};
use crate::dds::{
    ffi::{
        entity::{DdsError, Participant, Reader, Writer},
        service::{matched_readers, matched_writers},
    },
    graph::announcement::{EndpointKind, NodeAnnouncement},
    settings::qos::{DdsHistory, DdsQos, type_hash_in},
    wire::{
        reply_identity::{ReplyIdentities, RequestIdentity},
        service_header::{client_id, header, header_of, parts, unwrapped, wrapped},
    },
};
use crate::{
    LayoutReplies, RequestId, SERVICE_WAITING_MAX, ServiceClient, ServiceDescription, ServiceReply,
    ServiceRequest, ServiceServer, ServiceWake, TransportError,
    service::{Wrapping, check_payload, service_error},
};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    names::dds::{service_reply_to_dds, service_request_to_dds, type_to_dds},
    topic::Gid,
};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// How long a reply waits for a reader of its client.
const CLIENT_WAIT: Duration = Duration::from_secs(1);

/// How long a request or a reply may wait for slow readers of others.
const WRITE_BLOCK_NANOS: i64 = 50_000_000;

/// Requests and replies that are kept until they are acknowledged; rmw keeps 10.
const KEPT: u32 = 256;

/// Clients whose request writer is remembered.
const CLIENTS_MAX: usize = 4096;

/// Most of our requests that may still get a reply.
const OPEN_MAX: usize = 4096;

/// `rmw_qos_profile_services_default`, with more that may wait.
fn service_qos(user_data: &str) -> DdsQos {
    DdsQos {
        reliable: true,
        max_blocking_nanos: WRITE_BLOCK_NANOS,
        history: DdsHistory::KeepLast(KEPT),
        user_data: user_data.as_bytes().to_vec(),
        ..DdsQos::default()
    }
}

/// User data of a service's endpoints: `<key>=<16 numbers>;`, and the hash of the service's type.
fn user_data(participant: Gid, key: &str, service: &ServiceDescription) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let id: Vec<String> = participant.0[..12]
        .iter()
        .chain(&number)
        .map(|byte| format!("{byte:x}"))
        .collect();
    let mut text = format!("{key}={};", id.join("."));
    if let Some(hash) = &service.type_hash {
        let _ = write!(text, "typehash={hash};");
    }
    text
}

/// The two endpoints of a service or a client.
struct Endpoints {
    reader: Reader,
    writer: Writer,
    announcement: Option<Arc<NodeAnnouncement>>,
}

impl Endpoints {
    fn announce(&self) {
        if let Some(announcement) = &self.announcement {
            announcement.add(EndpointKind::Reader, self.reader.gid());
            announcement.add(EndpointKind::Writer, self.writer.gid());
        }
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        if let Some(announcement) = &self.announcement {
            announcement.remove(EndpointKind::Reader, self.reader.gid());
            announcement.remove(EndpointKind::Writer, self.writer.gid());
        }
    }
}

/// Names and types of both topics of a service: requests, replies.
fn topics(service: &ServiceDescription) -> [(String, String); 2] {
    let of = |topic: fn(&str) -> String, end: &str| {
        (
            topic(&service.name),
            type_to_dds(&format!("{}_{end}", service.type_name)),
        )
    };
    [
        of(service_request_to_dds, "Request"),
        of(service_reply_to_dds, "Response"),
    ]
}

/// Whether two endpoints are of one participant.
fn is_same_participant(one: Gid, other: Gid) -> bool {
    one.0[..12] == other.0[..12]
}

/// A reply whose client does not hear us yet.
struct Held {
    id: RequestId,
    replies: LayoutReplies,
    until: Duration,
}

/// What the request writer of a client announces.
#[derive(Clone, Default)]
struct RequestWriter {
    has_header: bool,
    type_hash: Option<String>,
}

/// A service.
pub(in crate::dds) struct DdsServer {
    name: String,
    inbox: Arc<Inbox>,
    endpoints: Endpoints,
    // Dropped after the writer, which may repeat replies until then.
    identities: ReplyIdentities,
    clients: HashMap<Gid, RequestWriter>,
    written: u64,
    /// The log has named clients that get no replies.
    is_warned: bool,
    other_types: OtherTypes,
    held: VecDeque<Held>,
    clock: Arc<dyn Clock>,
}

impl DdsServer {
    /// Offers a service under our node.
    pub(in crate::dds) fn new(
        participant: &Arc<Participant>,
        announcement: &Arc<NodeAnnouncement>,
        service: &ServiceDescription,
        wake: ServiceWake,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, DdsError> {
        let [requests, replies] = topics(service);
        let user_data = user_data(participant.gid(), "serviceid", service);
        let inbox = Inbox::new(wake);
        // The writer first: a client sends as soon as it sees the reader.
        let writer = Writer::new(participant, &replies.0, &replies.1, &service_qos(&user_data))?;
        let identities = ReplyIdentities::of(writer.gid());
        let qos = DdsQos {
            history: DdsHistory::KeepAll,
            ignores_own: true,
            ..service_qos(&user_data)
        };
        let handler = InboxHandler {
            inbox: Arc::clone(&inbox),
            is_ours: Box::new(|_| true),
        };
        let reader = Reader::new(
            participant,
            &requests.0,
            &requests.1,
            &qos,
            Some(Box::new(handler)),
        )?;
        let endpoints = Endpoints {
            reader,
            writer,
            announcement: Some(Arc::clone(announcement)),
        };
        endpoints.announce();
        Ok(Self {
            name: service.name.clone(),
            inbox,
            endpoints,
            identities,
            clients: HashMap::new(),
            written: 0,
            is_warned: false,
            other_types: OtherTypes::default(),
            held: VecDeque::new(),
            clock: Arc::clone(clock),
        })
    }

    fn request_writer(&mut self, client: Gid) -> RequestWriter {
        if let Some(known) = self.clients.get(&client) {
            return known.clone();
        }
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.clear();
        }
        for (writer, user_data) in matched_writers(&self.endpoints.reader) {
            let announced = RequestWriter {
                has_header: user_data.windows(9).any(|part| part == b"clientid="),
                type_hash: type_hash_in(&user_data),
            };
            self.clients.insert(writer, announced);
        }
        // A client that is already gone gets no reply.
        self.clients.get(&client).cloned().unwrap_or_default()
    }

    fn request(&mut self, arrived: Arrived) -> Option<ServiceRequest> {
        let (wrapping, payload) = if self.request_writer(arrived.from).has_header {
            let Some((header, payload)) = unwrapped(arrived.payload) else {
                tracing::warn!("{}: a request of {} is too short", self.name, arrived.from);
                return None;
            };
            (Wrapping::Header(header), payload)
        } else {
            (Wrapping::Bare, arrived.payload)
        };
        let id = RequestId {
            client: arrived.from,
            number: arrived.sequence,
            wrapping,
        };
        Some(ServiceRequest { id, payload })
    }

    /// The type hashes that a client's endpoints announce; `None` while it cannot hear a reply.
    fn hashes_of(&mut self, client: Gid) -> Option<Vec<String>> {
        let mut readers = matched_readers(&self.endpoints.writer);
        readers.retain(|(reader, _)| is_same_participant(*reader, client));
        if readers.is_empty() {
            return None;
        }
        let of_readers = readers
            .iter()
            .filter_map(|(_, user_data)| type_hash_in(user_data));
        let of_writer = self.request_writer(client).type_hash;
        Some(of_readers.chain(of_writer).collect())
    }

    /// Sends a reply in the client's layout, unless the client cannot hear it yet.
    fn try_write(&mut self, id: &RequestId, replies: &LayoutReplies) -> Option<Result<(), TransportError>> {
        let hashes = self.hashes_of(id.client)?;
        let hashes = || hashes.iter().map(String::as_str);
        self.other_types
            .note(&self.name, id.client, replies.unknown(hashes()));
        Some(self.write(id, replies.for_client(hashes())))
    }

    fn write(&mut self, id: &RequestId, payload: &[u8]) -> Result<(), TransportError> {
        let next = self.written + 1;
        let is_bare = id.wrapping == Wrapping::Bare;
        if is_bare {
            self.warn_of_lost_replies();
            let request = RequestIdentity {
                client: id.client,
                sequence: id.number,
            };
            self.identities.add(next, request);
        }
        let written = self.endpoints.writer.write(&wrapped(payload, id.wrapping));
        match written {
            Ok(()) => {
                self.written = next;
                Ok(())
            }
            Err(error) => {
                self.identities.remove(next);
                Err(service_error(&self.name, error.to_string()))
            }
        }
    }

    /// A protected packet cannot be changed when it leaves.
    fn warn_of_lost_replies(&mut self) {
        if self.endpoints.writer.participant().is_secured() && !std::mem::replace(&mut self.is_warned, true) {
            tracing::warn!(
                "{}: a client on Fast DDS calls it, which gets replies in a secured domain only where the governance protects neither \
                 submessages nor whole packets",
                self.name
            );
        }
    }

    fn send_held(&mut self) {
        let now = self.clock.monotonic();
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else { return };
            match self.try_write(&held.id, &held.replies) {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::warn!("a reply is lost: {error}"),
                None if now >= held.until => {
                    tracing::debug!("{}: {} is gone before its reply", self.name, held.id.client);
                }
                None => self.held.push_back(held),
            }
        }
    }
}

impl ServiceServer for DdsServer {
    fn poll(&mut self, requests: &mut Vec<ServiceRequest>) {
        self.send_held();
        for arrived in self.inbox.take() {
            let request = self.request(arrived);
            requests.extend(request);
        }
    }

    fn reply(&mut self, id: &RequestId, replies: &LayoutReplies) -> Result<(), TransportError> {
        check_payload(&self.name, &replies.default)?;
        if let Some(written) = self.try_write(id, replies) {
            return written;
        }
        if self.held.len() == SERVICE_WAITING_MAX
            && let Some(oldest) = self.held.pop_front()
        {
            tracing::warn!(
                "{}: a reply to {} is dropped, too many wait",
                self.name,
                oldest.id.client
            );
        }
        self.held.push_back(Held {
            id: *id,
            replies: replies.clone(),
            until: self.clock.monotonic() + CLIENT_WAIT,
        });
        Ok(())
    }

    fn has_waiting_replies(&self) -> bool {
        !self.held.is_empty()
    }

    fn take_dropped(&mut self) -> u64 {
        self.inbox.take_dropped()
    }
}

/// A client of a service.
pub(in crate::dds) struct DdsClient {
    name: String,
    inbox: Arc<Inbox>,
    endpoints: Endpoints,
    /// Our name in headers.
    id: u64,
    /// Servers whose replies have the header, found before anything is sent to them.
    with_header: Arc<Mutex<BTreeSet<Gid>>>,
    sent: u64,
    /// Numbers of requests without a reply.
    open: BTreeSet<u64>,
}

impl DdsClient {
    /// Creates a client, which is shown under our node with an `announcement`.
    pub(in crate::dds) fn new(
        participant: &Arc<Participant>,
        announcement: Option<&Arc<NodeAnnouncement>>,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Self, DdsError> {
        let [requests, replies] = topics(service);
        let user_data = user_data(participant.gid(), "clientid", service);
        let writer = Writer::new(participant, &requests.0, &requests.1, &service_qos(&user_data))?;
        let (ours, id) = (writer.gid(), client_id(writer.gid()));
        let qos = DdsQos {
            history: DdsHistory::KeepAll,
            ignores_own: true,
            ..service_qos(&user_data)
        };
        let inbox = Inbox::new(wake);
        let with_header: Arc<Mutex<BTreeSet<Gid>>> = Arc::default();
        let known = Arc::clone(&with_header);
        let is_ours = move |arrived: &Arrived| match arrived.answers {
            Some(request) => request.client == ours,
            None if lock(&known).contains(&arrived.from) => {
                header_of(&arrived.payload).is_some_and(|header| parts(header).0 == id)
            }
            None => true,
        };
        let handler = InboxHandler {
            inbox: Arc::clone(&inbox),
            is_ours: Box::new(is_ours),
        };
        let reader = Reader::new(participant, &replies.0, &replies.1, &qos, Some(Box::new(handler)))?;
        let endpoints = Endpoints {
            reader,
            writer,
            announcement: announcement.map(Arc::clone),
        };
        endpoints.announce();
        Ok(Self {
            name: service.name.clone(),
            inbox,
            endpoints,
            id,
            with_header,
            sent: 0,
            open: BTreeSet::new(),
        })
    }

    /// The writer of replies of a server that is matched both ways.
    fn server(&self) -> Option<Gid> {
        if self.endpoints.reader.matched() == 0 || self.endpoints.writer.matched() == 0 {
            return None;
        }
        let readers = matched_readers(&self.endpoints.writer);
        let hears = |writer: Gid| {
            readers
                .iter()
                .any(|(reader, _)| is_same_participant(*reader, writer))
        };
        let writers = matched_writers(&self.endpoints.reader).into_iter();
        let mut with_header = lock(&self.with_header);
        with_header.clear();
        let mut found = None;
        for (writer, user_data) in writers {
            if user_data.windows(10).any(|part| part == b"serviceid=") {
                with_header.insert(writer);
            }
            if found.is_none() && hears(writer) {
                found = Some(writer);
            }
        }
        found
    }

    /// Number and body of a reply.
    fn reply(&self, arrived: Arrived) -> Option<(u64, Vec<u8>)> {
        if let Some(request) = arrived.answers {
            return Some((request.sequence, arrived.payload));
        }
        if lock(&self.with_header).contains(&arrived.from) {
            let (header, payload) = unwrapped(arrived.payload)?;
            return Some((parts(header).1, payload));
        }
        // Other vendors: without an identity it can be known only while a single request is open.
        let number = *self.open.first()?;
        (self.open.len() == 1).then_some((number, arrived.payload))
    }
}

impl ServiceClient for DdsClient {
    fn is_ready(&mut self) -> bool {
        self.server().is_some()
    }

    fn send(&mut self, payload: &[u8]) -> Result<u64, TransportError> {
        check_payload(&self.name, payload)?;
        let server = self
            .server()
            .ok_or_else(|| service_error(&self.name, "it has no server"))?;
        let number = self.sent + 1;
        let wrapping = if lock(&self.with_header).contains(&server) {
            Wrapping::Header(header(self.id, number))
        } else {
            Wrapping::Bare
        };
        let written = self.endpoints.writer.write(&wrapped(payload, wrapping));
        written.map_err(|error| service_error(&self.name, error.to_string()))?;
        self.sent = number;
        if self.open.len() == OPEN_MAX {
            self.open.pop_first();
        }
        self.open.insert(number);
        Ok(number)
    }

    fn poll(&mut self, replies: &mut Vec<ServiceReply>) {
        for arrived in self.inbox.take() {
            if let Some((number, payload)) = self.reply(arrived)
                && self.open.remove(&number)
            {
                replies.push(ServiceReply {
                    number,
                    payload: Ok(payload),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_name_their_service_as_rmw_does() {
        let service = ServiceDescription {
            name: "/ns/add".to_owned(),
            type_name: "pkg/srv/Add".to_owned(),
            type_hash: Some("RIHS01_00".to_owned()),
        };
        let text = user_data(Gid([0x1f; 16]), "serviceid", &service);
        let (id, hash) = text.split_once(';').unwrap();
        assert_eq!(id.split('.').count(), 16);
        assert!(id.starts_with("serviceid=1f.1f."), "{id}");
        assert_eq!(hash, "typehash=RIHS01_00;");
        let [requests, replies] = topics(&service);
        assert_eq!(
            requests,
            (
                "rq/ns/addRequest".to_owned(),
                "pkg::srv::dds_::Add_Request_".to_owned()
            )
        );
        assert_eq!(
            replies,
            (
                "rr/ns/addReply".to_owned(),
                "pkg::srv::dds_::Add_Response_".to_owned()
            )
        );
    }
}
