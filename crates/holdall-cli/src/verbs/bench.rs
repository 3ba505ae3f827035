//! `holdall bench`: the cost and the limits of recording on this machine.

use super::{bench_gate, bench_kinds, bench_link, bench_live, bench_suite};
use crate::{
    VerbResult,
    args::{bench::BenchVerb, bench_kinds::RunKind},
    exit::Failure,
    output,
    terminal::log,
};
use holdall_bench::{BenchError, engine::Progress};
use tracing::{info, level_filters::LevelFilter, warn};

/// Runs the command.
pub fn run(verb: &BenchVerb) -> VerbResult {
    match verb {
        BenchVerb::Run(args) => match &args.kind {
            Some(RunKind::Write(kind)) => bench_kinds::write(kind),
            Some(RunKind::Storage(kind)) => bench_kinds::storage(kind),
            Some(RunKind::Tools(kind)) => bench_kinds::tools(kind),
            None => bench_suite::run(args),
        },
        BenchVerb::Report(args) => bench_suite::report(args),
        BenchVerb::List { id, json } => bench_suite::list(id.as_deref(), *json),
        BenchVerb::Link(args) => bench_link::run(args),
        BenchVerb::Gate(args) => bench_gate::run(args),
        BenchVerb::Publish(args) => bench_live::publish(args),
        BenchVerb::Worker(args) => bench_live::worker(args),
        BenchVerb::Rival(args) => bench_live::rival(args),
        BenchVerb::Write(args) => bench_kinds::write(args),
        BenchVerb::Storage(args) => bench_kinds::storage(args),
        BenchVerb::Tools(args) => bench_kinds::tools(args),
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
