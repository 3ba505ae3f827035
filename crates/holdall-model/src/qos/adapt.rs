//! Which QoS to request so that no offered message is missed, and which to offer when a bag is played.
//!
//! rosbag2 makes one subscription per topic. With mixed publishers it must be as weak as the weakest
//! publisher, so reliable publishers are received without repair, and latched messages of transient-local
//! publishers are missed. [`plan_subscriptions`] returns the subscriptions with which every publisher is
//! received as well as it offers.

use super::{Durability, History, Liveliness, QosDuration, QosProfile, Reliability};

/// A subscription that a topic needs, and the publishers it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSubscription {
    /// What to request.
    pub profile: QosProfile,
    /// Indexes of the offers that this subscription serves. Every offer is served by exactly one subscription
    /// of a plan.
    ///
    /// A weaker subscription is matched with stronger publishers as well: accept a publisher's messages from
    /// the subscription that serves it, and ignore them on all others (compare the publisher's GID).
    pub serves: Vec<usize>,
}

/// The most that a subscription can request and still be matched with `offer`.
///
/// Only definite promises are requested: for an offer with `unknown` or `system_default` reliability the
/// request is best effort, which every publisher satisfies. Deadline, lifespan and liveliness stay unset, as
/// in rosbag2. `depth` is the publisher's, and at least that of [`QosProfile::ROS_DEFAULT`].
pub fn strongest_request(offer: &QosProfile) -> QosProfile {
    adapt_subscription_qos(std::slice::from_ref(offer))
}

/// The strongest profile for one subscription that is matched with every publisher: rosbag2's rule.
///
/// Reliable only when all are, transient local only when all are, the largest depth. Without offers this is
/// [`QosProfile::ROS_DEFAULT`].
pub fn adapt_subscription_qos(offers: &[QosProfile]) -> QosProfile {
    let Some(first) = offers.first() else {
        return QosProfile::ROS_DEFAULT;
    };
    let reliable = offers
        .iter()
        .all(|offer| offer.reliability == Reliability::Reliable);
    let transient_local = offers
        .iter()
        .all(|offer| offer.durability == Durability::TransientLocal);
    QosProfile {
        history: History::KeepLast,
        depth: offers.iter().fold(QosProfile::ROS_DEFAULT.depth, |depth, offer| {
            depth.max(offer.depth)
        }),
        reliability: if reliable {
            Reliability::Reliable
        } else {
            Reliability::BestEffort
        },
        durability: if transient_local {
            Durability::TransientLocal
        } else {
            Durability::Volatile
        },
        deadline: QosDuration::UNSET,
        lifespan: QosDuration::UNSET,
        liveliness: Liveliness::SystemDefault,
        liveliness_lease_duration: QosDuration::UNSET,
        avoid_ros_namespace_conventions: first.avoid_ros_namespace_conventions,
    }
}

/// The subscriptions that a topic needs so that each publisher is received as well as it offers.
///
/// One when all publishers promise the same; at most four (reliable or not, transient local or not), or eight
/// when publishers disagree about the ROS name prefix. In the order of the first offer that each serves.
/// Without offers: one subscription with the default profile, which serves no publisher yet.
///
/// A publisher that appears later is served by the planned subscription whose profile has the same
/// reliability, durability and prefix as its [`strongest_request`], or by a new one.
pub fn plan_subscriptions(offers: &[QosProfile]) -> Vec<PlannedSubscription> {
    if offers.is_empty() {
        return vec![PlannedSubscription {
            profile: QosProfile::ROS_DEFAULT,
            serves: Vec::new(),
        }];
    }
    let mut plan: Vec<PlannedSubscription> = Vec::new();
    for (index, offer) in offers.iter().enumerate() {
        let request = strongest_request(offer);
        match plan
            .iter_mut()
            .find(|planned| promises_the_same(&planned.profile, &request))
        {
            Some(planned) => {
                planned.profile.depth = planned.profile.depth.max(request.depth);
                planned.serves.push(index);
            }
            None => plan.push(PlannedSubscription {
                profile: request,
                serves: vec![index],
            }),
        }
    }
    plan
}

/// Whether two requests differ at most in depth.
fn promises_the_same(a: &QosProfile, b: &QosProfile) -> bool {
    a.reliability == b.reliability
        && a.durability == b.durability
        && a.avoid_ros_namespace_conventions == b.avoid_ros_namespace_conventions
}

/// What to offer when a topic is played: what its publishers offered if all agreed, else the default
/// (rosbag2's rule).
///
/// History and lifespan are not compared; history is always the default's.
pub fn adapt_publisher_qos(recorded: &[QosProfile]) -> QosProfile {
    let Some(first) = recorded.first() else {
        return QosProfile::ROS_DEFAULT;
    };
    if !recorded.iter().all(|profile| offers_the_same(profile, first)) {
        return QosProfile::ROS_DEFAULT;
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
    fn one_subscription_is_as_weak_as_the_weakest_publisher() {
        assert_eq!(adapt_subscription_qos(&[]), BASE);
        let both = adapt_subscription_qos(&[LATCHED, SENSOR]);
        assert_eq!(
            (both.reliability, both.durability),
            (Reliability::BestEffort, Durability::Volatile)
        );
        let latched = adapt_subscription_qos(&[
            LATCHED,
            QosProfile {
                depth: 100,
                ..LATCHED
            },
        ]);
        assert_eq!(
            (latched.reliability, latched.durability),
            (Reliability::Reliable, Durability::TransientLocal)
        );
        assert_eq!(latched.depth, 100);
    }

    #[test]
    fn each_kind_of_publisher_gets_a_subscription() {
        let plan = plan_subscriptions(&[SENSOR, LATCHED, SENSOR, LATCHED]);
        assert_eq!(plan.len(), 2);
        assert_eq!(plan[0].serves, [0, 2]);
        assert_eq!(plan[1].serves, [1, 3]);
        assert_eq!(plan[0].profile.reliability, Reliability::BestEffort);
        assert_eq!(plan[1].profile.reliability, Reliability::Reliable);
        assert_eq!(plan[1].profile.durability, Durability::TransientLocal);
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
        fn the_adapted_profile_matches_every_publisher(offers in prop::collection::vec(any_profile(), 0..8)) {
            let request = adapt_subscription_qos(&offers);
            for offer in &offers {
                prop_assert!(is_compatible(offer, &request));
                prop_assert!(request.depth >= offer.depth);
            }
        }

        #[test]
        fn a_plan_serves_each_offer_once_and_as_well_as_it_offers(offers in prop::collection::vec(any_profile(), 1..12)) {
            let plan = plan_subscriptions(&offers);
            let mut served: Vec<usize> = plan.iter().flat_map(|planned| planned.serves.clone()).collect();
            served.sort_unstable();
            prop_assert_eq!(served, (0..offers.len()).collect::<Vec<_>>());
            for planned in &plan {
                for offer in planned.serves.iter().map(|&index| &offers[index]) {
                    prop_assert!(is_compatible(offer, &planned.profile));
                    let reliable = planned.profile.reliability == Reliability::Reliable;
                    prop_assert_eq!(reliable, offer.reliability == Reliability::Reliable);
                    let latched = planned.profile.durability == Durability::TransientLocal;
                    prop_assert_eq!(latched, offer.durability == Durability::TransientLocal);
                    prop_assert!(planned.profile.depth >= offer.depth);
                }
            }
        }

        #[test]
        fn a_plan_holds_no_subscription_twice(offers in prop::collection::vec(any_profile(), 0..12)) {
            let plan = plan_subscriptions(&offers);
            prop_assert!(plan.len() <= 8);
            for (index, planned) in plan.iter().enumerate() {
                prop_assert!(plan[..index].iter().all(|other| !promises_the_same(&other.profile, &planned.profile)));
            }
        }

        #[test]
        fn a_played_offer_satisfies_subscriptions_that_all_offers_satisfied(offers in prop::collection::vec(any_profile(), 1..5), request in any_profile()) {
            let played = adapt_publisher_qos(&offers);
            if played != QosProfile::ROS_DEFAULT {
                let all = offers.iter().all(|offer| is_compatible(offer, &request));
                prop_assert!(!all || is_compatible(&played, &request));
            }
        }
    }
}
