//! Runs seeds: one recording each, judged; many of them side by side.

use crate::{
    judge::judge,
    mutation::Mutation,
    plan::Plan,
    promote::Copies,
    verdict::{Invariant, Violation},
    world::World,
};
use holdall_io::mutex::lock;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The outcome of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Recordings.
    pub runs: u64,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that came to the recorder.
    pub arrived: u64,
    /// Recordings that ended by a power cut or were killed.
    pub crashes: u64,
    /// Recordings whose process died, with memory that survived it.
    pub deaths: u64,
    /// Recordings whose disk failed or filled up.
    pub failed_disks: u64,
    /// Parts of rings that were copied.
    pub copies: Copies,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.sent += other.sent;
        self.arrived += other.arrived;
        self.crashes += other.crashes;
        self.deaths += other.deaths;
        self.failed_disks += other.failed_disks;
        self.copies.add(other.copies);
    }
}

/// The folder that recordings are written to for reading: in memory, if such a file system exists.
pub fn scratch_root() -> PathBuf {
    let shared_memory = PathBuf::from("/dev/shm");
    if shared_memory.is_dir() {
        shared_memory
    } else {
        std::env::temp_dir()
    }
}

/// Runs one plan and judges it.
///
/// # Errors
/// The first broken invariant.
pub fn run(plan: &Plan, mutation: Option<Mutation>) -> Result<Tally, Violation> {
    let scratch = tempfile::Builder::new()
        .prefix("holdall-sim-")
        .tempdir_in(scratch_root())
        .map_err(|error| Violation::new(Invariant::Runs, error.to_string()))?;
    run_in(plan, mutation, scratch.path())
}

/// As [`run`], in an existing empty directory; the bag is left in it.
///
/// # Errors
/// The first broken invariant.
pub fn run_in(plan: &Plan, mutation: Option<Mutation>, scratch: &Path) -> Result<Tally, Violation> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world =
            World::new(plan, mutation, scratch).map_err(|error| Violation::new(Invariant::Runs, error))?;
        let after = world
            .run()
            .map_err(|error| Violation::new(Invariant::Runs, error.to_string()))?;
        judge(plan, &after, scratch)?;
        let sent = after.lives.iter().flat_map(|life| &life.sent);
        Ok(Tally {
            runs: 1,
            sent: sent.clone().count() as u64,
            arrived: sent.filter(|sent| sent.arrival.is_some()).count() as u64,
            crashes: u64::from(after.stopped.is_none()),
            deaths: u64::from(after.death.is_some()),
            failed_disks: u64::from(after.disk_failed),
            copies: after.promoter.map(|promoter| promoter.copies).unwrap_or_default(),
        })
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("for a reason that it does not give");
        Err(Violation::new(Invariant::Runs, format!("it panicked: {text}")))
    })
}

/// A seed that broke something.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The invariant that it broke.
    pub violation: Violation,
}

/// The outcome of many recordings.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Their sums.
    pub tally: Tally,
    /// Recordings that broke something, by seed.
    pub failures: Vec<Failure>,
}

/// Runs seeds on `jobs` threads until `more` returns false (called before each seed with the number begun) or
/// `failures_max` have failed. `report` gets the running sums after each seed, with the seed's failure if it failed.
pub fn run_many(
    jobs: usize,
    failures_max: usize,
    seed_of: impl Fn(u64) -> u64 + Sync,
    more: impl Fn(u64) -> bool + Sync,
    mutation: Option<Mutation>,
    report: impl Fn(&Summary, Option<&Failure>) + Sync,
) -> Summary {
    let begun = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let work = || {
        while !enough.load(Ordering::Relaxed) {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if !more(number) {
                return;
            }
            let seed = seed_of(number);
            let outcome = run(&Plan::new(seed), mutation);
            let mut summary = lock(&summary);
            match outcome {
                Ok(tally) => {
                    summary.tally.add(tally);
                    report(&summary, None);
                }
                Err(violation) => {
                    summary.tally.runs += 1;
                    let failure = Failure { seed, violation };
                    summary.failures.push(failure.clone());
                    report(&summary, Some(&failure));
                    if summary.failures.len() >= failures_max {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort_by_key(|failure| failure.seed);
    summary
}
