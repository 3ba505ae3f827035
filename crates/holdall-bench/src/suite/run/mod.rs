//! Runs experiments: every repetition of every setting in turn; each result is stored as soon as it exists.

pub(super) mod affinity;
pub(super) mod bare;
mod playback;
mod recorder;
mod space;

use super::{
    config::{BenchmarkConfig, Case, Experiment, ProducerConfig, Setting, Transport},
    live::{LiveRun, Programs},
    load::{Frame, FrameError, Publishers},
    result::{ExperimentResult, RunLimits, RunResult, Skipped, recorder_label, summary_csv},
};
use crate::{
    error::{BenchError, BenchResult},
    limits::LimitMeter,
    machine::Machine,
};
use holdall_io::{clock::Clock, fs::write_atomically_unsynced, unfinished::Unfinished};
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Most bytes of a measurement of the disk's limit: measured often enough between the runs, it may be short.
const LIMIT_BYTES_MAX: u64 = 1 << 30;

/// A shorter measurement means nothing.
const LIMIT_BYTES_MIN: u64 = 64 << 20;

/// One thread easily offers this many messages a second; beyond it there is a second one.
const MESSAGES_PER_THREAD_AND_S: f64 = 200_000.0;

/// More publishing threads than this do not help: they never wait.
const PRODUCER_THREADS_MAX: u32 = 8;

/// The experiment itself, next to its results, for the report.
pub(super) const EXPERIMENT_FILE: &str = "experiment.yaml";

/// Options of a run of experiments.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// The folder for results; each experiment gets a subfolder.
    pub out: PathBuf,
    /// Factor on message counts.
    pub scale: f64,
    /// Repetitions instead of those in the files.
    pub repeat: Option<u32>,
    /// Continue an interrupted run.
    pub resume: bool,
    /// Keep all bags, even if the files say otherwise.
    pub keep: bool,
    /// Threads that publish; chosen by the number of publishers when absent.
    pub threads: Option<u32>,
    /// The command line, stored with the results.
    pub command: String,
    /// Most bytes of a measurement of the disk's limit; a GiB when absent.
    pub limit_bytes_max: Option<u64>,
    /// Programs for runs over a transport.
    pub programs: Programs,
}

/// The result file of a run, in its folder.
const RESULT: &str = "result.json";

/// Progress of an experiment.
#[derive(Clone, Debug)]
pub enum SuiteProgress {
    /// The limits of the disk are being measured.
    Limits,
    /// A run is about to begin.
    Running {
        /// Its number among all runs, from 1.
        number: usize,
        /// Number of all runs.
        of: usize,
        /// Its description.
        name: String,
    },
    /// A run has a stored result and is not repeated.
    Found {
        /// Its path.
        path: PathBuf,
    },
    /// A run has ended.
    Ended(Box<RunResult>),
    /// A setting cannot be run here.
    Skipped(Skipped),
}

/// One planned run.
struct Planned<'a> {
    case: &'a Case,
    benchmark: &'a BenchmarkConfig,
    setting: Setting,
    repetition: u32,
    folder: PathBuf,
}

/// Runs an experiment and returns all results, stored in a folder of its name.
///
/// # Errors
/// A folder that exists already, a load that does not fit the disk, messages that cannot be made, a failed
/// disk.
pub fn run(
    experiment: &Experiment,
    options: &SuiteOptions,
    clock: &Arc<dyn Clock>,
    on_progress: &mut dyn FnMut(SuiteProgress),
) -> BenchResult<ExperimentResult> {
    let experiment = experiment.clone().scaled(options.scale);
    let folder = options.out.join(&experiment.id);
    let planned = plan(&experiment, &folder, options);
    check_folder(&folder, options.resume)?;
    check_types(&experiment)?;
    space::check(&experiment, options)?;
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    if let Some(text) = &experiment.text {
        let path = folder.join(EXPERIMENT_FILE);
        write_atomically_unsynced(&path, text.as_bytes())?;
    }
    let mut suite = Suite {
        experiment: &experiment,
        options,
        clock,
        limits: None,
        folder: &folder,
        skipped: Vec::new(),
    };
    let mut runs = if options.resume {
        earlier_results(&folder, &planned)?
    } else {
        Vec::new()
    };
    for (index, one) in planned.iter().enumerate() {
        if suite.skips(one, on_progress) {
            continue;
        }
        let kept = one.folder.join(RESULT);
        if kept.exists() {
            on_progress(SuiteProgress::Found { path: kept.clone() });
            runs.push(RunResult::load(&kept)?);
            continue;
        }
        on_progress(SuiteProgress::Running {
            number: index + 1,
            of: planned.len(),
            name: format!("{}, {}", one.case.label, one.setting.run_folder(one.repetition)),
        });
        match suite.one(one, on_progress) {
            Ok(result) => {
                result.store(&kept)?;
                on_progress(SuiteProgress::Ended(Box::new(result.clone())));
                runs.push(result);
            }
            // A failure of another project's program is reported like a missing program; ours must not fail.
            Err(error @ BenchError::Program { .. }) if one.setting.recorder.is_foreign() => {
                suite.skip(one, error.to_string(), on_progress);
            }
            Err(error) => return Err(error),
        }
        suite.keep_summary(&runs)?;
    }
    suite.keep_summary(&runs)?;
    Ok(suite.whole(runs))
}

/// Repetitions are the outermost loop, so that drift of the machine affects all settings alike.
fn plan<'a>(experiment: &'a Experiment, folder: &Path, options: &SuiteOptions) -> Vec<Planned<'a>> {
    let (mut planned, mut folders) = (Vec::new(), HashSet::new());
    let repetitions = |benchmark: &BenchmarkConfig| options.repeat.unwrap_or(benchmark.repeat_each);
    let most = experiment.benchmarks.iter().map(repetitions).max().unwrap_or(1);
    for repetition in 0..most {
        for case in &experiment.cases {
            for benchmark in &experiment.benchmarks {
                if repetition >= repetitions(benchmark) {
                    continue;
                }
                for setting in benchmark.parameters.settings() {
                    let name = format!("{}_{}", setting.run_folder(repetition), benchmark.transport);
                    let folder = folder.join(format!("case_{}", case.place)).join(name);
                    // With `--transport`, settings that differed by transport only are equal: one run must
                    // not count twice.
                    if folders.insert(folder.clone()) {
                        planned.push(Planned {
                            case,
                            benchmark,
                            folder,
                            setting,
                            repetition,
                        });
                    }
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
    let mut found: Vec<(usize, PathBuf)> = below(folder)
        .filter_map(|case| Some((place(&case.path())?, case.path())))
        .flat_map(|(place, case)| below(&case).map(move |run| (place, run.path())))
        .filter(|(_, run)| planned.iter().all(|one| one.folder != *run) && run.join(RESULT).is_file())
        .collect();
    found.sort();
    found
        .iter()
        .map(|(_, run)| RunResult::load(&run.join(RESULT)))
        .collect()
}

fn check_folder(folder: &Path, resume: bool) -> BenchResult<()> {
    if folder.exists() && !resume {
        return Err(BenchError::NotEmpty {
            path: folder.to_owned(),
        });
    }
    Ok(())
}

/// Refuses messages that cannot be made before anything is written.
fn check_types(experiment: &Experiment) -> BenchResult<()> {
    for group in experiment.cases.iter().flat_map(|case| &case.producers.groups) {
        Frame::new(&group.msg_type, 0).map_err(unknown_type)?;
    }
    Ok(())
}

fn unknown_type(source: FrameError) -> BenchError {
    BenchError::Option {
        option: "msg_type",
        expected: "a message type that can be made".to_owned(),
        found: source.to_string(),
    }
}

struct Suite<'a> {
    experiment: &'a Experiment,
    options: &'a SuiteOptions,
    clock: &'a Arc<dyn Clock>,
    /// Made when the first run needs it.
    limits: Option<LimitMeter>,
    folder: &'a Path,
    skipped: Vec<Skipped>,
}

impl Suite<'_> {
    /// Whether a run cannot be done here, which is reported once for each setting.
    fn skips(&mut self, planned: &Planned<'_>, on_progress: &mut dyn FnMut(SuiteProgress)) -> bool {
        let transport = planned.benchmark.transport;
        let absent = match transport {
            Transport::None => None,
            _ => self.options.programs.absence(transport, &planned.setting),
        };
        if let Some(absent) = &absent {
            self.skip(planned, absent.0.clone(), on_progress);
        }
        absent.is_some()
    }

    fn skip(&mut self, planned: &Planned<'_>, reason: String, on_progress: &mut dyn FnMut(SuiteProgress)) {
        let skipped = Skipped {
            case: planned.case.label.clone(),
            setting: format!(
                "{}, {}",
                recorder_label(planned.benchmark.transport, &planned.setting),
                planned.setting.storage_id
            ),
            reason,
        };
        if !self.skipped.contains(&skipped) {
            on_progress(SuiteProgress::Skipped(skipped.clone()));
            self.skipped.push(skipped);
        }
    }

    fn one(
        &mut self,
        planned: &Planned<'_>,
        on_progress: &mut dyn FnMut(SuiteProgress),
    ) -> BenchResult<RunResult> {
        fs::create_dir_all(&planned.folder).map_err(BenchError::io("create", &planned.folder))?;
        on_progress(SuiteProgress::Limits);
        let limits = self.measure_limits(&planned.case.producers)?;
        // What others, limits among them, still have to write is not this run's.
        rustix::fs::sync();
        let load_average = load_average();
        let bag = planned.folder.join(recorder::BAG);
        // Leftovers of an interrupted run.
        remove_bag(&bag)?;
        let unfinished = Unfinished::new(&bag);
        let mut recorded = match planned.benchmark.transport {
            Transport::None => self.in_process(planned)?,
            _ => self.live(planned)?,
        };
        if let Some(rate) = planned.setting.play_rate {
            recorded.playback = Some(playback::play(&bag, rate, self.clock)?);
        }
        if !planned.benchmark.preserve_bags && !self.options.keep {
            remove_bag(&bag)?;
        }
        drop(unfinished);
        let limits = RunLimits {
            direct_write_after_bytes_per_s: self.limits.as_mut().map_or(Ok(None), LimitMeter::direct)?,
            ..limits
        };
        Ok(RunResult {
            experiment: self.experiment.id.clone(),
            case: planned.case.label.clone(),
            repetition: planned.repetition,
            limits,
            load_average,
            ..recorded
        })
    }

    fn in_process(&self, planned: &Planned<'_>) -> BenchResult<RunResult> {
        let publishers = Publishers::new(&planned.case.producers, u64::from(planned.repetition) + 1)
            .map_err(unknown_type)?;
        let run = recorder::Run {
            publishers: &publishers,
            producers: &planned.case.producers,
            benchmark: planned.benchmark,
            setting: &planned.setting,
            folder: &planned.folder,
            threads: self.options.threads,
            clock: self.clock,
        };
        run.run()
    }

    fn live(&self, planned: &Planned<'_>) -> BenchResult<RunResult> {
        let run = LiveRun {
            producers: &planned.case.producers,
            benchmark: planned.benchmark,
            setting: &planned.setting,
            folder: &planned.folder,
            repetition: planned.repetition,
            threads: producer_threads(&planned.case.producers, self.options.threads),
            programs: &self.options.programs,
            clock: self.clock,
        };
        run.run()
    }

    /// The direct limit again before each run, the buffered one and memory once.
    fn measure_limits(&mut self, producers: &ProducerConfig) -> BenchResult<RunLimits> {
        let most = self.options.limit_bytes_max.unwrap_or(LIMIT_BYTES_MAX);
        let bytes = producers.bytes().clamp(LIMIT_BYTES_MIN.min(most), most);
        let meter = match &mut self.limits {
            Some(meter) => meter,
            None => {
                let mut meter = LimitMeter::new(self.folder, bytes)?;
                meter.memory();
                meter.buffered()?;
                self.limits.insert(meter)
            }
        };
        let direct_write_bytes_per_s = meter.direct()?;
        let all = meter.limits();
        Ok(RunLimits {
            direct_write_bytes_per_s,
            direct_write_after_bytes_per_s: None,
            buffered_write_bytes_per_s: all.buffered_write_bytes_per_s,
            memcpy_bytes_per_s: all.memcpy_bytes_per_s,
        })
    }

    /// Written after each run, so that an interrupted suite has its table, too.
    fn keep_summary(&self, runs: &[RunResult]) -> BenchResult<()> {
        let name = &self.experiment.benchmarks[0].summary_result_file;
        let path = self.folder.join(name);
        write_atomically_unsynced(&path, summary_csv(runs).as_bytes())?;
        let whole = self.whole(runs.to_vec());
        let path = self.folder.join("results.json");
        let text = serde_json::to_string_pretty(&whole).map_err(|error| BenchError::Verify {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        Ok(write_atomically_unsynced(&path, text.as_bytes())?)
    }

    fn whole(&self, runs: Vec<RunResult>) -> ExperimentResult {
        ExperimentResult {
            experiment: self.experiment.id.clone(),
            title: self.experiment.title.clone(),
            scale: self.options.scale,
            command: self.options.command.clone(),
            machine: Machine::inspect(self.folder),
            runs,
            skipped: self.skipped.clone(),
        }
    }
}

fn remove_bag(path: &Path) -> BenchResult<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Number of threads that publish this load: as requested, as the file sets, or as many as it needs.
fn producer_threads(producers: &ProducerConfig, requested: Option<u32>) -> u32 {
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
