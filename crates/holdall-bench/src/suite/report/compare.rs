//! Two results of the same experiment side by side: what changed, and whether the measurement carries it.

use super::Loaded;
use crate::{
    statistics::{Estimate, Interval},
    suite::table::{Row, rows},
};

/// A row that both results have.
pub struct Change {
    /// The case.
    pub case: String,
    /// Recorder, storage and cache.
    pub setting: String,
    /// Messages recorded in percent, there and here.
    pub recorded: [Estimate; 2],
    /// Processor time of the recorder for each GB, there and here.
    pub cpu_s_per_gb: [f64; 2],
    /// Whether the intervals of what was recorded lie apart.
    pub is_carried: bool,
}

/// The rows of `here` that `there` has, too.
pub fn changes(here: &Loaded, there: &Loaded) -> Vec<Change> {
    let others = rows(&there.result, there.experiment.as_ref());
    rows(&here.result, here.experiment.as_ref())
        .into_iter()
        .filter_map(|row| {
            let other = others.iter().find(|other| {
                other.case == row.case && other.setting == row.setting && other.recorder == row.recorder
            })?;
            Some(change(&row, other))
        })
        .collect()
}

fn change(here: &Row<'_>, there: &Row<'_>) -> Change {
    let cpu =
        |row: &Row<'_>| row.median(|run| run.recorder_cpu_s / (run.recorded_bytes as f64 / 1e9).max(1e-9));
    Change {
        case: here.case.to_owned(),
        setting: format!(
            "{}, {}, cache {} MB",
            here.recorder,
            here.setting.storage_id,
            here.setting.max_cache_size_bytes as f64 / 1e6
        ),
        is_carried: apart(&here.recorded_percent, &there.recorded_percent),
        recorded: [there.recorded_percent.clone(), here.recorded_percent.clone()],
        cpu_s_per_gb: [cpu(there), cpu(here)],
    }
}

fn apart(a: &Estimate, b: &Estimate) -> bool {
    match (&a.interval, &b.interval) {
        (
            Some(Interval {
                low: a_low,
                high: a_high,
            }),
            Some(Interval {
                low: b_low,
                high: b_high,
            }),
        ) => a_high < b_low || b_high < a_low,
        _ => false,
    }
}
