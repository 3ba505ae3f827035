//! Opens a bag: a directory with or without valid `metadata.yaml`, or a single storage file.

use super::{
    error::BagError,
    file::{self, Payloads, SharedReader, UnpackedFiles},
    listing,
    rebuild::Rebuild,
    set::{BagSet, MessageFilter, Messages},
};
use crate::{live::writer_of_bag, rescue, writer::STATE_KEY};
use holdall_io::lock::Holder;
use holdall_model::{
    loss::{
        LossStage,
        ledger::{CHECKPOINT_RECORD, LEDGER_CUSTOM_KEY, LEDGER_KEY, LEDGER_RECORD, Ledger},
    },
    metadata::{BagMetadata, FileInformation},
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{
    Storage,
    chunks::ChunkStorage,
    compression::{CompressionMode, FORMATS, is_packed_name, packed_name, unpacked_name},
    readable_storages, storage_by_magic, storage_of_directory,
};
use std::{
    collections::{BTreeMap, HashSet},
    fmt, fs, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// The file that describes a bag, in its directory.
const METADATA_FILE: &str = "metadata.yaml";

/// Longest metadata file that is read; that of a bag of 100 000 files has about 20 MB, and parsing needs
/// three times as much memory.
pub(crate) const METADATA_BYTES_MAX: u64 = 64 << 20;

/// How ROS 1 messages are presented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ros1View {
    /// Messages of ROS 1 bags as ROS 2 messages (types `pkg/msg/Type`, payloads in CDR, definitions in ROS
    /// 2's format); those in files of ROS 2's storages as stored.
    #[default]
    BagsConverted,
    /// All as ROS 2 messages, including those that an MCAP file stores in ROS 1 form.
    AllConverted,
    /// All as stored: types `pkg/Type`, serialization `ros1`.
    AsStored,
}

/// One storage file of a bag.
#[derive(Clone)]
pub struct BagFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Lower bound of its log times; `None` if unknown.
    pub(super) earliest: Option<Timestamp>,
    /// True for a file that is known to have no messages.
    pub(super) empty: bool,
    /// Whether each payload is compressed (rosbag2's message compression).
    pub(super) payloads: Payloads,
    /// Kept from opening the bag.
    pub(super) reader: Option<SharedReader>,
    /// The bag's packed files that are currently unpacked.
    pub(super) unpacked: UnpackedFiles,
    pub(super) view: Ros1View,
}

impl BagFile {
    /// The file's reader, which returns payloads as they were sent: it undoes rosbag2's file and message
    /// compression.
    ///
    /// Messages of ROS 1 are presented in the view that the bag was opened with.
    ///
    /// A packed file is first unpacked into a temporary directory; its bag is not changed.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn open(&self) -> Result<SharedReader, BagError> {
        let opened = match &self.reader {
            Some(reader) => return Ok(Arc::clone(reader)),
            None if self.is_packed() => self.unpacked.open(&self.path, self.payloads)?,
            None => file::open(&self.path, self.payloads)?,
        };
        Ok(file::in_view(opened, self.view).0)
    }

    /// True for a file of rosbag2's file compression: opening it takes the time to unpack it.
    pub fn is_packed(&self) -> bool {
        is_packed_name(&self.path)
    }

    /// The file's storage, by its first bytes: a directory without metadata may have files of several
    /// storages. `None` for a directory, and for bytes that no storage knows.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn storage(&self) -> Result<Option<&'static dyn Storage>, BagError> {
        // A storage may be a directory, and what was found in a killed recorder's memory is no file.
        let is_file = self.path.is_file() || self.reader.is_none();
        if !is_file || self.path.is_dir() {
            return Ok(None);
        }
        Ok(storage_by_magic(&file::begins_with(&self.path)?))
    }

    /// True when each payload in the file is compressed (rosbag2's message compression).
    pub fn has_packed_payloads(&self) -> bool {
        self.payloads == Payloads::Packed
    }
}

impl BagFile {
    fn ledger(&self, record: &str) -> Result<Option<Ledger>, BagError> {
        let reader = self.open()?;
        let entries = reader.summary().last_metadata(record);
        let text = entries.and_then(|entries| entries.get(LEDGER_KEY));
        text.map(|text| parse_ledger(&self.path, text)).transpose()
    }
}

fn parse_ledger(path: &Path, text: &str) -> Result<Ledger, BagError> {
    Ledger::from_json(text).map_err(|error| BagError::Unsupported {
        path: path.to_owned(),
        what: "its loss ledger".to_owned(),
        reason: error.to_string(),
    })
}

impl fmt::Debug for BagFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BagFile")
            .field("path", &self.path)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Messages that a recording lost, by topic and stage; topics without a loss are absent.
pub type LostByTopic = BTreeMap<String, BTreeMap<LossStage, u64>>;

/// A bag that can be read. Opening one reads its metadata only, unless that has to be rebuilt.
#[derive(Clone, Debug)]
pub struct BagReader {
    path: PathBuf,
    metadata: BagMetadata,
    files: Vec<BagFile>,
    notices: Vec<String>,
    /// The process that was recording the bag when it was opened.
    writer: Option<Holder>,
    /// Only messages within these bounds are read.
    bounds: (Option<Timestamp>, Option<Timestamp>),
}

impl BagReader {
    /// Opens a bag directory or a single storage file.
    ///
    /// Missing or damaged metadata is rebuilt in memory from the storage files, with a notice in
    /// [`BagReader::notices`].
    /// A ROS 1 bag is presented as one of ROS 2: its messages are converted while they are read.
    ///
    /// # Errors
    /// A path that is not a bag, a named file that is missing or outside the bag, or no readable storage
    /// file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BagError> {
        Self::open_with(path.as_ref(), Ros1View::default())
    }

    /// All messages in the order of their log times. For some topics, a range of time or several bags see [`BagSet`].
    pub fn messages(&self) -> Messages {
        BagSet::from(vec![self.clone()]).messages(&MessageFilter::default())
    }

    /// The topics, with all channels of a topic as one.
    pub fn topics(&self) -> Vec<TopicInfo> {
        BagSet::from(vec![self.clone()]).topics()
    }

    /// As [`BagReader::open`], with ROS 1 messages shown as `view` selects.
    ///
    /// # Errors
    /// As [`BagReader::open`].
    pub fn open_with(path: &Path, view: Ros1View) -> Result<Self, BagError> {
        // Checked first: a recorder that has exited by now has written the metadata that is read next.
        Self::open_of(path, view, writer_of_bag(path))
    }

    /// As [`BagReader::open`], for a bag that this process has locked.
    pub(crate) fn open_locked(path: &Path) -> Result<Self, BagError> {
        Self::open_of(path, Ros1View::default(), None)
    }

    fn open_of(path: &Path, view: Ros1View, writer: Option<Holder>) -> Result<Self, BagError> {
        let about = fs::metadata(path).map_err(|source| io_error("open", path, source))?;
        if about.is_dir() && (storage_of_directory(path).is_none() || path.join(METADATA_FILE).exists()) {
            Self::open_directory(path, view, writer)
        } else {
            // A single storage file is a bag of its own, in any directory.
            Self::rebuilt(path, &[path.to_owned()], view, writer)
        }
    }

    /// Opens a bag directory by its storage files alone, ignoring its metadata.
    ///
    /// # Errors
    /// No storage file, or no readable one.
    pub fn rebuild(path: &Path) -> Result<Self, BagError> {
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Err(BagError::NotABag {
                path: path.to_owned(),
                reason: listing::describe_without_storage(path)?,
            });
        }
        Self::rebuilt(path, &listed, Ros1View::default(), None)
    }

    /// The first notice about damage: a part of the bag cannot be read.
    pub fn damage(&self) -> Option<&str> {
        let is_damage =
            |notice: &&String| notice.contains(" is damaged at byte ") || notice.ends_with("left out");
        self.notices.iter().find(is_damage).map(String::as_str)
    }

    /// The process that is recording the bag: the bag is read as written until it was opened.
    pub fn writer(&self) -> Option<Holder> {
        self.writer
    }

    /// The same bag, restricted to messages logged within these bounds.
    #[must_use]
    pub fn within(mut self, start: Option<Timestamp>, end: Option<Timestamp>) -> Self {
        self.bounds = (start, end);
        self
    }

    /// The bounds set by [`BagReader::within`].
    pub fn bounds(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        self.bounds
    }

    /// The bag's metadata.
    pub fn metadata(&self) -> &BagMetadata {
        &self.metadata
    }

    /// What the bag's storage offers for chunks, by its metadata; `None` for a storage without chunks.
    pub fn chunks(&self) -> Option<&'static dyn ChunkStorage> {
        let id = &self.metadata.storage_identifier;
        readable_storages().find(|storage| storage.id() == id)?.chunks()
    }

    /// The bag's path, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its storage files in order.
    pub fn files(&self) -> &[BagFile] {
        &self.files
    }

    /// Length of all storage files in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Topics with messages in the first or last storage file that the metadata does not list, for example
    /// metadata that was written before a crash or by hand.
    ///
    /// # Errors
    /// One of these files cannot be read; called before work on the bag starts.
    pub fn unlisted_topics(&self) -> Result<Vec<TopicInfo>, BagError> {
        let mut unlisted: Vec<TopicInfo> = Vec::new();
        let key = |topic: &TopicInfo| (topic.name.clone(), topic.type_name.clone());
        let listed = self.metadata.topics_with_message_count.iter();
        let mut known: HashSet<_> = listed.map(|listed| key(&listed.topic_metadata)).collect();
        for file in self.outer_files() {
            let reader = file.open()?;
            for (place, channel) in reader.outline().channels.iter().enumerate() {
                let topic = &channel.info.topic;
                // Checked last: it may have to count.
                if !known.contains(&key(topic)) && reader.summary().channels[place].message_count > 0 {
                    known.insert(key(topic));
                    unlisted.push(topic.as_whole());
                }
            }
        }
        Ok(unlisted)
    }

    /// The first and the last storage file; a single one once.
    pub(super) fn outer_files(&self) -> impl Iterator<Item = &BagFile> {
        self.files
            .first()
            .into_iter()
            .chain(self.files.last().filter(|_| self.files.len() > 1))
    }

    /// Notices for the user about the state of the bag, one sentence each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The ledger that the recording stored in the bag: what was recorded and lost, by topic and publisher.
    /// `None` when another recorder wrote the bag, or holdall was killed before it could write one.
    ///
    /// # Errors
    /// The last storage file, which contains it, cannot be read.
    pub fn ledger(&self) -> Result<Option<Ledger>, BagError> {
        let Some(last) = self.files.last() else {
            return Ok(None);
        };
        last.ledger(LEDGER_RECORD)
    }

    /// The best account of losses in the bag: the [`BagReader::ledger`]; the sums in `metadata.yaml` of a
    /// recording that ended with a failure; or, after a crash, the ledger's last checkpoint, which is marked
    /// as one. `None` when another recorder wrote the bag.
    ///
    /// # Errors
    /// A storage file cannot be read, or its ledger is not valid.
    pub fn any_ledger(&self) -> Result<Option<Ledger>, BagError> {
        if let Some(ledger) = self.ledger()? {
            return Ok(Some(ledger));
        }
        if let Some(text) = self.metadata.custom_data.get(LEDGER_CUSTOM_KEY) {
            return parse_ledger(&self.path, text).map(Some);
        }
        for file in self.files.iter().rev() {
            if let Some(ledger) = file.ledger(CHECKPOINT_RECORD)? {
                return Ok(Some(ledger));
            }
        }
        Ok(None)
    }

    /// The losses in the ledger; `None` when there is no ledger.
    ///
    /// # Errors
    /// As [`BagReader::ledger`].
    pub fn lost(&self) -> Result<Option<LostByTopic>, BagError> {
        // The ledger's file would have to be unpacked; the metadata has the sums of the losses.
        if self.is_account_packed() {
            return Ok(self.lost_by_metadata());
        }
        let Some(ledger) = self.ledger()? else {
            return Ok(None);
        };
        let topics = ledger.topics.into_iter().map(|mut topic| {
            // What was left out on request is not a loss.
            topic.missing.remove(&LossStage::Policy);
            (topic.name, topic.missing)
        });
        Ok(Some(topics.filter(|(_, missing)| !missing.is_empty()).collect()))
    }

    /// True when the file with the ledger is packed, and not unpacked yet.
    pub(super) fn is_account_packed(&self) -> bool {
        self.files
            .last()
            .is_some_and(|last| last.is_packed() && last.reader.is_none())
    }

    /// The losses in the metadata's `custom_data`; `None` when it has none.
    fn lost_by_metadata(&self) -> Option<LostByTopic> {
        let data = &self.metadata.custom_data;
        data.get("holdall.lost")?;
        let topics = data.iter().filter_map(|(key, text)| {
            let topic = key.strip_prefix("holdall.lost.")?;
            let counts = text.split(' ').filter_map(|count| {
                let (stage, count) = count.split_once('=')?;
                let stage = LossStage::ALL.into_iter().find(|known| known.as_str() == stage)?;
                Some((stage, count.parse().ok()?))
            });
            Some((topic.to_owned(), counts.collect()))
        });
        Some(topics.collect())
    }

    /// The definitions of the bag's message types that are in its first and last files, each type once.
    ///
    /// # Errors
    /// One of these files cannot be read.
    pub fn definitions(&self) -> Result<Vec<MessageDefinition>, BagError> {
        definitions_of(self.outer_files())
    }

    /// The definitions of the bag's message types in all its files, each type once; opens every file.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub fn all_definitions(&self) -> Result<Vec<MessageDefinition>, BagError> {
        definitions_of(self.files.iter())
    }

    fn open_directory(path: &Path, view: Ros1View, writer: Option<Holder>) -> Result<Self, BagError> {
        let metadata_path = path.join(METADATA_FILE);
        let why = match read_metadata(&metadata_path) {
            Ok(metadata) if metadata.custom_data.contains_key(STATE_KEY) => {
                return Self::from_unfinished(path, metadata, view, writer);
            }
            Ok(metadata) if metadata.relative_file_paths.is_empty() => Unusable::NamesNothing,
            Ok(metadata) => return Self::from_metadata(path, metadata),
            Err(why) => why,
        };
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Err(match why {
                Unusable::NamesNothing => BagError::NotABag {
                    path: path.to_owned(),
                    reason: format!("its {METADATA_FILE} names no storage file, and none is there"),
                },
                Unusable::Missing => BagError::NotABag {
                    path: path.to_owned(),
                    reason: listing::describe_without_storage(path)?,
                },
                Unusable::Damaged(source) => BagError::Metadata {
                    path: metadata_path,
                    source,
                },
                Unusable::Unreadable(error) => error,
            });
        }
        let notice = match why {
            Unusable::Missing => format!("{} is missing", metadata_path.display()),
            Unusable::NamesNothing => format!("{} names no storage file", metadata_path.display()),
            Unusable::Damaged(error) => format!("{} is damaged: {error}", metadata_path.display()),
            Unusable::Unreadable(error) => error.to_string(),
        };
        let mut bag = Self::rebuilt(path, &listed, view, writer)?;
        let instead = match listed.len() {
            1 => "the storage file is read in its place".to_owned(),
            count => format!("{count} storage files are read in its place"),
        };
        bag.notices.insert(0, format!("{notice}; {instead}"));
        Ok(bag)
    }

    /// Metadata of a recording that was killed or is running: it lists files, but its counts are not final.
    fn from_unfinished(
        path: &Path,
        metadata: BagMetadata,
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Self, BagError> {
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Self::from_metadata(path, metadata);
        }
        let (rebuild, rescued) = match &writer {
            Some(_) => (Self::rebuild_of(path, &listed, view, writer)?, None),
            None => Self::rebuild_with_rescued(path, &listed, view)?,
        };
        let mut bag = if rebuild.is_unwritten() {
            Self::unwritten(path, metadata, writer)
        } else {
            Self::from_rebuild(path, rebuild, writer)?
        };
        if writer.is_none() {
            let notice = format!(
                "{}: its recording was not ended; what its files hold is shown instead of {METADATA_FILE}",
                path.display()
            );
            bag.notices.insert(0, notice);
        }
        bag.notices.extend(rescued);
        Ok(bag)
    }

    fn from_metadata(path: &Path, metadata: BagMetadata) -> Result<Self, BagError> {
        let unsupported = |what: String, reason: &str| BagError::Unsupported {
            path: path.to_owned(),
            what,
            reason: reason.to_owned(),
        };
        let payloads = payloads(&metadata).map_err(|reason| {
            let what = format!("a bag with compression {:?}", metadata.compression_format);
            unsupported(what, &reason)
        })?;
        let files = named_files(path, &metadata, payloads)?;
        let notices = files.iter().filter_map(file::cut_short).collect();
        Ok(Self {
            path: path.to_owned(),
            metadata,
            files,
            notices,
            writer: None,
            bounds: (None, None),
        })
    }

    /// Opens a bag's directory by its storage files alone, without messages that are still in memory.
    pub(crate) fn open_files(path: &Path) -> Result<Self, BagError> {
        Self::rebuilt(path, &listing::storage_files(path)?, Ros1View::default(), None)
    }

    /// As [`Self::rebuild_of`], with the messages that a killed recorder left in memory, and a notice of them.
    fn rebuild_with_rescued(
        path: &Path,
        listed: &[PathBuf],
        view: Ros1View,
    ) -> Result<(Rebuild, Option<String>), BagError> {
        let mut rebuild = Rebuild::new(view);
        for file in listed {
            rebuild.add(path, file, false)?;
        }
        let rescued = rescue::as_reader(path, rebuild.files());
        let notice = match rescued {
            Ok(Some(memory)) => {
                let count = memory.reader.summary().message_count;
                rebuild.add_in_memory(path, memory);
                Some(format!(
                    "{}: its recorder was killed; {count} messages that its files do not have are read from memory until \
                     `holdall repair` writes them or the machine is turned off",
                    path.display()
                ))
            }
            Ok(None) => None,
            Err(error) => Some(format!("messages in memory cannot be read: {error}")),
        };
        Ok((rebuild, notice))
    }

    /// The bag of a recording that ended, or is, before its first write: it has no message yet.
    fn unwritten(path: &Path, mut metadata: BagMetadata, writer: Option<Holder>) -> Self {
        metadata.files.clear();
        metadata.message_count = 0;
        Self {
            path: path.to_owned(),
            metadata,
            files: Vec::new(),
            notices: writer
                .map(|writer| live_notice(path, writer))
                .into_iter()
                .collect(),
            writer,
            bounds: (None, None),
        }
    }

    fn rebuilt(
        path: &Path,
        listed: &[PathBuf],
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Self, BagError> {
        Self::from_rebuild(path, Self::rebuild_of(path, listed, view, writer)?, writer)
    }

    /// Asks each storage file what it holds. The end of a file that a recorder is still writing is no damage.
    fn rebuild_of(
        path: &Path,
        listed: &[PathBuf],
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Rebuild, BagError> {
        let mut rebuild = Rebuild::new(view);
        for file in listed {
            let is_written = writer.is_some() && writer_of_bag(file).is_some();
            rebuild.add(path, file, is_written)?;
        }
        Ok(rebuild)
    }

    fn from_rebuild(path: &Path, rebuild: Rebuild, writer: Option<Holder>) -> Result<Self, BagError> {
        let (metadata, files, mut notices) = rebuild.finish()?;
        if let Some(writer) = writer {
            notices.insert(0, live_notice(path, writer));
        }
        Ok(Self {
            path: path.to_owned(),
            metadata,
            files,
            notices,
            writer,
            bounds: (None, None),
        })
    }
}

fn live_notice(path: &Path, writer: Holder) -> String {
    format!(
        "{} is being recorded by {writer}; what it holds now is read",
        path.display()
    )
}

fn definitions_of<'a>(files: impl Iterator<Item = &'a BagFile>) -> Result<Vec<MessageDefinition>, BagError> {
    let mut found = BTreeMap::new();
    for file in files {
        for channel in &file.open()?.outline().channels {
            let definition = &channel.info.definition;
            let known = found
                .entry(definition.type_name.clone())
                .or_insert_with(|| definition.clone());
            // A later file may have a definition that the first did not have.
            if known.encoding == DefinitionEncoding::Unknown {
                known.clone_from(definition);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Why a metadata file cannot be used.
enum Unusable {
    Missing,
    /// It is readable, but lists nothing.
    NamesNothing,
    Damaged(holdall_model::metadata::MetadataError),
    Unreadable(BagError),
}

fn read_metadata(path: &Path) -> Result<BagMetadata, Unusable> {
    let bytes = holdall_io::fs::read(path, METADATA_BYTES_MAX).map_err(|error| match error {
        error if error.is_not_found() => Unusable::Missing,
        error => Unusable::Unreadable(BagError::Disk(error)),
    })?;
    // Foreign bytes in a name must not make the rest unreadable.
    BagMetadata::from_yaml(&String::from_utf8_lossy(&bytes)).map_err(Unusable::Damaged)
}

/// How payloads are stored in the files of a bag with this metadata; one clause for an unknown compression.
pub(super) fn payloads(metadata: &BagMetadata) -> Result<Payloads, String> {
    let mode = CompressionMode::parse(&metadata.compression_mode)
        .ok_or_else(|| format!("there is no compression mode {:?}", metadata.compression_mode))?;
    let format = metadata.compression_format.as_str();
    if mode != CompressionMode::None && !FORMATS.contains(&format) {
        return Err(format!("expected one of {}", FORMATS.join(", ")));
    }
    Ok(match mode {
        CompressionMode::Message => Payloads::Packed,
        CompressionMode::None | CompressionMode::File => Payloads::Plain,
    })
}

/// A named file, or its packed or unpacked form if it was converted after the metadata was written.
fn present(path: PathBuf) -> io::Result<(PathBuf, fs::Metadata)> {
    let missing = match fs::metadata(&path) {
        Ok(about) => return Ok((path, about)),
        Err(error) => error,
    };
    let other = if is_packed_name(&path) {
        unpacked_name(&path)
    } else {
        packed_name(&path)
    };
    match fs::metadata(&other) {
        Ok(about) if missing.kind() == io::ErrorKind::NotFound => Ok((other, about)),
        _ => Err(missing),
    }
}

/// Finds the files that the metadata names, which must exist in the bag.
fn named_files(bag: &Path, metadata: &BagMetadata, payloads: Payloads) -> Result<Vec<BagFile>, BagError> {
    let mut found = Vec::new();
    let unpacked = UnpackedFiles::default();
    let mut missing = None;
    for (index, relative) in metadata.relative_file_paths.iter().enumerate() {
        let inside = Path::new(relative)
            .components()
            .all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
        if !inside || relative.is_empty() {
            return Err(BagError::PathOutside {
                bag: bag.to_owned(),
                found: relative.clone(),
            });
        }
        let path = bag.join(relative);
        match present(path.clone()) {
            Ok((path, about)) => {
                let information = metadata.files.get(index).filter(|file| same_file(file, relative));
                found.push(BagFile {
                    bytes: file::length(&path, &about),
                    path,
                    earliest: information.and_then(|file| file.starting_time),
                    empty: information.is_some_and(|file| file.message_count == 0),
                    payloads,
                    reader: None,
                    unpacked: unpacked.clone(),
                    view: Ros1View::default(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing.get_or_insert_with(|| PathBuf::from(relative));
            }
            Err(error) => return Err(io_error("open", &path, error)),
        }
    }
    match missing {
        None => Ok(found),
        Some(file) => Err(BagError::MissingFile {
            bag: bag.to_owned(),
            file,
            named: metadata.relative_file_paths.len(),
            present: found.len(),
        }),
    }
}

/// Both lists are in the same order; older metadata has paths with the bag's name as prefix, and only one of
/// them shows that a file is packed.
fn same_file(information: &FileInformation, relative: &str) -> bool {
    let name = |path: &str| unpacked_name(Path::new(path)).file_name().map(ToOwned::to_owned);
    name(&information.path) == name(relative)
}

/// The error of a system call.
pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> BagError {
    BagError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
