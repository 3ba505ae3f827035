//! Directories: made, listed, removed.

use super::{is_dir, pinned, pinned_name, sync_parent};
use crate::{
    disk::{DiskError, Operation},
    remote::{self, ObjectEntry},
    unfinished::while_nothing_is_removed,
};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its path (the directory's path with the name).
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

/// Makes a directory in an existing one; it must not exist. Not durable before [`sync_dir`] of its parent: that takes milliseconds, too many
/// where thousands are made.
///
/// # Errors
/// As [`create_dir_new`], and when its parent does not exist.
pub fn create_dir_unsynced(path: &Path) -> Result<(), DiskError> {
    while_nothing_is_removed(|| fs::create_dir(path))
        .map_err(|source| DiskError::new(path, Operation::CreateDirectory, source))
}

/// Makes a directory that must not exist and that only its owner can enter.
///
/// # Errors
/// When the path exists already, or it cannot be made.
pub fn create_private_dir(path: &Path) -> Result<(), DiskError> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|source| DiskError::new(path, Operation::CreateDirectory, source))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// When it cannot be opened or synced.
pub fn sync_dir(path: &Path) -> Result<(), DiskError> {
    fs::File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| DiskError::new(path, Operation::Sync, source))
}

/// The entries of a directory, sorted by name.
///
/// # Errors
/// When it cannot be listed.
pub fn list_dir(path: &Path) -> Result<Vec<DirEntry>, DiskError> {
    list_dir_up_to(path, usize::MAX)
}

/// As [`list_dir`], at most `entries_max` of them.
///
/// # Errors
/// As [`list_dir`].
pub fn list_dir_up_to(path: &Path, entries_max: usize) -> Result<Vec<DirEntry>, DiskError> {
    let fail = |source| DiskError::new(path, Operation::List, source);
    if let Some(url) = remote::url(path) {
        let listed = remote::client().and_then(|client| client.list(url, entries_max));
        let entry = |entry: ObjectEntry| DirEntry {
            path: entry.url.into(),
            is_dir: entry.about.is_dir,
        };
        return Ok(listed.map_err(fail)?.into_iter().map(entry).collect());
    }
    let mut entries = Vec::new();
    let listed = pinned(path).map_err(fail)?;
    for entry in fs::read_dir(&listed).map_err(fail)?.take(entries_max) {
        let path = path.join(entry.map_err(fail)?.file_name());
        // Follows links where that is allowed. A dangling link counts as missing.
        let is_dir = is_dir(&path);
        entries.push(DirEntry { path, is_dir });
    }
    entries.sort_unstable();
    Ok(entries)
}

/// All objects below a folder of a bucket, in the order of their names, however many folders are between. None where nothing is below.
///
/// # Errors
/// When they cannot be listed, or the path is one of this computer.
pub fn list_objects(path: &Path) -> Result<Vec<ObjectEntry>, DiskError> {
    let fail = |source| DiskError::new(path, Operation::List, source);
    let url = remote::url(path).ok_or_else(|| fail(io::ErrorKind::Unsupported.into()))?;
    let mut found = Vec::new();
    let client = remote::client().map_err(fail)?;
    let mut each = |entry| {
        found.push(entry);
        true
    };
    client.list_all(url, &mut each).map_err(fail)?;
    Ok(found)
}

/// Removes a directory that has nothing in it.
///
/// # Errors
/// When it is not there, has entries or cannot be removed.
pub fn remove_empty_dir(path: &Path) -> Result<(), DiskError> {
    fs::remove_dir(path).map_err(|source| DiskError::new(path, Operation::Remove, source))
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// When it is not there or something in it cannot be removed.
pub fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    pinned_name(path)
        .and_then(fs::remove_dir_all)
        .map_err(|source| DiskError::new(path, Operation::Remove, source))
}
