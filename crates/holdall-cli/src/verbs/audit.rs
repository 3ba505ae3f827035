//! `holdall audit`: whether every message that was sent is in the bag or accounted for.

use crate::{
    VerbResult,
    exit::{Failure, Outcome},
    output,
    render::{self, paint::Paint},
    terminal::log,
    typed::audit::AuditArguments,
};
use holdall::reader::{AccountKind, BagAudit, BagReader};
use tracing::{level_filters::LevelFilter, warn};

/// Counts a bag and shows its account.
pub fn run(typed: &AuditArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let bag = BagReader::open(&typed.bag).map_err(Failure::failed)?;
    let audit = BagAudit::of(&bag).map_err(Failure::failed)?;
    for notice in &audit.notices {
        warn!("{notice}");
    }
    output::result(&if typed.json {
        serde_json::to_string_pretty(&render::audit::json(&typed.bag, &audit)).map_err(Failure::failed)?
    } else {
        render::audit::text(&typed.bag, &audit, Paint::stdout())
    })?;
    outcome(&audit, typed)
}

fn outcome(audit: &BagAudit, typed: &AuditArguments) -> VerbResult {
    match audit.account {
        AccountKind::Missing => Err(Failure::refused(format!(
            "{} carries no ledger of losses: another recorder wrote it, or something that rewrote it left the ledger out",
            typed.bag.display()
        ))),
        _ if !audit.is_balanced() => Ok(Outcome::Failed),
        AccountKind::Final if audit.shortfall() == 0 => Ok(Outcome::Done),
        AccountKind::Final | AccountKind::Checkpoint(_) => Ok(Outcome::Lost),
    }
}
