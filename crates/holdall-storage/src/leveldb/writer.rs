//! Writes one LevelDB storage: a directory with two databases for each topic, and our own records next to them.

use super::{
    format::{RECORDS_FILE, STORAGE_ID},
    options::LeveldbOptions,
    topic_writer::TopicWriter,
};
use crate::{
    error::{StorageError, StorageResult},
    tally::Tally,
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use holdall_io::{
    disk::FileId,
    fs,
    queue::{DiskQueue, SyncToken},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

/// Memory for messages of all topics that wait to be sorted, in bytes.
const GATHERED_BYTES_MAX: usize = 64 << 20;
/// From this size on a message gets a separate table.
const LARGE_BYTES_MIN: usize = 8 << 20;
/// More topics than this are made durable with their whole file system: each by itself takes up to eight syncs.
const SYNCED_ALONE_MAX: usize = 8;
/// Longest part of a directory's name that comes from the topic's name.
const NAME_BYTES_MAX: usize = 200;

/// The record that describes a topic in addition to the plugin's own data.
pub(super) const TOPIC_RECORD: &str = "holdall:topic";
/// The record at the end: messages by topic, first and last stamp.
pub(super) const COUNTS_RECORD: &str = "holdall:counts";

/// A line of the records' file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub name: String,
    pub entries: MetadataEntries,
}

/// One LevelDB storage that is being written.
pub(crate) struct LeveldbWriter {
    path: PathBuf,
    file: FileId,
    /// The file system, if it can be made durable as a whole.
    file_system: Option<fs::FileSystem>,
    options: LeveldbOptions,
    topics: Vec<TopicWriter>,
    /// Names of topics, and of directories that are taken.
    names: Vec<String>,
    bases: HashSet<String>,
    /// The last number that a shared name was completed with.
    base_numbers: HashMap<String, u64>,
    tally: Tally,
    /// Topics with a stamp that was moved, logged once each.
    moved: HashSet<u32>,
    records_bytes: u64,
    /// Messages of all topics that wait to be sorted.
    gathered_bytes: usize,
    /// By topic: number of the first message that its log holds back.
    held_from: Vec<u64>,
    messages: u64,
}

impl LeveldbWriter {
    /// Begins to write into the directory `path`, in which the queue has made the file of records.
    ///
    /// # Errors
    /// A file that could not be made.
    pub fn create(
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: LeveldbOptions,
    ) -> StorageResult<Self> {
        while !q.is_created(file)? {
            q.wait_one();
        }
        // Space reserved by the queue would look like records of zeros.
        fs::truncate(&path.join(RECORDS_FILE))?;
        let file_system = fs::FileSystem::of(path)?;
        Ok(Self {
            file_system,
            path: path.to_owned(),
            file,
            options,
            topics: Vec::new(),
            names: Vec::new(),
            bases: HashSet::new(),
            base_numbers: HashMap::new(),
            tally: Tally::new(path),
            moved: HashSet::new(),
            records_bytes: 0,
            gathered_bytes: 0,
            held_from: Vec::new(),
            messages: 0,
        })
    }

    /// The beginning of the names of a topic's directories: the topic's name with `_` for `/`, as the plugin
    /// has it. Two topics that would share one (`/a/b` and `/a_b`) get a number: the plugin's reader uses the
    /// name in the database.
    fn base(&mut self, topic: &str) -> String {
        let mut base = topic.replace(['/', '\0'], "_");
        let mut end = base.len().min(NAME_BYTES_MAX);
        while !base.is_char_boundary(end) {
            end -= 1;
        }
        base.truncate(end);
        let mut name = base.clone();
        while !self.bases.insert(name.clone()) {
            // Counts on from the last number, so that thousands of topics with one base do not each count from the
            // beginning.
            let number = self.base_numbers.entry(base.clone()).or_insert(1);
            *number += 1;
            name = format!("{base}__{number}");
        }
        if name != base {
            tracing::info!("{topic}: its LevelDB is named {name}, because another topic has {base}");
        }
        name
    }

    fn append_record(&mut self, name: &str, entries: &MetadataEntries) -> StorageResult<()> {
        let record = Record {
            name: name.to_owned(),
            entries: entries.clone(),
        };
        let mut line = serde_json::to_vec(&record).map_err(|error| StorageError::Setting {
            storage: STORAGE_ID,
            setting: name.to_owned(),
            expected: "text".into(),
            found: error.to_string(),
        })?;
        line.push(b'\n');
        self.records_bytes += line.len() as u64;
        Ok(fs::append(&self.path.join(RECORDS_FILE), &line)?)
    }

    fn counts_record(&self) -> MetadataEntries {
        let mut entries: MetadataEntries = self
            .names
            .iter()
            .zip(self.tally.counts())
            .map(|(name, count)| (name.clone(), count.to_string()))
            .collect();
        if let Some((start, end)) = self.tally.times() {
            entries.insert("start".to_owned(), start.to_string());
            entries.insert("end".to_owned(), end.to_string());
        }
        entries
    }

    /// Makes all topics durable: one by one, or, if they are many, with two syncs of the file system. Tables are durable before a
    /// manifest names them, and manifests before the logs go that the tables came from.
    fn make_topics_durable(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        let dirty = self.topics.iter().filter(|topic| topic.is_dirty()).count();
        let Some(file_system) = self.file_system.as_ref().filter(|_| dirty > SYNCED_ALONE_MAX) else {
            return self.topics.iter_mut().try_for_each(|topic| topic.make_durable(q));
        };
        let mut dirty: Vec<&mut TopicWriter> =
            self.topics.iter_mut().filter(|topic| topic.is_dirty()).collect();
        dirty.iter_mut().try_for_each(|topic| topic.write_out(q))?;
        file_system.sync()?;
        if dirty.iter().any(|topic| topic.has_new_tables()) {
            dirty.iter_mut().try_for_each(|topic| topic.name_tables())?;
            file_system.sync()?;
            dirty.iter_mut().try_for_each(|topic| topic.remove_logs())?;
        }
        dirty.into_iter().for_each(TopicWriter::set_durable);
        Ok(())
    }

    /// Keeps the memory of all topics within bounds.
    fn make_room(&mut self, q: &mut DiskQueue, topic: usize) -> StorageResult<()> {
        let full = if self.topics[topic].gathered_bytes() >= self.options.write_buffer_bytes {
            Some(topic)
        } else if self.gathered_bytes >= GATHERED_BYTES_MAX {
            (0..self.topics.len()).max_by_key(|index| self.topics[*index].gathered_bytes())
        } else {
            None
        };
        if let Some(full) = full {
            self.gathered_bytes -= self.topics[full].gathered_bytes();
            self.topics[full].rotate(q)?;
        }
        Ok(())
    }
}

impl StorageWriter for LeveldbWriter {
    fn add_channel(&mut self, _q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        let index = self.tally.next_channel()?;
        let (topic, definition) = (&info.topic, &info.definition);
        let base = self.base(&topic.name);
        let entries = [
            ("name", &topic.name),
            ("directory", &base),
            ("type_description_hash", &topic.type_description_hash),
            ("definition_type", &definition.type_name),
            ("definition_encoding", &definition.encoding.as_str().to_owned()),
            ("definition", &definition.text),
            ("definition_hash", &definition.type_description_hash),
        ];
        let entries = entries.map(|(key, value)| (key.to_owned(), value.clone()));
        self.append_record(TOPIC_RECORD, &entries.into_iter().collect())?;
        self.topics
            .push(TopicWriter::create(&self.path, &base, topic, &self.options)?);
        self.names.push(base);
        self.held_from.push(0);
        self.tally.add_channel();
        Ok(index)
    }

    fn write(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        let index = self.tally.place(channel)?;
        let topic = &mut self.topics[index];
        let wanted = message.log_time.as_nanos();
        if topic.is_handed() {
            self.held_from[index] = self.messages;
        }
        self.messages += 1;
        let before = topic.gathered_bytes();
        let stamp = if message.payload.len() >= LARGE_BYTES_MIN {
            topic.write_large(q, self.messages - 1, wanted, message.payload)?
        } else {
            topic.write(q, wanted, message.payload)?
        };
        // A large message has its topic's others sorted before it.
        self.gathered_bytes = self.gathered_bytes + topic.gathered_bytes() - before;
        if stamp != wanted && self.moved.insert(channel.0) {
            tracing::warn!(
                "{}: two messages of {} have the same stamp {wanted}; LevelDB would keep only one, so the stamp of such \
                 messages is moved to the next free nanosecond",
                self.path.display(),
                self.names[index]
            );
        }
        self.tally.count(index, stamp);
        self.make_room(q, index)
    }

    fn write_metadata(
        &mut self,
        _q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()> {
        self.append_record(name, entries)
    }

    fn summary(&self) -> FileSummary {
        self.tally.summary(self.bytes_written())
    }

    fn bytes_written(&self) -> u64 {
        self.records_bytes + self.topics.iter().map(TopicWriter::bytes).sum::<u64>()
    }

    fn step(&mut self, _q: &mut DiskQueue) -> StorageResult<()> {
        Ok(())
    }

    fn close_chunks(&mut self, _q: &mut DiskQueue) -> StorageResult<()> {
        self.topics.iter_mut().try_for_each(TopicWriter::flush_log)
    }

    fn handed(&mut self, q: &DiskQueue) -> u64 {
        let held = self.topics.iter().zip(&self.held_from);
        let in_logs = held
            .filter(|(topic, _)| !topic.is_handed())
            .map(|(_, first)| *first);
        let in_flight = self.topics.iter().filter_map(|topic| topic.first_in_flight(q));
        in_logs.chain(in_flight).fold(self.messages, u64::min)
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        self.make_topics_durable(q)?;
        Ok(None)
    }

    fn finish(
        mut self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary> {
        let ended = self
            .topics
            .iter_mut()
            .try_for_each(|topic| topic.finish(q))
            .and_then(|()| self.make_topics_durable(q))
            .and_then(|()| {
                closing_metadata
                    .iter()
                    .try_for_each(|(name, entries)| self.write_metadata(q, name, entries))
            })
            .and_then(|()| self.append_record(COUNTS_RECORD, &self.counts_record()));
        let mut summary = self.summary();
        // The queue syncs and closes, also when the end could not be written.
        let length = fs::file_len(&self.path.join(RECORDS_FILE));
        let synced = q.close_file(self.file, length.as_ref().copied().unwrap_or(self.records_bytes));
        ended?;
        length?;
        synced?;
        summary.bytes = super::size_bytes(&self.path)?;
        Ok(summary)
    }
}
