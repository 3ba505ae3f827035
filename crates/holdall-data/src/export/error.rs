//! Why messages cannot be exported.

use holdall_bag::{decode::ChoiceError, reader::ReadError};
use holdall_io::disk::{DiskError, reason};
use std::{io, path::PathBuf};

/// Why messages cannot be exported; the text is one clause and names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// An operation of the operating system failed.
    #[error("cannot {action} {}: {}", path.display(), reason(source))]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The output file already exists.
    #[error("{} already exists; nothing was overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] ReadError),
    /// Messages cannot be selected.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A message that cannot be written; the export continues.
    #[error("{reason}")]
    Message {
        /// One clause.
        reason: String,
    },
    /// The program that decodes videos is missing.
    #[error(
        "video (H.264, H.265) needs the program ffmpeg, which is not in any folder of PATH; install it (apt install ffmpeg), or leave out the topic"
    )]
    NoFfmpeg,
    /// The program that decodes videos cannot be used.
    #[error("ffmpeg failed: {reason}")]
    Ffmpeg {
        /// One clause.
        reason: String,
    },
    /// The program was built without a feature.
    #[error("this holdall was built without {what}; build it with the feature of that name")]
    NotBuilt {
        /// The feature.
        what: &'static str,
    },
    /// A type with more columns than a table can have.
    #[error("{type_name} has more than the {columns_max} columns that a table can have")]
    TooManyColumns {
        /// The type.
        type_name: String,
        /// The limit.
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
