//! State of a simulated disk: its files, the operations in flight, and their outcomes.

use super::{
    clock::SimClock,
    disk::SimDiskOptions,
    file::{SimFile, Unsynced},
    rng::SimRng,
};
use crate::{
    block::{BLOCK_ALIGNMENT, Block},
    clock::Clock,
    disk::{Completion, DiskError, FileId, Operation, invalid_input},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// A planned failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) operation: Operation,
    /// How many of these operations still go well before it.
    pub(super) after: u64,
    pub(super) errno: i32,
}

pub(super) enum Action {
    Create { result: Result<(), DiskError> },
    Write { offset: u64, block: Block, len: usize },
    Sync { token: u64 },
    Close { length: u64 },
}

pub(super) struct Pending {
    pub(super) due: Duration,
    /// Order of submission.
    pub(super) number: u64,
    pub(super) file: FileId,
    pub(super) action: Action,
    pub(super) failure: Option<i32>,
}

/// How everything ends at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// The disk's volatile cache is gone.
    PowerCut,
    /// The process is gone, the system continues.
    Kill,
}

pub(super) struct State {
    pub(super) options: SimDiskOptions,
    pub(super) clock: SimClock,
    pub(super) rng: SimRng,
    pub(super) files: BTreeMap<PathBuf, SimFile>,
    pub(super) open: BTreeMap<FileId, PathBuf>,
    pub(super) pending: Vec<Pending>,
    pub(super) refused: Vec<Completion>,
    pub(super) plans: Vec<Plan>,
    pub(super) next_file: u32,
    pub(super) next_number: u64,
    /// Until when the disk moves bytes of earlier writes.
    pub(super) busy_until: Duration,
    pub(super) crashed: bool,
    /// Something failed before.
    pub(super) has_failed: bool,
    /// Removed since the last sync: a power cut may bring them back.
    pub(super) removed: Vec<(PathBuf, SimFile)>,
    /// False only to break the promise of a sync.
    pub(super) syncs_directories: bool,
}

impl State {
    pub(super) fn remove(&mut self, path: &Path) -> bool {
        let removed = self.files.remove_entry(path);
        let found = removed.is_some();
        self.removed.extend(removed);
        found
    }

    pub(super) fn available_bytes(&self) -> u64 {
        let used: u64 = self.files.values().map(|file| file.visible().len() as u64).sum();
        self.options.capacity_bytes.saturating_sub(used)
    }

    pub(super) fn sync_directory(&mut self) {
        self.removed.clear();
        self.files.values_mut().for_each(SimFile::sync_entry);
    }

    pub(super) fn stall(&mut self, span: Duration) {
        self.busy_until = self.busy_until.max(self.clock.monotonic()) + span;
        for pending in &mut self.pending {
            pending.due += span;
        }
    }

    pub(super) fn crash(&mut self, kind: Crash) -> BTreeMap<PathBuf, Vec<u8>> {
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
            let survived = match kind {
                Crash::PowerCut => file.survive(&in_flight, self.options.sector_bytes, &mut rng),
                Crash::Kill => Some(file.outlive(&in_flight, &mut rng)),
            };
            let Some(mut content) = survived else {
                continue;
            };
            // A close in flight may have progressed as far as cutting the file.
            if let Some(length) = close
                && in_flight.is_empty()
                && rng.coin()
            {
                content.resize(length, 0);
            }
            survivors.insert(path.clone(), content);
        }
        if kind == Crash::PowerCut {
            for (path, file) in std::mem::take(&mut self.removed) {
                if !survivors.contains_key(&path)
                    && rng.coin()
                    && let Some(content) = file.survive(&[], self.options.sector_bytes, &mut rng)
                {
                    survivors.insert(path, content);
                }
            }
        }
        survivors
    }

    pub(super) fn begin_file(&mut self, path: &Path, reserve_bytes: u64) -> (FileId, Result<(), DiskError>) {
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
            self.has_failed |= !self.crashed;
            return (
                file,
                Err(DiskError::new(
                    path,
                    Operation::Create,
                    io::Error::from_raw_os_error(errno),
                )),
            );
        }
        // Reserved space shows only at a crash; it makes a simulated file no longer than this.
        let reserved = usize::try_from(reserve_bytes.min(1 << 20)).unwrap_or(0);
        self.files.insert(path.to_owned(), SimFile::new(reserved));
        self.open.insert(file, path.to_owned());
        (file, Ok(()))
    }

    pub(super) fn planned_failure(&mut self, operation: Operation) -> Option<i32> {
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

    /// Adds an operation that ends after `work` of the disk's own time, and not before `earliest`.
    pub(super) fn submit(&mut self, file: FileId, action: Action, work: Duration, earliest: Duration) {
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

    /// Time at which everything submitted on `file` so far has ended.
    pub(super) fn last_due(&self, file: FileId) -> Duration {
        let dues = self
            .pending
            .iter()
            .filter(|pending| pending.file == file)
            .map(|pending| pending.due);
        dues.max().unwrap_or_default()
    }

    /// Ends the operations that are due, in the order of their ends.
    pub(super) fn end_due(&mut self, completions: &mut Vec<Completion>) {
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

    pub(super) fn end(&mut self, pending: Pending) -> Completion {
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
        self.has_failed |= failure.is_some() && !self.crashed;
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
                        content.sync(number, self.syncs_directories);
                        if self.syncs_directories {
                            self.removed.clear();
                        }
                        Ok(())
                    }
                    (None, _) => fail(Operation::Sync, libc::EBADF),
                };
                Completion::Synced { file, token, result }
            }
            Action::Close { length } => {
                let result = match (self.files.get_mut(&path), failure) {
                    (Some(content), None) => {
                        let length = usize::try_from(length).unwrap_or(usize::MAX);
                        content.close(length, self.syncs_directories);
                        Ok(())
                    }
                    (_, errno) => fail(Operation::Close, errno.unwrap_or(libc::EBADF)),
                };
                self.open.remove(&file);
                Completion::Closed { file, result }
            }
        }
    }

    pub(super) fn end_write(
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
            // Some of it may have been written.
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
            self.has_failed |= !self.crashed;
            return fail(libc::ENOSPC);
        }
        file.write(number, start, bytes);
        Ok(())
    }

    pub(super) fn check_open(&self, file: FileId, operation: Operation) -> Result<&Path, DiskError> {
        // A file that is being closed accepts nothing more.
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
