//! The one way to create files next to the recorded data: under a random name, never through a link,
//! renamed when complete.

use crate::{
    disk::{DiskError, Operation},
    fs::{FileNumbers, pinned, remove_that_file},
    lock,
    unfinished::{Unfinished, while_nothing_is_removed},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Prefix and suffix of the names of unfinished files. They contain nothing of the file's name, so that they
/// never are too long.
const PREFIX: &str = ".holdall-";
const SUFFIX: &str = ".partial";

/// Random names that are tried; one is free unless there is a serious fault.
const TRIES_MAX: u32 = 100;

/// Opens a regular file for reading. Any other type (a FIFO, a device, a socket, a directory) is refused, and
/// nothing waits.
///
/// # Errors
/// When it cannot be opened or is not a regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(pinned(path)?)?;
    refuse_unless_regular(&file)?;
    Ok(file)
}

/// Opens a regular file to change it in place. A symbolic link is refused: it may point to any file
/// of this user.
///
/// # Errors
/// When it cannot be opened, is a link, or is not a regular file.
pub(crate) fn open_to_change(path: &Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    let opened = options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a symbolic link, and a file that it leads to is not changed",
        ),
        _ => error,
    })?;
    refuse_unless_regular(&file)?;
    Ok(file)
}

fn refuse_unless_regular(file: &File) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let kind = file.metadata()?.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "it is not a regular file but a directory",
        () if kind.is_fifo() => "it is not a regular file but a FIFO",
        () if kind.is_char_device() || kind.is_block_device() => "it is not a regular file but a device",
        () => "it is not a regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// A new file that gets its name when it is complete. It is removed when it is dropped before; one that a
/// killed process leaves is removed by [`remove_left_over`].
#[derive(Debug)]
pub struct NewFile {
    /// The folder, held open: files are created and renamed in this one, even if its path leads elsewhere by
    /// then.
    folder: File,
    temporary: OsString,
    name: OsString,
    path: PathBuf,
    file: File,
    has_name: bool,
    _unfinished: Unfinished,
}

impl NewFile {
    /// Creates a file that will be named `path`, in the same folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn beside(path: &Path) -> Result<Self, DiskError> {
        // As every program does; the umask takes from it.
        Self::with_mode(path, 0o666)
    }

    /// The same, for a file that only its owner can read and write from the beginning.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn private_beside(path: &Path) -> Result<Self, DiskError> {
        Self::with_mode(path, 0o600)
    }

    fn with_mode(path: &Path, mode: u32) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Create, source);
        let name = path
            .file_name()
            .ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let folder_path = parent_of(path);
        let folder = open_folder(folder_path).map_err(fail)?;
        for _ in 0..TRIES_MAX {
            let temporary = random_name().map_err(fail)?;
            let open = || create_new_in(&folder, &temporary, mode);
            match Unfinished::make(&folder_path.join(&temporary), open) {
                Ok((unfinished, file)) => {
                    lock::mark_written(&file);
                    return Ok(Self {
                        folder,
                        temporary,
                        name: name.to_owned(),
                        path: path.to_owned(),
                        file,
                        has_name: false,
                        _unfinished: unfinished,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(fail(source)),
            }
        }
        Err(fail(io::ErrorKind::AlreadyExists.into()))
    }

    /// The file, for writing.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Makes its content durable; the name is made durable by [`NewFile::sync_folder`] after it was given.
    ///
    /// # Errors
    /// When that fails.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.file
            .sync_all()
            .map_err(|source| DiskError::new(&self.path, Operation::Sync, source))
    }

    /// Gives it its name and replaces an existing file: a link there is replaced, and its target is left
    /// unchanged.
    ///
    /// # Errors
    /// When the system refuses; the existing file is unchanged then.
    pub fn replace(&mut self) -> Result<(), DiskError> {
        self.rename(RenameFlags::empty())
    }

    /// Gives it its name, which must be free.
    ///
    /// # Errors
    /// When the name is taken, or the system refuses.
    pub fn publish_new(&mut self) -> Result<(), DiskError> {
        match self.rename(RenameFlags::NOREPLACE) {
            // File systems that do not know the flag.
            Err(error)
                if matches!(error.source.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
                    && self.path.symlink_metadata().is_err() =>
            {
                self.rename(RenameFlags::empty())
            }
            other => other,
        }
    }

    fn rename(&mut self, flags: RenameFlags) -> Result<(), DiskError> {
        let renamed = if flags.is_empty() {
            rustix::fs::renameat(&self.folder, &self.temporary, &self.folder, &self.name)
        } else {
            rustix::fs::renameat_with(&self.folder, &self.temporary, &self.folder, &self.name, flags)
        };
        renamed.map_err(|error| DiskError::new(&self.path, Operation::Rename, error.into()))?;
        self.has_name = true;
        Ok(())
    }

    /// Waits until its name survives a power cut.
    ///
    /// # Errors
    /// When that fails.
    pub fn sync_folder(&self) -> Result<(), DiskError> {
        match self.folder.sync_all() {
            // Some file systems cannot sync a directory; there its entries need none.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                Err(DiskError::new(&self.path, Operation::Sync, error))
            }
            _ => Ok(()),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.has_name {
            // The error that made this useless is the one to report.
            let _ = rustix::fs::unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// Creates a file where none exists, also no link. It is not removed when the process ends early.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    // O_EXCL follows no link; the flag makes that explicit for readers.
    options
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_NOFOLLOW);
    while_nothing_is_removed(|| options.open(path))
}

fn parent_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn open_folder(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path)
}

fn create_new_in(folder: &File, name: &OsString, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode));
    Ok(File::from(opened.map_err(io::Error::from)?))
}

fn random_name() -> io::Result<OsString> {
    let mut bytes = [0; 8];
    loop {
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            // So few bytes arrive at once or not at all.
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(format!("{PREFIX}{:016x}{SUFFIX}", u64::from_ne_bytes(bytes)).into())
}

/// Removes the files that this user's killed processes have left in a folder through [`NewFile`]: unfinished
/// files that no process has locked. Best effort.
pub fn remove_left_over(folder: &Path) {
    let owner = fs::metadata("/proc/self").map(|about| about.uid()).ok();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let random = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        if !random.is_some_and(|random| random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit())) {
            continue;
        }
        let path = entry.path();
        let ours = path
            .symlink_metadata()
            .ok()
            .filter(|about| about.is_file() && Some(about.uid()) == owner);
        let Some(about) = ours else { continue };
        if lock::writer_of(&path).is_ok_and(|writer| writer.is_none()) {
            let _ = remove_that_file(&path, FileNumbers::of_metadata(&about));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_has_its_name_when_it_is_complete_or_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n".repeat(255));
        let mut new = NewFile::beside(&path).unwrap();
        new.file().write_all(b"text").unwrap();
        assert!(!path.exists());
        new.publish_new().unwrap();
        new.sync_folder().unwrap();
        drop(new);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let mut second = NewFile::beside(&path).unwrap();
        assert!(second.publish_new().unwrap_err().is_already_exists());
        drop(second);
        assert_eq!(names(dir.path()).len(), 1);
    }

    #[test]
    fn a_link_at_the_place_is_replaced_and_what_it_leads_to_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("metadata.yaml"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        assert!(
            NewFile::beside(&path)
                .unwrap()
                .publish_new()
                .unwrap_err()
                .is_already_exists()
        );
        assert_eq!(
            create_new(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        let mut new = NewFile::beside(&path).unwrap();
        new.file().write_all(b"new").unwrap();
        new.replace().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(path.symlink_metadata().unwrap().is_file());
        symlink(&victim, dir.path().join("link")).unwrap();
        let mut options = fs::OpenOptions::new();
        let refused = open_to_change(&dir.path().join("link"), options.write(true)).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for (path, kind) in [
            (fifo.as_path(), "FIFO"),
            (dir.path(), "directory"),
            (Path::new("/dev/zero"), "device"),
        ] {
            let refused = open_regular(path).unwrap_err();
            assert!(refused.to_string().contains(kind), "{refused}");
        }
        let mut options = fs::OpenOptions::new();
        assert!(open_to_change(&fifo, options.write(true)).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_in_the_making_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(".holdall-0123456789abcdef.partial");
        let others = [
            ".holdall-0123.partial",
            "holdall-0123456789abcdef.partial",
            "notes",
        ];
        fs::write(&left, "half").unwrap();
        for name in others {
            fs::write(dir.path().join(name), "mine").unwrap();
        }
        symlink("notes", dir.path().join(".holdall-0123456789abcdee.partial")).unwrap();
        let new = NewFile::beside(&dir.path().join("name")).unwrap();
        remove_left_over(dir.path());
        assert!(!left.exists());
        assert_eq!(names(dir.path()).len(), others.len() + 2);
        drop(new);
    }
}
