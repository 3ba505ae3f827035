//! The open files of a disk: the operations in flight on each, and those that have to wait for it.

use crate::{
    block::Block,
    disk::{DiskError, FileId},
};
use std::{collections::VecDeque, fs::File, path::Path, sync::Arc};

/// A write that waits until its file exists.
pub(super) struct WaitingWrite {
    pub number: u64,
    pub offset: u64,
    pub block: Block,
    pub len: usize,
}

/// An operation that must not start before all writes below a number have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    Sync { token: u64 },
    Close { length: u64 },
}

/// How a file can be written to.
pub(super) enum Handle {
    /// A helper is making it.
    Creating,
    Open(Arc<File>),
    Failed(DiskError),
}

/// One file.
pub(super) struct OpenFile {
    pub path: Arc<Path>,
    pub handle: Handle,
    pub waiting: Vec<WaitingWrite>,
    next_number: u64,
    in_flight: Vec<u64>,
    barriers: VecDeque<(u64, Barrier)>,
    /// Space is reserved up to here; `u64::MAX` when reserving does not work.
    pub reserved: u64,
    /// How long its creator expects it to become; 0 when that is not known.
    pub expected: u64,
    pub reserving: bool,
    /// End of the bytes written or being written.
    pub written_end: u64,
    /// A sync of the directory entry has been requested.
    pub entry_synced: bool,
}

impl OpenFile {
    pub(super) fn new(path: &Path, handle: Handle, reserved: u64, expected: u64) -> Self {
        Self {
            path: Arc::from(path),
            handle,
            waiting: Vec::new(),
            next_number: 0,
            in_flight: Vec::new(),
            barriers: VecDeque::new(),
            reserved,
            expected,
            reserving: false,
            written_end: 0,
            entry_synced: false,
        }
    }

    /// Bytes reserved for this file and not used yet.
    pub(super) fn reserved_ahead_bytes(&self) -> u64 {
        if self.reserved == u64::MAX {
            0
        } else {
            self.reserved.saturating_sub(self.written_end)
        }
    }

    /// Counts a write that starts or waits, and gives it its number.
    pub(super) fn begin_write(&mut self, end: u64) -> u64 {
        self.written_end = self.written_end.max(end);
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight.push(number);
        number
    }

    pub(super) fn end_write(&mut self, number: u64) {
        if let Some(place) = self.in_flight.iter().position(|&other| other == number) {
            self.in_flight.swap_remove(place);
        }
    }

    /// Adds a barrier that must wait for all writes begun so far.
    pub(super) fn add_barrier(&mut self, barrier: Barrier) {
        self.barriers.push_back((self.next_number, barrier));
    }

    /// The next barrier that no write blocks any more. A close also waits for space being reserved, which
    /// would make the file longer again.
    pub(super) fn next_ready(&mut self) -> Option<Barrier> {
        let &(number, barrier) = self.barriers.front()?;
        let reserving = self.reserving && matches!(barrier, Barrier::Close { .. });
        let writing = self.in_flight.iter().any(|&write| write < number);
        if matches!(self.handle, Handle::Creating) || reserving || writing {
            return None;
        }
        self.barriers.pop_front();
        Some(barrier)
    }
}

/// Numbers for files.
#[derive(Default)]
pub(super) struct FileNumbers(u32);

impl FileNumbers {
    pub(super) fn next(&mut self) -> FileId {
        let file = FileId(self.0);
        self.0 += 1;
        file
    }
}
