//! What the drain shares with the recorder: its queue of commands, its state, and the files that it has finished.

use super::DrainCommand;
use crate::record::{events::FinishedFile, lock::lock, write::survival::SurvivalLog};
use holdall_model::loss::DurabilityStatus;
use std::{collections::VecDeque, path::PathBuf, sync::Mutex};

/// What others may know about the drain.
#[derive(Clone, Debug, Default)]
pub struct DrainStatus {
    /// The file being written.
    pub current_file: PathBuf,
    /// Free bytes where the bag is.
    pub available_bytes: Option<u64>,
    /// Why nothing more is stored, if that is so: one sentence.
    pub failure: Option<String>,
    /// Files begun on request or because a limit was reached, the first one not counted.
    pub splits: u64,
    /// What is durable, and how well the loss window was kept.
    pub durability: DurabilityStatus,
    /// Durable messages by topic, indexed by [`TopicId`].
    pub durable: Vec<u64>,
    /// Why the recording should be ended, if it should: one sentence.
    pub must_end: Option<String>,
}

/// What the drain shares with the recorder.
#[derive(Debug, Default)]
pub struct DrainShared {
    pub(super) commands: Mutex<VecDeque<DrainCommand>>,
    pub(super) status: Mutex<DrainStatus>,
    pub(super) finished: Mutex<Vec<FinishedFile>>,
    pub(super) survival: SurvivalLog,
}

impl DrainShared {
    /// Logs topics and definitions for a rescue before their messages come.
    pub fn surviving(survival: SurvivalLog) -> Self {
        Self {
            survival,
            ..Self::default()
        }
    }

    /// Queues a command for the drain; call [`SharedCache::wake`] when it should not wait for the next message.
    pub fn command(&self, command: DrainCommand) {
        command.log_to(&self.survival);
        lock(&self.commands).push_back(command);
    }

    /// Files that were finished since the last call; the last one of a recording is not among them.
    pub fn take_finished(&self) -> Vec<FinishedFile> {
        std::mem::take(&mut *lock(&self.finished))
    }

    /// Nothing more is stored.
    pub fn has_failed(&self) -> bool {
        lock(&self.status).failure.is_some()
    }

    /// The recording should be ended.
    pub fn must_end(&self) -> bool {
        lock(&self.status).must_end.is_some()
    }

    pub(super) fn current_file(&self) -> PathBuf {
        lock(&self.status).current_file.clone()
    }

    /// A snapshot of the drain's state.
    pub fn status(&self) -> DrainStatus {
        lock(&self.status).clone()
    }
}
