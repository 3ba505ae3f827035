//! Threads for the slow operations on files (create, reserve, sync, close), so that none of them delays
//! writes.

use super::buffered::WriteBack;
use crate::mutex::lock;
use crate::{
    block::Block,
    disk::{DiskError, FileId, Operation},
    unfinished::while_nothing_is_removed,
};
use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
};
use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
};

/// Never reserve more than this part of the free space at once: others need some, and more is reserved when
/// it is needed.
const RESERVE_PART_OF_FREE: u64 = 4;

/// Less than this is not worth reserving: the disk is nearly full.
const RESERVE_BYTES_MIN: u64 = 16 << 20;

/// A write in flight.
pub(super) struct WriteJob {
    pub file: FileId,
    /// Which write of the file it is.
    pub number: u64,
    pub path: Arc<Path>,
    pub handle: Arc<File>,
    pub offset: u64,
    pub block: Block,
    pub len: usize,
}

/// Work for a helper.
pub(super) enum Job {
    Create {
        file: FileId,
        path: Arc<Path>,
        reserve_bytes: u64,
        direct: bool,
    },
    Reserve {
        file: FileId,
        handle: Arc<File>,
        path: Arc<Path>,
        from: u64,
        to: u64,
    },
    Write(WriteJob),
    /// Release a file whose writes have all ended.
    Forget {
        file: FileId,
    },
    Sync {
        file: FileId,
        handle: Arc<File>,
        path: Arc<Path>,
        token: u64,
        /// Make the directory entry durable too.
        with_entry: bool,
    },
    Close {
        file: FileId,
        handle: Arc<File>,
        path: Arc<Path>,
        length: u64,
        /// Sync the directory too.
        with_entry: bool,
    },
}

/// An operation that has ended.
pub(super) enum Done {
    Created {
        file: FileId,
        result: Result<(Arc<File>, u64), DiskError>,
    },
    /// Space is reserved up to here. A failure is not an error: the write that does not fit will fail.
    Reserved { file: FileId, to: u64 },
    Written {
        write: WriteJob,
        result: Result<(), DiskError>,
    },
    Synced {
        file: FileId,
        token: u64,
        result: Result<(), DiskError>,
    },
    Closed {
        file: FileId,
        result: Result<(), DiskError>,
    },
}

/// Collects operations that helpers have ended, and wakes the disk's thread: by a condition or, when it
/// waits in a ring, an eventfd.
pub(super) struct Outbox {
    done: Mutex<Vec<Done>>,
    arrived: Condvar,
    event: Option<OwnedFd>,
}

impl Outbox {
    pub(super) fn new(with_event: bool) -> io::Result<Arc<Self>> {
        let event = if with_event { Some(new_eventfd()?) } else { None };
        Ok(Arc::new(Self {
            done: Mutex::new(Vec::new()),
            arrived: Condvar::new(),
            event,
        }))
    }

    fn put(&self, done: Done) {
        lock(&self.done).push(done);
        self.arrived.notify_one();
        if let Some(event) = &self.event {
            // It can only fail when the counter is full, and then the reader is awake.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Moves the ended operations to `into`.
    pub(super) fn take(&self, into: &mut Vec<Done>) {
        into.append(&mut lock(&self.done));
    }

    /// Waits until there is one.
    pub(super) fn wait(&self) {
        let mut done = lock(&self.done);
        while done.is_empty() {
            done = self.arrived.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The descriptor that becomes readable when an operation arrives.
    pub(super) fn event_fd(&self) -> Option<i32> {
        self.event.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Makes the descriptor unreadable again. Call it before [`Outbox::take`], so that no later operation
    /// is missed.
    pub(super) fn clear_event(&self) {
        if let Some(event) = &self.event {
            // The descriptor does not block.
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
    }
}

fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Jobs that a helper still has to do. Bounded by the operations that its owner submits.
#[derive(Default)]
struct Inbox {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// One thread that does jobs in order.
pub(super) struct Helper {
    inbox: Arc<(Mutex<Inbox>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    pub(super) fn start(name: &str, outbox: Arc<Outbox>) -> io::Result<Self> {
        let inbox = Arc::new((Mutex::new(Inbox::default()), Condvar::new()));
        let theirs = Arc::clone(&inbox);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&theirs, &outbox))?;
        Ok(Self {
            inbox,
            thread: Some(thread),
        })
    }

    pub(super) fn give(&self, job: Job) {
        let (inbox, arrived) = &*self.inbox;
        lock(inbox).jobs.push_back(job);
        arrived.notify_one();
    }
}

impl Drop for Helper {
    /// Lets it finish its jobs.
    fn drop(&mut self) {
        let (inbox, arrived) = &*self.inbox;
        lock(inbox).closed = true;
        arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // A helper that panicked has nothing left to return.
            let _ = thread.join();
        }
    }
}

fn run(inbox: &(Mutex<Inbox>, Condvar), outbox: &Outbox) {
    let (inbox, arrived) = inbox;
    let mut write_back = WriteBack::default();
    loop {
        let mut waiting = lock(inbox);
        let job = loop {
            if let Some(job) = waiting.jobs.pop_front() {
                break job;
            }
            if waiting.closed {
                return;
            }
            waiting = arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        };
        drop(waiting);
        if let Some(done) = perform(job, &mut write_back) {
            outbox.put(done);
        }
    }
}

fn perform(job: Job, write_back: &mut WriteBack) -> Option<Done> {
    Some(match job {
        Job::Create {
            file,
            path,
            reserve_bytes,
            direct,
        } => Done::Created {
            file,
            result: create(&path, reserve_bytes, direct),
        },
        Job::Reserve {
            file,
            handle,
            path,
            from,
            to,
        } => {
            let end = reserve_in_part(&handle, &path, from, to).unwrap_or(u64::MAX);
            Done::Reserved { file, to: end }
        }
        Job::Write(write) => {
            let len = write.len as u64;
            let result = write_back
                .make_room(len)
                .and_then(|()| {
                    write
                        .handle
                        .write_all_at(&write.block.as_slice()[..write.len], write.offset)
                })
                .and_then(|()| write_back.wrote(write.file, &write.handle, write.offset, len))
                .map_err(|source| DiskError::new(&*write.path, Operation::Write, source).at(write.offset));
            Done::Written { write, result }
        }
        Job::Forget { file } => {
            write_back.forget(file);
            return None;
        }
        Job::Sync {
            file,
            handle,
            path,
            token,
            with_entry,
        } => {
            let result = handle
                .sync_data()
                .and_then(|()| {
                    if with_entry {
                        sync_directory_of(&path)
                    } else {
                        Ok(())
                    }
                })
                .map_err(|source| DiskError::new(&*path, Operation::Sync, source));
            Done::Synced { file, token, result }
        }
        Job::Close {
            file,
            handle,
            path,
            length,
            with_entry,
        } => {
            let result = close(handle, &path, length, with_entry)
                .map_err(|source| DiskError::new(&*path, Operation::Close, source));
            Done::Closed { file, result }
        }
    })
}

/// Makes a file that must not exist and reserves space for it; returns how far space is reserved.
pub(super) fn create(path: &Path, reserve_bytes: u64, direct: bool) -> Result<(Arc<File>, u64), DiskError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if direct {
        options.custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW);
    }
    let file = while_nothing_is_removed(|| options.open(path))
        .map_err(|source| DiskError::new(path, Operation::Create, source))?;
    crate::lock::mark_written(&file);
    // A buffered file gets its space when it is written back; on a memory file system reserving would fill memory with zeros.
    let reserved = if direct && reserve_bytes > 0 {
        reserve_in_part(&file, path, 0, reserve_bytes)
    } else {
        None
    };
    Ok((Arc::new(file), reserved.unwrap_or(0)))
}

/// Reserves `from..to`, or as much of it as is sensible; returns how far, `None` when nothing.
fn reserve_in_part(file: &File, path: &Path, from: u64, to: u64) -> Option<u64> {
    let available = available_bytes(path.parent().unwrap_or(Path::new("."))).ok()?;
    let wanted = to.saturating_sub(from);
    let bytes = wanted.min(available / RESERVE_PART_OF_FREE);
    if bytes < wanted.min(RESERVE_BYTES_MIN) || bytes == 0 {
        return None;
    }
    reserve(file, from, bytes).ok().map(|()| from + bytes)
}

/// Reserves space and lets the file's length grow with it: a write that made the file longer would block all
/// others and wait for its own completion (ext4, 4 MiB blocks: 0.8 of the disk's speed without reserving, and
/// 3 times the waiting writes).
fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    if i64::try_from(from).and(i64::try_from(bytes)).is_err() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), from, bytes) {
            Err(Errno::INTR) => {}
            reserved => return Ok(reserved?),
        }
    }
}

/// Each sync halts the disk for a moment, so the directory entry is only synced where no sync of the file has
/// done it.
fn close(handle: Arc<File>, path: &Path, length: u64, with_entry: bool) -> io::Result<()> {
    handle.set_len(length)?;
    handle.sync_all()?;
    drop(handle);
    if with_entry {
        sync_directory_of(path)
    } else {
        Ok(())
    }
}

/// Makes the directory entry of `path` durable.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match File::open(dir)?.sync_all() {
        // Some file systems cannot sync a directory; there its entries need none.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// Free bytes for an unprivileged user on the file system of `dir`.
pub(crate) fn available_bytes(dir: &Path) -> io::Result<u64> {
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let stat = statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
