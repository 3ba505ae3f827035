//! Runs an evaluation: every repetition of every case over every link with every middleware in turn; each result is stored as soon as it exists.

mod programs;
mod sides;

use super::{
    Account, EvaluatedLink, Evaluation, EvaluationResult, Middleware, MiddlewareCase, MiddlewareRun,
    RESULT_FILE,
    account::{Planned, account},
    result::{AbsentMiddleware, WireUse},
    rmw::RosPrefix,
    worker::{read_received, read_sent},
};
use crate::{
    error::{BenchError, BenchResult},
    link,
    machine::Machine,
};
use holdall_io::{clock::Clock, fs::write_atomically_unsynced};
use programs::{FASTDDS_TUNED, FASTDDS_TUNED_FILE};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A link that delivers later than this does not keep its promise.
const LINK_LATENESS_MAX_US: f64 = 1000.0;
/// A run that is not valid is repeated this often.
const TRIES: u32 = 3;
/// The experiment itself, next to its results.
const EXPERIMENT_FILE: &str = "experiment.yaml";
/// The result of one run, in its folder.
const RUN_FILE: &str = "run.json";
/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationOptions {
    /// The folder for results; each experiment gets a subfolder.
    pub out: PathBuf,
    /// Factor on the duration of each run.
    pub scale: f64,
    /// Repetitions instead of those of the file.
    pub repeat: Option<u32>,
    /// Continue an interrupted run.
    pub resume: bool,
    /// Keep the records of single messages.
    pub keep: bool,
    /// Only these middlewares instead of those of the file.
    pub middlewares: Vec<Middleware>,
    /// The command line, stored with the results.
    pub command: String,
    /// This program.
    pub holdall: PathBuf,
    /// A Python with rclpy, whose ROS 2 is used.
    pub python: Option<PathBuf>,
}

/// Progress of an evaluation.
#[derive(Clone, Debug)]
pub enum EvaluationProgress {
    /// A middleware is not run.
    Absent(AbsentMiddleware),
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
    Found(PathBuf),
    /// A run has ended.
    Ended(Box<MiddlewareRun>),
    /// A run could not be done.
    Failed {
        /// Its description.
        name: String,
        /// The reason: one sentence.
        reason: String,
    },
}

struct Run<'a> {
    case: &'a MiddlewareCase,
    link: &'a EvaluatedLink,
    middleware: &'a Middleware,
    repetition: u32,
    folder: PathBuf,
}

impl Run<'_> {
    fn name(&self) -> String {
        format!(
            "{}, {}, {}, {}",
            self.case.label,
            self.link.label,
            self.middleware,
            self.repetition + 1
        )
    }
}

/// Runs an evaluation and returns all results, stored in a folder of its name.
///
/// # Errors
/// A folder that exists already, a system that allows no links, no middleware at all.
pub fn run(
    evaluation: &Evaluation,
    options: &EvaluationOptions,
    clock: &Arc<dyn Clock>,
    on_progress: &mut dyn FnMut(EvaluationProgress),
) -> BenchResult<EvaluationResult> {
    let evaluation = evaluation.clone().scaled(options.scale);
    let folder = options.out.join(&evaluation.id);
    if folder.exists() && !options.resume {
        return Err(BenchError::NotEmpty { path: folder });
    }
    if evaluation.links.iter().any(|link| link.spec.is_some()) {
        // Refused before anything is stored where links are not allowed.
        link::probe()?;
    }
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    let folder = folder.canonicalize().map_err(BenchError::io("find", &folder))?;
    write_atomically_unsynced(&folder.join(EXPERIMENT_FILE), evaluation.text.as_bytes())?;
    write_atomically_unsynced(&folder.join(FASTDDS_TUNED_FILE), FASTDDS_TUNED.as_bytes())?;
    let mut bench = Bench {
        prefix: RosPrefix::find(options.python.as_deref()),
        evaluation: &evaluation,
        options,
        clock,
        folder: folder.clone(),
        absent: Vec::new(),
    };
    let wanted = if options.middlewares.is_empty() {
        &evaluation.middlewares
    } else {
        &options.middlewares
    };
    let present: Vec<&Middleware> = wanted
        .iter()
        .filter(|one| bench.is_present(one, on_progress))
        .collect();
    let planned = plan(&evaluation, &present, options, &folder);
    let mut result = bench.result(&present);
    result.runs = earlier(&folder, &planned, options)?;
    for (index, one) in planned.iter().enumerate() {
        let kept = one.folder.join(RUN_FILE);
        if kept.exists() {
            on_progress(EvaluationProgress::Found(kept.clone()));
            result.runs.push(MiddlewareRun::load(&kept)?);
            continue;
        }
        on_progress(EvaluationProgress::Running {
            number: index + 1,
            of: planned.len(),
            name: one.name(),
        });
        match bench.one(one) {
            Ok(run) => {
                run.store(&kept)?;
                on_progress(EvaluationProgress::Ended(Box::new(run.clone())));
                result.runs.push(run);
            }
            // A middleware that fails on one link may work on the next; the run is tried again with --resume.
            Err(error @ BenchError::Program { .. }) => on_progress(EvaluationProgress::Failed {
                name: one.name(),
                reason: error.to_string(),
            }),
            Err(error) => return Err(error),
        }
        result.store(&folder.join(RESULT_FILE))?;
    }
    result.store(&folder.join(RESULT_FILE))?;
    Ok(result)
}

/// Repetitions are the outermost loop, so that drift of the machine affects all middlewares alike.
fn plan<'a>(
    evaluation: &'a Evaluation,
    middlewares: &[&'a Middleware],
    options: &EvaluationOptions,
    folder: &Path,
) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for repetition in 0..options.repeat.unwrap_or(evaluation.repeat_each) {
        for case in &evaluation.cases {
            for link in &evaluation.links {
                let reachable = middlewares
                    .iter()
                    .filter(|one| link.spec.is_none() || one.crosses_networks());
                runs.extend(reachable.map(|middleware| Run {
                    case,
                    link,
                    middleware,
                    repetition,
                    folder: folder.join(format!(
                        "case_{}/link_{}/{}_{repetition}",
                        case.place,
                        link.place,
                        middleware.file_stem()
                    )),
                }));
            }
        }
    }
    runs
}

/// Finished runs that are not requested now, such as other links or middlewares: they stay in the result.
fn earlier(
    folder: &Path,
    planned: &[Run<'_>],
    options: &EvaluationOptions,
) -> BenchResult<Vec<MiddlewareRun>> {
    let kept = folder.join(RESULT_FILE);
    if !kept.is_file() {
        return Ok(Vec::new());
    }
    let result = EvaluationResult::load(&kept)?;
    if result.scale != options.scale {
        return Err(BenchError::Option {
            option: "--scale",
            expected: format!(
                "{}, as of the finished runs in {}",
                result.scale,
                folder.display()
            ),
            found: options.scale.to_string(),
        });
    }
    let is_planned = |run: &MiddlewareRun| {
        planned.iter().any(|one| {
            (&one.case.label, &one.link.label, one.middleware, one.repetition)
                == (&run.case, &run.link, &run.middleware, run.repetition)
        })
    };
    Ok(result.runs.into_iter().filter(|run| !is_planned(run)).collect())
}

struct Bench<'a> {
    prefix: Option<RosPrefix>,
    evaluation: &'a Evaluation,
    options: &'a EvaluationOptions,
    clock: &'a Arc<dyn Clock>,
    folder: PathBuf,
    absent: Vec<AbsentMiddleware>,
}
impl Bench<'_> {
    /// Whether a middleware can be run here; otherwise that is reported.
    fn is_present(
        &mut self,
        middleware: &Middleware,
        on_progress: &mut dyn FnMut(EvaluationProgress),
    ) -> bool {
        let reason = middleware.sides.iter().find_map(|side| self.absence(side));
        let links = || self.evaluation.links.iter().all(|link| link.spec.is_some());
        let reason = reason.or_else(|| {
            (!middleware.crosses_networks() && links()).then(|| "it stays on one host".to_owned())
        });
        if let Some(reason) = &reason {
            let absent = AbsentMiddleware {
                middleware: middleware.to_string(),
                reason: reason.clone(),
            };
            on_progress(EvaluationProgress::Absent(absent.clone()));
            self.absent.push(absent);
        }
        reason.is_none()
    }
    fn result(&self, middlewares: &[&Middleware]) -> EvaluationResult {
        let evaluation = self.evaluation;
        EvaluationResult {
            experiment: evaluation.id.clone(),
            title: evaluation.title.clone(),
            source: evaluation.source.clone(),
            scale: self.options.scale,
            duration_s: evaluation.duration.as_secs_f64(),
            warm_up_s: evaluation.warm_up.as_secs_f64(),
            command: self.options.command.clone(),
            machine: Machine::inspect(&self.folder),
            runs: Vec::new(),
            absent: self.absent.clone(),
            settings: self.all_settings(middlewares),
        }
    }
    /// One run, again while the machine does not keep to the link.
    fn one(&self, run: &Run<'_>) -> BenchResult<MiddlewareRun> {
        fs::create_dir_all(&run.folder).map_err(BenchError::io("create", &run.folder))?;
        let mut tried = self.attempt(run)?;
        for _ in 1..TRIES {
            if tried.invalid.is_none() {
                break;
            }
            tried = self.attempt(run)?;
        }
        Ok(tried)
    }

    fn attempt(&self, run: &Run<'_>) -> BenchResult<MiddlewareRun> {
        let measured = self.evaluation.warm_up + self.evaluation.duration;
        let count = (measured.as_secs_f64() * run.case.rate_hz).round().max(1.0) as u64;
        let (sides, wire) = match &run.link.spec {
            Some(spec) => {
                // Repetitions differ, middlewares meet the same losses.
                let mut spec = spec.clone();
                spec.seed += u64::from(run.repetition);
                let (sides, carried) = link::carry(&spec, |ends| self.drive(run, count, Some(ends)))?;
                (sides?, Some(WireUse::from(&carried)))
            }
            None => (self.drive(run, count, None)?, None),
        };
        let account = self.account(run, sides.start, count)?;
        Ok(MiddlewareRun {
            case: run.case.label.clone(),
            link: run.link.label.clone(),
            middleware: run.middleware.clone(),
            repetition: run.repetition,
            invalid: invalid(&account, wire.as_ref()),
            message_bytes: run.case.bytes as u64,
            matched_s: sides.matched_s,
            account,
            publisher: sides.costs[0],
            subscriber: sides.costs[1],
            wire,
        })
    }
    /// What became of every message of a run, from the records of both sides.
    fn account(&self, run: &Run<'_>, start: Duration, count: u64) -> BenchResult<Account> {
        if run.case.is_idle {
            return Ok(Account::default());
        }
        let [sent, received] = Self::records(run);
        let broken = |path: &Path, error: io::Error| BenchError::Verify {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let planned = Planned {
            count,
            rate_hz: run.case.rate_hz,
            start: u64::try_from(start.as_nanos()).unwrap_or(u64::MAX),
            warm_up: self.evaluation.warm_up,
            is_reliable: run.case.is_reliable,
        };
        let account = account(
            planned,
            &read_sent(&sent).map_err(|error| broken(&sent, error))?,
            &read_received(&received).map_err(|error| broken(&received, error))?,
        );
        if !self.options.keep {
            for path in [&sent, &received] {
                fs::remove_file(path).map_err(BenchError::io("remove", path))?;
            }
        }
        Ok(account)
    }

    /// The files with records of the publisher and the subscriber.
    pub(super) fn records(run: &Run<'_>) -> [PathBuf; 2] {
        [run.folder.join("sent.records"), run.folder.join("sent.received")]
    }
}

/// Why a run means nothing, if so.
fn invalid(account: &Account, wire: Option<&WireUse>) -> Option<String> {
    if account.accounted() != account.planned {
        return Some(format!(
            "{} messages planned, {} accounted for",
            account.planned,
            account.accounted()
        ));
    }
    let wire = wire?;
    if !wire.balances {
        return Some("the link lost count of its packets".to_owned());
    }
    (wire.lateness_p99_us > LINK_LATENESS_MAX_US).then(|| {
        format!(
            "the link delivered packets {:.1} ms late (p99): the machine is busy",
            wire.lateness_p99_us / 1e3
        )
    })
}
