//! Why no dataset was made.

use crate::export::ExportError;
use holdall_bag::{decode::ChoiceError, reader::ReadError};
use holdall_io::disk::DiskError;
use holdall_tools::tools::ToolError;
use std::{io, path::PathBuf};

/// Why no dataset was made; the text is one clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// A bag cannot be read.
    #[error(transparent)]
    Bag(#[from] ReadError),
    /// The messages cannot be selected.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The dataset cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file of the dataset cannot be written.
    #[error(transparent)]
    File(#[from] ExportError),
    /// The dataset's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] ToolError),
    /// A file of the dataset cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A folder that would be replaced, but is not a dataset.
    #[error("{} is not replaced: it is not a dataset that holdall made", path.display())]
    NotADataset {
        /// The folder.
        path: PathBuf,
    },
    /// A feature that the bag cannot fill.
    #[error("feature {feature}: {reason}")]
    Feature {
        /// Its name.
        feature: String,
        /// One clause.
        reason: String,
    },
    /// Episodes cannot be found.
    #[error("episodes: {reason}")]
    Episodes {
        /// One clause.
        reason: String,
    },
    /// Not even one frame was made.
    #[error("no frame was made: {reason}")]
    NoFrame {
        /// One clause.
        reason: String,
    },
    /// Video that cannot be decoded.
    #[error("{reason}")]
    Decoder {
        /// One sentence.
        reason: String,
    },
    /// Recorded video that was to be copied, and cannot be.
    #[error("feature {feature}: its video cannot be copied: {reason}")]
    Copy {
        /// The name of the feature.
        feature: String,
        /// One clause.
        reason: String,
    },
    /// The program that encodes videos is missing.
    #[error(
        "a video needs the program ffmpeg, which is not in any folder of PATH; install it, or leave out video: true to store images as PNG"
    )]
    NoFfmpeg,
    /// The program that encodes videos failed.
    #[error("ffmpeg failed: {reason}")]
    Ffmpeg {
        /// The program's error output.
        reason: String,
    },
}

impl TrainingError {
    /// True if nothing was done because of the arguments.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Folder(ToolError::OutputExists { .. } | ToolError::OutputName { .. })
                | Self::NotADataset { .. }
                | Self::Feature { .. }
                | Self::Episodes { .. }
                | Self::NoFrame { .. }
                | Self::NoFfmpeg
                | Self::Decoder { .. }
        )
    }

    pub(super) fn write(path: &std::path::Path, source: impl Into<io::Error>) -> Self {
        Self::Write {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
