//! Keeps the ledger in the bag: its sums now and then while a file is written, all of it at the end of each file.

use super::journal::Journal;
use holdall_bag::writer::{BagEnd, EndRecords, TopicCount};
use holdall_io::mutex::lock;
use holdall_model::{
    loss::ledger::{CHECKPOINT_RECORD, LEDGER_CUSTOM_KEY, LEDGER_KEY, LEDGER_RECORD, Ledger},
    time::Timestamp,
    topic::TopicId,
};
use holdall_storage::writer::MetadataEntries;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How often the ledger's sums are put into the file while messages are being lost, and while none are: a
/// killed recording's file states what it had lost until then.
const LOSSY_INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(60);

/// When the ledger's sums must be written into the bag.
#[derive(Default)]
pub(crate) struct Checkpoints {
    last: Option<Duration>,
    lost_then: u64,
    /// Log time of the last message that was written; shared with the writer of the ends of files.
    log_time: Arc<Mutex<Timestamp>>,
}

impl Checkpoints {
    /// Takes note of the last message that was written.
    pub(crate) fn written_until(&self, log_time: Timestamp) {
        *lock(&self.log_time) = log_time;
    }

    /// Log time of the last message that was written.
    pub(crate) fn last_written(&self) -> Timestamp {
        *lock(&self.log_time)
    }

    /// Records for the end of each file but the last: the ledger at that time, or its sums if the file is too short for all of it.
    pub(crate) fn end_records(&self, ledger: &Arc<Mutex<Ledger>>) -> EndRecords {
        let (ledger, log_time) = (Arc::clone(ledger), Arc::clone(&self.log_time));
        Box::new(move |bytes_max| {
            // Copied under the lock, put into words outside of it: receiving threads may need it.
            let copy = lock(&ledger).checkpoint(*lock(&log_time), true);
            let (name, entries) = ledger_record(&copy);
            let bytes: usize = entries.values().map(String::len).sum();
            if bytes as u64 <= bytes_max {
                return vec![(name, entries)];
            }
            let mut sums = copy.sums();
            sums.checkpoint = copy.checkpoint;
            vec![ledger_record(&sums)]
        })
    }

    /// The record that is due at `now`, if one is.
    pub(crate) fn record(
        &mut self,
        ledger: &Mutex<Ledger>,
        now: Duration,
    ) -> Option<(String, MetadataEntries)> {
        let at_least = |interval| self.last.is_none_or(|last| now.saturating_sub(last) >= interval);
        if !at_least(LOSSY_INTERVAL) {
            return None;
        }
        let log_time = *lock(&self.log_time);
        let ledger = lock(ledger);
        let lost = ledger.lost();
        if ledger.topics.is_empty() || (lost == self.lost_then && !at_least(INTERVAL)) {
            return None;
        }
        let copy = ledger.checkpoint(log_time, false);
        drop(ledger);
        (self.last, self.lost_then) = (Some(now), lost);
        Some(ledger_record(&copy))
    }
}

/// The record that carries a ledger.
pub(crate) fn ledger_record(ledger: &Ledger) -> (String, MetadataEntries) {
    let entries = BTreeMap::from([(LEDGER_KEY.to_owned(), ledger.to_json())]);
    let name = if ledger.checkpoint.is_some() {
        CHECKPOINT_RECORD
    } else {
        LEDGER_RECORD
    };
    (name.to_owned(), entries)
}

/// Applies how the files ended; returns what `metadata.yaml` states about losses. After a disk failure the
/// `journal` identifies each message that is gone; where it does not reach far enough, the files give only
/// the number.
pub(crate) fn account_for(
    ledger: &mut Ledger,
    topic_of_bag: &[TopicId],
    end: &BagEnd,
    journal: &Journal,
) -> BTreeMap<String, String> {
    for torn in &end.torn {
        journal.compare(torn, topic_of_bag, ledger);
    }
    for count in &end.expired {
        if let Some(topic) = topic_of_bag.get(count.topic.0 as usize) {
            ledger.expire(*topic, count.messages);
        }
    }
    count_repeated(ledger, topic_of_bag, &end.repeated);
    if end.failed {
        let in_files = by_topic_of_recording(topic_of_bag, &end.messages);
        for (index, count) in in_files.into_iter().enumerate() {
            ledger.found(TopicId(index as u32), count);
        }
    }
    let mut entries = ledger.custom_data();
    if end.failed {
        entries.insert(LEDGER_CUSTOM_KEY.to_owned(), ledger.sums().to_json());
    }
    entries
}

/// Notes how many messages of each topic the bag's files repeat.
pub(crate) fn count_repeated(ledger: &mut Ledger, topic_of_bag: &[TopicId], repeated: &[TopicCount]) {
    let by_topic = by_topic_of_recording(topic_of_bag, repeated);
    for (topic, count) in ledger.topics.iter_mut().zip(by_topic) {
        topic.repeated = count;
    }
}

/// Messages in the bag's files, by the recording's numbers of topics. `topic_of_bag` has these by the bag's numbers.
pub(crate) fn by_topic_of_recording(topic_of_bag: &[TopicId], counts: &[TopicCount]) -> Vec<u64> {
    let topics = topic_of_bag.iter().map(|topic| topic.0 as usize + 1).max();
    let mut messages = vec![0; topics.unwrap_or(0)];
    for count in counts {
        if let Some(topic) = topic_of_bag.get(count.topic.0 as usize) {
            // A topic with several types has several in the bag.
            messages[topic.0 as usize] += count.messages;
        }
    }
    messages
}
