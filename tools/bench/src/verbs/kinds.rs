//! `holdall bench run write`, `storage` and `tools`.

use super::{failure, show, show_progress, start_log};
use crate::{VerbResult, output};
use holdall_bench::{
    args::kinds::{RunKind, StorageArguments, ToolsArguments, WriteArguments},
    kinds::{
        storage::{self, storage_table},
        tools::{self, tools_table},
        write::{self, write_table},
    },
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_program::exit::Outcome;
use std::sync::Arc;

/// Runs one.
pub(super) fn run(kind: &RunKind) -> VerbResult {
    match kind {
        RunKind::Write(args) => write(args),
        RunKind::Storage(args) => storage(args),
        RunKind::Tools(args) => tools(args),
    }
}

/// The recorder, and rivals in turn with it.
fn write(args: &WriteArguments) -> VerbResult {
    let json = args.shared.folder.json;
    start_log(json);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = write::run(args, &clock, &mut show_progress).map_err(failure)?;
    show(json, &report, || write_table(&report))?;
    let is_lossy = report.body.candidates().any(|candidate| candidate.lost > 0);
    Ok(if is_lossy { Outcome::Lost } else { Outcome::Done })
}

/// Storages alone, or a file of the storage plugin comparison.
pub(super) fn storage(args: &StorageArguments) -> VerbResult {
    let json = args.shared.folder.json;
    start_log(json);
    let report = storage::run(args, &SystemClock, &mut show_progress).map_err(failure)?;
    let first = report.body.cells.first().and_then(|cell| cell.runs.first());
    match first.and_then(|run| run.calls.as_ref()).filter(|_| args.csv) {
        Some(calls) => output::file(&calls.csv)?,
        None => show(json, &report, || storage_table(&report))?,
    }
    Ok(Outcome::Done)
}

/// Work on whole bags.
fn tools(args: &ToolsArguments) -> VerbResult {
    start_log(args.folder.json);
    let report = tools::run(args, &SystemClock, &mut show_progress).map_err(failure)?;
    show(args.folder.json, &report, || tools_table(&report))?;
    Ok(Outcome::Done)
}
