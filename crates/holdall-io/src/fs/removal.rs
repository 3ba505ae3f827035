//! Removes a file only while its name is that of the file that was checked.

use super::FileNumbers;
use crate::disk::{DiskError, Operation};
use rustix::{
    fs::{AtFlags, Mode, OFlags, open, openat, statat, unlinkat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// The folder that a path is in, held open: only its entries are removed, whatever happens to the names above it.
#[derive(Debug)]
pub(crate) struct HeldFolder {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl HeldFolder {
    /// Opens the folder that `path` is in.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self {
            folder: open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Opens the file for reading; a link is refused, a pipe not waited for.
    pub(crate) fn open_file(&self) -> io::Result<fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(fs::File::from(openat(
            &self.folder,
            &self.name,
            flags,
            Mode::empty(),
        )?))
    }

    /// Removes the file if it still is this one, and returns whether it was. Another file, a link or nothing of that name is left alone.
    pub(crate) fn remove(&self, that: FileNumbers) -> Result<bool, DiskError> {
        let fail = |error: Errno| DiskError::new(&self.path, Operation::Remove, error.into());
        match numbers_in(&self.folder, &self.name) {
            Ok(now) if now == that => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(fail(error)),
        }
        match unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(fail(error)),
        }
    }
}

fn numbers_in(folder: &OwnedFd, name: &OsStr) -> Result<FileNumbers, Errno> {
    let about = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileNumbers::new(about.st_dev, about.st_ino))
}

/// Removes the file at `path` if it still is `that` one, and returns whether it was. Another file, a link or nothing of that name is left
/// alone.
///
/// # Errors
/// When its folder cannot be opened, or the system refuses.
pub fn remove_that_file(path: &Path, that: FileNumbers) -> Result<bool, DiskError> {
    match HeldFolder::of(path) {
        Ok(folder) => folder.remove(that),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(DiskError::new(path, Operation::Remove, source)),
    }
}

/// Removes a regular file that a killed run may have left at `path`. Anything else of that name stays.
///
/// # Errors
/// When the system refuses.
pub fn remove_regular_file(path: &Path) -> Result<(), DiskError> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => remove_that_file(path, FileNumbers::of_metadata(&about)).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::file_numbers;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_removed_only_while_its_name_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&path, "checked").unwrap();
        fs::write(&other, "other").unwrap();
        let checked = file_numbers(&path).unwrap();
        let kept = dir.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        assert!(!remove_that_file(&path, checked).unwrap(), "nothing has the name");
        symlink(&kept, &path).unwrap();
        assert!(
            !remove_that_file(&path, checked).unwrap(),
            "a link to the same file"
        );
        fs::rename(&other, &path).unwrap();
        assert!(!remove_that_file(&path, checked).unwrap(), "another file");
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        fs::rename(&kept, &path).unwrap();
        assert!(remove_that_file(&path, checked).unwrap());
        assert!(!path.exists());
        assert!(!remove_that_file(&dir.path().join("none/file"), checked).unwrap());
    }

    #[test]
    fn a_folder_that_was_replaced_by_a_link_loses_nothing_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        for folder in [&ours, &theirs] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "content").unwrap();
        }
        let held = HeldFolder::of(&ours.join("file")).unwrap();
        let file = held.open_file().unwrap();
        let moved = dir.path().join("moved");
        fs::rename(&ours, &moved).unwrap();
        symlink(&theirs, &ours).unwrap();
        assert!(held.remove(FileNumbers::of(&file).unwrap()).unwrap());
        assert!(theirs.join("file").exists() && !moved.join("file").exists());
    }
}
