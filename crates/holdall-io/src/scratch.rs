//! Directories for temporary copies: removed with their owner, and, when that was killed, by the next one that makes such a directory.

use crate::{
    disk::{DiskError, Operation},
    unfinished::Unfinished,
};
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The prefix of these directories' names.
const PREFIX: &str = "holdall-scratch-";
/// The file in each of them that its owner keeps locked: process numbers would not do, other containers use
/// the same ones.
const LOCK: &str = ".in-use";
/// Its name until it is locked.
const MAKING: &str = ".in-use.new";
/// Names that are tried.
const TRIES_MAX: u64 = 10_000;

/// A directory that no other process uses.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    _lock: File,
    _unfinished: Unfinished,
}

impl ScratchDirectory {
    /// Makes one in `parent`, readable by this user only, and removes the existing ones whose owners are
    /// gone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(parent: &Path) -> Result<Self, DiskError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        remove_abandoned(parent);
        let fail = |path: &Path, source| DiskError::new(path, Operation::CreateDirectory, source);
        for _ in 0..TRIES_MAX {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            let unfinished = match Unfinished::make(&path, || DirBuilder::new().mode(0o700).create(&path)) {
                Ok((unfinished, ())) => unfinished,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(source) => return Err(fail(&path, source)),
            };
            let lock = locked(&path);
            match lock {
                Ok(lock) => {
                    return Ok(Self {
                        path,
                        _lock: lock,
                        _unfinished: unfinished,
                    });
                }
                Err(source) => {
                    // The first error is the one to return.
                    drop(fs::remove_dir_all(&path));
                    return Err(fail(&path, source));
                }
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(fail(&parent.join(PREFIX), source))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // Remains are removed by the next one.
        drop(fs::remove_dir_all(&self.path));
    }
}

/// The lock file of a new directory. It gets its name when it is locked: in between another process would take the directory for one whose
/// owner is gone.
fn locked(directory: &Path) -> io::Result<File> {
    let (making, made) = (directory.join(MAKING), directory.join(LOCK));
    let lock = crate::new_file::create_new(&making)?;
    lock.try_lock()?;
    fs::rename(making, made)?;
    Ok(lock)
}

/// Removes directories of this user whose lock is not held. Best effort: others may remove them at the same
/// time.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let owner = |path: &Path| fs::symlink_metadata(path).map(|about| about.uid()).ok();
        // In that of another user any file may be in the lock's place, one that blocks too.
        if owner(&path) != owner(Path::new("/proc/self")) {
            continue;
        }
        // One without a lock file is being made right now, or its owner ended before it made the lock file.
        let Ok(lock) = File::open(path.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            drop(fs::remove_dir_all(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_being_made_is_not_taken_for_an_abandoned_one() {
        let dir = tempfile::tempdir().unwrap();
        let make = || {
            for _ in 0..300 {
                let made = ScratchDirectory::create(dir.path()).unwrap();
                assert!(made.path().join(LOCK).exists());
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(make))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_are_removed_with_their_owner_and_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        let first = ScratchDirectory::create(dir.path()).unwrap();
        let second = ScratchDirectory::create(dir.path()).unwrap();
        fs::write(first.path().join("copy"), b"x").unwrap();
        assert!(first.path() != second.path() && first.path().join("copy").exists());
        drop((first, second));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("holdall-scratch-1-0");
        let begun = dir.path().join("holdall-scratch-1-1");
        fs::create_dir(&left).unwrap();
        fs::create_dir(&begun).unwrap();
        fs::write(left.join(LOCK), b"").unwrap();
        fs::write(left.join("large"), b"x").unwrap();
        let made = ScratchDirectory::create(dir.path()).unwrap();
        assert!(!left.exists() && begun.exists() && made.path().exists());
    }
}
