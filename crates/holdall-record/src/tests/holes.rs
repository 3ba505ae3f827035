//! A disk that fails a write, accepts later ones, and cannot cut the file either: data after the hole is never read as a message.

use super::{faults::record_one, *};
use holdall_bag::reader::{Bag, BagSet, MessageFilter};
use holdall_io::{
    block::{Block, BlockPool},
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait},
    os::OsDisk,
    queue::DiskQueue,
};
use std::io;

/// The errno of a disk that is gone.
const EIO: i32 = 5;

/// The write that fails, counted from 0.
const FAILED_WRITE: u64 = 4;

/// A disk in front of another one: one write fails, which is reported after the next one was given to it, and so does every close.
struct HoleDisk {
    inner: OsDisk,
    writes: Arc<AtomicU64>,
    failed: Vec<Completion>,
}

impl HoleDisk {
    fn error(operation: Operation) -> DiskError {
        DiskError::new(
            Path::new("bag_0.mcap"),
            operation,
            io::Error::from_raw_os_error(EIO),
        )
    }
}

impl Disk for HoleDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        self.inner.create(path, reserve_bytes)
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        self.inner.submit_create(path, reserve_bytes)
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        if self.writes.fetch_add(1, Ordering::SeqCst) == FAILED_WRITE {
            self.failed.push(Completion::Written {
                file,
                offset,
                len,
                block,
                result: Err(Self::error(Operation::Write)),
            });
        } else {
            self.inner.submit_write(file, offset, block, len);
        }
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.inner.submit_sync(file, token);
    }

    fn submit_close(&mut self, file: FileId, _length: u64) {
        let result = Err(Self::error(Operation::Close));
        self.failed.push(Completion::Closed { file, result });
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        if self.inner.in_flight() > 0 {
            self.inner.reap(wait, completions);
        }
        let is_told = self.writes.load(Ordering::SeqCst) > FAILED_WRITE + 1;
        if is_told || (wait == Wait::One && completions.is_empty()) {
            completions.append(&mut self.failed);
        }
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

#[test]
fn what_is_after_a_hole_is_no_message_even_when_the_close_fails_too() {
    for preset in ["fastwrite", ""] {
        let mut world = World::new();
        world.options.files.storage_preset = Some(preset.to_owned()).filter(|preset| !preset.is_empty());
        let writes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&writes);
        world.disk = Some(Box::new(move |directory| {
            let disk = HoleDisk {
                inner: OsDisk::open(directory, DiskMode::Buffered)?,
                writes: counter,
                failed: Vec::new(),
            };
            let blocks = BlockPoolOptions {
                block_bytes: 64 << 10,
                block_count: 8,
                huge_pages: false,
            };
            DiskQueue::new(Box::new(disk), blocks)
        }));
        let (recording, publisher) = record_one(&mut world);
        // Each is longer than a block: one of them has all of the hole in it.
        let deadline = SystemClock.monotonic() + PATIENCE;
        let mut sent = 0;
        while recording.control.stop_reason().is_none() {
            assert!(
                SystemClock.monotonic() < deadline,
                "{preset}: the failed write was not noticed"
            );
            publisher.send(&payload(sent, 150_000));
            sent += 1;
        }
        let recorded = recording.stop();
        assert!(
            writes.load(Ordering::SeqCst) > FAILED_WRITE + 1,
            "{preset}: something was written after the hole"
        );
        assert!(recorded.report.failure.is_some(), "{preset}");
        let bag = Bag::open(&recorded.output).unwrap();
        let counted = bag.metadata().message_count;
        let set = BagSet::from(vec![bag]);
        let mut found = 0;
        for message in set.messages(&MessageFilter::default()) {
            assert!(
                message.unwrap().payload[..] == payload(found, 150_000)[..],
                "{preset}: message {found} has other bytes than were sent"
            );
            found += 1;
        }
        assert_eq!(
            found as u64, counted,
            "{preset}: all others are counted as missing"
        );
        assert!(
            preset != "fastwrite" || found > 0,
            "those before the hole are there"
        );
    }
}
