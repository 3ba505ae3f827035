//! A bag written in a few lines, for programs that have messages and need no recorder.

use super::{
    BagOptions, BagTopic, BagWriter, CompressionOptions, OsFolder, SplitOptions, WriteError, os_disk,
};
use holdall_io::{block::BlockPoolOptions, os::DiskMode};
use holdall_model::{
    interface::bundle::Bundle,
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use holdall_storage::{
    DEFAULT_STORAGE_ID, StorageOptions, storage_by_id,
    writer::{ChannelInfo, StoredMessage},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Writes serialized messages into a new bag.
///
/// ```
/// use holdall::{Bag, Timestamp, Writer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("numbers");
/// let mut writer = Writer::create(&path)?;
/// let numbers = writer.add_topic("/numbers", "std_msgs/msg/UInt8")?;
/// for number in 0..10_u8 {
///     // CDR: four bytes of encapsulation header, then the field.
///     let stamp = Timestamp::from_nanos(1_000_000 * i64::from(number));
///     writer.write(numbers, stamp, &[0, 1, 0, 0, number])?;
/// }
/// writer.close()?;
///
/// let last = Bag::open(&path)?.messages().last().expect("ten messages")?;
/// assert_eq!((last.topic.name.as_str(), last.payload[4]), ("/numbers", 9));
/// # Ok(())
/// # }
/// ```
pub struct Writer {
    bag: BagWriter,
    /// The first error of a write: the bag accepts no more messages.
    failed: bool,
    /// Messages so far, by topic.
    sequences: Vec<u32>,
}

impl Writer {
    /// Creates the bag directory, which must not exist; storage and presets are those that `holdall record` has by default.
    ///
    /// # Errors
    /// A directory that exists or cannot be made.
    pub fn create(directory: impl Into<PathBuf>) -> Result<Self, WriteError> {
        Self::create_with(directory, DEFAULT_STORAGE_ID, SplitOptions::default())
    }

    /// As [`Writer::create`], with a storage (`mcap`, `sqlite3`, ...) and a rule for new files.
    ///
    /// # Errors
    /// As [`Writer::create`]; a storage that does not exist or cannot write.
    pub fn create_with(
        directory: impl Into<PathBuf>,
        storage_id: &str,
        split: SplitOptions,
    ) -> Result<Self, WriteError> {
        Self::create_of(
            directory,
            storage_id,
            split,
            StorageOptions::default(),
            CompressionOptions::default(),
        )
    }

    /// As [`Writer::create_with`], with settings of the storage (MCAP's compression of chunks is one) and rosbag2's compression around it.
    ///
    /// # Errors
    /// As [`Writer::create_with`]; a setting that the storage does not have.
    pub fn create_of(
        directory: impl Into<PathBuf>,
        storage_id: &str,
        split: SplitOptions,
        storage_options: StorageOptions,
        compression: CompressionOptions,
    ) -> Result<Self, WriteError> {
        let options = BagOptions {
            directory: directory.into(),
            storage: storage_by_id(storage_id)?,
            storage_options,
            split,
            compression,
            custom_data: BTreeMap::new(),
            ros_distro: None,
            memory: None,
        };
        let disk = os_disk(DiskMode::Auto, BlockPoolOptions::default());
        let bag = BagWriter::create(options, disk, Box::<OsFolder>::default())?;
        Ok(Self {
            bag,
            failed: false,
            sequences: Vec::new(),
        })
    }

    /// Adds a topic. The definition of its type is one of the built-in ones (all of ROS 2's own message packages);
    /// for other types see [`Writer::add_defined_topic`].
    ///
    /// # Errors
    /// More topics than the storage can number.
    pub fn add_topic(&mut self, name: &str, type_name: &str) -> Result<BagTopic, WriteError> {
        let found = Bundle::embedded().define(type_name).ok();
        let definition = found.map_or_else(
            || MessageDefinition {
                type_name: type_name.to_owned(),
                ..MessageDefinition::default()
            },
            |found| found.message_definition(),
        );
        self.add_defined_topic(name, definition)
    }

    /// Adds a topic whose type the caller defines.
    ///
    /// # Errors
    /// More topics than the storage can number.
    pub fn add_defined_topic(
        &mut self,
        name: &str,
        definition: MessageDefinition,
    ) -> Result<BagTopic, WriteError> {
        let topic = TopicInfo {
            name: name.to_owned(),
            type_name: definition.type_name.clone(),
            serialization_format: "cdr".to_owned(),
            type_description_hash: definition.type_description_hash.clone(),
            ..TopicInfo::default()
        };
        self.add_channel(topic, definition)
    }

    /// Adds a topic as another bag describes it, with the QoS profiles of its publishers.
    ///
    /// # Errors
    /// More topics than the storage can number.
    pub fn add_channel(
        &mut self,
        topic: TopicInfo,
        definition: MessageDefinition,
    ) -> Result<BagTopic, WriteError> {
        let added = self.bag.add_topic(ChannelInfo { topic, definition })?;
        self.sequences.push(0);
        Ok(added)
    }

    /// Appends a message: `payload` in CDR with its encapsulation header of four bytes, `stamp` as log and publish time.
    ///
    /// # Errors
    /// A failed disk or storage file, and every write after that. [`Writer::close`] keeps what was written before.
    pub fn write(&mut self, topic: BagTopic, stamp: Timestamp, payload: &[u8]) -> Result<(), WriteError> {
        self.write_stamped(topic, stamp, stamp, payload)
    }

    /// As [`Writer::write`], with a separate publish time.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_stamped(
        &mut self,
        topic: BagTopic,
        log_time: Timestamp,
        publish_time: Timestamp,
        payload: &[u8],
    ) -> Result<(), WriteError> {
        let Some(sequence) = self.sequences.get_mut(topic.0 as usize) else {
            return Err(WriteError::UnknownTopic { index: topic.0 });
        };
        let message = StoredMessage {
            log_time,
            publish_time,
            sequence: *sequence,
            payload: PayloadRef::Bytes(payload),
        };
        *sequence = sequence.wrapping_add(1);
        let written = self.bag.write(topic, message);
        self.failed |= written.is_err();
        written.map(|_| ())
    }

    /// The bag directory.
    pub fn directory(&self) -> &Path {
        self.bag.directory()
    }

    /// Writes the end of the bag and `metadata.yaml`, and waits until all of it is durable. Returns the storage files.
    /// A bag that is dropped instead has no end: `holdall repair` gives it one.
    ///
    /// # Errors
    /// The first error of the bag, also one that an earlier write returned; what could be kept can be read.
    pub fn close(self) -> Result<Vec<PathBuf>, WriteError> {
        let failure = self.failed.then_some(WriteError::Failed);
        let closed = self.bag.close(Vec::new(), failure, |_| BTreeMap::new());
        closed.failure.map_or(Ok(closed.files), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Bag;

    #[test]
    fn every_storage_that_writes_gives_back_what_was_written() {
        for id in ["mcap", "sqlite3", "leveldb"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("bag");
            let split = SplitOptions {
                bytes_max: Some(200_000),
                ..SplitOptions::default()
            };
            let mut writer = Writer::create_with(&path, id, split).unwrap();
            let topic = writer.add_topic("/blob", "std_msgs/msg/String").unwrap();
            let payload = |number: usize| vec![number as u8; 1000 + number];
            for number in 0..500 {
                let stamp = Timestamp::from_nanos(number as i64);
                writer.write(topic, stamp, &payload(number)).unwrap();
            }
            let files = writer.close().unwrap();
            assert!(files.len() > 1, "{id}: {files:?}");
            let bag = Bag::open(&path).unwrap();
            let read: Vec<_> = bag.messages().map(|message| message.unwrap().payload).collect();
            let expected: Vec<_> = (0..500).map(payload).collect();
            assert!(read == expected, "{id}: {} messages", read.len());
            assert!(!bag.definitions().unwrap()[0].text.is_empty(), "{id}");
        }
    }

    #[test]
    fn a_directory_that_exists_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            Writer::create(folder.path()),
            Err(WriteError::Exists { .. })
        ));
    }
}
