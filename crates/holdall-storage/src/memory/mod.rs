//! A storage that keeps its files in memory: for tests of the code around storages.

mod reader;
mod writer;

use crate::{
    error::{StorageError, StorageResult},
    reader::{ReadMessage, StorageReader},
    storage::{Storage, StorageOptions},
    writer::{ChannelInfo, MetadataEntries, StorageWriter},
};
use holdall_io::mutex::lock;
use holdall_io::{disk::FileId, queue::DiskQueue};
use reader::MemoryReader;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use writer::MemoryWriter;

/// The id of this backend.
pub const STORAGE_ID: &str = "memory";

/// Content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFile {
    /// Its channels.
    pub channels: Vec<ChannelInfo>,
    /// Its messages in write order.
    pub messages: Vec<ReadMessage>,
    /// Its named text records.
    pub metadata: Vec<(String, MetadataEntries)>,
    /// Whether it was finished.
    pub is_finished: bool,
}

type Files = Arc<Mutex<BTreeMap<PathBuf, MemoryFile>>>;

fn with_files<T>(files: &Files, action: impl FnOnce(&mut BTreeMap<PathBuf, MemoryFile>) -> T) -> T {
    action(&mut lock(files))
}

/// The backend; each instance has its own files. The queue's file stays empty.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    files: Files,
}

impl MemoryStorage {
    /// Creates a backend without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// The current content of a file.
    pub fn file(&self, path: &Path) -> Option<MemoryFile> {
        with_files(&self.files, |files| files.get(path).cloned())
    }
}

impl Storage for MemoryStorage {
    fn id(&self) -> &'static str {
        STORAGE_ID
    }

    fn title(&self) -> &'static str {
        "memory"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["memory"]
    }

    fn magic(&self) -> Option<&'static [u8]> {
        None
    }

    fn split_bytes_min(&self) -> u64 {
        1
    }

    fn keeps_publishers(&self) -> bool {
        true
    }

    fn keeps_types(&self) -> bool {
        true
    }

    fn writes_blocks(&self) -> bool {
        false
    }

    fn presets(&self) -> &'static [&'static str] {
        &[]
    }

    fn check_options(&self, options: &StorageOptions) -> StorageResult<()> {
        if options.preset.is_none() && options.config.is_none() {
            return Ok(());
        }
        Err(StorageError::Setting {
            storage: STORAGE_ID,
            setting: "preset".into(),
            expected: "no settings".into(),
            found: format!("{:?}", options.preset.as_deref().unwrap_or_default()),
        })
    }

    fn create_writer(
        &self,
        _q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>> {
        self.check_options(options)?;
        with_files(&self.files, |files| {
            files.insert(path.to_owned(), MemoryFile::default())
        });
        Ok(Box::new(MemoryWriter::new(Arc::clone(&self.files), file, path)))
    }

    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        let file = self.file(path).ok_or_else(|| StorageError::Io {
            action: "open",
            path: path.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        Ok(Box::new(MemoryReader::new(path, file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reader::{FileCondition, ReadOrder, ReadQuery},
        writer::{ChannelIndex, StoredMessage},
    };
    use holdall_io::{block::BlockPoolOptions, memory::MemoryDisk};
    use holdall_model::{message::PayloadRef, time::Timestamp};

    #[test]
    fn what_is_written_is_read_back_in_the_requested_order() {
        let mut q = DiskQueue::new(Box::new(MemoryDisk::new()), BlockPoolOptions::default()).unwrap();
        let storage = MemoryStorage::new();
        let path = Path::new("bag_0.memory");
        let file = q.create_file(path, 0).unwrap();
        let mut writer = storage
            .create_writer(&mut q, file, path, &StorageOptions::default())
            .unwrap();
        let channels = [0, 1].map(|_| writer.add_channel(&mut q, &ChannelInfo::default()).unwrap());
        for (n, (log, publish)) in [(30, 1), (10, 3), (20, 2)].into_iter().enumerate() {
            let message = StoredMessage {
                log_time: Timestamp::from_nanos(log),
                publish_time: Timestamp::from_nanos(publish),
                sequence: 0,
                payload: PayloadRef::Bytes(&[log as u8]),
            };
            writer.write(&mut q, channels[n % 2], message).unwrap();
        }
        let condition = storage.open_reader(path).unwrap().summary().condition.clone();
        assert!(
            matches!(condition, FileCondition::Damaged { .. }),
            "not finished yet"
        );
        assert_eq!(
            writer
                .finish(&mut q, &[("end", MetadataEntries::new())])
                .unwrap()
                .message_count,
            3
        );
        q.wait_closed(file).unwrap();
        let reader = storage.open_reader(path).unwrap();
        let read = |query: ReadQuery| -> Vec<u8> {
            reader
                .messages(&query)
                .unwrap()
                .map(|message| message.unwrap().payload[0])
                .collect()
        };
        assert_eq!(read(ReadQuery::default()), [10, 20, 30]);
        assert_eq!(
            read(ReadQuery {
                order: ReadOrder::PublishTime,
                ..ReadQuery::default()
            }),
            [30, 20, 10]
        );
        assert_eq!(
            read(ReadQuery {
                order: ReadOrder::File,
                ..ReadQuery::default()
            }),
            [30, 10, 20]
        );
        assert_eq!(
            read(ReadQuery {
                channels: Some(vec![ChannelIndex(1)]),
                ..ReadQuery::default()
            }),
            [10]
        );
        assert_eq!(
            read(ReadQuery {
                start: Some(Timestamp::from_nanos(20)),
                ..ReadQuery::default()
            }),
            [20, 30]
        );
        assert_eq!(reader.summary().channels[0].message_count, 2);
        assert!(reader.summary().last_metadata("end").is_some());
    }
}
