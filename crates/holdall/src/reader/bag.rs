//! Opens a bag: a directory with `metadata.yaml`, one whose metadata is missing or damaged, or a single storage file.

use super::{
    error::BagError,
    file::{self, SharedReader},
    listing,
    rebuild::Rebuild,
};
use crate::{
    record::ledger::{LEDGER_KEY, LEDGER_RECORD, Ledger},
    writer::STATE_KEY,
};
use holdall_model::{
    loss::LossStage,
    metadata::{BagMetadata, FileInformation},
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Component, Path, PathBuf},
};

/// The file in a bag's directory that describes it.
const METADATA_FILE: &str = "metadata.yaml";

/// Longest metadata file that is read; a bag of 100 000 files has about 20 MB.
const METADATA_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// One storage file of a bag.
#[derive(Clone)]
pub struct BagFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Nothing in it is logged before this; `None` where that is not known.
    pub(super) earliest: Option<Timestamp>,
    /// Known to hold no message.
    pub(super) empty: bool,
    /// Kept from when it was looked at.
    pub(super) reader: Option<SharedReader>,
}

impl BagFile {
    /// The file's reader: the one that was kept, or a new one.
    pub(super) fn open(&self) -> Result<SharedReader, BagError> {
        self.reader.clone().map_or_else(|| file::open(&self.path), Ok)
    }
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
}

impl BagReader {
    /// Opens a bag directory or a single storage file.
    ///
    /// Metadata that is missing or damaged is rebuilt in memory from the storage files; [`BagReader::notices`] says so.
    ///
    /// # Errors
    /// When it is not a bag, a named file is missing or lies outside, or no storage file can be read.
    pub fn open(path: &Path) -> Result<Self, BagError> {
        let about = fs::metadata(path).map_err(|source| io_error("open", path, source))?;
        if about.is_dir() {
            Self::open_directory(path)
        } else {
            Self::open_file(path)
        }
    }

    /// What the bag says about itself.
    pub fn metadata(&self) -> &BagMetadata {
        &self.metadata
    }

    /// Where the bag is, as it was given.
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

    /// Topics with messages in the first or last storage file that the metadata does not list, as metadata does that was written
    /// before a crash or by hand.
    ///
    /// # Errors
    /// When one of these files cannot be read; to be asked before anything is begun with the bag.
    pub fn unlisted_topics(&self) -> Result<Vec<TopicInfo>, BagError> {
        let mut unlisted: Vec<TopicInfo> = Vec::new();
        for file in self.outer_files() {
            for channel in &file.open()?.summary().channels {
                let topic = &channel.info.topic;
                let is_same =
                    |known: &TopicInfo| known.name == topic.name && known.type_name == topic.type_name;
                let listed = &self.metadata.topics_with_message_count;
                let known =
                    listed.iter().any(|known| is_same(&known.topic_metadata)) || unlisted.iter().any(is_same);
                if channel.message_count > 0 && !known {
                    unlisted.push(topic.clone());
                }
            }
        }
        Ok(unlisted)
    }

    /// The first and the last storage file, once each.
    fn outer_files(&self) -> impl Iterator<Item = &BagFile> {
        self.files
            .first()
            .into_iter()
            .chain(self.files.last().filter(|_| self.files.len() > 1))
    }

    /// What a user should know once about the state of the bag, one sentence each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The ledger that the recording left in the bag: what was recorded and what was lost, by topic and publisher. `None` when
    /// there is none because another recorder wrote the bag, or holdall was killed before it could.
    ///
    /// # Errors
    /// When the last storage file, which carries it, cannot be read.
    pub fn ledger(&self) -> Result<Option<Ledger>, BagError> {
        let Some(last) = self.files.last() else {
            return Ok(None);
        };
        let reader = last.open()?;
        let text = reader
            .summary()
            .last_metadata(LEDGER_RECORD)
            .and_then(|entries| entries.get(LEDGER_KEY));
        text.map(|text| {
            serde_json::from_str(text).map_err(|error| BagError::Unsupported {
                path: last.path.clone(),
                what: "its loss ledger".to_owned(),
                reason: error.to_string(),
            })
        })
        .transpose()
    }

    /// What the ledger says of losses; `None` when there is no ledger.
    ///
    /// # Errors
    /// As [`BagReader::ledger`].
    pub fn lost(&self) -> Result<Option<LostByTopic>, BagError> {
        let Some(ledger) = self.ledger()? else {
            return Ok(None);
        };
        let topics = ledger.topics.into_iter().map(|mut topic| {
            // What was left out on request is no loss.
            topic.missing.remove(&LossStage::Policy);
            (topic.name, topic.missing)
        });
        Ok(Some(topics.filter(|(_, missing)| !missing.is_empty()).collect()))
    }

    /// The definitions of the bag's message types, as far as its first and last files have them, each type once.
    ///
    /// # Errors
    /// When one of these files cannot be read.
    pub fn definitions(&self) -> Result<Vec<MessageDefinition>, BagError> {
        let mut found = BTreeMap::new();
        for file in self.outer_files() {
            for channel in &file.open()?.summary().channels {
                let definition = &channel.info.definition;
                found
                    .entry(definition.type_name.clone())
                    .or_insert_with(|| definition.clone());
            }
        }
        Ok(found.into_values().collect())
    }

    fn open_directory(path: &Path) -> Result<Self, BagError> {
        let metadata_path = path.join(METADATA_FILE);
        let why = match read_metadata(&metadata_path) {
            Ok(metadata) if metadata.custom_data.contains_key(STATE_KEY) => {
                return Self::from_unfinished(path, metadata);
            }
            Ok(metadata) => return Self::from_metadata(path, metadata),
            Err(why) => why,
        };
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Err(match why {
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
            Unusable::Damaged(error) => format!("{} is damaged: {error}", metadata_path.display()),
            Unusable::Unreadable(error) => error.to_string(),
        };
        let mut bag = Self::rebuilt(path, &listed)?;
        let instead = match listed.len() {
            1 => "the storage file is read in its place".to_owned(),
            count => format!("{count} storage files are read in its place"),
        };
        bag.notices.insert(0, format!("{notice}; {instead}"));
        Ok(bag)
    }

    /// Metadata of a recording that was killed or still goes on: it names files, but its counts are not final.
    fn from_unfinished(path: &Path, metadata: BagMetadata) -> Result<Self, BagError> {
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Self::from_metadata(path, metadata);
        }
        let mut bag = Self::rebuilt(path, &listed)?;
        let notice = format!(
            "{}: its recording was not ended, or still goes on; what its files hold is told instead of {METADATA_FILE}",
            path.display()
        );
        bag.notices.insert(0, notice);
        Ok(bag)
    }

    /// A single storage file is a bag of its own, wherever it lies.
    fn open_file(path: &Path) -> Result<Self, BagError> {
        Self::rebuilt(path, &[path.to_owned()])
    }

    fn from_metadata(path: &Path, metadata: BagMetadata) -> Result<Self, BagError> {
        let unsupported = |what: String, reason: &str| BagError::Unsupported {
            path: path.to_owned(),
            what,
            reason: reason.to_owned(),
        };
        let is_compressed =
            !metadata.compression_mode.is_empty() && !metadata.compression_mode.eq_ignore_ascii_case("none");
        if is_compressed {
            let what = format!(
                "a bag with rosbag2's {} compression",
                metadata.compression_mode.to_lowercase()
            );
            return Err(unsupported(
                what,
                "this version reads bags that are compressed by chunk, or not at all",
            ));
        }
        if metadata.relative_file_paths.is_empty() {
            return Err(BagError::NotABag {
                path: path.to_owned(),
                reason: format!("its {METADATA_FILE} names no storage file"),
            });
        }
        let files = named_files(path, &metadata)?;
        let notices = files.iter().filter_map(file::cut_short).collect();
        Ok(Self {
            path: path.to_owned(),
            metadata,
            files,
            notices,
        })
    }

    /// Asks each storage file what it holds.
    fn rebuilt(path: &Path, listed: &[PathBuf]) -> Result<Self, BagError> {
        let mut rebuild = Rebuild::default();
        for file in listed {
            rebuild.add(path, file)?;
        }
        let (metadata, files, notices) = rebuild.finish()?;
        Ok(Self {
            path: path.to_owned(),
            metadata,
            files,
            notices,
        })
    }
}

/// Why a metadata file cannot be used.
enum Unusable {
    Missing,
    Damaged(holdall_model::metadata::MetadataError),
    Unreadable(BagError),
}

fn read_metadata(path: &Path) -> Result<BagMetadata, Unusable> {
    let unreadable = |source| Unusable::Unreadable(io_error("read", path, source));
    match fs::metadata(path) {
        Ok(about) if about.len() > METADATA_BYTES_MAX => {
            return Err(Unusable::Unreadable(BagError::Unsupported {
                path: path.to_owned(),
                what: format!("a metadata file of {} bytes", about.len()),
                reason: format!("the limit is {METADATA_BYTES_MAX} bytes"),
            }));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
        Err(error) => return Err(unreadable(error)),
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    // Foreign bytes in a name must not make the rest unreadable.
    BagMetadata::from_yaml(&String::from_utf8_lossy(&bytes)).map_err(Unusable::Damaged)
}

/// Finds the files that the metadata names, which must lie in the bag and be there.
fn named_files(bag: &Path, metadata: &BagMetadata) -> Result<Vec<BagFile>, BagError> {
    let mut found = Vec::new();
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
        match fs::metadata(&path) {
            Ok(about) => {
                let information = metadata.files.get(index).filter(|file| same_file(file, relative));
                found.push(BagFile {
                    path,
                    bytes: about.len(),
                    earliest: information.and_then(|file| file.starting_time),
                    empty: information.is_some_and(|file| file.message_count == 0),
                    reader: None,
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

/// Both lists are in the same order; older metadata has paths with the bag's name before them.
fn same_file(information: &FileInformation, relative: &str) -> bool {
    Path::new(&information.path).file_name() == Path::new(relative).file_name()
}

/// The error of a system call.
pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> BagError {
    BagError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
