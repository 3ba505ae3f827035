//! A storage file that was deleted or replaced while it was being written: noticed by its name, counted, and followed by a new file.

use super::{BagWriter, CurrentFile, TopicCount, WriteError};
use crate::writer::folder::FileIdentity;
use holdall_io::disk::Operation;

/// Whether the disk has made a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// It may not have come to that yet.
    Perhaps,
    /// All that it was given is done.
    Surely,
}

impl BagWriter {
    /// Compares the file being written with the file of that name. One that was deleted or replaced is
    /// dropped with its messages, which [`Self::take_vanished`] reports, and a new file is begun. True when
    /// that was done.
    ///
    /// # Errors
    /// A new file that cannot be begun.
    pub(crate) fn replace_vanished(&mut self) -> Result<bool, WriteError> {
        self.replace(Made::Perhaps)
    }

    /// As [`Self::replace_vanished`], before the bag is closed: a file with messages that was never found under its name is one that
    /// was deleted before it was looked up. Waits for the disk when there is such a file.
    ///
    /// # Errors
    /// As [`Self::replace_vanished`].
    pub fn replace_vanished_at_end(&mut self) -> Result<bool, WriteError> {
        let is_unidentified = |current: &CurrentFile| {
            current.identity == FileIdentity::Unknown && current.writer.summary().message_count > 0
        };
        if self.queue.makes_files() && self.current.as_ref().is_some_and(is_unidentified) {
            self.queue.drain();
            return self.replace(Made::Surely);
        }
        self.replace(Made::Perhaps)
    }

    /// As [`Self::replace_vanished`], after an error of the storage or the disk: a database notices before the next check that its file
    /// is gone. A file that could not be made did not vanish. Waits for the disk.
    ///
    /// # Errors
    /// As [`Self::replace_vanished`].
    pub fn replace_vanished_after(&mut self, error: &WriteError) -> Result<bool, WriteError> {
        let is_bug = matches!(error, WriteError::Internal);
        if is_bug || !self.queue.makes_files() {
            return Ok(false);
        }
        self.queue.drain();
        let never_made = |current: &CurrentFile| {
            let state = self.queue.check(current.file);
            state.is_err_and(|error| error.operation == Operation::Create)
        };
        if self.current.as_ref().is_some_and(never_made) {
            return Ok(false);
        }
        self.replace(Made::Surely)
    }

    fn replace(&mut self, made: Made) -> Result<bool, WriteError> {
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        let path = self.options.directory.join(&current.name);
        let now = self.folder.file_identity(&path);
        if current.identity == FileIdentity::Unknown && !(made == Made::Surely && now == FileIdentity::None) {
            // The file may have been made since; from now on it is known.
            if now != FileIdentity::None {
                current.identity = now;
            }
            return Ok(false);
        }
        if now == current.identity || now == FileIdentity::Unknown {
            return Ok(false);
        }
        let what = if now == FileIdentity::None {
            "deleted"
        } else {
            "replaced"
        };
        let Some(current) = self.current.take() else {
            return Ok(false);
        };
        let content = current.content();
        let messages = content.summary.message_count;
        tracing::error!(
            "{} was {what} while it was being recorded: its {messages} messages are lost; the recording continues in a new file",
            path.display()
        );
        self.vanished.extend(content.messages);
        drop(current.writer);
        self.next_channels = current.channels.into_next();
        let written = self.queue.progress(current.file);
        // Nothing of it can be saved, so an error adds nothing.
        drop(
            self.queue
                .close_file(current.file, written.map_or(0, |progress| progress.written_bytes)),
        );
        self.vanishing.push(current.file);
        self.open_next()?;
        if let Some(next) = self.next.take() {
            self.begin_file(next)?;
        }
        self.write_metadata(false)?;
        Ok(true)
    }

    /// Messages in files that vanished since the last call.
    pub fn take_vanished(&mut self) -> Vec<TopicCount> {
        std::mem::take(&mut self.vanished)
    }

    /// Forgets vanished files that the disk has closed, and learns the identity of a file that was not made yet when it was begun: one that
    /// is deleted before the first check is noticed, too.
    pub(super) fn settle_vanished(&mut self) {
        if let Some(current) = &mut self.current
            && current.identity == FileIdentity::Unknown
        {
            current.unidentified_steps += 1;
            // Ever more rarely: in a folder that knows no identities each lookup is in vain.
            if !current.unidentified_steps.is_power_of_two() {
                return self.close_vanished();
            }
            let now = self
                .folder
                .file_identity(&self.options.directory.join(&current.name));
            if now != FileIdentity::None {
                current.identity = now;
            }
        }
        self.close_vanished();
    }

    fn close_vanished(&mut self) {
        let queue = &mut self.queue;
        self.vanishing
            .retain(|file| matches!(queue.try_closed(*file), Ok(false)));
    }
}
