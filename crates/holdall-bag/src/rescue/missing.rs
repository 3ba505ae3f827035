//! Which of the messages in memory the bag does not have.

use super::{
    Found, Missing, RecordedFile, Rescue,
    account::{Sorted, ledger},
    catalog::Catalog,
};
use holdall_model::{
    loss::{
        LossStage,
        ledger::{Interval, LEDGER_RECORD},
    },
    time::Timestamp,
};
use holdall_storage::{
    leveldb,
    reader::{ReadOrder, ReadQuery},
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

/// LevelDB has one message at a stamp: others of the same stamp were moved by some nanoseconds.
const LEVELDB_MOVED_NANOS_MAX: i64 = 1_000_000;

/// Messages of the bag that may be among those in memory.
#[derive(Default)]
struct InBag {
    /// Number of copies at each log time, by topic and payload, or number where their payload has another form.
    by_payload: HashMap<(String, u64), BTreeMap<i64, u64>>,
    /// By topic, log time, and the low half of the sequence number: for those whose payload is lost.
    by_number: HashMap<(String, i64, u32), u64>,
    /// How much later a message may be in the bag, in nanoseconds.
    later_max: i64,
}

fn hash_of(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

impl InBag {
    fn read<F: RecordedFile>(files: &[F], from: Timestamp, catalog: &Catalog) -> Result<Self, F::Error> {
        let is_leveldb = catalog.storage == leveldb::format::STORAGE_ID;
        let mut found = Self {
            later_max: if is_leveldb { LEVELDB_MOVED_NANOS_MAX } else { 0 },
            ..Self::default()
        };
        let query = ReadQuery {
            start: Some(from),
            order: ReadOrder::File,
            ..ReadQuery::default()
        };
        for file in files {
            let reader = file.open()?;
            if reader.summary().ending_time.is_none_or(|end| end < from) {
                continue;
            }
            let channels = &reader.summary().channels;
            // Unreadable messages count as missing.
            for message in reader.messages(&query).into_iter().flatten().flatten() {
                let Some(channel) = channels.get(message.channel.0 as usize) else {
                    continue;
                };
                let (topic, time) = (&channel.info.topic.name, message.log_time.as_nanos());
                let number = message.sequence.to_le_bytes();
                // What was recorded in another form is known by its number: no payload is so short.
                let is_known = catalog.has_type(topic, &channel.info.topic.type_name);
                let hash = hash_of(if is_known { &message.payload[..] } else { &number });
                let times = found.by_payload.entry((topic.clone(), hash));
                *times.or_default().entry(time).or_insert(0) += 1;
                let number = found.by_number.entry((topic.clone(), time, message.sequence));
                *number.or_insert(0) += 1;
            }
        }
        Ok(found)
    }

    /// Whether a message with this payload is in the bag, each of the bag once.
    fn take(&mut self, topic: &str, found: &Found, payload: Option<&[u8]>) -> bool {
        let time = found.entry.log_time.as_nanos();
        let low = found.entry.sequence.unwrap_or(0) as u32;
        let Some(payload) = payload else {
            // Some storages have no numbers.
            return [low, 0].iter().any(|number| {
                let count = self.by_number.get_mut(&(topic.to_owned(), time, *number));
                count
                    .filter(|count| **count > 0)
                    .map(|count| *count -= 1)
                    .is_some()
            });
        };
        [hash_of(payload), hash_of(&low.to_le_bytes()), hash_of(&[0; 4])]
            .iter()
            .any(|hash| {
                let times = self.by_payload.get_mut(&(topic.to_owned(), *hash));
                let later = time.saturating_add(self.later_max);
                let same =
                    times.and_then(|times| times.range_mut(time..=later).find(|(_, count)| **count > 0));
                same.map(|(_, count)| *count -= 1).is_some()
            })
    }
}

impl Rescue {
    /// Whether an earlier rescue has brought everything into these files: the last one has the account.
    pub fn is_in<F: RecordedFile>(&self, files: &[F]) -> Result<bool, F::Error> {
        let Some(last) = files.last() else {
            return Ok(false);
        };
        Ok(last.open()?.summary().last_metadata(LEDGER_RECORD).is_some())
    }

    /// Messages that a bag with these files lacks.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn missing<F: RecordedFile>(&self, files: &[F]) -> Result<Missing, F::Error> {
        let mut in_bag = match self.earliest() {
            Some(earliest) => InBag::read(files, earliest, &self.catalog)?,
            None => InBag::default(),
        };
        let mut sorted = Sorted::default();
        for found in &self.messages {
            let Some(topic) = self.catalog.topics.get(&found.entry.topic) else {
                continue;
            };
            // An unreadable payload is lost.
            let payload = found.payload.as_ref().and_then(|payload| payload.read().ok());
            let is_in_bag = in_bag.take(&topic.info.name, found, payload.as_deref());
            if is_in_bag || payload.is_some() {
                if topic.has_dropped(found.entry.publisher.0) {
                    let entry = &found.entry;
                    sorted.kept.push((entry.topic, entry.publisher, entry.sequence));
                }
                if !is_in_bag {
                    sorted.messages.push(found.clone());
                }
            } else {
                let (sequence, time) = (found.entry.sequence, found.entry.log_time);
                let interval = Interval::of_message(LossStage::Storage, sequence, time);
                sorted
                    .lost
                    .push((found.entry.topic, found.entry.publisher, interval));
            }
        }
        let ledger = ledger(&self.catalog, &self.messages, files, &sorted)?;
        Ok(Missing {
            messages: sorted.messages,
            ledger,
        })
    }
}
