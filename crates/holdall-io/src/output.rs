//! A new file that is written from front to end by tools: bytes from memory, and whole parts of other files without a way through memory.

use crate::{
    disk::{DiskError, Operation},
    fs::File,
};
use std::{
    fs,
    io::{self, Write},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

/// Bytes that wait in memory before they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// After this many bytes the system is told to begin writing them to the disk, so that the sync at the end finds little to do.
const WRITE_BACK_BYTES: u64 = 16 << 20;

/// A file in the making.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: fs::File,
    buffer: Vec<u8>,
    /// Bytes that the file has, without those in the buffer.
    written: u64,
    /// Up to here the system was told to write back.
    told: u64,
}

impl OutputFile {
    /// Makes the file.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn create_new(path: &Path) -> Result<Self, DiskError> {
        let file = fs::File::options()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|source| DiskError::new(path, Operation::Create, source))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            written: 0,
            told: 0,
        })
    }

    /// Its length so far.
    pub fn len_bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the disk fails or is full.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.file
            .write_all(bytes)
            .map_err(|source| DiskError::new(&self.path, Operation::Write, source).at(self.written))?;
        self.written += bytes.len() as u64;
        self.write_back();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    /// Begins to write to the disk what was written. Best effort: the sync at the end is what counts.
    fn write_back(&mut self) {
        if self.written - self.told < WRITE_BACK_BYTES {
            return;
        }
        if let (Ok(start), Ok(len)) = (i64::try_from(self.told), i64::try_from(self.written - self.told)) {
            // SAFETY: plain system call without pointers on a descriptor that `self` keeps open.
            unsafe {
                libc::sync_file_range(self.file.as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE);
            }
        }
        self.told = self.written;
    }

    /// Appends `len_bytes` bytes of another file, from `offset` on. They do not come through this program's memory where the system can
    /// copy them itself.
    ///
    /// # Errors
    /// When the other file is shorter, or a disk fails or is full.
    pub fn append_from(&mut self, from: &File, offset: u64, len_bytes: u64) -> Result<(), DiskError> {
        self.flush()?;
        let (mut offset, mut left) = (offset, len_bytes);
        while left > 0 {
            // In steps, so that write-back begins early.
            let step = left.min(WRITE_BACK_BYTES);
            let copied = match self.copy_range(from, offset, step) {
                Ok(copied) => copied,
                Err(error) if is_not_supported(&error) => self.copy_through(from, offset, step)?,
                Err(source) => {
                    return Err(DiskError::new(&self.path, Operation::Write, source).at(self.written));
                }
            };
            if copied == 0 {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(DiskError::new(from.path(), Operation::Read, source).at(offset));
            }
            offset += copied;
            left -= copied;
            self.written += copied;
            self.write_back();
        }
        Ok(())
    }

    /// Lets the system copy; how many bytes it did.
    fn copy_range(&self, from: &File, offset: u64, len: u64) -> io::Result<u64> {
        let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let mut from_offset = i64::try_from(offset).map_err(too_large)?;
        let mut to_offset = i64::try_from(self.written).map_err(too_large)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX >> 1);
        // SAFETY: both descriptors are kept open by their owners, both offsets are valid for the call and not used after it.
        let copied = unsafe {
            libc::copy_file_range(
                from.descriptor(),
                &raw mut from_offset,
                self.file.as_raw_fd(),
                &raw mut to_offset,
                len,
                0,
            )
        };
        match u64::try_from(copied) {
            Ok(copied) => {
                // The call leaves the file's own position where it was.
                let mut file = &self.file;
                io::Seek::seek(&mut file, io::SeekFrom::Start(self.written + copied))?;
                Ok(copied)
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    fn copy_through(&mut self, from: &File, offset: u64, len: u64) -> Result<u64, DiskError> {
        let mut buffer = vec![0; usize::try_from(len).map_or(BUFFER_BYTES, |len| len.min(BUFFER_BYTES))];
        let read = from.read_at(&mut buffer, offset)?;
        self.file
            .write_all_at(&buffer[..read], self.written)
            .and_then(|()| {
                let mut file = &self.file;
                io::Seek::seek(&mut file, io::SeekFrom::Start(self.written + read as u64))
            })
            .map_err(|source| DiskError::new(&self.path, Operation::Write, source).at(self.written))?;
        Ok(read as u64)
    }

    /// Writes what waits and makes all of it durable; its length.
    ///
    /// # Errors
    /// When the disk fails or is full.
    pub fn finish(mut self) -> Result<u64, DiskError> {
        self.flush()?;
        self.file
            .sync_all()
            .map_err(|source| DiskError::new(&self.path, Operation::Sync, source))?;
        Ok(self.written)
    }
}

/// Errors with which systems and file systems say that they cannot copy by themselves.
fn is_not_supported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EXDEV | libc::EINVAL | libc::EOPNOTSUPP | libc::EBADF | libc::EPERM)
    )
}

/// Renames a directory to a name that must be free, and makes that durable.
///
/// # Errors
/// When the name is taken, or the system refuses.
pub fn publish_dir(from: &Path, to: &Path) -> Result<(), DiskError> {
    use std::os::unix::ffi::OsStrExt;
    let fail = |source| DiskError::new(to, Operation::Rename, source);
    let c_path = |path: &Path| {
        std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|_| fail(io::Error::from(io::ErrorKind::InvalidInput)))
    };
    let (c_from, c_to) = (c_path(from)?, c_path(to)?);
    // SAFETY: both strings end with a zero and live longer than the call.
    let result = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            c_from.as_ptr(),
            libc::AT_FDCWD,
            c_to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A file system that does not know the flag.
            Some(libc::EINVAL | libc::ENOSYS) if !to.exists() => fs::rename(from, to).map_err(fail)?,
            _ => return Err(fail(error)),
        }
    }
    crate::os::sync_directory_of(to).map_err(|source| DiskError::new(to, Operation::Sync, source))
}

/// Removes a directory and all that is in it; one that is not there is no error.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DiskError::new(path, Operation::Remove, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_parts_of_files_come_one_behind_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        fs::write(&from, &content).unwrap();
        let from = File::open(&from).unwrap();
        let path = dir.path().join("to");
        let mut to = OutputFile::create_new(&path).unwrap();
        to.append(b"head").unwrap();
        to.append_from(&from, 5, 2_500_000).unwrap();
        to.append(b"middle").unwrap();
        to.append(&content).unwrap();
        to.append_from(&from, 0, 1).unwrap();
        to.append(b"tail").unwrap();
        let mut expected = b"head".to_vec();
        expected.extend(&content[5..2_500_005]);
        expected.extend(b"middle");
        expected.extend(&content);
        expected.push(content[0]);
        expected.extend(b"tail");
        assert_eq!(to.len_bytes(), expected.len() as u64);
        assert_eq!(to.finish().unwrap(), expected.len() as u64);
        assert!(fs::read(&path).unwrap() == expected);
        assert!(OutputFile::create_new(&path).unwrap_err().is_already_exists());
    }

    #[test]
    fn a_part_beyond_the_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("from"), b"short").unwrap();
        let from = File::open(&dir.path().join("from")).unwrap();
        let mut to = OutputFile::create_new(&dir.path().join("to")).unwrap();
        assert!(to.append_from(&from, 2, 4).is_err());
    }

    #[test]
    fn a_directory_never_takes_a_name_that_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        assert!(publish_dir(&a, &b).unwrap_err().is_already_exists());
        publish_dir(&a, &dir.path().join("c")).unwrap();
        assert!(!a.exists() && dir.path().join("c").exists());
        remove_dir_all(&dir.path().join("none")).unwrap();
    }
}
