//! How a repair changes the files of a bag.

use super::description::replace_metadata;
use holdall_bag::reader::listing;
use holdall_io::disk::DiskError;
use holdall_storage::{RepairTarget, Storage, StorageError, repair::Repaired, writer::MetadataEntries};
use std::path::Path;

/// How a repair changes a bag; a simulator brings its own.
pub trait RepairDisk {
    /// As [`Storage::repair`].
    ///
    /// # Errors
    /// As there.
    fn complete_file(
        &mut self,
        storage: &dyn Storage,
        path: &Path,
        records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> Result<Option<Repaired>, StorageError>;

    /// Replaces a text file so that it is seen old or new, and survives a power cut.
    ///
    /// # Errors
    /// When it cannot be written.
    fn replace_text(&mut self, path: &Path, text: &str) -> Result<(), DiskError>;
}

/// Files of the operating system.
pub(super) struct OsFiles;

impl RepairDisk for OsFiles {
    fn complete_file(
        &mut self,
        storage: &dyn Storage,
        path: &Path,
        records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> Result<Option<Repaired>, StorageError> {
        storage.repair(path, records, target)
    }

    fn replace_text(&mut self, path: &Path, text: &str) -> Result<(), DiskError> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let listed = listing::storage_files(directory).unwrap_or_default();
        replace_metadata(path, &listed, text)
    }
}
