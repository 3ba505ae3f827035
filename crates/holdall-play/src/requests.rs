//! Recorded requests of services and actions, sent again as new ones: taken out of introspection events, answers counted.

use super::{
    error::PlayError, publications::Sending, step_ledger::Arrival, topic_choice::TopicChoice, wake::Wake,
};
use holdall_bag::{
    decode::{Decoder, Decoders},
    reader::BagSet,
};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    dynamic::{Scalar, TypePlan, encode::Value},
    names::{action_of_topic, service_event_topic, service_of_event_topic},
    topic::TopicInfo,
};
use holdall_transport::{
    Publisher, ServiceClient, ServiceDescription, ServiceReply, Transport, TransportError,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long the servers of replayed services are waited for before the first message.
pub(super) const SERVER_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long the last answers are waited for.
pub(super) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// A later answer is counted as late.
const LATE_MIN: Duration = Duration::from_secs(1);

/// Time between two polls for the last answers.
const ANSWER_POLL: Duration = Duration::from_millis(5);

/// Why a request has no answer: its service has no server, or it was refused here or there.
const NO_SERVER: &str = "it has no server";
const REFUSED: &str = "it was refused";

/// Requests of one service that wait for an answer; the oldest is given up for another one.
const WAITING_MAX: usize = 10_000;

/// Which recorded events are the requests (`service_msgs/msg/ServiceEventInfo`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestSource {
    /// Requests received by servers.
    #[default]
    ServiceIntrospection,
    /// Requests sent by clients.
    ClientIntrospection,
}

impl RequestSource {
    /// The event's number: `REQUEST_SENT` or `REQUEST_RECEIVED`.
    const fn event_type(self) -> u8 {
        match self {
            Self::ClientIntrospection => 0,
            Self::ServiceIntrospection => 1,
        }
    }

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServiceIntrospection => "service_introspection",
            Self::ClientIntrospection => "client_introspection",
        }
    }
}

/// Events that are sent as requests instead of being published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestReplay {
    /// Requests of services.
    pub services: bool,
    /// Goals, cancellations and requests of results of actions; their feedback and status are not published.
    pub actions: bool,
    /// Where the requests are taken from.
    pub source: RequestSource,
}

/// How the requests of one service were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceCalls {
    /// Requests sent.
    pub sent: u64,
    /// Requests that were answered, late ones included.
    pub answered: u64,
    /// Answers that took longer than a second.
    pub late: u64,
    /// Requests that the server or the transport refused.
    pub refused: u64,
    /// Why, for the first one.
    pub refusal: Option<String>,
    /// Requests that found no server.
    pub without_server: u64,
    /// Requests in the bag without content: the service published metadata only.
    pub without_content: u64,
}

impl ServiceCalls {
    /// Requests that were sent and neither answered nor refused.
    pub fn unanswered(&self) -> u64 {
        self.sent.saturating_sub(self.answered + self.refused)
    }

    /// Whether each request of the bag was sent and answered.
    pub fn all_answered(&self) -> bool {
        self.unanswered() + self.refused + self.without_server + self.without_content == 0
    }

    fn refuse(&mut self, service: &str, reason: String) {
        self.refused += 1;
        if self.refusal.is_none() {
            tracing::warn!("a request to {service} was refused: {reason}");
            self.refusal = Some(reason);
        }
    }
}

/// The use of a topic of the bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is published.
    Topic,
    /// Its events become requests to this service.
    Requests(ServiceDescription),
    /// It is not published, because the server that is called publishes it.
    Silent,
}

impl RequestReplay {
    /// The use of a topic.
    pub(super) fn role(self, topic: &TopicInfo, choice: &TopicChoice) -> Role {
        let is_of_action = action_of_topic(&topic.name, &topic.type_name).is_some();
        let is_replayed = if is_of_action {
            self.actions
        } else {
            self.services && service_of_event_topic(&topic.name, &topic.type_name).is_some()
        };
        if !is_replayed {
            return Role::Topic;
        }
        let (Some(service), Some(type_name)) = (
            topic.name.strip_suffix(&service_event_topic("")),
            topic.type_name.strip_suffix("_Event"),
        ) else {
            return Role::Silent;
        };
        Role::Requests(ServiceDescription {
            name: choice.published_as(service),
            type_name: type_name.to_owned(),
            type_hash: None,
        })
    }
}

/// Clients that replay the requests of a playback.
pub(super) struct Replay<'a> {
    pub replay: RequestReplay,
    pub decoders: Decoders,
    pub wake: &'a Arc<Wake>,
    pub clock: &'a Arc<dyn Clock>,
}

impl<'a> Replay<'a> {
    pub fn new(replay: RequestReplay, bags: &BagSet, wake: &'a Arc<Wake>, clock: &'a Arc<dyn Clock>) -> Self {
        Self {
            replay,
            decoders: Decoders::new(bags.clone()),
            wake,
            clock,
        }
    }

    /// A client that sends the requests in the events of `topic`.
    ///
    /// # Errors
    /// Events without a definition, or a transport that has no services.
    pub fn open(
        &mut self,
        topic: &TopicInfo,
        service: &ServiceDescription,
        transport: &mut dyn Transport,
    ) -> Result<Arc<Requests>, PlayError> {
        let undecoded = |reason: String| PlayError::Requests {
            service: service.name.clone(),
            reason,
        };
        let plan = match self.decoders.find(topic)? {
            Decoder::Cdr(plan) => plan,
            Decoder::Json(_) => return Err(undecoded("its events are JSON".to_owned())),
            Decoder::Opaque { reason } => return Err(undecoded(reason)),
        };
        let request_plan = plan
            .part("request")
            .ok_or_else(|| undecoded(format!("{} has no requests", topic.type_name)))?;
        let wake = Arc::clone(self.wake);
        let client = transport.client(service, Arc::new(move || wake.notify()))?;
        Ok(Arc::new(Requests {
            service: service.name.clone(),
            plan,
            request_plan,
            event_type: self.replay.source.event_type(),
            clock: Arc::clone(self.clock),
            calling: Mutex::new(Calling {
                client,
                waiting: BTreeMap::new(),
                refused: BTreeSet::new(),
                last: 0,
                calls: ServiceCalls::default(),
                replies: Vec::new(),
            }),
        }))
    }
}

/// The client, and its waiting requests.
struct Calling {
    client: Box<dyn ServiceClient>,
    /// When each request was sent, by its number.
    waiting: BTreeMap<u64, Duration>,
    /// Those that get no answer.
    refused: BTreeSet<u64>,
    /// The number of the last one.
    last: u64,
    calls: ServiceCalls,
    replies: Vec<ServiceReply>,
}

/// The requests of one service.
pub(super) struct Requests {
    service: String,
    plan: Arc<TypePlan>,
    request_plan: TypePlan,
    event_type: u8,
    clock: Arc<dyn Clock>,
    calling: Mutex<Calling>,
}

/// Contents of an event.
enum Event {
    /// Another moment of a call, or one of the other side.
    Other,
    /// A request recorded with only its metadata.
    WithoutContent,
    /// A serialized request.
    Request(Vec<u8>),
}

impl Requests {
    /// The name of the service that is called.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The request in an event.
    fn request_in(&self, event: &[u8]) -> Result<Event, String> {
        let decoded = self.plan.decode(event).map_err(|error| error.to_string())?;
        let Value::Struct(fields) = &decoded.value else {
            return Ok(Event::Other);
        };
        let root = self.plan.root();
        let field = |name: &str| root.field(name).and_then(|(place, _)| fields.get(place));
        let event_type = match field("info") {
            Some(Value::Struct(info)) => info.first(),
            _ => None,
        };
        let is_request =
            matches!(event_type, Some(Value::Plain(plain)) if plain.scalar() == Scalar::U8(self.event_type));
        if !is_request {
            return Ok(Event::Other);
        }
        let Some(Value::List(requests)) = field("request") else {
            return Ok(Event::WithoutContent);
        };
        let Some(request) = requests.first() else {
            return Ok(Event::WithoutContent);
        };
        let mut payload = Vec::new();
        self.request_plan
            .encode(request, decoded.representation, &mut payload)
            .map_err(|error| error.to_string())?;
        Ok(Event::Request(payload))
    }

    /// Sends the request of an event, if it is one.
    pub fn replay(&self, event: &[u8]) -> Sending {
        let request = self.request_in(event);
        let mut calling = lock(&self.calling);
        calling.collect(&self.service, self.clock.monotonic());
        let calls = &mut calling.calls;
        let payload = match request {
            Ok(Event::Request(payload)) => payload,
            Ok(Event::Other) => return Sending::Nothing,
            Ok(Event::WithoutContent) => {
                if calls.without_content == 0 {
                    tracing::warn!(
                        "{}: requests without content are not sent; the service published metadata only",
                        self.service
                    );
                }
                calls.without_content += 1;
                return Sending::Nothing;
            }
            Err(reason) => {
                calls.refuse(&self.service, reason);
                calls.sent += 1;
                return Sending::Unsent(REFUSED);
            }
        };
        if !calling.client.is_ready() {
            calling.calls.without_server += 1;
            return Sending::Unsent(NO_SERVER);
        }
        calling.calls.sent += 1;
        match calling.client.send(&payload) {
            Ok(number) => {
                if calling.waiting.len() >= WAITING_MAX
                    && let Some((oldest, _)) = calling.waiting.pop_first()
                {
                    calling.refused(oldest);
                }
                calling.waiting.insert(number, self.clock.monotonic());
                calling.last = number;
                Sending::Sent
            }
            Err(error) => {
                calling.calls.refuse(&self.service, error.to_string());
                Sending::Unsent(REFUSED)
            }
        }
    }

    /// Counts the answers that have arrived; true if requests still wait.
    pub fn poll(&self) -> bool {
        let mut calling = lock(&self.calling);
        calling.collect(&self.service, self.clock.monotonic());
        !calling.waiting.is_empty()
    }

    /// The number of the last request.
    pub fn last(&self) -> u64 {
        lock(&self.calling).last
    }

    /// Whether the reply to the request with this number has come.
    pub fn arrival(&self, number: u64) -> Arrival {
        let mut calling = lock(&self.calling);
        let is_served = calling.client.is_ready();
        if !is_served {
            // The reply may have come before its server left.
            calling.collect(&self.service, self.clock.monotonic());
        }
        match calling.waiting.contains_key(&number) {
            true if is_served => Arrival::Pending,
            true => Arrival::Never(NO_SERVER),
            false if calling.refused.contains(&number) => Arrival::Never(REFUSED),
            false => Arrival::Here,
        }
    }

    /// Whether a server exists.
    pub fn is_ready(&self) -> bool {
        lock(&self.calling).client.is_ready()
    }

    /// Counts so far.
    pub fn calls(&self) -> ServiceCalls {
        lock(&self.calling).calls.clone()
    }
}

impl Calling {
    fn collect(&mut self, service: &str, now: Duration) {
        self.client.poll(&mut self.replies);
        for reply in std::mem::take(&mut self.replies) {
            let Some(sent) = self.waiting.remove(&reply.number) else {
                continue;
            };
            match reply.payload {
                Ok(_) => {
                    self.calls.answered += 1;
                    self.calls.late += u64::from(now.saturating_sub(sent) > LATE_MIN);
                }
                Err(reason) => {
                    self.calls.refuse(service, reason);
                    self.refused(reply.number);
                }
            }
        }
    }

    /// A request gets no answer.
    fn refused(&mut self, number: u64) {
        if self.refused.len() >= WAITING_MAX {
            self.refused.pop_first();
        }
        self.refused.insert(number);
    }
}

/// Waits for the last answers, while `go_on` holds.
pub(super) fn wait_for_answers(all: &[Arc<Requests>], clock: &dyn Clock, go_on: impl Fn() -> bool) {
    let deadline = clock.monotonic().saturating_add(ANSWER_WAIT_MAX);
    while all.iter().filter(|requests| requests.poll()).count() > 0 && go_on() && clock.monotonic() < deadline
    {
        clock.sleep_until(clock.monotonic() + ANSWER_POLL);
    }
}

/// Requests in the place of a publisher of their events.
pub(super) struct RequestPublisher(pub Arc<Requests>);

impl Publisher for RequestPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        self.0.replay(payload);
        Ok(())
    }

    fn matched_subscriptions(&self) -> usize {
        usize::from(self.0.is_ready())
    }

    fn wait_for_acked(&mut self, _timeout: Duration) -> bool {
        true
    }
}
