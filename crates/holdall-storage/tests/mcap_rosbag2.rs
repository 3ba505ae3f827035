//! Bags written by the real rosbag2 are read exactly.

mod support;

use holdall_storage::{
    mcap::McapReader,
    reader::{FileCondition, ReadMessage, ReadQuery, StorageReader},
};
use md5::{Digest, Md5};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Default)]
struct Topic {
    count: u64,
    bytes: u64,
    first: Option<(i64, i64)>,
    last: Option<(i64, i64)>,
    md5: Md5,
}

impl Topic {
    fn note(&mut self, message: &ReadMessage) {
        let times = (message.log_time.as_nanos(), message.publish_time.as_nanos());
        self.count += 1;
        self.bytes += message.payload.len() as u64;
        self.first.get_or_insert(times);
        self.last = Some(times);
        self.md5.update(&message.payload);
    }
}

fn check(bag: &str, files: usize) {
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(support::data("manifest.json")).unwrap()).unwrap();
    let mut topics: BTreeMap<String, Topic> = BTreeMap::new();
    for number in 0..files {
        let reader = McapReader::open(&support::data(&format!("{bag}/{bag}_{number}.mcap"))).unwrap();
        let summary = reader.summary();
        assert_eq!(summary.condition, FileCondition::Complete);
        assert_eq!(summary.library.as_deref(), Some("libmcap 1.3.0"));
        let text = summary.rosbag2_metadata().unwrap();
        assert!(
            text.contains(&format!("message_count: {}", summary.message_count)),
            "{text}"
        );
        let mut counts = vec![0; summary.channels.len()];
        let mut latest = i64::MIN;
        for message in reader.messages(&ReadQuery::default()).unwrap() {
            let message = message.unwrap();
            assert!(message.log_time.as_nanos() >= latest);
            latest = message.log_time.as_nanos();
            counts[message.channel.0 as usize] += 1;
            let info = &summary.channels[message.channel.0 as usize].info;
            topics.entry(info.topic.name.clone()).or_default().note(&message);
        }
        assert_eq!(
            counts,
            summary
                .channels
                .iter()
                .map(|channel| channel.message_count)
                .collect::<Vec<_>>()
        );
        let imu = summary
            .channels
            .iter()
            .find(|channel| channel.info.topic.name == "/imu/data")
            .unwrap();
        assert_eq!(imu.info.topic.offered_qos_profiles[0].depth, 5);
        assert!(
            imu.info
                .definition
                .text
                .contains("linear_acceleration_covariance")
        );
    }
    let expected = manifest[bag]["topics"].as_object().unwrap();
    for (name, about) in expected.iter().filter(|(_, about)| about["count"] != 0) {
        let topic = topics.remove(name).unwrap();
        let integer = |key: &str| about[key].as_i64().unwrap();
        assert_eq!(
            (topic.count, topic.bytes),
            (integer("count") as u64, integer("bytes") as u64),
            "{name}"
        );
        assert_eq!(
            topic.first.unwrap(),
            (integer("first"), integer("first_send")),
            "{name}"
        );
        assert_eq!(
            topic.last.unwrap(),
            (integer("last"), integer("last_send")),
            "{name}"
        );
        let md5: String = topic
            .md5
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(md5, about["md5"].as_str().unwrap(), "{name}");
    }
    assert!(topics.is_empty());
}

#[test]
fn default_bag_is_read_exactly() {
    check("mcap_default", 1);
}

#[test]
fn compressed_bag_is_read_exactly() {
    check("mcap_zstd_small", 1);
}

#[test]
fn split_bag_is_read_exactly() {
    check("mcap_split3", 3);
}
