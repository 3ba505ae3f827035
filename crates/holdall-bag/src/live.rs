//! Whether a bag is being written right now: its recorder, or a verb that changes it, holds the lock of its directory and of each open file.

use holdall_io::{
    disk::DiskError,
    lock::{Holder, Locking, WriteLock, writer_of},
    remote,
};
use holdall_storage::storage_of_directory;
use std::path::{Path, PathBuf};

/// Why a bag cannot be changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LockError {
    /// A recorder writes it, or another verb changes it.
    #[error("{} is being recorded by {writer}; nothing was changed, wait for the end of the recording", path.display())]
    BeingRecorded {
        /// The bag.
        path: PathBuf,
        /// Who writes it.
        writer: Holder,
    },
    /// It is in a bucket.
    #[error("{} is not on this computer, and only bags that are can be changed; nothing was changed", path.display())]
    Remote {
        /// The bag.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The process that is recording the bag at `path` (a directory or a single storage file), or changing it. `None` if no process does, or
/// when that cannot be known: a path that cannot be opened, a file system without locks.
///
/// The lock ends with its process, however that ends, so a bag without a writer whose metadata states that it
/// is being recorded belongs to a killed recorder.
pub fn writer_of_bag(path: &Path) -> Option<Holder> {
    // No recorder writes into a bucket.
    if remote::is_remote(path) {
        return None;
    }
    let writer = writer_of(path).ok().flatten();
    // A storage may be a directory in the bag's; only that has a lock.
    writer.or_else(|| {
        let bag = path.parent().filter(|_| storage_of_directory(path).is_some())?;
        let bag = if bag.as_os_str().is_empty() {
            Path::new(".")
        } else {
            bag
        };
        writer_of(bag).ok().flatten()
    })
}

/// Locks a bag for a change in place, until the returned lock is dropped. `None` if the file system has no locks.
///
/// # Errors
/// When it is being recorded or changed by another process, or cannot be opened.
pub fn lock_bag(path: &Path) -> Result<Option<WriteLock>, LockError> {
    refuse_if_recorded(path)?;
    match WriteLock::try_hold(path)? {
        Locking::Held(lock) => Ok(Some(lock)),
        Locking::Taken(writer) => Err(being_recorded(path, writer)),
        Locking::Impossible => Ok(None),
    }
}

/// Refuses a bag that is being recorded.
///
/// # Errors
/// When it is.
pub fn refuse_if_recorded(path: &Path) -> Result<(), LockError> {
    if remote::is_remote(path) {
        let path = remote::clean(path).into_owned();
        return Err(LockError::Remote { path });
    }
    writer_of_bag(path).map_or(Ok(()), |writer| Err(being_recorded(path, writer)))
}

fn being_recorded(path: &Path, writer: Holder) -> LockError {
    LockError::BeingRecorded {
        path: path.to_owned(),
        writer,
    }
}
