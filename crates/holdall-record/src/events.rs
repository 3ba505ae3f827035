//! Publishes the recording's events to other nodes, losses and finished files, on rosbag2's topics and in its message types.

use super::{
    diagnostics::{DIAGNOSTICS_INTERVAL, DIAGNOSTICS_TOPIC, DIAGNOSTICS_TYPE, diagnostics},
    status::RecordStatus,
};
use holdall_io::mutex::lock;
use holdall_model::{
    cdr::CdrWriter,
    interface::bundle::Bundle,
    loss::{LossStage, ledger::Ledger},
    qos::QosProfile,
    time::Timestamp,
};
use holdall_transport::{GraphEvent, PublishRequest, Publisher, Transport, TransportError};
use std::{collections::BTreeMap, path::PathBuf, sync::Mutex, time::Duration};

/// The topic of events about losses.
pub(crate) const MESSAGES_LOST_TOPIC: &str = "/events/rosbag2_messages_lost";

/// The topic of events about finished files.
pub(crate) const WRITE_SPLIT_TOPIC: &str = "/events/write_split";

/// A type added after Jazzy: on each round of discovery a recorder of an older distribution on the same network fails when it finds a topic of
/// a type that it does not have, and never reaches the topics that follow.
const MESSAGES_LOST_TYPE: &str = "rosbag2_interfaces/msg/MessagesLostEvent";
const WRITE_SPLIT_TYPE: &str = "rosbag2_interfaces/msg/WriteSplitEvent";

/// As rosbag2 offers its events: reliable, the newest one.
const EVENT_QOS: QosProfile = QosProfile {
    depth: 1,
    ..QosProfile::ROS_DEFAULT
};

/// How often losses are polled while there are none: each poll visits all topics under the ledger's lock.
const LOSS_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the end waits until subscriptions have the last events.
const LAST_EVENT_MAX: Duration = Duration::from_millis(200);

/// Which events are published, and as which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Full name of the recorder's node.
    pub node_name: String,
    /// Least time between two events about losses; `None` publishes none.
    pub lost_interval: Option<Duration>,
    /// Publish the state of the recording on `/diagnostics` (`--diagnostics`).
    pub diagnostics: bool,
    /// Offer events about losses from the start. Else they are offered once a publisher or a subscription of another node has their type,
    /// which Jazzy and older distributions do not have.
    pub offer_lost_at_once: bool,
}

/// A finished storage file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinishedFile {
    /// The finished file.
    pub closed: PathBuf,
    /// The one that came after it.
    pub opened: PathBuf,
}

/// Messages of one topic that were lost since the last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    in_transport: u64,
    in_recorder: u64,
}

/// Publishes the events of one recording over all its transports.
pub(super) struct EventPublishers {
    options: EventOptions,
    /// By transport; `None` while no other node has the type.
    lost: Vec<Option<Box<dyn Publisher>>>,
    split: Vec<Box<dyn Publisher>>,
    /// None unless they are asked for.
    diagnostics: Vec<Box<dyn Publisher>>,
    next_diagnostics: Duration,
    /// Published counts, in the ledger's order of topics.
    reported: Vec<Lost>,
    next_lost: Duration,
    published: bool,
    /// Another node has the same name, which was logged.
    is_name_taken: bool,
}

impl EventPublishers {
    /// Announces the topics.
    pub(super) fn new<'a>(
        options: EventOptions,
        transports: impl Iterator<Item = &'a mut dyn Transport>,
    ) -> Self {
        let mut publishers = Self {
            options,
            lost: Vec::new(),
            split: Vec::new(),
            diagnostics: Vec::new(),
            next_diagnostics: Duration::ZERO,
            reported: Vec::new(),
            next_lost: Duration::ZERO,
            published: false,
            is_name_taken: false,
        };
        for transport in transports {
            let announced = publishers.announce(transport);
            if let Err(error) = announced {
                // A recording without them is better than none.
                tracing::warn!("events are not published: {error}");
            }
        }
        publishers
    }

    fn announce(&mut self, transport: &mut dyn Transport) -> Result<(), TransportError> {
        if self.options.lost_interval.is_some() {
            let at_once = self.options.offer_lost_at_once;
            let publisher = at_once.then(|| transport.publish(&lost_request())).transpose()?;
            self.lost.push(publisher);
        }
        self.split
            .push(transport.publish(&request(WRITE_SPLIT_TOPIC, WRITE_SPLIT_TYPE))?);
        if self.options.diagnostics {
            let request = request(DIAGNOSTICS_TOPIC, DIAGNOSTICS_TYPE);
            self.diagnostics.push(transport.publish(&request)?);
        }
        Ok(())
    }

    /// Offers events about losses over a transport as soon as another node there has their type.
    pub(super) fn notice(&mut self, number: usize, transport: &mut dyn Transport, graph: &[GraphEvent]) {
        self.notice_name(graph);
        let Some(publisher) = self.lost.get_mut(number).filter(|offered| offered.is_none()) else {
            return;
        };
        let has_type = |event: &GraphEvent| match event {
            GraphEvent::Publisher(endpoint) | GraphEvent::Subscription(endpoint) => {
                endpoint.type_name == MESSAGES_LOST_TYPE
            }
            _ => false,
        };
        if graph.iter().any(has_type) {
            match transport.publish(&lost_request()) {
                Ok(offered) => *publisher = Some(offered),
                Err(error) => tracing::warn!("losses are not published: {error}"),
            }
        }
    }

    /// Reports, once, that another node has the same name: the services of the two cannot be distinguished.
    fn notice_name(&mut self, graph: &[GraphEvent]) {
        let is_ours = |event: &GraphEvent| match event {
            GraphEvent::Publisher(endpoint) | GraphEvent::Subscription(endpoint) => {
                let node = endpoint.node.as_ref();
                node.is_some_and(|node| node.to_string() == self.options.node_name)
            }
            _ => false,
        };
        if !self.is_name_taken && graph.iter().any(is_ours) {
            self.is_name_taken = true;
            tracing::warn!(
                "another node is named {} as well: a request to its services reaches both",
                self.options.node_name
            );
        }
    }

    /// Publishes losses since the last event, unless that event is too recent.
    pub(super) fn publish_lost_when_due(&mut self, ledger: &Mutex<Ledger>, now: Duration) {
        let Some(interval) = self.options.lost_interval else {
            return;
        };
        if now < self.next_lost {
            return;
        }
        let pause = if self.publish_lost(ledger) {
            interval
        } else {
            LOSS_LOOK_INTERVAL.min(interval)
        };
        self.next_lost = now.saturating_add(pause);
    }

    fn publish_lost(&mut self, ledger: &Mutex<Ledger>) -> bool {
        if self.lost.iter().all(Option::is_none) {
            return false;
        }
        let news = self.news(&lock(ledger));
        if news.is_empty() {
            return false;
        }
        let event = messages_lost(&self.options.node_name, &news);
        self.published |= publish(self.lost.iter_mut().flatten(), &event);
        true
    }

    /// Losses not yet published, by topic.
    fn news(&mut self, ledger: &Ledger) -> Vec<(String, Lost)> {
        let mut news = Vec::new();
        self.reported.resize(ledger.topics.len(), Lost::default());
        for (topic, reported) in ledger.topics.iter().zip(&mut self.reported) {
            if topic.missing.is_empty() {
                continue;
            }
            let total = lost(&topic.missing);
            // A message that was counted and came late makes the sum smaller; further losses are published
            // only once they exceed the published ones.
            let new = Lost {
                in_transport: total.in_transport.saturating_sub(reported.in_transport),
                in_recorder: total.in_recorder.saturating_sub(reported.in_recorder),
            };
            if new != Lost::default() {
                reported.in_transport += new.in_transport;
                reported.in_recorder += new.in_recorder;
                news.push((topic.name.clone(), new));
            }
        }
        news
    }

    /// Publishes a finished file.
    pub(super) fn publish_finished(&mut self, file: &FinishedFile) {
        let event = write_split(&self.options.node_name, file);
        self.published |= publish(&mut self.split, &event);
    }

    /// Publishes the state of the recording, if that is due at `now` (monotonic) and asked for.
    pub(super) fn publish_diagnostics_when_due(
        &mut self,
        now: Duration,
        time: Timestamp,
        status: impl FnOnce() -> RecordStatus,
    ) {
        if self.diagnostics.is_empty() || now < self.next_diagnostics {
            return;
        }
        self.next_diagnostics = now + DIAGNOSTICS_INTERVAL;
        let message = diagnostics(&self.options.node_name, &status(), time);
        publish(&mut self.diagnostics, &message);
    }

    /// Publishes the last losses, those at the tail too, and waits until subscriptions have the events.
    pub(super) fn finish(&mut self, ledger: &Mutex<Ledger>) {
        if self.options.lost_interval.is_some() {
            self.publish_lost(ledger);
        }
        if self.published {
            for publisher in self.lost.iter_mut().flatten().chain(&mut self.split) {
                publisher.wait_for_acked(LAST_EVENT_MAX);
            }
        }
    }
}

/// Publishes to all matched subscriptions; true if there is one.
fn publish<'a>(publishers: impl IntoIterator<Item = &'a mut Box<dyn Publisher>>, event: &[u8]) -> bool {
    let mut heard = false;
    for publisher in publishers {
        heard |= publisher.matched_subscriptions() > 0;
        if let Err(error) = publisher.publish(event) {
            tracing::debug!("an event is not published: {error}");
        }
    }
    heard
}

fn lost_request() -> PublishRequest {
    request(MESSAGES_LOST_TOPIC, MESSAGES_LOST_TYPE)
}

fn request(topic: &str, type_name: &str) -> PublishRequest {
    PublishRequest {
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        type_hash: type_hash(type_name),
        qos: EVENT_QOS,
        ..PublishRequest::default()
    }
}

/// The RIHS01 hash of an event's type.
fn type_hash(type_name: &str) -> Option<String> {
    Bundle::embedded().type_hash(type_name).map(str::to_owned)
}

/// What rosbag2 calls lost: in transit, or in the recorder. What was sent while not matched, or left out on
/// request, is neither.
fn lost(missing: &BTreeMap<LossStage, u64>) -> Lost {
    let mut lost = Lost::default();
    for (stage, count) in missing.iter().filter(|(stage, _)| stage.is_shortfall()) {
        match stage {
            LossStage::Transport | LossStage::Tail | LossStage::NotBelievable => {
                lost.in_transport = lost.in_transport.saturating_add(*count);
            }
            _ => lost.in_recorder = lost.in_recorder.saturating_add(*count),
        }
    }
    lost
}

/// A serialized `MessagesLostEvent`.
fn messages_lost(node_name: &str, topics: &[(String, Lost)]) -> Vec<u8> {
    let mut cdr = CdrWriter::new();
    cdr.text(node_name);
    cdr.sequence_len(topics.len());
    for (name, lost) in topics {
        cdr.text(name);
        cdr.u64(lost.in_transport);
        cdr.u64(lost.in_recorder);
    }
    cdr.finish()
}

/// A serialized `WriteSplitEvent`.
fn write_split(node_name: &str, file: &FinishedFile) -> Vec<u8> {
    let mut cdr = CdrWriter::new();
    cdr.text(&file.closed.to_string_lossy());
    cdr.text(&file.opened.to_string_lossy());
    cdr.text(node_name);
    cdr.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_hashes_are_those_of_ros() {
        // As rosidl computes it for Jazzy.
        assert_eq!(
            type_hash(WRITE_SPLIT_TYPE).as_deref(),
            Some("RIHS01_4a50733d58c48fe31919ae8c8516beda7326d70c8e99aee98af3fdfd44ec5ae6")
        );
        let lost = type_hash(MESSAGES_LOST_TYPE).unwrap();
        assert!(lost.starts_with("RIHS01_") && lost.len() == 71, "{lost}");
    }

    #[test]
    fn serialized_events_align_their_numbers() {
        let lost = Lost {
            in_transport: 5,
            in_recorder: 7,
        };
        let event = messages_lost("/rec", &[("/tf".to_owned(), lost)]);
        let mut expected = vec![0, 1, 0, 0, 5, 0, 0, 0];
        expected.extend(b"/rec\0\0\0\0");
        expected.extend([1, 0, 0, 0, 4, 0, 0, 0]);
        expected.extend(b"/tf\0");
        // 24 bytes of the body: already a multiple of 8.
        expected.extend(5u64.to_le_bytes());
        expected.extend(7u64.to_le_bytes());
        assert_eq!(event, expected);
        let shifted = messages_lost("/record", &[("/tf".to_owned(), lost)]);
        assert_eq!(&shifted[4 + 24..4 + 32], &5u64.to_le_bytes());
    }

    #[test]
    fn rosbag2s_two_kinds_of_losses_leave_out_what_was_not_lost() {
        let missing = BTreeMap::from([
            (LossStage::Head, 1),
            (LossStage::Transport, 2),
            (LossStage::Tail, 4),
            (LossStage::Cache, 8),
            (LossStage::Storage, 16),
            (LossStage::Policy, 32),
        ]);
        let reported = lost(&missing);
        assert_eq!((reported.in_transport, reported.in_recorder), (6, 24));
    }
}
