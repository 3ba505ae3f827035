//! Reads a file from memory.

use super::{MemoryFile, STORAGE_ID};
use crate::{
    error::{StorageError, StorageResult},
    reader::{
        ChannelSummary, FileCondition, Messages, ReadMessage, ReadOrder, ReadQuery, StorageReader,
        StorageSummary,
    },
};
use std::path::Path;

/// A snapshot of a file, taken when it was opened.
pub(super) struct MemoryReader {
    summary: StorageSummary,
    messages: Vec<ReadMessage>,
}

impl MemoryReader {
    pub fn new(path: &Path, file: MemoryFile) -> Self {
        let channels = (0u32..).zip(file.channels).map(|(place, info)| ChannelSummary {
            info,
            message_count: file
                .messages
                .iter()
                .filter(|message| message.channel.0 == place)
                .count() as u64,
        });
        let condition = if file.is_finished {
            FileCondition::Complete
        } else {
            FileCondition::Damaged {
                offset: 0,
                reason: "the file was not closed".into(),
            }
        };
        let summary = StorageSummary {
            path: path.to_owned(),
            storage_id: STORAGE_ID,
            library: None,
            file_bytes: file
                .messages
                .iter()
                .map(|message| message.payload.len() as u64)
                .sum(),
            message_count: file.messages.len() as u64,
            starting_time: file.messages.iter().map(|message| message.log_time).min(),
            ending_time: file.messages.iter().map(|message| message.log_time).max(),
            channels: channels.collect(),
            metadata: file.metadata,
            compression: None,
            condition,
        };
        Self {
            summary,
            messages: file.messages,
        }
    }
}

impl StorageReader for MemoryReader {
    fn summary(&self) -> &StorageSummary {
        &self.summary
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let count = self.summary.channels.len();
        if let Some(unknown) = query
            .channels
            .iter()
            .flatten()
            .find(|channel| channel.0 as usize >= count)
        {
            let path = self.summary.path.clone();
            return Err(StorageError::UnknownChannel {
                path,
                index: unknown.0,
                count,
            });
        }
        let is_wanted = |message: &&ReadMessage| {
            query
                .channels
                .as_ref()
                .is_none_or(|channels| channels.contains(&message.channel))
                && query.start.is_none_or(|start| message.log_time >= start)
                && query.end.is_none_or(|end| message.log_time <= end)
        };
        let mut wanted: Vec<ReadMessage> = self.messages.iter().filter(is_wanted).cloned().collect();
        match query.order {
            ReadOrder::LogTime => wanted.sort_by_key(|message| message.log_time),
            ReadOrder::PublishTime => wanted.sort_by_key(|message| message.publish_time),
            ReadOrder::File => {}
        }
        Ok(Box::new(wanted.into_iter().map(Ok)))
    }
}
