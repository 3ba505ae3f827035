//! The subscriptions of one recorded topic: as many as its publishers' QoS needs, so that none of them is missed.

use super::{
    intake::{Intake, PublisherOrigin},
    merging::Merging,
};
use holdall_model::{
    qos::{QosProfile, is_compatible, strongest_request},
    topic::{Gid, PublisherInfo, TopicId},
};
use holdall_transport::{EndpointInfo, SubscribeRequest, Subscription, Transport, TransportError};
use std::{collections::BTreeSet, sync::Arc};

/// One subscription and the QoS that it requests.
struct OpenSubscription {
    /// Which of the recording's transports it belongs to.
    transport: usize,
    request: QosProfile,
    subscription: Box<dyn Subscription>,
}

/// A topic that is being recorded.
pub(in crate::record) struct RecordedTopic {
    pub id: TopicId,
    pub name: String,
    pub type_name: String,
    /// RIHS01 hash of its type, or empty.
    pub type_hash: String,
    pub intake: Arc<Intake>,
    /// What the user wants to be asked for, whatever publishers offer.
    qos_override: Option<QosProfile>,
    /// Remembers messages, where those that several transports bring are recorded once.
    merging: Option<Arc<Merging>>,
    subscriptions: Vec<OpenSubscription>,
    /// Publishers that were reported as incompatible.
    refused: BTreeSet<Gid>,
}

impl RecordedTopic {
    pub(in crate::record) fn new(
        id: TopicId,
        names: (&str, &str, &str),
        intake: Arc<Intake>,
        qos_override: Option<QosProfile>,
    ) -> Self {
        let (name, type_name, type_hash) = names;
        Self {
            id,
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            type_hash: type_hash.to_owned(),
            intake,
            qos_override,
            merging: None,
            subscriptions: Vec::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Records messages that several transports bring once.
    pub(in crate::record) fn merge_duplicates(mut self) -> Self {
        self.merging = Some(Arc::default());
        self
    }

    /// Makes sure that a publisher is received as well as it offers.
    pub(in crate::record) fn serve(
        &mut self,
        (number, transport): (usize, &mut dyn Transport),
        publisher: &EndpointInfo,
        origin: PublisherOrigin,
    ) -> Result<(), TransportError> {
        let who = PublisherInfo {
            gid: publisher.gid.to_string(),
            node: publisher.node.as_ref().map(ToString::to_string),
            host: publisher.host.clone(),
            transport: Some(transport.name().to_owned()),
        };
        self.intake.publisher_discovered(publisher.gid, origin, Some(who));
        let request = self
            .qos_override
            .unwrap_or_else(|| strongest_request(&publisher.qos));
        if !is_compatible(&publisher.qos, &request) && self.refused.insert(publisher.gid) {
            tracing::warn!(
                "{}: publisher {} cannot be recorded with the QoS asked for in the overrides",
                self.name,
                publisher.gid
            );
        }
        self.subscribe(number, transport, request)
    }

    /// Notes a publisher that cannot be recorded; true the first time.
    pub(in crate::record) fn is_first_refusal(&mut self, publisher: Gid) -> bool {
        self.refused.insert(publisher)
    }

    /// Subscribes with the default QoS when there is no publisher to go by.
    pub(in crate::record) fn subscribe_unseen(
        &mut self,
        number: usize,
        transport: &mut dyn Transport,
    ) -> Result<(), TransportError> {
        let request = self.qos_override.unwrap_or(QosProfile::ROS_DEFAULT);
        self.subscribe(number, transport, request)
    }

    fn subscribe(
        &mut self,
        number: usize,
        transport: &mut dyn Transport,
        request: QosProfile,
    ) -> Result<(), TransportError> {
        let serves = |open: &OpenSubscription| {
            open.transport == number
                && open.request.reliability == request.reliability
                && open.request.durability == request.durability
                && open.request.avoid_ros_namespace_conventions == request.avoid_ros_namespace_conventions
        };
        if self.subscriptions.iter().any(serves) {
            return Ok(());
        }
        let asked = SubscribeRequest {
            topic: self.name.clone(),
            type_name: self.type_name.clone(),
            qos: request,
        };
        let sink = match &self.merging {
            Some(merging) => self
                .intake
                .merging_sink(self.subscriptions.len(), number, merging),
            None => self.intake.sink(self.subscriptions.len()),
        };
        let subscription = transport.subscribe(&asked, sink)?;
        self.subscriptions.push(OpenSubscription {
            transport: number,
            request,
            subscription,
        });
        if let [_, .., _] = self.subscriptions.as_slice() {
            let (reliability, durability) = (request.reliability, request.durability);
            tracing::info!(
                "{}: one more subscription ({reliability:?}, {durability:?}), because its publishers differ",
                self.name
            );
        } else {
            tracing::info!("recording {} [{}]", self.name, self.type_name);
        }
        Ok(())
    }

    /// Moves messages for transports without threads of their own; returns how many.
    pub(in crate::record) fn pump(&mut self) -> usize {
        self.subscriptions
            .iter_mut()
            .map(|open| open.subscription.pump())
            .sum()
    }

    /// Applies what publishers announce to have sent.
    pub(in crate::record) fn look_at_announcements(&self) {
        for open in &self.subscriptions {
            let announced = open.subscription.announced_sequences();
            if !announced.is_empty() {
                self.intake.announced_sequences(&announced);
            }
        }
    }

    /// Ends all subscriptions; nothing arrives afterwards.
    pub(in crate::record) fn unsubscribe(&mut self) {
        self.subscriptions.clear();
    }
}
