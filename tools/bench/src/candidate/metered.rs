//! A disk that counts its operations and their duration: bytes, syncs, files, and latencies from submission
//! to completion.

use crate::measure::{Latencies, LatencySummary};
use holdall_io::mutex::lock;
use holdall_io::{
    block::{Block, BlockPool},
    clock::Clock,
    disk::{Completion, Disk, DiskError, FileId, Wait, WritePath},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Counters of a disk's operations.
#[derive(Clone, Debug, Default)]
pub struct DiskCounts {
    written_bytes: u64,
    files: u64,
    writes: Latencies,
    syncs: Latencies,
    closes: Latencies,
}

/// Counts of a disk's operations, for results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskResult {
    /// Bytes of all writes.
    pub written_bytes: u64,
    /// Files made.
    pub files: u64,
    /// From the submission of a write until its completion was polled, which happens when the drain has time
    /// for it.
    pub write: Option<LatencySummary>,
    /// The same for syncs.
    pub sync: Option<LatencySummary>,
    /// The same for closing a file: at splits another thread of the disk does it.
    pub close: Option<LatencySummary>,
}

/// Shared with the reader of the counts.
pub(crate) type SharedDiskCounts = Arc<Mutex<DiskCounts>>;

/// The current counts.
pub fn counted(counts: &SharedDiskCounts) -> DiskResult {
    let counts = lock(counts);
    DiskResult {
        written_bytes: counts.written_bytes,
        files: counts.files,
        write: counts.writes.summary(),
        sync: counts.syncs.summary(),
        close: counts.closes.summary(),
    }
}

/// The disk.
pub(crate) struct MeteredDisk {
    inner: Box<dyn Disk>,
    counts: SharedDiskCounts,
    clock: Arc<dyn Clock>,
    /// When each operation was submitted: what it is, its file, and its offset or token.
    under_way: HashMap<(Operation, FileId, u64), Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Write,
    Sync,
    Close,
}

impl MeteredDisk {
    /// Counts the operations of `inner` in `counts`.
    pub fn new(inner: Box<dyn Disk>, counts: SharedDiskCounts, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner,
            counts,
            clock,
            under_way: HashMap::new(),
        }
    }

    fn begin(&mut self, operation: Operation, file: FileId, place: u64) {
        let now = self.clock.monotonic();
        self.under_way.insert((operation, file, place), now);
    }

    fn note(&mut self, completion: &Completion, now: Duration) {
        let key = match completion {
            Completion::Written { file, offset, .. } => (Operation::Write, *file, *offset),
            Completion::Synced { file, token, .. } => (Operation::Sync, *file, *token),
            Completion::Closed { file, .. } => (Operation::Close, *file, 0),
            Completion::Created { .. } => return,
        };
        let Some(began) = self.under_way.remove(&key) else {
            return;
        };
        let mut counts = lock(&self.counts);
        let latencies = match key.0 {
            Operation::Write => &mut counts.writes,
            Operation::Sync => &mut counts.syncs,
            Operation::Close => &mut counts.closes,
        };
        latencies.record(now.saturating_sub(began));
    }
}

impl Disk for MeteredDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        lock(&self.counts).files += 1;
        self.inner.create(path, reserve_bytes)
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        lock(&self.counts).files += 1;
        self.inner.submit_create(path, reserve_bytes)
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        lock(&self.counts).written_bytes += len as u64;
        self.begin(Operation::Write, file, offset);
        self.inner.submit_write(file, offset, block, len);
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.begin(Operation::Sync, file, token);
        self.inner.submit_sync(file, token);
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.begin(Operation::Close, file, 0);
        self.inner.submit_close(file, length);
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.inner.reap(wait, completions);
        let now = self.clock.monotonic();
        for completion in &completions[before..] {
            self.note(completion, now);
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.inner.available_bytes(dir)
    }

    fn write_path(&self) -> WritePath {
        self.inner.write_path()
    }

    fn makes_files(&self) -> bool {
        self.inner.makes_files()
    }

    fn prefers_streaming_stores(&self) -> bool {
        self.inner.prefers_streaming_stores()
    }

    fn register(&mut self, pool: &BlockPool) {
        self.inner.register(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::{block::BlockPoolOptions, clock::SystemClock, memory::MemoryDisk, queue::DiskQueue};

    #[test]
    fn every_operation_is_counted() {
        let counts = SharedDiskCounts::default();
        let disk = MeteredDisk::new(
            Box::new(MemoryDisk::discarding()),
            Arc::clone(&counts),
            Arc::new(SystemClock),
        );
        let mut q = DiskQueue::new(Box::new(disk), BlockPoolOptions::default()).unwrap();
        let file = q.create_file(Path::new("a"), 0).unwrap();
        let mut stream = holdall_io::stream::BlockStream::new(file);
        stream.append(&mut q, &[7; 10_000]).unwrap();
        stream.finish(&mut q).unwrap();
        q.wait_closed(file).unwrap();
        let found = counted(&counts);
        assert_eq!((found.files, found.written_bytes), (1, 12_288));
        assert_eq!(found.write.unwrap().count, 1);
        assert_eq!(found.close.unwrap().count, 1);
    }
}
