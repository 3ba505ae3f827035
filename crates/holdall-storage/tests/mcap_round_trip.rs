//! Any sequence of messages is read back exactly by the `mcap` crate, pip `mcap` and our reader.

mod support;

use bytes::Bytes;
use holdall_model::message::PayloadRef;
use holdall_storage::{
    mcap::{
        McapOptions, McapReader, McapReaderOptions, McapWriter,
        options::{Compression, CompressionLevel},
    },
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
    writer::{ChannelIndex, StorageWriter, StoredMessage},
};
use mcap::sans_io::linear_reader::{LinearReadEvent, LinearReader, LinearReaderOptions};
use md5::{Digest, Md5};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use support::{Message, Recording, channel, payload, record};

const TOPICS: [(&str, &str); 5] = [
    ("/imu", "sensor_msgs/msg/Imu"),
    ("/camera", "sensor_msgs/msg/Image"),
    ("/chatter", "std_msgs/msg/String"),
    ("/rosout", "std_msgs/msg/String"),
    ("/silent", "std_msgs/msg/Header"),
];

fn topics() -> Vec<holdall_storage::writer::ChannelInfo> {
    TOPICS.iter().map(|(name, kind)| channel(name, kind)).collect()
}

fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..300,
        2 => 3_000usize..6_000,
        2 => 60_000usize..70_000,
        1 => 200_000usize..700_000,
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    (
        0usize..4,
        any_size(),
        0u64..5_000,
        any::<u32>(),
        0u64..1 << 40,
        any::<u64>(),
    )
        .prop_map(|(topic, size, log_time, sequence, publish_time, seed)| Message {
            log_time,
            publish_time,
            sequence,
            topic: TOPICS[topic].0.into(),
            payload: payload(seed, size),
        })
}

fn any_options() -> impl Strategy<Value = McapOptions> {
    let codec = prop_oneof![
        3 => Just((Compression::None, 0)),
        1 => Just((Compression::Zstd, 0)),
        1 => Just((Compression::Zstd, 2)),
        1 => Just((Compression::Lz4, 1)),
    ];
    let chunk = prop_oneof![
        Just(None),
        Just(Some(1u64)),
        Just(Some(5_000)),
        Just(Some(300_000))
    ];
    let of_topic = prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]);
    let by_topic = prop::collection::btree_map(
        prop::sample::select(TOPICS.map(|topic| topic.0.to_owned()).to_vec()),
        of_topic,
        0..3,
    );
    (codec, chunk, any::<bool>(), 1u64..10_000, by_topic).prop_map(
        |((compression, compression_threads), chunk_bytes, force, span, topic_compression)| McapOptions {
            topic_compression,
            compression,
            compression_threads,
            compression_level: CompressionLevel::Fastest,
            chunk_bytes,
            force_compression: force,
            chunk_span_max: Duration::from_nanos(span),
            ..McapOptions::default()
        },
    )
}

/// Everything that the reference reader finds from start to end with all checksums enabled.
fn read_by_reference(bytes: &[u8]) -> Vec<Message> {
    let options = LinearReaderOptions::default()
        .with_validate_chunk_crcs(true)
        .with_prevalidate_chunk_crcs(true)
        .with_validate_data_section_crc(true)
        .with_validate_summary_section_crc(true);
    let mut reader = LinearReader::new_with_options(options);
    let mut left = bytes;
    while let Some(event) = reader.next_event() {
        match event.unwrap() {
            LinearReadEvent::ReadRequest(count) => {
                let count = count.min(left.len());
                reader.insert(count).copy_from_slice(&left[..count]);
                reader.notify_read(count);
                left = &left[count..];
            }
            LinearReadEvent::Record { opcode, data } => drop(mcap::parse_record(opcode, data).unwrap()),
        }
    }
    let mut messages: Vec<Message> = mcap::MessageStream::new(bytes)
        .unwrap()
        .map(|message| reference(&message.unwrap()))
        .collect();
    messages.sort();
    messages
}

fn reference(message: &mcap::Message<'_>) -> Message {
    Message {
        log_time: message.log_time,
        publish_time: message.publish_time,
        sequence: message.sequence,
        topic: message.channel.topic.clone(),
        payload: message.data.to_vec(),
    }
}

/// Everything that the reference reader finds by the index alone.
fn read_by_index(bytes: &[u8]) -> Vec<Message> {
    let summary = mcap::Summary::read(bytes).unwrap().unwrap();
    let mut messages = Vec::new();
    for chunk in &summary.chunk_indexes {
        let mut indexed = 0;
        for entries in summary.read_message_indexes(bytes, chunk).unwrap().values() {
            for entry in entries {
                let message = summary.seek_message(bytes, chunk, entry).unwrap();
                assert_eq!(message.log_time, entry.log_time);
                assert!((chunk.message_start_time..=chunk.message_end_time).contains(&entry.log_time));
                messages.push(reference(&message));
                indexed += 1;
            }
        }
        assert!(indexed > 0);
    }
    messages.sort();
    messages
}

fn check_summary(recording: &Recording, messages: &[Message]) {
    let summary = mcap::Summary::read(&recording.bytes).unwrap().unwrap();
    let stats = summary.stats.as_ref().unwrap();
    assert_eq!(stats.message_count, messages.len() as u64);
    assert_eq!(
        stats.message_start_time,
        messages.iter().map(|m| m.log_time).min().unwrap_or(0)
    );
    assert_eq!(
        stats.message_end_time,
        messages.iter().map(|m| m.log_time).max().unwrap_or(0)
    );
    assert_eq!(stats.chunk_count as usize, summary.chunk_indexes.len());
    assert_eq!((summary.channels.len(), summary.schemas.len()), (5, 4));
    assert_eq!(stats.metadata_count as usize, summary.metadata_indexes.len());
    for (number, (topic, _)) in TOPICS.iter().enumerate() {
        let count = messages.iter().filter(|message| message.topic == *topic).count() as u64;
        assert_eq!(recording.summary.channel_message_counts[number], count);
        assert_eq!(
            stats
                .channel_message_counts
                .get(&(number as u16 + 1))
                .copied()
                .unwrap_or(0),
            count
        );
    }
    let schema = summary.channels[&1].schema.as_ref().unwrap();
    assert_eq!(
        (schema.name.as_str(), schema.encoding.as_str()),
        ("sensor_msgs/msg/Imu", "ros2msg")
    );
    assert!(summary.channels[&1].metadata["offered_qos_profiles"].contains("depth: 7"));
    assert!(summary.channels[&1].metadata["topic_type_hash"].starts_with("RIHS01_"));
}

fn open(recording: &Recording) -> McapReader {
    let options = McapReaderOptions {
        loaded_bytes_max: 100_000,
        ..McapReaderOptions::default()
    };
    McapReader::from_bytes(
        Path::new("bag_0.mcap"),
        Bytes::from(recording.bytes.clone()),
        options,
    )
    .unwrap()
}

fn read(reader: &McapReader, query: &ReadQuery) -> Vec<Message> {
    let name = |channel: ChannelIndex| {
        reader.summary().channels[channel.0 as usize]
            .info
            .topic
            .name
            .clone()
    };
    reader
        .messages(query)
        .unwrap()
        .map(|message| {
            let message = message.unwrap();
            Message {
                log_time: message.log_time.as_nanos() as u64,
                publish_time: message.publish_time.as_nanos() as u64,
                sequence: message.sequence,
                topic: name(message.channel),
                payload: message.payload.to_vec(),
            }
        })
        .collect()
}

fn check_reader(recording: &Recording, sorted: &[Message]) {
    let reader = open(recording);
    let summary = reader.summary();
    assert_eq!(summary.condition, FileCondition::Complete);
    assert_eq!(
        (summary.message_count, summary.channels.len()),
        (sorted.len() as u64, 5)
    );
    assert_eq!(summary.rosbag2_metadata(), Some("close"));
    assert_eq!(
        summary.channels[0].info,
        channel("/imu", "sensor_msgs/msg/Imu").with_hash()
    );
    for order in [ReadOrder::LogTime, ReadOrder::PublishTime, ReadOrder::File] {
        let mut found = read(
            &reader,
            &ReadQuery {
                order,
                ..ReadQuery::default()
            },
        );
        match order {
            ReadOrder::LogTime => assert!(found.is_sorted_by_key(|message| message.log_time)),
            ReadOrder::PublishTime => assert!(found.is_sorted_by_key(|message| message.publish_time)),
            ReadOrder::File => {}
        }
        found.sort();
        assert_eq!(found, sorted, "{order:?}");
    }
    let query = ReadQuery {
        channels: Some(vec![ChannelIndex(0), ChannelIndex(2)]),
        start: Some(support::time(1000)),
        end: Some(support::time(3000)),
        order: ReadOrder::LogTime,
        verified: false,
    };
    let wanted = |message: &&Message| {
        (message.topic == "/imu" || message.topic == "/chatter") && (1000..=3000).contains(&message.log_time)
    };
    let mut found = read(&reader, &query);
    found.sort();
    assert_eq!(found, sorted.iter().filter(wanted).cloned().collect::<Vec<_>>());
}

trait WithHash {
    fn with_hash(self) -> Self;
}

impl WithHash for holdall_storage::writer::ChannelInfo {
    /// The file stores one hash for topic and definition.
    fn with_hash(mut self) -> Self {
        self.definition.type_description_hash = self.topic.type_description_hash.clone();
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_messages_is_read_back_exactly(
        messages in prop::collection::vec(any_message(), 0..120),
        options in any_options(),
        pool in prop_oneof![Just((4096usize, 3usize)), Just((65_536, 4)), Just((4 << 20, 12))],
    ) {
        let recording = record(options, pool, &topics(), &messages);
        let mut sorted = messages.clone();
        sorted.sort();
        prop_assert_eq!(read_by_reference(&recording.bytes), sorted.clone());
        prop_assert_eq!(read_by_index(&recording.bytes), sorted.clone());
        check_summary(&recording, &messages);
        check_reader(&recording, &sorted);
    }

    #[test]
    fn files_without_index_or_chunks_are_read(
        messages in prop::collection::vec(any_message(), 0..60),
        chunking in any::<bool>(),
        summary in any::<bool>(),
        chunk_index in any::<bool>(),
        statistics in any::<bool>(),
        checksums in any::<bool>(),
        message_index in any::<bool>(),
    ) {
        let options = McapOptions {
            chunking, summary, chunk_index, statistics, message_index,
            chunk_crc: checksums, data_crc: checksums, summary_crc: checksums,
            chunk_bytes: Some(100_000),
            ..McapOptions::default()
        };
        let recording = record(options, (65_536, 4), &topics(), &messages);
        let mut sorted = messages;
        sorted.sort();
        prop_assert_eq!(read_by_reference(&recording.bytes), sorted.clone());
        let reader = open(&recording);
        prop_assert_eq!(reader.summary().message_count, sorted.len() as u64);
        prop_assert_eq!(reader.summary().rosbag2_metadata(), Some("close"));
        let mut found = read(&reader, &ReadQuery::default());
        found.sort();
        prop_assert_eq!(found, sorted);
    }

    #[test]
    fn a_file_cut_anywhere_opens_with_a_part_of_its_messages(
        messages in prop::collection::vec(any_message(), 1..60),
        options in any_options(),
        cut in 0.0f64..1.0,
    ) {
        let mut recording = record(options, (65_536, 4), &topics(), &messages);
        let whole = recording.bytes.len();
        recording.bytes.truncate(8 + ((whole - 9) as f64 * cut) as usize);
        let reader = open(&recording);
        let is_damaged = matches!(reader.summary().condition, FileCondition::Damaged { .. });
        prop_assert!(is_damaged);
        let found = read(&reader, &ReadQuery::default());
        prop_assert_eq!(found.len() as u64, reader.summary().message_count);
        let mut left = messages;
        for message in &found {
            let place = left.iter().position(|other| other == message);
            prop_assert!(place.is_some(), "a message that was never written");
            left.swap_remove(place.unwrap());
        }
    }
}

#[test]
fn a_long_summary_is_read_in_parts_with_the_same_result() {
    let messages: Vec<Message> = (0..9000u64)
        .map(|n| Message {
            log_time: n,
            publish_time: n,
            sequence: 0,
            topic: TOPICS[(n % 4) as usize].0.into(),
            payload: payload(n, 10),
        })
        .collect();
    let options = McapOptions {
        chunk_bytes: Some(1),
        ..McapOptions::default()
    };
    let recording = record(options, (65_536, 4), &topics(), &messages);
    let chunk_indexes = recording.bytes.len() - mcap_summary_start(&recording.bytes);
    assert!(chunk_indexes > 600 << 10, "{chunk_indexes} bytes of summary");
    let mut sorted = messages;
    sorted.sort();
    check_reader(&recording, &sorted);
    assert_eq!(read_by_index(&recording.bytes), sorted);
}

/// Topic and codec of each chunk of a topic, as the `mcap` crate finds them.
fn codecs_by_topic(bytes: &[u8]) -> BTreeSet<(String, String)> {
    let summary = mcap::Summary::read(bytes).unwrap().unwrap();
    let chunks = summary.chunk_indexes.iter();
    let codecs = chunks.flat_map(|chunk| {
        let channels = chunk.message_index_offsets.keys();
        channels.map(|id| (summary.channels[id].topic.clone(), chunk.compression.clone()))
    });
    codecs.collect()
}

#[test]
fn topics_are_compressed_as_each_of_them_says() {
    let by_topic = [
        ("/imu", Compression::None),
        ("/camera", Compression::Lz4),
        ("/rosout", Compression::Zstd),
    ];
    let messages: Vec<Message> = (0..400u64)
        .map(|n| Message {
            log_time: n,
            publish_time: n,
            sequence: 0,
            topic: TOPICS[(n % 4) as usize].0.into(),
            // Small and large ones of each topic: none of them changes the lane.
            payload: vec![7; if n % 5 == 0 { 100_000 } else { 2000 }],
        })
        .collect();
    for (file, threads) in [
        (Compression::None, 0),
        (Compression::Zstd, 0),
        (Compression::Lz4, 2),
    ] {
        let options = McapOptions {
            compression: file,
            compression_threads: threads,
            topic_compression: by_topic.map(|(topic, codec)| (topic.to_owned(), codec)).into(),
            ..McapOptions::default()
        };
        let recording = record(options, (65_536, 4), &topics(), &messages);
        let expected = [by_topic.as_slice(), &[("/chatter", file)]].concat();
        let expected = expected
            .iter()
            .map(|(topic, codec)| ((*topic).to_owned(), codec.as_str().to_owned()));
        assert_eq!(codecs_by_topic(&recording.bytes), expected.collect(), "{file:?}");
        assert_eq!(read_by_index(&recording.bytes), messages);
    }
}

fn mcap_summary_start(bytes: &[u8]) -> usize {
    mcap::read::footer(bytes).unwrap().summary_start as usize
}

/// A loan that delivers a different number of bytes than it announces.
struct WrongLoan {
    says: usize,
    delivers: Vec<u8>,
}

impl holdall_model::message::Loan for WrongLoan {
    fn len(&self) -> usize {
        self.says
    }
    fn pinned_bytes(&self) -> usize {
        self.says
    }
    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        visit(&self.delivers);
    }
}

#[test]
fn a_payload_of_the_wrong_length_is_an_error_and_damages_nothing() {
    let (mut q, files) = support::memory_queue(65_536, 4);
    let path = Path::new("bag_0.mcap");
    let file = q.create_file(path, 0).unwrap();
    let mut writer = Box::new(McapWriter::create(&mut q, file, path, McapOptions::default()).unwrap());
    let index = writer.add_channel(&mut q, &topics()[0]).unwrap();
    for (says, delivers) in [(10, 10), (10, 7), (10, 12), (5000, 7), (70_000, 1), (300_000, 5)] {
        let loan = WrongLoan {
            says,
            delivers: vec![1; delivers],
        };
        let message = StoredMessage {
            log_time: support::time(1),
            publish_time: support::time(1),
            sequence: 0,
            payload: PayloadRef::Loan(&loan),
        };
        let result = writer.write(&mut q, index, message);
        assert_eq!(result.is_err(), says != delivers, "{result:?}");
    }
    writer.finish(&mut q, &[]).unwrap();
    q.wait_closed(file).unwrap();
    let messages = read_by_reference(&files.read(path).unwrap());
    let lengths: Vec<usize> = messages.iter().map(|message| message.payload.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 10 * 3 + 5000 + 70_000 + 300_000);
}

/// A message in the format of `read_with_pip_mcap.py`.
fn line(message: &Message) -> String {
    let digest: String = Md5::digest(&message.payload)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let Message {
        topic,
        log_time,
        publish_time,
        sequence,
        ..
    } = message;
    format!("{topic} {log_time} {publish_time} {sequence} {digest}")
}

#[test]
fn pip_mcap_reads_exactly_what_any_options_have_written() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let venv = std::env::var_os("HOLDALL_VENV").map_or_else(|| repository.join(".venv"), PathBuf::from);
    let python = venv.join("bin/python");
    let has_mcap = Command::new(&python).args(["-c", "import mcap"]).output();
    assert!(
        has_mcap.is_ok_and(|output| output.status.success()),
        "no pip mcap in {}: run `scripts/setup.sh nodes`, or set HOLDALL_VENV",
        venv.display()
    );
    let dir = tempfile::tempdir().unwrap();
    // Every run uses another sequence; the digest lines identify the bytes of a failure.
    let mut runner = TestRunner::default();
    let case = (prop::collection::vec(any_message(), 0..80), any_options());
    let (mut paths, mut expected) = (Vec::new(), String::new());
    for number in 0..24 {
        let (messages, options) = case.new_tree(&mut runner).unwrap().current();
        let path = dir.path().join(format!("{number}.mcap"));
        let recording = record(options, (65_536, 4), &topics(), &messages);
        std::fs::write(&path, &recording.bytes).unwrap();
        let mut lines: Vec<String> = messages.iter().map(line).collect();
        lines.sort_unstable();
        expected += "file\n";
        expected.extend(lines.iter().flat_map(|line| [line.as_str(), "\n"]));
        paths.push(path);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_with_pip_mcap.py");
    let output = Command::new(python).arg(script).args(paths).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found = String::from_utf8(output.stdout).unwrap();
    let first_other = found
        .lines()
        .zip(expected.lines())
        .find(|(found, expected)| found != expected);
    assert!(found == expected, "first difference: {first_other:?}");
}
