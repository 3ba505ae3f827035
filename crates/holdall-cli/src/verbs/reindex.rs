//! `holdall reindex`: recreates the metadata of bags.

use crate::{
    VerbResult,
    args::tools::ReindexArguments,
    exit::{Failure, Outcome},
    output, render,
    terminal::{log, progress::Progress},
};
use tracing::{level_filters::LevelFilter, warn};

/// Reindexes each bag; the exit code is the same as for a repair of the bag.
pub fn run(args: &ReindexArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let mut outcome = Outcome::Done;
    for path in &args.bags {
        let progress = Progress::of_bytes(&format!("reindexing {}", path.display()));
        let done = holdall::tools::reindex(path, &mut |done, total| progress.show(done, total));
        drop(progress);
        let done = done.map_err(|error| Failure::making(error, std::slice::from_ref(path)))?;
        outcome = outcome.or_worse(Outcome::of(done.ending()));
        done.notices.iter().for_each(|notice| warn!("{notice}"));
        output::result(&if args.json {
            render::tools::reindexed_json(&done).to_string()
        } else {
            render::tools::reindexed(&done)
        })?;
    }
    Ok(outcome)
}
