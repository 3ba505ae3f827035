//! QoS as rmw_zenoh writes it into a liveliness token: differences from its defaults, separated by `:` and `,`.

use holdall_model::qos::{Durability, History, Liveliness, QosDuration, QosProfile, Reliability};

/// The meaning of empty parts (`rmw_zenoh_cpp`'s own defaults, which differ from `rmw_qos_profile_default` in depth).
const DEFAULT: QosProfile = QosProfile {
    history: History::KeepLast,
    depth: 42,
    reliability: Reliability::Reliable,
    durability: Durability::Volatile,
    deadline: QosDuration::INFINITE,
    lifespan: QosDuration::INFINITE,
    liveliness: Liveliness::Automatic,
    liveliness_lease_duration: QosDuration::INFINITE,
    avoid_ros_namespace_conventions: false,
    is_keyed: false,
};

/// Why a text is not a QoS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QosCodeError {
    /// Parts are missing.
    #[error("{policy} is missing in QoS {text:?}")]
    Missing {
        /// Which policy.
        policy: &'static str,
        /// The whole text.
        text: String,
    },
    /// A part is not a number, or is a number without meaning.
    #[error("{policy} is {found:?} in QoS {text:?}")]
    Value {
        /// Which policy.
        policy: &'static str,
        /// The text found.
        found: String,
        /// The whole text.
        text: String,
    },
}

/// Writes a profile: `reliability:durability:history,depth:deadline:lifespan:liveliness,lease`, each part empty if it is the default.
pub(super) fn encode(profile: &QosProfile) -> String {
    let reliability = match profile.reliability {
        Reliability::BestEffort => Reliability::BestEffort,
        _ => Reliability::Reliable,
    };
    let durability = match profile.durability {
        Durability::TransientLocal => Durability::TransientLocal,
        _ => Durability::Volatile,
    };
    let history = match profile.history {
        History::KeepAll => History::KeepAll,
        _ => History::KeepLast,
    };
    let liveliness = match profile.liveliness {
        Liveliness::ManualByTopic => Liveliness::ManualByTopic,
        _ => Liveliness::Automatic,
    };
    let depth = if profile.depth == 0 {
        DEFAULT.depth
    } else {
        profile.depth
    };
    format!(
        "{}:{}:{},{}:{}:{}:{},{}",
        unless_default(reliability, DEFAULT.reliability, Reliability::as_number),
        unless_default(durability, DEFAULT.durability, Durability::as_number),
        unless_default(history, DEFAULT.history, History::as_number),
        unless_default(depth, DEFAULT.depth, |depth| depth),
        encode_span(profile.deadline),
        encode_span(profile.lifespan),
        unless_default(liveliness, DEFAULT.liveliness, Liveliness::as_number),
        encode_span(profile.liveliness_lease_duration),
    )
}

fn unless_default<T: PartialEq, N: ToString>(value: T, default: T, number: impl Fn(T) -> N) -> String {
    if value == default {
        String::new()
    } else {
        number(value).to_string()
    }
}

/// Seconds and nanoseconds, each omitted where it equals that of "never"; an unset span means never too.
fn encode_span(span: QosDuration) -> String {
    let span = match span.normalized() {
        QosDuration::UNSET => QosDuration::INFINITE,
        span => span,
    };
    format!(
        "{},{}",
        unless_default(span.sec, QosDuration::INFINITE.sec, |sec| sec),
        unless_default(span.nsec, QosDuration::INFINITE.nsec, |nsec| nsec)
    )
}

/// Reads a profile. Parts after the known ones are reserved for later versions.
///
/// # Errors
/// The first part that is missing or has no meaning.
pub(super) fn decode(text: &str) -> Result<QosProfile, QosCodeError> {
    let mut parts = text.split(':');
    let mut next = |policy| {
        let part = parts.next();
        Part { text, policy, part }.present()
    };
    let reliability = next("reliability")?.policy(DEFAULT.reliability, Reliability::from_number)?;
    let durability = next("durability")?.policy(DEFAULT.durability, Durability::from_number)?;
    let [history, depth] = next("history")?.split()?;
    let deadline = next("deadline")?.split()?;
    let lifespan = next("lifespan")?.split()?;
    let [liveliness, lease_sec, lease_nsec] = next("liveliness")?.split()?;
    Ok(QosProfile {
        history: history.policy(DEFAULT.history, History::from_number)?,
        depth: depth.number(DEFAULT.depth)?,
        reliability,
        durability,
        deadline: span(deadline)?,
        lifespan: span(lifespan)?,
        liveliness: liveliness.policy(DEFAULT.liveliness, Liveliness::from_number)?,
        liveliness_lease_duration: span([lease_sec, lease_nsec])?,
        avoid_ros_namespace_conventions: false,
        is_keyed: false,
    })
}

fn span([sec, nsec]: [Part<'_>; 2]) -> Result<QosDuration, QosCodeError> {
    Ok(QosDuration {
        sec: sec.number(QosDuration::INFINITE.sec)?,
        nsec: nsec.number(QosDuration::INFINITE.nsec)?,
    })
}

/// A part of the text, and its policy.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    policy: &'static str,
    part: Option<&'a str>,
}

impl<'a> Part<'a> {
    fn present(self) -> Result<Self, QosCodeError> {
        match self.part {
            Some(_) => Ok(self),
            None => Err(QosCodeError::Missing {
                policy: self.policy,
                text: self.text.to_owned(),
            }),
        }
    }

    fn split<const N: usize>(self) -> Result<[Self; N], QosCodeError> {
        let mut pieces = self.part.unwrap_or_default().split(',');
        let mut split = [Self { part: None, ..self }; N];
        for piece in &mut split {
            piece.part = pieces.next();
            piece.present()?;
        }
        Ok(split)
    }

    fn number<T: std::str::FromStr>(self, default: T) -> Result<T, QosCodeError> {
        match self.part.unwrap_or_default() {
            "" => Ok(default),
            digits => digits.parse().map_err(|_| self.refused(digits)),
        }
    }

    fn policy<T>(self, default: T, from_number: impl Fn(u8) -> Option<T>) -> Result<T, QosCodeError> {
        match self.part.unwrap_or_default() {
            "" => Ok(default),
            digits => digits
                .parse()
                .ok()
                .and_then(from_number)
                .ok_or_else(|| self.refused(digits)),
        }
    }

    fn refused(self, found: &'a str) -> QosCodeError {
        QosCodeError::Value {
            policy: self.policy,
            found: found.to_owned(),
            text: self.text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_left_out() {
        assert_eq!(encode(&DEFAULT), "::,:,:,:,,");
        assert_eq!(decode("::,:,:,:,,"), Ok(DEFAULT));
        assert_eq!(encode(&QosProfile::ROS_DEFAULT), "::,10:,:,:,,");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let profile = QosProfile {
            history: History::KeepAll,
            depth: 7,
            reliability: Reliability::BestEffort,
            durability: Durability::TransientLocal,
            deadline: QosDuration { sec: 1, nsec: 5 },
            lifespan: QosDuration { sec: 0, nsec: 9 },
            liveliness: Liveliness::ManualByTopic,
            liveliness_lease_duration: QosDuration { sec: 3, nsec: 0 },
            avoid_ros_namespace_conventions: false,
            is_keyed: false,
        };
        let text = encode(&profile);
        assert_eq!(text, "2:1:2,7:1,5:0,9:3,3,0");
        assert_eq!(decode(&text), Ok(profile));
        assert_eq!(decode(&format!("{text}:more,of,a:later version")), Ok(profile));
    }

    #[test]
    fn what_is_unset_or_unknown_is_the_default() {
        let profile = QosProfile {
            history: History::Unknown,
            ..QosProfile::default()
        };
        assert_eq!(encode(&profile), "::,:,:,:,,");
    }

    #[test]
    fn malformed_texts_are_refused_with_the_policy() {
        for (text, policy) in [
            ("", "durability"),
            ("::", "history"),
            ("::,10", "deadline"),
            ("::,10:,:,:,", "liveliness"),
            ("9::,10:,:,:,,", "reliability"),
            ("x::,10:,:,:,,", "reliability"),
            ("::,-1:,:,:,,", "history"),
            ("::,10:,:99999999999999999999,:,,", "lifespan"),
        ] {
            let error = decode(text).unwrap_err();
            assert!(error.to_string().starts_with(policy), "{text}: {error}");
        }
    }
}
