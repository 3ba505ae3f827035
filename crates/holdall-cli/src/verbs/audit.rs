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
    let mut audit = audit.map_err(Failure::failed)?;
    let recoded = Recoding::list_in(&bag.metadata().custom_data);
    audit.notices.extend(differing(&recoded, &bag, &audit));
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

/// Where the bag has other messages than were given another form: one sentence each. What has expired is counted elsewhere.
fn differing(recoded: &[Recoding], bag: &Bag, audit: &BagAudit) -> Vec<String> {
    let is_whole = |recoding: &&Recoding| {
        let mut topics = audit.topics.iter();
        topics.all(|topic| topic.name != recoding.topic || topic.expired == 0)
    };
    let recoded: Vec<Recoding> = recoded.iter().filter(is_whole).cloned().collect();
    let copies = bag.shown_copies();
    Recoding::differences(&recoded, |name, kind| {
        let topics = bag.metadata().topics_with_message_count.iter();
        let counts = topics.filter(|topic| {
            let info = &topic.topic_metadata;
            info.name == name && info.type_name == kind
        });
        let count: u64 = counts.map(|topic| topic.message_count).sum();
        // Its account does not count pictures from before its beginning.
        let copies = copies.iter().filter(|(topic, ..)| topic == name);
        count.saturating_sub(copies.map(|(.., copies)| copies).sum())
    })
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
