//! Storage backends by id: what each can do, and how its files are made and opened.

use crate::{
    error::{StorageError, StorageResult},
    mcap::McapStorage,
    reader::StorageReader,
    repair::Repaired,
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use std::path::{Path, PathBuf};

/// The backend that is used when the user does not say.
pub const DEFAULT_STORAGE_ID: &str = crate::mcap::options::STORAGE_ID;

/// What a user can say about how files are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// Name of a preset of the backend, empty for none.
    pub preset: String,
    /// Text of the backend's configuration file, laid over the preset.
    pub config: Option<String>,
    /// Worker threads for compression inside of the storage; zero compresses in the thread that writes.
    pub compression_threads: usize,
    /// While a file is long and being written it carries an index of what is durable, so that it opens at once when it was torn.
    pub index_checkpoints: bool,
}

/// A storage backend.
pub trait Storage: Send + Sync {
    /// The id as users and `metadata.yaml` name it.
    fn id(&self) -> &'static str;

    /// Extension of its files, without dot; empty for a storage whose files are directories.
    fn file_extension(&self) -> &'static str;

    /// The smallest size in bytes at which a split makes sense.
    fn split_bytes_min(&self) -> u64;

    /// Whether its files are written through the queue's blocks, so that reserving space for them is of use. Otherwise the queue only
    /// makes the empty file and closes it.
    fn writes_blocks(&self) -> bool {
        true
    }

    /// Whether a topic may have several channels in a file, one for each publisher.
    fn keeps_publishers(&self) -> bool {
        false
    }

    /// The file that the queue makes for the storage file at `path`: that itself, or one in it where it is a directory, which must be
    /// there then.
    fn queue_path(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Names of its presets.
    fn presets(&self) -> &'static [&'static str];

    /// Checks options before anything is recorded with them.
    ///
    /// # Errors
    /// An unknown preset, an unknown key, a value out of range.
    fn check_options(&self, options: &StorageOptions) -> StorageResult<()>;

    /// Begins to write the storage file at `path`; `file` is what the queue has made at its [`Storage::queue_path`].
    ///
    /// # Errors
    /// Options that are not valid; a failed disk.
    fn create_writer(
        &self,
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>>;

    /// Gives a torn file its end, with `records` before it; `None` for one that has its end. What could be read before can be read
    /// at every moment, unless `is_copy` says that nobody needs the file meanwhile.
    ///
    /// # Errors
    /// A file that cannot be read or written, or a backend that cannot repair; it is as it was then, or can be repaired again.
    fn repair(
        &self,
        path: &Path,
        _records: &[(&str, MetadataEntries)],
        _is_copy: bool,
    ) -> StorageResult<Option<Repaired>> {
        Err(StorageError::Unsupported {
            path: path.to_owned(),
            what: "repairing",
            reason: format!("storage {} has no repair", self.id()),
        })
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// A file that cannot be read, or is of another format.
    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>>;
}

#[cfg(feature = "sqlite3")]
static STORAGES: &[&dyn Storage] = &[
    &McapStorage,
    &crate::sqlite3::SqliteStorage,
    &crate::leveldb::LeveldbStorage,
];
#[cfg(not(feature = "sqlite3"))]
static STORAGES: &[&dyn Storage] = &[&McapStorage, &crate::leveldb::LeveldbStorage];

/// Backends whose files are only read.
static READ_ONLY_STORAGES: &[&dyn Storage] = &[&crate::rosbag1::Rosbag1Storage];

/// All backends that can be recorded with.
pub fn storages() -> &'static [&'static dyn Storage] {
    STORAGES
}

/// All backends, also those whose files are only read.
pub fn readable_storages() -> impl Iterator<Item = &'static dyn Storage> {
    STORAGES.iter().chain(READ_ONLY_STORAGES).copied()
}

/// The backend with this id, to record with.
///
/// # Errors
/// There is none.
pub fn storage_by_id(id: &str) -> StorageResult<&'static dyn Storage> {
    storages()
        .iter()
        .find(|storage| storage.id() == id)
        .copied()
        .ok_or_else(|| StorageError::UnknownStorage {
            expected: storages()
                .iter()
                .map(|storage| storage.id())
                .collect::<Vec<_>>()
                .join(", "),
            found: id.to_owned(),
        })
}

/// The backend whose files have the extension of `path`, or look like it.
pub fn storage_by_path(path: &Path) -> Option<&'static dyn Storage> {
    if crate::leveldb::is_leveldb(path) {
        return Some(&crate::leveldb::LeveldbStorage);
    }
    let extension = path.extension()?.to_str()?;
    readable_storages().find(|storage| storage.file_extension() == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_ids_are_refused_with_those_there_are() {
        assert_eq!(storage_by_id("mcap").unwrap().id(), "mcap");
        let error = storage_by_id("rosbag").err().unwrap().to_string();
        assert!(error.contains("rosbag") && error.contains("mcap"), "{error}");
    }

    #[test]
    fn files_are_known_by_their_extension() {
        assert_eq!(storage_by_path(Path::new("a/b_0.mcap")).unwrap().id(), "mcap");
        assert!(storage_by_path(Path::new("a/b.txt")).is_none());
    }
}
