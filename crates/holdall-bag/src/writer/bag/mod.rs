//! The writer of one bag: adds topics, writes messages in order, splits into new files, and closes without losing the first error.

mod begin;
mod channels;
mod close;
mod content;
mod durable;
mod files;
mod handed;
mod latched;
mod metadata;
mod removed;
mod repeated;
mod ring;
mod vanished;

pub use channels::PublisherSlot;
pub use content::TopicCount;
pub use latched::LatchedMessage;
pub use metadata::{ROSBAG2_RECORD, STATE_KEY, rosbag2_record};
pub use removed::RemovedByRing;

use super::{
    BagFolder, CompressionMode, CompressionOptions, OsFolder, SplitOptions, SplitRule, UploadedFiles,
    WriteError, folder::FileIdentity, pack_files::FilePacker,
};
use channels::{FileChannels, Found};
use content::{FileContent, counts};
use durable::PendingSync;
use handed::Handed;
use holdall_io::{
    block::BlockPoolOptions,
    disk::{DiskError, FileId, WritePath},
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    sealed::{Seal, SealingDisk},
};
use holdall_model::topic::{DefinitionEncoding, MessageDefinition, PublisherInfo};
use holdall_storage::{
    Storage, StorageError, StorageOptions,
    compression::packed_name,
    reader::StorageReader,
    writer::{ChannelInfo, MetadataEntries, StorageWriter, StoredMessage},
};
use latched::{FileHead, Latched};
use removed::Removed;
use repeated::{by_place, channel_bytes, metadata_bytes};
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files that may become this long carry checkpoints of their index, when the options request them.
const CHECKPOINTS_FROM_BYTES: u64 = 64 << 20;

/// A topic of a bag: dense index from 0 in the order of [`BagWriter::add_topic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BagTopic(pub u32);

/// Opens the disk for a directory that was just made.
pub type OpenDisk = Box<dyn FnOnce(&Path) -> Result<DiskQueue, DiskError> + Send>;

pub use begin::why_not_encrypted;

/// The operating system's disk.
pub fn os_disk(mode: DiskMode, blocks: BlockPoolOptions) -> OpenDisk {
    Box::new(move |directory| DiskQueue::new(Box::new(OsDisk::open(directory, mode)?), blocks))
}

/// The operating system's disk, whose files are sealed.
pub fn sealed_os_disk(mode: DiskMode, blocks: BlockPoolOptions, seal: Seal) -> OpenDisk {
    Box::new(move |directory| {
        let disk = Box::new(OsDisk::open(directory, mode)?);
        DiskQueue::new(Box::new(SealingDisk::new(disk, seal)), blocks)
    })
}

/// The disk and the folder of a bag on the operating system's disk, encrypted if there is a seal.
pub fn bag_places(
    mode: DiskMode,
    blocks: BlockPoolOptions,
    seal: Option<Seal>,
) -> (OpenDisk, Box<dyn BagFolder>) {
    match seal {
        Some(seal) => (
            sealed_os_disk(mode, blocks, seal.clone()),
            Box::new(OsFolder::sealed(seal)),
        ),
        None => (os_disk(mode, blocks), Box::<OsFolder>::default()),
    }
}

/// Options of a new bag.
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
    /// rosbag2's own compression: closed files are packed here, payloads by the caller that writes messages (`PayloadPacking`).
    pub compression: CompressionOptions,
    /// Goes to `custom_data`.
    pub custom_data: BTreeMap<String, String>,
    /// Goes to `ros_distro`.
    pub ros_distro: Option<String>,
    /// The id of the memory with the messages not stored yet; in `custom_data` while the bag is being written.
    pub memory: Option<String>,
}

/// A file that the disk has failed.
pub struct TornFile {
    /// Its number, see [`BagWriter::file_number`].
    pub number: u32,
    /// Reads the part of it that the disk has kept; `None` if there is no such part.
    pub reader: Option<Arc<dyn StorageReader>>,
    /// The bag's topic of each of the reader's channels.
    pub topics: Vec<Option<BagTopic>>,
}

/// How the files of a bag ended, for a caller that keeps an account of its messages.
pub struct BagEnd {
    /// Files that may have lost data, because the disk has failed.
    pub torn: Vec<TornFile>,
    /// Messages in files that the ring has removed and [`BagWriter::take_removed`] has not returned.
    pub removed: Vec<TopicCount>,
    /// Messages that can be read, without repeated ones.
    pub messages: Vec<TopicCount>,
    /// Messages that files repeat.
    pub repeated: Vec<TopicCount>,
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
    /// Those of them that are whole and durable and that [`BagWriter::take_complete`] has not returned.
    pub complete: Vec<PathBuf>,
    /// Messages that can be read from these files, as the storage writers counted them (or, after a failure, as they were read back).
    pub messages: Vec<TopicCount>,
    /// Topics without a definition.
    pub undefined: Vec<UndefinedTopic>,
    /// Where the caller's account differs from that, one sentence each; the writer itself keeps no account.
    pub account_faults: Vec<String>,
    /// The first error, if any; everything that could be kept is in the files nevertheless.
    pub failure: Option<WriteError>,
}

/// The storage file being written.
struct CurrentFile {
    writer: Box<dyn StorageWriter>,
    file: FileId,
    number: u32,
    name: String,
    channels: FileChannels,
    head: FileHead,
    /// The file with this name must be this one.
    identity: FileIdentity,
    /// Steps since its beginning without a known identity.
    unidentified_steps: u64,
}

impl CurrentFile {
    fn content(&self) -> FileContent {
        FileContent::new(self.writer.summary(), &self.channels, self.head.clone())
    }
}

/// A file that was finished.
struct PastFile {
    name: String,
    number: u32,
    /// Which file it was while it was written.
    identity: FileIdentity,
    content: FileContent,
    /// `Some` until the disk has closed it.
    closing: Option<FileId>,
    packing: Packing,
    /// The disk failed while it was written: its contents must be read back.
    is_torn: bool,
    /// [`BagWriter::take_complete`] has returned it.
    is_announced: bool,
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
    /// Common prefix of the names of its files: the directory's name.
    stem: String,
    topics: Vec<ChannelInfo>,
    /// `None` after a failure.
    current: Option<CurrentFile>,
    /// Those of no file, with place for all topics, for the next file.
    next_channels: FileChannels,
    next: Option<NextFile>,
    past: VecDeque<PastFile>,
    split: SplitRule,
    files_begun: u32,
    /// The most bytes that all topics need in a metadata record.
    topics_bytes: u64,
    /// The most bytes that the channels of all topics need in a file.
    channels_bytes: u64,
    /// Bytes of finished files, including removed ones.
    past_bytes: u64,
    /// The sync that was requested last and has not ended.
    sync: Option<PendingSync>,
    /// Which messages the system has.
    handed: Handed,
    /// Messages in files that the ring has removed.
    removed: Removed,
    /// Messages in files that were deleted or replaced by others, not yet reported.
    vanished: Vec<TopicCount>,
    /// Such files until the disk has closed them.
    vanishing: Vec<FileId>,
    /// Set for file compression.
    packer: Option<FilePacker>,
    end_records: Option<EndRecords>,
    /// `None` unless files repeat latched messages.
    latched: Option<Box<Latched>>,
    /// Set if no program can see the bag before its end: `metadata.yaml` is then written once.
    is_unseen: bool,
    /// `None` unless a full disk costs uploaded files only.
    uploaded: Option<UploadedFiles>,
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
    ) -> Result<Self, WriteError> {
        // A short file is read through as quickly as its checkpoints.
        let is_long = options
            .split
            .bytes_max
            .is_none_or(|max| max >= CHECKPOINTS_FROM_BYTES);
        options.storage_options.index_checkpoints &= is_long;
        options.storage.check_options(&options.storage_options)?;
        let is_directory = options.storage.is_directory();
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
                WriteError::Exists {
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
            // Files open in it are closed first.
            bag.current = None;
            bag.queue.drain();
            bag.folder.discard(&directory);
            return Err(error);
        }
        Ok(bag)
    }

    /// Writes `metadata.yaml` at the end only, for a bag that appears complete or not at all: the file lists all topics and all
    /// files, and would be written anew for each file.
    pub fn set_unseen(&mut self) {
        self.is_unseen = true;
    }

    /// Sets the records at the end of files that are closed before the last one.
    pub fn set_end_records(&mut self, end_records: EndRecords) {
        self.end_records = Some(end_records);
    }

    /// Puts a named text record into the current file, after the messages written so far; false if no file is open.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn write_record(&mut self, name: &str, entries: &MetadataEntries) -> Result<bool, WriteError> {
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        current.writer.write_metadata(&mut self.queue, name, entries)?;
        self.split.reread_length();
        Ok(true)
    }

    /// Adds a topic. Later files have it too, from its first message in them on or at their end.
    ///
    /// # Errors
    /// More topics than the storage can number.
    pub fn add_topic(&mut self, info: ChannelInfo) -> Result<BagTopic, WriteError> {
        match &mut self.current {
            Some(current) => current.channels.add_topic(),
            None => self.next_channels.add_topic(),
        }
        self.topics_bytes += metadata_bytes(&info.topic);
        self.channels_bytes += channel_bytes(&info);
        self.split.reread_length();
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

    /// Writes a message after all earlier ones; true if a new file was begun for it.
    ///
    /// # Errors
    /// A failed disk or storage file. The bag must then be closed; it accepts no more messages.
    #[inline]
    pub fn write(&mut self, topic: BagTopic, message: StoredMessage<'_>) -> Result<bool, WriteError> {
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
    ) -> Result<bool, WriteError> {
        let payload_bytes = message.payload.len();
        let current = self.current.as_ref();
        let end_bytes = self.end_bytes();
        let length = || current.map_or(0, |current| current.writer.bytes_written() + end_bytes);
        let split = self.split.is_due(message.log_time, payload_bytes, length);
        if split {
            self.split()?;
        }
        let Some(current) = &mut self.current else {
            return Err(WriteError::Failed);
        };
        let channel = match current.channels.find(topic, publisher) {
            Found::Channel(channel) => channel,
            Found::New => {
                self.repeat_latched(message.log_time)?;
                self.new_channel(topic, publisher, who())?
            }
            Found::UnknownTopic => return Err(WriteError::UnknownTopic { index: topic.0 }),
        };
        let Some(current) = &mut self.current else {
            return Err(WriteError::Failed);
        };
        current.writer.write(&mut self.queue, channel, message)?;
        self.split.written(message.log_time, payload_bytes);
        Ok(split)
    }

    /// Advances work that needs no message: compression, closing of old files, opening of the next. Cheap; called between batches.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn step(&mut self) -> Result<(), WriteError> {
        self.queue.poll();
        if let Some(current) = &mut self.current {
            current.writer.step(&mut self.queue)?;
            if self.split.is_near() {
                self.open_next()?;
            }
        }
        self.settle()
    }

    /// The file being written.
    pub fn current_path(&self) -> Option<PathBuf> {
        self.current
            .as_ref()
            .map(|current| self.options.directory.join(&current.name))
    }

    /// The way that its files take to the disk.
    pub fn write_path(&self) -> WritePath {
        self.queue.write_path()
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
}
