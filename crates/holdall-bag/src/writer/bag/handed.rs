//! Which messages of a bag the system has: those that survive when the process is killed.

use super::{WriteError, current::CurrentFile};
use holdall_io::{disk::FileId, queue::DiskQueue};
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
    /// A caller uses [`Handed::messages`].
    is_wanted: bool,
    finishing: VecDeque<Finishing>,
    /// Messages in finished files that the system has whole.
    messages: u64,
}

impl Handed {
    /// Announces that [`Self::messages`] will be called.
    pub fn track(&mut self) {
        self.is_wanted = true;
    }

    /// Length of the prefix of the messages written so far that the system has.
    pub fn messages(&mut self, queue: &DiskQueue, current: Option<&mut CurrentFile>) -> u64 {
        while let Some(oldest) = self.finishing.front() {
            let progress = queue.progress(oldest.file);
            if progress.is_some_and(|progress| progress.written_bytes < oldest.bytes) {
                return self.messages;
            }
            self.messages += oldest.messages;
            self.finishing.pop_front();
        }
        self.messages + current.map_or(0, |current| current.handed(queue))
    }

    /// A file vanished with its messages: no memory needs to keep them.
    pub fn vanished(&mut self, file: FileId, messages: u64) {
        self.finishing.extend(self.is_wanted.then_some(Finishing {
            file,
            bytes: 0,
            messages,
        }));
    }

    /// Gives the last messages of a file to the system before it is finished: they need not wait for the sync before its end.
    pub fn finish(
        &mut self,
        queue: &mut DiskQueue,
        current: Option<&mut CurrentFile>,
    ) -> Result<(), WriteError> {
        let Some(current) = current.filter(|_| self.is_wanted) else {
            return Ok(());
        };
        current.hand_over(queue)?;
        let progress = queue.progress(current.file());
        self.finishing.push_back(Finishing {
            file: current.file(),
            bytes: progress.map_or(0, |progress| progress.accepted_bytes),
            messages: current.new_messages(),
        });
        Ok(())
    }
}
