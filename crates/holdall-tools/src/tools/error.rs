//! Why work on bags failed.

use holdall_bag::{decode, live::LockError, reader, writer};
use holdall_io::disk::DiskError;
use holdall_model::{
    dynamic::{edit::EditError, migrate::RuleError},
    selection::SelectionError,
};
use holdall_storage::StorageError;
use std::path::PathBuf;

/// Why work on bags failed; the text is one clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// An input cannot be read.
    #[error(transparent)]
    Read(#[from] reader::ReadError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] writer::WriteError),
    /// A storage file failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The bag is being recorded and cannot be changed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// An invalid selection of topics.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The output already exists.
    #[error("{}: already exists; nothing was overwritten", path.display())]
    OutputExists {
        /// The bag directory.
        path: PathBuf,
    },
    /// The output's name is not valid for a directory.
    #[error("{:?} is not a valid name for a bag directory", path.display().to_string())]
    OutputName {
        /// The name that was given.
        path: PathBuf,
    },
    /// Damaged inputs in which nothing that was selected can be read.
    #[error("{notice}; nothing that was selected can be read, and nothing was written")]
    Damaged {
        /// The file, the offset, and the damage.
        notice: String,
    },
    /// A storage file of an input that cannot be read at all.
    #[error("{notice}; nothing was written, `holdall repair` into a new bag saves what the others have")]
    DamagedFile {
        /// The file, and its kind.
        notice: String,
    },
    /// An attachment with a wrong checksum.
    #[error("{}: the attachment {name:?} is damaged: its checksum does not match", path.display())]
    DamagedAttachment {
        /// The file that contains it.
        path: PathBuf,
        /// Its name.
        name: String,
    },
    /// An operation that these inputs do not allow.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// The bag.
        path: PathBuf,
        /// The cause, and what to do.
        reason: String,
    },
    /// An invalid expression on the fields of messages, or a message that it cannot be evaluated on.
    #[error(transparent)]
    Choice(#[from] decode::ChoiceError),
    /// A change of fields that cannot be made.
    #[error("{topic}: its fields cannot be changed: {reason}")]
    Change {
        /// The topic.
        topic: String,
        /// The cause.
        reason: String,
    },
    /// A topic that cannot get another name.
    #[error("{old} cannot be renamed to {new}: {reason}")]
    Rename {
        /// The topic.
        old: String,
        /// The name that it should get.
        new: String,
        /// The cause.
        reason: String,
    },
    /// Stamps that a bag cannot store.
    #[error("the stamps {first} to {last} ns would be moved to before 1970, or too late for 64 bits")]
    Shift {
        /// Log time of the first message.
        first: i64,
        /// Log time of the last message.
        last: i64,
    },
    /// A message whose fields cannot be changed.
    #[error("{topic}, message {number}, of {log_time} ns: {source}; no bag was made")]
    Edit {
        /// The topic.
        topic: String,
        /// Its number among those of the topic that are written, from 1.
        number: u64,
        /// Reception time.
        log_time: i64,
        /// The cause.
        source: EditError,
    },
    /// Rules of a migration that do not fit the types, or what needs one.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// A message that the new definition cannot hold.
    #[error("{topic}, message of {log_time} ns: {reason}; no bag was made")]
    Migrate {
        /// The topic.
        topic: String,
        /// Reception time.
        log_time: i64,
        /// The cause.
        reason: String,
    },
    /// The threads of a compression could not be started, or compression failed.
    #[error("cannot compress messages: {0}")]
    Compression(std::io::Error),
}
