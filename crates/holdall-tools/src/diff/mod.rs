//! Compares two bags: topics, types, QoS, counts, and messages by topic, log time and payload.
//!
//! How messages are stored does not matter: a converted bag equals its source. Publish times and sequence
//! numbers are not compared, because not every storage keeps them.

mod fields;
mod golden;
mod messages;
mod trajectory;

pub use fields::{FieldChange, changed_fields};
pub use golden::{Likeness, compare_outputs};
pub use messages::{Lone, Side};

use holdall_bag::reader::{BagSet, ReadError};
use holdall_model::{qos::profiles_to_text, topic::TopicInfo};
use messages::Matcher;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Scope of a comparison, and how many differences are listed.
#[derive(Clone, Copy, Debug)]
pub struct DiffOptions {
    /// Also compare messages; otherwise only the bags' metadata.
    pub messages: bool,
    /// Differing messages that are listed individually.
    pub told_max: usize,
    /// Messages in memory that wait for their counterpart; beyond that the oldest count as different.
    pub waiting_max: usize,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            messages: true,
            told_max: 10,
            waiting_max: 1 << 20,
        }
    }
}

/// A property of a topic that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `type`, `serialization_format`, `type_description_hash`, `offered_qos_profiles`, `message_count`.
    pub property: &'static str,
    /// Its value in the first bag.
    pub first: String,
    /// Its value in the second bag.
    pub second: String,
}

/// How a topic differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TopicDifference {
    /// Properties that differ.
    pub changes: Vec<Change>,
    /// Messages that only the first bag has; `None` if messages were not compared.
    pub messages_only_in_first: Option<u64>,
    /// Messages that only the second bag has.
    pub messages_only_in_second: Option<u64>,
}

/// Differences between two bags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Topics that only the first bag has, with their number of messages.
    pub topics_only_in_first: BTreeMap<String, u64>,
    /// Topics that only the second bag has, with their number of messages.
    pub topics_only_in_second: BTreeMap<String, u64>,
    /// Topics of both bags that differ.
    pub topics: BTreeMap<String, TopicDifference>,
    /// Number of messages that both have; `None` if messages were not compared.
    pub messages_in_both: Option<u64>,
    /// The first messages that only one bag has, in time order as far as listed.
    pub first_messages: Vec<Lone>,
}

impl Difference {
    /// True if nothing differs.
    pub fn is_empty(&self) -> bool {
        self.topics_only_in_first.is_empty()
            && self.topics_only_in_second.is_empty()
            && self.topics.is_empty()
            && self.first_messages.is_empty()
    }
}

/// Compares two bags.
///
/// # Errors
/// The first read error: damaged bags cannot be compared.
pub fn compare(first: &BagSet, second: &BagSet, options: &DiffOptions) -> Result<Difference, ReadError> {
    let (topics, counts) = ([topics(first), topics(second)], [counts(first), counts(second)]);
    let mut difference = Difference::default();
    let only = |here: usize, there: usize| -> BTreeMap<String, u64> {
        let names = topics[here]
            .keys()
            .filter(|name| !topics[there].contains_key(*name));
        names
            .map(|name| (name.clone(), counts[here].get(name).copied().unwrap_or(0)))
            .collect()
    };
    difference.topics_only_in_first = only(0, 1);
    difference.topics_only_in_second = only(1, 0);
    for (name, in_first) in &topics[0] {
        let Some(in_second) = topics[1].get(name) else {
            continue;
        };
        let mut changes = changes(in_first, in_second);
        let count = |side: usize| counts[side].get(name).copied().unwrap_or(0);
        if count(0) != count(1) {
            changes.push(Change {
                property: "message_count",
                first: count(0).to_string(),
                second: count(1).to_string(),
            });
        }
        if !changes.is_empty() {
            difference.topics.entry(name.clone()).or_default().changes = changes;
        }
    }
    if options.messages {
        let matcher = Matcher::run(first, second, options)?;
        difference.messages_in_both = Some(matcher.matched);
        for (name, [in_first, in_second]) in matcher.lone_by_topic {
            // Topics that only one bag has are listed already.
            if topics.iter().all(|topics| topics.contains_key(&name)) {
                let topic = difference.topics.entry(name).or_default();
                topic.messages_only_in_first = Some(in_first);
                topic.messages_only_in_second = Some(in_second);
            }
        }
        difference.first_messages = matcher.listed;
    }
    Ok(difference)
}

/// A bag's values for a topic, from all its entries.
#[derive(Default)]
struct TopicFacts {
    types: BTreeSet<String>,
    formats: BTreeSet<String>,
    hashes: BTreeSet<String>,
    qos: BTreeSet<String>,
}

fn topics(bags: &BagSet) -> BTreeMap<String, TopicFacts> {
    let mut facts: BTreeMap<String, TopicFacts> = BTreeMap::new();
    for TopicInfo {
        name,
        type_name,
        serialization_format,
        offered_qos_profiles,
        type_description_hash,
        origin: _,
        publisher: _,
    } in bags.topics()
    {
        let of_topic = facts.entry(name).or_default();
        of_topic.types.insert(type_name);
        of_topic.formats.insert(serialization_format);
        of_topic.hashes.insert(type_description_hash);
        of_topic.qos.extend(
            offered_qos_profiles
                .iter()
                .map(|profile| profiles_to_text(&[*profile])),
        );
    }
    facts
}

fn counts(bags: &BagSet) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for topic in bags
        .bags()
        .iter()
        .flat_map(|bag| &bag.metadata().topics_with_message_count)
    {
        *counts.entry(topic.topic_metadata.name.clone()).or_insert(0) += topic.message_count;
    }
    counts
}

fn changes(first: &TopicFacts, second: &TopicFacts) -> Vec<Change> {
    let joined = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join("; ");
    let change = |property, first: &BTreeSet<String>, second: &BTreeSet<String>| {
        (first != second).then(|| Change {
            property,
            first: joined(first),
            second: joined(second),
        })
    };
    // Storages of old versions store no hash and no QoS: a missing value is not a difference.
    let is_stored = |set: &BTreeSet<String>| set.iter().any(|text| !text.is_empty());
    let both = |of: fn(&TopicFacts) -> &BTreeSet<String>| is_stored(of(first)) && is_stored(of(second));
    [
        change("type", &first.types, &second.types),
        change("serialization_format", &first.formats, &second.formats)
            .filter(|_| both(|facts| &facts.formats)),
        change("type_description_hash", &first.hashes, &second.hashes)
            .filter(|_| both(|facts| &facts.hashes)),
        change("offered_qos_profiles", &first.qos, &second.qos).filter(|_| both(|facts| &facts.qos)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
