//! Whole-file operations for everything that is not recorded data; every error names its path.

use crate::{
    disk::{DiskError, Operation},
    new_file::{NewFile, create_new, open_regular, open_to_change},
    os,
    unfinished::while_nothing_is_removed,
};
use std::{
    fs, io,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

/// A file open for reading at any place. Cheap to share: reading needs no `&mut`.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    file: fs::File,
    len_bytes: u64,
}

impl File {
    /// Opens an existing regular file.
    ///
    /// # Errors
    /// When it cannot be opened or is no regular file.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let fail = |source| DiskError::new(path, Operation::Open, source);
        let file = open_regular(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            len_bytes: metadata.len(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length when it was opened, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Reads exactly `into.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// When reading fails or the file ends before.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.file
            .read_exact_at(into, offset)
            .map_err(|source| DiskError::new(&self.path, Operation::Read, source).at(offset))
    }

    /// Reads exactly `count` bytes from `offset` on into memory of their own, which is not initialized first.
    /// Lack of memory is an error like others: `count` may come from the file.
    ///
    /// # Errors
    /// When there is not so much memory, reading fails or the file ends before.
    pub fn read_bytes_at(&self, offset: u64, count: usize) -> Result<Vec<u8>, DiskError> {
        let fail = |source| DiskError::new(&self.path, Operation::Read, source).at(offset);
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(count).map_err(|_| {
            let what = format!("there is not enough memory for {count} bytes");
            fail(io::Error::new(io::ErrorKind::OutOfMemory, what))
        })?;
        while bytes.len() < count {
            let (at, room) = (offset.saturating_add(bytes.len() as u64), count - bytes.len());
            let place = libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX);
            let spare = bytes.spare_capacity_mut().as_mut_ptr();
            // SAFETY: `spare` points to at least `room` bytes of reserved memory that nothing else has.
            let read = unsafe { libc::pread(self.file.as_raw_fd(), spare.cast(), room, place) };
            match usize::try_from(read) {
                Ok(0) => return Err(fail(io::ErrorKind::UnexpectedEof.into())),
                // SAFETY: the system has written that many bytes after the existing ones, within the
                // capacity.
                Ok(more) => unsafe { bytes.set_len(bytes.len() + more) },
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(fail(error)),
                },
            }
        }
        Ok(bytes)
    }

    /// Reads up to `into.len()` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// When reading fails.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut count = 0;
        while count < into.len() {
            match self.file.read_at(&mut into[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(DiskError::new(&self.path, Operation::Read, source).at(offset + count as u64));
                }
            }
        }
        Ok(count)
    }

    /// Advises the kernel that these bytes will be read soon, so that it fetches them now.
    pub fn expect_read(&self, offset: u64, len_bytes: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len_bytes)) else {
            return;
        };
        // SAFETY: plain system call without pointers on an open descriptor; it is advice only, failing is harmless.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), offset, len, libc::POSIX_FADV_WILLNEED) };
    }

    /// Advises the kernel that the file will be read from front to back, so that it reads further ahead.
    pub fn expect_sequential_reads(&self) {
        // SAFETY: plain system call without pointers on an open descriptor; it is advice only, failing is harmless.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_SEQUENTIAL) };
    }
}

/// An existing file that is changed in place: for repairs, which are few and small.
#[derive(Debug)]
pub struct EditedFile {
    path: PathBuf,
    file: fs::File,
}

impl EditedFile {
    /// Opens an existing file for writing. A symbolic link is refused: its target may not be part of the bag.
    ///
    /// # Errors
    /// When it is not there, is a link or no regular file, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let opened = open_to_change(path, fs::OpenOptions::new().write(true));
        let file = opened.map_err(|source| DiskError::new(path, Operation::Open, source))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Overwrites bytes.
    ///
    /// # Errors
    /// When they cannot all be written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let written = std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, offset);
        written.map_err(|source| DiskError::new(&self.path, Operation::Write, source).at(offset))
    }

    /// Makes everything so far durable.
    ///
    /// # Errors
    /// When that fails: what was written since the last time may be gone.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.file
            .sync_all()
            .map_err(|source| DiskError::new(&self.path, Operation::Sync, source))
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn set_len(&self, length_bytes: u64) -> Result<(), DiskError> {
        self.file
            .set_len(length_bytes)
            .map_err(|source| DiskError::new(&self.path, Operation::Write, source))
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Where it is (the directory's path with the name).
    pub path: PathBuf,
    /// Whether it is a directory itself.
    pub is_dir: bool,
}

/// The text of a small file.
///
/// # Errors
/// When it cannot be read, is larger than `bytes_max`, or is not UTF-8.
pub fn read_to_string(path: &Path, bytes_max: u64) -> Result<String, DiskError> {
    let bytes = read(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to() as u64;
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
        DiskError::new(path, Operation::Read, source).at(offset)
    })
}

/// The bytes of a small file.
///
/// # Errors
/// When it cannot be read, is no regular file, or is larger than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let fail = |source| DiskError::new(path, Operation::Read, source);
    let file = open_regular(path).map_err(|source| DiskError::new(path, Operation::Open, source))?;
    let mut bytes = Vec::new();
    // The file system's length may be wrong (/proc) or change: the bound is kept while reading.
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it is larger than {bytes_max} bytes");
        return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, what)));
    }
    Ok(bytes)
}

/// Replaces the file at `path` with `bytes`, so that after a crash there is the old content or the new, never
/// a part. Durable on return.
///
/// # Errors
/// When the new content cannot be written; the old content is unchanged then.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut new = written(path, bytes)?;
    new.sync()?;
    new.replace()?;
    new.sync_folder()
}

/// As [`write_atomically`] without waiting for the disk: a killed process leaves the old content or the new, a power cut may leave
/// an older one or none.
///
/// # Errors
/// When the new content cannot be written; the old content is unchanged then.
pub fn write_atomically_unsynced(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    written(path, bytes)?.replace()
}

/// A new file with this content, which has no name yet.
fn written(path: &Path, bytes: &[u8]) -> Result<NewFile, DiskError> {
    let mut new = NewFile::beside(path)?;
    let written = new.file().write_all(bytes);
    written.map_err(|source| DiskError::new(path, Operation::Write, source))?;
    Ok(new)
}

/// Creates the file `to`, which must not exist, with the output of `convert` while it reads `from`. It
/// appears under its name when it is complete, and `durable` if requested; `from` is not changed.
///
/// # Errors
/// When `to` exists, a file cannot be opened, or `convert` fails; no file is left then.
pub fn convert_file(
    from: &Path,
    to: &Path,
    durable: bool,
    convert: impl FnOnce(&mut fs::File, &mut fs::File) -> io::Result<()>,
) -> Result<(), DiskError> {
    let mut reader = open_regular(from).map_err(|source| DiskError::new(from, Operation::Open, source))?;
    let mut new = NewFile::beside(to)?;
    convert(&mut reader, new.file()).map_err(|source| DiskError::new(from, Operation::Read, source))?;
    if durable {
        new.sync()?;
    }
    new.publish_new()?;
    if durable { new.sync_folder() } else { Ok(()) }
}

fn sync_parent(path: &Path) -> Result<(), DiskError> {
    os::sync_directory_of(path).map_err(|source| DiskError::new(path, Operation::Sync, source))
}

/// Makes a file's bytes durable and removes them from the page cache, so that the next read comes from the
/// disk. For measurements.
///
/// # Errors
/// When the file cannot be opened or synced.
pub fn forget_cached(path: &Path) -> Result<(), DiskError> {
    let file = open_regular(path).map_err(|source| DiskError::new(path, Operation::Open, source))?;
    file.sync_all()
        .map_err(|source| DiskError::new(path, Operation::Sync, source))?;
    // SAFETY: plain system call without pointers on a descriptor that is open here.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
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

/// Appends bytes to a file, which is created where it does not exist. Not durable before [`make_durable`].
///
/// # Errors
/// When it cannot be opened or written.
pub fn append(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let opened = open_to_change(path, fs::OpenOptions::new().append(true).create(true));
    let mut file = opened.map_err(|source| DiskError::new(path, Operation::Open, source))?;
    file.write_all(bytes)
        .map_err(|source| DiskError::new(path, Operation::Write, source))
}

/// Cuts an existing file to nothing.
///
/// # Errors
/// When it is not there or cannot be cut.
pub fn truncate(path: &Path) -> Result<(), DiskError> {
    let opened = open_to_change(path, fs::OpenOptions::new().write(true).truncate(true));
    opened
        .map(drop)
        .map_err(|source| DiskError::new(path, Operation::Open, source))
}

/// Waits until a file and its name survive a power cut.
///
/// # Errors
/// When it cannot be opened or synced.
pub fn make_durable(path: &Path) -> Result<(), DiskError> {
    let file = open_regular(path).map_err(|source| DiskError::new(path, Operation::Open, source))?;
    file.sync_all()
        .map_err(|source| DiskError::new(path, Operation::Sync, source))?;
    sync_parent(path)
}

/// A file system that is made durable as a whole, which costs about as much as one file of it.
#[derive(Debug)]
pub struct FileSystem {
    path: PathBuf,
    /// Kept open: a failed write is reported to descriptors that were open when it failed.
    directory: fs::File,
}

impl FileSystem {
    /// The file system of `dir`; `None` before Linux 5.8, whose `syncfs` does not report failed writes.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn of(dir: &Path) -> Result<Option<Self>, DiskError> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if !tells_of_failed_writes(&release) {
            return Ok(None);
        }
        let directory = fs::File::open(dir).map_err(|source| DiskError::new(dir, Operation::Open, source))?;
        Ok(Some(Self {
            path: dir.to_owned(),
            directory,
        }))
    }

    /// Waits until everything that was written to it survives a power cut, also the writes of others.
    ///
    /// # Errors
    /// When bytes that were written since the last time, or since this was made, may be gone.
    pub fn sync(&self) -> Result<(), DiskError> {
        // SAFETY: plain system call without pointers on a descriptor that is open here.
        if unsafe { libc::syncfs(self.directory.as_raw_fd()) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        Err(DiskError::new(&self.path, Operation::Sync, source))
    }
}

/// Whether `syncfs` of this kernel reports errors: since 5.8.
fn tells_of_failed_writes(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 8)
}

/// Copies a file to a name that nothing has yet, where the file system can by sharing its blocks. Durable on return.
///
/// # Errors
/// When `to` exists, or the file cannot be copied; the partial copy is removed then.
pub fn copy_new(from: &Path, to: &Path) -> Result<(), DiskError> {
    let mut target = create_new(to).map_err(|source| DiskError::new(to, Operation::Create, source))?;
    let copied = open_regular(from)
        .and_then(|mut source| io::copy(&mut source, &mut target))
        .and_then(|_| target.sync_all())
        .and_then(|()| os::sync_directory_of(to));
    copied.map_err(|source| {
        // A part is of no use; the error is what counts.
        let _ = fs::remove_file(to);
        DiskError::new(to, Operation::Write, source)
    })
}

/// Creates a file where none exists, and fills it with what `content` has.
///
/// # Errors
/// When the path exists, also as a link, or it cannot be written.
pub fn write_new(path: &Path, content: &mut dyn Read) -> Result<(), DiskError> {
    let mut file = create_new(path).map_err(|source| DiskError::new(path, Operation::Create, source))?;
    let copied = io::copy(content, &mut file);
    copied
        .map(drop)
        .map_err(|source| DiskError::new(path, Operation::Write, source))
}

/// Renames a file in place of whatever has the name `to`, in the same file system. Not durable before [`make_durable`].
///
/// # Errors
/// When it is not there or cannot be renamed.
pub fn rename_over(from: &Path, to: &Path) -> Result<(), DiskError> {
    fs::rename(from, to).map_err(|source| DiskError::new(to, Operation::Rename, source))
}

/// Whether a path is a symbolic link, wherever it points.
pub fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_symlink())
}

/// Whether a file has no byte but zeros: nothing was written into the space that was reserved for it. False
/// for a link and for what is no regular file.
///
/// # Errors
/// When it cannot be read.
pub fn is_unwritten(path: &Path) -> Result<bool, DiskError> {
    if is_link(path) || !path.is_file() {
        return Ok(false);
    }
    let file = File::open(path)?;
    let mut piece = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut piece, offset)?;
        if count == 0 {
            return Ok(true);
        }
        if piece[..count].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        offset += count as u64;
    }
}

/// Overwrites an existing file, whose space suffices, where there is no space for a new one. A kill during
/// the write leaves a part. Durable on return.
///
/// # Errors
/// When it is not there, is no regular file, or its space does not suffice; it may be torn then.
pub fn write_over(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let file = EditedFile::open(path)?;
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync()
}

/// As [`write_atomically_unsynced`], with room after the end for a text of `room_bytes` that [`write_over`]
/// may need on a full disk. Best effort: a file system without reservations has none.
///
/// # Errors
/// As [`write_atomically_unsynced`].
pub fn write_atomically_with_room(path: &Path, bytes: &[u8], room_bytes: u64) -> Result<(), DiskError> {
    use std::os::fd::AsRawFd;
    let mut new = written(path, bytes)?;
    if let Ok(room) = i64::try_from(room_bytes) {
        // SAFETY: plain system call without pointers on an open descriptor; that it fails is allowed.
        unsafe { libc::fallocate(new.file().as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, room) };
    }
    new.replace()
}

/// Removes a file.
///
/// # Errors
/// When it is not there or cannot be removed.
pub fn remove_file(path: &Path) -> Result<(), DiskError> {
    fs::remove_file(path).map_err(|source| DiskError::new(path, Operation::Remove, source))
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// When it is not there or something in it cannot be removed.
pub fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    fs::remove_dir_all(path).map_err(|source| DiskError::new(path, Operation::Remove, source))
}

/// Moves a file to a name that nothing has yet, in the same file system. Durable on return.
///
/// # Errors
/// When `to` exists or the file cannot be moved.
pub fn rename_new(from: &Path, to: &Path) -> Result<(), DiskError> {
    // A hard link fails when the name is taken; a plain rename would overwrite it.
    match fs::hard_link(from, to) {
        Ok(()) => remove_file(from)?,
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Err(DiskError::new(to, Operation::Rename, source));
        }
        // File systems without hard links.
        Err(_) if !to.exists() => {
            fs::rename(from, to).map_err(|source| DiskError::new(from, Operation::Rename, source))?;
        }
        Err(source) => return Err(DiskError::new(to, Operation::Rename, source)),
    }
    sync_parent(to)
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

/// Length of a file in bytes.
///
/// # Errors
/// When it is not there or cannot be inspected.
pub fn file_len(path: &Path) -> Result<u64, DiskError> {
    let metadata = fs::metadata(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))?;
    Ok(metadata.len())
}

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

/// Free bytes for an unprivileged user on the file system of `path`.
///
/// # Errors
/// When it cannot be inspected.
pub fn available_bytes(path: &Path) -> Result<u64, DiskError> {
    os::available_bytes(path).map_err(|source| DiskError::new(path, Operation::Inspect, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_synced_where_the_kernel_tells_of_failed_writes() {
        let told = ["6.18.44-fc", "5.8.0", "5.10", "10.0"].map(tells_of_failed_writes);
        let untold = ["5.7.19", "4.19.0-amd64", "", "x"].map(tells_of_failed_writes);
        assert_eq!((told, untold), ([true; 4], [false; 4]));
        let dir = tempfile::tempdir().unwrap();
        if let Some(file_system) = FileSystem::of(dir.path()).unwrap() {
            file_system.sync().unwrap();
        }
        assert!(FileSystem::of(&dir.path().join("absent")).is_err());
    }

    #[test]
    fn reading_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        write_atomically(&path, b"hello").unwrap();
        assert_eq!(read_to_string(&path, 5).unwrap(), "hello");
        let error = read_to_string(&path, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("could not read {}: it is larger than 4 bytes", path.display())
        );
    }

    #[test]
    fn text_that_is_none_names_the_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        write_atomically(&path, b"ab\xff").unwrap();
        assert_eq!(read_to_string(&path, 100).unwrap_err().offset, Some(2));
    }

    #[test]
    fn atomic_write_replaces_and_leaves_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.yaml");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(read(&path, 10).unwrap(), b"new");
        assert_eq!(list_dir(dir.path()).unwrap(), [DirEntry { path, is_dir: false }]);
    }

    #[test]
    fn failed_atomic_write_keeps_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        create_dir_new(&path).unwrap();
        write_atomically(&path.join("inside"), b"x").unwrap();
        assert!(write_atomically(&path, b"new").is_err());
        assert!(write_atomically_unsynced(&path, b"new").is_err());
        assert_eq!(list_dir(dir.path()).unwrap().len(), 1);
        assert_eq!(read(&path.join("inside"), 10).unwrap(), b"x");
    }

    #[test]
    fn existing_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/bag");
        create_dir_new(&path).unwrap();
        let error = create_dir_new(&path).unwrap_err();
        assert!(error.is_already_exists());
        assert_eq!(
            error.to_string(),
            format!("could not create directory {}: it exists already", path.display())
        );
    }

    #[test]
    fn a_file_in_the_place_of_a_parent_is_not_an_existing_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = create_dir_new(&dir.path().join("file/bag")).unwrap_err();
        assert!(!error.is_already_exists(), "{error}");
        assert!(error.to_string().contains("not a directory"), "{error}");
    }

    #[test]
    fn appending_makes_the_file_and_truncating_empties_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, b"ab").unwrap();
        append(&path, b"c").unwrap();
        make_durable(&path).unwrap();
        assert_eq!(read(&path, 10).unwrap(), b"abc");
        truncate(&path).unwrap();
        assert_eq!(file_len(&path).unwrap(), 0);
        assert!(truncate(&dir.path().join("none")).unwrap_err().is_not_found());
    }

    #[test]
    fn a_converted_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        write_atomically(&from, b"abc").unwrap();
        let broken = convert_file(&from, &to, true, |_, into| {
            into.write_all(b"half")?;
            Err(io::Error::other("torn"))
        });
        assert!(broken.unwrap_err().to_string().ends_with("torn"));
        assert_eq!(list_dir(dir.path()).unwrap().len(), 1);
        convert_file(&from, &to, true, |from, into| io::copy(from, into).map(drop)).unwrap();
        assert_eq!(read(&to, 10).unwrap(), b"abc");
        let again = convert_file(&from, &to, true, |_, _| Ok(()));
        assert!(again.unwrap_err().is_already_exists());
        assert_eq!(list_dir(dir.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_file_of_zeros_is_unwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (bytes, expected) in [
            (vec![], true),
            (vec![0; 3_000_000], true),
            ([vec![0; 2_999_999], vec![1]].concat(), false),
        ] {
            write_atomically(&path, &bytes).unwrap();
            assert_eq!(is_unwritten(&path).unwrap(), expected);
        }
        assert!(!is_unwritten(dir.path()).unwrap());
    }

    #[test]
    fn a_file_with_room_takes_a_longer_text_without_new_space() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.yaml");
        write_atomically_with_room(&path, b"short", 65536).unwrap();
        let before = fs::metadata(&path).unwrap();
        assert_eq!(before.len(), 5);
        let long = vec![b'x'; 60_000];
        write_over(&path, &long).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert!(fs::read(&path).unwrap() == long);
        // Where the file system reserves, the text goes into what was reserved; a block of the file system's own may come to it.
        let (reserved, used) = (before.blocks(), after.blocks());
        assert!(reserved < 128 || used < reserved + 64, "{reserved}, then {used}");
        write_over(&path, b"s").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"s");
        assert!(
            write_over(&dir.path().join("none"), b"")
                .unwrap_err()
                .is_not_found()
        );
    }

    #[test]
    fn rename_never_overwrites() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        write_atomically(&a, b"a").unwrap();
        write_atomically(&b, b"b").unwrap();
        assert!(rename_new(&a, &b).unwrap_err().is_already_exists());
        remove_file(&b).unwrap();
        rename_new(&a, &b).unwrap();
        assert_eq!(read(&b, 10).unwrap(), b"a");
        assert!(!exists(&a).unwrap());
    }

    #[test]
    fn file_is_read_at_any_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        write_atomically(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        let mut four = [0; 4];
        file.read_exact_at(&mut four, 3).unwrap();
        assert_eq!(&four, b"3456");
        assert_eq!(file.read_at(&mut four, 8).unwrap(), 2);
        let error = file.read_exact_at(&mut four, 8).unwrap_err();
        assert_eq!(
            (error.offset, error.source.kind()),
            (Some(8), io::ErrorKind::UnexpectedEof)
        );
        assert_eq!((file.len_bytes(), file_len(&path).unwrap()), (10, 10));
    }

    #[test]
    fn missing_file_and_directory_name_their_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        assert!(File::open(&path).unwrap_err().is_not_found());
        assert!(remove_file(&path).unwrap_err().is_not_found());
        assert_eq!(list_dir(&path).unwrap_err().path, path);
        let error = File::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("it is not a regular file"), "{error}");
    }
}
