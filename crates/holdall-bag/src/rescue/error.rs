//! Why what a killed recorder left in memory could not be written into its bag.

use holdall_io::disk::DiskError;
use holdall_storage::StorageError;

/// Why what is in memory could not be written. It still is there.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The new file of the bag.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
