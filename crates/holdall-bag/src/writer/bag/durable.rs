//! Which part of a bag is durable, and how it makes room on a full disk.

use super::{BagWriter, Packing, PastFile, ROSBAG2_RECORD, UploadedFiles, WriteError, rosbag2_record};
use holdall_io::{disk::FileId, queue::SyncToken};

/// A sync that was requested, with the files that were being closed at the time.
#[derive(Debug)]
pub(super) struct PendingSync {
    token: Option<SyncToken>,
    closing: Vec<FileId>,
}

impl BagWriter {
    /// Hands everything written so far to the disk and requests a sync, without waiting for it.
    /// [`Self::is_durable`] returns whether it has ended; a call before that replaces the request.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn make_durable(&mut self) -> Result<(), WriteError> {
        self.replace_vanished()?;
        let token = match &mut self.current {
            Some(current) => current.writer.make_durable(&mut self.queue)?,
            None => None,
        };
        let closing = self.past.iter().filter_map(|past| past.closing).collect();
        self.sync = Some(PendingSync { token, closing });
        Ok(())
    }

    /// Whether everything that was written before the last [`Self::make_durable`] is found after a power cut.
    ///
    /// # Errors
    /// A failed disk: data written since the last successful sync may be gone.
    pub fn is_durable(&mut self) -> Result<bool, WriteError> {
        self.queue.poll();
        let Some(sync) = &mut self.sync else {
            return Ok(true);
        };
        // A close makes durable; files that were closed well are forgotten by `settle`.
        let past = &self.past;
        sync.closing
            .retain(|file| past.iter().any(|past| past.closing == Some(*file)));
        let is_durable = match sync.token {
            Some(token) => self.queue.is_durable(token)?,
            None => true,
        };
        if is_durable && sync.closing.is_empty() {
            self.sync = None;
            return Ok(true);
        }
        Ok(false)
    }

    /// Removes the oldest finished file to make room, and returns its length in bytes; `None` if there is
    /// none.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove_oldest_file(&mut self) -> Result<Option<u64>, WriteError> {
        if !self.is_oldest_uploaded() {
            return Ok(None);
        }
        let bytes = self.past.front().map(|oldest| oldest.content.summary.bytes);
        if !self.remove_oldest("to make room on the disk")? {
            return Ok(None);
        }
        // The text before the removal may have found no room, which a later one makes good.
        self.write_metadata(false).map(|()| bytes)
    }

    /// From now on a full disk costs only files that are uploaded.
    pub fn keep_until_uploaded(&mut self, uploaded: UploadedFiles) {
        self.uploaded = Some(uploaded);
    }

    /// Whether the oldest file may be removed as far as an upload is concerned.
    pub fn is_oldest_uploaded(&self) -> bool {
        let (Some(uploaded), Some(oldest)) = (&self.uploaded, self.past.front()) else {
            return true;
        };
        uploaded.has(&self.options.directory.join(oldest.present_name()))
    }

    /// Whether a finished file will be there to be removed as soon as the disk has closed it.
    pub fn has_removable_file(&self) -> bool {
        !self.past.is_empty()
    }

    /// Removes the oldest file if the disk has closed it.
    pub(super) fn remove_oldest(&mut self, why: &str) -> Result<bool, WriteError> {
        let is_busy = |oldest: &PastFile| oldest.closing.is_some() || oldest.packing == Packing::AtWork;
        if self.past.front().is_none_or(is_busy) {
            return Ok(false);
        }
        let Some(oldest) = self.past.pop_front() else {
            return Ok(false);
        };
        if let Err(error) = self.remove_past(&oldest) {
            // A file that cannot be removed stays in the bag and in the account.
            self.past.push_front(oldest);
            return Err(error);
        }
        tracing::info!("removed {}, the oldest file, {why}", oldest.name);
        Ok(true)
    }

    /// Writes the summary and footer of a file torn by a full disk: it was cut after its last whole record,
    /// so that there is room again. Not after other errors: data read back from a failing disk may differ
    /// tomorrow. A file that cannot get its end is read without.
    pub(super) fn complete_file(&self, index: usize) {
        let path = self.options.directory.join(&self.past[index].name);
        let metadata = rosbag2_record(&self.own_metadata(&self.past[index]));
        let records = [(ROSBAG2_RECORD, metadata)];
        if let Err(error) = self.folder.complete_file(self.options.storage, &path, &records) {
            tracing::warn!(
                "{} has no end, `holdall repair` adds one: {error}",
                path.display()
            );
        }
    }
}
