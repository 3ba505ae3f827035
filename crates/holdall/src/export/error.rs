//! Why messages cannot be exported.

use crate::{decode::ChoiceError, reader::BagError};
use holdall_io::disk::DiskError;
use std::{io, path::PathBuf};

/// Why messages cannot be exported; the text is one clause and names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file that would be written is there.
    #[error("{} already exists; nothing was overwritten, choose another folder with -o or add --overwrite", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] BagError),
    /// Messages cannot be chosen.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A message that cannot be written; the export goes on.
    #[error("{reason}")]
    Message {
        /// One clause.
        reason: String,
    },
    /// The program was built without it.
    #[error("this holdall was built without {what}; build it with the feature of that name")]
    NotBuilt {
        /// What is missing.
        what: &'static str,
    },
    /// A type with more columns than a table can have.
    #[error("{type_name} has more than {columns_max} columns; use holdall cat --json")]
    TooManyColumns {
        /// The type.
        type_name: String,
        /// The bound.
        columns_max: usize,
    },
}

impl ExportError {
    pub(super) fn io(action: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn message(reason: impl ToString) -> Self {
        Self::Message {
            reason: reason.to_string(),
        }
    }
}
