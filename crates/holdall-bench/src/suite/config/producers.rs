//! Producer files: groups of equal publishers with size, rate, count and QoS.

use super::{
    ConfigError,
    keys::{Keys, decimal, positive},
};
use crate::workload::{Content, schedule};
use holdall_model::{
    qos::{Durability, QosProfile, Reliability},
    yaml::{self, Node, YamlError},
};
use std::path::Path;

/// The type of a group that names none: a message of one byte array.
pub(crate) const MSG_TYPE_DEFAULT: &str = "rosbag2_performance_benchmarking_msgs/msg/ByteArray";

/// The root key of a producer file.
const ROOT: &str = "rosbag2_performance_benchmarking_node";

/// Equal publishers; their topics are `<topic_root>_<i>`.
#[derive(Clone, Debug, PartialEq)]
pub struct PublisherGroup {
    /// The group's own name.
    pub name: String,
    /// Number of publishers, each with a topic of its own.
    pub publishers_count: u32,
    /// Prefix of its topics' names, without a slash.
    pub topic_root: String,
    /// Bytes of the array or of the main sequence of each message.
    pub msg_size_bytes: usize,
    /// ROS type.
    pub msg_type: String,
    /// Messages of each publisher.
    pub msg_count_each: u64,
    /// Messages a second of each publisher.
    pub rate_hz: f64,
    /// The publishers' QoS.
    pub qos: QosProfile,
    /// Content of payloads (not in rosbag2's files; random there).
    pub content: Content,
}

impl PublisherGroup {
    /// Payload bytes a second of the whole group.
    pub fn bytes_per_s(&self) -> f64 {
        self.rate_hz * f64::from(self.publishers_count) * self.msg_size_bytes as f64
    }

    /// Messages of the whole group.
    pub fn messages(&self) -> u64 {
        self.msg_count_each
            .saturating_mul(u64::from(self.publishers_count))
    }

    /// How long it sends, in seconds.
    pub(crate) fn duration_s(&self) -> f64 {
        self.msg_count_each as f64 / self.rate_hz
    }
}

/// The publishers of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducerConfig {
    /// The groups in the order of `publisher_groups`.
    pub groups: Vec<PublisherGroup>,
    /// Publishers wait until the recorder has subscribed.
    pub wait_for_subscriptions: bool,
    /// Threads that publish; chosen by the number of publishers when absent.
    pub number_of_threads: Option<u32>,
}

impl ProducerConfig {
    /// Reads a producer file of rosbag2_performance_benchmarking.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, a missing group, a rate of zero.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::of_file(path, Self::parse)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = yaml::parse(text)?;
        let mut keys = Keys::of(&root)?;
        let mut node = Keys::of(keys.required(ROOT)?)?;
        keys.finish()?;
        let mut parameters = Keys::of(node.required("ros__parameters")?)?;
        node.finish()?;
        let publishers = parameters.required("publishers")?;
        parameters.finish()?;
        Self::from_node(publishers)
    }

    /// Reads the map below `publishers`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn from_node(node: &Node) -> Result<Self, YamlError> {
        let mut keys = Keys::of(node)?;
        let names = keys.required("publisher_groups")?;
        let wait_for_subscriptions = keys
            .optional("wait_for_subscriptions")
            .map_or(Ok(true), Node::as_bool)?;
        let number_of_threads = keys.optional("number_of_threads").map(positive).transpose()?;
        let mut groups = Vec::new();
        for name in names.as_sequence()? {
            let name = name.as_str()?;
            let group = node
                .get(name)
                .ok_or_else(|| node.error(format!("publisher_groups names {name}, which is not there")))?;
            keys.optional(name);
            groups.push(read_group(name, group)?);
        }
        if groups.is_empty() {
            return Err(names.error("expected at least one group, found none"));
        }
        keys.finish()?;
        Ok(Self {
            groups,
            wait_for_subscriptions,
            number_of_threads,
        })
    }

    /// The same with message counts multiplied by `scale`; each publisher keeps at least one message.
    pub(crate) fn scaled(&self, scale: f64) -> Self {
        let mut scaled = self.clone();
        for group in &mut scaled.groups {
            // Counts stay far below 2^53.
            group.msg_count_each = ((group.msg_count_each as f64 * scale).round() as u64).max(1);
        }
        scaled
    }

    /// Publishers of all groups.
    pub fn publishers(&self) -> u32 {
        self.groups.iter().map(|group| group.publishers_count).sum()
    }

    /// Messages of all groups.
    pub fn messages(&self) -> u64 {
        self.groups
            .iter()
            .map(PublisherGroup::messages)
            .fold(0, u64::saturating_add)
    }

    /// Payload bytes of all groups.
    pub fn bytes(&self) -> u64 {
        self.groups
            .iter()
            .map(|group| group.messages().saturating_mul(group.msg_size_bytes as u64))
            .fold(0, u64::saturating_add)
    }

    /// Payload bytes that are offered each second while all groups send.
    pub fn bytes_per_s(&self) -> f64 {
        self.groups.iter().map(PublisherGroup::bytes_per_s).sum()
    }

    /// How long the longest group sends, in seconds.
    pub(crate) fn duration_s(&self) -> f64 {
        self.groups
            .iter()
            .map(PublisherGroup::duration_s)
            .fold(0.0, f64::max)
    }
}

fn read_group(name: &str, node: &Node) -> Result<PublisherGroup, YamlError> {
    let mut keys = Keys::of(node)?;
    let rate = keys.required("rate_hz")?;
    let rate_hz = decimal(rate)?;
    if schedule::rate_millihz(rate_hz).is_none() {
        return Err(rate.expected("a rate of 0.001 Hz or more"));
    }
    let root = keys.required("topic_root")?;
    let topic_root = root.as_str()?.trim_start_matches('/').to_owned();
    if topic_root.is_empty() {
        return Err(root.expected("a topic name"));
    }
    let msg_type = match keys.optional("msg_type") {
        Some(node) => ros_type(node)?,
        None => MSG_TYPE_DEFAULT.to_owned(),
    };
    let group = PublisherGroup {
        name: name.to_owned(),
        publishers_count: positive(keys.required("publishers_count")?)?,
        topic_root,
        msg_size_bytes: keys.optional("msg_size_bytes").map_or(Ok(0), Node::as_number)?,
        msg_type,
        msg_count_each: positive(keys.required("msg_count_each")?)?,
        rate_hz,
        qos: keys
            .optional("qos")
            .map_or_else(|| Ok(QosProfile::ROS_DEFAULT), read_qos)?,
        content: keys
            .optional("content")
            .map_or(Ok(Content::Entropy(8.0)), read_content)?,
    };
    keys.finish()?;
    Ok(group)
}

/// A type as `sensor_msgs::msg::Image` (C++) or `sensor_msgs/msg/Image`.
fn ros_type(node: &Node) -> Result<String, YamlError> {
    let name = node.as_str()?.replace("::", "/");
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [package, "msg", message] if !package.is_empty() && !message.is_empty() => Ok(name),
        _ => Err(node.expected("a message type like sensor_msgs::msg::Image")),
    }
}

fn read_qos(node: &Node) -> Result<QosProfile, YamlError> {
    let mut keys = Keys::of(node)?;
    let mut qos = QosProfile::ROS_DEFAULT;
    if let Some(depth) = keys.optional("qos_depth") {
        qos.depth = positive(depth)?;
    }
    if let Some(node) = keys.optional("qos_reliability") {
        qos.reliability = match node.as_str()? {
            "reliable" => Reliability::Reliable,
            "best_effort" => Reliability::BestEffort,
            _ => return Err(node.expected("reliable or best_effort")),
        };
    }
    if let Some(node) = keys.optional("qos_durability") {
        qos.durability = match node.as_str()? {
            "volatile" => Durability::Volatile,
            "transient_local" => Durability::TransientLocal,
            _ => return Err(node.expected("volatile or transient_local")),
        };
    }
    keys.finish()?;
    Ok(qos)
}

fn read_content(node: &Node) -> Result<Content, YamlError> {
    node.as_str()?
        .parse()
        .map_err(|error| node.error(format!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys and values of the shipped `mixed_110Mbs.yaml`.
    const MIXED: &str = r#"
rosbag2_performance_benchmarking_node:
  ros__parameters:
    publishers: # all groups
      publisher_groups: [ "small", "large" ]
      wait_for_subscriptions: True
      small:
        publishers_count:   500
        topic_root:         "benchmarking_small"
        msg_size_bytes:     100
        msg_count_each:     2000
        rate_hz:            200
      large:
        publishers_count:   1
        topic_root:         "benchmarking_large"
        msg_size_bytes:     10000000
        msg_type:           "sensor_msgs::msg::Image"
        msg_count_each:     100
        rate_hz:            10
        qos:
          qos_depth:          5
          qos_reliability:    "best_effort"
          qos_durability:     "transient_local"
"#;

    #[test]
    fn a_shipped_file_is_read_unchanged() {
        let config = ProducerConfig::parse(MIXED).unwrap();
        assert_eq!((config.publishers(), config.messages()), (501, 1_000_100));
        assert_eq!(config.bytes(), 500 * 2000 * 100 + 100 * 10_000_000);
        assert!((config.bytes_per_s() - 110e6).abs() < 1.0);
        assert!((config.duration_s() - 10.0).abs() < 1e-9);
        let large = &config.groups[1];
        assert_eq!(large.msg_type, "sensor_msgs/msg/Image");
        assert_eq!(
            (large.qos.depth, large.qos.reliability),
            (5, Reliability::BestEffort)
        );
        assert_eq!(config.groups[0].msg_type, MSG_TYPE_DEFAULT);
        assert_eq!(config.groups[0].qos.reliability, Reliability::Reliable);
    }

    #[test]
    fn scaling_keeps_at_least_one_message() {
        let scaled = ProducerConfig::parse(MIXED).unwrap().scaled(0.001);
        assert_eq!(
            (scaled.groups[0].msg_count_each, scaled.groups[1].msg_count_each),
            (2, 1)
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let error = |from: &str, to: &str| {
            let text = MIXED.replacen(from, to, 1);
            assert_ne!(text, MIXED, "{from}");
            ProducerConfig::parse(&text).unwrap_err().to_string()
        };
        assert_eq!(
            error("200\n", "0\n"),
            "line 12: expected a rate of 0.001 Hz or more, found \"0\""
        );
        assert!(error("\"large\" ]", "\"huge\" ]").contains("names huge, which is not there"));
        assert!(error("\"small\", ", "").contains("unknown key small"));
        assert!(error("qos_depth", "depth").contains("unknown key depth"));
        assert!(error("msg_size_bytes", "msg_size").contains("unknown key msg_size"));
        assert!(error("publishers_count:   500", "publishers_count:   0").contains("one or more"));
        assert!(error("best_effort", "best").contains("expected reliable or best_effort, found \"best\""));
    }
}
