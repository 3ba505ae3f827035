//! The publishers of a playback: one per topic that is played, with the recorded type and QoS.

use super::{
    clock_topic::CLOCK_TOPIC,
    delivery::{Admission, Unacknowledged},
    error::PlayError,
    options::{ClockSource, PlayOptions},
    status::TopicReport,
    topic_choice::TopicChoice,
};
use holdall_model::{
    qos::{Durability, QosProfile, adapt_publisher_qos},
    topic::TopicInfo,
};
use holdall_transport::{PublishRequest, Publisher, Transport};
use std::time::Duration;

/// The most messages that a latched publisher keeps, whatever the bag states.
const LATCHED_DEPTH_MAX: u64 = 10_000;

/// One topic that is played.
struct Publication {
    report: TopicReport,
    publisher: Box<dyn Publisher>,
    unacknowledged: Unacknowledged,
}

/// All topics that are played, in the order of the bag.
pub(super) struct Publications(Vec<Publication>);

impl Publications {
    /// Creates the publishers of all `topics` that `choice` takes.
    ///
    /// A topic that the transport refuses (a name that is not valid there) is left out with a warning, as rosbag2 does, unless
    /// nothing else is left to play.
    ///
    /// # Errors
    /// When a chosen topic is not CDR, or nothing can be played.
    pub fn create(
        topics: &[TopicInfo],
        options: &PlayOptions,
        choice: &TopicChoice,
        transports: &mut [Box<dyn Transport>],
    ) -> Result<Self, PlayError> {
        let mut publications = Vec::new();
        let mut refusal = None;
        for topic in topics.iter().filter(|topic| choice.takes(&topic.name)) {
            let published_as = choice.published_as(&topic.name);
            if published_as == CLOCK_TOPIC && options.clock != ClockSource::Off {
                tracing::info!("recorded {} is left out because /clock is published", topic.name);
                continue;
            }
            let Some(transport) = transport_of(topic, transports) else {
                return Err(PlayError::SerializationFormat {
                    topic: topic.name.clone(),
                    found: topic.serialization_format.clone(),
                });
            };
            let request = publish_request(topic, published_as, transport.name(), options);
            match transport.publish(&request) {
                Ok(publisher) => {
                    let report = TopicReport {
                        name: topic.name.clone(),
                        published_as: request.topic,
                        type_name: request.type_name,
                        ..TopicReport::default()
                    };
                    publications.push(Publication {
                        report,
                        publisher,
                        unacknowledged: Unacknowledged::default(),
                    });
                }
                Err(error) => {
                    tracing::warn!("{} is not played: {error}", topic.name);
                    refusal = Some(error);
                }
            }
        }
        match refusal {
            Some(error) if publications.is_empty() => Err(error.into()),
            _ => Ok(Self(publications)),
        }
    }

    /// True when nothing is played.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The topics as the bag has them: name and type.
    pub(crate) fn recorded_topics(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|publication| {
            (
                publication.report.name.as_str(),
                publication.report.type_name.as_str(),
            )
        })
    }

    /// The topics' names in the bag.
    pub(crate) fn recorded_names(&self) -> Vec<&str> {
        self.recorded_topics().map(|(name, _)| name).collect()
    }

    /// Sends one message; false when the transport refused it, which is counted, and logged once per topic.
    pub fn publish(&mut self, index: usize, payload: &[u8]) -> bool {
        let Publication {
            report,
            publisher,
            unacknowledged,
        } = &mut self.0[index];
        match publisher.publish(payload) {
            Ok(()) => {
                report.published += 1;
                unacknowledged.published(&**publisher, payload.len());
            }
            Err(error) => {
                report.refuse(error.to_string());
                return false;
            }
        }
        true
    }

    /// Whether a message of `len` bytes can be published now, without losing one that a reliable subscription still lacks.
    pub fn admit(&mut self, index: usize, len: usize, now: Duration) -> Admission {
        let Publication {
            publisher,
            unacknowledged,
            ..
        } = &mut self.0[index];
        unacknowledged.admit(&**publisher, len, now)
    }

    /// Counts a message as refused, because too much waits for acknowledgement.
    pub fn refuse(&mut self, index: usize) {
        let topic = self.0[index].report.published_as.clone();
        self.0[index].report.refuse(format!(
            "a subscription of {topic} acknowledges nothing, and what waits for it takes too much memory"
        ));
    }

    /// Notes what was not acknowledged until now.
    pub(crate) fn count_unacknowledged(&mut self) {
        for Publication {
            report,
            publisher,
            unacknowledged,
        } in &mut self.0
        {
            report.unacknowledged = unacknowledged.count(&**publisher);
        }
    }

    /// Notes what was overwritten before it was acknowledged; for a playback that was stopped, whose last messages are not waited for.
    pub(crate) fn count_abandoned(&mut self) {
        for publication in &mut self.0 {
            publication.report.unacknowledged = publication.unacknowledged.dropped;
        }
    }

    /// Messages that wait for acknowledgement, all topics.
    pub fn unacknowledged(&mut self) -> u64 {
        self.count_unacknowledged();
        self.0
            .iter()
            .map(|publication| publication.report.unacknowledged)
            .sum()
    }

    /// Subscriptions matched right now, all topics.
    pub fn matched_subscriptions(&self) -> usize {
        self.0
            .iter()
            .map(|publication| publication.publisher.matched_subscriptions())
            .sum()
    }

    /// Waits until every message was acknowledged; returns the topics of those that were not within `timeout` in all.
    pub fn wait_for_acked(
        &mut self,
        timeout: Duration,
        clock: &dyn holdall_io::clock::Clock,
        mut go_on: impl FnMut() -> bool,
    ) -> Vec<String> {
        /// How often `go_on` is called while waiting.
        const SLICE: Duration = Duration::from_millis(100);
        let deadline = (!timeout.is_zero()).then(|| clock.monotonic().saturating_add(timeout));
        let mut unacked = Vec::new();
        for Publication {
            report, publisher, ..
        } in &mut self.0
        {
            loop {
                let left = deadline.map_or(SLICE, |at| at.saturating_sub(clock.monotonic()).min(SLICE));
                if publisher.wait_for_acked(left) {
                    break;
                }
                let expired = deadline.is_some_and(|at| clock.monotonic() >= at);
                if expired || !go_on() {
                    unacked.push(report.published_as.clone());
                    break;
                }
            }
        }
        unacked
    }

    /// What was played of each topic.
    pub(crate) fn into_reports(self) -> Vec<TopicReport> {
        self.0.into_iter().map(|publication| publication.report).collect()
    }
}

/// The transport that a topic was recorded from when it is there, else the first; `None` when it cannot carry the payloads.
fn transport_of<'a>(
    topic: &TopicInfo,
    transports: &'a mut [Box<dyn Transport>],
) -> Option<&'a mut Box<dyn Transport>> {
    let origin = topic.origin.as_ref().map(|origin| origin.transport.as_str());
    let index = transports
        .iter()
        .position(|transport| origin == Some(transport.name()))
        .unwrap_or(0);
    transports
        .get_mut(index)
        .filter(|transport| transport.carries(&topic.serialization_format))
}

/// What to ask the transport for.
fn publish_request(
    topic: &TopicInfo,
    published_as: String,
    transport: &str,
    options: &PlayOptions,
) -> PublishRequest {
    let recorded_qos = || latched_deep_enough(adapt_publisher_qos(&topic.offered_qos_profiles), topic);
    PublishRequest {
        topic: published_as,
        type_name: topic.type_name.clone(),
        type_hash: Some(topic.type_description_hash.clone()).filter(|hash| !hash.is_empty()),
        qos: options
            .qos_overrides
            .get(&topic.name)
            .copied()
            .unwrap_or_else(recorded_qos),
        serialization_format: topic.serialization_format.clone(),
        origin: topic
            .origin
            .clone()
            .filter(|origin| origin.transport == transport),
        keep_unacknowledged: true,
    }
}

/// Lets one publisher replace all recorded ones: it must keep what they kept together, or late subscriptions
/// to a topic such as `/tf_static` miss some.
fn latched_deep_enough(mut qos: QosProfile, topic: &TopicInfo) -> QosProfile {
    if qos.durability == Durability::TransientLocal {
        let kept = topic
            .offered_qos_profiles
            .iter()
            .fold(0_u64, |sum, offer| sum.saturating_add(offer.depth.max(1)));
        qos.depth = qos.depth.max(kept.min(LATCHED_DEPTH_MAX));
    }
    qos
}
