//! The program as a user meets it: help, refusals and `info`, run as a process.

use assert_cmd::Command;
use std::{fs, os::unix::net::UnixListener, path::Path};

/// The program in a clean environment: no variables, UTC, no terminal.
fn holdall(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("holdall").unwrap();
    command
        .current_dir(folder)
        .env_clear()
        .env("TZ", "UTC")
        .args(arguments);
    command
}

struct Printed {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(folder: &Path, arguments: &[&str]) -> Printed {
    printed(&mut holdall(folder, arguments))
}

fn printed(command: &mut Command) -> Printed {
    let output = command.output().unwrap();
    Printed {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn data(bag: &str) -> String {
    format!("{}/tests/data/{bag}", env!("CARGO_MANIFEST_DIR"))
}

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Refused before anything was done: one sentence, nothing on standard output, nothing created.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], code: i32) -> String {
    let before = fs::read_dir(folder).unwrap().count();
    let printed = run(folder, arguments);
    assert_eq!(
        (printed.code, printed.stdout.as_str()),
        (code, ""),
        "{}",
        printed.stderr
    );
    assert!(!printed.stderr.contains("panicked"), "{}", printed.stderr);
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        before,
        "something was created"
    );
    printed.stderr
}

#[track_caller]
fn one_sentence(folder: &Path, arguments: &[&str], code: i32) -> String {
    let text = refused(folder, arguments, code);
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().strip_prefix("holdall: ").unwrap().to_owned()
}

#[test]
fn help_teaches() {
    let folder = empty();
    for verb in [
        None,
        Some("record"),
        Some("play"),
        Some("info"),
        Some("cat"),
        Some("export"),
        Some("diff"),
        Some("completion"),
    ] {
        let arguments: Vec<&str> = verb.into_iter().chain(["--help"]).collect();
        let printed = run(folder.path(), &arguments);
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
        insta::assert_snapshot!(format!("help_{}", verb.unwrap_or("holdall")), printed.stdout);
    }
}

#[test]
fn shells_complete_storages_and_presets() {
    let folder = empty();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(folder.path(), &["completion", shell]).stdout;
        for value in ["leveldb", "zstd_fast", "resilient"] {
            assert!(script.contains(value), "{shell}: {value}");
        }
    }
    // Every text is still accepted, and the check of all arguments names the fault.
    let text = one_sentence(folder.path(), &["record", "-a", "-s", "bagfile"], 2);
    assert!(text.contains("\"bagfile\"") && text.contains("sqlite3"), "{text}");
}

#[test]
fn help_is_also_a_verb_and_the_version_names_the_commit() {
    let folder = empty();
    assert_eq!(
        run(folder.path(), &["help", "record"]).stdout,
        run(folder.path(), &["record", "--help"]).stdout
    );
    let version = run(folder.path(), &["--version"]);
    assert!(
        version
            .stdout
            .starts_with(concat!("holdall ", env!("CARGO_PKG_VERSION"))),
        "{}",
        version.stdout
    );
    let in_checkout = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    if let Some(commit) = in_checkout.ok().filter(|git| git.status.success()) {
        let commit = String::from_utf8_lossy(&commit.stdout).trim().to_owned();
        assert!(version.stdout.contains(&commit), "{}: {commit}", version.stdout);
    }
}

#[test]
fn the_program_alone_shows_help_and_is_wrong_usage() {
    let folder = empty();
    let printed = run(folder.path(), &[]);
    assert_eq!((printed.code, printed.stdout.as_str()), (2, ""));
    assert!(printed.stderr.contains("Usage: holdall"), "{}", printed.stderr);
}

#[test]
fn every_shell_gets_a_completion_script() {
    let folder = empty();
    for (shell, word) in [
        ("bash", "complete -F _holdall"),
        ("zsh", "#compdef holdall"),
        ("fish", "complete -c holdall"),
    ] {
        let printed = run(folder.path(), &["completion", shell]);
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        assert!(
            printed.stdout.contains(word) && printed.stdout.contains("exclude-topic-types"),
            "{shell}"
        );
    }
}

#[test]
fn wrong_flags_are_refused_with_exit_code_2() {
    let folder = empty();
    let cases: &[&[&str]] = &[
        &["record"],
        &["record", "--exclude-regex", "x", "--topics", "/t"],
        &["record", "-a", "--exclude-regex", "("],
        &["record", "-e", "[a"],
        &["record", "--topics", "/bad topic"],
        &["record", "--topics", "/bad//topic"],
        &["record", "-a", "--no-discovery", "--use-sim-time"],
        &["record", "-a", "--max-bag-files", "3"],
        &["record", "-a", "-b", "10"],
        &["record", "-a", "--custom-data", "novalue"],
        &["record", "-a", "--snapshot-mode", "--max-cache-size", "0"],
        &["record", "-a", "--static-topics-path", "missing.yaml"],
        &["play"],
        &["play", "bag", "-m", "nonsense"],
        &["play", "bag", "-e", "["],
    ];
    let sentences: Vec<String> = cases
        .iter()
        .map(|arguments| {
            format!(
                "{}\n  {}",
                arguments.join(" "),
                one_sentence(folder.path(), arguments, 2)
            )
        })
        .collect();
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn a_control_socket_that_cannot_be_made_is_refused_before_anything_is_recorded() {
    let folder = empty();
    fs::write(folder.path().join("notes.txt"), "not a socket").unwrap();
    let _listening = UnixListener::bind(folder.path().join("taken")).unwrap();
    let long = "x".repeat(200);
    for (path, reason) in [
        ("missing/socket", "No such file or directory"),
        ("notes.txt", "something else already exists there"),
        ("taken", "another recording or playback listens there"),
        (&long, "shorter than SUN_LEN"),
    ] {
        let arguments = ["record", "-a", "-o", "bag", "--control-socket", path];
        let sentence = one_sentence(folder.path(), &arguments, 2);
        assert!(
            sentence.contains(&format!("control socket {path}: ")) && sentence.contains(reason),
            "{sentence}"
        );
    }
    let notes = fs::read_to_string(folder.path().join("notes.txt")).unwrap();
    assert_eq!(notes, "not a socket");
}

#[test]
fn flags_that_do_not_exist_or_hold_nonsense_are_explained() {
    let folder = empty();
    let cases: &[&[&str]] = &[
        &["record", "--al-topics"],
        &["record", "-a", "-b", "100M"],
        &["record", "-a", "-d", "-5"],
        &["record", "-a", "--cache-policy", "drop"],
        &["play", "bag", "-r", "0"],
        &["play", "bag", "--clock-topics", "/a", "--clock-topics-all"],
        &["info"],
        &["recrod", "-a"],
    ];
    let texts: Vec<String> = cases
        .iter()
        .map(|arguments| {
            format!(
                "{}\n{}",
                arguments.join(" "),
                refused(folder.path(), arguments, 2)
            )
        })
        .collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn an_existing_output_is_refused_and_not_touched() {
    let folder = empty();
    let bag = folder.path().join("bag");
    fs::create_dir(&bag).unwrap();
    fs::write(bag.join("precious.txt"), "do not lose me").unwrap();
    let sentence = one_sentence(folder.path(), &["record", "-a", "-o", "bag"], 2);
    assert!(sentence.starts_with("bag: already exists"), "{sentence}");
    assert_eq!(
        fs::read_to_string(bag.join("precious.txt")).unwrap(),
        "do not lose me"
    );
    assert_eq!(fs::read_dir(&bag).unwrap().count(), 1);
}

#[test]
fn broken_settings_files_are_reported_with_path_key_and_cause() {
    let folder = empty();
    let mut sentences = Vec::new();
    for (flag, text) in [
        ("--qos-profile-overrides-path", "/t:\n  depht: 3\n"),
        ("--qos-profile-overrides-path", "/t:\n  deadline:\n    sec: 1\n"),
        ("--qos-profile-overrides-path", "/t:\n  depth: -1\n"),
        ("--qos-profile-overrides-path", "/t:\n  reliability: sometimes\n"),
        ("--qos-profile-overrides-path", "/t: ["),
        ("--static-topics-path", "topics: []\n"),
        (
            "--static-topics-path",
            "static_topics_and_types_list:\n  - [/t, String]\n",
        ),
    ] {
        fs::write(folder.path().join("file.yaml"), text).unwrap();
        sentences.push(one_sentence(
            folder.path(),
            &["record", "-a", flag, "file.yaml"],
            2,
        ));
    }
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn info_shows_a_real_rosbag2_bag_as_ros2_bag_info_does() {
    let folder = empty();
    let printed = run(folder.path(), &["info", &data("mcap_split3")]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(printed.stdout);
}

#[test]
fn info_of_a_single_file_needs_no_metadata() {
    let folder = empty();
    let printed = run(folder.path(), &["info", &data("mcap_split3/mcap_split3_1.mcap")]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(printed.stdout);
}

#[test]
fn info_verbose_reads_all_messages() {
    let folder = empty();
    let printed = run(
        folder.path(),
        &["info", "-v", "--sort", "count", &data("mcap_zstd_small")],
    );
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(printed.stdout);
}

#[test]
fn info_lists_topics() {
    let folder = empty();
    let printed = run(folder.path(), &["info", "-t", &data("mcap_split3")]);
    assert_eq!(
        printed.stdout,
        "/chatter\n/empty/never_published\n/imu/data\n/map/latched\n"
    );
}

#[test]
fn info_for_programs_has_the_names_of_rosbag2() {
    let folder = empty();
    let printed = run(folder.path(), &["info", "--json", &data("mcap_split3")]);
    let json: serde_json::Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(json["message_count"], 288);
    assert_eq!(
        json["starting_time"]["nanoseconds_since_epoch"],
        1_700_000_000_000_000_003_i64
    );
    assert_eq!(json["topics_with_message_count"].as_array().unwrap().len(), 4);
    assert_eq!(json["relative_file_paths"][2], "mcap_split3_2.mcap");
    assert_eq!(json["custom_data"]["origin"], "peer_bench");
}

#[test]
fn what_is_no_bag_is_reported_in_one_sentence() {
    let folder = empty();
    fs::create_dir(folder.path().join("empty")).unwrap();
    fs::write(folder.path().join("nothing.mcap"), "").unwrap();
    fs::write(folder.path().join("text.mcap"), "this is not a bag").unwrap();
    for name in ["missing", "empty", "nothing.mcap", "text.mcap"] {
        let sentence = one_sentence(folder.path(), &["info", name], 2);
        assert!(sentence.contains(name), "{sentence}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .args(["info", &data("mcap_split3")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before the program can have written: the pipe is broken in any order of events.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(not(feature = "dds"))]
#[test]
fn a_build_without_dds_says_so() {
    let folder = empty();
    let sentence = one_sentence(folder.path(), &["record", "-a"], 2);
    assert!(sentence.contains("no DDS"), "{sentence}");
}

#[cfg(feature = "dds")]
#[test]
fn a_wrong_domain_is_refused() {
    let folder = empty();
    for value in ["233", "-1", "robot"] {
        let printed = printed(holdall(folder.path(), &["record", "-a"]).env("ROS_DOMAIN_ID", value));
        assert_eq!(printed.code, 2, "{}", printed.stderr);
        assert!(
            printed.stderr.contains("ROS_DOMAIN_ID") && printed.stderr.contains(value),
            "{}",
            printed.stderr
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A bag of the real rosbag2, as JSON lines: every message once, in time order.
#[test]
fn cat_shows_messages_as_json_lines_and_yaml() {
    let folder = empty();
    let bag = data("mcap_split3");
    let printed = run(folder.path(), &["cat", &bag, "--json"]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    let lines: Vec<serde_json::Value> = printed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2 + 260 + 26);
    let times: Vec<i64> = lines
        .iter()
        .map(|line| line["log_time"].as_i64().unwrap())
        .collect();
    assert!(times.is_sorted());
    let printed = run(
        folder.path(),
        &["cat", &bag, "-t", "/chatter", "/imu/data", "-n", "2"],
    );
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    insta::assert_snapshot!("cat_yaml", printed.stdout);
}

#[test]
fn cat_filters_by_fields_and_says_what_is_wrong() {
    let folder = empty();
    let bag = data("mcap_split3");
    let printed = run(
        folder.path(),
        &[
            "cat",
            &bag,
            "--json",
            "-t",
            "/imu/data",
            "-w",
            "/imu/data: header.stamp.sec == 1700000001",
        ],
    );
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    assert!(
        printed
            .stdout
            .lines()
            .all(|line| line.contains("\"sec\":1700000001"))
    );
    let count = printed.stdout.lines().count();
    assert!(count > 50 && count < 260, "{count}");
    let wrong = one_sentence(folder.path(), &["cat", &bag, "-w", "imu/data: speed > 1"], 2);
    assert!(
        wrong.starts_with("/imu/data: expression, character 1: sensor_msgs/msg/Imu has no field speed; its fields are header, orientation"),
        "{wrong}"
    );
    let wrong = one_sentence(folder.path(), &["cat", &bag, "-t", "/nowhere"], 2);
    assert_eq!(
        wrong,
        "there is no topic /nowhere in the bag; its topics are /chatter, /empty/never_published, /imu/data, /map/latched"
    );
}

#[test]
fn cat_gives_the_payload_bytes_as_they_are() {
    let folder = empty();
    let output = holdall(
        folder.path(),
        &["cat", &data("mcap_split3"), "-t", "/chatter", "-n", "1", "--raw"],
    )
    .output()
    .unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout[..4], [0, 1, 0, 0]);
}

#[test]
fn diff_reports_what_differs_by_its_exit_code_too() {
    let folder = empty();
    let (one, other) = (data("mcap_split3"), data("mcap_zstd_small"));
    let same = run(folder.path(), &["diff", &one, &one]);
    assert_eq!(
        (same.code, same.stdout.as_str(), same.stderr.as_str()),
        (0, "", "")
    );
    let different = run(folder.path(), &["diff", &one, &other, "-n", "2"]);
    assert_eq!((different.code, different.stderr.as_str()), (1, ""));
    insta::assert_snapshot!("diff", different.stdout);
    let json = run(folder.path(), &["diff", &one, &other, "--json", "--summary"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["same"], false);
    assert_eq!(json["topics"]["/chatter"]["changes"][0]["first"], "26");
    let missing = one_sentence(folder.path(), &["diff", &one, "/nowhere"], 2);
    assert!(missing.contains("/nowhere"), "{missing}");
}

#[test]
fn export_writes_a_table_for_each_topic() {
    let folder = empty();
    let printed = run(folder.path(), &["export", &data("mcap_split3"), "-f", "csv"]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    let table = fs::read_to_string(folder.path().join("mcap_split3_csv/imu.data.csv")).unwrap();
    let mut lines = table.lines();
    let columns = lines.next().unwrap().split(',').count();
    assert_eq!(columns, 3 + 3 + 4 + 9 + 3 + 9 + 3 + 9);
    assert!(lines.clone().all(|line| line.split(',').count() == columns));
    assert_eq!(lines.count(), 260);
    let again = one_sentence(folder.path(), &["export", &data("mcap_split3"), "-f", "csv"], 2);
    assert!(
        again.contains("already exists; nothing was overwritten"),
        "{again}"
    );
}

#[test]
fn a_storage_file_is_read_from_standard_input() {
    let folder = empty();
    let file = format!("{}/mcap_zstd_small_0.mcap", data("mcap_zstd_small"));
    let mut piped = holdall(folder.path(), &["cat", "-", "--json"]);
    let piped = printed(piped.write_stdin(fs::read(&file).unwrap()));
    let named = run(folder.path(), &["cat", &file, "--json"]);
    assert_eq!((piped.code, piped.stderr.as_str()), (0, ""));
    assert!(piped.stdout == named.stdout && !piped.stdout.is_empty());
    for verb in ["info", "check", "audit", "get"] {
        let mut piped = holdall(folder.path(), &[verb, "-"]);
        let piped = printed(piped.write_stdin(fs::read(&file).unwrap()));
        let named = run(folder.path(), &[verb, &file]);
        assert_eq!(
            (piped.code, piped.stdout.lines().count()),
            (named.code, named.stdout.lines().count()),
            "{verb}"
        );
        assert!(!piped.stderr.contains("cannot open"), "{verb}: {}", piped.stderr);
    }
}

#[test]
fn a_path_that_does_not_exist_has_one_sentence_in_every_verb() {
    let folder = empty();
    for arguments in [
        &["info", "nope"][..],
        &["cat", "nope"],
        &["check", "nope"],
        &["audit", "nope"],
        &["export", "nope", "-f", "csv"],
        &["diff", "nope", "nope"],
        &["convert", "nope", "-o", "x"],
        &["filter", "nope", "-o", "x"],
        &["merge", "nope", "-o", "x"],
        &["split", "nope", "-o", "x", "--max-bag-messages", "2"],
        &["repair", "nope"],
        &["reindex", "nope"],
        &["play", "nope"],
        &["serve", "nope"],
        &["web", "nope"],
    ] {
        let printed = run(folder.path(), arguments);
        assert_eq!(
            printed.stderr.lines().last(),
            Some("holdall: cannot open nope: no such file or directory"),
            "{arguments:?}"
        );
    }
    let sentence = one_sentence(folder.path(), &["web", "41034", "41035"], 2);
    assert!(
        sentence.starts_with("41035: a second address; expected one folder and one address"),
        "{sentence}"
    );
}
