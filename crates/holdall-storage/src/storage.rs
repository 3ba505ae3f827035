//! Storage backends by id: what each one supports, and how its files are created and opened.

use crate::{
    error::{StorageError, StorageResult},
    mcap::McapStorage,
    reader::StorageReader,
    repair::Repaired,
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use std::path::{Path, PathBuf};

/// The backend that is used unless the user names one.
pub const DEFAULT_STORAGE_ID: &str = crate::mcap::options::STORAGE_ID;

/// A user's settings for writing files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// Name of one of the backend's presets, empty for none.
    pub preset: String,
    /// Text of the backend's configuration file, overlaid on the preset.
    pub config: Option<String>,
    /// Worker threads for compression in the storage; with zero, the writing thread compresses.
    pub compression_threads: usize,
    /// Write checkpoints of the durable index into a long file during recording, so that it opens at once if
    /// it is torn.
    pub index_checkpoints: bool,
}

/// A storage backend.
pub trait Storage: Send + Sync {
    /// The id that users and `metadata.yaml` use.
    fn id(&self) -> &'static str;

    /// Extension of its files, without dot; empty for a storage whose files are directories.
    fn file_extension(&self) -> &'static str;

    /// The smallest size in bytes at which a split makes sense.
    fn split_bytes_min(&self) -> u64;

    /// Whether its files are written through the queue's blocks, so that reserving space for them helps.
    /// Otherwise the queue only creates the empty file and closes it.
    fn writes_blocks(&self) -> bool {
        true
    }

    /// Whether a topic may have several channels in a file, one for each publisher.
    fn keeps_publishers(&self) -> bool {
        false
    }

    /// Whether a file can have several topics of one name, each of its own type, and readers of all kinds know which message is of
    /// which type.
    fn keeps_types(&self) -> bool {
        false
    }

    /// The file that the queue creates for the storage file at `path`: `path` itself, or a file in it if it
    /// is a directory, which must exist by then.
    fn queue_path(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Names of its presets.
    fn presets(&self) -> &'static [&'static str];

    /// Checks options before recording starts.
    ///
    /// # Errors
    /// An unknown preset, an unknown key, a value out of range.
    fn check_options(&self, options: &StorageOptions) -> StorageResult<()>;

    /// Starts to write the storage file at `path`; `file` is the one that the queue created at its
    /// [`Storage::queue_path`].
    ///
    /// # Errors
    /// Invalid options; a failed disk.
    fn create_writer(
        &self,
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>>;

    /// Completes a torn file with a summary and footer, after `records`; `None` for a complete file. What was
    /// readable before stays readable at every moment, unless `is_copy` is set: then no reader uses the file
    /// until the repair is done.
    ///
    /// # Errors
    /// A file that cannot be read or written, or a backend that cannot repair; the file is unchanged, or can
    /// be repaired again.
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
    /// A file that cannot be read, or has another format.
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

/// Backends that only read.
static READ_ONLY_STORAGES: &[&dyn Storage] = &[&crate::rosbag1::Rosbag1Storage];

/// All backends that can record.
pub fn storages() -> &'static [&'static dyn Storage] {
    STORAGES
}

/// All backends, including those that only read.
pub fn readable_storages() -> impl Iterator<Item = &'static dyn Storage> {
    STORAGES.iter().chain(READ_ONLY_STORAGES).copied()
}

/// The backend with this id, for recording.
///
/// # Errors
/// An unknown id.
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

/// The backend that uses the extension of `path`, or recognizes the directory.
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
    fn unknown_ids_are_refused_with_the_known_ones() {
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
