//! The end of a bag: durable data stays, files without an end are cut and read back, and the first error is returned.

use super::{
    BagEnd, BagWriter, ClosedBag, TornFile, WriteError,
    metadata::{metadata, replace},
    past::PastFile,
    room::Room,
    torn::Ended,
};
use crate::writer::note_sealed;
use holdall_storage::writer::MetadataEntries;
use std::collections::BTreeMap;

impl BagWriter {
    /// Writes the end of the bag and waits until all of it is durable. `records` go into the last file.
    /// Continues after an error (also after an earlier one, `failure`), to keep what can be kept: files that
    /// have no end are cut after what is written and read back. `account` is called with how the files ended,
    /// and returns more `custom_data`.
    pub fn close(
        mut self,
        records: Vec<(String, MetadataEntries)>,
        failure: Option<WriteError>,
        account: impl FnOnce(&BagEnd) -> BTreeMap<String, String>,
    ) -> ClosedBag {
        let mut first_error = failure;
        if first_error.is_none() {
            first_error = self.finish_all(records).err();
        }
        // A bug here has broken nothing on the disk.
        let is_bug = matches!(first_error, Some(WriteError::Internal));
        for class in self.files.all() {
            self.files.choose(class);
            self.cut_current();
        }
        let (torn, error) = self.end_files(is_bug);
        first_error = first_error.or(error);
        let mut ends = vec![self.past.pack(&self.place, true).map(drop)];
        let of_classes = self.files.each_mut();
        ends.extend(of_classes.map(|files| files.remove_next(&mut self.place)));
        ends.push(self.settle());
        for error in ends.into_iter().filter_map(Result::err) {
            first_error.get_or_insert(error);
        }
        let end = BagEnd {
            torn,
            expired: self.take_expired(),
            messages: self.past.messages(&self.topics),
            repeated: self.repeated_by_topic(),
            failed: first_error.is_some(),
        };
        if let Err(error) = self.write_last_metadata(&account(&end)) {
            tracing::error!(
                "{}: cannot write the last metadata; the account of losses is not in the bag: {error}",
                self.directory().display()
            );
            first_error.get_or_insert(error);
        }
        let files = self
            .past
            .iter()
            .map(|past| self.place.path_of(past.present_name()));
        ClosedBag {
            files: files.collect(),
            complete: self.take_complete(),
            undefined: self.undefined_topics(),
            directory: self.place.options.directory,
            messages: end.messages,
            account_faults: Vec::new(),
            failure: first_error,
        }
    }

    /// Finishes the open files; `records` go into the last one, when the others are whole.
    fn finish_all(&mut self, records: Vec<(String, MetadataEntries)>) -> Result<(), WriteError> {
        let mut others = self.files.open_in_order();
        let Some(last) = others.pop() else {
            return Ok(());
        };
        for class in &others {
            self.files.choose(*class);
            self.finish_current(Vec::new(), true)?;
        }
        if !others.is_empty() {
            self.past.wait_closed(&mut self.place.queue)?;
        }
        self.files.choose(last);
        self.finish_current(records, true)
    }

    /// Waits until the disk has closed all files, and reads back those that it has failed; with the first error.
    fn end_files(&mut self, is_bug: bool) -> (Vec<TornFile>, Option<WriteError>) {
        let (mut torn, mut absent, mut first_error) = (Vec::new(), Vec::new(), None);
        let is_only = self.past.len() <= 1;
        let room = Room {
            topics: &self.topics,
            bytes_max: self.place.bytes_max(),
            is_only_file: self.place.has_only_first(),
        };
        for past in self.past.all_mut() {
            let Some(ended) = past.end(&mut self.place, room, is_only, is_bug) else {
                continue;
            };
            let Ended {
                torn: left,
                is_absent,
                error,
            } = ended;
            torn.extend(left);
            if is_absent {
                absent.push(past.name.clone());
            }
            first_error = first_error.or(error);
        }
        self.past.drop_absent(&absent);
        (torn, first_error)
    }

    /// After a failure: cuts the current file after the written part, so that it can be read up to there.
    fn cut_current(&mut self) {
        let Some(current) = self.files.current.take() else {
            return;
        };
        let bytes = self.past.bytes();
        let (mut past, writer, channels) = PastFile::of(current.take_apart(), self.files.is_in_ring());
        drop(writer);
        self.files.reuse(channels);
        let (place, file) = (&mut self.place, past.closing);
        place.queue.drain();
        let path = place.path_of(&past.name);
        let length = if place.options.storage.writes_blocks() {
            let progress = file.and_then(|file| place.queue.progress(file));
            progress.map_or(0, |progress| progress.written_bytes)
        } else {
            // The queue has not written it and does not know its length.
            let path = place.options.storage.queue_path(&path);
            place.folder.file_len(&path).unwrap_or(0)
        };
        if let Some(file) = file {
            // The first error is known already, and the file is closed anyway.
            drop(place.queue.close_file(file, length));
        }
        past.is_torn = true;
        self.past.push(past, bytes);
    }

    fn write_last_metadata(&self, custom_data: &BTreeMap<String, String>) -> Result<(), WriteError> {
        let mut metadata = metadata(&self.place, &self.topics, &self.past, &[], custom_data);
        if self.place.queue.seals() {
            note_sealed(self.directory(), &mut metadata);
        }
        replace(&self.place, &metadata, true)
    }
}
