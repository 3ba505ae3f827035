//! Why work on bags could not be done.

use crate::{decode, live::LockError, reader, writer};
use holdall_io::disk::DiskError;
use holdall_model::selection::SelectionError;
use holdall_storage::StorageError;
use std::path::PathBuf;

/// Why work on bags could not be done; the text is one clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// An input cannot be read.
    #[error(transparent)]
    Read(#[from] reader::BagError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] writer::BagError),
    /// A storage file.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The bag is being recorded, and was to be changed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The choice of topics.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The output is there already.
    #[error("{}: already exists; nothing was overwritten, choose another name with -o", path.display())]
    OutputExists {
        /// The bag directory.
        path: PathBuf,
    },
    /// The output has no name that a directory could have.
    #[error("{:?} is no name for a bag directory", path.display().to_string())]
    OutputName {
        /// What was given.
        path: PathBuf,
    },
    /// A damaged input: what can be saved of it is another verb's work.
    #[error("{notice}; nothing was written, `holdall repair` saves what can be read")]
    Damaged {
        /// Which file, where, and what is wrong.
        notice: String,
    },
    /// Something that cannot be done with these inputs.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// Which bag.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// An expression on the fields of messages, or a message that it cannot be asked of.
    #[error(transparent)]
    Choice(#[from] decode::ChoiceError),
    /// The threads of a compression could not be begun, or it failed.
    #[error("cannot compress messages: {0}")]
    Compression(std::io::Error),
}
