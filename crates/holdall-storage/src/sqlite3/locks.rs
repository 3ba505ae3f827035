//! SQLite's locks between processes, byte for byte as its own file system takes them (https://sqlite.org/lockingv3.html), without SQLite,
//! for code that reads or writes pages of a database.

use holdall_io::{
    disk::DiskError,
    lock::Holder,
    range_lock::{RangeLock, RangeLocks, Waiting},
};
use std::{
    io,
    ops::Range,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// A writer that waits for readers to leave has this byte: no new reader begins.
const PENDING: Range<u64> = 0x4000_0000..0x4000_0001;
/// The only program that may change the database has this byte; others read on.
const RESERVED: Range<u64> = 0x4000_0001..0x4000_0002;
/// Readers share these bytes; a writer has them alone while it changes pages.
const SHARED: Range<u64> = 0x4000_0002..0x4000_0200;

/// How long a writer sleeps between two tries, in milliseconds: readers leave after some milliseconds.
const TRY_MILLIS: u64 = 2;
/// Wait in milliseconds after which the wait is logged, and then again each time it has doubled.
const LOG_MILLIS: u64 = 1000;
/// How long a writer first keeps new readers out, in milliseconds: twice as long each time that it was in vain.
const PENDING_MILLIS: u64 = 100;
/// Before it keeps readers out, it admits new ones for this many times as long.
const OPEN_SHARE: u64 = 4;

/// The locks of one connection to a database that SQLite reads, or writes without the disk layer.
#[derive(Debug)]
pub(super) struct ReaderLocks {
    ranges: RangeLocks,
    /// The file system has no locks.
    is_impossible: AtomicBool,
}

impl ReaderLocks {
    /// Opens a database to lock it for reading; nothing is locked yet.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        Ok(Self {
            ranges: RangeLocks::open(path, false)?,
            is_impossible: AtomicBool::new(false),
        })
    }

    /// As [`Self::open`], for a database that is also changed.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(super) fn open_to_write(path: &Path) -> Result<Self, DiskError> {
        Ok(Self {
            ranges: RangeLocks::open(path, true)?,
            is_impossible: AtomicBool::new(false),
        })
    }

    /// Keeps all other programs from beginning a change; false while one of them has.
    pub(super) fn try_reserve(&self) -> bool {
        self.or_impossible(self.ranges.try_lock(RangeLock::Exclusive, RESERVED), true)
    }

    /// Keeps all from reading; false while one of them does: then no new reader begins until this is tried again, or released.
    pub(super) fn try_exclude(&self) -> bool {
        let locked = || {
            Ok(self.ranges.try_lock(RangeLock::Exclusive, PENDING)?
                && self.ranges.try_lock(RangeLock::Exclusive, SHARED)?)
        };
        self.or_impossible(locked(), true)
    }

    /// Releases all locks but those of [`Self::try_share`].
    pub(super) fn release_to_shared(&self) {
        let released = self.ranges.try_lock(RangeLock::Shared, SHARED);
        let released = released.and_then(|_| self.ranges.unlock(PENDING.start..RESERVED.end));
        let _nothing_is_locked = released.is_err();
    }

    /// Ends all locks.
    pub(super) fn release_all(&self) {
        let _nothing_is_locked = self.ranges.unlock(PENDING.start..SHARED.end).is_err();
    }

    /// Keeps all programs from changing pages; false while one of them does, or waits for it.
    pub(super) fn try_share(&self) -> bool {
        let locked = || {
            if !self.ranges.try_lock(RangeLock::Shared, PENDING)? {
                return Ok(false);
            }
            let shared = self.ranges.try_lock(RangeLock::Shared, SHARED);
            self.ranges.unlock(PENDING)?;
            shared
        };
        self.or_impossible(locked(), true)
    }

    /// Waits until [`Self::try_share`] succeeds, `millis_max` at most.
    pub(super) fn share(&self, millis_max: u64) -> bool {
        let mut waited = 0;
        while !self.try_share() {
            if waited >= millis_max {
                return false;
            }
            thread::sleep(Duration::from_millis(TRY_MILLIS));
            waited += TRY_MILLIS;
        }
        true
    }

    /// Releases the locks of [`Self::try_share`].
    pub(super) fn release(&self) {
        let _nothing_is_locked = self.ranges.unlock(SHARED).is_err();
    }

    /// The living program that is changing the database; `None` without one, or where the file system has no locks.
    pub(super) fn writer(&self) -> Option<Holder> {
        self.or_impossible(self.ranges.holder(RangeLock::Shared, RESERVED), None)
    }

    /// A living program that has the database open with a write-ahead log, or is reading or changing it now.
    pub(super) fn user(&self) -> Option<Holder> {
        let user = self.ranges.holder(RangeLock::Exclusive, SHARED);
        self.or_impossible(user, None).or_else(|| self.writer())
    }

    /// Whether the file system turned out to have no locks: then no program can have one.
    pub(super) fn is_impossible(&self) -> bool {
        self.is_impossible.load(Ordering::Relaxed)
    }

    fn or_impossible<T>(&self, result: io::Result<T>, otherwise: T) -> T {
        result.unwrap_or_else(|error| {
            if !self.is_impossible.swap(true, Ordering::Relaxed) {
                tracing::debug!(path = %self.ranges.path().display(), %error, "the file cannot be locked");
            }
            otherwise
        })
    }
}

/// The locks of the one program that writes a database, from its first page until the file is closed: no other program can change it, and
/// all may read it except while pages are being changed.
#[derive(Debug)]
pub(super) struct WriterLocks {
    /// `None` if the file system has no locks.
    ranges: Option<RangeLocks>,
}

impl WriterLocks {
    /// Reserves the database. Waits for a program that is changing it.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(super) fn reserve(path: &Path) -> Result<Self, DiskError> {
        let ranges = RangeLocks::open(path, true)?;
        let reserved = wait_for(&ranges, |_| ranges.try_lock(RangeLock::Exclusive, RESERVED));
        if let Err(error) = &reserved {
            tracing::warn!(
                path = %path.display(), %error,
                "this file system has no locks: another program that changes the database while it is recorded can destroy it"
            );
        }
        Ok(Self {
            ranges: reserved.is_ok().then_some(ranges),
        })
    }

    /// Waits, for as long as it takes, until no program reads the database; keeps all from reading then. A program that reads for long does
    /// not keep others from reading meanwhile, except for a fifth of the time, so that readers that follow each other do not keep
    /// the writer waiting forever.
    pub(super) fn exclude_readers(&self) {
        let Some(ranges) = &self.ranges else {
            return;
        };
        let (mut pending_millis, mut turn) = (PENDING_MILLIS, 0);
        let excluded = wait_for(ranges, |millis| {
            let in_turn = millis - turn;
            if in_turn >= pending_millis * (OPEN_SHARE + 1) {
                ranges.unlock(PENDING)?;
                (pending_millis, turn) = (pending_millis * 2, millis);
            } else if in_turn >= pending_millis * OPEN_SHARE {
                ranges.try_lock(RangeLock::Exclusive, PENDING)?;
            }
            ranges.try_lock(RangeLock::Exclusive, SHARED)
        });
        if let Err(error) = excluded {
            tracing::warn!(path = %ranges.path().display(), %error, "the database cannot be locked against readers");
        }
    }

    /// Lets other programs read again; the database stays reserved.
    pub(super) fn admit_readers(&self) {
        if let Some(ranges) = &self.ranges {
            let _nothing_is_locked = ranges
                .unlock(SHARED)
                .and_then(|()| ranges.unlock(PENDING))
                .is_err();
        }
    }
}

/// Tries until it succeeds; `attempt` gets how long it has waited, in milliseconds.
fn wait_for(ranges: &RangeLocks, mut attempt: impl FnMut(u64) -> io::Result<bool>) -> io::Result<()> {
    let (mut waited, mut log_at) = (0, LOG_MILLIS);
    let mut waiting = None;
    while !attempt(waited)? {
        waiting.get_or_insert_with(Waiting::begin);
        if waited >= log_at {
            log_at *= 2;
            let other = ranges.holder(RangeLock::Exclusive, RESERVED.start..SHARED.end)?;
            let other = other.unwrap_or(Holder { process: None });
            tracing::warn!(
                path = %ranges.path().display(),
                "{other} has locked the database for {} s: what is received waits in memory until it is released",
                waited / 1000
            );
        }
        thread::sleep(Duration::from_millis(TRY_MILLIS));
        waited += TRY_MILLIS;
    }
    drop(waiting);
    if log_at > LOG_MILLIS {
        tracing::info!(path = %ranges.path().display(), "the database is released and written again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.db3");
        std::fs::write(&path, "").unwrap();
        (dir, path)
    }

    #[test]
    fn a_reserved_database_is_read_by_all_until_its_writer_excludes_them() {
        let (_dir, path) = file();
        let reader = ReaderLocks::open(&path).unwrap();
        assert_eq!(reader.user(), None);
        let writer = WriterLocks::reserve(&path).unwrap();
        assert!(reader.writer().is_some() && reader.try_share());
        reader.release();
        writer.exclude_readers();
        assert!(!reader.try_share() && !reader.share(10));
        writer.admit_readers();
        assert!(reader.try_share() && reader.writer().is_some());
        drop(writer);
        assert_eq!(reader.writer(), None);
        let other = ReaderLocks::open(&path).unwrap();
        assert!(other.user().is_some(), "a reader is a user");
    }

    #[test]
    fn a_connection_that_writes_excludes_others_as_sqlite_does() {
        let (_dir, path) = file();
        let (one, other) = (
            ReaderLocks::open_to_write(&path).unwrap(),
            ReaderLocks::open_to_write(&path).unwrap(),
        );
        assert!(one.try_share() && other.try_share());
        assert!(one.try_reserve() && !other.try_reserve());
        assert!(!one.try_exclude(), "another reads");
        let third = ReaderLocks::open(&path).unwrap();
        assert!(!third.try_share(), "no new reader begins");
        other.release_all();
        // As any descriptor of this process that is closed.
        drop(std::fs::File::open(&path).unwrap());
        assert!(one.try_exclude() && !other.try_share());
        one.release_to_shared();
        assert!(third.try_share() && other.try_share() && other.try_reserve());
        one.release_all();
        third.release();
        assert!(other.try_exclude());
    }

    #[test]
    fn a_writer_waits_for_a_reader_and_others_begin_to_read_meanwhile() {
        let (_dir, path) = file();
        let (long, short) = (
            ReaderLocks::open(&path).unwrap(),
            ReaderLocks::open(&path).unwrap(),
        );
        let writer = WriterLocks::reserve(&path).unwrap();
        assert!(long.try_share());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| writer.exclude_readers());
            // Covers many turns of the writer; in each it keeps new readers out for a time.
            for _ in 0..50 {
                assert!(short.share(60_000));
                short.release();
                thread::sleep(Duration::from_millis(20));
            }
            assert!(!waiting.is_finished());
            long.release();
            waiting.join().unwrap();
        });
        assert!(!short.try_share());
    }

    #[test]
    fn readers_that_follow_each_other_do_not_keep_a_writer_waiting_for_ever() {
        let (_dir, path) = file();
        let writer = WriterLocks::reserve(&path).unwrap();
        let is_ended = AtomicBool::new(false);
        let started = std::sync::Barrier::new(3);
        thread::scope(|scope| {
            for offset in [0, 40] {
                let (path, is_ended, started) = (&path, &is_ended, &started);
                scope.spawn(move || {
                    let reader = ReaderLocks::open(path).unwrap();
                    thread::sleep(Duration::from_millis(offset));
                    assert!(reader.try_share());
                    started.wait();
                    while !is_ended.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(80));
                        reader.release();
                        while !is_ended.load(Ordering::Relaxed) && !reader.try_share() {
                            thread::yield_now();
                        }
                    }
                });
            }
            started.wait();
            writer.exclude_readers();
            is_ended.store(true, Ordering::Relaxed);
        });
    }
}
