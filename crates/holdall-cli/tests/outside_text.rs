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
