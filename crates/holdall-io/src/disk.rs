//! The disk as a queue: work is submitted, completions are reaped, so that a simulator can reorder, tear, delay and fail it.

use crate::{
    block::{Block, BlockPool},
    sealed::SealedError,
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file that a disk has open; numbers are never used twice by one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// The operation during which a [`DiskError`] arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Making a new file.
    Create,
    /// Reserving space ahead.
    Reserve,
    /// Writing bytes.
    Write,
    /// Making written bytes durable.
    Sync,
    /// Cutting a file to its length, making it durable and closing it.
    Close,
    /// Keeping back blocks, or taking one.
    TakeBlock,
    /// Opening an existing file.
    Open,
    /// Reading bytes.
    Read,
    /// Renaming a file.
    Rename,
    /// Removing a file or directory.
    Remove,
    /// Making a directory.
    CreateDirectory,
    /// Listing a directory.
    List,
    /// Asking for a length, free space or other facts.
    Inspect,
}

impl Operation {
    /// The verb for messages: "could not <verb> <path>".
    fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Reserve => "reserve space for",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Close => "close",
            Self::TakeBlock => "buffer",
            Self::Open => "open",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::CreateDirectory => "create directory",
            Self::List => "list",
            Self::Inspect => "inspect",
        }
    }
}

/// Why an operation on a file failed. Cheap to clone, because a poisoned file returns the same error again
/// and again.
#[derive(Clone, Debug, thiserror::Error)]
pub struct DiskError {
    /// Which file or directory.
    pub path: PathBuf,
    /// The operation.
    pub operation: Operation,
    /// The byte offset, if one applies.
    pub offset: Option<u64>,
    /// The system's error.
    pub source: Arc<io::Error>,
}

impl DiskError {
    /// The cause alone, for errors that name path and operation in their own words.
    pub fn into_io(self) -> io::Error {
        Arc::try_unwrap(self.source).unwrap_or_else(|shared| match shared.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(shared.kind(), shared.to_string()),
        })
    }

    /// An error without a place in the file.
    pub fn new(path: impl Into<PathBuf>, operation: Operation, source: io::Error) -> Self {
        Self {
            path: path.into(),
            operation,
            offset: None,
            source: Arc::new(source),
        }
    }

    /// The same error, at a byte of the file.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Whether the disk is full (or the quota used up).
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// Whether a file could not be created because it exists.
    pub fn is_already_exists(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }

    /// Whether a file is sealed, and no key of this process opens it.
    pub fn lacks_key(&self) -> bool {
        let sealed = self.source.get_ref().and_then(|source| source.downcast_ref());
        matches!(sealed, Some(SealedError::NoKey | SealedError::WrongKey))
    }

    /// Whether bytes of a sealed file are not those that were written.
    pub fn is_changed(&self) -> bool {
        let sealed = self.source.get_ref().and_then(|source| source.downcast_ref());
        matches!(sealed, Some(SealedError::Changed))
    }

    /// Whether a file could not be opened because it does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// The system's error as a clause: in lower case, and without the number at its end (`os error 2`).
pub fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound && error.get_ref().is_none() {
        return "no such file or directory".to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    // Lower case, but not `CRC` or `I/O`.
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), &text[first.len_utf8()..])
        }
        _ => text.to_owned(),
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.source.kind() == io::ErrorKind::StorageFull {
            let place = self
                .path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            write!(f, "no space left on {}: ", place.display())?;
        }
        let asks = matches!(
            self.operation,
            Operation::Open | Operation::List | Operation::Inspect
        );
        if asks && self.is_not_found() {
            // One sentence about a path that does not exist, whatever was to be done with it.
            return write!(
                f,
                "cannot open {}: no such file or directory",
                self.path.display()
            );
        }
        write!(f, "could not {} {}", self.operation.verb(), self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        match self.source.kind() {
            io::ErrorKind::StorageFull => Ok(()),
            io::ErrorKind::AlreadyExists => write!(f, ": it exists already"),
            io::ErrorKind::NotFound => write!(f, ": no such file or directory"),
            _ => write!(f, ": {}", reason(&self.source)),
        }
    }
}

/// Whether to wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Take the completions that have arrived.
    No,
    /// Wait until there is at least one, unless nothing is in flight.
    One,
}

/// A submitted operation has ended, well or not.
#[derive(Debug)]
pub enum Completion {
    /// A file requested by [`Disk::submit_create`] exists, or could not be created.
    Created {
        /// Which file.
        file: FileId,
        /// How it ended.
        result: Result<(), DiskError>,
    },
    /// A write has ended; all `len` bytes are written (not: durable) when `result` is `Ok`.
    Written {
        /// Which file.
        file: FileId,
        /// Offset in the file.
        offset: u64,
        /// Length of the write.
        len: usize,
        /// The block, returned.
        block: Block,
        /// How it ended.
        result: Result<(), DiskError>,
    },
    /// Everything written before the sync was submitted is durable when `result` is `Ok`.
    Synced {
        /// Which file.
        file: FileId,
        /// The token given to [`Disk::submit_sync`].
        token: u64,
        /// How it ended.
        result: Result<(), DiskError>,
    },
    /// The file has its length, is durable with its directory entry, and closed, when `result` is `Ok`. It is closed in any case.
    Closed {
        /// Which file.
        file: FileId,
        /// How it ended.
        result: Result<(), DiskError>,
    },
}

/// The way from a process to the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WritePath {
    /// Past the page cache (O_DIRECT, io_uring).
    Direct,
    /// Through the page cache, written back early.
    Buffered {
        /// Why the direct path, which was preferred, is not possible; `None` when buffered writing was requested.
        reason: Option<String>,
    },
    /// Into memory only, as in tests.
    #[default]
    Memory,
}

impl WritePath {
    /// `direct`, `buffered` or `memory`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered { .. } => "buffered",
            Self::Memory => "memory",
        }
    }

    /// Why the direct path was not possible, if it was preferred.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Buffered { reason } => reason.as_deref(),
            Self::Direct | Self::Memory => None,
        }
    }
}

/// A disk, as a queue. One thread owns it; nothing but [`Disk::create`] and `reap(Wait::One)` waits.
///
/// Requirements for every implementation (checked by [`crate::disk_conformance`]):
/// - Each thing submitted completes exactly once, in any order, and only `reap` hands out completions.
/// - Writes in flight may land in any order. A caller that needs order between two overlapping writes waits
///   for the first.
/// - `offset` and `len` are multiples of [`crate::block::BLOCK_ALIGNMENT`]. A write that does not fit this fails as `InvalidInput`.
/// - Until the file is closed its visible length is unspecified (space is reserved ahead; bytes never written read as zero).
pub trait Disk: Send {
    /// Makes a new file; waits until it exists. `reserve_bytes` is the length that it is expected to reach,
    /// for which space is reserved now; 0 when that is not known: space is then reserved as the file grows.
    /// Pass it as exactly as possible: space that is reserved and not used has to be released at close.
    /// A failed reservation is not an error here: the write that does not fit fails.
    ///
    /// # Errors
    /// When the path exists or the file cannot be made.
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError>;

    /// As [`Disk::create`] without waiting: ends in [`Completion::Created`]. Writes may be submitted at once.
    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId;

    /// Writes the first `len` bytes of `block` at `offset`.
    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize);

    /// Makes durable everything whose write was submitted before, so that it is found after a power cut (directory entry included).
    fn submit_sync(&mut self, file: FileId, token: u64);

    /// After all earlier writes: cuts the file to `length`, syncs data and metadata, closes it, syncs its directory.
    fn submit_close(&mut self, file: FileId, length: u64);

    /// Appends the operations that have ended to `completions`.
    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>);

    /// Operations submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Free bytes on the file system of `dir` for an unprivileged user.
    ///
    /// # Errors
    /// When `dir` cannot be inspected.
    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError>;

    /// Whether blocks are best filled past the processor's caches (see [`crate::copy`]), because no processor reads them next.
    fn prefers_streaming_stores(&self) -> bool {
        false
    }

    /// The way that writes take.
    fn write_path(&self) -> WritePath {
        WritePath::Memory
    }

    /// Whether other programs see its files in the file system under their paths; those of a disk in memory are not
    /// visible.
    fn makes_files(&self) -> bool;

    /// Whether its files are sealed ([`crate::sealed`]).
    fn seals(&self) -> bool {
        false
    }

    /// Bytes that the disk needs for itself before those of each block, a multiple of [`crate::block::BLOCK_ALIGNMENT`].
    fn front_bytes(&self) -> usize {
        0
    }

    /// Sets the pool from which blocks will come, so that the disk can register their memory with the kernel.
    /// Once, before the first write.
    fn register(&mut self, _pool: &BlockPool) {}
}

impl<D: Disk + ?Sized> Disk for Box<D> {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        (**self).create(path, reserve_bytes)
    }
    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        (**self).submit_create(path, reserve_bytes)
    }
    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        (**self).submit_write(file, offset, block, len);
    }
    fn submit_sync(&mut self, file: FileId, token: u64) {
        (**self).submit_sync(file, token);
    }
    fn submit_close(&mut self, file: FileId, length: u64) {
        (**self).submit_close(file, length);
    }
    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        (**self).reap(wait, completions);
    }
    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        (**self).available_bytes(dir)
    }
    fn prefers_streaming_stores(&self) -> bool {
        (**self).prefers_streaming_stores()
    }
    fn write_path(&self) -> WritePath {
        (**self).write_path()
    }
    fn makes_files(&self) -> bool {
        (**self).makes_files()
    }
    fn seals(&self) -> bool {
        (**self).seals()
    }
    fn front_bytes(&self) -> usize {
        (**self).front_bytes()
    }
    fn register(&mut self, pool: &BlockPool) {
        (**self).register(pool);
    }
}

/// The error for an offset or length that is not a multiple of the alignment, or is larger than its block, or a file that is
/// not open.
pub(crate) fn invalid_input(path: &Path, operation: Operation, what: &'static str) -> DiskError {
    DiskError::new(path, operation, io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Checks the requirements of every disk for a write.
pub(crate) fn check_write(path: &Path, offset: u64, block: &Block, len: usize) -> Result<(), DiskError> {
    let alignment = crate::block::BLOCK_ALIGNMENT;
    if !len.is_multiple_of(alignment) || !offset.is_multiple_of(alignment as u64) {
        return Err(invalid_input(
            path,
            Operation::Write,
            "offset or length is not a multiple of 4096",
        )
        .at(offset));
    }
    if len == 0 || len > block.capacity() {
        return Err(
            invalid_input(path, Operation::Write, "length is zero or larger than the block").at(offset),
        );
    }
    if offset
        .checked_add(len as u64)
        .is_none_or(|end| end > i64::MAX as u64)
    {
        return Err(invalid_input(path, Operation::Write, "end of the write is out of range").at(offset));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_names_the_directory() {
        let error = DiskError::new(
            "/data/bag/a.mcap",
            Operation::Write,
            io::Error::from_raw_os_error(libc::ENOSPC),
        )
        .at(8192);
        assert!(error.is_no_space());
        assert_eq!(
            error.to_string(),
            "no space left on /data/bag: could not write /data/bag/a.mcap at byte 8192"
        );
    }

    #[test]
    fn existing_file_is_named() {
        let error = DiskError::new(
            "a.mcap",
            Operation::Create,
            io::Error::from_raw_os_error(libc::EEXIST),
        );
        assert_eq!(error.to_string(), "could not create a.mcap: it exists already");
    }
}
