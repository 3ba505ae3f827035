//! The plots of an experiment: bars of recorded messages, loss over load, processor time, latencies, processors over time.

use super::Loaded;
use crate::{
    chart::{self, Bars, Chart, LOG_MIN, Line, Lines, REST, SERIES_MAX},
    engine::{distinct, grouped},
    measure::LatencySummary,
    statistics::{Estimate, median},
    suite::{
        config::{Experiment, PlayRate, RecorderKind, Transport},
        result::RunResult,
        table::{Row, cache, rows},
    },
};
use holdall_model::units::{MIB, format_bytes};
use serde_json::Value;
use std::fmt::{Display, Write};

/// All plots for which there is data.
pub fn of(loaded: &Loaded) -> Vec<Chart> {
    let experiment = loaded.experiment.as_ref();
    let rows = rows(&loaded.result, experiment);
    let mut charts = Vec::new();
    let ladders = ladders(&rows, experiment);
    charts.extend(generator(&rows));
    if ladders.is_empty() {
        charts.extend(recorded(&rows));
        charts.extend(against_load(&rows));
    }
    charts.extend(ladders);
    charts.extend(time(&rows));
    charts.extend(percentiles(&rows, &OFFERS));
    charts.extend(percentiles(&rows, &LATENESS));
    charts.extend(over_time(&rows));
    charts
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
    if let Some(slower) = row.slower_text() {
        let _never_fails = write!(text, " · {slower}").is_ok();
    }
    text
}

/// A bar for each row; the published figure as a thin bar below it.
fn recorded(rows: &[Row<'_>]) -> Option<Chart> {
    let is_recorder =
        |row: &&Row<'_>| row.setting.play_rate.is_none() && row.setting.recorder != RecorderKind::Discard;
    let recorders = distinct(rows.iter().filter(is_recorder).map(|row| row.recorder.as_str()));
    let mut bars = Bars::new("%", 1, 100.0);
    for row in rows.iter().filter(is_recorder) {
        let series = recorders.iter().position(|one| *one == row.recorder).unwrap_or(0);
        let published = row.published_percent.map(Estimate::exactly);
        let figure = Some(&row.recorded_percent);
        bars.add((row.case, &label(row)), series, figure, published.as_ref());
    }
    let columns = ["case", "setting", "recorded_percent", "published_percent"];
    bars.chart("recorded", "Messages recorded, in percent", columns)
}

/// The cost of the generator itself, without a recorder.
fn generator(rows: &[Row<'_>]) -> Option<Chart> {
    let mut bars = Bars::new("%", 1, 10.0);
    let mut words = Vec::new();
    let alone = rows
        .iter()
        .filter(|row| row.setting.recorder == RecorderKind::Discard)
        .filter(|row| row.runs.iter().all(|run| run.id.transport == Transport::None));
    for row in alone {
        let share = |run: &&RunResult| 100.0 * run.cost.producer_cpu_s / run.times.sending_s.max(1e-9);
        let each: Vec<f64> = row.runs.iter().map(share).collect();
        let estimate = Estimate::of(&each, 1);
        bars.add(("The generator alone", row.case), 0, estimate.as_ref(), None);
        words.push(chart::row(&[&row.case]));
    }
    let title = "Cost of the generator itself, in percent of one processor";
    let chart = bars.chart("generator", title, ["", "", "percent_of_one_processor", ""])?;
    Some(chart.with_words(&["case"], words))
}

/// A line for each recorder over the loads that were offered; the worst case where several offer the same, the data have all.
fn loss(rows: &[&Row<'_>], name: &str, title: &str) -> (Lines, Chart) {
    let columns: [&dyn Display; 4] = [&"case", &"setting", &"offered_bytes_per_s", &"lost_percent"];
    let mut csv = vec![chart::row(&columns)];
    let points = rows.iter().map(|row| {
        let offered = row.median(|run| run.times.offered_bytes_per_s);
        let lost = 100.0 - row.recorded_percent.median;
        csv.push(chart::row(&[&row.case, &label(row), &offered, &lost]));
        (label(row), (offered / MIB, lost))
    });
    let each = grouped(points.collect::<Vec<_>>(), |(name, _)| name.clone());
    let mut lines = Lines::over("offered, MiB/s", "lost, %");
    for (colour, (name, members)) in each.into_iter().enumerate() {
        let mut points: Vec<_> = members.into_iter().map(|(_, point)| point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points.dedup_by(|later, worst| later.0 == worst.0);
        lines.add(&name, Some(colour), points);
    }
    let chart = lines.clone().chart(name, title, [""; 3]).with_data(csv);
    (lines, chart)
}

/// Loss over load, if any message was lost and more than one load was run.
fn against_load(rows: &[Row<'_>]) -> Option<Chart> {
    let title = "Messages lost against the offered load (the worst where several cases offer the same)";
    let (lines, chart) = loss(&rows.iter().collect::<Vec<_>>(), "loss", title);
    let has_loss = rows.iter().any(|row| row.recorded_percent.median < 100.0);
    (has_loss && lines.lines.iter().any(|line| line.points.len() > 1)).then_some(chart)
}

/// A plot for each ladder of the experiment.
fn ladders(rows: &[Row<'_>], experiment: Option<&Experiment>) -> Vec<Chart> {
    let ladder_of = |case: &str| {
        let cases = experiment.map_or(&[][..], |experiment| &experiment.cases);
        cases.iter().find(|one| one.label == case)?.ladder.as_deref()
    };
    let on_ladder = rows.iter().filter_map(|row| Some((ladder_of(row.case)?, row)));
    let ladders = grouped(on_ladder, |(ladder, _)| *ladder);
    let mut charts = Vec::new();
    for (place, (name, steps)) in ladders.into_iter().enumerate() {
        let steps: Vec<_> = steps.into_iter().map(|(_, row)| row).collect();
        let title = format!("Messages lost against the offered load: {name}");
        charts.push(loss(&steps, &format!("loss_{}", place + 1), &title).1);
    }
    charts
}

/// The parts of the processor time of a run over a transport, with the places of their colours: the kernel's share of each is the lighter one.
const PARTS: [(&str, usize); 5] = [
    ("recorder", 0),
    ("recorder, kernel", 4),
    ("publishers", 5),
    ("publishers, kernel", 1),
    ("rest of the machine", REST),
];

/// Percent of one processor for each of [`PARTS`]; `None` without processes.
fn parts(run: &RunResult) -> Option<[f64; 5]> {
    let of = |name: &str| run.work.processes.iter().find(|one| one.name == name);
    let (recorder, publishers) = (of("recorder")?, of("publishers")?);
    let percent = |seconds: f64| 100.0 * seconds.max(0.0) / run.times.elapsed_s.max(1e-9);
    let mut last_s = 0.0;
    let mut busy_s = 0.0;
    for sample in &run.around.cores {
        busy_s += sample.busy.iter().sum::<f64>() * (sample.at_s - last_s);
        last_s = sample.at_s;
    }
    let [a, b, c, d] = [
        percent(recorder.cpu_s - recorder.cpu_system_s),
        percent(recorder.cpu_system_s),
        percent(publishers.cpu_s - publishers.cpu_system_s),
        percent(publishers.cpu_system_s),
    ];
    // Sampled for longer than the run took: from before its programs existed until after their end.
    let rest = 100.0 * (busy_s - recorder.cpu_s - publishers.cpu_s).max(0.0) / last_s.max(1e-9);
    // Programs of a short run took part of their time before its first message, so their sum could exceed the
    // machine.
    let cores = run.around.cores.iter().map(|sample| sample.busy.len()).max();
    let left = (100.0 * cores.unwrap_or(0) as f64 - (a + b + c + d)).max(0.0);
    Some([a, b, c, d, rest.min(left)])
}

/// Stacked bars of the medians of each part; `None` without processes.
fn time(rows: &[Row<'_>]) -> Option<Chart> {
    let mut bars = Bars::new("%", 0, 100.0);
    bars.parts = PARTS.map(|(name, place)| (name.to_owned(), place)).to_vec();
    for row in rows {
        let runs: Option<Vec<[f64; 5]>> = row.runs.iter().map(|run| parts(run)).collect();
        let Some(runs) = runs else { continue };
        let of_part = |part: usize| median(&runs.iter().map(|one| one[part]).collect::<Vec<_>>());
        let stack: Vec<f64> = (0..PARTS.len()).filter_map(of_part).collect();
        bars.add_stack((row.case, &label(row)), stack);
    }
    let title = "Where the processor time goes, in percent of one processor";
    bars.chart("time", title, ["case", "setting", "", ""])
}

/// Latencies by percentile.
struct Percentiles {
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    of: fn(&RunResult) -> Option<LatencySummary>,
    /// Of runs that are played back, else of the others.
    plays: bool,
}

const OFFERS: Percentiles = Percentiles {
    name: "offer",
    title: "How long offering a message takes, by percentile (first repetition)",
    axis: "time of an offer, µs",
    of: |run| run.work.offer,
    plays: false,
};

const LATENESS: Percentiles = Percentiles {
    name: "lateness",
    title: "How much later than planned messages were played (first repetition)",
    axis: "later than planned, µs",
    of: |run| run.work.playback?.lateness,
    plays: true,
};

/// Percentiles along the axis.
const PLACES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "worst"];

/// `None` if nothing was timed.
fn percentiles(rows: &[Row<'_>], of: &Percentiles) -> Option<Chart> {
    let micros = |row: &Row<'_>| {
        let one = (of.of)(row.runs.first()?)?;
        let nanos = [one.p50_ns, one.p99_ns, one.p99_9_ns, one.p99_99_ns, one.max_ns];
        Some(nanos.map(|nanos| nanos as f64 / 1e3))
    };
    let own = rows
        .iter()
        .filter(|row| row.setting.play_rate.is_some() == of.plays);
    let timed: Vec<(&Row<'_>, [f64; 5])> = own.filter_map(|row| Some((row, micros(row)?))).collect();
    // More lines than colours cannot be distinguished: the heaviest load is drawn, the data have all.
    let offered = |row: &Row<'_>| row.median(|run| run.times.offered_bytes_per_s);
    let heaviest = timed
        .iter()
        .max_by(|a, b| offered(a.0).total_cmp(&offered(b.0)))?;
    let heaviest = heaviest.0.case;
    let mut lines = Lines::over("", of.axis);
    let drawn = timed.iter().filter(|(row, _)| row.case == heaviest);
    for (place, (row, micros)) in drawn.take(SERIES_MAX).enumerate() {
        let points = (0..5).map(f64::from).zip(micros.map(|one| one.max(LOG_MIN)));
        lines.add(&label(row), Some(place), points.collect());
    }
    let mut csv = vec![chart::row(&[
        &"case",
        &"setting",
        &"p50_us",
        &"p99_us",
        &"p99.9_us",
        &"p99.99_us",
        &"worst_us",
    ])];
    for (row, [a, b, c, d, e]) in &timed {
        csv.push(chart::row(&[&row.case, &label(row), a, b, c, d, e]));
    }
    lines.x_end = Some(4.0);
    lines.y_end = Some(lines.highest().max(1.0) * 2.0);
    lines.places = PLACES.map(str::to_owned).to_vec();
    lines.is_log = true;
    let title = format!("{}: {heaviest}", of.title);
    Some(lines.chart(of.name, &title, [""; 3]).with_data(csv))
}

/// More runs than this side by side cannot be distinguished.
const BACK_TO_BACK_MAX: usize = 2;

/// In an experiment with more settings than this only the longest run is drawn over time.
const DRAWN_OVER_TIME_MAX: usize = 4;

/// Processors, and any processes, over time: of every setting where there are few, else of the longest run.
fn over_time(rows: &[Row<'_>]) -> Vec<Chart> {
    let is_flat_out = |row: &&Row<'_>| {
        row.setting
            .play_rate
            .is_none_or(|rate| rate == PlayRate::Unlimited)
    };
    let is_long = |row: &&Row<'_>| row.runs.iter().any(|run| run.around.cores.len() > 2);
    let mut long: Vec<&Row<'_>> = rows.iter().filter(is_long).filter(is_flat_out).collect();
    if long.len() > DRAWN_OVER_TIME_MAX {
        let elapsed = |row: &&Row<'_>| row.median(|run| run.times.elapsed_s);
        long.sort_by(|a, b| elapsed(b).total_cmp(&elapsed(a)));
        long.truncate(1);
    }
    let mut charts = Vec::new();
    for (row, place) in long.iter().zip(1..) {
        let runs = &row.runs[..row.runs.len().min(BACK_TO_BACK_MAX)];
        let of_what = format!("{}, {}", row.case, label(row));
        let mut chart = |names: Vec<String>, points: &PointsOf<'_>, axis: &str, name: &str, title: &str| {
            let (lines, csv) = back_to_back(runs, names, points, axis);
            let chart = lines.chart(
                &format!("{name}_{place}"),
                &format!("{title}: {of_what}"),
                [""; 3],
            );
            charts.push(chart.with_data(csv));
        };
        let cores = (0..runs[0].around.core_percents().len()).map(|core| format!("core {core}"));
        let core = |run: &RunResult, core: usize| {
            let busy = run.around.cores.iter();
            busy.filter_map(|one| Some((one.at_s, *one.busy.get(core)?)))
                .collect()
        };
        let title = "How busy each processor was";
        chart(cores.collect(), &core, "busy, %", "cores", title);
        if runs.iter().any(|run| run.work.processes.is_empty()) {
            continue;
        }
        let names = runs[0].work.processes.iter().map(|one| one.name.clone());
        let process = |run: &RunResult, process: usize| {
            let samples = run
                .work
                .processes
                .get(process)
                .map_or(&[][..], |one| &one.samples);
            samples.iter().map(|sample| (sample.at_s, sample.busy)).collect()
        };
        let (axis, title) = ("% of one processor", "Recorder and publishers");
        chart(names.collect(), &process, axis, "processes", title);
    }
    charts
}

/// Seconds and share of a run's line with this place.
type PointsOf<'a> = dyn Fn(&RunResult, usize) -> Vec<(f64, f64)> + 'a;

/// Runs one after the other along one axis, like the published plots of core load; in the data each run begins at 0.
fn back_to_back(
    runs: &[&RunResult],
    names: Vec<String>,
    points: &PointsOf<'_>,
    axis: &str,
) -> (Lines, Vec<Vec<Value>>) {
    let mut csv = vec![chart::row(&[&"run", &"line", &"seconds", &"percent"])];
    let line = |(place, name)| Line {
        name,
        points: Vec::new(),
        dotted: false,
        colour: Some(place),
    };
    let mut lines = Lines {
        lines: names.into_iter().enumerate().map(line).collect(),
        ..Lines::over("seconds, runs back to back", axis)
    };
    let mut begun_s = 0.0;
    for (run, number) in runs.iter().zip(1..) {
        let mut end_s: f64 = 0.0;
        for (index, line) in lines.lines.iter_mut().enumerate() {
            for (at_s, share) in points(run, index) {
                end_s = end_s.max(at_s);
                let percent = 100.0 * share;
                line.points.push((begun_s + at_s, percent));
                let figures = (format!("{at_s:.3}"), format!("{percent:.1}"));
                csv.push(chart::row(&[&number, &line.name, &figures.0, &figures.1]));
            }
        }
        begun_s += end_s;
        lines.borders.push(begun_s);
    }
    lines.borders.pop();
    lines.y_end = Some((lines.highest() * 1.1).max(105.0));
    (lines, csv)
}
