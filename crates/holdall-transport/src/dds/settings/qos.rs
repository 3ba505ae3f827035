//! QoS in DDS's terms, and its mapping to and from ROS 2's profiles, with the conventions of the rmw implementations.

use holdall_model::names::dds::topic_to_dds;
use holdall_model::qos::{Durability, History, Liveliness, QosDuration, QosProfile, Reliability};
use holdall_model::topic::Gid;

/// "Never" in nanoseconds (`DDS_INFINITY`).
pub(in crate::dds) const INFINITE_NANOS: i64 = i64::MAX;

/// How long a reliable writer waits for slow readers before a message is refused.
pub(in crate::dds) const WRITE_BLOCK_NANOS_MAX: i64 = 1_000_000_000;

/// DDS durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum DdsDurability {
    Volatile,
    TransientLocal,
    Transient,
    Persistent,
}

/// DDS history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum DdsHistory {
    KeepLast(u32),
    KeepAll,
}

/// DDS liveliness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum DdsLiveliness {
    Automatic,
    ManualByParticipant,
    ManualByTopic,
}

/// The policies that ROS 2 uses, in DDS's terms; spans in nanoseconds, [`INFINITE_NANOS`] is "never".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dds) struct DdsQos {
    pub reliable: bool,
    pub max_blocking_nanos: i64,
    pub durability: DdsDurability,
    pub history: DdsHistory,
    pub deadline_nanos: i64,
    pub lifespan_nanos: i64,
    pub liveliness: DdsLiveliness,
    pub lease_nanos: i64,
    /// The history for late readers of a transient-local writer, where it differs from `history`.
    pub late_history: Option<DdsHistory>,
    pub user_data: Vec<u8>,
    /// Its type has a key.
    pub is_keyed: bool,
    /// For a reader: ignores the writers of its participant.
    pub ignores_own: bool,
}

impl Default for DdsQos {
    fn default() -> Self {
        Self {
            reliable: false,
            max_blocking_nanos: 100_000_000,
            durability: DdsDurability::Volatile,
            history: DdsHistory::KeepLast(1),
            deadline_nanos: INFINITE_NANOS,
            lifespan_nanos: INFINITE_NANOS,
            liveliness: DdsLiveliness::Automatic,
            lease_nanos: INFINITE_NANOS,
            late_history: None,
            user_data: Vec::new(),
            is_keyed: false,
            ignores_own: false,
        }
    }
}

/// What a ROS profile requests, as DDS QoS of a reader: it keeps all that arrives, because samples are taken
/// at once.
pub(in crate::dds) fn reader_qos(profile: &QosProfile) -> DdsQos {
    DdsQos {
        history: DdsHistory::KeepAll,
        lifespan_nanos: INFINITE_NANOS,
        ..endpoint_qos(profile)
    }
}

/// What a ROS profile offers, as DDS QoS of a writer, with the type hash announced as the rmw implementations
/// do. One that is malformed is not announced: their parsers would drop the rest of the user data with it.
pub(in crate::dds) fn writer_qos(profile: &QosProfile, type_hash: Option<&str>) -> DdsQos {
    let user_data = type_hash
        .filter(|hash| is_type_hash(hash))
        .map(|hash| format!("typehash={hash};").into_bytes())
        .unwrap_or_default();
    DdsQos {
        user_data,
        ..endpoint_qos(profile)
    }
}

/// Messages that a writer keeps for readers that have not acknowledged them, where that is requested. Cyclone
/// overwrites the oldest message of a KEEP_LAST history whether it is acknowledged or not: with the usual
/// depth of 10 and 10 000 messages a second, Fast DDS subscriptions, which acknowledge after 5 ms, missed up
/// to 750 of 60 000.
pub(in crate::dds) const KEPT_MESSAGES: u32 = 4096;

/// Key of `key=value;` in a writer's user data for the depth that its profile offers, where its history is
/// deeper. Letters and digits only: with another character in a key, rmw's parser drops all of the user data, the type hash among it.
const DEPTH_KEY: &str = "holdalldepth";

/// The same QoS with a history of [`KEPT_MESSAGES`] or more; late readers and discovery by holdall see no difference. `None` for a writer
/// that keeps nothing (best effort) or all.
pub(in crate::dds) fn keeping_unacknowledged(mut qos: DdsQos) -> Option<DdsQos> {
    let DdsHistory::KeepLast(depth) = qos.history else {
        return None;
    };
    if !qos.reliable {
        return None;
    }
    qos.late_history = Some(qos.history);
    qos.history = DdsHistory::KeepLast(depth.max(KEPT_MESSAGES));
    qos.user_data.extend(format!("{DEPTH_KEY}={depth};").into_bytes());
    Some(qos)
}

/// The depth that a writer of holdall offers, where its history is deeper.
fn offered_depth(user_data: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(user_data).ok()?;
    let depth = text
        .split(';')
        .find_map(|pair| pair.strip_prefix(DEPTH_KEY)?.strip_prefix('='))?;
    depth.parse().ok()
}

fn endpoint_qos(profile: &QosProfile) -> DdsQos {
    DdsQos {
        // The middleware's default for ROS is reliable (rmw_qos_profile_default); `BestEffort` must be
        // requested.
        reliable: profile.reliability != Reliability::BestEffort,
        max_blocking_nanos: WRITE_BLOCK_NANOS_MAX,
        durability: if profile.durability == Durability::TransientLocal {
            DdsDurability::TransientLocal
        } else {
            DdsDurability::Volatile
        },
        history: match profile.history {
            History::KeepAll => DdsHistory::KeepAll,
            // Depth 0 means "not set"; DDS has no such depth.
            _ => DdsHistory::KeepLast(u32::try_from(profile.depth).unwrap_or(u32::MAX).max(1)),
        },
        deadline_nanos: nanos_of(profile.deadline),
        lifespan_nanos: nanos_of(profile.lifespan),
        liveliness: match profile.liveliness {
            Liveliness::ManualByTopic => DdsLiveliness::ManualByTopic,
            Liveliness::ManualByNode => DdsLiveliness::ManualByParticipant,
            _ => DdsLiveliness::Automatic,
        },
        lease_nanos: nanos_of(profile.liveliness_lease_duration),
        late_history: None,
        user_data: Vec::new(),
        is_keyed: profile.is_keyed,
        ignores_own: false,
    }
}

/// An endpoint's QoS from discovery, as a ROS profile.
pub(in crate::dds) fn profile_of(qos: &DdsQos, endpoint: Gid) -> QosProfile {
    let (history, depth) = match qos.history {
        // History and depth are not part of DDS discovery; only Cyclone DDS sends them nevertheless.
        _ if !is_cyclone(endpoint) => (History::Unknown, 0),
        DdsHistory::KeepAll => (History::KeepAll, 0),
        DdsHistory::KeepLast(depth) => {
            let depth = offered_depth(&qos.user_data).unwrap_or(depth);
            (History::KeepLast, u64::from(depth))
        }
    };
    QosProfile {
        history,
        depth,
        reliability: if qos.reliable {
            Reliability::Reliable
        } else {
            Reliability::BestEffort
        },
        durability: match qos.durability {
            DdsDurability::Volatile => Durability::Volatile,
            DdsDurability::TransientLocal => Durability::TransientLocal,
            DdsDurability::Transient | DdsDurability::Persistent => Durability::Unknown,
        },
        deadline: duration_of(qos.deadline_nanos),
        lifespan: duration_of(qos.lifespan_nanos),
        liveliness: match qos.liveliness {
            DdsLiveliness::Automatic => Liveliness::Automatic,
            DdsLiveliness::ManualByTopic => Liveliness::ManualByTopic,
            DdsLiveliness::ManualByParticipant => Liveliness::ManualByNode,
        },
        liveliness_lease_duration: duration_of(qos.lease_nanos),
        // Only topics with the ROS prefix are reported.
        avoid_ros_namespace_conventions: false,
        is_keyed: is_keyed(endpoint),
    }
}

/// Whether an endpoint is of a type with a key: the kind in the last byte of its GUID (RTPS 2.5, 9.3.1.2).
fn is_keyed(endpoint: Gid) -> bool {
    const WRITER_WITH_KEY: u8 = 0x02;
    const READER_WITH_KEY: u8 = 0x07;
    [WRITER_WITH_KEY, READER_WITH_KEY].contains(&(endpoint.0[15] & 0x3f))
}

/// Whether an endpoint is Cyclone DDS's: vendor 01.10 in the first bytes of its GUID.
fn is_cyclone(endpoint: Gid) -> bool {
    endpoint.0.starts_with(&[0x01, 0x10])
}

/// The type hash in an endpoint's user data (`key=value;` pairs), where it is well formed.
pub(in crate::dds) fn type_hash_in(user_data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(user_data).ok()?;
    let hash = text.split(';').find_map(|pair| pair.strip_prefix("typehash="))?;
    is_type_hash(hash).then(|| hash.to_owned())
}

/// Whether a text is a type hash of version 1.
fn is_type_hash(hash: &str) -> bool {
    let digits = hash.strip_prefix("RIHS01_");
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The DDS topic of a ROS topic, with or without ROS's prefix according to the profile.
pub(in crate::dds) fn dds_topic(topic: &str, profile: &QosProfile) -> String {
    if profile.avoid_ros_namespace_conventions {
        topic.to_owned()
    } else {
        topic_to_dds(topic)
    }
}

/// "Not set" (zero) and everything from 292 years on is "never".
fn nanos_of(duration: QosDuration) -> i64 {
    if duration == QosDuration::default() {
        return INFINITE_NANOS;
    }
    i64::try_from(duration.sec)
        .ok()
        .and_then(|sec| sec.checked_mul(1_000_000_000))
        .and_then(|nanos| nanos.checked_add(i64::try_from(duration.nsec).ok()?))
        .unwrap_or(INFINITE_NANOS)
}

fn duration_of(nanos: i64) -> QosDuration {
    if nanos == INFINITE_NANOS {
        return QosDuration::INFINITE;
    }
    let nanos = nanos.max(0).unsigned_abs();
    QosDuration {
        sec: nanos / 1_000_000_000,
        nsec: nanos % 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST_DDS: Gid = Gid([1, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    const CYCLONE: Gid = Gid([1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

    #[test]
    fn history_is_unknown_unless_the_vendor_sends_it() {
        let qos = DdsQos {
            history: DdsHistory::KeepLast(7),
            ..DdsQos::default()
        };
        let unknown = profile_of(&qos, FAST_DDS);
        assert_eq!((unknown.history, unknown.depth), (History::Unknown, 0));
        let known = profile_of(&qos, CYCLONE);
        assert_eq!((known.history, known.depth), (History::KeepLast, 7));
        let all = profile_of(
            &DdsQos {
                history: DdsHistory::KeepAll,
                ..qos
            },
            CYCLONE,
        );
        assert_eq!((all.history, all.depth), (History::KeepAll, 0));
    }

    #[test]
    fn never_is_infinite_on_both_sides() {
        assert_eq!(nanos_of(QosDuration::default()), INFINITE_NANOS);
        assert_eq!(nanos_of(QosDuration::INFINITE), INFINITE_NANOS);
        assert_eq!(
            nanos_of(QosDuration {
                sec: u64::MAX,
                nsec: 5
            }),
            INFINITE_NANOS
        );
        assert_eq!(duration_of(INFINITE_NANOS), QosDuration::INFINITE);
        let span = QosDuration { sec: 2, nsec: 500 };
        assert_eq!(nanos_of(span), 2_000_000_500);
        assert_eq!(duration_of(2_000_000_500), span);
    }

    #[test]
    fn reader_asks_for_what_the_profile_says_and_keeps_all() {
        let profile = QosProfile {
            history: History::KeepLast,
            depth: 3,
            reliability: Reliability::BestEffort,
            durability: Durability::TransientLocal,
            deadline: QosDuration { sec: 1, nsec: 0 },
            ..QosProfile::default()
        };
        let qos = reader_qos(&profile);
        assert_eq!(qos.history, DdsHistory::KeepAll);
        assert!(!qos.reliable);
        assert_eq!(qos.durability, DdsDurability::TransientLocal);
        assert_eq!(qos.deadline_nanos, 1_000_000_000);
        assert_eq!(qos.lease_nanos, INFINITE_NANOS);
    }

    #[test]
    fn writer_offers_depth_and_announces_the_hash() {
        let profile = QosProfile {
            history: History::KeepLast,
            depth: 5,
            ..QosProfile::default()
        };
        let hash = format!("RIHS01_{}", "0f".repeat(32));
        let qos = writer_qos(&profile, Some(&hash));
        assert_eq!(qos.history, DdsHistory::KeepLast(5));
        assert!(qos.reliable);
        assert_eq!(qos.user_data, format!("typehash={hash};").as_bytes());
        for malformed in ["RIHS01_00", "", "a;b=c"] {
            assert_eq!(writer_qos(&profile, Some(malformed)).user_data, b"");
        }
        assert_eq!(
            writer_qos(&QosProfile::default(), None).history,
            DdsHistory::KeepLast(1)
        );
    }

    #[test]
    fn a_deeper_history_is_not_taken_for_what_is_offered() {
        let profile = QosProfile {
            history: History::KeepLast,
            depth: 5,
            ..QosProfile::default()
        };
        let qos = keeping_unacknowledged(writer_qos(&profile, None)).unwrap();
        assert_eq!(qos.history, DdsHistory::KeepLast(KEPT_MESSAGES));
        assert_eq!(qos.late_history, Some(DdsHistory::KeepLast(5)));
        assert_eq!(profile_of(&qos, CYCLONE).depth, 5);
        let deep = QosProfile {
            depth: 10_000,
            ..profile
        };
        let qos = keeping_unacknowledged(writer_qos(&deep, None)).unwrap();
        assert_eq!(qos.history, DdsHistory::KeepLast(10_000));
        for other in [Reliability::BestEffort, Reliability::Reliable] {
            let profile = QosProfile {
                reliability: other,
                history: History::KeepAll,
                ..profile
            };
            assert_eq!(keeping_unacknowledged(writer_qos(&profile, None)), None);
        }
        assert_eq!(offered_depth(b"typehash=x;holdalldepth=x;"), None);
    }

    /// What rmw's `parse_key_value` (key_value.hpp) reads, which drops everything when one key has another character than letters and digits.
    fn as_rmw_reads_it(user_data: &[u8]) -> Vec<(&str, &str)> {
        let text = std::str::from_utf8(user_data).unwrap();
        let pairs = text
            .split_terminator(';')
            .map(|pair| pair.split_once('=').unwrap());
        pairs
            .inspect(|(key, value)| {
                let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
                assert!(is_key && !value.is_empty(), "{text}");
            })
            .collect()
    }

    #[test]
    fn what_writers_announce_is_read_by_rmw() {
        let hash = format!("RIHS01_{}", "0f".repeat(32));
        let profile = QosProfile {
            history: History::KeepLast,
            depth: 5,
            ..QosProfile::default()
        };
        let qos = keeping_unacknowledged(writer_qos(&profile, Some(&hash))).unwrap();
        let pairs = as_rmw_reads_it(&qos.user_data);
        assert_eq!(pairs, [("typehash", hash.as_str()), ("holdalldepth", "5")]);
    }

    #[test]
    fn type_hash_is_found_among_other_pairs_and_checked() {
        let hash = format!("RIHS01_{}", "0f".repeat(32));
        assert_eq!(
            type_hash_in(format!("enclave=/;typehash={hash};x=y;").as_bytes()),
            Some(hash.clone())
        );
        assert_eq!(
            type_hash_in(format!("typehash={hash}").as_bytes()),
            Some(hash.clone())
        );
        assert_eq!(type_hash_in(format!("typehash={}", &hash[..40]).as_bytes()), None);
        assert_eq!(type_hash_in(b"typehash=RIHS01_zz;"), None);
        assert_eq!(type_hash_in(&[0xff, 0xfe]), None);
    }
}
