//! Which QoS to request so that no offered message is missed, and which to offer when a bag is played.
//!
//! rosbag2 makes one subscription per topic. With mixed publishers it must be as weak as the weakest
//! publisher, so reliable publishers are received without repair, and latched messages of transient-local
//! publishers are missed. [`strongest_request`] returns for each publisher the subscription that receives it
//! as well as it offers.

use super::{Durability, History, Liveliness, QosDuration, QosProfile, Reliability};

/// The most that a subscription can request and still be matched with `offer`.
///
/// Only definite promises are requested: for an offer with `unknown` or `system_default` reliability the
/// request is best effort, which every publisher satisfies. Deadline, lifespan and liveliness stay unset, as
/// in rosbag2. `depth` is the publisher's, and at least that of [`QosProfile::ROS_DEFAULT`].
pub fn strongest_request(offer: &QosProfile) -> QosProfile {
    QosProfile {
        history: History::KeepLast,
        depth: offer.depth.max(QosProfile::ROS_DEFAULT.depth),
        reliability: match offer.reliability {
            Reliability::Reliable => Reliability::Reliable,
            _ => Reliability::BestEffort,
        },
        durability: match offer.durability {
            Durability::TransientLocal => Durability::TransientLocal,
            _ => Durability::Volatile,
        },
        deadline: QosDuration::UNSET,
        lifespan: QosDuration::UNSET,
        liveliness: Liveliness::SystemDefault,
        liveliness_lease_duration: QosDuration::UNSET,
        avoid_ros_namespace_conventions: offer.avoid_ros_namespace_conventions,
        is_keyed: offer.is_keyed,
    }
}

/// The most that one subscription can request and still be matched with all `offers`; `None` without one.
pub fn common_request<'a>(offers: impl IntoIterator<Item = &'a QosProfile>) -> Option<QosProfile> {
    let requests = offers.into_iter().map(strongest_request);
    requests.reduce(|common, request| QosProfile {
        depth: common.depth.max(request.depth),
        reliability: match request.reliability {
            Reliability::Reliable => common.reliability,
            weaker => weaker,
        },
        durability: match request.durability {
            Durability::TransientLocal => common.durability,
            weaker => weaker,
        },
        ..common
    })
}

/// The QoS to offer when a topic is played: the one its publishers offered if all agreed, else the
/// default (rosbag2's rule).
///
/// History and lifespan are not compared; history is always the default's.
pub fn adapt_publisher_qos(recorded: &[QosProfile]) -> QosProfile {
    let Some(first) = recorded.first() else {
        return QosProfile::ROS_DEFAULT;
    };
    if !recorded.iter().all(|profile| offers_the_same(profile, first)) {
        return QosProfile {
            is_keyed: recorded.iter().all(|profile| profile.is_keyed),
            ..QosProfile::ROS_DEFAULT
        };
    }
    QosProfile {
        history: History::KeepLast,
        depth: QosProfile::ROS_DEFAULT.depth,
        ..*first
    }
}

/// Whether two offers mean the same to subscriptions.
fn offers_the_same(a: &QosProfile, b: &QosProfile) -> bool {
    a.reliability == b.reliability
        && a.durability == b.durability
        && a.deadline == b.deadline
        && a.liveliness == b.liveliness
        && a.liveliness_lease_duration == b.liveliness_lease_duration
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::{is_compatible, tests::any_profile};
    use proptest::prelude::*;

    const BASE: QosProfile = QosProfile::ROS_DEFAULT;
    const LATCHED: QosProfile = QosProfile {
        durability: Durability::TransientLocal,
        depth: 1,
        ..BASE
    };
    const SENSOR: QosProfile = QosProfile {
        reliability: Reliability::BestEffort,
        depth: 5,
        ..BASE
    };

    #[test]
    fn each_publisher_is_received_as_well_as_it_offers() {
        let latched = strongest_request(&QosProfile {
            depth: 100,
            ..LATCHED
        });
        assert_eq!(
            (latched.reliability, latched.durability, latched.depth),
            (Reliability::Reliable, Durability::TransientLocal, 100)
        );
        let sensor = strongest_request(&SENSOR);
        assert_eq!(
            (sensor.reliability, sensor.durability, sensor.depth),
            (Reliability::BestEffort, Durability::Volatile, BASE.depth)
        );
    }

    #[test]
    fn nothing_is_requested_of_publishers_without_definite_qos() {
        let silent = QosProfile {
            reliability: Reliability::Unknown,
            durability: Durability::SystemDefault,
            ..BASE
        };
        let request = strongest_request(&silent);
        assert_eq!(
            (request.reliability, request.durability),
            (Reliability::BestEffort, Durability::Volatile)
        );
    }

    #[test]
    fn playing_offers_what_all_publishers_offered() {
        let mut other = QosProfile {
            history: History::Unknown,
            depth: 0,
            ..LATCHED
        };
        other.lifespan.sec = 3;
        let offer = adapt_publisher_qos(&[LATCHED, other]);
        assert_eq!(offer, QosProfile { depth: 10, ..LATCHED });
        assert_eq!(adapt_publisher_qos(&[LATCHED, SENSOR]), BASE);
        assert_eq!(adapt_publisher_qos(&[]), BASE);
    }

    proptest! {
        #[test]
        fn a_request_is_compatible_with_its_offer(offer in any_profile()) {
            let request = strongest_request(&offer);
            prop_assert!(is_compatible(&offer, &request));
            prop_assert_eq!(request.reliability == Reliability::Reliable, offer.reliability == Reliability::Reliable);
            prop_assert_eq!(request.durability == Durability::TransientLocal, offer.durability == Durability::TransientLocal);
            prop_assert!(request.depth >= offer.depth);
        }

        #[test]
        fn a_played_offer_satisfies_subscriptions_that_all_offers_satisfied(offers in prop::collection::vec(any_profile(), 1..5), request in any_profile()) {
            let played = adapt_publisher_qos(&offers);
            if (QosProfile { is_keyed: false, ..played }) != QosProfile::ROS_DEFAULT {
                let all = offers.iter().all(|offer| is_compatible(offer, &request));
                prop_assert!(!all || is_compatible(&played, &request));
            }
        }
    }
}
