//! A file system that is made durable as a whole.

use crate::disk::{DiskError, Operation};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file system that is made durable as a whole, at about the cost of one of its files.
#[derive(Debug)]
pub struct FileSystem {
    path: PathBuf,
    /// Kept open: a failed write is reported to descriptors that were open when it failed.
    directory: fs::File,
}

impl FileSystem {
    /// The file system of `dir`; `None` before Linux 5.8, whose `syncfs` does not report failed writes.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn of(dir: &Path) -> Result<Option<Self>, DiskError> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if !reports_failed_writes(&release) {
            return Ok(None);
        }
        let directory = fs::File::open(dir).map_err(|source| DiskError::new(dir, Operation::Open, source))?;
        Ok(Some(Self {
            path: dir.to_owned(),
            directory,
        }))
    }

    /// Waits until everything that was written to it survives a power cut, also the writes of others.
    ///
    /// # Errors
    /// When bytes that were written since the last time, or since this was made, may be gone.
    pub fn sync(&self) -> Result<(), DiskError> {
        rustix::fs::syncfs(&self.directory)
            .map_err(|error| DiskError::new(&self.path, Operation::Sync, error.into()))
    }
}

/// Whether `syncfs` of this kernel reports errors: since 5.8.
pub(super) fn reports_failed_writes(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 8)
}
