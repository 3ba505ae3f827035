//! `holdall audit`: whether every message that was sent is in the bag or accounted for.

use crate::{
    VerbResult,
    args::audit::AuditArguments,
    exit::{Failure, Outcome},
    output,
    render::{self, paint::Paint},
    terminal::log,
};
use holdall::reader::{AccountKind, Bag, BagAudit};
use tracing::{level_filters::LevelFilter, warn};

/// Counts a bag and shows its account.
pub fn run(args: &AuditArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let bag =
        Bag::open(&args.bag).map_err(|error| Failure::opening(error, std::slice::from_ref(&args.bag)))?;
    let audit = BagAudit::of(&bag).map_err(Failure::failed)?;
    for notice in &audit.notices {
        warn!("{notice}");
    }
    output::result(&if args.json {
        serde_json::to_string_pretty(&render::audit::json(&args.bag, &audit)).map_err(Failure::failed)?
    } else {
        render::audit::text(&args.bag, &audit, Paint::stdout())
    })?;
    outcome(&audit, args)
}

fn outcome(audit: &BagAudit, args: &AuditArguments) -> VerbResult {
    match audit.account {
        AccountKind::Missing => Err(Failure::refused(format!(
            "{} carries no ledger of losses: another recorder wrote it, or something that rewrote it left the ledger out",
            args.bag.display()
        ))),
        _ if !audit.is_balanced() => Ok(Outcome::Failed),
        AccountKind::Final if audit.shortfall() == 0 => Ok(Outcome::Done),
        AccountKind::Final | AccountKind::Checkpoint(_) => Ok(Outcome::Lost),
    }
}
