//! Why a benchmark could not be run, or what it has written is not what was offered.

use crate::workload::LoadError;
use holdall_io::disk::DiskError;
use holdall_storage::StorageError;
use std::{io, path::PathBuf};

/// Shorthand for results of this crate.
pub type BenchResult<T> = Result<T, BenchError>;

/// An error of a benchmark; the text is one clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A load that contradicts itself.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An option that there is not, or that fits no other.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// Which one, as the command line names it.
        option: &'static str,
        /// What it takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The folder for files and results holds something already.
    #[error("{} is not empty; give a folder that is empty or does not exist", path.display())]
    NotEmpty {
        /// Which folder.
        path: PathBuf,
    },
    /// What would be written does not fit the disk; nothing was written.
    #[error(
        "{}: {} are needed and {} are free; give another --out, or a smaller --scale or --total",
        path.display(), gigabytes(*needed_bytes), gigabytes(*available_bytes)
    )]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// What the largest candidate or limit needs at one time.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// The operating system refused.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `create`, `read`, …
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("could not start a thread: {source}")]
    Thread {
        /// Why not.
        source: io::Error,
    },
    /// The disk layer refused or failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Our storage refused or failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The recorder refused or failed.
    #[error("the recorder failed: {reason}")]
    Recorder {
        /// One clause.
        reason: String,
    },
    /// A foreign library that is measured beside ours, or that reads back, failed.
    #[error("{library} failed with {}: {reason}", path.display())]
    Rival {
        /// Which library.
        library: &'static str,
        /// On which file.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// A program that is needed is not there.
    #[error("{program} {what_to_do}")]
    Absent {
        /// Which program.
        program: &'static str,
        /// That it is not there, and how to get it: one clause.
        what_to_do: &'static str,
    },
    /// A program that was started for a measurement failed.
    #[error("{program} {reason}")]
    Program {
        /// Which program.
        program: String,
        /// One clause, with what it said last.
        reason: String,
    },
    /// A transport refused or failed.
    #[error(transparent)]
    Transport(#[from] holdall_transport::TransportError),
    /// A bag that was written could not be read.
    #[error("{}: {reason}", path.display())]
    Bag {
        /// Which bag.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// What was read back is not what was offered.
    #[error("{}: {reason}", path.display())]
    Verify {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong, with topic and sequence number where that applies.
        reason: String,
    },
}

impl BenchError {
    /// Wraps an error of the operating system: `map_err(BenchError::io("create", &path))`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the input was refused before anything was done.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Load(_)
                | Self::Option { .. }
                | Self::NotEmpty { .. }
                | Self::NoSpace { .. }
                | Self::Absent { .. }
        )
    }
}

/// Bytes in the unit that people count disks in.
fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
