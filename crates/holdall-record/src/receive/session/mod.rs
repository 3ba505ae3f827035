//! A recording session: follows the graph, keeps subscriptions, finds definitions. Runs in steps, each given the time.

mod complement;
mod decisions;
mod definitions;
mod ends;
mod not_heard;
mod parts;
mod source;
mod sources;
mod topics;

pub(crate) use holdall_model::due::STEP_INTERVAL;
pub(crate) use parts::{LiveTopic, Parts};
pub use source::INITIAL_DISCOVERY;

use super::{
    discovery::{GraphDecision, TopicPlan},
    gate::ClockSink,
    loss_watch::LossWatch,
};
use crate::{events::EventPublishers, options::RecordOptions, requests::SubscribeAnswer, view::View};
use decisions::{Decided, Decisions};
use ends::Silences;
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::due::Due;
use holdall_model::{
    qos::{Durability, QosProfile, Reliability},
    selection::{SelectionError, TopicFilter},
    topic::NodeName,
};
use holdall_transport::{SubscribeRequest, Subscription, Transport, TransportError};
use not_heard::{NotHeardWatch, refused};
use source::Moment;
use sources::Sources;
use std::{sync::Arc, time::Duration};
use topics::Topics;

/// The name that relative topic names are completed with.
const NODE_NAME: &str = "rosbag2_recorder";

/// Everything between the transports and the cache.
pub(crate) struct Session {
    options: Arc<RecordOptions>,
    parts: Parts,
    clock: Arc<dyn Clock>,
    sources: Sources,
    topics: Topics,
    decisions: Decisions,
    due: Due,
    not_heard: NotHeardWatch,
    silences: Silences,
    losses: LossWatch,
    events: Option<EventPublishers>,
    /// Keeps simulation time going.
    clock_subscriptions: Vec<Box<dyn Subscription>>,
    /// Nothing was recorded at the last step: a pause, or no message on `/clock` yet.
    was_shut: bool,
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
        let options = Arc::new(options);
        let mut sources = Sources::new(transports, &filter(&options)?);
        let events = options.events.clone();
        let events = events.map(|events| sources.event_publishers(events));
        sources.log_warnings();
        sources.follow_graphs(&parts.wait);
        let mut session = Self {
            topics: Topics::new(Arc::clone(&options), parts.clone(), keeps_types),
            options,
            parts,
            sources,
            decisions: Decisions::default(),
            due: Due::new(clock.monotonic()),
            not_heard: NotHeardWatch::default(),
            silences: Silences::new(Arc::clone(&clock)),
            losses: LossWatch::default(),
            events,
            clock,
            clock_subscriptions: Vec::new(),
            was_shut: true,
        };
        session.subscribe_clock()?;
        session.subscribe_static_topics()?;
        Ok(session)
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
        for source in self.sources.iter_mut() {
            let sink = Arc::new(ClockSink {
                gate: Arc::clone(&self.parts.gate),
                watch: Arc::clone(&self.parts.time),
            });
            self.clock_subscriptions
                .push(source.transport().subscribe(&request, sink)?);
        }
        Ok(())
    }

    fn subscribe_static_topics(&mut self) -> Result<(), TransportError> {
        for (name, type_name) in self.options.discovery.static_topics.clone() {
            let plan = TopicPlan {
                name: name.clone(),
                type_name,
                type_hash: String::new(),
                publishers: Vec::new(),
            };
            for number in 0..self.sources.len() {
                self.sources[number].add_recorded(&name, &plan.type_name);
                if self.parts.drain.has_room() {
                    self.topics.record(number, &plan, &mut self.sources)?;
                } else {
                    self.defer(number, [GraphDecision::Record(plan.clone())]);
                }
            }
        }
        Ok(())
    }

    /// Does everything that is due at `now` (monotonic time); returns how many messages were moved by hand.
    pub(crate) fn step(&mut self, now: Duration) -> usize {
        let moved = self.pump();
        self.parts.time.look();
        self.record_held_where_it_goes_on();
        let has_news = !self.decisions.is_empty() || self.sources.have_news();
        if self
            .due
            .polls(now, self.options.discovery.polling_interval, has_news)
        {
            self.poll_graph(now);
        }
        self.answer_topic_requests();
        if self.due.polls_announcements(now) {
            self.poll_announcements();
        }
        if self.due.checks_losses(now) {
            let absence = self.parts.wait.absence(now);
            self.losses.log_new(&lock(&self.parts.ledger), absence);
            let services = self.sources.report_services(self.due.elapsed(now));
            self.parts.drain.set_unheard_services(services);
            self.report_not_heard(now, false);
            if let Some(complement) = self.sources.complement_mut() {
                self.topics.leave_to_others(complement);
            }
        }
        self.parts.alarms.step(&self.parts, now, self.clock.now());
        self.publish_events(now);
        self.topics.ask_for_definitions(&mut self.sources, now);
        moved
    }

    /// How long the next step may wait when nothing wakes it.
    pub(crate) fn until_next_step(&self, now: Duration) -> Duration {
        let is_busy = !self.decisions.is_empty() || self.topics.asking().awaits_answer(now);
        self.due.until_next_step(now, is_busy)
    }

    /// Latched messages that came in a pause, or before the first `/clock`, are recorded when it ends.
    fn record_held_where_it_goes_on(&mut self) {
        let gate = &self.parts.gate;
        let is_shut = gate.is_paused() || gate.waits_for_clock();
        let goes_on = std::mem::replace(&mut self.was_shut, is_shut) && !is_shut;
        if let Some(now) = gate.time(self.clock.now()).filter(|_| goes_on) {
            self.topics.record_held(now);
        }
    }

    fn publish_events(&mut self, now: Duration) {
        let finished = self.parts.drain.take_finished();
        if let Some(events) = &mut self.events {
            events.publish_lost_when_due(&self.parts.ledger, now);
            for file in &finished {
                events.publish_finished(file);
            }
            let view = || View {
                parts: self.parts.clone(),
                clock: Arc::clone(&self.clock),
                started: now.saturating_sub(self.due.elapsed(now)),
            };
            let time = self.clock.now();
            let time = self.parts.gate.time(time).unwrap_or(time);
            events.publish_diagnostics_when_due(now, time, || view().status());
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
        self.sources.failure()
    }

    /// Which transports failed while others recorded on: one sentence each.
    pub(crate) fn lost_transports(&self) -> Option<String> {
        self.sources.failures()
    }

    /// Moves messages for transports that have no threads; returns how many.
    pub(crate) fn pump(&mut self) -> usize {
        if !self.sources.are_pumped() {
            return 0;
        }
        let clock = self.clock_subscriptions.iter_mut();
        clock.map(|clock| clock.pump()).sum::<usize>() + self.topics.pump()
    }

    fn poll_graph(&mut self, now: Duration) {
        self.execute_decided();
        if !self.decisions.is_empty() {
            return;
        }
        let elapsed = self.due.elapsed(now);
        // Without discovery, topics of the start are still found.
        let discovers = self.parts.requests.discovers()
            || (self.options.discovery.no_discovery && elapsed < INITIAL_DISCOVERY);
        for number in 0..self.sources.len() {
            if self.sources[number].has_failed() {
                continue;
            }
            let reopened = self.sources[number].discover(discovers);
            self.defer(number, reopened);
            let source = &mut self.sources[number];
            let mut events = Vec::new();
            let polled = source.transport().poll_graph(&mut events);
            if !events.is_empty() {
                self.due.graph_changed(now);
            }
            if let Some(publishers) = &mut self.events {
                publishers.notice(number, source.transport(), &events);
            }
            let mut decisions = source.apply(events, elapsed);
            if let Some(complement) = self.sources.complement_at(number) {
                decisions = complement.keep(decisions, now);
            }
            if let Err(error) = polled {
                self.sources.failed(number, &error);
            }
            self.defer(number, decisions);
            self.execute_decided();
        }
        // Over the completing transport, publishers that no other one shows are received.
        let is_brought = |number, publisher: &_| self.topics.is_brought_by_others(number, publisher);
        if let Some((number, decisions)) = self.sources.complete(is_brought, now) {
            self.defer(number, decisions);
        }
        self.execute_decided();
        self.report_silent();
    }

    /// Keeps decisions until the drain's queue has room for their commands.
    fn defer(&mut self, number: usize, decisions: impl IntoIterator<Item = GraphDecision>) {
        let moment = Moment {
            elapsed: self.due.elapsed(self.clock.monotonic()),
            now: self.sources[number].now(),
        };
        self.decisions.add(number, decisions, moment);
    }

    /// Carries out pending decisions, each of which queues at most one command, while the drain's queue has room.
    fn execute_decided(&mut self) {
        while self.parts.drain.has_room()
            && let Some(next) = self.decisions.take_next()
        {
            if let Err(error) = self.execute(&next) {
                tracing::error!("not recorded: {error}");
                let about = refused(&next.decision, &error);
                self.parts.drain.add_not_heard(about.into_iter().collect());
            }
        }
        if !self.decisions.is_empty() {
            self.parts.cache.wake();
            self.decisions.warn_of_delay();
        }
    }

    fn execute(&mut self, decided: &Decided) -> Result<(), TransportError> {
        let number = decided.number;
        match &decided.decision {
            GraphDecision::Record(plan) => self.topics.record(number, plan, &mut self.sources),
            GraphDecision::Publisher(publisher) => {
                let source = &mut self.sources[number];
                self.topics.serve(number, publisher, decided.moment, source)
            }
            GraphDecision::PublisherGone {
                topic,
                gid,
                departure,
            } => {
                tracing::debug!("{topic}: publisher {gid} is gone: {departure:?}");
                let silent = self
                    .topics
                    .publisher_gone(topic, *gid, *departure, self.clock.now());
                if let Some(since) = silent {
                    self.silences.add(topic, since);
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

    fn report_silent(&mut self) {
        self.silences.report("went silent without a farewell");
    }

    /// Reports nodes and publishers that cannot be heard, each once, and stores all of them for the bag. At the end of the recording those that
    /// other transports had no time to show, too.
    fn report_not_heard(&mut self, now: Duration, is_end: bool) {
        let (unreached, networks) = self.sources.unreached();
        self.parts.drain.set_networks(networks);
        let mut found = self.not_heard.find(unreached, &self.sources, now, is_end);
        for (gid, about) in self.topics.newly_unmatched(now, is_end) {
            if !self.sources.completes_unmatched(gid) {
                found.push(about);
            }
        }
        for new in self.parts.drain.add_not_heard(found) {
            tracing::warn!("not heard: {new}");
        }
    }

    /// Subscribes to topics that the control asked for.
    fn answer_topic_requests(&mut self) {
        for request in self.parts.requests.take_pending() {
            let mut requested = Vec::new();
            for (name, type_name) in request.topics {
                let mut is_known = false;
                for number in 0..self.sources.len() {
                    let found = self.sources[number].request(&name, type_name.as_deref());
                    is_known |= found.is_some();
                    self.defer(number, found.into_iter().flatten());
                }
                requested.push((name, is_known));
            }
            self.execute_decided();
            let mut answer = SubscribeAnswer::default();
            for (name, is_known) in requested {
                // A transport has accepted a subscription, or is asked for one as soon as the disk has time.
                let is_recorded =
                    is_known && (self.topics.is_subscribed(&name) || self.decisions.has_topic(&name));
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

    /// Whether a node may still answer a request for a definition that was just made: worth a short wait at the end of a recording.
    pub(crate) fn awaits_definitions(&mut self, now: Duration) -> bool {
        self.topics.ask_for_definitions(&mut self.sources, now);
        self.topics.asking().has_just_asked(now, self.sources.len())
    }

    pub(crate) fn poll_announcements(&self) {
        self.topics.poll_announcements();
    }

    /// True if everything that publishers announced has arrived.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.topics.is_caught_up()
    }

    /// The recording was asked to end: from now on each publisher whose end is not known is watched for a later message.
    pub(crate) fn note_stop(&self) {
        self.topics.note_stop(self.clock.now());
    }

    /// Asks publishers how many messages they have sent, and notes those that have left since; true if an end was shown.
    pub(crate) fn ask_ends(&mut self) -> bool {
        self.follow_departures();
        self.topics.ask_ends()
    }

    /// True while a publisher that can answer has not.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.topics.awaits_answer()
    }

    /// True while one of them that was heard within the last `span` has not.
    pub(crate) fn awaits_answer_of_living(&self, span: Duration) -> bool {
        self.topics.awaits_answer_of_living(&self.sources, span)
    }

    /// True while a later message can show the end of a publisher.
    pub(crate) fn awaits_later_message(&self) -> bool {
        self.topics.awaits_later_message()
    }

    /// Notes which publishers have not answered.
    pub(crate) fn end_questions(&mut self) {
        let silences = &mut self.silences;
        let note = |topic: &str, since| silences.add(topic, since);
        self.topics.end_questions(&self.sources, self.clock.now(), note);
        self.silences.report("did not answer at the end");
    }

    /// Applies arrivals and departures on recorded topics: the time of arrival decides which messages are missing. No more topics are added.
    fn follow_departures(&mut self) {
        for number in 0..self.sources.len() {
            let source = &mut self.sources[number];
            if source.has_failed() {
                continue;
            }
            let mut events = Vec::new();
            if let Err(error) = source.transport().poll_graph(&mut events) {
                self.sources.failed(number, &error);
                continue;
            }
            let mut decisions = source.apply_last(events);
            decisions.retain(|decision| match decision {
                GraphDecision::Publisher(publisher) => self.topics.is_recorded(&publisher.topic),
                GraphDecision::PublisherGone { .. } => true,
                _ => false,
            });
            self.defer(number, decisions);
        }
        self.execute_decided();
        self.report_silent();
    }

    /// Ends all subscriptions and closes the accounts of arrived messages.
    pub(crate) fn close(&mut self) {
        self.decisions.warn_of_remaining();
        self.report_not_heard(self.clock.monotonic(), true);
        self.clock_subscriptions.clear();
        self.topics.close();
        let (now, time) = (self.clock.monotonic(), self.clock.now());
        self.parts.alarms.finish(&self.parts, now, time);
    }
}

fn filter(options: &RecordOptions) -> Result<TopicFilter, SelectionError> {
    let node = NodeName {
        namespace: "/".to_owned(),
        name: NODE_NAME.to_owned(),
    };
    if options.selection.is_empty() && options.discovery.static_topics.is_empty() {
        return Err(SelectionError::Nothing);
    }
    options.selection.validate()?;
    options.selection.compile(&node)
}
