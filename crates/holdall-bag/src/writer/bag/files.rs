//! How a bag passes from file to file: begun, continued in the next one, finished, and removed.

use super::{
    BagWriter, MEMORY_KEY, ROSBAG2_RECORD, STATE_KEY,
    current::Made,
    metadata::{metadata, own_metadata, replace},
    past::PastFile,
    room::Room,
    rosbag2_record,
};
use crate::writer::WriteError;
use holdall_storage::writer::MetadataEntries;
use std::{collections::BTreeMap, path::PathBuf};

impl BagWriter {
    /// The room in the current file.
    pub(super) fn room(&self) -> Room<'_> {
        Room {
            topics: &self.topics,
            bytes_max: self.place.bytes_max(),
            is_only_file: self.place.has_only_first(),
        }
    }

    /// Continues in new files, those of further classes only where they have messages; nothing waits for the old ones to be closed.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn split(&mut self) -> Result<(), WriteError> {
        for class in self.files.all() {
            self.files.choose(class);
            if class == 0 || self.files.split.has_messages() {
                self.split_class()?;
            }
        }
        Ok(())
    }

    /// As [`Self::split`], of the chosen class.
    pub(super) fn split_class(&mut self) -> Result<(), WriteError> {
        let closed = self.chosen_path();
        if !self.replace_vanished(Made::Perhaps)? {
            self.files.open_next(&mut self.place)?;
            let written = self.files.current.as_ref();
            let written = written.map_or(0, |current| current.bytes_written());
            let records = self.files.end_records(Room::repeated_bytes_max(written));
            self.finish_current(records, false)?;
            self.files.begin_next(&mut self.place)?;
            self.write_metadata(false)?;
            self.settle()?;
        }
        self.splits.extend(closed.zip(self.chosen_path()));
        Ok(())
    }

    fn chosen_path(&self) -> Option<PathBuf> {
        let current = self.files.current.as_ref();
        current.map(|current| self.place.path_of(current.name()))
    }

    /// Begins the first file of the chosen class.
    #[cold]
    pub(super) fn begin_class(&mut self) -> Result<(), WriteError> {
        self.files.open_next(&mut self.place)?;
        self.files.begin_next(&mut self.place)?;
        self.write_metadata(false)
    }

    /// Writes the end of the current file and hands it to the disk to be closed.
    pub(super) fn finish_current(
        &mut self,
        records: Vec<(String, MetadataEntries)>,
        is_last: bool,
    ) -> Result<(), WriteError> {
        let current = self.files.current.as_ref();
        let has_room =
            current.is_some_and(|current| self.room().has_room_for_empty_channels(current, is_last));
        let (files, topics) = self.files.chosen_mut();
        let complete = match &mut files.current {
            Some(current) if has_room => current.add_empty_channels(&mut self.place, &self.topics, topics),
            _ => Ok(()),
        };
        // A file that the disk fails here is still the current one, and is cut and read back as such.
        files.hand_over_last(&mut self.place.queue)?;
        let current = self.files.current.as_ref();
        let length = current.map_or(0, |current| current.bytes_written() + self.room().end_bytes());
        let bytes = self.past.bytes() + length;
        let Some(current) = self.files.current.take() else {
            return Ok(());
        };
        let (mut past, writer, channels) = PastFile::of(current.take_apart(), self.files.is_in_ring());
        let last = past.content.summary.ending_time;
        past.until = last.map(|last| self.files.split.time_of(last));
        let metadata = rosbag2_record(&own_metadata(&self.place, self.room(), &past));
        self.past.push(past, bytes);
        let mut closing: Vec<(&str, MetadataEntries)> = vec![(ROSBAG2_RECORD, metadata)];
        let (names, entries): (Vec<String>, Vec<MetadataEntries>) = records.into_iter().unzip();
        closing.extend(names.iter().map(String::as_str).zip(entries));
        let finished = writer.finish(&mut self.place.queue, &closing);
        self.past.ended(finished.as_ref().ok(), &channels);
        self.files.reuse(channels);
        finished?;
        complete
    }

    /// As [`Self::replace_vanished`], in all classes; true when that was done in one.
    pub(super) fn replace_vanished_in_all(&mut self, made: Made) -> Result<bool, WriteError> {
        let mut has_replaced = false;
        for class in self.files.all() {
            self.files.choose(class);
            has_replaced |= self.replace_vanished(made)?;
        }
        Ok(has_replaced)
    }

    /// Compares the file being written with the file of that name. One that was deleted or replaced is
    /// dropped with its messages, which [`Self::take_vanished`] reports, and a new file is begun. True when
    /// that was done.
    ///
    /// # Errors
    /// A new file that cannot be begun.
    pub(super) fn replace_vanished(&mut self, made: Made) -> Result<bool, WriteError> {
        let Some(current) = &mut self.files.current else {
            return Ok(false);
        };
        let Some(how) = current.how_it_vanished(&self.place, made) else {
            return Ok(false);
        };
        let Some(current) = self.files.current.take() else {
            return Ok(false);
        };
        let mut taken = current.take_apart();
        tracing::error!(
            "{} was {how} while it was being recorded: its {} messages are lost; the recording continues in a new file",
            self.place.path_of(&taken.name).display(),
            taken.content.summary.message_count
        );
        self.files.reuse(std::mem::take(&mut taken.channels));
        let messages = taken.content.messages.iter().map(|count| count.messages).sum();
        self.files.handed.vanished(taken.file, messages);
        self.vanished.add(&mut self.place.queue, taken);
        self.files.open_next(&mut self.place)?;
        self.files.begin_next(&mut self.place)?;
        self.write_metadata(false)?;
        Ok(true)
    }

    /// Records which old files are closed, and removes those beyond the ring.
    pub(super) fn settle(&mut self) -> Result<(), WriteError> {
        for current in self.files.each_mut().filter_map(|files| files.current.as_mut()) {
            current.learn_identity(&self.place);
        }
        self.vanished.settle(&mut self.place.queue);
        if let Some(failure) = self.place.folder.take_failure() {
            return Err(failure.into());
        }
        self.past.settle(&mut self.place.queue)?;
        if self.past.pack(&self.place, false)? {
            self.write_metadata(false)?;
        }
        // At the end the account is written already.
        if self.files.currents().next().is_some() {
            self.keep_ring()?;
        }
        let Some(files_max) = self.place.options.split.files_max else {
            return Ok(());
        };
        // What is always kept leaves the others their number.
        let begun = self.past.in_ring().count() + self.files.in_ring();
        let surplus = begun.saturating_sub((files_max as usize).max(self.files.count()));
        for _ in 0..surplus {
            let why = format!("because {files_max} are kept");
            if self.past.is_oldest_held(&self.place) || !self.remove_oldest(&why)? {
                break;
            }
        }
        Ok(())
    }

    /// Removes files that are beyond the size or the span of the ring.
    fn keep_ring(&mut self) -> Result<(), WriteError> {
        let Some(ring) = self.place.options.split.ring else {
            return Ok(());
        };
        let open_bytes = self.place.bytes_max().unwrap_or(0) * self.files.in_ring() as u64;
        while self.past.is_ring_passed(ring, open_bytes) {
            let is_wanted = !self.is_oldest_uploaded() || self.past.is_oldest_held(&self.place);
            if is_wanted || !self.remove_oldest("because the ring is full")? {
                break;
            }
        }
        Ok(())
    }

    /// Waits until all finished files are closed and the ring has its length. Only at the end: it waits for the disk.
    ///
    /// # Errors
    /// A failed disk.
    pub fn wait_settled(&mut self) -> Result<(), WriteError> {
        self.past.wait_closed(&mut self.place.queue)?;
        self.settle()?;
        self.past.pack(&self.place, true)?;
        self.settle()
    }

    /// Removes the oldest file if the disk has closed it. The metadata counts it as removed before it goes, unless a full disk has no room
    /// for that.
    pub(super) fn remove_oldest(&mut self, why: &str) -> Result<bool, WriteError> {
        let Some(oldest) = self.past.take_oldest() else {
            return Ok(false);
        };
        let before = self.past.expired().announce(&oldest, &self.topics);
        let announced = match self.write_metadata(false) {
            Err(error) if error.is_no_space() => Ok(()),
            written => written,
        };
        let path = self.place.path_of(oldest.present_name());
        let removed = announced.and_then(|()| Ok(self.place.folder.remove_that(&path, oldest.identity)?));
        if let Err(error) = removed {
            self.past.expired().restore(before);
            self.past.put_back(oldest);
            return Err(error);
        }
        self.past.expired().confirm(&oldest);
        tracing::info!("removed {}, the oldest file, {why}", oldest.name);
        Ok(true)
    }

    /// Writes `metadata.yaml` as known so far, so that a killed recording has one that names all files.
    pub(super) fn write_metadata(&self, durable: bool) -> Result<(), WriteError> {
        if self.is_unseen {
            return Ok(());
        }
        let mut state = BTreeMap::from([(STATE_KEY.to_owned(), "recording".to_owned())]);
        let memory = self.place.options.memory.clone();
        state.extend(memory.map(|id| (MEMORY_KEY.to_owned(), id)));
        state.extend(self.past.expired_entry());
        let currents: Vec<_> = self.files.currents().collect();
        let metadata = metadata(&self.place, &self.topics, &self.past, &currents, &state);
        replace(&self.place, &metadata, durable)
    }
}
