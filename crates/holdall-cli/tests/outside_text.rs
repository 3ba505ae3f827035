//! Names of others that would act on a terminal: no verb writes them raw, in results, log lines or complaints.

use assert_cmd::Command;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

/// C0 with an end of line, C1, and a change of direction.
const HOSTILE: &str = "\u{1b}[31mRED\u{1b}]0;title\u{7}\nINJECTED\r\u{9b}2J\u{202e}gnp\u{2066}\u{7f}";

/// A bag that contains it everywhere: file name, topic, type, encodings, definition, text of messages,
/// metadata.
fn hostile_bag(folder: &Path, payload: &str) -> PathBuf {
    let path = folder.join(format!("bag{HOSTILE}.mcap").replace('/', "_"));
    let options = mcap::WriteOptions::new()
        .profile(format!("ros2{HOSTILE}"))
        .compression(None);
    let mut writer = options.create(File::create(&path).unwrap()).unwrap();
    let channel =
        |id: u16, topic: String, type_name: String, definition: String, encoding: String| mcap::Channel {
            id,
            topic,
            message_encoding: encoding,
            metadata: BTreeMap::from([
                (
                    "offered_qos_profiles".to_owned(),
                    format!("- reliability: \"{HOSTILE}\""),
                ),
                (HOSTILE.to_owned(), HOSTILE.to_owned()),
            ]),
            schema: Some(Arc::new(mcap::Schema {
                id,
                name: type_name,
                encoding: "ros2msg".to_owned(),
                data: Cow::Owned(definition.into_bytes()),
            })),
        };
    let string = "std_msgs/msg/String".to_owned();
    let channels = [
        channel(
            1,
            format!("/a{HOSTILE}"),
            string.clone(),
            "string data".to_owned(),
            "cdr".to_owned(),
        ),
        channel(
            2,
            "/b".to_owned(),
            format!("p/msg/{HOSTILE}"),
            format!("{HOSTILE} x"),
            "cdr".to_owned(),
        ),
        channel(
            3,
            "/c".to_owned(),
            string.clone(),
            "string data".to_owned(),
            format!("cdr{HOSTILE}"),
        ),
        channel(
            4,
            "/d".to_owned(),
            string,
            format!("p/{HOSTILE} x"),
            "json".to_owned(),
        ),
    ];
    for (number, channel) in channels.into_iter().enumerate() {
        let is_json = channel.message_encoding == "json";
        let data = if is_json {
            format!("{{\"x\":\"{}\"}}", "\u{9b}2J\u{202e}\u{7f}").into_bytes()
        } else {
            let mut data = vec![0, 1, 0, 0];
            data.extend((payload.len() as u32 + 1).to_le_bytes());
            data.extend(payload.bytes());
            data.push(0);
            data
        };
        let message = mcap::Message {
            channel: Arc::new(channel),
            sequence: 1,
            log_time: 1_700_000_000_000_000_000 + number as u64,
            publish_time: 1_700_000_000_000_000_000,
            data: Cow::Owned(data),
        };
        writer.write(&message).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Runs the program; all its output must be plain text, and a name must not start a new line.
#[track_caller]
fn says_plain_text(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::cargo_bin("holdall")
        .unwrap()
        .current_dir(folder)
        .env_clear()
        .env("TZ", "UTC")
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    for c in text.chars().filter(|c| *c != '\n' && *c != '\t') {
        assert!(
            !holdall_model::text::is_control(c),
            "{arguments:?} wrote {c:?}:\n{text:?}"
        );
    }
    assert!(
        !text.lines().any(|line| line.starts_with("INJECTED")),
        "{arguments:?}: a name made a line:\n{text}"
    );
    assert!(!text.contains("a bug in holdall"), "{arguments:?}: {text}");
    text
}

#[test]
fn no_verb_writes_control_characters_of_a_bag() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let bag = hostile_bag(folder, HOSTILE);
    let bag = bag.to_str().unwrap();
    let hostile_topic = format!("/a{HOSTILE}");
    let cases: &[&[&str]] = &[
        &["info", bag],
        &["info", "-v", bag],
        &["info", "--json", bag],
        &["info", "--topic-name", bag],
        &["list", "topics", bag],
        &["list", "topics", "--json", bag],
        &["list", "chunks", bag],
        &["check", bag],
        &["check", "--json", bag],
        &["cat", bag],
        &["cat", "--json", bag],
        &["cat", "-w", "/b: data == 1", bag],
        &["cat", "--topics", HOSTILE, bag],
        &["cat", "-e", &hostile_topic, bag],
        &["audit", bag],
        &["audit", "--json", bag],
        &["export", bag, "-f", "csv", "-o", "csv"],
        &["export", bag, "-f", "png", "-o", "png"],
        &["convert", bag, "-o", "sqlite3", "-s", "sqlite3"],
        &["convert", bag, "-o", HOSTILE, "-s", HOSTILE],
        &["merge", bag, bag, "-o", "both"],
        &["split", bag, "-o", "parts", "-d", "1"],
        &["filter", bag, "-o", "cut", "--topics", HOSTILE],
        &["filter", bag, "-o", "cut", "-w", "/a: x > 1"],
        &["compress", bag, "-o", "small"],
        &[
            "play",
            bag,
            "--topics",
            HOSTILE,
            "--transport",
            "\u{1b}[2J\u{9b}2J\u{202e}\r",
        ],
        &["play", &format!("none{HOSTILE}")],
        &["record", "-o", HOSTILE, "--topics", HOSTILE],
        &["info", "sqlite3"],
        &["diff", "sqlite3", bag],
        &["diff", "--fields", "small", bag],
        &["repair", bag],
        &["reindex", bag],
        &["reindex", "sqlite3"],
        &["attach", bag, HOSTILE],
        &[
            "attach",
            bag,
            "--metadata",
            HOSTILE,
            "--entry",
            "\u{1b}[31mRED=\u{1b}[31mRED",
        ],
        &["get", bag],
        &["get", bag, HOSTILE],
        &["check", "sqlite3"],
    ];
    for arguments in cases {
        let text = says_plain_text(folder, arguments);
        let is_shown = arguments[0] == "info" && arguments.last() == Some(&bag);
        assert!(!is_shown || text.contains("\\u001b[31mRED"), "{text}");
    }
}

#[test]
fn two_bags_that_differ_in_hostile_texts_are_compared_in_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "other"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let one = hostile_bag(&folder.path().join("one"), HOSTILE);
    let other = hostile_bag(&folder.path().join("other"), "plain");
    let paths = [one.to_str().unwrap(), other.to_str().unwrap()];
    for how in ["--fields", "--json", "--summary"] {
        says_plain_text(folder.path(), &["diff", how, paths[0], paths[1]]);
    }
}

/// An SQLite bag with hostile text in every column: topic, type, format, QoS, hash, definition, distribution, metadata, and the names of
/// publishers as a recorder of live nodes stores them.
fn hostile_database(path: &Path) {
    let database = rusqlite::Connection::open(path).unwrap();
    let tables = "
        CREATE TABLE schema(schema_version INTEGER PRIMARY KEY,ros_distro TEXT NOT NULL);
        CREATE TABLE metadata(id INTEGER PRIMARY KEY,metadata_version INTEGER NOT NULL,metadata TEXT NOT NULL);
        CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,
            offered_qos_profiles TEXT NOT NULL,type_description_hash TEXT NOT NULL);
        CREATE TABLE message_definitions(id INTEGER PRIMARY KEY,topic_type TEXT NOT NULL,encoding TEXT NOT NULL,
            encoded_message_definition TEXT NOT NULL,type_description_hash TEXT NOT NULL);
        CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL,data BLOB NOT NULL);
        CREATE TABLE holdall_publishers(topic_id INTEGER PRIMARY KEY,gid TEXT NOT NULL,node TEXT,host TEXT,transport TEXT,
            message_count INTEGER);";
    database.execute_batch(tables).unwrap();
    let insert = |sql: &str| database.execute(sql, [HOSTILE]).unwrap();
    insert("INSERT INTO schema VALUES(4, ?1)");
    insert("INSERT INTO metadata VALUES(1, 9, ?1)");
    insert("INSERT INTO topics VALUES(1, '/a' || ?1, 'std_msgs/msg/String', 'cdr', ?1, ?1)");
    insert(
        "INSERT INTO topics VALUES(2, '/b', 'p/msg/' || ?1, 'cdr' || ?1, '- reliability: ' || ?1, 'RIHS01_' || ?1)",
    );
    database
        .execute(
            "INSERT INTO topics VALUES(3, '/c', 'std_msgs/msg/String', 'cdr', '', '')",
            (),
        )
        .unwrap();
    insert("INSERT INTO message_definitions VALUES(1, 'std_msgs/msg/String', 'ros2msg' || ?1, ?1, ?1)");
    insert("INSERT INTO message_definitions VALUES(2, 'p/msg/' || ?1, 'ros2msg', ?1 || ' x', ?1)");
    for topic in 1..=3 {
        let mut data = vec![0, 1, 0, 0];
        data.extend((HOSTILE.len() as u32 + 1).to_le_bytes());
        data.extend(HOSTILE.bytes().chain([0]));
        let row = (topic, 1_700_000_000_000_000_000_i64 + topic, data);
        database
            .execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES(?1, ?2, ?3)",
                row,
            )
            .unwrap();
    }
    let gid = "0102030405060708090a0b0c0d0e0f10";
    let publisher = (gid, format!("/node{HOSTILE}"), HOSTILE, HOSTILE);
    database
        .execute(
            "INSERT INTO holdall_publishers VALUES(3, ?1, ?2, ?3, ?4, 1)",
            publisher,
        )
        .unwrap();
}

#[test]
fn no_verb_writes_control_characters_of_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let name = format!("bag{HOSTILE}.db3").replace('/', "_");
    hostile_database(&folder.join(&name));
    let bag = name.as_str();
    let node = format!("/node{HOSTILE}");
    let cases: &[&[&str]] = &[
        &["info", bag],
        &["info", "-v", bag],
        &["info", "-v", "--json", bag],
        &["list", "topics", bag],
        &["list", "chunks", bag],
        &["check", bag],
        &["check", "--json", bag],
        &["cat", bag],
        &["cat", "--json", bag],
        &["cat", "-w", "/c: nothing == 1", bag],
        &["audit", bag],
        &["export", bag, "-f", "csv", "-o", "csv"],
        &["convert", bag, "-o", "mcap", "-s", "mcap"],
        &["convert", bag, "-o", "leveldb", "-s", "leveldb"],
        &["info", "-v", "mcap"],
        &["info", "-v", "leveldb"],
        &["check", "mcap"],
        &["diff", "mcap", bag],
        &["diff", "--fields", "leveldb", "mcap"],
        &["filter", bag, "-o", "cut", "--publisher", &node],
        &["filter", bag, "-o", "none", "--publisher", HOSTILE],
        &["info", "-v", "cut"],
        &["split", bag, "-o", "parts", "--max-bag-messages", "1"],
        &["repair", bag],
        &["repair", bag, "-o", "copy"],
    ];
    for arguments in cases {
        let text = says_plain_text(folder, arguments);
        let is_shown = arguments[0] == "info" && !text.contains("holdall: ");
        assert!(
            !is_shown || text.contains("\\u001b[31mRED"),
            "{arguments:?}: {text}"
        );
    }
    let shown = says_plain_text(folder, &["info", "-v", bag]);
    assert!(
        shown.contains("/node\\u001b[31mRED"),
        "the node is shown: {shown}"
    );
}

/// As a quoted YAML text, with escapes.
fn quoted(text: &str) -> String {
    let escape = |c: char| format!("\\U{:08X}", u32::from(c));
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[test]
fn no_verb_writes_control_characters_of_metadata() {
    let hostile = quoted(HOSTILE);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mcap_split3");
    let plain = fs::read_to_string(format!("{source}/metadata.yaml")).unwrap();
    let replaced = |from: &str, to: &str| {
        assert!(plain.contains(from), "{from}");
        plain.replace(from, to)
    };
    let hostile_topic = quoted(&format!("/a{HOSTILE}"));
    let variants = [
        replaced("name: /map/latched", &format!("name: {hostile_topic}")),
        replaced("type: std_msgs/msg/String", &format!("type: {hostile}")),
        replaced(
            "serialization_format: cdr",
            &format!("serialization_format: {hostile}"),
        ),
        replaced(
            "storage_identifier: mcap",
            &format!("storage_identifier: {hostile}"),
        ),
        replaced("history: keep_last", &format!("history: {hostile}")),
        replaced(
            "origin: peer_bench",
            &format!("{hostile}: {hostile}\n    holdall.lost: {hostile}\n    holdall.ledger: {hostile}"),
        ),
        replaced("mcap_split3_2.mcap", &hostile),
        replaced("mcap_split3_2.mcap", &quoted(&format!("../{HOSTILE}"))),
        replaced("compression_mode: \"\"", &format!("compression_mode: {hostile}")),
        replaced(
            "compression_format: \"\"",
            &format!("compression_format: {hostile}\n  compression_mode: FILE"),
        ),
        replaced("ros_distro: ", &format!("ros_distro: {hostile} #")),
        replaced("version: 9", &format!("version: {hostile}")),
        // Damaged, at a place that the error quotes.
        format!("rosbag2_bagfile_information:\n  version: [\n  \u{1b}[31m{HOSTILE}"),
        format!("{HOSTILE}: {HOSTILE}"),
    ];
    let mut shown = 0;
    for metadata in &variants {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let bag = folder.join("bag");
        fs::create_dir(&bag).unwrap();
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), bag.join(entry.file_name())).unwrap();
        }
        fs::write(bag.join("metadata.yaml"), metadata).unwrap();
        let cases: &[&[&str]] = &[
            &["info", "bag"],
            &["info", "-v", "bag"],
            &["info", "--json", "bag"],
            &["list", "topics", "bag"],
            &["check", "bag"],
            &["cat", "-n", "1", "bag"],
            &["audit", "bag"],
            &["diff", "bag", source],
            &["convert", "bag", "-o", "out", "-s", "sqlite3"],
            &["merge", "bag", source, "-o", "both"],
            &["repair", "bag", "-o", "copy"],
            &["reindex", "bag"],
        ];
        for arguments in cases {
            let text = says_plain_text(folder, arguments);
            shown += usize::from(text.contains("\\u001b[31mRED"));
        }
    }
    assert!(shown > 2 * variants.len(), "hostile text was shown {shown} times");
}
