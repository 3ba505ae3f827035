//! Opens a bag: a directory with or without valid `metadata.yaml`, or a single storage file.

mod account;
mod named;
mod open;

pub use account::LostByTopic;
pub use account::is_account_sum;

use super::{
    bag_file::BagFile,
    error::{ReadError, io_error},
    gone::Gone,
    listing,
    ros1::Ros1View,
};
use crate::{definitions::DefinitionFolders, live::writer_of_bag, reader::DAMAGED_KEY};
use holdall_io::{fs, lock::Holder, remote};
use holdall_model::{
    interface::bundle::Bundle,
    loss::ledger::LEDGER_CUSTOM_KEY,
    metadata::BagMetadata,
    repeated::BagRepeats,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{chunks::ChunkStorage, readable_storages, reader::FileCondition, storage_of_directory};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file that describes a bag, in its directory.
pub(in crate::reader) const METADATA_FILE: &str = "metadata.yaml";

/// A bag that can be read. Opening one reads its metadata only, unless that has to be rebuilt.
///
/// ```
/// use holdall::Bag;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # for name in ["/odom", "/tf"] {
/// #     let topic = writer.add_topic(name, "std_msgs/msg/UInt8")?;
/// #     writer.write(topic, holdall::Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])?;
/// # }
/// # writer.close()?;
/// let bag = Bag::open(&path)?;
/// assert_eq!(bag.topics().iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["/odom", "/tf"]);
/// assert_eq!(bag.messages().count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bag {
    path: PathBuf,
    /// Counts of what is read: without copies of messages that are elsewhere in the bag.
    pub(super) metadata: BagMetadata,
    pub(super) files: Vec<BagFile>,
    pub(super) repeats: BagRepeats,
    notices: Vec<String>,
    /// Messages that were in its files according to its metadata and are gone, if the two were compared.
    gone: Arc<Gone>,
    /// The process that was recording the bag when it was opened.
    writer: Option<Holder>,
    /// Only messages within these bounds are read.
    bounds: (Option<Timestamp>, Option<Timestamp>),
    /// Where definitions are searched that the bag lacks.
    folders: Arc<DefinitionFolders>,
}

impl Bag {
    /// Opens a bag directory or a single storage file, of this computer or at a URL (`s3://bucket/run7`; the process has to have
    /// installed a client, as `holdall-remote` is one).
    ///
    /// Missing or damaged metadata is rebuilt in memory from the storage files, with a notice in
    /// [`Bag::notices`].
    /// A ROS 1 bag is presented as one of ROS 2: its messages are converted while they are read.
    ///
    /// # Errors
    /// A path that is not a bag, a named file that is missing or outside the bag, or no readable storage
    /// file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_with(path.as_ref(), Ros1View::default())
    }

    /// As [`Bag::open`], with ROS 1 messages shown as `view` selects.
    ///
    /// # Errors
    /// As [`Bag::open`].
    pub fn open_with(path: &Path, view: Ros1View) -> Result<Self, ReadError> {
        let path = &*remote::clean(path);
        // Each opened bag lists its bucket again.
        remote::forget(path);
        // Checked first: a recorder that has exited by now has written the metadata that is read next.
        Self::open_of(path, view, writer_of_bag(path))
    }

    /// The bag with its present files, read in the same way.
    ///
    /// # Errors
    /// As [`Bag::open`].
    pub fn opened_again(&self) -> Result<Self, ReadError> {
        Ok(Self {
            bounds: self.bounds,
            folders: Arc::clone(&self.folders),
            ..Self::open(&self.path)?
        })
    }

    /// As [`Bag::open`], for a bag that this process has locked.
    pub fn open_locked(path: &Path) -> Result<Self, ReadError> {
        Self::open_of(path, Ros1View::default(), None)
    }

    fn open_of(path: &Path, view: Ros1View, writer: Option<Holder>) -> Result<Self, ReadError> {
        let about = fs::about(path).map_err(|error| io_error("open", path, error.into_io()))?;
        if about.is_dir()
            && (storage_of_directory(path).is_none()
                || fs::exists(&path.join(METADATA_FILE)).unwrap_or(false))
        {
            Self::open_directory(path, view, writer)
        } else {
            // A single storage file is a complete bag, in any directory.
            Self::rebuilt(path, &[path.to_owned()], view, writer)
        }
    }

    /// Opens a bag directory by its storage files alone, ignoring its metadata.
    ///
    /// # Errors
    /// No storage file, or no readable one.
    pub fn rebuild(path: &Path) -> Result<Self, ReadError> {
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Err(ReadError::NotABag {
                path: path.to_owned(),
                reason: listing::describe_without_storage(path)?,
            });
        }
        Self::rebuilt(path, &listed, Ros1View::default(), None)
    }

    /// The first notice about damage: a part of the bag cannot be read. If the files show none, what a tool found that read them.
    pub fn damage(&self) -> Option<&str> {
        let marked = self.metadata.custom_data.get(DAMAGED_KEY);
        self.damages().next().or(marked.map(String::as_str))
    }

    /// Whether a part of the bag cannot be read, by its notices, or, of files that have to be unpacked, by what they hold.
    pub fn is_damaged(&self) -> bool {
        let is_cut = |file: &BagFile| {
            let opened = file.open();
            opened.is_ok_and(|file| matches!(file.outline().condition, FileCondition::Damaged { .. }))
        };
        self.damage().is_some() || self.files.iter().filter(|file| file.is_packed()).any(is_cut)
    }

    /// The notices about damage: parts of the bag cannot be read.
    pub fn damages(&self) -> impl Iterator<Item = &str> {
        let is_damage =
            |notice: &&String| notice.contains(" is damaged at byte ") || notice.ends_with("left out");
        self.notices.iter().filter(is_damage).map(String::as_str)
    }

    /// The same bag with what is known of `described`, which was opened with its metadata: what is gone, and the account there.
    #[must_use]
    pub fn with_known_of(mut self, described: &Self) -> Self {
        self.gone = Arc::clone(&described.gone);
        let ledger = described.metadata.custom_data.get_key_value(LEDGER_CUSTOM_KEY);
        let ledger = ledger.map(|(key, text)| (key.clone(), text.clone()));
        self.metadata.custom_data.extend(ledger);
        self
    }

    /// Messages that were in its files according to its metadata and are gone.
    pub fn gone(&self) -> &Gone {
        &self.gone
    }

    /// The process that is recording the bag: the bag is read as written until it was opened.
    pub fn writer(&self) -> Option<Holder> {
        self.writer
    }

    /// The same bag with some of its files.
    pub fn with_files(&self, files: Vec<BagFile>) -> Self {
        Self {
            files,
            ..self.clone()
        }
    }

    /// The same bag, of which the first `files_max` files stay open from their first use on, for programs that read a message now and then.
    #[must_use]
    pub fn kept_open(mut self, files_max: usize) -> Self {
        for file in self.files.iter_mut().take(files_max) {
            file.kept = Some(Arc::default());
        }
        self
    }

    /// The same bag, restricted to messages logged within these bounds.
    #[must_use]
    pub fn within(mut self, start: Option<Timestamp>, end: Option<Timestamp>) -> Self {
        self.bounds = (start, end);
        self
    }

    /// The same bag with one of its storage files only; without messages if it has no such file. Counts in the metadata stay.
    #[must_use]
    pub fn with_file(mut self, number: usize) -> Self {
        self.files = self.files.into_iter().skip(number).take(1).collect();
        self
    }

    /// The same bag, whose missing definitions are searched in these folders.
    #[must_use]
    pub fn with_definitions(mut self, folders: Arc<DefinitionFolders>) -> Self {
        self.folders = folders;
        self
    }

    /// Where definitions are searched that the bag lacks.
    pub(crate) fn definition_folders(&self) -> &Arc<DefinitionFolders> {
        &self.folders
    }

    /// The bounds set by [`Bag::within`].
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
    pub fn unlisted_topics(&self) -> Result<Vec<TopicInfo>, ReadError> {
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

    /// The definitions of the bag's message types that are in its first and last files, each type once. A missing one comes from
    /// the folders of [`Bag::with_definitions`]; a type stored by name only gets the definition of ROS 2 Jazzy.
    ///
    /// # Errors
    /// One of these files cannot be read.
    pub fn definitions(&self) -> Result<Vec<MessageDefinition>, ReadError> {
        Ok(self.completed()?.into_iter().map(|(found, _)| found).collect())
    }

    /// Whether [`Bag::definitions`] has one that the files lack, so that files cannot be copied unread.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub fn has_other_definitions(&self) -> Result<bool, ReadError> {
        Ok(self.completed()?.iter().any(|(_, is_other)| *is_other))
    }

    /// Each definition, and whether it differs from the one in the files.
    fn completed(&self) -> Result<Vec<(MessageDefinition, bool)>, ReadError> {
        let hashes: HashMap<&str, &str> = (self.metadata.topics_with_message_count.iter())
            .map(|topic| &topic.topic_metadata)
            .map(|topic| (topic.type_name.as_str(), topic.type_description_hash.as_str()))
            .collect();
        let complete = |stored: MessageDefinition| {
            let hash = hashes.get(stored.type_name.as_str()).copied().unwrap_or_default();
            let other = match stored.encoding {
                _ if stored.is_name_only() => {
                    let found = self.folders.stored(&stored.type_name, hash);
                    found.or_else(|| bundled(&stored.type_name, hash))
                }
                DefinitionEncoding::Unknown => self.folders.stored(&stored.type_name, hash),
                _ => None,
            };
            let is_other = other.is_some();
            (other.unwrap_or(stored), is_other)
        };
        let mut stored = self.stored_definitions()?;
        // Files of the first versions have no place for definitions.
        let lacking = hashes
            .keys()
            .filter(|name| !stored.iter().any(|found| found.type_name == **name));
        let lacking: Vec<_> = lacking.map(|name| MessageDefinition::unknown(name)).collect();
        stored.extend(lacking);
        let found = stored.into_iter().map(complete);
        // An unknown one states nothing.
        let is_known = |(found, _): &(MessageDefinition, bool)| {
            found.encoding != DefinitionEncoding::Unknown || !found.text.is_empty()
        };
        Ok(found.filter(is_known).collect())
    }

    /// The definitions of the bag's message types as its first and last files have them, each type once.
    ///
    /// # Errors
    /// One of these files cannot be read.
    pub(crate) fn stored_definitions(&self) -> Result<Vec<MessageDefinition>, ReadError> {
        definitions_of(self.outer_files())
    }

    /// The definitions of the bag's message types in all its files, each type once; opens every file.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub(crate) fn all_stored_definitions(&self) -> Result<Vec<MessageDefinition>, ReadError> {
        definitions_of(self.files.iter())
    }

    /// The different JSON schemas of a topic's channels in the first and last file; in all files when those have none.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub(crate) fn json_schemas(&self, topic: &str, type_name: &str) -> Result<BTreeSet<String>, ReadError> {
        let schemas = json_schemas_of(self.outer_files(), topic, type_name)?;
        match schemas.is_empty() {
            true => json_schemas_of(self.files.iter(), topic, type_name),
            false => Ok(schemas),
        }
    }

    /// Opens a bag's directory by its storage files alone, without messages that are still in memory.
    pub fn open_files(path: &Path) -> Result<Self, ReadError> {
        Self::rebuilt(path, &listing::storage_files(path)?, Ros1View::default(), None)
    }
}

/// The definition that ROS 2 Jazzy has of a type, if its hash is the wanted one.
fn bundled(type_name: &str, type_hash: &str) -> Option<MessageDefinition> {
    let found = Bundle::embedded().define(type_name).ok()?.message_definition();
    (type_hash.is_empty() || found.type_description_hash == type_hash).then_some(found)
}

fn json_schemas_of<'a>(
    files: impl Iterator<Item = &'a BagFile>,
    topic: &str,
    type_name: &str,
) -> Result<BTreeSet<String>, ReadError> {
    let mut found = BTreeSet::new();
    for file in files {
        for channel in &file.open()?.outline().channels {
            let (info, definition) = (&channel.info.topic, &channel.info.definition);
            let is_schema = definition.encoding == DefinitionEncoding::JsonSchema;
            if is_schema && info.name == topic && info.type_name == type_name {
                found.insert(definition.text.clone());
            }
        }
    }
    Ok(found)
}

fn definitions_of<'a>(files: impl Iterator<Item = &'a BagFile>) -> Result<Vec<MessageDefinition>, ReadError> {
    let mut found = BTreeMap::new();
    for file in files {
        for channel in &file.open()?.outline().channels {
            let definition = &channel.info.definition;
            let known = found
                .entry(definition.type_name.clone())
                .or_insert_with(|| definition.clone());
            // A later file may have a definition that the first did not have.
            if known.encoding == DefinitionEncoding::Unknown || known.is_name_only() {
                known.clone_from(definition);
            }
        }
    }
    Ok(found.into_values().collect())
}
