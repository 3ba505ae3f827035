//! Disks that misbehave as a test wants.

use holdall_io::{
    block::{Block, BlockPool},
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// A disk in front of another one: full after some bytes, or stuck until it is let go.
pub struct TestDisk<D> {
    inner: D,
    /// Writes that end beyond this many bytes in all fail.
    bytes_left: Arc<AtomicU64>,
    hold: Arc<Hold>,
    failed: Vec<Completion>,
}

/// Keeps writes waiting.
#[derive(Default)]
pub struct Hold {
    held: Mutex<bool>,
    changed: Condvar,
}

impl Hold {
    pub fn set(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let held = self.held.lock().unwrap();
        drop(self.changed.wait_while(held, |held| *held).unwrap());
    }
}

impl<D: Disk> TestDisk<D> {
    pub fn new(inner: D, bytes_left: Arc<AtomicU64>, hold: Arc<Hold>) -> Self {
        Self {
            inner,
            bytes_left,
            hold,
            failed: Vec::new(),
        }
    }
}

impl<D: Disk> Disk for TestDisk<D> {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        self.inner.create(path, reserve_bytes)
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        self.inner.submit_create(path, reserve_bytes)
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        self.hold.pass();
        let left = self.bytes_left.load(Ordering::SeqCst);
        if left < len as u64 {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            let error = DiskError::new(PathBuf::from("bag/bag_0.mcap"), Operation::Write, source).at(offset);
            self.failed.push(Completion::Written {
                file,
                offset,
                len,
                block,
                result: Err(error),
            });
            return;
        }
        self.bytes_left.store(left - len as u64, Ordering::SeqCst);
        self.inner.submit_write(file, offset, block, len);
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.inner.submit_sync(file, token);
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.inner.submit_close(file, length);
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        let wait = if self.failed.is_empty() { wait } else { Wait::No };
        completions.append(&mut self.failed);
        self.inner.reap(wait, completions);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.failed.len()
    }

    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.inner.available_bytes(dir)
    }

    fn makes_files(&self) -> bool {
        self.inner.makes_files()
    }

    fn register(&mut self, pool: &BlockPool) {
        self.inner.register(pool);
    }
}
