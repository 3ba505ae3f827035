//! The QoS that storage files have of each topic, as text: read the same way in every format, and complained about once.

use holdall_model::qos::{QosProfile, parse_profiles};
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
};

/// Texts that are remembered as already named; beyond this number, texts are named each time.
const NAMED_MAX: usize = 10_000;

/// Topics and texts that this process has named. A bag is opened several times by one verb, each time by another part of it.
static NAMED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The profiles in a text; none, with a warning, when it cannot be read.
pub(crate) fn stored_profiles(topic: &str, text: &str) -> Vec<QosProfile> {
    parse_profiles(text).unwrap_or_else(|error| {
        if is_first(topic, text) {
            tracing::warn!(topic, %error, "the recorded QoS cannot be read and is left out");
        }
        Vec::new()
    })
}

/// Whether a topic with this text was not named before.
fn is_first(topic: &str, text: &str) -> bool {
    let mut hasher = DefaultHasher::new();
    (topic, text).hash(&mut hasher);
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.len() >= NAMED_MAX || named.insert(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_cannot_be_read_is_named_once_for_each_topic() {
        assert!(is_first("/t", "x: [") && !is_first("/t", "x: ["));
        assert!(is_first("/u", "x: [") && is_first("/t", "y: ["));
        assert!(stored_profiles("/t", "x: [").is_empty());
    }
}
