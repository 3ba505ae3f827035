//! What a name leads to, and changes of names.

use crate::{
    disk::{DiskError, Operation},
    os,
};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
};

/// What distinguishes a file from all others while it exists, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileNumbers {
    device: u64,
    inode: u64,
}

/// The numbers of the file that has this name; a link has numbers of its own.
///
/// # Errors
/// When nothing has the name, or it cannot be inspected.
pub fn file_numbers(path: &Path) -> Result<FileNumbers, DiskError> {
    use std::os::unix::fs::MetadataExt;
    let about =
        fs::symlink_metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(FileNumbers {
        device: about.dev(),
        inode: about.ino(),
    })
}

/// Whether something is at `path`.
///
/// # Errors
/// When that cannot be found out.
pub fn exists(path: &Path) -> Result<bool, DiskError> {
    path.try_exists()
        .map_err(|source| DiskError::new(path, Operation::Inspect, source))
}

/// Whether `path` is a directory (links followed); `false` when nothing is there.
pub fn is_dir(path: &Path) -> bool {
    path.is_dir()
}

/// Whether a path is a symbolic link, wherever it points.
pub fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_symlink())
}

/// What kind of thing has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
    /// A device, a pipe.
    Other,
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its kind.
    pub kind: Kind,
    /// Its length in bytes.
    pub len_bytes: u64,
}

impl About {
    fn of(metadata: &fs::Metadata) -> Self {
        let kind = metadata.file_type();
        Self {
            kind: match () {
                () if kind.is_file() => Kind::File,
                () if kind.is_dir() => Kind::Directory,
                () if kind.is_symlink() => Kind::Link,
                () if kind.is_socket() => Kind::Socket,
                () => Kind::Other,
            },
            len_bytes: metadata.len(),
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }
}

/// What is at `path`; of a link, what it leads to.
///
/// # Errors
/// When nothing is there, or it cannot be inspected.
pub fn about(path: &Path) -> Result<About, DiskError> {
    let metadata = fs::metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(About::of(&metadata))
}

/// What has the name `path`: a link itself, not what it leads to.
///
/// # Errors
/// When nothing has the name, or it cannot be inspected.
pub fn about_name(path: &Path) -> Result<About, DiskError> {
    let metadata =
        fs::symlink_metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(About::of(&metadata))
}

/// Whether `path` is a directory, itself and not by a link, that belongs to this user and that no other can enter or change.
pub fn is_private_dir(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).is_ok_and(|about| {
        let is_ours = about.uid() == rustix::process::geteuid().as_raw();
        about.is_dir() && is_ours && about.mode() & 0o077 == 0
    })
}

/// Lets only the owner of what is at `path` read and write it.
///
/// # Errors
/// When its permissions cannot be changed.
pub fn make_private(path: &Path) -> Result<(), DiskError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|source| DiskError::new(path, Operation::Write, source))
}

/// Length of a file in bytes.
///
/// # Errors
/// When it is not there or cannot be inspected.
pub fn file_len(path: &Path) -> Result<u64, DiskError> {
    let metadata = fs::metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(metadata.len())
}

/// Free bytes for an unprivileged user on the file system of `path`.
///
/// # Errors
/// When it cannot be inspected.
pub fn available_bytes(path: &Path) -> Result<u64, DiskError> {
    os::available_bytes(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))
}

/// Removes a file.
///
/// # Errors
/// When it is not there or cannot be removed.
pub fn remove_file(path: &Path) -> Result<(), DiskError> {
    fs::remove_file(path).map_err(|source| DiskError::new(path, Operation::Remove, source))
}

/// Renames a file in place of whatever has the name `to`, in the same file system. Not durable before [`make_durable`].
///
/// # Errors
/// When it is not there or cannot be renamed.
pub fn rename_over(from: &Path, to: &Path) -> Result<(), DiskError> {
    fs::rename(from, to).map_err(|source| DiskError::new(to, Operation::Rename, source))
}
