//! Runs experiments: every repetition of every setting in turn; each result is stored as soon as it exists.

pub(super) mod affinity;
pub(super) mod bare;
mod playback;
mod recorder;
mod space;

pub(super) use recorder::Run;

use super::{
    config::{BenchmarkConfig, Case, Experiment, ProducerConfig, PublisherGroup, Setting, Transport},
    live::{LiveRun, Programs},
    load::Frame,
    result::{Around, ExperimentResult, RunId, RunLimits, RunResult, Skipped, recorder_label, summary_csv},
};
use crate::{
    args::RunArguments,
    disk_limit::DiskLimit,
    engine::{self, Earlier, Kind, OnProgress, Progress, Task, run_all},
    error::{BenchError, BenchResult},
    folder::remove,
    limits::LimitMeter,
    machine::Machine,
};
use holdall_io::{clock::Clock, fs::write_atomically_unsynced, unfinished::Unfinished};
use holdall_model::units::format_mebibyte_rate;
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A shorter measurement means nothing.
const LIMIT_BYTES_MIN: u64 = 64 << 20;

/// One thread easily offers this many messages a second; beyond it there is a second one.
const MESSAGES_PER_THREAD_AND_S: f64 = 200_000.0;

/// More publishing threads than this do not help: they never wait.
const PRODUCER_THREADS_MAX: u32 = 8;

/// What a run takes beside its load: the disk's limit before and after it, matching, closing.
const AROUND_A_RUN: Duration = Duration::from_secs(4);

/// The experiment itself, next to its results, for the report.
pub(super) const EXPERIMENT_FILE: &str = "experiment.yaml";

/// The result file of a run, in its folder.
const RESULT: &str = "result.json";
const RUN: &str = "the result of a run";

/// The file of an experiment's results.
pub(super) const RESULTS: &str = "results.json";

/// A case with a setting, run several times.
struct Planned<'a> {
    case: &'a Case,
    benchmark: &'a BenchmarkConfig,
    setting: Setting,
    repeat: u32,
}

impl Planned<'_> {
    /// The folder of a repetition below the experiment's.
    fn folder(&self, round: u32) -> PathBuf {
        let name = format!("{}_{}", self.setting.run_folder(round), self.benchmark.transport);
        Path::new(&format!("case_{}", self.case.place)).join(name)
    }
}

/// Runs an experiment and returns all results, stored in a folder of its name.
///
/// # Errors
/// A folder that exists already, a load that does not fit the disk, messages that cannot be made, a failed
/// disk.
pub fn run(
    experiment: &Experiment,
    args: &RunArguments,
    (out, programs): (&Path, &Programs),
    clock: &Arc<dyn Clock>,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<ExperimentResult> {
    let experiment = as_run(experiment, args);
    let folder = out.join(&experiment.id);
    let planned = plan(&experiment, args);
    // A file that cannot be read ends nothing that has begun.
    planned
        .iter()
        .try_for_each(|one| one.setting.storage_options().map(drop))?;
    if folder.exists() && !args.resume {
        return Err(BenchError::NotEmpty { path: folder });
    }
    check_types(&experiment)?;
    let disk_limit = DiskLimit::of_process();
    let data = disk_limit
        .as_ref()
        .map_or(folder.clone(), |limit| limit.folder.join(&experiment.id));
    space::check(
        &experiment,
        args,
        disk_limit.as_ref().map_or(out, |limit| &limit.folder),
    )?;
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    if let Some(text) = &experiment.text {
        let path = folder.join(EXPERIMENT_FILE);
        write_atomically_unsynced(&path, text.as_bytes())?;
    }
    let (runs, earlier) = if args.resume {
        (earlier_results(&folder, &planned)?, earlier_commands(&folder))
    } else {
        Default::default()
    };
    let mut suite = Suite {
        experiment: &experiment,
        args,
        programs,
        clock,
        limits: None,
        message_limit: (0, None),
        folder: &folder,
        data: &data,
        disk_limit_bytes_per_s: disk_limit.as_ref().map(|limit| limit.bytes_per_s),
        skipped: Vec::new(),
        planned,
        runs,
        earlier,
    };
    let (runs, time) = total(&suite.planned);
    on_progress(Progress::Planned {
        id: suite.experiment.id.clone(),
        runs,
        time,
    });
    run_all(&mut suite, on_progress)?;
    suite.keep_summary()?;
    Ok(suite.whole())
}

/// The experiment as the command line changes it.
fn as_run(experiment: &Experiment, args: &RunArguments) -> Experiment {
    let mut experiment = experiment.clone().scaled(args.scale);
    if args.no_affinity {
        for benchmark in &mut experiment.benchmarks {
            benchmark.producers_cpu_affinity.clear();
            benchmark.recorder_cpu_affinity.clear();
        }
    }
    experiment
}

/// How many runs an experiment has, and about how long they take together: the load and [`AROUND_A_RUN`].
pub fn extent(experiment: &Experiment, args: &RunArguments) -> (u64, Duration) {
    total(&plan(&as_run(experiment, args), args))
}

fn total(planned: &[Planned<'_>]) -> (u64, Duration) {
    planned.iter().fold((0, Duration::ZERO), |(runs, time), one| {
        let groups = one.case.producers.groups.iter();
        let sending_s = groups.map(PublisherGroup::duration_s).fold(0.0, f64::max);
        let run = AROUND_A_RUN + Duration::from_secs_f64(sending_s.min(86_400.0));
        (runs + u64::from(one.repeat), time + run * one.repeat)
    })
}

/// Every setting of every case once; with another transport than the files ask for, settings that differed by it alone
/// are equal, and count once.
fn plan<'a>(experiment: &'a Experiment, args: &RunArguments) -> Vec<Planned<'a>> {
    let mut planned: Vec<Planned<'a>> = Vec::new();
    for case in &experiment.cases {
        for benchmark in &experiment.benchmarks {
            let repeat = args.repeat.unwrap_or(benchmark.repeat_each);
            for setting in benchmark.settings.clone() {
                let one = Planned {
                    case,
                    benchmark,
                    setting,
                    repeat,
                };
                match planned.iter_mut().find(|other| other.folder(0) == one.folder(0)) {
                    Some(other) => other.repeat = other.repeat.max(repeat),
                    None => planned.push(one),
                }
            }
        }
    }
    planned
}

/// Finished runs that are not requested now, such as other cases or recorders: they stay in the result.
fn earlier_results(folder: &Path, planned: &[Planned<'_>]) -> BenchResult<Vec<RunResult>> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let place = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix("case_")?.parse::<usize>().ok()
    };
    let rounds = |one: &Planned<'_>| {
        (0..one.repeat)
            .map(|round| folder.join(one.folder(round)))
            .collect::<Vec<_>>()
    };
    let requested: HashSet<PathBuf> = planned.iter().flat_map(rounds).collect();
    let mut found: Vec<(usize, PathBuf)> = below(folder)
        .filter_map(|case| Some((place(&case.path())?, case.path())))
        .flat_map(|(place, case)| below(&case).map(move |run| (place, run.path())))
        .filter(|(_, run)| !requested.contains(run) && run.join(RESULT).is_file())
        .collect();
    found.sort();
    found
        .iter()
        .map(|(_, run)| engine::load(&run.join(RESULT), RUN))
        .collect()
}

/// The commands that left results in a folder.
fn earlier_commands(folder: &Path) -> Vec<String> {
    let kept = engine::load::<ExperimentResult>(&folder.join(RESULTS), "the result of an experiment");
    kept.map_or(Vec::new(), |kept| {
        let mut all = kept.earlier;
        all.push(kept.command);
        all
    })
}

/// Refuses messages that cannot be made before anything is written.
fn check_types(experiment: &Experiment) -> BenchResult<()> {
    for group in experiment.cases.iter().flat_map(|case| &case.producers.groups) {
        Frame::new(&group.msg_type, 0)?;
    }
    Ok(())
}

struct Suite<'a> {
    experiment: &'a Experiment,
    args: &'a RunArguments,
    programs: &'a Programs,
    clock: &'a Arc<dyn Clock>,
    /// Made when the first run needs it.
    limits: Option<LimitMeter>,
    /// Bytes of a message, and the disk's limit in such blocks.
    message_limit: (u64, Option<f64>),
    folder: &'a Path,
    /// Where bags are recorded: the same, or a folder on a limited disk.
    data: &'a Path,
    disk_limit_bytes_per_s: Option<f64>,
    skipped: Vec<Skipped>,
    planned: Vec<Planned<'a>>,
    /// All results, those of earlier calls first.
    runs: Vec<RunResult>,
    /// The commands of earlier calls.
    earlier: Vec<String>,
}

impl Kind for Suite<'_> {
    /// The results are kept here, next to those that are not requested now.
    type Run = ();
    const ROTATES: bool = false;

    fn tasks(&self) -> Vec<Task> {
        let task = |one: &Planned<'_>| {
            let setting = one.setting.run_folder(0);
            let name = setting
                .split_once("_0_")
                .map_or(setting.as_str(), |(_, rest)| rest);
            Task {
                name: format!("{}, {name}", one.case.label),
                repeat: one.repeat,
            }
        };
        self.planned.iter().map(task).collect()
    }

    fn earlier(
        &mut self,
        task: usize,
        round: u32,
        on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<Earlier<()>> {
        let planned = &self.planned[task];
        let transport = planned.benchmark.transport;
        let absent = match transport {
            Transport::None => None,
            _ => self.programs.absence(transport, &planned.setting),
        };
        if let Some(reason) = planned.setting.misfit()?.or(absent.map(|absent| absent.0)) {
            self.skip(task, reason, on_progress);
            return Ok(Earlier::Skipped);
        }
        let kept = self.folder.join(planned.folder(round)).join(RESULT);
        if !kept.exists() {
            return Ok(Earlier::Nothing);
        }
        on_progress(Progress::Found(kept.display().to_string()));
        self.runs.push(engine::load(&kept, RUN)?);
        Ok(Earlier::Result(()))
    }

    fn run(&mut self, task: usize, round: u32, on_progress: &mut OnProgress<'_>) -> BenchResult<Option<()>> {
        match self.one(task, round, on_progress) {
            Ok(result) => {
                let kept = self.folder.join(self.planned[task].folder(round));
                fs::create_dir_all(&kept).map_err(BenchError::io("create", &kept))?;
                let kept = kept.join(RESULT);
                engine::store(&kept, &result)?;
                let rate = format_mebibyte_rate(result.times.durable_bytes_per_s);
                on_progress(Progress::Ended(format!(
                    "{:.2} % recorded, {rate} durable",
                    result.counts.recorded_percent()
                )));
                self.runs.push(result);
            }
            // A failure of another project's program, or a bag that it did not make, is reported like a missing program; our own must not fail.
            Err(error @ (BenchError::Program { .. } | BenchError::Bag { .. }))
                if self.planned[task].setting.recorder.is_foreign() =>
            {
                self.skip(task, error.to_string(), on_progress);
            }
            Err(error) => return Err(error),
        }
        self.keep_summary()?;
        Ok(Some(()))
    }
}

impl Suite<'_> {
    /// Reports once for each setting that it cannot run here.
    fn skip(&mut self, task: usize, reason: String, on_progress: &mut OnProgress<'_>) {
        let planned = &self.planned[task];
        let recorder = recorder_label(planned.benchmark.transport, &planned.setting);
        let skipped = Skipped {
            case: planned.case.label.clone(),
            setting: format!("{recorder}, {}", planned.setting.storage_id),
            reason,
        };
        if !self.skipped.contains(&skipped) {
            let Skipped {
                case,
                setting,
                reason,
            } = &skipped;
            on_progress(Progress::Skipped(format!("not run: {case}, {setting}: {reason}")));
            self.skipped.push(skipped);
        }
    }

    fn one(&mut self, task: usize, round: u32, on_progress: &mut OnProgress<'_>) -> BenchResult<RunResult> {
        let folder = self.data.join(self.planned[task].folder(round));
        fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
        on_progress(Progress::Limits);
        let limits = self.measure_limits(&self.planned[task].case.producers)?;
        let planned = &self.planned[task];
        // Data that others, limits among them, still have to write must not count for this run.
        rustix::fs::sync();
        let load_average = load_average();
        let bag = folder.join(recorder::BAG);
        // Leftovers of an interrupted run.
        remove(&bag)?;
        let unfinished = Unfinished::new(&bag);
        let mut recorded = self.recorded(planned, round, &folder)?;
        if let Some(rate) = planned.setting.play_rate {
            recorded.work.playback = Some(playback::play(&bag, rate, self.clock)?);
        }
        if !planned.benchmark.preserve_bags && !self.args.keep {
            remove(&bag)?;
        }
        drop(unfinished);
        let limits = RunLimits {
            direct_write_after_bytes_per_s: self.limits.as_mut().map_or(Ok(None), LimitMeter::direct)?,
            ..limits
        };
        let (experiment, case) = (self.experiment.id.clone(), planned.case.label.clone());
        recorded.id = RunId {
            experiment,
            case,
            repetition: round,
            setting: planned.setting.clone(),
            ..recorded.id
        };
        recorded.around = Around {
            load_average,
            limits,
            ..recorded.around
        };
        Ok(recorded)
    }

    fn recorded(&self, planned: &Planned<'_>, round: u32, folder: &Path) -> BenchResult<RunResult> {
        let producers = &planned.case.producers;
        let mut setting = planned.setting.clone();
        if let Some(text) = planned.setting.config_text() {
            // Programs have a flag for a file.
            let path = folder.join("storage_config.yaml");
            write_atomically_unsynced(&path, text.as_bytes())?;
            setting.storage_config_file = Some(path.display().to_string());
        }
        let run = Run {
            producers,
            benchmark: planned.benchmark,
            setting: &setting,
            folder,
            repetition: round,
            threads: producer_threads(producers, self.args.threads),
            clock: self.clock,
        };
        match planned.benchmark.transport {
            Transport::None => run.run(),
            _ => {
                let programs = self.programs;
                LiveRun { run, programs }.run()
            }
        }
    }

    /// The direct limit again before each run, the buffered one and memory once.
    fn measure_limits(&mut self, producers: &ProducerConfig) -> BenchResult<RunLimits> {
        let most = self.args.limit_total;
        let bytes = producers.bytes().clamp(LIMIT_BYTES_MIN.min(most), most);
        let meter = match &mut self.limits {
            Some(meter) => meter,
            None => {
                let mut meter = LimitMeter::new(self.data, bytes)?;
                meter.memory();
                meter.buffered()?;
                self.limits.insert(meter)
            }
        };
        let direct_write_bytes_per_s = meter.direct()?;
        let sizes = producers.groups.iter().map(|group| group.msg_size_bytes as u64);
        let message_bytes = sizes.max().unwrap_or(0);
        if self.message_limit.0 != message_bytes {
            self.message_limit = (message_bytes, meter.of_messages(message_bytes)?);
        }
        let all = meter.limits();
        Ok(RunLimits {
            disk_limit_bytes_per_s: self.disk_limit_bytes_per_s,
            direct_write_bytes_per_s,
            direct_write_after_bytes_per_s: None,
            message_write_bytes_per_s: self.message_limit.1,
            buffered_write_bytes_per_s: all.buffered_write_bytes_per_s,
            memcpy_bytes_per_s: all.memcpy_bytes_per_s,
        })
    }

    /// Written after each run, so that an interrupted suite has its table, too.
    fn keep_summary(&self) -> BenchResult<()> {
        let name = &self.experiment.benchmarks[0].summary_result_file;
        let path = self.folder.join(name);
        write_atomically_unsynced(&path, summary_csv(&self.runs).as_bytes())?;
        engine::store(&self.folder.join(RESULTS), &self.whole())
    }

    fn whole(&self) -> ExperimentResult {
        let command = self
            .args
            .command_of(&self.experiment.id, self.experiment.text.as_deref());
        let earlier = self.earlier.iter().filter(|earlier| **earlier != command);
        ExperimentResult {
            experiment: self.experiment.id.clone(),
            title: self.experiment.title.clone(),
            scale: self.args.scale,
            earlier: earlier.cloned().collect(),
            command,
            machine: Machine::inspect(self.folder),
            runs: self.runs.clone(),
            skipped: self.skipped.clone(),
        }
    }
}

/// Number of threads that publish this load: as requested, as the file sets, or as many as it needs.
pub fn producer_threads(producers: &ProducerConfig, requested: Option<u32>) -> u32 {
    let of = |group: &super::config::PublisherGroup| group.rate_hz * f64::from(group.publishers_count);
    let messages_per_s: f64 = producers.groups.iter().map(of).sum();
    let needed = if messages_per_s > MESSAGES_PER_THREAD_AND_S {
        2
    } else {
        1
    };
    requested
        .or(producers.number_of_threads)
        .map_or(needed, |threads| threads.clamp(1, PRODUCER_THREADS_MAX))
}

/// Mean number of runnable programs in the last minute; 0 where the kernel does not report it.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// Storage files of a bag, without those that SQLite keeps beside its own.
pub(super) fn storage_files(bag: &Path) -> u64 {
    let names = fs::read_dir(bag).into_iter().flatten().flatten();
    let is_storage = |name: &str| {
        !["metadata.yaml", "-journal", "-wal", "-shm"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    names
        .filter(|entry| is_storage(&entry.file_name().to_string_lossy()))
        .count() as u64
}

/// Length of all files in a folder and its subfolders: LevelDB's bags have some.
pub(super) fn folder_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => folder_bytes(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}
