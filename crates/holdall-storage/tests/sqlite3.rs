//! SQLite3 databases: our files look like rosbag2's, and those of every rosbag2 version are read exactly.
#![cfg(feature = "sqlite3")]

mod support;

use holdall_io::{
    block::BlockPoolOptions,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::message::PayloadRef;
use holdall_storage::{
    StorageError, StorageOptions,
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
    repair::Repaired,
    sqlite3::SqliteReader,
    storage_by_id,
    writer::{ChannelIndex, StoredMessage},
};
use md5::{Digest, Md5};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use support::{Message, Slices, channel, metadata, payload, time};

const TOPICS: [(&str, &str); 3] = [
    ("/imu", "sensor_msgs/msg/Imu"),
    ("/chatter", "std_msgs/msg/String"),
    ("/silent", "std_msgs/msg/String"),
];

fn messages() -> Vec<Message> {
    (0..500u64)
        .map(|n| Message {
            log_time: 1_000_000 + (n * 7919) % 1000 * 10_000_000,
            publish_time: 0,
            sequence: n as u32,
            topic: TOPICS[(n % 2) as usize].0.into(),
            payload: payload(n, if n % 50 == 7 { 100_000 } else { (n % 300) as usize }),
        })
        .collect()
}

fn queue(dir: &Path) -> DiskQueue {
    let disk = OsDisk::open(dir, DiskMode::Auto).unwrap();
    DiskQueue::new(Box::new(disk), BlockPoolOptions::default()).unwrap()
}

fn record(dir: &Path, options: &StorageOptions, reserve_bytes: u64) -> PathBuf {
    let path = dir.join("bag_0.db3");
    let mut q = queue(dir);
    let file = q.create_file_ahead(&path, reserve_bytes);
    let mut writer = storage_by_id("sqlite3")
        .unwrap()
        .create_writer(&mut q, file, &path, options)
        .unwrap();
    writer
        .write_metadata(
            &mut q,
            "rosbag2",
            &metadata("serialized_metadata", "version: 9\nopen: 1\n"),
        )
        .unwrap();
    let channels: Vec<ChannelIndex> = TOPICS
        .iter()
        .map(|(name, kind)| writer.add_channel(&mut q, &channel(name, kind)).unwrap())
        .collect();
    for (number, message) in messages().iter().enumerate() {
        let halves = message.payload.split_at(message.payload.len() / 2);
        let loan = Slices(vec![halves.0.to_vec(), halves.1.to_vec()]);
        let stored = StoredMessage {
            log_time: time(message.log_time),
            publish_time: time(message.log_time),
            sequence: 0,
            payload: if number % 3 == 0 {
                PayloadRef::Loan(&loan)
            } else {
                PayloadRef::Bytes(&message.payload)
            },
        };
        writer.write(&mut q, channels[number % 2], stored).unwrap();
        writer.step(&mut q).unwrap();
        if number == 250 {
            let token = writer.make_durable(&mut q).unwrap().unwrap();
            q.wait_durable(token).unwrap();
            assert!(committed(&path) >= 251, "what is durable is in the file");
        }
    }
    writer
        .write_metadata(&mut q, "holdall.ledger", &metadata("lost", "3"))
        .unwrap();
    let estimate = writer.bytes_written();
    let closing = [(
        "rosbag2",
        metadata("serialized_metadata", "version: 9\nclose: 1\n"),
    )];
    let summary = writer.finish(&mut q, &closing).unwrap();
    q.wait_closed(file).unwrap();
    assert_eq!(summary.message_count, 500);
    assert_eq!(summary.channel_message_counts, [250, 250, 0]);
    assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
    assert!(
        estimate > summary.bytes / 2 && estimate < summary.bytes * 2,
        "{estimate} {}",
        summary.bytes
    );
    path
}

fn committed(path: &Path) -> i64 {
    Connection::open(path)
        .unwrap()
        .query_row("SELECT count(*) FROM messages", [], |row| row.get(0))
        .unwrap()
}

fn preset(name: &str) -> StorageOptions {
    StorageOptions {
        preset: Some(name.to_owned()).filter(|name| !name.is_empty()),
        ..StorageOptions::default()
    }
}

fn read(reader: &SqliteReader, query: &ReadQuery) -> Vec<(u64, String, Vec<u8>)> {
    let topic = |index: ChannelIndex| {
        reader.summary().channels[index.0 as usize]
            .info
            .topic
            .name
            .clone()
    };
    reader
        .messages(query)
        .unwrap()
        .map(|message| message.unwrap())
        .map(|message| {
            (
                message.log_time.as_nanos() as u64,
                topic(message.channel),
                message.payload.to_vec(),
            )
        })
        .collect()
}

#[test]
fn what_is_written_is_read_back_in_both_presets() {
    for name in ["none", "resilient"] {
        let dir = tempfile::tempdir().unwrap();
        let path = record(dir.path(), &preset(name), 1 << 20);
        let left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["bag_0.db3"], "no log stays behind");
        let reader = SqliteReader::open(&path).unwrap();
        let mut expected: Vec<_> = messages()
            .into_iter()
            .map(|message| (message.log_time, message.topic, message.payload))
            .collect();
        assert_eq!(
            read(
                &reader,
                &ReadQuery {
                    order: ReadOrder::File,
                    ..ReadQuery::default()
                }
            ),
            expected
        );
        expected.sort_by_key(|(time, ..)| *time);
        assert_eq!(read(&reader, &ReadQuery::default()), expected);
        let query = ReadQuery {
            channels: Some(vec![ChannelIndex(1)]),
            start: Some(time(expected[100].0)),
            end: Some(time(expected[300].0)),
            order: ReadOrder::LogTime,
            verified: false,
        };
        let range = expected[100].0..=expected[300].0;
        expected.retain(|(time, topic, _)| topic == "/chatter" && range.contains(time));
        assert_eq!(read(&reader, &query), expected);
        let summary = reader.summary();
        assert_eq!(summary.rosbag2_metadata(), Some("version: 9\nclose: 1\n"));
        assert_eq!(
            summary.last_metadata("holdall.ledger"),
            Some(&metadata("lost", "3"))
        );
        assert_eq!(summary.message_count, 500);
        assert_eq!(summary.channels[2].message_count, 0);
        assert_eq!(
            summary.channels[0].info.topic,
            channel("/imu", "sensor_msgs/msg/Imu").topic
        );
        assert_eq!(
            summary.channels[0].info.definition.text,
            "# sensor_msgs/msg/Imu\nstring data\n"
        );
    }
}

fn tables(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut query = connection
        .prepare("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'holdall%'")
        .unwrap();
    query
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn tables_are_those_of_rosbag2_to_the_letter() {
    let dir = tempfile::tempdir().unwrap();
    let ours = record(dir.path(), &preset("none"), 0);
    let theirs = dir.path().join("theirs.db3");
    std::fs::copy(support::data("sqlite3_default/sqlite3_default_0.db3"), &theirs).unwrap();
    assert_eq!(tables(&ours), tables(&theirs));
    let connection = Connection::open(&ours).unwrap();
    let pragma = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(
        (
            pragma("page_size"),
            pragma("user_version"),
            pragma("application_id")
        ),
        (4096, 0, 0)
    );
    let version: i64 = connection
        .query_row("SELECT schema_version FROM schema", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 4);
    let types: i64 = connection
        .query_row("SELECT count(*) FROM message_definitions", [], |row| row.get(0))
        .unwrap();
    assert_eq!(types, 2, "each type once");
}

#[test]
fn a_bag_of_the_real_rosbag2_is_read_exactly() {
    let reader = SqliteReader::open(&support::data("sqlite3_default/sqlite3_default_0.db3")).unwrap();
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(support::data("manifest.json")).unwrap()).unwrap();
    let messages = read(&reader, &ReadQuery::default());
    for (name, about) in manifest["sqlite3_default"]["topics"].as_object().unwrap() {
        let of_topic = || messages.iter().filter(|(_, topic, _)| topic == name);
        assert_eq!(
            of_topic().count() as u64,
            about["count"].as_u64().unwrap(),
            "{name}"
        );
        let summary = reader
            .summary()
            .channels
            .iter()
            .find(|channel| channel.info.topic.name == *name)
            .unwrap();
        assert_eq!(summary.message_count, about["count"].as_u64().unwrap());
        if let Some((first, ..)) = of_topic().next() {
            assert_eq!(*first, about["first"].as_u64().unwrap());
        }
        let md5: String = Md5::digest(
            of_topic()
                .flat_map(|(.., bytes)| bytes)
                .copied()
                .collect::<Vec<u8>>(),
        )
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
        assert!(
            about["md5"].as_str().is_none_or(|expected| expected == md5),
            "{name}"
        );
    }
    let imu = reader
        .summary()
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
    assert!(
        reader
            .summary()
            .rosbag2_metadata()
            .unwrap()
            .contains("message_count: 133")
    );
}

#[test]
fn databases_of_older_distributions_are_read() {
    let topics = [
        // Before Crystal, as in rosbag2's test bags of 2018.
        "topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL)",
        "topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL)",
        "topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,\
         offered_qos_profiles TEXT NOT NULL)",
    ];
    for (version, table) in [(0, topics[0]), (1, topics[1]), (2, topics[2]), (3, topics[2])] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.db3");
        let connection = Connection::open(&path).unwrap();
        let rest = match version {
            0 => "",
            1 => ", 'cdr'",
            _ => ", 'cdr', '- history: 1\n  depth: 10\n  reliability: 1\n  durability: 2'",
        };
        let extra = if version == 3 {
            "CREATE TABLE schema(schema_version INTEGER PRIMARY KEY,ros_distro TEXT NOT NULL);
             CREATE TABLE metadata(id INTEGER PRIMARY KEY,metadata_version INTEGER NOT NULL,metadata TEXT NOT NULL);
             INSERT INTO schema VALUES (3, 'humble'); INSERT INTO metadata VALUES (1, 6, 'version: 6');"
        } else {
            ""
        };
        connection
            .execute_batch(&format!(
                "CREATE TABLE {table};
                 CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL);
                 {extra}
                 INSERT INTO topics VALUES (3, '/chatter', 'std_msgs/msg/String'{rest});
                 INSERT INTO messages VALUES (1, 3, 20, x'0102'), (2, 3, 10, x'03');"
            ))
            .unwrap();
        drop(connection);
        let reader = SqliteReader::open(&path).unwrap();
        assert_eq!(
            read(&reader, &ReadQuery::default()),
            [
                (10, "/chatter".to_owned(), vec![3]),
                (20, "/chatter".to_owned(), vec![1, 2])
            ]
        );
        let summary = reader.summary();
        assert_eq!(summary.channels[0].info.topic.serialization_format, "cdr");
        assert_eq!(
            summary.channels[0].info.topic.offered_qos_profiles.len(),
            usize::from(version > 1)
        );
        assert_eq!(summary.rosbag2_metadata(), (version == 3).then_some("version: 6"));
        assert_eq!(
            (summary.starting_time, summary.ending_time),
            (Some(time(10)), Some(time(20)))
        );
    }
}

/// Such a database is among another reader's tests.
#[test]
fn unknown_fields_of_another_program_may_be_null() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db3");
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,\
             offered_qos_profiles TEXT,type_description_hash TEXT);
             CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL);
             INSERT INTO topics VALUES (1, '/chatter', 'std_msgs/msg/String', 'cdr', NULL, NULL);
             INSERT INTO messages VALUES (1, 1, 20, x'0102');",
        )
        .unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    assert_eq!(read(&reader, &ReadQuery::default()).len(), 1);
    assert_eq!(reader.summary().channels[0].info.topic.type_description_hash, "");
}

#[test]
fn other_databases_are_refused_with_their_path() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("empty.db3", &b""[..]),
        ("text.db3", b"hello"),
        ("cut.db3", b"SQLite format 3\0junk"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = SqliteReader::open(&path).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
    }
    let other = dir.path().join("other.db3");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE a(b)")
        .unwrap();
    assert!(
        SqliteReader::open(&other)
            .err()
            .unwrap()
            .to_string()
            .contains("topics")
    );
}

/// Names, lengths and modification times of a directory's files.
fn listing(dir: &Path) -> Vec<(std::ffi::OsString, u64, std::time::SystemTime)> {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let about = entry.metadata().unwrap();
            (entry.file_name(), about.len(), about.modified().unwrap())
        })
        .collect();
    entries.sort();
    entries
}

/// A database with ten messages: `committed` of them are in it, the others in a file that a killed program
/// left next to it.
fn left_behind(dir: &Path, journal_mode: &str) -> PathBuf {
    let made = dir.join("made");
    std::fs::create_dir(&made).unwrap();
    let path = made.join("left_0.db3");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = {journal_mode}; PRAGMA cache_size = 2; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL);
             CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL);
             INSERT INTO topics VALUES (1, '/t', 'std_msgs/msg/String', 'cdr');
             INSERT INTO messages VALUES (1, 1, 1, zeroblob(5000)), (2, 1, 2, zeroblob(5000));"
        ))
        .unwrap();
    let many =
        "INSERT INTO messages (topic_id, timestamp, data) SELECT 1, 100 + id, zeroblob(90000) FROM messages";
    // With such a small cache the pages of the open transaction are written to the file.
    connection.execute_batch("BEGIN").unwrap();
    for _ in 0..3 {
        connection.execute_batch(many).unwrap();
    }
    if journal_mode == "WAL" {
        connection.execute_batch("COMMIT").unwrap();
    }
    // The program is killed here: only the current content of the disk remains.
    let found = dir.join("found");
    std::fs::create_dir(&found).unwrap();
    for entry in std::fs::read_dir(&made).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().ends_with("-shm") {
            std::fs::copy(entry.path(), found.join(entry.file_name())).unwrap();
        }
    }
    found.join("left_0.db3")
}

#[test]
fn files_of_a_killed_program_are_applied_and_the_directory_is_unchanged() {
    for (journal_mode, expected) in [("WAL", 16), ("DELETE", 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = left_behind(dir.path(), journal_mode);
        let before = listing(path.parent().unwrap());
        assert_eq!(before.len(), 2, "{journal_mode}: {before:?}");
        let reader = SqliteReader::open(&path).unwrap();
        assert_eq!(reader.summary().message_count, expected, "{journal_mode}");
        assert_eq!(reader.summary().path, path);
        let is_damaged = matches!(reader.summary().condition, FileCondition::Damaged { .. });
        assert_eq!(
            is_damaged,
            journal_mode == "DELETE",
            "{:?}",
            reader.summary().condition
        );
        let messages = reader.messages(&ReadQuery::default()).unwrap();
        drop(reader);
        assert_eq!(
            messages.map(Result::unwrap).count() as u64,
            expected,
            "{journal_mode}"
        );
        assert_eq!(listing(path.parent().unwrap()), before, "{journal_mode}");
    }
}

/// Repairs in place, with one closing record.
fn repair(path: &Path) -> Result<Option<Repaired>, StorageError> {
    let records = [(
        "rosbag2",
        metadata("serialized_metadata", "version: 9\nrepaired: 1\n"),
    )];
    storage_by_id("sqlite3")
        .unwrap()
        .repair(path, &records, holdall_storage::RepairTarget::InPlace)
}

#[test]
fn repair_applies_or_rolls_back_a_journal_and_leaves_one_file() {
    for (journal_mode, expected) in [("WAL", 16), ("DELETE", 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = left_behind(dir.path(), journal_mode);
        let repaired = repair(&path).unwrap().unwrap();
        assert_eq!(
            (repaired.messages, repaired.unsaved),
            (expected, Vec::new()),
            "{journal_mode}"
        );
        assert_eq!(
            listing(path.parent().unwrap()).len(),
            1,
            "{journal_mode}: no journal is left"
        );
        let reader = SqliteReader::open(&path).unwrap();
        assert_eq!(reader.summary().message_count, expected);
        assert_eq!(reader.summary().condition, FileCondition::Complete);
        assert_eq!(repair(&path).unwrap(), None, "{journal_mode}: nothing more to do");
    }
}

#[test]
fn repair_adds_the_closing_records_of_an_unclosed_database_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path(), &StorageOptions::default(), 0);
    assert_eq!(repair(&path).unwrap(), None, "a closed one is unchanged");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute(
            "DELETE FROM metadata WHERE id > (SELECT min(id) FROM metadata)",
            [],
        )
        .unwrap();
    drop(connection);
    let repaired = repair(&path).unwrap().unwrap();
    assert_eq!(repaired.messages, 500);
    let reader = SqliteReader::open(&path).unwrap();
    assert!(
        reader
            .summary()
            .rosbag2_metadata()
            .unwrap()
            .contains("repaired: 1")
    );
    assert_eq!(repair(&path).unwrap(), None);
}

#[test]
fn repair_changes_nothing_in_a_database_that_sqlite_finds_broken() {
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path(), &StorageOptions::default(), 0);
    let connection = Connection::open(&path).unwrap();
    connection.execute("DELETE FROM metadata", []).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 8192].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let error = repair(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be repaired in place"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_database_with_an_empty_write_ahead_log_is_read_without_making_one() {
    let dir = tempfile::tempdir().unwrap();
    let options = StorageOptions {
        config: Some("write: {pragmas: [journal_mode = WAL, synchronous = NORMAL]}".into()),
        ..StorageOptions::default()
    };
    let path = record(dir.path(), &options, 0);
    let before = listing(path.parent().unwrap());
    let reader = SqliteReader::open(&path).unwrap();
    assert_eq!(
        reader.messages(&ReadQuery::default()).unwrap().count(),
        messages().len()
    );
    assert_eq!(reader.summary().message_count, messages().len() as u64);
    assert_eq!(listing(path.parent().unwrap()), before);
}

#[test]
fn pages_that_are_still_in_memory_are_read_back_and_other_programs_see_whole_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bag_0.db3");
    let mut q = queue(dir.path());
    let file = q.create_file(&path, 0).unwrap();
    let storage = storage_by_id("sqlite3").unwrap();
    let mut writer = storage
        .create_writer(&mut q, file, &path, &StorageOptions::default())
        .unwrap();
    let channel = writer
        .add_channel(&mut q, &channel(TOPICS[0].0, TOPICS[0].1))
        .unwrap();
    let other = Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let count = || -> i64 {
        other
            .query_row("SELECT count(*) FROM messages", [], |row| row.get(0))
            .unwrap()
    };
    // More than the pages that SQLite keeps in memory, so that it writes some before the transaction ends, and reads others back.
    let payload = vec![7; 3 << 20];
    for round in 1..=3_u64 {
        for number in 0..16 {
            let at = time(round * 100 + number);
            let message = StoredMessage {
                log_time: at,
                publish_time: at,
                sequence: 0,
                payload: PayloadRef::Bytes(&payload),
            };
            writer.write(&mut q, channel, message).unwrap();
        }
        writer.close_chunks(&mut q).unwrap();
        assert_eq!(count(), i64::try_from(round).unwrap() * 16);
    }
    drop(other);
    let summary = writer.finish(&mut q, &[]).unwrap();
    q.wait_closed(file).unwrap();
    assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
    let check = Connection::open(&path).unwrap();
    let verdict: String = check
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

#[test]
fn views_that_never_end_are_not_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("endless.db3");
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT,type TEXT,serialization_format TEXT);
             CREATE VIEW messages AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)
             SELECT id, 1 AS topic_id, id AS timestamp, x'00' AS data FROM n;",
        )
        .unwrap();
    assert!(matches!(
        SqliteReader::open(&path).err().unwrap(),
        StorageError::WrongFormat { .. }
    ));
}
