//! Topics, message types and publishers: who sends what, under which name.

use crate::qos::QosProfile;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Dense index of a topic within one recording; the recorder hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub u32);

/// Globally unique identifier of a publisher: 16 bytes (RTPS GUID; rmw_zenoh GID; iceoryx2 publisher id).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
