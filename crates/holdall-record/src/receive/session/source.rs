//! A transport, and the endpoints it has shown.

use crate::receive::{
    discovery::{Discovery, GraphDecision},
    intake::PublisherOrigin,
    services::Services,
};
use holdall_model::{selection::TopicFilter, time::Timestamp, topic::Gid};
use holdall_transport::{EndpointInfo, GraphEvent, Identity, Transport, TransportError};
use std::{collections::BTreeSet, time::Duration};

/// Publishers that are discovered this soon after the start count as running before it, unless they state
/// that they were made later: answering a newcomer takes DDS nodes up to some announcement periods.
pub const INITIAL_DISCOVERY: Duration = Duration::from_secs(2);

/// How far the wall clock may move against the monotonic one before it counts as set: NTP slews by half a millisecond a second.
const CLOCK_DRIFT_MAX: Duration = Duration::from_millis(500);

/// When something of the graph was noticed, by two clocks that are read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Time since the session's beginning.
    pub elapsed: Duration,
    /// The transport's time of day.
    pub now: Timestamp,
}

/// A transport, and the endpoints it has shown.
pub(super) struct Source {
    transport: Box<dyn Transport>,
    discovery: Discovery,
    services: Services,
    /// The time of day when the recording began.
    started: Timestamp,
    /// Why it has ended before the recording: one sentence.
    failure: Option<String>,
}

impl Source {
    /// A transport that has shown nothing yet.
    pub fn new(transport: Box<dyn Transport>, filter: TopicFilter) -> Self {
        Self {
            started: transport.now(),
            transport,
            discovery: Discovery::new(filter),
            services: Services::default(),
            failure: None,
        }
    }

    pub fn transport(&mut self) -> &mut dyn Transport {
        self.transport.as_mut()
    }

    pub fn name(&self) -> &'static str {
        self.transport.name()
    }

    pub fn warnings(&self) -> Vec<String> {
        self.transport.warnings()
    }

    pub fn completes_others(&self) -> bool {
        self.transport.completes_others()
    }

    pub fn is_pumped(&self) -> bool {
        self.transport.is_pumped()
    }

    /// Its time of day.
    pub fn now(&self) -> Timestamp {
        self.transport.now()
    }

    /// How long ago a publisher gave its last sign of life, if that is known.
    pub fn silent_for(&self, gid: Gid) -> Option<Duration> {
        self.transport.silent_for(gid)
    }

    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub fn fail(&mut self, error: &TransportError) {
        self.failure = Some(error.to_string());
    }

    /// Whether its graph has changed since the last poll.
    pub fn has_news(&self) -> bool {
        !self.has_failed() && self.transport.has_graph_news()
    }

    /// Whether it can receive a publisher.
    pub fn shows(&self, gid: Gid) -> bool {
        !self.has_failed() && self.discovery.shows(gid)
    }

    /// Whether it can receive an endpoint of this node or publisher.
    pub fn shows_any_of(&self, identity: &Identity) -> bool {
        !self.has_failed() && self.discovery.endpoints().any(|endpoint| identity.has(endpoint))
    }

    /// New topics are recorded from now on, or no longer; returns the topics that were found in the meantime.
    pub fn discover(&mut self, is_on: bool) -> Vec<GraphDecision> {
        if is_on {
            self.discovery.open()
        } else {
            self.discovery.close();
            Vec::new()
        }
    }

    /// A topic is recorded without being discovered.
    pub fn add_recorded(&mut self, topic: &str, type_name: &str) {
        self.discovery.add_recorded(topic, type_name);
    }

    /// As [`Discovery::request`].
    pub fn request(&mut self, name: &str, type_name: Option<&str>) -> Option<Vec<GraphDecision>> {
        self.discovery.request(name, type_name)
    }

    /// Changes of the graph, `elapsed` after the session's beginning: returns what is to be done.
    pub fn apply(&mut self, events: Vec<GraphEvent>, elapsed: Duration) -> Vec<GraphDecision> {
        self.services.apply(&events, elapsed);
        self.discovery.apply(events)
    }

    /// Changes of the graph at the end of the recording, when services matter no longer.
    pub fn apply_last(&mut self, events: Vec<GraphEvent>) -> Vec<GraphDecision> {
        self.discovery.close();
        self.discovery.apply(events)
    }

    /// Services without introspection that were not returned before.
    pub fn newly_unheard(&mut self, elapsed: Duration) -> Vec<String> {
        self.services.newly_unheard(&self.discovery, elapsed)
    }

    /// All services without introspection.
    pub fn unheard(&self) -> &BTreeSet<String> {
        self.services.unheard()
    }

    /// Whether a publisher noticed at `moment` is older than the recording, by its own clock; a time in the future comes from another clock and proves nothing.
    /// Without a time the moment of its discovery decides: soon after the start older ones are still found. So it does when the wall clock
    /// was set since the start: times of before and after do not compare.
    ///
    /// However late an older publisher is found (the recorder was stopped, the network came late), messages that it sent before are not lost.
    pub fn origin_of(&self, publisher: &EndpointInfo, moment: Moment) -> PublisherOrigin {
        let Moment { elapsed, now } = moment;
        let initial = elapsed < INITIAL_DISCOVERY;
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
