//! A disk that reports falsely: syncs that were not done, or not yet, and writes that failed.

use super::Mutation;
use holdall_io::{
    block::{Block, BlockPool},
    disk::{Completion, Disk, DiskError, FileId, Wait},
    sim::SimDisk,
};
use std::path::Path;

/// The lying disk.
pub struct MutatedDisk {
    mutation: Mutation,
    disk: SimDisk,
    /// Syncs to be reported with the next poll.
    claimed: Vec<(FileId, u64)>,
    /// Syncs that have been reported and have not ended.
    ahead: Vec<(FileId, u64)>,
}

impl MutatedDisk {
    /// Reports falsely about `disk`, in one way.
    pub fn new(mutation: Mutation, disk: SimDisk) -> Self {
        Self {
            mutation,
            disk,
            claimed: Vec::new(),
            ahead: Vec::new(),
        }
    }

    /// The completion to report; `None` when it was reported before.
    fn reported(&mut self, completion: Completion) -> Option<Completion> {
        match completion {
            Completion::Written {
                file,
                offset,
                len,
                block,
                result: Err(_),
            } if self.mutation == Mutation::WriteErrorIgnored => Some(Completion::Written {
                file,
                offset,
                len,
                block,
                result: Ok(()),
            }),
            Completion::Synced {
                file,
                token,
                result: Err(_),
            } if self.mutation == Mutation::SyncErrorIgnored => Some(Completion::Synced {
                file,
                token,
                result: Ok(()),
            }),
            Completion::Synced { file, token, .. } if self.ahead.contains(&(file, token)) => {
                self.ahead.retain(|claimed| *claimed != (file, token));
                None
            }
            other => Some(other),
        }
    }
}

impl Disk for MutatedDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        self.disk.create(path, reserve_bytes)
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        self.disk.submit_create(path, reserve_bytes)
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        self.disk.submit_write(file, offset, block, len);
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        match self.mutation {
            Mutation::SkippedSync => self.claimed.push((file, token)),
            Mutation::EarlySync => {
                self.claimed.push((file, token));
                self.ahead.push((file, token));
                self.disk.submit_sync(file, token);
            }
            _ => self.disk.submit_sync(file, token),
        }
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.disk.submit_close(file, length);
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        for (file, token) in self.claimed.drain(..) {
            completions.push(Completion::Synced {
                file,
                token,
                result: Ok(()),
            });
        }
        let wait = if completions.is_empty() { wait } else { Wait::No };
        let mut ended = Vec::new();
        self.disk.reap(wait, &mut ended);
        completions.extend(
            ended
                .into_iter()
                .filter_map(|completion| self.reported(completion)),
        );
    }

    fn in_flight(&self) -> usize {
        self.disk.in_flight() + self.claimed.len()
    }

    fn available_bytes(&self, directory: &Path) -> Result<u64, DiskError> {
        self.disk.available_bytes(directory)
    }

    fn makes_files(&self) -> bool {
        self.disk.makes_files()
    }

    fn register(&mut self, pool: &BlockPool) {
        self.disk.register(pool);
    }
}
