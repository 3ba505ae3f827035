//! Spans of a recording's ring that are being copied: its recorder keeps the files that have messages of them.

use crate::{
    fs,
    lock::{Locking, WriteLock, writer_of},
};
use holdall_model::time::Timestamp;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// Folder in a bag's directory, with a file for each span.
const FOLDER: &str = ".holds";
/// Spans that are considered, at most.
const HOLDS_MAX: usize = 1000;
/// Longest text of a span.
const BYTES_MAX: u64 = 100;
/// A hold may be taken for one of a program that was killed until it is locked.
const TRIES: u32 = 5;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Keeps files of a bag that is being recorded until it is dropped or its process ends.
#[derive(Debug)]
pub struct Hold {
    path: PathBuf,
    _lock: WriteLock,
}

impl Hold {
    /// Keeps the files with messages between two times, both included. `None` where that is not possible: in a directory that cannot be
    /// written, or on a file system without locks.
    pub fn take(bag: &Path, from: Option<Timestamp>, until: Option<Timestamp>) -> Option<Self> {
        let folder = bag.join(FOLDER);
        let _is_there = fs::create_dir_unsynced(&folder);
        let nanos = |time: Option<Timestamp>, other: i64| time.map_or(other, Timestamp::as_nanos);
        let text = format!("{} {}\n", nanos(from, i64::MIN), nanos(until, i64::MAX));
        for _ in 0..TRIES {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{}-{number}", std::process::id()));
            fs::write_atomically_unsynced(&path, text.as_bytes()).ok()?;
            match WriteLock::try_hold(&path) {
                Ok(Locking::Held(lock)) if fs::exists(&path).unwrap_or(false) => {
                    return Some(Self { path, _lock: lock });
                }
                Ok(Locking::Impossible) => {
                    drop(fs::remove_file(&path));
                    return None;
                }
                Ok(_) | Err(_) => {}
            }
        }
        None
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A file that stays is without a lock, and removed with the next question.
        drop(fs::remove_file(&self.path));
    }
}

/// Whether messages of a file with these first and last log times are being copied.
pub fn is_held(bag: &Path, first: Timestamp, last: Timestamp) -> bool {
    let listed = fs::list_dir_up_to(&bag.join(FOLDER), HOLDS_MAX).unwrap_or_default();
    listed.iter().any(|entry| {
        if is_dead(&entry.path) {
            return false;
        }
        let text = fs::read_to_string(&entry.path, BYTES_MAX).unwrap_or_default();
        let mut times = text.split_whitespace().map(str::parse::<i64>);
        match (times.next(), times.next()) {
            (Some(Ok(from)), Some(Ok(until))) => from <= last.as_nanos() && until >= first.as_nanos(),
            _ => false,
        }
    })
}

/// Whether no program has a hold any more; removes it. Its lock is taken for that: a program that has just made it makes another one.
fn is_dead(path: &Path) -> bool {
    if matches!(writer_of(path), Ok(Some(_))) {
        return false;
    }
    match WriteLock::try_hold(path) {
        Ok(Locking::Taken(_)) => false,
        Ok(Locking::Held(_lock)) => {
            drop(fs::remove_file(path));
            true
        }
        Ok(Locking::Impossible) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_keeps_its_span_until_it_is_dropped_and_a_dead_one_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = Timestamp::from_nanos;
        let held = |first, last| is_held(dir.path(), at(first), at(last));
        assert!(!held(0, 9));
        let all = Hold::take(dir.path(), None, None).unwrap();
        let some = Hold::take(dir.path(), Some(at(10)), Some(at(20))).unwrap();
        assert!(held(0, 9));
        drop(all);
        assert_eq!(
            [held(0, 9), held(0, 10), held(20, 30), held(21, 30)],
            [false, true, true, false]
        );
        drop(some);
        let dead = dir.path().join(FOLDER).join("dead");
        std::fs::write(&dead, "0 100\n").unwrap();
        assert!(!held(0, 9) && !dead.exists());
    }
}
