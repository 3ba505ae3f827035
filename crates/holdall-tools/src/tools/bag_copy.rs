//! A copy of a whole bag, which is then repaired.

use holdall_io::{
    disk::DiskError,
    fs::{self, DirEntry},
};
use holdall_model::metadata::METADATA_BYTES_MAX;
use holdall_storage::storage_of_directory;
use std::path::Path;

const METADATA_FILE: &str = "metadata.yaml";

/// Directories in one another that a storage has.
const STORAGE_DEPTH_MAX: u32 = 3;

/// Copies a storage that is a directory.
fn copy_directory(from: &Path, to: &Path, depth_max: u32) -> Result<(), DiskError> {
    fs::create_dir_new(to)?;
    for DirEntry { path, is_dir } in fs::list_dir(from)? {
        let Some(name) = path.file_name() else {
            continue;
        };
        match is_dir {
            true if depth_max > 0 => copy_directory(&path, &to.join(name), depth_max - 1)?,
            true => {}
            false => fs::copy_new(&path, &to.join(name))?,
        }
    }
    Ok(())
}

/// Copies a bag directory or a single storage file; only storage files, and the files next to them.
pub(super) fn copy_bag(from: &Path, to: &Path) -> Result<(), DiskError> {
    if storage_of_directory(from).is_some() {
        return copy_directory(from, to, STORAGE_DEPTH_MAX);
    }
    if !fs::is_dir(from) {
        return fs::copy_new(from, to);
    }
    fs::create_dir_new(to)?;
    for DirEntry { path, is_dir } in fs::list_dir(from)? {
        let Some(name) = path.file_name() else {
            continue;
        };
        if is_dir {
            if storage_of_directory(&path).is_some() {
                copy_directory(&path, &to.join(name), STORAGE_DEPTH_MAX)?;
            }
            continue;
        }
        // A metadata file that is too long to be read is not copied, but rewritten.
        if name == METADATA_FILE && fs::file_len(&path)? > METADATA_BYTES_MAX {
            continue;
        }
        // A FIFO, a device or a socket is nothing of a bag.
        match fs::File::open(&path) {
            Ok(file) => drop(file),
            Err(error) if error.lacks_key() => return Err(error),
            Err(error) => {
                tracing::warn!("not copied: {error}");
                continue;
            }
        }
        fs::copy_new(&path, &to.join(name))?;
    }
    Ok(())
}
