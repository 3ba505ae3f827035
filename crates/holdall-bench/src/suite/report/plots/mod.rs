//! The plots of an experiment as SVG with their data: bars of what was recorded, loss over load, processors
//! over time, latencies.

mod bars;
pub(crate) mod lines;
mod loss;
mod over_time;
mod png;
mod time;

use super::{Loaded, compare::Change};
use crate::{
    error::{BenchError, BenchResult},
    measure::LatencySummary,
    statistics::Estimate,
    suite::{
        config::{RecorderKind, Transport},
        result::RunResult,
        table::{Row, cache, rows},
    },
};
pub(crate) use bars::{Bar, Group, Scale};
use holdall_model::units::format_bytes;
use lines::{Axes, LOG_MIN, Line};
use plotters::style::RGBColor;
pub(crate) use png::Painter;
use std::fmt::Write;

/// Ink of axes and text. The page maps it to a colour of its theme.
pub(crate) const INK: RGBColor = RGBColor(0x11, 0x11, 0x11);
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// Published figures.
pub(crate) const PUBLISHED: RGBColor = RGBColor(0xAA, 0xAA, 0xAA);
/// Series, distinguished by hue and brightness.
const SERIES: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x6A, 0x3D, 0x9A),
    RGBColor(0x8C, 0x6D, 0x31),
];

/// Wide enough for a page; a phone scrolls.
pub(crate) const WIDTH: u32 = 860;

/// One plot.
pub struct Plot {
    /// Part of its file names.
    pub name: String,
    /// What it shows, one sentence.
    pub title: String,
    /// The picture.
    pub svg: String,
    /// What is drawn, as CSV.
    pub csv: String,
}

/// Why plotters could not draw; drawing into text fails only by a defect of ours.
pub(crate) fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Rival {
        library: "plotters",
        path: "report.html".into(),
        reason: error.to_string(),
    }
}

/// All plots for which there is data.
///
/// # Errors
/// A plot that cannot be drawn.
pub fn of(loaded: &Loaded) -> BenchResult<Vec<Plot>> {
    let experiment = loaded.experiment.as_ref();
    let rows = rows(&loaded.result, experiment);
    let mut plots = Vec::new();
    let ladders = loss::ladders(&rows, experiment)?;
    plots.extend(generator(&rows)?);
    if ladders.is_empty() {
        plots.extend(recorded(&rows)?);
        plots.extend(loss::against_load(&rows)?);
    }
    plots.extend(ladders);
    plots.extend(time_plot(&rows)?);
    plots.extend(latencies(&rows)?);
    plots.extend(lateness(&rows)?);
    plots.extend(over_time::of(&rows)?);
    Ok(plots)
}

/// Bars on an axis that ends at a round figure.
///
/// # Errors
/// A plot that cannot be drawn.
pub(crate) fn bars_of(groups: &[Group], scale: Scale) -> BenchResult<String> {
    bars::draw(
        groups,
        Scale {
            most: bars::round_up(scale.most),
            ..scale
        },
    )
}

/// A cell without commas.
pub(crate) fn csv_cell(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
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

/// The indexes of rows by case, in the order in which cases first occur.
fn by_case<'a>(rows: &[&Row<'a>]) -> Vec<(&'a str, Vec<usize>)> {
    let mut cases: Vec<(&str, Vec<usize>)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        match cases.iter_mut().find(|(case, _)| *case == row.case) {
            Some((_, members)) => members.push(index),
            None => cases.push((row.case, vec![index])),
        }
    }
    cases
}

/// A horizontal bar for each row, with its interval; the published figure as a thin bar below it.
fn recorded(rows: &[Row<'_>]) -> BenchResult<Option<Plot>> {
    let rows: Vec<&Row<'_>> = rows
        .iter()
        .filter(|row| row.setting.play_rate.is_none() && row.setting.recorder != RecorderKind::Discard)
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let mut recorders: Vec<&str> = Vec::new();
    let mut csv = "case,setting,recorded_percent,low,high,published_percent\n".to_owned();
    let bar = |row: &Row<'_>| {
        let published = row.published_percent.map(|percent| Estimate {
            median: percent,
            interval: None,
            repetitions: 1,
        });
        Bar {
            label: label(row),
            series: 0,
            estimate: row.recorded_percent.clone(),
            other: published,
        }
    };
    let mut groups = Vec::new();
    for (case, members) in by_case(&rows) {
        let mut group = Group {
            name: case.to_owned(),
            bars: Vec::new(),
        };
        for row in members.into_iter().map(|index| rows[index]) {
            let series = match recorders.iter().position(|one| *one == row.recorder) {
                Some(series) => series,
                None => {
                    recorders.push(&row.recorder);
                    recorders.len() - 1
                }
            };
            group.bars.push(Bar { series, ..bar(row) });
            csv_of_recorded(&mut csv, row);
        }
        groups.push(group);
    }
    let scale = Scale {
        most: 100.0,
        unit: "%",
        digits: 1,
    };
    let has_published = rows.iter().any(|row| row.published_percent.is_some());
    Ok(Some(Plot {
        name: "recorded".to_owned(),
        title: if has_published {
            "Messages recorded, in percent; grey: published".to_owned()
        } else {
            "Messages recorded, in percent".to_owned()
        },
        svg: bars::draw(&groups, scale)?,
        csv,
    }))
}

/// The cost of the generator itself, without a recorder.
fn generator(rows: &[Row<'_>]) -> BenchResult<Option<Plot>> {
    let mut csv = "case,percent_of_one_processor\n".to_owned();
    let mut most: f64 = 10.0;
    let bar = |row: &Row<'_>| {
        let share = |run: &&RunResult| 100.0 * run.producer_cpu_s / run.sending_s.max(1e-9);
        let each: Vec<f64> = row.runs.iter().map(share).collect();
        let estimate = Estimate::of(&each, 1)?;
        most = most.max(estimate.ends().1);
        let _never_fails = writeln!(csv, "{},{}", csv_cell(row.case), estimate.median).is_ok();
        Some(Bar {
            label: row.case.to_owned(),
            series: 0,
            estimate,
            other: None,
        })
    };
    let alone = rows
        .iter()
        .filter(|row| row.setting.recorder == RecorderKind::Discard)
        .filter(|row| row.runs.iter().all(|run| run.transport == Transport::None));
    let bars: Vec<Bar> = alone.filter_map(bar).collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let scale = Scale {
        most: bars::round_up(most),
        unit: "%",
        digits: 1,
    };
    let groups = [Group {
        name: "The generator alone".to_owned(),
        bars,
    }];
    Ok(Some(Plot {
        name: "generator".to_owned(),
        title: "Cost of the generator itself, in percent of one processor".to_owned(),
        svg: bars::draw(&groups, scale)?,
        csv,
    }))
}

fn csv_of_recorded(csv: &mut String, row: &Row<'_>) {
    let estimate = &row.recorded_percent;
    let (low, high) = estimate.ends();
    let published = row
        .published_percent
        .map(|percent| percent.to_string())
        .unwrap_or_default();
    let (name, median) = (csv_cell(&label(row)), estimate.median);
    csv.push_str(&format!(
        "{},{name},{median},{low},{high},{published}
",
        csv_cell(row.case)
    ));
}

/// What was recorded here and, thin and grey, in the other folder; then processor time for each GiB likewise.
///
/// # Errors
/// A plot that cannot be drawn.
pub(crate) fn of_changes(changes: &[Change]) -> BenchResult<Vec<Plot>> {
    type Pick = fn(&Change) -> &[Estimate; 2];
    let one = |name: &str, title: &str, pick: Pick, scale: Scale, column: &str| {
        let mut groups: Vec<Group> = Vec::new();
        let mut csv = format!("case,setting,there_{column},here_{column}\n");
        for change in changes {
            let [there, here] = pick(change);
            let bar = Bar {
                label: change.setting.clone(),
                series: 0,
                estimate: here.clone(),
                other: Some(there.clone()),
            };
            let names = format!("{},{}", csv_cell(&change.case), csv_cell(&change.setting));
            csv.push_str(&format!(
                "{names},{},{}
",
                there.median, here.median
            ));
            match groups.iter_mut().find(|group| group.name == change.case) {
                Some(group) => group.bars.push(bar),
                None => groups.push(Group {
                    name: change.case.clone(),
                    bars: vec![bar],
                }),
            }
        }
        Ok::<_, BenchError>(Plot {
            name: name.to_owned(),
            title: title.to_owned(),
            svg: bars::draw(&groups, scale)?,
            csv,
        })
    };
    let most = changes
        .iter()
        .flat_map(|change| &change.cpu_s_per_gib)
        .map(|estimate| estimate.ends().1);
    let percent = Scale {
        most: 100.0,
        unit: "%",
        digits: 1,
    };
    let seconds = Scale {
        most: bars::round_up(most.fold(0.1, f64::max)),
        unit: "s",
        digits: 3,
    };
    Ok(vec![
        one(
            "compared_recorded",
            "Messages recorded, in percent; grey: the other folder",
            |change| &change.recorded,
            percent,
            "recorded_percent",
        )?,
        one(
            "compared_cpu",
            "Processor time of the recorder for each GiB recorded; grey: the other folder",
            |change| &change.cpu_s_per_gib,
            seconds,
            "cpu_s_per_gib",
        )?,
    ])
}

fn time_plot(rows: &[Row<'_>]) -> BenchResult<Option<Plot>> {
    Ok(time::draw(rows)?.map(|(svg, csv)| Plot {
        name: "time".to_owned(),
        title: "Where the processor time goes, in percent of one processor".to_owned(),
        svg,
        csv,
    }))
}

/// Percentiles along the axis of latency plots.
const PLACES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "worst"];

/// Offer latencies by percentile; `None` where nothing was timed.
fn latencies(rows: &[Row<'_>]) -> BenchResult<Option<Plot>> {
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

/// How late playback was, by percentile; `None` where nothing was played.
fn lateness(rows: &[Row<'_>]) -> BenchResult<Option<Plot>> {
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
) -> BenchResult<Option<Plot>> {
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
    let Some(heaviest) = timed
        .iter()
        .max_by(|a, b| offered(a.0).total_cmp(&offered(b.0)))
        .map(|(row, _)| row.case)
    else {
        return Ok(None);
    };
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
        borders: &[],
        is_log: true,
    };
    let mut csv = format!(
        "case,setting,{}\n",
        PLACES.map(|place| format!("{place}_us")).join(",")
    );
    for (row, micros) in &timed {
        let figures = micros.map(|micros| micros.to_string()).join(",");
        let _never_fails =
            writeln!(csv, "{},{},{figures}", csv_cell(row.case), csv_cell(&label(row))).is_ok();
    }
    Ok(Some(Plot {
        name: name.to_owned(),
        title: format!("{title}: {heaviest}"),
        svg: lines::draw(&lines, &axes)?,
        csv,
    }))
}

/// A plot by itself: on white, because no page sets its theme.
pub(crate) fn standalone(svg: &str) -> String {
    svg.replacen('>', "><rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>", 1)
}
