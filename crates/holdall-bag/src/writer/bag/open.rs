//! The open files of a class: the one that takes messages, the next one, and when to change to it.

use super::{
    BagTopic, EndRecords, WriteError,
    channels::FileChannels,
    current::CurrentFile,
    handed::Handed,
    place::{NextFile, Place},
};
use crate::writer::{SplitOptions, SplitRule};
use holdall_io::queue::DiskQueue;
use holdall_model::time::Timestamp;
use holdall_storage::writer::MetadataEntries;

/// The file that is being written, and what is ready for the next one.
pub(super) struct OpenFiles {
    /// `None` after a failure.
    pub current: Option<CurrentFile>,
    pub split: SplitRule,
    /// The channels of no file, with room for all topics, for the next file.
    next_channels: FileChannels,
    /// A file that was made before it is needed.
    next: Option<NextFile>,
    /// The name of the class.
    pub class: String,
    /// Whether a first file was begun.
    is_begun: bool,
    /// Which of its messages the system has.
    pub handed: Handed,
    /// Records at the end of files that are closed before the last one.
    end_records: Option<EndRecords>,
}

impl OpenFiles {
    /// No file of this class yet.
    pub fn new(split: SplitOptions, class: &str) -> Self {
        Self {
            current: None,
            split: SplitRule::new(split),
            next_channels: FileChannels::default(),
            next: None,
            class: class.to_owned(),
            is_begun: false,
            handed: Handed::default(),
            end_records: None,
        }
    }

    /// Makes the first file, and waits until it exists.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn begin_first(&mut self, place: &mut Place) -> Result<(), WriteError> {
        let first = place.create_file()?;
        self.begin(place, first)
    }

    /// Whether a first file was begun.
    #[inline]
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Whether the next message belongs in a new file; `end_bytes` gives the bytes that this one needs for its end.
    #[inline]
    pub fn is_due(
        &mut self,
        log_time: Timestamp,
        payload_bytes: usize,
        end_bytes: impl FnOnce() -> u64,
    ) -> bool {
        let current = &self.current;
        let length = || {
            current
                .as_ref()
                .map_or(0, |current| current.bytes_written() + end_bytes())
        };
        self.split.is_due(log_time, payload_bytes, length)
    }

    /// Makes the next file, without waiting for it.
    ///
    /// # Errors
    /// A directory that cannot be made.
    pub fn open_next(&mut self, place: &mut Place) -> Result<(), WriteError> {
        if self.next.is_none() {
            self.next = Some(place.create_file_ahead(&self.class)?);
        }
        Ok(())
    }

    /// Begins the file that [`Self::open_next`] has made.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn begin_next(&mut self, place: &mut Place) -> Result<(), WriteError> {
        match self.next.take() {
            Some(next) => self.begin(place, next),
            None => Ok(()),
        }
    }

    fn begin(&mut self, place: &mut Place, next: NextFile) -> Result<(), WriteError> {
        let channels = std::mem::take(&mut self.next_channels);
        self.current = Some(CurrentFile::begin(place, next, channels)?);
        self.is_begun = true;
        place.note_begun();
        self.split.begin_file();
        Ok(())
    }

    /// Removes a file that was made ahead and never needed.
    ///
    /// # Errors
    /// A failed disk.
    pub fn remove_next(&mut self, place: &mut Place) -> Result<(), WriteError> {
        match self.next.take() {
            Some(next) => place.remove_unused(&next),
            None => Ok(()),
        }
    }

    /// The channels of a file that ended, for the next one.
    pub fn reuse(&mut self, channels: FileChannels) {
        self.next_channels = channels.into_next();
    }

    /// One topic more.
    pub fn add_topic(&mut self) {
        match &mut self.current {
            Some(current) => current.add_topic(),
            None => self.next_channels.add_topic(),
        }
        self.split.reread_length();
    }

    /// A topic's next messages in the current file get a new channel.
    pub fn renew(&mut self, topic: BagTopic) {
        if let Some(current) = &mut self.current {
            current.renew(topic);
        }
    }

    /// Gives the last messages of the file to the system before it is finished.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn hand_over_last(&mut self, queue: &mut DiskQueue) -> Result<(), WriteError> {
        self.handed.finish(queue, self.current.as_mut())
    }

    /// How many of its messages the system has, from the first one on.
    pub fn handed(&mut self, queue: &DiskQueue) -> u64 {
        self.handed.messages(queue, self.current.as_mut())
    }

    /// Sets the records at the end of files that are closed before the last one.
    pub fn set_end_records(&mut self, end_records: EndRecords) {
        self.end_records = Some(end_records);
    }

    /// What the current file carries at its end, in at most `bytes_max` bytes.
    pub fn end_records(&self, bytes_max: u64) -> Vec<(String, MetadataEntries)> {
        self.end_records
            .as_ref()
            .map_or_else(Vec::new, |records| records(bytes_max))
    }
}
