//! The results of an experiment as a table for people: a row for each case and setting, the published figure beside ours.

use super::{
    config::{Experiment, Setting},
    result::{ExperimentResult, RunResult, by_setting, recorder_label},
};
use crate::{report::TABLE_STYLE, statistics::Estimate};
use comfy_table::{CellAlignment, Table};
use holdall_model::loss::LossStage;
use std::collections::BTreeMap;

/// One row: all repetitions of a case with a setting.
pub struct Row<'a> {
    /// The case's label.
    pub case: &'a str,
    /// The setting of all its runs.
    pub setting: &'a Setting,
    /// Who recorded, with its transport.
    pub recorder: String,
    /// The repetitions.
    pub runs: Vec<&'a RunResult>,
    /// Messages recorded, in percent.
    pub recorded_percent: Estimate,
    /// What was published of it, in percent.
    pub published_percent: Option<f64>,
}

impl Row<'_> {
    /// The median of a figure over the repetitions.
    pub fn median(&self, figure: impl Fn(&RunResult) -> f64) -> f64 {
        let samples: Vec<f64> = self.runs.iter().map(|run| figure(run)).collect();
        crate::statistics::median(&samples).unwrap_or(0.0)
    }

    /// Missing messages of all repetitions by stage.
    pub fn lost(&self) -> BTreeMap<LossStage, u64> {
        let mut all = BTreeMap::new();
        for (stage, count) in self.runs.iter().flat_map(|run| &run.lost) {
            *all.entry(*stage).or_insert(0) += count;
        }
        all
    }
}

/// The rows of a result in the order in which they were run.
pub fn rows<'a>(result: &'a ExperimentResult, experiment: Option<&Experiment>) -> Vec<Row<'a>> {
    let published = experiment.map_or(&[][..], |experiment| &experiment.published);
    by_setting(&result.runs)
        .into_iter()
        .filter_map(|runs| {
            let first = runs[0];
            let percents: Vec<f64> = runs.iter().map(|run| run.recorded_percent()).collect();
            let published = published
                .iter()
                .find(|published| published.is_of(&first.case, first.transport, &first.setting));
            Some(Row {
                case: &first.case,
                setting: &first.setting,
                recorder: recorder_label(first.transport, first.setting.recorder),
                recorded_percent: Estimate::of(&percents, 1)?,
                published_percent: published.map(|published| published.recorded_percent),
                runs,
            })
        })
        .collect()
}

/// The result as text.
pub fn table(result: &ExperimentResult, experiment: Option<&Experiment>) -> String {
    let rows = rows(result, experiment);
    let has_published = rows.iter().any(|row| row.published_percent.is_some());
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    let mut header = vec![
        "case", "recorder", "storage", "cache", "split", "offered", "durable", "÷ limit", "recorded",
    ];
    if has_published {
        header.push("published");
    }
    header.extend(["lost by stage", "CPU", "memory"]);
    table.set_header(header);
    for row in &rows {
        table.add_row(cells(row, has_published));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{}: {}; scale {}, {} runs\n{table}\n{}\n",
        result.experiment,
        result.title,
        result.scale,
        result.runs.len(),
        machine(result)
    )
}

fn cells(row: &Row<'_>, has_published: bool) -> Vec<String> {
    let setting = row.setting;
    let storage = [
        Some(setting.storage_id.as_str()),
        setting.storage_preset_profile.as_deref(),
    ];
    let limit = row.median(|run| match run.limits.direct_write_bytes_per_s {
        Some(limit) => run.durable_bytes_per_s / limit,
        None => f64::NAN,
    });
    let recorded = match &row.recorded_percent.interval {
        Some(interval) => format!(
            "{:.2} % [{:.2}, {:.2}]",
            row.recorded_percent.median, interval.low, interval.high
        ),
        None => format!("{:.2} %", row.recorded_percent.median),
    };
    let lost: Vec<String> = row
        .lost()
        .iter()
        .map(|(stage, count)| format!("{} {count}", stage.as_str()))
        .collect();
    let mut cells = vec![
        row.case.to_owned(),
        row.recorder.clone(),
        storage.into_iter().flatten().collect::<Vec<_>>().join(" "),
        megabytes(setting.max_cache_size_bytes),
        setting.max_bag_size_bytes.map_or("–".to_owned(), megabytes),
        format!("{:.0} MB/s", row.median(|run| run.offered_bytes_per_s) / 1e6),
        format!("{:.0} MB/s", row.median(|run| run.durable_bytes_per_s) / 1e6),
        if limit.is_nan() {
            "–".to_owned()
        } else {
            format!("{limit:.2}")
        },
        recorded,
    ];
    if has_published {
        cells.push(
            row.published_percent
                .map_or("–".to_owned(), |percent| format!("{percent:.2} %")),
        );
    }
    cells.push(if lost.is_empty() {
        "–".to_owned()
    } else {
        lost.join(", ")
    });
    cells.push(format!(
        "{:.0} %",
        row.median(|run| 100.0 * run.recorder_cpu_s / run.elapsed_s.max(1e-9))
    ));
    cells.push(format!(
        "{:.0} MiB",
        row.median(|run| run.rss_max_bytes.saturating_sub(run.generator_bytes) as f64) / f64::from(1 << 20)
    ));
    cells
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes as f64 / 1e6)
}

fn machine(result: &ExperimentResult) -> String {
    let machine = &result.machine;
    let limits = |pick: fn(&RunResult) -> Option<f64>| {
        let samples: Vec<f64> = result.runs.iter().filter_map(pick).collect();
        crate::statistics::median(&samples).map_or("–".to_owned(), |rate| format!("{:.0} MB/s", rate / 1e6))
    };
    format!(
        "{} × {}, Linux {}, {}; limits of this run: direct write {}, buffered write with sync {}\nCPU: percent of one core behind the offer; memory: without the generator's payloads",
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.file_system,
        limits(|run| run.limits.direct_write_bytes_per_s),
        limits(|run| run.limits.buffered_write_bytes_per_s),
    )
}
