//! `holdall check`: reads bags completely and reports their faults.

use super::input;
use crate::{
    VerbResult,
    args::check::CheckArguments,
    exit::{Failure, Outcome},
    output,
    render::{check, paint::Paint},
    terminal::{log, progress::Progress},
};
use tracing::level_filters::LevelFilter;

/// Checks each bag; exit code 1 when something is wrong with one.
pub fn run(args: &CheckArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let mut is_sound = true;
    let named = input::resolve(&args.bags)?;
    for path in &named.paths {
        let progress = Progress::of_bytes(&format!("checking {}", path.display()));
        let found = holdall::tools::check::check(path, &mut |done, total| progress.show(done, total));
        drop(progress);
        let found = found.map_err(|error| Failure::opening(error, &named.paths))?;
        is_sound &= found.is_sound();
        output::result(&if args.json {
            check::json(&found).to_string()
        } else {
            check::text(&found, Paint::stdout())
        })?;
    }
    Ok(if is_sound { Outcome::Done } else { Outcome::Failed })
}
