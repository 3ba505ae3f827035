//! Messages in files that a ring has removed, as stored in the metadata of a recording that may be killed at any moment.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, mem};

/// Key in `custom_data` of `metadata.yaml` while the bag is being written: an [`ExpiredFiles`].
const EXPIRED_KEY: &str = "holdall.expired";
/// The same in older bags.
const OLD_KEY: &str = "holdall.removed";

type Counts = BTreeMap<String, u64>;

/// Messages in the files that the ring has removed. The metadata lists a file before it is removed: the directory shows whether the last one
/// still exists.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ExpiredFiles {
    /// Messages by topic, without those of the last file.
    topics: Counts,
    /// Name of the last file, not packed.
    last_file: String,
    /// Its messages by topic.
    last_topics: Counts,
}

impl ExpiredFiles {
    /// As the metadata of a recording that was killed has it.
    pub fn of(custom_data: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(
            custom_data
                .get(EXPIRED_KEY)
                .or_else(|| custom_data.get(OLD_KEY))?,
        )
        .ok()
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
        (!self.last_file.is_empty()).then(|| (EXPIRED_KEY.to_owned(), text))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::ledger::{AccountChange, TopicAccount};

    #[test]
    fn older_bags_call_expired_messages_removed() {
        let mut files = ExpiredFiles::default();
        files.add("b_0.mcap", [("/a".to_owned(), 3)].into_iter());
        let (key, text) = files.entry().unwrap();
        let of = |key: &str| ExpiredFiles::of(&BTreeMap::from([(key.to_owned(), text.clone())]));
        for known in [of(&key), of("holdall.removed")] {
            assert_eq!(known.unwrap().by_topic(|_| false)["/a"], 3);
        }
        let mut account = serde_json::to_value(TopicAccount::default()).unwrap();
        account["removed"] = serde_json::json!(7);
        let older: TopicAccount = serde_json::from_value(account).unwrap();
        assert_eq!(older.expired, 7);
        let now = serde_json::to_value(&older).unwrap();
        assert_eq!((now["expired"].as_u64(), now.get("removed")), (Some(7), None));
        let change = r#"{"removed": {"topic": 0, "count": 5}}"#;
        let change: AccountChange = serde_json::from_str(change).unwrap();
        assert!(matches!(change, AccountChange::Expired { count: 5, .. }));
    }
}
