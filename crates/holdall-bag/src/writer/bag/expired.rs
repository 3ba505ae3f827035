//! Messages in files that a ring has removed from a bag that is being written.

use super::{TopicCount, past::PastFile, topics::Topics};
use holdall_model::{expired::ExpiredFiles, time::Timestamp};
use std::mem;

/// Messages that the ring has removed from a bag that is being written.
#[derive(Default)]
pub(super) struct Expired {
    all: ExpiredFiles,
    /// Not yet reported.
    new: Vec<TopicCount>,
    /// The last log time in all files that are gone.
    until: Option<Timestamp>,
}

impl Expired {
    /// For the metadata of a bag that is being written.
    pub fn entry(&self) -> Option<(String, String)> {
        self.all.entry()
    }

    /// Counts a file as removed, and returns what [`Self::restore`] needs. A kill after the removal finds metadata that counts it.
    pub fn announce(&mut self, oldest: &PastFile, topics: &Topics) -> ExpiredFiles {
        let before = self.all.clone();
        let counts = oldest.content.messages.iter().filter_map(|count| {
            let info = topics.get(count.topic).ok()?;
            Some((info.topic.name.clone(), count.messages))
        });
        self.all.add(&oldest.name, counts);
        before
    }

    /// The file that was announced is gone.
    pub fn confirm(&mut self, oldest: &PastFile) {
        self.new.extend(&oldest.content.messages);
        self.until = self.until.max(oldest.content.summary.ending_time);
    }

    /// The file that was announced could not be removed.
    pub fn restore(&mut self, before: ExpiredFiles) {
        self.all = before;
    }

    /// The last log time of messages that were removed.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// Messages in files that were removed since the last call.
    pub fn take(&mut self) -> Vec<TopicCount> {
        mem::take(&mut self.new)
    }
}
