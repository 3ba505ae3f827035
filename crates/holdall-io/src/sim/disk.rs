//! A simulated disk: writes take simulated time, end out of order, tear at a power cut, and fail where the plan says so.

use super::{
    clock::SimClock,
    file::{SimFile, Unsynced},
    rng::SimRng,
};
use crate::{
    block::{BLOCK_ALIGNMENT, Block},
    clock::Clock,
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, check_write, invalid_input},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How a simulated disk behaves.
#[derive(Clone, Debug)]
pub struct SimDiskOptions {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Room for the content of all files together.
    pub capacity_bytes: u64,
    /// How fast bytes go to the disk.
    pub write_bytes_per_second: u64,
    /// Shortest time that anything takes.
    pub latency: Duration,
    /// What chance adds to it; makes writes overtake each other.
    pub latency_jitter: Duration,
    /// How often (in a million) a write takes [`SimDiskOptions::stall`] longer.
    pub stalls_per_million: u32,
    /// How long such a stall is.
    pub stall: Duration,
    /// What the disk writes at once or not at all: 512 or 4096.
    pub sector_bytes: usize,
}

impl Default for SimDiskOptions {
    /// A fast disk without faults: 2 GB/s, 0.1 to 1 ms, sectors of 512 bytes.
    fn default() -> Self {
        Self {
            seed: 0,
            capacity_bytes: u64::MAX,
            write_bytes_per_second: 2_000_000_000,
            latency: Duration::from_micros(100),
            latency_jitter: Duration::from_micros(900),
            stalls_per_million: 0,
            stall: Duration::from_secs(1),
            sector_bytes: 512,
        }
    }
}

/// A planned failure.
#[derive(Clone, Copy, Debug)]
struct Plan {
    operation: Operation,
    /// How many of these operations still go well before it.
    after: u64,
    errno: i32,
}

enum Action {
    Create { result: Result<(), DiskError> },
    Write { offset: u64, block: Block, len: usize },
    Sync { token: u64 },
    Close { length: u64 },
}

struct Pending {
    due: Duration,
    /// Order of submission.
    number: u64,
    file: FileId,
    action: Action,
    failure: Option<i32>,
}

struct State {
    options: SimDiskOptions,
    clock: SimClock,
    rng: SimRng,
    files: BTreeMap<PathBuf, SimFile>,
    open: BTreeMap<FileId, PathBuf>,
    pending: Vec<Pending>,
    refused: Vec<Completion>,
    plans: Vec<Plan>,
    next_file: u32,
    next_number: u64,
    /// Until when the disk moves bytes of earlier writes.
    busy_until: Duration,
    crashed: bool,
}

/// The disk. It shares its state with its [`SimDiskHandle`]s.
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// A hand on a [`SimDisk`] that somebody else owns: to look at its files, plan failures and cut its power.
#[derive(Clone)]
pub struct SimDiskHandle {
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDisk {
    /// An empty disk on `clock`.
    pub fn new(options: SimDiskOptions, clock: SimClock) -> Self {
        Self::with_files(options, clock, BTreeMap::new())
    }

    /// A disk that holds `files` already, as [`SimDiskHandle::crash`] gives them back.
    pub fn with_files(options: SimDiskOptions, clock: SimClock, files: BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let rng = SimRng::new(options.seed);
        let files = files
            .into_iter()
            .map(|(path, content)| (path, SimFile::existing(content)))
            .collect();
        let state = State {
            options,
            clock,
            rng,
            files,
            open: BTreeMap::new(),
            pending: Vec::new(),
            refused: Vec::new(),
            plans: Vec::new(),
            next_file: 0,
            next_number: 0,
            busy_until: Duration::ZERO,
            crashed: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// A hand on this disk.
    pub fn handle(&self) -> SimDiskHandle {
        SimDiskHandle {
            state: Arc::clone(&self.state),
        }
    }
}

impl SimDiskHandle {
    /// What a reader sees of a file now.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        lock(&self.state)
            .files
            .get(path)
            .map(|file| file.visible().to_vec())
    }

    /// Paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        lock(&self.state).files.keys().cloned().collect()
    }

    /// The `nth` (from 0) next operation of this kind (create, write, sync or close) fails with `errno`.
    pub fn fail_nth(&self, operation: Operation, nth: u64, errno: i32) {
        lock(&self.state).plans.push(Plan {
            operation,
            after: nth,
            errno,
        });
    }

    /// Makes the disk larger or smaller.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        lock(&self.state).options.capacity_bytes = capacity_bytes;
    }

    /// Moments (of [`Clock::monotonic`]) at which something in flight ends; the earliest.
    pub fn next_due(&self) -> Option<Duration> {
        lock(&self.state).pending.iter().map(|pending| pending.due).min()
    }

    /// Cuts the power: gives back what is on the disk afterwards. Everything in flight and everything later fails.
    pub fn crash(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        lock(&self.state).crash()
    }
}

impl State {
    fn crash(&mut self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.crashed = true;
        let mut rng = SimRng::new(self.rng.next_u64());
        let mut survivors = BTreeMap::new();
        for (path, file) in &self.files {
            let mut in_flight = Vec::new();
            let mut close = None;
            for pending in &self.pending {
                if self.open.get(&pending.file) != Some(path) {
                    continue;
                }
                match &pending.action {
                    Action::Write { offset, block, len } => in_flight.push(Unsynced {
                        number: pending.number,
                        offset: usize::try_from(*offset).unwrap_or(usize::MAX),
                        bytes: block.as_slice()[..*len].to_vec(),
                    }),
                    Action::Close { length } => close = usize::try_from(*length).ok(),
                    Action::Create { .. } | Action::Sync { .. } => {}
                }
            }
            rng.shuffle(&mut in_flight);
            let Some(mut content) = file.survive(&in_flight, self.options.sector_bytes, &mut rng) else {
                continue;
            };
            // A close in flight may have got as far as cutting the file.
            if let Some(length) = close
                && in_flight.is_empty()
                && rng.coin()
            {
                content.resize(length, 0);
            }
            survivors.insert(path.clone(), content);
        }
        survivors
    }

    fn begin_file(&mut self, path: &Path, reserve_bytes: u64) -> (FileId, Result<(), DiskError>) {
        let file = FileId(self.next_file);
        self.next_file += 1;
        let planned = self.planned_failure(Operation::Create);
        let errno = if self.crashed {
            Some(libc::EIO)
        } else if self.files.contains_key(path) {
            Some(libc::EEXIST)
        } else {
            planned
        };
        if let Some(errno) = errno {
            return (
                file,
                Err(DiskError::new(
                    path,
                    Operation::Create,
                    io::Error::from_raw_os_error(errno),
                )),
            );
        }
        // What is reserved shows at a crash only; a simulated file does not get longer than this by it.
        let reserved = usize::try_from(reserve_bytes.min(1 << 20)).unwrap_or(0);
        self.files.insert(path.to_owned(), SimFile::new(reserved));
        self.open.insert(file, path.to_owned());
        (file, Ok(()))
    }

    fn planned_failure(&mut self, operation: Operation) -> Option<i32> {
        let mut hit = None;
        for (place, plan) in self
            .plans
            .iter_mut()
            .enumerate()
            .filter(|(_, plan)| plan.operation == operation)
        {
            if plan.after == 0 && hit.is_none() {
                hit = Some((place, plan.errno));
            } else {
                plan.after = plan.after.saturating_sub(1);
            }
        }
        hit.map(|(place, errno)| {
            self.plans.remove(place);
            errno
        })
    }

    /// Adds something that ends after `work` of the disk's own time, and not before `earliest`.
    fn submit(&mut self, file: FileId, action: Action, work: Duration, earliest: Duration) {
        let failure = match &action {
            Action::Create { .. } => None,
            Action::Write { .. } => self.planned_failure(Operation::Write),
            Action::Sync { .. } => self.planned_failure(Operation::Sync),
            Action::Close { .. } => self.planned_failure(Operation::Close),
        };
        let start = self.busy_until.max(self.clock.monotonic());
        self.busy_until = start + work;
        let jitter = self.rng.span_below(self.options.latency_jitter);
        let mut due = self.busy_until.max(earliest) + self.options.latency + jitter;
        if self.rng.chance(self.options.stalls_per_million) {
            due += self.options.stall;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.pending.push(Pending {
            due,
            number,
            file,
            action,
            failure,
        });
    }

    /// When everything submitted on `file` so far has ended.
    fn last_due(&self, file: FileId) -> Duration {
        let dues = self
            .pending
            .iter()
            .filter(|pending| pending.file == file)
            .map(|pending| pending.due);
        dues.max().unwrap_or_default()
    }

    /// Ends what is due, in the order of its ending.
    fn end_due(&mut self, completions: &mut Vec<Completion>) {
        let now = self.clock.monotonic();
        let mut due: Vec<Pending> = self
            .pending
            .extract_if(.., |pending| self.crashed || pending.due <= now)
            .collect();
        due.sort_by_key(|pending| (pending.due, pending.number));
        for pending in due {
            completions.push(self.end(pending));
        }
    }

    fn end(&mut self, pending: Pending) -> Completion {
        let Pending {
            file,
            number,
            action,
            failure,
            ..
        } = pending;
        let failure = if self.crashed { Some(libc::EIO) } else { failure };
        let path = self.open.get(&file).cloned().unwrap_or_default();
        let fail = |operation, errno| {
            Err(DiskError::new(
                &path,
                operation,
                io::Error::from_raw_os_error(errno),
            ))
        };
        match action {
            Action::Create { result } => Completion::Created { file, result },
            Action::Write { offset, block, len } => {
                let result = self.end_write(&path, (number, offset), &block.as_slice()[..len], failure);
                Completion::Written {
                    file,
                    offset,
                    len,
                    block,
                    result,
                }
            }
            Action::Sync { token } => {
                let result = match (self.files.get_mut(&path), failure) {
                    (Some(content), Some(errno)) => {
                        content.fail_sync();
                        fail(Operation::Sync, errno)
                    }
                    (Some(content), None) => {
                        content.sync(number);
                        Ok(())
                    }
                    (None, _) => fail(Operation::Sync, libc::EBADF),
                };
                Completion::Synced { file, token, result }
            }
            Action::Close { length } => {
                let result = match (self.files.get_mut(&path), failure) {
                    (Some(content), None) => {
                        content.close(usize::try_from(length).unwrap_or(usize::MAX));
                        Ok(())
                    }
                    (_, errno) => fail(Operation::Close, errno.unwrap_or(libc::EBADF)),
                };
                self.open.remove(&file);
                Completion::Closed { file, result }
            }
        }
    }

    fn end_write(
        &mut self,
        path: &Path,
        (number, offset): (u64, u64),
        bytes: &[u8],
        failure: Option<i32>,
    ) -> Result<(), DiskError> {
        let used: u64 = self.files.values().map(|file| file.visible().len() as u64).sum();
        let fail = |errno| {
            Err(DiskError::new(path, Operation::Write, io::Error::from_raw_os_error(errno)).at(offset))
        };
        let (Ok(start), Some(file)) = (usize::try_from(offset), self.files.get_mut(path)) else {
            return fail(libc::EFBIG);
        };
        if let Some(errno) = failure {
            // Some of it may have got there.
            let part = self.rng.below((bytes.len() / BLOCK_ALIGNMENT) as u64 + 1) as usize * BLOCK_ALIGNMENT;
            if !self.crashed && part > 0 {
                file.write(number, start, &bytes[..part]);
            }
            return fail(errno);
        }
        let room = self.options.capacity_bytes.saturating_sub(used);
        let growth = file.growth(start, bytes.len());
        if growth as u64 > room {
            // A short write up to the limit, and nothing after it.
            let fits = bytes
                .len()
                .saturating_sub(growth - usize::try_from(room).unwrap_or(0));
            let fits = fits - fits % BLOCK_ALIGNMENT;
            if fits > 0 {
                file.write(number, start, &bytes[..fits]);
            }
            return fail(libc::ENOSPC);
        }
        file.write(number, start, bytes);
        Ok(())
    }

    fn check_open(&self, file: FileId, operation: Operation) -> Result<&Path, DiskError> {
        // A file that is being closed takes nothing more.
        let closing =
            |pending: &Pending| pending.file == file && matches!(pending.action, Action::Close { .. });
        match self.open.get(&file) {
            Some(path) if !self.pending.iter().any(closing) => Ok(path),
            _ => Err(invalid_input(
                Path::new("file"),
                operation,
                "the file is not open",
            )),
        }
    }
}

impl Disk for SimDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        let mut state = lock(&self.state);
        let latency = state.options.latency;
        state.clock.advance(latency);
        let (file, result) = state.begin_file(path, reserve_bytes);
        result.map(|()| file)
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        let mut state = lock(&self.state);
        let (file, result) = state.begin_file(path, reserve_bytes);
        state.submit(file, Action::Create { result }, Duration::ZERO, Duration::ZERO);
        file
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        let mut state = lock(&self.state);
        let checked = state
            .check_open(file, Operation::Write)
            .and_then(|path| check_write(path, offset, &block, len));
        if let Err(error) = checked {
            state.refused.push(Completion::Written {
                file,
                offset,
                len,
                block,
                result: Err(error),
            });
            return;
        }
        let nanos = len as u128 * 1_000_000_000 / u128::from(state.options.write_bytes_per_second.max(1));
        let work = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        state.submit(file, Action::Write { offset, block, len }, work, Duration::ZERO);
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        let mut state = lock(&self.state);
        if let Err(error) = state.check_open(file, Operation::Sync) {
            state.refused.push(Completion::Synced {
                file,
                token,
                result: Err(error),
            });
            return;
        }
        let earliest = state.last_due(file);
        state.submit(file, Action::Sync { token }, Duration::ZERO, earliest);
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        let mut state = lock(&self.state);
        if let Err(error) = state.check_open(file, Operation::Close) {
            state.refused.push(Completion::Closed {
                file,
                result: Err(error),
            });
            return;
        }
        let earliest = state.last_due(file);
        state.submit(file, Action::Close { length }, Duration::ZERO, earliest);
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        let mut state = lock(&self.state);
        let before = completions.len();
        completions.append(&mut state.refused);
        state.end_due(completions);
        if wait == Wait::One
            && completions.len() == before
            && let Some(due) = state.pending.iter().map(|pending| pending.due).min()
        {
            state.clock.advance_to(due);
            state.end_due(completions);
        }
    }

    fn in_flight(&self) -> usize {
        let state = lock(&self.state);
        state.pending.len() + state.refused.len()
    }

    fn available_bytes(&self, _dir: &Path) -> Result<u64, DiskError> {
        let state = lock(&self.state);
        let used: u64 = state.files.values().map(|file| file.visible().len() as u64).sum();
        Ok(state.options.capacity_bytes.saturating_sub(used))
    }
}
