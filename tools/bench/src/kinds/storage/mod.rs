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
    args::kinds::StorageArguments,
    candidate::{
        RawMessage, RawWriter,
        ours::{channel_info, channel_infos},
        raw::in_batches,
    },
    engine::{
        Csv, Done, Earlier, FIRST_STAMP_NANOS, Kind, OnProgress, Progress, Report, Session, Task, by_task,
        run_all,
    },
    error::{BenchError, BenchResult},
    kinds::size_mix,
    measure::UsageMeter,
    suite::config::ConfigError,
    verify::verify_files,
    workload::{Corpus, Load, Plan},
};
use holdall_io::clock::Clock;
use holdall_storage::writer::ChannelInfo;

/// The disk's limit is measured with at least this many bytes.
const LIMIT_BYTES_MIN: u64 = 1 << 30;

/// How fast the storages are on average, without the disk: those that commit each kibibyte take most of the time.
pub const WORK_BYTES_PER_S: f64 = 250e6;

/// Time between the stamps of two messages.
const PERIOD_NANOS: u64 = 1000;

/// The corpus of a topic is longer than one message by this much.
const CORPUS_WINDOW_BYTES: usize = 4 << 20;

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
    args: &StorageArguments,
    clock: &dyn Clock,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Report<StorageBody>> {
    let shared = &args.shared;
    let config = args.config.as_deref();
    let config = config
        .map(|path| ConfigError::of_file(path, ComparisonConfig::parse))
        .transpose()?;
    let sources = sources(args, config.as_ref())?;
    let places = places(args, config.as_ref(), &sources, on_progress)?;
    let bytes = config.as_ref().map_or(args.total, ComparisonConfig::bytes);
    let (disk, content, seed) = (shared.disk_name(), shared.content()?, shared.folder.seed);
    let names: Vec<String> = places.iter().map(|place| place.label(&sources)).collect();
    let what = format!("storage {names:?} {bytes} {content} {disk} {seed}");
    let limit_bytes = shared.limit_total.unwrap_or(bytes.max(LIMIT_BYTES_MIN));
    let files = match shared.keep {
        true => u64::from(args.repeat) * places.len() as u64,
        false => 1,
    };
    let space = match shared.memory {
        true => 0,
        false => (bytes * 5 / 2).saturating_mul(files).max(limit_bytes),
    };
    let rounds = (shared.keep, args.repeat);
    let mut session = Session::open(&shared.folder, rounds, what, places.len(), space)?;
    if !shared.memory {
        session.measure_disk(limit_bytes)?;
    }
    session.limits.memory();
    session.limit_around()?;
    let runs = (args.repeat, places.len());
    session.announce("storage", runs, (bytes, WORK_BYTES_PER_S), on_progress);
    let mut storages = Storages {
        args,
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
        content: content.to_string(),
        total_bytes: bytes,
        disk,
        repeat: args.repeat,
        rss_max_bytes: storages.rss_max_bytes,
        config: config.clone(),
    };
    let csv = config.is_none().then(|| body.csv());
    storages.session.finish("storage", &shared.folder, body, csv)
}

/// The configurations that are named, or all.
fn configurations(
    args: &StorageArguments,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Vec<StorageConfiguration>> {
    if args.configs.is_empty() {
        for (name, what_to_do) in absent_configurations() {
            on_progress(Progress::Skipped(format!("{name} is left out: {what_to_do}")));
        }
        let all = default_configurations().into_iter();
        return Ok(all
            .filter(|one| !args.shared.memory || one.can_discard())
            .collect());
    }
    let named = args.configs.iter().map(|name| name.parse());
    let named: Vec<StorageConfiguration> = named.collect::<BenchResult<_>>()?;
    match named.iter().find(|one| !one.can_discard()) {
        Some(one) if args.shared.memory => {
            let expected = "configurations that write through our disk layer (mcap_*, naive)";
            Err(BenchError::option("--memory", expected, one.name.as_str()))
        }
        _ => Ok(named),
    }
}

fn sources<'a>(
    args: &StorageArguments,
    config: Option<&'a ComparisonConfig>,
) -> BenchResult<Vec<Source<'a>>> {
    let (content, seed) = (args.shared.content()?, args.shared.folder.seed);
    if let Some(config) = config {
        let corpora = config.topics.iter().zip(seed..);
        return Ok(vec![Source::File {
            order: config.order(seed),
            corpora: corpora
                .map(|(topic, seed)| Corpus::new(content, topic.message_size + CORPUS_WINDOW_BYTES, seed))
                .collect(),
            config,
        }]);
    }
    let plan = |size: &String| {
        let mix = size_mix("--sizes", size)?;
        let load = Load {
            content,
            total_bytes: args.total,
            producers: 1,
            topics: Load::topics_min(&mix, 1),
            rate_hz: None,
            seed,
            mix,
        };
        Ok(Source::Plan(Plan::new(load)?))
    };
    args.sizes.iter().map(plan).collect()
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

fn places(
    args: &StorageArguments,
    config: Option<&ComparisonConfig>,
    sources: &[Source<'_>],
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Vec<Place>> {
    let place = |source, batch_bytes, configuration| Place {
        source,
        batch_bytes,
        configuration,
    };
    if let Some(config) = config {
        let configuration = StorageConfiguration::of(config);
        return Ok(vec![place(0, config.min_batch_size_bytes, configuration)]);
    }
    let configurations = configurations(args, on_progress)?;
    let mut places = Vec::new();
    for source in 0..sources.len() {
        for batch_bytes in &args.batches {
            let each = configurations.iter();
            places.extend(each.map(|one| place(source, *batch_bytes, one.clone())));
        }
    }
    Ok(places)
}

struct Storages<'a> {
    args: &'a StorageArguments,
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
            repeat: self.args.repeat,
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
            .create(&path, &channels, bytes, self.args.shared.disk())?;
        let meter = UsageMeter::start(self.clock);
        let calls = source.write(place.batch_bytes, writer.as_mut(), self.clock)?;
        let written = self.clock.monotonic();
        writer.close()?;
        let closed = self.clock.monotonic();
        let usage = meter.stop();
        self.rss_max_bytes = self.rss_max_bytes.max(usage.rss_max_bytes);
        if place.configuration.is_stored() && !self.args.shared.memory {
            match source {
                Source::Plan(plan) if !self.args.shared.no_verify && round == 0 => {
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
    use crate::args::{RunArguments, kinds::RunKind};
    use holdall_io::clock::SystemClock;
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
            let (file, out) = (directory.path().join("c.yaml"), directory.path().join(storage));
            fs::write(&file, text).unwrap();
            let (config, folder) = (file.display(), out.display());
            let line = format!(
                "storage --config {config} --out {folder} --keep --repeat 1 --limit-total 1MiB --content text"
            );
            let Some(RunKind::Storage(args)) = RunArguments::of(&line).unwrap().kind else {
                panic!("{line}");
            };
            let report = run(&args, &SystemClock, &mut |_| {}).unwrap();
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
            let bag = out.join("files").join(name).with_extension(extension);
            let reader = storage_by_id(storage).unwrap().open_reader(&bag).unwrap();
            assert_eq!(reader.summary().message_count, 1027);
        }
    }
}
