//! Damaged and malicious files: nothing panics, memory stays bounded, and intact parts are still read.

mod support;

use bytes::Bytes;
use holdall_storage::{
    StorageError,
    mcap::{
        McapOptions, McapReader, McapReaderOptions,
        options::{Compression, CompressionLevel},
    },
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
    writer::ChannelIndex,
};
use proptest::prelude::*;
use std::path::Path;
use support::{Message, Recording, channel, payload, record};

fn recording(compression: Compression) -> (Recording, Vec<Message>) {
    let messages: Vec<Message> = (0..60u64)
        .map(|n| message(n, (n as usize * 131) % 3000))
        .collect();
    (write(compression, Some(10_000), &messages), messages)
}

/// Few large messages, which are read one by one when only one topic is wanted.
fn large_recording() -> Recording {
    let messages: Vec<Message> = (0..6u64).map(|n| message(n, 70_000)).collect();
    write(Compression::None, None, &messages)
}

fn message(n: u64, payload_bytes: usize) -> Message {
    Message {
        log_time: 100 + n,
        publish_time: n,
        sequence: n as u32,
        topic: if n.is_multiple_of(2) { "/a" } else { "/b" }.into(),
        payload: payload(n, payload_bytes),
    }
}

fn write(compression: Compression, chunk_bytes: Option<u64>, messages: &[Message]) -> Recording {
    let options = McapOptions {
        compression,
        compression_level: CompressionLevel::Fastest,
        chunk_bytes,
        ..McapOptions::default()
    };
    let topics = [
        channel("/a", "std_msgs/msg/String"),
        channel("/b", "std_msgs/msg/String"),
    ];
    record(options, (1 << 20, 4), &topics, messages)
}

fn open(bytes: Vec<u8>) -> Result<McapReader, StorageError> {
    let options = McapReaderOptions {
        chunk_bytes_max: 1 << 20,
        ..McapReaderOptions::default()
    };
    McapReader::from_bytes(Path::new("damaged.mcap"), Bytes::from(bytes), options)
}

/// Reads everything that can be read; returns the number of messages and of errors.
fn read(reader: &McapReader, order: ReadOrder) -> (usize, usize) {
    let Ok(messages) = reader.messages(&ReadQuery {
        order,
        ..ReadQuery::default()
    }) else {
        return (0, 1);
    };
    let (mut good, mut bad) = (0, 0);
    for message in messages.take(10_000) {
        match message {
            Ok(_) => good += 1,
            Err(error) => {
                assert!(error.to_string().contains("damaged.mcap"), "{error}");
                bad += 1;
            }
        }
    }
    (good, bad)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(
        codec in prop_oneof![Just(Compression::None), Just(Compression::Zstd), Just(Compression::Lz4)],
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
        near_end in any::<bool>(),
        is_large in any::<bool>(),
    ) {
        let mut bytes = if is_large { large_recording().bytes } else { recording(codec).0.bytes };
        for (place, value) in changes {
            // Lengths and offsets are denser in the summary.
            let range = if near_end { bytes.len().min(2000) } else { bytes.len() };
            let at = bytes.len() - 1 - place.index(range);
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(reader) = open(bytes) {
            for order in [ReadOrder::LogTime, ReadOrder::PublishTime, ReadOrder::File] {
                read(&reader, order);
            }
            let query = ReadQuery { channels: Some(vec![ChannelIndex(0)]), ..ReadQuery::default() };
            if let Ok(messages) = reader.messages(&query) {
                messages.take(10_000).for_each(drop);
            }
            let _ = reader.chunks();
        }
    }

    #[test]
    fn noise_after_the_magic_never_panics(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = holdall_storage::mcap::format::MAGIC.to_vec();
        bytes.extend(noise);
        if let Ok(reader) = open(bytes) {
            read(&reader, ReadOrder::LogTime);
        }
    }
}

#[test]
fn a_changed_payload_is_an_error_of_its_chunk_only() {
    let (recording, messages) = recording(Compression::None);
    let mut bytes = recording.bytes;
    let needle = &messages[20].payload;
    let at = bytes
        .windows(needle.len())
        .position(|window| window == &needle[..])
        .unwrap();
    bytes[at + 5] ^= 1;
    let reader = open(bytes).unwrap();
    assert_eq!(reader.summary().condition, FileCondition::Complete);
    let chunks = reader.chunks().unwrap().len();
    let (good, bad) = read(&reader, ReadOrder::LogTime);
    assert_eq!(bad, 1);
    assert!(
        chunks > 5 && good > messages.len() / 2 && good < messages.len(),
        "{good} of {} messages",
        messages.len()
    );
    let error = reader
        .messages(&ReadQuery::default())
        .unwrap()
        .find_map(Result::err)
        .unwrap();
    assert!(
        matches!(error, StorageError::Checksum { what: "chunk", .. }),
        "{error}"
    );
}

#[test]
fn blocks_that_never_reached_the_disk_cost_their_chunk_only() {
    let (recording, messages) = recording(Compression::None);
    let chunks = open(recording.bytes.clone()).unwrap().chunks().unwrap();
    let mut bytes = recording.bytes;
    // The recorder was killed: no summary, reserved space of zeros after the data, and a hole in the middle
    // of the third chunk.
    let last = chunks.last().unwrap();
    bytes.truncate((last.offset + last.length) as usize);
    bytes.resize(bytes.len() + 300_000, 0);
    let middle = (chunks[2].offset + chunks[2].length / 2) as usize;
    bytes[middle..middle + 20].fill(0);
    let reader = open(bytes).unwrap();
    let condition = &reader.summary().condition;
    assert!(
        matches!(condition, FileCondition::Damaged { .. }),
        "{condition:?}"
    );
    let (good, bad) = read(&reader, ReadOrder::LogTime);
    assert_eq!((good as u64, bad), (reader.summary().message_count, 0));
    assert!(good > messages.len() * 3 / 4 && good < messages.len(), "{good}");
}

#[test]
fn a_file_with_a_data_end_record_but_no_footer_is_checked_like_a_torn_one() {
    let (recording, messages) = recording(Compression::None);
    let chunks = open(recording.bytes.clone()).unwrap().chunks().unwrap();
    let mut bytes = recording.bytes;
    // The footer and a block of the last chunk were never written.
    bytes.truncate(bytes.len() - 20);
    let last = chunks.last().unwrap();
    let middle = (last.offset + last.length / 2) as usize;
    bytes[middle..middle + 20].fill(0);
    let reader = open(bytes).unwrap();
    assert!(matches!(
        reader.summary().condition,
        FileCondition::Damaged { .. }
    ));
    let (good, bad) = read(&reader, ReadOrder::LogTime);
    assert_eq!((good as u64, bad), (reader.summary().message_count, 0));
    assert!(good > messages.len() * 3 / 4 && good < messages.len(), "{good}");
}

#[test]
fn without_chunks_an_unreadable_message_costs_no_other() {
    let messages: Vec<Message> = (0..60u64).map(|n| message(n, 400)).collect();
    let options = McapOptions {
        chunking: false,
        ..McapOptions::default()
    };
    let topics = [
        channel("/a", "std_msgs/msg/String"),
        channel("/b", "std_msgs/msg/String"),
    ];
    let mut bytes = record(options, (1 << 20, 4), &topics, &messages).bytes;
    let needle = &messages[40].payload;
    let at = bytes
        .windows(needle.len())
        .position(|window| window == &needle[..])
        .unwrap();
    // Its header was never written to the disk.
    bytes[at - 22..at].fill(0);
    bytes.truncate(at + 4_000);
    let (good, bad) = read(&open(bytes).unwrap(), ReadOrder::File);
    assert!(good > 45 && bad == 0, "{good} of some 50, {bad} errors");
}

#[test]
fn a_chunk_that_claims_to_be_huge_is_refused_before_memory_is_allocated() {
    let (recording, _) = recording(Compression::Zstd);
    let chunks = open(recording.bytes.clone()).unwrap().chunks().unwrap();
    let mut bytes = recording.bytes;
    // Opcode, length, two times, then the decompressed size.
    let at = chunks[0].offset as usize + 9 + 16;
    bytes[at..at + 8].copy_from_slice(&(1u64 << 50).to_le_bytes());
    let reader = open(bytes).unwrap();
    let error = reader
        .messages(&ReadQuery::default())
        .unwrap()
        .find_map(Result::err)
        .unwrap();
    assert!(matches!(error, StorageError::TooLarge { .. }), "{error}");
}

#[test]
fn one_of_few_large_topics_is_read_by_index_alone() {
    let mut bytes = large_recording().bytes;
    let chunk = open(bytes.clone()).unwrap().chunks().unwrap()[0].clone();
    // Only the wanted messages and the index are read: damage in the other topic's payload has no effect.
    let other = message(1, 70_000).payload;
    let at = bytes
        .windows(100)
        .rposition(|window| window == &other[5000..5100])
        .unwrap();
    bytes[at] ^= 1;
    let reader = open(bytes).unwrap();
    assert!(chunk.length > 400_000);
    let query = |channel| ReadQuery {
        channels: Some(vec![ChannelIndex(channel)]),
        ..ReadQuery::default()
    };
    let found: Vec<_> = reader
        .messages(&query(0))
        .unwrap()
        .map(|found| found.unwrap().payload.to_vec())
        .collect();
    assert_eq!(found, [0, 2, 4].map(|n| message(n, 70_000).payload));
    assert_eq!(
        read(&reader, ReadOrder::LogTime),
        (0, 1),
        "as a whole, the chunk does not pass its checksum"
    );
}

#[test]
fn other_files_are_refused() {
    for content in [&b""[..], b"x", b"SQLite format 3\0", b"\x89MCAP1\r\n"] {
        let error = open(content.to_vec()).err().unwrap();
        assert!(matches!(error, StorageError::WrongFormat { .. }), "{error}");
    }
    let reader = open(holdall_storage::mcap::format::MAGIC.to_vec()).unwrap();
    assert!(matches!(
        reader.summary().condition,
        FileCondition::Damaged { .. }
    ));
    let missing = McapReader::open(Path::new("no/such.mcap"))
        .err()
        .unwrap()
        .to_string();
    assert!(missing.contains("no/such.mcap"), "{missing}");
}
