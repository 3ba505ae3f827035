//! Handling of finished files: closed by the disk, packed, and removed when the ring is full.

use super::{BagWriter, Packing, PastFile};
use crate::writer::{WriteError, pack_files::PackedFile};
use std::path::PathBuf;

impl BagWriter {
    /// Records which old files are closed, and removes those beyond the ring.
    pub(super) fn settle(&mut self) -> Result<(), WriteError> {
        self.settle_vanished();
        if let Some(failure) = self.folder.take_failure() {
            return Err(failure.into());
        }
        for past in &mut self.past {
            if let Some(file) = past.closing
                && self.queue.try_closed(file)?
            {
                past.closing = None;
            }
        }
        if self.pack(false)? {
            self.write_metadata(false)?;
        }
        let Some(files_max) = self.options.split.files_max else {
            return Ok(());
        };
        let begun = self.past.len() + usize::from(self.current.is_some());
        let surplus = begun.saturating_sub(files_max.max(1) as usize);
        for _ in 0..surplus {
            if !self.remove_oldest(&format!("because {files_max} are kept"))? {
                break;
            }
        }
        Ok(())
    }

    /// Gives closed files to the packer, and removes the plain files of those that are packed. True when a name has
    /// changed. With `wait`, waits until all are done. A file that cannot be packed stays unchanged: nothing is lost.
    pub(super) fn pack(&mut self, wait: bool) -> Result<bool, WriteError> {
        let Some(packer) = &self.packer else {
            return Ok(false);
        };
        for past in &mut self.past {
            if past.packing == Packing::Wanted && past.closing.is_none() {
                packer.submit(self.options.directory.join(&past.name));
                past.packing = Packing::AtWork;
            }
        }
        let mut changed = false;
        loop {
            let wait = wait && self.past.iter().any(|past| past.packing == Packing::AtWork);
            let Some(PackedFile { plain, result }) = packer.take_done(wait) else {
                return Ok(changed);
            };
            let is_it = |past: &&mut PastFile| self.options.directory.join(&past.name) == plain;
            let Some(past) = self.past.iter_mut().find(is_it) else {
                continue;
            };
            match result {
                Ok(()) => {
                    past.packing = Packing::Done;
                    changed = true;
                    let packed = self.options.directory.join(past.present_name());
                    let unpacked = std::mem::replace(
                        &mut past.identity,
                        self.folder.file_identity(&packed).or_unknown(),
                    );
                    self.folder.remove_that(&plain, unpacked)?;
                }
                Err(error) => {
                    past.packing = Packing::No;
                    tracing::warn!("{} was not compressed: {error}", plain.display());
                }
            }
        }
    }

    /// Waits until all finished files are closed and the ring has its length. Only at the end: it waits for the disk.
    ///
    /// # Errors
    /// A failed disk.
    pub fn wait_settled(&mut self) -> Result<(), WriteError> {
        for past in &mut self.past {
            if let Some(file) = past.closing {
                self.queue.wait_closed(file)?;
                past.closing = None;
            }
        }
        self.settle()?;
        self.pack(true)?;
        self.settle()
    }

    /// Files that are whole, durable and under their last name since the last call, in order.
    pub fn take_complete(&mut self) -> Vec<PathBuf> {
        let is_new = |past: &&mut PastFile| {
            let is_packed = matches!(past.packing, Packing::No | Packing::Done);
            is_packed && past.closing.is_none() && !past.is_torn && !past.is_announced
        };
        let new = self.past.iter_mut().filter(is_new);
        new.map(|past| {
            past.is_announced = true;
            self.options.directory.join(past.present_name())
        })
        .collect()
    }
}
