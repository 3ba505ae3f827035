//! `holdall check`: reads bags completely and reports their faults.

use super::{contract, input, migrate};
use crate::{
    VerbResult,
    args::check::{CheckArguments, CheckProfile},
    exit::{Failure, Outcome},
    output,
    render::{check, contract as render, migrate as types, paint::Paint},
    terminal::{log, progress::Progress},
};
use holdall::{
    reader::{Bag, BagSet},
    tools::{
        self,
        migrate::{NewDefinitions, compare},
    },
};
use holdall_model::{
    contract::{Contract, Outcome as Judged, Verdict},
    dynamic::migrate::Compared,
    lake::{LakeGrade, LakeVerdict},
    topic::TopicInfo,
};
use serde_json::json;
use std::{path::Path, sync::Arc};
use tracing::level_filters::LevelFilter;

/// Checks each bag; exit code 1 when something is wrong with one or its types are not known to be the same, 4 when only the contract fails.
pub fn run(args: &CheckArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let contract = args
        .contract
        .contract
        .as_deref()
        .map(contract::read)
        .transpose()?;
    let target = (!args.target.is_empty())
        .then(|| migrate::target(&args.target))
        .transpose()?;
    let mut outcome = Outcome::Done;
    let named = input::resolve(&args.bags)?;
    for path in &named.paths {
        let progress = Progress::of_bytes(&format!("checking {}", path.display()));
        let found = holdall::tools::check::check(path, &mut |done, total| progress.show(done, total));
        drop(progress);
        let found = found.map_err(|error| Failure::opening(error, &named.paths))?;
        let verdict = contract.as_ref().map(|contract| judged(path, contract));
        let verdict = verdict.transpose()?;
        // One that cannot be opened has its findings.
        let target = target.as_ref().filter(|_| found.state.is_some());
        let compared = target.map_or(Ok(None), |target| definitions(path, args, target).map(Some));
        // What was found of the bag is shown before definitions that cannot be used end it.
        let (compared, unusable) = compared.map_or_else(|failure| (None, Err(failure)), |one| (one, Ok(())));
        let is_other =
            |(_, compared): &(_, Compared)| matches!(compared, Compared::Other(_) | Compared::Undefined);
        if compared.iter().flatten().any(is_other) {
            outcome = outcome.or_worse(Outcome::Different);
        }
        let is_graded = args.profile == Some(CheckProfile::Lake) && found.is_sound();
        let lake = is_graded.then(|| graded(path)).transpose()?;
        if !found.is_sound() {
            outcome = outcome.or_worse(Outcome::Failed);
        } else if verdict
            .as_ref()
            .is_some_and(|verdict| verdict.outcome == Judged::Failed)
            || lake.as_ref().is_some_and(|lake| lake.grade > LakeGrade::B)
        {
            outcome = outcome.or_worse(Outcome::Broken);
        }
        output::result(&if args.json {
            let mut json = check::json(&found);
            if let Some(verdict) = &verdict {
                json["contract"] = json!(verdict);
            }
            if let Some(compared) = &compared {
                json["definitions"] = types::json(compared);
            }
            if let Some(lake) = &lake {
                json["lake"] = json!(lake);
            }
            json.to_string()
        } else {
            let mut text = check::text(&found, Paint::stdout());
            if let (Some(contract), Some(verdict)) = (&contract, &verdict) {
                text.push_str(&render::text(contract, verdict, Paint::stdout()));
            }
            if let Some(compared) = &compared {
                text.push_str(&types::text(compared, Paint::stdout()));
            }
            if let Some(lake) = &lake {
                text.push_str(&check::lake(lake, Paint::stdout()));
            }
            text
        })?;
        unusable?;
    }
    Ok(outcome)
}

fn definitions(
    path: &Path,
    args: &CheckArguments,
    new: &NewDefinitions,
) -> Result<Vec<(TopicInfo, Compared)>, Failure> {
    let bag = Bag::open(path).map_err(Failure::failed)?;
    let set = BagSet::from(vec![migrate::with_old(bag, &args.target)?]);
    compare(&set, new).map_err(|error| Failure::making(error, &args.bags))
}

fn graded(path: &Path) -> Result<LakeVerdict, Failure> {
    let progress = Progress::of_bytes(&format!("grading {}", path.display()));
    let bag = Bag::open(path).map_err(Failure::failed)?;
    let verdict = tools::lake::judge(&bag, &mut |done, total| progress.show(done, total));
    verdict.map_err(Failure::failed)
}

fn judged(path: &Path, contract: &Arc<Contract>) -> Result<Verdict, Failure> {
    let bag = Bag::open(path).map_err(Failure::failed)?;
    tools::contract::judge(&bag, Arc::clone(contract)).map_err(Failure::failed)
}
