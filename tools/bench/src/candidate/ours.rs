//! Our storage alone: a storage writer on a disk queue, without cache, drain and splits.

use super::{
    metered::{MeteredDisk, SharedDiskCounts},
    raw::{RawMessage, RawWriter},
};
use crate::{
    error::{BenchError, BenchResult},
    workload::TopicPlan,
};
use holdall_io::{
    block::BlockPoolOptions,
    clock::Clock,
    disk::{Disk, DiskError, FileId},
    memory::MemoryDisk,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
    sealed::{Seal, SealingDisk},
};
use holdall_model::{
    message::PayloadRef,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{
    StorageOptions, storage_by_id,
    writer::{ChannelIndex, ChannelInfo, StorageWriter, StoredMessage},
};
use std::{fs, path::Path, sync::Arc};

/// The ROS type of all messages of a benchmark.
pub(crate) const TYPE_NAME: &str = "holdall_bench/msg/Payload";

/// Its definition.
pub(crate) const TYPE_TEXT: &str = "uint8[] data\n";

/// The destination of a candidate's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskChoice {
    /// Files of the operating system.
    Os(DiskMode),
    /// Memory that discards them: for the speed of an encoder alone.
    Discard,
}

impl DiskChoice {
    /// A disk queue for files in `dir`.
    ///
    /// # Errors
    /// When the mode is not possible there, or memory is short.
    pub fn queue(self, dir: &Path) -> Result<DiskQueue, DiskError> {
        DiskQueue::new(self.open(dir)?, BlockPoolOptions::default())
    }

    /// The same, whose files are encrypted.
    ///
    /// # Errors
    /// As [`Self::queue`].
    pub(crate) fn sealed_queue(self, dir: &Path, seal: Seal) -> Result<DiskQueue, DiskError> {
        let disk = SealingDisk::new(self.open(dir)?, seal);
        DiskQueue::new(Box::new(disk), BlockPoolOptions::default())
    }

    /// The same, with all its operations counted.
    ///
    /// # Errors
    /// As [`Self::queue`].
    pub(crate) fn metered_queue(
        self,
        dir: &Path,
        counts: &SharedDiskCounts,
        clock: &Arc<dyn Clock>,
    ) -> Result<DiskQueue, DiskError> {
        let disk = MeteredDisk::new(self.open(dir)?, Arc::clone(counts), Arc::clone(clock));
        DiskQueue::new(Box::new(disk), BlockPoolOptions::default())
    }

    fn open(self, dir: &Path) -> Result<Box<dyn Disk>, DiskError> {
        Ok(match self {
            Self::Os(mode) => Box::new(OsDisk::open(dir, mode)?),
            Self::Discard => Box::new(MemoryDisk::discarding()),
        })
    }
}

/// The topics of a plan as channels of a bag.
pub fn channel_infos(topics: &[TopicPlan]) -> Vec<ChannelInfo> {
    topics.iter().map(|topic| channel_info(&topic.name)).collect()
}

/// A topic of this name as a channel of a bag.
pub fn channel_info(topic: &str) -> ChannelInfo {
    ChannelInfo {
        topic: TopicInfo {
            name: topic.to_owned(),
            type_name: TYPE_NAME.to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        },
        definition: MessageDefinition {
            type_name: TYPE_NAME.to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: TYPE_TEXT.to_owned(),
            type_description_hash: String::new(),
        },
    }
}

/// One of our storages while it is written.
pub struct OurWriter {
    q: DiskQueue,
    file: FileId,
    writer: Box<dyn StorageWriter>,
    channels: Vec<ChannelIndex>,
    transactions: Transactions,
}

/// When one of holdall's storages ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transactions {
    /// When the storage decides, as in a recording; MCAP's chunks always end so.
    Own,
    /// After each batch, as the loops of the rivals do.
    EachBatch,
}

impl OurWriter {
    /// A file at `path` on the disk of `q`, in storage `storage_id`.
    ///
    /// # Errors
    /// A storage or option that does not exist; a failed disk.
    pub fn create(
        mut q: DiskQueue,
        path: &Path,
        reserve_bytes: u64,
        channels: &[ChannelInfo],
        (storage_id, options): (&str, &StorageOptions),
        transactions: Transactions,
    ) -> BenchResult<Self> {
        let storage = storage_by_id(storage_id)?;
        storage.check_options(options)?;
        if storage.queue_path(path) != path {
            // A storage whose files are directories.
            fs::create_dir(path).map_err(BenchError::io("create", path))?;
        }
        let reserve_bytes = if storage.writes_blocks() { reserve_bytes } else { 0 };
        let file = q.create_file(&storage.queue_path(path), reserve_bytes)?;
        let mut writer = storage.create_writer(&mut q, file, path, options)?;
        let channels = channels
            .iter()
            .map(|channel| writer.add_channel(&mut q, channel))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            q,
            file,
            writer,
            channels,
            transactions,
        })
    }
}

impl RawWriter for OurWriter {
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()> {
        for message in batch {
            let time = Timestamp::from_nanos(i64::try_from(message.log_time_nanos).unwrap_or(i64::MAX));
            let stored = StoredMessage {
                log_time: time,
                publish_time: time,
                // MCAP keeps the low 32 bits.
                sequence: message.sequence as u32,
                payload: PayloadRef::Bytes(message.payload),
            };
            self.writer
                .write(&mut self.q, self.channels[message.topic as usize], stored)?;
        }
        match self.transactions {
            Transactions::Own => self.writer.step(&mut self.q)?,
            Transactions::EachBatch => self.writer.close_chunks(&mut self.q)?,
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> BenchResult<()> {
        self.writer.finish(&mut self.q, &[])?;
        Ok(self.q.wait_closed(self.file)?)
    }
}
