//! Errors of benchmarks that could not run, or whose output differs from the offered messages.

use crate::{
    link::LinkRunError,
    suite::{config::ConfigError, load::FrameError},
    workload::LoadError,
};
use holdall_io::disk::DiskError;
use holdall_model::units::format_bytes;
use holdall_storage::StorageError;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Shorthand for results of this crate.
pub type BenchResult<T> = Result<T, BenchError>;

/// An error of a benchmark; the text is one clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A load that contradicts itself.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A configuration file with a mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An option that does not exist or does not fit the others.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// The option's name on the command line.
        option: &'static str,
        /// The values that it accepts.
        expected: String,
        /// The given value.
        found: String,
    },
    /// The folder for files and results already has content.
    #[error("{} is not empty; give a folder that is empty or does not exist", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The output does not fit the disk; nothing was written.
    #[error(
        "{}: {} are needed and {} are free; give another --out, or a smaller --scale or --total",
        path.display(), format_bytes(*needed_bytes), format_bytes(*available_bytes)
    )]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// Space that the largest candidate or limit needs at one time.
        needed_bytes: u64,
        /// Free space.
        available_bytes: u64,
    },
    /// The operating system refused.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// The action tried: `create`, `read`, …
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("could not start a thread: {source}")]
    Thread {
        /// The reason.
        source: io::Error,
    },
    /// The emulated link was refused or failed.
    #[error(transparent)]
    Link(#[from] LinkRunError),
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
    /// A foreign library failed, while being measured for comparison or while reading back.
    #[error("{library} failed with {}: {reason}", path.display())]
    Rival {
        /// The library.
        library: &'static str,
        /// The file.
        path: PathBuf,
        /// Its error.
        reason: String,
    },
    /// A required program is missing.
    #[error("{program} {what_to_do}")]
    Absent {
        /// The program.
        program: &'static str,
        /// One clause about what is missing and how to get it.
        what_to_do: &'static str,
    },
    /// A program that was started for a measurement failed.
    #[error("{program} {reason}")]
    Program {
        /// The program.
        program: String,
        /// One clause, with the last line of its output.
        reason: String,
    },
    /// A transport refused or failed.
    #[error(transparent)]
    Transport(#[from] holdall_transport::TransportError),
    /// A bag that was written could not be read.
    #[error("{}: {reason}", path.display())]
    Bag {
        /// The bag.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The content read back differs from the offered messages.
    #[error("{}: {reason}", path.display())]
    Verify {
        /// The file or folder.
        path: PathBuf,
        /// The difference, with topic and sequence number where that applies.
        reason: String,
    },
}

impl From<FrameError> for BenchError {
    fn from(source: FrameError) -> Self {
        Self::option("msg_type", "a message type that can be made", source.to_string())
    }
}

impl BenchError {
    /// Wraps an error of the operating system: `map_err(BenchError::io("create", &path))`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// An option that is not as it should be.
    pub fn option(option: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let (expected, found) = (expected.into(), found.into());
        Self::Option {
            option,
            expected,
            found,
        }
    }

    /// A program that failed, with one clause about how.
    pub(crate) fn program(program: impl ToString, reason: impl ToString) -> Self {
        let (program, reason) = (program.to_string(), reason.to_string());
        Self::Program { program, reason }
    }

    /// Wraps what is wrong with a file that was read: `map_err(BenchError::verify(&path))`.
    pub(crate) fn verify<E: ToString>(path: &Path) -> impl Fn(E) -> Self + Copy {
        move |reason| Self::Verify {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Wraps an error of a foreign library with a file.
    pub(crate) fn rival<E: ToString>(library: &'static str, path: &Path) -> impl Fn(E) -> Self + Copy {
        move |error| Self::Rival {
            library,
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    /// Wraps an error of JSON in a file: `map_err(BenchError::json(&path))`.
    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::verify(path)(format!("is not a result of this experiment: {error}"))
    }

    /// A thread that was to give a result and panicked.
    pub(crate) fn panicked(what: &str) -> Self {
        Self::Thread {
            source: io::Error::other(format!("{what} panicked")),
        }
    }

    /// Whether the input was refused before anything was done.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Load(_)
                | Self::Config(_)
                | Self::Option { .. }
                | Self::NotEmpty { .. }
                | Self::NoSpace { .. }
                | Self::Absent { .. }
                | Self::Link(LinkRunError::Link(_))
        )
    }
}
