//! Shows that metadata of every version is read, and that version 9 is written as rosbag2 writes it, byte for
//! byte.

use holdall_model::{
    metadata::{BagMetadata, FileInformation, MetadataError, TopicWithMessageCount},
    qos::{Durability, History, QosDuration, QosProfile, Reliability},
    time::Timestamp,
    topic::{TopicInfo, TopicOrigin},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, time::Duration};

const SAMPLES: [&str; 3] = [
    include_str!("data/metadata/mcap_default.yaml"),
    include_str!("data/metadata/mcap_split3.yaml"),
    include_str!("data/metadata/sqlite3_message_zstd.yaml"),
];
const VERSION_5: &str = include_str!("data/metadata/version5_sorted.yaml");

#[test]
fn real_bags_read_and_write_to_the_same_bytes() {
    for sample in SAMPLES {
        assert_eq!(BagMetadata::from_yaml(sample).unwrap().to_yaml(), sample);
    }
}

#[test]
fn a_real_bag_is_understood() {
    let metadata = BagMetadata::from_yaml(SAMPLES[1]).unwrap();
    assert_eq!(metadata.version, 9);
    assert_eq!(
        metadata.starting_time,
        Some(Timestamp::from_nanos(1_700_000_000_000_000_003))
    );
    assert_eq!(metadata.duration, Duration::from_nanos(2_590_000_997));
    assert_eq!(
        metadata.ending_time(),
        Some(Timestamp::from_nanos(1_700_000_002_590_001_000))
    );
    assert_eq!(metadata.message_count, 288);
    assert_eq!(metadata.files.len(), 3);
    assert_eq!(metadata.files[2].message_count, 65);
    let latched = &metadata.topics_with_message_count[1].topic_metadata;
    assert_eq!(latched.name, "/map/latched");
    assert_eq!(
        latched.offered_qos_profiles[0].durability,
        Durability::TransientLocal
    );
    assert_eq!(metadata.custom_data["origin"], "peer_bench");
    assert_eq!(metadata.ros_distro.as_deref(), Some("jazzy"));
}

#[test]
fn the_form_inside_storage_files_has_no_top_key() {
    let metadata = BagMetadata::from_yaml(SAMPLES[0]).unwrap();
    let inner = metadata.to_yaml_without_wrapper();
    assert!(
        inner.starts_with("version: 9\nstorage_identifier: mcap\nduration:\n  nanoseconds: 1190000997\n")
    );
    assert_eq!(BagMetadata::from_yaml(&inner).unwrap(), metadata);
    let indented: Vec<_> = inner.lines().map(|line| format!("  {line}")).collect();
    assert_eq!(
        format!("rosbag2_bagfile_information:\n{}", indented.join("\n")),
        SAMPLES[0]
    );
}

#[test]
fn an_empty_bag_is_written_as_rosbag2_opens_a_file() {
    let metadata = BagMetadata {
        storage_identifier: "mcap".to_owned(),
        relative_file_paths: vec!["mcap_default_0.mcap".to_owned()],
        files: vec![FileInformation {
            path: "mcap_default_0.mcap".to_owned(),
            ..FileInformation::default()
        }],
        custom_data: BTreeMap::from([("origin".to_owned(), "peer_bench".to_owned())]),
        ros_distro: Some("jazzy".to_owned()),
        ..BagMetadata::default()
    };
    // The first `serialized_metadata` of mcap_default_0.mcap, written by rosbag2 (Jazzy).
    let expected = "version: 9\nstorage_identifier: mcap\nduration:\n  nanoseconds: 0\nstarting_time:\n  \
        nanoseconds_since_epoch: 9223372036854775807\nmessage_count: 0\ntopics_with_message_count:\n  []\n\
        compression_format: \"\"\ncompression_mode: \"\"\nrelative_file_paths:\n  - mcap_default_0.mcap\nfiles:\n  \
        - path: mcap_default_0.mcap\n    starting_time:\n      nanoseconds_since_epoch: 9223372036854775807\n    \
        duration:\n      nanoseconds: 0\n    message_count: 0\ncustom_data:\n  origin: peer_bench\nros_distro: jazzy";
    assert_eq!(metadata.to_yaml_without_wrapper(), expected);
    assert_eq!(BagMetadata::from_yaml(expected).unwrap(), metadata);
    let without_custom_data = BagMetadata {
        custom_data: BTreeMap::new(),
        ..metadata
    };
    assert!(
        without_custom_data
            .to_yaml()
            .ends_with("  custom_data: ~\n  ros_distro: jazzy")
    );
}

#[test]
fn a_sorted_single_quoted_version_5_is_read() {
    let metadata = BagMetadata::from_yaml(VERSION_5).unwrap();
    assert_eq!(metadata.version, 5);
    let topic = &metadata.topics_with_message_count[0];
    assert_eq!(topic.topic_metadata.type_name, "std_msgs/msg/String");
    let qos = topic.topic_metadata.offered_qos_profiles[0];
    assert_eq!(
        (qos.history, qos.reliability),
        (History::Unknown, Reliability::Reliable)
    );
    assert_eq!(qos.deadline, QosDuration::INFINITE);
    assert_eq!(metadata.files[0].path, "talker_0.db3");
    assert!(metadata.custom_data.is_empty() && metadata.ros_distro.is_none());
    assert_eq!(topic.topic_metadata.type_description_hash, "");
}

#[test]
fn version_1_has_no_later_keys_and_paths_below_its_folder() {
    let text = "rosbag2_bagfile_information:\n  version: 1\n  storage_identifier: sqlite3\n  \
        relative_file_paths:\n    - talker/talker_0.db3\n  duration:\n    nanoseconds: 5\n  \
        starting_time:\n    nanoseconds_since_epoch: 7\n  message_count: 2\n  topics_with_message_count:\n    \
        - topic_metadata:\n        name: /chatter\n        type: std_msgs/msg/String\n        \
        serialization_format: cdr\n      message_count: 2\n";
    let metadata = BagMetadata::from_yaml(text).unwrap();
    assert_eq!(metadata.relative_file_paths, ["talker_0.db3"]);
    assert_eq!(metadata.topics_with_message_count[0].message_count, 2);
    assert!(metadata.files.is_empty() && metadata.compression_format.is_empty());
    // As in rosbag2's own test bags: one from before Crystal, and one of version 4 from before Foxy.
    let version_4 =
        text.replace("version: 1", "version: 4") + "  compression_format: \"\"\n  compression_mode: \"\"\n";
    for old in [
        text.replace("topic_metadata:", "topic_and_type:"),
        version_4.clone(),
    ] {
        let metadata = BagMetadata::from_yaml(&old).unwrap();
        assert_eq!(
            metadata.topics_with_message_count[0].topic_metadata.name,
            "/chatter"
        );
    }
    let version_5 = version_4.replace("version: 4", "version: 5");
    let error = BagMetadata::from_yaml(&version_5).unwrap_err().to_string();
    assert!(error.contains("offered_qos_profiles is missing"), "{error}");
}

/// How a value is written: maps in the order of a seed.
#[derive(Clone, Copy)]
struct Spelling {
    seed: u64,
    quotes: Option<char>,
    flow: bool,
}

impl Spelling {
    fn scalar(self, value: &serde_json::Value) -> String {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            other => return other.to_string(),
        };
        match self.quotes {
            Some('\'') if !text.contains('\n') => format!("'{}'", text.replace('\'', "''")),
            None if !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "/_.".contains(c)) => {
                text
            }
            // JSON's texts are YAML's double-quoted ones.
            _ => serde_json::Value::String(text).to_string(),
        }
    }

    /// Keys in a specific order at each level.
    fn order(self, map: &serde_json::Map<String, serde_json::Value>) -> Vec<(&String, &serde_json::Value)> {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by_key(|(key, _)| {
            let start = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            key.bytes().fold(start, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        });
        entries
    }

    fn key(self, key: &str) -> String {
        self.quotes
            .map_or_else(|| key.to_owned(), |quote| format!("{quote}{key}{quote}"))
    }

    fn in_flow(self, value: &serde_json::Value) -> String {
        match value {
            serde_json::Value::Object(map) => {
                let entries: Vec<String> = self
                    .order(map)
                    .into_iter()
                    .map(|(key, value)| format!("{}: {}", self.key(key), self.in_flow(value)))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
            serde_json::Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.in_flow(item)).collect();
                format!("[{}]", items.join(", "))
            }
            scalar => self.scalar(scalar),
        }
    }

    fn block(self, value: &serde_json::Value, indent: usize) -> String {
        let pad = " ".repeat(indent);
        match value {
            serde_json::Value::Object(map) if !map.is_empty() => self
                .order(map)
                .into_iter()
                .map(|(key, value)| format!("\n{pad}{}:{}", self.key(key), self.block(value, indent + 2)))
                .collect(),
            serde_json::Value::Array(items) if !items.is_empty() => items
                .iter()
                .map(|item| {
                    let text = self.block(item, indent + 2);
                    format!(
                        "\n{pad}-{}",
                        text.strip_prefix(&format!("\n{pad} ")).unwrap_or(&text)
                    )
                })
                .collect(),
            other => format!(" {}", self.in_flow(other)),
        }
    }

    fn document(self, value: &serde_json::Value) -> String {
        if self.flow {
            self.in_flow(value)
        } else {
            self.block(value, 0)
        }
    }
}

/// The metadata that this version of rosbag2 would have written for a bag with one topic.
fn of_version(version: u64) -> serde_json::Value {
    let qos_4 = "- history: 3\n  depth: 7\n  reliability: 2\n  durability: 1\n  deadline:\n    sec: 9223372036\n    nsec: 854775807\n  \
        lifespan:\n    sec: 1\n    nsec: 5\n  liveliness: 1\n  liveliness_lease_duration:\n    sec: 9223372036\n    nsec: 854775807\n  \
        avoid_ros_namespace_conventions: false";
    let infinite = serde_json::json!({"sec": 9_223_372_036_u64, "nsec": 854_775_807});
    let qos_9 = serde_json::json!([{
        "history": "unknown", "depth": 7, "reliability": "best_effort", "durability": "transient_local", "deadline": infinite,
        "lifespan": {"sec": 1, "nsec": 5}, "liveliness": "automatic", "liveliness_lease_duration": infinite,
        "avoid_ros_namespace_conventions": false
    }]);
    let mut topic =
        serde_json::json!({"name": "/it's", "type": "std_msgs/msg/String", "serialization_format": "cdr"});
    let mut bag = serde_json::json!({
        "version": version, "storage_identifier": "sqlite3", "duration": {"nanoseconds": 5},
        "starting_time": {"nanoseconds_since_epoch": 7}, "message_count": 2,
        "relative_file_paths": [if version <= 3 { "talker/talker_0.db3" } else { "talker_0.db3" }]
    });
    match version {
        4..9 => topic["offered_qos_profiles"] = qos_4.into(),
        9.. => topic["offered_qos_profiles"] = qos_9,
        _ => {}
    }
    if version >= 7 {
        topic["type_description_hash"] = format!("RIHS01_{}", "ab".repeat(32)).into();
    }
    bag["topics_with_message_count"] = serde_json::json!([{"topic_metadata": topic, "message_count": 2}]);
    if version >= 3 {
        (bag["compression_format"], bag["compression_mode"]) = ("zstd".into(), "FILE".into());
    }
    if version >= 5 {
        bag["files"] = serde_json::json!([{"path": "talker_0.db3", "starting_time": {"nanoseconds_since_epoch": 7},
            "duration": {"nanoseconds": 5}, "message_count": 2}]);
    }
    if version >= 6 {
        bag["custom_data"] = serde_json::json!({"a key": "a: value", "empty": ""});
    }
    if version >= 8 {
        bag["ros_distro"] = "jazzy".into();
    }
    serde_json::json!({"rosbag2_bagfile_information": bag})
}

#[test]
fn every_version_is_read_in_every_key_order_and_quoting() {
    for version in 1..=9 {
        let said = of_version(version);
        let mut first: Option<BagMetadata> = None;
        for (seed, quotes, flow) in (0..12).flat_map(|seed| {
            [None, Some('\''), Some('"')]
                .into_iter()
                .flat_map(move |quotes| [(seed, quotes, false), (seed, quotes, true)])
        }) {
            let text = Spelling { seed, quotes, flow }.document(&said);
            let found = BagMetadata::from_yaml(&text)
                .unwrap_or_else(|error| panic!("version {version}: {error}\n{text}"));
            assert_eq!(found.relative_file_paths, ["talker_0.db3"], "version {version}");
            assert_eq!((u64::from(found.version), found.message_count), (version, 2));
            let topic = &found.topics_with_message_count[0].topic_metadata;
            assert_eq!(topic.name, "/it's");
            if version >= 4 {
                let qos = topic.offered_qos_profiles[0];
                assert_eq!(
                    (qos.depth, qos.reliability),
                    (7, Reliability::BestEffort),
                    "version {version}"
                );
                assert_eq!(
                    (qos.history, qos.deadline),
                    (History::Unknown, QosDuration::INFINITE)
                );
            }
            assert_eq!(found.compression_mode, if version >= 3 { "FILE" } else { "" });
            assert_eq!(found.files.len(), usize::from(version >= 5));
            assert_eq!(
                found.custom_data.get("a key").map(String::as_str),
                (version >= 6).then_some("a: value")
            );
            assert_eq!(
                topic.type_description_hash.len(),
                if version >= 7 { 71 } else { 0 }
            );
            assert_eq!(found.ros_distro.as_deref(), (version >= 8).then_some("jazzy"));
            assert_eq!(&found, first.get_or_insert_with(|| found.clone()), "{text}");
        }
    }
}

#[test]
fn damaged_metadata_is_refused_with_the_line() {
    let error = |text: &str| BagMetadata::from_yaml(text).unwrap_err().to_string();
    assert_eq!(
        error(""),
        "cannot read bag metadata: line 1: the key version is missing"
    );
    assert_eq!(
        error("just text"),
        "cannot read bag metadata: line 1: expected a map, found \"just text\""
    );
    let cut = &SAMPLES[0][..SAMPLES[0].len() / 2];
    assert!(BagMetadata::from_yaml(cut).is_err());
    let wrong = SAMPLES[0].replace(
        "  message_count: 133\n  topics",
        "  message_count: many\n  topics",
    );
    assert_eq!(
        error(&wrong),
        "cannot read bag metadata: line 8: expected a whole number in range, found \"many\""
    );
    let zero = SAMPLES[0].replace("version: 9", "version: 0");
    assert_eq!(
        BagMetadata::from_yaml(&zero).unwrap_err(),
        MetadataError::Version { found: 0 }
    );
}

#[test]
fn json_has_the_names_of_rosbag2() {
    let metadata = BagMetadata::from_yaml(SAMPLES[0]).unwrap();
    let json = serde_json::to_value(&metadata).unwrap();
    assert_eq!(json["message_count"], 133);
    assert_eq!(
        json["starting_time"]["nanoseconds_since_epoch"],
        1_700_000_000_000_000_003_i64
    );
    assert_eq!(json["duration"]["nanoseconds"], 1_190_000_997);
    let topic = &json["topics_with_message_count"][2];
    assert_eq!(topic["topic_metadata"]["type"], "sensor_msgs/msg/Imu");
    assert_eq!(
        topic["topic_metadata"]["offered_qos_profiles"][0]["reliability"],
        "best_effort"
    );
    assert_eq!(serde_json::from_value::<BagMetadata>(json).unwrap(), metadata);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        "[ -~\\n\\t]{0,12}",
        "[a-z]{1000,1100}",
        Just(String::new())
    ]
}

fn any_time() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of((i64::MIN..i64::MAX).prop_map(Timestamp::from_nanos))
}

fn any_span() -> impl Strategy<Value = Duration> {
    (0..=i64::MAX as u64).prop_map(Duration::from_nanos)
}

prop_compose! {
    fn any_topic()(name in any_text(), type_name in any_text(), format in any_text(), hash in any_text(),
                   depths in prop::collection::vec(any::<u64>(), 0..3), message_count: u64) -> TopicWithMessageCount {
        TopicWithMessageCount {
            topic_metadata: TopicInfo {
                name, type_name, serialization_format: format, type_description_hash: hash,
                origin: (depths.len() == 1).then(|| TopicOrigin {
                    transport: "iceoryx2".to_owned(), details: BTreeMap::from([("service".to_owned(), "a: \"b\"".to_owned())]),
                }),
                offered_qos_profiles: depths.into_iter().map(|depth| QosProfile { depth, ..QosProfile::ROS_DEFAULT }).collect(),
                publisher: None,
            },
            message_count,
        }
    }
}

prop_compose! {
    fn any_file()(path in any_text(), starting_time in any_time(), duration in any_span(), message_count: u64) -> FileInformation {
        FileInformation { path, starting_time, duration, message_count }
    }
}

prop_compose! {
    fn any_metadata()(
        storage_identifier in any_text(), duration in any_span(), starting_time in any_time(), message_count: u64,
        topics_with_message_count in prop::collection::vec(any_topic(), 0..3),
        compression_format in any_text(), compression_mode in any_text(),
        relative_file_paths in prop::collection::vec(any_text(), 0..3),
        files in prop::collection::vec(any_file(), 0..3),
        custom_data in prop::collection::btree_map(any_text(), any_text(), 0..3),
        ros_distro in proptest::option::of(any_text().prop_filter("empty is unset", |text| !text.is_empty())),
    ) -> BagMetadata {
        BagMetadata {
            version: 9, storage_identifier, duration, starting_time, message_count, topics_with_message_count,
            compression_format, compression_mode, relative_file_paths, files, custom_data, ros_distro,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_metadata_survives_the_round_trip_through_text(metadata in any_metadata()) {
        prop_assert_eq!(&BagMetadata::from_yaml(&metadata.to_yaml()).unwrap(), &metadata);
        prop_assert_eq!(&BagMetadata::from_yaml(&metadata.to_yaml_without_wrapper()).unwrap(), &metadata);
    }

    #[test]
    fn a_damaged_text_never_panics(cut in 0usize..4000, replacement in "[ \\n:\\[\\]{}&*'\"~-]{0,3}") {
        let sample = SAMPLES[0];
        let at = cut.min(sample.len());
        let _ = BagMetadata::from_yaml(&format!("{}{replacement}{}", &sample[..at], &sample[at..]));
        let _ = BagMetadata::from_yaml(&sample[..at]);
    }
}
