//! The subscriptions of one recorded topic: as many as its publishers' QoS needs, so that none of them is missed.

use super::{
    covered::Covered,
    discovery::{Departure, TopicPlan},
    intake::{Brought, Intake, PastTime, PublisherOrigin, subscription_bit},
    merging::Merging,
};
use holdall_model::{
    qos::{Durability, QosProfile, Reliability, incompatible_policies, strongest_request},
    time::Timestamp,
    topic::{Gid, NodeName, PublisherInfo, TopicId},
    unheard::{NotHeard, NotHeardKind},
};
use holdall_transport::{EndpointInfo, SubscribeRequest, Subscription, Transport, TransportError};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// One subscription and the QoS that it requests.
struct OpenSubscription {
    /// Which of the recording's transports it belongs to.
    transport: usize,
    request: QosProfile,
    /// The type, if it is not the topic's.
    other_type: Option<usize>,
    /// The intake's number of it.
    number: usize,
    subscription: Box<dyn Subscription>,
}

/// A type that some of a topic's publishers have and the topic has not.
struct OtherType {
    type_name: Arc<str>,
    type_hash: String,
    /// The storage can keep its messages.
    is_kept: bool,
}

/// A topic that is being recorded.
pub(crate) struct RecordedTopic {
    pub id: TopicId,
    pub name: String,
    pub type_name: String,
    /// RIHS01 hash of its type, or empty.
    pub type_hash: String,
    pub intake: Arc<Intake>,
    /// The user's choice of requested QoS, whatever publishers offer.
    qos_override: Option<QosProfile>,
    /// Remembers messages, where those that several transports bring are recorded once.
    merging: Option<Arc<Merging>>,
    /// The transport that completes the others, and whose messages are left to them.
    completed: Option<(usize, Arc<Covered>)>,
    /// Transient local is requested whatever the overrides are.
    requests_latched: bool,
    subscriptions: Vec<OpenSubscription>,
    /// Subscriptions that were ever made.
    subscribed: usize,
    other_types: Vec<OtherType>,
    /// Publishers that were reported as incompatible.
    refused: BTreeMap<Gid, String>,
    /// Publishers to receive.
    // Boxed: a map has room for eleven, and keeps it when they are gone.
    served: BTreeMap<Gid, Box<Served>>,
}

/// A publisher to receive.
struct Served {
    transport: usize,
    node: Option<NodeName>,
    /// When it was first looked whether it is matched (monotonic time).
    since: Option<Duration>,
    /// It is matched, it was reported, or that cannot be known.
    is_settled: bool,
}

/// How long the name of a publisher's node may come after it; the publisher is reported by its number then.
const NAME_LATE_MAX: Duration = Duration::from_secs(2);

/// How long a match may take; publishers without one by then are reported.
const MATCH_LATE_MAX: Duration = Duration::from_secs(10);

impl RecordedTopic {
    pub(crate) fn new(
        id: TopicId,
        plan: &TopicPlan,
        intake: Arc<Intake>,
        qos_override: Option<QosProfile>,
    ) -> Self {
        Self {
            id,
            name: plan.name.clone(),
            type_name: plan.type_name.clone(),
            type_hash: plan.type_hash.clone(),
            intake,
            qos_override,
            merging: None,
            completed: None,
            requests_latched: false,
            subscriptions: Vec::new(),
            subscribed: 0,
            other_types: Vec::new(),
            refused: BTreeMap::new(),
            served: BTreeMap::new(),
        }
    }

    /// Records messages that several transports bring once.
    pub(crate) fn merge_duplicates(mut self) -> Self {
        self.merging = Some(Arc::default());
        self
    }

    /// Leaves to other transports what they bring, where transport `number` brings it, too.
    pub(crate) fn completed_by(mut self, number: usize, covered: Arc<Covered>) -> Self {
        self.completed = Some((number, covered));
        self
    }

    /// Requests latched messages, whatever the overrides are: from each publisher that keeps messages for late subscriptions, and if there is
    /// no publisher yet.
    pub(crate) fn request_latched(mut self) -> Self {
        self.requests_latched = true;
        self
    }

    /// The QoS requested from a publisher.
    fn request_of(&self, offer: &QosProfile) -> QosProfile {
        let mut request = self.qos_override.unwrap_or_else(|| strongest_request(offer));
        request.is_keyed = offer.is_keyed;
        // With other publishers the request would not match at all, and their messages are wanted too.
        if self.requests_latched && offer.durability == Durability::TransientLocal {
            request.durability = Durability::TransientLocal;
        }
        request
    }

    /// Whether a transport has accepted a subscription.
    pub(super) fn is_subscribed(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Whether publishers of this type are received.
    pub(super) fn has_type(&self, type_name: &str) -> bool {
        self.type_name == type_name || self.other_type(type_name).is_some()
    }

    fn other_type(&self, type_name: &str) -> Option<usize> {
        self.other_types
            .iter()
            .position(|other| *other.type_name == *type_name)
    }

    /// Whether messages of this type are recorded, with this hash.
    pub(super) fn records(&self, type_name: &str, type_hash: &str) -> bool {
        (self.type_name == type_name && self.type_hash == type_hash)
            || self
                .other_types
                .iter()
                .any(|other| other.is_kept && *other.type_name == *type_name && other.type_hash == type_hash)
    }

    /// Hash that a type has been opened with, or empty.
    pub(super) fn hash_of(&self, type_name: &str) -> &str {
        let other = self.other_type(type_name);
        other.map_or(&self.type_hash, |other| &self.other_types[other].type_hash)
    }

    /// Receives publishers of one more type, and counts their messages as lost unless the storage keeps them.
    pub(super) fn add_type(&mut self, type_name: &str, type_hash: &str, is_kept: bool) {
        self.other_types.push(OtherType {
            type_name: Arc::from(type_name),
            type_hash: type_hash.to_owned(),
            is_kept,
        });
    }

    /// Makes sure that a publisher is received as well as it offers.
    pub(crate) fn serve(
        &mut self,
        number: usize,
        transport: &mut dyn Transport,
        publisher: &EndpointInfo,
        origin: PublisherOrigin,
    ) -> Result<(), TransportError> {
        let who = PublisherInfo {
            gid: publisher.gid.to_string(),
            node: publisher.node.as_ref().map(ToString::to_string),
            host: publisher.host.clone(),
            transport: Some(transport.name().to_owned()),
        };
        let other_type = self.other_type(&publisher.type_name);
        if let Some(other) = other_type {
            let type_name = &self.other_types[other].type_name;
            self.intake.publisher_of_type(Some(publisher.gid), type_name);
        }
        self.intake.publisher_discovered(publisher.gid, origin, Some(who));
        let request = self.request_of(&publisher.qos);
        let is_reliable = request.reliability == Reliability::Reliable
            && publisher.qos.reliability == Reliability::Reliable;
        self.intake
            .serves(publisher.gid, transport.end_proof(), is_reliable);
        let served = self.served.entry(publisher.gid).or_insert_with(|| {
            Box::new(Served {
                transport: number,
                node: None,
                since: None,
                is_settled: false,
            })
        });
        served.node.clone_from(&publisher.node);
        let policies = incompatible_policies(&publisher.qos, &request);
        if !policies.is_empty() {
            let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
            let reason = format!(
                "the QoS overrides ask for more {} than it offers",
                names.join(" and ")
            );
            if self.refused.insert(publisher.gid, reason.clone()).is_none() {
                tracing::warn!(
                    "{}: publisher {} is not recorded: {reason}",
                    self.name,
                    publisher.gid
                );
            }
        }
        let outcome = self.subscribe(number, transport, request, other_type);
        if outcome.is_err()
            && let Some(served) = self.served.get_mut(&publisher.gid)
        {
            // The refusal is its reason, not that nothing is matched.
            served.is_settled = true;
        }
        outcome
    }

    /// Subscribes with the default QoS because there is no publisher to adapt to.
    pub(crate) fn subscribe_unseen(
        &mut self,
        number: usize,
        transport: &mut dyn Transport,
    ) -> Result<(), TransportError> {
        let mut request = self.qos_override.unwrap_or(QosProfile::ROS_DEFAULT);
        if self.requests_latched {
            request.durability = Durability::TransientLocal;
        }
        self.subscribe(number, transport, request, None)
    }

    fn subscribe(
        &mut self,
        number: usize,
        transport: &mut dyn Transport,
        request: QosProfile,
        other_type: Option<usize>,
    ) -> Result<(), TransportError> {
        let serves = |open: &OpenSubscription| {
            open.transport == number
                && open.other_type == other_type
                && open.request.reliability == request.reliability
                && open.request.durability == request.durability
                && open.request.avoid_ros_namespace_conventions == request.avoid_ros_namespace_conventions
                && open.request.is_keyed == request.is_keyed
        };
        if self.subscriptions.iter().any(serves) {
            return Ok(());
        }
        let other = other_type.map(|other| &self.other_types[other]);
        let type_name: &str = other.map_or(&self.type_name, |other| &other.type_name);
        let asked = SubscribeRequest {
            topic: self.name.clone(),
            type_name: type_name.to_owned(),
            qos: request,
        };
        let bit = self.subscribed;
        let brought = match (other, &self.merging) {
            (Some(other), _) => Brought::OtherType {
                type_name: Arc::clone(&other.type_name),
                is_kept: other.is_kept,
            },
            (None, Some(merging)) => Brought::Merged {
                transport: number,
                merging: Arc::clone(merging),
            },
            (None, None) => Brought::Own,
        };
        let sink = self.intake.sink_of(bit, brought);
        let sink = match &self.completed {
            Some((completing, covered)) if *completing == number => covered.before(sink),
            _ => sink,
        };
        let subscription = transport.subscribe(&asked, sink)?;
        self.subscribed += 1;
        let is_first = !self
            .subscriptions
            .iter()
            .any(|open| open.other_type == other_type);
        if !is_first {
            let (reliability, durability) = (request.reliability, request.durability);
            tracing::info!(
                "{}: subscribed once more ({reliability:?}, {durability:?}) because the QoS of its publishers differs",
                self.name
            );
        } else if other.is_none_or(|other| other.is_kept) {
            tracing::info!("recording {} [{type_name}]", self.name);
        }
        // Most topics have one.
        self.subscriptions.reserve_exact(1);
        self.subscriptions.push(OpenSubscription {
            transport: number,
            request,
            other_type,
            number: bit,
            subscription,
        });
        Ok(())
    }

    /// Whether a subscription of another transport than this one has brought a message of this publisher.
    pub(super) fn is_brought_by_others(&self, transport: usize, gid: Gid) -> bool {
        let over = self.intake.subscriptions_of(gid);
        let others = self
            .subscriptions
            .iter()
            .filter(|open| open.transport != transport);
        others
            .into_iter()
            .any(|open| over & subscription_bit(open.number) != 0)
    }

    /// Whether a transport has subscriptions of this topic.
    pub(super) fn is_subscribed_over(&self, transport: usize) -> bool {
        self.subscriptions.iter().any(|open| open.transport == transport)
    }

    /// Ends the subscriptions of one transport.
    pub(super) fn unsubscribe_from(&mut self, transport: usize) {
        self.subscriptions.retain(|open| open.transport != transport);
    }

    /// As [`Intake::publisher_gone`].
    pub(super) fn publisher_gone(
        &mut self,
        gid: Gid,
        departure: Departure,
        ago: impl FnOnce(Timestamp) -> Duration,
        now: Timestamp,
    ) -> Option<PastTime> {
        self.served.remove(&gid);
        if self.served.is_empty() {
            // An empty map keeps its memory.
            self.served = BTreeMap::new();
        }
        self.intake.publisher_gone(gid, departure, ago, now)
    }

    /// Asks the publishers for the numbers of sent messages, and applies their answers; true if one has answered.
    pub(super) fn ask_ends(&mut self) -> bool {
        let open = self.intake.ends_open();
        if open.is_empty() {
            return false;
        }
        for open in &mut self.subscriptions {
            open.subscription.ask_ends();
        }
        let has_answered = |gid: &Gid| {
            self.subscriptions
                .iter()
                .any(|open| open.subscription.has_answered(*gid))
        };
        let answered: Vec<Gid> = open.into_iter().filter(has_answered).collect();
        if !answered.is_empty() {
            // Announcements that arrived before the answer belong to it.
            self.poll_announcements();
            self.intake.ends_shown(&answered);
        }
        !answered.is_empty()
    }

    /// The transport that serves a publisher.
    pub(super) fn transport_of(&self, gid: Gid) -> Option<usize> {
        self.served.get(&gid).map(|served| served.transport)
    }

    /// Live publishers that are not received, each returned once; `now` is monotonic time. At the end of the recording no name is waited for.
    pub(super) fn newly_unmatched(&mut self, now: Duration, is_end: bool) -> Vec<(Gid, NotHeard)> {
        if self.served.values().all(|served| served.is_settled) {
            return Vec::new();
        }
        let matched: Vec<_> = self
            .subscriptions
            .iter()
            .map(|open| (open.transport, open.subscription.matched()))
            .collect();
        let mut found = Vec::new();
        for (gid, served) in self.served.iter_mut().filter(|(_, served)| !served.is_settled) {
            let since = *served.since.get_or_insert(now);
            let of_transport = || matched.iter().filter(|(number, _)| *number == served.transport);
            let is_matched =
                of_transport().any(|(_, gids)| gids.as_ref().is_none_or(|gids| gids.contains(gid)));
            let is_named = is_end || served.node.is_some() || now >= since + NAME_LATE_MAX;
            let (kind, reason) = if is_matched {
                served.is_settled = true;
                continue;
            } else if let Some(reason) = self.refused.get(gid).filter(|_| is_named) {
                (NotHeardKind::IncompatibleQos, reason.as_str())
            } else if now >= since + MATCH_LATE_MAX {
                let reason = "it was discovered, but no subscription is matched with it (its QoS or its type does not fit)";
                (NotHeardKind::Unmatched, reason)
            } else {
                continue;
            };
            served.is_settled = true;
            self.intake.not_heard(*gid);
            let node = served.node.as_ref().map(ToString::to_string);
            let about = NotHeard {
                who: node.unwrap_or_else(|| format!("publisher {gid}")),
                kind,
                reason: reason.to_owned(),
                topics: vec![self.name.clone()],
            };
            found.push((*gid, about));
        }
        found
    }

    /// Moves messages for transports that have no threads; returns how many.
    pub(crate) fn pump(&mut self) -> usize {
        self.subscriptions
            .iter_mut()
            .map(|open| open.subscription.pump())
            .sum()
    }

    /// Applies announcements of publishers about sent messages.
    pub(crate) fn poll_announcements(&self) {
        for open in &self.subscriptions {
            let announced = open.subscription.announced_sequences();
            for (gid, next) in self.intake.announced_sequences(&announced) {
                open.subscription.expect_next(gid, next);
            }
        }
    }

    /// Ends all subscriptions; nothing arrives afterwards.
    pub(crate) fn unsubscribe(&mut self) {
        self.subscriptions.clear();
    }
}
