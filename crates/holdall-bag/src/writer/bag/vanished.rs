//! Storage files that were deleted or replaced while they were being written: their messages, and what the disk has still open of them.

use super::{TopicCount, current::TakenFile};
use holdall_io::{disk::FileId, queue::DiskQueue};

/// Files that vanished.
#[derive(Default)]
pub(super) struct Vanished {
    /// Messages in them, not yet reported.
    messages: Vec<TopicCount>,
    /// Those that the disk has not closed.
    closing: Vec<FileId>,
}

impl Vanished {
    /// Drops a file that vanished. Nothing of it can be saved, so an error of its close adds nothing.
    pub fn add(&mut self, queue: &mut DiskQueue, taken: TakenFile) {
        self.messages.extend(taken.content.messages);
        drop(taken.writer);
        let written = queue.progress(taken.file);
        drop(queue.close_file(taken.file, written.map_or(0, |progress| progress.written_bytes)));
        self.closing.push(taken.file);
    }

    /// Messages in files that vanished since the last call.
    pub fn take(&mut self) -> Vec<TopicCount> {
        std::mem::take(&mut self.messages)
    }

    /// Forgets files that the disk has closed.
    pub fn settle(&mut self, queue: &mut DiskQueue) {
        self.closing
            .retain(|file| matches!(queue.try_closed(*file), Ok(false)));
    }
}
