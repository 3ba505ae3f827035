//! LevelDB storages: the real LevelDB reads our databases, we read its databases exactly, and nothing is overwritten.

mod support;

use holdall_io::{
    block::BlockPoolOptions,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::message::PayloadRef;
use holdall_storage::{
    StorageOptions,
    check::check_file,
    leveldb::{LeveldbReader, is_leveldb, size_bytes},
    reader::{FileCondition, ReadQuery, StorageReader},
    storage_by_id,
    writer::{ChannelIndex, StorageWriter, StoredMessage},
};
use md5::{Digest, Md5};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{channel, metadata, payload, time};

const START: i64 = 1_700_000_000_000_000_000;

/// A storage that is being written.
struct Writing {
    q: DiskQueue,
    path: PathBuf,
    file: holdall_io::disk::FileId,
    writer: Box<dyn StorageWriter>,
}

fn begin(dir: &Path, topics: &[&str], config: Option<&str>) -> Writing {
    let storage = storage_by_id("leveldb").unwrap();
    let path = dir.join("bag_0");
    fs::create_dir(&path).unwrap();
    let disk = OsDisk::open(dir, DiskMode::Buffered).unwrap();
    let blocks = BlockPoolOptions {
        block_bytes: 64 << 10,
        block_count: 4,
        huge_pages: false,
    };
    let mut q = DiskQueue::new(Box::new(disk), blocks).unwrap();
    let file = q.create_file(&storage.queue_path(&path), 0).unwrap();
    let options = StorageOptions {
        config: config.map(str::to_owned),
        ..StorageOptions::default()
    };
    let mut writer = storage.create_writer(&mut q, file, &path, &options).unwrap();
    for topic in topics {
        writer
            .add_channel(&mut q, &channel(topic, "std_msgs/msg/String"))
            .unwrap();
    }
    Writing {
        q,
        path,
        file,
        writer,
    }
}

impl Writing {
    fn write(&mut self, topic: u32, stamp: i64, payload: &[u8]) {
        let time = time(stamp as u64);
        let message = StoredMessage {
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload: PayloadRef::Bytes(payload),
        };
        self.writer
            .write(&mut self.q, ChannelIndex(topic), message)
            .unwrap();
    }

    fn finish(mut self) -> PathBuf {
        let closing = [("rosbag2", metadata("serialized_metadata", "version: 9\n"))];
        self.writer.finish(&mut self.q, &closing).unwrap();
        self.q.wait_closed(self.file).unwrap();
        self.path
    }
}

/// Topic, stamp and payload of all messages in the order of reading.
fn read(path: &Path) -> Vec<(String, i64, Vec<u8>)> {
    let reader = LeveldbReader::open(path).unwrap();
    let topic = |index: ChannelIndex| {
        reader.outline().channels[index.0 as usize]
            .info
            .topic
            .name
            .clone()
    };
    reader
        .messages(&ReadQuery::default())
        .unwrap()
        .map(|message| message.unwrap())
        .map(|message| {
            (
                topic(message.channel),
                message.log_time.as_nanos(),
                message.payload.to_vec(),
            )
        })
        .collect()
}

/// All files below a directory with their bytes.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            found.push((entry.clone(), fs::read(&entry).unwrap()));
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let to = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, bytes).unwrap();
    }
}

fn plugin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb/plugin_0")
}

/// The content that LevelDB 1.22 wrote into the databases of `plugin()`.
fn put_by_leveldb(topic: &str, count: i64, bytes: i64) -> Vec<(String, i64, Vec<u8>)> {
    let message = |stamp: i64, body: &[u8]| (topic.to_owned(), stamp, [&[0, 1, 0, 0], body].concat());
    let mut all: Vec<_> = (0..count)
        .map(|n| {
            let back = if n % 17 == 3 { 5_000_000 } else { 0 };
            let body = vec![(n % 251) as u8; (n * 7 % bytes) as usize];
            message(START + n * 1_000_003 - back, &body)
        })
        .collect();
    all.push(message(-5, b"first"));
    // Written last, with the stamp of the first, which LevelDB hides.
    all.push(message(START, b"again"));
    all.sort_by_key(|message| message.1);
    all
}

#[test]
fn databases_of_the_real_leveldb_are_read_with_the_messages_that_it_hides() {
    let before = files(&plugin());
    let found = read(&plugin());
    assert!(found.is_sorted_by_key(|message| message.1));
    for (topic, count, bytes) in [("/camera/info", 600, 500), ("/tf", 50, 100), ("/big", 60, 100)] {
        let of_topic: Vec<_> = found
            .iter()
            .filter(|message| message.0 == topic)
            .cloned()
            .collect();
        assert_eq!(of_topic, put_by_leveldb(topic, count, bytes), "{topic}");
    }
    let reader = LeveldbReader::open(&plugin()).unwrap();
    let summary = reader.summary();
    assert_eq!(
        (summary.condition.clone(), summary.message_count),
        (FileCondition::Complete, 716)
    );
    assert_eq!(
        summary.starting_time,
        Some(holdall_model::time::Timestamp::from_nanos(-5))
    );
    let topic = &summary.channels[1].info.topic;
    assert_eq!(
        (&*topic.name, &*topic.type_name),
        ("/camera/info", "std_msgs/msg/String")
    );
    assert_eq!(topic.offered_qos_profiles[0].depth, 10);
    let query = ReadQuery {
        channels: Some(vec![ChannelIndex(1)]),
        start: Some(time(START as u64 + 100_000_000)),
        end: Some(time(START as u64 + 200_000_000)),
        ..ReadQuery::default()
    };
    let in_range = put_by_leveldb("/camera/info", 600, 500)
        .iter()
        .filter(|message| (START + 100_000_000..=START + 200_000_000).contains(&message.1))
        .count();
    assert_eq!(reader.messages(&query).unwrap().count(), in_range);
    assert!(files(&plugin()) == before, "reading changes nothing");
}

/// Writes a few thousand messages of three topics, some out of order, into many small tables.
fn many(dir: &Path) -> (Writing, Vec<(String, i64, Vec<u8>)>) {
    let topics = ["/a", "/a/b", "/quiet"];
    let config = "open_options: {write_buffer_size: 30000, block_size: 2000}";
    let mut writing = begin(dir, &topics, Some(config));
    let mut expected = Vec::new();
    for n in 0..3000i64 {
        let topic = (n % 2) as u32;
        let back = if n % 97 == 5 { 300_500 } else { 0 };
        let stamp = START + n * 1000 - back;
        let body = payload(
            n as u64,
            if n % 500 == 7 {
                100_000
            } else {
                (n * 7 % 400) as usize + 4
            },
        );
        writing.write(topic, stamp, &body);
        expected.push((topics[topic as usize].to_owned(), stamp, body));
    }
    expected.sort_by_key(|message| message.1);
    (writing, expected)
}

/// Has the real LevelDB read a database, and compares each message.
fn assert_leveldb_reads(path: &Path, expected: &[(String, i64, Vec<u8>)]) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let venv = std::env::var_os("HOLDALL_VENV").map_or_else(|| repository.join(".venv"), PathBuf::from);
    let python = venv.join("bin/python");
    let has_leveldb = Command::new(&python).args(["-c", "import plyvel"]).output();
    assert!(
        has_leveldb.is_ok_and(|output| output.status.success()),
        "no plyvel in {}: run `scripts/setup.sh nodes`, or set HOLDALL_VENV",
        venv.display()
    );
    let script = plugin().with_file_name("read.py");
    // plyvel can deadlock: it waits for LevelDB's thread, which waits for the interpreter's lock to compare
    // keys. Then the read is retried.
    let read_by_leveldb = || {
        let mut command = Command::new("timeout");
        command.arg("20").arg(&python).arg(&script).arg(path);
        command.output().unwrap()
    };
    let hung = Some(124);
    let output = (0..5)
        .map(|_| read_by_leveldb())
        .find(|output| output.status.code() != hung)
        .expect("LevelDB's own reader ends once in five times");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<&str> = text.lines().collect();
    let mut lines: Vec<String> = expected
        .iter()
        .map(|(topic, stamp, body)| {
            let digest: String = Md5::digest(body)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{topic} {stamp} {digest}")
        })
        .collect();
    found.sort_unstable();
    lines.sort_unstable();
    assert!(found == lines);
    // LevelDB has opened it, moved logs and written manifests: the content is unchanged.
    assert!(read(path) == expected);
}

#[test]
fn the_real_leveldb_reads_what_we_write() {
    let dir = tempfile::tempdir().unwrap();
    let (writing, expected) = many(dir.path());
    let path = writing.finish();
    assert!(read(&path) == expected);
    assert_leveldb_reads(&path, &expected);
}

#[test]
fn equal_stamps_and_topics_of_one_name_overwrite_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = "open_options: {write_buffer_size: 2000}";
    let mut writing = begin(dir.path(), &["/a/b", "/a_b", "/a/_b"], Some(config));
    for n in 0..200u8 {
        for topic in 0..3 {
            // A clock that does not advance.
            writing.write(topic, 1000, &[0, 1, 0, 0, n]);
        }
    }
    writing.write(0, 1005, b"late");
    writing.write(0, 900, b"early");
    let path = writing.finish();
    let found = read(&path);
    for topic in ["/a/b", "/a_b", "/a/_b"] {
        let bodies: Vec<u8> = found
            .iter()
            .filter(|message| message.0 == topic && message.2.len() == 5 && message.2[0] == 0)
            .map(|message| message.2[4])
            .collect();
        assert_eq!(bodies, (0..200).collect::<Vec<_>>(), "{topic}");
    }
    assert!(found.contains(&("/a/b".to_owned(), 900, b"early".to_vec())));
    assert!(
        found.contains(&("/a/b".to_owned(), 1200, b"late".to_vec())),
        "next free stamp"
    );
    for name in ["_a_b_ldb_message", "_a_b__2_ldb_message", "_a__b_ldb_message"] {
        assert!(path.join(name).is_dir(), "{name}");
    }
}

#[test]
fn many_topics_become_durable_together_and_a_stopped_recording_has_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let topics: Vec<String> = (0..40).map(|n| format!("/t{n}")).collect();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let config = "open_options: {write_buffer_size: 3000, block_size: 500}";
    let mut writing = begin(dir.path(), &names, Some(config));
    let mut expected = Vec::new();
    let mut some = |writing: &mut Writing, rounds: std::ops::Range<i64>| {
        for round in rounds {
            for topic in 0..40 {
                let stamp = START + round * 1000 + i64::from(topic);
                let body = payload(stamp as u64, 100 + topic as usize * 7);
                writing.write(topic, stamp, &body);
                expected.push((topics[topic as usize].clone(), stamp, body));
            }
        }
        expected.clone()
    };
    let logs = |path: &Path| {
        let of_messages = |path: &Path| path.to_string_lossy().contains("_ldb_message/");
        let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
        let all = files(path).into_iter();
        all.filter(|(path, _)| of_messages(path) && is_log(path)).count()
    };
    for (round, rounds) in [0..10, 10..40, 40..41].into_iter().enumerate() {
        let expected = some(&mut writing, rounds);
        writing.writer.make_durable(&mut writing.q).unwrap();
        assert_eq!(
            logs(&writing.path),
            40,
            "one for each topic: those of tables are gone"
        );
        let stopped = dir.path().join(format!("stopped{round}"));
        copy(&writing.path, &stopped);
        assert!(read(&stopped) == expected, "{round}");
    }
    let expected = some(&mut writing, 41..60);
    assert!(read(&writing.finish()) == expected);
}

#[test]
fn a_stopped_recording_and_one_without_manifest_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writing, expected) = many(dir.path());
    writing.writer.make_durable(&mut writing.q).unwrap();
    let stopped = dir.path().join("stopped");
    copy(&writing.path, &stopped);
    assert!(read(&stopped) == expected, "from tables and logs");
    let reader = LeveldbReader::open(&stopped).unwrap();
    assert_eq!(reader.summary().message_count, 3000, "counted");
    for name in ["CURRENT", "MANIFEST-000001"] {
        fs::remove_file(stopped.join("_a_ldb_message").join(name)).unwrap();
    }
    let reader = LeveldbReader::open(&stopped).unwrap();
    let (messages, errors): (Vec<_>, Vec<_>) = reader
        .messages(&ReadQuery::default())
        .unwrap()
        .partition(Result::is_ok);
    assert_eq!(
        (messages.len(), errors.len()),
        (3000, 1),
        "all messages, and one error"
    );
    assert!(matches!(
        reader.summary().condition,
        FileCondition::Damaged { .. }
    ));
}

#[test]
fn a_damaged_block_costs_its_messages_and_is_reported_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (writing, expected) = many(dir.path());
    let path = writing.finish();
    let whole = check_file(&path, &mut |_| ()).unwrap();
    // The channels of these tests have made-up hashes.
    let is_invented = |what: &str| what.starts_with("type hash");
    assert!(
        whole.findings.list.iter().all(|found| is_invented(&found.what)),
        "{:?}",
        whole.findings
    );
    assert_eq!(whole.message_count, expected.len() as u64);
    let (table, mut bytes) = files(&path)
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|extension| extension == "ldb"))
        .unwrap();
    bytes[10] ^= 1;
    fs::write(&table, bytes).unwrap();
    let reader = LeveldbReader::open(&path).unwrap();
    let (messages, errors): (Vec<_>, Vec<_>) = reader
        .messages(&ReadQuery::default())
        .unwrap()
        .partition(Result::is_ok);
    assert!(messages.len() < expected.len() && messages.len() > expected.len() - 100);
    let error = errors[0].as_ref().unwrap_err().to_string();
    assert!(
        errors.len() == 1 && error.contains("checksum") && error.contains(".ldb"),
        "{error}"
    );
    let damaged = check_file(&path, &mut |_| ()).unwrap();
    let listed: Vec<String> = damaged.findings.list.iter().map(ToString::to_string).collect();
    assert!(
        listed.iter().any(|listed| listed.contains("checksum")),
        "{listed:?}"
    );
}

#[test]
fn other_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!is_leveldb(dir.path()));
    let error = LeveldbReader::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("_ldb_metadata"), "{error}");
    assert!(size_bytes(&plugin()).unwrap() > 100_000);
    let other = dir.path().join("x_ldb_metadata");
    fs::create_dir(&other).unwrap();
    let reader = LeveldbReader::open(dir.path()).unwrap();
    assert!(matches!(
        reader.outline().condition,
        FileCondition::Damaged { .. }
    ));
    assert_eq!(reader.messages(&ReadQuery::default()).unwrap().count(), 0);
}

#[test]
fn many_messages_with_one_stamp_at_the_end_of_time_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut writing = begin(dir.path(), &["/a"], None);
    for n in 0..2_000u32 {
        writing.write(0, i64::MAX, &payload(u64::from(n), 40));
        writing.write(0, i64::MAX - 5, &payload(u64::from(n), 41));
    }
    let found = read(&writing.finish());
    assert_eq!(found.len(), 4_000);
    let stamps: std::collections::BTreeSet<_> = found.iter().map(|(_, stamp, _)| *stamp).collect();
    assert_eq!(stamps.len(), 4_000);
}

#[test]
fn a_taken_stamp_is_found_in_a_table_that_is_on_its_way_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut writing = begin(dir.path(), &["/t"], None);
    let mut expected = Vec::new();
    // Several tables, and messages that wait for the next one.
    for stamp in (0..400).step_by(2) {
        let payload = payload(stamp, 100 << 10);
        writing.write(0, stamp as i64, &payload);
        expected.push(("/t".to_owned(), stamp as i64, payload));
    }
    for stamp in [0, 200, 398] {
        let payload = payload(stamp + 1000, 100 << 10);
        writing.write(0, stamp as i64, &payload);
        expected.push(("/t".to_owned(), stamp as i64 + 1, payload));
    }
    let path = writing.finish();
    let mut found = read(&path);
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected);
    assert_leveldb_reads(&path, &expected);
}

/// Large messages have their own tables before, between and after the others, even out of order.
#[test]
fn large_messages_are_kept_beside_small_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut writing = begin(dir.path(), &["/a", "/b"], None);
    let mut expected = Vec::new();
    let lens = [10, 9 << 20, 20, 8 << 20, (8 << 20) + 1, 30, 12 << 20, 40];
    for (n, len) in lens.into_iter().enumerate() {
        let stamp = START + [5, 3, 4, 9, 1, 2, 7, 8][n];
        let bytes = vec![n as u8; len];
        writing.write(n as u32 % 2, stamp, &bytes);
        expected.push((["/a", "/b"][n % 2].to_owned(), stamp, bytes));
    }
    expected.sort_by_key(|(_, stamp, _)| *stamp);
    let path = writing.finish();
    assert!(read(&path) == expected, "other messages than were written");
    let check = check_file(&path, &mut |_| ()).unwrap();
    assert_eq!(check.message_count, 8);
}

/// A killed process runs nothing more; the bytes it had submitted reach the disk.
#[test]
fn what_counts_as_handed_is_read_from_a_killed_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut writing = begin(dir.path(), &["/large"], None);
    let large = payload(1, 9 << 20);
    let mut handed = Vec::new();
    for number in 0..12 {
        writing.write(0, START + 2 * number, &large);
        writing.write(0, START + 2 * number + 1, b"small");
        writing.writer.close_chunks(&mut writing.q).unwrap();
        let count = writing.writer.handed(&writing.q);
        let killed = dir.path().join(format!("killed_{number}"));
        copy(&writing.path, &killed);
        handed.push((count, read(&killed).len() as u64));
    }
    for (number, (handed, read)) in handed.iter().enumerate() {
        assert!(handed <= read, "message {number}: {handed} handed, {read} read");
    }
    assert_eq!(read(&writing.finish()).len(), 24);
}
