//! Topics, message types and publishers.

use crate::qos::QosProfile;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Dense index of a topic within one recording; the recorder assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub u32);

/// Globally unique identifier of a publisher: 16 bytes (RTPS GUID; rmw_zenoh GID; iceoryx2 publisher id).
///
/// ```
/// let gid = holdall_model::topic::Gid([0xab; 16]);
/// assert_eq!(gid.to_string(), "ab".repeat(16));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gid(pub [u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A topic as a bag describes it (rosbag2 `TopicMetadata`).
///
/// ```
/// use holdall_model::{qos::QosProfile, topic::TopicInfo};
///
/// let odometry = TopicInfo {
///     name: "/odom".to_owned(),
///     type_name: "nav_msgs/msg/Odometry".to_owned(),
///     serialization_format: "cdr".to_owned(),
///     offered_qos_profiles: vec![QosProfile::ROS_DEFAULT],
///     ..TopicInfo::default()
/// };
/// assert_eq!(odometry.publisher, None, "a topic as a whole");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicInfo {
    /// Full ROS name, for example `/camera/image_raw`.
    pub name: String,
    /// ROS type, for example `sensor_msgs/msg/Image`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How payloads are serialized; `cdr` for ROS 2.
    pub serialization_format: String,
    /// Profiles offered when the topic was first subscribed, one per publisher, and each further one that publishers offered later.
    pub offered_qos_profiles: Vec<QosProfile>,
    /// `RIHS01_` and 64 hexadecimal digits (REP-2016); empty when unknown, or when publishers disagree.
    pub type_description_hash: String,
    /// The transport it was recorded from; `None` if the bag does not store it. Other readers of a bag skip it.
    #[serde(skip)]
    pub origin: Option<TopicOrigin>,
    /// The publisher of a channel that holds one publisher's messages only; `None` for a topic as a whole.
    #[serde(skip)]
    pub publisher: Option<Box<PublisherInfo>>,
}

/// Different profiles of a topic that later publishers may add.
pub const OFFERS_MAX: usize = 32;

impl TopicInfo {
    /// Adds a profile that a publisher offers; false if it is known, and where there are [`OFFERS_MAX`].
    pub fn add_offer(&mut self, qos: QosProfile) -> bool {
        let has_room = self.offered_qos_profiles.len() < OFFERS_MAX;
        let is_new = has_room && !self.offered_qos_profiles.contains(&qos);
        if is_new {
            self.offered_qos_profiles.push(qos);
        }
        is_new
    }

    /// Adds it if it is of a publisher of this type; false if not.
    pub fn add_offer_of(&mut self, type_name: &str, qos: QosProfile) -> bool {
        let is_its = self.type_name == type_name;
        if is_its {
            self.add_offer(qos);
        }
        is_its
    }

    /// The same topic without its publisher.
    #[must_use]
    pub fn as_whole(&self) -> Self {
        Self {
            publisher: None,
            ..self.clone()
        }
    }
}

/// A publisher as a bag distinguishes it from the others of its topic (docs/adr/0011).
///
/// ```
/// let camera = holdall_model::topic::PublisherInfo {
///     gid: "0110f3a2b4c5d6e70000000000001203".to_owned(),
///     node: Some("/left/camera".to_owned()),
///     ..Default::default()
/// };
/// assert!(camera.is_named("camera") && camera.is_named("0110f3"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublisherInfo {
    /// Its identifier on the transport, in hexadecimal digits.
    pub gid: String,
    /// Full name of its node, if discovery knew it when the publisher's first message was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The computer that it runs on, if the transport reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Short name of the transport that its messages came over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
}

/// Keys of a [`PublisherInfo`] among the texts that a storage keeps with a channel.
const PUBLISHER_KEYS: [&str; 4] = [
    "holdall.publisher",
    "holdall.publisher.node",
    "holdall.publisher.host",
    "holdall.publisher.transport",
];

/// The fewest digits of an identifier that select a publisher.
const GID_DIGITS_MIN: usize = 6;

impl PublisherInfo {
    /// The publisher as texts that a bag keeps with its channel.
    pub fn to_texts(&self) -> impl Iterator<Item = (String, String)> {
        let texts = [
            Some(&self.gid),
            self.node.as_ref(),
            self.host.as_ref(),
            self.transport.as_ref(),
        ];
        let keyed = PUBLISHER_KEYS.into_iter().zip(texts);
        keyed.filter_map(|(key, text)| Some((key.to_owned(), text?.clone())))
    }

    /// The publisher among the texts that a bag keeps with a channel.
    pub fn from_texts(texts: &BTreeMap<String, String>) -> Option<Self> {
        let text = |place: usize| texts.get(PUBLISHER_KEYS[place]).cloned();
        Some(Self {
            gid: text(0)?,
            node: text(1),
            host: text(2),
            transport: text(3),
        })
    }

    /// Whether `who` names this publisher: its node's full name or the last part of it, the beginning of its
    /// identifier (six digits or more), or its host.
    pub fn is_named(&self, who: &str) -> bool {
        let is_node = self.node.as_deref().is_some_and(|node| {
            let last = node.rsplit('/').next().unwrap_or(node);
            node == who || (!who.starts_with('/') && (last == who || node.strip_prefix('/') == Some(who)))
        });
        let digits = who.to_ascii_lowercase();
        let is_gid = digits.len() >= GID_DIGITS_MIN && self.gid.starts_with(&digits);
        is_node || is_gid || self.host.as_deref() == Some(who)
    }
}

/// The transport that a topic was recorded from, and the details that it needs to offer the topic again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicOrigin {
    /// The transport's short name, for example `iceoryx2`.
    pub transport: String,
    /// Details that its discovery reported in addition to name, type and QoS, under keys of its choice.
    pub details: BTreeMap<String, String>,
}

/// Key of [`TopicOrigin::transport`] among the texts that a storage keeps with a topic (MCAP channel
/// metadata).
const ORIGIN_KEY: &str = "holdall.transport";

/// Prefix of the keys of [`TopicOrigin::details`] there.
const ORIGIN_DETAIL_PREFIX: &str = "holdall.origin.";

impl TopicOrigin {
    /// The origin as texts that a bag keeps with a topic: in the channel's metadata of MCAP files, below
    /// `origin` in `metadata.yaml`.
    pub fn to_texts(&self) -> impl Iterator<Item = (String, String)> {
        let details = self.details.iter();
        std::iter::once((ORIGIN_KEY.to_owned(), self.transport.clone()))
            .chain(details.map(|(key, value)| (format!("{ORIGIN_DETAIL_PREFIX}{key}"), value.clone())))
    }

    /// The origin among the texts that a bag keeps with a topic.
    pub fn from_texts(texts: &BTreeMap<String, String>) -> Option<Self> {
        let details = texts.iter().filter_map(|(key, value)| {
            let key = key.strip_prefix(ORIGIN_DETAIL_PREFIX)?;
            Some((key.to_owned(), value.clone()))
        });
        Some(Self {
            transport: texts.get(ORIGIN_KEY)?.clone(),
            details: details.collect(),
        })
    }
}

/// A node's full name.
///
/// ```
/// let node = holdall_model::topic::NodeName { namespace: "/left".into(), name: "camera".into() };
/// assert_eq!(node.to_string(), "/left/camera");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeName {
    /// Namespace, beginning with `/`.
    pub namespace: String,
    /// Name without slashes.
    pub name: String,
}

impl NodeName {
    /// A node without a namespace.
    pub fn in_root(name: &str) -> Self {
        Self {
            namespace: "/".to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace.trim_end_matches('/'), self.name)
    }
}

/// How the text of a message definition is written (`docs/message_definition_encoding.md` of rosbag2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DefinitionEncoding {
    /// `.msg` texts, the main one first, each dependency after a line of 80 `=` and a line `MSG: pkg/Type`.
    Ros2Msg,
    /// `.idl` texts.
    Ros2Idl,
    /// `.msg` texts of ROS 1, delimited as those of ROS 2.
    Ros1Msg,
    /// A JSON schema of messages that are JSON texts.
    JsonSchema,
    /// No definition was found; the text is empty.
    #[default]
    Unknown,
}

impl DefinitionEncoding {
    /// The name as bags store it: `ros2msg`, `ros2idl`, `ros1msg`, `jsonschema` or `unknown`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ros2Msg => "ros2msg",
            Self::Ros2Idl => "ros2idl",
            Self::Ros1Msg => "ros1msg",
            Self::JsonSchema => "jsonschema",
            Self::Unknown => "unknown",
        }
    }
}

/// The definition of a message type with all its dependencies.
///
/// ```
/// use holdall_model::topic::{DefinitionEncoding, MessageDefinition};
///
/// let definition = MessageDefinition {
///     type_name: "my_robot/msg/Battery".to_owned(),
///     encoding: DefinitionEncoding::Ros2Msg,
///     text: "float32 volts\n".to_owned(),
///     ..MessageDefinition::default()
/// };
/// assert_eq!(definition.encoding.as_str(), "ros2msg");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDefinition {
    /// ROS type, for example `sensor_msgs/msg/Image`.
    pub type_name: String,
    /// How `text` is written.
    pub encoding: DefinitionEncoding,
    /// The definition with its dependencies; empty when unknown.
    pub text: String,
    /// RIHS01 hash that was announced and checked, or empty.
    pub type_description_hash: String,
}

impl MessageDefinition {
    /// True for a text that is only the type's name: some programs write it in place of a definition.
    pub fn is_name_only(&self) -> bool {
        let text = self.text.trim();
        let short = self.type_name.replacen("/msg/", "/", 1);
        !text.is_empty() && (text == self.type_name || text == short)
    }

    /// The definition of a type that no node and no file defines.
    pub fn unknown(type_name: &str) -> Self {
        Self {
            type_name: type_name.to_owned(),
            encoding: DefinitionEncoding::Unknown,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn camera() -> PublisherInfo {
        PublisherInfo {
            gid: "0110f3a2b4c5d6e70000000000001203".to_owned(),
            node: Some("/left/camera".to_owned()),
            host: Some("robot7".to_owned()),
            transport: Some("dds".to_owned()),
        }
    }

    #[test]
    fn a_publisher_is_restored_from_its_texts() {
        let only_gid = PublisherInfo {
            gid: "ab".repeat(16),
            ..PublisherInfo::default()
        };
        for publisher in [camera(), only_gid] {
            let texts: BTreeMap<String, String> = publisher.to_texts().collect();
            assert_eq!(PublisherInfo::from_texts(&texts), Some(publisher));
        }
        assert_eq!(PublisherInfo::from_texts(&BTreeMap::new()), None);
    }

    #[test]
    fn a_publisher_is_named_by_its_node_its_identifier_or_its_host() {
        for who in [
            "/left/camera",
            "left/camera",
            "camera",
            "0110f3",
            "0110F3A2",
            "robot7",
        ] {
            assert!(camera().is_named(who), "{who}");
        }
        for who in ["/camera", "left", "0110f", "f3a2b4", "robot", "", "/left"] {
            assert!(!camera().is_named(who), "{who}");
        }
        assert!(!PublisherInfo::default().is_named("abcdef"));
    }
}
