//! QoS between ROS's words and rmw's numbers.

use super::ffi::Qos;
use holdall_model::qos::{Durability, History, Liveliness, QosDuration, QosProfile, Reliability};

fn number(value: u64) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// The profile of numbers; a number without a meaning is unknown.
pub(super) fn profile_of(qos: &Qos) -> QosProfile {
    let duration = |sec, nsec| QosDuration { sec, nsec }.normalized();
    QosProfile {
        history: History::from_number(number(qos.history)).unwrap_or(History::Unknown),
        depth: qos.depth,
        reliability: Reliability::from_number(number(qos.reliability)).unwrap_or(Reliability::Unknown),
        durability: Durability::from_number(number(qos.durability)).unwrap_or(Durability::Unknown),
        deadline: duration(qos.deadline_sec, qos.deadline_nsec),
        lifespan: duration(qos.lifespan_sec, qos.lifespan_nsec),
        liveliness: Liveliness::from_number(number(qos.liveliness)).unwrap_or(Liveliness::Unknown),
        liveliness_lease_duration: duration(qos.lease_sec, qos.lease_nsec),
        avoid_ros_namespace_conventions: qos.avoid_ros_namespace_conventions != 0,
        is_keyed: false,
    }
}

/// The numbers of an offered profile; unknown policies get the middleware's default.
pub(super) fn offer_of(profile: &QosProfile) -> Qos {
    let or_default = |number: u8, unknown: u8| if number == unknown { 0 } else { u64::from(number) };
    Qos {
        history: or_default(profile.history.as_number(), History::Unknown.as_number()),
        depth: profile.depth,
        reliability: or_default(profile.reliability.as_number(), Reliability::Unknown.as_number()),
        durability: or_default(profile.durability.as_number(), Durability::Unknown.as_number()),
        liveliness: or_default(profile.liveliness.as_number(), Liveliness::Unknown.as_number()),
        deadline_sec: profile.deadline.sec,
        deadline_nsec: profile.deadline.nsec,
        lifespan_sec: profile.lifespan.sec,
        lifespan_nsec: profile.lifespan.nsec,
        lease_sec: profile.liveliness_lease_duration.sec,
        lease_nsec: profile.liveliness_lease_duration.nsec,
        avoid_ros_namespace_conventions: u64::from(profile.avoid_ros_namespace_conventions),
    }
}

/// The numbers of a request: only policies that decide the match, and a history that keeps everything.
pub(super) fn request_of(profile: &QosProfile) -> Qos {
    offer_of(&QosProfile {
        history: History::KeepAll,
        reliability: profile.reliability,
        durability: profile.durability,
        avoid_ros_namespace_conventions: profile.avoid_ros_namespace_conventions,
        ..QosProfile::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_survive_their_numbers() {
        let profile = QosProfile {
            depth: 7,
            durability: Durability::TransientLocal,
            deadline: QosDuration { sec: 1, nsec: 2 },
            liveliness: Liveliness::ManualByTopic,
            ..QosProfile::ROS_DEFAULT
        };
        assert_eq!(profile_of(&offer_of(&profile)), profile);
        let strange = Qos {
            reliability: 300,
            ..offer_of(&profile)
        };
        assert_eq!(profile_of(&strange).reliability, Reliability::Unknown);
        assert_eq!(offer_of(&profile_of(&strange)).reliability, 0);
    }

    #[test]
    fn a_request_keeps_all_and_asks_for_nothing_that_could_refuse_a_publisher() {
        let offered = QosProfile {
            deadline: QosDuration { sec: 1, nsec: 0 },
            ..QosProfile::ROS_DEFAULT
        };
        let request = request_of(&offered);
        assert_eq!(
            (request.history, request.reliability, request.deadline_sec),
            (2, 1, 0)
        );
    }
}
