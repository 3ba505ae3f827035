//! One configuration of the storage plugin comparison, from the YAML of its own program, with the CSV that it
//! prints.

use super::comparison_config::{ComparisonConfig, ComparisonTopic};
use crate::{
    candidate::{
        RawMessage, RawWriter,
        ours::{DiskChoice, OurWriter, channel_info},
    },
    error::{BenchError, BenchResult},
    folder::BenchFolder,
    limits::{LimitMeter, Limits},
    machine::Machine,
    measure::UsageMeter,
    report::csv_text,
    statistics::Estimate,
    workload::{Content, Corpus},
    write::{BOOTSTRAP_SEED, Progress},
};
use holdall_io::{clock::Clock, os::DiskMode};
use holdall_storage::{storage_by_id, writer::ChannelInfo};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The corpus of a topic is longer than one message by this much.
const CORPUS_WINDOW_BYTES: usize = 4 << 20;

/// Time between the stamps of two messages, and the stamp of the first.
const PERIOD_NANOS: u64 = 1000;
const FIRST_STAMP_NANOS: u64 = 1_700_000_000_000_000_000;

/// Options of a run of a configuration.
#[derive(Clone, Debug)]
pub struct ComparisonOptions {
    /// The configuration.
    pub config: ComparisonConfig,
    /// What payloads consist of.
    pub content: Content,
    /// Runs.
    pub repeat: u32,
    /// How files are written.
    pub disk_mode: DiskMode,
    /// The folder for files and results.
    pub out: PathBuf,
    /// Keep the files.
    pub keep: bool,
    /// The same seed gives the same order and payloads.
    pub seed: u64,
    /// Bytes of each measurement of the disk's limit.
    pub limit_bytes: Option<u64>,
}

/// A call of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchWrite {
    bytes: u64,
    messages: u64,
    write_ns: u64,
}

/// One run of the configuration.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonRun {
    /// Number of the run, from 0.
    pub run: u32,
    /// Calls of the storage.
    pub batches: u64,
    /// Messages.
    pub messages: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// From the first call to the end of close and sync, in seconds.
    pub elapsed_s: f64,
    /// Of that, close and sync, in seconds.
    pub close_s: f64,
    /// Payload bytes divided by `elapsed_s`.
    pub bytes_per_s: f64,
    /// The mean of the rates of all calls, the published figure: most calls only fill the open chunk, so it
    /// shows little.
    pub avg_byte_throughput: f64,
    /// Processor seconds for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Disk limit around the run, in bytes a second.
    pub limit_bytes_per_s: Option<f64>,
    /// The CSV of the run, next to the other results.
    pub csv: PathBuf,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// `storage_config`.
    pub benchmark: &'static str,
    /// The configuration.
    pub config: ComparisonConfig,
    /// What payloads consist of.
    pub content: String,
    /// Total bytes divided by elapsed time, close and sync included.
    pub durable_bytes_per_s: Estimate,
    /// The same divided by the disk limit of the same run.
    pub ratio_to_limit: Option<Estimate>,
    /// Every run in order.
    pub runs: Vec<ComparisonRun>,
    /// Limits of the same run.
    pub limit: Limits,
    /// The machine.
    pub machine: Machine,
}

/// Runs a configuration, stores JSON and a CSV for each run in the folder, and returns the result.
///
/// # Errors
/// Too little space, a failed storage.
pub fn run_comparison(
    options: &ComparisonOptions,
    clock: &dyn Clock,
    on_progress: &mut dyn FnMut(Progress),
) -> BenchResult<ComparisonReport> {
    if options.repeat == 0 {
        return Err(BenchError::Option {
            option: "--repeat",
            expected: "1 or more".to_owned(),
            found: "0".to_owned(),
        });
    }
    let bytes = options.config.bytes();
    let limit_bytes = options.limit_bytes.unwrap_or(bytes.max(super::LIMIT_BYTES_MIN));
    let folder = BenchFolder::take(&options.out, options.keep)?;
    let kept = if options.keep {
        u64::from(options.repeat)
    } else {
        1
    };
    folder.check_space((bytes * 5 / 2).saturating_mul(kept).max(limit_bytes))?;
    let mut limits = LimitMeter::new(folder.scratch(), limit_bytes)?;
    limits.memory();
    limits.buffered()?;
    let order = options.config.order(options.seed);
    let corpora = corpora(options);
    let mut runs = Vec::new();
    let mut before = limits.disk()?;
    for number in 0..options.repeat {
        on_progress(Progress::Running {
            candidate: options.config.storage_id.clone(),
            repetition: number + 1,
        });
        let mut run = one_run(options, &folder, (&order, &corpora), number, clock)?;
        on_progress(Progress::Limits);
        let after = limits.disk()?;
        run.limit_bytes_per_s = before
            .zip(after)
            .map(|(before, after)| f64::midpoint(before, after));
        before = after;
        runs.push(run);
    }
    let report = report(options, runs, limits.limits(), folder.scratch())?;
    folder.store(
        "storage",
        "json",
        &serde_json::to_string_pretty(&report).unwrap_or_default(),
    )?;
    Ok(report)
}

fn report(
    options: &ComparisonOptions,
    runs: Vec<ComparisonRun>,
    limit: Limits,
    scratch: &Path,
) -> BenchResult<ComparisonReport> {
    let rates: Vec<f64> = runs.iter().map(|run| run.bytes_per_s).collect();
    let limits: Vec<f64> = runs.iter().filter_map(|run| run.limit_bytes_per_s).collect();
    let durable_bytes_per_s = Estimate::of(&rates, BOOTSTRAP_SEED).ok_or_else(|| BenchError::Option {
        option: "--repeat",
        expected: "1 or more".to_owned(),
        found: "0".to_owned(),
    })?;
    Ok(ComparisonReport {
        benchmark: "storage_config",
        config: options.config.clone(),
        content: options.content.to_string(),
        durable_bytes_per_s,
        ratio_to_limit: Estimate::of_ratio(&rates, &limits, BOOTSTRAP_SEED),
        runs,
        limit,
        machine: Machine::inspect(scratch),
    })
}

/// Payload bytes for each topic.
fn corpora(options: &ComparisonOptions) -> Vec<Corpus> {
    let corpus = |(topic, seed): (&ComparisonTopic, u64)| {
        Corpus::new(options.content, topic.message_size + CORPUS_WINDOW_BYTES, seed)
    };
    options
        .config
        .topics
        .iter()
        .zip(options.seed..)
        .map(corpus)
        .collect()
}

fn one_run(
    options: &ComparisonOptions,
    folder: &BenchFolder,
    load: (&[u32], &[Corpus]),
    number: u32,
    clock: &dyn Clock,
) -> BenchResult<ComparisonRun> {
    let config = &options.config;
    let storage = storage_by_id(&config.storage_id)?;
    let name = match storage.extension().unwrap_or_default() {
        "" => format!("run_{number}"),
        extension => format!("run_{number}.{extension}"),
    };
    let path = folder.scratch().join(name);
    let channels: Vec<ChannelInfo> = config
        .topics
        .iter()
        .map(|topic| channel_info(&topic.name))
        .collect();
    let q = DiskChoice::Os(options.disk_mode).queue(folder.scratch())?;
    let mut writer: Box<dyn RawWriter> = Box::new(OurWriter::create(
        q,
        &path,
        config.bytes(),
        &channels,
        &config.storage_id,
        &config.options(),
    )?);
    let meter = UsageMeter::start(clock);
    let batches = write_batches(config, load, writer.as_mut(), clock)?;
    let written = clock.monotonic();
    writer.close()?;
    let closed = clock.monotonic();
    let usage = meter.stop();
    folder.discard(&path)?;
    let close = closed.saturating_sub(written);
    let csv = folder.store("batches", "csv", &csv_of(&batches, close.as_nanos()))?;
    let bytes: u64 = batches.iter().map(|batch| batch.bytes).sum();
    let elapsed_s = closed.saturating_sub(meter.started()).as_secs_f64().max(1e-9);
    let rate = |batch: &BatchWrite| batch.bytes as f64 / (batch.write_ns.max(1) as f64 / 1e9);
    Ok(ComparisonRun {
        run: number,
        batches: batches.len() as u64,
        messages: batches.iter().map(|batch| batch.messages).sum(),
        bytes,
        elapsed_s,
        close_s: close.as_secs_f64(),
        bytes_per_s: bytes as f64 / elapsed_s,
        avg_byte_throughput: batches.iter().map(rate).sum::<f64>() / batches.len().max(1) as f64,
        cpu_s_per_gb: usage.cpu_s / (bytes as f64 / 1e9),
        limit_bytes_per_s: None,
        csv,
    })
}

fn write_batches(
    config: &ComparisonConfig,
    (order, corpora): (&[u32], &[Corpus]),
    writer: &mut dyn RawWriter,
    clock: &dyn Clock,
) -> BenchResult<Vec<BatchWrite>> {
    let (mut writes, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut stamp = FIRST_STAMP_NANOS;
    let mut sequences = vec![0_u64; corpora.len()];
    for (index, topic) in order.iter().enumerate() {
        let place = *topic as usize;
        let size = config.topics[place].message_size;
        // Cache lines of the window in turn, so that payloads differ.
        let start = index * 64 % CORPUS_WINDOW_BYTES;
        sequences[place] += 1;
        stamp += PERIOD_NANOS;
        batch.push(RawMessage {
            topic: *topic,
            sequence: sequences[place],
            log_time_nanos: stamp,
            payload: &corpora[place].bytes()[start..start + size],
        });
        bytes += size as u64;
        if bytes >= config.min_batch_size_bytes || index + 1 == order.len() {
            let before = clock.monotonic();
            writer.write_batch(&batch)?;
            let took = clock.monotonic().saturating_sub(before).as_nanos();
            writes.push(BatchWrite {
                bytes,
                messages: batch.len() as u64,
                write_ns: u64::try_from(took).unwrap_or(u64::MAX),
            });
            batch.clear();
            bytes = 0;
        }
    }
    Ok(writes)
}

/// In the format of the comparison's program: a row for each call, and one at the end with the time of
/// closing alone.
fn csv_of(batches: &[BatchWrite], close_ns: u128) -> String {
    let rows = batches.iter().enumerate().map(|(index, batch)| {
        [
            index.to_string(),
            batch.bytes.to_string(),
            batch.messages.to_string(),
            batch.write_ns.to_string(),
            String::new(),
        ]
    });
    let empty = String::new;
    let last = [empty(), empty(), empty(), empty(), close_ns.to_string()];
    csv_text(
        &["sqc", "num_bytes", "num_msgs", "write_ns", "close_ns"],
        rows.chain([last]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;
    use std::fs;

    use crate::storage::comparison_config::MIXED;

    #[test]
    fn a_run_writes_its_batches_and_the_csv_of_the_comparison() {
        let directory = tempfile::tempdir().unwrap();
        for (storage, options) in [
            (
                "mcap",
                "storage_options:\n  noChunkCRC: false\n  compression: \"None\"\n",
            ),
            ("sqlite3", "storage_options: {}\n"),
            ("leveldb", ""),
        ] {
            let text = MIXED.replace("mcap", storage).replace(
                "storage_options:\n  noChunkCRC: false\n  compression: \"None\"\n",
                options,
            );
            let options = ComparisonOptions {
                config: ComparisonConfig::parse(&text).unwrap(),
                content: Content::Text,
                repeat: 1,
                disk_mode: DiskMode::Auto,
                out: directory.path().join(storage),
                keep: true,
                seed: 1,
                limit_bytes: Some(1 << 20),
            };
            let report = run_comparison(&options, &SystemClock, &mut |_| {}).unwrap();
            let run = &report.runs[0];
            assert_eq!((run.messages, run.bytes), (1027, 1_000_000));
            let csv = fs::read_to_string(&run.csv).unwrap();
            let lines: Vec<&str> = csv.lines().collect();
            assert_eq!(lines[0], "sqc,num_bytes,num_msgs,write_ns,close_ns");
            assert_eq!(lines.len() as u64, run.batches + 2);
            assert!(
                lines[1].starts_with("0,") && lines[1].ends_with(','),
                "{}",
                lines[1]
            );
            assert!(lines[lines.len() - 1].starts_with(",,,,"), "{csv}");
            let extension = storage_by_id(storage).unwrap().extension().unwrap_or_default();
            let bag = options.out.join("files/run_0").with_extension(extension);
            let reader = storage_by_id(storage).unwrap().open_reader(&bag).unwrap();
            assert_eq!(reader.summary().message_count, 1027);
        }
    }
}
