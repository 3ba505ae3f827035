//! A transport that completes others: its publishers are received if no other transport shows them.
//!
//! Publishers that several transports show are left to the others. When that changes, both are received for a while: the intake recognizes
//! messages of one publisher by their numbers.

use super::source::Source;
use crate::receive::{
    covered::Covered,
    discovery::{GraphDecision, TopicPlan},
};
use holdall_model::topic::Gid;
use holdall_transport::{EndpointInfo, Identity};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// How long other transports may take to show publishers of a participant that this one shows.
const OTHERS_LATE_MAX: Duration = Duration::from_millis(400);

/// How long both are received after another transport has brought a first message: what this one brought before may still be in flight.
const BOTH: Duration = Duration::from_secs(1);

/// The part of the identifier that all publishers of a participant share.
type Participant = [u8; 12];

/// The publishers that a transport shows in addition to those of the others.
pub(super) struct Complement {
    /// Which of the sources it is.
    number: usize,
    /// Those that other transports bring.
    covered: Arc<Covered>,
    /// By publisher; true for those that are received.
    known: BTreeMap<Gid, (EndpointInfo, bool)>,
    /// Topics that it would open.
    plans: BTreeMap<String, TopicPlan>,
    /// When each participant was first seen.
    since: HashMap<Participant, Duration>,
    /// Since when another transport is known to bring a publisher's messages.
    brought: HashMap<Gid, Duration>,
    /// Who other transports show and cannot receive.
    unreached: Vec<Identity>,
    /// Publishers that other transports show and are not matched with.
    unmatched: HashSet<Gid>,
}

fn participant_of(gid: Gid) -> Participant {
    let mut participant = [0; 12];
    participant.copy_from_slice(&gid.0[..12]);
    participant
}

impl Complement {
    /// The last of several sources, where it is one.
    pub fn of(sources: &[Source]) -> Option<Self> {
        let last = sources.last()?;
        let is_one = sources.len() > 1 && last.completes_others();
        is_one.then(|| Self {
            number: sources.len() - 1,
            covered: Arc::default(),
            known: BTreeMap::new(),
            plans: BTreeMap::new(),
            since: HashMap::new(),
            brought: HashMap::new(),
            unreached: Vec::new(),
            unmatched: HashSet::new(),
        })
    }

    /// Its number among the sources.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The publishers that are left to other transports.
    pub fn covered(&self) -> &Arc<Covered> {
        &self.covered
    }

    /// Keeps the requests of its graph; returns those that must be carried out at once.
    pub fn keep(&mut self, decisions: Vec<GraphDecision>, now: Duration) -> Vec<GraphDecision> {
        let mut at_once = Vec::new();
        for decision in decisions {
            match decision {
                GraphDecision::Record(plan) => {
                    self.plans.insert(plan.name.clone(), plan);
                }
                GraphDecision::Publisher(publisher) => {
                    let gid = publisher.gid;
                    self.since.entry(participant_of(gid)).or_insert(now);
                    let was_received = self.known.get(&gid).is_some_and(|(_, is_received)| *is_received);
                    if was_received {
                        // The publisher's new properties.
                        at_once.push(GraphDecision::Publisher(publisher.clone()));
                    }
                    self.known.insert(gid, (*publisher, was_received));
                }
                GraphDecision::PublisherGone { gid, .. } => {
                    self.brought.remove(&gid);
                    if let Some((_, true)) = self.known.remove(&gid) {
                        at_once.push(decision);
                    }
                }
                GraphDecision::RefusedTypes { .. } => {}
            }
        }
        at_once
    }

    /// Whether another source shows a publisher and can receive it.
    fn is_covered(&self, publisher: &EndpointInfo, others: &[Source]) -> bool {
        others.iter().any(|source| source.shows(publisher.gid))
            && !self.unmatched.contains(&publisher.gid)
            && !self.unreached.iter().any(|one| one.has(publisher))
    }

    /// Begins to receive publishers that others had time to show and did not; returns the necessary changes. Publishers that others receive
    /// stay with them.
    pub fn release(
        &mut self,
        others: &[Source],
        is_brought: impl Fn(&EndpointInfo) -> bool,
        now: Duration,
    ) -> Vec<GraphDecision> {
        let mut covered = HashSet::new();
        let mut begun = Vec::new();
        for (gid, (publisher, is_received)) in &self.known {
            if !self.is_covered(publisher, others) {
                self.brought.remove(gid);
                let since = self.since.get(&participant_of(*gid)).copied().unwrap_or(now);
                if !is_received && now >= since + OTHERS_LATE_MAX {
                    begun.push(*gid);
                }
            } else if is_brought(publisher) && now >= *self.brought.entry(*gid).or_insert(now) + BOTH {
                covered.insert(*gid);
            }
        }
        self.covered.set(covered);
        let mut decisions = Vec::new();
        for gid in begun {
            if let Some((publisher, is_received)) = self.known.get_mut(&gid) {
                *is_received = true;
                decisions.extend(self.plans.remove(&publisher.topic).map(GraphDecision::Record));
                decisions.push(GraphDecision::Publisher(Box::new(publisher.clone())));
            }
        }
        decisions
    }

    /// Whether other transports bring the messages of all publishers of a topic that it receives, of which there is at least one.
    pub fn is_superfluous_for(&self, topic: &str) -> bool {
        let received =
            |(publisher, is_received): &&(EndpointInfo, bool)| *is_received && publisher.topic == topic;
        let mut received = self.known.values().filter(received).peekable();
        let is_left = |(publisher, _): &(EndpointInfo, bool)| self.covered.has(Some(publisher.gid));
        received.peek().is_some() && received.all(is_left)
    }

    /// It no longer receives the publishers of a topic.
    pub fn leave(&mut self, topic: &str) {
        for (publisher, is_received) in self.known.values_mut() {
            *is_received &= publisher.topic != topic;
        }
    }

    /// Notes publishers that other transports show and do not receive.
    pub fn set_unreached(&mut self, unreached: Vec<Identity>) {
        self.unreached = unreached;
    }

    /// Notes a publisher that another transport is not matched with; true if this one has it.
    pub fn is_unmatched(&mut self, gid: Gid) -> bool {
        let is_known = self.known.contains_key(&gid);
        if is_known {
            self.unmatched.insert(gid);
        }
        is_known
    }
}
