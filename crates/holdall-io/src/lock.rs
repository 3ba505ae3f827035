//! Advisory locks (`flock`) that mark the files a process is writing, so that no other process changes it
//! at the same time.

use crate::{
    disk::{DiskError, Operation},
    fs::pinned,
};
use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

/// File in which the kernel lists all locks that this process may see.
const LOCKS_FILE: &str = "/proc/locks";

/// The list of locks is read this often for a holder that it must have.
const LIST_READS_MAX: u32 = 4;

/// A query holds its lock for a few microseconds. A writer that meets one retries this many times, a millisecond apart.
const TRIES_MAX: u32 = 1000;

/// The process that is writing a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number; `None` if the kernel does not show it (another container, a network file system).
    pub process: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "process {process}"),
            None => f.write_str("another process"),
        }
    }
}

/// The outcome of a lock request.
#[derive(Debug)]
pub enum Locking {
    /// It is held until this is dropped, or the process ends in any way.
    Held(WriteLock),
    /// Another process has it.
    Taken(Holder),
    /// The file system has no locks (a network file system, for example), so no process can hold one.
    Impossible,
}

/// A lock on one file or directory: its process is writing it. Released when dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub struct WriteLock {
    _file: File,
}

impl WriteLock {
    /// Locks a file or directory for writing, unless another process has locked it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn try_hold(path: &Path) -> Result<Locking, DiskError> {
        let file = open(path)?;
        Ok(match take(&file) {
            Ok(()) => Locking::Held(Self { _file: file }),
            Err(TryLockError::Error(_)) => Locking::Impossible,
            Err(TryLockError::WouldBlock) => Locking::Taken(Holder {
                process: holder_of(&file),
            }),
        })
    }
}

/// Takes the lock of an open file. Waits for processes that only query its holder.
fn take(file: &File) -> Result<(), TryLockError> {
    let mut tried = 0;
    loop {
        tried += 1;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tried < TRIES_MAX && holder_of(file).is_none() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// The process that holds the [`WriteLock`] of a file or directory; `None` when no process does, or the file system has no locks.
///
/// # Errors
/// When it cannot be opened.
pub fn writer_of(path: &Path) -> Result<Option<Holder>, DiskError> {
    let file = open(path)?;
    Ok(match file.try_lock_shared() {
        // Released with the descriptor.
        Ok(()) | Err(TryLockError::Error(_)) => None,
        Err(TryLockError::WouldBlock) => Some(Holder {
            process: holder_of(&file),
        }),
    })
}

/// Marks a file that this process has just made as being written. Best effort: it is of no use to others until it has content.
pub(crate) fn mark_written(file: &File) {
    if is_local(file) {
        let _no_locks_here = take(file).is_err();
    }
}

/// Network file systems turn `flock` into locks on ranges of bytes, which would keep SQLite from its own file.
fn is_local(file: &File) -> bool {
    /// `f_type` of NFS and SMB (linux/magic.h).
    const NETWORK: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];
    // The numbers have 32 bits; on some machines the field is signed and has more.
    rustix::fs::fstatfs(file).is_ok_and(|stat| !NETWORK.contains(&((stat.f_type & 0xffff_ffff) as u32)))
}

/// Opens a file or directory without blocking, whatever its type.
fn open(path: &Path) -> Result<File, DiskError> {
    pinned(path)
        .and_then(|path| {
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
                .open(path)
        })
        .map_err(|source| DiskError::new(path, Operation::Open, source))
}

/// The process that holds an exclusive lock on an open file, by the kernel's list.
fn holder_of(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let device = (libc::major(about.dev()), libc::minor(about.dev()));
    // The kernel gives a long list piece by piece: a line is passed over when others end their locks between.
    (0..LIST_READS_MAX).find_map(|_| {
        let list = std::fs::read_to_string(LOCKS_FILE).ok()?;
        holder_in(&list, device, about.ino())
    })
}

/// The process that holds an exclusive lock on an inode. Btrfs and overlayfs give files another device number than the list has, so a
/// line with the same inode number will do where none has both.
fn holder_in(list: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let mut with_inode = None;
    for line in list.lines() {
        // "12: FLOCK  ADVISORY  WRITE 4711 08:01:1234567 0 EOF"; lines with "->" are of processes that wait.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[_, "FLOCK", _, "WRITE", process, place, ..] = fields.as_slice() else {
            continue;
        };
        let mut numbers = place.split(':');
        let mut hex = || u32::from_str_radix(numbers.next()?, 16).ok();
        let (major, minor) = (hex(), hex());
        if numbers.next().and_then(|number| number.parse().ok()) != Some(inode) {
            continue;
        }
        let process = process.parse().ok().filter(|process| *process > 0);
        if (major, minor) == (Some(device.0), Some(device.1)) {
            return process;
        }
        with_inode = with_inode.or(process);
    }
    with_inode
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_held_lock_is_seen_with_its_process_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for path in [dir.path(), &file] {
            assert_eq!(writer_of(path).unwrap(), None);
            let Locking::Held(lock) = WriteLock::try_hold(path).unwrap() else {
                panic!("nobody else has it");
            };
            let holder = Holder {
                process: Some(std::process::id()),
            };
            assert_eq!(writer_of(path).unwrap(), Some(holder));
            assert!(matches!(WriteLock::try_hold(path).unwrap(), Locking::Taken(found) if found == holder));
            drop(lock);
            assert_eq!(writer_of(path).unwrap(), None);
        }
        assert!(writer_of(&dir.path().join("none")).unwrap_err().is_not_found());
    }

    #[test]
    fn a_lock_ends_with_its_process_also_when_that_is_killed() {
        const CHILD: &str = "HOLDALL_TEST_HOLDS_A_LOCK";
        if let Some(path) = std::env::var_os(CHILD) {
            let lock = WriteLock::try_hold(Path::new(&path)).unwrap();
            assert!(matches!(lock, Locking::Held(_)));
            io::Write::write_all(&mut io::stdout(), b"held\n").unwrap();
            loop {
                std::thread::park();
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let name = "lock::tests::a_lock_ends_with_its_process_also_when_that_is_killed";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let output = io::BufReader::new(child.stdout.take().unwrap());
        let is_held = |line: &io::Result<String>| line.as_ref().is_ok_and(|line| line.ends_with("held"));
        assert!(io::BufRead::lines(output).any(|line| is_held(&line)));
        let process = Some(child.id());
        assert_eq!(writer_of(dir.path()).unwrap(), Some(Holder { process }));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(writer_of(dir.path()).unwrap(), None);
    }

    #[test]
    fn queries_from_many_threads_do_not_keep_a_writer_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let is_ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_ended.load(std::sync::atomic::Ordering::Relaxed) {
                        writer_of(path).unwrap();
                    }
                });
            }
            for _ in 0..20 {
                assert!(matches!(WriteLock::try_hold(path).unwrap(), Locking::Held(_)));
            }
            is_ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn the_kernels_list_is_searched_by_device_and_inode() {
        let list = "1: FLOCK  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 12 08:02:77 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 13 08:02:77 0 EOF\n\
                    3: FLOCK  ADVISORY  READ 14 08:02:77 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE 15 08:1f:77 0 EOF\n\
                    5: FLOCK  ADVISORY  WRITE 0 08:01:99 0 EOF\n\
                    nonsense\n6: FLOCK\n";
        assert_eq!(holder_in(list, (8, 0x1f), 77), Some(15));
        assert_eq!(holder_in(list, (9, 9), 77), Some(11));
        assert_eq!([78, 99].map(|inode| holder_in(list, (8, 1), inode)), [None, None]);
    }
}
