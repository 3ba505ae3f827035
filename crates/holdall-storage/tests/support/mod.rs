//! Shared by several tests: files in memory, channels, messages that are easy to distinguish.
#![allow(dead_code)]

use holdall_io::{block::BlockPoolOptions, memory::MemoryDisk, memory::MemoryFiles, queue::DiskQueue};
use holdall_model::{
    message::{Loan, PayloadRef},
    qos::QosProfile,
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use holdall_storage::{
    mcap::{McapOptions, McapWriter},
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use std::path::{Path, PathBuf};

/// A disk queue over memory with small blocks.
pub fn memory_queue(block_bytes: usize, block_count: usize) -> (DiskQueue, MemoryFiles) {
    let disk = MemoryDisk::new();
    let files = disk.files();
    let pool = BlockPoolOptions {
        block_bytes,
        block_count,
        huge_pages: false,
    };
    (DiskQueue::new(Box::new(disk), pool).unwrap(), files)
}

pub fn channel(name: &str, type_name: &str) -> ChannelInfo {
    ChannelInfo {
        topic: TopicInfo {
            name: name.into(),
            type_name: type_name.into(),
            serialization_format: "cdr".into(),
            offered_qos_profiles: vec![QosProfile {
                depth: 7,
                ..QosProfile::default()
            }],
            type_description_hash: format!("RIHS01_{}", "ab".repeat(32)),
            origin: None,
            publisher: None,
        },
        definition: MessageDefinition {
            type_name: type_name.into(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: format!("# {type_name}\nstring data\n"),
            type_description_hash: String::new(),
        },
    }
}

/// A message as written by a test and as a reader should return it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    pub log_time: u64,
    pub publish_time: u64,
    pub sequence: u32,
    pub topic: String,
    pub payload: Vec<u8>,
}

/// Bytes that differ between messages and can be compressed.
pub fn payload(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|n| ((n / 16).wrapping_mul(seed | 1) >> 3) as u8)
        .collect()
}

/// A payload in several slices.
pub struct Slices(pub Vec<Vec<u8>>);

impl Loan for Slices {
    fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
    fn pinned_bytes(&self) -> usize {
        self.len()
    }
    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.0.iter().for_each(|slice| visit(slice));
    }
}

pub struct Recording {
    pub bytes: Vec<u8>,
    pub summary: FileSummary,
}

pub fn metadata(key: &str, value: &str) -> MetadataEntries {
    [(key.to_owned(), value.to_owned())].into()
}

/// Writes messages; `topics` are the channels in order, each message's topic is one of them.
pub fn record(
    options: McapOptions,
    pool: (usize, usize),
    topics: &[ChannelInfo],
    messages: &[Message],
) -> Recording {
    let (mut q, files) = memory_queue(pool.0, pool.1);
    let path = PathBuf::from("bag_0.mcap");
    let file = q.create_file(&path, 0).unwrap();
    let mut writer = Box::new(McapWriter::create(&mut q, file, &path, options).unwrap());
    writer
        .write_metadata(&mut q, "rosbag2", &metadata("serialized_metadata", "open"))
        .unwrap();
    let channels: Vec<ChannelIndex> = topics
        .iter()
        .map(|topic| writer.add_channel(&mut q, topic).unwrap())
        .collect();
    for (number, message) in messages.iter().enumerate() {
        let place = topics
            .iter()
            .position(|topic| topic.topic.name == message.topic)
            .unwrap();
        let halves = message.payload.split_at(message.payload.len() / 3);
        let loan = Slices(vec![halves.0.to_vec(), Vec::new(), halves.1.to_vec()]);
        let payload = if number % 3 == 0 {
            PayloadRef::Loan(&loan)
        } else {
            PayloadRef::Bytes(&message.payload)
        };
        let stored = StoredMessage {
            log_time: time(message.log_time),
            publish_time: time(message.publish_time),
            sequence: message.sequence,
            payload,
        };
        writer.write(&mut q, channels[place], stored).unwrap();
        if number % 5 == 0 {
            writer.step(&mut q).unwrap();
        }
        if number % 50 == 49 {
            writer
                .write_metadata(&mut q, "note", &metadata("at", &number.to_string()))
                .unwrap();
        }
    }
    let estimate = writer.bytes_written();
    assert_eq!(writer.summary().message_count, messages.len() as u64);
    let summary = writer
        .finish(&mut q, &[("rosbag2", metadata("serialized_metadata", "close"))])
        .unwrap();
    q.wait_closed(file).unwrap();
    let bytes = files.read(&path).unwrap();
    assert_eq!(bytes.len() as u64, summary.bytes);
    assert!(
        estimate + 4096 > summary.bytes,
        "estimated {estimate}, is {}",
        summary.bytes
    );
    Recording { bytes, summary }
}

pub fn time(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(i64::try_from(nanos).unwrap())
}

/// The crate's own small test data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}
