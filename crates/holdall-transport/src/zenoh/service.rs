//! Services as rmw_zenoh has them: a server is a queryable with a token, a request a query; attachments carry numbers and GIDs.

use super::{
    attachment::Attachment,
    discovery::Graph,
    session::{Declared, OpenSession},
    subscription::Surroundings,
    token::{EntityKind, NO_HASH, TokenTopic, data_key, hash_in},
};
use crate::{
    LayoutReplies, RequestId, SERVICE_BYTES_MAX, SERVICE_WAITING_MAX, ServiceClient, ServiceDescription,
    ServiceReply, ServiceRequest, ServiceServer, ServiceWake, TransportError,
    service::{Wrapping, check_payload, service_error},
};
use ::zenoh::{
    Wait,
    query::{ConsolidationMode, Query, QueryTarget, Queryable, Reply},
};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::qos::{History, QosProfile};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Most bytes of requests or replies that wait.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// `rmw_qos_profile_services_default`.
const SERVICE_QOS: QosProfile = QosProfile {
    history: History::KeepLast,
    depth: 10,
    ..QosProfile::ROS_DEFAULT
};

fn topic_of(service: &ServiceDescription) -> TokenTopic {
    TokenTopic {
        name: service.name.clone(),
        type_name: service.type_name.clone(),
        type_hash: service.type_hash.clone(),
        qos: SERVICE_QOS,
    }
}

/// Requests that have arrived, with the queries that answer them.
#[derive(Default)]
struct Waiting {
    requests: Vec<(Attachment, Query)>,
    bytes: usize,
    dropped: u64,
}

/// A service.
pub(super) struct ZenohServer {
    name: String,
    waiting: Arc<Mutex<Waiting>>,
    /// Requests without a reply.
    open: HashMap<RequestId, Query>,
    clock: Arc<dyn Clock>,
    _queryable: Queryable<()>,
    _declared: Declared,
    _session: Arc<OpenSession>,
}

impl ZenohServer {
    /// Offers a service under our node.
    pub(super) fn new(
        surroundings: &Surroundings,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> ::zenoh::Result<Self> {
        let Surroundings { session, clock, .. } = surroundings;
        // Clients query with the hash of their own layout.
        let key = data_key(session.domain_id(), &service.name, &service.type_name, None);
        let waiting: Arc<Mutex<Waiting>> = Arc::default();
        let noted = Arc::clone(&waiting);
        let name = service.name.clone();
        let queryable = session
            .zenoh()
            .declare_queryable(key)
            .complete(true)
            .callback(move |query| {
                let decoded = query
                    .attachment()
                    .map(|bytes| Attachment::decode(&bytes.to_bytes()));
                let Some(Ok(attachment)) = decoded else {
                    tracing::debug!("{name}: a request without rmw_zenoh's attachment is not answered");
                    return;
                };
                let bytes = query.payload().map_or(0, |payload| payload.len());
                let mut waiting = lock(&noted);
                let is_full = waiting.requests.len() >= SERVICE_WAITING_MAX
                    || waiting.bytes + bytes > WAITING_BYTES_MAX;
                if is_full || bytes > SERVICE_BYTES_MAX {
                    waiting.dropped += 1;
                    return;
                }
                waiting.bytes += bytes;
                waiting.requests.push((attachment, query));
                drop(waiting);
                wake();
            })
            .wait()?;
        let entity = session.entity(EntityKind::Server, topic_of(service));
        Ok(Self {
            name: service.name.clone(),
            waiting,
            open: HashMap::new(),
            clock: Arc::clone(clock),
            _queryable: queryable,
            // After the queryable, which can be asked as soon as the token is seen.
            _declared: session.declare(entity)?,
            _session: Arc::clone(session),
        })
    }
}

impl ServiceServer for ZenohServer {
    fn poll(&mut self, requests: &mut Vec<ServiceRequest>) {
        let arrived = {
            let mut waiting = lock(&self.waiting);
            waiting.bytes = 0;
            std::mem::take(&mut waiting.requests)
        };
        for (attachment, query) in arrived {
            let id = RequestId {
                client: attachment.gid,
                number: attachment.sequence,
                wrapping: Wrapping::Bare,
            };
            let payload = query.payload().map(|payload| payload.to_bytes().into_owned());
            if self.open.len() < SERVICE_WAITING_MAX {
                self.open.insert(id, query);
                requests.push(ServiceRequest {
                    id,
                    payload: payload.unwrap_or_default(),
                });
            }
        }
    }

    fn reply(&mut self, id: &RequestId, replies: &LayoutReplies) -> Result<(), TransportError> {
        check_payload(&self.name, &replies.default)?;
        let Some(query) = self.open.remove(id) else {
            return Err(service_error(&self.name, "the request is not known"));
        };
        let attachment = Attachment {
            sequence: id.number,
            source_nanos: Some(self.clock.now().as_nanos()),
            gid: id.client,
        };
        let payload = replies.for_client(hash_in(query.key_expr().as_str()));
        query
            .reply(query.key_expr().clone(), payload)
            .attachment(attachment.encode())
            .wait()
            .map_err(|error| service_error(&self.name, error.to_string()))
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut lock(&self.waiting).dropped)
    }
}

/// A client of a service.
pub(super) struct ZenohClient {
    service: ServiceDescription,
    replies: Arc<Mutex<Vec<ServiceReply>>>,
    wake: ServiceWake,
    sent: u64,
    declared: Declared,
    graph: Arc<Graph>,
    clock: Arc<dyn Clock>,
    session: Arc<OpenSession>,
}

impl ZenohClient {
    /// Creates a client under our node.
    pub(super) fn new(
        surroundings: &Surroundings,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> ::zenoh::Result<Self> {
        let Surroundings {
            session,
            clock,
            graph,
            ..
        } = surroundings;
        let entity = session.entity(EntityKind::Client, topic_of(service));
        Ok(Self {
            service: service.clone(),
            replies: Arc::default(),
            wake,
            sent: 0,
            declared: session.declare(entity)?,
            graph: Arc::clone(graph),
            clock: Arc::clone(clock),
            session: Arc::clone(session),
        })
    }

    /// The hash of a server's type, which is part of its key.
    fn server(&self) -> Option<Option<String>> {
        let (type_name, hash) = self.graph.service(&self.service.name)?;
        (type_name == self.service.type_name).then_some(hash)
    }
}

/// A request in flight; until the query has ended.
struct Open {
    number: u64,
    replies: Arc<Mutex<Vec<ServiceReply>>>,
    wake: ServiceWake,
    is_answered: Mutex<bool>,
}

impl Open {
    /// One answer counts, however many servers send one.
    fn answered(&self, payload: Result<Vec<u8>, String>) {
        if std::mem::replace(&mut *lock(&self.is_answered), true) {
            return;
        }
        let mut replies = lock(&self.replies);
        if replies.len() < SERVICE_WAITING_MAX {
            let number = self.number;
            replies.push(ServiceReply { number, payload });
        }
        drop(replies);
        (self.wake)();
    }

    fn read(reply: &Reply) -> Result<Vec<u8>, String> {
        match reply.result() {
            Ok(sample) if sample.payload().len() > SERVICE_BYTES_MAX => {
                Err(format!("the reply has {} bytes", sample.payload().len()))
            }
            Ok(sample) => Ok(sample.payload().to_bytes().into_owned()),
            Err(error) => Err(String::from_utf8_lossy(&error.payload().to_bytes()).into_owned()),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.answered(Err("the server has gone without an answer".to_owned()));
    }
}

impl ServiceClient for ZenohClient {
    fn is_ready(&mut self) -> bool {
        self.server().is_some()
    }

    fn send(&mut self, payload: &[u8]) -> Result<u64, TransportError> {
        check_payload(&self.service.name, payload)?;
        let refused = |reason: String| service_error(&self.service.name, reason);
        let hash = self
            .server()
            .ok_or_else(|| refused("it has no server".to_owned()))?;
        let number = self.sent + 1;
        let attachment = Attachment {
            sequence: number,
            source_nanos: Some(self.clock.now().as_nanos()),
            gid: self.declared.gid,
        };
        let open = Open {
            number,
            replies: Arc::clone(&self.replies),
            wake: ServiceWake::clone(&self.wake),
            is_answered: Mutex::new(false),
        };
        let ServiceDescription { name, type_name, .. } = &self.service;
        self.session
            .zenoh()
            .get(data_key(
                self.session.domain_id(),
                name,
                type_name,
                Some(hash.as_deref().unwrap_or(NO_HASH)),
            ))
            .payload(payload)
            .attachment(attachment.encode())
            .target(QueryTarget::AllComplete)
            .consolidation(ConsolidationMode::None)
            .timeout(ANSWER_TIMEOUT)
            .callback(move |reply| open.answered(Open::read(&reply)))
            .wait()
            .map_err(|error| refused(error.to_string()))?;
        self.sent = number;
        Ok(number)
    }

    fn poll(&mut self, replies: &mut Vec<ServiceReply>) {
        replies.append(&mut lock(&self.replies));
    }
}
