//! Forecasts of figures that are known.

use super::*;
use crate::preflight::figures::{DiskFigures, MachineFigures, RecorderFigures, TotalFigures};
use holdall_model::unheard::NotHeard;

/// A robot with room for twice its load: the disk is its nearest bound.
fn robot() -> Measured {
    let topic = |name: &str, hz: f64, bytes_per_s: f64| TopicFigures {
        name: name.to_owned(),
        hz,
        bytes_per_s,
        is_reliable: true,
        ..TopicFigures::default()
    };
    Measured {
        span_s: 10.0,
        topics: vec![topic("/imu", 400.0, 1e5), topic("/camera", 30.0, 90e6)],
        total: TotalFigures {
            hz: 430.0,
            bytes_per_s: 90.1e6,
            burst_bytes: 3_000_000,
            ..TotalFigures::default()
        },
        recorder: RecorderFigures {
            processors: 0.3,
            receiving_thread: 0.2,
            writing_thread: 0.1,
            written_bytes_per_s: 100e6,
            cache_bytes_max: 512 << 20,
            cache_bytes_peak: 1 << 20,
            ..RecorderFigures::default()
        },
        disk: DiskFigures {
            available_bytes: 360_000_000_000,
            write_bytes_per_s: vec![100e6, 2e9 / 7.0, 300e6],
            ..DiskFigures::default()
        },
        machine: MachineFigures {
            processors: 8,
            own_processors: 8,
            busy_processors: 2.0,
            available_memory_bytes: 8 << 30,
            clock_is_synchronised: Some(true),
            receive_buffer_bytes_max: Some(212_992),
            ..MachineFigures::default()
        },
        ..Measured::default()
    }
}

fn of(forecast: &Forecast, kind: ProblemKind) -> &Problem {
    let found = forecast.problems.iter().find(|problem| problem.kind == kind);
    found.unwrap_or_else(|| panic!("{kind:?} is not among {:?}", forecast.problems))
}

#[test]
fn the_nearest_bound_is_the_margin() {
    let found = forecast(&robot(), Some(3600.0));
    assert_eq!(found.answer, Answer::Fits);
    assert!((found.margin.unwrap() - 2.0).abs() < 1e-9, "{found:?}");
    let kinds: Vec<LimitKind> = found.limits.iter().map(|limit| limit.kind).collect();
    assert_eq!(
        kinds,
        [
            LimitKind::Disk,
            LimitKind::Processors,
            LimitKind::ReceivingThread,
            LimitKind::WritingThread
        ]
    );
    assert_eq!(
        (found.full_in_s, found.needed_bytes),
        (Some(3600.0), Some(360_000_000_000))
    );
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    assert!((found.bridged_s.unwrap() - 5.958).abs() < 0.01);
}

#[test]
fn a_margin_near_one_is_tight_and_one_below_loses() {
    for (busy, answer) in [(7.0, Answer::Tight), (7.7, Answer::Loses)] {
        let mut measured = robot();
        measured.machine.busy_processors = busy;
        let found = forecast(&measured, None);
        assert_eq!(found.answer, answer, "{found:?}");
        let problem = of(&found, ProblemKind::Limit);
        assert_eq!(problem.loses, answer == Answer::Loses);
        assert!(problem.sentence.contains("processors are busy"), "{problem:?}");
    }
}

#[test]
fn processors_that_others_keep_busy_leave_the_recorder_its_share() {
    for (ready, lost, answer, margin) in [
        (0.02, 0, Answer::Fits, 1.3),
        (0.8, 0, Answer::Tight, 1.1875),
        // It was late all the time, and lost nothing.
        (1.0, 0, Answer::Tight, 1.0),
        (0.02, 1, Answer::Loses, 0.95),
        // Kernels that do not show it.
        (0.0, 0, Answer::Loses, 0.95),
    ] {
        let mut measured = robot();
        measured.machine.busy_processors = 8.0;
        measured.recorder.ready = ready;
        measured.total.lost_in_transit = lost;
        let found = forecast(&measured, None);
        assert_eq!(found.answer, answer, "{ready} {lost}: {found:?}");
        assert!((found.margin.unwrap() - margin).abs() < 1e-9, "{found:?}");
    }
    // Where there is room, all is taken to grow together, as before.
    let mut measured = robot();
    measured.recorder.ready = 0.02;
    measured.disk.write_bytes_per_s.clear();
    assert!((forecast(&measured, None).margin.unwrap() - 3.8).abs() < 1e-9);
}

#[test]
fn a_disk_that_is_nearly_full_fits_when_the_trial_lost_nothing() {
    // Of 286 MB/s the first loss is expected at 200; up to 257 the trial is right.
    for (written, answer, margin) in [
        (180e6, Answer::Tight, 1.11),
        (240e6, Answer::Tight, 1.0),
        (300e6, Answer::Loses, 0.67),
    ] {
        let mut measured = robot();
        measured.recorder.written_bytes_per_s = written;
        let found = forecast(&measured, None);
        assert_eq!(found.answer, answer, "{found:?}");
        assert!((found.margin.unwrap() - margin).abs() < 0.01, "{found:?}");
    }
}

#[test]
fn what_waking_costs_does_not_grow_with_the_load() {
    let mut measured = robot();
    measured.disk.write_bytes_per_s.clear();
    measured.machine.switch_cost_s = 10e-6;
    measured.machine.switches_per_s = 100_000.0 / WAKE_FACTOR;
    let found = forecast(&measured, None);
    // One of the 2 busy processors is waking, and stays so; the other one can grow by a factor of 6.6.
    let processors = found
        .limits
        .iter()
        .find(|limit| limit.kind == LimitKind::Processors)
        .unwrap();
    assert!((processors.margin - 6.6).abs() < 1e-9, "{processors:?}");
    measured.machine.switches_per_s = 1e9;
    let bounded = forecast(&measured, None);
    let processors = bounded
        .limits
        .iter()
        .find(|limit| limit.kind == LimitKind::Processors)
        .unwrap();
    assert!(
        (processors.waking - 1.6).abs() < 1e-9,
        "a fifth of the work stays work: {processors:?}"
    );
}

#[test]
fn a_recorder_that_is_kept_to_few_processors_has_these_only() {
    let mut measured = robot();
    measured.machine.own_processors = 1;
    measured.recorder.processors = 0.95;
    let found = forecast(&measured, None);
    assert_eq!(found.limits[0].kind, LimitKind::OwnProcessors);
    assert!((found.margin.unwrap() - 1.0).abs() < 1e-9);
}

#[test]
fn a_disk_that_is_full_too_early_loses() {
    let found = forecast(&robot(), Some(7200.0));
    assert_eq!(found.answer, Answer::Loses);
    assert_eq!(
        of(&found, ProblemKind::DiskFull).sentence,
        "the bag will need 670.6 GiB, and 335.3 GiB are free"
    );
}

#[test]
fn silence_has_no_margin_and_is_no_yes() {
    let found = forecast(&Measured::default(), None);
    assert_eq!(
        (found.answer, found.margin, found.full_in_s),
        (Answer::Loses, None, None)
    );
    assert!(of(&found, ProblemKind::Silence).loses);
}

#[test]
fn the_topic_that_costs_most_is_first() {
    let mut measured = robot();
    let names = |measured: &Measured| {
        let found = forecast(measured, None);
        found.topics.into_iter().map(|cost| cost.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&measured), ["/camera", "/imu"]);
    // Many small messages cost more than their bytes.
    measured.topics[0].hz = 20_000.0;
    assert_eq!(names(&measured), ["/imu", "/camera"]);
}

#[test]
fn losses_in_the_trial_name_the_qos_that_must_change() {
    let mut measured = robot();
    measured.total.lost_in_transit = 7;
    measured.topics[0].lost = 4;
    measured.topics[0].depth = Some(5);
    measured.topics[1].lost = 3;
    measured.topics[1].is_reliable = false;
    let found = forecast(&measured, None);
    assert_eq!(found.answer, Answer::Loses);
    assert!(
        of(&found, ProblemKind::Lost)
            .sentence
            .ends_with("on /imu, /camera")
    );
    let changes: Vec<&str> = found
        .problems
        .iter()
        .filter(|problem| problem.kind == ProblemKind::Qos)
        .map(|problem| problem.sentence.as_str())
        .collect();
    assert!(
        changes[0].contains("keeps the last 5 messages only; let it keep 400"),
        "{changes:?}"
    );
    assert!(
        changes[1].contains("/camera") && changes[1].contains("`reliable`"),
        "{changes:?}"
    );
}

#[test]
fn kernel_settings_are_proposed_as_commands() {
    let mut measured = robot();
    measured.machine.dropped_packets = 12;
    measured.machine.governors = vec!["powersave".to_owned()];
    measured.machine.clock_is_synchronised = Some(false);
    measured.warnings =
        vec!["buffers are small; raise the limit: sudo sysctl -w net.core.rmem_max=67108864".to_owned()];
    let found = forecast(&measured, None);
    assert_eq!(
        found.answer,
        Answer::Fits,
        "none of them loses messages by itself"
    );
    let commands: Vec<&str> = found
        .problems
        .iter()
        .filter_map(|problem| problem.command.as_deref())
        .collect();
    assert_eq!(
        commands,
        [
            "sudo sysctl -w net.core.rmem_max=67108864",
            "sudo sysctl -w net.core.rmem_max=16777216",
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            "sudo timedatectl set-ntp true",
        ]
    );
}

#[test]
fn what_cannot_be_heard_loses_where_its_topics_are_known() {
    let not_heard = |kind| NotHeard {
        who: "/node".to_owned(),
        kind,
        reason: "a reason".to_owned(),
        topics: Vec::new(),
    };
    for (kind, answer) in [
        (NotHeardKind::IncompatibleQos, Answer::Loses),
        (NotHeardKind::NoUdp, Answer::Fits),
    ] {
        let mut measured = robot();
        measured.not_heard = vec![not_heard(kind)];
        measured.services_without_introspection = (0..6).map(|number| format!("/s{number}")).collect();
        measured.undefined_topics = vec![("/odd".to_owned(), "a/msg/B".to_owned())];
        let found = forecast(&measured, None);
        assert_eq!(found.answer, answer);
        assert!(
            of(&found, ProblemKind::Services)
                .sentence
                .ends_with("/s0, /s1, /s2, /s3 and 2 more")
        );
        assert!(of(&found, ProblemKind::Definitions).sentence.ends_with("/odd"));
    }
}

#[test]
fn a_small_cache_and_too_little_memory_are_named() {
    let mut measured = robot();
    measured.recorder.cache_bytes_max = 40 << 20;
    measured.machine.available_memory_bytes = 30 << 20;
    let found = forecast(&measured, None);
    assert!(of(&found, ProblemKind::Cache).sentence.contains("0.5 s only"));
    assert!(
        of(&found, ProblemKind::Memory)
            .sentence
            .contains("30.0 MiB of memory are left")
    );
}

#[test]
fn a_disk_in_memory_is_filled_by_payloads() {
    let mut measured = robot();
    measured.recorder.written_bytes_per_s = 0.0;
    measured.disk.available_bytes = 90_127_520;
    assert!((forecast(&measured, None).full_in_s.unwrap() - 1.0).abs() < 1e-9);
}
