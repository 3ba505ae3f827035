//! The kinds `write`, `storage` and `tools` from options to result: fields, files, and refusals.

use holdall::{record::options::CacheOptions, writer::SplitOptions};
use holdall_bench::{
    candidate::{ours::DiskChoice, producers::OfferOptions},
    engine::{Common, Progress},
    error::BenchError,
    kinds::{
        storage::{self, StorageBenchOptions, storage_table},
        tools::{self, ToolsBenchOptions, tools_table},
        write::{self, WriteOptions, write_table},
    },
    workload::{Content, Load, SizeMix},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    os::DiskMode,
};
use holdall_storage::StorageOptions;
use serde_json::Value;
use std::{path::Path, sync::Arc};

/// One repetition, read back, in random bytes.
fn common(out: &Path, seed: u64) -> Common {
    Common {
        out: out.to_owned(),
        keep: false,
        verify: true,
        repeat: 1,
        resume: false,
        disk: DiskChoice::Os(DiskMode::Auto),
        limit_bytes: Some(1 << 20),
        content: Content::Entropy(8.0),
        seed,
        command: "holdall bench run --out DIR".to_owned(),
    }
}

fn write_options(out: &Path, mix: SizeMix, storages: &[&str]) -> WriteOptions {
    WriteOptions {
        load: Load {
            topics: Load::topics_min(&mix, 1),
            mix,
            content: Content::Entropy(8.0),
            total_bytes: 12_000_000,
            producers: 1,
            rate_hz: None,
            seed: 1,
        },
        candidates: storages.iter().map(|name| name.parse().unwrap()).collect(),
        storage: StorageOptions::default(),
        cache: CacheOptions {
            bytes_max: 4 << 20,
            ..CacheOptions::default()
        },
        split: SplitOptions::default(),
        max_loss_window: Some(std::time::Duration::from_secs(2)),
        offer: OfferOptions::default(),
        common: common(out, 1),
    }
}

fn run_write(options: &WriteOptions) -> Value {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = write::run(options, &clock, &mut |_| {}).unwrap();
    assert!(write_table(&report).contains("limits of this run"));
    serde_json::to_value(&report).unwrap()
}

#[test]
fn write_has_its_fixed_fields() {
    let dir = tempfile::tempdir().unwrap();
    let json = run_write(&write_options(
        &dir.path().join("out"),
        SizeMix::single(1 << 20),
        &["mcap"],
    ));
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
    let candidates = ["mcap", "naive", "mcap-crate", "sqlite-bare"];
    let mut options = write_options(&out, SizeMix::mixed(), &candidates);
    options.common.repeat = 3;
    let json = run_write(&options);
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
    let mut options = write_options(&dir.path().join("out"), SizeMix::single(10_000), &["mcap"]);
    options.load.total_bytes = 2_000_000;
    options.load.rate_hz = Some(1000.0);
    options.offer.lossless = false;
    let json = run_write(&options);
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
    let mut options = write_options(&dir.path().join("out"), SizeMix::single(10_000), &["mcap"]);
    options.split = SplitOptions {
        bytes_max: Some(1_000_000),
        files_max: Some(3),
        duration_max: None,
    };
    let json = run_write(&options);
    let verified = json["runs"][0]["verified"]["messages"].as_u64().unwrap();
    assert!(verified > 0 && verified < 1200, "{verified}");
    assert!(json["splits"].as_u64().unwrap() >= 10, "{}", json["splits"]);
}

#[test]
fn impossible_options_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = |change: &dyn Fn(&mut WriteOptions)| {
        let mut options = write_options(&dir.path().join("out"), SizeMix::single(1000), &["mcap"]);
        change(&mut options);
        write::run(&options, &clock, &mut |_| {}).unwrap_err()
    };
    let too_much = options(&|options| options.load.total_bytes = 1 << 60);
    assert!(
        too_much.is_refusal() && too_much.to_string().contains("free"),
        "{too_much}"
    );
    assert!(options(&|options| options.common.repeat = 0).is_refusal());
    assert!(options(&|options| options.load.rate_hz = Some(-1.0)).is_refusal());
    let memory = options(&|options| {
        options.common.disk = DiskChoice::Discard;
        options.candidates = vec!["mcap-crate".parse().unwrap()];
    });
    assert!(memory.is_refusal(), "{memory}");
}

/// One round of messages of 1000 bytes in one batch.
fn storage_options(out: &Path, configurations: &[&str]) -> StorageBenchOptions {
    StorageBenchOptions {
        sizes: vec![SizeMix::single(1000)],
        batches: vec![10 << 10],
        configurations: configurations.iter().map(|name| name.parse().unwrap()).collect(),
        total_bytes: 1 << 20,
        config: None,
        common: common(out, 5),
    }
}

#[test]
fn storage_measures_every_cell_and_compares_with_the_rival() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let configurations = [
        "mcap_default",
        "mcap_compressed_nocrc",
        "naive",
        "mcap_crate",
        "sqlite_bare_default",
    ];
    let mut options = StorageBenchOptions {
        sizes: vec![SizeMix::single(10 << 10), SizeMix::mixed()],
        batches: vec![1 << 10, 10 << 20],
        total_bytes: 3 << 20,
        ..storage_options(&out, &configurations)
    };
    options.common.content = Content::Entropy(4.0);
    options.common.repeat = 3;
    let report = storage::run(&options, &SystemClock, &mut |_| {}).unwrap();
    assert_eq!(report.body.cells.len(), 2 * 2 * 5);
    for cell in &report.body.cells {
        assert_eq!(cell.runs.len(), 3);
        assert!(cell.durable_bytes_per_s > 0.0 && cell.ratio_to_limit.is_some() && cell.interval.is_some());
        assert_eq!(
            cell.ratio_to_rival.is_some(),
            cell.plugin_config.starts_with("mcap_") && cell.plugin_config != "mcap_crate"
        );
    }
    let csv = std::fs::read_to_string(out.join("storage-1.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 20 * 3);
    let text = storage_table(&report);
    assert!(
        text.contains("10KiB in batches of 1KiB") && text.contains("× mcap_crate"),
        "{text}"
    );
}

#[test]
fn storage_in_memory_shows_the_encoder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let configurations = ["mcap_default", "naive", "generator"];
    let mut options = StorageBenchOptions {
        sizes: vec![SizeMix::single(100)],
        batches: vec![10 << 20],
        total_bytes: 2 << 20,
        ..storage_options(&dir.path().join("out"), &configurations)
    };
    options.common.disk = DiskChoice::Discard;
    options.common.limit_bytes = None;
    let report = storage::run(&options, &SystemClock, &mut |_| {}).unwrap();
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
    let options = |resume, total_bytes| {
        let mut options = storage_options(&out, &["mcap_default", "naive"]);
        options.total_bytes = total_bytes;
        options.common.repeat = 3;
        options.common.resume = resume;
        options
    };
    let interrupted = std::panic::catch_unwind(|| {
        storage::run(&options(false, 1 << 20), &SystemClock, &mut |progress| {
            assert!(
                !matches!(progress, Progress::Running { round: 2, .. }),
                "interrupted"
            );
        })
    });
    assert!(interrupted.is_err() && out.join("rounds.json").is_file());
    let again = storage::run(&options(false, 1 << 20), &SystemClock, &mut |_| {});
    assert!(matches!(again, Err(BenchError::NotEmpty { .. })));
    let others = storage::run(&options(true, 2 << 20), &SystemClock, &mut |_| {}).unwrap_err();
    assert!(
        others.is_refusal() && others.to_string().contains("--resume"),
        "{others}"
    );
    // As after a kill that left no chance to clean up.
    std::fs::create_dir(out.join("files")).unwrap();
    std::fs::write(out.join("files/half.mcap"), "x").unwrap();

    let mut begun = 0;
    let report = storage::run(&options(true, 1 << 20), &SystemClock, &mut |progress| {
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
    let options = |resume, python: &str| {
        let mut options = ToolsBenchOptions {
            common: common(&out, 1),
            input_bytes: 8 << 20,
            cold: false,
            python: Some(python.into()),
        };
        options.common.repeat = 2;
        options.common.resume = resume;
        options
    };
    let interrupted = std::panic::catch_unwind(|| {
        tools::run(&options(false, "no-such-python"), &SystemClock, &mut |progress| {
            assert!(
                !matches!(progress, Progress::Running { round: 1, .. }),
                "interrupted"
            );
        })
    });
    assert!(interrupted.is_err() && out.join("rounds.json").is_file());
    let (mut begun, mut skipped) = (0, 0);
    let report = tools::run(&options(true, "no-such-python"), &SystemClock, &mut |progress| {
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
