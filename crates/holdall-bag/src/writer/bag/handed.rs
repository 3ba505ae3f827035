//! Which messages of a bag the system has: those that survive when the process is killed.

use super::{BagWriter, WriteError};
use holdall_io::disk::FileId;
use std::collections::VecDeque;

/// A finished file some of whose data may be in flight.
#[derive(Debug)]
struct Finishing {
    file: FileId,
    /// End of its data.
    bytes: u64,
    messages: u64,
}

/// How far the finished files are.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// A caller uses [`BagWriter::handed`].
    is_wanted: bool,
    finishing: VecDeque<Finishing>,
    /// Messages in finished files that the system has whole.
    messages: u64,
}

impl BagWriter {
    /// Announces that [`BagWriter::handed`] will be called; call it before the first message.
    pub fn track_handed(&mut self) {
        self.handed.is_wanted = true;
    }

    /// Length of the prefix of the messages written so far that the system has, see [`StorageWriter::handed`].
    pub fn handed(&mut self) -> u64 {
        while let Some(oldest) = self.handed.finishing.front() {
            let progress = self.queue.progress(oldest.file);
            if progress.is_some_and(|progress| progress.written_bytes < oldest.bytes) {
                return self.handed.messages;
            }
            self.handed.messages += oldest.messages;
            self.handed.finishing.pop_front();
        }
        let current = self.current.as_mut();
        let of_current = current.map_or(0, |current| {
            // Repeated messages come first.
            let handed = current.writer.handed(&self.queue);
            handed.saturating_sub(current.head.messages())
        });
        self.handed.messages + of_current
    }

    /// Gives everything written so far to the system, without a sync.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn hand_over(&mut self) -> Result<(), WriteError> {
        match &mut self.current {
            Some(current) => Ok(current.writer.hand_over(&mut self.queue)?),
            None => Ok(()),
        }
    }

    /// Gives large messages to the system as soon as that costs little; false if the caller should try
    /// again.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn hand_over_large(&mut self) -> Result<bool, WriteError> {
        match &mut self.current {
            Some(current) => Ok(current.writer.hand_over_large(&mut self.queue)?),
            None => Ok(true),
        }
    }

    /// The same for the current file before it is finished: its messages need not wait for the sync before its end.
    pub(super) fn hand_over_last(&mut self) -> Result<(), WriteError> {
        let Some(current) = self.current.as_mut().filter(|_| self.handed.is_wanted) else {
            return Ok(());
        };
        current.writer.hand_over(&mut self.queue)?;
        let progress = self.queue.progress(current.file);
        self.handed.finishing.push_back(Finishing {
            file: current.file,
            bytes: progress.map_or(0, |progress| progress.accepted_bytes),
            messages: current
                .writer
                .summary()
                .message_count
                .saturating_sub(current.head.messages()),
        });
        Ok(())
    }
}
