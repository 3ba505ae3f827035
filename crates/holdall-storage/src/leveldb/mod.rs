//! LevelDB: the storage of rosbag2's LevelDB plugin, a directory with two databases for each topic.
//!
//! The format is implemented here, not by LevelDB: opening a database with LevelDB changes it, and its code
//! trusts its input.

pub mod format;
mod gathered;
mod merge;
pub mod options;
mod queued;
pub mod reader;
mod recover;
mod stamps;
mod topic_writer;
pub mod writer;

pub use options::LeveldbOptions;
pub use reader::LeveldbReader;
pub(crate) use writer::LeveldbWriter;

use crate::{
    error::{StorageError, StorageResult},
    reader::StorageReader,
    storage::{Storage, StorageOptions},
    writer::StorageWriter,
};
use format::{METADATA_SUFFIX, RECORDS_FILE, STORAGE_ID};
use holdall_io::{disk::FileId, fs, queue::DiskQueue};
use std::path::{Path, PathBuf};

/// The LevelDB backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeveldbStorage;

impl LeveldbStorage {
    fn options(options: &StorageOptions) -> StorageResult<LeveldbOptions> {
        if let Some(preset) = options.preset.as_deref().filter(|preset| *preset != "none") {
            return Err(StorageError::Setting {
                storage: STORAGE_ID,
                setting: "preset".into(),
                expected: "none".into(),
                found: format!("{preset:?}"),
            });
        }
        let leveldb = LeveldbOptions::default();
        options
            .config
            .as_ref()
            .map_or(Ok(leveldb.clone()), |text| leveldb.with_config(text))
    }
}

impl Storage for LeveldbStorage {
    fn id(&self) -> &'static str {
        STORAGE_ID
    }

    fn title(&self) -> &'static str {
        "LevelDB"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn magic(&self) -> Option<&'static [u8]> {
        None
    }

    fn is_directory(&self) -> bool {
        true
    }

    fn is_its_directory(&self, path: &Path) -> bool {
        is_leveldb(path)
    }

    fn has_end(&self, path: &Path) -> StorageResult<Option<bool>> {
        reader::has_counts(path)
    }

    fn size_bytes(&self, path: &Path) -> StorageResult<u64> {
        size_bytes(path)
    }

    fn split_bytes_min(&self) -> u64 {
        2 << 20
    }

    fn writes_blocks(&self) -> bool {
        false
    }

    fn queue_path(&self, path: &Path) -> PathBuf {
        path.join(RECORDS_FILE)
    }

    fn presets(&self) -> &'static [&'static str] {
        &["none"]
    }

    fn check_options(&self, options: &StorageOptions) -> StorageResult<()> {
        Self::options(options).map(drop)
    }

    fn create_writer(
        &self,
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>> {
        let writer = LeveldbWriter::create(q, file, path, Self::options(options)?)?;
        Ok(Box::new(writer))
    }

    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        Ok(Box::new(LeveldbReader::open(path)?))
    }
}

/// True for a directory that this storage can read: it has a database that describes a topic, or our records.
pub fn is_leveldb(path: &Path) -> bool {
    let Ok(entries) = fs::list_dir(path) else {
        return false;
    };
    entries.iter().any(|entry| {
        let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
        (entry.is_dir && name.ends_with(METADATA_SUFFIX)) || (!entry.is_dir && name == RECORDS_FILE)
    })
}

/// Length of all files of such a directory in bytes.
///
/// # Errors
/// The directory cannot be listed.
pub fn size_bytes(path: &Path) -> StorageResult<u64> {
    let mut sum = 0;
    for entry in fs::list_dir(path)? {
        if !entry.is_dir {
            sum += fs::file_len(&entry.path)?;
            continue;
        }
        for inner in fs::list_dir(&entry.path)? {
            if !inner.is_dir {
                sum += fs::file_len(&inner.path)?;
            }
        }
    }
    Ok(sum)
}
