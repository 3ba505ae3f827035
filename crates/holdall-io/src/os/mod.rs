//! The operating system's disk: direct where it can be, else buffered with early write-back.

mod buffered;
mod direct;
mod files;
mod helper;
mod probe;

pub(crate) use helper::{available_bytes, sync_directory_of};

use crate::{
    block::{Block, BlockPool},
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, WritePath, check_write, invalid_input},
};
use direct::Ring;
use files::{Barrier, FileNumbers, Handle, OpenFile, WaitingWrite};
use helper::{Done, Helper, Job, Outbox, WriteJob};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// Space is reserved for half of what a file has, at least this much: a recording that is cut off keeps it.
const RESERVE_AHEAD_BYTES_MIN: u64 = 64 << 20;

/// Space is reserved for no more than this at once.
const RESERVE_AHEAD_BYTES_MAX: u64 = 1 << 30;

/// More space is reserved when less than this, or than three quarters of one reservation, is left in front of a write: the helper may have to
/// wait for a processor, and writes past the reserved space go one at a time (32 MiB left: a tenth of the speed lost on a busy machine; 64 to
/// 256 MiB: nothing).
const RESERVE_LEFT_BYTES_MIN: u64 = 256 << 20;

/// How far a file may grow beyond the length that its creator expected (the last message, the index) before it counts as one of
/// unknown length; reserved at once.
const RESERVE_EXCESS_BYTES: u64 = 64 << 20;

/// A file shorter than this gets no reservation, unless its creator requested one.
const RESERVE_FROM_BYTES: u64 = 8 << 20;

/// How files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    /// Direct where the file system and the kernel can, else buffered.
    #[default]
    Auto,
    /// Past the page cache (O_DIRECT, io_uring); an error where that is not possible.
    Direct,
    /// Through the page cache, written back early, at most 64 MiB dirty.
    Buffered,
}

/// The engine that passes writes to the kernel.
enum Engine {
    Direct(Box<Ring>),
    Buffered(Helper),
}

/// Files of the operating system. Writes go through a ring or a separate thread; creating, reserving,
/// syncing and closing through two others, so that none of them delays a write.
pub struct OsDisk {
    // Dropped in this order: the ring waits for its writes, the helpers finish their jobs.
    engine: Engine,
    /// Makes files and reserves space.
    opener: Helper,
    /// Syncs and closes.
    closer: Helper,
    outbox: Arc<Outbox>,
    files: BTreeMap<FileId, OpenFile>,
    numbers: FileNumbers,
    done: Vec<Done>,
    ready: Vec<Completion>,
    in_flight: usize,
    /// Why [`DiskMode::Auto`] did not choose direct writing.
    fallback: Option<DiskError>,
}

impl OsDisk {
    /// A disk for files in `dir`, which must exist.
    ///
    /// # Errors
    /// When `dir` is not a directory, `mode` is not possible there, or threads cannot be started.
    pub fn open(dir: &Path, mode: DiskMode) -> Result<Self, DiskError> {
        probe::check_directory(dir)?;
        let (direct, fallback) = match mode {
            DiskMode::Buffered => (false, None),
            DiskMode::Direct => {
                probe::try_direct(dir)?;
                (true, None)
            }
            DiskMode::Auto => match probe::try_direct(dir) {
                Ok(()) => (true, None),
                Err(error) => (false, Some(error)),
            },
        };
        Self::start(direct, fallback).map_err(|source| DiskError::new(dir, Operation::Open, source))
    }

    fn start(direct: bool, fallback: Option<DiskError>) -> std::io::Result<Self> {
        let outbox = Outbox::new(direct)?;
        let engine = if direct {
            Engine::Direct(Box::new(Ring::new(Arc::clone(&outbox))?))
        } else {
            Engine::Buffered(Helper::start("disk-write", Arc::clone(&outbox))?)
        };
        Ok(Self {
            engine,
            opener: Helper::start("disk-open", Arc::clone(&outbox))?,
            closer: Helper::start("disk-close", Arc::clone(&outbox))?,
            outbox,
            files: BTreeMap::new(),
            numbers: FileNumbers::default(),
            done: Vec::new(),
            ready: Vec::new(),
            in_flight: 0,
            fallback,
        })
    }

    fn begin_file(&mut self, path: &Path, handle: Handle, reserved: u64, expected: u64) -> FileId {
        let file = self.numbers.next();
        self.files
            .insert(file, OpenFile::new(path, handle, reserved, expected));
        file
    }

    fn start_write(&mut self, file: FileId, write: WaitingWrite) {
        let WaitingWrite {
            number,
            offset,
            block,
            len,
        } = write;
        let Some(open) = self.files.get_mut(&file) else {
            return;
        };
        let handle = match &open.handle {
            Handle::Open(handle) => Arc::clone(handle),
            Handle::Creating => {
                return open.waiting.push(WaitingWrite {
                    number,
                    offset,
                    block,
                    len,
                });
            }
            Handle::Failed(error) => {
                let result = Err(error.clone());
                open.end_write(number);
                self.ready.push(Completion::Written {
                    file,
                    offset,
                    len,
                    block,
                    result,
                });
                return;
            }
        };
        // Not when buffered: the kernel allocates late there, and a memory file system would fill reserved space with zeros.
        if matches!(self.engine, Engine::Direct(_))
            && let Some(job) = reserve_ahead(file, open, &handle, offset + len as u64)
        {
            self.opener.give(job);
        }
        let write = WriteJob {
            file,
            number,
            path: Arc::clone(&open.path),
            handle,
            offset,
            block,
            len,
        };
        match &mut self.engine {
            Engine::Direct(ring) => ring.start(write, &mut self.done),
            Engine::Buffered(writer) => writer.give(Job::Write(write)),
        }
    }

    fn apply(&mut self, done: Done) {
        match done {
            Done::Created { file, result } => self.created(file, result),
            Done::Reserved { file, to } => {
                if let Some(open) = self.files.get_mut(&file) {
                    open.reserved = open.reserved.max(to);
                    open.reserving = false;
                }
                self.start_ready(file);
            }
            Done::Written { write, result } => {
                let WriteJob {
                    file,
                    number,
                    offset,
                    block,
                    len,
                    ..
                } = write;
                if let Some(open) = self.files.get_mut(&file) {
                    open.end_write(number);
                }
                self.ready.push(Completion::Written {
                    file,
                    offset,
                    len,
                    block,
                    result,
                });
                self.start_ready(file);
            }
            Done::Synced { file, token, result } => {
                self.ready.push(Completion::Synced { file, token, result });
            }
            Done::Closed { file, result } => self.ready.push(Completion::Closed { file, result }),
        }
    }

    fn created(&mut self, file: FileId, result: Result<(Arc<std::fs::File>, u64), DiskError>) {
        let Some(open) = self.files.get_mut(&file) else {
            return;
        };
        let waiting = std::mem::take(&mut open.waiting);
        let result = match result {
            Ok((handle, reserved)) => {
                open.handle = Handle::Open(handle);
                open.reserved = reserved;
                Ok(())
            }
            Err(error) => {
                open.handle = Handle::Failed(error.clone());
                Err(error)
            }
        };
        self.ready.push(Completion::Created { file, result });
        for write in waiting {
            self.start_write(file, write);
        }
        self.start_ready(file);
    }

    /// Starts the syncs and the close that no write blocks any more.
    fn start_ready(&mut self, file: FileId) {
        while let Some(open) = self.files.get_mut(&file)
            && let Some(barrier) = open.next_ready()
        {
            let path = Arc::clone(&open.path);
            let handle = match &open.handle {
                Handle::Open(handle) => Ok(Arc::clone(handle)),
                Handle::Failed(error) => Err(error.clone()),
                Handle::Creating => return,
            };
            match (barrier, handle) {
                (Barrier::Sync { token }, Ok(handle)) => {
                    let with_entry = !std::mem::replace(&mut open.entry_synced, true);
                    self.closer.give(Job::Sync {
                        file,
                        handle,
                        path,
                        token,
                        with_entry,
                    });
                }
                (Barrier::Sync { token }, Err(error)) => {
                    self.ready.push(Completion::Synced {
                        file,
                        token,
                        result: Err(error),
                    });
                }
                (Barrier::Close { length }, handle) => {
                    let with_entry = !open.entry_synced;
                    self.files.remove(&file);
                    if let Engine::Buffered(writer) = &self.engine {
                        writer.give(Job::Forget { file });
                    }
                    match handle {
                        Ok(handle) => self.closer.give(Job::Close {
                            file,
                            handle,
                            path,
                            length,
                            with_entry,
                        }),
                        Err(error) => self.ready.push(Completion::Closed {
                            file,
                            result: Err(error),
                        }),
                    }
                }
            }
        }
    }

    fn collect(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        if let Engine::Direct(ring) = &mut self.engine {
            ring.collect(&mut done);
        }
        self.outbox.take(&mut done);
        for one in done.drain(..) {
            self.apply(one);
        }
        // Writes started in the call may have failed at once and be in `self.done`.
        done.append(&mut self.done);
        self.done = done;
    }
}

/// How much space is reserved ahead of a file of this length at most; of what is free, a quarter at most.
pub fn reserved_ahead(length: u64) -> u64 {
    match length < RESERVE_FROM_BYTES {
        true => 0,
        false => (length / 2).clamp(RESERVE_AHEAD_BYTES_MIN, RESERVE_AHEAD_BYTES_MAX),
    }
}

/// The job that reserves more space, in proportion to the file, when little is left before a write's end. Reserves at most up to the length
/// that its creator expects, and only little after it.
fn reserve_ahead(file: FileId, open: &mut OpenFile, handle: &Arc<std::fs::File>, end: u64) -> Option<Job> {
    if open.reserving || open.reserved == u64::MAX || end < RESERVE_FROM_BYTES {
        return None;
    }
    let ahead = reserved_ahead(end);
    let (mut left_min, mut to) = ((ahead / 4 * 3).min(RESERVE_LEFT_BYTES_MIN), end + ahead);
    if end < open.expected.saturating_add(RESERVE_EXCESS_BYTES) && open.expected > 0 {
        if open.reserved < open.expected {
            to = to.min(open.expected);
        } else {
            (left_min, to) = (0, open.reserved + RESERVE_EXCESS_BYTES);
        }
    }
    if end + left_min <= open.reserved || to <= open.reserved {
        return None;
    }
    open.reserving = true;
    let (from, path) = (open.reserved, Arc::clone(&open.path));
    Some(Job::Reserve {
        file,
        handle: Arc::clone(handle),
        path,
        from,
        to,
    })
}

impl Disk for OsDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        let direct = matches!(self.engine, Engine::Direct(_));
        let (handle, reserved) = helper::create(path, reserve_bytes.min(RESERVE_AHEAD_BYTES_MIN), direct)?;
        Ok(self.begin_file(path, Handle::Open(handle), reserved, reserve_bytes))
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        let direct = matches!(self.engine, Engine::Direct(_));
        let file = self.begin_file(path, Handle::Creating, 0, reserve_bytes);
        self.in_flight += 1;
        self.opener.give(Job::Create {
            file,
            path: Arc::from(path),
            reserve_bytes: reserve_bytes.min(RESERVE_AHEAD_BYTES_MIN),
            direct,
        });
        file
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        self.in_flight += 1;
        let checked = match self.files.get_mut(&file) {
            None => Err(invalid_input(
                Path::new("file"),
                Operation::Write,
                "the file is not open",
            )),
            Some(open) => {
                check_write(&open.path, offset, &block, len).map(|()| open.begin_write(offset + len as u64))
            }
        };
        match checked {
            Ok(number) => self.start_write(
                file,
                WaitingWrite {
                    number,
                    offset,
                    block,
                    len,
                },
            ),
            Err(error) => {
                self.ready.push(Completion::Written {
                    file,
                    offset,
                    len,
                    block,
                    result: Err(error),
                });
            }
        }
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.in_flight += 1;
        match self.files.get_mut(&file) {
            Some(open) => {
                open.add_barrier(Barrier::Sync { token });
                self.start_ready(file);
            }
            None => {
                let result = Err(invalid_input(
                    Path::new("file"),
                    Operation::Sync,
                    "the file is not open",
                ));
                self.ready.push(Completion::Synced { file, token, result });
            }
        }
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.in_flight += 1;
        match self.files.get_mut(&file) {
            Some(open) => {
                open.add_barrier(Barrier::Close { length });
                self.start_ready(file);
            }
            None => {
                let result = Err(invalid_input(
                    Path::new("file"),
                    Operation::Close,
                    "the file is not open",
                ));
                self.ready.push(Completion::Closed { file, result });
            }
        }
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        loop {
            self.collect();
            if !self.ready.is_empty() {
                self.in_flight -= self.ready.len();
                completions.append(&mut self.ready);
                return;
            }
            if wait == Wait::No || self.in_flight == 0 {
                return;
            }
            if !self.done.is_empty() {
                continue;
            }
            match &mut self.engine {
                Engine::Direct(ring) => ring.wait(&mut self.done),
                Engine::Buffered(_) => self.outbox.wait(),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        let free = available_bytes(dir).map_err(|source| DiskError::new(dir, Operation::Inspect, source))?;
        // Space that this disk has reserved and not used is still free for its owner.
        let on_it = |open: &&OpenFile| open.path.starts_with(dir);
        let reserved: u64 = self
            .files
            .values()
            .filter(on_it)
            .map(OpenFile::reserved_ahead_bytes)
            .sum();
        Ok(free.saturating_add(reserved))
    }

    fn write_path(&self) -> WritePath {
        match self.engine {
            Engine::Direct(_) => WritePath::Direct,
            Engine::Buffered(_) => WritePath::Buffered {
                reason: self.fallback.as_ref().map(ToString::to_string),
            },
        }
    }

    fn makes_files(&self) -> bool {
        true
    }

    fn prefers_streaming_stores(&self) -> bool {
        // A buffered write is copied by this machine's processors once more, best out of their caches.
        matches!(self.engine, Engine::Direct(_))
    }

    fn register(&mut self, pool: &BlockPool) {
        if let Engine::Direct(ring) = &mut self.engine {
            ring.register(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_reserved_in_proportion_to_what_was_written_in_few_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let handle = Arc::new(std::fs::File::create(&path).unwrap());
        for expected in [0, 300 << 20, 20 << 30] {
            let mut open = OpenFile::new(&path, Handle::Open(Arc::clone(&handle)), 0, expected);
            let mut steps = 0;
            for end in (1u64..16 << 10).map(|mebibytes| mebibytes << 20) {
                if let Some(Job::Reserve { from, to, .. }) = reserve_ahead(FileId(0), &mut open, &handle, end)
                {
                    assert!(from == open.reserved && to > from);
                    (open.reserved, open.reserving, steps) = (to, false, steps + 1);
                }
                let most = end + (end / 2).clamp(64 << 20, 1 << 30);
                assert!(open.reserved <= most.max(open.expected + (64 << 20)), "{end}");
                assert!(
                    open.reserved <= most || open.reserved <= expected + (65 << 20),
                    "{end}"
                );
                let is_expected = end < expected + (64 << 20);
                let left = open.reserved.saturating_sub(end);
                assert!(
                    end < RESERVE_FROM_BYTES || is_expected || left >= 47 << 20,
                    "{end}: {left}"
                );
            }
            assert!(steps < 100, "{steps}");
        }
    }
}
