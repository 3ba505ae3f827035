//! A recording session: follows the graph, keeps subscriptions, finds definitions. Runs in steps, each given the time.

use super::{
    definitions::Definitions,
    discovery::{Discovery, GraphDecision, TopicPlan, nodes_to_ask},
    gate::{ClockSink, Gate},
    intake::{Intake, PublisherOrigin},
    loss_watch::LossWatch,
    subscriptions::RecordedTopic,
};
use crate::record::{
    cache::SharedCache,
    events::EventPublishers,
    lock::lock,
    options::RecordOptions,
    write::drain::{DrainCommand, DrainShared},
};
use holdall_model::{
    interface::bundle::Bundle,
    loss::ledger::Ledger,
    qos::{Durability, QosProfile, Reliability},
    selection::{SelectionError, TopicFilter},
    time::Timestamp,
    topic::{MessageDefinition, NodeName, TopicId, TopicInfo, TopicOrigin},
};
use holdall_transport::{EndpointInfo, SubscribeRequest, Subscription, Transport, TransportError};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Publishers that are discovered this soon after the start count as running before it, unless they state
/// that they were made later: answering a newcomer takes DDS nodes up to some announcement periods.
pub const INITIAL_DISCOVERY: Duration = Duration::from_secs(2);

/// How far the wall clock may move against the monotonic one before it counts as set: NTP slews by half a millisecond a second.
const CLOCK_DRIFT_MAX: Duration = Duration::from_millis(500);

/// Time between two polls of what publishers announce to have sent.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a node that was asked for a definition shortly before the end is waited for.
const LAST_DEFINITION_WAIT: Duration = Duration::from_millis(300);

/// Time between two checks for losses that were not logged yet.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);

/// How payloads are serialized where a transport says nothing else.
const CDR: &str = "cdr";

/// The name that relative topic names are completed with.
const NODE_NAME: &str = "rosbag2_recorder";

/// What a topic's row in the status is made from.
#[derive(Clone)]
pub(in crate::record) struct LiveTopic {
    pub name: String,
    pub type_name: String,
    pub intake: Arc<Intake>,
}

/// The parts of a recording that its threads share.
#[derive(Clone)]
pub(in crate::record) struct Parts {
    pub gate: Arc<Gate>,
    pub cache: Arc<SharedCache>,
    pub ledger: Arc<Mutex<Ledger>>,
    pub drain: Arc<DrainShared>,
    /// In the order of subscription, as in the ledger.
    pub topics: Arc<Mutex<Vec<LiveTopic>>>,
}

/// A transport with what it has shown.
struct Source {
    transport: Box<dyn Transport>,
    discovery: Discovery,
    /// The time of day when the recording began.
    started: Timestamp,
    /// Why it has ended before the recording: one sentence.
    failure: Option<String>,
}

impl Source {
    /// Whether a publisher is older than the recording, by its own clock; a time in the future is of another clock and says nothing.
    /// Without a time the moment of its discovery decides: soon after the start older ones are still found. So it does when the wall clock
    /// was set since the start, `elapsed` ago: times of before and after do not compare.
    ///
    /// However late an older publisher is found (the recorder was stopped, the network came late), what it sent before is no loss.
    fn origin_of(&self, publisher: &EndpointInfo, elapsed: Duration) -> PublisherOrigin {
        let initial = elapsed < INITIAL_DISCOVERY;
        let now = self.transport.now();
        let by_wall_clock = i128::from(now.as_nanos()) - i128::from(self.started.as_nanos());
        let was_set = by_wall_clock.abs_diff(elapsed.as_nanos().cast_signed()) > CLOCK_DRIFT_MAX.as_nanos();
        let is_older = match publisher.created {
            Some(_) if was_set => initial,
            Some(created) if created < self.started => true,
            Some(created) if created <= now => false,
            _ => initial,
        };
        if is_older {
            PublisherOrigin::Before
        } else {
            PublisherOrigin::During
        }
    }
}

/// Everything between the transports and the cache.
pub(in crate::record) struct Session {
    options: RecordOptions,
    parts: Parts,
    /// The storage has a place for several types of one topic.
    keeps_types: bool,
    sources: Vec<Source>,
    definitions: Definitions,
    /// By name.
    topics: BTreeMap<String, RecordedTopic>,
    /// Keeps simulation time going.
    clock_subscriptions: Vec<Box<dyn Subscription>>,
    started: Duration,
    next_look: Duration,
    next_announcements: Duration,
    losses: LossWatch,
    next_loss_look: Duration,
    events: Option<EventPublishers>,
    failure: Option<String>,
}

impl Session {
    /// A session that has seen nothing yet; subscribes to what needs no discovery.
    ///
    /// # Errors
    /// A selection that is not valid, a static topic or `/clock` that a transport refuses.
    pub(in crate::record) fn new(
        options: RecordOptions,
        parts: Parts,
        transports: Vec<Box<dyn Transport>>,
        keeps_types: bool,
        now: Duration,
    ) -> Result<Self, crate::record::RecordError> {
        let filter = filter(&options)?;
        let source = |transport: Box<dyn Transport>| Source {
            started: transport.now(),
            transport,
            discovery: Discovery::new(filter.clone()),
            failure: None,
        };
        let definitions = Definitions::new(options.ament_prefixes.clone(), |name| {
            Bundle::embedded().get(name)
        });
        let mut session = Self {
            options,
            parts,
            keeps_types,
            sources: transports.into_iter().map(source).collect(),
            definitions,
            topics: BTreeMap::new(),
            clock_subscriptions: Vec::new(),
            started: now,
            next_look: now,
            next_announcements: now,
            losses: LossWatch::default(),
            next_loss_look: now,
            events: None,
            failure: None,
        };
        session.events = session.options.events.clone().map(|options| {
            let transports = session.sources.iter_mut().map(|source| &mut source.transport);
            EventPublishers::new(options, transports)
        });
        session.log_warnings();
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
            let sink = Arc::new(ClockSink(Arc::clone(&self.parts.gate)));
            self.clock_subscriptions
                .push(source.transport.subscribe(&request, sink)?);
        }
        Ok(())
    }

    fn subscribe_static_topics(&mut self) -> Result<(), TransportError> {
        for (name, type_name) in self.options.static_topics.clone() {
            let plan = TopicPlan {
                name: name.clone(),
                type_name,
                type_hash: String::new(),
                publishers: Vec::new(),
            };
            for number in 0..self.sources.len() {
                self.sources[number]
                    .discovery
                    .add_recorded(&name, &plan.type_name);
                self.record(number, &plan)?;
            }
        }
        Ok(())
    }

    /// Does everything that is due at `now` (monotonic time); returns how many messages were moved by hand.
    pub(in crate::record) fn step(&mut self, now: Duration) -> usize {
        let moved = self.pump();
        let has_news = |source: &Source| source.failure.is_none() && source.transport.has_graph_news();
        if now >= self.next_look || self.sources.iter().any(has_news) {
            self.next_look = now + self.options.polling_interval;
            self.look_at_graph(now);
        }
        if now >= self.next_announcements {
            self.next_announcements = now + ANNOUNCEMENT_INTERVAL;
            self.look_at_announcements();
        }
        if now >= self.next_loss_look {
            self.next_loss_look = now + LOSS_INTERVAL;
            self.losses.look(&lock(&self.parts.ledger));
        }
        self.publish_events(now);
        self.ask_for_definitions(now);
        moved
    }

    fn publish_events(&mut self, now: Duration) {
        let finished = self.parts.drain.take_finished();
        if let Some(events) = &mut self.events {
            events.tell_lost(&self.parts.ledger, now);
            for file in &finished {
                events.tell_finished(file);
            }
        }
    }

    /// Publishes the recording's end to other nodes.
    pub(in crate::record) fn tell_end(&mut self, last_file: Option<&Path>) {
        let finished = self.parts.drain.take_finished();
        if let Some(events) = &mut self.events {
            for file in &finished {
                events.tell_finished(file);
            }
            events.finish(&self.parts.ledger, last_file);
        }
    }

    /// Why nothing can arrive any more, when all transports have failed: one sentence.
    pub(in crate::record) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Which transports failed while others recorded on: one sentence each.
    pub(in crate::record) fn lost_transports(&self) -> Option<String> {
        let failures: Vec<&str> = self
            .sources
            .iter()
            .filter_map(|source| source.failure.as_deref())
            .collect();
        (!failures.is_empty()).then(|| failures.join("; "))
    }

    /// Leaves a transport that has failed; without the last one nothing can arrive any more.
    fn transport_failed(&mut self, number: usize, error: &TransportError) {
        self.sources[number].failure = Some(error.to_string());
        if self.sources.iter().all(|source| source.failure.is_some()) {
            // The end of the recording reports it.
            self.failure = self.lost_transports();
        } else {
            tracing::error!("{error}; the other transports record on");
        }
    }

    /// Time until the next poll of the graph.
    pub(in crate::record) fn until_next_look(&self, now: Duration) -> Duration {
        self.next_look.saturating_sub(now)
    }

    /// Moves messages for transports without threads of their own; returns how many.
    pub(in crate::record) fn pump(&mut self) -> usize {
        let clock: usize = self
            .clock_subscriptions
            .iter_mut()
            .map(|clock| clock.pump())
            .sum();
        clock + self.topics.values_mut().map(RecordedTopic::pump).sum::<usize>()
    }

    fn look_at_graph(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.started);
        let initial = elapsed < INITIAL_DISCOVERY;
        for number in 0..self.sources.len() {
            let source = &mut self.sources[number];
            if self.options.no_discovery && !initial {
                source.discovery.close();
            }
            if source.failure.is_some() {
                continue;
            }
            let mut events = Vec::new();
            let polled = source.transport.poll_graph(&mut events);
            if let Some(publishers) = &mut self.events {
                publishers.notice(number, source.transport.as_mut(), &events);
            }
            let decisions = source.discovery.take_in(events);
            if let Err(error) = polled {
                self.transport_failed(number, &error);
            }
            for decision in decisions {
                if let Err(error) = self.carry_out(number, decision, elapsed) {
                    tracing::error!("not recorded: {error}");
                }
            }
        }
    }

    fn carry_out(
        &mut self,
        number: usize,
        decision: GraphDecision,
        elapsed: Duration,
    ) -> Result<(), TransportError> {
        match decision {
            GraphDecision::Record(plan) => self.record(number, &plan),
            GraphDecision::Publisher(publisher) => self.serve(number, &publisher, elapsed),
            GraphDecision::PublisherGone { topic, gid } => {
                tracing::debug!("{topic}: publisher {gid} is gone");
                if let Some(topic) = self.topics.get(&topic) {
                    topic.intake.publisher_gone(gid);
                }
                Ok(())
            }
            GraphDecision::RefusedTypes { topic, type_names } => {
                tracing::warn!(
                    "{topic} is not recorded until it has a publisher: its subscriptions have more than one type ({})",
                    type_names.join(", ")
                );
                Ok(())
            }
        }
    }

    /// Begins to record a topic, unless another transport has brought it already.
    fn record(&mut self, number: usize, plan: &TopicPlan) -> Result<(), TransportError> {
        if !self.topics.contains_key(&plan.name) {
            self.open_topic(number, plan);
        }
        let source = &mut self.sources[number];
        match self.topics.get_mut(&plan.name) {
            Some(topic) if plan.publishers.is_empty() => {
                topic.subscribe_unseen(number, source.transport.as_mut())
            }
            _ => Ok(()),
        }
    }

    fn open_topic(&mut self, number: usize, plan: &TopicPlan) {
        let parts = &self.parts;
        let id = lock(&parts.ledger).add_topic(&plan.name);
        let intake = Arc::new(Intake::new(
            id,
            Arc::clone(&parts.cache),
            Arc::clone(&parts.ledger),
            Arc::clone(&parts.gate),
        ));
        lock(&parts.topics).push(LiveTopic {
            name: plan.name.clone(),
            type_name: plan.type_name.clone(),
            intake: Arc::clone(&intake),
        });
        let info = self.topic_info(number, plan);
        // Before the subscription, so that the drain knows the topic when its first message comes.
        let definition = self
            .definitions
            .find(&plan.type_name, &plan.type_hash, &plan.nodes());
        self.parts.drain.command(DrainCommand::AddTopic {
            topic: id,
            info,
            definition,
        });
        let qos_override = self.options.qos_overrides.get(&plan.name).copied();
        let names = (
            plan.name.as_str(),
            plan.type_name.as_str(),
            plan.type_hash.as_str(),
        );
        let mut topic = RecordedTopic::new(id, names, intake, qos_override);
        if self.options.merge_duplicates && self.sources.len() > 1 {
            topic = topic.merge_duplicates();
        }
        self.topics.insert(plan.name.clone(), topic);
    }

    /// How the bag describes a topic.
    fn topic_info(&self, number: usize, plan: &TopicPlan) -> TopicInfo {
        let endpoint = plan.publishers.first();
        let format = endpoint.map_or("", |publisher| publisher.serialization_format);
        TopicInfo {
            name: plan.name.clone(),
            type_name: plan.type_name.clone(),
            serialization_format: if format.is_empty() { CDR } else { format }.to_owned(),
            offered_qos_profiles: plan.publishers.iter().map(|publisher| publisher.qos).collect(),
            type_description_hash: plan.type_hash.clone(),
            origin: Some(TopicOrigin {
                transport: self.sources[number].transport.name().to_owned(),
                details: endpoint.map_or_else(BTreeMap::new, |publisher| publisher.details.clone()),
            }),
            publisher: None,
        }
    }

    /// Begins to receive publishers of another type than their topic is recorded with.
    fn open_type(&mut self, number: usize, publisher: &EndpointInfo) {
        let Some(topic) = self.topics.get_mut(&publisher.topic) else {
            return;
        };
        let type_hash = publisher.type_hash.as_deref().unwrap_or_default();
        topic.add_type(&publisher.type_name, type_hash, self.keeps_types);
        let (id, own) = (topic.id, topic.type_name.clone());
        let (name, other) = (&publisher.topic, &publisher.type_name);
        if !self.keeps_types {
            tracing::warn!(
                "{name}: publisher {} has type {other}, not {own}: its messages are counted as lost, because \
                 storage {} has no place for them (storage mcap has)",
                publisher.gid,
                self.options.storage_id
            );
            return;
        }
        tracing::warn!("{name}: it has publishers of type {own} and of type {other}; both are recorded");
        let plan = TopicPlan {
            name: name.clone(),
            type_name: other.clone(),
            type_hash: type_hash.to_owned(),
            publishers: vec![publisher.clone()],
        };
        let info = self.topic_info(number, &plan);
        let found = self.definitions.find(other, type_hash, &plan.nodes());
        // Before the subscription, as for a topic. Its messages do not wait for the definition.
        self.parts.drain.command(DrainCommand::AddType {
            topic: id,
            info,
            definition: found.unwrap_or_else(|| MessageDefinition::unknown(other)),
        });
    }

    fn serve(
        &mut self,
        number: usize,
        publisher: &EndpointInfo,
        elapsed: Duration,
    ) -> Result<(), TransportError> {
        match self.topics.get(&publisher.topic) {
            None => return Ok(()),
            Some(topic) if topic.has_type(&publisher.type_name) => {}
            Some(_) => self.open_type(number, publisher),
        }
        let Some(topic) = self.topics.get_mut(&publisher.topic) else {
            return Ok(());
        };
        // What a leaf topic sent before it had a subscription was not requested.
        let origin = if self.options.selection.ignore_leaf_topics {
            PublisherOrigin::Before
        } else {
            self.sources[number].origin_of(publisher, elapsed)
        };
        for node in nodes_to_ask(publisher) {
            let type_name = &publisher.type_name;
            self.definitions
                .add_node(type_name, topic.hash_of(type_name), node);
        }
        topic.serve(
            (number, self.sources[number].transport.as_mut()),
            publisher,
            origin,
        )
    }

    fn ask_for_definitions(&mut self, now: Duration) {
        for ask in self.definitions.asks(now) {
            for source in &mut self.sources {
                source
                    .transport
                    .request_type_description(&ask.node, &ask.type_name, &ask.type_hash);
            }
        }
        let mut replies = Vec::new();
        for source in &mut self.sources {
            source.transport.poll_type_descriptions(&mut replies);
        }
        for reply in replies {
            if let Some(definition) = self.definitions.answer(&reply) {
                self.define(&definition);
            }
        }
    }

    /// Whether a node may still answer a request for a definition that was just made: worth a short wait at the end of a recording.
    pub(in crate::record) fn awaits_definitions(&mut self, now: Duration) -> bool {
        self.ask_for_definitions(now);
        self.definitions.has_just_asked(now, LAST_DEFINITION_WAIT)
    }

    fn define(&self, definition: &MessageDefinition) {
        let has_type =
            |topic: &&RecordedTopic| topic.records(&definition.type_name, &definition.type_description_hash);
        let ids: Vec<TopicId> = self
            .topics
            .values()
            .filter(has_type)
            .map(|topic| topic.id)
            .collect();
        for topic in ids {
            self.parts.drain.command(DrainCommand::Define {
                topic,
                definition: definition.clone(),
            });
        }
        self.parts.cache.wake();
    }

    pub(in crate::record) fn look_at_announcements(&self) {
        self.topics
            .values()
            .for_each(RecordedTopic::look_at_announcements);
    }

    /// True when everything that publishers announced has arrived.
    pub(in crate::record) fn is_caught_up(&self) -> bool {
        self.topics.values().all(|topic| topic.intake.is_caught_up())
    }

    /// Ends all subscriptions and closes the accounts of what arrived.
    pub(in crate::record) fn close(&mut self) {
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
