//! What of a span has expired: topics whose messages a ring has removed, and from when on it has them.

use holdall_bag::reader::Bag;
use holdall_model::{expired::ExpiredFiles, text::Outside, time::Timestamp};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A topic of which a ring has removed messages of a span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExpiredTopic {
    /// Full ROS name.
    pub topic: String,
    /// The ring has none before this; `None` where it has none at all.
    #[serde(rename = "before_ns")]
    pub before: Option<Timestamp>,
}

impl fmt::Display for ExpiredTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = Outside(&self.topic);
        match self.before {
            Some(before) => write!(f, "{topic} has expired before {}", before.as_nanos()),
            None => write!(f, "{topic} has expired"),
        }
    }
}

/// The topics with messages after `start` that a ring may have removed, among those that are taken. The ring may remove more meanwhile.
pub fn expired_after(bag: &Bag, start: Timestamp, takes: &dyn Fn(&str, &str) -> bool) -> Vec<ExpiredTopic> {
    let mut gone: BTreeSet<String> = BTreeSet::new();
    match bag.kept_ledger() {
        Ok(ledger) => {
            let topics = ledger.into_iter().flat_map(|ledger| ledger.topics);
            gone.extend(topics.filter(|topic| topic.expired > 0).map(|topic| topic.name));
        }
        Err(error) => tracing::warn!("what has expired is known in part only: {error}"),
    }
    // The account of a recording that runs is older than its metadata.
    if let Some(files) = ExpiredFiles::of(&bag.metadata().custom_data) {
        gone.extend(files.by_topic(|_| false).into_keys());
    }
    let described = &bag.metadata().topics_with_message_count;
    gone.retain(|name| {
        let topic = described.iter().find(|topic| topic.topic_metadata.name == *name);
        takes(name, topic.map_or("", |topic| &topic.topic_metadata.type_name))
    });
    if gone.is_empty() {
        return Vec::new();
    }
    let mut first: BTreeMap<String, Timestamp> = BTreeMap::new();
    for file in bag.files() {
        // One that cannot be opened has expired by now.
        let Ok(reader) = file.open() else { continue };
        let summary = reader.summary();
        let Some(start) = summary.starting_time else {
            continue;
        };
        for channel in summary
            .channels
            .iter()
            .filter(|channel| channel.message_count > 0)
        {
            let known = first.entry(channel.info.topic.name.clone()).or_insert(start);
            *known = start.min(*known);
        }
    }
    let expired = gone.into_iter().map(|topic| ExpiredTopic {
        before: first.get(&topic).copied(),
        topic,
    });
    expired
        .filter(|topic| topic.before.is_none_or(|before| before > start))
        .collect()
}
