//! The plots of an experiment as SVG with their data: bars of what was recorded, loss against load, processors over time, latencies.

use super::Loaded;
use crate::{
    error::{BenchError, BenchResult},
    measure::LatencySummary,
    suite::{
        result::RunResult,
        table::{Row, rows},
    },
};
use plotters::prelude::*;
use std::fmt::Write;

/// Ink of axes and text. The page maps it to a colour of its theme.
pub const INK: RGBColor = RGBColor(0x11, 0x11, 0x11);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// Published figures.
pub const PUBLISHED: RGBColor = RGBColor(0xAA, 0xAA, 0xAA);
/// Series, told apart by hue and brightness.
const SERIES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xD5, 0x5E, 0x00),
];

/// Wide enough for a page, small enough for a phone to scale down.
const WIDTH: u32 = 860;

/// One plot.
pub struct Plot {
    /// Part of its file names.
    pub name: &'static str,
    /// What it shows, one sentence.
    pub title: String,
    /// The picture.
    pub svg: String,
    /// What is drawn, as CSV.
    pub csv: String,
}

/// Why plotters could not draw; drawing into text fails only by a mistake of ours.
fn failed(error: impl std::fmt::Display) -> BenchError {
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
    let rows = rows(&loaded.result, loaded.experiment.as_ref());
    let mut plots = Vec::new();
    if rows.iter().any(|row| row.setting.play_rate.is_none()) {
        plots.push(recorded(&rows)?);
    }
    if rows.iter().any(|row| row.recorded_percent.median < 100.0) {
        plots.push(loss_against_load(&rows)?);
    }
    plots.extend(latencies(&rows)?);
    plots.extend(lateness(&rows)?);
    plots.extend(processors(&loaded.result.runs)?);
    plots.extend(processes(&loaded.result.runs)?);
    Ok(plots)
}

fn label(row: &Row<'_>) -> String {
    let setting = row.setting;
    let mut text = format!(
        "{} · {} · {} · cache {} MB",
        row.case,
        row.recorder,
        setting.storage_id,
        setting.max_cache_size_bytes as f64 / 1e6
    );
    if let Some(preset) = &setting.storage_preset_profile {
        let _never_fails = write!(text, " · {preset}").is_ok();
    }
    if let Some(bytes) = setting.max_bag_size_bytes {
        let _never_fails = write!(text, " · split {} MB", bytes as f64 / 1e6).is_ok();
    }
    text
}

/// A horizontal bar for each row, with its interval; the published figure as a thin bar below it.
fn recorded(rows: &[Row<'_>]) -> BenchResult<Plot> {
    const LEFT: i32 = 400;
    const BAR: i32 = 26;
    let height = 60 + BAR * i32::try_from(rows.len()).unwrap_or(i32::MAX / BAR - 60);
    let mut svg = String::new();
    let mut csv = "setting,recorded_percent,low,high,published_percent\n".to_owned();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        let scale = f64::from(i32::try_from(WIDTH).unwrap_or(0) - LEFT - 70) / 100.0;
        // Percent are between 0 and 100, so pixels fit.
        let x = |percent: f64| LEFT + (percent * scale).round() as i32;
        let text = ("sans-serif", 13).into_font().color(&INK);
        for percent in [0, 25, 50, 75, 100] {
            let at = x(f64::from(percent));
            let line = PathElement::new(vec![(at, 24), (at, height - 20)], GRID);
            root.draw(&line).map_err(failed)?;
            root.draw(&Text::new(format!("{percent} %"), (at - 12, 6), text.clone()))
                .map_err(failed)?;
        }
        for (row, index) in rows.iter().zip(0_i32..) {
            let top = 30 + index * BAR;
            let estimate = &row.recorded_percent;
            let (low, high) = estimate
                .interval
                .as_ref()
                .map_or((estimate.median, estimate.median), |interval| {
                    (interval.low, interval.high)
                });
            root.draw(&Text::new(label(row), (4, top + 2), text.clone()))
                .map_err(failed)?;
            let bar = [(x(0.0), top), (x(estimate.median), top + 13)];
            root.draw(&Rectangle::new(bar, SERIES[0].filled()))
                .map_err(failed)?;
            let whisker = PathElement::new(vec![(x(low), top + 6), (x(high), top + 6)], INK.stroke_width(2));
            root.draw(&whisker).map_err(failed)?;
            let figure = format!("{:.1}", estimate.median);
            root.draw(&Text::new(figure, (x(100.0) + 8, top + 2), text.clone()))
                .map_err(failed)?;
            if let Some(published) = row.published_percent {
                let bar = [(x(0.0), top + 14), (x(published), top + 19)];
                root.draw(&Rectangle::new(bar, PUBLISHED.filled()))
                    .map_err(failed)?;
            }
            let published = row
                .published_percent
                .map(|percent| percent.to_string())
                .unwrap_or_default();
            let _never_fails = writeln!(
                csv,
                "\"{}\",{},{low},{high},{published}",
                label(row),
                estimate.median
            )
            .is_ok();
        }
        root.present().map_err(failed)?;
    }
    let has_published = rows.iter().any(|row| row.published_percent.is_some());
    Ok(Plot {
        name: "recorded",
        title: if has_published {
            "Messages recorded, in percent; grey: published".to_owned()
        } else {
            "Messages recorded, in percent".to_owned()
        },
        svg,
        csv,
    })
}

/// A point for each row: what was lost against what was offered.
fn loss_against_load(rows: &[Row<'_>]) -> BenchResult<Plot> {
    let point = |row: &Row<'_>| {
        (
            row.median(|run| run.offered_bytes_per_s) / 1e6,
            100.0 - row.recorded_percent.median,
        )
    };
    let most = rows.iter().map(|row| point(row).0).fold(1.0, f64::max) * 1.1;
    let worst = rows.iter().map(|row| point(row).1).fold(1.0, f64::max) * 1.1;
    let mut recorders: Vec<&str> = rows.iter().map(|row| row.recorder.as_str()).collect();
    recorders.dedup();
    recorders.sort_unstable();
    recorders.dedup();
    let mut svg = String::new();
    let mut csv = "setting,offered_mb_per_s,lost_percent\n".to_owned();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 360)).into_drawing_area();
        let mut chart = axes(&root, 0.0..most, 0.0..worst, "offered, MB/s", "lost, %")?;
        for (index, recorder) in recorders.iter().enumerate() {
            let colour = SERIES[index % SERIES.len()];
            let points = rows.iter().filter(|row| row.recorder == *recorder);
            chart
                .draw_series(points.map(|row| Circle::new(point(row), 5, colour.filled())))
                .map_err(failed)?
                .label(*recorder)
                .legend(move |(x, y)| Circle::new((x + 8, y), 5, colour.filled()));
        }
        legend(&mut chart)?;
        root.present().map_err(failed)?;
    }
    for row in rows {
        let (offered, lost) = point(row);
        let _never_fails = writeln!(csv, "\"{}\",{offered},{lost}", label(row)).is_ok();
    }
    Ok(Plot {
        name: "loss",
        title: "Messages lost against the offered load".to_owned(),
        svg,
        csv,
    })
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn axes<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
    x_title: &str,
    y_title: &str,
) -> BenchResult<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .x_desc(x_title)
        .y_desc(y_title)
        .draw()
        .map_err(failed)?;
    Ok(chart)
}

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>) -> BenchResult<()> {
    chart
        .configure_series_labels()
        .border_style(GRID)
        .label_font(("sans-serif", 13).into_font().color(&INK))
        .position(SeriesLabelPosition::UpperLeft)
        .draw()
        .map_err(failed)
}

/// Percentiles along the axis of latency plots.
const PLACES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "worst"];

/// Offer latencies by percentile, a line for each of the first rows; `None` where nothing was timed.
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
    (name, axis, title): (&'static str, &str, &str),
) -> BenchResult<Option<Plot>> {
    let timed: Vec<(String, [f64; 5])> = rows
        .iter()
        .filter_map(|row| {
            let one = pick(row.runs.first()?)?;
            let nanos = [one.p50_ns, one.p99_ns, one.p99_9_ns, one.p99_99_ns, one.max_ns];
            Some((label(row), nanos.map(|nanos| nanos as f64 / 1e3)))
        })
        .collect();
    if timed.is_empty() {
        return Ok(None);
    }
    let worst = timed.iter().map(|(_, micros)| micros[4]).fold(1.0, f64::max);
    // More lines than colours cannot be told apart: the data have all.
    let shown = &timed[..timed.len().min(SERIES.len())];
    // Room for the names above the lines.
    let height = 330 + 22 * u32::try_from(shown.len()).unwrap_or(0);
    let top = worst * 2.0 * 10_f64.powf(0.4 * shown.len() as f64);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .margin_right(34)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..4.0, (0.05..top).log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .x_labels(5)
            .x_label_formatter(&place)
            .y_label_formatter(&|y: &f64| format!("{y}"))
            .y_desc(axis)
            .draw()
            .map_err(failed)?;
        for (index, (name, micros)) in shown.iter().enumerate() {
            let colour = SERIES[index % SERIES.len()];
            let points = micros
                .iter()
                .enumerate()
                .map(|(place, micros)| (place as f64, micros.max(0.05)));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(failed)?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .border_style(GRID)
            .label_font(("sans-serif", 12).into_font().color(&INK))
            .position(SeriesLabelPosition::UpperLeft)
            .draw()
            .map_err(failed)?;
        root.present().map_err(failed)?;
    }
    let mut csv = format!(
        "setting,{}\n",
        PLACES.map(|place| format!("{place}_us")).join(",")
    );
    for (name, micros) in &timed {
        let figures = micros.map(|micros| micros.to_string()).join(",");
        let _never_fails = writeln!(csv, "\"{name}\",{figures}").is_ok();
    }
    Ok(Some(Plot {
        name,
        title: title.to_owned(),
        svg,
        csv,
    }))
}

/// The name of a percentile by its place on the axis; there is none between two.
fn place(x: &f64) -> String {
    // Between 0 and 4.
    PLACES
        .get(x.round() as usize)
        .map_or(String::new(), ToString::to_string)
}

/// What recorder and publishers used over time in the longest run over a transport; `None` without one.
fn processes(runs: &[RunResult]) -> BenchResult<Option<Plot>> {
    let long = runs
        .iter()
        .filter(|run| run.processes.iter().any(|one| one.samples.len() > 2));
    let Some(run) = long.max_by(|a, b| a.elapsed_s.total_cmp(&b.elapsed_s)) else {
        return Ok(None);
    };
    let samples = || run.processes.iter().flat_map(|one| &one.samples);
    let end = samples().map(|sample| sample.at_s).fold(1.0, f64::max);
    let most = samples().map(|sample| 100.0 * sample.busy).fold(100.0, f64::max) * 1.2;
    let mut svg = String::new();
    let mut csv = "process,seconds,busy_percent,rss_bytes\n".to_owned();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 320)).into_drawing_area();
        let mut chart = axes(&root, 0.0..end, 0.0..most, "seconds", "% of one processor")?;
        for (index, one) in run.processes.iter().enumerate() {
            let colour = SERIES[index % SERIES.len()];
            let points = one
                .samples
                .iter()
                .map(|sample| (sample.at_s, 100.0 * sample.busy));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(failed)?
                .label(&one.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        legend(&mut chart)?;
        root.present().map_err(failed)?;
    }
    for one in &run.processes {
        for sample in &one.samples {
            let (at_s, busy, rss) = (sample.at_s, 100.0 * sample.busy, sample.rss_bytes);
            let _never_fails = writeln!(csv, "{},{at_s:.3},{busy:.1},{rss}", one.name).is_ok();
        }
    }
    Ok(Some(Plot {
        name: "processes",
        title: format!(
            "Recorder and publishers: {}, {}",
            run.case,
            run.setting.run_folder(run.repetition)
        ),
        svg,
        csv,
    }))
}

/// Processors over time in the longest run; `None` when no run was long enough to look.
fn processors(runs: &[RunResult]) -> BenchResult<Option<Plot>> {
    let Some(run) = runs
        .iter()
        .filter(|run| run.cores.len() > 2)
        .max_by(|a, b| a.elapsed_s.total_cmp(&b.elapsed_s))
    else {
        return Ok(None);
    };
    let cores = run.core_percents().len();
    let end = run.cores.last().map_or(1.0, |sample| sample.at_s);
    let mut svg = String::new();
    let mut csv = format!(
        "seconds,{}\n",
        (0..cores)
            .map(|core| format!("core_{core}"))
            .collect::<Vec<_>>()
            .join(",")
    );
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 320)).into_drawing_area();
        let mut chart = axes(&root, 0.0..end, 0.0..105.0, "seconds", "busy, %")?;
        for core in 0..cores {
            let colour = SERIES[core % SERIES.len()];
            let points = run
                .cores
                .iter()
                .filter_map(|sample| Some((sample.at_s, 100.0 * sample.busy.get(core)?)));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(failed)?
                .label(format!("core {core}"))
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        legend(&mut chart)?;
        root.present().map_err(failed)?;
    }
    for sample in &run.cores {
        let busy: Vec<String> = sample
            .busy
            .iter()
            .map(|busy| format!("{:.1}", 100.0 * busy))
            .collect();
        let _never_fails = writeln!(csv, "{:.3},{}", sample.at_s, busy.join(",")).is_ok();
    }
    Ok(Some(Plot {
        name: "cores",
        title: format!(
            "How busy each processor was: {}, {}",
            run.case,
            run.setting.run_folder(run.repetition)
        ),
        svg,
        csv,
    }))
}

/// A plot for itself: on white, because nothing around it says which theme it stands in.
pub fn standalone(svg: &str) -> String {
    svg.replacen('>', "><rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>", 1)
}
