//! Looking up names, and changing them.

use super::{pinned, pinned_name};
use crate::{
    disk::{DiskError, Operation},
    os,
    remote::{self, ObjectAbout},
};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The numbers that distinguish a file from all others while it exists, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileNumbers {
    device: u64,
    inode: u64,
}

impl FileNumbers {
    pub(super) fn new(device: u64, inode: u64) -> Self {
        Self { device, inode }
    }

    /// The numbers of an open file.
    ///
    /// # Errors
    /// When it cannot be inspected.
    pub(crate) fn of(file: &fs::File) -> io::Result<Self> {
        Ok(Self::of_metadata(&file.metadata()?))
    }

    pub(crate) fn of_metadata(about: &fs::Metadata) -> Self {
        Self::new(about.dev(), about.ino())
    }
}

/// The numbers of the file with this name; a link has separate numbers.
///
/// # Errors
/// When nothing has the name, or it cannot be inspected.
pub fn file_numbers(path: &Path) -> Result<FileNumbers, DiskError> {
    Ok(FileNumbers::of_metadata(&name_metadata(path)?))
}

/// Whether something is at `path`.
///
/// # Errors
/// When that cannot be found out.
pub fn exists(path: &Path) -> Result<bool, DiskError> {
    if remote::is_remote(path) {
        return match about(path) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        };
    }
    let found = match pinned(path) {
        Ok(path) => path.try_exists(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    found.map_err(|source| DiskError::new(path, Operation::Inspect, source))
}

/// The metadata of the file at `path`, following links where allowed.
fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    fs::metadata(pinned(path)?)
}

/// The metadata of the name `path`, which may be a link.
fn name_metadata(path: &Path) -> Result<fs::Metadata, DiskError> {
    let about = pinned_name(path).and_then(fs::symlink_metadata);
    about.map_err(|source| DiskError::new(path, Operation::Inspect, source))
}

/// Whether `path` is a directory (links followed); `false` for a missing one.
pub fn is_dir(path: &Path) -> bool {
    if remote::is_remote(path) {
        return about(path).is_ok_and(|about| about.is_dir());
    }
    metadata(path).is_ok_and(|about| about.is_dir())
}

/// Whether `path` is a regular file (links followed); `false` for a missing one.
pub fn is_file(path: &Path) -> bool {
    about(path).is_ok_and(|about| about.kind == Kind::File)
}

/// Whether a path is a symbolic link, wherever it points.
pub fn is_link(path: &Path) -> bool {
    name_metadata(path).is_ok_and(|about| about.is_symlink())
}

/// The kinds of things that a name can belong to.
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

/// The file or folder that has a name.
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

    fn of_object(about: &ObjectAbout) -> Self {
        Self {
            kind: if about.is_dir { Kind::Directory } else { Kind::File },
            len_bytes: about.len_bytes,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }
}

/// Describes the file or folder at `path`; for a link, its target.
///
/// # Errors
/// When it does not exist or cannot be inspected.
pub fn about(path: &Path) -> Result<About, DiskError> {
    if let Some(url) = remote::url(path) {
        let about = remote::client().and_then(|client| client.about(url));
        return match about {
            Ok(about) => Ok(About::of_object(&about)),
            Err(source) => Err(DiskError::new(path, Operation::Inspect, source)),
        };
    }
    let metadata = metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(About::of(&metadata))
}

/// Properties that change with the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeStamp {
    /// Its length in bytes.
    pub len_bytes: u64,
    /// When its content was last changed, in nanoseconds since 1970.
    pub changed_nanos: i64,
}

/// The length and time of change of the file at `path`; `None` when it does not exist (any more).
///
/// # Errors
/// When it cannot be inspected.
pub fn change_stamp(path: &Path) -> Result<Option<ChangeStamp>, DiskError> {
    match metadata(path) {
        Ok(metadata) => Ok(Some(ChangeStamp {
            len_bytes: metadata.len(),
            changed_nanos: metadata
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(metadata.mtime_nsec()),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DiskError::new(path, Operation::Inspect, source)),
    }
}

/// Describes the name `path`: a link itself, not its target.
///
/// # Errors
/// When nothing has the name, or it cannot be inspected.
pub fn about_name(path: &Path) -> Result<About, DiskError> {
    if remote::is_remote(path) {
        return about(path);
    }
    Ok(About::of(&name_metadata(path)?))
}

/// Whether `path` is a directory, itself and not by a link, that belongs to this user and that no other can enter or change.
pub fn is_private_dir(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).is_ok_and(|about| {
        let is_ours = about.uid() == rustix::process::geteuid().as_raw();
        about.is_dir() && is_ours && about.mode() & 0o077 == 0
    })
}

/// Whether `path` is a regular file, itself and not by a link, that only this user or root can change.
pub fn is_changed_by_us_only(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|about| about.is_file() && is_owned_by_user_or_root(&about) && about.mode() & 0o022 == 0)
}

/// The first of `folder` and its ancestors in which a user other than this one or root can rename or replace entries. A folder that the group
/// of this process may change counts as owned by this user, because many systems create folders this way.
pub fn folder_of_others(folder: &Path) -> Option<PathBuf> {
    let whole = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let group = rustix::process::getegid().as_raw();
    let is_ours = |about: &fs::Metadata| {
        let (mode, is_sticky) = (about.mode(), about.mode() & 0o1000 != 0);
        let may_group = mode & 0o020 != 0 && about.gid() != group;
        is_owned_by_user_or_root(about) && (is_sticky || (mode & 0o002 == 0 && !may_group))
    };
    let mut folders = whole.ancestors();
    let found = folders.find(|folder| !fs::symlink_metadata(folder).is_ok_and(|about| is_ours(&about)));
    found.map(Path::to_owned)
}

fn is_owned_by_user_or_root(about: &fs::Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw() || about.uid() == 0
}

/// Allows only the owner of the file at `path` to read and write it.
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
    if remote::is_remote(path) {
        return Ok(about(path)?.len_bytes);
    }
    let metadata = metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(metadata.len())
}

/// When a file of this computer was last changed, in nanoseconds since 1970.
///
/// # Errors
/// When it is not there or cannot be inspected.
pub fn modified_ns(path: &Path) -> Result<i64, DiskError> {
    use std::os::unix::fs::MetadataExt;
    let metadata = metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(metadata
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(metadata.mtime_nsec()))
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
    pinned_name(path)
        .and_then(fs::remove_file)
        .map_err(|source| DiskError::new(path, Operation::Remove, source))
}

/// Renames a file in place of whatever has the name `to`, in the same file system. Not durable before [`make_durable`].
///
/// # Errors
/// When it is not there or cannot be renamed.
pub fn rename_over(from: &Path, to: &Path) -> Result<(), DiskError> {
    pinned_name(from)
        .and_then(|from| fs::rename(from, pinned_name(to)?))
        .map_err(|source| DiskError::new(to, Operation::Rename, source))
}

/// Gives a file a name in the same file system that nothing may have, also no link.
///
/// # Errors
/// When the name is taken, or it cannot be renamed.
pub fn rename_new(from: &Path, to: &Path) -> Result<(), DiskError> {
    let fail = |source| DiskError::new(to, Operation::Rename, source);
    let (old, new) = (pinned_name(from).map_err(fail)?, pinned_name(to).map_err(fail)?);
    let (old, new): (&Path, &Path) = (old.as_ref(), new.as_ref());
    match renameat_with(CWD, old, CWD, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A file system that does not know the flag.
        Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(new).is_err() => {
            fs::rename(old, new).map_err(fail)
        }
        Err(error) => Err(fail(error.into())),
    }
}
