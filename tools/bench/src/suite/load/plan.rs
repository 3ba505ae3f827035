//! The plan that a publishing process reads and the events that it prints: one JSON object on a line each
//! way.

use super::frame::{Frame, FrameError};
use crate::{
    measure::LatencySummary,
    suite::config::{MSG_TYPE_DEFAULT, ProducerConfig, PublisherGroup},
};
use serde::{Deserialize, Serialize};

/// The type that replaces [`MSG_TYPE_DEFAULT`] where real nodes publish, which only know installed types.
pub(crate) const INSTALLED_BYTE_ARRAY: &str = "std_msgs/msg/UInt8MultiArray";

/// The bytes around the bulk of a group's messages, for programs that cannot encode messages themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FramePlan {
    /// Bytes before the bulk in hexadecimal.
    pub head: String,
    /// Bytes after it.
    pub tail: String,
    /// Length of the bulk itself.
    pub bulk_bytes: usize,
}

/// Everything to publish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishPlan {
    /// Groups in order.
    pub groups: Vec<PublisherGroup>,
    /// Frames of each group; see [`PublishPlan::with_frames`].
    #[serde(default)]
    pub frames: Vec<FramePlan>,
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
        let mut groups = producers.groups.clone();
        let own = groups
            .iter_mut()
            .filter(|group| group.msg_type == MSG_TYPE_DEFAULT);
        for group in own.filter(|_| installed_types_only) {
            INSTALLED_BYTE_ARRAY.clone_into(&mut group.msg_type);
        }
        Self {
            groups,
            frames: Vec::new(),
            wait_for_subscriptions: producers.wait_for_subscriptions,
            seed,
            threads,
        }
    }

    /// The same with the bytes around each group's bulk.
    ///
    /// # Errors
    /// A message type that cannot be made.
    pub(crate) fn with_frames(mut self) -> Result<Self, FrameError> {
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let frame = |group: &PublisherGroup| {
            let frame = Frame::new(&group.msg_type, group.msg_size_bytes)?;
            Ok(FramePlan {
                head: hexadecimal(&frame.head),
                tail: hexadecimal(&frame.tail),
                bulk_bytes: frame.bulk_bytes,
            })
        };
        self.frames = self.groups.iter().map(frame).collect::<Result<_, FrameError>>()?;
        Ok(self)
    }

    /// The producer file of this plan.
    pub fn producers(&self) -> ProducerConfig {
        ProducerConfig {
            groups: self.groups.clone(),
            wait_for_subscriptions: self.wait_for_subscriptions,
            number_of_threads: Some(self.threads),
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

/// Messages sent, and their precision.
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
    /// Time from the first due time to the end of the last hand-over, in seconds.
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
