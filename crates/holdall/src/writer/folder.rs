//! The bag directory: made new, small text files replaced at once, files of a ring removed.

use holdall_io::{disk::DiskError, fs};
use holdall_storage::{Storage, error::StorageResult, reader::StorageReader};
use std::path::Path;

/// What a bag needs of the directory besides its storage files.
pub trait BagFolder: Send {
    /// Makes the directory and its parents.
    ///
    /// # Errors
    /// When it exists already or cannot be made.
    fn create_new(&self, directory: &Path) -> Result<(), DiskError>;

    /// Replaces a text file so that it is seen old or new, never in part. `durable` waits until it survives a power cut.
    ///
    /// # Errors
    /// When it cannot be written; the old one is left as it was.
    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError>;

    /// Removes a file, or a directory of files; one that is not there is no error.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError>;

    /// Opens a storage file of the bag again, to see what a failed disk has kept of it.
    ///
    /// # Errors
    /// When nothing of it can be read.
    fn open_reader(&self, storage: &dyn Storage, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        storage.open_reader(path)
    }
}

/// Directories of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFolder;

impl BagFolder for OsFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        fs::create_dir_new(directory)
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        if durable {
            fs::write_atomically(path, text.as_bytes())
        } else {
            fs::write_atomically_unsynced(path, text.as_bytes())
        }
    }

    /// The name is gone on return. The blocks are freed by a thread of their own: ext4 takes 120 to 190 ms for a file of 1 GB, in
    /// which the drain would not empty the cache.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        if fs::is_dir(path) {
            return fs::remove_dir_all(path);
        }
        // The kernel frees the blocks where the last handle is closed. Without a handle they are freed here, only slower.
        let handle = fs::File::open(path).ok();
        let removed = match fs::remove_file(path) {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        };
        if let Some(handle) = handle {
            // Without a thread the handle is dropped here. The thread ends with the close and is waited for by nobody.
            drop(
                std::thread::Builder::new()
                    .name("free-blocks".to_owned())
                    .spawn(move || drop(handle)),
            );
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_replaced_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.yaml");
        for (text, durable) in [("one", false), ("two", true)] {
            OsFolder.replace_text(&path, text, durable).unwrap();
            assert_eq!(fs::read_to_string(&path, 10).unwrap(), text);
        }
        assert_eq!(fs::list_dir(dir.path()).unwrap().len(), 1);
        OsFolder.remove_file(&path).unwrap();
        OsFolder.remove_file(&path).unwrap();
    }
}
