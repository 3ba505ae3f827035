//! A recording session: follows the graph, keeps subscriptions, finds definitions. Runs in steps, each given the time.

mod complement;
mod definitions;
mod ends;
mod not_heard;
mod source;
mod steps;
mod topics;

use complement::Complement;
use ends::SilentPublisher;
use holdall_io::{clock::Clock, mutex::lock};
use not_heard::NotHeardWatch;
pub use source::INITIAL_DISCOVERY;
use source::{Moment, Source};
pub(crate) use steps::STEP_INTERVAL;

use super::{
    definitions::Definitions,
    discovery::{Discovery, GraphDecision},
    gate::{ClockSink, Gate},
    intake::Intake,
    loss_watch::LossWatch,
    services::Services,
    subscriptions::RecordedTopic,
};
use crate::{
    cache::SharedCache,
    clock_watch::ClockWatch,
    events::EventPublishers,
    options::RecordOptions,
    requests::{SessionRequests, SubscribeAnswer},
    step_wait::StepWait,
    write::{drain::DrainShared, latched::LatchedKeeper},
};
use holdall_model::{
    interface::bundle::Bundle,
    loss::ledger::Ledger,
    qos::{Durability, QosProfile, Reliability},
    selection::{SelectionError, TopicFilter},
    topic::NodeName,
};
use holdall_transport::{SubscribeRequest, Subscription, Transport, TransportError, TypeDescriptionReply};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Time between two polls for announcements of publishers.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two checks for losses that were not logged yet.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);

/// Services that one line of the log names.
const SERVICES_LISTED_MAX: usize = 20;

/// The name that relative topic names are completed with.
const NODE_NAME: &str = "rosbag2_recorder";

/// Data for a topic's row in the status.
#[derive(Clone)]
pub(crate) struct LiveTopic {
    pub name: String,
    pub type_name: String,
    pub intake: Arc<Intake>,
    /// QoS profiles that its publishers have offered, each once and at most [`QOS_KEPT_MAX`].
    pub offered: Vec<QosProfile>,
}

/// Different offers that are shown of a topic.
const QOS_KEPT_MAX: usize = 8;

impl LiveTopic {
    /// Notes the QoS that a publisher offers.
    pub(super) fn note_offer(&mut self, qos: QosProfile) {
        if self.offered.len() < QOS_KEPT_MAX && !self.offered.contains(&qos) {
            self.offered.push(qos);
        }
    }
}

/// The parts of a recording that its threads share.
#[derive(Clone)]
pub(crate) struct Parts {
    pub gate: Arc<Gate>,
    pub cache: Arc<SharedCache>,
    pub ledger: Arc<Mutex<Ledger>>,
    pub drain: Arc<DrainShared>,
    pub requests: Arc<SessionRequests>,
    pub time: Arc<ClockWatch>,
    pub wait: Arc<StepWait>,
    /// In the order of subscription, as in the ledger.
    pub topics: Arc<Mutex<Vec<LiveTopic>>>,
    /// `None` unless files repeat latched messages.
    pub latched: Option<Arc<LatchedKeeper>>,
}

/// A decision of the graph that is still to be carried out.
struct Decided {
    /// The transport that it came from.
    number: usize,
    decision: GraphDecision,
    moment: Moment,
}

/// Everything between the transports and the cache.
pub(crate) struct Session {
    options: RecordOptions,
    parts: Parts,
    /// The storage has a place for several types of one topic.
    keeps_types: bool,
    /// The one that completes others is the last.
    sources: Vec<Source>,
    complement: Option<Complement>,
    not_heard: NotHeardWatch,
    definitions: Definitions,
    /// By name.
    topics: BTreeMap<String, RecordedTopic>,
    clock: Arc<dyn Clock>,
    /// Keeps simulation time going.
    clock_subscriptions: Vec<Box<dyn Subscription>>,
    started: Duration,
    next_poll: Duration,
    /// When the graph has changed last.
    last_change: Duration,
    next_announcements: Duration,
    losses: LossWatch,
    next_loss_check: Duration,
    events: Option<EventPublishers>,
    failure: Option<String>,
    /// Publishers that went silent and were not reported yet.
    silent: Vec<SilentPublisher>,
    /// Decisions from one poll of the graph: the next poll waits until all are carried out.
    decided: VecDeque<Decided>,
    /// Nothing was recorded at the last step: a pause, or no message on `/clock` yet.
    was_shut: bool,
    /// The log already has a warning that topics wait for the drain.
    is_delay_known: bool,
    /// Replies from one poll for definitions, handled in the same way.
    replies: VecDeque<TypeDescriptionReply>,
}

impl Session {
    /// A session that has seen nothing yet; subscribes to topics that need no discovery.
    ///
    /// # Errors
    /// A selection that is not valid, a static topic or `/clock` that a transport refuses.
    pub(crate) fn new(
        options: RecordOptions,
        parts: Parts,
        transports: Vec<Box<dyn Transport>>,
        keeps_types: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, crate::RecordError> {
        let now = clock.monotonic();
        let filter = filter(&options)?;
        let source = |transport: Box<dyn Transport>| Source {
            started: transport.now(),
            transport,
            discovery: Discovery::new(filter.clone()),
            services: Services::default(),
            failure: None,
        };
        let definitions = Definitions::new(options.ament_prefixes.clone(), |name| {
            Bundle::embedded().get(name)
        });
        let mut sources: Vec<Source> = transports.into_iter().map(source).collect();
        sources.sort_by_key(|source| source.transport.completes_others());
        let mut session = Self {
            options,
            parts,
            keeps_types,
            complement: Complement::of(&sources),
            not_heard: NotHeardWatch::default(),
            sources,
            definitions,
            topics: BTreeMap::new(),
            clock,
            clock_subscriptions: Vec::new(),
            started: now,
            next_poll: now,
            last_change: now,
            next_announcements: now,
            losses: LossWatch::default(),
            next_loss_check: now,
            events: None,
            failure: None,
            silent: Vec::new(),
            decided: VecDeque::new(),
            was_shut: true,
            is_delay_known: false,
            replies: VecDeque::new(),
        };
        session.events = session.options.events.clone().map(|options| {
            // Subscriptions that the last one reaches too would have each event twice.
            let publishing = session
                .complement
                .as_ref()
                .map_or(session.sources.len(), |last| last.number);
            let transports = session.sources[..publishing].iter_mut();
            EventPublishers::new(options, transports.map(|source| &mut source.transport))
        });
        session.log_warnings();
        session.follow_graphs();
        session.subscribe_clock()?;
        session.subscribe_static_topics()?;
        Ok(session)
    }

    fn log_warnings(&self) {
        for source in &self.sources {
            for warning in source.transport.warnings() {
                tracing::warn!("{warning}");
            }
        }
    }

    fn subscribe_clock(&mut self) -> Result<(), TransportError> {
        if !self.options.use_sim_time {
            return Ok(());
        }
        tracing::info!("waiting for the first message on /clock");
        let request = SubscribeRequest {
            topic: "/clock".to_owned(),
            type_name: "rosgraph_msgs/msg/Clock".to_owned(),
            // The weakest request is matched with every publisher.
            qos: QosProfile {
                reliability: Reliability::BestEffort,
                durability: Durability::Volatile,
                ..QosProfile::ROS_DEFAULT
            },
        };
        for source in &mut self.sources {
            let sink = Arc::new(ClockSink {
                gate: Arc::clone(&self.parts.gate),
                watch: Arc::clone(&self.parts.time),
            });
            self.clock_subscriptions
                .push(source.transport.subscribe(&request, sink)?);
        }
        Ok(())
    }

    /// Does everything that is due at `now` (monotonic time); returns how many messages were moved by hand.
    pub(crate) fn step(&mut self, now: Duration) -> usize {
        let moved = self.pump();
        self.parts.time.look();
        self.record_held_where_it_goes_on();
        let has_news = |source: &Source| source.failure.is_none() && source.transport.has_graph_news();
        if !self.decided.is_empty() || now >= self.next_poll || self.sources.iter().any(has_news) {
            self.next_poll = now + self.options.polling_interval;
            self.poll_graph(now);
        }
        self.answer_topic_requests();
        if now >= self.next_announcements {
            self.next_announcements = now + ANNOUNCEMENT_INTERVAL;
            self.poll_announcements();
        }
        if now >= self.next_loss_check {
            self.next_loss_check = now + LOSS_INTERVAL;
            let absence = self.parts.wait.absence(now);
            self.losses.log_new(&lock(&self.parts.ledger), absence);
            self.report_services(now);
            self.report_not_heard(now, false);
            self.leave_to_others();
        }
        self.publish_events(now);
        self.ask_for_definitions(now);
        moved
    }

    /// Latched messages that came in a pause, or before the first `/clock`, are recorded when it ends.
    fn record_held_where_it_goes_on(&mut self) {
        let gate = &self.parts.gate;
        let is_shut = gate.is_paused() || gate.waits_for_clock();
        let goes_on = std::mem::replace(&mut self.was_shut, is_shut) && !is_shut;
        if let Some(now) = gate.time(self.clock.now()).filter(|_| goes_on) {
            for topic in self.topics.values() {
                topic.intake.record_held(now);
            }
        }
    }

    /// Reports services whose calls cannot be recorded, each once, and stores all of them for the bag.
    fn report_services(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.started);
        let mut found = BTreeSet::new();
        for source in &mut self.sources {
            found.extend(source.services.newly_unheard(&source.discovery, elapsed));
        }
        let all = self.sources.iter().flat_map(|source| source.services.unheard());
        self.parts.drain.set_unheard_services(all.cloned().collect());
        if !found.is_empty() {
            let names: Vec<String> = found.iter().take(SERVICES_LISTED_MAX).cloned().collect();
            let more = found.len() - names.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let count = found.len();
            let services = if count == 1 { "service" } else { "services" };
            tracing::warn!(
                "{count} {services} without introspection: their calls are not in the bag: {}{more}",
                names.join(", ")
            );
        }
    }

    fn publish_events(&mut self, now: Duration) {
        let finished = self.parts.drain.take_finished();
        if let Some(events) = &mut self.events {
            events.publish_lost_when_due(&self.parts.ledger, now);
            for file in &finished {
                events.publish_finished(file);
            }
        }
    }

    /// Publishes the recording's end to other nodes.
    pub(crate) fn publish_end(&mut self) {
        let finished = self.parts.drain.take_finished();
        if let Some(events) = &mut self.events {
            for file in &finished {
                events.publish_finished(file);
            }
            events.finish(&self.parts.ledger);
        }
    }

    /// Why nothing more can arrive, if all transports have failed: one sentence.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Which transports failed while others recorded on: one sentence each.
    pub(crate) fn lost_transports(&self) -> Option<String> {
        let failures: Vec<&str> = self
            .sources
            .iter()
            .filter_map(|source| source.failure.as_deref())
            .collect();
        (!failures.is_empty()).then(|| failures.join("; "))
    }

    /// Leaves a transport that has failed; after the last one nothing more can arrive.
    fn transport_failed(&mut self, number: usize, error: &TransportError) {
        self.sources[number].failure = Some(error.to_string());
        if self.sources.iter().all(|source| source.failure.is_some()) {
            // The end of the recording reports it.
            self.failure = self.lost_transports();
        } else {
            tracing::error!("{error}; recording continues on the other transports");
        }
    }

    /// Moves messages for transports that have no threads; returns how many.
    pub(crate) fn pump(&mut self) -> usize {
        if !self.sources.iter().any(|source| source.transport.is_pumped()) {
            return 0;
        }
        let clock: usize = self
            .clock_subscriptions
            .iter_mut()
            .map(|clock| clock.pump())
            .sum();
        clock + self.topics.values_mut().map(RecordedTopic::pump).sum::<usize>()
    }

    fn poll_graph(&mut self, now: Duration) {
        self.execute_decided();
        if !self.decided.is_empty() {
            return;
        }
        let elapsed = now.saturating_sub(self.started);
        // Without discovery, topics of the start are still found.
        let discovers =
            self.parts.requests.discovers() || (self.options.no_discovery && elapsed < INITIAL_DISCOVERY);
        for number in 0..self.sources.len() {
            let source = &mut self.sources[number];
            if source.failure.is_some() {
                continue;
            }
            let reopened = if discovers {
                source.discovery.open()
            } else {
                source.discovery.close();
                Vec::new()
            };
            self.defer(number, reopened);
            let source = &mut self.sources[number];
            let mut events = Vec::new();
            let polled = source.transport.poll_graph(&mut events);
            if !events.is_empty() {
                self.last_change = now;
            }
            if let Some(publishers) = &mut self.events {
                publishers.notice(number, source.transport.as_mut(), &events);
            }
            source.services.apply(&events, elapsed);
            let mut decisions = source.discovery.apply(events);
            if let Some(complement) = self.complement.as_mut().filter(|last| last.number == number) {
                decisions = complement.keep(decisions, now);
            }
            if let Err(error) = polled {
                self.transport_failed(number, &error);
            }
            self.defer(number, decisions);
            self.execute_decided();
        }
        self.complete(now);
        self.execute_decided();
        self.report_silent();
    }

    /// Subscribes to topics that the control asked for.
    fn answer_topic_requests(&mut self) {
        for request in self.parts.requests.take_pending() {
            let mut requested = Vec::new();
            for (name, type_name) in request.topics {
                let mut is_known = false;
                for number in 0..self.sources.len() {
                    let found = self.sources[number]
                        .discovery
                        .request(&name, type_name.as_deref());
                    is_known |= found.is_some();
                    self.defer(number, found.into_iter().flatten());
                }
                requested.push((name, is_known));
            }
            self.execute_decided();
            let mut answer = SubscribeAnswer::default();
            for (name, is_known) in requested {
                let is_recorded = is_known && self.is_or_will_be_recorded(&name);
                let list = if is_recorded {
                    &mut answer.subscribed
                } else {
                    &mut answer.unavailable
                };
                list.push(name);
            }
            // The asker may have stopped waiting.
            let _ = request.answer.try_send(answer);
        }
    }

    /// Whether a transport has accepted a subscription to the topic, or is asked for one as soon as the disk has time.
    fn is_or_will_be_recorded(&self, name: &str) -> bool {
        let is_of_topic = |decided: &Decided| match &decided.decision {
            GraphDecision::Record(plan) => plan.name == name,
            GraphDecision::Publisher(publisher) => publisher.topic == name,
            _ => false,
        };
        let topic = self.topics.get(name);
        topic.is_some_and(RecordedTopic::is_subscribed) || self.decided.iter().any(is_of_topic)
    }

    pub(crate) fn poll_announcements(&self) {
        self.topics.values().for_each(RecordedTopic::poll_announcements);
    }

    /// True if everything that publishers announced has arrived.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.topics.values().all(|topic| topic.intake.is_caught_up())
    }

    /// Ends all subscriptions and closes the accounts of arrived messages.
    pub(crate) fn close(&mut self) {
        let is_new = |decided: &&Decided| matches!(decided.decision, GraphDecision::Record(_));
        let unheard = self.decided.iter().filter(is_new).count();
        if unheard > 0 {
            tracing::warn!(
                "{unheard} topics were never subscribed to: the disk was busy from their appearance to the end"
            );
        }
        self.report_not_heard(self.clock.monotonic(), true);
        self.clock_subscriptions.clear();
        for topic in self.topics.values_mut() {
            topic.unsubscribe();
            topic.intake.close();
        }
    }
}

fn filter(options: &RecordOptions) -> Result<TopicFilter, SelectionError> {
    let node = NodeName {
        namespace: "/".to_owned(),
        name: NODE_NAME.to_owned(),
    };
    if options.selection.is_empty() && options.static_topics.is_empty() {
        return Err(SelectionError::Nothing);
    }
    options.selection.validate()?;
    options.selection.compile(&node)
}
