//! Whether a publisher's offer satisfies a subscription's request (`rmw_dds_common`
//! `qos_profile_check_compatible`).

use super::{Durability, Liveliness, QosDuration, QosProfile, Reliability};
use std::fmt;

/// A policy that can keep a publisher and a subscription from being matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosPolicy {
    /// Reliable requested, best effort offered.
    Reliability,
    /// Transient local requested, volatile offered.
    Durability,
    /// A shorter deadline requested than offered.
    Deadline,
    /// Manual liveliness requested, automatic offered.
    Liveliness,
    /// A shorter lease requested than offered.
    LivelinessLeaseDuration,
}

impl fmt::Display for QosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reliability => "reliability",
            Self::Durability => "durability",
            Self::Deadline => "deadline",
            Self::Liveliness => "liveliness",
            Self::LivelinessLeaseDuration => "liveliness_lease_duration",
        })
    }
}

/// The policies in which `request` demands more than `offer` gives; empty when both will be matched.
///
/// Indefinite values (`system_default`, `unknown`, `best_available`) never prevent a match.
pub fn incompatible_policies(offer: &QosProfile, request: &QosProfile) -> Vec<QosPolicy> {
    let reliability =
        offer.reliability == Reliability::BestEffort && request.reliability == Reliability::Reliable;
    let durability =
        offer.durability == Durability::Volatile && request.durability == Durability::TransientLocal;
    let lease = (offer.liveliness_lease_duration, request.liveliness_lease_duration);
    let checks = [
        (reliability, QosPolicy::Reliability),
        (durability, QosPolicy::Durability),
        (
            asks_shorter(offer.deadline, request.deadline),
            QosPolicy::Deadline,
        ),
        (
            asks_stronger(offer.liveliness, request.liveliness),
            QosPolicy::Liveliness,
        ),
        (asks_shorter(lease.0, lease.1), QosPolicy::LivelinessLeaseDuration),
    ];
    checks
        .into_iter()
        .filter_map(|(fails, policy)| fails.then_some(policy))
        .collect()
}

/// Whether a subscription that asks for `request` is matched with a publisher that offers `offer`.
pub fn is_compatible(offer: &QosProfile, request: &QosProfile) -> bool {
    incompatible_policies(offer, request).is_empty()
}

/// Whether a finite span is requested and a longer one (or none) is offered.
fn asks_shorter(offer: QosDuration, request: QosDuration) -> bool {
    match (offer.finite_nanos(), request.finite_nanos()) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(offered), Some(requested)) => offered > requested,
    }
}

/// DDS orders liveliness: automatic < manual by node < manual by topic.
fn asks_stronger(offer: Liveliness, request: Liveliness) -> bool {
    let strength = |liveliness| match liveliness {
        Liveliness::Automatic => Some(0),
        Liveliness::ManualByNode => Some(1),
        Liveliness::ManualByTopic => Some(2),
        Liveliness::SystemDefault | Liveliness::Unknown | Liveliness::BestAvailable => None,
    };
    matches!((strength(offer), strength(request)), (Some(offered), Some(requested)) if offered < requested)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::tests::any_profile;
    use proptest::prelude::*;

    const SECOND: QosDuration = QosDuration { sec: 1, nsec: 0 };
    const TWO_SECONDS: QosDuration = QosDuration { sec: 2, nsec: 0 };
    const BASE: QosProfile = QosProfile::ROS_DEFAULT;

    #[test]
    fn a_request_beyond_the_offer_is_not_matched() {
        let weak = QosProfile {
            reliability: Reliability::BestEffort,
            ..BASE
        };
        assert_eq!(incompatible_policies(&weak, &BASE), [QosPolicy::Reliability]);
        assert!(is_compatible(&BASE, &weak));
        let latched = QosProfile {
            durability: Durability::TransientLocal,
            ..BASE
        };
        assert_eq!(incompatible_policies(&BASE, &latched), [QosPolicy::Durability]);
        assert!(is_compatible(&latched, &BASE));
    }

    #[test]
    fn spans_match_when_the_offer_is_not_longer() {
        let deadline = |deadline| QosProfile { deadline, ..BASE };
        assert_eq!(
            incompatible_policies(&BASE, &deadline(SECOND)),
            [QosPolicy::Deadline]
        );
        assert_eq!(
            incompatible_policies(&deadline(TWO_SECONDS), &deadline(SECOND)),
            [QosPolicy::Deadline]
        );
        assert!(is_compatible(&deadline(SECOND), &deadline(TWO_SECONDS)));
        assert!(is_compatible(&deadline(SECOND), &deadline(QosDuration::INFINITE)));
        let lease = QosProfile {
            liveliness_lease_duration: SECOND,
            ..BASE
        };
        assert_eq!(
            incompatible_policies(&BASE, &lease),
            [QosPolicy::LivelinessLeaseDuration]
        );
    }

    #[test]
    fn manual_liveliness_is_not_satisfied_by_automatic() {
        let with = |liveliness| QosProfile { liveliness, ..BASE };
        let manual = with(Liveliness::ManualByTopic);
        assert_eq!(
            incompatible_policies(&with(Liveliness::Automatic), &manual),
            [QosPolicy::Liveliness]
        );
        assert!(is_compatible(&manual, &with(Liveliness::Automatic)));
        assert!(is_compatible(&with(Liveliness::Unknown), &manual));
    }

    proptest! {
        #[test]
        fn everything_is_compatible_with_itself(profile in any_profile()) {
            prop_assert!(is_compatible(&profile, &profile));
        }

        #[test]
        fn an_empty_request_matches_every_offer(offer in any_profile()) {
            let nothing = QosProfile {
                reliability: Reliability::BestEffort,
                durability: Durability::Volatile,
                ..QosProfile::ROS_DEFAULT
            };
            prop_assert!(is_compatible(&offer, &nothing));
        }
    }
}
