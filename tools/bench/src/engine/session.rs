//! Shared parts of the kinds that have a separate folder: the folder, limits around runs, rounds that
//! survive an interruption, and the report.

use super::{Done, Earlier, OnProgress, Progress, load, store, time_of};
use crate::{
    args::kinds::FolderArguments,
    error::{BenchError, BenchResult},
    folder::{BenchFolder, remove},
    limits::{LimitMeter, Limits},
    machine::Machine,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::PathBuf;

/// Finished rounds, next to the results until the last one.
const ROUNDS: &str = "rounds.json";

/// A result with the circumstances of its measurement; the names of the fields are fixed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report<B> {
    /// The kind: `write`, `storage`, `tools`.
    pub benchmark: String,
    /// The command line, without the folder.
    #[serde(default)]
    pub command: String,
    /// The measurements of the kind.
    #[serde(flatten)]
    pub body: B,
    /// Limits of the same run.
    #[serde(default)]
    pub limit: Limits,
    /// The machine.
    pub machine: Machine,
}

/// Finished rounds of an experiment, and its description.
#[derive(Serialize, Deserialize)]
struct Rounds<R> {
    /// Whatever must be the same for the rest of the rounds.
    what: String,
    /// The runs of each round with the places of their tasks.
    rounds: Vec<Vec<(usize, R)>>,
}

/// A folder in which one experiment runs.
pub(crate) struct Session<R> {
    /// The folder for the candidates' files and the results.
    pub folder: BenchFolder,
    /// The limits of the machine.
    pub limits: LimitMeter,
    /// The newest measurement; absent where no disk is written to.
    last_limit: Option<f64>,
    kept: PathBuf,
    rounds: Rounds<R>,
    /// How many of them are from before the interruption.
    earlier: usize,
}

impl<R: Clone + Serialize + DeserializeOwned> Session<R> {
    /// Takes the folder, and with `resume` the finished rounds of an interrupted run of `what`. Writes nothing on
    /// an error.
    ///
    /// # Errors
    /// No repetition, rounds of another experiment, a folder with other files, too little space.
    pub fn open(
        args: &FolderArguments,
        (keep, repeat): (bool, u32),
        what: String,
        tasks: usize,
        space_bytes: u64,
    ) -> BenchResult<Self> {
        if repeat == 0 {
            return Err(BenchError::option("--repeat", "1 or more", "0"));
        }
        let kept = args.out.join(ROUNDS);
        let mut rounds = Rounds {
            what,
            rounds: Vec::new(),
        };
        if args.resume && kept.is_file() {
            let found: Rounds<R> = load(&kept, "what an interrupted run leaves")?;
            if found.what != rounds.what || found.rounds.iter().flatten().any(|(task, _)| *task >= tasks) {
                let expected = "the same options as the run that was interrupted";
                let other = format!("others in {}", kept.display());
                return Err(BenchError::option("--resume", expected, other));
            }
            if !keep {
                remove(&args.out.join("files"))?;
            }
            remove(&kept)?;
            rounds = found;
        }
        let session = Self {
            folder: BenchFolder::take(&args.out, keep)?,
            limits: LimitMeter::of_memory(),
            last_limit: None,
            kept,
            earlier: rounds.rounds.len(),
            rounds,
        };
        session.keep_rounds()?;
        if space_bytes > 0 {
            session.folder.check_space(space_bytes)?;
        }
        Ok(session)
    }

    /// Measures the disk by `bytes` from now on.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn measure_disk(&mut self, bytes: u64) -> BenchResult<()> {
        self.limits = LimitMeter::new(self.folder.scratch(), bytes)?;
        Ok(())
    }

    /// The disk's limit of the last call, and now.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn limit_around(&mut self) -> BenchResult<[Option<f64>; 2]> {
        let before = self.last_limit;
        self.last_limit = self.limits.disk()?;
        Ok([before, self.last_limit])
    }

    /// Announces the rounds that are left, with about the time that they take.
    pub fn announce(
        &self,
        id: &str,
        runs: (u32, usize),
        (bytes, bytes_per_s): (u64, f64),
        on_progress: &mut OnProgress<'_>,
    ) {
        let (rounds, tasks) = runs;
        let runs = (rounds as usize).saturating_sub(self.earlier) * tasks;
        on_progress(Progress::Planned {
            id: id.to_owned(),
            runs: runs as u64,
            time: time_of(runs, bytes, self.last_limit, bytes_per_s),
        });
    }

    /// The result of a run from before the interruption.
    pub fn earlier(&self, task: usize, round: u32) -> Earlier<R> {
        let finished = &self.rounds.rounds[..self.earlier];
        let Some(runs) = finished.get(round as usize) else {
            return Earlier::Nothing;
        };
        let run = runs.iter().find(|(place, _)| *place == task);
        run.map_or(Earlier::Skipped, |(_, run)| Earlier::Result(run.clone()))
    }

    /// Keeps a round, so that an interrupted experiment can be resumed.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn keep_round(&mut self, runs: &[Done<R>]) -> BenchResult<()> {
        let round = runs.iter().map(|one| (one.task, one.run.clone()));
        self.rounds.rounds.push(round.collect());
        self.keep_rounds()
    }

    fn keep_rounds(&self) -> BenchResult<()> {
        if self.rounds.rounds.is_empty() {
            return Ok(());
        }
        store(&self.kept, &self.rounds)
    }

    /// Stores the result of a kind as JSON, and as CSV when it has one.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn finish<B: Serialize>(
        self,
        benchmark: &str,
        args: &FolderArguments,
        body: B,
        csv: Option<String>,
    ) -> BenchResult<Report<B>> {
        let report = Report {
            benchmark: benchmark.to_owned(),
            command: args.command.clone(),
            body,
            limit: self.limits.limits(),
            machine: Machine::inspect(self.folder.scratch()),
        };
        let json = serde_json::to_string_pretty(&report).map_err(BenchError::json(&args.out))?;
        self.folder.store(benchmark, "json", &json)?;
        if let Some(csv) = csv {
            self.folder.store(benchmark, "csv", &csv)?;
        }
        remove(&self.kept)?;
        Ok(report)
    }
}
