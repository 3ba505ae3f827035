//! Bag directories that are broken: one never gets its last metadata, another one knows no holds.

use crate::folder::SimFolder;
use holdall::writer::BagFolder;
use holdall_io::disk::DiskError;
use holdall_storage::{Storage, StorageResult, reader::StorageReader};
use std::path::Path;

/// Forgets every text that should become durable.
pub struct StaleFolder(pub SimFolder);

impl BagFolder for StaleFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        self.0.create_new(directory)
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        if durable {
            return Ok(());
        }
        self.0.replace_text(path, text, false)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.0.remove_file(path)
    }

    fn open_reader(&self, storage: &dyn Storage, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        self.0.open_reader(storage, path)
    }
}

/// Holds nothing that is being copied.
pub struct RuthlessFolder(pub SimFolder);

impl BagFolder for RuthlessFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        self.0.create_new(directory)
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        self.0.replace_text(path, text, durable)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.0.remove_file(path)
    }

    fn open_reader(&self, storage: &dyn Storage, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        self.0.open_reader(storage, path)
    }
}
