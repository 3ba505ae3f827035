//! A file's bytes by offset, never past its end: stored lengths are checked before memory is allocated.

use crate::{
    error::{StorageError, StorageResult},
    mcap::format::FormatError,
};
use bytes::Bytes;
use holdall_io::fs::File;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The source of the bytes.
#[derive(Clone, Debug)]
enum Content {
    File(Arc<File>),
    Memory(Bytes),
}

/// A file, or bytes in memory.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    path: PathBuf,
    content: Content,
    len: u64,
}

impl Source {
    /// Opens a file.
    pub fn open(path: &Path) -> StorageResult<Self> {
        let file = File::open(path)?;
        let len = file.len_bytes();
        Ok(Self {
            path: path.to_owned(),
            content: Content::File(Arc::new(file)),
            len,
        })
    }

    /// Reads from memory; errors name it `path`.
    pub fn memory(path: &Path, content: Bytes) -> Self {
        Self {
            path: path.to_owned(),
            len: content.len() as u64,
            content: Content::Memory(content),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Exactly `len` bytes from `offset` on; `what` names them in errors.
    pub fn read(&self, offset: u64, len: u64, what: &str) -> StorageResult<Bytes> {
        let left = self.len.saturating_sub(offset);
        let (true, Ok(count)) = (len <= left, usize::try_from(len)) else {
            let (expected, found) = (
                format!("{len} bytes of {what}"),
                format!("{left} bytes until the end of the file"),
            );
            return Err(self.malformed(offset, expected, found));
        };
        match &self.content {
            Content::Memory(bytes) => {
                // `offset` is at most the length of something in memory.
                let start = offset as usize;
                Ok(bytes.slice(start..start + count))
            }
            Content::File(file) => match file.read_bytes_at(offset, count) {
                Ok(bytes) => Ok(bytes.into()),
                // Counts as damage like any other: parts that do not need these bytes are readable.
                Err(error) if error.is_changed() => {
                    let found = "others: the encrypted file was changed";
                    Err(self.malformed(
                        error.offset.unwrap_or(offset),
                        "the bytes that were written",
                        found,
                    ))
                }
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Up to `len` bytes from `offset` on, fewer at the end.
    pub(crate) fn read_up_to(&self, offset: u64, len: u64) -> StorageResult<Bytes> {
        self.read(offset, len.min(self.len.saturating_sub(offset)), "bytes")
    }

    /// Where bytes that were written begin, from `offset` on; `None` where only unwritten space follows.
    pub(crate) fn next_data(&self, offset: u64) -> StorageResult<Option<u64>> {
        let data = match &self.content {
            Content::Memory(_) => Some(offset),
            Content::File(file) => file.next_data(offset)?,
        };
        Ok(data.filter(|data| *data < self.len))
    }

    /// The content, if it is in memory.
    pub(crate) fn as_memory(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Memory(bytes) => Some(bytes),
            Content::File(_) => None,
        }
    }

    /// The file, if it is one.
    pub fn as_file(&self) -> Option<&File> {
        match &self.content {
            Content::File(file) => Some(file),
            Content::Memory(_) => None,
        }
    }

    /// Whether it is an object in a bucket, where a request takes longer than megabytes.
    pub(crate) fn is_remote(&self) -> bool {
        self.as_file().is_some_and(File::is_remote)
    }

    /// How far to read ahead: from a disk, so that it always has requests; from a bucket sixteen requests of 4 MiB, and eight that begin while the
    /// oldest is not answered yet.
    pub(crate) fn read_ahead_bytes(&self) -> u64 {
        if self.is_remote() { 96 << 20 } else { 16 << 20 }
    }

    /// Advises the system that these bytes will be read soon.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        if let Content::File(file) = &self.content {
            file.expect_read(offset, len);
        }
    }

    /// The error for bytes that violate the format.
    pub fn malformed(
        &self,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> StorageError {
        StorageError::Malformed {
            path: self.path.clone(),
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The error for a body at `offset` that could not be parsed.
    pub(crate) fn unparsed(&self, offset: u64, error: FormatError) -> StorageError {
        self.malformed(offset + error.offset as u64, error.expected, error.found)
    }
}
