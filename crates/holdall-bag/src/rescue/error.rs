//! Why messages that a killed recorder left in memory could not be found, or written into its bag.

use holdall_io::{disk::DiskError, survivor::SurvivorError};
use holdall_storage::StorageError;
use std::path::PathBuf;

/// Why the memory that a bag points to cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The recorder of this bag is alive, or the system has not yet ended it.
    #[error("{}: {source}", pointer.display())]
    Alive {
        /// The file in the bag that points to it.
        pointer: PathBuf,
        /// Where the memory is.
        source: SurvivorError,
    },
    /// It is damaged, is another bag's, or others may have written it.
    #[error("{}: {reason}", pointer.display())]
    Unreadable {
        /// The file in the bag that points to it.
        pointer: PathBuf,
        /// One clause.
        reason: String,
    },
}

/// Why messages in memory could not be written. They are still in memory.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// Their recorder is not at its end.
    #[error("{0}; repair the bag when that process has ended")]
    Alive(FindError),
    /// The new file of the bag.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
