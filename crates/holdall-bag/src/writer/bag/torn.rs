//! Files that the disk has failed: cut before their first hole, read back, and given an end where that is possible.

use super::{
    BagTopic, ROSBAG2_RECORD, TopicCount, TornFile, WriteError,
    content::counts,
    latched::FileHead,
    metadata::own_metadata,
    past::{Packing, PastFile},
    place::Place,
    room::Room,
    rosbag2_record,
    topics::Topics,
};
use crate::writer::folder::FileIdentity;
use holdall_io::disk::{DiskError, FileId, Operation};
use holdall_storage::{
    reader::StorageReader,
    repeated::{originals, repeats_of},
};
use std::sync::Arc;

/// How a file that was closed at the end of its bag has ended.
pub(super) struct Ended {
    /// The file as the disk kept it, after a failure.
    pub torn: Option<TornFile>,
    /// It could not be made, or a full disk left it without a byte: it is not part of the bag.
    pub is_absent: bool,
    pub error: Option<WriteError>,
}

impl PastFile {
    /// Waits until the disk has closed it; `None` when that was so already. `is_only` holds for a bag's only file, `is_bug` if nothing
    /// on the disk has failed.
    pub fn end(&mut self, place: &mut Place, room: Room<'_>, is_only: bool, is_bug: bool) -> Option<Ended> {
        let file = self.closing.take()?;
        let closed = place.queue.wait_closed(file);
        if closed.is_ok() && !self.is_torn {
            return Some(Ended {
                torn: None,
                is_absent: false,
                error: None,
            });
        }
        self.packing = Packing::No;
        self.cut_before_hole(place, file);
        let torn = self.read_back(place, room.topics);
        let was_never_made = |error: &DiskError| error.operation == Operation::Create;
        let is_absent = closed.as_ref().is_err_and(was_never_made)
            || self.is_gone(place)
            || (!is_only && self.is_left_empty(place));
        if !is_absent && (is_bug || closed.as_ref().is_err_and(DiskError::is_no_space)) {
            self.complete(place, room);
        }
        Some(Ended {
            torn: Some(torn),
            is_absent,
            error: closed.err().map(WriteError::from),
        })
    }

    /// Cuts a file that failed before its first hole, where the close that should have done so has failed as well. A reader of a file
    /// without checksums would take zeros, or the bytes of writes after the hole, for messages.
    fn cut_before_hole(&self, place: &Place, file: FileId) {
        let Some(progress) = place.queue.progress(file) else {
            return;
        };
        let has_own_file = place
            .queue
            .check(file)
            .is_err_and(|error| error.operation != Operation::Create);
        // A database has written its file itself.
        if !has_own_file || !place.options.storage.writes_blocks() {
            return;
        }
        let path = place.path_of(&self.name);
        if self.identity != FileIdentity::Unknown && self.identity != place.folder.file_identity(&path) {
            return;
        }
        let whole = progress.written_bytes;
        if !place.folder.file_len(&path).is_ok_and(|length| length > whole) {
            return;
        }
        if let Err(error) = place.folder.cut(&path, whole) {
            tracing::error!(
                "{}: cannot cut off what follows byte {whole}, which may never have been written: {error}",
                path.display()
            );
        }
    }

    /// Whether somebody deleted it: a description that names it would make the bag unreadable.
    fn is_gone(&self, place: &Place) -> bool {
        let path = place.path_of(&self.name);
        place.queue.makes_files() && place.folder.file_identity(&path) == FileIdentity::None
    }

    /// Removes a file that is still empty on the disk; readers could not open it. False for a file with content.
    fn is_left_empty(&self, place: &Place) -> bool {
        let path = place.path_of(&self.name);
        place.folder.file_len(&path).is_ok_and(|length| length == 0)
            && place.folder.remove_file_now(&path).is_ok()
    }

    /// Counts the readable messages of a file that the disk has failed.
    fn read_back(&mut self, place: &Place, topics: &Topics) -> TornFile {
        let path = place.path_of(&self.name);
        let mut readable = vec![0; topics.all().len()];
        let mut torn = TornFile {
            number: self.number,
            reader: None,
            topics: Vec::new(),
        };
        let content = &mut self.content;
        match place.folder.open_reader(place.options.storage, &path) {
            Ok(reader) => {
                let stored: Arc<dyn StorageReader> = Arc::from(reader);
                let reader = originals(Arc::clone(&stored));
                content.head = readable_head(&stored, &reader, topics);
                let summary = reader.summary();
                for channel in &summary.channels {
                    let topic = topics.place_of(&channel.info.topic);
                    if let Some(topic) = topic {
                        readable[topic] += channel.message_count;
                    }
                    // A bag numbers its topics with 32 bits.
                    torn.topics.push(topic.map(|topic| BagTopic(topic as u32)));
                }
                content.summary.starting_time = summary.starting_time;
                content.summary.ending_time = summary.ending_time;
                torn.reader = Some(reader);
            }
            Err(error) => {
                tracing::error!("nothing can be read of it: {error}");
                content.head = FileHead::default();
                (content.summary.starting_time, content.summary.ending_time) = (None, None);
            }
        }
        content.summary.message_count = readable.iter().sum::<u64>() + content.head.messages();
        content.messages = counts(&readable).collect();
        torn
    }

    /// Writes the summary and footer of a file torn by a full disk: it was cut after its last whole record,
    /// so that there is room again. Not after other errors: data read back from a failing disk may differ
    /// tomorrow. A file that cannot get its end is read without.
    fn complete(&self, place: &Place, room: Room<'_>) {
        let path = place.path_of(&self.name);
        let metadata = rosbag2_record(&own_metadata(place, room, self));
        let records = [(ROSBAG2_RECORD, metadata)];
        if let Err(error) = place.folder.complete_file(place.options.storage, &path, &records) {
            tracing::warn!(
                "{} has no end, `holdall repair` adds one: {error}",
                path.display()
            );
        }
    }
}

/// The readable messages among those that a torn file repeats.
fn readable_head(
    stored: &Arc<dyn StorageReader>,
    originals: &Arc<dyn StorageReader>,
    topics: &Topics,
) -> FileHead {
    let Some(mut mark) = repeats_of(&**stored) else {
        return FileHead::default();
    };
    let mut repeated = vec![0; topics.all().len()];
    let all = stored.summary().channels.iter();
    for (all, rest) in all.zip(&originals.summary().channels) {
        let of = &all.info.topic;
        if let Some(topic) = topics.place_of(of) {
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
        ..FileHead::default()
    }
}
