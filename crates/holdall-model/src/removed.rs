//! Messages in files that a ring has removed, as stored in the metadata of a recording that may be killed at any moment.

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

    /// Adds a file that will be removed, with its messages by topic.
    pub fn add(&mut self, file: &str, messages: impl Iterator<Item = (String, u64)>) {
        add(&mut self.topics, mem::take(&mut self.last_topics));
        file.clone_into(&mut self.last_file);
        add(&mut self.last_topics, messages);
    }

    /// For the metadata; `None` while no file was removed.
    pub fn entry(&self) -> Option<(String, String)> {
        let text = serde_json::to_string(self).ok()?;
        (!self.last_file.is_empty()).then(|| (REMOVED_KEY.to_owned(), text))
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
