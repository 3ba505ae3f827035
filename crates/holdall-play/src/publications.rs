//! The publishers of a playback: one per topic that is played, with the recorded type and QoS.

use super::{
    clock_topic::CLOCK_TOPIC,
    delivery::{Admission, Unacknowledged},
    error::PlayError,
    fidelity::{Fidelity, Planned},
    options::{ClockSource, Pace, PlayOptions},
    requests::{Replay, RequestPublisher, Requests, Role, ServiceCalls},
    status::TopicReport,
    topic_choice::TopicChoice,
};
use holdall_model::{
    qos::{Durability, QosProfile, adapt_publisher_qos},
    time::Timestamp,
    topic::TopicInfo,
};
use holdall_transport::{Delivery, PublishRequest, Publisher, Transport};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The most messages that are published first as a latched topic's state, where the bag does not distinguish publishers.
const LATCHED_STATE_MAX: usize = 1000;

/// The most messages that a latched publisher keeps, whatever the bag states.
const LATCHED_DEPTH_MAX: u64 = 10_000;

/// One topic that is played.
struct Publication {
    report: TopicReport,
    publisher: Box<dyn Publisher>,
    unacknowledged: Unacknowledged,
    fidelity: Fidelity,
    /// How many last messages a late subscription would get of publishers that the bag does not distinguish; `None` if not latched.
    latched: Option<usize>,
    /// The recorded publisher that it replays, when each has its own.
    gid: Option<String>,
    /// The hash of its type, or empty.
    type_hash: String,
    /// Messages since the last check for subscriptions, and whether there were any then.
    unchecked: u32,
    is_matched: bool,
    /// Instead of the publisher, where events become requests.
    requests: Option<Arc<Requests>>,
}

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// The transport has it.
    Sent,
    /// The transport refused it.
    Refused,
    /// It was an event of a service and no request to send.
    Nothing,
    /// It was a request that could not be sent, and why.
    Unsent(&'static str),
}

impl Publication {
    fn new(topic: &TopicInfo, request: PublishRequest, publisher: Box<dyn Publisher>) -> Self {
        let is_latched = request.qos.durability == Durability::TransientLocal;
        let recorded = topic.publisher.as_deref();
        // Nodes of one name, and publishers of one node, are distinguished by the identifier.
        let name = recorded.map(|recorded| match &recorded.node {
            Some(node) => format!("{node} {}", recorded.gid),
            None => recorded.gid.clone(),
        });
        Self {
            latched: is_latched.then(|| topic.offered_qos_profiles.len().clamp(1, LATCHED_STATE_MAX)),
            gid: recorded.map(|recorded| recorded.gid.clone()),
            type_hash: request.type_hash.clone().unwrap_or_default(),
            report: TopicReport {
                name: topic.name.clone(),
                published_as: request.topic,
                type_name: request.type_name,
                publisher: name,
                ..TopicReport::default()
            },
            publisher,
            unacknowledged: Unacknowledged::default(),
            fidelity: Fidelity::default(),
            unchecked: 0,
            is_matched: false,
            requests: None,
        }
    }

    /// The requests in the events of a service.
    fn of_requests(topic: &TopicInfo, requests: Arc<Requests>) -> Self {
        let request = PublishRequest {
            topic: requests.service().to_owned(),
            type_name: topic.type_name.clone(),
            ..PublishRequest::default()
        };
        let publisher = Box::new(RequestPublisher(Arc::clone(&requests)));
        Self {
            requests: Some(requests),
            ..Self::new(topic, request, publisher)
        }
    }

    /// Sends a message; a refusal is counted, and logged once.
    fn send(&mut self, payload: &[u8], stamp: Timestamp) -> bool {
        match self.publisher.publish_at(payload, stamp) {
            Ok(()) => {
                self.unacknowledged.published(&*self.publisher, payload.len());
                true
            }
            Err(error) => {
                self.report.refuse(error.to_string());
                false
            }
        }
    }

    /// Whether a subscription is matched; while one is, this is checked for one of 16 messages, because it takes a lock of the transport.
    fn is_taken(&mut self) -> bool {
        const CHECK_EVERY: u32 = 16;
        if self.unchecked == 0 || !self.is_matched {
            self.is_matched = self.publisher.matched_subscriptions() > 0;
        }
        self.unchecked = (self.unchecked + 1) % CHECK_EVERY;
        self.is_matched
    }
}

/// All played topics, in the order of the bag, and their pace.
pub(super) struct Publications(Vec<Publication>, Pace);

impl Publications {
    /// Creates the publishers of all `topics` that `choice` takes.
    ///
    /// A topic that the transport refuses (a name that is not valid there) is left out with a warning, as rosbag2 does, unless
    /// nothing else is left to play.
    ///
    /// # Errors
    /// When a chosen topic is not CDR, requests cannot be sent again, or nothing can be played.
    pub fn create(
        topics: &[TopicInfo],
        options: &PlayOptions,
        choice: &TopicChoice,
        transports: &mut [Box<dyn Transport>],
        mut replay: Option<Replay<'_>>,
    ) -> Result<Self, PlayError> {
        let mut publications = Vec::new();
        let mut refusal = None;
        for topic in topics.iter().filter(|topic| choice.takes(&topic.name)) {
            if let Some(replay) = &mut replay {
                match replay.replay.role(topic, choice) {
                    Role::Topic => {}
                    Role::Silent => continue,
                    Role::Requests(service) => {
                        let transport = transport_of(topic, transports).ok_or_else(|| not_carried(topic))?;
                        let requests = replay.open(topic, &service, transport.as_mut())?;
                        publications.push(Publication::of_requests(topic, requests));
                        continue;
                    }
                }
            }
            let published_as = choice.published_as(&topic.name);
            if published_as == CLOCK_TOPIC && options.clock != ClockSource::Off {
                tracing::info!("recorded {} is left out because /clock is published", topic.name);
                continue;
            }
            let Some(transport) = transport_of(topic, transports) else {
                return Err(not_carried(topic));
            };
            let request = publish_request(topic, published_as, transport.name(), options);
            match transport.publish(&request) {
                Ok(publisher) => {
                    publications.push(Publication::new(topic, request, publisher));
                }
                Err(error) => {
                    tracing::warn!("{} is not played: {error}", topic.name);
                    refusal = Some(error);
                }
            }
        }
        match refusal {
            Some(error) if publications.is_empty() => Err(error.into()),
            _ => Ok(Self(publications, options.pace)),
        }
    }

    /// True if nothing is played.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The topics as the bag has them: name and type.
    pub(crate) fn recorded_topics(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|publication| {
            (
                publication.report.name.as_str(),
                publication.report.type_name.as_str(),
            )
        })
    }

    /// The topics' names in the bag.
    pub(crate) fn recorded_names(&self) -> Vec<&str> {
        self.recorded_topics().map(|(name, _)| name).collect()
    }

    /// The topics that are published.
    pub(crate) fn published_names(&self) -> impl Iterator<Item = String> {
        let topics = self.0.iter().filter(|publication| publication.requests.is_none());
        topics.map(|publication| publication.report.published_as.clone())
    }

    /// Types and hashes of each topic that is published.
    pub(crate) fn published_types(&self) -> BTreeMap<String, Vec<(String, String)>> {
        let mut types: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for it in self.0.iter().filter(|it| it.requests.is_none()) {
            let of_topic = types.entry(it.report.published_as.clone()).or_default();
            of_topic.push((it.report.type_name.clone(), it.type_hash.clone()));
        }
        types
    }

    /// The recorded publishers that the publications replay, in their order; `None` if one replays all of its topic.
    pub(crate) fn recorded_publishers(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().map(|publication| publication.gid.as_deref())
    }

    /// The recorded names of latched topics, each with the number of last messages that make up its state.
    pub(crate) fn latched(&self) -> BTreeMap<String, usize> {
        let latched = self.0.iter().filter_map(|publication| {
            let count = publication.latched?;
            Some((publication.report.name.clone(), count))
        });
        latched.collect()
    }

    /// Sends one message of this time in the bag; a refusal is counted, and logged once per topic.
    pub fn publish(&mut self, index: usize, payload: &[u8], stamp: Timestamp) -> Sending {
        let publication = &mut self.0[index];
        if let Some(requests) = &publication.requests {
            return requests.replay(payload);
        }
        let is_sent = publication.send(payload, stamp);
        publication.report.published += u64::from(is_sent);
        publication.report.untaken += u64::from(is_sent && !publication.is_taken());
        if is_sent { Sending::Sent } else { Sending::Refused }
    }

    /// The services whose requests are sent.
    pub fn requests(&self) -> impl Iterator<Item = &Arc<Requests>> {
        self.0
            .iter()
            .filter_map(|publication| publication.requests.as_ref())
    }

    /// Whether each service to call has a server.
    pub fn servers_are_ready(&self) -> bool {
        self.requests().all(|requests| requests.is_ready())
    }

    /// The name that a topic is published under.
    pub(crate) fn published_name(&self, index: usize) -> &str {
        &self.0[index].report.published_as
    }

    /// How far a publication's messages have come; `None` if that is not known.
    pub(crate) fn delivery(&self, index: usize) -> Option<Delivery> {
        self.0[index].publisher.delivery()
    }

    /// How many messages a publication has published.
    pub(crate) fn handed_over(&self, index: usize) -> u64 {
        self.0[index].unacknowledged.published_count()
    }

    /// Whether a publication sends the requests of this service.
    pub(crate) fn calls(&self, index: usize, service: &str) -> bool {
        self.requests_of(index)
            .is_some_and(|requests| requests.service() == service)
    }

    /// The requests that a publication sends.
    pub(crate) fn requests_of(&self, index: usize) -> Option<&Requests> {
        self.0[index].requests.as_deref()
    }

    /// Counts answers that have arrived.
    pub fn poll_requests(&self) {
        self.requests().for_each(|requests| {
            requests.poll();
        });
    }

    /// How the requests of each service were answered.
    pub fn service_calls(&self) -> BTreeMap<String, ServiceCalls> {
        let calls = self
            .requests()
            .map(|requests| (requests.service().to_owned(), requests.calls()));
        calls.collect()
    }

    /// Sends a message that is state from before the point where playback begins; false if the transport refused it.
    pub fn publish_latched(&mut self, index: usize, payload: &[u8], stamp: Timestamp) -> bool {
        let is_sent = self.0[index].send(payload, stamp);
        self.0[index].report.latched += u64::from(is_sent);
        is_sent
    }

    /// Notes how exactly a message was sent; returns the error of the span since its topic's last one.
    pub fn measure(&mut self, index: usize, planned: Planned) -> Option<Duration> {
        self.0[index].fidelity.measure(planned)
    }

    /// Bag time has jumped: spans across the jump are not measured.
    pub(crate) fn forget_spacing(&mut self) {
        self.0
            .iter_mut()
            .for_each(|publication| publication.fidelity.forget_spacing());
    }

    /// Whether a message of `len` bytes can be published now, without losing one that a reliable subscription still lacks.
    pub fn admit(&mut self, index: usize, len: usize, now: Duration) -> Admission {
        let Publication {
            publisher,
            unacknowledged,
            ..
        } = &mut self.0[index];
        unacknowledged.admit(&**publisher, len, now, self.1)
    }

    /// Counts a message as refused, because too much waits for acknowledgement.
    pub fn refuse(&mut self, index: usize) {
        let topic = self.0[index].report.published_as.clone();
        self.0[index].report.refuse(format!(
            "a subscription of {topic} acknowledges nothing, and what waits for it takes too much memory"
        ));
    }

    /// Notes messages not acknowledged until now.
    pub(crate) fn count_unacknowledged(&mut self) {
        for Publication {
            report,
            publisher,
            unacknowledged,
            ..
        } in &mut self.0
        {
            report.unacknowledged = unacknowledged.count(&**publisher);
        }
    }

    /// Notes messages overwritten before they were acknowledged; for a playback that was stopped, whose last messages are not waited for.
    pub(crate) fn count_abandoned(&mut self) {
        for publication in &mut self.0 {
            publication.report.unacknowledged = publication.unacknowledged.dropped;
        }
    }

    /// Messages that wait for acknowledgement, all topics.
    pub fn unacknowledged(&mut self) -> u64 {
        self.count_unacknowledged();
        self.0
            .iter()
            .map(|publication| publication.report.unacknowledged)
            .sum()
    }

    /// Subscriptions matched right now, all topics.
    pub fn matched_subscriptions(&self) -> usize {
        self.0
            .iter()
            .map(|publication| publication.publisher.matched_subscriptions())
            .sum()
    }

    /// Subscriptions matched right now to the topic of this recorded name, or published under this name.
    pub(crate) fn matched_subscriptions_of(&self, topic: &str) -> usize {
        let here = |publication: &&Publication| {
            publication.report.name == topic || publication.report.published_as == topic
        };
        let matched = self
            .0
            .iter()
            .filter(here)
            .map(|publication| publication.publisher.matched_subscriptions());
        // Each publisher of a topic is matched by the same subscriptions.
        matched.max().unwrap_or(0)
    }

    /// Waits until every message was acknowledged; returns the topics of those that were not within `timeout` in all.
    pub fn wait_for_acked(
        &mut self,
        timeout: Duration,
        clock: &dyn holdall_io::clock::Clock,
        mut go_on: impl FnMut() -> bool,
    ) -> Vec<String> {
        /// How often `go_on` is called while waiting.
        const SLICE: Duration = Duration::from_millis(100);
        let deadline = (!timeout.is_zero()).then(|| clock.monotonic().saturating_add(timeout));
        let mut unacked = Vec::new();
        for Publication {
            report, publisher, ..
        } in &mut self.0
        {
            loop {
                let left = deadline.map_or(SLICE, |at| at.saturating_sub(clock.monotonic()).min(SLICE));
                if publisher.wait_for_acked(left) {
                    break;
                }
                let expired = deadline.is_some_and(|at| clock.monotonic() >= at);
                if expired || !go_on() {
                    unacked.push(report.published_as.clone());
                    break;
                }
            }
        }
        unacked
    }

    /// Played messages of each topic.
    pub(crate) fn into_reports(self) -> Vec<TopicReport> {
        let reports = self.0.into_iter().map(|publication| {
            let (lateness, spacing) = publication.fidelity.summary();
            let sent = publication
                .requests
                .as_ref()
                .map(|requests| requests.calls().sent);
            TopicReport {
                published: sent.unwrap_or(publication.report.published),
                lateness,
                spacing,
                ..publication.report
            }
        });
        reports.collect()
    }
}

fn not_carried(topic: &TopicInfo) -> PlayError {
    PlayError::SerializationFormat {
        topic: topic.name.clone(),
        found: topic.serialization_format.clone(),
    }
}

/// The transport that a topic was recorded from if it is in use, else the first; `None` if it cannot carry the payloads.
fn transport_of<'a>(
    topic: &TopicInfo,
    transports: &'a mut [Box<dyn Transport>],
) -> Option<&'a mut Box<dyn Transport>> {
    let origin = topic.origin.as_ref().map(|origin| origin.transport.as_str());
    let index = transports
        .iter()
        .position(|transport| origin == Some(transport.name()))
        .unwrap_or(0);
    transports
        .get_mut(index)
        .filter(|transport| transport.carries(&topic.serialization_format))
}

/// The request to the transport.
fn publish_request(
    topic: &TopicInfo,
    published_as: String,
    transport: &str,
    options: &PlayOptions,
) -> PublishRequest {
    let adapted = adapt_publisher_qos(&topic.offered_qos_profiles);
    let recorded_qos = || latched_deep_enough(adapted, topic);
    let qos = options
        .qos_overrides
        .get(&topic.name)
        .copied()
        .unwrap_or_else(recorded_qos);
    PublishRequest {
        topic: published_as,
        type_name: topic.type_name.clone(),
        type_hash: Some(topic.type_description_hash.clone()).filter(|hash| !hash.is_empty()),
        qos: QosProfile {
            // Depends on the type, not on the offered policies.
            is_keyed: adapted.is_keyed,
            ..qos
        },
        serialization_format: topic.serialization_format.clone(),
        origin: topic
            .origin
            .clone()
            .filter(|origin| origin.transport == transport),
        keep_unacknowledged: true,
    }
}

/// Lets one publisher replace all recorded ones: it must keep what they kept together, or late subscriptions
/// to a topic such as `/tf_static` miss some.
fn latched_deep_enough(mut qos: QosProfile, topic: &TopicInfo) -> QosProfile {
    if qos.durability == Durability::TransientLocal {
        let kept = topic
            .offered_qos_profiles
            .iter()
            .fold(0_u64, |sum, offer| sum.saturating_add(offer.depth.max(1)));
        qos.depth = qos.depth.max(kept.min(LATCHED_DEPTH_MAX));
    }
    qos
}
