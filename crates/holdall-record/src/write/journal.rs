//! Messages that were written and are not known to be durable: when the disk has failed, the journal shows exactly which are lost.

use crate::cache::CacheEntry;
use holdall_bag::writer::TornFile;
use holdall_model::{
    loss::{
        LossStage,
        ledger::{Interval, Ledger, PublisherIndex},
    },
    time::Timestamp,
    topic::TopicId,
};
use holdall_storage::reader::{ReadOrder, ReadQuery};
use std::collections::{HashMap, VecDeque};

/// The most messages that are remembered: some 10 MB. Of earlier ones only the number is known after a
/// failure.
const ENTRIES_MAX: usize = 1 << 18;

/// A message that the storage writer has received.
#[derive(Clone, Copy, Debug)]
struct Written {
    log_time: Timestamp,
    sequence: Option<u64>,
    topic: TopicId,
    publisher: PublisherIndex,
    /// The writer reported a failure, and the message is counted as lost.
    refused: bool,
}

/// The messages in the order of writing.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: VecDeque<Written>,
    /// How many were forgotten.
    forgotten: u64,
    /// Number of a file with the place of the first of its messages that follow each other, in order.
    files: VecDeque<(u32, u64)>,
}

impl Journal {
    /// Notes a message that was written into file `file`.
    #[inline]
    pub(crate) fn written(&mut self, file: Option<u32>, entry: &CacheEntry) {
        let Some(file) = file else { return };
        if self.files.back().is_none_or(|(last, _)| *last != file) {
            self.begin_run(file);
        }
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
            self.forgotten += 1;
            self.forget_runs();
        }
        self.entries.push_back(Written {
            log_time: entry.log_time,
            sequence: entry.sequence,
            topic: entry.topic,
            publisher: entry.publisher,
            refused: false,
        });
    }

    #[cold]
    fn begin_run(&mut self, file: u32) {
        self.files.push_back((file, self.end()));
    }

    /// Notes a message that was not written, as far as the writer knows.
    #[cold]
    pub(crate) fn refused(&mut self, file: Option<u32>, entry: &CacheEntry) {
        self.written(file, entry);
        if let Some(last) = self.entries.back_mut().filter(|_| file.is_some()) {
            last.refused = true;
        }
    }

    /// The place of the first message that is remembered.
    pub(crate) fn start(&self) -> u64 {
        self.forgotten
    }

    /// The place of the next message.
    pub(crate) fn end(&self) -> u64 {
        self.forgotten + self.entries.len() as u64
    }

    /// Forgets everything before a place: it is durable.
    pub(crate) fn forget_before(&mut self, place: u64) {
        let count = place
            .saturating_sub(self.forgotten)
            .min(self.entries.len() as u64);
        // At most the number of entries.
        self.entries.drain(..count as usize);
        self.forgotten += count;
        self.forget_runs();
    }

    /// Forgets runs of which no message is remembered.
    fn forget_runs(&mut self) {
        while let Some((_, next)) = self.files.get(1)
            && *next <= self.forgotten
        {
            self.files.pop_front();
        }
    }

    /// The messages of a file.
    fn of(&self, file: u32) -> impl Iterator<Item = &Written> {
        let place = |index: usize| {
            let start = self.files.get(index).map_or(self.end(), |(_, start)| *start);
            // At most the number of entries.
            start.saturating_sub(self.forgotten) as usize
        };
        let runs = self.files.iter().enumerate();
        let runs = runs.filter(move |(_, (number, _))| *number == file);
        runs.flat_map(move |(index, _)| self.entries.range(place(index)..place(index + 1)))
    }

    /// Compares with the readable part of a file that the disk has failed, and corrects the ledger.
    pub(crate) fn compare(&self, torn: &TornFile, topic_of_bag: &[TopicId], ledger: &mut Ledger) {
        let Some(earliest) = self.of(torn.number).map(|it| it.log_time).min() else {
            return;
        };
        let mut readable = readable(torn, topic_of_bag, earliest);
        for written in self.of(torn.number) {
            let same = readable.get_mut(&(written.topic, written.log_time));
            // The low half is all that a file has, and some storages have none.
            let low = written.sequence.unwrap_or(0) as u32;
            let place = same
                .as_ref()
                .and_then(|same| same.iter().position(|it| *it == low || *it == 0));
            if let (Some(same), Some(place)) = (same, place) {
                same.swap_remove(place);
            }
            match (place, written.refused, written.sequence) {
                (Some(_), true, Some(sequence)) => {
                    ledger.found_after_all(written.topic, written.publisher, sequence);
                }
                (None, false, sequence) => {
                    let lost = Interval::of_message(LossStage::Storage, sequence, written.log_time);
                    ledger.take_back(written.topic, written.publisher, lost);
                }
                _ => {}
            }
        }
    }
}

/// Sequence numbers by topic and log time of what can be read, from a log time on. `topic_of_bag` has the recording's topics by the bag's numbers.
fn readable(
    torn: &TornFile,
    topic_of_bag: &[TopicId],
    earliest: Timestamp,
) -> HashMap<(TopicId, Timestamp), Vec<u32>> {
    let mut found: HashMap<_, Vec<u32>> = HashMap::new();
    let Some(reader) = &torn.reader else {
        return found;
    };
    let query = ReadQuery {
        start: Some(earliest),
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    // Unreadable messages count as missing.
    for message in reader.messages(&query).into_iter().flatten().flatten() {
        let in_bag = torn.topics.get(message.channel.0 as usize).copied().flatten();
        if let Some(topic) = in_bag.and_then(|topic| topic_of_bag.get(topic.0 as usize)) {
            let key = (*topic, message.log_time);
            found.entry(key).or_default().push(message.sequence);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64) -> CacheEntry {
        CacheEntry {
            log_time: Timestamp::from_nanos(sequence as i64),
            publish_time: None,
            sequence: Some(sequence),
            topic: TopicId(0),
            publisher: PublisherIndex(0),
        }
    }

    #[test]
    fn a_journal_knows_the_messages_of_a_file_that_are_not_durable() {
        let mut journal = Journal::default();
        for sequence in 1..=10 {
            journal.written(Some(0), &entry(sequence));
        }
        let durable = journal.end();
        journal.written(None, &entry(11));
        for sequence in 12..=15 {
            journal.written(Some(1), &entry(sequence));
        }
        let of = |journal: &Journal, file| -> Vec<u64> {
            let entries = journal.of(file);
            entries.filter_map(|it| it.sequence).collect()
        };
        journal.forget_before(4);
        assert_eq!(of(&journal, 0), [5, 6, 7, 8, 9, 10]);
        journal.forget_before(durable);
        assert_eq!((of(&journal, 0), of(&journal, 1)), (vec![], vec![12, 13, 14, 15]));
        journal.written(Some(0), &entry(16));
        journal.written(Some(1), &entry(17));
        assert_eq!(
            (of(&journal, 0), of(&journal, 1)),
            (vec![16], vec![12, 13, 14, 15, 17])
        );
        journal.forget_before(u64::MAX);
        assert!(of(&journal, 1).is_empty());
        for sequence in 0..ENTRIES_MAX as u64 + 5 {
            journal.written(Some(2), &entry(sequence));
        }
        assert_eq!(journal.entries.len(), ENTRIES_MAX);
        assert_eq!(of(&journal, 2)[0], 5);
    }
}
