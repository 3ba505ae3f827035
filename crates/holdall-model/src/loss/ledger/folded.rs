//! The accounts of publishers that are gone, as one.

use super::publisher::{PublisherAccount, is_zero};
use crate::loss::{LossStage, total};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Publishers that are gone and whose accounts added up, as one: so that a topic whose publishers come and go forever takes bounded
/// memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoldedPublishers {
    /// How many they were.
    pub publishers: u64,
    /// Messages that they sent, or that arrived from those without sequence numbers.
    pub sent: u64,
    /// Messages that they had sent before the recording.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_before: u64,
    /// Messages of them that arrived.
    pub received: u64,
    /// Messages of them in the bag.
    pub recorded: u64,
    /// Messages of them that came twice.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Missing messages by stage.
    pub missing: BTreeMap<LossStage, u64>,
}

impl FoldedPublishers {
    pub(super) fn add(&mut self, account: &PublisherAccount) {
        self.publishers += 1;
        for (sum, count) in [
            (&mut self.sent, account.expected().unwrap_or(0)),
            (&mut self.sent_before, account.sent_before),
            (&mut self.received, account.received.unwrap_or(0)),
            (&mut self.recorded, account.recorded),
            (&mut self.duplicates, account.duplicates),
        ] {
            *sum = sum.saturating_add(count);
        }
        for interval in &account.intervals {
            let sum = self.missing.entry(interval.stage).or_insert(0);
            *sum = sum.saturating_add(interval.count);
        }
    }

    /// Missing messages of all stages.
    pub fn missing_total(&self) -> u64 {
        total(self.missing.values())
    }

    /// Counts one message that was lost at the storage as recorded; false when none was lost.
    pub(super) fn find_one(&mut self) -> bool {
        let Some(count) = self.missing.get_mut(&LossStage::Storage) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.missing.remove(&LossStage::Storage);
        }
        self.recorded += 1;
        true
    }
}
