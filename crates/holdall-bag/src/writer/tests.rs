//! Tests of the bag writer: any sequence of messages and splits comes back whole from an independent reader.

use super::*;
use crate::writer::{CompressionMode, CompressionOptions, SplitOptions};
use holdall_io::{block::BlockPoolOptions, disk::Operation, hold::Hold, os::DiskMode};
use holdall_model::{
    file_class::{FileClasses, RingLimit},
    lake::{LakeBag, LakeFile},
    message::PayloadRef,
    metadata::BagMetadata,
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use holdall_storage::{
    StorageOptions, storage_by_id,
    writer::{ChannelInfo, StoredMessage},
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

const BLOCKS: BlockPoolOptions = BlockPoolOptions {
    block_bytes: 64 << 10,
    block_count: 4,
    huge_pages: false,
};

fn bag(directory: &Path, split: SplitOptions) -> BagWriter {
    compressed_bag(directory, split, CompressionMode::None)
}

fn compressed_bag(directory: &Path, split: SplitOptions, mode: CompressionMode) -> BagWriter {
    bag_in(directory, split, mode, Box::<OsFolder>::default())
}

fn bag_in(
    directory: &Path,
    split: SplitOptions,
    mode: CompressionMode,
    folder: Box<dyn BagFolder>,
) -> BagWriter {
    let options = BagOptions {
        directory: directory.to_owned(),
        storage: storage_by_id("mcap").unwrap(),
        storage_options: StorageOptions::default(),
        split,
        compression: CompressionOptions {
            mode,
            ..CompressionOptions::default()
        },
        custom_data: BTreeMap::new(),
        ros_distro: None,
        memory: None,
    };
    BagWriter::create(options, os_disk(DiskMode::Buffered, BLOCKS), folder).unwrap()
}

fn channel(name: &str) -> ChannelInfo {
    let topic = TopicInfo {
        name: name.to_owned(),
        type_name: "std_msgs/msg/String".to_owned(),
        serialization_format: "cdr".to_owned(),
        ..TopicInfo::default()
    };
    let definition = MessageDefinition {
        type_name: topic.type_name.clone(),
        ..MessageDefinition::default()
    };
    ChannelInfo { topic, definition }
}

fn message(log_time: i64, payload: &[u8]) -> StoredMessage<'_> {
    let log_time = Timestamp::from_nanos(log_time);
    StoredMessage {
        log_time,
        publish_time: log_time,
        sequence: 0,
        payload: PayloadRef::Bytes(payload),
    }
}

/// Topic, log time and payload of all messages in the order of the files.
fn read(files: &[std::path::PathBuf]) -> Vec<(String, i64, Vec<u8>)> {
    let mut all = Vec::new();
    for file in files {
        let bytes = fs::read(file).unwrap();
        for message in mcap::MessageStream::new(&bytes).unwrap() {
            let message = message.unwrap();
            all.push((
                message.channel.topic.clone(),
                message.log_time as i64,
                message.data.to_vec(),
            ));
        }
    }
    all
}

#[derive(Clone, Debug)]
enum Act {
    Write { topic: usize, len: usize, after: i64 },
    AddTopic,
    Split,
    Step,
    MakeDurable,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        20 => (0..6usize, 0..4000usize, -5..50i64).prop_map(|(topic, len, after)| Act::Write { topic, len, after }),
        1 => Just(Act::AddTopic),
        1 => Just(Act::Split),
        2 => Just(Act::Step),
        1 => Just(Act::MakeDurable),
    ];
    prop::collection::vec(act, 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_comes_back_in_order(
        acts in acts(),
        bytes_max in prop::option::of(10_000..60_000u64),
        duration in prop::option::of(20..800u64),
        separate in prop::sample::select(vec!["", "/t1", "/t[02]"]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let separate: Vec<String> = Some(separate.to_owned()).filter(|pattern| !pattern.is_empty()).into_iter().collect();
        let classes = FileClasses::new(&separate, &[]).unwrap();
        let split = SplitOptions {
            bytes_max,
            duration_max: duration.map(Duration::from_nanos),
            classes: classes.clone(),
            ..SplitOptions::default()
        };
        let mut bag = bag(&dir.path().join("b"), split);
        let mut topics = vec![bag.add_topic(channel("/t0")).unwrap()];
        let (mut expected, mut now) = (Vec::new(), 1000);
        for (number, act) in acts.iter().enumerate() {
            match *act {
                Act::Write { topic, len, after } => {
                    now += after;
                    let topic = topic % topics.len();
                    let payload = vec![number as u8; len];
                    bag.write(topics[topic], message(now, &payload)).unwrap();
                    expected.push((format!("/t{topic}"), now, payload));
                }
                Act::AddTopic => {
                    topics.push(bag.add_topic(channel(&format!("/t{}", topics.len()))).unwrap());
                }
                Act::Split => bag.split().unwrap(),
                Act::Step => bag.step().unwrap(),
                Act::MakeDurable => {
                    bag.make_durable().unwrap();
                }
            }
        }
        let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
        prop_assert!(closed.failure.is_none(), "{:?}", closed.failure);
        // Each class by itself, in its order.
        let class = |topic: &str| classes.of(topic, "std_msgs/msg/String");
        for number in 0..classes.count() {
            let is_of_class = |topic: &str| class(topic) == number;
            let head = match classes.name(number) {
                "" => "b_".to_owned(),
                name => format!("b_{name}_"),
            };
            let is_its = |file: &std::path::PathBuf| {
                let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
                stem.trim_end_matches(|letter: char| letter.is_ascii_digit()) == head
            };
            let files: Vec<_> = closed.files.iter().filter(|file| is_its(file)).cloned().collect();
            let of_class: Vec<_> = expected.iter().filter(|message| is_of_class(&message.0)).cloned().collect();
            prop_assert_eq!(read(&files), of_class);
        }
        let text = fs::read_to_string(closed.directory.join("metadata.yaml")).unwrap();
        let metadata = BagMetadata::from_yaml(&text).unwrap();
        prop_assert_eq!(metadata.message_count, expected.len() as u64);
        prop_assert_eq!(metadata.starting_time.map(Timestamp::as_nanos), expected.iter().map(|e| e.1).min());
        for (index, topic) in metadata.topics_with_message_count.iter().enumerate() {
            let name = format!("/t{index}");
            prop_assert_eq!(&topic.topic_metadata.name, &name);
            prop_assert_eq!(topic.message_count, expected.iter().filter(|e| e.0 == name).count() as u64);
        }
        prop_assert_eq!(fs::read_dir(&closed.directory).unwrap().count(), closed.files.len() + 1);
    }
}

/// Payload bytes by topic, and the span, of a file as an independent reader finds them.
fn lake_file(file: &std::path::PathBuf) -> LakeFile {
    let messages = read(std::slice::from_ref(file));
    let mut topics = BTreeMap::<String, u64>::new();
    for (topic, _, payload) in &messages {
        *topics.entry(topic.clone()).or_default() += payload.len() as u64;
    }
    let times = || messages.iter().map(|(_, time, _)| *time);
    let span = times().max().unwrap_or(0) - times().min().unwrap_or(0);
    LakeFile {
        span: Duration::from_nanos(span.unsigned_abs()),
        topics: topics.into_iter().collect(),
        ..LakeFile::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_topic_with_too_many_bytes_a_second_shares_no_file_wherever_it_ends(
        messages in prop::collection::vec((0..5usize, 0..2u64, -20..200i64, prop::option::of(0..2usize)), 1..200),
        seconds in prop::option::of(1..20u64),
        bytes_max in prop::option::of(1_000_000..9_000_000u64),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let split = SplitOptions {
            bytes_max,
            duration_max: seconds.map(Duration::from_secs),
            classes: FileClasses::new(&["/t1|/t3".to_owned()], &[]).unwrap(),
            shared_bytes_per_second_max: Some(1_000_000),
            ..SplitOptions::default()
        };
        let mut bag = bag(&dir.path().join("b"), split);
        // Two of one name, which have different types.
        let topics = ["/t0", "/t1", "/t2", "/t3", "/t0"].map(|name| bag.add_topic(channel(name)).unwrap());
        // From nearly nothing to more than a file may have in a second.
        let blob = vec![7; 1_200_000];
        let (mut expected, mut now) = (Vec::new(), 1_000_000_000_000);
        for (topic, size, after, more) in messages {
            now += after * 10_000_000;
            let bytes = [10, 60_000 * (topic + 1)][size as usize] + more.map_or(0, |more| more * 900_000);
            let bytes = bytes.min(blob.len());
            bag.write(topics[topic], message(now, &blob[..bytes])).unwrap();
            expected.push((format!("/t{}", topic % 4), now, bytes));
        }
        let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
        prop_assert!(closed.failure.is_none(), "{:?}", closed.failure);
        let mut found: Vec<_> = read(&closed.files).into_iter().map(|(topic, time, payload)| (topic, time, payload.len())).collect();
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
        let lake = LakeBag { files: closed.files.iter().map(lake_file).collect(), ..LakeBag::default() };
        prop_assert!(lake.judge().faults.iter().all(|fault| fault.rule != "separation"), "{:?}", lake.files);
    }
}

#[test]
fn topics_that_leave_others_are_named_and_those_beyond_the_bound_stay() {
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        shared_bytes_per_second_max: Some(1000),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    let topics: Vec<BagTopic> = (0..10)
        .map(|number| bag.add_topic(channel(&format!("/front/{number}"))).unwrap())
        .collect();
    for (now, topic) in (1..).zip(topics.iter().chain(&topics)) {
        bag.write(*topic, message(now, &[7; 2000])).unwrap();
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    let topics_of = |file: &std::path::PathBuf| -> BTreeSet<String> {
        read(std::slice::from_ref(file))
            .into_iter()
            .map(|(topic, ..)| topic)
            .collect()
    };
    let (shared, alone): (Vec<_>, Vec<_>) = closed.files.iter().partition(|file| file.ends_with("b_0.mcap"));
    assert_eq!((shared.len(), topics_of(shared[0]).len()), (1, 2));
    assert_eq!(alone.len(), 8);
    for file in alone {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let topic = topics_of(file).into_iter().next().unwrap();
        assert!(
            name.starts_with(&format!("b{}_", topic.replace('/', "_"))),
            "{topic} is in {name}"
        );
    }
}

#[test]
fn a_clock_that_is_set_back_lets_no_slow_topic_leave() {
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        shared_bytes_per_second_max: Some(1000),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    let topics = ["/a", "/b"].map(|name| bag.add_topic(channel(name)).unwrap());
    // 500 bytes a second of each, for a minute, and again from half a minute before the beginning.
    for second in (60..120).chain(30..90) {
        for topic in topics {
            bag.write(topic, message(second * 1_000_000_000, &[7; 500]))
                .unwrap();
        }
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert_eq!(closed.files.len(), 1, "{:?}", closed.files);
}

#[test]
fn the_shared_file_of_a_topic_that_has_left_gets_its_definition_too() {
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        shared_bytes_per_second_max: Some(1000),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    let (unknown, definition) = (channel("/t"), "string data\n".to_owned());
    let topic = bag.add_topic(unknown.clone()).unwrap();
    bag.write(topic, message(1, &[7; 600])).unwrap();
    bag.write(topic, message(2, &[7; 600])).unwrap();
    let known = MessageDefinition {
        text: definition.clone(),
        ..unknown.definition
    };
    assert!(bag.set_definition(topic, known).is_some());
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert_eq!(closed.files.len(), 2, "{:?}", closed.files);
    for file in &closed.files {
        let bytes = fs::read(file).unwrap();
        let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
        let schemas = summary.schemas.values();
        let texts: Vec<_> = schemas
            .map(|schema| String::from_utf8_lossy(&schema.data).into_owned())
            .collect();
        assert!(texts.contains(&definition), "{}: {texts:?}", file.display());
    }
}

#[test]
fn the_same_metadata_is_in_the_file_as_rosbag2_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut bag = bag(&dir.path().join("b"), SplitOptions::default());
    let topic = bag.add_topic(channel("/t")).unwrap();
    bag.write(topic, message(5, b"x")).unwrap();
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    let bytes = fs::read(&closed.files[0]).unwrap();
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let records: Vec<BagMetadata> = summary
        .metadata_indexes
        .iter()
        .filter(|index| index.name == "rosbag2")
        .map(|index| {
            let record = mcap::read::metadata(&bytes, index).unwrap();
            BagMetadata::from_yaml(&record.metadata["serialized_metadata"]).unwrap()
        })
        .collect();
    let counts: Vec<_> = records.iter().map(|metadata| metadata.message_count).collect();
    assert_eq!(counts, [0, 1], "once at open, once at close");
    assert_eq!(records[1].relative_file_paths, ["b_0.mcap"]);
}

#[test]
fn a_definition_that_comes_late_is_in_later_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut bag = bag(&dir.path().join("b"), SplitOptions::default());
    let topic = bag.add_topic(channel("/t")).unwrap();
    bag.write(topic, message(5, b"x")).unwrap();
    bag.set_definition(
        topic,
        MessageDefinition {
            type_name: "std_msgs/msg/String".to_owned(),
            encoding: holdall_model::topic::DefinitionEncoding::Ros2Msg,
            text: "string data\n".to_owned(),
            type_description_hash: String::new(),
        },
    );
    bag.split().unwrap();
    bag.write(topic, message(6, b"y")).unwrap();
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    // The first file keeps the channel without a definition; a second one in it may have the definition.
    let encodings: Vec<BTreeSet<String>> = closed
        .files
        .iter()
        .map(|file| {
            let summary = mcap::Summary::read(&fs::read(file).unwrap()).unwrap().unwrap();
            let schemas = summary.channels.values().map(|channel| channel.schema.as_ref());
            schemas
                .map(|schema| schema.map_or_else(String::new, |schema| schema.encoding.clone()))
                .collect()
        })
        .collect();
    assert_eq!(encodings[1], BTreeSet::from(["ros2msg".to_owned()]));
    assert!(
        encodings[0].iter().any(|encoding| encoding != "ros2msg"),
        "{encodings:?}"
    );
}

#[test]
fn closed_files_are_packed_and_only_the_list_of_paths_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b");
    let split = SplitOptions {
        files_max: Some(3),
        ..SplitOptions::default()
    };
    let mut bag = compressed_bag(&path, split, CompressionMode::File);
    let topic = bag.add_topic(channel("/t")).unwrap();
    for n in 0..5 {
        bag.write(topic, message(n, &[n as u8; 4000])).unwrap();
        if n < 4 {
            bag.split().unwrap();
        }
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert!(closed.failure.is_none(), "{:?}", closed.failure);
    let mut names: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let packed = ["b_2.mcap.zstd", "b_3.mcap.zstd", "b_4.mcap.zstd"];
    assert_eq!(names[..3], packed);
    assert_eq!(names[3..], ["metadata.yaml"]);
    let text = fs::read_to_string(path.join("metadata.yaml")).unwrap();
    let metadata = BagMetadata::from_yaml(&text).unwrap();
    assert_eq!(metadata.relative_file_paths, packed);
    let paths: Vec<_> = metadata.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["b_2.mcap", "b_3.mcap", "b_4.mcap"]);
    let compression = (&*metadata.compression_format, &*metadata.compression_mode);
    assert_eq!(compression, ("zstd", "FILE"));
    let reader = crate::reader::Bag::open(&path).unwrap();
    let messages = crate::reader::BagSet::from(vec![reader]).messages(&Default::default());
    let found: Vec<_> = messages.map(|message| message.unwrap().payload[0]).collect();
    assert_eq!(found, [2, 3, 4]);
}

#[test]
fn messages_that_depend_on_each_other_are_in_one_file_that_is_not_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        bytes_max: Some(20_000),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    let topic = bag.add_topic(channel("/a")).unwrap();
    let mut begun = 0;
    for time in 0..200 {
        let place = time % 5;
        bag.keep_together(Some(if place == 0 { 5_000 } else { 0 }));
        let is_begun = bag.write(topic, message(time, &[7; 1_000])).unwrap();
        assert!(place == 0 || !is_begun, "at {time}");
        begun += u32::from(is_begun);
    }
    bag.keep_together(None);
    assert!(begun > 10);
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    let lengths = closed.files.iter().map(|file| fs::metadata(file).unwrap().len());
    assert!(lengths.max().unwrap() <= 20_000);
}

/// 300 topics, only one with messages: files of 60 kB consist of messages, not of the repeated records.
#[test]
fn short_files_are_not_filled_with_what_they_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        bytes_max: Some(60_000),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    let topics: Vec<_> = (0..300)
        .map(|n| bag.add_topic(channel(&format!("/t{n}"))).unwrap())
        .collect();
    for n in 0..1_000 {
        bag.write(topics[7], message(n, &[n as u8; 1_000])).unwrap();
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert!(closed.failure.is_none(), "{:?}", closed.failure);
    assert!(
        (17..30).contains(&closed.files.len()),
        "{} files",
        closed.files.len()
    );
    let bytes: u64 = closed
        .files
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    assert!(bytes < 1_300_000, "{bytes} bytes for 1 000 000 of messages");
    let text = fs::read_to_string(dir.path().join("b/metadata.yaml")).unwrap();
    let metadata = BagMetadata::from_yaml(&text).unwrap();
    assert_eq!(
        metadata.topics_with_message_count.len(),
        300,
        "the bag knows them all"
    );
}

/// Counts the texts that the folder replaces, and their bytes.
#[derive(Default)]
struct CountingFolder {
    folder: OsFolder,
    texts: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl BagFolder for CountingFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        self.folder.create_new(directory)
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        self.texts.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(text.len(), Ordering::Relaxed);
        self.folder.replace_text(path, text, durable)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.folder.remove_file(path)
    }
}

/// Texts that a bag of 2 000 topics and 41 files replaces, and their bytes; and what it states about itself.
fn texts_of_many_files(is_unseen: bool) -> (usize, usize, BagMetadata) {
    let dir = tempfile::tempdir().unwrap();
    let folder = CountingFolder::default();
    let (texts, bytes) = (Arc::clone(&folder.texts), Arc::clone(&folder.bytes));
    let path = dir.path().join("b");
    let mut bag = bag_in(
        &path,
        SplitOptions::default(),
        CompressionMode::None,
        Box::new(folder),
    );
    if is_unseen {
        bag.set_unseen();
    }
    let topics: Vec<_> = (0..2_000)
        .map(|n| bag.add_topic(channel(&format!("/t{n}"))).unwrap())
        .collect();
    for n in 0..40 {
        bag.write(topics[n as usize % 7], message(n, b"text")).unwrap();
        bag.split().unwrap();
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert!(closed.failure.is_none(), "{:?}", closed.failure);
    let text = fs::read_to_string(path.join("metadata.yaml")).unwrap();
    let [texts, bytes] = [texts, bytes].map(|count| count.load(Ordering::Relaxed));
    (texts, bytes, BagMetadata::from_yaml(&text).unwrap())
}

#[test]
fn a_bag_that_nobody_sees_lists_its_topics_once_and_not_for_each_file() {
    let (texts, bytes, metadata) = texts_of_many_files(true);
    // The first one is written before the writer knows.
    assert_eq!(texts, 2);
    let (seen_texts, seen_bytes, seen) = texts_of_many_files(false);
    assert_eq!(seen_texts, 42, "what a killed recorder leaves names all files");
    assert!(seen_bytes > 30 * bytes, "{seen_bytes} and {bytes} bytes");
    assert_eq!(metadata, seen);
    assert_eq!(
        (metadata.relative_file_paths.len(), metadata.message_count),
        (41, 40)
    );
    let counts: Vec<u64> = metadata.topics_with_message_count[..8]
        .iter()
        .map(|topic| topic.message_count)
        .collect();
    assert_eq!(counts, [6, 6, 6, 6, 6, 5, 5, 0]);
}

/// Has no room for a text as long as the bag's first file exists.
struct FullFolder {
    folder: OsFolder,
    first: std::path::PathBuf,
    is_full: Arc<AtomicBool>,
}

impl BagFolder for FullFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        self.folder.create_new(directory)
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        if self.is_full.load(Ordering::Relaxed) && self.first.exists() {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(DiskError::new(path, Operation::Write, source));
        }
        self.folder.replace_text(path, text, durable)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.folder.remove_file_now(path)
    }
}

#[test]
fn a_disk_without_room_for_metadata_gets_room_by_the_oldest_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, is_full) = (dir.path().join("b"), Arc::new(AtomicBool::new(false)));
    let first = path.join("b_0.mcap");
    let folder = FullFolder {
        folder: OsFolder::default(),
        first: first.clone(),
        is_full: Arc::clone(&is_full),
    };
    let split = SplitOptions {
        bytes_max: Some(20_000),
        ..SplitOptions::default()
    };
    let mut bag = bag_in(&path, split, CompressionMode::None, Box::new(folder));
    let topic = bag.add_topic(channel("/a")).unwrap();
    for time in 0..100 {
        bag.write(topic, message(time, &[7; 1_000])).unwrap();
    }
    is_full.store(true, Ordering::Relaxed);
    while bag.remove_oldest_file().unwrap().is_none() {
        bag.step().unwrap();
    }
    assert!(!first.exists());
    let expired: u64 = bag.take_expired().iter().map(|count| count.messages).sum();
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert!(closed.failure.is_none(), "{:?}", closed.failure);
    assert_eq!(read(&closed.files).len() as u64 + expired, 100);
    let text = fs::read_to_string(path.join("metadata.yaml")).unwrap();
    let metadata = BagMetadata::from_yaml(&text).unwrap();
    assert_eq!(metadata.message_count + expired, 100);
    assert!(!text.contains("b_0.mcap"), "{text}");
}

/// Bytes of the files of a bag whose names contain a text.
fn bytes_of(bag: &Path, part: &str) -> u64 {
    let entries = fs::read_dir(bag).unwrap().map(|entry| entry.unwrap());
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().contains(part));
    // One may be removed between the two questions: the disk's thread does that.
    named
        .map(|entry| entry.metadata().map_or(0, |about| about.len()))
        .sum()
}

#[test]
fn a_ring_removes_its_oldest_files_and_neither_what_is_kept_nor_what_is_being_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b");
    let split = SplitOptions {
        bytes_max: Some(20_000),
        classes: FileClasses::new(&[], &["/kept".to_owned()]).unwrap(),
        ring: Some(RingLimit::Bytes(60_000)),
        ..SplitOptions::default()
    };
    let mut bag = bag(&path, split);
    let topics = ["/kept", "/other"].map(|name| bag.add_topic(channel(name)).unwrap());
    let mut now = 0;
    let mut write = |bag: &mut BagWriter| {
        for _ in 0..40 {
            now += 1;
            bag.write(topics[1], message(now, &[7; 4000])).unwrap();
            bag.write(topics[0], message(now, &[8; 1000])).unwrap();
            bag.wait_settled().unwrap();
        }
    };
    write(&mut bag);
    assert!(
        (20_000..=60_000).contains(&bytes_of(&path, "_ring_")),
        "{}",
        bytes_of(&path, "_ring_")
    );
    let hold = Hold::take(&path, None, None).unwrap();
    write(&mut bag);
    assert!(bytes_of(&path, "_ring_") > 160_000);
    drop(hold);
    write(&mut bag);
    let expired_until = bag.expired_until().unwrap().as_nanos() as u64;
    let expired: u64 = bag.take_expired().iter().map(|count| count.messages).sum();
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert!(closed.failure.is_none() && bytes_of(&path, "_ring_") <= 60_000);
    let found = read(&closed.files);
    let of = |name: &str| found.iter().filter(|(topic, ..)| topic == name).count() as u64;
    assert_eq!((of("/kept"), of("/other") + expired), (120, 120));
    // One message at each time from 1 on.
    assert_eq!(expired_until, expired);
}

#[test]
fn a_ring_keeps_its_span_when_the_clock_is_set_forward_and_back() {
    // It is set at 40, and again at 80.
    const SET: i64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        bytes_max: Some(20_000),
        ring: Some(RingLimit::Span(Duration::from_nanos(100))),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    bag.measure_spans_by(Arc::new(|time: Timestamp| {
        Timestamp::from_nanos(time.as_nanos() % SET)
    }));
    let topic = bag.add_topic(channel("/t")).unwrap();
    let mut expired = 0;
    for now in 1..=300 {
        let stamp = if (40..80).contains(&now) { now + SET } else { now };
        bag.write(topic, message(stamp, &[7; 4000])).unwrap();
        bag.wait_settled().unwrap();
        expired += bag.take_expired().iter().map(|count| count.messages).sum::<u64>();
        assert!(now > 100 || expired == 0, "{expired} at {now}");
    }
    let closed = bag.close(Vec::new(), None, |_| BTreeMap::new());
    assert!(closed.failure.is_none());
    let left = read(&closed.files).len() as u64;
    // The span, and not more than two files besides.
    assert!(
        left + expired == 300 && (100..115).contains(&left),
        "{left} are left"
    );
}

#[test]
fn the_last_records_are_in_the_file_with_the_highest_number() {
    let dir = tempfile::tempdir().unwrap();
    let split = SplitOptions {
        bytes_max: Some(20_000),
        classes: FileClasses::new(&["/large".to_owned()], &[]).unwrap(),
        ..SplitOptions::default()
    };
    let mut bag = bag(&dir.path().join("b"), split);
    let topics = ["/other", "/large"].map(|name| bag.add_topic(channel(name)).unwrap());
    bag.write(topics[1], message(1, &[7; 100])).unwrap();
    for now in 2..10 {
        bag.write(topics[0], message(now, &[7; 8000])).unwrap();
    }
    let closed = bag.close(vec![("last".to_owned(), BTreeMap::new())], None, |_| {
        BTreeMap::new()
    });
    assert!(closed.failure.is_none());
    let number = |file: &std::path::PathBuf| {
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        stem.rsplit('_').next().unwrap().parse::<u32>().unwrap()
    };
    let has_records = |file: &std::path::PathBuf| {
        let summary = mcap::Summary::read(&fs::read(file).unwrap()).unwrap().unwrap();
        summary.metadata_indexes.iter().any(|index| index.name == "last")
    };
    let last = closed.files.iter().max_by_key(|file| number(file)).unwrap();
    let with_records: Vec<_> = closed.files.iter().filter(|file| has_records(file)).collect();
    assert!(number(last) > 2 && with_records == [last], "{with_records:?}");
    assert_eq!(closed.files.last(), Some(last));
}
