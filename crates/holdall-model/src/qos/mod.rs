//! Quality of service of a publisher or subscription, in ROS 2's terms.

mod adapt;
mod compatibility;
mod text;

pub use adapt::{adapt_publisher_qos, common_request, strongest_request};
pub use compatibility::{QosPolicy, incompatible_policies, is_compatible};
pub use text::{QosFileError, QosTextError, parse_profiles, parse_qos_overrides, profiles_to_text};
pub(crate) use text::{profiles_from_yaml, write_profile_lines};

use serde::{Deserialize, Serialize};

/// Adds to a policy enum the names and the numbers under which bags and ROS interfaces store it.
macro_rules! policy_forms {
    ($policy:ident { $($variant:ident = $number:literal $name:literal,)+ }) => {
        impl $policy {
            /// Every named value, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name as bags and QoS files show it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The number as `rmw` and bags before Jazzy store it.
            pub const fn as_number(self) -> u8 {
                match self { $(Self::$variant => $number,)+ }
            }

            /// The value of a name, in any case; `None` for an unknown name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str().eq_ignore_ascii_case(name))
            }

            /// The value of a number; `None` for an unknown number.
            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_number() == number)
            }
        }
    };
}

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
    /// The endpoint did not announce it (Fast DDS does not send it).
    Unknown,
}

policy_forms!(History {
    SystemDefault = 0 "system_default",
    KeepLast = 1 "keep_last",
    KeepAll = 2 "keep_all",
    Unknown = 3 "unknown",
});

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
    /// The endpoint did not announce it.
    Unknown,
    /// The best that all counterparts offer.
    BestAvailable,
}

policy_forms!(Reliability {
    SystemDefault = 0 "system_default",
    Reliable = 1 "reliable",
    BestEffort = 2 "best_effort",
    Unknown = 3 "unknown",
    BestAvailable = 4 "best_available",
});

/// Whether late subscriptions get earlier messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Whatever the middleware's default is.
    #[default]
    SystemDefault,
    /// The publisher keeps messages for late subscriptions.
    TransientLocal,
    /// Subscriptions get only messages sent while they exist.
    Volatile,
    /// The endpoint did not announce it.
    Unknown,
    /// The best that all counterparts offer.
    BestAvailable,
}

policy_forms!(Durability {
    SystemDefault = 0 "system_default",
    TransientLocal = 1 "transient_local",
    Volatile = 2 "volatile",
    Unknown = 3 "unknown",
    BestAvailable = 4 "best_available",
});

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
    /// The endpoint did not announce it.
    Unknown,
    /// The best that all counterparts offer.
    BestAvailable,
}

policy_forms!(Liveliness {
    SystemDefault = 0 "system_default",
    Automatic = 1 "automatic",
    ManualByNode = 2 "manual_by_node",
    ManualByTopic = 3 "manual_by_topic",
    Unknown = 4 "unknown",
    BestAvailable = 5 "best_available",
});

/// A span in QoS: seconds and nanoseconds; both zero is "not set" (middleware default), see
/// [`QosDuration::INFINITE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QosDuration {
    /// Whole seconds.
    pub sec: u64,
    /// Nanoseconds beyond the seconds.
    pub nsec: u64,
}

impl QosDuration {
    /// Not set: the middleware's default, which is infinite for every policy that holds a span.
    pub const UNSET: Self = Self { sec: 0, nsec: 0 };
    /// Never (`RMW_DURATION_INFINITE`).
    pub const INFINITE: Self = Self {
        sec: 9_223_372_036,
        nsec: 854_775_807,
    };
    /// Never, as Fast RTPS wrote it in Foxy.
    const INFINITE_FAST_RTPS: Self = Self {
        sec: 0x7FFF_FFFF,
        nsec: 0xFFFF_FFFF,
    };
    /// Never, as Connext wrote it in Foxy.
    const INFINITE_CONNEXT: Self = Self {
        sec: 0x7FFF_FFFF,
        nsec: 0x7FFF_FFFF,
    };

    /// The span in nanoseconds; `None` when it is not set or never ends.
    pub(crate) fn finite_nanos(self) -> Option<u64> {
        let nanos = self.sec.saturating_mul(1_000_000_000).saturating_add(self.nsec);
        let infinite_nanos = Self::INFINITE.sec * 1_000_000_000 + Self::INFINITE.nsec;
        (nanos != 0 && nanos < infinite_nanos && self.normalized() != Self::INFINITE).then_some(nanos)
    }

    /// This span, with the infinities of older middlewares turned into [`QosDuration::INFINITE`].
    pub fn normalized(self) -> Self {
        if self == Self::INFINITE_FAST_RTPS || self == Self::INFINITE_CONNEXT {
            Self::INFINITE
        } else {
            self
        }
    }
}

/// A whole QoS profile (`rmw_qos_profile_t`).
///
/// ```
/// use holdall_model::qos::{QosProfile, Reliability};
///
/// let sensor_data = QosProfile { depth: 5, reliability: Reliability::BestEffort, ..QosProfile::ROS_DEFAULT };
/// assert_eq!(QosProfile::ROS_DEFAULT.depth, 10);
/// # assert_ne!(sensor_data, QosProfile::ROS_DEFAULT);
/// ```
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
    /// The topic's type has a key (`@key`): DDS matches publishers and subscriptions of such a type with each other only. Not a ROS policy, but
    /// an endpoint offers it like one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_keyed: bool,
}

impl QosProfile {
    /// ROS 2's default (`rmw_qos_profile_default`): reliable, volatile, the last 10 messages.
    pub const ROS_DEFAULT: Self = Self {
        history: History::KeepLast,
        depth: 10,
        reliability: Reliability::Reliable,
        durability: Durability::Volatile,
        deadline: QosDuration::UNSET,
        lifespan: QosDuration::UNSET,
        liveliness: Liveliness::SystemDefault,
        liveliness_lease_duration: QosDuration::UNSET,
        avoid_ros_namespace_conventions: false,
        is_keyed: false,
    };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_duration() -> impl Strategy<Value = QosDuration> {
        prop_oneof![
            Just(QosDuration::UNSET),
            Just(QosDuration::INFINITE),
            (0..9_223_372_036u64, 0..1_000_000_000u64).prop_map(|(sec, nsec)| QosDuration { sec, nsec }),
        ]
    }

    prop_compose! {
        pub(crate) fn any_profile()(
            history in prop::sample::select(History::ALL),
            depth in 0..5000u64,
            reliability in prop::sample::select(Reliability::ALL),
            durability in prop::sample::select(Durability::ALL),
            deadline in any_duration(),
            lifespan in any_duration(),
            liveliness in prop::sample::select(Liveliness::ALL),
            liveliness_lease_duration in any_duration(),
            avoid_ros_namespace_conventions in any::<bool>(),
            is_keyed in any::<bool>(),
        ) -> QosProfile {
            QosProfile {
                history, depth, reliability, durability, deadline, lifespan, liveliness,
                liveliness_lease_duration, avoid_ros_namespace_conventions, is_keyed,
            }
        }
    }

    #[test]
    fn names_and_numbers_lead_back_to_the_value() {
        for &value in Liveliness::ALL {
            assert_eq!(Liveliness::from_name(value.as_str()), Some(value));
            assert_eq!(Liveliness::from_number(value.as_number()), Some(value));
        }
        assert_eq!(
            Reliability::from_name("BEST_EFFORT"),
            Some(Reliability::BestEffort)
        );
        assert_eq!(Reliability::from_name("besteffort"), None);
        assert_eq!(History::from_number(4), None);
    }

    #[test]
    fn json_uses_the_same_names_as_bags() {
        for value in Durability::ALL {
            assert_eq!(serde_json::to_value(value).unwrap(), value.as_str());
        }
        for value in Liveliness::ALL {
            assert_eq!(serde_json::to_value(value).unwrap(), value.as_str());
        }
    }

    #[test]
    fn unset_and_infinite_spans_are_not_finite() {
        assert_eq!(QosDuration::UNSET.finite_nanos(), None);
        assert_eq!(QosDuration::INFINITE.finite_nanos(), None);
        assert_eq!(QosDuration::INFINITE_CONNEXT.finite_nanos(), None);
        assert_eq!(
            QosDuration {
                sec: u64::MAX,
                nsec: u64::MAX
            }
            .finite_nanos(),
            None
        );
        assert_eq!(
            QosDuration { sec: 1, nsec: 5 }.finite_nanos(),
            Some(1_000_000_005)
        );
    }
}
