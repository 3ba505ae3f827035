//! Why a bag cannot be read.

use holdall_io::disk::{DiskError, reason};
use holdall_model::metadata::MetadataError;
use holdall_storage::error::StorageError;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a bag cannot be read; the text is one clause and names the path.
///
/// ```
/// let error = holdall::Bag::open("/proc/self/fd").unwrap_err();
/// assert!(matches!(error, holdall::ReadError::NotABag { .. }), "{error}");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// An operation of the operating system failed.
    #[error("cannot {action} {}: {}", path.display(), reason(source))]
    Io {
        /// The attempted operation: `open`, `read`, `list`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of the bag cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The path is not a bag.
    #[error("{} is not a bag: {reason}", path.display())]
    NotABag {
        /// The path.
        path: PathBuf,
        /// One clause.
        reason: String,
    },
    /// A file that was not encrypted for the bag, although all others are.
    #[error("{notice}; it was put there from outside: nothing is read while it is in the bag")]
    NotOfBag {
        /// The file, and its kind.
        notice: String,
    },
    /// Neither the metadata nor any storage file can be used.
    #[error("{}: {source}, and there is no storage file to rebuild it from", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// The fault.
        source: MetadataError,
    },
    /// A storage file that the metadata names does not exist.
    #[error("{}: storage file {} is missing: metadata.yaml names it ({present} of {named} files exist)", bag.display(), file.display())]
    MissingFile {
        /// The bag.
        bag: PathBuf,
        /// The missing file, as the metadata names it.
        file: PathBuf,
        /// Number of files that the metadata names.
        named: usize,
        /// Number of them that exist.
        present: usize,
    },
    /// A path in the metadata that is outside the bag.
    #[error("{}: metadata.yaml names {found:?}, expected a path inside the bag", bag.display())]
    PathOutside {
        /// The bag.
        bag: PathBuf,
        /// The path in the metadata.
        found: String,
    },
    /// A selection by publisher, and a bag that names none.
    #[error("{}: it does not store who published its messages", path.display())]
    NoPublishers {
        /// The first bag.
        path: PathBuf,
    },
    /// Publishers that cannot be selected.
    #[error("{}: {reason}", path.display())]
    Publishers {
        /// The first bag.
        path: PathBuf,
        /// The cause, one clause.
        reason: String,
    },
    /// A bag in a form that this program does not support.
    #[error("{}: {what} cannot be read: {reason}", path.display())]
    Unsupported {
        /// The bag or the file.
        path: PathBuf,
        /// The unsupported form.
        what: String,
        /// One clause, with what to do.
        reason: String,
    },
    /// A storage file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ReadError {
    /// The same error, but for the file at `named` instead of the copy of it that was read.
    pub(crate) fn in_file(mut self, named: &Path) -> Self {
        match &mut self {
            Self::Io { path, .. } | Self::NotABag { path, .. } | Self::Unsupported { path, .. } => {
                named.clone_into(path);
            }
            _ => {}
        }
        match self {
            Self::Storage(error) => Self::Storage(error.in_file(named)),
            other => other,
        }
    }

    /// True if the bytes of a file are the cause, as [`StorageError::is_damage`] has it.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Storage(error) if error.is_damage())
    }

    /// True for a file that no storage can read.
    pub fn is_no_storage_file(&self) -> bool {
        matches!(
            self,
            Self::NotABag { .. } | Self::Storage(StorageError::WrongFormat { .. })
        )
    }

    /// The file and the offset in it that the error is about.
    pub fn place(&self) -> Option<(&Path, u64)> {
        match self {
            Self::Storage(
                error @ (StorageError::Malformed { path, .. }
                | StorageError::Checksum { path, .. }
                | StorageError::TooLarge { path, .. }
                | StorageError::Codec { path, .. }),
            ) => Some((path, error.offset()?)),
            _ => None,
        }
    }

    /// The topic of the single message that the error is about.
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Storage(StorageError::Payload { topic, .. } | StorageError::Conversion { topic, .. }) => {
                Some(topic)
            }
            _ => None,
        }
    }
}

/// The error of a system call.
pub fn io_error(action: &'static str, path: &Path, source: io::Error) -> ReadError {
    ReadError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
