//! A table of each recorder's work on the disk: bytes written for each byte recorded, writes, syncs,
//! splits, and how long they took.

use super::{
    result::RunResult,
    table::{Row, milliseconds, shown},
};
use crate::{
    measure::LatencySummary,
    sheet::{Column, Sheet},
    statistics::median,
};
use holdall_model::units::format_bytes;

/// The table; without rows where no disk was measured.
pub(crate) fn sheet<'a>(rows: &[&'a Row<'a>]) -> Sheet {
    let is_known = |run: &&RunResult| {
        run.work.disk.is_some() || run.work.write.is_some() || run.cost.written_bytes.is_some()
    };
    let known = rows.iter().filter(|row| row.runs.iter().any(is_known));
    Sheet::of("Work on the disk", 3, &columns(), known)
}

fn columns<'a>() -> [Column<&'a Row<'a>>; 14] {
    [
        ("case", |row| row.case.to_owned()),
        ("recorder", |row| row.recorder.clone()),
        ("storage", |row| row.storage()),
        ("cache", |row| format_bytes(row.setting.max_cache_size_bytes)),
        ("written ×", |row| {
            shown(of(row, RunResult::write_amplification), |times| {
                format!("{times:.3}")
            })
        }),
        ("writes", |row| count(row, |run| Some(writes(run)?.count))),
        ("p50", |row| write(row, |one| one.p50_ns)),
        ("p99", |row| write(row, |one| one.p99_ns)),
        ("p99.99", |row| write(row, |one| one.p99_99_ns)),
        ("worst", |row| write(row, |one| one.max_ns)),
        ("syncs", |row| {
            count(row, |run| {
                run.work.disk.map(|disk| disk.sync.map_or(0, |sync| sync.count))
            })
        }),
        ("sync worst", |row| worst(row, |run| run.work.disk?.sync)),
        ("splits", |row| count(row, |run| Some(run.cost.splits))),
        ("close worst", |row| worst(row, |run| run.work.disk?.close)),
    ]
}

/// Blocks of our disk, or batches of a rival's storage.
fn writes(run: &RunResult) -> Option<LatencySummary> {
    run.work.disk.and_then(|disk| disk.write).or(run.work.write)
}

/// The median of a figure over the runs that have it.
fn of(row: &Row<'_>, figure: impl Fn(&RunResult) -> Option<f64>) -> Option<f64> {
    let samples: Vec<f64> = row.runs.iter().filter_map(|run| figure(run)).collect();
    median(&samples)
}

fn count(row: &Row<'_>, figure: fn(&RunResult) -> Option<u64>) -> String {
    let median = of(row, |run| figure(run).map(|count| count as f64));
    shown(median, |count| format!("{count:.0}"))
}

fn write(row: &Row<'_>, pick: fn(&LatencySummary) -> u64) -> String {
    shown(of(row, |run| Some(pick(&writes(run)?) as f64)), milliseconds)
}

fn worst(row: &Row<'_>, figure: fn(&RunResult) -> Option<LatencySummary>) -> String {
    let nanos = row
        .runs
        .iter()
        .filter_map(|run| figure(run))
        .map(|one| one.max_ns)
        .max();
    shown(nanos.map(|nanos| nanos as f64), milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        candidate::metered::DiskResult,
        suite::{
            config::{ProducerConfig, RecorderKind, Setting, Transport},
            result::ExperimentResult,
            table::{rows, sheets},
        },
    };

    fn run(recorder: RecorderKind) -> RunResult {
        let setting = Setting {
            recorder,
            ..Setting::default()
        };
        let producers = ProducerConfig {
            groups: Vec::new(),
            wait_for_subscriptions: true,
            number_of_threads: None,
        };
        let mut result = RunResult::new(Transport::None, &setting, &producers);
        result.counts.recorded_bytes = 1000;
        result
    }

    #[test]
    fn known_figures_are_shown_and_the_rest_is_a_dash() {
        let took = |nanos| LatencySummary {
            count: 7,
            p50_ns: nanos,
            p99_99_ns: nanos,
            max_ns: nanos,
            ..LatencySummary::default()
        };
        let mut ours = run(RecorderKind::Holdall);
        ours.cost.splits = 2;
        ours.work.disk = Some(DiskResult {
            written_bytes: 1024,
            files: 3,
            write: Some(took(2_000_000)),
            sync: None,
            close: Some(took(30_000_000)),
        });
        let mut theirs = run(RecorderKind::DoubleBuffered);
        theirs.cost.written_bytes = Some(2500);
        let result = ExperimentResult {
            experiment: "X".to_owned(),
            title: String::new(),
            scale: 1.0,
            command: String::new(),
            earlier: Vec::new(),
            machine: Default::default(),
            runs: vec![ours, theirs],
            skipped: Vec::new(),
        };
        let rows = rows(&result, None);
        let sheets = sheets(&rows);
        let disk = sheets.iter().find(|sheet| sheet.title.contains("disk")).unwrap();
        assert_eq!(
            disk.rows[0][4..],
            [
                "1.024", "7", "2.0 ms", "0 µs", "2.0 ms", "2.0 ms", "0", "–", "2", "30.0 ms"
            ]
        );
        assert_eq!(
            disk.rows[1][4..],
            ["2.500", "–", "–", "–", "–", "–", "–", "–", "0", "–"]
        );
    }
}
