//! The transports of a session, and which of them still bring something.

use super::{complement::Complement, source::Source};
use crate::{
    events::{EventOptions, EventPublishers},
    receive::discovery::{GraphDecision, TopicPlan},
    step_wait::StepWait,
};
use holdall_model::{network::Network, selection::TopicFilter, text::first_of, topic::Gid};
use holdall_transport::{EndpointInfo, Identity, Transport, TransportError, Unreached};
use std::{
    collections::BTreeSet,
    ops::{Index, IndexMut},
    sync::Arc,
    time::Duration,
};

/// Services that one line of the log names.
const SERVICES_LISTED_MAX: usize = 20;

/// All transports, by number.
pub(super) struct Sources {
    /// The one that completes others is the last.
    all: Vec<Source>,
    complement: Option<Complement>,
    /// Set when all have failed.
    failure: Option<String>,
}

impl Sources {
    pub fn new(transports: Vec<Box<dyn Transport>>, filter: &TopicFilter) -> Self {
        let source = |transport| Source::new(transport, filter.clone());
        let mut all: Vec<Source> = transports.into_iter().map(source).collect();
        all.sort_by_key(Source::completes_others);
        Self {
            complement: Complement::of(&all),
            all,
            failure: None,
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Source> {
        self.all.iter_mut()
    }

    /// The one that completes the others, if one does.
    pub fn complement(&self) -> Option<&Complement> {
        self.complement.as_ref()
    }

    /// As [`Self::complement`].
    pub fn complement_mut(&mut self) -> Option<&mut Complement> {
        self.complement.as_mut()
    }

    /// The one that completes the others, if it has this number.
    pub fn complement_at(&mut self, number: usize) -> Option<&mut Complement> {
        self.complement.as_mut().filter(|last| last.number() == number)
    }

    pub fn log_warnings(&self) {
        for warning in self.all.iter().flat_map(Source::warnings) {
            tracing::warn!("{warning}");
        }
    }

    /// Changes of a graph end the wait for the next step, where a transport notices them.
    pub fn follow_graphs(&mut self, wait: &Arc<StepWait>) {
        for source in &mut self.all {
            let wait = Arc::clone(wait);
            source
                .transport()
                .wake_on_graph_news(Arc::new(move || wait.wake()));
        }
    }

    /// Publishers for the recording's events. Subscriptions that the last transport reaches too would have each event twice.
    pub fn event_publishers(&mut self, options: EventOptions) -> EventPublishers {
        let publishing = self
            .complement
            .as_ref()
            .map_or(self.all.len(), Complement::number);
        let transports = self.all[..publishing].iter_mut();
        EventPublishers::new(options, transports.map(Source::transport))
    }

    pub fn have_news(&self) -> bool {
        self.all.iter().any(Source::has_news)
    }

    pub fn are_pumped(&self) -> bool {
        self.all.iter().any(Source::is_pumped)
    }

    /// Why nothing more can arrive, if all have failed: one sentence.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Which have failed: one sentence each.
    pub fn failures(&self) -> Option<String> {
        let failures: Vec<&str> = self.all.iter().filter_map(Source::failure).collect();
        (!failures.is_empty()).then(|| failures.join("; "))
    }

    /// Leaves a transport that has failed; after the last one nothing more can arrive.
    pub fn failed(&mut self, number: usize, error: &TransportError) {
        self.all[number].fail(error);
        if self.all.iter().all(Source::has_failed) {
            // The end of the recording reports it.
            self.failure = self.failures();
        } else {
            tracing::error!("{error}; recording continues on the other transports");
        }
    }

    /// Whether a transport other than `number` shows an endpoint of this node or publisher.
    pub fn is_heard_by_others(&self, number: usize, identity: &Identity) -> bool {
        let mut others = self.all.iter().enumerate().filter(|(other, _)| *other != number);
        others.any(|(_, source)| source.shows_any_of(identity))
    }

    /// What single transports do not reach, with their numbers, and the networks that they use. The one that completes others learns what it
    /// has to bring.
    pub fn unreached(&mut self) -> (Vec<(usize, Unreached)>, Vec<Network>) {
        let mut unreached: Vec<(usize, Unreached)> = Vec::new();
        let mut networks = Vec::new();
        for (number, source) in self.all.iter_mut().enumerate() {
            if !source.has_failed() {
                let found = source.transport().not_heard();
                unreached.extend(found.into_iter().map(|one| (number, one)));
                networks.extend(source.transport().networks());
            }
        }
        if let Some(complement) = &mut self.complement {
            let of_others = unreached
                .iter()
                .filter(|(number, _)| *number != complement.number());
            complement.set_unreached(of_others.map(|(_, one)| one.identity.clone()).collect());
        }
        (unreached, networks)
    }

    /// Whether an unmatched publisher is left to the transport that completes others.
    pub fn completes_unmatched(&mut self, gid: Gid) -> bool {
        self.complement
            .as_mut()
            .is_some_and(|complement| complement.is_unmatched(gid))
    }

    /// Which publishers the completing transport begins to receive, with its number: those that no other one shows.
    pub fn complete(
        &mut self,
        is_brought: impl Fn(usize, &EndpointInfo) -> bool,
        now: Duration,
    ) -> Option<(usize, Vec<GraphDecision>)> {
        let complement = self.complement.as_mut()?;
        let number = complement.number();
        if self.all[number].has_failed() {
            return None;
        }
        let is_brought = |publisher: &EndpointInfo| is_brought(number, publisher);
        Some((number, complement.release(&self.all[..number], is_brought, now)))
    }

    /// Whether transport `number` subscribes to a topic at once: without a publisher the one that completes others waits.
    pub fn subscribes_unseen(&self, number: usize, plan: &TopicPlan) -> bool {
        let completes = self
            .complement
            .as_ref()
            .is_some_and(|last| last.number() == number);
        plan.publishers.is_empty() && !completes
    }

    /// Reports services whose calls cannot be recorded, each once; returns all of them.
    pub fn report_services(&mut self, elapsed: Duration) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for source in &mut self.all {
            found.extend(source.newly_unheard(elapsed));
        }
        if !found.is_empty() {
            let count = found.len();
            let services = if count == 1 { "service" } else { "services" };
            tracing::warn!(
                "{count} {services} without introspection: their calls are not in the bag: {}",
                first_of(&found, SERVICES_LISTED_MAX)
            );
        }
        self.all.iter().flat_map(Source::unheard).cloned().collect()
    }
}

impl Index<usize> for Sources {
    type Output = Source;

    fn index(&self, number: usize) -> &Source {
        &self.all[number]
    }
}

impl IndexMut<usize> for Sources {
    fn index_mut(&mut self, number: usize) -> &mut Source {
        &mut self.all[number]
    }
}
