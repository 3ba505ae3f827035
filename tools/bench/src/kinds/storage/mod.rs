//! The kind `storage`: raw write rates of storages alone, like rosbag2's storage plugin comparison, or a file of that
//! comparison.

mod config;
mod configuration;
mod result;

pub use config::{ComparisonConfig, ComparisonTopic};
pub use configuration::{StorageConfiguration, absent_configurations, default_configurations};
pub use result::{Calls, Cell, StorageBody, StorageRun, storage_table};
pub(crate) use result::{batch_label, sheet};

use crate::{
    candidate::{
        RawMessage, RawWriter,
        ours::{DiskChoice, channel_info, channel_infos},
        raw::in_batches,
    },
    engine::{
        Common, Csv, Done, Earlier, FIRST_STAMP_NANOS, Kind, OnProgress, Progress, Report, Session, Task,
        by_task, run_all,
    },
    error::{BenchError, BenchResult},
    measure::UsageMeter,
    verify::verify_files,
    workload::{Corpus, Load, Plan, SizeMix},
};
use holdall_io::clock::Clock;
use holdall_storage::writer::ChannelInfo;

/// The disk's limit is measured with at least this many bytes.
const LIMIT_BYTES_MIN: u64 = 1 << 30;

/// Time between the stamps of two messages.
const PERIOD_NANOS: u64 = 1000;

/// The corpus of a topic is longer than one message by this much.
const CORPUS_WINDOW_BYTES: usize = 4 << 20;

/// Everything that the kind needs to know.
#[derive(Clone, Debug)]
pub struct StorageBenchOptions {
    /// The options of every kind.
    pub common: Common,
    /// Message sizes.
    pub sizes: Vec<SizeMix>,
    /// Bytes that are collected for one call of the storage.
    pub batches: Vec<u64>,
    /// Configurations.
    pub configurations: Vec<StorageConfiguration>,
    /// Payload bytes of each run.
    pub total_bytes: u64,
    /// A file of the storage plugin comparison instead of all of them.
    pub config: Option<ComparisonConfig>,
}

/// The source of the messages.
enum Source<'a> {
    Plan(Plan),
    File {
        config: &'a ComparisonConfig,
        order: Vec<u32>,
        corpora: Vec<Corpus>,
    },
}

impl Source<'_> {
    fn channels(&self) -> Vec<ChannelInfo> {
        match self {
            Self::Plan(plan) => channel_infos(plan.topics()),
            Self::File { config, .. } => config
                .topics
                .iter()
                .map(|topic| channel_info(&topic.name))
                .collect(),
        }
    }

    fn label(&self) -> String {
        match self {
            Self::Plan(plan) => plan.load().mix.label(),
            Self::File { .. } => "file".to_owned(),
        }
    }

    /// Messages and payload bytes.
    fn amount(&self) -> (u64, u64) {
        match self {
            Self::Plan(plan) => (plan.message_count(), plan.byte_count()),
            Self::File { config, order, .. } => (order.len() as u64, config.bytes()),
        }
    }

    /// Stores everything in calls of at least `batch_bytes`; counts and times the calls of a file.
    fn write(
        &self,
        batch_bytes: u64,
        writer: &mut dyn RawWriter,
        clock: &dyn Clock,
    ) -> BenchResult<Vec<BatchWrite>> {
        let mut calls = Vec::new();
        match self {
            Self::Plan(plan) => {
                let messages = plan.raw_messages(FIRST_STAMP_NANOS, PERIOD_NANOS);
                in_batches(messages, batch_bytes, &mut |batch, _| writer.write_batch(batch))?;
            }
            Self::File {
                config,
                order,
                corpora,
            } => {
                let mut sequences = vec![0_u64; corpora.len()];
                let messages = order.iter().zip(0_usize..).map(|(topic, index)| {
                    let place = *topic as usize;
                    sequences[place] += 1;
                    // Cache lines of the window in turn, so that payloads differ.
                    let start = index * 64 % CORPUS_WINDOW_BYTES;
                    RawMessage {
                        topic: *topic,
                        sequence: sequences[place],
                        log_time_nanos: FIRST_STAMP_NANOS + (index as u64 + 1) * PERIOD_NANOS,
                        payload: &corpora[place].bytes()[start..start + config.topics[place].message_size],
                    }
                });
                in_batches(messages, batch_bytes, &mut |batch, bytes| {
                    let before = clock.monotonic();
                    writer.write_batch(batch)?;
                    let took = clock.monotonic().saturating_sub(before).as_nanos();
                    calls.push(BatchWrite {
                        bytes,
                        messages: batch.len() as u64,
                        write_ns: u64::try_from(took).unwrap_or(u64::MAX),
                    });
                    Ok(())
                })?;
            }
        }
        Ok(calls)
    }
}

/// A call of the storage.
struct BatchWrite {
    bytes: u64,
    messages: u64,
    write_ns: u64,
}

/// In the format of the comparison's program: a row for each call, and one at the end with the time of
/// closing alone.
fn csv_of(calls: &[BatchWrite], close_ns: u128) -> String {
    let mut csv = Csv::of(["sqc", "num_bytes", "num_msgs", "write_ns", "close_ns"]);
    for (index, call) in calls.iter().enumerate() {
        csv.row(&[&index, &call.bytes, &call.messages, &call.write_ns, &""]);
    }
    csv.row(&[&"", &"", &"", &"", &close_ns]);
    csv.text()
}

/// Runs every cell once in each round, and stores JSON and CSV in the folder.
///
/// # Errors
/// Options that do not fit, too little space, a failed storage, bytes that differ from the offered
/// ones.
pub fn run(
    options: &StorageBenchOptions,
    clock: &dyn Clock,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Report<StorageBody>> {
    let common = &options.common;
    check(options)?;
    let sources = sources(options)?;
    let places = places(options, &sources);
    let bytes = options
        .config
        .as_ref()
        .map_or(options.total_bytes, ComparisonConfig::bytes);
    let disk = common.disk_name();
    let names: Vec<String> = places.iter().map(|place| place.label(&sources)).collect();
    let what = format!(
        "storage {names:?} {bytes} {} {disk} {}",
        common.content, common.seed
    );
    let limit_bytes = common.limit_bytes.unwrap_or(bytes.max(LIMIT_BYTES_MIN));
    let files = if common.keep {
        u64::from(common.repeat) * places.len() as u64
    } else {
        1
    };
    let space = (bytes * 5 / 2).saturating_mul(files).max(limit_bytes);
    let is_stored = common.disk != DiskChoice::Discard;
    let mut session = Session::open(common, what, places.len(), if is_stored { space } else { 0 })?;
    if is_stored {
        session.measure_disk(limit_bytes)?;
    }
    session.limits.memory();
    session.limit_around()?;
    let mut storages = Storages {
        common,
        sources,
        places,
        names,
        clock,
        session,
        rss_max_bytes: 0,
    };
    let done = run_all(&mut storages, on_progress)?;
    let body = StorageBody {
        cells: storages.cells(done),
        content: common.content.to_string(),
        total_bytes: bytes,
        disk,
        repeat: common.repeat,
        rss_max_bytes: storages.rss_max_bytes,
        config: options.config.clone(),
    };
    let csv = options.config.is_none().then(|| body.csv());
    storages.session.finish("storage", common, body, csv)
}

fn check(options: &StorageBenchOptions) -> BenchResult<()> {
    if options.config.is_some() {
        return Ok(());
    }
    if options.sizes.is_empty() || options.batches.is_empty() || options.configurations.is_empty() {
        let option = "--sizes, --batches and --configs";
        return Err(BenchError::option(option, "at least one each", "none"));
    }
    let mut others = options.configurations.iter().filter(|one| !one.can_discard());
    match others.next() {
        Some(one) if options.common.disk == DiskChoice::Discard => {
            let expected = "configurations that write through our disk layer (mcap_*, naive)";
            Err(BenchError::option("--memory", expected, one.name.as_str()))
        }
        _ => Ok(()),
    }
}

fn sources(options: &StorageBenchOptions) -> BenchResult<Vec<Source<'_>>> {
    let (content, seed) = (options.common.content, options.common.seed);
    if let Some(config) = &options.config {
        let corpora = config.topics.iter().zip(seed..);
        return Ok(vec![Source::File {
            order: config.order(seed),
            corpora: corpora
                .map(|(topic, seed)| Corpus::new(content, topic.message_size + CORPUS_WINDOW_BYTES, seed))
                .collect(),
            config,
        }]);
    }
    let plan = |mix: &SizeMix| {
        let load = Load {
            mix: mix.clone(),
            content,
            total_bytes: options.total_bytes,
            producers: 1,
            topics: Load::topics_min(mix, 1),
            rate_hz: None,
            seed,
        };
        Ok(Source::Plan(Plan::new(load)?))
    };
    options.sizes.iter().map(plan).collect()
}

/// A size, batch and configuration.
struct Place {
    source: usize,
    batch_bytes: u64,
    configuration: StorageConfiguration,
}

impl Place {
    fn label(&self, sources: &[Source<'_>]) -> String {
        let (name, size) = (&self.configuration.name, sources[self.source].label());
        format!("{name}_{size}_{}", batch_label(self.batch_bytes))
    }
}

fn places(options: &StorageBenchOptions, sources: &[Source<'_>]) -> Vec<Place> {
    let place = |source, batch_bytes, configuration| Place {
        source,
        batch_bytes,
        configuration,
    };
    if let Some(config) = &options.config {
        return vec![place(
            0,
            config.min_batch_size_bytes,
            StorageConfiguration::of(config),
        )];
    }
    let mut places = Vec::new();
    for source in 0..sources.len() {
        for batch_bytes in &options.batches {
            let configurations = options.configurations.iter();
            places.extend(configurations.map(|one| place(source, *batch_bytes, one.clone())));
        }
    }
    places
}

struct Storages<'a> {
    common: &'a Common,
    sources: Vec<Source<'a>>,
    places: Vec<Place>,
    names: Vec<String>,
    clock: &'a dyn Clock,
    session: Session<StorageRun>,
    rss_max_bytes: u64,
}

impl Kind for Storages<'_> {
    type Run = StorageRun;

    fn tasks(&self) -> Vec<Task> {
        let task = |name: &String| Task {
            name: name.clone(),
            repeat: self.common.repeat,
        };
        self.names.iter().map(task).collect()
    }

    fn earlier(
        &mut self,
        task: usize,
        round: u32,
        _: &mut OnProgress<'_>,
    ) -> BenchResult<Earlier<StorageRun>> {
        Ok(self.session.earlier(task, round))
    }

    fn run(&mut self, task: usize, round: u32, _: &mut OnProgress<'_>) -> BenchResult<Option<StorageRun>> {
        let place = &self.places[task];
        let (source, folder) = (&self.sources[place.source], &self.session.folder);
        let (messages, bytes) = source.amount();
        let name = format!("{}_{round}", self.names[task]);
        let mut path = folder.scratch().join(name);
        if !place.configuration.extension().is_empty() {
            path.as_mut_os_string()
                .push(format!(".{}", place.configuration.extension()));
        }
        let channels = source.channels();
        let mut writer = place
            .configuration
            .create(&path, &channels, bytes, self.common.disk)?;
        let meter = UsageMeter::start(self.clock);
        let calls = source.write(place.batch_bytes, writer.as_mut(), self.clock)?;
        let written = self.clock.monotonic();
        writer.close()?;
        let closed = self.clock.monotonic();
        let usage = meter.stop();
        self.rss_max_bytes = self.rss_max_bytes.max(usage.rss_max_bytes);
        if place.configuration.is_stored() && self.common.disk != DiskChoice::Discard {
            match source {
                Source::Plan(plan) if self.common.verify && round == 0 => {
                    verify_files(plan, std::slice::from_ref(&path), Some(messages))?;
                }
                _ => {}
            }
            folder.discard(&path)?;
        }
        let close = closed.saturating_sub(written);
        let rate = |call: &BatchWrite| call.bytes as f64 / (call.write_ns.max(1) as f64 / 1e9);
        let calls = if calls.is_empty() {
            None
        } else {
            Some(Calls {
                batches: calls.len() as u64,
                avg_byte_throughput: calls.iter().map(rate).sum::<f64>() / calls.len() as f64,
                csv: folder.store("batches", "csv", &csv_of(&calls, close.as_nanos()))?,
            })
        };
        let elapsed_s = closed.saturating_sub(meter.started()).as_secs_f64().max(1e-9);
        Ok(Some(StorageRun {
            run: round,
            elapsed_s,
            close_s: close.as_secs_f64(),
            bytes_per_s: bytes as f64 / elapsed_s,
            cpu_s_per_gb: usage.cpu_s / (bytes as f64 / 1e9),
            limit_bytes_per_s: None,
            calls,
        }))
    }

    fn after_round(
        &mut self,
        runs: &mut [Done<StorageRun>],
        on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<()> {
        on_progress(Progress::Limits);
        let [before, after] = self.session.limit_around()?;
        for one in runs.iter_mut() {
            one.run.limit_bytes_per_s = before
                .zip(after)
                .map(|(before, after)| f64::midpoint(before, after));
        }
        self.session.limits.buffered()?;
        self.session.keep_round(runs)
    }
}

impl Storages<'_> {
    /// All cells, each compared with its rival's.
    fn cells(&self, done: Vec<Done<StorageRun>>) -> Vec<Cell> {
        let runs = by_task(self.places.len(), done);
        let cell = |(place, runs): (&Place, Vec<StorageRun>)| {
            let source = &self.sources[place.source];
            let name = place.configuration.name.clone();
            Cell::of((source.label(), place.batch_bytes, name), source.amount(), runs)
        };
        let mut cells: Vec<Cell> = self.places.iter().zip(runs).filter_map(cell).collect();
        let originals = cells.clone();
        for (cell, place) in cells.iter_mut().zip(&self.places) {
            let is_rival = |other: &&Cell| {
                Some(other.plugin_config.as_str()) == place.configuration.rival
                    && other.messages == cell.messages
                    && other.batch_size == cell.batch_size
            };
            if let Some(rival) = originals.iter().find(is_rival) {
                cell.compare(rival);
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::{config::MIXED, *};
    use crate::workload::Content;
    use holdall_io::{clock::SystemClock, os::DiskMode};
    use holdall_storage::storage_by_id;
    use std::fs;

    #[test]
    fn a_file_of_the_comparison_writes_its_batches_and_their_csv() {
        let directory = tempfile::tempdir().unwrap();
        let mcap_options = "storage_options:\n  noChunkCRC: false\n  compression: \"None\"\n";
        for (storage, own_options) in [
            ("mcap", mcap_options),
            ("sqlite3", "storage_options: {}\n"),
            ("leveldb", ""),
        ] {
            let text = MIXED.replace("mcap", storage).replace(mcap_options, own_options);
            let options = StorageBenchOptions {
                common: Common {
                    out: directory.path().join(storage),
                    keep: true,
                    verify: true,
                    repeat: 1,
                    resume: false,
                    disk: DiskChoice::Os(DiskMode::Auto),
                    limit_bytes: Some(1 << 20),
                    content: Content::Text,
                    seed: 1,
                    command: String::new(),
                },
                sizes: Vec::new(),
                batches: Vec::new(),
                configurations: Vec::new(),
                total_bytes: 0,
                config: Some(ComparisonConfig::parse(&text).unwrap()),
            };
            let report = run(&options, &SystemClock, &mut |_| {}).unwrap();
            let cell = &report.body.cells[0];
            assert_eq!((cell.message_count, cell.bytes), (1027, 1_000_000));
            let calls = cell.runs[0].calls.as_ref().unwrap();
            let csv = fs::read_to_string(&calls.csv).unwrap();
            let lines: Vec<&str> = csv.lines().collect();
            assert_eq!(lines[0], "sqc,num_bytes,num_msgs,write_ns,close_ns");
            assert_eq!(lines.len() as u64, calls.batches + 2);
            assert!(
                lines[1].starts_with("0,") && lines[1].ends_with(','),
                "{}",
                lines[1]
            );
            assert!(lines[lines.len() - 1].starts_with(",,,,"), "{csv}");
            let extension = storage_by_id(storage).unwrap().extension().unwrap_or_default();
            let name = format!("{storage}_file_10KiB_0");
            let bag = options
                .common
                .out
                .join("files")
                .join(name)
                .with_extension(extension);
            let reader = storage_by_id(storage).unwrap().open_reader(&bag).unwrap();
            assert_eq!(reader.summary().message_count, 1027);
        }
    }
}
