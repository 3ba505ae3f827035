//! Topics, message types and publishers: who sends what, under which name.

use crate::qos::QosProfile;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Dense index of a topic within one recording; the recorder hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub u32);

/// Globally unique identifier of a publisher: 16 bytes (RTPS GUID; rmw_zenoh GID; iceoryx2 publisher id).
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicInfo {
    /// Full ROS name, for example `/camera/image_raw`.
    pub name: String,
    /// ROS type, for example `sensor_msgs/msg/Image`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How payloads are serialized; `cdr` for ROS 2.
    pub serialization_format: String,
    /// What each publisher offered when the topic was first subscribed, one profile per publisher.
    pub offered_qos_profiles: Vec<QosProfile>,
    /// `RIHS01_` and 64 hexadecimal digits (REP-2016), or empty when unknown or in dispute.
    pub type_description_hash: String,
    /// Where it was recorded; `None` where the bag does not tell. Other readers of a bag skip it.
    #[serde(skip)]
    pub origin: Option<TopicOrigin>,
}

/// The transport that a topic was recorded from, and what that needs to offer the topic again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicOrigin {
    /// The transport's short name, for example `iceoryx2`.
    pub transport: String,
    /// What its own discovery told besides name, type and QoS, under names of its choice.
    pub details: BTreeMap<String, String>,
}

/// Key of [`TopicOrigin::transport`] among the texts that a storage keeps with a topic (MCAP channel metadata).
const ORIGIN_KEY: &str = "holdall.transport";

/// What keys of [`TopicOrigin::details`] begin with there.
const ORIGIN_DETAIL_PREFIX: &str = "holdall.origin.";

impl TopicOrigin {
    /// The origin as texts that a bag keeps with a topic: in the channel's metadata of MCAP files, below `origin` in `metadata.yaml`.
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeName {
    /// Namespace, beginning with `/`.
    pub namespace: String,
    /// Name without slashes.
    pub name: String,
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
    /// No definition was found; the text is empty.
    #[default]
    Unknown,
}

impl DefinitionEncoding {
    /// The name as bags store it: `ros2msg`, `ros2idl`, `ros1msg` or `unknown`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ros2Msg => "ros2msg",
            Self::Ros2Idl => "ros2idl",
            Self::Ros1Msg => "ros1msg",
            Self::Unknown => "unknown",
        }
    }
}

/// The definition of a message type, with all that it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
