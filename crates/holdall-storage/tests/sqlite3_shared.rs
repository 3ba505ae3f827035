//! Other programs use a database while it is recorded: the recording waits for readers, no other program changes it, and readers get whole
//! transactions.
#![cfg(feature = "sqlite3")]

mod support;

use holdall_io::{
    block::BlockPoolOptions,
    disk::FileId,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{message::PayloadRef, topic::PublisherInfo};
use holdall_storage::{
    StorageOptions,
    check::check_file,
    reader::{FileCondition, ReadQuery, StorageReader},
    sqlite3::SqliteReader,
    storage_by_id,
    writer::{ChannelIndex, StorageWriter, StoredMessage},
};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};
use support::{channel, time};

/// A recording in this process.
struct Recording {
    _dir: tempfile::TempDir,
    path: PathBuf,
    q: DiskQueue,
    file: FileId,
    writer: Box<dyn StorageWriter>,
    topic: ChannelIndex,
    written: u64,
}

impl Recording {
    fn start(options: &StorageOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live.db3");
        let disk = OsDisk::open(dir.path(), DiskMode::Auto).unwrap();
        let mut q = DiskQueue::new(Box::new(disk), BlockPoolOptions::default()).unwrap();
        let file = q.create_file_ahead(&path, 0);
        let storage = storage_by_id("sqlite3").unwrap();
        let mut writer = storage.create_writer(&mut q, file, &path, options).unwrap();
        let mut info = channel("/t", "std_msgs/msg/String");
        info.topic.type_description_hash.clear();
        let topic = writer.add_channel(&mut q, &info).unwrap();
        let mut recording = Self {
            _dir: dir,
            path,
            q,
            file,
            writer,
            topic,
            written: 0,
        };
        recording.write(500);
        recording
    }

    /// One transaction.
    fn write(&mut self, count: u64) {
        for _ in 0..count {
            let payload = self.written.to_le_bytes().repeat(100);
            let at = time(1_000_000 + self.written * 1_000_000);
            let message = StoredMessage {
                log_time: at,
                publish_time: at,
                sequence: 0,
                payload: PayloadRef::Bytes(&payload),
            };
            self.writer.write(&mut self.q, self.topic, message).unwrap();
            self.written += 1;
        }
        self.writer.close_chunks(&mut self.q).unwrap();
    }

    /// Ends it, and asks a foreign program whether the database is sound and has all messages.
    fn finish(mut self) {
        self.write(50);
        self.writer.finish(&mut self.q, &[]).unwrap();
        self.q.wait_closed(self.file).unwrap();
        let (status, text) = sqlite3(
            &self.path,
            "PRAGMA integrity_check; SELECT count(*), max(id) FROM messages;",
        );
        assert!(status, "{text}");
        assert_eq!(text, format!("ok\n{0}|{0}\n", self.written));
    }
}

/// Runs SQL in the real sqlite3 program; returns whether that worked, and its output.
fn sqlite3(path: &Path, sql: &str) -> (bool, String) {
    let output = Command::new("sqlite3")
        .args(["-batch", "-bail"])
        .arg(path)
        .arg(sql)
        .output();
    let output = output.expect("the tests need the program sqlite3: scripts/setup.sh installs it");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// The real sqlite3 program with a read transaction, until its input ends.
fn long_reader(path: &Path) -> std::process::Child {
    use std::io::{BufRead, Write};
    let mut reader = Command::new("sqlite3")
        .args(["-batch", "-bail"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reader
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b".timeout 20000\nBEGIN; SELECT count(*) FROM messages;\n")
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(reader.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.trim().parse::<u64>().unwrap() >= 500, "{line:?}");
    reader
}

fn config(pragma: &str) -> StorageOptions {
    StorageOptions {
        config: Some(format!("write: {{pragmas: [{pragma:?}]}}")),
        ..StorageOptions::default()
    }
}

fn all_options() -> Vec<StorageOptions> {
    let preset = |name: &str| StorageOptions {
        preset: Some(name.to_owned()),
        ..StorageOptions::default()
    };
    vec![StorageOptions::default(), preset("resilient"), preset("none")]
}

#[test]
fn no_other_program_changes_a_database_while_it_is_recorded() {
    for options in all_options() {
        let mut recording = Recording::start(&options);
        for sql in [
            "DELETE FROM messages WHERE id < 20",
            "INSERT INTO messages VALUES (1000000, 1, 5, x'00')",
            "UPDATE messages SET topic_id = 9",
            "CREATE TABLE notes(x); INSERT INTO notes VALUES (1)",
            "CREATE INDEX other ON messages (topic_id)",
            "PRAGMA user_version = 7",
            "VACUUM",
            "PRAGMA journal_mode = wal",
            "BEGIN EXCLUSIVE",
            "DROP TABLE topics",
        ] {
            let (_, text) = sqlite3(&recording.path, sql);
            assert!(text.contains("database is locked"), "{sql}: {text:?}");
            recording.write(100);
            let (is_read, text) = sqlite3(&recording.path, "SELECT count(*) FROM messages");
            assert!(is_read && text.trim() == recording.written.to_string(), "{text}");
        }
        recording.finish();
    }
}

#[test]
fn a_reader_of_any_length_delays_a_recording_and_never_ends_it() {
    for (options, held_millis) in all_options().into_iter().zip([7000, 2000, 0]) {
        let mut recording = Recording::start(&options);
        let mut reader = long_reader(&recording.path);
        let is_held = AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                // The time itself matters: longer than SQLite waits for a lock by default.
                thread::sleep(Duration::from_millis(held_millis));
                is_held.store(false, Ordering::SeqCst);
                drop(reader.stdin.take());
                reader.wait().unwrap();
            });
            recording.write(500);
            assert!(!is_held.load(Ordering::SeqCst), "pages changed under a reader");
        });
        recording.finish();
    }
}

#[test]
fn pages_of_every_size_and_a_write_ahead_log_are_recorded_beside_other_programs() {
    for pragma in [
        "page_size = 512",
        "page_size = 1024",
        "page_size = 2048",
        "page_size = 65536",
        "journal_mode = WAL",
    ] {
        let mut recording = Recording::start(&config(pragma));
        let mut reader = long_reader(&recording.path);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                drop(reader.stdin.take());
                reader.wait().unwrap();
            });
            recording.write(500);
        });
        let path = recording.path.clone();
        assert_eq!(
            SqliteReader::open(&path).unwrap().summary().message_count,
            1000,
            "{pragma}"
        );
        if pragma.starts_with("page_size") {
            let (_, text) = sqlite3(&path, "PRAGMA page_size");
            assert_eq!(text.trim(), pragma.rsplit(' ').next().unwrap());
        }
        recording.finish();
    }
}

#[test]
fn own_readers_of_a_living_database_see_whole_transactions_and_no_damage() {
    for options in all_options() {
        let mut recording = Recording::start(&options);
        let path = recording.path.clone();
        let (committed, is_ended) = (AtomicU64::new(500), AtomicBool::new(false));
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut rounds = 0;
                while !is_ended.load(Ordering::SeqCst) {
                    let before = committed.load(Ordering::SeqCst);
                    let reader = SqliteReader::open(&path).unwrap();
                    assert_eq!(reader.outline().condition, FileCondition::Complete);
                    let messages = reader.messages(&ReadQuery::default()).unwrap();
                    for (number, message) in messages.take(usize::try_from(before).unwrap()).enumerate() {
                        let payload = message.unwrap().payload;
                        assert_eq!(payload[..8], (number as u64).to_le_bytes());
                    }
                    assert!(reader.summary().message_count >= before);
                    let check = check_file(&path, &mut |_| {}).unwrap();
                    assert!(check.findings.is_sound(), "{:?}", check.findings);
                    assert!(check.message_count >= before);
                    rounds += 1;
                }
                rounds
            });
            for _ in 0..40 {
                recording.write(250);
                committed.store(recording.written, Ordering::SeqCst);
            }
            is_ended.store(true, Ordering::SeqCst);
            assert!(reading.join().unwrap() > 0);
        });
        recording.finish();
    }
}

#[test]
fn the_journal_of_a_living_program_is_not_taken_for_a_dead_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.db3");
    let writer = rusqlite::Connection::open(&path).unwrap();
    for statement in holdall_storage::sqlite3::format::CREATE_TABLES {
        writer.execute(statement, []).unwrap();
    }
    let topic = "INSERT INTO topics VALUES (1, '/t', 'std_msgs/msg/String', 'cdr', '', '')";
    writer.execute(topic, []).unwrap();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
                INSERT INTO messages (topic_id, timestamp, data) SELECT 1, i, zeroblob(200) FROM n";
    writer.execute(rows, []).unwrap();
    // A transaction with a journal; none of its pages is in the file yet.
    writer
        .execute_batch("BEGIN; UPDATE messages SET timestamp = 9 WHERE id < 10")
        .unwrap();
    assert!(dir.path().join("foreign.db3-journal").exists());
    let reader = SqliteReader::open(&path).unwrap();
    assert_eq!(reader.outline().condition, FileCondition::Complete);
    let mut messages = reader.messages(&ReadQuery::default()).unwrap();
    assert_eq!(messages.next().unwrap().unwrap().log_time, time(1));
    writer.execute_batch("COMMIT").unwrap();
    for _ in 0..20 {
        writer.execute(rows, []).unwrap();
    }
    let found = messages.inspect(|message| assert!(message.is_ok())).count();
    assert!(found >= 4900, "{found}");
    assert!(dir.path().read_dir().unwrap().count() == 1);
}

#[test]
fn deleted_rows_are_not_counted() {
    let mut recording = Recording::start(&StorageOptions::default());
    recording.write(500);
    let metadata = "version: 9\nstorage_identifier: sqlite3\nduration: {nanoseconds: 0}\n\
         starting_time: {nanoseconds_since_epoch: 0}\nmessage_count: 1000\ntopics_with_message_count:\n  \
         - topic_metadata: {name: /t, type: std_msgs/msg/String, serialization_format: cdr, offered_qos_profiles: [], type_description_hash: ''}\n    \
         message_count: 1000\ncompression_format: ''\ncompression_mode: ''\nrelative_file_paths: [live.db3]\nfiles: []\n";
    let closing = [("rosbag2", support::metadata("serialized_metadata", metadata))];
    let Recording {
        _dir,
        path,
        mut q,
        file,
        writer,
        ..
    } = recording;
    writer.finish(&mut q, &closing).unwrap();
    q.wait_closed(file).unwrap();
    let count = || SqliteReader::open(&path).unwrap().summary().message_count;
    assert_eq!(count(), 1000);
    assert!(sqlite3(&path, "DELETE FROM messages WHERE id BETWEEN 300 AND 309").0);
    assert_eq!(count(), 990, "a hole in the middle");
}

/// A database with messages of these publishers (`None`: not known) on one topic, in turn.
fn published(dir: &Path, publishers: &[Option<&str>], each: u64) -> PathBuf {
    let path = dir.join("several.db3");
    let disk = OsDisk::open(dir, DiskMode::Auto).unwrap();
    let mut q = DiskQueue::new(Box::new(disk), BlockPoolOptions::default()).unwrap();
    let file = q.create_file_ahead(&path, 0);
    let storage = storage_by_id("sqlite3").unwrap();
    let mut writer = storage
        .create_writer(&mut q, file, &path, &StorageOptions::default())
        .unwrap();
    let mut channels = Vec::new();
    for gid in publishers {
        let mut info = channel("/slow", "std_msgs/msg/String");
        let of_gid = |gid: &&str| PublisherInfo {
            gid: (*gid).to_owned(),
            node: Some(format!("/node_{gid}")),
            ..PublisherInfo::default()
        };
        info.topic.publisher = gid.as_ref().map(of_gid).map(Box::new);
        channels.push(writer.add_channel(&mut q, &info).unwrap());
    }
    for number in 0..each * publishers.len() as u64 {
        let place = usize::try_from(number).unwrap() % publishers.len();
        // Gathered, inserted at once, and piece by piece.
        let bytes = [3, 5000, 9 << 20][usize::from(number % 7 == 0) + usize::from(number == 7)];
        let payload = vec![place as u8; bytes];
        let message = StoredMessage {
            log_time: time(1000 + number),
            publish_time: time(1000 + number),
            sequence: 0,
            payload: PayloadRef::Bytes(&payload),
        };
        writer.write(&mut q, channels[place], message).unwrap();
    }
    writer.finish(&mut q, &[]).unwrap();
    q.wait_closed(file).unwrap();
    path
}

#[test]
fn a_topic_of_several_publishers_has_one_row_and_each_message_its_publisher() {
    let cases: [&[Option<&str>]; 4] = [
        &[Some("aa"), Some("bb"), Some("cc")],
        &[None, Some("aa")],
        &[Some("aa"), None, Some("bb")],
        &[Some("aa")],
    ];
    for publishers in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = published(dir.path(), publishers, 40);
        let all = 40 * publishers.len();
        let by_name = "SELECT count(*) FROM topics; SELECT count(*) FROM messages WHERE topic_id = \
                       (SELECT id FROM topics WHERE name = '/slow'); PRAGMA integrity_check;";
        assert_eq!(sqlite3(&path, by_name).1, format!("1\n{all}\nok\n"));
        let reader = SqliteReader::open(&path).unwrap();
        let channels = &reader.summary().channels;
        let gid_of = |index: ChannelIndex| {
            let publisher = channels[index.0 as usize].info.topic.publisher.as_ref();
            publisher.map(|publisher| publisher.gid.clone())
        };
        assert_eq!(channels.len(), publishers.len());
        assert!(channels.iter().all(|channel| channel.message_count == 40));
        let mut found = 0;
        for message in reader.messages(&ReadQuery::default()).unwrap() {
            let message = message.unwrap();
            let sent_by = publishers[usize::from(message.payload[0])];
            assert_eq!(gid_of(message.channel).as_deref(), sent_by);
            found += 1;
        }
        assert_eq!(found, all);
        for index in (0..).map(ChannelIndex).take(channels.len()) {
            let query = ReadQuery {
                channels: Some(vec![index]),
                ..ReadQuery::default()
            };
            assert_eq!(reader.messages(&query).unwrap().count(), 40);
        }
    }
}

#[test]
fn a_row_for_each_publisher_as_earlier_versions_wrote_it_is_read_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("before.db3");
    let writer = rusqlite::Connection::open(&path).unwrap();
    for statement in holdall_storage::sqlite3::format::CREATE_TABLES {
        writer.execute(statement, []).unwrap();
    }
    let rows = "CREATE TABLE holdall_publishers(topic_id INTEGER PRIMARY KEY,gid TEXT NOT NULL,node TEXT,host TEXT,transport TEXT,message_count INTEGER);
        INSERT INTO topics VALUES (1, '/t', 'a/msg/B', 'cdr', '', ''), (2, '/t', 'a/msg/B', 'cdr', '', '');
        INSERT INTO holdall_publishers VALUES (1, 'aa', '/one', NULL, NULL, 2), (2, 'bb', '/two', NULL, NULL, 1);
        INSERT INTO messages VALUES (1, 1, 5, x'00'), (2, 2, 6, x'00'), (3, 1, 7, x'00');";
    writer.execute_batch(rows).unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    let found: Vec<_> = reader.summary().channels.iter().collect();
    let gid = |place: usize| found[place].info.topic.publisher.as_ref().unwrap().gid.clone();
    assert_eq!((gid(0), found[0].message_count), ("aa".to_owned(), 2));
    assert_eq!((gid(1), found[1].message_count), ("bb".to_owned(), 1));
}

#[test]
fn what_is_before_after_and_between_bad_pages_is_read_and_the_rest_is_reported() {
    for (bad, cut, left) in [
        (vec![300], None, 4..40),
        (vec![120, 700], None, 8..80),
        (vec![], Some(8), 300..900),
    ] {
        let mut recording = Recording::start(&StorageOptions::default());
        recording.write(3500);
        let Recording {
            _dir,
            path,
            mut q,
            file,
            writer,
            ..
        } = recording;
        writer.finish(&mut q, &[]).unwrap();
        q.wait_closed(file).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        for page in &bad {
            bytes[page * 4096..(page + 1) * 4096].fill(0);
        }
        if let Some(tenths) = cut {
            bytes.truncate(bytes.len() / 4096 * tenths / 10 * 4096);
        }
        std::fs::write(&path, bytes).unwrap();
        let reader = SqliteReader::open(&path).unwrap();
        let summary = reader.summary();
        assert!(matches!(summary.condition, FileCondition::Damaged { .. }));
        let mut numbers = Vec::new();
        let mut errors = Vec::new();
        for message in reader.messages(&ReadQuery::default()).unwrap() {
            match message {
                Ok(message) => numbers.push(u64::from_le_bytes(message.payload[..8].try_into().unwrap())),
                Err(error) => errors.push(error.to_string()),
            }
        }
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "in order, each once"
        );
        let lost = 4000 - numbers.len();
        assert!(
            (if cut.is_some() { 1..1800 } else { 1..left.end }).contains(&lost),
            "{lost}: {errors:?}"
        );
        assert!(
            errors.iter().any(|error| error.contains("cannot be read")),
            "{errors:?}"
        );
        assert_eq!(summary.message_count, numbers.len() as u64);
    }
}
