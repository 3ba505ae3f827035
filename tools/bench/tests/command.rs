//! `holdall bench run`, `list` and `report` as a user meets them: what is refused, and that nothing is written then.

use assert_cmd::Command;
use std::{fs, path::Path};

/// Exit code and both streams.
fn bench(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("holdall-bench")
        .unwrap()
        .current_dir(folder)
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

/// Refused with exit code 2 in one sentence on one line; the folder is unchanged.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], because: &str) {
    let before = fs::read_dir(folder).unwrap().count();
    let (code, stdout, stderr) = bench(folder, arguments);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(stderr.contains(because), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        before,
        "something was written"
    );
}

const PRODUCERS: &str = "rosbag2_performance_benchmarking_node:\n  ros__parameters:\n    publishers:\n      publisher_groups: [\"g\"]\n      g:\n        publishers_count: 2\n        topic_root: \"t\"\n        msg_size_bytes: 100\n        msg_count_each: 5\n        rate_hz: 100\n";

const BENCHMARK: &str = "rosbag2_performance_benchmarking:\n  benchmark_node:\n    ros__parameters:\n      benchmark:\n        summary_result_file: \"results.csv\"\n        repeat_each: 1\n        no_transport: True\n        parameters:\n          max_cache_size: [1000000]\n";

#[test]
fn bad_files_and_flags_are_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let keep = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    keep("good_p.yaml", PRODUCERS);
    keep("good_b.yaml", BENCHMARK);
    keep("unknown_key.yaml", &BENCHMARK.replace("repeat_each", "repeats"));
    keep(
        "missing_group.yaml",
        &PRODUCERS.replace("[\"g\"]", "[\"g\", \"h\"]"),
    );
    keep("zero_rate.yaml", &PRODUCERS.replace("rate_hz: 100", "rate_hz: 0"));
    keep(
        "no_type.yaml",
        &PRODUCERS.replace(
            "rate_hz: 100",
            "rate_hz: 100\n        msg_type: \"nobody/msg/Knows\"",
        ),
    );
    keep(
        "ros1.yaml",
        &BENCHMARK.replace(
            "          max_cache",
            "          recorder: [rosbag]\n          max_cache",
        ),
    );
    keep("no_yaml.yaml", "a: b: c");
    for (producers, benchmark, because) in [
        ("good_p.yaml", "unknown_key.yaml", "unknown field `repeats`"),
        (
            "missing_group.yaml",
            "good_b.yaml",
            "publisher_groups names h, which does not exist",
        ),
        (
            "zero_rate.yaml",
            "good_b.yaml",
            "rate_hz: expected a rate of 0.001 Hz or more",
        ),
        ("no_type.yaml", "good_b.yaml", "nobody/msg/Knows"),
        (
            "good_p.yaml",
            "ros1.yaml",
            "recorder rosbag needs no_transport: false",
        ),
        ("absent.yaml", "good_b.yaml", "absent.yaml"),
    ] {
        let line = format!("run --producers {producers} --benchmark {benchmark} --out out");
        refused(folder, &line.split(' ').collect::<Vec<_>>(), because);
    }
    for (line, because) in [
        ("run no_yaml.yaml --out out", "no_yaml.yaml"),
        (
            "run A99 --out out",
            "A99 is neither an experiment nor a file; expected one of A1",
        ),
        ("run A6", "no folder for results: give --out DIR"),
        ("run A6 --scale 0 --out out", "--scale 0"),
        ("run A6 --repeat 0 --out out", "--repeat 0"),
        ("run A6 --scale 1e9 --out out", "iB are needed and"),
        (
            "run A6 --case 7GB --out out",
            "--case 7GB: A6 has only 1000 × 1 KB",
        ),
        (
            "run A6 --recorder rosbag --out out",
            "A6: nothing is recorded by rosbag",
        ),
        ("run A8 --ros2 nowhere --out out", "nowhere: no such file"),
        ("run A9 --transport dds --out out", "recorded without a transport"),
        ("list A99", "A99 is neither an experiment"),
        ("report .", "expected a folder with results of holdall bench run"),
        (
            "report nowhere",
            "expected a folder with results of holdall bench run",
        ),
        (
            "run B1 --case 100B --out out",
            "B1 measures storages alone, without --recorder, --case and --transport",
        ),
    ] {
        refused(folder, &line.split(' ').collect::<Vec<_>>(), because);
    }
    fs::create_dir_all(folder.join("out/A6")).unwrap();
    refused(
        folder,
        &["run", "A6", "--scale", "0.001", "--out", "out"],
        "out/A6 is not empty",
    );
}

#[test]
fn every_experiment_is_listed_and_its_file_runs_as_ones_own() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let (code, table, _) = bench(folder, &["list"]);
    assert_eq!(code, 0);
    for id in [
        "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "B1", "B2", "C1", "C2", "C3", "C4",
        "L1", "G1",
    ] {
        assert!(
            table
                .lines()
                .any(|line| line.split_whitespace().next() == Some(id)),
            "{id} in {table}"
        );
    }
    let (code, text, _) = bench(folder, &["list", "b1"]);
    assert!(
        code == 0 && text.contains("holdall bench run storage --sizes 1MiB"),
        "{text}"
    );
    let (_, text, _) = bench(folder, &["list", "a8"]);
    let own = text
        .replace("experiment: A8", "experiment: mine")
        .replace("no_transport: false", "no_transport: true");
    let own = own.replace("recorder: [holdall, ros2_bag]", "recorder: [holdall]");
    let own = own.replace("recorder: [rosbag]", "recorder: [double_buffered]");
    fs::write(folder.join("mine.yaml"), own).unwrap();
    let line = "run mine.yaml --scale 0.001 --repeat 1 --limit-total 16MB --out out";
    let (code, table, stderr) = bench(folder, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0, "{stderr}");
    assert!(
        table.contains("1 × 1 MB × 100 Hz") && table.contains("100.00 %"),
        "{table}"
    );
    let (code, page, stderr) = bench(folder, &["report", "out"]);
    assert_eq!((code, page.trim()), (0, "out/report.html"), "{stderr}");
}

/// As the storage comparison's `sweep.py` hands it to its program, for 100 kB.
const COMPARISON: &str = "storage_id: mcap\nmin_batch_size_bytes: 10240\nwrite_total_bytes: 100000\ntopics:\n- name: /medium\n  message_size: 10000\n  write_proportion: 0.9\n- {name: /small, message_size: 100, write_proportion: 0.1}\nstorage_options:\n  noChunkCRC: false\n  compression: None\n";

#[test]
fn a_file_of_the_storage_comparison_gives_its_csv_and_a_wrong_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    fs::write(folder.join("good.yaml"), COMPARISON).unwrap();
    fs::write(
        folder.join("key.yaml"),
        COMPARISON.replace("min_batch_size_bytes", "batch"),
    )
    .unwrap();
    fs::write(folder.join("sum.yaml"), COMPARISON.replace("0.9", "0.8")).unwrap();
    fs::write(
        folder.join("option.yaml"),
        COMPARISON.replace("noChunkCRC", "crc"),
    )
    .unwrap();
    let storage = |config| ["run", "storage", "--config", config, "--out", "out"];
    refused(
        folder,
        &storage("key.yaml"),
        "key.yaml: line 2: unknown field `batch`",
    );
    refused(folder, &storage("sum.yaml"), "to sum to 1, found 0.9000");
    refused(folder, &storage("option.yaml"), "crc");
    refused(folder, &storage("absent.yaml"), "absent.yaml");
    let small = ["--limit-total", "1MiB", "--repeat", "2", "--csv"];
    let arguments: Vec<&str> = storage("good.yaml").into_iter().chain(small).collect();
    let (code, stdout, stderr) = bench(folder, &arguments);
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "sqc,num_bytes,num_msgs,write_ns,close_ns");
    let bytes: u64 = lines[1..lines.len() - 1]
        .iter()
        .map(|line| line.split(',').nth(1).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(bytes, 100_000);
    let mut kept: Vec<String> = fs::read_dir(folder.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, ["batches-1.csv", "batches-2.csv", "storage-1.json"]);
}

#[test]
fn storages_alone_run_after_other_experiments_and_stand_on_the_same_page() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let load = "publishers: {publisher_groups: [g], g: {publishers_count: 1, topic_root: t, msg_size_bytes: 100, msg_count_each: 5, rate_hz: 100}}";
    let own = format!(
        "experiment: own\ntitle: mine\ncases:\n  - {{label: a, {load}}}\nbenchmarks:\n  - {{no_transport: true, parameters: {{max_cache_size: [1000000]}}}}\n"
    );
    fs::write(folder.join("own.yaml"), own).unwrap();
    let flags = "--scale 0.01 --repeat 1 --limit-total 1MiB --out out";
    let run = |more: &str| {
        let line = format!("run B1 own.yaml {flags}{more}");
        bench(folder, &line.split(' ').collect::<Vec<_>>())
    };
    let (code, printed, stderr) = run("");
    assert_eq!(code, 0, "{stderr}");
    assert!(
        printed.contains("own: ") && printed.contains("10KiB in batches of 1KiB"),
        "{printed}"
    );
    let (code, _, stderr) = run(" --resume");
    assert!(
        code == 0 && stderr.contains("done before: out/B1/storage-1.json"),
        "{stderr}"
    );
    let (code, _, stderr) = bench(folder, &["report", "out", "--compare", "out"]);
    assert_eq!(code, 0, "{stderr}");
    let page = fs::read_to_string(folder.join("out/report.html")).unwrap();
    for there in [
        "id=\"own\"",
        "id=\"B1\"",
        "mcap_nochunking",
        "holdall bench run B1 --scale 0.01 --repeat 1 --out DIR",
    ] {
        assert!(page.contains(there), "{there}");
    }
    assert!(page.contains("</thead><tbody><tr>") && page.contains("</tbody></table>"));
    assert!(folder.join("out/B1_storages_100B.svg").is_file());
    let command = |name: &str| page.contains(&format!("<code>holdall bench run {name} --scale 0.01 "));
    assert!(command("own.yaml") && !command("own"));
}

#[test]
fn a_result_that_recorded_less_than_the_committed_one_ends_with_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let load = "publishers: {publisher_groups: [g], g: {publishers_count: 1, topic_root: t, msg_size_bytes: 100, msg_count_each: 10, rate_hz: 1000}}";
    let own = format!(
        "experiment: own\ntitle: mine\ncases:\n  - {{label: a, {load}}}\nbenchmarks:\n  - {{no_transport: true, parameters: {{recorder: [holdall, synchronous], max_cache_size: [1000000]}}}}\n"
    );
    fs::write(folder.join("own.yaml"), own).unwrap();
    let run = |out: &str, repeat: &str| {
        let words = [
            "run",
            "own.yaml",
            "--repeat",
            repeat,
            "--limit-total",
            "1MiB",
            "--out",
            out,
        ];
        assert_eq!(bench(folder, &words).0, 0);
    };
    run("before", "3");
    run("once", "1");
    let compare = |now: &str| bench(folder, &["report", now, "--compare", "before", "--fail-if-worse"]);
    let (code, _, stderr) = compare("before");
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = compare("once");
    assert!(
        code == 2 && stderr.contains("three repetitions or more"),
        "{stderr}"
    );
    // Half of what was recorded is gone, of each recorder: only holdall's row counts.
    let path = folder.join("before/own/results.json");
    let less = fs::read_to_string(&path)
        .unwrap()
        .replace("\"recorded\": 10", "\"recorded\": 5");
    fs::create_dir_all(folder.join("worse/own")).unwrap();
    fs::write(folder.join("worse/own/results.json"), less).unwrap();
    let (code, _, stderr) = compare("worse");
    assert_eq!(code, 1, "{stderr}");
    let sentences: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("recorded, before"))
        .collect();
    assert_eq!(sentences.len(), 1, "{stderr}");
    assert!(
        sentences[0].contains("own: a, holdall · ")
            && sentences[0].contains("50.00 [50.00, 50.00] % recorded, before 100.00"),
        "{stderr}"
    );
}

#[test]
fn the_verbs_are_those_that_the_help_lists() {
    let (_, help, _) = bench(Path::new("."), &["--help"]);
    let verbs: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty())
        .collect();
    assert_eq!(
        verbs,
        ["run", "report", "list", "link", "gate", "publish", "help"]
    );
}

/// Whether a text has a decimal unit of sizes, as a separate word.
fn has_decimal_unit(text: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    words
        .map(|word| word.trim_start_matches(|letter: char| letter.is_ascii_digit()))
        .any(|word| ["kB", "KB", "MB", "GB", "TB"].contains(&word))
}

#[test]
fn nothing_that_bench_prints_or_draws_has_a_decimal_unit() {
    assert!(has_decimal_unit("2170 MB/s") && has_decimal_unit("1GB") && !has_decimal_unit("2 MiB, 1 B"));
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let load = "publishers: {publisher_groups: [g], g: {publishers_count: 2, topic_root: t, msg_size_bytes: 20000, msg_count_each: 200, rate_hz: 100}}";
    let own = format!(
        "experiment: own\ntitle: mine\ncases:\n  - {{label: a, ladder: l, {load}}}\nbenchmarks:\n  - {{no_transport: true, parameters: {{max_cache_size: [1000000], max_bag_size: [0, 3000000]}}}}\n  - {{no_transport: true, parameters: {{play_rate: [unlimited]}}}}\n"
    );
    fs::write(folder.join("own.yaml"), own).unwrap();
    for (arguments, unit) in [
        (
            "run B1 own.yaml --scale 0.01 --repeat 1 --limit-total 1048576 --out out",
            "MiB/s",
        ),
        (
            "run write --total 4194304 --limit-total 4194304 --repeat 1 --out write",
            "MiB/s",
        ),
        ("report out --compare out", ""),
        ("list", "GiB"),
    ] {
        let (code, printed, stderr) = bench(folder, &arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(code, 0, "{stderr}");
        assert!(printed.contains(unit), "{printed}");
        let is_names = arguments == "list";
        for line in printed.lines().chain(stderr.lines()) {
            // The titles of shipped experiments name the published loads.
            let shown = if is_names {
                line.rsplit("  ").next().unwrap()
            } else {
                line
            };
            assert!(!has_decimal_unit(shown), "{arguments}: {line}");
        }
    }
    let mut drawn = 0;
    for entry in fs::read_dir(folder.join("out")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "html" || extension == "svg")
        {
            let text = fs::read_to_string(&path).unwrap();
            let wrong: Vec<&str> = text.split('<').filter(|part| has_decimal_unit(part)).collect();
            assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
            drawn += usize::from(text.contains("MiB/s"));
        }
    }
    assert!(drawn >= 3, "the page, the bars of storages, the ladder: {drawn}");
}

/// What is refused before anything is done has exit code 2, whatever is measured.
#[test]
fn inputs_that_do_not_exist_are_refused_by_every_kind() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [
        "run write --storage tape --out out",
        "run storage --config missing.yaml --out out",
        "report missing",
        "run missing.yaml --out out",
        "run D8 --data missing --out out",
        "run D8 --out out",
    ] {
        let line: Vec<&str> = arguments.split(' ').collect();
        refused(directory.path(), &line, "");
    }
}

/// The pages of all verbs that `--help` lists.
#[test]
fn manual_pages_are_written_for_each_verb() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, stderr) = bench(directory.path(), &["man", "--dir", "man"]);
    assert_eq!(code, 0, "{stderr}");
    for page in ["", "-run", "-run-tools", "-report", "-list", "-link", "-gate"] {
        let path = directory.path().join(format!("man/holdall-bench{page}.1"));
        assert!(path.is_file(), "{}", path.display());
    }
    assert!(!directory.path().join("man/holdall-bench-worker.1").exists());
}
