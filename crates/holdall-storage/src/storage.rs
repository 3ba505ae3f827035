//! A storage backend: its features, and how its files are recognized, created, opened, checked and repaired.

use crate::{
    check::{FileCheck, Progress, read_all},
    chunks::ChunkStorage,
    error::{StorageError, StorageResult},
    reader::StorageReader,
    repair::Repaired,
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::FileId, fs, queue::DiskQueue};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A user's settings for writing files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// Name of one of the backend's presets.
    pub preset: Option<String>,
    /// Text of the backend's configuration file, overlaid on the preset.
    pub config: Option<String>,
    /// Worker threads for compression in the storage; with zero, the writing thread compresses.
    pub compression_threads: usize,
    /// Write checkpoints of the durable index into a long file during recording, so that it opens at once if
    /// it is torn.
    pub index_checkpoints: bool,
    /// Topics by full name whose compression differs from the settings above: a name of
    /// [`Storage::topic_compressions`].
    pub topic_compression: BTreeMap<String, String>,
    /// The distribution of ROS that a storage's own records name; none if it is not known.
    pub ros_distro: Option<String>,
}

/// The file that a repair changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairTarget {
    /// The file itself, which others may be reading.
    InPlace,
    /// A copy of it, which no reader uses until the repair is done.
    Copy,
}

/// A storage backend.
pub trait Storage: Send + Sync {
    /// The id that users and `metadata.yaml` use.
    fn id(&self) -> &'static str;

    /// The name that people use for its files: `MCAP`, `SQLite`.
    fn title(&self) -> &'static str;

    /// Extensions of its files, without dot; new files have the first. None for a storage whose files are directories.
    fn extensions(&self) -> &'static [&'static str];

    /// The bytes that each of its files begins with; `None` if they are directories or in memory.
    fn magic(&self) -> Option<&'static [u8]>;

    /// The bytes that each whole file ends with; `None` if the end shows nothing.
    fn end_magic(&self) -> Option<&'static [u8]> {
        None
    }

    /// Whether the file at `path` ends as a whole one does, by its first or last bytes; `None` where they do not show it.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn has_end(&self, path: &Path) -> StorageResult<Option<bool>> {
        let Some(magic) = self.end_magic() else {
            return Ok(None);
        };
        let file = fs::File::open(path)?;
        let mut end = vec![0; magic.len()];
        let Some(offset) = file.len_bytes().checked_sub(magic.len() as u64) else {
            return Ok(Some(false));
        };
        file.read_exact_at(&mut end, offset)?;
        Ok(Some(end == magic))
    }

    /// Whether its "files" are directories.
    fn is_directory(&self) -> bool {
        false
    }

    /// Whether the directory at `path` is one of its "files".
    fn is_its_directory(&self, _path: &Path) -> bool {
        false
    }

    /// Length of the file at `path` in bytes; of a directory, that of all its files.
    ///
    /// # Errors
    /// A file that cannot be inspected.
    fn size_bytes(&self, path: &Path) -> StorageResult<u64> {
        Ok(fs::file_len(path)?)
    }

    /// The extension of new files; `None` if they are directories.
    fn extension(&self) -> Option<&'static str> {
        self.extensions().first().copied()
    }

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

    /// Whether a file can have several topics of one name with different types, and every reader can distinguish their messages.
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

    /// Names of the compressions that a single topic can have, whatever the others have; none if that cannot differ.
    fn topic_compressions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks options before recording starts.
    ///
    /// # Errors
    /// An unknown preset, an unknown key, a value out of range, compressions of topics that it does not have.
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

    /// Completes a torn file with a summary and footer, after `records`; `None` for a complete file.
    /// Everything readable before stays readable at every moment, unless the `target` is a copy.
    ///
    /// # Errors
    /// A file that cannot be read or written, or a backend that cannot repair; the file is unchanged, or can
    /// be repaired again.
    fn repair(
        &self,
        path: &Path,
        _records: &[(&str, MetadataEntries)],
        _target: RepairTarget,
    ) -> StorageResult<Option<Repaired>> {
        Err(StorageError::Unsupported {
            path: path.to_owned(),
            what: "repairing",
            reason: format!("storage {} has no repair", self.id()),
        })
    }

    /// The beginning that a repair needs to turn a file without any written bytes into a whole file without
    /// messages; `None` where it cannot.
    fn beginning(&self) -> Option<Vec<u8>> {
        None
    }

    /// Its functions for files of chunks; `None` for a storage without chunks.
    fn chunks(&self) -> Option<&dyn ChunkStorage> {
        None
    }

    /// Checks a file from start to end.
    ///
    /// # Errors
    /// A file that cannot be read. Damage is not an error here but a finding.
    fn check(&self, path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
        read_all(path, self.id(), &*self.open_reader(path)?, progress)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// A file that cannot be read, or has another format.
    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>>;
}
