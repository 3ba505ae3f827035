//! The simulator's command: runs seeds, prints those that break an invariant when they are found, and how to run them again.

use clap::Parser;
use holdall_io::clock::{Clock, SystemClock};
use holdall_io::mutex::lock;
use holdall_sim::{
    mutation::Mutation,
    plan::{CLOCKS_FROM, Plan},
    ring_day::{DAY, DAY_COPIES, RINGS},
    run::{Failure, Summary, Tally, run, run_in, run_many},
    shrink::shrink,
};
use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Runs whole recordings in a simulated world, from seeds, and checks that every message is accounted for.
///
/// Exit code 0 and `violations: 0` when everything holds.
#[derive(Parser)]
#[command(after_help = "Examples:
  holdall-sim --seeds 100000              a long run
  holdall-sim --minutes 2 --fresh         as many new seeds as two minutes take
  holdall-sim --seed 4711                 one seed again; what it breaks is made small
  holdall-sim --seed 4711 --keep 3,5-9    the same with these of its events only
  holdall-sim --ring-day                  a day in a ring, ten thousand parts of it copied
  holdall-sim --seeds 500 --mutation skipped-sync    a recorder that is broken on purpose")]
struct Arguments {
    /// Number of seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = CLOCKS_FROM)]
    first: u64,
    /// This seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep only these events of that seed, by number: `3,5-9`.
    #[arg(long, requires = "seed")]
    keep: Option<String>,
    /// Leave the bag of that seed in this directory, which must exist and be empty.
    #[arg(long, requires = "seed")]
    bag: Option<PathBuf>,
    /// As many seeds as this many minutes take.
    #[arg(long)]
    minutes: Option<f64>,
    /// Begin with a seed that the time of day gives.
    #[arg(long)]
    fresh: bool,
    /// Seeds run at a time; the number of processors by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the plan of a single seed, event by event.
    #[arg(long)]
    verbose: bool,
    /// One recording of a simulated day into a ring, of which ten thousand parts are copied, instead; killed at its end.
    #[arg(long, conflicts_with_all = ["seeds", "keep", "minutes", "fresh", "bag"])]
    ring_day: bool,
    /// Stop after this many failing seeds.
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Break the recorder on purpose: a name in src/mutation/mod.rs, in lower case with hyphens; a wrong one lists all.
    #[arg(long)]
    mutation: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A recorder that panics is reported as a broken invariant; the panic hook's message would interrupt the
    // output.
    std::panic::set_hook(Box::new(|_| {}));
    match run_and_print(&arguments, &mut io::stdout()) {
        Ok(code) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run_and_print(arguments: &Arguments, out: &mut (impl Write + Send)) -> io::Result<ExitCode> {
    let mutation = match &arguments.mutation {
        Some(name) => match Mutation::by_name(name) {
            Some(mutation) => Some(mutation),
            None => {
                writeln!(out, "there is no mutation {name}; there are:")?;
                for mutation in Mutation::ALL {
                    writeln!(out, "  {}", mutation.name())?;
                }
                return Ok(ExitCode::from(2));
            }
        },
        None => None,
    };
    if arguments.ring_day {
        return print_day(arguments.seed.unwrap_or(RINGS.start), mutation, out);
    }
    if let Some(seed) = arguments.seed {
        return print_one(arguments, seed, mutation, out);
    }
    run_all(arguments, mutation, out)
}

/// Runs many seeds. A failure is printed when it is found, and every ten seconds how far the run is: a long run may be ended before its end.
fn run_all(
    arguments: &Arguments,
    mutation: Option<Mutation>,
    out: &mut (impl Write + Send),
) -> io::Result<ExitCode> {
    let clock = SystemClock;
    let begun = clock.monotonic();
    let first = if arguments.fresh {
        // Microseconds: short enough to be typed, and never the same twice.
        clock.now().as_nanos().unsigned_abs() / 1_000
    } else {
        arguments.first
    };
    let until = arguments
        .minutes
        .map(|minutes| begun + Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let more = |number: u64| match until {
        Some(until) => clock.monotonic() < until,
        None => number < arguments.seeds,
    };
    let jobs = arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let progress = Mutex::new(Progress {
        out: &mut *out,
        next: begun + PROGRESS_INTERVAL,
        result: Ok(()),
    });
    let summary = run_many(
        jobs,
        arguments.failures.max(1),
        |number| first.wrapping_add(number),
        more,
        mutation,
        |summary, failure| {
            let mut progress = lock(&progress);
            progress.report(summary, failure, mutation, begun, clock.monotonic());
        },
    );
    progress
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .result?;
    print_summary(&summary, first, clock.monotonic().saturating_sub(begun), out)?;
    writeln!(out, "violations: {}", summary.failures.len())?;
    Ok(if summary.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Time between two lines about how far a run is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Prints while seeds run.
struct Progress<'a, W> {
    out: &'a mut W,
    next: Duration,
    /// The first line that could not be written.
    result: io::Result<()>,
}

impl<W: Write> Progress<'_, W> {
    fn report(
        &mut self,
        summary: &Summary,
        failure: Option<&Failure>,
        mutation: Option<Mutation>,
        begun: Duration,
        now: Duration,
    ) {
        if self.result.is_err() {
            return;
        }
        if let Some(failure) = failure {
            self.result = print_failure(failure, mutation, self.out);
        }
        if now >= self.next && self.result.is_ok() {
            self.next = now + PROGRESS_INTERVAL;
            let (runs, took) = (summary.tally.runs, now.saturating_sub(begun).as_secs_f64());
            let rate = runs as f64 / took.max(1e-9);
            self.result = writeln!(
                self.out,
                "{took:.0} s: {runs} seeds ({rate:.0} per second), violations so far: {}",
                summary.failures.len()
            )
            .and_then(|()| self.out.flush());
        }
    }
}

fn print_summary(summary: &Summary, first: u64, took: Duration, out: &mut impl Write) -> io::Result<()> {
    let tally = &summary.tally;
    writeln!(
        out,
        "seeds: {} from {first} in {:.1} s ({:.0} per second)",
        tally.runs,
        took.as_secs_f64(),
        tally.runs as f64 / took.as_secs_f64().max(1e-9)
    )?;
    print_tally(tally, out)
}

fn print_tally(tally: &Tally, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "messages: {} sent, {} arrived; crashes: {}, {} of them of the process; failed disks: {}",
        tally.sent, tally.arrived, tally.crashes, tally.deaths, tally.failed_disks
    )?;
    let copies = tally.copies;
    if copies.made == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "parts of rings: {} copied with {} messages, {} of them less than asked for, as they say; nothing left of {} more, {} killed; {} messages \
         expired",
        copies.made - copies.empty,
        copies.messages,
        copies.partial,
        copies.empty,
        copies.killed,
        copies.expired
    )
}

fn print_day(seed: u64, mutation: Option<Mutation>, out: &mut impl Write) -> io::Result<ExitCode> {
    let begun = SystemClock.monotonic();
    let outcome = run(&Plan::ring_day(seed, DAY, DAY_COPIES), mutation);
    let took = SystemClock.monotonic().saturating_sub(begun).as_secs_f64();
    match outcome {
        Ok(tally) => {
            print_tally(&tally, out)?;
            writeln!(out, "a day with seed {seed}, in {took:.0} s\nviolations: 0")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(violation) => {
            writeln!(out, "a day with seed {seed}: {violation}\nviolations: 1")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn print_failure(failure: &Failure, mutation: Option<Mutation>, out: &mut impl Write) -> io::Result<()> {
    let mutation = mutation.map_or_else(String::new, |mutation| format!(" --mutation {}", mutation.name()));
    writeln!(out, "seed {}: {}", failure.seed, failure.violation)?;
    writeln!(
        out,
        "  again: cargo run --release -p holdall-sim -- --seed {}{mutation}",
        failure.seed
    )
}

fn print_one(
    arguments: &Arguments,
    seed: u64,
    mutation: Option<Mutation>,
    out: &mut impl Write,
) -> io::Result<ExitCode> {
    let mut plan = Plan::new(seed);
    if let Some(keep) = &arguments.keep {
        let Some(kept) = ranges(keep) else {
            writeln!(
                out,
                "--keep takes numbers and ranges, for example 3,5-9; found {keep}"
            )?;
            return Ok(ExitCode::from(2));
        };
        plan = plan.only(&kept);
    }
    if arguments.verbose {
        write!(out, "{plan:?}")?;
    }
    let outcome = match &arguments.bag {
        Some(directory) => run_in(&plan, mutation, directory),
        None => run(&plan, mutation),
    };
    let violation = match outcome {
        Ok(tally) => {
            writeln!(out, "seed {seed}: {tally:?}\nviolations: 0")?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(violation) => violation,
    };
    writeln!(out, "seed {seed}: {violation}")?;
    if arguments.keep.is_none() && arguments.bag.is_none() {
        let (kept, smaller) = shrink(&plan, violation.invariant, mutation);
        writeln!(
            out,
            "the same with {} of {} events:",
            kept.len(),
            plan.events.len()
        )?;
        write!(out, "{:?}", plan.only(&kept))?;
        if let Some(smaller) = smaller {
            writeln!(out, "{smaller}")?;
        }
        let list: Vec<String> = kept.iter().map(usize::to_string).collect();
        writeln!(out, "again: --seed {seed} --keep {}", list.join(","))?;
    }
    writeln!(out, "violations: 1")?;
    Ok(ExitCode::FAILURE)
}

/// Numbers of a list like `3,5-9`.
fn ranges(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
                numbers.extend(first..=last);
            }
            None => numbers.push(part.trim().parse().ok()?),
        }
    }
    Some(numbers)
}
