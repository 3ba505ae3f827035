//! `holdall audit`: whether every message that was sent is in the bag or accounted for.

use super::input;
use crate::{
    VerbResult,
    args::audit::AuditArguments,
    exit::{Failure, Outcome},
    output,
    render::{self, paint::Paint},
    terminal::{log, progress::Progress},
};
use holdall::reader::{AccountKind, Bag, BagAudit};
use holdall_model::recoding::Recoding;
use std::path::Path;
use tracing::{level_filters::LevelFilter, warn};

/// Counts a bag and shows its account.
pub fn run(args: &AuditArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let input = input::resolve(std::slice::from_ref(&args.bag))?;
    let named = &input.paths[0];
    let bag = Bag::open(named).map_err(|error| Failure::opening(error, &input.paths))?;
    let progress = Progress::of_messages(&format!("auditing {}", named.display()));
    let audit = BagAudit::with_progress(&bag, &mut |done, total| progress.show(done, total));
    drop(progress);
    let audit = audit.map_err(Failure::failed)?;
    let recoded = Recoding::list_in(&bag.metadata().custom_data);
    for notice in &audit.notices {
        warn!("{notice}");
    }
    output::result(&if args.json {
        serde_json::to_string_pretty(&render::audit::json(named, &audit, &recoded))
            .map_err(Failure::failed)?
    } else {
        render::audit::text(named, &audit, &recoded, Paint::stdout())
    })?;
    outcome(&audit, named)
}

fn outcome(audit: &BagAudit, bag: &Path) -> VerbResult {
    match audit.account {
        AccountKind::Missing if audit.state.is_cut_off() && audit.faults.is_empty() => Ok(Outcome::Lost),
        AccountKind::Missing => Err(Failure::refused(format!(
            "{} carries no ledger of losses: another recorder wrote it, or something that rewrote it left the ledger out",
            bag.display()
        ))),
        _ if !audit.is_balanced() => Ok(Outcome::Failed),
        AccountKind::Final if audit.shortfall() == 0 && !audit.state.unknown_ends().is_failure() => {
            Ok(Outcome::Done)
        }
        AccountKind::Final | AccountKind::Checkpoint(_) => Ok(Outcome::Lost),
    }
}
