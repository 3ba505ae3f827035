//! Why messages that a killed recorder left in memory could not be written into its bag.

use holdall_io::disk::DiskError;
use holdall_storage::StorageError;

/// Why messages in memory could not be written. They are still in memory.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The new file of the bag.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
