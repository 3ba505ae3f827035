//! Directories: made, listed, removed.

use super::sync_parent;
use crate::{
    disk::{DiskError, Operation},
    unfinished::while_nothing_is_removed,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Where it is (the directory's path with the name).
    pub path: PathBuf,
    /// Whether it is a directory itself.
    pub is_dir: bool,
}

/// Makes a directory and its parents; existing ones are left unchanged.
///
/// # Errors
/// When it cannot be made.
pub fn create_dirs(path: &Path) -> Result<(), DiskError> {
    while_nothing_is_removed(|| fs::create_dir_all(path))
        .map_err(|source| DiskError::new(path, Operation::CreateDirectory, source))
}

/// Makes a directory, parents included, that must not exist. Durable on return.
///
/// # Errors
/// When the path exists already, or it cannot be made.
pub fn create_dir_new(path: &Path) -> Result<(), DiskError> {
    while_nothing_is_removed(|| {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // "Exists" is also reported for a file in a parent's place, which does not mean that the
            // directory exists.
            fs::create_dir_all(parent).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                _ => error,
            })?;
        }
        fs::create_dir(path)
    })
    .map_err(|source| DiskError::new(path, Operation::CreateDirectory, source))?;
    sync_parent(path)
}

/// The entries of a directory, sorted by name.
///
/// # Errors
/// When it cannot be listed.
pub fn list_dir(path: &Path) -> Result<Vec<DirEntry>, DiskError> {
    let fail = |source| DiskError::new(path, Operation::List, source);
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        // Follows links; a dangling one is no directory.
        let is_dir = path.is_dir();
        entries.push(DirEntry { path, is_dir });
    }
    entries.sort_unstable();
    Ok(entries)
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// When it is not there or something in it cannot be removed.
pub fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    fs::remove_dir_all(path).map_err(|source| DiskError::new(path, Operation::Remove, source))
}
