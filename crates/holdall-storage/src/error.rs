//! What can go wrong with a storage file, each with the path and, where there is one, the place in it.

use holdall_io::disk::DiskError;
use std::{io, path::PathBuf};

/// Shorthand for results of this crate.
pub type StorageResult<T> = Result<T, StorageError>;

/// An error of a storage backend; the text is one clause and names the path.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `open`, `read`, …
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The disk layer refused or failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes that the format does not allow.
    #[error("{} is damaged at byte {offset}: expected {expected}, found {found}", path.display())]
    Malformed {
        /// In which file.
        path: PathBuf,
        /// Where, counted from the start of the file.
        offset: u64,
        /// What the format wants there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The file is of another kind.
    #[error("{} is not a file of storage {storage}: expected {expected}, found {found}", path.display())]
    WrongFormat {
        /// Which file.
        path: PathBuf,
        /// The backend that was asked.
        storage: &'static str,
        /// What it begins with in this format.
        expected: String,
        /// What it begins with.
        found: String,
    },
    /// Stored and computed checksum differ.
    #[error("{} is damaged at byte {offset}: {what} checksum is {found:#010x}, expected {expected:#010x}", path.display())]
    Checksum {
        /// In which file.
        path: PathBuf,
        /// Where the checked bytes begin.
        offset: u64,
        /// What was checked: `chunk`, `summary`, …
        what: &'static str,
        /// The stored value.
        expected: u32,
        /// The computed value.
        found: u32,
    },
    /// A length beyond what this program, or the format, takes.
    #[error("{}: {what} at byte {offset} has {found} bytes, more than the limit of {limit}", path.display())]
    TooLarge {
        /// In which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is too large.
        what: &'static str,
        /// The largest that is taken.
        limit: u64,
        /// What it is.
        found: u64,
    },
    /// More of something than the format can number.
    #[error("{} cannot hold more than {limit} {what}", path.display())]
    TooMany {
        /// Which file.
        path: PathBuf,
        /// `channels`, `schemas`.
        what: &'static str,
        /// The largest number.
        limit: u64,
    },
    /// A channel index that was never handed out for this file.
    #[error("{} has {count} channels, there is no channel number {index}", path.display())]
    UnknownChannel {
        /// Which file.
        path: PathBuf,
        /// The index asked for.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// A codec that this program does not have, or that refused.
    #[error("{}: cannot {action} the chunk at byte {offset} as {codec}: {reason}", path.display())]
    Codec {
        /// In which file.
        path: PathBuf,
        /// `compress` or `decompress`.
        action: &'static str,
        /// Where the chunk begins.
        offset: u64,
        /// `zstd`, `lz4`, or what the file names.
        codec: String,
        /// Why not.
        reason: String,
    },
    /// A payload that is packed by itself and cannot be unpacked.
    #[error("{}: the message of {topic} at {log_time} cannot be unpacked: {reason}", path.display())]
    Payload {
        /// Which file.
        path: PathBuf,
        /// The message's topic.
        topic: String,
        /// Its log time in nanoseconds.
        log_time: i64,
        /// Why not, one clause.
        reason: String,
    },
    /// A payload that delivered more or fewer bytes than it said; stored at the length it said, cut or filled with zeros.
    #[error("{}: a payload said it has {expected} bytes and delivered {found}", path.display())]
    PayloadLength {
        /// Which file.
        path: PathBuf,
        /// What it said.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The database library refused or failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Database {
        /// What was tried: `open`, `insert into`, …
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A setting that the backend does not know or take.
    #[error("storage {storage}: setting {setting}: expected {expected}, found {found}")]
    Setting {
        /// Which backend.
        storage: &'static str,
        /// Which key.
        setting: String,
        /// What it takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A storage id that is not registered.
    #[error("there is no storage {found:?}, expected one of {expected}")]
    UnknownStorage {
        /// The ids there are.
        expected: String,
        /// The id asked for.
        found: String,
    },
    /// Something that this backend cannot do with this file.
    #[error("{}: {what} is not possible: {reason}", path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// What was asked.
        what: &'static str,
        /// Why not.
        reason: String,
    },
}
