//! Bags of other writers are read whole and in order, and what is wrong with a bag is reported in one sentence.

mod bags;

use bags::{Format, START, copy_of, data, message, write_mcap, write_mcap_with_record};
use holdall::reader::{Bag, BagContents, BagMessage, BagSet, MessageFilter, MessageOrder, ReadError};
use holdall_model::{loss::LossStage, time::Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_nanos(i64::try_from(START).unwrap() + millis * 1_000_000)
}

fn read(path: &Path, filter: &MessageFilter) -> Vec<BagMessage> {
    let bags = BagSet::open(&[path]).expect("open");
    bags.messages(filter).collect::<Result<_, _>>().expect("read")
}

/// Topic and milliseconds after the start.
fn brief(messages: &[BagMessage]) -> Vec<(&str, i64)> {
    let millis = |message: &BagMessage| (message.stamp.as_nanos() - at(0).as_nanos()) / 1_000_000;
    messages
        .iter()
        .map(|message| (message.topic.name.as_str(), millis(message)))
        .collect()
}

#[test]
fn bags_of_the_real_rosbag2_are_read_to_the_byte() {
    let manifest = fs::read_to_string(data("rosbag2/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    for bag in [
        "mcap_default",
        "mcap_split3",
        "mcap_zstd_small",
        "sqlite3_default",
        "sqlite3_split3",
        "sqlite3_message_zstd",
    ] {
        let messages = read(&data("rosbag2").join(bag), &MessageFilter::default());
        assert!(messages.is_sorted_by_key(|message| message.log_time), "{bag}");
        let mut found: BTreeMap<&str, (u64, i64, i64, md5::Context)> = BTreeMap::new();
        for message in &messages {
            let stamp = message.log_time.as_nanos();
            let start = || (0, stamp, 0, md5::Context::new());
            let topic = found.entry(&message.topic.name).or_insert_with(start);
            topic.0 += 1;
            topic.2 = message.publish_time.as_nanos();
            topic.3.consume(&message.payload);
        }
        let expected = manifest[bag]["topics"].as_object().unwrap();
        assert_eq!(found.len(), expected.len(), "{bag}");
        for (topic, (count, first, last_send, digest)) in found {
            let about = &expected[topic];
            assert_eq!(Some(count), about["count"].as_u64(), "{bag} {topic}");
            assert_eq!(Some(first), about["first"].as_i64(), "{bag} {topic}");
            // SQLite has no place for publish times.
            let sent = if manifest[bag]["send_timestamp_kept"] == true {
                "last_send"
            } else {
                "last"
            };
            assert_eq!(Some(last_send), about[sent].as_i64(), "{bag} {topic}");
            assert_eq!(
                format!("{:x}", digest.finalize()),
                about["md5"].as_str().unwrap(),
                "{bag} {topic}"
            );
        }
    }
}

#[test]
fn a_bag_written_by_pip_rosbags_is_read() {
    let path = data("rosbags_written");
    let bag = Bag::open(&path).expect("open");
    assert_eq!(bag.metadata().message_count, 15);
    assert_eq!(bag.notices(), [] as [&str; 0]);
    let messages = read(&path, &MessageFilter::default());
    let chatter: Vec<_> = messages
        .iter()
        .filter(|message| message.topic.name == "/chatter")
        .collect();
    assert_eq!((messages.len(), chatter.len()), (15, 10));
    assert_eq!(chatter[3].payload[..], bags::string_cdr("hello 3")[..]);
    assert_eq!(chatter[3].topic.type_name, "std_msgs/msg/String");
}

#[test]
fn info_of_a_bag_with_metadata_reads_no_storage_file() {
    let (_directory, path) = copy_of("rosbag2/mcap_split3");
    // The end stays, so that the file does not look cut off; the rest is not MCAP at all.
    for name in ["mcap_split3_0.mcap", "mcap_split3_1.mcap", "mcap_split3_2.mcap"] {
        let mut bytes = fs::read(path.join(name)).unwrap();
        let end = bytes.len() - 8;
        bytes[..end].fill(b'x');
        fs::write(path.join(name), bytes).unwrap();
    }
    let bag = Bag::open(&path).expect("metadata is enough");
    assert_eq!(
        (bag.metadata().message_count, bag.files().len(), bag.size_bytes()),
        (288, 3, 143_269)
    );
    assert!(bag.definitions().is_err());
}

#[test]
fn missing_metadata_is_rebuilt_and_said_once() {
    let (_directory, path) = copy_of("rosbag2/mcap_split3");
    let written = Bag::open(&path).expect("open").metadata().clone();
    fs::remove_file(path.join("metadata.yaml")).unwrap();
    let bag = Bag::open(&path).expect("rebuilt");
    assert_eq!(bag.notices().len(), 1, "{:?}", bag.notices());
    assert!(
        bag.notices()[0].contains("metadata.yaml is missing"),
        "{:?}",
        bag.notices()
    );
    let rebuilt = bag.metadata();
    assert_eq!(rebuilt.message_count, written.message_count);
    assert_eq!(
        (rebuilt.starting_time, rebuilt.duration),
        (written.starting_time, written.duration)
    );
    assert_eq!(rebuilt.relative_file_paths, written.relative_file_paths);
    assert_eq!(rebuilt.files, written.files);
    assert_eq!(
        (&rebuilt.ros_distro, &rebuilt.storage_identifier),
        (&written.ros_distro, &written.storage_identifier)
    );
    let counts = |metadata: &holdall_model::metadata::BagMetadata| -> BTreeMap<String, u64> {
        let topics = metadata
            .topics_with_message_count
            .iter()
            .filter(|topic| topic.message_count > 0);
        topics
            .map(|topic| (topic.topic_metadata.name.clone(), topic.message_count))
            .collect()
    };
    assert_eq!(counts(rebuilt), counts(&written));
    assert_eq!(read(&path, &MessageFilter::default()).len(), 288);
}

#[test]
fn damaged_metadata_is_rebuilt_and_the_damage_named() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    for text in [
        "",
        "not: [a bag",
        "rosbag2_bagfile_information:\n  version: 9\n",
        "\u{0}\u{1}",
    ] {
        fs::write(path.join("metadata.yaml"), text).unwrap();
        let bag = Bag::open(&path).expect("rebuilt");
        assert_eq!(bag.metadata().message_count, 133, "{text:?}");
        assert!(
            bag.notices()[0].contains("metadata.yaml is damaged"),
            "{:?}",
            bag.notices()
        );
    }
}

/// As rosbag2's own sample `talker` of 2020 has it.
#[test]
fn metadata_that_names_no_file_is_rebuilt() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    let text = "rosbag2_bagfile_information:\n  version: 4\n  storage_identifier: \"\"\n  relative_file_paths:\n    []\n  \
                duration:\n    nanoseconds: 0\n  starting_time:\n    nanoseconds_since_epoch: 0\n  message_count: 0\n  \
                topics_with_message_count:\n    []\n  compression_format: \"\"\n  compression_mode: \"\"";
    fs::write(path.join("metadata.yaml"), text).unwrap();
    let bag = Bag::open(&path).expect("rebuilt");
    assert_eq!(bag.metadata().message_count, 133);
    assert!(
        bag.notices()[0].contains("names no storage file"),
        "{:?}",
        bag.notices()
    );
    fs::remove_file(path.join("mcap_default_0.mcap")).unwrap();
    let (_, text) = refusal(&path);
    assert!(
        text.ends_with("its metadata.yaml names no storage file, and the bag has none"),
        "{text}"
    );
}

#[test]
fn a_single_storage_file_is_a_bag() {
    let path = data("rosbag2/mcap_split3/mcap_split3_1.mcap");
    let bag = Bag::open(&path).expect("open");
    assert_eq!(bag.metadata().relative_file_paths, ["mcap_split3_1.mcap"]);
    assert_eq!((bag.metadata().message_count, bag.size_bytes()), (112, 52_453));
    assert_eq!(bag.notices(), [] as [&str; 0]);
    assert_eq!(read(&path, &MessageFilter::default()).len(), 112);
}

fn refusal(path: &Path) -> (ReadError, String) {
    let error = Bag::open(path).expect_err("must be refused");
    let text = error.to_string();
    assert!(
        !text.contains('\n') && text.contains(&path.display().to_string()),
        "{text}"
    );
    (error, text)
}

#[test]
fn what_is_no_bag_is_refused_with_its_path_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("empty")).unwrap();
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other/notes.txt"), "hello").unwrap();
    fs::create_dir(path("only_metadata")).unwrap();
    fs::write(path("only_metadata/metadata.yaml"), "broken: [").unwrap();
    fs::write(path("nothing.mcap"), "").unwrap();
    fs::write(path("short.mcap"), [0x89, b'M', b'C']).unwrap();
    fs::write(path("text.mcap"), "this is not a bag at all").unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
    fs::write(path("pointer.mcap"), pointer).unwrap();
    fs::write(path("one.bag"), "#ROSBAG V1.2\n").unwrap();
    for (name, reason) in [
        ("nowhere", "cannot open"),
        ("empty", "the directory is empty"),
        ("other", "neither metadata.yaml nor a storage file"),
        ("only_metadata", "no storage file to rebuild it from"),
        ("nothing.mcap", "the file is empty"),
        ("short.mcap", "ends within its first 8 bytes"),
        ("text.mcap", "neither a directory nor"),
        (
            "pointer.mcap",
            "a pointer of Git LFS, not the file itself (`git lfs pull` gets it)",
        ),
        ("one.bag", "it is of version 1.2, expected 2.0"),
    ] {
        let (_, text) = refusal(&path(name));
        assert!(text.contains(reason), "{name}: {text}");
    }
}

#[test]
fn a_missing_storage_file_is_named() {
    let (_directory, path) = copy_of("rosbag2/mcap_split3");
    fs::remove_file(path.join("mcap_split3_1.mcap")).unwrap();
    let (error, text) = refusal(&path);
    assert!(
        matches!(
            error,
            ReadError::MissingFile {
                named: 3,
                present: 2,
                ..
            }
        ),
        "{text}"
    );
    assert!(text.contains("mcap_split3_1.mcap"), "{text}");
}

#[test]
fn paths_that_leave_the_bag_are_refused() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    let metadata = fs::read_to_string(path.join("metadata.yaml")).unwrap();
    for outside in ["../secret.mcap", "/etc/passwd", "a/../../b.mcap", ".."] {
        let changed = metadata.replace("mcap_default_0.mcap", outside);
        fs::write(path.join("metadata.yaml"), changed).unwrap();
        let (error, text) = refusal(&path);
        assert!(
            matches!(error, ReadError::PathOutside { .. }),
            "{outside}: {text}"
        );
    }
}

#[test]
fn compression_that_is_not_known_is_refused_with_what_it_is() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    let metadata = fs::read_to_string(path.join("metadata.yaml")).unwrap();
    for (mode, format, expected) in [
        ("FILE", "lz9", "expected one of zstd"),
        ("CHUNK", "zstd", "no compression mode \"CHUNK\""),
    ] {
        let changed = metadata
            .replace("compression_mode: \"\"", &format!("compression_mode: {mode}"))
            .replace(
                "compression_format: \"\"",
                &format!("compression_format: {format}"),
            );
        assert_ne!(changed, metadata);
        fs::write(path.join("metadata.yaml"), changed).unwrap();
        let (_, text) = refusal(&path);
        assert!(text.contains(expected), "{text}");
    }
}

/// Packs the storage files of a copied bag as rosbag2's file compression does; its metadata is changed by `change`.
fn pack(path: &Path, change: impl Fn(String) -> String) {
    for entry in fs::read_dir(path).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension != "yaml") {
            holdall_storage::compression::pack_file(&file, &holdall_storage::compression::packed_name(&file))
                .unwrap();
            fs::remove_file(&file).unwrap();
        }
    }
    let metadata = fs::read_to_string(path.join("metadata.yaml")).unwrap();
    fs::write(path.join("metadata.yaml"), change(metadata)).unwrap();
}

fn file_mode(metadata: String) -> String {
    // Only `relative_file_paths` has the suffix.
    let mut lines: Vec<String> = metadata.lines().map(str::to_owned).collect();
    for line in &mut lines {
        let is_path = line.starts_with("    - ") && !line.contains(": ");
        if is_path && (line.ends_with(".mcap") || line.ends_with(".db3")) {
            line.push_str(".zstd");
        }
    }
    lines
        .join("\n")
        .replace("compression_mode: \"\"", "compression_mode: FILE")
        .replace("compression_format: \"\"", "compression_format: zstd")
}

#[test]
fn packed_files_are_read_and_the_bag_is_left_as_it_is() {
    for name in ["mcap_split3", "sqlite3_split3"] {
        let expected = read(&data("rosbag2").join(name), &MessageFilter::default());
        for metadata in ["as rosbag2 writes it", "without the suffix", "missing"] {
            let (_directory, path) = copy_of(&format!("rosbag2/{name}"));
            pack(&path, |text| match metadata {
                "as rosbag2 writes it" => file_mode(text),
                _ => text,
            });
            if metadata == "missing" {
                fs::remove_file(path.join("metadata.yaml")).unwrap();
            }
            let before = listing(&path);
            assert_eq!(
                read(&path, &MessageFilter::default()),
                expected,
                "{name} {metadata}"
            );
            assert_eq!(listing(&path), before, "{name} {metadata}");
        }
    }
}

fn listing(path: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let mut entries: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), entry.metadata().unwrap().len()))
        .collect();
    entries.sort();
    entries
}

#[test]
fn a_packed_file_alone_and_packed_payloads_without_metadata_are_read() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    let expected = read(&path, &MessageFilter::default());
    pack(&path, file_mode);
    assert_eq!(
        read(&path.join("mcap_default_0.mcap.zstd"), &MessageFilter::default()),
        expected
    );
    let (_directory, path) = copy_of("rosbag2/sqlite3_message_zstd");
    let expected = read(&path, &MessageFilter::default());
    assert!(expected.iter().all(|message| message.payload[0] == 0), "CDR");
    fs::remove_file(path.join("metadata.yaml")).unwrap();
    assert_eq!(read(&path, &MessageFilter::default()), expected);
    let bag = Bag::open(&path).unwrap();
    assert_eq!(bag.metadata().compression_mode, "MESSAGE");
}

#[test]
fn a_truncated_file_is_said_once() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    let file = path.join("mcap_default_0.mcap");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    for opened in [&path, &file] {
        let bag = Bag::open(opened).expect("what is left can be read");
        assert_eq!(bag.notices().len(), 1, "{:?}", bag.notices());
        assert!(
            bag.notices()[0].contains("mcap_default_0.mcap is damaged"),
            "{:?}",
            bag.notices()
        );
    }
}

#[test]
fn every_way_to_write_mcap_gives_the_same_messages() {
    let directory = tempfile::tempdir().unwrap();
    let written: Vec<_> = (0..200)
        .map(|n| message(if n % 3 == 0 { "/a" } else { "/b" }, n))
        .collect();
    let formats = [
        Format::default(),
        Format {
            chunk_bytes: None,
            indexed: false,
            ..Format::default()
        },
        Format {
            indexed: false,
            ..Format::default()
        },
        Format {
            compression: Some(mcap::Compression::Zstd),
            ..Format::default()
        },
        Format {
            compression: Some(mcap::Compression::Lz4),
            ..Format::default()
        },
    ];
    for (index, format) in formats.iter().enumerate() {
        let path = directory.path().join(format!("{index}.mcap"));
        write_mcap(&path, &written, format);
        let found = read(&path, &MessageFilter::default());
        let same = found.iter().zip(&written).all(|(found, written)| {
            found.topic.name == written.topic
                && found.stamp == at(written.log_millis.cast_signed())
                && found.payload == written.payload
        });
        assert!(same && found.len() == written.len(), "{format:?}");
    }
}

#[test]
fn messages_out_of_order_in_a_file_come_in_order_of_their_log_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixed.mcap");
    let written: Vec<_> = [30, 10, 20, 5, 40, 35]
        .map(|millis| message("/a", millis))
        .to_vec();
    write_mcap(
        &path,
        &written,
        &Format {
            chunk_bytes: Some(64),
            ..Format::default()
        },
    );
    let times: Vec<_> = brief(&read(&path, &MessageFilter::default()))
        .iter()
        .map(|(_, millis)| *millis)
        .collect();
    assert_eq!(times, [5, 10, 20, 30, 35, 40]);
}

#[test]
fn time_and_topics_are_filtered_across_files() {
    let path = data("rosbag2/mcap_split3");
    let all = read(&path, &MessageFilter::default());
    let (from, until) = (at(950), at(2050));
    let filter = MessageFilter {
        from: Some(from),
        until: Some(until),
        topics: Some(Arc::new(BTreeSet::from(["/imu/data".to_owned()]))),
        ..MessageFilter::default()
    };
    let wanted = |message: &&BagMessage| {
        message.topic.name == "/imu/data" && (from..=until).contains(&message.log_time)
    };
    let expected: Vec<_> = all.iter().filter(wanted).cloned().collect();
    assert!(expected.len() > 100);
    assert_eq!(read(&path, &filter), expected);
}

#[test]
fn several_bags_are_merged_by_time_and_equal_stamps_keep_the_order_of_the_inputs() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("1.mcap"), directory.path().join("2.mcap"));
    write_mcap(
        &one,
        &[0, 10, 20].map(|millis| message("/one", millis)),
        &Format::default(),
    );
    write_mcap(
        &two,
        &[5, 10, 30].map(|millis| message("/two", millis)),
        &Format::default(),
    );
    let merged = |paths: [&Path; 2]| {
        let messages: Vec<_> = BagSet::open(&paths)
            .unwrap()
            .messages(&MessageFilter::default())
            .collect::<Result<_, _>>()
            .unwrap();
        brief(&messages)
            .into_iter()
            .map(|(topic, millis)| (topic.to_owned(), millis))
            .collect::<Vec<_>>()
    };
    let expected = [
        ("/one", 0),
        ("/two", 5),
        ("/one", 10),
        ("/two", 10),
        ("/one", 20),
        ("/two", 30),
    ];
    let owned = |pairs: &[(&str, i64)]| {
        pairs
            .iter()
            .map(|(t, m)| ((*t).to_owned(), *m))
            .collect::<Vec<_>>()
    };
    assert_eq!(merged([&one, &two]), owned(&expected));
    let expected = [
        ("/one", 0),
        ("/two", 5),
        ("/two", 10),
        ("/one", 10),
        ("/one", 20),
        ("/two", 30),
    ];
    assert_eq!(merged([&two, &one]), owned(&expected));
}

#[test]
fn publish_times_order_messages_across_split_files() {
    let directory = tempfile::tempdir().unwrap();
    let sent = |log_millis, publish_millis| bags::Message {
        publish_millis,
        ..message("/a", log_millis)
    };
    let (one, two) = (
        directory.path().join("b_0.mcap"),
        directory.path().join("b_1.mcap"),
    );
    write_mcap(
        &one,
        &[sent(10, 9), sent(20, 3), sent(30, 29)],
        &Format::default(),
    );
    write_mcap(&two, &[sent(31, 25), sent(40, 39)], &Format::default());
    let filter = MessageFilter {
        order: MessageOrder::Sent,
        ..MessageFilter::default()
    };
    let times = |filter| {
        brief(&read(directory.path(), filter))
            .iter()
            .map(|(_, millis)| *millis)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&filter), [3, 9, 25, 29, 39]);
    let part = MessageFilter {
        from: Some(at(9)),
        until: Some(at(29)),
        ..filter.clone()
    };
    assert_eq!(times(&part), [9, 25, 29]);
}

#[test]
fn one_damaged_file_of_several_does_not_hide_the_others() {
    let (_directory, path) = copy_of("rosbag2/mcap_split3");
    fs::remove_file(path.join("metadata.yaml")).unwrap();
    fs::write(path.join("mcap_split3_1.mcap"), "gone").unwrap();
    let bag = Bag::open(&path).expect("two are left");
    assert_eq!(bag.metadata().message_count, 111 + 65);
    assert!(
        bag.notices()
            .iter()
            .any(|notice| notice.contains("mcap_split3_1.mcap")),
        "{:?}",
        bag.notices()
    );
    assert_eq!(read(&path, &MessageFilter::default()).len(), 111 + 65);
}

#[test]
fn the_ledger_lists_what_was_lost_without_what_was_left_out_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.mcap");
    let ledger = r#"{"version":1,"topics":[
        {"name":"/a","recorded":1,"recorded_bytes":9,"missing":{"transport":3,"policy":5},"publishers":[]},
        {"name":"/b","recorded":0,"recorded_bytes":0,"missing":{"policy":2},"publishers":[]}]}"#;
    let entries = BTreeMap::from([("ledger".to_owned(), ledger.to_owned())]);
    write_mcap_with_record(&path, &[message("/a", 0)], "holdall:loss", &entries);
    let bag = Bag::open(&path).expect("open");
    let lost = bag.lost().expect("read").expect("there is a ledger");
    assert_eq!(
        lost,
        BTreeMap::from([("/a".to_owned(), BTreeMap::from([(LossStage::Transport, 3)]))])
    );

    let foreign = Bag::open(data("rosbag2/mcap_default")).expect("open");
    assert_eq!(foreign.lost().expect("read"), None);
}

#[test]
fn contents_list_bytes_by_topic() {
    let bag = Bag::open(data("rosbag2/mcap_default")).expect("open");
    let contents = BagContents::read(&bag).expect("read");
    assert_eq!(contents.bytes_by_topic["/imu/data"], 38_880);
}

#[test]
fn definitions_come_from_the_storage_files() {
    let bag = Bag::open(data("rosbag2/mcap_split3")).expect("open");
    let definitions = bag.definitions().expect("read");
    let imu = definitions
        .iter()
        .find(|definition| definition.type_name == "sensor_msgs/msg/Imu")
        .expect("there");
    assert!(
        imu.text.contains("geometry_msgs/Quaternion orientation"),
        "{}",
        imu.text
    );
}
