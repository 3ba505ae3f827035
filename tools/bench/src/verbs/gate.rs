//! `holdall bench gate`: whether a message costs more than before.

use super::{failure, show, show_progress, start_log};
use crate::{VerbResult, output};
use holdall_bench::{
    args::GateArguments,
    gate::{BASELINE_FILE, Baseline, GateReport, WorkloadProgram, build, measure, source_tree},
};
use holdall_program::exit::{Failure, Outcome};
use std::{env, path::Path};
use tracing::info;

/// Counts and compares.
pub fn run(args: &GateArguments) -> VerbResult {
    start_log(args.json);
    if !(args.tolerance.is_finite() && args.tolerance > 0.0) {
        return Err(Failure::refused(format!(
            "--tolerance {}: expected a number of percent above 0",
            args.tolerance
        )));
    }
    let here = env::current_dir()
        .map_err(|error| Failure::failed(format!("cannot find the current folder: {error}")))?;
    let tree = source_tree(&here).map_err(failure)?;
    let path = args.baseline.clone().unwrap_or_else(|| tree.join(BASELINE_FILE));
    let is_all = args.only.is_empty();
    // Before anything that takes time.
    let before = baseline(&path, args.renew)?;
    let program = match &args.program {
        Some(program) => WorkloadProgram::built(program.clone(), &tree),
        None => {
            info!("building the workloads");
            build(&tree)
        }
    }
    .map_err(failure)?;
    let now = measure(&program, &args.only, &mut show_progress).map_err(failure)?;
    if args.renew {
        return renew(before, now, &path, is_all);
    }
    let report = GateReport::of(&before, &now, args.tolerance / 100.0, is_all);
    show(args.json, &report, || report.text())?;
    Ok(if report.passed {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// The baseline in `path`; if it will be renewed, it need not exist.
fn baseline(path: &Path, is_renewed: bool) -> Result<Baseline, Failure> {
    if is_renewed && !path.exists() {
        return Ok(Baseline::default());
    }
    Baseline::load(path).map_err(Failure::refused)
}

/// Stores the counts; for workloads that were not counted, keeps the earlier counts when compiler and
/// architecture are the same.
fn renew(before: Baseline, mut now: Baseline, path: &Path, is_all: bool) -> VerbResult {
    if !is_all && before.rustc == now.rustc && before.architecture == now.architecture {
        let counted = std::mem::take(&mut now.workloads);
        now.workloads = before.workloads;
        now.workloads.extend(counted);
    }
    now.store(path).map_err(failure)?;
    output::result(&path.display().to_string())?;
    Ok(Outcome::Done)
}
