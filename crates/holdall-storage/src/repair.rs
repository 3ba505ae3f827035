//! The repair of a storage file: a list of steps that each leave the file as readable as before.

use crate::error::StorageResult;
use holdall_io::fs::EditedFile;
use std::path::PathBuf;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairStep {
    /// Overwrites bytes.
    Write {
        /// Offset in the file.
        offset: u64,
        /// The new bytes.
        bytes: Vec<u8>,
    },
    /// Makes everything before it durable before anything after it starts.
    Sync,
    /// Truncates or extends the file.
    SetLength(u64),
}

impl RepairStep {
    pub(crate) fn write(offset: u64, bytes: Vec<u8>) -> Self {
        Self::Write { offset, bytes }
    }

    /// Applies a write to a piece of the file that begins at `start`.
    pub(crate) fn overlay(&self, start: u64, piece: &mut [u8]) {
        let Self::Write { offset, bytes } = self else {
            return;
        };
        let end = start + piece.len() as u64;
        let (from, to) = ((*offset).max(start), (offset + bytes.len() as u64).min(end));
        if from < to {
            // Both are within the piece and the bytes.
            let count = (to - from) as usize;
            let (at, source) = ((from - start) as usize, (from - offset) as usize);
            piece[at..at + count].copy_from_slice(&bytes[source..source + count]);
        }
    }
}

/// A repair that is planned but not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPlan {
    /// The file.
    pub path: PathBuf,
    /// Its steps, in order.
    pub steps: Vec<RepairStep>,
    /// The result, once applied.
    pub outcome: Repaired,
}

impl RepairPlan {
    /// Applies the steps to the file in place.
    ///
    /// # Errors
    /// A file that cannot be written; whatever was readable still is, and the repair can be run again.
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

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Messages that can be read; as many as before.
    pub messages: u64,
    /// Bytes added after them.
    pub tail_bytes: u64,
    /// The parts that could not be recovered, one sentence each.
    pub unsaved: Vec<String>,
}
