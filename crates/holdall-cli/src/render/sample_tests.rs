//! A bag for the tests of what is shown of one.

use holdall::reader::{AccountSource, BagState, BagSummary, Condition, LostByTopic};
use holdall_model::{
    metadata::{BagMetadata, TopicWithMessageCount},
    time::Timestamp,
    topic::TopicInfo,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

fn topic(name: &str, type_name: &str, message_count: u64) -> TopicWithMessageCount {
    TopicWithMessageCount {
        topic_metadata: TopicInfo {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        },
        message_count,
    }
}

fn metadata() -> BagMetadata {
    BagMetadata {
        storage_identifier: "mcap".to_owned(),
        duration: Duration::from_nanos(2_590_000_997),
        starting_time: Some(Timestamp::from_nanos(1_700_000_000_000_000_003)),
        message_count: 291,
        topics_with_message_count: vec![
            topic("/imu/data", "sensor_msgs/msg/Imu", 260),
            topic(
                "/add/_service_event",
                "example_interfaces/srv/AddTwoInts_Event",
                3,
            ),
            topic("/chatter", "std_msgs/msg/String", 28),
        ],
        relative_file_paths: vec!["lab_0.mcap".to_owned(), "lab_1.mcap".to_owned()],
        ..BagMetadata::default()
    }
}

fn state(lost: LostByTopic) -> BagState {
    BagState {
        condition: Condition::Complete,
        source: AccountSource::LastFile,
        account: None,
        lost: Some(lost),
        missing_files: Vec::new(),
        ends: BTreeMap::new(),
        writer: None,
    }
}

pub fn summary(lost: LostByTopic) -> BagSummary {
    BagSummary {
        metadata: metadata(),
        bytes: 143_269,
        state: state(lost),
        contents: None,
        publishers: Vec::new(),
        undefined: Vec::new(),
        markers: Vec::new(),
        episodes: Vec::new(),
        clock_jumps: Vec::new(),
        duration_without_jumps: None,
        attachments: Vec::new(),
        attachments_damage: None,
        unheard_services: BTreeSet::new(),
        not_heard: BTreeSet::new(),
        repeated: BTreeMap::new(),
        encrypted: false,
    }
}

/// A bag without topics.
pub fn metadata_without_topics() -> BagMetadata {
    BagMetadata {
        storage_identifier: "mcap".to_owned(),
        ..BagMetadata::default()
    }
}
