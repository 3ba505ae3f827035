//! The plan that a publishing process reads and the events that it prints: one JSON object on a line each
//! way.

use super::frame::{Frame, FrameError};
use crate::{
    measure::LatencySummary,
    suite::config::{MSG_TYPE_DEFAULT, ProducerConfig, PublisherGroup},
    workload::Content,
};
use holdall_model::qos::{Durability, QosProfile, Reliability};
use serde::{Deserialize, Serialize};

/// The type that replaces [`MSG_TYPE_DEFAULT`] where real nodes publish, which only know installed types.
pub(crate) const INSTALLED_BYTE_ARRAY: &str = "std_msgs/msg/UInt8MultiArray";

/// One group of publishers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// See [`PublisherGroup`] for all of these.
    pub name: String,
    /// Number of publishers.
    pub publishers_count: u32,
    /// Prefix of the topics.
    pub topic_root: String,
    /// Bytes of the bulk.
    pub msg_size_bytes: usize,
    /// ROS type.
    pub msg_type: String,
    /// Messages of each publisher.
    pub msg_count_each: u64,
    /// Messages a second of each publisher.
    pub rate_hz: f64,
    /// `KEEP_LAST` of this depth.
    pub depth: u64,
    /// Best effort, else reliable.
    pub is_best_effort: bool,
    /// Transient local, else volatile.
    pub is_transient_local: bool,
    /// Content of payloads, as producer files name it.
    pub content: String,
    /// Bytes before the bulk in hexadecimal, for programs that cannot encode messages themselves; see
    /// [`PublishPlan::with_frames`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
    /// Bytes after the bulk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// Length of the bulk itself.
    #[serde(default)]
    pub bulk_bytes: usize,
}

/// Everything to publish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishPlan {
    /// Groups in order.
    pub groups: Vec<GroupPlan>,
    /// Start when every publisher has a subscription.
    pub wait_for_subscriptions: bool,
    /// Seed of the payloads.
    pub seed: u64,
    /// Threads that publish.
    pub threads: u32,
}

impl PublishPlan {
    /// The plan of a producer file; with `installed_types_only` our own type is replaced by one that every
    /// ROS has.
    pub fn new(producers: &ProducerConfig, seed: u64, threads: u32, installed_types_only: bool) -> Self {
        let group = |group: &PublisherGroup| GroupPlan {
            name: group.name.clone(),
            publishers_count: group.publishers_count,
            topic_root: group.topic_root.clone(),
            msg_size_bytes: group.msg_size_bytes,
            msg_type: if installed_types_only && group.msg_type == MSG_TYPE_DEFAULT {
                INSTALLED_BYTE_ARRAY.to_owned()
            } else {
                group.msg_type.clone()
            },
            msg_count_each: group.msg_count_each,
            rate_hz: group.rate_hz,
            depth: group.qos.depth,
            is_best_effort: group.qos.reliability == Reliability::BestEffort,
            is_transient_local: group.qos.durability == Durability::TransientLocal,
            content: group.content.to_string(),
            head: String::new(),
            tail: String::new(),
            bulk_bytes: 0,
        };
        Self {
            groups: producers.groups.iter().map(group).collect(),
            wait_for_subscriptions: producers.wait_for_subscriptions,
            seed,
            threads,
        }
    }

    /// The same with the bytes around each group's bulk.
    ///
    /// A message type that cannot be made.
    /// A message type that cannot be made.
    pub(crate) fn with_frames(mut self) -> Result<Self, FrameError> {
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for group in &mut self.groups {
            let frame = Frame::new(&group.msg_type, group.msg_size_bytes)?;
            group.head = hexadecimal(&frame.head);
            group.tail = hexadecimal(&frame.tail);
            group.bulk_bytes = frame.bulk_bytes;
        }
        Ok(self)
    }

    /// The producer file of this plan.
    pub fn producers(&self) -> ProducerConfig {
        ProducerConfig {
            groups: self.groups.iter().map(GroupPlan::group).collect(),
            wait_for_subscriptions: self.wait_for_subscriptions,
            number_of_threads: Some(self.threads),
        }
    }
}

impl GroupPlan {
    fn group(&self) -> PublisherGroup {
        PublisherGroup {
            name: self.name.clone(),
            publishers_count: self.publishers_count,
            topic_root: self.topic_root.clone(),
            msg_size_bytes: self.msg_size_bytes,
            msg_type: self.msg_type.clone(),
            msg_count_each: self.msg_count_each,
            rate_hz: self.rate_hz,
            qos: QosProfile {
                depth: self.depth,
                reliability: if self.is_best_effort {
                    Reliability::BestEffort
                } else {
                    Reliability::Reliable
                },
                durability: if self.is_transient_local {
                    Durability::TransientLocal
                } else {
                    Durability::Volatile
                },
                ..QosProfile::ROS_DEFAULT
            },
            // Made from a content above, so it parses.
            content: self.content.parse().unwrap_or(Content::Entropy(8.0)),
        }
    }
}

/// An event of a publishing process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PublishEvent {
    /// All publishers exist.
    Ready,
    /// The first message is about to be sent.
    Started,
    /// All messages were sent, and acknowledged where required.
    Done(Box<PublishReport>),
}

/// What was sent, and how precisely.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishReport {
    /// Messages of each publisher.
    pub sent: Vec<u64>,
    /// Messages that the transport refused; they are among `sent`.
    #[serde(default)]
    pub refused: u64,
    /// Whole length of a message of each group.
    pub message_bytes: Vec<u64>,
    /// How long handing a message to the transport took.
    #[serde(default)]
    pub offer: Option<LatencySummary>,
    /// How much later than planned messages were handed over.
    #[serde(default)]
    pub lateness: Option<LatencySummary>,
    /// Processor time of the publishing threads, in seconds; `None` for other programs.
    #[serde(default)]
    pub cpu_s: f64,
    /// From the first due time to the end of the last hand-over, in seconds.
    pub elapsed_s: f64,
    /// Messages sent by publishers that had no subscription yet.
    #[serde(default)]
    pub sent_before_match: u64,
    /// When each publisher got its first subscription, in seconds after all of them existed.
    #[serde(default)]
    pub matched_s: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_returns_the_producers_it_was_made_from() {
        let text = "rosbag2_performance_benchmarking_node: {ros__parameters: {publishers: {publisher_groups: [g], g: {\
             publishers_count: 3, topic_root: cam, msg_size_bytes: 9, msg_count_each: 5, rate_hz: 10.5, content: image,\
             qos: {qos_depth: 7, qos_reliability: best_effort, qos_durability: transient_local}}}}}";
        let mut producers = ProducerConfig::parse(text).unwrap();
        let plan = PublishPlan::new(&producers, 3, 2, false);
        producers.number_of_threads = Some(2);
        assert_eq!(plan.producers(), producers);
        let line = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<PublishPlan>(&line).unwrap(), plan);
        let installed = PublishPlan::new(&producers, 3, 2, true);
        assert_eq!(installed.groups[0].msg_type, INSTALLED_BYTE_ARRAY);
    }
}
