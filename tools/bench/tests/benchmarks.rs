//! The kinds `write`, `storage` and `tools` from options to result: fields, files, and refusals.

use holdall_bench::{
    args::{RunArguments, kinds::RunKind},
    engine::{Progress, Report},
    error::{BenchError, BenchResult},
    kinds::{
        storage::{self, StorageBody, storage_table},
        tools::{self, tools_table},
        write::{self, write_table},
    },
};
use holdall_io::clock::{Clock, SystemClock};
use serde_json::Value;
use std::{path::Path, sync::Arc};

/// The kind of a line, in `out`.
fn kind(out: &Path, line: &str) -> RunKind {
    let out = out.display();
    RunArguments::of(&format!("{line} --out {out}"))
        .unwrap()
        .kind
        .unwrap()
}

fn write(out: &Path, line: &str) -> BenchResult<Value> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let line = format!("write --total 12MB --max-cache-size 4MiB --limit-total 1MiB {line}");
    let RunKind::Write(args) = kind(out, &line) else {
        panic!("{line}");
    };
    let report = write::run(&args, &clock, &mut |_| {})?;
    assert!(write_table(&report).contains("limits of this run"));
    Ok(serde_json::to_value(&report).unwrap())
}

#[test]
fn write_has_its_fixed_fields() {
    let dir = tempfile::tempdir().unwrap();
    let json = write(&dir.path().join("out"), "--size 1MiB").unwrap();
    assert_eq!(json["messages"], 11);
    assert_eq!(json["bytes"], 11 << 20);
    assert_eq!(json["lost"], 0);
    let positive = |value: &Value| value.as_f64().is_some_and(|number| number > 0.0);
    for field in [
        "elapsed_s",
        "durable_bytes_per_s",
        "messages_per_s",
        "cpu_s_per_gb",
        "ratio_to_limit",
        "rss_max_bytes",
    ] {
        assert!(positive(&json[field]), "{field}: {}", json[field]);
    }
    for field in [
        "buffered_write_bytes_per_s",
        "memcpy_bytes_per_s",
        "crc32_bytes_per_s",
    ] {
        assert!(
            positive(&json["limit"][field]),
            "limit.{field}: {}",
            json["limit"][field]
        );
    }
    // A number where the file system allows direct writes, null with a reason where it does not.
    assert!(
        positive(&json["limit"]["direct_write_bytes_per_s"]) || json["limit"]["direct_refused"].is_string()
    );
    assert!(positive(&json["offer_latency"]["p99_9_ns"]) && positive(&json["scheduling_latency"]["max_ns"]));
    assert_eq!(json["runs"][0]["verified"]["messages"], 11);
    assert_eq!(json["options"]["size"], "1MiB");
    let rate = json["durable_bytes_per_s"].as_f64().unwrap() * json["elapsed_s"].as_f64().unwrap();
    assert!(
        (rate - f64::from(11 << 20)).abs() < 1.0,
        "rates are total through elapsed"
    );
}

#[test]
fn write_interleaves_candidates_and_leaves_only_results() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let json = write(
        &out,
        "--size mixed --repeat 3 --storage mcap,naive,mcap-crate,sqlite-bare",
    )
    .unwrap();
    assert_eq!(json["others"].as_array().unwrap().len(), 3);
    assert_eq!(json["runs"].as_array().unwrap().len(), 3);
    assert!(json["intervals"]["durable_bytes_per_s"]["low"].is_f64());
    assert_eq!(json["comparisons"][1]["with"], "mcap-crate");
    let mut left: Vec<_> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["write-1.csv", "write-1.json"]);
    let csv = std::fs::read_to_string(out.join("write-1.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 4 * 3);
}

#[test]
fn a_paced_load_keeps_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let json = write(&dir.path().join("out"), "--size 10kB --total 2MB --rate 1000").unwrap();
    assert!(
        json["elapsed_s"].as_f64().unwrap() >= 0.199,
        "{}",
        json["elapsed_s"]
    );
    assert_eq!(json["send_lateness"]["count"], 200);
    assert_eq!(json["options"]["offered_bytes_per_s"], 1e7);
}

#[test]
fn a_ring_of_files_is_checked_as_far_as_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let ring = "--size 10kB --max-bag-size 1MB --max-bag-files 3";
    let json = write(&dir.path().join("out"), ring).unwrap();
    let verified = json["runs"][0]["verified"]["messages"].as_u64().unwrap();
    assert!(verified > 0 && verified < 1200, "{verified}");
    assert!(json["splits"].as_u64().unwrap() >= 10, "{}", json["splits"]);
}

#[test]
fn impossible_options_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for (line, because) in [
        ("--total 1152921504606846976", "free"),
        ("--repeat 0", "--repeat"),
        ("--rate=-1", ""),
        ("--memory --storage mcap-crate", "--memory"),
    ] {
        let refused = write(&dir.path().join("out"), &format!("--size 1kB {line}")).unwrap_err();
        assert!(
            refused.is_refusal() && refused.to_string().contains(because),
            "{refused}"
        );
    }
}

/// Storages by the names of their configurations.
fn storages(
    out: &Path,
    line: &str,
    on_progress: &mut dyn FnMut(Progress),
) -> BenchResult<Report<StorageBody>> {
    let line = format!("storage --repeat 1 --total 1MiB --seed 5 {line}");
    let RunKind::Storage(args) = kind(out, &line) else {
        panic!("{line}");
    };
    storage::run(&args, &SystemClock, on_progress)
}

#[test]
fn storage_measures_every_cell_and_compares_with_the_rival() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let line = "--sizes 10KiB,mixed --batches 1KiB,10MiB --total 3MiB --content 4 --repeat 3 --limit-total 1MiB \
        --configs mcap_default,mcap_compressed_nocrc,naive,mcap_crate,mcap_crate_compressed_nocrc,sqlite_bare_default";
    let report = storages(&out, line, &mut |_| {}).unwrap();
    assert_eq!(report.body.cells.len(), 2 * 2 * 6);
    for cell in &report.body.cells {
        assert_eq!(cell.runs.len(), 3);
        assert!(cell.durable_bytes_per_s > 0.0 && cell.ratio_to_limit.is_some() && cell.interval.is_some());
        assert_eq!(
            cell.ratio_to_rival.is_some(),
            cell.plugin_config.starts_with("mcap_") && !cell.plugin_config.starts_with("mcap_crate")
        );
    }
    let csv = std::fs::read_to_string(out.join("storage-1.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 24 * 3);
    let text = storage_table(&report);
    assert!(
        text.contains("10KiB in batches of 1KiB") && text.contains("× mcap_crate_compressed_nocrc"),
        "{text}"
    );
}

#[test]
fn storage_in_memory_shows_the_encoder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let line = "--sizes 100B --batches 10MiB --total 2MiB --memory --configs mcap_default,naive,generator";
    let report = storages(&dir.path().join("out"), line, &mut |_| {}).unwrap();
    assert_eq!(
        (report.body.disk.as_str(), report.limit.direct_write_bytes_per_s),
        ("memory", None)
    );
    assert!(report.body.cells.iter().all(|cell| cell.messages_per_s > 0.0));
}

#[test]
fn an_interrupted_comparison_of_storages_resumes_after_its_last_round() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let line = "--sizes 1kB --batches 10KiB --configs mcap_default,naive --repeat 3 --limit-total 1MiB";
    let resume = |more: &str, on_progress: &mut dyn FnMut(Progress)| {
        storages(&out, &format!("{line} {more}"), on_progress)
    };
    let interrupted = std::panic::catch_unwind(|| {
        resume("", &mut |progress| {
            assert!(
                !matches!(progress, Progress::Running { round: 2, .. }),
                "interrupted"
            );
        })
    });
    assert!(interrupted.is_err() && out.join("rounds.json").is_file());
    let again = resume("", &mut |_| {});
    assert!(matches!(again, Err(BenchError::NotEmpty { .. })));
    let others = resume("--resume --total 2MiB", &mut |_| {}).unwrap_err();
    assert!(
        others.is_refusal() && others.to_string().contains("--resume"),
        "{others}"
    );
    // As after a kill that left no chance to clean up.
    std::fs::create_dir(out.join("files")).unwrap();
    std::fs::write(out.join("files/half.mcap"), "x").unwrap();

    let mut begun = 0;
    let report = resume("--resume", &mut |progress| {
        begun += u32::from(matches!(progress, Progress::Running { .. }));
    })
    .unwrap();
    assert_eq!(begun, 2, "the last round");
    assert!(
        report
            .body
            .cells
            .iter()
            .all(|cell| cell.runs.len() == 3 && cell.ratio_to_limit.is_some())
    );
    let left: Vec<_> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn work_on_bags_is_measured_beside_the_disk_and_resumes_after_its_last_round() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let tools = |more: &str, on_progress: &mut dyn FnMut(Progress)| {
        let line = format!("tools --size 8MiB --warm --repeat 2 --python no-such-python {more}");
        let RunKind::Tools(args) = kind(&out, &line) else {
            panic!("{line}");
        };
        tools::run(&args, &SystemClock, on_progress)
    };
    let interrupted = std::panic::catch_unwind(|| {
        tools("", &mut |progress| {
            assert!(
                !matches!(progress, Progress::Running { round: 1, .. }),
                "interrupted"
            );
        })
    });
    assert!(interrupted.is_err() && out.join("rounds.json").is_file());
    let (mut begun, mut skipped) = (0, 0);
    let report = tools("--resume", &mut |progress| {
        begun += u32::from(matches!(progress, Progress::Running { .. }));
        skipped += u32::from(matches!(progress, Progress::Skipped(_)));
    })
    .unwrap();
    assert_eq!(
        (begun, skipped),
        (12, 2),
        "the second round, without Python's packages"
    );
    assert_eq!(report.body.rows.len(), 10);
    for row in &report.body.rows {
        assert_eq!(row.samples_s.len(), 2, "{row:?}");
        assert_eq!(row.ratio.is_some(), row.against.is_some(), "{row:?}");
    }
    let text = tools_table(&report);
    assert!(
        text.contains("merge of both inputs") && text.contains("mcap crate"),
        "{text}"
    );
    let merged = &report.body.rows[2];
    let read = &report.body.rows[9];
    assert_eq!(merged.messages, 2 * read.messages);
}
