//! Why a bag cannot be read.

use holdall_io::disk::DiskError;
use holdall_model::metadata::MetadataError;
use holdall_storage::error::StorageError;
use std::{io, path::PathBuf};

/// Why a bag cannot be read; the text is one clause and names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BagError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `open`, `read`, `list`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of it cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is something else than a bag.
    #[error("{} is not a bag: {reason}", path.display())]
    NotABag {
        /// What was given.
        path: PathBuf,
        /// One clause.
        reason: String,
    },
    /// Neither the metadata nor any storage file can be used.
    #[error("{}: {source}, and there is no storage file to rebuild it from", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong with it.
        source: MetadataError,
    },
    /// A storage file that the metadata names is not there.
    #[error("{}: storage file {} is missing: metadata.yaml names it ({present} of {named} files are there)", bag.display(), file.display())]
    MissingFile {
        /// The bag.
        bag: PathBuf,
        /// The missing file, as the metadata names it.
        file: PathBuf,
        /// How many files the metadata names.
        named: usize,
        /// How many of them are there.
        present: usize,
    },
    /// A path in the metadata that leads out of the bag.
    #[error("{}: metadata.yaml names {found:?}, expected a path inside the bag", bag.display())]
    PathOutside {
        /// The bag.
        bag: PathBuf,
        /// What the metadata says.
        found: String,
    },
    /// Publishers that cannot be chosen.
    #[error("{}: {reason}", path.display())]
    Publishers {
        /// The first bag.
        path: PathBuf,
        /// Why not, one clause.
        reason: String,
    },
    /// A bag in a form that this program cannot read.
    #[error("{}: {what} cannot be read: {reason}", path.display())]
    Unsupported {
        /// The bag or the file.
        path: PathBuf,
        /// What it is.
        what: String,
        /// One clause, with what to do.
        reason: String,
    },
    /// A storage file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
