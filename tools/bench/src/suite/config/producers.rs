//! Producer files: groups of equal publishers with size, rate, count and QoS.

use super::values::{as_text, positive, read_below, text};
use crate::workload::{Content, schedule};
use holdall_model::{
    qos::{Durability, QosProfile, Reliability},
    yaml::YamlError,
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt};

/// The type of a group that names none: a message of one byte array.
pub(crate) const MSG_TYPE_DEFAULT: &str = "rosbag2_performance_benchmarking_msgs/msg/ByteArray";

/// The keys above the content of a producer file.
const ABOVE: [&str; 3] = [
    "rosbag2_performance_benchmarking_node",
    "ros__parameters",
    "publishers",
];

/// Equal publishers; their topics are `<topic_root>_<i>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherGroup {
    /// The group's own name: its key in a file.
    #[serde(default)]
    pub name: String,
    /// Number of publishers, each with a separate topic.
    #[serde(deserialize_with = "positive")]
    pub publishers_count: u32,
    /// Prefix of its topics' names, without a slash.
    #[serde(deserialize_with = "topic_root")]
    pub topic_root: String,
    /// Bytes of the array or of the main sequence of each message.
    #[serde(default)]
    pub msg_size_bytes: usize,
    /// ROS type.
    #[serde(default = "msg_type_default", deserialize_with = "ros_type")]
    pub msg_type: String,
    /// Messages of each publisher.
    #[serde(deserialize_with = "positive")]
    pub msg_count_each: u64,
    /// Messages a second of each publisher.
    #[serde(deserialize_with = "rate")]
    pub rate_hz: f64,
    /// The publishers' QoS.
    #[serde(
        default = "qos_default",
        serialize_with = "qos_keys",
        deserialize_with = "qos"
    )]
    pub qos: QosProfile,
    /// Content of payloads (not in rosbag2's files; random there).
    #[serde(
        default = "content_default",
        serialize_with = "as_text",
        deserialize_with = "text"
    )]
    pub content: Content,
}

fn msg_type_default() -> String {
    MSG_TYPE_DEFAULT.to_owned()
}

fn qos_default() -> QosProfile {
    QosProfile::ROS_DEFAULT
}

fn content_default() -> Content {
    Content::Entropy(8.0)
}

fn topic_root<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let root = String::deserialize(deserializer)?;
    match root.trim_start_matches('/') {
        "" => Err(D::Error::custom(format!("expected a topic name, found {root:?}"))),
        root => Ok(root.to_owned()),
    }
}

/// A type as `sensor_msgs::msg::Image` (C++) or `sensor_msgs/msg/Image`.
fn ros_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?.replace("::", "/");
    match name.split('/').collect::<Vec<_>>()[..] {
        [package, "msg", message] if !package.is_empty() && !message.is_empty() => Ok(name),
        _ => Err(D::Error::custom(format!(
            "expected a message type like sensor_msgs::msg::Image, found {name:?}"
        ))),
    }
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let rate = f64::deserialize(deserializer)?;
    match schedule::rate_millihz(rate) {
        Some(_) => Ok(rate),
        None => Err(D::Error::custom(format!(
            "expected a rate of 0.001 Hz or more, found {rate}"
        ))),
    }
}

/// The QoS that files have.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QosKeys {
    #[serde(deserialize_with = "positive")]
    qos_depth: u64,
    qos_reliability: Reliability,
    qos_durability: Durability,
}

impl Default for QosKeys {
    fn default() -> Self {
        let QosProfile {
            depth,
            reliability,
            durability,
            ..
        } = QosProfile::ROS_DEFAULT;
        Self {
            qos_depth: depth,
            qos_reliability: reliability,
            qos_durability: durability,
        }
    }
}

fn qos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<QosProfile, D::Error> {
    let keys = QosKeys::deserialize(deserializer)?;
    Ok(QosProfile {
        depth: keys.qos_depth,
        reliability: keys.qos_reliability,
        durability: keys.qos_durability,
        ..QosProfile::ROS_DEFAULT
    })
}

fn qos_keys<S: Serializer>(qos: &QosProfile, serializer: S) -> Result<S::Ok, S::Error> {
    let keys = QosKeys {
        qos_depth: qos.depth,
        qos_reliability: qos.reliability,
        qos_durability: qos.durability,
    };
    keys.serialize(serializer)
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

/// The map below `publishers`, whose groups are keys, too.
struct Publishers;

impl<'de> Visitor<'de> for Publishers {
    type Value = ProducerConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("groups of publishers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProducerConfig, A::Error> {
        let mut found = BTreeMap::<String, PublisherGroup>::new();
        let (mut names, mut wait_for_subscriptions, mut number_of_threads) = (Vec::new(), true, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "publisher_groups" => names = map.next_value::<Vec<String>>()?,
                "wait_for_subscriptions" => wait_for_subscriptions = map.next_value()?,
                "number_of_threads" => number_of_threads = map.next_value::<Option<u32>>()?,
                _ => {
                    let name = key.clone();
                    let group = map.next_value()?;
                    found.insert(key, PublisherGroup { name, ..group });
                }
            }
        }
        let mut take = |name: String| {
            let missing = || A::Error::custom(format!("publisher_groups names {name}, which does not exist"));
            found.remove(&name).ok_or_else(missing)
        };
        let groups: Vec<PublisherGroup> = names.into_iter().map(&mut take).collect::<Result<_, _>>()?;
        if let Some(name) = found.keys().next() {
            return Err(A::Error::custom(format!(
                "unknown field `{name}`, which publisher_groups does not name"
            )));
        }
        if groups.is_empty() || number_of_threads == Some(0) {
            return Err(A::Error::custom(
                "expected at least one group in publisher_groups, and at least one thread",
            ));
        }
        Ok(ProducerConfig {
            groups,
            wait_for_subscriptions,
            number_of_threads,
        })
    }
}

impl<'de> Deserialize<'de> for ProducerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Publishers)
    }
}

impl ProducerConfig {
    /// Reads the text of a producer file of rosbag2_performance_benchmarking.
    ///
    /// # Errors
    /// An unknown key, a missing group, a rate of zero.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        read_below(text, &ABOVE)
    }

    /// The same with message counts multiplied by `scale`; each publisher keeps at least one message.
    pub fn scaled(&self, scale: f64) -> Self {
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
            "line 12: small.rate_hz: expected a rate of 0.001 Hz or more, found 0"
        );
        assert!(error("\"large\" ]", "\"huge\" ]").contains("names huge, which does not exist"));
        assert!(error("\"small\", ", "").contains("unknown field `small`"));
        assert!(error("qos_depth", "depth").contains("unknown field `depth`"));
        assert!(error("msg_size_bytes", "msg_size").contains("unknown field `msg_size`"));
        assert!(error("publishers_count:   500", "publishers_count:   0").contains("one or more"));
        assert!(error("best_effort", "best").contains("unknown variant `best`"));
    }
}
