//! State of one file in the disk queue: how far it has been written, which operations are in flight, and whether it has
//! failed.

use crate::{block::Block, disk::DiskError};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

/// How far a file has been written, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileProgress {
    /// End of the bytes given to [`crate::queue::DiskQueue::write`].
    pub accepted_bytes: u64,
    /// Everything below this has been written (it may be lost in a power cut).
    pub written_bytes: u64,
    /// Everything below this survives a power cut.
    pub durable_bytes: u64,
}

/// A file's state from creation to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Creating,
    Open,
    Closing,
    Closed,
}

/// A write that was accepted and has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) offset: u64,
    /// End offset, including padding.
    pub(crate) end: u64,
    /// End of the bytes that repeat those of an earlier write; they are in the file even if this write
    /// fails.
    pub(crate) fresh_from: u64,
}

/// Operations that wait for an overlapping write, in order.
pub(crate) enum Deferred {
    Write {
        offset: u64,
        block: Block,
        len: usize,
        fresh_from: u64,
    },
    Sync {
        number: u64,
    },
    /// Later writes wait until this sync has ended.
    Barrier {
        number: u64,
    },
    Close {
        length: u64,
    },
}

impl Deferred {
    /// Whether it writes bytes.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

/// One file of the queue.
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    pub(crate) life: Life,
    pub(crate) progress: FileProgress,
    /// Submitted to the disk.
    pub(crate) in_flight: Vec<PendingWrite>,
    /// Not yet submitted, because a write in flight covers some of the same bytes and the disk may reorder.
    pub(crate) deferred: VecDeque<Deferred>,
    /// Syncs not yet ended, with the bytes they make durable.
    pub(crate) syncs: VecDeque<(u64, u64)>,
    /// Highest sync number that has ended well.
    pub(crate) synced_number: u64,
    /// Offset of the first new bytes of the lowest write that failed or was abandoned; the file has holes
    /// after it.
    pub(crate) failed_from: u64,
    pub(crate) error: Option<DiskError>,
    /// Dropped when the file is closed.
    pub(crate) kept: Vec<Box<dyn Send>>,
}

impl FileState {
    pub(crate) fn new(path: &Path, life: Life) -> Self {
        Self {
            path: path.to_owned(),
            life,
            progress: FileProgress::default(),
            in_flight: Vec::new(),
            deferred: VecDeque::new(),
            syncs: VecDeque::new(),
            synced_number: 0,
            failed_from: u64::MAX,
            error: None,
            kept: Vec::new(),
        }
    }

    /// Whether everything accepted is written.
    pub(crate) fn is_written(&self) -> Result<bool, DiskError> {
        self.check()?;
        Ok(self.in_flight.is_empty() && !self.deferred.iter().any(Deferred::is_write))
    }

    pub(crate) fn check(&self) -> Result<(), DiskError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// The first error stays: later ones are mostly its consequence.
    pub(crate) fn poison(&mut self, error: DiskError) {
        self.error.get_or_insert(error);
    }

    /// The length to which the file is cut when it is closed at `length`: a file that failed is cut before
    /// its first hole, so that the rest is whole. A file without writes through the queue may be written
    /// by other code (a database), and keeps its length.
    pub(crate) fn closing_length(&self, length: u64) -> u64 {
        if self.error.is_some() && self.progress.accepted_bytes > 0 {
            length.min(self.progress.written_bytes)
        } else {
            length
        }
    }

    pub(crate) fn overlaps_in_flight(&self, offset: u64, end: u64) -> bool {
        self.in_flight
            .iter()
            .any(|write| write.offset < end && offset < write.end)
    }

    /// Recomputes how far the file is written without a hole. Never goes back: a write over written bytes repeats them.
    pub(crate) fn update_written(&mut self) {
        let mut lowest = self.progress.accepted_bytes.min(self.failed_from);
        for write in &self.in_flight {
            lowest = lowest.min(write.fresh_from);
        }
        for deferred in &self.deferred {
            if let Deferred::Write { fresh_from, .. } = deferred {
                lowest = lowest.min(*fresh_from);
            }
        }
        self.progress.written_bytes = self.progress.written_bytes.max(lowest);
    }

    pub(crate) fn created(&mut self, result: Result<(), DiskError>) {
        if self.life == Life::Creating {
            self.life = Life::Open;
        }
        if let Err(error) = result {
            self.poison(error);
        }
    }

    pub(crate) fn written(&mut self, offset: u64, len: u64, result: Result<(), DiskError>) {
        let end = offset + len;
        let mut fresh_from = offset;
        if let Some(place) = self
            .in_flight
            .iter()
            .position(|write| write.offset == offset && write.end == end)
        {
            fresh_from = self.in_flight.swap_remove(place).fresh_from;
        }
        if let Err(error) = result {
            self.failed_from = self.failed_from.min(fresh_from);
            self.poison(error);
        }
        self.update_written();
    }

    pub(crate) fn synced(&mut self, number: u64, result: Result<(), DiskError>) {
        let place = self.syncs.iter().position(|(other, _)| *other == number);
        let covered = place.and_then(|place| self.syncs.remove(place));
        match result {
            Ok(()) if self.error.is_none() => {
                self.synced_number = self.synced_number.max(number);
                let bytes = covered.map_or(0, |(_, bytes)| bytes);
                self.progress.durable_bytes = self.progress.durable_bytes.max(bytes);
            }
            // A write before it has failed: the sync cannot vouch for those bytes.
            Ok(()) => {}
            Err(error) => self.poison(error),
        }
    }

    pub(crate) fn closed(&mut self, result: Result<(), DiskError>) {
        self.life = Life::Closed;
        self.kept.clear();
        match result {
            Ok(()) if self.error.is_none() => {
                self.progress.written_bytes = self.progress.accepted_bytes;
                self.progress.durable_bytes = self.progress.accepted_bytes;
            }
            Ok(()) => {}
            Err(error) => self.poison(error),
        }
    }
}
