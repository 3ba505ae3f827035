//! A sync of everything that was written before it.

use super::{WriteError, past::PastFiles};
use holdall_io::{
    disk::FileId,
    queue::{DiskQueue, SyncToken},
};

/// A sync that was requested, with the files that were being closed at the time.
#[derive(Debug)]
pub(super) struct PendingSync {
    tokens: Vec<SyncToken>,
    closing: Vec<FileId>,
}

impl PendingSync {
    /// A sync of the files that take messages, and of those that are being closed.
    pub fn new(tokens: Vec<SyncToken>, past: &PastFiles) -> Self {
        Self {
            tokens,
            closing: past.closing(),
        }
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// A failed disk.
    pub fn is_done(&mut self, queue: &DiskQueue, past: &PastFiles) -> Result<bool, WriteError> {
        // A close makes durable; files that were closed well are forgotten by `PastFiles::settle`.
        self.closing.retain(|file| past.is_closing(*file));
        while let Some(token) = self.tokens.last() {
            if !queue.is_durable(*token)? {
                return Ok(false);
            }
            self.tokens.pop();
        }
        Ok(self.closing.is_empty())
    }
}
