//! A simulated disk: writes take simulated time, end out of order, tear at a power cut, and fail where the
//! plan requires it.

use super::{
    clock::SimClock,
    file::SimFile,
    rng::SimRng,
    state::{Action, Crash, Plan, State},
};
use crate::mutex::lock;
use crate::{
    block::Block,
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, check_write},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

/// How a simulated disk behaves.
#[derive(Clone, Debug)]
pub struct SimDiskOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// Room for the content of all files together.
    pub capacity_bytes: u64,
    /// How fast bytes go to the disk.
    pub write_bytes_per_second: u64,
    /// Shortest time that any operation takes.
    pub latency: Duration,
    /// Largest random addition to it; makes writes overtake each other.
    pub latency_jitter: Duration,
    /// How often (in a million) a write takes [`SimDiskOptions::stall`] longer.
    pub stalls_per_million: u32,
    /// How long such a stall is.
    pub stall: Duration,
    /// The unit that the disk writes completely or not at all: 512 or 4096.
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

/// The disk. It shares its state with its [`SimDiskHandle`]s.
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// A handle to a [`SimDisk`] that another owner has: to read its files, plan failures and cut its power.
#[derive(Clone)]
pub struct SimDiskHandle {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk on `clock`.
    pub fn new(options: SimDiskOptions, clock: SimClock) -> Self {
        Self::with_files(options, clock, BTreeMap::new())
    }

    /// A disk that holds `files` already, as [`SimDiskHandle::crash`] returns them.
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
            has_failed: false,
            removed: Vec::new(),
            syncs_directories: true,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// A handle to this disk.
    pub fn handle(&self) -> SimDiskHandle {
        SimDiskHandle {
            state: Arc::clone(&self.state),
        }
    }
}

impl SimDiskHandle {
    /// The content of a file as a reader sees it now.
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

    /// Whether anything has failed on this disk before it crashed.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).has_failed
    }

    /// Free space, in bytes.
    pub fn available_bytes(&self) -> u64 {
        lock(&self.state).available_bytes()
    }

    /// The earliest moment (of [`crate::clock::Clock::monotonic`]) at which an operation in flight ends.
    pub fn next_due(&self) -> Option<Duration> {
        lock(&self.state).pending.iter().map(|pending| pending.due).min()
    }

    /// Cuts the power: returns the files left on the disk. Operations in flight and all later ones fail.
    pub fn crash(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        lock(&self.state).crash(Crash::PowerCut)
    }

    /// Kills the process that uses the disk: bytes that the system has accepted are kept, bytes in flight may
    /// have arrived or not.
    pub fn kill(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        lock(&self.state).crash(Crash::Kill)
    }

    /// Removes a file; false when it does not exist. A power cut before the next sync may bring it back.
    pub fn remove(&self, path: &Path) -> bool {
        lock(&self.state).remove(path)
    }

    /// Makes names durable, those that were made and those that were removed, as a sync of the directory does.
    pub fn sync_directory(&self) {
        lock(&self.state).sync_directory();
    }

    /// The content of all files as a reader sees them now.
    pub fn visible(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = lock(&self.state);
        let visible = |(path, file): (&PathBuf, &SimFile)| (path.clone(), file.visible().to_vec());
        state.files.iter().map(visible).collect()
    }

    /// Lets no operation end before `span` has passed: a disk that does not answer for a while.
    pub fn stall(&self, span: Duration) {
        lock(&self.state).stall(span);
    }

    /// Corrupts bytes of a file, for tests of code that must detect that; false when it has no such bytes.
    pub fn corrupt(&self, path: &Path, offset: usize, bytes: &[u8]) -> bool {
        lock(&self.state)
            .files
            .get_mut(path)
            .is_some_and(|file| file.corrupt(offset, bytes))
    }

    /// Gives a file another content, durable at once.
    pub fn replace(&self, path: &Path, content: Vec<u8>) {
        lock(&self.state)
            .files
            .insert(path.to_owned(), SimFile::existing(content));
    }

    /// Whether a sync also makes the directory entry durable, as [`Disk::submit_sync`] promises; false to break that promise.
    pub fn set_syncs_directories(&self, syncs: bool) {
        lock(&self.state).syncs_directories = syncs;
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
        Ok(lock(&self.state).available_bytes())
    }

    fn makes_files(&self) -> bool {
        false
    }
}
