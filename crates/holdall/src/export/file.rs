//! A file under a temporary name, which gets its own when it is complete.

use super::ExportError;
use holdall_io::unfinished::Unfinished;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Bytes that are gathered before they are written.
const GATHERED_BYTES: usize = 256 * 1024;

/// A file that is being written. Dropped without [`PartialFile::finish`], it is removed.
pub(super) struct PartialFile {
    writer: Option<io::BufWriter<File>>,
    partial: PathBuf,
    path: PathBuf,
    _unfinished: Unfinished,
}

impl PartialFile {
    /// Begins a file. One that is there is refused, unless it may be replaced.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, ExportError> {
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(ExportError::Exists {
                path: path.to_owned(),
            });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.partial"));
        let open = || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&partial)
        };
        let (unfinished, file) =
            Unfinished::make(&partial, open).map_err(|source| ExportError::io("write", &partial, source))?;
        Ok(Self {
            writer: Some(io::BufWriter::with_capacity(GATHERED_BYTES, file)),
            partial,
            path: path.to_owned(),
            _unfinished: unfinished,
        })
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.write_all(bytes)
            .map_err(|source| ExportError::io("write", &self.path, source))
    }

    /// Syncs the file and gives it its name.
    pub fn finish(mut self) -> Result<PathBuf, ExportError> {
        self.complete()
            .map_err(|source| ExportError::io("complete", &self.path, source))?;
        Ok(self.path.clone())
    }

    /// As [`PartialFile::finish`], without waiting for the disk: for many small files, whose folder is synced at the end.
    pub fn finish_unsynced(mut self) -> Result<(), ExportError> {
        self.flush()
            .and_then(|()| fs::rename(&self.partial, &self.path))
            .map_err(|source| ExportError::io("complete", &self.path, source))?;
        self.writer = None;
        Ok(())
    }

    fn complete(&mut self) -> io::Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.flush()?;
            writer.get_ref().sync_all()?;
            fs::rename(&self.partial, &self.path)?;
            if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                File::open(folder)?.sync_all()?;
            }
        }
        Ok(())
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Some(writer) => writer.write(bytes),
            None => Err(io::Error::other("the file is complete")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            // Given up: whoever gave up tells why, and what cannot be removed is recognised by its name.
            let _ = fs::remove_file(&self.partial);
        }
    }
}
