//! ROS 1 bags written by ROS 1's own library: read exactly, even unindexed, killed, torn or damaged.

use bytes::Bytes;
use holdall_model::{
    qos::{Durability, QosProfile},
    ros1::{Conversion, Ros1Definition},
    topic::DefinitionEncoding,
};
use holdall_storage::{
    StorageError, readable_storages,
    reader::{FileCondition, ReadMessage, ReadOrder, ReadQuery, StorageReader},
    rosbag1::{Rosbag1Reader, Rosbag1ReaderOptions},
    storage_by_path,
    writer::ChannelIndex,
};
use md5::{Digest, Md5};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// Precedes the position of the index in the file: `index_pos=` in the bag header.
const INDEX_POSITION_MARK: &[u8] = b"index_pos=";

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/rosbag1")
        .join(name)
}

fn content(name: &str) -> Vec<u8> {
    std::fs::read(sample(name)).unwrap()
}

fn open_bytes(bytes: Vec<u8>) -> Result<Rosbag1Reader, StorageError> {
    Rosbag1Reader::from_bytes(
        Path::new("test.bag"),
        Bytes::from(bytes),
        Rosbag1ReaderOptions::default(),
    )
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
struct Expected {
    topic: String,
    #[serde(rename = "type")]
    type_name: String,
    time: i64,
    ros1_md5: String,
    cdr_md5: String,
}

/// The content of `none.bag`, `bz2.bag` and `lz4.bag` as read and converted by pip `rosbags`.
fn expected() -> Vec<Expected> {
    serde_json::from_slice(&content("expected.json")).unwrap()
}

fn md5(bytes: &[u8]) -> String {
    Md5::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn all(reader: &Rosbag1Reader, query: &ReadQuery) -> Vec<ReadMessage> {
    let messages = reader.messages(query).unwrap();
    messages.map(|message| message.unwrap()).collect()
}

/// Messages in the form of [`Expected`], without the results of the conversion.
fn rows(reader: &Rosbag1Reader, messages: &[ReadMessage]) -> Vec<(String, String, i64, String)> {
    let channels = &reader.summary().channels;
    let tell = |message: &ReadMessage| {
        let topic = &channels[message.channel.0 as usize].info.topic;
        let type_name = holdall_model::ros1::ros2_type_name(&topic.type_name);
        let time = message.log_time.as_nanos();
        (topic.name.clone(), type_name, time, md5(&message.payload))
    };
    messages.iter().map(tell).collect()
}

fn expected_rows(expected: &[Expected]) -> Vec<(String, String, i64, String)> {
    let tell = |e: &Expected| (e.topic.clone(), e.type_name.clone(), e.time, e.ros1_md5.clone());
    expected.iter().map(tell).collect()
}

#[test]
fn bags_of_every_compression_are_read_exactly() {
    for (name, compression) in [
        ("none.bag", None),
        ("bz2.bag", Some("bz2")),
        ("lz4.bag", Some("lz4")),
    ] {
        let reader = Rosbag1Reader::open(&sample(name)).unwrap();
        let summary = reader.summary();
        assert_eq!(summary.condition, FileCondition::Complete, "{name}");
        assert_eq!(summary.compression.as_deref(), compression);
        assert_eq!(summary.message_count, expected().len() as u64);
        let found = all(&reader, &ReadQuery::default());
        assert_eq!(rows(&reader, &found), expected_rows(&expected()), "{name}");
        assert_eq!(
            summary.starting_time,
            found.first().map(|message| message.log_time)
        );
        assert_eq!(summary.ending_time, found.last().map(|message| message.log_time));
        for (place, channel) in (0..).zip(&summary.channels) {
            let count = found
                .iter()
                .filter(|message| message.channel == ChannelIndex(place));
            assert_eq!(channel.message_count, count.count() as u64);
        }
    }
}

#[test]
fn payloads_are_converted_as_by_rosbags() {
    let reader = Rosbag1Reader::open(&sample("lz4.bag")).unwrap();
    let conversions: Vec<Conversion> = reader
        .summary()
        .channels
        .iter()
        .map(|channel| {
            let definition = &channel.info.definition;
            assert_eq!(definition.encoding, DefinitionEncoding::Ros1Msg);
            Conversion::new(&Ros1Definition::parse(&definition.type_name, &definition.text).unwrap()).unwrap()
        })
        .collect();
    let mut cdr = Vec::new();
    for (message, expected) in all(&reader, &ReadQuery::default()).iter().zip(expected()) {
        let conversion = &conversions[message.channel.0 as usize];
        conversion.convert(&message.payload, &mut cdr).unwrap();
        assert_eq!(md5(&cdr), expected.cdr_md5, "{expected:?}");
        assert_eq!(conversion.definition().type_name, expected.type_name);
    }
}

#[test]
fn a_topic_may_have_several_types_and_publishers_store_whether_they_latch() {
    let reader = Rosbag1Reader::open(&sample("none.bag")).unwrap();
    let summary = reader.summary();
    let types: Vec<&str> = summary
        .channels
        .iter()
        .filter(|channel| channel.info.topic.name == "/chatter")
        .map(|channel| channel.info.topic.type_name.as_str())
        .collect();
    assert_eq!(types, ["std_msgs/String", "geometry_msgs/PointStamped"]);
    let offers = |name: &str| {
        let channel = summary
            .channels
            .iter()
            .find(|channel| channel.info.topic.name == name);
        channel.unwrap().info.topic.offered_qos_profiles.clone()
    };
    assert_eq!(offers("/chatter"), [QosProfile::ROS_DEFAULT]);
    let latched = offers("/latched");
    assert_eq!(
        (latched.len(), latched[0].durability, latched[0].depth),
        (1, Durability::TransientLocal, 1)
    );
    let record = summary
        .metadata
        .iter()
        .find(|(name, entries)| name == "ros1_connection" && entries["topic"] == "/latched");
    let (_, entries) = record.unwrap();
    assert_eq!(
        (entries["callerid"].as_str(), entries["latching"].as_str()),
        ("/map_server", "1")
    );
    assert_eq!(entries["md5sum"], "992ce8a1687cec8c8bd883ec73ca41d1");
}

#[test]
fn selections_and_orders_are_respected() {
    let reader = Rosbag1Reader::open(&sample("bz2.bag")).unwrap();
    let channels = &reader.summary().channels;
    let all_channel = channels
        .iter()
        .position(|channel| channel.info.topic.name == "/all")
        .unwrap();
    let whole = all(&reader, &ReadQuery::default());
    let (start, end) = (whole[10].log_time, whole[30].log_time);
    let query = ReadQuery {
        channels: Some(vec![ChannelIndex(all_channel as u32)]),
        start: Some(start),
        end: Some(end),
        order: ReadOrder::LogTime,
        verified: false,
    };
    let is_wanted = |message: &&ReadMessage| {
        message.channel.0 as usize == all_channel && (start..=end).contains(&message.log_time)
    };
    let wanted: Vec<ReadMessage> = whole.iter().filter(is_wanted).cloned().collect();
    assert!(!wanted.is_empty());
    assert_eq!(all(&reader, &query), wanted);
    let in_file = ReadQuery {
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    let as_written = all(&reader, &in_file);
    assert_eq!(as_written.len(), whole.len());
    assert!(
        as_written
            .windows(2)
            .any(|pair| pair[1].log_time < pair[0].log_time)
    );
    let unknown = ReadQuery {
        channels: Some(vec![ChannelIndex(9)]),
        ..ReadQuery::default()
    };
    assert!(matches!(
        reader.messages(&unknown),
        Err(StorageError::UnknownChannel { .. })
    ));
}

#[test]
fn little_memory_returns_the_same_messages() {
    let tight = Rosbag1ReaderOptions {
        loaded_bytes_max: 1,
        ..Rosbag1ReaderOptions::default()
    };
    let reader = Rosbag1Reader::from_bytes(Path::new("test.bag"), content("lz4.bag").into(), tight).unwrap();
    let found = all(&reader, &ReadQuery::default());
    assert_eq!(rows(&reader, &found), expected_rows(&expected()));
    let refused = Rosbag1ReaderOptions {
        chunk_bytes_max: 100,
        ..tight
    };
    let reader =
        Rosbag1Reader::from_bytes(Path::new("test.bag"), content("lz4.bag").into(), refused).unwrap();
    let mut messages = reader.messages(&ReadQuery::default()).unwrap();
    assert!(messages.all(|message| matches!(message, Err(StorageError::TooLarge { limit: 100, .. }))));
}

fn index_position(bytes: &[u8]) -> (usize, usize) {
    let mark = bytes
        .windows(INDEX_POSITION_MARK.len())
        .position(|found| found == INDEX_POSITION_MARK);
    let at = mark.unwrap() + INDEX_POSITION_MARK.len();
    let position = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (at, position as usize)
}

#[test]
fn bags_without_index_are_read_by_walking() {
    for name in ["none.bag", "bz2.bag", "lz4.bag"] {
        let whole = Rosbag1Reader::open(&sample(name)).unwrap();
        let mut bytes = content(name);
        let (at, position) = index_position(&bytes);
        bytes[at..at + 8].fill(0);
        bytes.truncate(position);
        let reader = open_bytes(bytes).unwrap();
        assert_eq!(reader.summary().condition, FileCondition::Unindexed, "{name}");
        assert_eq!(reader.summary().channels, whole.summary().channels);
        assert_eq!(reader.summary().compression, whole.summary().compression);
        let found = all(&reader, &ReadQuery::default());
        assert_eq!(rows(&reader, &found), expected_rows(&expected()), "{name}");
    }
}

#[test]
fn chunks_after_a_torn_one_are_found() {
    for name in ["none.bag", "bz2.bag", "lz4.bag"] {
        let mut bytes = content(name);
        let (at, position) = index_position(&bytes);
        bytes[at..at + 8].fill(0);
        bytes.truncate(position);
        let mark = b"\x04\x00\x00\x00op=\x05";
        let chunks: Vec<usize> = (0..bytes.len() - mark.len())
            .filter(|at| bytes[*at..].starts_with(mark))
            .collect();
        assert!(chunks.len() >= 3, "{name}");
        let torn = chunks[1];
        // Its header; the length of its data, which then exceeds the file; and a hole over all of it.
        let header = (torn..torn + 8, 0xff);
        let length = (torn + 17..torn + 24, 0x7f);
        let hole = (torn - 20..chunks[2] - 40, 0);
        for (range, value) in [header, length, hole] {
            let mut torn = bytes.clone();
            torn[range.clone()].fill(value);
            let reader = open_bytes(torn).unwrap();
            let condition = &reader.summary().condition;
            assert!(
                matches!(condition, FileCondition::Damaged { .. }),
                "{name} {range:?}"
            );
            let messages = reader.messages(&ReadQuery::default()).unwrap();
            let messages: Vec<ReadMessage> = messages.filter_map(Result::ok).collect();
            let found = rows(&reader, &messages);
            let whole = expected_rows(&expected());
            assert!(
                found.iter().all(|message| whole.contains(message)),
                "{name} {range:?}"
            );
            assert_eq!(
                found.len() as u64,
                reader.summary().message_count,
                "{name} {range:?}"
            );
            let last = |rows: &[(String, String, i64, String)]| rows.iter().map(|message| message.2).max();
            assert_eq!(
                last(&found),
                last(&whole),
                "{name} {range:?}: the end of the bag is there"
            );
        }
    }
}

#[test]
fn bags_of_a_killed_recorder_are_read_as_far_as_written() {
    // Both were written with the first 27 messages of the whole bags; the end of the compressed one was still
    // in memory.
    let first: Vec<_> = expected_rows(&expected()).into_iter().collect();
    for (name, count) in [("killed_none.bag.active", 27), ("killed_lz4.bag.active", 14)] {
        let reader = Rosbag1Reader::open(&sample(name)).unwrap();
        let FileCondition::Damaged { reason, .. } = &reader.summary().condition else {
            panic!("{name}: {:?}", reader.summary().condition);
        };
        assert_eq!(reason, "its last chunk was not closed");
        let found = rows(&reader, &all(&reader, &ReadQuery::default()));
        assert!(found.iter().all(|message| first.contains(message)), "{name}");
        assert_eq!(found.len() as u64, reader.summary().message_count);
        assert!(found.len() >= count, "{name}: {}", found.len());
    }
}

#[test]
fn a_bag_that_was_cut_is_read_up_to_the_cut() {
    for name in ["none.bag", "lz4.bag", "bz2.bag"] {
        let bytes = content(name);
        let expected = expected_rows(&expected());
        let mut most = 0;
        for length in (0..bytes.len()).step_by(61) {
            let Ok(reader) = open_bytes(bytes[..length].to_vec()) else {
                assert!(length < 13, "{name} {length}");
                continue;
            };
            let messages = reader.messages(&ReadQuery::default()).unwrap();
            let found: Vec<ReadMessage> = messages.filter_map(Result::ok).collect();
            let found = rows(&reader, &found);
            assert!(
                found.iter().all(|message| expected.contains(message)),
                "{name} {length}"
            );
            assert_eq!(
                found.len() as u64,
                reader.summary().message_count,
                "{name} {length}"
            );
            assert!(
                found.len() >= most,
                "{name} {length}: more of the file gives no less"
            );
            most = found.len();
            let condition = &reader.summary().condition;
            assert!(*condition != FileCondition::Complete, "{name} {length}");
        }
        assert_eq!(most, expected.len(), "{name}");
    }
}

#[test]
fn a_damaged_chunk_is_reported_and_the_rest_is_read() {
    let mut bytes = content("lz4.bag");
    // The middle of the file is a chunk's data.
    let middle = index_position(&bytes).1 / 2;
    bytes[middle..middle + 40].fill(0xff);
    let reader = open_bytes(bytes).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = reader
        .messages(&ReadQuery::default())
        .unwrap()
        .partition(Result::is_ok);
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert!(good.len() > 20 && good.len() < expected().len(), "{}", good.len());
}

#[test]
fn what_cannot_be_read_is_refused_in_one_sentence() {
    let refusal = |bytes: &[u8]| open_bytes(bytes.to_vec()).err().unwrap().to_string();
    assert_eq!(
        refusal(b"#ROSBAG V1.2\n"),
        "test.bag: reading a ROS 1 bag of this version is not possible: it is of version 1.2, expected 2.0: bring it up to date with `rosbag fix` of ROS 1"
    );
    let other = refusal(b"\x89MCAP0\r\n");
    assert!(
        other.starts_with("test.bag is not a file of storage rosbag1: expected \"#ROSBAG V2.0\""),
        "{other}"
    );
    let mut header = Vec::new();
    for field in [
        &b"op=\x03"[..],
        b"encryptor=rosbag/AesCbcEncryptor",
        b"index_pos=\0\0\0\0\0\0\0\0",
    ] {
        header.extend((field.len() as u32).to_le_bytes());
        header.extend(field);
    }
    let mut encrypted = b"#ROSBAG V2.0\n".to_vec();
    encrypted.extend((header.len() as u32).to_le_bytes());
    encrypted.extend(header);
    encrypted.extend([0; 4]);
    assert_eq!(
        refusal(&encrypted),
        "test.bag: reading an encrypted ROS 1 bag is not possible: it is encrypted with rosbag/AesCbcEncryptor: decrypt it with `rosbag decrypt` of ROS 1 first"
    );
}

#[test]
fn the_extension_leads_here_and_nothing_is_written() {
    let storage = storage_by_path(Path::new("old.bag")).unwrap();
    assert_eq!(storage.id(), "rosbag1");
    assert!(readable_storages().any(|known| known.id() == "rosbag1"));
    let error = storage
        .check_options(&Default::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("read"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_damage_panics_or_misleads(
        name in prop::sample::select(vec!["none.bag", "lz4.bag", "killed_none.bag.active"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        unindexed in any::<bool>(),
    ) {
        let mut bytes = content(name);
        if unindexed {
            let at = index_position(&bytes).0;
            bytes[at..at + 8].fill(0);
        }
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(reader) = open_bytes(bytes) {
            for order in [ReadOrder::LogTime, ReadOrder::File] {
                let query = ReadQuery { order, ..ReadQuery::default() };
                prop_assert!(reader.messages(&query).unwrap().count() < 1000);
            }
        }
    }
}
