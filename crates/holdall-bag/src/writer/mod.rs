//! Writing a bag: a directory of storage files, split when due, with its `metadata.yaml`.

pub mod bag;
mod folder;
mod metadata;
mod options;
mod pack_files;
mod pack_payloads;
mod sealed_files;
mod simple;
#[cfg(test)]
mod tests;
mod uploaded;

pub use bag::{
    BagEnd, BagOptions, BagWriter, ClosedBag, EndRecords, LatchedMessage, PublisherSlot, ROSBAG2_RECORD,
    STATE_KEY, TopicCount, TornFile, rosbag2_record,
};
pub use bag::{BagTopic, OpenDisk, UndefinedTopic, bag_places, os_disk, sealed_os_disk, why_not_encrypted};
pub use folder::{BagFolder, FileIdentity, OsFolder};
pub use metadata::{BagFacts, FileFacts, bag_metadata};
pub use options::{CompressionMode, CompressionOptions, SplitOptions};
pub use pack_payloads::PayloadPacking;
pub use sealed_files::{SEALED_KEY, note_replaced, note_sealed, seal_faults};
pub use simple::Writer;
pub use uploaded::UploadedFiles;

use holdall_io::disk::DiskError;
pub use holdall_model::split::{SplitRule, SteadyOf};
use holdall_storage::StorageError;
use std::path::PathBuf;

/// Why a bag could not be written.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # for name in ["/odom", "/tf"] {
/// #     let topic = writer.add_topic(name, "std_msgs/msg/UInt8")?;
/// #     writer.write(topic, holdall::Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])?;
/// # }
/// # writer.close()?;
/// let error = holdall::Writer::create(&path).err().expect("a bag is never overwritten");
/// assert!(matches!(error, holdall::WriteError::Exists { .. }), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The directory exists already; nothing is overwritten.
    #[error("cannot create the bag {}: it exists already", path.display())]
    Exists {
        /// The bag directory.
        path: PathBuf,
    },
    /// A storage file.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The directory, or the disk under a storage file.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The threads that pack files or payloads.
    #[error("cannot start the threads that compress: {0}")]
    Threads(std::io::Error),
    /// A bug in the thread that writes.
    #[error("the writing thread failed for an internal reason; see the log")]
    Internal,
    /// The bag has failed before, and accepts no more messages.
    #[error("the bag has failed and takes no more messages")]
    Failed,
    /// A topic that was never added.
    #[error("the bag has no topic number {index}")]
    UnknownTopic {
        /// Its number.
        index: u32,
    },
}

impl WriteError {
    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Disk(error) | Self::Storage(StorageError::Disk(error)) => error.is_no_space(),
            _ => false,
        }
    }
}
