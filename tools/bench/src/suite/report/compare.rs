//! Two results of the same experiment side by side: the changes, and whether the measurement supports them.

use super::Loaded;
use crate::{
    statistics::{Estimate, Interval},
    suite::{
        config::RecorderKind,
        table::{Row, cache, rows},
    },
};
use holdall_model::units::GIB;

/// A row that both results have.
pub struct Change {
    /// The case.
    pub case: String,
    /// Recorder, storage and cache.
    pub setting: String,
    /// Messages recorded in percent, there and here.
    pub recorded: [Estimate; 2],
    /// Processor time of the recorder for each GiB, there and here.
    pub cpu_s_per_gib: [Estimate; 2],
    /// Whether the intervals of `recorded` are disjoint.
    pub is_carried: bool,
    /// Whether the intervals of the processor time are disjoint.
    pub is_cpu_carried: bool,
}

/// The rows of `here` that `there` also has.
pub fn changes(here: &Loaded, there: &Loaded) -> Vec<Change> {
    let others = rows(&there.result, there.experiment.as_ref());
    rows(&here.result, here.experiment.as_ref())
        .into_iter()
        .filter(|row| row.setting.recorder != RecorderKind::Discard)
        .filter_map(|row| {
            let other = others.iter().find(|other| {
                other.case == row.case && other.setting == row.setting && other.recorder == row.recorder
            })?;
            change(&row, other)
        })
        .collect()
}

/// `None` only without a run; each row has one.
fn change(here: &Row<'_>, there: &Row<'_>) -> Option<Change> {
    let cpu = |row: &Row<'_>| {
        let runs = row.runs.iter().filter(|run| run.recorded_bytes > 0);
        let each: Vec<f64> = runs
            .map(|run| run.recorder_cpu_s / (run.recorded_bytes as f64 / GIB))
            .collect();
        Estimate::of(&each, 1)
    };
    let cpu_s_per_gib = [cpu(there)?, cpu(here)?];
    Some(Change {
        case: here.case.to_owned(),
        setting: format!("{} · {} · {}", here.recorder, here.storage(), cache(here.setting)),
        is_carried: apart(&here.recorded_percent, &there.recorded_percent),
        recorded: [there.recorded_percent.clone(), here.recorded_percent.clone()],
        is_cpu_carried: apart(&cpu_s_per_gib[0], &cpu_s_per_gib[1]),
        cpu_s_per_gib,
    })
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
