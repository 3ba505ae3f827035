//! Quality of service of a publisher or subscription, in ROS 2's terms.

use serde::{Deserialize, Serialize};

/// Which messages an endpoint keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Whatever the middleware's default is.
    #[default]
    SystemDefault,
    /// The last `depth` messages.
    KeepLast,
    /// All messages.
    KeepAll,
    /// The endpoint did not tell (Fast DDS does not send it).
    Unknown,
}

/// Whether lost messages are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reliability {
    /// Whatever the middleware's default is.
    #[default]
    SystemDefault,
    /// Lost messages are sent again.
    Reliable,
    /// Lost messages stay lost.
    BestEffort,
    /// The endpoint did not tell.
    Unknown,
    /// The best that all counterparts offer.
    BestAvailable,
}

/// Whether late subscriptions get earlier messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Whatever the middleware's default is.
    #[default]
    SystemDefault,
    /// The publisher keeps messages for late subscriptions.
    TransientLocal,
    /// Only what is sent while subscribed arrives.
    Volatile,
    /// The endpoint did not tell.
    Unknown,
    /// The best that all counterparts offer.
    BestAvailable,
}

/// How an endpoint shows that it is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveliness {
    /// Whatever the middleware's default is.
    #[default]
    SystemDefault,
    /// The middleware does it.
    Automatic,
    /// Deprecated in ROS 2: by node.
    ManualByNode,
    /// The publisher asserts it on the topic.
    ManualByTopic,
    /// The endpoint did not tell.
    Unknown,
    /// The best that all counterparts offer.
    BestAvailable,
}

/// A span in QoS: seconds and nanoseconds; both zero is "not set" (middleware default), see [`QosDuration::INFINITE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QosDuration {
    /// Whole seconds.
    pub sec: u64,
    /// Nanoseconds beyond the seconds.
    pub nsec: u64,
}

impl QosDuration {
    /// Never (`RMW_DURATION_INFINITE`).
    pub const INFINITE: Self = Self {
        sec: 9_223_372_036,
        nsec: 854_775_807,
    };
}

/// A whole QoS profile (`rmw_qos_profile_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QosProfile {
    /// Which messages are kept.
    pub history: History,
    /// How many messages `KeepLast` keeps.
    pub depth: u64,
    /// Whether lost messages are sent again.
    pub reliability: Reliability,
    /// Whether late subscriptions get earlier messages.
    pub durability: Durability,
    /// Longest time expected between messages.
    pub deadline: QosDuration,
    /// How long a message stays valid.
    pub lifespan: QosDuration,
    /// How the endpoint shows that it is alive.
    pub liveliness: Liveliness,
    /// How long it may stay silent before it counts as dead.
    pub liveliness_lease_duration: QosDuration,
    /// Use the topic name without the ROS prefix `rt`.
    pub avoid_ros_namespace_conventions: bool,
}
