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
    survives_power_cut: bool,
}

impl Beside {
    pub(super) fn new(path: &Path, locks: Arc<WriterLocks>, survives_power_cut: bool) -> Self {
        Self {
            journal: super::recover::beside(path, "-journal"),
            locks,
            survives_power_cut,
        }
    }

    fn sync_directory(&self) -> StorageResult<()> {
        match self.journal.parent() {
            Some(directory) => Ok(fs::sync_dir(directory)?),
            None => Ok(()),
        }
    }
}

impl Surroundings for Beside {
    fn begin_journal(
        &mut self,
        _out: &mut Output<'_>,
        bytes: &[u8],
        (at, records): (u64, [u8; 4]),
    ) -> StorageResult<()> {
        fs::write_new(&self.journal, &mut &*bytes)?;
        let journal = EditedFile::open(&self.journal)?;
        if self.survives_power_cut {
            journal.sync()?;
        }
        journal.write_all_at(&records, at)?;
        if self.survives_power_cut {
            journal.sync()?;
            self.sync_directory()?;
        }
        Ok(())
    }

    fn end_journal(&mut self, _out: &mut Output<'_>) -> StorageResult<()> {
        fs::remove_file(&self.journal)?;
        if self.survives_power_cut {
            // A journal that a power cut brings back would undo the commit.
            self.sync_directory()?;
        }
        Ok(())
    }

    fn exclude_readers(&mut self) {
        self.locks.exclude_readers();
    }

    fn admit_readers(&mut self) {
        self.locks.admit_readers();
    }
}
