//! Advisory locks on ranges of a file's bytes, as databases use them between processes. They belong to the open file that they were taken
//! with ("open file description locks"): closing another descriptor of the same file in this process does not release them, as it
//! does with locks of POSIX, and both kinds exclude each other.
#![allow(unsafe_code, reason = "the kernel's call has no safe interface")]

use crate::{
    clock::{Clock, SystemClock},
    disk::{DiskError, Operation},
    lock::Holder,
    new_file::open_regular,
};
use std::{
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// How many threads wait until other programs release a file.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// How long threads have waited for that in all, in nanoseconds.
static WAITED_NANOS: AtomicU64 = AtomicU64::new(0);

/// A thread waits, while this lives, until another program releases a file: nothing is written, and no disk is at fault.
#[derive(Debug)]
pub struct Waiting {
    begun: Duration,
}

impl Waiting {
    /// Begins to wait.
    pub fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Self {
            begun: SystemClock.monotonic(),
        }
    }

    /// How long threads of this process have waited in all; one that has not ended is not counted yet.
    pub fn total() -> Duration {
        Duration::from_nanos(WAITED_NANOS.load(Ordering::Relaxed))
    }

    /// Whether a thread of this process waits.
    pub fn is_any() -> bool {
        WAITING.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiting {
    /// Ends the wait.
    fn drop(&mut self) {
        let span = SystemClock.monotonic().saturating_sub(self.begun);
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        WAITED_NANOS.fetch_add(nanos, Ordering::Relaxed);
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What others may do with a locked range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// Others may have it shared, too.
    Shared,
    /// No other process, and no other open file of this one.
    Exclusive,
}

/// A file whose byte ranges can be locked. All locks end with it, and with the process.
#[derive(Debug)]
pub struct RangeLocks {
    path: PathBuf,
    file: File,
}

impl RangeLocks {
    /// Opens an existing regular file, for exclusive locks, too, when it may be `written`.
    ///
    /// # Errors
    /// When it cannot be opened or is not a regular file.
    pub fn open(path: &Path, written: bool) -> Result<Self, DiskError> {
        let opened = if written {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
                .open(path)
        } else {
            open_regular(path)
        };
        let file = opened.map_err(|source| DiskError::new(path, Operation::Open, source))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks a range, or changes the lock that this has on it; false when another process, or another open file, has a lock on it that
    /// excludes this one. Does not wait.
    ///
    /// # Errors
    /// A file system without such locks.
    pub fn try_lock(&self, lock: RangeLock, range: Range<u64>) -> io::Result<bool> {
        let mut request = request(kind_of(lock), &range);
        match self.call(libc::F_OFD_SETLK, &mut request) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases a range, whether it was locked or not.
    ///
    /// # Errors
    /// A file system without such locks.
    pub fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        self.call(libc::F_OFD_SETLK, &mut request(libc::F_UNLCK, &range))
    }

    /// Who would keep this from locking a range; `None` when it is free.
    ///
    /// # Errors
    /// A file system without such locks.
    pub fn holder(&self, lock: RangeLock, range: Range<u64>) -> io::Result<Option<Holder>> {
        let mut request = request(kind_of(lock), &range);
        self.call(libc::F_OFD_GETLK, &mut request)?;
        let is_free = i32::from(request.l_type) == libc::F_UNLCK;
        Ok((!is_free).then(|| Holder {
            // Locks of an open file have no process, those of other containers none that is known here.
            process: u32::try_from(request.l_pid).ok().filter(|process| *process > 0),
        }))
    }

    fn call(&self, command: libc::c_int, request: &mut libc::flock) -> io::Result<()> {
        loop {
            // SAFETY: an open descriptor, and a whole request that only this call uses.
            let result = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut *request) };
            if result >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

fn kind_of(lock: RangeLock) -> libc::c_int {
    match lock {
        RangeLock::Shared => libc::F_RDLCK,
        RangeLock::Exclusive => libc::F_WRLCK,
    }
}

fn request(kind: libc::c_int, range: &Range<u64>) -> libc::flock {
    // SAFETY: integers only, for which zeros are values; the process must be 0 for locks of an open file.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    // Constants of the kernel, which are small.
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = libc::off_t::try_from(range.start).unwrap_or(libc::off_t::MAX);
    request.l_len = libc::off_t::try_from(range.end - range.start).unwrap_or(libc::off_t::MAX);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_open_files_of_one_process_exclude_each_other_and_closing_a_third_releases_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let open = |written| RangeLocks::open(&path, written).unwrap();
        let (first, second) = (open(true), open(false));
        assert!(first.try_lock(RangeLock::Exclusive, 10..20).unwrap());
        assert!(!second.try_lock(RangeLock::Shared, 19..25).unwrap());
        assert!(second.try_lock(RangeLock::Shared, 20..25).unwrap());
        drop(File::open(&path).unwrap());
        assert!(second.holder(RangeLock::Shared, 0..11).unwrap().is_some());
        assert_eq!(second.holder(RangeLock::Shared, 0..10).unwrap(), None);
        assert!(
            first.try_lock(RangeLock::Shared, 10..20).unwrap(),
            "a lock is changed in place"
        );
        assert!(second.try_lock(RangeLock::Shared, 10..20).unwrap());
        assert!(!first.try_lock(RangeLock::Exclusive, 10..20).unwrap());
        second.unlock(0..100).unwrap();
        assert!(first.try_lock(RangeLock::Exclusive, 10..25).unwrap());
        drop(first);
        assert_eq!(second.holder(RangeLock::Shared, 0..100).unwrap(), None);
    }
}
