//! A sync of everything that was written before it.

use super::{WriteError, past::PastFiles};
use holdall_io::{
    disk::FileId,
    queue::{DiskQueue, SyncToken},
};

/// A sync that was requested, with the files that were being closed at the time.
#[derive(Debug)]
pub(super) struct PendingSync {
    token: Option<SyncToken>,
    closing: Vec<FileId>,
}

impl PendingSync {
    /// A sync of the current file, if there is one, and of the files that are being closed.
    pub fn new(token: Option<SyncToken>, past: &PastFiles) -> Self {
        Self {
            token,
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
        let is_durable = match self.token {
            Some(token) => queue.is_durable(token)?,
            None => true,
        };
        Ok(is_durable && self.closing.is_empty())
    }
}
