//! The topics of a session: opened in the ledger, the cache and the bag, and subscribed.

use super::{Decided, LiveTopic, Moment, Session};
use crate::{
    receive::{
        discovery::{GraphDecision, TopicPlan, nodes_to_ask},
        intake::{Intake, PublisherOrigin},
        subscriptions::RecordedTopic,
    },
    write::drain::{COMMANDS_MAX, DrainCommand},
};
use holdall_io::mutex::lock;
use holdall_model::{
    qos::Durability,
    topic::{MessageDefinition, TopicId, TopicInfo, TopicOrigin},
};
use holdall_transport::{EndpointInfo, TransportError};
use std::{collections::BTreeMap, sync::Arc};

/// Serialization format of payloads if a transport does not name one.
const CDR: &str = "cdr";

impl Session {
    pub(super) fn subscribe_static_topics(&mut self) -> Result<(), TransportError> {
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
                if self.parts.drain.has_room() {
                    self.record(number, &plan)?;
                } else {
                    let decision = GraphDecision::Record(plan.clone());
                    self.defer(number, [decision]);
                }
            }
        }
        Ok(())
    }

    /// Keeps decisions until the drain's queue has room for their commands.
    pub(super) fn defer(&mut self, number: usize, decisions: impl IntoIterator<Item = GraphDecision>) {
        let moment = Moment {
            elapsed: self.clock.monotonic().saturating_sub(self.started),
            now: self.sources[number].transport.now(),
        };
        let decisions = decisions.into_iter().map(|decision| Decided {
            number,
            decision,
            moment,
        });
        self.decided.extend(decisions);
    }

    /// Carries out pending decisions, each of which queues at most one command, while the drain's queue has room.
    pub(super) fn execute_decided(&mut self) {
        while self.parts.drain.has_room()
            && let Some(next) = self.decided.pop_front()
        {
            if let Err(error) = self.execute(next.number, &next.decision, next.moment) {
                tracing::error!("not recorded: {error}");
                self.note_refused(&next.decision, &error);
            }
        }
        if self.decided.is_empty() {
            return;
        }
        self.parts.cache.wake();
        if !std::mem::replace(&mut self.is_delay_known, true) {
            tracing::warn!(
                "more than {COMMANDS_MAX} topics appeared while the disk was busy; further ones are recorded later"
            );
        }
    }

    fn execute(
        &mut self,
        number: usize,
        decision: &GraphDecision,
        moment: Moment,
    ) -> Result<(), TransportError> {
        match decision {
            GraphDecision::Record(plan) => self.record(number, plan),
            GraphDecision::Publisher(publisher) => self.serve(number, publisher, moment),
            GraphDecision::PublisherGone {
                topic,
                gid,
                departure,
            } => {
                tracing::debug!("{topic}: publisher {gid} is gone: {departure:?}");
                self.publisher_gone(topic, *gid, *departure);
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
    pub(super) fn record(&mut self, number: usize, plan: &TopicPlan) -> Result<(), TransportError> {
        if !self.topics.contains_key(&plan.name) {
            self.open_topic(number, plan);
        }
        let source = &mut self.sources[number];
        match self.topics.get_mut(&plan.name) {
            // The one that completes others waits for a publisher.
            Some(topic)
                if plan.publishers.is_empty()
                    && self.complement.as_ref().is_none_or(|last| last.number != number) =>
            {
                topic.subscribe_unseen(number, source.transport.as_mut())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn open_topic(&mut self, number: usize, plan: &TopicPlan) {
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
        }
        if let Some(priority) = self.options.priorities.get(&plan.name) {
            parts.cache.prioritize(id, *priority);
        }
        let intake = Arc::new(intake);
        lock(&parts.topics).push(LiveTopic {
            name: plan.name.clone(),
            type_name: plan.type_name.clone(),
            intake: Arc::clone(&intake),
            offered: Vec::new(),
        });
        self.note_latched(id, &plan.name, plan.publishers.iter().any(offers_latched));
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
        let is_repeated = parts
            .latched
            .as_ref()
            .is_some_and(|keeper| keeper.names(&plan.name));
        let names = (
            plan.name.as_str(),
            plan.type_name.as_str(),
            plan.type_hash.as_str(),
        );
        let mut topic = RecordedTopic::new(id, names, intake, qos_override);
        if is_repeated {
            topic = topic.request_latched();
        }
        if self.options.merge_duplicates && self.sources.len() > 1 {
            topic = topic.merge_duplicates();
        }
        if let Some(complement) = &self.complement {
            topic = topic.completed_by(complement.number, Arc::clone(&complement.covered));
        }
        self.topics.insert(plan.name.clone(), topic);
    }

    fn note_latched(&self, topic: TopicId, name: &str, has_latched: bool) {
        if let Some(keeper) = &self.parts.latched {
            keeper.add_topic(topic, name, has_latched);
        }
    }

    /// How the bag describes a topic.
    pub(super) fn topic_info(&self, number: usize, plan: &TopicPlan) -> TopicInfo {
        let endpoint = plan.publishers.first();
        let format = endpoint.and_then(|publisher| publisher.serialization_format);
        TopicInfo {
            name: plan.name.clone(),
            type_name: plan.type_name.clone(),
            serialization_format: format.unwrap_or(CDR).to_owned(),
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
    pub(super) fn open_type(&mut self, number: usize, publisher: &EndpointInfo) {
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

    pub(super) fn serve(
        &mut self,
        number: usize,
        publisher: &EndpointInfo,
        moment: Moment,
    ) -> Result<(), TransportError> {
        match self.topics.get(&publisher.topic) {
            None => return Ok(()),
            Some(topic) if topic.has_type(&publisher.type_name) => {}
            Some(_) => self.open_type(number, publisher),
        }
        let Some(topic) = self.topics.get_mut(&publisher.topic) else {
            return Ok(());
        };
        // Messages that a leaf topic sent before it had a subscription were not requested.
        let origin = if self.options.selection.ignore_leaf_topics {
            PublisherOrigin::Before
        } else {
            self.sources[number].origin_of(publisher, moment)
        };
        if let Some(keeper) = self.parts.latched.as_ref().filter(|_| offers_latched(publisher)) {
            keeper.add_topic(topic.id, &publisher.topic, true);
        }
        if let Some(live) = lock(&self.parts.topics).get_mut(topic.id.0 as usize) {
            live.note_offer(publisher.qos);
        }
        if offers_latched(publisher) {
            topic.intake.hold_latched(publisher.gid, &publisher.qos);
        }
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
}

/// Whether a publisher keeps its last messages for late subscriptions.
fn offers_latched(publisher: &EndpointInfo) -> bool {
    publisher.qos.durability == Durability::TransientLocal
}
