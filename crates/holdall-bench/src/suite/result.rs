//! What a run of the suite found, as it is kept in the result folder: one JSON file for each run, one CSV for all.

use super::config::{RecorderKind, Setting, Transport};
use crate::{
    error::{BenchError, BenchResult},
    machine::Machine,
    measure::{CoreSample, LatencySummary},
};
use holdall_model::loss::LossStage;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};

/// One group of publishers in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// The group's name.
    pub name: String,
    /// Publishers in it.
    pub publishers: u32,
    /// Bytes of the bulk of a message, as configured.
    pub message_bytes: u64,
    /// Messages a second of each publisher.
    pub rate_hz: f64,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that are in the bag.
    pub recorded: u64,
    /// Missing messages by the stage that lost them.
    pub lost: BTreeMap<LossStage, u64>,
}

/// The limits of the machine beside a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Direct sequential writing just before the run; absent where the file system refuses it.
    pub direct_write_bytes_per_s: Option<f64>,
    /// A plain buffered loop with a sync, the newest measurement.
    pub buffered_write_bytes_per_s: Option<f64>,
    /// Copying memory.
    pub memcpy_bytes_per_s: Option<f64>,
}

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The experiment's short name.
    pub experiment: String,
    /// The case's label.
    pub case: String,
    /// Which repetition, from 0 as rosbag2 counts.
    pub repetition: u32,
    /// How messages reached the recorder.
    pub transport: Transport,
    /// How it was set up.
    pub setting: Setting,
    /// By group.
    pub groups: Vec<GroupResult>,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages in the bag.
    pub recorded: u64,
    /// Bytes of the messages in the bag (sizes within a group are equal).
    pub recorded_bytes: u64,
    /// Bytes of the messages that were sent.
    pub sent_bytes: u64,
    /// Missing messages by stage.
    pub lost: BTreeMap<LossStage, u64>,
    /// From the first message due to the end of close and sync, in seconds.
    pub elapsed_s: f64,
    /// Of that, after the last message was offered: draining, closing, syncing.
    pub close_s: f64,
    /// `recorded_bytes` through `elapsed_s`.
    pub durable_bytes_per_s: f64,
    /// Bytes a second that the load offers while all groups send.
    pub offered_bytes_per_s: f64,
    /// Processor time behind the offer, in seconds.
    pub recorder_cpu_s: f64,
    /// Processor time of the generator, offers included, in seconds.
    pub producer_cpu_s: f64,
    /// Highest resident memory in bytes, the generator's payloads (`generator_bytes`) included without transport.
    pub rss_max_bytes: u64,
    /// Memory of the generator's payloads.
    pub generator_bytes: u64,
    /// Bytes of all storage files.
    pub bag_bytes: u64,
    /// Files begun after the first.
    pub splits: u64,
    /// How long offers took.
    pub offer: Option<LatencySummary>,
    /// How much later than planned messages were offered.
    pub lateness: Option<LatencySummary>,
    /// How late the machine woke a thread that only sleeps.
    pub wake_up: Option<LatencySummary>,
    /// How busy each processor was.
    pub cores: Vec<CoreSample>,
    /// The machine's limits.
    pub limits: RunLimits,
}

impl RunResult {
    /// Messages recorded, in percent of those sent.
    pub fn recorded_percent(&self) -> f64 {
        percent(self.recorded, self.sent)
    }

    /// Bytes recorded, in percent of those sent.
    pub fn recorded_bytes_percent(&self) -> f64 {
        percent(self.recorded_bytes, self.sent_bytes)
    }

    /// The mean share of each processor that was busy, in percent.
    pub fn core_percents(&self) -> Vec<f64> {
        let cores = self
            .cores
            .iter()
            .map(|sample| sample.busy.len())
            .max()
            .unwrap_or(0);
        let mean = |core: usize| {
            let busy: Vec<f64> = self
                .cores
                .iter()
                .filter_map(|sample| sample.busy.get(core).copied())
                .collect();
            100.0 * busy.iter().sum::<f64>() / busy.len().max(1) as f64
        };
        (0..cores).map(mean).collect()
    }

    /// Writes the result to `path`, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, path: &Path) -> BenchResult<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| BenchError::Verify {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let part = path.with_extension("part");
        fs::write(&part, text).map_err(BenchError::io("write", &part))?;
        fs::rename(&part, path).map_err(BenchError::io("rename", path))
    }

    /// Reads a result.
    ///
    /// # Errors
    /// When there is none, or it is not one.
    pub fn load(path: &Path) -> BenchResult<Self> {
        let text = fs::read_to_string(path).map_err(BenchError::io("read", path))?;
        serde_json::from_str(&text).map_err(|error| BenchError::Verify {
            path: path.to_owned(),
            reason: format!("is not the result of a run: {error}"),
        })
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// The results of one experiment, with the machine they belong to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// The experiment's short name.
    pub experiment: String,
    /// What it shows.
    pub title: String,
    /// The factor on message counts.
    pub scale: f64,
    /// The command that ran it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Every run in order.
    pub runs: Vec<RunResult>,
}

/// The columns of rosbag2's result file, blank-separated there; `core_<i>` follow.
const COLUMNS: [&str; 15] = [
    "storage_id",
    "instances",
    "frequency",
    "message_size",
    "total_messages_sent",
    "cache_size",
    "max_bagfile_size",
    "storage_config",
    "compression",
    "compression_queue",
    "compression_threads",
    "total_produced",
    "total_recorded_count",
    "producer_cpu_usage",
    "recorder_cpu_usage",
];

/// All runs in the columns of rosbag2's result file: a row for each group and run.
///
/// CPU columns are percent of one processor over the run. Empty values are written as `""`, so that every row has as many columns.
pub fn summary_csv(runs: &[RunResult]) -> String {
    let cores = runs
        .iter()
        .map(|run| run.core_percents().len())
        .max()
        .unwrap_or(0);
    let header: Vec<String> = COLUMNS
        .iter()
        .map(ToString::to_string)
        .chain((0..cores).map(|core| format!("core_{core}")))
        .collect();
    let mut text = header.join(" ");
    text.push('\n');
    for run in runs {
        for group in &run.groups {
            text.push_str(&row(run, group, cores).join(" "));
            text.push('\n');
        }
    }
    text
}

fn row(run: &RunResult, group: &GroupResult, cores: usize) -> Vec<String> {
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_else(|| "\"\"".to_owned());
    let setting = &run.setting;
    let cpu = |seconds: f64| format!("{:.1}", 100.0 * seconds / run.elapsed_s.max(1e-9));
    let mut row = vec![
        setting.storage_id.clone(),
        group.publishers.to_string(),
        group.rate_hz.to_string(),
        group.message_bytes.to_string(),
        group.sent.to_string(),
        setting.max_cache_size_bytes.to_string(),
        setting.max_bag_size_bytes.unwrap_or(0).to_string(),
        or_empty(&setting.storage_config_file),
        or_empty(&setting.compression),
        setting.compression_queue_size.to_string(),
        setting.compression_threads.to_string(),
        group.sent.to_string(),
        group.recorded.to_string(),
        cpu(run.producer_cpu_s),
        cpu(run.recorder_cpu_s),
    ];
    let percents = run.core_percents();
    row.extend((0..cores).map(|core| format!("{:.1}", percents.get(core).copied().unwrap_or(0.0))));
    row
}

/// Runs of the same case, transport and setting, in the order in which they first came.
pub fn by_setting(runs: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let mut all: Vec<Vec<&RunResult>> = Vec::new();
    for run in runs {
        let same = |other: &&mut Vec<&RunResult>| {
            other[0].case == run.case
                && other[0].transport == run.transport
                && other[0].setting == run.setting
        };
        match all.iter_mut().find(same) {
            Some(others) => others.push(run),
            None => all.push(vec![run]),
        }
    }
    all
}

/// What tables call a recorder with its transport.
pub fn recorder_label(transport: Transport, recorder: RecorderKind) -> String {
    match transport {
        Transport::None => recorder.to_string(),
        Transport::Dds => format!("{recorder}, DDS"),
    }
}
