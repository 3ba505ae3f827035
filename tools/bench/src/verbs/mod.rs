//! `holdall bench`: the cost and the limits of recording on this machine.

mod gate;
mod kinds;
mod link;
mod live;
mod middleware;
mod suite;

use crate::{VerbResult, output};
use clap::CommandFactory;
use holdall_bench::{
    BenchError,
    args::{BenchVerb, Cli, RunArguments},
    disk_limit::DiskLimit,
    engine::Progress,
};
use holdall_program::{
    exit::{Failure, Outcome},
    man,
    terminal::{log, signals},
    units::{format_elapsed, plural},
};
use std::{
    env,
    path::{Path, PathBuf},
};
use tracing::{info, level_filters::LevelFilter, warn};

/// Runs the command.
pub fn run(verb: &BenchVerb) -> VerbResult {
    let has_limited_disk =
        |args: &RunArguments| args.disk_limit.is_some() && DiskLimit::of_process().is_none();
    // These two clean up after what they have started.
    let cleans_up = match verb {
        BenchVerb::Link(_) => true,
        BenchVerb::Run(args) => has_limited_disk(args),
        _ => false,
    };
    if !cleans_up {
        signals::remove_unfinished_at_end();
    }
    match verb {
        BenchVerb::Run(args) => match (args.disk_limit, DiskLimit::of_process(), &args.kind) {
            (Some(rate), None, _) => suite::on_limited_disk(args, rate),
            (_, _, Some(kind)) => kinds::run(kind),
            (_, _, None) => suite::run(args),
        },
        BenchVerb::Report(args) => suite::report(args),
        BenchVerb::List { id, json } => suite::list(id.as_deref(), *json),
        BenchVerb::Link(args) => link::run(args),
        BenchVerb::Gate(args) => gate::run(args),
        BenchVerb::Publish(args) => live::publish(args),
        BenchVerb::Worker(args) => live::worker(args),
        BenchVerb::Rival(args) => live::rival(args),
        BenchVerb::Man { dir } => write_manual(dir),
    }
}

fn check_scale(scale: f64) -> Result<(), Failure> {
    let is_usable = scale.is_finite() && scale > 0.0;
    let refused = || Failure::refused(format!("--scale {scale}: expected a number above 0"));
    is_usable.then_some(()).ok_or_else(refused)
}

/// Writes the manual pages.
fn write_manual(dir: &Path) -> VerbResult {
    let mut cli = Cli::command();
    cli.build();
    holdall_io::fs::create_dirs(dir).map_err(Failure::failed)?;
    man::write_all(dir, &cli, "holdall-bench")?;
    Ok(Outcome::Done)
}

/// The file of this program, which also runs publishers and rivals.
fn own_file() -> Result<PathBuf, Failure> {
    env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find this program's own file: {error}")))
}

/// The recorder and player that is measured: `holdall` beside this program, or else in PATH.
fn holdall(bench: &Path) -> PathBuf {
    let beside = bench.with_file_name("holdall");
    if beside.is_file() {
        beside
    } else {
        "holdall".into()
    }
}

/// Begins the log: only warnings if the output is JSON.
pub(super) fn start_log(json: bool) {
    log::start(if json {
        LevelFilter::WARN
    } else {
        LevelFilter::INFO
    });
}

/// Prints a result as JSON or as a table.
pub(super) fn show(
    json: bool,
    report: &impl serde::Serialize,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    output::result(&if json {
        serde_json::to_string_pretty(report).map_err(Failure::failed)?
    } else {
        table()
    })
}

/// Writes the progress of an experiment to the log.
pub(super) fn show_progress(progress: Progress) {
    match progress {
        Progress::Planned { id, runs, time } => {
            info!("{id}: {}, about {}", plural(runs, "run"), format_elapsed(time));
        }
        Progress::Limits => info!("measuring the limits of this machine"),
        Progress::Running { number, of, name, .. } => info!("run {number} of {of}: {name}"),
        Progress::Verifying => info!("reading back what was written"),
        Progress::Found(result) => info!("done before: {result}"),
        Progress::Skipped(sentence) => warn!("{sentence}"),
        Progress::Ended(clause) => info!("{clause}"),
    }
}

/// The exit code of an error.
pub(super) fn failure(error: BenchError) -> Failure {
    if error.is_refusal() {
        Failure::refused(error)
    } else {
        Failure::failed(error)
    }
}
