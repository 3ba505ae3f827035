//! `holdall contract`: makes, explains and tries contracts.

use super::input;
use crate::{
    VerbResult,
    args::contract::ContractWhat,
    exit::{Failure, Outcome},
    output,
    render::{contract, tools::table},
    terminal::log,
};
use holdall::{reader::Bag, tools};
use holdall_model::contract::{Contract, json_schema, sentence};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tracing::level_filters::LevelFilter;

/// Reads a contract.
pub fn read(path: &Path) -> Result<Arc<Contract>, Failure> {
    tools::contract::read(path).map_err(Failure::refused)
}

/// Makes, explains or tries a contract.
pub fn run(what: &ContractWhat) -> VerbResult {
    log::start(LevelFilter::WARN);
    match what {
        ContractWhat::Init { bags } => {
            let bags = open(bags)?;
            output::result(&tools::contract::learn(&bags).map_err(Failure::failed)?)?;
        }
        ContractWhat::Explain { contract, json } => {
            let contract = read(contract)?;
            let lines = contract.rules.iter().map(|rule| match json {
                true => json!({"line": rule.line, "kind": rule.kind(), "text": sentence(rule)}).to_string(),
                false => sentence(rule),
            });
            output::result(&lines.collect::<Vec<_>>().join("\n"))?;
        }
        ContractWhat::Test { contract, bags, json } => return test(contract, bags, *json),
        ContractWhat::Lint { contract } => {
            let contract = read(contract)?;
            let found = tools::contract::lint(&contract);
            if !found.is_empty() {
                output::result(&found.join("\n"))?;
                return Ok(Outcome::Failed);
            }
        }
        ContractWhat::Schema => output::result(&format!("{:#}", json_schema()))?,
    }
    Ok(Outcome::Done)
}

fn open(paths: &[PathBuf]) -> Result<Vec<Bag>, Failure> {
    let named = input::resolve(paths)?;
    let bags = named.paths.iter().map(Bag::open);
    bags.map(|bag| bag.map_err(|error| Failure::opening(error, &named.paths)))
        .collect()
}

fn test(path: &Path, bags: &[PathBuf], json: bool) -> VerbResult {
    let contract = read(path)?;
    let mut verdicts = Vec::new();
    for bag in open(bags)? {
        let verdict = tools::contract::judge(&bag, Arc::clone(&contract)).map_err(Failure::failed)?;
        verdicts.push((bag.path().to_owned(), verdict));
    }
    if json {
        let lines = verdicts
            .iter()
            .map(|(path, verdict)| json!({"bag": path, "verdict": verdict}).to_string());
        output::result(&lines.collect::<Vec<_>>().join("\n"))?;
        return Ok(Outcome::Done);
    }
    let columns = ["rule", "passed", "warned", "unknown", "failed", "first"];
    let rows = contract::by_rule(&contract, &verdicts);
    output::result(&table(&columns, &rows))?;
    Ok(Outcome::Done)
}
