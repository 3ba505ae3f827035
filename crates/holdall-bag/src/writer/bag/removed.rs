//! Messages in files that a ring has removed, as stored in the metadata of a recording that may be killed at any moment.

use super::{TopicCount, past::PastFile, topics::Topics};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, mem};

/// Key in `custom_data` of `metadata.yaml` while the bag is being written: a [`RemovedByRing`].
const REMOVED_KEY: &str = "holdall.removed";

type Counts = BTreeMap<String, u64>;

/// Messages in the files that the ring has removed. The metadata lists a file before it is removed: the directory shows whether the last one
/// still exists.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct RemovedByRing {
    /// Messages by topic, without those of the last file.
    topics: Counts,
    /// Name of the last file, not packed.
    last_file: String,
    /// Its messages by topic.
    last_topics: Counts,
}

impl RemovedByRing {
    /// As the metadata of a recording that was killed has it.
    pub fn of(custom_data: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(custom_data.get(REMOVED_KEY)?).ok()
    }

    fn add(&mut self, file: &str, messages: impl Iterator<Item = (String, u64)>) {
        add(&mut self.topics, mem::take(&mut self.last_topics));
        file.clone_into(&mut self.last_file);
        add(&mut self.last_topics, messages);
    }

    /// Messages by topic that are gone for good. `has` returns whether a file of this name is in the bag.
    pub fn by_topic(mut self, has: impl FnOnce(&str) -> bool) -> Counts {
        if !has(&self.last_file) {
            add(&mut self.topics, self.last_topics);
        }
        self.topics
    }
}

fn add(sums: &mut Counts, counts: impl IntoIterator<Item = (String, u64)>) {
    for (topic, count) in counts {
        let sum = sums.entry(topic).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// Messages that the ring has removed from a bag that is being written.
#[derive(Default)]
pub(super) struct Removed {
    all: RemovedByRing,
    /// Not yet reported.
    new: Vec<TopicCount>,
}

impl Removed {
    /// For the metadata of a bag that is being written.
    pub fn entry(&self) -> Option<(String, String)> {
        let text = serde_json::to_string(&self.all).ok()?;
        (!self.all.last_file.is_empty()).then(|| (REMOVED_KEY.to_owned(), text))
    }

    /// Counts a file as removed, and returns what [`Self::restore`] needs. A kill after the removal finds metadata that counts it.
    pub fn announce(&mut self, oldest: &PastFile, topics: &Topics) -> RemovedByRing {
        let before = self.all.clone();
        let counts = oldest.content.messages.iter().filter_map(|count| {
            let info = topics.get(count.topic).ok()?;
            Some((info.topic.name.clone(), count.messages))
        });
        self.all.add(&oldest.name, counts);
        before
    }

    /// The file that was announced is gone.
    pub fn confirm(&mut self, oldest: &PastFile) {
        self.new.extend(&oldest.content.messages);
    }

    /// The file that was announced could not be removed.
    pub fn restore(&mut self, before: RemovedByRing) {
        self.all = before;
    }

    /// Messages in files that were removed since the last call.
    pub fn take(&mut self) -> Vec<TopicCount> {
        mem::take(&mut self.new)
    }
}
