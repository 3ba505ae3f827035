//! The writer of one bag: adds topics, writes messages in order, splits into new files, and closes without losing the first error.

mod begin;
mod channels;
mod close;
mod durable;
mod handed;
mod repeated;
mod vanished;

pub use channels::PublisherSlot;

use super::{
    BagError, BagFolder, SplitRule,
    folder::FileIdentity,
    metadata::{BagFacts, FileFacts, bag_metadata},
    pack_files::{FilePacker, PackedFile},
};
use crate::writer::{CompressionMode, CompressionOptions, SplitOptions};
use channels::{FileChannels, Found};
use durable::PendingSync;
use handed::Handed;
use holdall_io::{
    block::BlockPoolOptions,
    disk::{DiskError, FileId},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{
    metadata::BagMetadata,
    topic::{DefinitionEncoding, MessageDefinition, PublisherInfo, TopicInfo},
};
use holdall_storage::{
    Storage, StorageError, StorageOptions,
    compression::{FORMATS, packed_name},
    reader::StorageReader,
    writer::{ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use repeated::{channel_bytes, metadata_bytes};
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
};

/// Name and key of the record that carries rosbag2's metadata in a storage file.
pub(crate) const ROSBAG2_RECORD: &str = "rosbag2";
const ROSBAG2_KEY: &str = "serialized_metadata";

/// In `custom_data` of `metadata.yaml` while the bag is being written: counts of its last file are not final, and it may have no end.
pub(crate) const STATE_KEY: &str = "holdall.state";

/// Files that may become this long carry checkpoints of their index, when the options request them.
const CHECKPOINTS_FROM_BYTES: u64 = 64 << 20;

/// A topic of a bag: dense index from 0 in the order of [`BagWriter::add_topic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BagTopic(pub u32);

/// Opens the disk for a directory that was just made.
pub type OpenDisk = Box<dyn FnOnce(&Path) -> Result<DiskQueue, DiskError> + Send>;

/// The operating system's disk.
pub fn os_disk(mode: DiskMode, blocks: BlockPoolOptions) -> OpenDisk {
    Box::new(move |directory| DiskQueue::new(Box::new(OsDisk::open(directory, mode)?), blocks))
}

/// What bag to write.
#[derive(Clone)]
pub struct BagOptions {
    /// The directory to make; must not exist.
    pub directory: PathBuf,
    /// How its files are stored.
    pub storage: &'static dyn Storage,
    /// The backend's settings.
    pub storage_options: StorageOptions,
    /// When to split into a new file.
    pub split: SplitOptions,
    /// rosbag2's own compression: closed files are packed here, payloads by the caller that writes messages ([`super::PayloadPacking`]).
    pub compression: CompressionOptions,
    /// Goes to `custom_data`.
    pub custom_data: BTreeMap<String, String>,
    /// Goes to `ros_distro`.
    pub ros_distro: String,
}

/// Messages of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicCount {
    /// Which topic.
    pub topic: BagTopic,
    /// How many messages.
    pub messages: u64,
}

/// A file that the disk has failed.
pub struct TornFile {
    /// Its number, see [`BagWriter::file_number`].
    pub number: u32,
    /// Reads what the disk has kept of it; `None` when that is nothing.
    pub reader: Option<Box<dyn StorageReader>>,
    /// The bag's topic of each of the reader's channels.
    pub topics: Vec<Option<BagTopic>>,
}

/// How the files of a bag ended, for a caller that keeps an account of its messages.
pub struct BagEnd {
    /// Files of which something may be missing, because the disk has failed.
    pub torn: Vec<TornFile>,
    /// Messages in files that the ring has removed and [`BagWriter::take_removed`] has not returned.
    pub removed: Vec<TopicCount>,
    /// Messages that can be read.
    pub messages: Vec<TopicCount>,
    /// Something has failed.
    pub failed: bool,
}

/// A topic whose type no file of the bag defines: its messages cannot be decoded by the bag alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UndefinedTopic {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
}

/// A closed bag.
#[derive(Debug)]
pub struct ClosedBag {
    /// Its directory.
    pub directory: PathBuf,
    /// Its storage files, in order.
    pub files: Vec<PathBuf>,
    /// Messages that can be read from these files, as the storage writers counted them (or, after a failure, as they were read back).
    pub messages: Vec<TopicCount>,
    /// Topics without a definition.
    pub undefined: Vec<UndefinedTopic>,
    /// Where the caller's account differs from that, one sentence each; the writer itself keeps no account.
    pub account_faults: Vec<String>,
    /// The first error, if any; what could be kept is in the files nevertheless.
    pub failure: Option<BagError>,
}

/// The storage file being written.
struct CurrentFile {
    writer: Box<dyn StorageWriter>,
    file: FileId,
    number: u32,
    name: String,
    channels: FileChannels,
    /// The file with this name must be this one.
    identity: FileIdentity,
    /// Steps since it was begun in which its identity was not known.
    unidentified_steps: u64,
}

impl CurrentFile {
    /// What it holds, with counts by topic.
    fn summary(&self) -> FileSummary {
        self.channels.by_topic(self.writer.summary())
    }
}

/// A file that was finished.
struct PastFile {
    name: String,
    number: u32,
    summary: FileSummary,
    /// `Some` until the disk has closed it.
    closing: Option<FileId>,
    packing: Packing,
    /// The disk failed while it was written: what it holds must be read back.
    is_torn: bool,
}

impl PastFile {
    /// Its present name in the directory.
    fn present_name(&self) -> PathBuf {
        match self.packing {
            Packing::Done => packed_name(Path::new(&self.name)),
            Packing::No | Packing::Wanted | Packing::AtWork => PathBuf::from(&self.name),
        }
    }
}

/// How far a file's compression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// The file stays unchanged.
    No,
    /// When it is closed.
    Wanted,
    /// A thread has it.
    AtWork,
    /// The packed file has replaced it.
    Done,
}

/// A file that was opened before it is needed.
struct NextFile {
    file: FileId,
    name: String,
}

/// Records that a file carries at its end in addition to what every bag has. Called when a file other than the last
/// is closed, with the bytes that the records may use: a short file must not be filled with what all files repeat.
pub type EndRecords = Box<dyn Fn(u64) -> Vec<(String, MetadataEntries)> + Send>;

/// Writes one bag. Owned by one thread (or a simulator's step); waits for the disk only when no block is free.
pub struct BagWriter {
    options: BagOptions,
    queue: DiskQueue,
    folder: Box<dyn BagFolder>,
    /// What the names of its files begin with: the directory's name.
    stem: String,
    topics: Vec<ChannelInfo>,
    /// `None` after a failure.
    current: Option<CurrentFile>,
    next: Option<NextFile>,
    past: VecDeque<PastFile>,
    split: SplitRule,
    files_begun: u32,
    /// The most bytes that all topics need in a metadata record.
    topics_bytes: u64,
    /// The most bytes that the channels of all topics need in a file.
    channels_bytes: u64,
    /// The sync that was requested last and has not ended.
    sync: Option<PendingSync>,
    /// Which messages the system has.
    handed: Handed,
    /// In files that the ring has removed, not yet reported.
    removed: Vec<TopicCount>,
    /// In files that were deleted or replaced by others, not yet reported.
    vanished: Vec<TopicCount>,
    /// Such files until the disk has closed them.
    vanishing: Vec<FileId>,
    /// There for file compression.
    packer: Option<FilePacker>,
    end_records: Option<EndRecords>,
}

impl BagWriter {
    /// Makes the directory and begins the first file.
    ///
    /// # Errors
    /// A directory that exists or cannot be made; a file that cannot be begun.
    pub fn create(
        mut options: BagOptions,
        open_disk: OpenDisk,
        folder: Box<dyn BagFolder>,
    ) -> Result<Self, BagError> {
        // A short file is read through as quickly as its checkpoints.
        let is_long = options
            .split
            .bytes_max
            .is_none_or(|max| max >= CHECKPOINTS_FROM_BYTES);
        options.storage_options.index_checkpoints &= is_long;
        options.storage.check_options(&options.storage_options)?;
        let is_directory = options.storage.file_extension().is_empty();
        if is_directory && options.compression.mode == CompressionMode::File {
            return Err(StorageError::Unsupported {
                path: options.directory,
                what: "compression of whole files",
                reason: format!(
                    "storage {} keeps directories; use message compression",
                    options.storage.id()
                ),
            }
            .into());
        }
        folder.create_new(&options.directory).map_err(|error| {
            if error.is_already_exists() {
                BagError::Exists {
                    path: options.directory.clone(),
                }
            } else {
                error.into()
            }
        })?;
        let directory = options.directory.clone();
        let opened = match Self::open_parts(&options, open_disk) {
            Ok(opened) => opened,
            Err(error) => {
                folder.discard(&directory);
                return Err(error);
            }
        };
        let (packer, queue) = opened;
        let mut bag = Self::begin(options, queue, folder);
        bag.packer = packer;
        if let Err(error) = bag.begin_first() {
            // What is open in it is closed first.
            bag.current = None;
            bag.queue.drain();
            bag.folder.discard(&directory);
            return Err(error);
        }
        Ok(bag)
    }

    /// Sets what files carry at their end that are closed before the last one.
    pub fn set_end_records(&mut self, end_records: EndRecords) {
        self.end_records = Some(end_records);
    }

    /// Puts a named text record into the current file, after the messages written so far.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn write_record(&mut self, name: &str, entries: &MetadataEntries) -> Result<(), BagError> {
        if let Some(current) = &mut self.current {
            current.writer.write_metadata(&mut self.queue, name, entries)?;
            self.split.ask_again();
        }
        Ok(())
    }

    fn file_name(&self, number: u32) -> String {
        match self.options.storage.file_extension() {
            "" => format!("{}_{number}", self.stem),
            extension => format!("{}_{number}.{extension}", self.stem),
        }
    }

    /// The file that the queue is to make for a storage file. Where that is a directory, it is made here.
    fn queue_path(&self, name: &str) -> Result<PathBuf, BagError> {
        let path = self.options.directory.join(name);
        let made = self.options.storage.queue_path(&path);
        if made != path {
            self.folder.create_new(&path)?;
        }
        Ok(made)
    }

    /// What to reserve for a file in bytes; the disk reserves more as it grows. A database grows its file itself.
    fn reserve_bytes(&self) -> u64 {
        let grows_by_blocks = self.options.storage.writes_blocks();
        self.options
            .split
            .bytes_max
            .filter(|_| grows_by_blocks)
            .unwrap_or(0)
    }

    fn begin_file(&mut self, next: NextFile) -> Result<(), BagError> {
        let path = self.options.directory.join(&next.name);
        let storage = self.options.storage;
        let options = &self.options.storage_options;
        let mut writer = storage.create_writer(&mut self.queue, next.file, &path, options)?;
        let mut empty = BagMetadata {
            custom_data: self.options.custom_data.clone(),
            ..BagMetadata::default()
        };
        empty.storage_identifier = self.options.storage.id().to_owned();
        empty.ros_distro = self.options.ros_distro.clone();
        if self.options.compression.mode == CompressionMode::Message {
            // A file that is cut off before its end must state how its payloads are stored.
            CompressionMode::Message
                .as_metadata()
                .clone_into(&mut empty.compression_mode);
            FORMATS[0].clone_into(&mut empty.compression_format);
        }
        writer.write_metadata(&mut self.queue, ROSBAG2_RECORD, &rosbag2_record(&empty))?;
        self.current = Some(CurrentFile {
            writer,
            file: next.file,
            number: self.files_begun,
            name: next.name,
            channels: FileChannels::new(self.topics.len()),
            identity: self.folder.file_identity(&path).or_unknown(),
            unidentified_steps: 0,
        });
        self.files_begun += 1;
        self.split.begin_file();
        Ok(())
    }

    /// Adds a topic. Later files have it too, from its first message in them on or at their end.
    ///
    /// # Errors
    /// More topics than the storage can number.
    pub fn add_topic(&mut self, info: ChannelInfo) -> Result<BagTopic, BagError> {
        if let Some(current) = &mut self.current {
            current.channels.add_topic();
        }
        self.topics_bytes += metadata_bytes(&info.topic);
        self.channels_bytes += channel_bytes(&info);
        self.split.ask_again();
        self.topics.push(info);
        // More topics than 32 bits can count do not fit into memory.
        Ok(BagTopic((self.topics.len() - 1) as u32))
    }

    /// Sets the definition of a topic that was added without. Where the storage can have several channels of a topic, the current file gets
    /// a new one with it, at the topic's next message or at the end; other storages store it from the next file on. Returns the topic's
    /// name when the definition is news.
    pub fn set_definition(&mut self, topic: BagTopic, definition: MessageDefinition) -> Option<&str> {
        let info = self.topics.get_mut(topic.0 as usize)?;
        let is_news =
            info.definition.encoding == DefinitionEncoding::Unknown && info.definition != definition;
        self.channels_bytes -= channel_bytes(info);
        info.definition = definition;
        self.channels_bytes += channel_bytes(info);
        if let Some(current) = &mut self.current
            && is_news
            && self.options.storage.keeps_publishers()
        {
            current.channels.renew(topic);
        }
        is_news.then_some(info.topic.name.as_str())
    }

    /// Topics without a definition, with their types, by name.
    pub fn undefined_topics(&self) -> Vec<UndefinedTopic> {
        let unknown = |info: &&ChannelInfo| info.definition.encoding == DefinitionEncoding::Unknown;
        let undefined = self.topics.iter().filter(unknown).map(|info| UndefinedTopic {
            name: info.topic.name.clone(),
            type_name: info.topic.type_name.clone(),
        });
        let mut undefined: Vec<UndefinedTopic> = undefined.collect();
        undefined.sort();
        undefined
    }

    /// Sets what `metadata.yaml` and later files state about a topic (its publishers' QoS, for example).
    pub fn set_topic_info(&mut self, topic: BagTopic, info: TopicInfo) {
        if let Some(known) = self.topics.get_mut(topic.0 as usize) {
            self.channels_bytes -= channel_bytes(known);
            known.topic = info;
            self.channels_bytes += channel_bytes(known);
        }
    }

    /// Writes a message after all earlier ones; true when a new file was begun for it.
    ///
    /// # Errors
    /// A failed disk or storage file. The bag is then to be closed; it takes no more messages.
    #[inline]
    pub fn write(&mut self, topic: BagTopic, message: StoredMessage<'_>) -> Result<bool, BagError> {
        self.write_of((topic, None), message, || None)
    }

    /// As [`Self::write`], for a message of one of the topic's publishers: where the storage can distinguish
    /// publishers, each has its own channel. `who` is called once for each file.
    ///
    /// # Errors
    /// As [`Self::write`].
    #[inline]
    pub fn write_of(
        &mut self,
        (topic, publisher): (BagTopic, Option<PublisherSlot>),
        message: StoredMessage<'_>,
        who: impl FnOnce() -> Option<PublisherInfo>,
    ) -> Result<bool, BagError> {
        let payload_bytes = message.payload.len();
        let current = self.current.as_ref();
        let end_bytes = self.end_bytes();
        let length = || current.map_or(0, |current| current.writer.bytes_written() + end_bytes);
        let split = self.split.is_due(message.log_time, payload_bytes, length);
        if split {
            self.split()?;
        }
        let Some(current) = &mut self.current else {
            return Err(BagError::UnknownTopic { index: topic.0 });
        };
        let channel = match current.channels.find(topic, publisher) {
            Found::Channel(channel) => channel,
            Found::New => self.new_channel(topic, publisher, who())?,
            Found::UnknownTopic => return Err(BagError::UnknownTopic { index: topic.0 }),
        };
        let Some(current) = &mut self.current else {
            return Err(BagError::UnknownTopic { index: topic.0 });
        };
        current.writer.write(&mut self.queue, channel, message)?;
        self.split.written(message.log_time, payload_bytes);
        Ok(split)
    }

    /// Continues in a new file; nothing waits for the old one to be closed.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn split(&mut self) -> Result<(), BagError> {
        if self.replace_vanished()? {
            return Ok(());
        }
        self.open_next()?;
        let records = self
            .end_records
            .as_ref()
            .map_or_else(Vec::new, |records| records(self.repeated_bytes_max()));
        self.finish_current(records, false)?;
        if let Some(next) = self.next.take() {
            self.begin_file(next)?;
        }
        self.write_metadata(false)?;
        self.settle()
    }

    fn open_next(&mut self) -> Result<(), BagError> {
        if self.next.is_none() {
            let name = self.file_name(self.files_begun);
            let path = self.queue_path(&name)?;
            let file = self.queue.create_file_ahead(&path, self.reserve_bytes());
            self.next = Some(NextFile { file, name });
        }
        Ok(())
    }

    /// Writes the end of the current file and hands it to the disk to be closed.
    fn finish_current(
        &mut self,
        records: Vec<(String, MetadataEntries)>,
        is_last: bool,
    ) -> Result<(), BagError> {
        let complete = if self.has_room_for_empty_channels(is_last) {
            self.add_empty_channels()
        } else {
            Ok(())
        };
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let summary = current.summary();
        let CurrentFile {
            mut writer,
            file,
            number,
            name,
            channels,
            ..
        } = current;
        let past = PastFile {
            name,
            number,
            summary,
            closing: Some(file),
            packing: match self.packer {
                Some(_) => Packing::Wanted,
                None => Packing::No,
            },
            is_torn: false,
        };
        let metadata = rosbag2_record(&self.own_metadata(&past));
        self.past.push_back(past);
        let mut closing: Vec<(&str, MetadataEntries)> = vec![(ROSBAG2_RECORD, metadata)];
        closing.extend(
            records
                .iter()
                .map(|(name, entries)| (name.as_str(), entries.clone())),
        );
        self.hand_over_last(&mut *writer, file)?;
        let finished = writer.finish(&mut self.queue, &closing)?;
        if let Some(past) = self.past.back_mut() {
            past.summary = channels.by_topic(finished);
        }
        complete
    }

    /// Advances what needs no message: compression, closing of old files, opening of the next. Cheap; called between batches.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn step(&mut self) -> Result<(), BagError> {
        self.queue.poll();
        if let Some(current) = &mut self.current {
            current.writer.step(&mut self.queue)?;
            if self.split.is_near() {
                self.open_next()?;
            }
        }
        self.settle()
    }

    /// Records which old files are closed, and removes those beyond the ring.
    fn settle(&mut self) -> Result<(), BagError> {
        self.settle_vanished();
        for past in &mut self.past {
            if let Some(file) = past.closing
                && self.queue.try_closed(file)?
            {
                past.closing = None;
            }
        }
        let packed = self.pack(false)?;
        let Some(files_max) = self.options.split.files_max else {
            return if packed {
                self.write_metadata(false)
            } else {
                Ok(())
            };
        };
        let begun = self.past.len() + usize::from(self.current.is_some());
        let surplus = begun.saturating_sub(files_max.max(1) as usize);
        let mut removed = packed;
        for _ in 0..surplus {
            if !self.remove_oldest(&format!("because {files_max} are kept"))? {
                break;
            }
            removed = true;
        }
        if removed {
            self.write_metadata(false)
        } else {
            Ok(())
        }
    }

    /// Gives closed files to the packer, and removes the plain files of those that are packed. True when a name has
    /// changed. With `wait`, waits until all are done. A file that cannot be packed stays unchanged: nothing is lost.
    fn pack(&mut self, wait: bool) -> Result<bool, BagError> {
        let Some(packer) = &self.packer else {
            return Ok(false);
        };
        for past in &mut self.past {
            if past.packing == Packing::Wanted && past.closing.is_none() {
                packer.submit(self.options.directory.join(&past.name));
                past.packing = Packing::AtWork;
            }
        }
        let mut changed = false;
        loop {
            let wait = wait && self.past.iter().any(|past| past.packing == Packing::AtWork);
            let Some(PackedFile { plain, result }) = packer.take_done(wait) else {
                return Ok(changed);
            };
            let is_it = |past: &&mut PastFile| self.options.directory.join(&past.name) == plain;
            let Some(past) = self.past.iter_mut().find(is_it) else {
                continue;
            };
            match result {
                Ok(()) => {
                    past.packing = Packing::Done;
                    changed = true;
                    self.folder.remove_file(&plain)?;
                }
                Err(error) => {
                    past.packing = Packing::No;
                    tracing::warn!("{} stays as it is: {error}", plain.display());
                }
            }
        }
    }

    /// Waits until all finished files are closed and the ring has its length. Only at the end: it waits for the disk.
    ///
    /// # Errors
    /// A failed disk.
    pub fn wait_settled(&mut self) -> Result<(), BagError> {
        for past in &mut self.past {
            if let Some(file) = past.closing {
                self.queue.wait_closed(file)?;
                past.closing = None;
            }
        }
        self.settle()?;
        self.pack(true)?;
        self.settle()
    }

    /// Messages in files that the ring has removed since the last call.
    pub fn take_removed(&mut self) -> Vec<TopicCount> {
        std::mem::take(&mut self.removed)
    }

    /// The file being written.
    pub fn current_path(&self) -> Option<PathBuf> {
        self.current
            .as_ref()
            .map(|current| self.options.directory.join(&current.name))
    }

    /// The number of the file being written; the first one is 0.
    #[inline]
    pub fn file_number(&self) -> Option<u32> {
        self.current.as_ref().map(|current| current.number)
    }

    /// The bag directory.
    pub fn directory(&self) -> &Path {
        &self.options.directory
    }

    /// Free bytes where the bag is.
    pub fn available_bytes(&self) -> Option<u64> {
        self.queue.available_bytes(&self.options.directory).ok()
    }

    /// Messages in the files that are finished.
    fn messages_by_topic(&self) -> Vec<TopicCount> {
        let mut by_topic = vec![0; self.topics.len()];
        for past in &self.past {
            for (sum, count) in by_topic.iter_mut().zip(&past.summary.channel_message_counts) {
                *sum += count;
            }
        }
        counts(&by_topic).collect()
    }

    /// Removes a file that was opened ahead and never needed.
    fn remove_next(&mut self) -> Result<(), BagError> {
        let Some(next) = self.next.take() else {
            return Ok(());
        };
        let closed = self
            .queue
            .close_file(next.file, 0)
            .and_then(|()| self.queue.wait_closed(next.file));
        self.folder
            .remove_file(&self.options.directory.join(&next.name))?;
        Ok(closed?)
    }

    fn write_last_metadata(&mut self, custom_data: &BTreeMap<String, String>) -> Result<(), BagError> {
        let text = self.metadata(custom_data).to_yaml();
        Ok(self
            .folder
            .replace_text(&self.options.directory.join("metadata.yaml"), &text, true)?)
    }

    /// Writes `metadata.yaml` with what is known so far, so that a killed recording has one that names all files.
    fn write_metadata(&mut self, durable: bool) -> Result<(), BagError> {
        let state = BTreeMap::from([(STATE_KEY.to_owned(), "recording".to_owned())]);
        let text = self.metadata(&state).to_yaml();
        Ok(self
            .folder
            .replace_text(&self.options.directory.join("metadata.yaml"), &text, durable)?)
    }

    fn metadata(&self, more_custom_data: &BTreeMap<String, String>) -> BagMetadata {
        let summary = self.current.as_ref().map(CurrentFile::summary);
        let current = self.current.as_ref().map(|current| current.name.as_str());
        let mut files: Vec<FileFacts<'_>> = self
            .past
            .iter()
            .map(|past| FileFacts {
                name: &past.name,
                summary: &past.summary,
                is_packed: past.packing == Packing::Done,
            })
            .collect();
        if let (Some(name), Some(summary)) = (current, &summary) {
            files.push(FileFacts {
                name,
                summary,
                is_packed: false,
            });
        }
        let mut custom_data = self.options.custom_data.clone();
        custom_data.extend(more_custom_data.clone());
        let facts = BagFacts {
            storage_id: self.options.storage.id(),
            compression: self.options.compression.mode,
            custom_data: &custom_data,
            ros_distro: &self.options.ros_distro,
        };
        bag_metadata(&facts, self.topics.iter().map(|topic| &topic.topic), &files)
    }
}

/// The record that carries rosbag2's metadata.
pub(crate) fn rosbag2_record(metadata: &BagMetadata) -> MetadataEntries {
    MetadataEntries::from([(ROSBAG2_KEY.to_owned(), metadata.to_yaml_without_wrapper())])
}

/// Topics of which there is at least one message.
fn counts(by_topic: &[u64]) -> impl Iterator<Item = TopicCount> + '_ {
    let count = |(index, &messages)| TopicCount {
        topic: BagTopic(index as u32),
        messages,
    };
    by_topic
        .iter()
        .enumerate()
        .map(count)
        .filter(|count| count.messages > 0)
}
