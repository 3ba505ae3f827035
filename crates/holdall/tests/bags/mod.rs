//! Bags for tests: written independently with the `mcap` crate, or by the real rosbag2.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs,
    io::BufWriter,
    path::{Path, PathBuf},
};

/// Log time of the first message of most bags here.
pub const START: u64 = 1_700_000_000_000_000_000;

const STRING_DEFINITION: &[u8] = b"string data\n";

/// One message to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: &'static str,
    /// Milliseconds after [`START`].
    pub log_millis: u64,
    /// Milliseconds after [`START`].
    pub publish_millis: u64,
    pub payload: Vec<u8>,
}

/// A `std_msgs/msg/String` as CDR.
pub fn string_cdr(text: &str) -> Vec<u8> {
    let mut payload = vec![0, 1, 0, 0];
    payload.extend((u32::try_from(text.len()).unwrap() + 1).to_le_bytes());
    payload.extend(text.as_bytes());
    payload.push(0);
    payload
}

/// A message that contains its own time, published when it was logged.
pub fn message(topic: &'static str, log_millis: u64) -> Message {
    Message {
        topic,
        log_millis,
        publish_millis: log_millis,
        payload: string_cdr(&format!("{topic} {log_millis}")),
    }
}

/// How to write a file.
#[derive(Clone, Debug)]
pub struct Format {
    pub message_encoding: &'static str,
    pub chunk_bytes: Option<u64>,
    pub compression: Option<mcap::Compression>,
    pub indexed: bool,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            message_encoding: "cdr",
            chunk_bytes: Some(1024),
            compression: None,
            indexed: true,
        }
    }
}

/// Writes a storage file with the `mcap` crate.
pub fn write_mcap(path: &Path, messages: &[Message], format: &Format) {
    let options = mcap::WriteOptions::new()
        .profile("ros2")
        .library("independent")
        .compression(format.compression)
        .chunk_size(format.chunk_bytes)
        .use_chunks(format.chunk_bytes.is_some())
        .emit_message_indexes(format.indexed)
        .emit_chunk_indexes(format.indexed)
        .emit_statistics(format.indexed)
        .emit_summary_offsets(format.indexed);
    let mut writer = options
        .create(BufWriter::new(fs::File::create(path).unwrap()))
        .unwrap();
    let mut channels = BTreeMap::new();
    for (sequence, message) in messages.iter().enumerate() {
        let channel = *channels.entry(message.topic).or_insert_with(|| {
            let schema = writer
                .add_schema("std_msgs/msg/String", "ros2msg", STRING_DEFINITION)
                .unwrap();
            let metadata = BTreeMap::from([("topic_type_hash".to_owned(), "RIHS01_ff".to_owned())]);
            writer
                .add_channel(schema, message.topic, format.message_encoding, &metadata)
                .unwrap()
        });
        let header = mcap::records::MessageHeader {
            channel_id: channel,
            sequence: u32::try_from(sequence).unwrap(),
            log_time: START + message.log_millis * 1_000_000,
            publish_time: START + message.publish_millis * 1_000_000,
        };
        writer.write_to_known_channel(&header, &message.payload).unwrap();
    }
    writer.finish().unwrap();
}

/// Adds a metadata record to a file that is written anew from `messages`.
pub fn write_mcap_with_record(
    path: &Path,
    messages: &[Message],
    name: &str,
    entries: &BTreeMap<String, String>,
) {
    let mut writer = mcap::Writer::new(BufWriter::new(fs::File::create(path).unwrap())).unwrap();
    for message in messages {
        let channel = mcap::Channel {
            id: 0,
            topic: message.topic.to_owned(),
            schema: Some(std::sync::Arc::new(mcap::Schema {
                id: 1,
                name: "std_msgs/msg/String".to_owned(),
                encoding: "ros2msg".to_owned(),
                data: Cow::Borrowed(STRING_DEFINITION),
            })),
            message_encoding: "cdr".to_owned(),
            metadata: BTreeMap::new(),
        };
        let stamp = START + message.log_millis * 1_000_000;
        writer
            .write(&mcap::Message {
                channel: std::sync::Arc::new(channel),
                sequence: 0,
                log_time: stamp,
                publish_time: stamp,
                data: Cow::Borrowed(&message.payload),
            })
            .unwrap();
    }
    let record = mcap::records::Metadata {
        name: name.to_owned(),
        metadata: entries.clone(),
    };
    writer.write_metadata(&record).unwrap();
    writer.finish().unwrap();
}

/// Path of a bag that another program wrote.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A copy of a bag directory that a test may damage.
pub fn copy_of(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let source = data(name);
    let copy = directory.path().join(source.file_name().unwrap());
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    (directory, copy)
}
