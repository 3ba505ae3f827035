//! The suite from outside: small experiments without a transport, really run; refusals; the remains of an
//! interrupted run.

use holdall_bench::{
    BenchError,
    args::RunArguments,
    engine::Progress,
    suite::{
        config::{BenchmarkConfig, ConfigError, Experiment, ProducerConfig, RecorderKind},
        live::{Named, Programs},
        report,
        result::{ExperimentResult, summary_csv},
        run::run,
        table::table,
    },
};
use holdall_io::clock::{Clock, SystemClock};
use std::{fs, path::Path, sync::Arc};

const SMALL: &str = r#"
experiment: X1
title: "small"
cases:
  - label: "two cameras and an IMU"
    publishers:
      publisher_groups: [camera, imu]
      camera: {publishers_count: 2, topic_root: camera, msg_size_bytes: 100000, msg_count_each: 10, rate_hz: 200, msg_type: "sensor_msgs::msg::Image"}
      imu: {publishers_count: 1, topic_root: imu, msg_size_bytes: 0, msg_count_each: 50, rate_hz: 1000, msg_type: sensor_msgs/msg/Imu}
benchmarks:
  - {repeat_each: 3, no_transport: true, parameters: {recorder: [holdall, double_buffered, synchronous], storage_id: [mcap, sqlite3], max_cache_size: [20000000]}}
published:
  - {case: "two cameras and an IMU", recorder: holdall, storage_id: mcap, recorded_percent: 42.5}
"#;

fn options(out: &Path) -> RunArguments {
    RunArguments::of(&format!("x.yaml --limit-total 16MiB --out {}", out.display())).unwrap()
}

fn run_all(experiment: &Experiment, args: &RunArguments) -> (Result<ExperimentResult, BenchError>, usize) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let programs = Programs::find("holdall".into(), "holdall-bench".into(), Named::default(), &[]);
    let mut begun = 0;
    let place = (args.out.as_deref().unwrap(), &programs);
    let result = run(experiment, args, place, &clock, &mut |progress| {
        begun += usize::from(matches!(progress, Progress::Running { .. }));
    });
    (result, begun)
}

#[test]
fn every_recorder_records_what_was_sent_and_the_report_shows_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let experiment = Experiment::parse(SMALL).unwrap();
    let (result, begun) = run_all(&experiment, &options(&out));
    let result = result.unwrap();
    assert_eq!((begun, result.runs.len()), (18, 18));
    for run in &result.runs {
        let lost: u64 = run.counts.lost.values().sum();
        assert_eq!(
            (
                run.counts.sent,
                run.counts.recorded + lost,
                run.counts.unexplained
            ),
            (70, 70, 0),
            "{:?}",
            run.id.setting
        );
        assert_eq!(run.counts.topics.len(), 3);
        assert!(run.times.elapsed_s >= run.times.sending_s && run.times.durable_bytes_per_s > 0.0);
        assert!(
            run.around.limits.memcpy_bytes_per_s.is_some()
                && run.around.limits.buffered_write_bytes_per_s.is_some()
        );
        let ours = run.id.setting.recorder == RecorderKind::Holdall;
        assert_eq!(
            run.work.disk.is_some(),
            ours && run.id.setting.storage_id == "mcap"
        );
        assert_eq!(run.work.write.is_some(), !ours);
        if let Some(disk) = run.work.disk {
            assert!(disk.written_bytes >= run.counts.recorded_bytes && disk.files >= 1);
        }
        // A cache of ten times the load loses nothing on any machine.
        if ours {
            assert_eq!(run.counts.recorded, 70, "{:?}", run.counts.lost);
        }
    }
    // Repetitions take turns, so that drift affects all settings alike.
    let order: Vec<u32> = result.runs.iter().map(|run| run.id.repetition).collect();
    assert!(order.is_sorted());
    assert!(
        !out.join("X1")
            .read_dir()
            .unwrap()
            .any(|entry| entry.unwrap().path().join("bag").exists())
    );

    let text = table(&result, Some(&experiment));
    assert!(
        text.contains("42.50 %") && text.contains("100.00 % [100.00, 100.00]"),
        "{text}"
    );
    assert!(text.contains("noise: direct write went from"), "{text}");
    let csv = fs::read_to_string(out.join("X1/results.csv")).unwrap();
    assert_eq!(csv, summary_csv(&result.runs));
    let header = "storage_id instances frequency message_size total_messages_sent cache_size max_bagfile_size storage_config \
                  compression compression_queue compression_threads total_produced total_recorded_count producer_cpu_usage \
                  recorder_cpu_usage core_0";
    assert!(csv.starts_with(header), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 18 * 2, "a row for each group and run");

    let loaded = report::load(&out).unwrap();
    let page = report::write(&loaded, &loaded, &out).unwrap();
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("two cameras and an IMU") && html.contains("<svg") && html.contains("Compared with")
    );
    assert!(
        html.contains("grey: published") && html.contains("X1_recorded.csv"),
        "a user's experiment has its published figures and its data"
    );
    for outside in ["http://", "https://"] {
        let fetched = html.matches(outside).count()
            - html.matches("http://www.w3.org").count() * usize::from(outside == "http://");
        assert_eq!(fetched, 0, "the page loads nothing from elsewhere");
    }
    assert!(
        html.contains("href=\"X1_recorded.png\"")
            && out.join("X1_recorded.svg").is_file()
            && fs::read(out.join("X1_recorded.png"))
                .unwrap()
                .starts_with(b"\x89PNG")
            && out.join("X1.json").is_file()
            && out.join("X1.csv").is_file()
    );
}

#[test]
fn an_interrupted_run_keeps_its_results_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::parse(SMALL).unwrap();
    experiment.benchmarks[0]
        .settings
        .retain(|one| one.recorder == RecorderKind::Holdall);
    let (whole, begun) = run_all(&experiment, &options(directory.path()));
    assert_eq!(begun, 6);
    let kept = directory.path().join("X1/case_0");
    let mut folders: Vec<_> = kept
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    // As if it had been killed within this run: a bag without a result.
    fs::remove_file(folders[2].join("result.json")).unwrap();
    fs::create_dir_all(folders[2].join("bag")).unwrap();
    fs::write(folders[2].join("bag/half"), "x").unwrap();

    let (again, begun) = run_all(&experiment, &options(directory.path()));
    assert!(matches!(again, Err(BenchError::NotEmpty { .. })) && begun == 0);
    let resumed = RunArguments {
        resume: true,
        ..options(directory.path())
    };
    let (again, begun) = run_all(&experiment, &resumed);
    assert_eq!((begun, again.unwrap().runs.len()), (1, whole.unwrap().runs.len()));
    assert!(!folders[2].join("bag").exists());

    // Running a part of it leaves the other results in place.
    let mut part = experiment.clone();
    part.benchmarks[0].settings.retain(|one| one.storage_id == "mcap");
    let (again, begun) = run_all(&part, &resumed);
    assert_eq!((begun, again.unwrap().runs.len()), (0, 6));
}

#[test]
fn equal_settings_over_one_transport_run_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::parse(SMALL).unwrap();
    experiment.benchmarks[0]
        .settings
        .retain(|one| one.recorder == RecorderKind::Holdall);
    // As `--transport` changes an experiment that has both.
    experiment.benchmarks.push(experiment.benchmarks[0].clone());
    let (result, begun) = run_all(&experiment, &options(directory.path()));
    assert_eq!((begun, result.unwrap().runs.len()), (6, 6));
}

#[test]
fn bags_are_kept_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::parse(SMALL).unwrap();
    experiment.benchmarks[0]
        .settings
        .retain(|one| one.recorder == RecorderKind::Holdall);
    experiment.benchmarks[0].preserve_bags = true;
    experiment.benchmarks[0].repeat_each = 1;
    run_all(&experiment, &options(directory.path())).0.unwrap();
    let runs = directory.path().join("X1/case_0").read_dir().unwrap();
    let bags: Vec<_> = runs.map(|entry| entry.unwrap().path().join("bag")).collect();
    assert_eq!(bags.len(), 2);
    for bag in bags {
        let reader = holdall::reader::Bag::open(&bag).unwrap();
        assert_eq!(reader.metadata().message_count, 70);
    }
}

#[test]
fn a_load_larger_than_the_disk_is_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let large = RunArguments {
        scale: 1e9,
        ..options(&out)
    };
    let (result, _) = run_all(&Experiment::parse(SMALL).unwrap(), &large);
    let error = result.unwrap_err();
    assert!(
        matches!(error, BenchError::NoSpace { .. }) && error.is_refusal(),
        "{error}"
    );
    assert!(!out.exists());
}

#[test]
fn a_recording_is_played_back_at_every_rate() {
    let directory = tempfile::tempdir().unwrap();
    let text = SMALL.replace(
        "recorder: [holdall, double_buffered, synchronous], storage_id: [mcap, sqlite3]",
        "play_rate: [0.5, 10, unlimited]",
    );
    let mut experiment = Experiment::parse(&text).unwrap();
    experiment.published.clear();
    experiment.benchmarks[0].repeat_each = 1;
    let result = run_all(&experiment, &options(directory.path())).0.unwrap();
    let played: Vec<_> = result.runs.iter().map(|run| run.work.playback.unwrap()).collect();
    assert_eq!(played.len(), 3);
    assert!(played.iter().all(|one| (one.messages, one.published) == (70, 70)));
    // Fifty milliseconds of recording: playing them at half speed takes longer than that.
    assert!(
        played[0].elapsed_s >= 0.05 && played[0].lateness.is_some(),
        "{:?}",
        played[0]
    );
    assert!(played[2].lateness.is_none());
    assert!(table(&result, Some(&experiment)).contains("flat out"));
}

#[test]
fn files_of_rosbag2_performance_benchmarking_run_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let producers = directory.path().join("small.yaml");
    let benchmark = directory.path().join("quick.yaml");
    fs::write(
        &producers,
        "rosbag2_performance_benchmarking_node:\n  ros__parameters:\n    publishers:\n      publisher_groups: [ \"g\" ]\n      \
         wait_for_subscriptions: True\n      g:\n        publishers_count: 2\n        topic_root: \"b\"\n        msg_size_bytes: 500\n        \
         msg_count_each: 20\n        rate_hz: 500\n",
    )
    .unwrap();
    fs::write(
        &benchmark,
        "rosbag2_performance_benchmarking:\n  benchmark_node:\n    ros__parameters:\n      benchmark:\n        \
         summary_result_file: \"mine.csv\"\n        db_root_folder: \"/nowhere\"\n        repeat_each: 2\n        no_transport: True\n        \
         preserve_bags: False\n        parameters:\n          max_cache_size: [1000000]\n          compression: [\"\", \"zstd\"]\n          \
         compression_queue_size: [100]\n          compression_threads: [1]\n          storage_id: [\"mcap\"]\n",
    )
    .unwrap();
    let experiment = Experiment::of_files(
        "quick_small",
        ConfigError::of_file(&producers, ProducerConfig::parse).unwrap(),
        ConfigError::of_file(&benchmark, BenchmarkConfig::parse).unwrap(),
    );
    let out = directory.path().join("out");
    let result = run_all(&experiment, &options(&out)).0.unwrap();
    assert_eq!(result.runs.len(), 4);
    assert!(
        result
            .runs
            .iter()
            .all(|run| run.counts.recorded + run.counts.lost.values().sum::<u64>() == 40)
    );
    assert!(out.join("quick_small/mine.csv").is_file());
}
