//! Reads LevelDB storages: topics from their databases, messages of all topics by time. Never changes a file.

use super::{
    format::{
        BYTEWISE_COMPARATOR, ByteOrder, KEY_BYTE_ORDER, KEY_NAME, KEY_QOS, KEY_SERIALIZATION_FORMAT,
        KEY_TYPE, MESSAGE_SUFFIX, METADATA_SUFFIX, Malformed, RECORDS_FILE, STORAGE_ID, TIMESTAMP_COMPARATOR,
        batch_entries, split_key,
    },
    merge::{Source, TopicMessages},
    recover::{self, Database, End, Table},
    writer::{COUNTS_RECORD, Record, TOPIC_RECORD},
};
use crate::{
    error::{StorageError, StorageResult},
    reader::{ChannelSummary, FileCondition, Messages, ReadOrder, ReadQuery, StorageReader, StorageSummary},
    stored_qos::stored_profiles,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries},
};
use holdall_io::fs;
use holdall_model::{
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Longest file of records that is read.
const RECORDS_BYTES_MAX: u64 = 256 << 20;

/// A topic's database of messages.
#[derive(Clone, Debug)]
struct Topic {
    /// Common prefix of its directories' names.
    base: String,
    messages: PathBuf,
    byte_order: ByteOrder,
}

/// An open storage.
pub struct LeveldbReader {
    /// The outline, without counts.
    outline: StorageSummary,
    topics: Vec<Topic>,
    counts: Option<MetadataEntries>,
    end: End,
    summary: OnceLock<StorageSummary>,
}

impl LeveldbReader {
    /// Opens a directory of databases. A damaged database is reported in the condition; the others are read.
    ///
    /// # Errors
    /// A path that is not such a directory.
    pub fn open(path: &Path) -> StorageResult<Self> {
        if !super::is_leveldb(path) {
            fs::list_dir(path)?;
            return Err(StorageError::WrongFormat {
                path: path.to_owned(),
                storage: STORAGE_ID,
                expected: format!("directories whose names end with {METADATA_SUFFIX}"),
                found: "none".into(),
            });
        }
        let (described, metadata, counts) = records(path)?;
        let end = match &counts {
            Some(_) => End::Closed,
            None if described.is_empty() => End::Unknown,
            None => End::Unfinished,
        };
        let mut opening = Opening::default();
        let mut bases: Vec<String> = Vec::new();
        for entry in fs::list_dir(path)?.into_iter().filter(|entry| entry.is_dir) {
            let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(base) = name.strip_suffix(METADATA_SUFFIX) {
                bases.push(base.to_owned());
            }
        }
        // In the order of creation, if known.
        let order: HashMap<&str, usize> = described
            .iter()
            .enumerate()
            .map(|(place, (base, _))| (base.as_str(), place))
            .collect();
        bases.sort_by_key(|base| order.get(base.as_str()).copied().unwrap_or(usize::MAX));
        for base in bases {
            let more = order.get(base.as_str()).map(|place| &described[*place].1);
            opening.add(path, base, more, end);
        }
        let outline = StorageSummary {
            path: path.to_owned(),
            storage_id: STORAGE_ID,
            file_bytes: super::size_bytes(path)?,
            channels: opening.channels,
            metadata,
            condition: opening.condition,
            ..StorageSummary::default()
        };
        Ok(Self {
            outline,
            end,
            topics: opening.topics,
            counts,
            summary: OnceLock::new(),
        })
    }

    fn merged(&self, wanted: &[usize], start: i64, end: i64) -> TopicMessages {
        let mut sources = Vec::new();
        let mut first_error = None;
        for &index in wanted {
            let topic = &self.topics[index];
            // A topic with only its description has no messages.
            let Ok(true) = fs::exists(&topic.messages) else {
                continue;
            };
            match recover::open(&topic.messages, self.end) {
                Ok(database) => add_sources(&mut sources, index, topic, database),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        TopicMessages::new(sources, start, end, first_error)
    }

    fn counted(&self) -> StorageSummary {
        let mut summary = self.outline.clone();
        if self.apply_counts(&mut summary).is_some() {
            return summary;
        }
        for channel in &mut summary.channels {
            channel.message_count = 0;
        }
        let all: Vec<usize> = (0..self.topics.len()).collect();
        for message in self.merged(&all, i64::MIN, i64::MAX) {
            match message {
                Ok(message) => {
                    summary.channels[message.channel.0 as usize].message_count += 1;
                    summary.message_count += 1;
                    summary.starting_time.get_or_insert(message.log_time);
                    summary.ending_time = summary.ending_time.max(Some(message.log_time));
                }
                Err(error) => note(&mut summary.condition, &error),
            }
        }
        summary
    }

    /// Applies the counts that were stored when the storage was closed; `None` if it was not closed.
    fn apply_counts(&self, summary: &mut StorageSummary) -> Option<()> {
        let counts = self.counts.as_ref()?;
        if summary.condition != FileCondition::Complete {
            return None;
        }
        for (topic, channel) in self.topics.iter().zip(&mut summary.channels) {
            channel.message_count = counts.get(&topic.base)?.parse().ok()?;
        }
        summary.message_count = summary.channels.iter().map(|channel| channel.message_count).sum();
        let time = |key: &str| Some(Timestamp::from_nanos(counts.get(key)?.parse().ok()?));
        summary.starting_time = time("start");
        summary.ending_time = time("end");
        Some(())
    }
}

/// Keeps the first damage.
fn note(condition: &mut FileCondition, error: &StorageError) {
    if *condition == FileCondition::Complete {
        *condition = FileCondition::Damaged {
            offset: 0,
            reason: error.to_string(),
        };
    }
}

/// Adds a topic's tables and logs as sources of messages.
fn add_sources(sources: &mut Vec<Source>, index: usize, topic: &Topic, database: Database) {
    let channel = ChannelIndex(index as u32);
    if !database.comparator.is_empty() && database.comparator != TIMESTAMP_COMPARATOR {
        let error = StorageError::WrongFormat {
            path: topic.messages.clone(),
            storage: STORAGE_ID,
            expected: format!("comparator {TIMESTAMP_COMPARATOR:?}"),
            found: format!("{:?}", database.comparator),
        };
        sources.push(Source::failed(channel, error));
        return;
    }
    let stamp = |key: &[u8]| split_key(key).and_then(|(key, ..)| topic.byte_order.stamp(key));
    for (info, path) in database.tables {
        let range = stamp(&info.smallest).zip(stamp(&info.largest));
        let (first, last) = range.unwrap_or((i64::MIN, i64::MAX));
        sources.push(Source::table(channel, path, topic.byte_order, first, last));
    }
    for path in database.logs {
        sources.push(Source::log(channel, path, topic.byte_order));
    }
    if let Some(damage) = database.damage {
        sources.push(Source::failed(channel, damage));
    }
}

/// Topics collected while opening.
#[derive(Default)]
struct Opening {
    topics: Vec<Topic>,
    channels: Vec<ChannelSummary>,
    condition: FileCondition,
}

impl Opening {
    fn add(&mut self, path: &Path, base: String, more: Option<&MetadataEntries>, end: End) {
        let directory = path.join(format!("{base}{METADATA_SUFFIX}"));
        let keys = match description(&directory) {
            Ok((keys, damage)) => {
                // A recorder that was killed may have left the rest of it in a file that is not whole.
                if let Some(damage) = damage.filter(|_| end != End::Unfinished) {
                    note(&mut self.condition, &damage);
                }
                keys
            }
            Err(error) => {
                note(&mut self.condition, &error);
                BTreeMap::new()
            }
        };
        let text = |key: &[u8]| {
            keys.get(key)
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let more = |key: &str| more.and_then(|more| more.get(key)).cloned().unwrap_or_default();
        let qos = text(KEY_QOS).unwrap_or_default();
        // A topic without its description still has messages.
        let name = text(KEY_NAME).unwrap_or_else(|| base.replace('_', "/"));
        let topic = TopicInfo {
            offered_qos_profiles: stored_profiles(&name, &qos),
            name,
            type_name: text(KEY_TYPE).unwrap_or_default(),
            serialization_format: text(KEY_SERIALIZATION_FORMAT).unwrap_or_default(),
            type_description_hash: more("type_description_hash"),
            ..TopicInfo::default()
        };
        let definition = MessageDefinition {
            type_name: more("definition_type"),
            encoding: match more("definition_encoding").as_str() {
                "ros2msg" => DefinitionEncoding::Ros2Msg,
                "ros2idl" => DefinitionEncoding::Ros2Idl,
                _ => DefinitionEncoding::Unknown,
            },
            text: more("definition"),
            type_description_hash: more("definition_hash"),
        };
        self.topics.push(Topic {
            messages: path.join(format!("{base}{MESSAGE_SUFFIX}")),
            byte_order: match keys.get(KEY_BYTE_ORDER).map(Vec::as_slice) {
                Some(b"B") => ByteOrder::Big,
                _ => ByteOrder::Little,
            },
            base,
        });
        self.channels.push(ChannelSummary {
            info: ChannelInfo { topic, definition },
            message_count: 0,
        });
    }
}

/// The keys and values of a database that describes a topic, and what is damaged in it.
type Description = (BTreeMap<Vec<u8>, Vec<u8>>, Option<StorageError>);

/// The keys and newest values of a database that describes a topic.
fn description(directory: &Path) -> StorageResult<Description> {
    let mut database = recover::open(directory, End::Unknown)?;
    let mut found: BTreeMap<Vec<u8>, (u64, Vec<u8>)> = BTreeMap::new();
    let mut take = |key: &[u8], sequence: u64, value: &[u8]| {
        if found.get(key).is_none_or(|(known, _)| *known <= sequence) {
            found.insert(key.to_vec(), (sequence, value.to_vec()));
        }
    };
    if !database.comparator.is_empty() && database.comparator != BYTEWISE_COMPARATOR {
        return Err(StorageError::WrongFormat {
            path: directory.to_owned(),
            storage: STORAGE_ID,
            expected: format!("comparator {BYTEWISE_COMPARATOR:?}"),
            found: format!("{:?}", database.comparator),
        });
    }
    for (_, path) in &database.tables {
        let table = Table::open(path)?;
        for block in 0..table.blocks.len() {
            let mut entries = table.entries(block)?;
            while let Some(Some((key, value))) = entries.next_entry() {
                if let Some((key, sequence, true)) = split_key(key) {
                    take(key, sequence, &value);
                }
            }
        }
    }
    for path in &database.logs {
        let file = fs::File::open(path)?;
        let mut reader = recover::log_reader(&file, 0);
        while let Some(record) = reader.next_record()? {
            let record = record.map_err(|what| recover::malformed(path, what))?;
            for entry in batch_entries(&record.bytes).flatten() {
                if let Some(value) = entry.value {
                    take(entry.key, entry.sequence, value);
                }
            }
        }
        if reader.is_cut() {
            let what = Malformed::at(file.len_bytes(), "the rest of a description", "the end");
            database.damage.get_or_insert(recover::malformed(path, what));
        }
    }
    if !(found.contains_key(KEY_NAME) && found.contains_key(KEY_TYPE)) {
        let what = Malformed::at(0, "the name and the type of a topic", "a part of them, or none");
        database.damage.get_or_insert(recover::malformed(directory, what));
    }
    let keys = found.into_iter().map(|(key, (_, value))| (key, value));
    Ok((keys.collect(), database.damage))
}

/// Whether our records have the one that closes them; `None` where there are none.
pub(super) fn has_counts(path: &Path) -> StorageResult<Option<bool>> {
    if !fs::exists(&path.join(RECORDS_FILE))? {
        return Ok(None);
    }
    Ok(Some(records(path)?.2.is_some()))
}

/// Content of our records: topics by the base of their directories, named records, and counts.
type Records = (
    Vec<(String, MetadataEntries)>,
    Vec<(String, MetadataEntries)>,
    Option<MetadataEntries>,
);

/// Reads our records; skips a line that is not valid (cut off, or of another program).
fn records(path: &Path) -> StorageResult<Records> {
    let path = path.join(RECORDS_FILE);
    let (mut topics, mut metadata, mut counts) = (Vec::new(), Vec::new(), None);
    if !fs::exists(&path)? {
        return Ok((topics, metadata, counts));
    }
    let bytes = fs::read(&path, RECORDS_BYTES_MAX)?;
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(record) = serde_json::from_slice::<Record>(line) else {
            continue;
        };
        match record.name.as_str() {
            TOPIC_RECORD => {
                let base = record.entries.get("directory").cloned().unwrap_or_default();
                topics.push((base, record.entries));
            }
            COUNTS_RECORD => counts = Some(record.entries),
            _ => metadata.push((record.name, record.entries)),
        }
    }
    Ok((topics, metadata, counts))
}

impl StorageReader for LeveldbReader {
    fn summary(&self) -> &StorageSummary {
        self.summary.get_or_init(|| self.counted())
    }

    fn outline(&self) -> &StorageSummary {
        &self.outline
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let count = self.topics.len();
        let wanted: Vec<usize> = match &query.channels {
            None => (0..count).collect(),
            Some(channels) => channels.iter().map(|channel| channel.0 as usize).collect(),
        };
        if let Some(unknown) = wanted.iter().find(|index| **index >= count) {
            return Err(StorageError::UnknownChannel {
                path: self.outline.path.clone(),
                index: *unknown as u32,
                count,
            });
        }
        // No send time is stored, and messages are grouped by topic: time order is the only order.
        let (ReadOrder::LogTime | ReadOrder::PublishTime | ReadOrder::File) = query.order;
        let start = query.start.map_or(i64::MIN, Timestamp::as_nanos);
        let end = query.end.map_or(i64::MAX, Timestamp::as_nanos);
        Ok(Box::new(self.merged(&wanted, start, end)))
    }
}
