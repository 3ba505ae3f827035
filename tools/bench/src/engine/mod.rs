//! One engine for every kind of experiment: all tasks in each round, each result kept as soon as it exists, then a
//! report with the limits of the same run.

mod csv;
mod figures;
mod json;
mod session;

pub(crate) use csv::Csv;
pub(crate) use figures::{cpu_per_gib, frequency, limits_text, ratio_text, span};
pub(crate) use json::{load, store};
pub use session::Report;
pub(crate) use session::Session;

use crate::error::BenchResult;
use std::time::Duration;

/// Seed of all bootstraps: the same runs give the same intervals.
pub(crate) const BOOTSTRAP_SEED: u64 = 0x686f_6c64_616c_6c00;

/// The log time of the first message of a storage that gets no real ones.
pub(crate) const FIRST_STAMP_NANOS: u64 = 1_700_000_000_000_000_000;

/// What a run of a kind takes beside its bytes: the limit around it, syncs.
const AROUND_A_RUN: Duration = Duration::from_millis(200);

/// Marks a comparison that its interval does not support.
pub(crate) const UNSUPPORTED: &str = "≈";

/// Progress of an experiment.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Everything was checked, and the runs begin.
    Planned {
        /// The experiment.
        id: String,
        /// Number of all runs.
        runs: u64,
        /// How long they take together, about.
        time: Duration,
    },
    /// Limits are being measured.
    Limits,
    /// A run is about to begin.
    Running {
        /// The candidate measured.
        name: String,
        /// The run's place among all, from 1.
        number: usize,
        /// Number of all runs.
        of: usize,
        /// Its repetition, from 0.
        round: u32,
    },
    /// The output is being read back.
    Verifying,
    /// A run was done before the interruption; this names its result.
    Found(String),
    /// A run was left out; a whole sentence.
    Skipped(String),
    /// A run has ended; one clause with its result.
    Ended(String),
}

/// About how long `runs` runs of `bytes` each take: they are written and read back at the disk's rate, where it is known, and worked on at `bytes_per_s`.
pub fn time_of(runs: usize, bytes: u64, disk_bytes_per_s: Option<f64>, bytes_per_s: f64) -> Duration {
    let a_byte = 1.0 / bytes_per_s + disk_bytes_per_s.map_or(0.0, |rate| 2.0 / rate.max(1.0));
    AROUND_A_RUN * u32::try_from(runs).unwrap_or(u32::MAX)
        + Duration::from_secs_f64((runs as f64 * bytes as f64 * a_byte).min(1e9))
}

/// Receives the progress of an experiment.
pub type OnProgress<'a> = dyn FnMut(Progress) + 'a;

/// Something that is measured several times.
pub(crate) struct Task {
    /// Its name in progress.
    pub name: String,
    /// How often.
    pub repeat: u32,
}

/// The outcome of a run from before an interruption.
pub(crate) enum Earlier<R> {
    /// Nothing: it has to be run.
    Nothing,
    /// Its result.
    Result(R),
    /// It cannot be run; the reason was reported.
    Skipped,
}

/// A run that has ended.
pub(crate) struct Done<R> {
    /// The place of its task.
    pub task: usize,
    /// Its result.
    pub run: R,
}

/// A kind of experiment.
pub(crate) trait Kind {
    /// The result of one run.
    type Run: Clone;
    /// Whether each round begins with another task, so that drift and neighbours affect all alike.
    const ROTATES: bool = true;

    /// Everything that is measured, in the order of a round.
    fn tasks(&self) -> Vec<Task>;

    /// Looks up a run without running it.
    fn earlier(
        &mut self,
        task: usize,
        round: u32,
        on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<Earlier<Self::Run>>;

    /// Runs a task once; `None` when it was skipped.
    fn run(
        &mut self,
        task: usize,
        round: u32,
        on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<Option<Self::Run>>;

    /// Called after each round with at least one new run.
    fn after_round(
        &mut self,
        _runs: &mut [Done<Self::Run>],
        _on_progress: &mut OnProgress<'_>,
    ) -> BenchResult<()> {
        Ok(())
    }
}

/// Runs every task as often as it asks for, round by round, and returns all results in the order of their runs.
///
/// # Errors
/// The first error of the kind.
pub(crate) fn run_all<K: Kind>(
    kind: &mut K,
    on_progress: &mut OnProgress<'_>,
) -> BenchResult<Vec<Done<K::Run>>> {
    let tasks = kind.tasks();
    let of = tasks.iter().map(|task| task.repeat as usize).sum();
    let rounds = tasks.iter().map(|task| task.repeat).max().unwrap_or(0);
    let (mut done, mut number) = (Vec::new(), 0);
    for round in 0..rounds {
        let (begin, mut is_new) = (done.len(), false);
        for turn in 0..tasks.len() {
            let first = if K::ROTATES { round as usize } else { 0 };
            let task = (turn + first) % tasks.len();
            if round >= tasks[task].repeat {
                continue;
            }
            number += 1;
            let run = match kind.earlier(task, round, on_progress)? {
                Earlier::Skipped => None,
                Earlier::Result(run) => Some(run),
                Earlier::Nothing => {
                    is_new = true;
                    let name = tasks[task].name.clone();
                    on_progress(Progress::Running {
                        name,
                        number,
                        of,
                        round,
                    });
                    kind.run(task, round, on_progress)?
                }
            };
            done.extend(run.map(|run| Done { task, run }));
        }
        if is_new {
            kind.after_round(&mut done[begin..], on_progress)?;
        }
    }
    Ok(done)
}

/// Items in the order in which they first occur, each once.
pub(crate) fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Items with an equal key together, in the order in which keys first occur.
pub(crate) fn grouped<K: PartialEq, T>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// The runs of each of `tasks` tasks, in order of their rounds.
pub(crate) fn by_task<R>(tasks: usize, done: Vec<Done<R>>) -> Vec<Vec<R>> {
    let mut runs: Vec<Vec<R>> = (0..tasks).map(|_| Vec::new()).collect();
    for one in done {
        runs[one.task].push(one.run);
    }
    runs
}
