//! The plots of an experiment as SVG with their data: bars of recorded messages, loss over load, processors
//! over time, latencies.

mod bars;
pub(crate) mod lines;
mod loss;
mod over_time;
pub(crate) mod picture;
mod time;

use super::{Loaded, compare::Change};
use crate::{
    engine::Csv,
    measure::LatencySummary,
    statistics::Estimate,
    suite::{
        config::{RecorderKind, Transport},
        result::RunResult,
        table::{Row, cache, rows},
    },
};
pub(crate) use bars::{Bar, Chart};
pub(crate) use holdall::plot::Painter;
use holdall_model::units::format_bytes;
use lines::{Axes, LOG_MIN, Line};
use picture::Colour;
use std::fmt::{Display, Write};

/// Series, distinguished by hue and brightness.
const SERIES: [Colour; 8] = [
    Colour(0x00, 0x72, 0xB2),
    Colour(0xE6, 0x9F, 0x00),
    Colour(0x00, 0x9E, 0x73),
    Colour(0xCC, 0x79, 0xA7),
    Colour(0x56, 0xB4, 0xE9),
    Colour(0xD5, 0x5E, 0x00),
    Colour(0x6A, 0x3D, 0x9A),
    Colour(0x8C, 0x6D, 0x31),
];

/// The colour of a series or a part.
pub(crate) fn colour(place: usize) -> Colour {
    SERIES[place % SERIES.len()]
}

/// One plot.
pub struct Plot {
    /// Part of its file names.
    pub name: String,
    /// Its subject, one sentence.
    pub title: String,
    /// The picture.
    pub svg: String,
    /// Its data as CSV.
    pub csv: String,
}

/// All plots for which there is data.
pub fn of(loaded: &Loaded) -> Vec<Plot> {
    let experiment = loaded.experiment.as_ref();
    let rows = rows(&loaded.result, experiment);
    let mut plots = Vec::new();
    let ladders = loss::ladders(&rows, experiment);
    plots.extend(generator(&rows));
    if ladders.is_empty() {
        plots.extend(recorded(&rows));
        plots.extend(loss::against_load(&rows));
    }
    plots.extend(ladders);
    plots.extend(time::plot(&rows));
    plots.extend(latencies(&rows));
    plots.extend(lateness(&rows));
    plots.extend(over_time::of(&rows));
    plots
}

/// Recorder, storage, cache and everything else special about a row, without its case.
fn label(row: &Row<'_>) -> String {
    let setting = row.setting;
    if setting.recorder == RecorderKind::Discard {
        return row.recorder.clone();
    }
    let mut text = format!("{} · {} · {}", row.recorder, row.storage(), cache(setting));
    if let Some(bytes) = setting.max_bag_size_bytes {
        let _never_fails = write!(text, " · split {}", format_bytes(bytes)).is_ok();
    }
    text
}

/// A horizontal bar for each row, with its interval; the published figure as a thin bar below it.
fn recorded(rows: &[Row<'_>]) -> Option<Plot> {
    let mut chart = Chart::new(
        ("%", 1, 100.0),
        &[
            "case",
            "setting",
            "recorded_percent",
            "low",
            "high",
            "published_percent",
        ],
    );
    let recorded = rows
        .iter()
        .filter(|row| row.setting.play_rate.is_none() && row.setting.recorder != RecorderKind::Discard);
    let mut recorders: Vec<&str> = Vec::new();
    for row in recorded {
        let known = recorders.iter().position(|one| *one == row.recorder);
        let series = known.unwrap_or(recorders.len());
        if known.is_none() {
            recorders.push(&row.recorder);
        }
        let (name, estimate) = (label(row), row.recorded_percent.clone());
        let ((low, high), median) = (estimate.ends(), estimate.median);
        let published = row.published_percent.map(|percent| percent.to_string());
        let bar = Bar {
            other: row.published_percent.map(Estimate::exactly),
            ..Bar::new(name.clone(), series, estimate)
        };
        let published = published.unwrap_or_default();
        chart.add(
            row.case,
            bar,
            &[&row.case, &name, &median, &low, &high, &published],
        );
    }
    chart.plot_with_published("recorded", "Messages recorded, in percent")
}

/// The cost of the generator itself, without a recorder.
fn generator(rows: &[Row<'_>]) -> Option<Plot> {
    let mut chart = Chart::new(("%", 1, 10.0), &["case", "percent_of_one_processor"]);
    let alone = rows
        .iter()
        .filter(|row| row.setting.recorder == RecorderKind::Discard)
        .filter(|row| row.runs.iter().all(|run| run.transport == Transport::None));
    for row in alone {
        let share = |run: &&RunResult| 100.0 * run.producer_cpu_s / run.sending_s.max(1e-9);
        let each: Vec<f64> = row.runs.iter().map(share).collect();
        if let Some(estimate) = Estimate::of(&each, 1) {
            let median = estimate.median;
            let bar = Bar::new(row.case, 0, estimate);
            chart.add("The generator alone", bar, &[&row.case, &median]);
        }
    }
    chart.plot(
        "generator",
        "Cost of the generator itself, in percent of one processor",
    )
}

/// The recorded share here and, thin and grey, in the other folder; then processor time for each GiB in the
/// same way.
pub(crate) fn of_changes(changes: &[Change]) -> Vec<Plot> {
    type Pick = fn(&Change) -> &[Estimate; 2];
    let one = |name: &str, title: &str, pick: Pick, scale, columns: [&str; 4]| {
        let mut chart = Chart::new(scale, &columns);
        for change in changes {
            let [there, here] = pick(change);
            let bar = Bar {
                other: Some(there.clone()),
                ..Bar::new(change.setting.clone(), 0, here.clone())
            };
            let row: [&dyn Display; 4] = [&change.case, &change.setting, &there.median, &here.median];
            chart.add(&change.case, bar, &row);
        }
        chart.plot(name, title)
    };
    let recorded = one(
        "compared_recorded",
        "Messages recorded, in percent; grey: the other folder",
        |change| &change.recorded,
        ("%", 1, 100.0),
        [
            "case",
            "setting",
            "there_recorded_percent",
            "here_recorded_percent",
        ],
    );
    let cpu = one(
        "compared_cpu",
        "Processor time of the recorder for each GiB recorded; grey: the other folder",
        |change| &change.cpu_s_per_gib,
        ("s", 3, 0.1),
        ["case", "setting", "there_cpu_s_per_gib", "here_cpu_s_per_gib"],
    );
    recorded.into_iter().chain(cpu).collect()
}

/// Percentiles along the axis of latency plots.
const PLACES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "worst"];

/// Offer latencies by percentile; `None` if nothing was timed.
fn latencies(rows: &[Row<'_>]) -> Option<Plot> {
    percentiles(
        rows,
        &|run| run.offer,
        (
            "offer",
            "time of an offer, µs",
            "How long offering a message takes, by percentile (first repetition)",
        ),
    )
}

/// How late playback was, by percentile; `None` if nothing was played.
fn lateness(rows: &[Row<'_>]) -> Option<Plot> {
    percentiles(
        rows,
        &|run| run.playback?.lateness,
        (
            "lateness",
            "later than planned, µs",
            "How much later than planned messages were played (first repetition)",
        ),
    )
}

fn percentiles(
    rows: &[Row<'_>],
    pick: &dyn Fn(&RunResult) -> Option<LatencySummary>,
    (name, axis, title): (&str, &str, &str),
) -> Option<Plot> {
    let plays = name == "lateness";
    let timed: Vec<(&Row<'_>, [f64; 5])> = rows
        .iter()
        .filter(|row| row.setting.play_rate.is_some() == plays)
        .filter_map(|row| {
            let one = pick(row.runs.first()?)?;
            let nanos = [one.p50_ns, one.p99_ns, one.p99_9_ns, one.p99_99_ns, one.max_ns];
            Some((row, nanos.map(|nanos| nanos as f64 / 1e3)))
        })
        .collect();
    // More lines than colours cannot be distinguished: the heaviest load is drawn, the data have all.
    let offered = |row: &Row<'_>| row.median(|run| run.offered_bytes_per_s);
    let heaviest = timed
        .iter()
        .max_by(|a, b| offered(a.0).total_cmp(&offered(b.0)))
        .map(|(row, _)| row.case)?;
    let drawn = timed.iter().filter(|(row, _)| row.case == heaviest);
    let lines: Vec<Line> = drawn
        .take(SERIES.len())
        .enumerate()
        .map(|(place, (row, micros))| Line {
            colour: Some(place),
            name: label(row),
            points: (0..5)
                .map(f64::from)
                .zip(micros.map(|one| one.max(LOG_MIN)))
                .collect(),
            dotted: true,
        })
        .collect();
    let points = lines.iter().flat_map(|line| &line.points);
    let worst = points.map(|point| point.1).fold(1.0, f64::max);
    let axes = Axes {
        x: (0.0..4.0, ""),
        y: (LOG_MIN..worst * 2.0, axis),
        places: &PLACES,
        is_log: true,
        ..Axes::around(&lines, "", axis)
    };
    let columns = PLACES.map(|place| format!("{place}_us"));
    let mut csv = Csv::of(["case", "setting"].map(str::to_owned).into_iter().chain(columns));
    for (row, micros) in &timed {
        let names = [row.case.to_owned(), label(row)];
        csv.cells(names.into_iter().chain(micros.map(|micros| micros.to_string())));
    }
    Some(lines::plot(
        name,
        format!("{title}: {heaviest}"),
        (&lines, &axes),
        csv,
    ))
}

/// A plot by itself: on white, because no page sets its theme.
pub(crate) fn standalone(svg: &str) -> String {
    svg.replacen('>', "><rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>", 1)
}
