//! Refuses experiments whose largest run does not fit the disk, before anything is written.

use crate::{
    args::RunArguments,
    error::{BenchError, BenchResult},
    suite::config::Experiment,
};
use holdall_io::{
    disk::Disk,
    os::{DiskMode, OsDisk},
};
use std::path::Path;

/// Space that stays free for others.
const SPARE_BYTES: u64 = 1 << 30;

/// Upper bound of a message's size in a bag in addition to its bytes.
const OVERHEAD_BYTES: u64 = 160;

/// Checks `experiment` against the free space below the results' folder, or below its nearest parent that
/// exists.
///
/// # Errors
/// Too little free space.
pub fn check(experiment: &Experiment, args: &RunArguments, out: &Path) -> BenchResult<()> {
    let of_case = |producers: &crate::suite::config::ProducerConfig| {
        producers
            .bytes()
            .saturating_add(producers.messages().saturating_mul(OVERHEAD_BYTES))
    };
    let largest = experiment
        .cases
        .iter()
        .map(|case| of_case(&case.producers))
        .max()
        .unwrap_or(0);
    let all: u64 = experiment
        .cases
        .iter()
        .map(|case| of_case(&case.producers))
        .fold(0, u64::saturating_add);
    let kept: u64 = experiment
        .benchmarks
        .iter()
        .filter(|benchmark| args.keep || benchmark.preserve_bags)
        .map(|benchmark| {
            let runs =
                benchmark.settings.len() as u64 * u64::from(args.repeat.unwrap_or(benchmark.repeat_each));
            all.saturating_mul(runs)
        })
        .fold(0, u64::saturating_add);
    let needed_bytes = largest.max(kept).saturating_add(SPARE_BYTES);
    let place = out
        .ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("."));
    let available_bytes = OsDisk::open(place, DiskMode::Buffered)?.available_bytes(place)?;
    if needed_bytes > available_bytes {
        return Err(BenchError::NoSpace {
            path: out.to_owned(),
            needed_bytes,
            available_bytes,
        });
    }
    Ok(())
}
