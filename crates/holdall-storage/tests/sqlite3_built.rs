//! Databases whose pages are built without SQLite's engine have what the engine writes: the same rows, schema and order, found sound by other programs.
#![cfg(feature = "sqlite3")]

mod support;

use holdall_io::{
    block::BlockPoolOptions,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{message::PayloadRef, topic::PublisherInfo};
use holdall_storage::{
    StorageOptions, storage_by_id,
    writer::{ChannelIndex, StoredMessage},
};
use proptest::prelude::*;
use rusqlite::{Connection, types::Value};
use std::path::{Path, PathBuf};
use support::{channel, metadata, time};

/// A pragma that changes nothing, with which the engine writes.
const BY_ENGINE: &str = "temp_store = DEFAULT";

/// What a program does with a storage file.
#[derive(Clone, Debug)]
enum Step {
    Topic { name: u8, publisher: Option<u8> },
    Message { topic: usize, time: i64, bytes: usize },
    Record { bytes: usize },
    Commit,
    Durable,
    HandOver,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        6 => 0_usize..300,
        3 => 0_usize..5000,
        2 => 3900_usize..12_500,
        1 => 60_000_usize..300_000,
        1 => Just(1 << 20),
    ];
    // Nearly in order, equal, late, and anywhere.
    let time = prop_oneof![
        8 => 0_i64..1000,
        1 => -200_000_i64..0,
        1 => any::<i32>().prop_map(i64::from),
    ];
    let step = prop_oneof![
        60 => (any::<usize>(), time, bytes).prop_map(|(topic, time, bytes)| Step::Message { topic, time, bytes }),
        3 => (0_u8..40, prop::option::of(0_u8..3)).prop_map(|(name, publisher)| Step::Topic { name, publisher }),
        1 => (0_usize..9000).prop_map(|bytes| Step::Record { bytes }),
        4 => Just(Step::Commit),
        1 => Just(Step::Durable),
        1 => Just(Step::HandOver),
    ];
    prop::collection::vec(step, 1..400)
}

fn options(preset: Option<&str>, pragmas: &[&str]) -> StorageOptions {
    StorageOptions {
        preset: preset.map(str::to_owned),
        config: Some(format!("write: {{pragmas: {pragmas:?}}}")),
        ..StorageOptions::default()
    }
}

fn record(dir: &Path, name: &str, options: &StorageOptions, steps: &[Step]) -> PathBuf {
    let path = dir.join(name);
    let pool = BlockPoolOptions {
        block_bytes: 256 << 10,
        block_count: 6,
        huge_pages: false,
    };
    let mut q = DiskQueue::new(Box::new(OsDisk::open(dir, DiskMode::Auto).unwrap()), pool).unwrap();
    let file = q.create_file(&path, 0).unwrap();
    let storage = storage_by_id("sqlite3").unwrap();
    let mut writer = storage.create_writer(&mut q, file, &path, options).unwrap();
    let open = metadata("serialized_metadata", "version: 9\n");
    writer.write_metadata(&mut q, "rosbag2", &open).unwrap();
    let mut channels: Vec<ChannelIndex> = Vec::new();
    let mut now = 1_700_000_000_000_000_000_i64;
    let add = |writer: &mut Box<dyn holdall_storage::writer::StorageWriter>,
               q: &mut DiskQueue,
               name: u8,
               publisher: Option<u8>| {
        let mut info = channel(&format!("/topic_{name}"), "std_msgs/msg/String");
        info.topic.publisher = publisher.map(|gid| {
            Box::new(PublisherInfo {
                gid: format!("{gid:032}"),
                node: (gid > 0).then(|| "/node".repeat(usize::from(gid) * 300)),
                ..PublisherInfo::default()
            })
        });
        writer.add_channel(q, &info).unwrap()
    };
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Topic { name, publisher } => channels.push(add(&mut writer, &mut q, name, publisher)),
            Step::Message {
                topic,
                time: step,
                bytes,
            } => {
                if channels.is_empty() {
                    channels.push(add(&mut writer, &mut q, 0, None));
                }
                let at = now + step;
                now += step.clamp(0, 1000);
                let payload: Vec<u8> = (0..bytes).map(|byte| (byte / 7 + number) as u8).collect();
                let at = time(at.unsigned_abs());
                let message = StoredMessage {
                    log_time: at,
                    publish_time: at,
                    sequence: 0,
                    payload: PayloadRef::Bytes(&payload),
                };
                writer
                    .write(&mut q, channels[topic % channels.len()], message)
                    .unwrap();
                writer.step(&mut q).unwrap();
            }
            Step::Record { bytes } => {
                let entries = metadata("key", &"x".repeat(bytes));
                writer.write_metadata(&mut q, "holdall_test", &entries).unwrap();
            }
            Step::Commit => writer.close_chunks(&mut q).unwrap(),
            Step::Durable => {
                let token = writer.make_durable(&mut q).unwrap().unwrap();
                q.wait_durable(token).unwrap();
            }
            Step::HandOver => while !writer.hand_over_large(&mut q).unwrap() {},
        }
    }
    writer
        .finish(
            &mut q,
            &[(
                "rosbag2",
                metadata("serialized_metadata", "version: 9\nclosed: 1\n"),
            )],
        )
        .unwrap();
    q.wait_closed(file).unwrap();
    path
}

/// All rows of all tables and their texts, and the messages in the order of the index.
fn content(path: &Path) -> Vec<Vec<Value>> {
    let connection = Connection::open(path).unwrap();
    let query = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
        rows.unwrap().collect::<Result<Vec<Vec<Value>>, _>>().unwrap()
    };
    assert_eq!(query("PRAGMA integrity_check"), [[Value::Text("ok".into())]]);
    let mut all = query("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name");
    let names: Vec<_> = all
        .iter()
        .filter(|row| row[0] == Value::Text("table".into()))
        .cloned()
        .collect();
    for table in names {
        let Value::Text(name) = &table[1] else { panic!() };
        all.extend(query(&format!("SELECT * FROM {name} ORDER BY rowid")));
    }
    all.extend(query(
        "SELECT timestamp, id FROM messages INDEXED BY timestamp_idx ORDER BY timestamp, id",
    ));
    all.extend(query("PRAGMA page_size"));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_same_messages_give_the_same_rows_as_the_engine_writes(
        steps in steps(),
        page_bytes in prop::sample::select(vec![4096, 4096, 8192, 65_536]),
        preset in prop::sample::select(vec![None, None, Some("none"), Some("resilient")]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("page_size = {page_bytes}");
        let built = record(dir.path(), "built.db3", &options(preset, &[&size]), &steps);
        let by_engine = record(dir.path(), "engine.db3", &options(None, &[&size, BY_ENGINE]), &steps);
        let (built, by_engine) = (content(&built), content(&by_engine));
        prop_assert!(built == by_engine, "{} and {} rows", built.len(), by_engine.len());
        // No journal is left.
        prop_assert_eq!(dir.path().read_dir().unwrap().count(), 2);
    }
}

/// Small messages at these times.
fn at_times(times: impl Iterator<Item = i64>) -> Vec<Step> {
    let messages = times.map(|time| Step::Message {
        topic: 0,
        time,
        bytes: 3,
    });
    messages.collect()
}

#[test]
fn times_in_any_order_are_indexed_as_the_engine_does() {
    let shuffled = (0..8000_i64).map(|number| -(number * 7919 % 8009) * 1000);
    let after_a_jump = (0..8000_i64).map(|number| if number == 5 { 1 << 50 } else { number - 40_000 });
    let backwards = (0..5000_i64).map(|number| -number * 1_000_000);
    for steps in [at_times(shuffled), at_times(after_a_jump), at_times(backwards)] {
        let dir = tempfile::tempdir().unwrap();
        let built = record(dir.path(), "built.db3", &options(None, &[]), &steps);
        let by_engine = record(dir.path(), "engine.db3", &options(None, &[BY_ENGINE]), &steps);
        assert!(content(&built) == content(&by_engine));
    }
}
