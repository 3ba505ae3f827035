//! One configuration of the storage plugin comparison, from the YAML of its own program, with the CSV that it prints.

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
    suite::config::{ConfigError, Keys, decimal},
    workload::{Content, Corpus},
    write::{BOOTSTRAP_SEED, Progress},
};
use holdall_io::{clock::Clock, os::DiskMode};
use holdall_model::yaml::{self, Node, Value, YamlError};
use holdall_storage::{StorageOptions, storage_by_id, writer::ChannelInfo};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What the comparison's program writes unless it is told otherwise.
const STORAGE_ID: &str = "sqlite3";
const MIN_BATCH_BYTES: u64 = 10;
const TOTAL_BYTES: u64 = 250_000_000;

/// The shares of the topics may miss the whole by this much.
const SHARE_TOLERANCE: f64 = 1e-4;

/// More messages than this are refused: their order is kept in memory.
const MESSAGES_MAX: f64 = 1e8;

/// Payloads of a topic are cut from this much more than one message.
const CORPUS_WINDOW_BYTES: usize = 4 << 20;

/// Between the stamps of two messages, and the first of them.
const PERIOD_NANOS: u64 = 1000;
const FIRST_STAMP_NANOS: u64 = 1_700_000_000_000_000_000;

/// A topic of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonTopic {
    /// Its name.
    pub name: String,
    /// Bytes of each message.
    pub message_size: usize,
    /// Its part of all bytes.
    pub write_proportion: f64,
}

/// A configuration of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonConfig {
    /// Storage backend.
    pub storage_id: String,
    /// A batch ends when it has this many bytes.
    pub min_batch_size_bytes: u64,
    /// Bytes of all messages.
    pub write_total_bytes: u64,
    /// What is written.
    pub topics: Vec<ComparisonTopic>,
    /// The storage's own configuration, as JSON, which is YAML.
    pub storage_options: Option<String>,
}

impl ComparisonConfig {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, shares that are not a whole, a storage or option that there is not.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::of_file(path, Self::parse)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = yaml::parse(text)?;
        let mut keys = Keys::of(&root)?;
        let number = |node: Option<&Node>, absent| node.map_or(Ok(absent), Node::as_number);
        let storage = keys.optional("storage_id");
        let options = keys.optional("storage_options");
        let config = Self {
            storage_id: storage.map_or(Ok(STORAGE_ID), Node::as_str)?.to_owned(),
            min_batch_size_bytes: number(keys.optional("min_batch_size_bytes"), MIN_BATCH_BYTES)?,
            write_total_bytes: number(keys.optional("write_total_bytes"), TOTAL_BYTES)?,
            topics: keys
                .optional("topics")
                .map_or_else(|| Ok(default_topics()), topics)?,
            storage_options: options.map(|node| as_json(node).to_string()),
        };
        keys.finish()?;
        let refused = |node: Option<&Node>, reason: String| node.unwrap_or(&root).error(reason);
        let known = storage_by_id(&config.storage_id).map_err(|error| refused(storage, error.to_string()))?;
        known
            .check_options(&config.options())
            .map_err(|error| refused(options, error.to_string()))?;
        config.check_messages().map_err(|reason| root.error(reason))?;
        Ok(config)
    }

    fn options(&self) -> StorageOptions {
        StorageOptions {
            config: self.storage_options.clone(),
            ..StorageOptions::default()
        }
    }

    /// Messages of each topic: those that fit into its part of the bytes.
    fn counts(&self) -> Vec<u64> {
        let count = |topic: &ComparisonTopic| {
            // Between 0 and what `check_messages` allows.
            (self.write_total_bytes as f64 * topic.write_proportion / topic.message_size as f64) as u64
        };
        self.topics.iter().map(count).collect()
    }

    fn check_messages(&self) -> Result<(), String> {
        let sum: f64 = self.topics.iter().map(|topic| topic.write_proportion).sum();
        if (sum - 1.0).abs() > SHARE_TOLERANCE {
            return Err(format!(
                "expected write_proportion of all topics to sum to 1, found {sum:.4}"
            ));
        }
        let messages: f64 = self
            .topics
            .iter()
            .map(|topic| self.write_total_bytes as f64 * topic.write_proportion / topic.message_size as f64)
            .sum();
        if messages > MESSAGES_MAX {
            return Err(format!(
                "expected at most {MESSAGES_MAX} messages, found {messages:.0}; make write_total_bytes smaller"
            ));
        }
        if self.counts().iter().sum::<u64>() == 0 {
            return Err(format!(
                "write_total_bytes: no message fits into {} bytes",
                self.write_total_bytes
            ));
        }
        Ok(())
    }

    /// Which topic each message has: shuffled as the comparison's program does, so that batches are alike.
    fn order(&self, seed: u64) -> Vec<u32> {
        let mut order = Vec::new();
        for (topic, count) in (0..).zip(self.counts()) {
            order.extend((0..count).map(|_| topic));
        }
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        order
    }

    /// Payload bytes of a run.
    pub fn bytes(&self) -> u64 {
        let counts = self.counts();
        counts
            .iter()
            .zip(&self.topics)
            .map(|(count, topic)| count * topic.message_size as u64)
            .sum()
    }
}

/// The comparison's own.
fn default_topics() -> Vec<ComparisonTopic> {
    [("/large", 1_000_000, 0.9), ("/small", 1000, 0.1)]
        .map(|(name, message_size, write_proportion)| ComparisonTopic {
            name: name.to_owned(),
            message_size,
            write_proportion,
        })
        .to_vec()
}

fn topics(node: &Node) -> Result<Vec<ComparisonTopic>, YamlError> {
    /// Messages beyond this are no messages any more.
    const MESSAGE_BYTES_MAX: usize = crate::workload::MESSAGE_BYTES_MAX;
    let mut found: Vec<ComparisonTopic> = Vec::new();
    for item in node.as_sequence()? {
        let mut keys = Keys::of(item)?;
        let (name, size) = (keys.required("name")?, keys.required("message_size")?);
        let message_size: usize = size.as_number()?;
        if !(1..=MESSAGE_BYTES_MAX).contains(&message_size) {
            return Err(size.expected(&format!("1 to {MESSAGE_BYTES_MAX} bytes")));
        }
        let share = keys.optional("write_proportion");
        let write_proportion = share.map_or(Ok(1.0), decimal)?;
        if let Some(share) = share.filter(|_| !(0.0..=1.0).contains(&write_proportion)) {
            return Err(share.expected("a part between 0 and 1"));
        }
        keys.finish()?;
        let topic = ComparisonTopic {
            name: name.as_str()?.to_owned(),
            message_size,
            write_proportion,
        };
        if topic.name.is_empty() || found.iter().any(|other| other.name == topic.name) {
            return Err(name.expected("a name that no other topic has"));
        }
        found.push(topic);
    }
    if found.is_empty() {
        return Err(node.error("expected one or more topics, found none"));
    }
    Ok(found)
}

/// The same value as JSON: our storages read their configuration as YAML, which JSON is.
fn as_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Scalar(text) => serde_json::from_str(text)
            .ok()
            .filter(|value: &serde_json::Value| value.is_boolean() || value.is_number())
            .or_else(|| node.as_bool().ok().map(serde_json::Value::Bool))
            .unwrap_or_else(|| serde_json::Value::String(text.clone())),
        Value::Sequence(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, node)| (key.clone(), as_json(node)))
            .collect(),
    }
}

/// How a configuration is run.
#[derive(Clone, Debug)]
pub struct ComparisonOptions {
    /// What is written.
    pub config: ComparisonConfig,
    /// What payloads consist of.
    pub content: Content,
    /// Runs.
    pub repeat: u32,
    /// How files are written.
    pub disk_mode: DiskMode,
    /// The folder for files and results.
    pub out: PathBuf,
    /// Keep what was written.
    pub keep: bool,
    /// Same seed, same order and payloads.
    pub seed: u64,
    /// What each measurement of the disk's limit writes.
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
    /// From 0.
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
    /// Payload bytes through `elapsed_s`.
    pub bytes_per_s: f64,
    /// The mean of the rates of all calls, as was published: most calls only fill the open chunk, so it says little.
    pub avg_byte_throughput: f64,
    /// Processor seconds for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Disk limit around the run, in bytes a second.
    pub limit_bytes_per_s: Option<f64>,
    /// The CSV of the run, beside the other results.
    pub csv: PathBuf,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// `storage_config`.
    pub benchmark: &'static str,
    /// What was written.
    pub config: ComparisonConfig,
    /// What payloads consist of.
    pub content: String,
    /// Total through elapsed, close and sync included.
    pub durable_bytes_per_s: Estimate,
    /// The same through the disk limit of the same run.
    pub ratio_to_limit: Option<Estimate>,
    /// Every run in order.
    pub runs: Vec<ComparisonRun>,
    /// Limits of the same run.
    pub limit: Limits,
    /// Where.
    pub machine: Machine,
}

/// Runs a configuration, stores JSON and a CSV for each run in the folder, and returns the result.
///
/// # Errors
/// Too little space, a failed storage.
pub fn run_comparison(
    options: &ComparisonOptions,
    clock: &dyn Clock,
    tell: &mut dyn FnMut(Progress),
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
        tell(Progress::Running {
            candidate: options.config.storage_id.clone(),
            repetition: number + 1,
        });
        let mut run = one_run(options, &folder, (&order, &corpora), number, clock)?;
        tell(Progress::Limits);
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
    let name = match storage.file_extension() {
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

/// As the comparison's program prints it: a row for each call, and one at the end that has the time of closing alone.
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

    /// Every key, as the comparison's sweep writes them.
    const MIXED: &str = "\
storage_id: mcap
min_batch_size_bytes: 10240
write_total_bytes: 1000000
topics:
- {name: /large, message_size: 100000, write_proportion: 0.7}
- name: /medium
  message_size: 10000
  write_proportion: 0.2
- name: /small
  message_size: 100
  write_proportion: 0.1
storage_options:
  noChunkCRC: false
  compression: \"None\"
";

    #[test]
    fn a_configuration_is_read_as_it_is() {
        let config = ComparisonConfig::parse(MIXED).unwrap();
        assert_eq!(
            (config.storage_id.as_str(), config.min_batch_size_bytes),
            ("mcap", 10_240)
        );
        assert_eq!(config.counts(), [7, 20, 1000]);
        assert_eq!(config.bytes(), 1_000_000);
        assert_eq!(
            config.storage_options.as_deref(),
            Some(r#"{"compression":"None","noChunkCRC":false}"#)
        );
    }

    #[test]
    fn an_empty_one_is_the_programs_default() {
        let config = ComparisonConfig::parse("").unwrap();
        assert_eq!(
            (
                config.storage_id.as_str(),
                config.min_batch_size_bytes,
                config.counts()
            ),
            ("sqlite3", 10, vec![225, 25_000])
        );
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let told = |from: &str, to: &str| {
            let text = MIXED.replacen(from, to, 1);
            assert_ne!(text, MIXED, "{from}");
            ComparisonConfig::parse(&text).unwrap_err().to_string()
        };
        assert!(told("min_batch_size_bytes", "batch").contains("unknown key batch"));
        assert!(told("  message_size: 10000", "  size: 10000").contains("message_size is missing"));
        assert!(told("0.2", "0.1").contains("to sum to 1, found 0.9000"));
        assert!(told("storage_id: mcap", "storage_id: tape").contains("tape"));
        assert!(told("noChunkCRC", "noCRC").contains("noCRC"));
        assert!(told("message_size: 100\n", "message_size: 0\n").contains("1 to"));
        assert!(told("/medium", "/large").contains("a name that no other topic has"));
        assert!(told("1000000\n", "10\n").contains("no message fits into 10 bytes"));
        assert!(told("1000000\n", "1000000000000000\n").contains("at most 100000000 messages"));
    }

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
            let extension = storage_by_id(storage).unwrap().file_extension();
            let bag = options.out.join("files/run_0").with_extension(extension);
            let reader = storage_by_id(storage).unwrap().open_reader(&bag).unwrap();
            assert_eq!(reader.summary().message_count, 1027);
        }
    }
}
