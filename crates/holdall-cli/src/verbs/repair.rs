//! `holdall repair`: writes the missing summary and footer of a bag that was not ended.

use crate::{
    VerbResult,
    args::repair::RepairArguments,
    exit::{Failure, Outcome},
    output,
    render::{paint::Paint, repair as render},
    terminal::{log, progress::Progress},
};
use tracing::level_filters::LevelFilter;

/// Repairs; exit code 3 when something could not be saved or is gone, else 1 when a check still finds something wrong.
pub fn run(args: &RepairArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let progress = Progress::of_bytes(&format!("checking {}", args.bag.display()));
    let report = holdall::tools::repair::repair(&args.bag, args.output.as_deref(), &mut |done, total| {
        progress.show(done, total);
    });
    drop(progress);
    let report = report.map_err(|error| Failure::repairing(error, &args.bag))?;
    output::result(&if args.json {
        serde_json::to_string_pretty(&render::json(&report)).map_err(Failure::failed)?
    } else {
        render::text(&report, Paint::stdout()).join("\n")
    })?;
    Ok(Outcome::of(report.ending()))
}
