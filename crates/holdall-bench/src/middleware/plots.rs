//! The plots of an evaluation, with published figures in grey where they are at hand.

use super::{
    EvaluatedLink, Evaluation, EvaluationResult, MiddlewareCase, MiddlewareRun, PublishedEvaluation,
    account::DEADLINES_MS,
    curves, heat,
    published::PublishedFigures,
    raster,
    table::{Cell, cells},
};
use crate::{
    error::BenchResult,
    statistics::Estimate,
    suite::report::plots::{
        Bar, Group, Plot, Scale, bars_of, csv_cell,
        lines::{self, Axes, Line},
    },
};
use holdall_model::units::MIB;
use std::fmt::Write;

/// Names of [`DEADLINES_MS`].
const DEADLINES: [&str; 10] = ["1 ms", "3", "10", "33", "100", "333", "1 s", "3.3", "10", "33"];

/// What belongs to a result beside its runs.
pub(crate) struct Context<'a> {
    /// The experiment, for its links.
    pub evaluation: Option<&'a Evaluation>,
    /// Published figures.
    pub published: Option<&'a PublishedEvaluation>,
}

impl<'a> Context<'a> {
    /// The load and the link of a cell, where the experiment is known.
    pub(crate) fn place(&self, cell: &Cell<'_>) -> Option<(&'a MiddlewareCase, &'a EvaluatedLink)> {
        let evaluation = self.evaluation?;
        let mut cases = evaluation
            .cases
            .iter()
            .flat_map(|case| std::iter::once(case).chain(case.beside.as_deref()));
        let case = cases.find(|case| case.label == cell.case)?;
        let link = evaluation.links.iter().find(|link| link.label == cell.link)?;
        Some((case, link))
    }

    fn figures(&self, cell: &Cell<'_>) -> Option<PublishedFigures> {
        let (case, link) = self.place(cell)?;
        self.published?.figures(&cell.middleware, case, link)
    }

    fn seconds(&self, cell: &Cell<'_>) -> Option<&'a [(f64, f64)]> {
        let (case, link) = self.place(cell)?;
        self.published?.seconds(&cell.middleware, case, link)
    }
}

/// All plots for which there is data.
///
/// # Errors
/// A plot that cannot be drawn.
pub(crate) fn plots(result: &EvaluationResult, context: &Context<'_>) -> BenchResult<Vec<Plot>> {
    let cells = cells(result);
    let mut plots = Vec::new();
    // A node without topics has only a cost.
    let is_idle = result.runs.iter().all(|run| run.account.planned == 0);
    for (number, group) in groups(&cells).into_iter().enumerate().filter(|_| !is_idle) {
        plots.push(delivered(number, &group)?);
        plots.extend(each_second(number, &group, context)?);
        plots.extend(silences(number, &group)?);
    }
    plots.extend(curves::plots(&cells, context)?);
    if result.runs.iter().any(|run| run.discovery.is_some()) {
        return Ok(plots);
    }
    for (number, of_case) in by_case(&cells).iter().enumerate().filter(|_| !is_idle) {
        plots.extend(heat::plot(number, of_case)?);
    }
    let bars = arrival_plots()
        .into_iter()
        .filter(|_| !is_idle)
        .chain(cost_plots());
    for bar in bars {
        plots.extend(bar.draw(&cells, context)?);
    }
    Ok(plots)
}

/// What arrived.
fn arrival_plots() -> [BarPlot<'static>; 5] {
    [
        BarPlot {
            name: "received",
            title: "Messages received each second",
            unit: "/s",
            digits: 1,
            figure: &|run| Some(run.account.received_per_s),
            published: &|figures| figures.received_per_s,
        },
        BarPlot {
            name: "sent",
            title: "Messages sent each second",
            unit: "/s",
            digits: 1,
            figure: &|run| Some(run.account.sent_per_s),
            published: &|figures| figures.sent_per_s,
        },
        BarPlot {
            name: "lost",
            title: "Planned messages that did not arrive, in percent (published: of those sent)",
            unit: "%",
            digits: 1,
            figure: &|run| Some(run.account.lost_percent()),
            published: &|figures| figures.lost_percent,
        },
        BarPlot {
            name: "latency",
            title: "Effective latency as published: mean of the seconds in which something arrived, from publish",
            unit: "ms",
            digits: 1,
            figure: &|run| run.account.effective_latency_ms,
            published: &|figures| figures.effective_latency_ms,
        },
        BarPlot {
            name: "wire",
            title: "Bytes on the link for each byte of content that arrived",
            unit: "×",
            digits: 2,
            figure: &MiddlewareRun::wire_overhead,
            published: &|_| None,
        },
    ]
}

/// What it cost.
fn cost_plots() -> [BarPlot<'static>; 4] {
    [
        BarPlot {
            name: "publisher_memory",
            title: "Resident memory of the publisher, in MiB",
            unit: "MiB",
            digits: 1,
            figure: &|run| Some(run.publisher.rss_max_bytes as f64 / MIB),
            published: &|figures| figures.publisher_rss_mib,
        },
        BarPlot {
            name: "subscriber_memory",
            title: "Resident memory of the subscriber, in MiB",
            unit: "MiB",
            digits: 1,
            figure: &|run| {
                (run.subscriber.elapsed_s > 0.0).then(|| run.subscriber.rss_max_bytes as f64 / MIB)
            },
            published: &|figures| figures.subscriber_rss_mib,
        },
        BarPlot {
            name: "publisher",
            title: "Processor of the publisher, in cores",
            unit: "",
            digits: 3,
            figure: &|run| Some(run.publisher.cores()),
            published: &|_| None,
        },
        BarPlot {
            name: "subscriber",
            title: "Processor of the subscriber, in cores",
            unit: "",
            digits: 3,
            figure: &|run| (run.subscriber.elapsed_s > 0.0).then(|| run.subscriber.cores()),
            published: &|_| None,
        },
    ]
}

/// Cells of the same case and link, in order.
fn groups<'a, 'b>(cells: &'b [Cell<'a>]) -> Vec<Vec<&'b Cell<'a>>> {
    let mut groups: Vec<Vec<&Cell<'_>>> = Vec::new();
    for cell in cells {
        match groups
            .iter_mut()
            .find(|group| group[0].link == cell.link && group[0].case == cell.case)
        {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

/// Cells of the same case, in order.
fn by_case<'a, 'b>(cells: &'b [Cell<'a>]) -> Vec<Vec<&'b Cell<'a>>> {
    let mut cases: Vec<Vec<&Cell<'_>>> = Vec::new();
    for cell in cells {
        match cases.iter_mut().find(|of_case| of_case[0].case == cell.case) {
            Some(of_case) => of_case.push(cell),
            None => cases.push(vec![cell]),
        }
    }
    cases
}

fn name_of(group: &[&Cell<'_>]) -> String {
    format!("{}, {}", group[0].case, group[0].link)
}

/// Share of planned messages over the time since they were due.
fn delivered(number: usize, group: &[&Cell<'_>]) -> BenchResult<Plot> {
    let mut csv = "middleware,deadline_ms,delivered_percent\n".to_owned();
    let line = |(colour, cell): (usize, &&Cell<'_>)| {
        let mut points = Vec::new();
        for (place, deadline) in DEADLINES_MS.iter().enumerate() {
            let share = cell.estimate(|run| run.account.delivered.get(place).map(|share| 100.0 * share));
            let share = share.map_or(0.0, |estimate| estimate.median);
            points.push((place as f64, share));
            let _never_fails = writeln!(csv, "{},{deadline},{share}", csv_cell(&cell.middleware)).is_ok();
        }
        Line {
            name: cell.middleware.clone(),
            points,
            dotted: true,
            colour: Some(colour),
        }
    };
    let lines: Vec<Line> = group.iter().enumerate().map(line).collect();
    let axes = Axes {
        x: (0.0..(DEADLINES.len() - 1) as f64, "after it was due"),
        y: (0.0..100.0, "arrived, % of planned"),
        places: &DEADLINES,
        borders: &[],
        is_log: false,
    };
    Ok(Plot {
        name: format!("delivered_{number}"),
        title: format!("Messages that arrived in time: {}", name_of(group)),
        svg: lines::draw(&lines, &axes)?,
        csv,
    })
}

/// Messages received in each second, the mean of all runs.
fn each_second(number: usize, group: &[&Cell<'_>], context: &Context<'_>) -> BenchResult<Option<Plot>> {
    let mut csv = "middleware,second,received\n".to_owned();
    let mut lines = Vec::new();
    for (colour, cell) in group.iter().enumerate() {
        let runs = &cell.runs;
        let seconds = runs
            .iter()
            .map(|run| run.account.received_each_s.len())
            .max()
            .unwrap_or(0);
        let mean = |second: usize| {
            let sum: u64 = runs
                .iter()
                .filter_map(|run| run.account.received_each_s.get(second))
                .sum();
            ((second + 1) as f64, sum as f64 / runs.len() as f64)
        };
        let ours: Vec<(f64, f64)> = (0..seconds).map(mean).collect();
        let published = context.seconds(cell).map(<[_]>::to_vec);
        let single = |run: &&MiddlewareRun| {
            let counts = run.account.received_each_s.iter().enumerate();
            let points: Vec<(f64, f64)> = counts
                .map(|(second, count)| ((second + 1) as f64, *count as f64))
                .collect();
            (String::new(), points, Some(colour))
        };
        let singles: Vec<_> = if runs.len() > 1 {
            runs.iter().map(single).collect()
        } else {
            Vec::new()
        };
        let theirs = published.map(|points| (format!("{}, published", cell.middleware), points, None));
        let own = [(cell.middleware.clone(), ours, Some(colour))];
        for (name, points, colour) in singles.into_iter().chain(theirs).chain(own) {
            for (second, count) in points.iter().filter(|_| !name.is_empty()) {
                let _never_fails = writeln!(csv, "{},{second},{count}", csv_cell(&name)).is_ok();
            }
            lines.push(Line {
                name,
                points,
                dotted: false,
                colour,
            });
        }
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    if last < 2.0 {
        return Ok(None);
    }
    let most = points().map(|point| point.1).fold(1.0, f64::max);
    let axes = Axes {
        x: (1.0..last, "second"),
        y: (0.0..most * 1.1, "received"),
        places: &[],
        borders: &[],
        is_log: false,
    };
    Ok(Some(Plot {
        name: format!("seconds_{number}"),
        title: format!(
            "Messages received in each second, each run faint, their mean bold: {}",
            name_of(group)
        ),
        svg: lines::draw(&lines, &axes)?,
        csv,
    }))
}

/// Each second of each run.
fn silences(number: usize, group: &[&Cell<'_>]) -> BenchResult<Option<Plot>> {
    let Some(svg) = raster::draw(group)? else {
        return Ok(None);
    };
    let mut csv = "middleware,run,second,received\n".to_owned();
    for cell in group {
        for run in &cell.runs {
            for (second, count) in run.account.received_each_s.iter().enumerate() {
                let name = csv_cell(&cell.middleware);
                let _never_fails = writeln!(csv, "{name},{},{second},{count}", run.repetition + 1).is_ok();
            }
        }
    }
    Ok(Some(Plot {
        name: format!("silences_{number}"),
        title: format!(
            "Each second of each run, red where nothing arrived: {}",
            name_of(group)
        ),
        svg,
        csv,
    }))
}

/// A figure of every cell as a bar, by link.
struct BarPlot<'a> {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    digits: usize,
    figure: &'a dyn Fn(&MiddlewareRun) -> Option<f64>,
    published: &'a dyn Fn(&PublishedFigures) -> Option<f64>,
}

impl BarPlot<'_> {
    fn draw(&self, cells: &[Cell<'_>], context: &Context<'_>) -> BenchResult<Option<Plot>> {
        let mut csv = "case,link,middleware,median,low,high,published\n".to_owned();
        let mut most: f64 = 1e-3;
        let mut drawn = Vec::new();
        let mut has_published = false;
        for group in groups(cells) {
            let mut bars = Vec::new();
            for (series, cell) in group.iter().enumerate() {
                let Some(estimate) = cell.estimate(self.figure) else {
                    continue;
                };
                let published = context
                    .figures(cell)
                    .and_then(|figures| (self.published)(&figures));
                has_published |= published.is_some();
                let ends = estimate
                    .interval
                    .map_or([estimate.median; 2], |ends| [ends.low, ends.high]);
                most = most.max(ends[1]).max(published.unwrap_or(0.0));
                let theirs = published.map(|figure| figure.to_string()).unwrap_or_default();
                let [case, link, name] = [cell.case, cell.link, &cell.middleware].map(csv_cell);
                let _never_fails = writeln!(
                    csv,
                    "{case},{link},{name},{},{},{},{theirs}",
                    estimate.median, ends[0], ends[1]
                )
                .is_ok();
                bars.push(Bar {
                    label: cell.middleware.clone(),
                    series,
                    estimate,
                    other: published.map(|median| Estimate {
                        median,
                        interval: None,
                        repetitions: 1,
                    }),
                });
            }
            if !bars.is_empty() {
                let name = name_of(&group);
                drawn.push(Group { name, bars });
            }
        }
        if drawn.is_empty() {
            return Ok(None);
        }
        let scale = Scale {
            most,
            unit: self.unit,
            digits: self.digits,
        };
        Ok(Some(Plot {
            name: self.name.to_owned(),
            title: if has_published {
                format!("{}; grey: published", self.title)
            } else {
                self.title.to_owned()
            },
            svg: bars_of(&drawn, scale)?,
            csv,
        }))
    }
}
