//! Processors and processes over time, runs back to back.

use super::{
    Plot, label,
    lines::{self, Axes, Line},
};
use crate::{
    engine::Csv,
    suite::{config::PlayRate, result::RunResult, table::Row},
};

/// More runs than this side by side cannot be distinguished.
const BACK_TO_BACK_MAX: usize = 2;

/// In an experiment with more settings than this only the longest run is drawn over time.
const DRAWN_OVER_TIME_MAX: usize = 4;

/// Processors, and any processes, over time: of every setting where there are few, else of the longest run.
pub(super) fn of(rows: &[Row<'_>]) -> Vec<Plot> {
    let mut long: Vec<&Row<'_>> = rows
        .iter()
        .filter(|row| row.runs.iter().any(|run| run.cores.len() > 2))
        .filter(|row| {
            row.setting
                .play_rate
                .is_none_or(|rate| rate == PlayRate::Unlimited)
        })
        .collect();
    if long.len() > DRAWN_OVER_TIME_MAX {
        let elapsed = |row: &&Row<'_>| row.median(|run| run.elapsed_s);
        long.sort_by(|a, b| elapsed(b).total_cmp(&elapsed(a)));
        long.truncate(1);
    }
    let mut plots = Vec::new();
    for (row, place) in long.iter().zip(1..) {
        let runs = &row.runs[..row.runs.len().min(BACK_TO_BACK_MAX)];
        let of_what = format!("{}, {}", row.case, label(row));
        let cores = runs[0].core_percents().len();
        let core = |run: &RunResult, core: usize| -> Vec<(f64, f64)> {
            let samples = run.cores.iter();
            samples
                .filter_map(|sample| Some((sample.at_s, 100.0 * sample.busy.get(core)?)))
                .collect()
        };
        let names = (0..cores).map(|core| format!("core {core}")).collect();
        plots.push(back_to_back(
            runs,
            names,
            &core,
            (format!("cores_{place}"), "busy, %"),
            format!("How busy each processor was: {of_what}"),
        ));
        if runs.iter().any(|run| run.processes.is_empty()) {
            continue;
        }
        let names = runs[0].processes.iter().map(|one| one.name.clone()).collect();
        let process = |run: &RunResult, process: usize| -> Vec<(f64, f64)> {
            let samples = run.processes.get(process).map_or(&[][..], |one| &one.samples);
            samples
                .iter()
                .map(|sample| (sample.at_s, 100.0 * sample.busy))
                .collect()
        };
        plots.push(back_to_back(
            runs,
            names,
            &process,
            (format!("processes_{place}"), "% of one processor"),
            format!("Recorder and publishers: {of_what}"),
        ));
    }
    plots
}

/// Seconds and percent of a run's line with this place.
type PointsOf<'a> = dyn Fn(&RunResult, usize) -> Vec<(f64, f64)> + 'a;

/// Runs one after the other along one axis, like the published plots of core load.
fn back_to_back(
    runs: &[&RunResult],
    names: Vec<String>,
    points: &PointsOf<'_>,
    (name, axis): (String, &str),
    title: String,
) -> Plot {
    let mut lines: Vec<Line> = names
        .into_iter()
        .enumerate()
        .map(|(place, name)| Line {
            name,
            points: Vec::new(),
            dotted: false,
            colour: Some(place),
        })
        .collect();
    let (mut begun_s, mut borders) = (0.0, Vec::new());
    let mut csv = Csv::of(["run", "line", "seconds", "percent"]);
    for (run, number) in runs.iter().zip(1..) {
        let mut end_s: f64 = 0.0;
        for (index, line) in lines.iter_mut().enumerate() {
            for (at_s, percent) in points(run, index) {
                end_s = end_s.max(at_s);
                line.points.push((begun_s + at_s, percent));
                let figures = (format!("{at_s:.3}"), format!("{percent:.1}"));
                csv.row(&[&number, &line.name, &figures.0, &figures.1]);
            }
        }
        begun_s += end_s;
        borders.push(begun_s);
    }
    borders.pop();
    let axes = Axes::around(&lines, "seconds, runs back to back", axis);
    let axes = Axes {
        y: (0.0..axes.y.0.end.max(105.0), axis),
        borders: &borders,
        ..axes
    };
    lines::plot(name, title, (&lines, &axes), csv)
}
