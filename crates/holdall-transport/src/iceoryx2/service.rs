//! A service's description of itself: types, buffers, attributes; how it is recorded, and how it is
//! offered again.

use super::{
    SERIALIZATION_FORMAT,
    header::{HeaderLayout, LAYOUT_ATTRIBUTE, LAYOUT_VALUE, STAMP_AND_SEQUENCE},
    names,
};
use holdall_model::qos::{Durability, History, QosProfile, Reliability};
use iceoryx2::service::static_config::{
    StaticConfig,
    message_type_details::{TypeDetail, TypeVariant},
    messaging_pattern::MessagingPattern,
};
use std::{collections::BTreeMap, str::FromStr};

/// Attributes that name a service's ROS type and its RIHS01 hash; the first that exists counts.
const TYPE_ATTRIBUTES: [&str; 2] = ["ros_type", "ros2_type"];
const HASH_ATTRIBUTES: [&str; 2] = ["ros_type_hash", "ros2_type_hash"];

/// Prefix of the keys of attributes in a bag's details.
const ATTRIBUTE_PREFIX: &str = "attribute.";

/// Samples that a subscriber of one of our services can hold and borrow: one second at 30 Hz.
const BUFFER_SIZE: usize = 32;

/// One of a service's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeFacts {
    pub name: String,
    /// Any number of elements, not exactly one.
    pub is_slice: bool,
    /// The size of one element, in bytes.
    pub size: usize,
    pub alignment: usize,
}

impl TypeFacts {
    fn of(detail: &TypeDetail) -> Self {
        Self {
            name: detail.type_name().to_string(),
            is_slice: detail.variant() == TypeVariant::Dynamic,
            size: detail.size(),
            alignment: detail.alignment(),
        }
    }

    /// As iceoryx2's own type; fails for names that are too long for iceoryx2.
    pub(crate) fn detail(&self) -> Result<TypeDetail, String> {
        let variant = if self.is_slice {
            TypeVariant::Dynamic
        } else {
            TypeVariant::FixedSize
        };
        TypeDetail::__internal_new_from_parts(variant, &self.name, self.size, self.alignment)
            .map_err(|_| format!("the type name {:?} is too long for iceoryx2", self.name))
    }
}

/// A publish-subscribe service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceFacts {
    pub name: String,
    pub payload: TypeFacts,
    pub header: TypeFacts,
    pub buffer_size: usize,
    pub borrowed_max: usize,
    pub history_size: usize,
    pub overflows: bool,
    pub publishers_max: usize,
    pub subscribers_max: usize,
    pub nodes_max: usize,
    pub attributes: Vec<(String, String)>,
}

impl ServiceFacts {
    /// The description of an existing service; `None` for other patterns than publish-subscribe.
    pub fn of(config: &StaticConfig) -> Option<Self> {
        let MessagingPattern::PublishSubscribe(details) = config.messaging_pattern() else {
            return None;
        };
        let types = details.message_type_details();
        let attributes = config.attributes().iter();
        Some(Self {
            name: config.name().to_string(),
            payload: TypeFacts::of(&types.payload),
            header: TypeFacts::of(&types.user_header),
            buffer_size: details.subscriber_max_buffer_size(),
            borrowed_max: details.subscriber_max_borrowed_samples(),
            history_size: details.history_size(),
            overflows: details.has_safe_overflow(),
            publishers_max: details.max_publishers(),
            subscribers_max: details.max_subscribers(),
            nodes_max: details.max_nodes(),
            attributes: attributes
                .map(|attribute| (attribute.key().to_string(), attribute.value().to_string()))
                .collect(),
        })
    }

    /// The description of a service for CDR messages of a ROS type, as `rmw_iceoryx2` makes them.
    pub(crate) fn for_ros(topic: &str, type_name: &str, type_hash: Option<&str>, qos: &QosProfile) -> Self {
        let hash = type_hash.map(|hash| (HASH_ATTRIBUTES[0].to_owned(), hash.to_owned()));
        let is_latched = qos.durability == Durability::TransientLocal;
        let depth = usize::try_from(qos.depth).unwrap_or(usize::MAX).clamp(1, 1024);
        Self {
            name: names::service_of_topic(topic),
            payload: TypeFacts {
                name: type_name.to_owned(),
                is_slice: true,
                size: 1,
                alignment: 1,
            },
            header: TypeFacts {
                name: STAMP_AND_SEQUENCE.to_owned(),
                is_slice: false,
                size: 16,
                alignment: 8,
            },
            buffer_size: depth.max(BUFFER_SIZE),
            borrowed_max: BUFFER_SIZE,
            history_size: if is_latched { depth } else { 0 },
            overflows: true,
            publishers_max: 8,
            subscribers_max: 8,
            nodes_max: 32,
            attributes: std::iter::once((TYPE_ATTRIBUTES[0].to_owned(), type_name.to_owned()))
                .chain(hash)
                .collect(),
        }
    }

    fn attribute(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|key| {
            let found = self.attributes.iter().find(|(known, _)| known == key);
            found.map(|(_, value)| value.as_str())
        })
    }

    /// The ROS type that an attribute names or that the payload's type is named after; else the payload's
    /// type unchanged.
    pub fn type_name(&self) -> &str {
        self.attribute(&TYPE_ATTRIBUTES).unwrap_or(&self.payload.name)
    }

    /// The ROS type's RIHS01 hash.
    pub fn type_hash(&self) -> Option<&str> {
        self.attribute(&HASH_ATTRIBUTES)
            .filter(|hash| hash.starts_with("RIHS01_"))
    }

    /// How its user header is read.
    pub(crate) fn header_layout(&self) -> HeaderLayout {
        let is_declared = self.attribute(&[LAYOUT_ATTRIBUTE]) == Some(LAYOUT_VALUE);
        HeaderLayout::of(&self.header.name, self.header.size, is_declared)
    }

    /// Whether messages are CDR and are recorded as such. Bytes of a ROS type are; a struct of a ROS type is
    /// not.
    fn is_cdr(&self) -> bool {
        is_ros_type(self.type_name())
            && self.payload.is_slice
            && self.payload.size == 1
            && self.header_layout().is_reported_whole()
    }

    /// How messages are serialized in the bag where that is not `cdr`.
    pub fn serialization_format(&self) -> Option<&'static str> {
        (!self.is_cdr()).then_some(SERIALIZATION_FORMAT)
    }

    /// How many bytes of the user header are part of a recorded message.
    pub(crate) fn recorded_header_bytes(&self) -> usize {
        if self.is_cdr() { 0 } else { self.header.size }
    }

    /// The nearest QoS.
    pub fn qos(&self) -> QosProfile {
        QosProfile {
            history: History::KeepLast,
            depth: self.buffer_size as u64,
            reliability: if self.overflows {
                Reliability::BestEffort
            } else {
                Reliability::Reliable
            },
            durability: if self.history_size > 0 {
                Durability::TransientLocal
            } else {
                Durability::Volatile
            },
            ..QosProfile::ROS_DEFAULT
        }
    }

    /// The details for the bag, from which it can be offered again.
    pub(crate) fn to_details(&self) -> BTreeMap<String, String> {
        let mut details = BTreeMap::new();
        let mut note = |key: &str, value: String| details.insert(key.to_owned(), value);
        note("service", self.name.clone());
        for (kind, facts) in [("payload", &self.payload), ("header", &self.header)] {
            note(&format!("{kind}_type"), facts.name.clone());
            note(&format!("{kind}_is_slice"), facts.is_slice.to_string());
            note(&format!("{kind}_size"), facts.size.to_string());
            note(&format!("{kind}_alignment"), facts.alignment.to_string());
        }
        note("buffer_size", self.buffer_size.to_string());
        note("borrowed_max", self.borrowed_max.to_string());
        note("history_size", self.history_size.to_string());
        note("overflows", self.overflows.to_string());
        note("publishers_max", self.publishers_max.to_string());
        note("subscribers_max", self.subscribers_max.to_string());
        note("nodes_max", self.nodes_max.to_string());
        for (key, value) in &self.attributes {
            note(&format!("{ATTRIBUTE_PREFIX}{key}"), value.clone());
        }
        details
    }

    /// Reads the output of [`Self::to_details`]; the error names the missing or wrong detail.
    pub(crate) fn from_details(details: &BTreeMap<String, String>) -> Result<Self, String> {
        let types = |kind: &str| -> Result<TypeFacts, String> {
            let alignment: usize = read(details, &format!("{kind}_alignment"))?;
            if !alignment.is_power_of_two() || alignment > 1 << 20 {
                return Err(format!("{kind}_alignment: {alignment} is not a power of two"));
            }
            Ok(TypeFacts {
                name: read(details, &format!("{kind}_type"))?,
                is_slice: read(details, &format!("{kind}_is_slice"))?,
                size: read(details, &format!("{kind}_size"))?,
                alignment,
            })
        };
        let attributes = details.iter().filter_map(|(key, value)| {
            let key = key.strip_prefix(ATTRIBUTE_PREFIX)?;
            Some((key.to_owned(), value.clone()))
        });
        Ok(Self {
            name: read(details, "service")?,
            payload: types("payload")?,
            header: types("header")?,
            buffer_size: read_count(details, "buffer_size")?,
            borrowed_max: read_count(details, "borrowed_max")?,
            history_size: read_count(details, "history_size")?,
            overflows: read(details, "overflows")?,
            publishers_max: read_count(details, "publishers_max")?,
            subscribers_max: read_count(details, "subscribers_max")?,
            nodes_max: read_count(details, "nodes_max")?,
            attributes: attributes.collect(),
        })
    }
}

/// Whether a name has the form of `sensor_msgs/msg/Image`.
fn is_ros_type(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let is_word = |part: &&str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    parts.len() == 3 && matches!(parts[1], "msg" | "srv" | "action") && parts.iter().all(is_word)
}

/// Counts above this are not real: they would allocate buffers without limit.
const COUNT_MAX: usize = 1 << 20;

fn read<T: FromStr>(details: &BTreeMap<String, String>, key: &str) -> Result<T, String> {
    let text = details
        .get(key)
        .ok_or_else(|| format!("the bag does not name the service's {key}"))?;
    text.parse()
        .map_err(|_| format!("the bag has {text:?} as the service's {key}"))
}

fn read_count(details: &BTreeMap<String, String>, key: &str) -> Result<usize, String> {
    let count = read(details, key)?;
    if count > COUNT_MAX {
        return Err(format!("the service's {key} of {count} is above {COUNT_MAX}"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ros() -> ServiceFacts {
        ServiceFacts::for_ros(
            "/a",
            "std_msgs/msg/String",
            Some("RIHS01_x"),
            &QosProfile::ROS_DEFAULT,
        )
    }

    #[test]
    fn what_a_bag_keeps_is_enough_to_offer_the_service_again() {
        let mut facts = ros();
        facts.payload.name = "Point".to_owned();
        facts.payload.is_slice = false;
        facts.payload.size = 24;
        assert_eq!(ServiceFacts::from_details(&facts.to_details()), Ok(facts));
    }

    #[test]
    fn details_of_a_damaged_bag_are_refused_with_what_is_wrong() {
        for (key, value, wanted) in [
            ("buffer_size", Some("99999999"), "above"),
            ("payload_alignment", Some("3"), "power of two"),
            ("payload_size", Some("-1"), "-1"),
            ("service", None, "service"),
        ] {
            let mut details = ros().to_details();
            match value {
                Some(value) => details.insert(key.to_owned(), value.to_owned()),
                None => details.remove(key),
            };
            let error = ServiceFacts::from_details(&details).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn bytes_of_a_ros_type_are_cdr_and_nothing_else_is() {
        assert_eq!(ros().serialization_format(), None);
        assert_eq!(ros().recorded_header_bytes(), 0);
        let of = |change: fn(&mut ServiceFacts)| {
            let mut facts = ros();
            change(&mut facts);
            (facts.serialization_format(), facts.recorded_header_bytes())
        };
        let native = (Some(SERIALIZATION_FORMAT), 16);
        assert_eq!(of(|facts| facts.payload.is_slice = false), native, "a struct");
        assert_eq!(of(|facts| facts.header.name = "Mine".to_owned()), native);
        let other = of(|facts| {
            facts.attributes.clear();
            facts.payload.name = "u8".to_owned();
        });
        assert_eq!(other, native, "no ROS type");
    }
}
