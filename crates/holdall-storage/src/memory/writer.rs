//! Writes to a file in memory.

use super::{Files, MemoryFile, with_files};
use crate::{
    error::{StorageError, StorageResult},
    reader::ReadMessage,
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use bytes::Bytes;
use holdall_io::{
    disk::FileId,
    queue::{DiskQueue, SyncToken},
};
use std::path::{Path, PathBuf};

/// One file that is being written.
pub(super) struct MemoryWriter {
    files: Files,
    file: FileId,
    path: PathBuf,
    bytes: u64,
}

impl MemoryWriter {
    pub fn new(files: Files, file: FileId, path: &Path) -> Self {
        Self {
            files,
            file,
            path: path.to_owned(),
            bytes: 0,
        }
    }

    fn with_file<T>(&self, action: impl FnOnce(&mut MemoryFile) -> T) -> T {
        with_files(&self.files, |files| {
            action(files.entry(self.path.clone()).or_default())
        })
    }
}

impl StorageWriter for MemoryWriter {
    fn add_channel(&mut self, _q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        let count = self.with_file(|file| {
            file.channels.push(info.clone());
            file.channels.len()
        });
        let index = u32::try_from(count - 1).map_err(|_| StorageError::TooMany {
            path: self.path.clone(),
            what: "channels",
            limit: u64::from(u32::MAX),
        })?;
        Ok(ChannelIndex(index))
    }

    fn write(
        &mut self,
        _q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        let mut payload = Vec::with_capacity(message.payload.len());
        message
            .payload
            .for_each_slice(|slice| payload.extend_from_slice(slice));
        self.bytes += payload.len() as u64;
        let message = ReadMessage {
            channel,
            log_time: message.log_time,
            publish_time: message.publish_time,
            sequence: message.sequence,
            payload: Bytes::from(payload),
        };
        let count = self.with_file(|file| {
            let count = file.channels.len();
            if (channel.0 as usize) < count {
                file.messages.push(message);
            }
            count
        });
        if (channel.0 as usize) < count {
            return Ok(());
        }
        Err(StorageError::UnknownChannel {
            path: self.path.clone(),
            index: channel.0,
            count,
        })
    }

    fn write_metadata(
        &mut self,
        _q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()> {
        self.with_file(|file| file.metadata.push((name.to_owned(), entries.clone())));
        Ok(())
    }

    fn summary(&self) -> FileSummary {
        self.with_file(|file| {
            let mut counts = vec![0; file.channels.len()];
            file.messages
                .iter()
                .for_each(|message| counts[message.channel.0 as usize] += 1);
            FileSummary {
                path: self.path.clone(),
                message_count: file.messages.len() as u64,
                starting_time: file.messages.iter().map(|message| message.log_time).min(),
                ending_time: file.messages.iter().map(|message| message.log_time).max(),
                channel_message_counts: counts,
                bytes: self.bytes,
            }
        })
    }

    fn bytes_written(&self) -> u64 {
        self.bytes
    }

    fn step(&mut self, _q: &mut DiskQueue) -> StorageResult<()> {
        Ok(())
    }

    fn close_chunks(&mut self, _q: &mut DiskQueue) -> StorageResult<()> {
        Ok(())
    }

    fn handed(&mut self, _q: &DiskQueue) -> u64 {
        self.with_file(|file| file.messages.len() as u64)
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        Ok(Some(q.sync(self.file)?))
    }

    fn finish(
        mut self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary> {
        for (name, entries) in closing_metadata {
            self.write_metadata(q, name, entries)?;
        }
        self.with_file(|file| file.is_finished = true);
        q.close_file(self.file, 0)?;
        Ok(self.summary())
    }
}
