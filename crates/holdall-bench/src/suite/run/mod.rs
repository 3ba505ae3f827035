//! Runs experiments: every repetition of every setting in turn, results kept as soon as they are there.

mod affinity;
mod recorder;
mod space;

use super::{
    config::{BenchmarkConfig, Case, Experiment, RecorderKind, Setting},
    load::Publishers,
    result::{ExperimentResult, RunLimits, RunResult, summary_csv},
};
use crate::{
    error::{BenchError, BenchResult},
    limits::LimitMeter,
    machine::Machine,
};
use holdall_io::clock::Clock;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What each measurement of the disk's limit writes at most: often enough beside the runs, it need not be long.
const LIMIT_BYTES_MAX: u64 = 1 << 30;

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// The folder for results; each experiment gets one of its own in it.
    pub out: PathBuf,
    /// Factor on message counts.
    pub scale: f64,
    /// Repetitions instead of those that the files ask for.
    pub repeat: Option<u32>,
    /// Go on where an interrupted run has stopped.
    pub resume: bool,
    /// Keep all bags, whatever the files say.
    pub keep: bool,
    /// Threads that publish; chosen by the number of publishers when absent.
    pub threads: Option<u32>,
    /// The command line, to be told with the results.
    pub command: String,
}

/// What has just been done, for whoever watches.
#[derive(Clone, Debug)]
pub enum SuiteProgress {
    /// The limits of the disk are being measured.
    Limits,
    /// A run is about to begin.
    Running {
        /// Which of all runs, from 1.
        number: usize,
        /// All runs.
        of: usize,
        /// What it is.
        name: String,
    },
    /// A run was found from before and is not done again.
    Found {
        /// Where.
        path: PathBuf,
    },
    /// A run has ended.
    Ended(Box<RunResult>),
}

/// One run that is to be done.
struct Planned<'a> {
    case: &'a Case,
    benchmark: &'a BenchmarkConfig,
    setting: Setting,
    repetition: u32,
    folder: PathBuf,
}

/// Runs an experiment and returns all that was found, stored in a folder of its name.
///
/// # Errors
/// A folder that is there already, a load that does not fit the disk, messages that cannot be made, a failed disk.
pub fn run(
    experiment: &Experiment,
    options: &SuiteOptions,
    clock: &Arc<dyn Clock>,
    tell: &mut dyn FnMut(SuiteProgress),
) -> BenchResult<ExperimentResult> {
    let experiment = experiment.clone().scaled(options.scale);
    let folder = options.out.join(&experiment.id);
    let planned = plan(&experiment, &folder, options);
    check_folder(&folder, options.resume)?;
    space::check(&experiment, &options.out, options.keep)?;
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    let mut suite = Suite {
        experiment: &experiment,
        options,
        clock,
        limits: None,
        folder: &folder,
    };
    let mut runs = Vec::new();
    for (index, one) in planned.iter().enumerate() {
        let kept = one.folder.join("result.json");
        if kept.exists() {
            tell(SuiteProgress::Found { path: kept.clone() });
            runs.push(RunResult::load(&kept)?);
            continue;
        }
        tell(SuiteProgress::Running {
            number: index + 1,
            of: planned.len(),
            name: format!("{}, {}", one.case.label, one.setting.run_folder(one.repetition)),
        });
        let result = suite.one(one, tell)?;
        result.store(&kept)?;
        tell(SuiteProgress::Ended(Box::new(result.clone())));
        runs.push(result);
        suite.keep_summary(&runs)?;
    }
    Ok(suite.whole(runs))
}

/// Repetitions turn slowest, so that drift of the machine hits all settings alike.
fn plan<'a>(experiment: &'a Experiment, folder: &Path, options: &SuiteOptions) -> Vec<Planned<'a>> {
    let mut planned = Vec::new();
    let repetitions = |benchmark: &BenchmarkConfig| options.repeat.unwrap_or(benchmark.repeat_each);
    let most = experiment.benchmarks.iter().map(repetitions).max().unwrap_or(1);
    for repetition in 0..most {
        for (index, case) in experiment.cases.iter().enumerate() {
            for benchmark in &experiment.benchmarks {
                if repetition >= repetitions(benchmark) {
                    continue;
                }
                for setting in benchmark.parameters.settings() {
                    let name = format!("{}_{}", setting.run_folder(repetition), benchmark.transport);
                    planned.push(Planned {
                        case,
                        benchmark,
                        folder: folder.join(format!("case_{index}")).join(name),
                        setting,
                        repetition,
                    });
                }
            }
        }
    }
    planned
}

fn check_folder(folder: &Path, resume: bool) -> BenchResult<()> {
    if folder.exists() && !resume {
        return Err(BenchError::NotEmpty {
            path: folder.to_owned(),
        });
    }
    Ok(())
}

struct Suite<'a> {
    experiment: &'a Experiment,
    options: &'a SuiteOptions,
    clock: &'a Arc<dyn Clock>,
    /// Made when the first run needs it.
    limits: Option<LimitMeter>,
    folder: &'a Path,
}

impl Suite<'_> {
    fn one(&mut self, planned: &Planned<'_>, tell: &mut dyn FnMut(SuiteProgress)) -> BenchResult<RunResult> {
        fs::create_dir_all(&planned.folder).map_err(BenchError::io("create", &planned.folder))?;
        tell(SuiteProgress::Limits);
        let limits = self.measure_limits(&planned.case.producers)?;
        let publishers = Publishers::new(&planned.case.producers, u64::from(planned.repetition) + 1)
            .map_err(|source| BenchError::Option {
                option: "msg_type",
                expected: "a message type that can be made".to_owned(),
                found: source.to_string(),
            })?;
        let run = recorder::Run {
            publishers: &publishers,
            producers: &planned.case.producers,
            benchmark: planned.benchmark,
            setting: &planned.setting,
            folder: &planned.folder,
            threads: self.options.threads,
            clock: self.clock,
        };
        let recorded = run.run()?;
        if !planned.benchmark.preserve_bags && !self.options.keep {
            remove_bag(&planned.folder.join(recorder::BAG))?;
        }
        Ok(RunResult {
            experiment: self.experiment.id.clone(),
            case: planned.case.label.clone(),
            repetition: planned.repetition,
            limits,
            ..recorded
        })
    }

    /// The direct limit anew beside each run, the buffered one and memory once.
    fn measure_limits(&mut self, producers: &super::config::ProducerConfig) -> BenchResult<RunLimits> {
        let bytes = producers.bytes().clamp(64 << 20, LIMIT_BYTES_MAX);
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
            buffered_write_bytes_per_s: all.buffered_write_bytes_per_s,
            memcpy_bytes_per_s: all.memcpy_bytes_per_s,
        })
    }

    /// Written after each run, so that an interrupted suite has its table, too.
    fn keep_summary(&self, runs: &[RunResult]) -> BenchResult<()> {
        let name = &self.experiment.benchmarks[0].summary_result_file;
        let path = self.folder.join(name);
        fs::write(&path, summary_csv(runs)).map_err(BenchError::io("write", &path))?;
        let whole = self.whole(runs.to_vec());
        let path = self.folder.join("results.json");
        let text = serde_json::to_string_pretty(&whole).map_err(|error| BenchError::Verify {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        fs::write(&path, text).map_err(BenchError::io("write", &path))
    }

    fn whole(&self, runs: Vec<RunResult>) -> ExperimentResult {
        ExperimentResult {
            experiment: self.experiment.id.clone(),
            title: self.experiment.title.clone(),
            scale: self.options.scale,
            command: self.options.command.clone(),
            machine: Machine::inspect(self.folder),
            runs,
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

/// The presets of [`RecorderKind::Synchronous`]'s SQLite are those of rosbag2.
pub(super) fn is_resilient(setting: &Setting) -> bool {
    setting.recorder == RecorderKind::Synchronous
        && (setting.storage_preset_profile.as_deref() == Some("resilient")
            || setting
                .storage_config_file
                .as_deref()
                .is_some_and(|name| name.contains("resilient")))
}
