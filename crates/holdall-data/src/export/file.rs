//! A file under a temporary name, which gets its own when it is complete.

use super::ExistingFiles;
use super::ExportError;
use holdall_io::{disk::DiskError, new_file::NewFile};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Bytes that are gathered before they are written.
const GATHERED_BYTES: usize = 256 * 1024;

/// A file that is being written. Dropped without [`PartialFile::finish`], it is removed.
pub(crate) struct PartialFile {
    writer: io::BufWriter<NewFile>,
    path: PathBuf,
    existing: ExistingFiles,
}

impl PartialFile {
    /// Begins a file. Refuses an existing one, unless it may be replaced.
    pub fn create(path: &Path, existing: ExistingFiles) -> Result<Self, ExportError> {
        if existing == ExistingFiles::Refuse && path.symlink_metadata().is_ok() {
            return Err(ExportError::Exists {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            writer: io::BufWriter::with_capacity(GATHERED_BYTES, NewFile::beside(path)?),
            path: path.to_owned(),
            existing,
        })
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.write_all(bytes)
            .map_err(|source| ExportError::io("write", &self.path, source))
    }

    /// Syncs the file and gives it its name.
    pub fn finish(self) -> Result<PathBuf, ExportError> {
        let path = self.path.clone();
        let new = self.complete(NewFile::sync)?;
        new.sync_folder()?;
        Ok(path)
    }

    /// As [`PartialFile::finish`], without a sync: for many small files, whose folder is synced at the end.
    pub(crate) fn finish_unsynced(self) -> Result<(), ExportError> {
        self.complete(|_| Ok(())).map(drop)
    }

    fn complete(self, sync: fn(&NewFile) -> Result<(), DiskError>) -> Result<NewFile, ExportError> {
        let Self {
            writer,
            path,
            existing,
        } = self;
        let mut new = writer
            .into_inner()
            .map_err(|error| ExportError::io("complete", &path, error.into_error()))?;
        sync(&new)?;
        if existing == ExistingFiles::Replace {
            new.replace()?;
        } else {
            new.publish_new()?;
        }
        Ok(new)
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
