//! `holdall catalog` and `holdall find`: tables of many bags, and asking them.

use crate::{
    VerbResult,
    args::catalog::{CatalogArguments, FindArguments},
    exit::{Failure, Outcome},
    output,
    render::tools,
    terminal::log,
    units::{format_count, plural},
};
use holdall::catalog::{Catalog, CatalogError, CatalogReport, FindError, Found, find_columns};
use holdall_model::{text::OutsidePath, time::Timestamp};
use serde_json::Value;
use tracing::{level_filters::LevelFilter, warn};

/// Brings a catalog up to date.
pub fn catalog(args: &CatalogArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let report = Catalog::update(&args.output, &args.roots, &|_, _| {}).map_err(failure)?;
    for bag in &report.unreadable {
        warn!("{}", bag.reason);
    }
    output::result(&if args.json {
        serde_json::to_string_pretty(&report).map_err(Failure::failed)?
    } else {
        text(&report)
    })?;
    Ok(if report.unreadable.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// Lists the bags for which an expression is true.
pub fn find(args: &FindArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let mut catalog = Catalog::open(&args.catalog).map_err(failure)?;
    let found = catalog.find(&args.expression).map_err(|error| match error {
        FindError::Catalog(error) => failure(error),
        error => Failure::refused(error),
    })?;
    if args.json {
        let lines = found
            .into_iter()
            .map(|found| Value::Object(found.columns).to_string());
        return printed(&lines.collect::<Vec<_>>());
    }
    if !args.table || found.is_empty() {
        // A bag is listed once for each of its topics, one after the other.
        let mut paths: Vec<String> = found.into_iter().map(|found| found.bag).collect();
        paths.dedup();
        return printed(&paths);
    }
    let (columns, rows) = table(found);
    output::result(&tools::table(&columns, &rows))?;
    Ok(Outcome::Done)
}

fn printed(lines: &[String]) -> VerbResult {
    if !lines.is_empty() {
        output::result(&lines.join("\n"))?;
    }
    Ok(Outcome::Done)
}

/// The columns that some row has and that fit next to each other, and the rows; times are UTC.
fn table(found: Vec<Found>) -> (Vec<&'static str>, Vec<Value>) {
    const LEFT_OUT: [&str; 8] = [
        "root",
        "name",
        "notice",
        "compression",
        "ros_distro",
        "encrypted",
        "files",
        "topics",
    ];
    const TIMES: [&str; 6] = [
        "start",
        "end",
        "lost_first",
        "lost_last",
        "marker_time",
        "episode_start",
    ];
    let is_shown =
        |name: &&str| !LEFT_OUT.contains(name) && found.iter().any(|found| found.columns.contains_key(*name));
    let columns = find_columns().filter(is_shown).collect();
    let row = |mut found: Found| {
        for name in TIMES {
            if let Some(time) = found.columns.get_mut(name)
                && let Some(nanos) = time.as_i64()
            {
                *time = Timestamp::from_nanos(nanos).to_utc_text().into();
            }
        }
        Value::Object(found.columns)
    };
    (columns, found.into_iter().map(row).collect())
}

fn text(report: &CatalogReport) -> String {
    let removed = match report.removed {
        0 => String::new(),
        count => format!(", {} gone", format_count(count)),
    };
    let unreadable = match report.unreadable.len() {
        0 => String::new(),
        count => format!(", {count} unreadable"),
    };
    format!(
        "{}: {}, {}; {} read, {} unchanged{removed}{unreadable}",
        OutsidePath(&report.catalog),
        plural(report.bags, "bag"),
        plural(report.messages, "message"),
        format_count(report.read),
        format_count(report.unchanged),
    )
}

fn failure(error: CatalogError) -> Failure {
    if error.is_refusal() {
        Failure::refused(error)
    } else {
        Failure::failed(error)
    }
}
