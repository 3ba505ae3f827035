//! Tells other nodes what happens to the recording, on the topics and in the message types of rosbag2: losses and finished files.

use super::{ledger::Ledger, session::lock};
use holdall_model::{
    cdr::CdrWriter,
    interface::{Definition, InterfaceSource, SourceFormat, bundle::Bundle},
    loss::LossStage,
    qos::QosProfile,
};
use holdall_transport::{PublishRequest, Publisher, Transport, TransportError};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

/// Where losses are told.
pub const MESSAGES_LOST_TOPIC: &str = "/events/rosbag2_messages_lost";

/// Where finished files are told.
pub const WRITE_SPLIT_TOPIC: &str = "/events/write_split";

const MESSAGES_LOST_TYPE: &str = "rosbag2_interfaces/msg/MessagesLostEvent";
const TOPIC_STAT_TYPE: &str = "rosbag2_interfaces/msg/MessagesLostEventTopicStat";
const WRITE_SPLIT_TYPE: &str = "rosbag2_interfaces/msg/WriteSplitEvent";

/// The two types that came after Jazzy, whose definitions the program carries.
const NEWER_DEFINITIONS: [(&str, &str); 2] = [
    (
        MESSAGES_LOST_TYPE,
        "string node_name\nMessagesLostEventTopicStat[] messages_lost_statistics\n",
    ),
    (
        TOPIC_STAT_TYPE,
        "string topic_name\nuint64 messages_lost_in_transport\nuint64 messages_lost_in_recorder\n",
    ),
];

/// As rosbag2 offers its events: reliable, the newest one.
const EVENT_QOS: QosProfile = QosProfile {
    depth: 1,
    ..QosProfile::ROS_DEFAULT
};

/// How often is looked whether anything was lost, while nothing was: each look goes over all topics under the ledger's lock.
const LOSS_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the end waits for subscriptions to have the last events.
const LAST_EVENT_MAX: Duration = Duration::from_millis(200);

/// What is told, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Full name of the recorder's node.
    pub node_name: String,
    /// Least time between two events about losses; `None` tells no losses.
    pub lost_interval: Option<Duration>,
}

/// A storage file that was finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedFile {
    /// It.
    pub closed: PathBuf,
    /// The one that came after it; `None` at the end.
    pub opened: Option<PathBuf>,
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
    lost: Vec<Box<dyn Publisher>>,
    split: Vec<Box<dyn Publisher>>,
    /// What was told, in the ledger's order of topics.
    told: Vec<Lost>,
    next_lost: Duration,
    published: bool,
}

impl EventPublishers {
    /// Announces the topics.
    pub(super) fn new<'a>(
        options: EventOptions,
        transports: impl Iterator<Item = &'a mut Box<dyn Transport>>,
    ) -> Self {
        let mut publishers = Self {
            options,
            lost: Vec::new(),
            split: Vec::new(),
            told: Vec::new(),
            next_lost: Duration::ZERO,
            published: false,
        };
        for transport in transports {
            let announced = publishers.announce(transport.as_mut());
            if let Err(error) = announced {
                // A recording without them is better than none.
                tracing::warn!("events are not told: {error}");
            }
        }
        publishers
    }

    fn announce(&mut self, transport: &mut dyn Transport) -> Result<(), TransportError> {
        if self.options.lost_interval.is_some() {
            self.lost
                .push(transport.publish(&request(MESSAGES_LOST_TOPIC, MESSAGES_LOST_TYPE))?);
        }
        self.split
            .push(transport.publish(&request(WRITE_SPLIT_TOPIC, WRITE_SPLIT_TYPE))?);
        Ok(())
    }

    /// Tells what was lost since the last event, unless that was too short ago.
    pub(super) fn tell_lost(&mut self, ledger: &Mutex<Ledger>, now: Duration) {
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
        let news = self.news(&lock(ledger));
        if news.is_empty() {
            return false;
        }
        let event = messages_lost(&self.options.node_name, &news);
        self.published |= publish(&mut self.lost, &event);
        true
    }

    /// What was lost and nobody was told yet, by topic.
    fn news(&mut self, ledger: &Ledger) -> Vec<(String, Lost)> {
        let mut news = Vec::new();
        self.told.resize(ledger.topics.len(), Lost::default());
        for (topic, told) in ledger.topics.iter().zip(&mut self.told) {
            if topic.missing.is_empty() {
                continue;
            }
            let total = lost(&topic.missing);
            // A message that was counted and came late makes the sum smaller; the next losses are told only beyond what was told.
            let new = Lost {
                in_transport: total.in_transport.saturating_sub(told.in_transport),
                in_recorder: total.in_recorder.saturating_sub(told.in_recorder),
            };
            if new != Lost::default() {
                told.in_transport += new.in_transport;
                told.in_recorder += new.in_recorder;
                news.push((topic.name.clone(), new));
            }
        }
        news
    }

    /// Tells a finished file.
    pub(super) fn tell_finished(&mut self, file: &FinishedFile) {
        let event = write_split(&self.options.node_name, file);
        self.published |= publish(&mut self.split, &event);
    }

    /// Tells the last losses, those at the tail too, and lets subscriptions take what was told.
    pub(super) fn finish(&mut self, ledger: &Mutex<Ledger>, last_file: Option<&Path>) {
        if self.options.lost_interval.is_some() {
            self.publish_lost(ledger);
        }
        if let Some(closed) = last_file {
            self.tell_finished(&FinishedFile {
                closed: closed.to_owned(),
                opened: None,
            });
        }
        if self.published {
            for publisher in self.lost.iter_mut().chain(&mut self.split) {
                publisher.wait_for_acked(LAST_EVENT_MAX);
            }
        }
    }
}

/// Publishes to whoever listens; true when somebody does.
fn publish(publishers: &mut [Box<dyn Publisher>], event: &[u8]) -> bool {
    let mut heard = false;
    for publisher in publishers {
        heard |= publisher.matched_subscriptions() > 0;
        if let Err(error) = publisher.publish(event) {
            tracing::debug!("an event is not told: {error}");
        }
    }
    heard
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
    let lookup = |name: &str| {
        let newer = NEWER_DEFINITIONS.iter().find(|(newer, _)| *newer == name);
        newer
            .map(|(_, text)| InterfaceSource {
                format: SourceFormat::Msg,
                text: Cow::Borrowed(*text),
            })
            .or_else(|| Bundle::embedded().get(name))
    };
    Some(Definition::resolve(type_name, lookup).ok()?.type_hash())
}

/// What rosbag2 calls lost: on the way to us, or with us. What was sent before the match, or left out on request, is neither.
fn lost(missing: &BTreeMap<LossStage, u64>) -> Lost {
    let mut lost = Lost::default();
    for (stage, count) in missing.iter().filter(|(stage, _)| stage.is_shortfall()) {
        match stage {
            LossStage::Transport | LossStage::Tail => lost.in_transport += count,
            _ => lost.in_recorder += count,
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
    let opened = file.opened.as_deref().map(Path::to_string_lossy);
    cdr.text(&opened.unwrap_or_default());
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
    fn rosbag2s_two_kinds_of_losses_leave_out_what_nobody_lost() {
        let missing = BTreeMap::from([
            (LossStage::Head, 1),
            (LossStage::Transport, 2),
            (LossStage::Tail, 4),
            (LossStage::Cache, 8),
            (LossStage::Storage, 16),
            (LossStage::Policy, 32),
        ]);
        let told = lost(&missing);
        assert_eq!((told.in_transport, told.in_recorder), (6, 24));
    }
}
