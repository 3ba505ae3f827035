//! What a built commit does beside the database: its journal is a file in the same directory, and its locks are SQLite's.

use super::{
    build::{Output, Surroundings},
    locks::WriterLocks,
};
use crate::error::StorageResult;
use holdall_io::fs::{self, EditedFile};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file system and the locks.
pub(super) struct Beside {
    journal: PathBuf,
    locks: Arc<WriterLocks>,
}

impl Beside {
    pub(super) fn new(path: &Path, locks: Arc<WriterLocks>) -> Self {
        Self {
            journal: super::recover::beside(path, "-journal"),
            locks,
        }
    }
}

impl Surroundings for Beside {
    fn create_journal(&mut self, _out: &mut Output<'_>, bytes: &[u8]) -> StorageResult<()> {
        Ok(fs::write_new(&self.journal, &mut &*bytes)?)
    }

    fn write_journal(&mut self, _out: &mut Output<'_>, at: u64, bytes: [u8; 4]) -> StorageResult<()> {
        Ok(EditedFile::open(&self.journal)?.write_all_at(&bytes, at)?)
    }

    fn sync_journal(&mut self, _out: &mut Output<'_>) -> StorageResult<()> {
        Ok(EditedFile::open(&self.journal)?.sync()?)
    }

    fn remove_journal(&mut self, _out: &mut Output<'_>) -> StorageResult<()> {
        Ok(fs::remove_file(&self.journal)?)
    }

    fn sync_directory(&mut self) -> StorageResult<()> {
        match self.journal.parent() {
            Some(directory) => Ok(fs::sync_dir(directory)?),
            None => Ok(()),
        }
    }

    fn exclude_readers(&mut self) {
        self.locks.exclude_readers();
    }

    fn admit_readers(&mut self) {
        self.locks.admit_readers();
    }
}
