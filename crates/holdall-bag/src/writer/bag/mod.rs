//! The writer of one bag: adds topics, writes messages in order, splits into new files, and closes without losing the first error.

mod channels;
mod classes;
mod close;
mod content;
mod current;
mod durable;
mod expired;
mod files;
mod handed;
mod latched;
mod metadata;
mod open;
mod options;
mod past;
mod place;
mod room;
mod topics;
mod torn;
mod vanished;

pub use channels::PublisherSlot;
pub use content::TopicCount;
pub use latched::LatchedMessage;
pub use metadata::{ROSBAG2_RECORD, STATE_KEY, rosbag2_record};
pub use options::{
    BagEnd, BagOptions, BagTopic, ClosedBag, EndRecords, OpenDisk, TornFile, UndefinedTopic, bag_places,
    os_disk, sealed_os_disk, why_not_encrypted,
};

use super::{BagFolder, CompressionMode, SteadyOf, UploadedFiles, WriteError, pack_files::FilePacker};
use channels::Found;
use classes::Classes;
use content::{by_place, counts};
use current::Made;
use durable::PendingSync;
use holdall_io::disk::WritePath;
use holdall_model::{
    metadata::MEMORY_KEY,
    qos::QosProfile,
    time::Timestamp,
    topic::{MessageDefinition, PublisherInfo},
    topic_class::NextMessage,
};
use holdall_storage::{
    StorageError,
    writer::{ChannelInfo, MetadataEntries, StoredMessage},
};
use latched::{Latched, LatchedState};
use past::PastFiles;
use place::Place;
use room::Room;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};
use topics::Topics;
use vanished::Vanished;

/// Files that may become this long carry checkpoints of their index, when the options request them.
const CHECKPOINTS_FROM_BYTES: u64 = 64 << 20;

/// Writes one bag. Owned by one thread (or a simulator's step); waits for the disk only when no block is free.
pub struct BagWriter {
    place: Place,
    topics: Topics,
    files: Classes,
    past: PastFiles,
    vanished: Vanished,
    /// The sync that was requested last and has not ended.
    sync: Option<PendingSync>,
    /// Files that were finished because the next one was begun, and the next ones, since [`BagWriter::take_splits`].
    splits: Vec<(PathBuf, PathBuf)>,
    /// `None` unless files repeat latched messages.
    latched: Option<Box<Latched>>,
    /// Set if no program can see the bag before its end: `metadata.yaml` is then written once.
    is_unseen: bool,
    /// See [`BagWriter::keep_together`].
    run_bytes: Option<usize>,
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
        let packs_files = options.compression.mode == CompressionMode::File;
        if packs_files && options.storage.is_directory() {
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
        let packer = packs_files
            .then(|| FilePacker::start(&options.compression))
            .transpose()
            .map_err(WriteError::Threads);
        let opened = packer.and_then(|packer| Ok((packer, Place::open_disk(&options, open_disk)?)));
        let (packer, queue) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                folder.discard(&options.directory);
                return Err(error);
            }
        };
        let files = Classes::new(&options.split);
        let mut bag = Self {
            place: Place::new(options, queue, folder),
            topics: Topics::default(),
            files,
            past: PastFiles::new(packer),
            vanished: Vanished::default(),
            sync: None,
            splits: Vec::new(),
            latched: None,
            is_unseen: false,
            run_bytes: None,
        };
        let begun = bag.files.begin_first(&mut bag.place);
        if let Err(error) = begun.and_then(|()| bag.write_metadata(false)) {
            // Files open in it are closed first.
            bag.files.current = None;
            bag.place.queue.drain();
            bag.place.folder.discard(bag.directory());
            return Err(error);
        }
        Ok(bag)
    }

    /// Writes `metadata.yaml` at the end only, for a bag that appears complete or not at all: the file lists all topics and all
    /// files, and would be written anew for each file.
    pub fn set_unseen(&mut self) {
        self.is_unseen = true;
    }

    /// Sets the records at the end of files of the first class that are closed before its last one.
    pub fn set_end_records(&mut self, end_records: EndRecords) {
        self.files.choose(0);
        self.files.set_end_records(end_records);
    }

    /// Repeats the messages that `state` returns at the beginning of each file.
    pub fn set_latched(&mut self, state: LatchedState) {
        self.latched = Some(Box::new(Latched::new(state)));
    }

    /// From now on a full disk costs only files that are uploaded.
    pub fn keep_until_uploaded(&mut self, uploaded: UploadedFiles) {
        self.past.keep_until_uploaded(uploaded);
    }

    /// Measures the span of a file by a clock that does not jump: `steady` gives the time on it of a message.
    pub fn measure_spans_by(&mut self, steady: SteadyOf) {
        for files in self.files.each_mut() {
            files.split.measure_by(Arc::clone(&steady));
        }
    }

    /// Puts a named text record into the current file of the first class, after the messages written so far; false if no file is open.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn write_record(&mut self, name: &str, entries: &MetadataEntries) -> Result<bool, WriteError> {
        self.files.choose(0);
        let Some(current) = &mut self.files.current else {
            return Ok(false);
        };
        current.write_record(&mut self.place.queue, name, entries)?;
        self.files.split.reread_length();
        Ok(true)
    }

    /// Adds a topic. Later files have it too, from its first message in them on or at their end.
    ///
    /// # Errors
    /// More topics than the storage can number.
    pub fn add_topic(&mut self, info: ChannelInfo) -> Result<BagTopic, WriteError> {
        self.files.add_topic(&info.topic);
        Ok(self.topics.add(info))
    }

    /// Sets the definition of a topic that was added without. Where the storage can have several channels of a topic, the current file gets
    /// a new one with it, at the topic's next message or at the end; other storages store it from the next file on. Returns the topic's
    /// name when the definition is news.
    pub fn set_definition(&mut self, topic: BagTopic, definition: MessageDefinition) -> Option<&str> {
        if !self.topics.define(topic, definition)? {
            return None;
        }
        self.renew(topic);
        let info = self.topics.get(topic).ok()?;
        Some(info.topic.name.as_str())
    }

    /// Adds the QoS that a publisher of a topic offers; false if that is known. The current file has it as [`Self::set_definition`] puts a
    /// definition there.
    pub fn add_offer(&mut self, topic: BagTopic, qos: QosProfile) -> bool {
        let is_new = self.topics.add_offer(topic, qos);
        if is_new {
            self.renew(topic);
        }
        is_new
    }

    /// Lets the current files with messages of a topic have a new channel of it.
    fn renew(&mut self, topic: BagTopic) {
        if self.place.options.storage.keeps_publishers() {
            self.files.each_mut().for_each(|files| files.renew(topic));
        }
    }

    /// Topics without a definition, with their types, by name.
    pub fn undefined_topics(&self) -> Vec<UndefinedTopic> {
        self.topics.undefined()
    }

    /// Writes a message after all earlier ones; true if a new file was begun for it.
    ///
    /// # Errors
    /// A failed disk or storage file. The bag must then be closed; it accepts no more messages.
    #[inline]
    pub fn write(&mut self, topic: BagTopic, message: StoredMessage<'_>) -> Result<bool, WriteError> {
        self.write_of(topic, None, message, || None)
    }

    /// As [`Self::write`], for a message of one of the topic's publishers: where the storage can distinguish
    /// publishers, each has its own channel. `who` is called once for each file.
    ///
    /// # Errors
    /// As [`Self::write`].
    #[inline]
    pub fn write_of(
        &mut self,
        topic: BagTopic,
        publisher: Option<PublisherSlot>,
        message: StoredMessage<'_>,
        who: impl FnOnce() -> Option<PublisherInfo>,
    ) -> Result<bool, WriteError> {
        let payload_bytes = message.payload.len();
        self.files.choose_for_next(NextMessage {
            topic: topic.0,
            log_time: message.log_time,
            payload_bytes,
            run_bytes: self.run_bytes,
        });
        let (files, topics) = self.files.chosen_mut();
        let end_bytes = || {
            let room = Room {
                topics: &self.topics,
                bytes_max: self.place.bytes_max(),
                is_only_file: self.place.has_only_first(),
            };
            room.end_bytes()
        };
        let run_bytes = self.run_bytes.unwrap_or(payload_bytes);
        let is_due = self.run_bytes != Some(0) && files.is_due(message.log_time, run_bytes, end_bytes);
        if is_due || !files.is_begun() {
            return self.write_into_next(is_due, topic, publisher, message, who);
        }
        let Some(current) = &mut files.current else {
            return Err(WriteError::Failed);
        };
        let channel = match current.find(topic, publisher) {
            Found::Channel(channel) => channel,
            Found::New => {
                let of_class = (&self.topics, topics);
                if let Some(latched) = &mut self.latched
                    && latched.repeat(current, &mut self.place, of_class, message.log_time)?
                {
                    files.split.reread_length();
                }
                current.new_channel(&mut self.place, &self.topics, topic, publisher, who())?
            }
            Found::UnknownTopic => return Err(WriteError::UnknownTopic { index: topic.0 }),
        };
        current.write(&mut self.place.queue, channel, message)?;
        files.split.written(message.log_time, payload_bytes);
        self.files.note_written();
        Ok(false)
    }

    /// Writes a message that needs another file than the chosen one, which is full, or the first of its class.
    #[cold]
    fn write_into_next(
        &mut self,
        is_due: bool,
        topic: BagTopic,
        publisher: Option<PublisherSlot>,
        message: StoredMessage<'_>,
        who: impl FnOnce() -> Option<PublisherInfo>,
    ) -> Result<bool, WriteError> {
        if is_due {
            self.split_class()?;
        } else {
            self.begin_class()?;
        }
        // A file without messages is never due.
        self.write_of(topic, publisher, message, who)?;
        Ok(is_due)
    }

    /// The next messages need a file with room for this many payload bytes; with 0 the one of the message before.
    pub fn keep_together(&mut self, run_bytes: Option<usize>) {
        self.run_bytes = run_bytes;
    }

    /// A slot now belongs to another publisher.
    pub fn forget_publisher(&mut self, topic: BagTopic, slot: PublisherSlot) {
        self.files.choose_for(topic);
        if let Some(current) = &mut self.files.current {
            current.forget(topic, slot);
        }
    }

    /// Advances work that needs no message: compression, closing of old files, opening of the next. Cheap; called between batches.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn step(&mut self) -> Result<(), WriteError> {
        self.place.queue.poll();
        for files in self.files.each_mut() {
            if let Some(current) = &mut files.current {
                current.step(&mut self.place.queue)?;
                if files.split.is_near() {
                    files.open_next(&mut self.place)?;
                }
            }
        }
        self.settle()
    }

    /// Hands everything written so far to the disk and requests a sync, without waiting for it.
    /// [`Self::is_durable`] returns whether it has ended; a call before that replaces the request.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn make_durable(&mut self) -> Result<(), WriteError> {
        self.replace_vanished_in_all(Made::Perhaps)?;
        let mut tokens = Vec::new();
        for files in self.files.each_mut() {
            if let Some(current) = &mut files.current {
                tokens.extend(current.make_durable(&mut self.place.queue)?);
            }
        }
        self.sync = Some(PendingSync::new(tokens, &self.past));
        Ok(())
    }

    /// Whether everything that was written before the last [`Self::make_durable`] is found after a power cut.
    ///
    /// # Errors
    /// A failed disk: data written since the last successful sync may be gone.
    pub fn is_durable(&mut self) -> Result<bool, WriteError> {
        self.place.queue.poll();
        let Some(sync) = &mut self.sync else {
            return Ok(true);
        };
        let is_done = sync.is_done(&self.place.queue, &self.past)?;
        if is_done {
            self.sync = None;
        }
        Ok(is_done)
    }

    /// Announces that [`BagWriter::handed`] will be called; call it before the first message.
    pub fn track_handed(&mut self) {
        self.files.track_handed_in_all();
    }

    /// Length of the prefix of the messages written so far that the system has, see
    /// [`StorageWriter::handed`](holdall_storage::writer::StorageWriter::handed).
    pub fn handed(&mut self) -> u64 {
        self.files.handed_in_all(&self.place.queue)
    }

    /// Gives everything written so far to the system, without a sync.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn hand_over(&mut self) -> Result<(), WriteError> {
        let mut currents = self.files.each_mut().filter_map(|files| files.current.as_mut());
        currents.try_for_each(|current| current.hand_over(&mut self.place.queue))
    }

    /// Gives large messages to the system as soon as that costs little; false if the caller should try
    /// again.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn hand_over_large(&mut self) -> Result<bool, WriteError> {
        let mut is_done = true;
        for current in self.files.each_mut().filter_map(|files| files.current.as_mut()) {
            is_done &= current.hand_over_large(&mut self.place.queue)?;
        }
        Ok(is_done)
    }

    /// Removes the oldest finished file to make room, and returns its length in bytes; `None` if there is
    /// none.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove_oldest_file(&mut self) -> Result<Option<u64>, WriteError> {
        if !self.is_oldest_uploaded() {
            return Ok(None);
        }
        let bytes = self.past.oldest_bytes();
        if !self.remove_oldest("to make room on the disk")? {
            return Ok(None);
        }
        // The text before the removal may have found no room, which a later one makes good.
        self.write_metadata(false).map(|()| bytes)
    }

    /// Whether the oldest file may be removed as far as an upload is concerned.
    pub fn is_oldest_uploaded(&self) -> bool {
        self.past.is_oldest_uploaded(&self.place)
    }

    /// Whether a finished file will be there to be removed as soon as the disk has closed it.
    pub fn has_removable_file(&self) -> bool {
        self.past.has_removable()
    }

    /// Compares the file being written with the file of that name, before the bag is closed: a file with messages that was never found under
    /// its name is one that was deleted before it was looked up. Waits for the disk when there is such a file. A file that vanished is
    /// dropped with its messages, which [`Self::take_vanished`] reports, and a new one is begun; true when that was done.
    ///
    /// # Errors
    /// A new file that cannot be begun.
    pub fn replace_vanished_at_end(&mut self) -> Result<bool, WriteError> {
        let is_unidentified = self.files.currents().any(|it| it.is_unidentified());
        if self.place.queue.makes_files() && is_unidentified {
            self.place.queue.drain();
            return self.replace_vanished_in_all(Made::Surely);
        }
        self.replace_vanished_in_all(Made::Perhaps)
    }

    /// As [`Self::replace_vanished_at_end`], after an error of the storage or the disk: a database notices before the next check that its
    /// file is gone. A file that could not be made did not vanish. Waits for the disk.
    ///
    /// # Errors
    /// As [`Self::replace_vanished_at_end`].
    pub fn replace_vanished_after(&mut self, error: &WriteError) -> Result<bool, WriteError> {
        let is_bug = matches!(error, WriteError::Internal);
        if is_bug || !self.place.queue.makes_files() {
            return Ok(false);
        }
        self.place.queue.drain();
        let queue = &self.place.queue;
        if self.files.currents().any(|current| current.was_never_made(queue)) {
            return Ok(false);
        }
        self.replace_vanished_in_all(Made::Surely)
    }

    /// Messages in files that the ring has removed since the last call.
    pub fn take_expired(&mut self) -> Vec<TopicCount> {
        self.past.expired().take()
    }

    /// The last log time of messages that the ring has removed: what is later is still in the bag.
    pub fn expired_until(&mut self) -> Option<Timestamp> {
        self.past.expired().until()
    }

    /// Messages in files that vanished since the last call.
    pub fn take_vanished(&mut self) -> Vec<TopicCount> {
        self.vanished.take()
    }

    /// Files that are whole, durable and under their last name since the last call, in order.
    pub fn take_complete(&mut self) -> Vec<PathBuf> {
        self.past.take_complete(&self.place)
    }

    /// Messages that the files repeat.
    pub fn repeated_by_topic(&self) -> Vec<TopicCount> {
        let past = self.past.iter().map(|past| &past.content.head);
        let currents = self.files.currents().map(|current| current.head());
        let repeated = past.chain(currents).flat_map(|head| &head.topics);
        counts(&by_place(self.topics.all().len(), repeated)).collect()
    }

    /// Bytes of all files, were the open ones closed now; files that are removed again count, packed files with their length before.
    pub fn length(&self) -> u64 {
        let end_bytes = self.room().end_bytes();
        let lengths = self
            .files
            .currents()
            .map(|current| current.bytes_written() + end_bytes);
        self.past.bytes() + lengths.sum::<u64>()
    }

    /// Whether a file that takes messages has any.
    pub fn has_messages(&self) -> bool {
        self.files.has_messages()
    }

    /// The file being written, that of the first class.
    pub fn current_path(&self) -> Option<PathBuf> {
        let current = self.files.first_current();
        current.map(|current| self.place.path_of(current.name()))
    }

    /// Each file that was finished since the last call because the next one was begun, and that one.
    pub fn take_splits(&mut self) -> Vec<(PathBuf, PathBuf)> {
        std::mem::take(&mut self.splits)
    }

    /// The way that its files take to the disk.
    pub fn write_path(&self) -> WritePath {
        self.place.queue.write_path()
    }

    /// Bytes that the disk has taken, as [`DiskQueue::written_bytes`] counts them.
    pub fn written_bytes(&self) -> Arc<AtomicU64> {
        self.place.queue.written_bytes()
    }

    /// The number of the file that got the last message; the first one is 0.
    #[inline]
    pub fn file_number(&self) -> Option<u32> {
        self.files.current.as_ref().map(|current| current.number())
    }

    /// The bag directory.
    pub fn directory(&self) -> &Path {
        &self.place.options.directory
    }

    /// Identity that distinguishes its directory from copies of it; `None` if unknown.
    pub fn directory_identity(&self) -> Option<String> {
        self.place.folder.directory_identity(self.directory())
    }

    /// Free bytes where the bag is.
    pub fn available_bytes(&self) -> Option<u64> {
        self.place.queue.available_bytes(self.directory()).ok()
    }
}
