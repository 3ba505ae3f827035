//! ROS 1 bags read as bags of ROS 2: topics, definitions and payloads, and the errors when something does not fit.

use holdall::reader::{Bag, BagSet, MessageFilter, Ros1View};
use holdall_model::interface::{Definition, bundle::Bundle};
use std::path::{Path, PathBuf};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../holdall-storage/tests/data/rosbag1")
        .join(name)
}

fn md5(bytes: &[u8]) -> String {
    format!("{:x}", md5::compute(bytes))
}

/// Topic, type, time and md5 of the payload as rosbags converts it.
fn expected() -> Vec<(String, String, i64, String)> {
    let text = std::fs::read(sample("expected.json")).unwrap();
    let messages: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let text = |message: &serde_json::Value, key: &str| message[key].as_str().unwrap().to_owned();
    messages
        .iter()
        .map(|message| {
            let time = message["time"].as_i64().unwrap();
            (
                text(message, "topic"),
                text(message, "type"),
                time,
                text(message, "cdr_md5"),
            )
        })
        .collect()
}

/// A bag with every `from` in `none.bag` replaced by `to`, which must be as long.
fn changed(from: &[u8], to: &[u8]) -> (tempfile::TempDir, PathBuf) {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(sample("none.bag")).unwrap();
    let mut found = 0;
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.bag");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn a_ros_1_bag_is_read_as_a_bag_of_ros_2() {
    for name in ["none.bag", "bz2.bag", "lz4.bag"] {
        let bag = Bag::open(sample(name)).unwrap();
        assert_eq!(bag.notices(), &[] as &[String]);
        assert_eq!(bag.metadata().storage_identifier, "rosbag1");
        let found: Vec<_> = BagSet::from(vec![bag.clone()])
            .messages(&MessageFilter::default())
            .map(|message| {
                let message = message.unwrap();
                assert_eq!(message.topic.serialization_format, "cdr");
                let topic = &message.topic;
                let time = message.log_time.as_nanos();
                (
                    topic.name.clone(),
                    topic.type_name.clone(),
                    time,
                    md5(&message.payload),
                )
            })
            .collect();
        assert_eq!(found, expected(), "{name}");
        let definitions = bag.definitions().unwrap();
        let types: Vec<&str> = definitions.iter().map(|found| found.type_name.as_str()).collect();
        assert_eq!(
            types,
            [
                "geometry_msgs/msg/PointStamped",
                "sample_msgs/msg/All",
                "std_msgs/msg/String"
            ]
        );
        for definition in &definitions {
            let read = Definition::from_stored(definition, |_| None).unwrap();
            assert_eq!(read.type_hash(), definition.type_description_hash);
        }
        assert_eq!(
            Some(definitions[0].type_description_hash.as_str()),
            Bundle::embedded().type_hash("geometry_msgs/msg/PointStamped")
        );
    }
}

#[test]
fn a_ros_1_bag_can_be_read_as_it_is_stored() {
    let bag = Bag::open_with(&sample("bz2.bag"), Ros1View::AsStored).unwrap();
    let topic = &bag.metadata().topics_with_message_count[0].topic_metadata;
    assert_eq!(
        (
            topic.name.as_str(),
            topic.type_name.as_str(),
            topic.serialization_format.as_str()
        ),
        ("/latched", "std_msgs/String", "ros1")
    );
    let mut messages = BagSet::from(vec![bag]).messages(&MessageFilter::default());
    assert_eq!(&messages.next().unwrap().unwrap().payload[..], b"\x04\0\0\0kept");
}

#[test]
fn a_wrong_md5_sum_is_said_and_the_definition_decides() {
    let (_folder, path) = changed(
        b"992ce8a1687cec8c8bd883ec73ca41d1",
        b"00000000000000000000000000000000",
    );
    let bag = Bag::open(&path).unwrap();
    assert_eq!(bag.notices().len(), 2, "{:?}", bag.notices());
    let notice = &bag.notices()[0];
    assert!(
        notice.ends_with(
            "topic /latched says that the md5 sum of std_msgs/String is 00000000000000000000000000000000, but its definition \
             has 992ce8a1687cec8c8bd883ec73ca41d1; it is converted by its definition"
        ),
        "{notice}"
    );
    let messages = BagSet::from(vec![bag]).messages(&MessageFilter::default());
    assert_eq!(messages.filter(Result::is_ok).count(), expected().len());
}

#[test]
fn what_cannot_be_converted_is_kept_and_said() {
    let (_folder, path) = changed(b"string data\n", b"st?ing data\n");
    let bag = Bag::open(&path).unwrap();
    let notice = &bag.notices()[0];
    assert!(
        notice.contains("topic /latched cannot be converted to ROS 2, what it has (1 message) stays as it is (serialization ros1)"),
        "{notice}"
    );
    assert!(notice.contains("\"st?ing\" is not a type"), "{notice}");
    let first = BagSet::from(vec![bag])
        .messages(&MessageFilter::default())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(first.topic.serialization_format, "ros1");
    assert_eq!(&first.payload[..], b"\x04\0\0\0kept");
}

#[test]
fn a_message_that_does_not_fit_is_an_error_and_the_others_are_read() {
    let (_folder, path) = changed(b"float64 x\nfloat64 y\n", b"float64 x\nfloat32 y\n");
    let bag = Bag::open(&path).unwrap();
    let messages = BagSet::from(vec![bag]).messages(&MessageFilter::default());
    let (good, bad): (Vec<_>, Vec<_>) = messages.partition(Result::is_ok);
    let points = expected()
        .iter()
        .filter(|message| message.1.ends_with("PointStamped"))
        .count();
    assert_eq!((good.len(), bad.len()), (expected().len() - points, points));
    let error = bad[0].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("of /chatter at 1500000000000000000 ns cannot be converted to ROS 2: a message of type geometry_msgs/PointStamped does not fit"),
        "{error}"
    );
}

#[test]
fn an_mcap_file_with_ros_1_messages_is_converted_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ros1.mcap");
    let mut writer = mcap::Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
    let schema = writer
        .add_schema("std_msgs/String", "ros1msg", b"string data\n")
        .unwrap();
    let channel = writer
        .add_channel(schema, "/chatter", "ros1", &Default::default())
        .unwrap();
    let header = mcap::records::MessageHeader {
        channel_id: channel,
        sequence: 0,
        log_time: 5,
        publish_time: 5,
    };
    writer.write_to_known_channel(&header, b"\x02\0\0\0hi").unwrap();
    writer.finish().unwrap();
    let first = |view| {
        let bags = BagSet::open_with(&[&path], view).unwrap();
        bags.messages(&MessageFilter::default()).next().unwrap().unwrap()
    };
    for view in [Ros1View::AsStored, Ros1View::BagsConverted] {
        let stored = first(view);
        assert_eq!(
            (stored.topic.type_name.as_str(), &stored.payload[..]),
            ("std_msgs/String", &b"\x02\0\0\0hi"[..])
        );
    }
    let converted = first(Ros1View::AllConverted);
    assert_eq!(converted.topic.type_name, "std_msgs/msg/String");
    assert_eq!(&converted.payload[..], b"\0\x01\0\0\x03\0\0\0hi\0");
}
