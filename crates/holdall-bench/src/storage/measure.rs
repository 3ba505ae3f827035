//! Runs `bench storage`: every cell once in each round, rounds in rotating order, limits around them.

use super::{
    configuration::StorageConfiguration,
    report::{Cell, StorageReport, StorageRun},
    rounds,
};
use crate::{
    candidate::{RawMessage, RawWriter, ours::DiskChoice},
    error::{BenchError, BenchResult},
    folder::BenchFolder,
    limits::{LimitMeter, Limits},
    machine::Machine,
    measure::UsageMeter,
    verify::verify_files,
    workload::{Content, Load, Plan, SizeMix},
    write::Progress,
};
use holdall_io::clock::Clock;
use std::path::PathBuf;

/// Fewest bytes of a limit's measurement.
pub(super) const LIMIT_BYTES_MIN: u64 = 1 << 30;

/// Stamps of messages: a fixed start and a microsecond between two, so that no clock is read while storing.
const FIRST_STAMP_NANOS: u64 = 1_700_000_000_000_000_000;

/// Options of `bench storage`.
#[derive(Clone, Debug)]
pub struct StorageBenchOptions {
    /// Message sizes.
    pub sizes: Vec<SizeMix>,
    /// Bytes that are collected for one call.
    pub batches: Vec<u64>,
    /// The configurations.
    pub configurations: Vec<StorageConfiguration>,
    /// Payload bytes of one run.
    pub total_bytes: u64,
    /// What payloads consist of.
    pub content: Content,
    /// Rounds.
    pub repeat: u32,
    /// Destination of our bytes.
    pub disk: DiskChoice,
    /// The folder for files and results.
    pub out: PathBuf,
    /// Keep the files.
    pub keep: bool,
    /// Read back the files of the first round.
    pub verify: bool,
    /// The same seed gives the same payloads.
    pub seed: u64,
    /// Bytes of each measurement of the disk's limit.
    pub limit_bytes: Option<u64>,
    /// The command line, for the result.
    pub command: String,
    /// Continue after the finished rounds of an interrupted run with the same options.
    pub resume: bool,
}

/// One cell to measure.
struct Task<'a> {
    plan: &'a Plan,
    batch_bytes: u64,
    configuration: StorageConfiguration,
    runs: Vec<StorageRun>,
}

/// Runs everything, stores JSON and CSV in the folder and returns the result.
///
/// # Errors
/// Options that contradict each other, too little space, a failed storage, bytes that are not what was
/// written.
pub fn run(
    options: &StorageBenchOptions,
    clock: &dyn Clock,
    on_progress: &mut dyn FnMut(Progress),
) -> BenchResult<StorageReport> {
    let plans = plans(options)?;
    check(options)?;
    let mut kept = rounds::load(options, &names_of(&tasks(options, &plans)))?;
    let folder = BenchFolder::take(&options.out, options.keep)?;
    kept.store(&options.out)?;
    let limit_bytes = options
        .limit_bytes
        .unwrap_or(options.total_bytes.max(LIMIT_BYTES_MIN));
    let discard = options.disk == DiskChoice::Discard;
    if !discard {
        let files = if options.keep {
            u64::from(options.repeat) * tasks(options, &plans).len() as u64
        } else {
            1
        };
        folder.check_space(
            (options.total_bytes * 5 / 2)
                .saturating_mul(files)
                .max(limit_bytes),
        )?;
    }
    let mut limits = if discard {
        LimitMeter::of_memory()
    } else {
        LimitMeter::new(folder.scratch(), limit_bytes)?
    };
    let mut bench = Bench {
        options,
        folder: &folder,
        clock,
        tasks: tasks(options, &plans),
        rss_max_bytes: 0,
    };
    limits.memory();
    let mut before = limits.disk()?;
    for runs in kept.rounds() {
        bench.add(runs);
    }
    for round in kept.count()..options.repeat {
        bench.round(round, on_progress)?;
        on_progress(Progress::Limits);
        let after = limits.disk()?;
        bench.set_limit(
            before
                .zip(after)
                .map(|(before, after)| f64::midpoint(before, after)),
        );
        before = after;
        limits.buffered()?;
        kept.push(bench.newest());
        kept.store(&options.out)?;
    }
    let report = bench.report(limits.limits());
    let json = serde_json::to_string_pretty(&report).unwrap_or_default();
    folder.store("storage", "json", &json)?;
    folder.store("storage", "csv", &report.csv())?;
    rounds::remove(&options.out)?;
    Ok(report)
}

fn plans(options: &StorageBenchOptions) -> BenchResult<Vec<Plan>> {
    let plan = |mix: &SizeMix| {
        Plan::new(Load {
            mix: mix.clone(),
            content: options.content,
            total_bytes: options.total_bytes,
            producers: 1,
            topics: Load::topics_min(mix, 1),
            rate_hz: None,
            seed: options.seed,
        })
    };
    Ok(options.sizes.iter().map(plan).collect::<Result<_, _>>()?)
}

fn check(options: &StorageBenchOptions) -> BenchResult<()> {
    let refuse = |option, expected: &str, found: &str| {
        Err(BenchError::Option {
            option,
            expected: expected.to_owned(),
            found: found.to_owned(),
        })
    };
    if options.repeat == 0 {
        return refuse("--repeat", "1 or more", "0");
    }
    if options.sizes.is_empty() || options.batches.is_empty() || options.configurations.is_empty() {
        return refuse("--sizes, --batches and --configs", "at least one each", "none");
    }
    match options.configurations.iter().find(|one| !one.can_discard()) {
        Some(one) if options.disk == DiskChoice::Discard => refuse(
            "--memory",
            "configurations that write through our disk layer (mcap_*, naive)",
            one.name,
        ),
        _ => Ok(()),
    }
}

fn tasks<'a>(options: &StorageBenchOptions, plans: &'a [Plan]) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for plan in plans {
        for &batch_bytes in &options.batches {
            for &configuration in &options.configurations {
                tasks.push(Task {
                    plan,
                    batch_bytes,
                    configuration,
                    runs: Vec::new(),
                });
            }
        }
    }
    tasks
}

/// What is measured, in order.
fn names_of(tasks: &[Task<'_>]) -> Vec<String> {
    tasks.iter().map(Task::label).collect()
}

struct Bench<'a> {
    options: &'a StorageBenchOptions,
    folder: &'a BenchFolder,
    clock: &'a dyn Clock,
    tasks: Vec<Task<'a>>,
    rss_max_bytes: u64,
}

impl Bench<'_> {
    fn round(&mut self, round: u32, on_progress: &mut dyn FnMut(Progress)) -> BenchResult<()> {
        let count = self.tasks.len();
        for turn in 0..count {
            // Each round begins with another cell, so that no cell always follows the same neighbour in the
            // first minute.
            let index = (turn + round as usize * 7) % count;
            let task = &self.tasks[index];
            on_progress(Progress::Running {
                candidate: task.label(),
                repetition: round + 1,
            });
            let (run, rss_max_bytes) = self.one_run(task, round)?;
            self.rss_max_bytes = self.rss_max_bytes.max(rss_max_bytes);
            self.tasks[index].runs.push(run);
        }
        Ok(())
    }

    fn one_run(&self, task: &Task<'_>, round: u32) -> BenchResult<(StorageRun, u64)> {
        let name = match task.configuration.extension() {
            "" => format!("{}_{round}", task.label()),
            extension => format!("{}_{round}.{extension}", task.label()),
        };
        let path = self.folder.scratch().join(name);
        let mut writer = task.configuration.create(task.plan, &path, self.options.disk)?;
        let meter = UsageMeter::start(self.clock);
        write_all(task.plan, task.batch_bytes, writer.as_mut())?;
        let written = self.clock.monotonic();
        writer.close()?;
        let closed = self.clock.monotonic();
        let usage = meter.stop();
        let stored = task.configuration.is_stored() && self.options.disk != DiskChoice::Discard;
        if self.options.verify && round == 0 && stored {
            verify_files(
                task.plan,
                std::slice::from_ref(&path),
                Some(task.plan.message_count()),
            )?;
        }
        if stored {
            self.folder.discard(&path)?;
        }
        let elapsed_s = closed.saturating_sub(meter.started()).as_secs_f64().max(1e-9);
        let bytes = task.plan.byte_count() as f64;
        let run = StorageRun {
            run: round,
            elapsed_s,
            close_s: closed.saturating_sub(written).as_secs_f64(),
            bytes_per_s: bytes / elapsed_s,
            cpu_s_per_gb: usage.cpu_s / (bytes / 1e9),
            limit_bytes_per_s: None,
        };
        Ok((run, usage.rss_max_bytes))
    }

    /// A round that was measured before.
    fn add(&mut self, runs: &[StorageRun]) {
        for (task, run) in self.tasks.iter_mut().zip(runs) {
            task.runs.push(run.clone());
        }
    }

    /// The runs of the newest round.
    fn newest(&self) -> Vec<StorageRun> {
        let runs = self.tasks.iter().filter_map(|task| task.runs.last());
        runs.cloned().collect()
    }

    /// Sets the limit measured around the newest round in its runs.
    fn set_limit(&mut self, limit: Option<f64>) {
        for run in self.tasks.iter_mut().filter_map(|task| task.runs.last_mut()) {
            run.limit_bytes_per_s = limit;
        }
    }

    fn report(self, limit: Limits) -> StorageReport {
        let rivals: Vec<_> = self.tasks.iter().map(|task| task.configuration.rival).collect();
        let mut cells: Vec<Cell> = self.tasks.into_iter().filter_map(Task::into_cell).collect();
        let originals = cells.clone();
        for (cell, rival) in cells.iter_mut().zip(rivals) {
            let same_place = |other: &&Cell| {
                Some(other.plugin_config) == rival
                    && other.messages == cell.messages
                    && other.batch_size == cell.batch_size
            };
            if let Some(rival) = originals.iter().find(same_place) {
                cell.compare(rival);
            }
        }
        let disk = match self.options.disk {
            DiskChoice::Os(mode) => format!("{mode:?}").to_lowercase(),
            DiskChoice::Discard => "memory".to_owned(),
        };
        StorageReport {
            benchmark: "storage",
            command: self.options.command.clone(),
            limit,
            cells,
            content: self.options.content.to_string(),
            total_bytes: self.options.total_bytes,
            disk,
            repeat: self.options.repeat,
            rss_max_bytes: self.rss_max_bytes,
            machine: Machine::inspect(self.folder.scratch()),
        }
    }
}

impl Task<'_> {
    fn label(&self) -> String {
        let batch = super::report::batch_label(self.batch_bytes);
        format!(
            "{}_{}_{batch}",
            self.configuration.name,
            self.plan.load().mix.label()
        )
    }

    fn into_cell(self) -> Option<Cell> {
        let place = (
            self.plan.load().mix.label(),
            self.batch_bytes,
            self.configuration.name,
        );
        Cell::of(
            place,
            (self.plan.message_count(), self.plan.byte_count()),
            self.runs,
        )
    }
}

/// Stores all messages of a plan in calls of at least `batch_bytes`.
fn write_all(plan: &Plan, batch_bytes: u64, writer: &mut dyn RawWriter) -> BenchResult<()> {
    let (mut batch, mut held_bytes, mut stamp) = (Vec::new(), 0, FIRST_STAMP_NANOS);
    for message in plan.stream(0) {
        stamp += 1000;
        held_bytes += message.payload.len() as u64;
        batch.push(RawMessage {
            topic: message.topic,
            sequence: message.sequence,
            log_time_nanos: stamp,
            payload: plan.payload(&message),
        });
        if held_bytes >= batch_bytes {
            writer.write_batch(&batch)?;
            batch.clear();
            held_bytes = 0;
        }
    }
    if batch.is_empty() {
        Ok(())
    } else {
        writer.write_batch(&batch)
    }
}
