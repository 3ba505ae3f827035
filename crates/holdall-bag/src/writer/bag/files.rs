//! The storage files of a bag: named, begun, continued in the next one, and finished.

use super::{
    BagWriter, CurrentFile, FileContent, FileHead, NextFile, Packing, PastFile, ROSBAG2_RECORD,
    rosbag2_record,
};
use crate::writer::{CompressionMode, SteadyOf, WriteError};
use holdall_model::metadata::BagMetadata;
use holdall_storage::{compression::FORMATS, writer::MetadataEntries};
use std::path::PathBuf;

impl BagWriter {
    pub(super) fn file_name(&self, number: u32) -> String {
        match self.options.storage.extension() {
            None => format!("{}_{number}", self.stem),
            Some(extension) => format!("{}_{number}.{extension}", self.stem),
        }
    }

    /// Measures the span of a file by a clock that does not jump: `steady` gives the time on it of a message.
    pub fn measure_spans_by(&mut self, steady: SteadyOf) {
        self.split.measure_by(steady);
    }

    /// Whether the current file has messages.
    pub fn has_messages(&self) -> bool {
        self.split.has_messages()
    }

    /// The file that the queue is to make for a storage file. Where that is a directory, it is made here.
    pub(super) fn queue_path(&self, name: &str) -> Result<PathBuf, WriteError> {
        let path = self.options.directory.join(name);
        let made = self.options.storage.queue_path(&path);
        if made != path {
            self.folder.create_new(&path)?;
        }
        Ok(made)
    }

    /// Bytes to reserve for a file; the disk reserves more as it grows. A database grows its file itself.
    pub(super) fn reserve_bytes(&self) -> u64 {
        let grows_by_blocks = self.options.storage.writes_blocks();
        self.options
            .split
            .bytes_max
            .filter(|_| grows_by_blocks)
            .unwrap_or(0)
    }

    pub(super) fn begin_file(&mut self, next: NextFile) -> Result<(), WriteError> {
        let path = self.options.directory.join(&next.name);
        let storage = self.options.storage;
        let options = &self.options.storage_options;
        let mut writer = storage.create_writer(&mut self.queue, next.file, &path, options)?;
        let mut empty = BagMetadata {
            custom_data: self.options.custom_data.clone(),
            ..BagMetadata::default()
        };
        empty.storage_identifier = self.options.storage.id().to_owned();
        empty.ros_distro = self.options.ros_distro.clone();
        if self.options.compression.mode == CompressionMode::Message {
            // A file that is cut off before its end must state how its payloads are stored.
            CompressionMode::Message
                .as_metadata()
                .clone_into(&mut empty.compression_mode);
            FORMATS[0].clone_into(&mut empty.compression_format);
        }
        writer.write_metadata(&mut self.queue, ROSBAG2_RECORD, &rosbag2_record(&empty))?;
        self.current = Some(CurrentFile {
            writer,
            file: next.file,
            number: self.files_begun,
            name: next.name,
            channels: std::mem::take(&mut self.next_channels),
            head: FileHead::default(),
            identity: self.folder.file_identity(&path).or_unknown(),
            unidentified_steps: 0,
        });
        self.files_begun += 1;
        self.split.begin_file();
        Ok(())
    }

    /// Continues in a new file; nothing waits for the old one to be closed.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn split(&mut self) -> Result<(), WriteError> {
        if self.replace_vanished()? {
            return Ok(());
        }
        self.open_next()?;
        let records = self
            .end_records
            .as_ref()
            .map_or_else(Vec::new, |records| records(self.repeated_bytes_max()));
        self.finish_current(records, false)?;
        if let Some(next) = self.next.take() {
            self.begin_file(next)?;
        }
        self.write_metadata(false)?;
        self.settle()
    }

    pub(super) fn open_next(&mut self) -> Result<(), WriteError> {
        if self.next.is_none() {
            let name = self.file_name(self.files_begun);
            let path = self.queue_path(&name)?;
            let file = self.queue.create_file_ahead(&path, self.reserve_bytes());
            self.next = Some(NextFile { file, name });
        }
        Ok(())
    }

    /// Writes the end of the current file and hands it to the disk to be closed.
    pub(super) fn finish_current(
        &mut self,
        records: Vec<(String, MetadataEntries)>,
        is_last: bool,
    ) -> Result<(), WriteError> {
        let complete = if self.has_room_for_empty_channels(is_last) {
            self.add_empty_channels()
        } else {
            Ok(())
        };
        // A file that the disk fails here is still the current one, and is cut and read back as such.
        self.hand_over_last()?;
        self.past_bytes = self.length();
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let content = current.content();
        let CurrentFile {
            writer,
            file,
            number,
            name,
            identity,
            channels,
            head,
            ..
        } = current;
        let past = PastFile {
            name,
            number,
            identity,
            content,
            closing: Some(file),
            packing: match self.packer {
                Some(_) => Packing::Wanted,
                None => Packing::No,
            },
            is_torn: false,
            is_announced: false,
        };
        let metadata = rosbag2_record(&self.own_metadata(&past));
        self.past.push_back(past);
        let mut closing: Vec<(&str, MetadataEntries)> = vec![(ROSBAG2_RECORD, metadata)];
        closing.extend(
            records
                .iter()
                .map(|(name, entries)| (name.as_str(), entries.clone())),
        );
        let finished = writer.finish(&mut self.queue, &closing);
        if let Some(past) = self.past.back_mut() {
            match &finished {
                Ok(finished) => past.content = FileContent::new(finished.clone(), &channels, head),
                Err(_) => past.is_torn = true,
            }
        }
        self.next_channels = channels.into_next();
        finished?;
        complete
    }

    /// Removes a file that was opened ahead and never needed.
    pub(super) fn remove_next(&mut self) -> Result<(), WriteError> {
        let Some(next) = self.next.take() else {
            return Ok(());
        };
        let closed = self
            .queue
            .close_file(next.file, 0)
            .and_then(|()| self.queue.wait_closed(next.file));
        self.folder
            .remove_file(&self.options.directory.join(&next.name))?;
        Ok(closed?)
    }
}
