//! A table of what each recorder did on the disk: bytes written for each byte recorded, writes, syncs,
//! splits, and how long they took.

use super::{
    result::RunResult,
    sheet::Sheet,
    table::{Row, milliseconds},
};
use crate::measure::LatencySummary;
use holdall_model::units::format_bytes;

/// The table; without rows where no disk was measured.
pub(crate) fn sheet(rows: &[&Row<'_>]) -> Sheet {
    let is_known = |row: &&&Row<'_>| {
        row.runs
            .iter()
            .any(|run| run.disk.is_some() || run.write.is_some() || run.written_bytes.is_some())
    };
    Sheet {
        title: "Work on the disk",
        header: vec![
            "case",
            "recorder",
            "storage",
            "cache",
            "written ×",
            "writes",
            "p50",
            "p99",
            "p99.99",
            "worst",
            "syncs",
            "sync worst",
            "splits",
            "close worst",
        ],
        words: 3,
        rows: rows.iter().filter(is_known).map(|row| cells(row)).collect(),
    }
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let median = |figure: &dyn Fn(&RunResult) -> Option<f64>| {
        let samples: Vec<f64> = row.runs.iter().filter_map(|run| figure(run)).collect();
        crate::statistics::median(&samples)
    };
    let shown = |value: Option<f64>, text: &dyn Fn(f64) -> String| value.map_or("–".to_owned(), text);
    let count = |figure: &dyn Fn(&RunResult) -> Option<u64>| {
        shown(median(&|run| figure(run).map(|count| count as f64)), &|count| {
            format!("{count:.0}")
        })
    };
    // Blocks of our disk, or batches of a rival's storage.
    let write = |pick: fn(&LatencySummary) -> u64| {
        let nanos = median(&|run| {
            let write = run.disk.and_then(|disk| disk.write).or(run.write);
            write.map(|write| pick(&write) as f64)
        });
        shown(nanos, &milliseconds)
    };
    let worst = |of: fn(&RunResult) -> Option<LatencySummary>| {
        let nanos = row
            .runs
            .iter()
            .filter_map(|run| of(run))
            .map(|one| one.max_ns)
            .max();
        shown(nanos.map(|nanos| nanos as f64), &milliseconds)
    };
    vec![
        row.case.to_owned(),
        row.recorder.clone(),
        row.storage(),
        format_bytes(row.setting.max_cache_size_bytes),
        shown(median(&RunResult::write_amplification), &|times| {
            format!("{times:.3}")
        }),
        count(&|run| {
            run.disk
                .and_then(|disk| disk.write)
                .or(run.write)
                .map(|one| one.count)
        }),
        write(|one| one.p50_ns),
        write(|one| one.p99_ns),
        write(|one| one.p99_99_ns),
        write(|one| one.max_ns),
        count(&|run| run.disk.map(|disk| disk.sync.map_or(0, |sync| sync.count))),
        worst(|run| run.disk.and_then(|disk| disk.sync)),
        count(&|run| Some(run.splits)),
        worst(|run| run.disk.and_then(|disk| disk.close)),
    ]
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
            publishers: Default::default(),
            selection: Default::default(),
            play_rate: None,
            storage_id: "mcap".to_owned(),
            max_cache_size_bytes: 1_000_000,
            max_bag_size_bytes: None,
            compression: None,
            compression_queue_size: 1,
            compression_threads: 0,
            storage_config_file: None,
            storage_preset_profile: None,
        };
        let producers = ProducerConfig {
            groups: Vec::new(),
            wait_for_subscriptions: true,
            number_of_threads: None,
        };
        RunResult {
            recorded_bytes: 1000,
            ..RunResult::new(Transport::None, &setting, &producers)
        }
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
        ours.splits = 2;
        ours.disk = Some(DiskResult {
            written_bytes: 1024,
            files: 3,
            write: Some(took(2_000_000)),
            sync: None,
            close: Some(took(30_000_000)),
        });
        let mut theirs = run(RecorderKind::DoubleBuffered);
        theirs.written_bytes = Some(2500);
        let result = ExperimentResult {
            experiment: "X".to_owned(),
            title: String::new(),
            scale: 1.0,
            command: String::new(),
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
