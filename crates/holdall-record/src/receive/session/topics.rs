//! The topics of a session: opened in the ledger, the cache and the bag, and subscribed.

use super::{
    LiveTopic, Parts,
    complement::Complement,
    definitions::Asking,
    source::{Moment, Source},
    sources::Sources,
};
use crate::{
    options::RecordOptions,
    receive::{
        discovery::{Departure, TopicPlan, nodes_to_ask},
        intake::{Intake, PastTime, PublisherOrigin},
        subscriptions::RecordedTopic,
    },
    write::drain::DrainCommand,
};
use holdall_io::mutex::lock;
use holdall_model::{
    carried::{COMPRESSED_VIDEO, FFMPEG_PACKET},
    qos::Durability,
    time::Timestamp,
    topic::{Gid, MessageDefinition, TopicId, TopicInfo, TopicOrigin},
    unheard::NotHeard,
};
use holdall_transport::{EndpointInfo, TransportError};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Serialization format of payloads if a transport does not name one.
const CDR: &str = "cdr";

/// The time of day this long ago.
fn time_before(now: Timestamp, ago: Duration) -> Timestamp {
    let ago = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(now.as_nanos().saturating_sub(ago))
}

/// The recorded topics.
pub(super) struct Topics {
    options: Arc<RecordOptions>,
    parts: Parts,
    /// The storage has a place for several types of one topic.
    keeps_types: bool,
    asking: Asking,
    by_name: BTreeMap<String, RecordedTopic>,
}

impl Topics {
    pub fn new(options: Arc<RecordOptions>, parts: Parts, keeps_types: bool) -> Self {
        Self {
            asking: Asking::new(&options),
            options,
            parts,
            keeps_types,
            by_name: BTreeMap::new(),
        }
    }

    pub fn is_recorded(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether a transport has accepted a subscription to a topic.
    pub fn is_subscribed(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(RecordedTopic::is_subscribed)
    }

    /// Moves messages of transports that have no threads; returns how many.
    pub fn pump(&mut self) -> usize {
        self.by_name.values_mut().map(RecordedTopic::pump).sum()
    }

    pub fn poll_announcements(&self) {
        self.by_name.values().for_each(RecordedTopic::poll_announcements);
    }

    /// True if everything that publishers announced has arrived.
    pub fn is_caught_up(&self) -> bool {
        self.by_name.values().all(|topic| topic.intake.is_caught_up())
    }

    /// Records latched messages that came while nothing was recorded; recording continues at `now` on the clock that stamps messages.
    pub fn record_held(&self, now: Timestamp) {
        self.by_name
            .values()
            .for_each(|topic| topic.intake.record_held(now));
    }

    /// Ends all subscriptions and closes the accounts of arrived messages.
    pub fn close(&mut self) {
        for topic in self.by_name.values_mut() {
            topic.unsubscribe();
            topic.intake.close();
        }
    }

    /// Asks for definitions, and gives those that nodes have sent to the drain, while it has room.
    pub fn ask_for_definitions(&mut self, sources: &mut Sources, now: Duration) {
        self.asking.ask(sources, now);
        while self.parts.drain.has_room()
            && let Some(definition) = self.asking.take_answer()
        {
            self.define(definition);
        }
    }

    fn define(&self, definition: MessageDefinition) {
        let has_type =
            |topic: &&RecordedTopic| topic.records(&definition.type_name, &definition.type_description_hash);
        let topics = self.by_name.values().filter(has_type);
        let topics: Vec<TopicId> = topics.map(|topic| topic.id).collect();
        self.parts
            .drain
            .command(DrainCommand::Define { topics, definition });
        self.parts.cache.wake();
    }

    /// The definitions that are asked for.
    pub fn asking(&self) -> &Asking {
        &self.asking
    }

    /// Begins to record a topic, unless another transport has brought it already.
    ///
    /// # Errors
    /// A subscription that the transport refuses.
    pub fn record(
        &mut self,
        number: usize,
        plan: &TopicPlan,
        sources: &mut Sources,
    ) -> Result<(), TransportError> {
        if !self.is_recorded(&plan.name) {
            self.open_topic(number, plan, sources);
        }
        match self.by_name.get_mut(&plan.name) {
            Some(topic) if sources.subscribes_unseen(number, plan) => {
                topic.subscribe_unseen(number, sources[number].transport())
            }
            _ => Ok(()),
        }
    }

    fn open_topic(&mut self, number: usize, plan: &TopicPlan, sources: &Sources) {
        let parts = &self.parts;
        let id = lock(&parts.ledger).add_topic(&plan.name);
        let mut intake = Intake::new(
            id,
            Arc::clone(&parts.cache),
            Arc::clone(&parts.ledger),
            Arc::clone(&parts.gate),
        );
        if let Some(hertz) = self.options.throttles.get(&plan.name) {
            intake = intake.throttled(*hertz);
            if [COMPRESSED_VIDEO, FFMPEG_PACKET].contains(&plan.type_name.as_str()) {
                tracing::warn!(
                    "{}: its rate leaves single pictures of its video out; those that need them cannot be decoded",
                    plan.name
                );
            }
        }
        if let Some(priority) = self.options.priorities.get(&plan.name) {
            parts.cache.prioritize(id, *priority);
        }
        let intake = Arc::new(intake);
        let mut live = LiveTopic {
            name: plan.name.clone(),
            type_name: plan.type_name.clone(),
            intake: Arc::clone(&intake),
            offered: Vec::new(),
        };
        for publisher in &plan.publishers {
            live.note_offer(publisher.qos);
        }
        lock(&parts.topics).push(live);
        self.note_latched(id, &plan.name, plan.publishers.iter().any(offers_latched));
        let info = topic_info(sources[number].name(), plan);
        // Before the subscription, so that the drain knows the topic when its first message comes.
        let definition = self.asking.find(&plan.type_name, &plan.type_hash, &plan.nodes());
        self.parts.drain.command(DrainCommand::AddTopic {
            topic: id,
            info,
            definition,
        });
        let qos_override = self.options.discovery.qos_overrides.get(&plan.name).copied();
        let is_repeated = parts
            .latched
            .as_ref()
            .is_some_and(|keeper| keeper.names(&plan.name));
        let mut topic = RecordedTopic::new(id, plan, intake, qos_override);
        if is_repeated {
            topic = topic.request_latched();
        }
        if self.options.discovery.merge_duplicates && sources.len() > 1 {
            topic = topic.merge_duplicates();
        }
        if let Some(complement) = sources.complement() {
            topic = topic.completed_by(complement.number(), Arc::clone(complement.covered()));
        }
        self.by_name.insert(plan.name.clone(), topic);
    }

    fn note_latched(&self, topic: TopicId, name: &str, has_latched: bool) {
        if let Some(keeper) = &self.parts.latched {
            keeper.add_topic(topic, name, has_latched);
        }
    }

    /// Begins to receive publishers of another type than their topic is recorded with.
    fn open_type(&mut self, transport: &str, publisher: &EndpointInfo) {
        let Some(topic) = self.by_name.get_mut(&publisher.topic) else {
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
                self.options.files.storage_id
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
        let info = topic_info(transport, &plan);
        let found = self.asking.find(other, type_hash, &plan.nodes());
        // Before the subscription, as for a topic. Its messages do not wait for the definition.
        self.parts.drain.command(DrainCommand::AddType {
            topic: id,
            info,
            definition: found.unwrap_or_else(|| MessageDefinition::unknown(other)),
        });
    }

    /// Makes sure that a publisher of a recorded topic is received.
    ///
    /// # Errors
    /// A subscription that the transport refuses.
    pub fn serve(
        &mut self,
        number: usize,
        publisher: &EndpointInfo,
        moment: Moment,
        source: &mut Source,
    ) -> Result<(), TransportError> {
        let is_opened = match self.by_name.get(&publisher.topic) {
            None => return Ok(()),
            Some(topic) => !topic.has_type(&publisher.type_name),
        };
        if is_opened {
            self.open_type(source.name(), publisher);
        }
        let Some(topic) = self.by_name.get_mut(&publisher.topic) else {
            return Ok(());
        };
        // Messages that a leaf topic sent before it had a subscription were not requested.
        let origin = if self.options.selection.ignore_leaf_topics {
            PublisherOrigin::Before
        } else {
            source.origin_of(publisher, moment)
        };
        if let Some(keeper) = self.parts.latched.as_ref().filter(|_| offers_latched(publisher)) {
            keeper.add_topic(topic.id, &publisher.topic, true);
        }
        let place = topic.id.0 as usize;
        let is_new = lock(&self.parts.topics)
            .get_mut(place)
            .is_some_and(|live| live.note_offer(publisher.qos));
        // What was offered before was perhaps not by publishers of another type.
        let is_other = topic.type_name != publisher.type_name;
        if !is_opened && ((is_new && !is_other) || (is_other && self.keeps_types)) {
            self.parts.drain.command(DrainCommand::Offer {
                topic: topic.id,
                type_name: publisher.type_name.clone(),
                qos: publisher.qos,
            });
        }
        if offers_latched(publisher) {
            topic.intake.hold_latched(publisher.gid, &publisher.qos);
        }
        for node in nodes_to_ask(publisher) {
            let type_name = &publisher.type_name;
            self.asking.add_node(type_name, topic.hash_of(type_name), node);
        }
        topic.serve(number, source.transport(), publisher, origin)
    }

    /// Whether other transports than `number` bring what it brings of a publisher, too.
    pub fn is_brought_by_others(&self, number: usize, publisher: &EndpointInfo) -> bool {
        let topic = self.by_name.get(&publisher.topic);
        topic.is_some_and(|topic| {
            topic.is_subscribed_over(number) && topic.is_brought_by_others(number, publisher.gid)
        })
    }

    /// Ends subscriptions of the completing transport that others have made superfluous: they bring messages of all its publishers.
    pub fn leave_to_others(&mut self, complement: &mut Complement) {
        let number = complement.number();
        for (name, topic) in &mut self.by_name {
            if topic.is_subscribed_over(number) && complement.is_superfluous_for(name) {
                tracing::debug!("{name}: left to the other transports");
                topic.unsubscribe_from(number);
                complement.leave(name);
            }
        }
    }

    /// Publishers that no subscription is matched with and that were not returned before.
    pub fn newly_unmatched(&mut self, now: Duration, is_end: bool) -> Vec<(Gid, NotHeard)> {
        let topics = self.by_name.values_mut();
        topics
            .flat_map(|topic| topic.newly_unmatched(now, is_end))
            .collect()
    }

    /// Notes that a publisher is gone; `now` is the time of day. Returns since when it is silent, if it has said no farewell.
    pub fn publisher_gone(
        &mut self,
        topic: &str,
        gid: Gid,
        departure: Departure,
        now: Timestamp,
    ) -> Option<PastTime> {
        let recorded = self.by_name.get_mut(topic)?;
        recorded.publisher_gone(gid, departure, self.parts.time.ago(), now)
    }

    /// From now on each publisher whose end is not known is watched for a later message.
    pub fn note_stop(&self, now: Timestamp) {
        self.by_name
            .values()
            .for_each(|topic| topic.intake.note_stop(now));
    }

    /// Asks publishers how many messages they have sent; true if an end was shown.
    pub fn ask_ends(&mut self) -> bool {
        let mut is_news = false;
        for topic in self.by_name.values_mut() {
            is_news |= topic.ask_ends();
        }
        is_news
    }

    /// True while a publisher that can answer has not.
    pub fn awaits_answer(&self) -> bool {
        let mut topics = self.by_name.values();
        topics.any(|topic| !topic.intake.ends_asked().is_empty())
    }

    /// True while one of them that was heard within the last `span` has not.
    pub fn awaits_answer_of_living(&self, sources: &Sources, span: Duration) -> bool {
        self.by_name.values().any(|topic| {
            let mut asked = topic.intake.ends_asked().into_iter();
            asked.any(|gid| heard_ago(topic, gid, sources).is_some_and(|ago| ago <= span))
        })
    }

    /// True while a later message can show the end of a publisher.
    pub fn awaits_later_message(&self) -> bool {
        let mut topics = self.by_name.values();
        topics.any(|topic| topic.intake.awaits_later_message())
    }

    /// Notes which publishers have not answered at `now` (time of day); calls `note` with the topic of each and since when it is silent.
    pub fn end_questions(&self, sources: &Sources, now: Timestamp, mut note: impl FnMut(&str, PastTime)) {
        for topic in self.by_name.values() {
            for gid in topic.intake.ends_asked() {
                let heard = || {
                    let ago = heard_ago(topic, gid, sources).unwrap_or_default();
                    PastTime::new(time_before(now, ago), now)
                };
                if let Some(since) = topic.intake.not_answered(gid, self.parts.time.ago(), heard) {
                    note(&topic.name, since);
                }
            }
        }
    }
}

/// How long ago a publisher gave its last sign of life, if its transport knows it.
fn heard_ago(topic: &RecordedTopic, gid: Gid, sources: &Sources) -> Option<Duration> {
    sources[topic.transport_of(gid)?].silent_for(gid)
}

/// Whether a publisher keeps its last messages for late subscriptions.
fn offers_latched(publisher: &EndpointInfo) -> bool {
    publisher.qos.durability == Durability::TransientLocal
}

/// How the bag describes a topic that a transport has shown.
fn topic_info(transport: &str, plan: &TopicPlan) -> TopicInfo {
    let endpoint = plan.publishers.first();
    let format = endpoint.and_then(|publisher| publisher.serialization_format);
    TopicInfo {
        name: plan.name.clone(),
        type_name: plan.type_name.clone(),
        serialization_format: format.unwrap_or(CDR).to_owned(),
        offered_qos_profiles: plan.publishers.iter().map(|publisher| publisher.qos).collect(),
        type_description_hash: plan.type_hash.clone(),
        origin: Some(TopicOrigin {
            transport: transport.to_owned(),
            details: endpoint.map_or_else(BTreeMap::new, |publisher| publisher.details.clone()),
        }),
        publisher: None,
    }
}
