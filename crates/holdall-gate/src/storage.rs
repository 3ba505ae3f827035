//! The storage alone: messages into an MCAP file in memory, and out of a file in the page cache.

use crate::{
    Failed,
    measured::{Took, measure},
    payload::{Messages, TOPICS, channels},
};
use holdall_io::{
    block::BlockPoolOptions,
    disk::{Disk, FileId},
    memory::MemoryDisk,
    queue::DiskQueue,
};
use holdall_model::message::PayloadRef;
use holdall_storage::{
    DEFAULT_STORAGE_ID, StorageOptions,
    reader::ReadQuery,
    storage_by_id,
    writer::{ChannelIndex, StorageWriter, StoredMessage},
};
use stats_alloc::StatsAlloc;
use std::{alloc::System, fs, hint::black_box, path::Path};

/// The writer's `step` runs each time this much was written, as the drain runs it after each segment.
const STEP_BYTES: u64 = 256 << 10;

/// Writes messages into a file whose bytes are discarded.
///
/// # Errors
/// On a disk in memory only by a defect.
pub fn write(messages: &Messages, count: u64, allocator: &StatsAlloc<System>) -> Result<Took, Failed> {
    let mut writing = Some(Writing::begin(
        Path::new("gate.mcap"),
        Box::new(MemoryDisk::discarding()),
    )?);
    measure(allocator, || match writing.take() {
        Some(writing) => writing.all(messages, count),
        None => Ok(()),
    })
}

/// Reads messages in the order in which they were received.
///
/// # Errors
/// A temporary folder that cannot be used.
pub fn read(messages: &Messages, count: u64, allocator: &StatsAlloc<System>) -> Result<Took, Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("gate.mcap");
    let disk = MemoryDisk::new();
    let files = disk.files();
    Writing::begin(&path, Box::new(disk))?.all(messages, count)?;
    fs::write(&path, files.read(&path).ok_or("the disk in memory has no file")?)?;
    measure(allocator, || {
        let reader = storage_by_id(DEFAULT_STORAGE_ID)?.open_reader(&path)?;
        let mut read = 0;
        for message in reader.messages(&ReadQuery::default())? {
            black_box(message?.payload.len());
            read += 1;
        }
        if read == count {
            Ok(())
        } else {
            Err(format!("{read} of {count} messages were read").into())
        }
    })
}

/// A file that is being written.
struct Writing {
    q: DiskQueue,
    file: FileId,
    writer: Box<dyn StorageWriter>,
    topics: Vec<ChannelIndex>,
}

impl Writing {
    fn begin(path: &Path, disk: Box<dyn Disk>) -> Result<Self, Failed> {
        let mut q = DiskQueue::new(disk, BlockPoolOptions::default())?;
        let file = q.create_file(path, 0)?;
        let options = StorageOptions {
            index_checkpoints: true,
            ..StorageOptions::default()
        };
        let mut writer = storage_by_id(DEFAULT_STORAGE_ID)?.create_writer(&mut q, file, path, &options)?;
        let topics = channels()
            .iter()
            .map(|channel| writer.add_channel(&mut q, channel))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            q,
            file,
            writer,
            topics,
        })
    }

    fn all(mut self, messages: &Messages, count: u64) -> Result<(), Failed> {
        let every = (STEP_BYTES / messages.bytes().len().max(1) as u64).max(1);
        for number in 0..count {
            let time = messages.time(number);
            let message = StoredMessage {
                log_time: time,
                publish_time: time,
                // MCAP keeps the low 32 bits.
                sequence: (number / TOPICS) as u32,
                payload: PayloadRef::Bytes(messages.bytes()),
            };
            let topic = self.topics[(number % TOPICS) as usize];
            self.writer.write(&mut self.q, topic, message)?;
            if number.is_multiple_of(every) {
                self.writer.step(&mut self.q)?;
            }
        }
        self.writer.finish(&mut self.q, &[])?;
        Ok(self.q.wait_closed(self.file)?)
    }
}
