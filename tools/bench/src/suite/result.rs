//! The result of a run of the suite, as the result folder holds it: one JSON file for each run, one CSV for
//! all.

use super::config::{
    PlayRate, ProducerConfig, PublisherKind, RecorderKind, SelectionKind, Setting, Transport,
};
use crate::{
    candidate::metered::DiskResult,
    engine::grouped,
    machine::Machine,
    measure::{CoreSample, LatencySummary, ProcessUse},
    statistics,
};
use holdall_model::loss::LossStage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One group of publishers in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// The group's name.
    pub name: String,
    /// Number of publishers.
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

/// One topic in a run; each has one publisher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopicResult {
    /// Full ROS name.
    pub topic: String,
    /// Messages that its publisher sent.
    pub sent: u64,
    /// Messages that are in the bag.
    pub recorded: u64,
    /// Missing messages by the stage that lost them, as the recorder reports.
    pub lost: BTreeMap<LossStage, u64>,
}

/// How long publishers waited for their first subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiscoveryResult {
    /// Publishers that got a subscription during the wait.
    pub matched: u64,
    /// All publishers.
    pub publishers: u64,
    /// The first one's wait in seconds after all publishers existed (0: the subscription existed before).
    pub first_s: f64,
    /// Half of them waited at most this.
    pub median_s: f64,
    /// The last one's wait.
    pub last_s: f64,
    /// Messages sent by publishers that had no subscription yet; unknown for other programs' publishers.
    #[serde(default)]
    pub sent_before: u64,
}

impl DiscoveryResult {
    /// Summarizes these waits; `None` when no publisher got a subscription.
    pub fn of(matched_s: &[f64], publishers: usize, sent_before: u64) -> Option<Self> {
        Some(Self {
            matched: matched_s.len() as u64,
            publishers: publishers as u64,
            first_s: matched_s.iter().copied().reduce(f64::min)?,
            median_s: statistics::median(matched_s)?,
            last_s: matched_s.iter().copied().reduce(f64::max)?,
            sent_before,
        })
    }
}

/// How well a recording was played back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaybackResult {
    /// Its rate.
    pub rate: PlayRate,
    /// Messages in the bag.
    pub messages: u64,
    /// Messages published.
    pub published: u64,
    /// Times that a message was not read early enough.
    pub starved: u64,
    /// Time from the first message due to the last one published, in seconds.
    pub elapsed_s: f64,
    /// Planned duration in seconds; 0 flat out.
    pub planned_s: f64,
    /// Payload bytes a second.
    pub bytes_per_s: f64,
    /// How much later than planned messages were published; meaningless flat out.
    pub lateness: Option<LatencySummary>,
}

/// The limits of the machine around a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLimits {
    /// The rate that `--disk-limit` asked for, which holds for all that was measured.
    #[serde(default)]
    pub disk_limit_bytes_per_s: Option<f64>,
    /// Direct sequential writing just before the run; absent where the file system refuses it.
    pub direct_write_bytes_per_s: Option<f64>,
    /// The same just after the run, its bag removed; absent in results of older versions.
    #[serde(default)]
    pub direct_write_after_bytes_per_s: Option<f64>,
    /// Direct writing in blocks of the load's largest message; absent for small ones, and in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_write_bytes_per_s: Option<f64>,
    /// A plain buffered loop with a sync, the newest measurement.
    pub buffered_write_bytes_per_s: Option<f64>,
    /// Copying memory.
    pub memcpy_bytes_per_s: Option<f64>,
}

impl RunLimits {
    /// Direct writing around the run, in bytes a second: the mean of before and after, because disks change
    /// from minute to minute.
    pub(crate) fn direct_around_bytes_per_s(&self) -> Option<f64> {
        let before = self.direct_write_bytes_per_s?;
        let after = self.direct_write_after_bytes_per_s.unwrap_or(before);
        Some(f64::midpoint(before, after))
    }
}

/// Which run it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunId {
    /// The experiment's short name.
    pub experiment: String,
    /// The case's label.
    pub case: String,
    /// Its repetition, from 0 as rosbag2 counts.
    pub repetition: u32,
    /// How messages reached the recorder.
    pub transport: Transport,
    /// The setting.
    pub setting: Setting,
}

/// What became of the messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Results by group.
    pub groups: Vec<GroupResult>,
    /// Results by topic and publisher.
    #[serde(default)]
    pub topics: Vec<TopicResult>,
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
    /// Missing messages that the recorder does not account for; other projects' recorders account for none.
    #[serde(default)]
    pub unexplained: u64,
}

/// How long it took, and the rates that follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Time from the first message due to the end of the last hand-over, in seconds.
    #[serde(default)]
    pub sending_s: f64,
    /// Time from the first message due to the end of close and sync, in seconds.
    pub elapsed_s: f64,
    /// The part of it after the last message was offered: draining, closing, syncing.
    pub close_s: f64,
    /// `recorded_bytes` divided by `elapsed_s`.
    pub durable_bytes_per_s: f64,
    /// Bytes a second that the load offers while all groups send.
    pub offered_bytes_per_s: f64,
}

/// What it took of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time after the offer, in seconds.
    pub recorder_cpu_s: f64,
    /// Processor time of the generator, offers included, in seconds.
    pub producer_cpu_s: f64,
    /// Highest resident memory in bytes, the generator's payloads (`generator_bytes`) included without
    /// transport.
    pub rss_max_bytes: u64,
    /// Memory of the generator's payloads.
    pub generator_bytes: u64,
    /// Bytes of all storage files.
    pub bag_bytes: u64,
    /// Bytes that the recorder wrote to the file system of a disk, journals and bytes written twice included;
    /// `None` if the kernel does not count them, as for file systems in memory.
    #[serde(default)]
    pub written_bytes: Option<u64>,
    /// Files begun after the first.
    pub splits: u64,
}

/// The work of its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// How long offers took: into the cache without transport, to the transport with one.
    pub offer: Option<LatencySummary>,
    /// How long the storage of a rival took for each batch.
    #[serde(default)]
    pub write: Option<LatencySummary>,
    /// holdall's operations on the disk, without transport.
    #[serde(default)]
    pub disk: Option<DiskResult>,
    /// How soon publishers got subscriptions, over a transport.
    #[serde(default)]
    pub discovery: Option<DiscoveryResult>,
    /// Result of playback, if it was measured.
    #[serde(default)]
    pub playback: Option<PlaybackResult>,
    /// The recorder and the publishers as processes, over a transport.
    #[serde(default)]
    pub processes: Vec<ProcessUse>,
}

/// The machine around it, and how well the load kept its schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// Runnable programs when this run began (`/proc/loadavg`, last minute).
    #[serde(default)]
    pub load_average: f64,
    /// How much later than planned messages were offered.
    pub lateness: Option<LatencySummary>,
    /// How late the machine woke a thread that only sleeps.
    pub wake_up: Option<LatencySummary>,
    /// How busy each processor was.
    pub cores: Vec<CoreSample>,
    /// The machine's limits.
    pub limits: RunLimits,
}

/// The result of one run; a file of it has the fields of all parts side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Which run it is.
    #[serde(flatten)]
    pub id: RunId,
    /// What became of the messages.
    #[serde(flatten)]
    pub counts: Counts,
    /// How long it took, and the rates that follow.
    #[serde(flatten)]
    pub times: Times,
    /// What it took of the machine.
    #[serde(flatten)]
    pub cost: Cost,
    /// The work of its parts.
    #[serde(flatten)]
    pub work: Work,
    /// The machine around it, and how well the load kept its schedule.
    #[serde(flatten)]
    pub around: Around,
}

impl Counts {
    /// Adds a topic of a group, whose messages have this length.
    pub fn add(&mut self, group: usize, message_bytes: u64, topic: TopicResult) {
        self.sent += topic.sent;
        self.recorded += topic.recorded;
        self.sent_bytes += topic.sent * message_bytes;
        self.recorded_bytes += topic.recorded * message_bytes;
        let known: u64 = topic.lost.values().sum();
        self.unexplained += topic.sent.saturating_sub(topic.recorded + known);
        if let Some(group) = self.groups.get_mut(group) {
            group.sent += topic.sent;
            group.recorded += topic.recorded;
            for (stage, count) in &topic.lost {
                *group.lost.entry(*stage).or_insert(0) += count;
            }
        }
        for (stage, count) in &topic.lost {
            *self.lost.entry(*stage).or_insert(0) += count;
        }
        self.topics.push(topic);
    }

    /// Missing messages by the stage that lost them, as tables name it; `unexplained` for those that no stage
    /// accounts for.
    pub fn missing(&self) -> BTreeMap<&'static str, u64> {
        let stages = self.lost.iter().map(|(stage, count)| (stage.as_str(), *count));
        let unexplained = ("unexplained", self.unexplained);
        stages
            .chain([unexplained])
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Messages recorded, in percent of those sent.
    pub fn recorded_percent(&self) -> f64 {
        percent(self.recorded, self.sent)
    }

    /// Bytes recorded, in percent of those sent.
    pub(crate) fn recorded_bytes_percent(&self) -> f64 {
        percent(self.recorded_bytes, self.sent_bytes)
    }
}

impl Around {
    /// The largest sampled number of bytes that were written and not yet on the disk.
    pub(crate) fn dirty_max_bytes(&self) -> u64 {
        let each = self.cores.iter().map(|sample| sample.dirty_bytes);
        each.max().unwrap_or(0)
    }

    /// The mean share of each processor that was busy, in percent.
    pub(crate) fn core_percents(&self) -> Vec<f64> {
        let cores = self.cores.iter().map(|sample| sample.busy.len()).max();
        let mean = |core: usize| {
            let busy: Vec<f64> = self
                .cores
                .iter()
                .filter_map(|sample| sample.busy.get(core).copied())
                .collect();
            100.0 * busy.iter().sum::<f64>() / busy.len().max(1) as f64
        };
        (0..cores.unwrap_or(0)).map(mean).collect()
    }
}

impl RunResult {
    /// A run without any figures yet.
    pub fn new(transport: Transport, setting: &Setting, producers: &ProducerConfig) -> Self {
        let group = |group: &super::config::PublisherGroup| GroupResult {
            name: group.name.clone(),
            publishers: group.publishers_count,
            message_bytes: group.msg_size_bytes as u64,
            rate_hz: group.rate_hz,
            ..GroupResult::default()
        };
        Self {
            id: RunId {
                transport,
                setting: setting.clone(),
                ..RunId::default()
            },
            counts: Counts {
                groups: producers.groups.iter().map(group).collect(),
                ..Counts::default()
            },
            times: Times {
                offered_bytes_per_s: producers.bytes_per_s(),
                ..Times::default()
            },
            ..Self::default()
        }
    }

    /// The part of the planned rate that was sent: 0.5 where sending took twice its time. `None` without a rate.
    pub(crate) fn sent_share(&self) -> Option<f64> {
        let paced = self.counts.groups.iter().filter(|group| group.rate_hz > 0.0);
        let planned_s =
            |group: &GroupResult| group.sent as f64 / (f64::from(group.publishers) * group.rate_hz);
        let planned_s = paced.map(planned_s).fold(0.0, f64::max);
        (planned_s > 0.0 && self.times.sending_s > 0.0).then(|| planned_s / self.times.sending_s)
    }

    /// Computes the figures that depend on the time taken; after all topics were added.
    pub fn set_times(&mut self, elapsed_s: f64, close_s: f64) {
        self.times.elapsed_s = elapsed_s;
        self.times.close_s = close_s;
        self.times.durable_bytes_per_s = self.counts.recorded_bytes as f64 / elapsed_s.max(1e-9);
    }

    /// Bytes written to the disk divided by bytes of messages in the bag: as the recorder's own disk counts
    /// them, else the kernel, else the size of the bag's files.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        let written = match (self.work.disk, self.cost.written_bytes) {
            (Some(disk), _) => disk.written_bytes,
            (None, Some(bytes)) => bytes,
            (None, None) => self.cost.bag_bytes,
        };
        (self.counts.recorded_bytes > 0).then(|| written as f64 / self.counts.recorded_bytes as f64)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// A setting that could not run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The case.
    pub case: String,
    /// The recorder, and the special options of the setting.
    pub setting: String,
    /// The reason: one sentence.
    pub reason: String,
}

/// The results of one experiment, with the machine they belong to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// The experiment's short name.
    pub experiment: String,
    /// Its purpose.
    pub title: String,
    /// The factor on message counts.
    pub scale: f64,
    /// The command that ran it.
    pub command: String,
    /// Those that ran a part of it before and that `--resume` kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// Every run in order.
    pub runs: Vec<RunResult>,
    /// Settings that could not run here.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
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
/// CPU columns are percent of one processor over the run. Empty values are written as `""`, so that every row
/// has the same number of columns.
pub fn summary_csv(runs: &[RunResult]) -> String {
    let cores = runs
        .iter()
        .map(|run| run.around.core_percents().len())
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
        for group in &run.counts.groups {
            text.push_str(&row(run, group, cores).join(" "));
            text.push('\n');
        }
    }
    text
}

fn row(run: &RunResult, group: &GroupResult, cores: usize) -> Vec<String> {
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_else(|| "\"\"".to_owned());
    let setting = &run.id.setting;
    let cpu = |seconds: f64| format!("{:.1}", 100.0 * seconds / run.times.elapsed_s.max(1e-9));
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
        cpu(run.cost.producer_cpu_s),
        cpu(run.cost.recorder_cpu_s),
    ];
    let percents = run.around.core_percents();
    row.extend((0..cores).map(|core| format!("{:.1}", percents.get(core).copied().unwrap_or(0.0))));
    row
}

/// Runs of the same case, transport and setting, in the order in which they first occur.
pub(crate) fn by_setting(runs: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let groups = grouped(runs, |run| (&run.id.case, run.id.transport, &run.id.setting));
    groups.into_iter().map(|(_, runs)| runs).collect()
}

/// A recorder's name in tables, with its transport and everything special about it.
pub(crate) fn recorder_label(transport: Transport, setting: &Setting) -> String {
    let mut text = match setting.recorder {
        RecorderKind::Holdall => "holdall".to_owned(),
        RecorderKind::Synchronous => "synchronous (ours)".to_owned(),
        RecorderKind::DoubleBuffered => "double-buffered (ours)".to_owned(),
        RecorderKind::Ros2Bag => "ros2 bag".to_owned(),
        RecorderKind::Rosbag => "rosbag (ROS 1)".to_owned(),
        RecorderKind::Discard if transport == Transport::None => "none (the generator alone)".to_owned(),
        RecorderKind::Discard => "none (taken and dropped)".to_owned(),
    };
    match transport {
        Transport::None => {}
        _ if setting.recorder == RecorderKind::Rosbag => {}
        Transport::Dds if setting.publishers == PublisherKind::Rclpy => text.push_str(", rclpy"),
        Transport::Dds => text.push_str(", DDS"),
        Transport::Iceoryx2 | Transport::Zenoh => text.push_str(&format!(", {transport}")),
    }
    if setting.selection != SelectionKind::default() {
        text.push_str(&format!(", {}", setting.selection));
    }
    if let Some(rate) = setting.play_rate {
        text.push_str(&format!(", played {rate}"));
    }
    text
}
