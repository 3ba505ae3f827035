//! Present while recording but missing from the bag: services without introspection, and nodes that could not be heard.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Key in `custom_data` of `metadata.yaml` with their names as a JSON list.
pub const UNHEARD_SERVICES_CUSTOM_KEY: &str = "holdall.services_without_introspection";

/// Key and value for `custom_data`; `None` for no names.
pub fn names_to_custom_data(names: &BTreeSet<String>) -> Option<(String, String)> {
    let list = serde_json::json!(names).to_string();
    (!names.is_empty()).then(|| (UNHEARD_SERVICES_CUSTOM_KEY.to_owned(), list))
}

/// The names of such a value; none for a text that is not a list.
fn names_from_custom_data(text: &str) -> BTreeSet<String> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Key in `custom_data` of `metadata.yaml` with a JSON list of [`NotHeard`].
pub const NOT_HEARD_CUSTOM_KEY: &str = "holdall.not_heard";

/// Why something is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotHeardKind {
    /// A participant without UDP over IPv4: shared memory or TCP only.
    NoUdp,
    /// A participant that only a discovery server knows.
    DiscoveryServer,
    /// A participant of a secured domain.
    Secured,
    /// A participant that is not secured, in a secured domain that admits no such participants.
    NotSecured,
    /// A publisher whose QoS does not match the requested one.
    IncompatibleQos,
    /// A publisher that was discovered, and that no subscription was matched with.
    Unmatched,
    /// A publisher that its node has announced, and that discovery does not show.
    NotDiscovered,
    /// A type without an installed type support, which the transport needs.
    NoTypeSupport,
    /// A publisher of a topic that the transport may not or cannot subscribe.
    Refused,
}

/// A node or publisher whose messages a recording could not receive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NotHeard {
    /// Full name of the node where that is known, else its process.
    pub who: String,
    /// Why.
    pub kind: NotHeardKind,
    /// The same in words: one clause.
    pub reason: String,
    /// Topics that it concerns, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
}

impl fmt::Display for NotHeard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.who)?;
        if !self.topics.is_empty() {
            write!(f, " on {}", self.topics.join(", "))?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Key and value for `custom_data`; `None` for an empty list.
pub fn not_heard_to_custom_data(all: &BTreeSet<NotHeard>) -> Option<(String, String)> {
    let list = serde_json::json!(all).to_string();
    (!all.is_empty()).then(|| (NOT_HEARD_CUSTOM_KEY.to_owned(), list))
}

/// The list in the `custom_data` of a bag; empty if it has none.
pub fn not_heard_in(custom_data: &BTreeMap<String, String>) -> BTreeSet<NotHeard> {
    let text = custom_data.get(NOT_HEARD_CUSTOM_KEY);
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Services without introspection in the `custom_data` of a bag; empty if it has none.
pub fn unheard_services_in(custom_data: &BTreeMap<String, String>) -> BTreeSet<String> {
    let text = custom_data.get(UNHEARD_SERVICES_CUSTOM_KEY);
    text.map(|text| names_from_custom_data(text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_heard_survives_its_text() {
        let one = NotHeard {
            who: "/camera".to_owned(),
            kind: NotHeardKind::NoUdp,
            reason: "shared memory only".to_owned(),
            topics: vec!["/image".to_owned()],
        };
        assert_eq!(one.to_string(), "/camera on /image: shared memory only");
        let all = BTreeSet::from([one]);
        let (key, text) = not_heard_to_custom_data(&all).unwrap();
        assert!(text.contains("\"no_udp\""), "{text}");
        assert_eq!(not_heard_in(&BTreeMap::from([(key.clone(), text)])), all);
        assert_eq!(not_heard_to_custom_data(&BTreeSet::new()), None);
        assert_eq!(
            not_heard_in(&BTreeMap::from([(key, "no list".to_owned())])),
            BTreeSet::new()
        );
    }

    #[test]
    fn names_survive_their_text() {
        let names = BTreeSet::from(["/a".to_owned(), "/b \"c\"\n".to_owned()]);
        let (_, text) = names_to_custom_data(&names).unwrap();
        assert_eq!(names_from_custom_data(&text), names);
        assert_eq!(names_to_custom_data(&BTreeSet::new()), None);
        assert_eq!(names_from_custom_data("no list"), BTreeSet::new());
    }
}
