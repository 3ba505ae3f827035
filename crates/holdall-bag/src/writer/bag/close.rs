//! The end of a bag: durable data stays, files without an end are cut and read back, and the first error is returned.

use super::{
    BagEnd, BagTopic, BagWriter, ClosedBag, FileHead, Packing, PastFile, TopicCount, TornFile, WriteError,
    counts,
};
use crate::writer::folder::FileIdentity;
use holdall_io::disk::{FileId, Operation};
use holdall_storage::{
    reader::StorageReader,
    repeated::{originals, repeats_of},
    writer::{ChannelInfo, MetadataEntries},
};
use std::{collections::BTreeMap, sync::Arc};

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
            first_error = self.finish_current(records, true).err();
        }
        // A bug here has broken nothing on the disk.
        let is_bug = matches!(first_error, Some(WriteError::Internal));
        self.cut_current();
        let (mut torn, mut absent) = (Vec::new(), Vec::new());
        for index in 0..self.past.len() {
            let Some(file) = self.past[index].closing.take() else {
                continue;
            };
            let closed = self.queue.wait_closed(file);
            if closed.is_err() || self.past[index].is_torn {
                let is_full = closed.as_ref().is_err_and(|error| error.is_no_space());
                self.past[index].packing = Packing::No;
                self.cut_before_hole(index, file);
                torn.push(self.read_back(index));
                let is_absent = closed
                    .as_ref()
                    .is_err_and(|error| error.operation == Operation::Create);
                if is_absent || self.is_gone(index) || self.is_left_empty(index) {
                    absent.push(self.past[index].name.clone());
                } else if is_full || is_bug {
                    self.complete_file(index);
                }
                first_error = first_error.or(closed.err().map(WriteError::from));
            }
        }
        // A file that could not be made, or that a full disk left without a byte, is not part of the bag.
        self.past.retain(|past| !absent.contains(&past.name));
        for result in [self.pack(true).map(drop), self.remove_next(), self.settle()] {
            if let Err(error) = result {
                first_error.get_or_insert(error);
            }
        }
        let end = self.end(torn, first_error.is_some());
        if let Err(error) = self.write_last_metadata(&account(&end)) {
            tracing::error!(
                "{}: cannot write the last metadata; the account of losses is not in the bag: {error}",
                self.options.directory.display()
            );
            first_error.get_or_insert(error);
        }
        let files = self
            .past
            .iter()
            .map(|past| self.options.directory.join(past.present_name()))
            .collect();
        ClosedBag {
            complete: self.take_complete(),
            undefined: self.undefined_topics(),
            directory: self.options.directory,
            files,
            messages: end.messages,
            account_faults: Vec::new(),
            failure: first_error,
        }
    }

    fn end(&mut self, torn: Vec<TornFile>, failed: bool) -> BagEnd {
        BagEnd {
            torn,
            removed: self.take_removed(),
            messages: self.messages_by_topic(),
            repeated: self.repeated_by_topic(),
            failed,
        }
    }

    /// Cuts a file that failed before its first hole, where the close that should have done so has failed as well. A reader of a file
    /// without checksums would take zeros, or the bytes of writes after the hole, for messages.
    fn cut_before_hole(&self, index: usize, file: FileId) {
        let past = &self.past[index];
        let Some(progress) = self.queue.progress(file) else {
            return;
        };
        let has_own_file = self
            .queue
            .check(file)
            .is_err_and(|error| error.operation != Operation::Create);
        // A database has written its file itself.
        if !has_own_file || !self.options.storage.writes_blocks() {
            return;
        }
        let path = self.options.directory.join(&past.name);
        if past.identity != FileIdentity::Unknown && past.identity != self.folder.file_identity(&path) {
            return;
        }
        let whole = progress.written_bytes;
        if !self.folder.file_len(&path).is_ok_and(|length| length > whole) {
            return;
        }
        if let Err(error) = self.folder.cut(&path, whole) {
            tracing::error!(
                "{}: cannot cut off what follows byte {whole}, which may never have been written: {error}",
                path.display()
            );
        }
    }

    /// Whether somebody deleted it: a description that names it would make the bag unreadable.
    fn is_gone(&self, index: usize) -> bool {
        let path = self.options.directory.join(&self.past[index].name);
        self.queue.makes_files() && self.folder.file_identity(&path) == FileIdentity::None
    }

    /// Removes a file that is still empty on the disk; readers could not open it. False for a file with
    /// content, or for the only one: a bag has at least one file.
    fn is_left_empty(&self, index: usize) -> bool {
        let path = self.options.directory.join(&self.past[index].name);
        self.past.len() > 1
            && self.folder.file_len(&path).is_ok_and(|length| length == 0)
            && self.folder.remove_file_now(&path).is_ok()
    }

    /// Counts the readable messages of a file that the disk has failed.
    fn read_back(&mut self, index: usize) -> TornFile {
        let past = &mut self.past[index];
        let path = self.options.directory.join(&past.name);
        let mut readable = vec![0; self.topics.len()];
        let mut torn = TornFile {
            number: past.number,
            reader: None,
            topics: Vec::new(),
        };
        match self.folder.open_reader(self.options.storage, &path) {
            Ok(reader) => {
                let stored: Arc<dyn StorageReader> = Arc::from(reader);
                let reader = originals(Arc::clone(&stored));
                past.content.head = readable_head(&stored, &reader, &self.topics);
                let summary = reader.summary();
                for channel in &summary.channels {
                    let of = &channel.info.topic;
                    let is_it = |topic: &ChannelInfo| {
                        topic.topic.name == of.name && topic.topic.type_name == of.type_name
                    };
                    let topic = self.topics.iter().position(is_it);
                    if let Some(topic) = topic {
                        readable[topic] += channel.message_count;
                    }
                    // A bag numbers its topics with 32 bits.
                    torn.topics.push(topic.map(|topic| BagTopic(topic as u32)));
                }
                past.content.summary.starting_time = summary.starting_time;
                past.content.summary.ending_time = summary.ending_time;
                torn.reader = Some(reader);
            }
            Err(error) => {
                tracing::error!("nothing can be read of it: {error}");
                past.content.head = FileHead::default();
                (
                    past.content.summary.starting_time,
                    past.content.summary.ending_time,
                ) = (None, None);
            }
        }
        past.content.summary.message_count = readable.iter().sum::<u64>() + past.content.head.messages();
        past.content.messages = counts(&readable).collect();
        torn
    }

    /// After a failure: cuts the current file after the written part, so that it can be read up to there.
    fn cut_current(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        let content = current.content();
        drop(current.writer);
        self.next_channels = current.channels.into_next();
        self.queue.drain();
        let path = self.options.directory.join(&current.name);
        let length = if self.options.storage.writes_blocks() {
            let progress = self.queue.progress(current.file);
            progress.map_or(0, |progress| progress.written_bytes)
        } else {
            // The queue has not written it and does not know its length.
            let path = self.options.storage.queue_path(&path);
            self.folder.file_len(&path).unwrap_or(0)
        };
        // The first error is known already, and the file is closed anyway.
        drop(self.queue.close_file(current.file, length));
        self.past.push_back(PastFile {
            name: current.name,
            number: current.number,
            identity: current.identity,
            content,
            closing: Some(current.file),
            packing: Packing::No,
            is_torn: true,
            is_announced: false,
        });
    }
}

/// The readable messages among those that a torn file repeats.
fn readable_head(
    stored: &Arc<dyn StorageReader>,
    originals: &Arc<dyn StorageReader>,
    topics: &[ChannelInfo],
) -> FileHead {
    let Some(mut mark) = repeats_of(&**stored) else {
        return FileHead::default();
    };
    let mut repeated = vec![0; topics.len()];
    let all = stored.summary().channels.iter();
    for (all, rest) in all.zip(&originals.summary().channels) {
        let of = &all.info.topic;
        let is_it =
            |topic: &ChannelInfo| topic.topic.name == of.name && topic.topic.type_name == of.type_name;
        if let Some(topic) = topics.iter().position(is_it) {
            repeated[topic] += all.message_count - rest.message_count;
        }
        let publisher = of.publisher.as_ref().map(|publisher| &publisher.gid);
        let of_channel = mark.channels.iter_mut().find(|mark| {
            mark.topic == of.name && mark.type_name == of.type_name && mark.publisher.as_ref() == publisher
        });
        if let Some(mark) = of_channel {
            mark.messages
                .truncate((all.message_count - rest.message_count) as usize);
        }
    }
    let topics: Vec<TopicCount> = counts(&repeated).collect();
    FileHead {
        mark: Some(Box::new(mark)),
        topics,
    }
}
