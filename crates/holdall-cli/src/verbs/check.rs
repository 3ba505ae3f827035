//! `holdall check`: reads bags completely and reports their faults.

use super::{contract, input};
use crate::{
    VerbResult,
    args::check::CheckArguments,
    exit::{Failure, Outcome},
    output,
    render::{check, contract as render, paint::Paint},
    terminal::{log, progress::Progress},
};
use holdall::{reader::Bag, tools};
use holdall_model::contract::{Contract, Outcome as Judged, Verdict};
use serde_json::json;
use std::{path::Path, sync::Arc};
use tracing::level_filters::LevelFilter;

/// Checks each bag; exit code 1 when something is wrong with one, 4 when only the contract fails.
pub fn run(args: &CheckArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let contract = args
        .contract
        .contract
        .as_deref()
        .map(contract::read)
        .transpose()?;
    let mut outcome = Outcome::Done;
    let named = input::resolve(&args.bags)?;
    for path in &named.paths {
        let progress = Progress::of_bytes(&format!("checking {}", path.display()));
        let found = holdall::tools::check::check(path, &mut |done, total| progress.show(done, total));
        drop(progress);
        let found = found.map_err(|error| Failure::opening(error, &named.paths))?;
        let verdict = contract
            .as_ref()
            .map(|contract| judged(path, contract))
            .transpose()?;
        if !found.is_sound() {
            outcome = outcome.or_worse(Outcome::Failed);
        } else if verdict
            .as_ref()
            .is_some_and(|verdict| verdict.outcome == Judged::Failed)
        {
            outcome = outcome.or_worse(Outcome::Broken);
        }
        output::result(&if args.json {
            let mut json = check::json(&found);
            if let Some(verdict) = &verdict {
                json["contract"] = json!(verdict);
            }
            json.to_string()
        } else {
            let mut text = check::text(&found, Paint::stdout());
            if let (Some(contract), Some(verdict)) = (&contract, &verdict) {
                text.push_str(&render::text(contract, verdict, Paint::stdout()));
            }
            text
        })?;
    }
    Ok(outcome)
}

fn judged(path: &Path, contract: &Arc<Contract>) -> Result<Verdict, Failure> {
    let bag = Bag::open(path).map_err(Failure::failed)?;
    tools::contract::judge(&bag, Arc::clone(contract)).map_err(Failure::failed)
}
