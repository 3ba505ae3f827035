//! Two results of the same experiment side by side: the changes, and whether the measurement supports them.

use super::{Loaded, Results, storages::is_place_of};
use crate::{
    chart::{Bars, Chart},
    engine::UNSUPPORTED,
    error::{BenchError, BenchResult},
    kinds::storage::{Cell, batch_label},
    middleware::{Cell as MiddlewareCell, cells},
    sheet::{Column, Sheet},
    statistics::Estimate,
    suite::{
        config::RecorderKind,
        table::{Row, cache, rows},
    },
};
use holdall_model::units::GIB;

/// A row that both results have.
pub(super) struct Change {
    case: String,
    /// Recorder, storage and cache.
    setting: String,
    /// Messages recorded in percent, there and here.
    recorded: [Estimate; 2],
    /// Processor time of the recorder for each GiB, there and here.
    cpu_s_per_gib: [Estimate; 2],
}

/// The rows of `here` that `there` also has.
pub(super) fn changes(here: &Loaded, there: &Loaded) -> Vec<Change> {
    changes_of(here, there, |row| row.setting.recorder != RecorderKind::Discard)
}

fn changes_of(here: &Loaded, there: &Loaded, wants: impl Fn(&Row<'_>) -> bool) -> Vec<Change> {
    let others = rows(&there.result, there.experiment.as_ref());
    rows(&here.result, here.experiment.as_ref())
        .into_iter()
        .filter(|row| wants(row))
        .filter_map(|row| {
            let is_same = |other: &&Row<'_>| {
                other.case == row.case && other.setting == row.setting && other.recorder == row.recorder
            };
            change(&row, others.iter().find(is_same)?)
        })
        .collect()
}

/// `None` only without a run; each row has one.
fn change(here: &Row<'_>, there: &Row<'_>) -> Option<Change> {
    let cpu = |row: &Row<'_>| {
        let runs = row.runs.iter().filter(|run| run.counts.recorded_bytes > 0);
        let each: Vec<f64> = runs
            .map(|run| run.cost.recorder_cpu_s / (run.counts.recorded_bytes as f64 / GIB))
            .collect();
        Estimate::of(&each, 1)
    };
    Some(Change {
        case: here.case.to_owned(),
        setting: format!("{} · {} · {}", here.recorder, here.storage(), cache(here.setting)),
        recorded: [there.recorded_percent.clone(), here.recorded_percent.clone()],
        cpu_s_per_gib: [cpu(there)?, cpu(here)?],
    })
}

/// A figure that two results have, better where it is larger.
struct Pair {
    /// Its place: experiment, case, setting.
    name: String,
    /// There and here.
    ends: [Estimate; 2],
    /// Its unit, and what it counts.
    unit: &'static str,
}

/// What is less here than there, by intervals that do not meet: a sentence each. Of recorders holdall's recorded share counts, of storages the ratio to
/// their rivals, of middlewares the messages received.
///
/// # Errors
/// Results without any figure that both have often enough for an interval: they show nothing.
pub fn worse(here: &Results, there: &Results) -> BenchResult<Vec<String>> {
    let all = recorded(here, there)
        .chain(ratios(here, there))
        .chain(received(here, there));
    let has_intervals = |pair: &Pair| pair.ends.iter().all(|one| one.interval.is_some());
    let compared: Vec<Pair> = all.filter(has_intervals).collect();
    if compared.is_empty() {
        let expected = "a row that both have with three repetitions or more";
        return Err(BenchError::option("--fail-if-worse", expected, "none"));
    }
    let is_worse = |pair: &&Pair| verdict(&pair.ends, true) == "worse";
    let sentence = |pair: &Pair| {
        let [there, here] = pair.ends.each_ref().map(|one| one.text(2, ""));
        format!("{}: {here} {}, before {there}", pair.name, pair.unit)
    };
    Ok(compared.iter().filter(is_worse).map(sentence).collect())
}

fn recorded<'a>(here: &'a Results, there: &'a Results) -> impl Iterator<Item = Pair> + 'a {
    let ours = |row: &Row<'_>| row.setting.recorder == RecorderKind::Holdall;
    here.experiments.iter().flat_map(move |one| {
        let id = &one.result.experiment;
        let others = there
            .experiments
            .iter()
            .filter(|other| other.result.experiment == *id);
        let changes = others.flat_map(move |other| changes_of(one, other, ours));
        changes.map(move |change| Pair {
            name: format!("{id}: {}, {}", change.case, change.setting),
            ends: change.recorded,
            unit: "% recorded",
        })
    })
}

fn ratios<'a>(here: &'a Results, there: &'a Results) -> impl Iterator<Item = Pair> + 'a {
    here.storages.iter().flat_map(move |one| {
        let others = there.storages.iter().filter(|other| other.id == one.id);
        let others = others.flat_map(|other| &other.result.body.cells);
        others.filter_map(move |before| {
            let is_same = |cell: &&Cell| is_place_of(cell, before) && cell.rival == before.rival;
            let now = one.result.body.cells.iter().find(is_same)?;
            let (size, name, batch) = (&now.messages, &now.plugin_config, batch_label(now.batch_size));
            Some(Pair {
                name: format!("{}: {name}, {size} in batches of {batch}", one.id),
                ends: [before.ratio_to_rival.clone()?, now.ratio_to_rival.clone()?],
                unit: "times its rival's rate",
            })
        })
    })
}

fn received<'a>(here: &'a Results, there: &'a Results) -> impl Iterator<Item = Pair> + 'a {
    here.evaluations.iter().flat_map(move |one| {
        let id = &one.result.experiment;
        let others = there
            .evaluations
            .iter()
            .filter(|other| other.result.experiment == *id);
        let before: Vec<_> = others.flat_map(|other| cells(&other.result)).collect();
        cells(&one.result).into_iter().filter_map(move |now| {
            let place = (now.case, now.link, &now.middleware);
            let is_same = |cell: &&MiddlewareCell<'_>| (cell.case, cell.link, &cell.middleware) == place;
            let before = before.iter().find(is_same)?;
            Some(Pair {
                name: format!("{id}: {}, {}, {}", now.case, now.link, now.middleware),
                ends: [before.received()?, now.received()?],
                unit: "received a second",
            })
        })
    })
}

/// The recorded share here and, thin and grey, in the other folder; then processor time for each GiB in the
/// same way.
pub(super) fn charts(changes: &[Change]) -> Vec<Chart> {
    type Pick = fn(&Change) -> &[Estimate; 2];
    let one = |name: &str, title: &str, pick: Pick, mut bars: Bars, columns: [&str; 2]| {
        for change in changes {
            let [there, here] = pick(change);
            bars.add((&change.case, &change.setting), 0, Some(here), Some(there));
        }
        bars.chart(name, title, ["case", "setting", columns[0], columns[1]])
    };
    let recorded = one(
        "compared_recorded",
        "Messages recorded, in percent; grey: the other folder",
        |change| &change.recorded,
        Bars::new("%", 1, 100.0),
        ["here_recorded_percent", "there_recorded_percent"],
    );
    let cpu = one(
        "compared_cpu",
        "Processor time of the recorder for each GiB recorded; grey: the other folder",
        |change| &change.cpu_s_per_gib,
        Bars::new("s", 3, 0.1),
        ["here_cpu_s_per_gib", "there_cpu_s_per_gib"],
    );
    recorded.into_iter().chain(cpu).collect()
}

/// The changes as a table.
pub(super) fn sheet(changes: &[Change], there: &Loaded) -> Sheet {
    let columns: [Column<Change>; 8] = [
        ("case", |change| change.case.clone()),
        ("setting", |change| change.setting.clone()),
        ("recorded there", |change| change.recorded[0].text(2, "")),
        ("here", |change| change.recorded[1].text(2, "")),
        ("", |change| verdict(&change.recorded, true)),
        ("CPU s/GiB there", |change| change.cpu_s_per_gib[0].text(3, "")),
        ("here", |change| change.cpu_s_per_gib[1].text(3, "")),
        ("", |change| verdict(&change.cpu_s_per_gib, false)),
    ];
    let title = format!("Compared with {}", there.folder.display());
    Sheet::of(&title, 2, &columns, changes)
}

/// Whether the measurement supports a change: the intervals are disjoint.
fn verdict([there, here]: &[Estimate; 2], more_is_better: bool) -> String {
    let is_carried = there
        .interval
        .zip(here.interval)
        .is_some_and(|(there, here)| here.high < there.low || there.high < here.low);
    let is_better = (here.median > there.median) == more_is_better;
    let word = if is_better { "better" } else { "worse" };
    (if is_carried { word } else { UNSUPPORTED }).to_owned()
}
