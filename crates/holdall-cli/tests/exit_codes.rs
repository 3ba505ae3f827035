//! The rule of exit codes, over all verbs: 2 when the input was refused before anything was done, 1 when something failed on the way.

use assert_cmd::Command;
use std::{collections::BTreeSet, fs, path::Path};

/// A bag of 288 messages with /chatter, /imu/data, /map/latched and a topic without messages.
fn good() -> String {
    format!("{}/tests/data/mcap_split3", env!("CARGO_MANIFEST_DIR"))
}

/// Exit code, standard output, standard error.
fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("holdall")
        .unwrap()
        .current_dir(folder)
        .env_clear()
        .env("TZ", "UTC")
        .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        .env("ROS_DOMAIN_ID", "97")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Names of everything in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// The command lines of all verbs that read a bag; `BAG` is replaced.
const READERS: &[&[&str]] = &[
    &["info", "BAG"],
    &["info", "-v", "--json", "BAG"],
    &["list", "topics", "BAG"],
    &["list", "chunks", "BAG"],
    &["cat", "BAG"],
    &["check", "BAG"],
    &["contract", "init", "BAG"],
    &["events", "BAG", "--trigger", "/chatter: data == ''"],
    &["audit", "BAG"],
    &["repair", "BAG"],
    &["repair", "BAG", "-o", "out"],
    &["reindex", "BAG"],
    &["get", "BAG"],
    &["attach", "BAG", "--remove", "nothing"],
    &["export", "BAG", "-f", "csv", "-o", "out"],
    &["diff", "BAG", "GOOD"],
    &["diff", "GOOD", "BAG"],
    &["convert", "BAG", "-o", "out"],
    &["merge", "GOOD", "BAG", "-o", "out"],
    &["split", "BAG", "-o", "out", "--max-bag-messages", "5"],
    &["filter", "BAG", "-o", "out", "--topics", "/chatter"],
    &["migrate", "BAG", "-o", "out", "--distro", "humble"],
    &["compress", "BAG", "-o", "out"],
    &["decompress", "BAG", "-o", "out"],
    &["serve", "BAG", "--foxglove", "127.0.0.1:0"],
    &["decrypt", "BAG", "-o", "out"],
    &["plot", "BAG", "-o", "out.svg"],
    #[cfg(feature = "remote")]
    &["upload", "BAG", "s3://bucket/prefix"],
    #[cfg(feature = "dds")]
    &["play", "BAG"],
    #[cfg(feature = "dds")]
    &["burst", "BAG"],
];

/// Verbs that read no bag, with an input that is not there.
const OTHERS: &[&[&str]] = &[
    &["record", "-a", "--qos-profile-overrides-path", "missing"],
    &["record", "-a", "--encrypt-to", "nobody"],
    &["preflight", "-a", "--qos-profile-overrides-path", "missing"],
    &["web", "missing"],
    #[cfg(feature = "parquet")]
    &["catalog", "missing", "-o", "out"],
    #[cfg(feature = "parquet")]
    &["find", "lost > 0", "missing"],
    &["info", "GOOD", "--identity", "missing"],
    &["control", "missing", "status"],
    &["regress", "missing", "-o", "out"],
];

/// Verbs without an input; all that they can refuse is a wrong flag.
const WITHOUT_INPUT: &[&[&str]] = &[
    &["bridge", "--foxglove", "robot:8765"],
    &["web", "nowhere", "127.0.0.1:0"],
    &["top", "-e", "("],
    &["hz"],
    &["bw", "/a", "-w", "0"],
    &["delay", "--wrong"],
    &["echo", "/a b"],
    &["man", "--wrong"],
    &["completion", "shell"],
    // Refused by holdall-bench, or because it is not installed.
    &["bench", "--wrong"],
    &["help", "missing"],
    &["ps", "--wrong"],
    #[cfg(not(feature = "dds"))]
    &["play", "--wrong"],
    #[cfg(not(feature = "dds"))]
    &["burst", "--wrong"],
];

/// Choices that leave nothing of a good bag.
const NOTHING: &[&[&str]] = &[
    &["cat", "GOOD", "--topics", "/nowhere"],
    &["cat", "GOOD", "-e", "^chat"],
    &["cat", "GOOD", "-w", "/nowhere: data == 1"],
    &["cat", "GOOD", "--start", "1800000000"],
    &["cat", "GOOD", "--topics", "/empty/never_published"],
    &["export", "GOOD", "-f", "csv", "-o", "out", "--topics", "/nowhere"],
    &["export", "GOOD", "-f", "csv", "-o", "out", "-e", "^chat"],
    &[
        "export",
        "GOOD",
        "-f",
        "csv",
        "-o",
        "out",
        "--start-offset",
        "100",
    ],
    &["export", "GOOD", "-f", "png", "-o", "out"],
    &["events", "GOOD", "--trigger", "/nowhere silent 1s"],
    &["events", "GOOD", "--trigger", "/chatter: date == 1"],
    &["filter", "GOOD", "-o", "out", "--topics", "/nowhere"],
    &["filter", "GOOD", "-o", "out", "--topics", "/chatter", "/nowhere"],
    &["filter", "GOOD", "-o", "out", "-e", "nowhere"],
    &["filter", "GOOD", "-o", "out", "--start", "+100"],
    &[
        "filter",
        "GOOD",
        "-o",
        "out",
        "-w",
        "/chatter: data == 'nothing'",
        "--topics",
        "/chatter",
    ],
    &["filter", "GOOD", "-o", "out", "--publisher", "/nobody"],
    &["split", "GOOD", "-o", "out", "--by", "episode"],
    #[cfg(feature = "dds")]
    &["play", "GOOD", "--episode", "1"],
    &["get", "GOOD", "nothing"],
    &["attach", "GOOD", "--remove", "nothing"],
    &["convert", "GOOD", "-o", "out", "--topics", "/nowhere"],
    &["convert", "GOOD", "-o", "out", "-s", "sqlite3", "--start", "+100"],
    #[cfg(feature = "dds")]
    &["play", "GOOD", "--topics", "/nowhere"],
    #[cfg(feature = "dds")]
    &["burst", "GOOD", "--topics", "/nowhere"],
    #[cfg(feature = "dds")]
    &["play", "GOOD", "-e", "chat"],
    #[cfg(feature = "dds")]
    &["play", "GOOD", "--start-offset", "100"],
];

/// Runs a command line and checks its code; one sentence of `holdall:`, no output, nothing created.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], bag: &str) -> String {
    let good = good();
    let line: Vec<&str> = arguments
        .iter()
        .map(|word| match *word {
            "BAG" => bag,
            "GOOD" => good.as_str(),
            word => word,
        })
        .collect();
    let before = names(folder);
    let (code, stdout, stderr) = run(folder, &line);
    assert_eq!((code, stdout.as_str()), (2, ""), "{line:?}: {stderr}");
    assert_eq!(names(folder), before, "{line:?} has left files");
    let sentences = stderr.lines().filter(|line| line.starts_with("holdall: "));
    assert_eq!(sentences.count(), 1, "{line:?}: {stderr}");
    stderr
}

#[test]
fn what_is_no_bag_is_refused_by_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir(folder.join("others")).unwrap();
    fs::write(folder.join("others/notes.txt"), "no bag").unwrap();
    fs::write(folder.join("text.mcap"), "this is not a bag").unwrap();
    fs::write(folder.join("nothing.mcap"), "").unwrap();
    for bag in ["missing", "empty", "others", "text.mcap", "nothing.mcap"] {
        for verb in READERS {
            let stderr = refused(folder, verb, bag);
            assert!(stderr.contains(bag), "{verb:?} {bag}: {stderr}");
        }
    }
}

#[test]
fn a_choice_that_leaves_nothing_is_refused_by_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    for verb in NOTHING {
        refused(folder.path(), verb, "");
    }
}

#[test]
fn a_pattern_that_matches_a_part_of_a_name_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    for verb in NOTHING.iter().filter(|verb| verb.ends_with(&["-e", "chat"])) {
        let stderr = refused(folder.path(), verb, "");
        let advice = "the pattern must match the whole name, try \".*chat.*\"";
        assert!(stderr.contains(advice), "{verb:?}: {stderr}");
    }
}

/// Every verb of `--help` is in a table above.
#[test]
fn every_verb_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let (_, help, _) = run(folder.path(), &["--help"]);
    let verbs = help.split("\nOptions:\n").next().unwrap();
    let verbs: BTreeSet<&str> = verbs
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() > 15, "{help}");
    let tried = READERS.iter().chain(OTHERS).chain(WITHOUT_INPUT);
    assert_eq!(verbs, tried.map(|line| line[0]).collect());
    for verb in WITHOUT_INPUT {
        let (code, stdout, stderr) = run(folder.path(), verb);
        assert_eq!((code, stdout.as_str()), (2, ""), "{verb:?}: {stderr}");
    }
    for verb in OTHERS {
        refused(folder.path(), verb, "");
    }
}

/// Nothing of a secured domain could be heard: better no bag than an empty one.
#[cfg(feature = "dds")]
#[test]
fn an_enforced_security_is_refused_and_no_bag_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let bag = good();
    for arguments in [&["record", "-a", "-o", "out"][..], &["play", &bag]] {
        let output = Command::cargo_bin("holdall")
            .unwrap()
            .current_dir(folder.path())
            .env_clear()
            .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            .env("ROS_SECURITY_ENABLE", "true")
            .env("ROS_SECURITY_STRATEGY", "Enforce")
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("ROS_SECURITY_STRATEGY is Enforce"), "{said}");
        assert!(names(folder.path()).is_empty());
    }
}

/// A bag whose storage file is noise, and one whose file is missing: these are bags, and damaged.
#[test]
fn a_damaged_bag_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for bag in ["noise", "lacking"] {
        fs::create_dir(folder.join(bag)).unwrap();
        for entry in fs::read_dir(good()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(bag).join(entry.file_name())).unwrap();
        }
    }
    fs::write(folder.join("noise/mcap_split3_2.mcap"), [7; 5000]).unwrap();
    fs::remove_file(folder.join("lacking/mcap_split3_2.mcap")).unwrap();
    for bag in ["noise", "lacking"] {
        for verb in [
            &["info", bag][..],
            &["cat", bag],
            &["check", bag],
            &["audit", bag],
            &["convert", bag, "-o", "out"],
            &["filter", bag, "-o", "out", "--topics", "/chatter"],
            &["export", bag, "-f", "csv", "-o", "tables"],
        ] {
            let (code, _, stderr) = run(folder, verb);
            assert_eq!(code, 1, "{verb:?}: {stderr}");
            assert!(!folder.join("out").exists(), "{verb:?}");
        }
    }
}
