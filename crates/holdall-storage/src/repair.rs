//! The repair of a storage file: a list of steps of which each leaves the file as readable as it was.

use crate::error::StorageResult;
use holdall_io::fs::EditedFile;
use std::path::PathBuf;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairStep {
    /// Bytes over what is there.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Everything before is durable before anything after is begun.
    Sync,
    /// Cuts or extends the file.
    SetLength(u64),
}

impl RepairStep {
    pub(crate) fn write(offset: u64, bytes: Vec<u8>) -> Self {
        Self::Write { offset, bytes }
    }

    /// Lays what it writes over a piece of the file that begins at `start`.
    pub(crate) fn lay_over(&self, start: u64, piece: &mut [u8]) {
        let Self::Write { offset, bytes } = self else {
            return;
        };
        let end = start + piece.len() as u64;
        let (from, to) = ((*offset).max(start), (offset + bytes.len() as u64).min(end));
        if from < to {
            // Both are inside of the piece and of the bytes.
            let count = (to - from) as usize;
            let (at, source) = ((from - start) as usize, (from - offset) as usize);
            piece[at..at + count].copy_from_slice(&bytes[source..source + count]);
        }
    }
}

/// A repair that was thought out and not yet done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPlan {
    /// The file.
    pub path: PathBuf,
    /// What to do, in order.
    pub steps: Vec<RepairStep>,
    /// What will have been done.
    pub outcome: Repaired,
}

impl RepairPlan {
    /// Does it, in the file itself.
    ///
    /// # Errors
    /// A file that cannot be written; what could be read of it still can, and it can be repaired again.
    pub fn apply(&self) -> StorageResult<()> {
        let file = EditedFile::open(&self.path)?;
        for step in &self.steps {
            match step {
                RepairStep::Write { offset, bytes } => file.write_all_at(bytes, *offset)?,
                RepairStep::Sync => file.sync()?,
                RepairStep::SetLength(length) => file.set_len(*length)?,
            }
        }
        Ok(())
    }
}

/// What a repair has done with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Messages that can be read; as many as before.
    pub messages: u64,
    /// Bytes that were added behind them.
    pub tail_bytes: u64,
    /// What could not be saved, one sentence each.
    pub unsaved: Vec<String>,
}
