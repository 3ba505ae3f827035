//! `holdall repair`: gives a bag that was not ended its end.

use crate::{
    VerbResult,
    exit::{Failure, Outcome},
    output,
    render::{paint::Paint, repair as render},
    terminal::log,
    typed::repair::RepairArguments,
};
use tracing::level_filters::LevelFilter;

/// Repairs; exit code 3 when something could not be saved.
pub fn run(typed: &RepairArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let report = holdall::repair::repair(&typed.bag, typed.output.as_deref()).map_err(Failure::failed)?;
    output::result(&if typed.json {
        serde_json::to_string_pretty(&render::json(&report)).map_err(Failure::failed)?
    } else {
        render::text(&report, Paint::stdout()).join("\n")
    })?;
    Ok(if report.unsaved.is_empty() {
        Outcome::Done
    } else {
        Outcome::Lost
    })
}
