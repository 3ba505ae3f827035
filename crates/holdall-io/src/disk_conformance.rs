//! Requirements for every [`Disk`], as checks that a new implementation joins with one line; a violation panics.

use crate::{
    block::{BLOCK_ALIGNMENT, Block, BlockPool, BlockPoolOptions},
    disk::{Completion, Disk, DiskError, FileId, Wait},
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// One disk with a folder to write to, and a way to read its files that does not go through the disk.
pub trait DiskUnderTest {
    /// The implementation.
    type Disk: Disk;

    /// A disk and the empty folder that it may write to.
    fn start(&self) -> (Self::Disk, PathBuf);

    /// The content of a closed file, `None` when it does not exist.
    fn content(&self, disk: &Self::Disk, path: &Path) -> Option<Vec<u8>>;
}

/// All checks.
///
/// # Panics
/// When the disk violates a requirement of [`Disk`].
pub fn check_all(subject: &impl DiskUnderTest) {
    writes_in_any_order_are_read_back(subject);
    an_existing_file_is_refused(subject);
    a_file_made_ahead_takes_writes_at_once(subject);
    a_file_that_cannot_be_made_fails_everything_on_it(subject);
    close_cuts_to_the_length(subject);
    an_empty_file_can_be_closed(subject);
    sync_ends_after_the_writes_before_it(subject);
    misaligned_writes_are_refused(subject);
    unknown_files_are_refused(subject);
    an_idle_disk_does_not_wait(subject);
    files_do_not_mix(subject);
    more_writes_than_blocks_recycle(subject);
    free_space_is_known(subject);
}

const BLOCK_BYTES: usize = 4 * BLOCK_ALIGNMENT;

fn pool() -> BlockPool {
    let options = BlockPoolOptions {
        block_bytes: BLOCK_BYTES,
        block_count: 8,
        huge_pages: false,
    };
    BlockPool::new(options).expect("a small pool fits into memory")
}

fn filled(pool: &BlockPool, byte: u8) -> Block {
    let mut block = pool
        .take()
        .expect("the check keeps fewer blocks in flight than the pool has");
    block.as_mut_slice().fill(byte);
    block
}

/// Reaps until nothing is in flight.
fn reap_all(disk: &mut impl Disk) -> Vec<Completion> {
    let mut completions = Vec::new();
    while disk.in_flight() > 0 {
        let before = completions.len();
        disk.reap(Wait::One, &mut completions);
        assert!(
            completions.len() > before,
            "reap(Wait::One) came back with nothing while something was in flight"
        );
    }
    completions
}

fn result_of(completion: &Completion) -> &Result<(), DiskError> {
    match completion {
        Completion::Created { result, .. }
        | Completion::Written { result, .. }
        | Completion::Synced { result, .. }
        | Completion::Closed { result, .. } => result,
    }
}

fn assert_all_ok(completions: &[Completion]) {
    for completion in completions {
        assert!(result_of(completion).is_ok(), "{completion:?}");
    }
}

fn assert_all_fail(completions: &[Completion]) {
    for completion in completions {
        assert!(result_of(completion).is_err(), "{completion:?}");
    }
}

fn start<S: DiskUnderTest>(subject: &S, pool: &BlockPool) -> (S::Disk, PathBuf) {
    let (mut disk, dir) = subject.start();
    disk.register(pool);
    (disk, dir)
}

fn create(disk: &mut impl Disk, path: &Path) -> FileId {
    disk.create(path, 1 << 20)
        .expect("the folder is writable and the name is new")
}

/// Bytes that are written out of order, with gaps filled later, are read back.
pub(crate) fn writes_in_any_order_are_read_back(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("order");
    let file = create(&mut disk, &path);
    for (place, byte) in [(3u64, 3u8), (0, 0), (2, 2), (1, 1)] {
        disk.submit_write(file, place * BLOCK_BYTES as u64, filled(&pool, byte), BLOCK_BYTES);
    }
    disk.submit_close(file, 4 * BLOCK_BYTES as u64);
    let completions = reap_all(&mut disk);
    assert_all_ok(&completions);
    assert_eq!(completions.len(), 5, "each thing submitted ends exactly once");
    drop(completions);
    let content = subject.content(&disk, &path).expect("the file was closed");
    assert_eq!(content.len(), 4 * BLOCK_BYTES);
    for (place, part) in content.chunks(BLOCK_BYTES).enumerate() {
        assert!(
            part.iter().all(|&byte| usize::from(byte) == place),
            "block {place} holds something else"
        );
    }
    assert_eq!(pool.free_count(), pool.block_count(), "blocks were given back");
}

/// A path that exists is an error that names it, and its content stays.
pub(crate) fn an_existing_file_is_refused(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("existing");
    let file = create(&mut disk, &path);
    disk.submit_write(file, 0, filled(&pool, 7), BLOCK_ALIGNMENT);
    disk.submit_close(file, 10);
    assert_all_ok(&reap_all(&mut disk));
    let error = disk.create(&path, 0).expect_err("the path exists");
    assert!(error.is_already_exists(), "{error:?}");
    assert_eq!(error.path, path);
    disk.submit_create(&path, 0);
    assert_all_fail(&reap_all(&mut disk));
    assert_eq!(subject.content(&disk, &path).as_deref(), Some(&[7u8; 10][..]));
}

/// Writes and the close of a file made ahead need not wait for it.
pub(crate) fn a_file_made_ahead_takes_writes_at_once(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("ahead");
    let file = disk.submit_create(&path, 1 << 20);
    disk.submit_write(file, 0, filled(&pool, 5), BLOCK_BYTES);
    disk.submit_sync(file, 11);
    disk.submit_close(file, 5000);
    let completions = reap_all(&mut disk);
    assert_all_ok(&completions);
    assert_eq!(completions.len(), 4);
    assert_eq!(subject.content(&disk, &path), Some(vec![5; 5000]));
}

/// When making a file fails, every operation submitted on it fails too, once each.
pub(crate) fn a_file_that_cannot_be_made_fails_everything_on_it(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("taken");
    let first = create(&mut disk, &path);
    disk.submit_close(first, 0);
    assert_all_ok(&reap_all(&mut disk));
    let file = disk.submit_create(&path, 0);
    disk.submit_write(file, 0, filled(&pool, 5), BLOCK_BYTES);
    disk.submit_sync(file, 1);
    disk.submit_close(file, 5);
    let completions = reap_all(&mut disk);
    assert_eq!(completions.len(), 4);
    assert_all_fail(&completions);
    drop(completions);
    assert_eq!(
        pool.free_count(),
        pool.block_count(),
        "the block of a failed write was given back"
    );
}

/// The file ends at the length given at close, not at the padded or reserved one.
pub(crate) fn close_cuts_to_the_length(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("cut");
    let file = create(&mut disk, &path);
    disk.submit_write(file, 0, filled(&pool, 9), BLOCK_BYTES);
    disk.submit_close(file, 4097);
    assert_all_ok(&reap_all(&mut disk));
    assert_eq!(subject.content(&disk, &path), Some(vec![9; 4097]));
}

/// A file that nothing was written to.
pub(crate) fn an_empty_file_can_be_closed(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("empty");
    let file = create(&mut disk, &path);
    disk.submit_close(file, 0);
    assert_all_ok(&reap_all(&mut disk));
    assert_eq!(subject.content(&disk, &path), Some(Vec::new()));
}

/// No sync ends before a write that was submitted before it.
pub(crate) fn sync_ends_after_the_writes_before_it(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let file = create(&mut disk, &dir.join("sync"));
    for place in 0..4u64 {
        disk.submit_write(file, place * BLOCK_BYTES as u64, filled(&pool, 1), BLOCK_BYTES);
        disk.submit_sync(file, place);
    }
    disk.submit_close(file, 4 * BLOCK_BYTES as u64);
    let mut written = Vec::new();
    let mut synced = 0;
    let mut closed = false;
    for completion in reap_all(&mut disk) {
        match completion {
            Completion::Written { offset, result, .. } => {
                assert!(result.is_ok() && !closed);
                written.push(offset / BLOCK_BYTES as u64);
            }
            Completion::Synced { token, result, .. } => {
                assert!(result.is_ok() && !closed);
                assert!(
                    (0..=token).all(|place| written.contains(&place)),
                    "sync {token} ended after {written:?} only"
                );
                synced += 1;
            }
            Completion::Closed { result, .. } => {
                assert!(result.is_ok());
                closed = true;
            }
            Completion::Created { .. } => panic!("nothing was made ahead"),
        }
    }
    assert_eq!((written.len(), synced, closed), (4, 4, true));
}

/// Offsets and lengths that are not multiples of 4096, or larger than the block, fail and return the block.
pub(crate) fn misaligned_writes_are_refused(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let file = create(&mut disk, &dir.join("misaligned"));
    for (offset, len) in [
        (0, 100),
        (512, BLOCK_ALIGNMENT),
        (0, 0),
        (0, BLOCK_BYTES + BLOCK_ALIGNMENT),
    ] {
        disk.submit_write(file, offset, filled(&pool, 1), len);
        let completions = reap_all(&mut disk);
        assert_eq!(completions.len(), 1);
        let error = result_of(&completions[0]).as_ref().expect_err("it does not fit");
        assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(pool.free_count(), pool.block_count());
    disk.submit_close(file, 0);
    assert_all_ok(&reap_all(&mut disk));
}

/// A file never made, or closed, is an error and no panic.
pub(crate) fn unknown_files_are_refused(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let file = create(&mut disk, &dir.join("known"));
    disk.submit_close(file, 0);
    assert_all_ok(&reap_all(&mut disk));
    for file in [file, FileId(1000)] {
        disk.submit_write(file, 0, filled(&pool, 1), BLOCK_BYTES);
        disk.submit_sync(file, 1);
        disk.submit_close(file, 0);
        let completions = reap_all(&mut disk);
        assert_eq!(completions.len(), 3);
        assert_all_fail(&completions);
    }
}

/// Reaping a disk that has nothing to do returns nothing.
pub(crate) fn an_idle_disk_does_not_wait(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, _dir) = start(subject, &pool);
    let mut completions = Vec::new();
    disk.reap(Wait::No, &mut completions);
    disk.reap(Wait::One, &mut completions);
    assert!(completions.is_empty());
    assert_eq!(disk.in_flight(), 0);
}

/// Two files at once keep their bytes apart.
pub(crate) fn files_do_not_mix(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let paths = [dir.join("a"), dir.join("b")];
    let files = [create(&mut disk, &paths[0]), disk.submit_create(&paths[1], 0)];
    for place in 0..3u64 {
        for (number, file) in files.iter().enumerate() {
            let byte = if number == 0 { 10 } else { 20 };
            disk.submit_write(
                *file,
                place * BLOCK_BYTES as u64,
                filled(&pool, byte),
                BLOCK_BYTES,
            );
        }
    }
    disk.submit_close(files[0], 3 * BLOCK_BYTES as u64);
    disk.submit_close(files[1], 3 * BLOCK_BYTES as u64);
    assert_all_ok(&reap_all(&mut disk));
    assert_eq!(subject.content(&disk, &paths[0]), Some(vec![10; 3 * BLOCK_BYTES]));
    assert_eq!(subject.content(&disk, &paths[1]), Some(vec![20; 3 * BLOCK_BYTES]));
}

/// A pool of a few blocks carries a file of many.
pub(crate) fn more_writes_than_blocks_recycle(subject: &impl DiskUnderTest) {
    let pool = pool();
    let (mut disk, dir) = start(subject, &pool);
    let path = dir.join("many");
    let file = create(&mut disk, &path);
    let mut completions = Vec::new();
    for place in 0..100u64 {
        while pool.free_count() == 0 {
            disk.reap(Wait::One, &mut completions);
            assert_all_ok(&completions);
            completions.clear();
        }
        // Only the last byte of the number fits in a block.
        disk.submit_write(
            file,
            place * BLOCK_BYTES as u64,
            filled(&pool, place as u8),
            BLOCK_BYTES,
        );
    }
    disk.submit_close(file, 100 * BLOCK_BYTES as u64);
    assert_all_ok(&reap_all(&mut disk));
    let content = subject.content(&disk, &path).expect("the file was closed");
    assert_eq!(content.len(), 100 * BLOCK_BYTES);
    assert!(
        content
            .chunks(BLOCK_BYTES)
            .enumerate()
            .all(|(place, part)| part.iter().all(|&byte| byte == place as u8))
    );
}

/// Free space can be queried.
pub(crate) fn free_space_is_known(subject: &impl DiskUnderTest) {
    let (disk, dir) = subject.start();
    assert!(disk.available_bytes(&dir).expect("the folder exists") > 0);
}
