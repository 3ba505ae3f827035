//! Results of the kind `storage`: one cell for each size, batch and configuration, its table, and the CSV of the
//! storage plugin comparison.

use super::ComparisonConfig;
use crate::{
    engine::{BOOTSTRAP_SEED, Csv, Report, cpu_per_gib, frequency, limits_text, ratio_text, span},
    sheet::{Column, DASH, Sheet},
    statistics::{Estimate, Interval},
};
use holdall_model::units::{MIB, format_bytes, format_mebibyte_rate as rate};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Calls of a storage, as the storage plugin comparison counts them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calls {
    /// Calls.
    pub batches: u64,
    /// Mean of the rates of all calls in bytes a second, the published figure: most calls only fill the open chunk,
    /// so it shows little.
    pub avg_byte_throughput: f64,
    /// The CSV of the run, next to the other results.
    pub csv: PathBuf,
}

/// One run of a configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StorageRun {
    /// Which repetition, from 0 as in the published CSV.
    pub run: u32,
    /// Time from the first message to the end of close and sync, in seconds.
    pub elapsed_s: f64,
    /// The part of it after the last message, in seconds.
    pub close_s: f64,
    /// Payload bytes divided by `elapsed_s`.
    pub bytes_per_s: f64,
    /// Processor seconds for each 10^9 bytes, all threads and the kernel's work included.
    pub cpu_s_per_gb: f64,
    /// Disk limit of the same round in bytes a second; absent where nothing is written to a disk.
    pub limit_bytes_per_s: Option<f64>,
    /// The calls, for a file of the storage plugin comparison.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
}

/// One size, batch and configuration over all runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// `1MiB`, `10KiB`, `100B` or `mixed`.
    pub messages: String,
    /// Bytes that are collected for one call.
    pub batch_size: u64,
    /// Name of the configuration.
    pub plugin_config: String,
    /// Messages in one run.
    #[serde(default)]
    pub message_count: u64,
    /// Payload bytes in one run.
    #[serde(default)]
    pub bytes: u64,
    /// Median of total bytes divided by elapsed time, close and sync included.
    pub durable_bytes_per_s: f64,
    /// Its 95 % interval; absent with fewer than three runs.
    pub interval: Option<Interval>,
    /// Median messages a second.
    pub messages_per_s: f64,
    /// Median processor seconds for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Median time from the last message to the end of close and sync, in seconds.
    pub close_s: f64,
    /// Durable rate divided by the disk limit of the same round.
    pub ratio_to_limit: Option<Estimate>,
    /// Durable rate divided by its rival's, round by round.
    pub ratio_to_rival: Option<Estimate>,
    /// The rival.
    pub rival: Option<String>,
    /// Every run in order.
    #[serde(default)]
    pub runs: Vec<StorageRun>,
}

impl Cell {
    /// Combines the runs of one cell; `None` without a run.
    pub fn of(
        (messages, batch_size, plugin_config): (String, u64, String),
        (message_count, bytes): (u64, u64),
        runs: Vec<StorageRun>,
    ) -> Option<Self> {
        let estimate = |pick: &dyn Fn(&StorageRun) -> f64| {
            Estimate::of(&runs.iter().map(pick).collect::<Vec<_>>(), BOOTSTRAP_SEED)
        };
        let rate = estimate(&|run| run.bytes_per_s)?;
        let limits: Vec<f64> = runs.iter().filter_map(|run| run.limit_bytes_per_s).collect();
        let rates: Vec<f64> = runs.iter().map(|run| run.bytes_per_s).collect();
        Some(Self {
            messages,
            batch_size,
            plugin_config,
            message_count,
            bytes,
            durable_bytes_per_s: rate.median,
            interval: rate.interval,
            messages_per_s: rate.median * message_count as f64 / bytes.max(1) as f64,
            cpu_s_per_gb: estimate(&|run| run.cpu_s_per_gb)?.median,
            close_s: estimate(&|run| run.close_s)?.median,
            ratio_to_limit: Estimate::of_ratio(&rates, &limits, BOOTSTRAP_SEED),
            ratio_to_rival: None,
            rival: None,
            runs,
        })
    }

    /// Compares it with its rival's cell, round by round.
    pub fn compare(&mut self, rival: &Self) {
        let rates = |cell: &Self| cell.runs.iter().map(|run| run.bytes_per_s).collect::<Vec<_>>();
        self.ratio_to_rival = Estimate::of_ratio(&rates(self), &rates(rival), BOOTSTRAP_SEED);
        self.rival = Some(rival.plugin_config.clone());
    }
}

/// The whole result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StorageBody {
    /// All cells: sizes, then batches, then configurations.
    pub cells: Vec<Cell>,
    /// The content of payloads.
    pub content: String,
    /// Payload bytes of one run.
    pub total_bytes: u64,
    /// How files were written: `auto`, `direct`, `buffered` or `memory`.
    #[serde(default)]
    pub disk: String,
    /// Repetitions.
    pub repeat: u32,
    /// Highest resident memory in bytes.
    #[serde(default)]
    pub rss_max_bytes: u64,
    /// The file of the storage plugin comparison that was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ComparisonConfig>,
}

impl StorageBody {
    /// The CSV of the storage plugin comparison: `avg_byte_throughput` in bytes a second, here total bytes
    /// divided by elapsed time with close and sync, and `close_time` in seconds.
    pub(super) fn csv(&self) -> String {
        let columns = "run,messages,batch_size,plugin_config,avg_byte_throughput,close_time";
        let mut csv = Csv::of(columns.split(','));
        for cell in &self.cells {
            let (messages, batch, name) = (&cell.messages, batch_label(cell.batch_size), &cell.plugin_config);
            for run in &cell.runs {
                let (rate, close) = (run.bytes_per_s.round(), format!("{:.9}", run.close_s));
                csv.row(&[&run.run, messages, &batch, name, &rate, &close]);
            }
        }
        csv.text()
    }

    /// A description of each cell, in one clause.
    pub(crate) fn about(&self) -> String {
        format!(
            "{} of {} for each cell, {} rounds, disk {}",
            format_bytes(self.total_bytes),
            self.content,
            self.repeat,
            self.disk
        )
    }
}

/// The columns of cells; the first two are equal in a table of one size and batch.
const COLUMNS: [Column<Cell>; 9] = [
    ("messages", |cell| cell.messages.clone()),
    ("batch", |cell| batch_label(cell.batch_size)),
    ("configuration", |cell| cell.plugin_config.clone()),
    ("durable", |cell| {
        let ends = cell.interval;
        let ends = ends.map(|ends| format!(" [{:.0}, {:.0}]", ends.low / MIB, ends.high / MIB));
        format!("{}{}", rate(cell.durable_bytes_per_s), ends.unwrap_or_default())
    }),
    ("÷ limit", |cell| ratio_text(cell.ratio_to_limit.as_ref(), false)),
    ("messages/s", |cell| frequency(cell.messages_per_s)),
    ("CPU s/GiB", |cell| cpu_per_gib(cell.cpu_s_per_gb)),
    // Never negative, and far below the range of 64 bits of nanoseconds.
    ("close", |cell| span((cell.close_s * 1e9) as u64)),
    ("÷ rival", |cell| {
        let rival = cell.rival.as_ref().filter(|_| cell.ratio_to_rival.is_some());
        let ratio = ratio_text(cell.ratio_to_rival.as_ref(), true);
        rival.map_or(DASH.to_owned(), |rival| format!("{ratio} × {rival}"))
    }),
];

/// A table of cells.
pub(crate) fn sheet(cells: &[Cell]) -> Sheet {
    Sheet::of("Storages alone", 3, &COLUMNS, cells)
}

/// The result as text: a table for each size and batch, and one of the runs of a file.
pub fn storage_table(report: &Report<StorageBody>) -> String {
    let mut text = String::new();
    let same_place = |a: &Cell, b: &Cell| a.messages == b.messages && a.batch_size == b.batch_size;
    for cells in report.body.cells.chunk_by(same_place) {
        let (messages, batch) = (&cells[0].messages, batch_label(cells[0].batch_size));
        let sheet = Sheet::of("", 1, &COLUMNS[2..], cells);
        text.push_str(&format!("{messages} in batches of {batch}\n{}\n\n", sheet.text()));
    }
    if report.body.config.is_some() {
        let runs = report.body.cells.iter().flat_map(|cell| &cell.runs);
        let runs: Vec<_> = runs.filter_map(|run| Some((run, run.calls.as_ref()?))).collect();
        let columns: [Column<(&StorageRun, &Calls)>; 4] = [
            ("", |(run, _)| format!("run {}", run.run)),
            ("durable", |(run, _)| rate(run.bytes_per_s)),
            ("calls", |(_, calls)| calls.batches.to_string()),
            ("mean of their rates", |(_, calls)| {
                rate(calls.avg_byte_throughput)
            }),
        ];
        let sheet = Sheet::of("", 1, &columns, &runs);
        text.push_str(&format!(
            "{}\nthe last column is the figure that the comparison published: most calls only fill memory\n\n",
            sheet.text()
        ));
    }
    format!("{text}{}\n{}", report.body.about(), limits_text(&report.limit))
}

/// Names of batches in the published CSV.
pub(crate) fn batch_label(bytes: u64) -> String {
    match bytes {
        mib if mib > 0 && mib.is_multiple_of(1 << 20) => format!("{}MiB", mib >> 20),
        kib if kib > 0 && kib.is_multiple_of(1 << 10) => format!("{}KiB", kib >> 10),
        other => format!("{other}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &'static str, rates: [f64; 3]) -> Cell {
        let runs = rates
            .iter()
            .zip(0..)
            .map(|(rate, run)| StorageRun {
                run,
                elapsed_s: 1.0,
                close_s: 0.25,
                bytes_per_s: *rate,
                cpu_s_per_gb: 0.1,
                limit_bytes_per_s: Some(2e9),
                calls: None,
            })
            .collect();
        Cell::of(("100B".into(), 10 << 20, name.to_owned()), (1000, 100_000), runs).unwrap()
    }

    #[test]
    fn a_cell_has_medians_and_ratios() {
        let mut ours = cell("mcap_default", [1e9, 2e9, 1.5e9]);
        ours.compare(&cell("mcap_crate", [0.5e9, 1e9, 0.75e9]));
        assert_eq!((ours.durable_bytes_per_s, ours.messages_per_s), (1.5e9, 1.5e7));
        assert_eq!(ours.ratio_to_limit.unwrap().median, 0.75);
        assert_eq!(
            (ours.ratio_to_rival.unwrap().median, ours.rival.as_deref()),
            (2.0, Some("mcap_crate"))
        );
    }

    #[test]
    fn the_csv_has_the_published_columns() {
        let report = StorageBody {
            cells: vec![cell("mcap_default", [1e9, 2e9, 1.5e9])],
            content: "random".into(),
            total_bytes: 1,
            disk: "auto".into(),
            repeat: 3,
            rss_max_bytes: 0,
            config: None,
        };
        let csv = report.csv();
        let mut lines = csv.lines();
        assert_eq!(
            lines.next(),
            Some("run,messages,batch_size,plugin_config,avg_byte_throughput,close_time")
        );
        assert_eq!(
            lines.next(),
            Some("0,100B,10MiB,mcap_default,1000000000,0.250000000")
        );
        assert_eq!(lines.count(), 2);
    }
}
