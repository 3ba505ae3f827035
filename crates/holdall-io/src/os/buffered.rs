//! Early write-back of bytes in the page cache, so that dirty pages never pile up: for file systems without O_DIRECT.

use crate::disk::FileId;
use rustix::fs::{Advice, fadvise};
use std::{collections::VecDeque, fs::File, io, num::NonZeroU64, os::fd::AsRawFd, sync::Arc};

/// Bytes after which write-back of a stretch is started.
pub(crate) const WRITE_BACK_STEP_BYTES: u64 = 8 << 20;

/// Bound of the bytes that are in the page cache and not yet on the disk: beyond it, writing waits for the oldest stretch.
pub(crate) const DIRTY_BYTES_MAX: u64 = 64 << 20;

/// A stretch of a file whose write-back has been started.
struct Stretch {
    file: FileId,
    handle: Arc<File>,
    offset: u64,
    len: u64,
}

/// Tracks the writes of one thread.
#[derive(Default)]
pub(super) struct WriteBack {
    /// Written, write-back not yet started.
    fresh: Option<Stretch>,
    started: VecDeque<Stretch>,
    /// Bytes of `fresh` and `started`.
    dirty_bytes: u64,
}

impl WriteBack {
    /// Waits for the oldest stretches until `len` more bytes fit under the bound.
    pub(super) fn make_room(&mut self, len: u64) -> io::Result<()> {
        while self.dirty_bytes + len > DIRTY_BYTES_MAX {
            if self.started.is_empty() {
                self.start_fresh()?;
            }
            let Some(oldest) = self.started.pop_front() else {
                break;
            };
            self.dirty_bytes -= oldest.len;
            let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            sync_range(&oldest, all)?;
            forget_range(&oldest);
        }
        Ok(())
    }

    /// Notes a write; starts write-back once a step is full.
    pub(super) fn wrote(
        &mut self,
        file: FileId,
        handle: &Arc<File>,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.dirty_bytes += len;
        match &mut self.fresh {
            Some(fresh) if fresh.file == file && fresh.offset + fresh.len == offset => fresh.len += len,
            _ => {
                self.start_fresh()?;
                self.fresh = Some(Stretch {
                    file,
                    handle: Arc::clone(handle),
                    offset,
                    len,
                });
            }
        }
        if self
            .fresh
            .as_ref()
            .is_some_and(|fresh| fresh.len >= WRITE_BACK_STEP_BYTES)
        {
            self.start_fresh()?;
        }
        Ok(())
    }

    /// Releases a file that is being closed, which syncs the rest of it.
    pub(super) fn forget(&mut self, file: FileId) {
        let fresh = self.fresh.take_if(|fresh| fresh.file == file);
        let gone: u64 = fresh.iter().map(|stretch| stretch.len).sum();
        let started: u64 = self
            .started
            .iter()
            .filter(|stretch| stretch.file == file)
            .map(|stretch| stretch.len)
            .sum();
        self.started.retain(|stretch| stretch.file != file);
        self.dirty_bytes -= gone + started;
    }

    fn start_fresh(&mut self) -> io::Result<()> {
        if let Some(fresh) = self.fresh.take() {
            sync_range(&fresh, libc::SYNC_FILE_RANGE_WRITE)?;
            self.started.push_back(fresh);
        }
        Ok(())
    }
}

fn sync_range(stretch: &Stretch, flags: libc::c_uint) -> io::Result<()> {
    let (Ok(offset), Ok(len)) = (i64::try_from(stretch.offset), i64::try_from(stretch.len)) else {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    };
    loop {
        // SAFETY: plain system call without pointers on a descriptor that `stretch` keeps open.
        if unsafe { libc::sync_file_range(stretch.handle.as_raw_fd(), offset, len, flags) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Not known here: the rest is left to the kernel's own write-back. An EIO or ENOSPC would be
            // reported only once, so it counts.
            Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP | libc::ESPIPE) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Removes written pages from the cache: a recording is not read again soon, and would evict pages that are.
fn forget_range(stretch: &Stretch) {
    // A length of 0 would mean the rest of the file.
    if let Some(len) = NonZeroU64::new(stretch.len) {
        // Advice only: failing is harmless.
        let _ = fadvise(&*stretch.handle, stretch.offset, Some(len), Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bytes_stay_below_the_bound_and_files_are_let_go() {
        let handle = Arc::new(tempfile::tempfile().unwrap());
        let mut write_back = WriteBack::default();
        let len = 3 << 20;
        let mut offset = 0;
        let mut most = 0;
        while offset < 4 * DIRTY_BYTES_MAX {
            write_back.make_room(len).unwrap();
            write_back.wrote(FileId(1), &handle, offset, len).unwrap();
            offset += len;
            assert!(write_back.dirty_bytes <= DIRTY_BYTES_MAX);
            most = most.max(write_back.dirty_bytes);
        }
        assert!(most > DIRTY_BYTES_MAX / 2, "the bound is used");
        write_back.forget(FileId(1));
        assert_eq!((write_back.dirty_bytes, Arc::strong_count(&handle)), (0, 1));
    }
}
