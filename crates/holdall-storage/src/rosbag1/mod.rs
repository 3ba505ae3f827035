//! ROS 1 bags (`.bag`, format 2.0): read, including bags that the recorder did not close, and repaired; none is recorded.

pub(crate) mod chunk;
pub(crate) mod codec;
mod connections;
mod cursor;
pub mod format;
pub mod reader;
mod rebuild;
pub(crate) mod recover;
mod resync;

pub use reader::{Rosbag1Reader, Rosbag1ReaderOptions};

use crate::{
    error::{StorageError, StorageResult},
    reader::StorageReader,
    repair::Repaired,
    storage::{RepairTarget, Storage, StorageOptions},
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use std::path::Path;

/// The backend of ROS 1 bags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rosbag1Storage;

impl Storage for Rosbag1Storage {
    fn id(&self) -> &'static str {
        format::STORAGE_ID
    }

    fn title(&self) -> &'static str {
        "ROS 1 bag"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["bag"]
    }

    fn magic(&self) -> Option<&'static [u8]> {
        Some(format::MAGIC_ANY_VERSION)
    }

    fn split_bytes_min(&self) -> u64 {
        0
    }

    fn presets(&self) -> &'static [&'static str] {
        &[]
    }

    fn check_options(&self, _options: &StorageOptions) -> StorageResult<()> {
        Err(read_only(Path::new("a ROS 1 bag")))
    }

    fn create_writer(
        &self,
        _q: &mut DiskQueue,
        _file: FileId,
        path: &Path,
        _options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>> {
        Err(read_only(path))
    }

    /// A bag of ROS 1 has no place for `records`.
    fn repair(
        &self,
        path: &Path,
        _records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> StorageResult<Option<Repaired>> {
        rebuild::repair(path, target)
    }

    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        Ok(Box::new(Rosbag1Reader::open(path)?))
    }
}

fn read_only(path: &Path) -> StorageError {
    StorageError::Unsupported {
        path: path.to_owned(),
        what: "writing a ROS 1 bag",
        reason: "ROS 1 bags are read and converted to ROS 2 bags only".into(),
    }
}
