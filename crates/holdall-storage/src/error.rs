//! Errors of storage files, each with the path and, if one applies, the offset.

use holdall_io::disk::{DiskError, reason};
use std::{io, path::PathBuf};

/// Shorthand for results of this crate.
pub type StorageResult<T> = Result<T, StorageError>;

/// An error of a storage backend; the text is one clause and names the path.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// An operation of the operating system failed.
    #[error("cannot {action} {}: {}", path.display(), reason(source))]
    Io {
        /// The action attempted: `open`, `read`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The disk layer failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes that violate the format.
    #[error("{} is damaged at byte {offset}: expected {expected}, found {found}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Offset from the start of the file.
        offset: u64,
        /// The bytes that the format requires there.
        expected: String,
        /// The bytes found there.
        found: String,
    },
    /// The file has another format.
    #[error("{} is not a file of storage {storage}: expected {expected}, found {found}", path.display())]
    WrongFormat {
        /// The file.
        path: PathBuf,
        /// The backend that opened it.
        storage: &'static str,
        /// First bytes of this format.
        expected: String,
        /// First bytes of the file.
        found: String,
    },
    /// Stored and computed checksum differ.
    #[error("{} is damaged at byte {offset}: {what} checksum is {found:#010x}, expected {expected:#010x}", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Offset of the checked bytes.
        offset: u64,
        /// The part that was checked: `chunk`, `summary`, …
        what: &'static str,
        /// The stored value.
        expected: u32,
        /// The computed value.
        found: u32,
    },
    /// Messages of a damaged part that cannot be read.
    #[error("{} is damaged at byte {offset}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Offset of the part.
        offset: u64,
        /// Which they are, one clause.
        reason: String,
        /// How many there are; `None` when that is not known.
        count: Option<u64>,
        /// The log times before and after them, in nanoseconds.
        times: (i64, i64),
    },
    /// A length above the limit of this program or the format.
    #[error("{}: {what} at byte {offset} has {found} bytes, more than the limit of {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Offset of the item.
        offset: u64,
        /// The part that is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The actual length.
        found: u64,
    },
    /// Not enough memory is available.
    #[error("{}: there is not enough memory for {what} of {bytes} bytes", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// The content that needs the memory.
        what: &'static str,
        /// Its length.
        bytes: u64,
    },
    /// More of something than the format can number.
    #[error("{} cannot hold more than {limit} {what}", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// `channels`, `schemas`.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A channel index that was never returned for this file.
    #[error("{} has {count} channels, there is no channel number {index}", path.display())]
    UnknownChannel {
        /// The file.
        path: PathBuf,
        /// The index.
        index: u32,
        /// Number of channels.
        count: usize,
    },
    /// A codec that this program does not have, or that failed.
    #[error("{}: cannot {action} the chunk at byte {offset} as {codec}: {reason}", path.display())]
    Codec {
        /// The file.
        path: PathBuf,
        /// `compress` or `decompress`.
        action: &'static str,
        /// Offset of the chunk.
        offset: u64,
        /// `zstd`, `lz4`, or the name in the file.
        codec: String,
        /// The cause.
        reason: String,
    },
    /// A payload that was compressed by itself and cannot be unpacked.
    #[error("{}: the message of {topic} at {log_time} cannot be unpacked: {reason}", path.display())]
    Payload {
        /// The file.
        path: PathBuf,
        /// The message's topic.
        topic: String,
        /// Its log time in nanoseconds.
        log_time: i64,
        /// The cause, one clause.
        reason: String,
    },
    /// A message of ROS 1 that does not fit its type's definition.
    #[error("{}: the message of {topic} at {log_time} ns cannot be converted to ROS 2: {reason}", path.display())]
    Conversion {
        /// The file.
        path: PathBuf,
        /// The message's topic.
        topic: String,
        /// Its log time in nanoseconds.
        log_time: i64,
        /// The cause, one clause.
        reason: String,
    },
    /// A payload that delivered more or fewer bytes than announced; stored with the announced length, cut or
    /// padded with zeros.
    #[error("{}: a payload announced {expected} bytes and delivered {found}", path.display())]
    PayloadLength {
        /// The file.
        path: PathBuf,
        /// The announced length.
        expected: u64,
        /// The delivered length.
        found: u64,
    },
    /// An operation of the database library failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Database {
        /// The action attempted: `open`, `insert into`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A setting that the backend does not know or accept.
    #[error("storage {storage}: setting {setting}: expected {expected}, found {found}")]
    Setting {
        /// The backend.
        storage: &'static str,
        /// The key.
        setting: String,
        /// The values that it accepts.
        expected: String,
        /// The value that was set.
        found: String,
    },
    /// A storage id that is not registered.
    #[error("there is no storage {found:?}, expected one of {expected}")]
    UnknownStorage {
        /// The known ids.
        expected: String,
        /// The id that was requested.
        found: String,
    },
    /// An operation that this backend does not support on this file.
    #[error("{}: {what} is not possible: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// A damaged file that can be repaired into a new bag only.
    #[error("{} cannot be repaired in place: {reason}; repair it into a new bag", path.display())]
    NotInPlace {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: &'static str,
    },
}

impl StorageError {
    /// True when the bytes of the file are the cause: its other parts can be read. False for a failing disk, setting or
    /// operation, which shows nothing about the bytes.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Malformed { .. }
                | Self::Unreadable { .. }
                | Self::Checksum { .. }
                | Self::TooLarge { .. }
                | Self::Codec { .. }
                | Self::Payload { .. }
                | Self::Conversion { .. }
        )
    }

    /// As [`Self::is_damage`], and true for a file that is not of this storage at all.
    pub fn is_damage_or_format(&self) -> bool {
        self.is_damage() || matches!(self, Self::WrongFormat { .. })
    }

    /// The place of the damage: its offset from the start of the file.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Malformed { offset, .. }
            | Self::Unreadable { offset, .. }
            | Self::Checksum { offset, .. }
            | Self::TooLarge { offset, .. }
            | Self::Codec { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// The same error with the path of the file at `named`, whose copy was read.
    #[must_use]
    pub fn in_file(mut self, named: &std::path::Path) -> Self {
        match &mut self {
            Self::Io { path, .. }
            | Self::Malformed { path, .. }
            | Self::Unreadable { path, .. }
            | Self::WrongFormat { path, .. }
            | Self::Checksum { path, .. }
            | Self::TooLarge { path, .. }
            | Self::Memory { path, .. }
            | Self::TooMany { path, .. }
            | Self::UnknownChannel { path, .. }
            | Self::Codec { path, .. }
            | Self::Payload { path, .. }
            | Self::Conversion { path, .. }
            | Self::PayloadLength { path, .. }
            | Self::Database { path, .. }
            | Self::Unsupported { path, .. }
            | Self::NotInPlace { path, .. } => named.clone_into(path),
            Self::Disk(_) | Self::Setting { .. } | Self::UnknownStorage { .. } => {}
        }
        self
    }
}

/// Reserves memory for `bytes` bytes of `what`, a length stored in a file or that of a message.
///
/// # Errors
/// Not enough memory.
pub fn reserve(path: &std::path::Path, what: &'static str, bytes: u64) -> StorageResult<Vec<u8>> {
    let mut memory = Vec::new();
    let count = usize::try_from(bytes).unwrap_or(usize::MAX);
    match memory.try_reserve_exact(count) {
        Ok(()) => Ok(memory),
        Err(_) => Err(StorageError::Memory {
            path: path.to_owned(),
            what,
            bytes,
        }),
    }
}
