//! The plots of an evaluation, with published figures in grey where they are at hand.

use super::{
    EvaluatedLink, Evaluation, EvaluationResult, MiddlewareCase, MiddlewareRun, PublishedEvaluation,
    account::DEADLINES_MS,
    curves, heat, over_time,
    published::{PublishedFigures, Side},
    raster,
    table::{Cell, cells},
};
use crate::{
    engine::{Csv, grouped},
    statistics::Estimate,
    suite::report::plots::{
        Bar, Chart, Plot,
        lines::{self, Axes, Line},
    },
};
use holdall_model::units::MIB;
use std::fmt::Display;

/// Names of [`DEADLINES_MS`].
const DEADLINES: [&str; 10] = ["1 ms", "3", "10", "33", "100", "333", "1 s", "3.3", "10", "33"];

/// The context of a result in addition to its runs.
pub(crate) struct Context<'a> {
    /// The experiment, for its links.
    pub evaluation: Option<&'a Evaluation>,
    /// Published figures.
    pub published: Option<&'a PublishedEvaluation>,
}

impl<'a> Context<'a> {
    /// The load and the link of a cell, if the experiment is known.
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

    pub(super) fn figures(&self, cell: &Cell<'_>) -> PublishedFigures {
        let found = self
            .place(cell)
            .and_then(|(case, link)| self.published?.figures(&cell.middleware, case, link));
        found.unwrap_or_default()
    }

    pub(super) fn seconds(&self, cell: &Cell<'_>, side: Side) -> Vec<Vec<(f64, f64)>> {
        let found = self.place(cell).zip(self.published);
        found.map_or_else(Vec::new, |((case, link), published)| {
            published.seconds(&cell.middleware, case, link, side)
        })
    }

    /// Whether a cell's messages cross an emulated link.
    fn is_linked(&self, cell: &Cell<'_>) -> bool {
        self.place(cell).is_some_and(|(_, link)| link.spec.is_some())
    }
}

/// All plots for which there is data.
pub(crate) fn plots(result: &EvaluationResult, context: &Context<'_>) -> Vec<Plot> {
    let cells = cells(result);
    let mut plots = Vec::new();
    // A node without topics has only a cost.
    if result
        .runs
        .iter()
        .all(|run| run.account.planned == 0 && run.discovery.is_none())
    {
        plots.extend(idle::plots(&cells, context));
        return plots;
    }
    let groups = groups(&cells);
    for (number, group) in groups.iter().enumerate() {
        plots.push(delivered(number, group));
        let is_linked =
            group.iter().any(|cell| context.is_linked(cell)) && groups.len() <= LINKS_OVER_TIME_MAX;
        plots.extend(over_time::plots(
            number,
            &name_of(group),
            group,
            context,
            is_linked,
        ));
        plots.extend(silences(number, group));
    }
    plots.extend(curves::plots(&cells, context));
    if result.runs.iter().any(|run| run.discovery.is_some()) {
        plots.retain(|plot| plot.name.starts_with("discovery"));
        return plots;
    }
    for (number, of_case) in by_case(&cells).iter().enumerate() {
        plots.extend(heat::plot(number, of_case));
        plots.extend(heat::pairs(number, of_case, context));
    }
    let cores = result.machine.cores.max(1) as f64;
    for bar in arrival_plots().into_iter().chain(cost_plots()) {
        plots.extend(bar.draw(&cells, context, cores));
    }
    plots
}

/// With more links than this, cost is not drawn over time.
const LINKS_OVER_TIME_MAX: usize = 12;

type FigureOf = fn(&MiddlewareRun) -> Option<f64>;

/// Plots of arrivals.
fn arrival_plots() -> [BarPlot; 5] {
    let bar = |name, title, unit, digits, figure: FigureOf| BarPlot {
        name,
        title,
        unit,
        digits,
        figure,
        is_of_machine: false,
    };
    [
        bar("received", "Messages received each second", "/s", 1, |run| {
            Some(run.account.received_per_s)
        }),
        bar("sent", "Messages sent each second", "/s", 1, |run| {
            Some(run.account.sent_per_s)
        }),
        bar(
            "lost",
            "Planned messages that did not arrive, in percent (published: of those sent)",
            "%",
            1,
            |run| Some(run.account.lost_percent()),
        ),
        bar(
            "latency",
            "Effective latency as published: mean of the seconds in which something arrived, from publish",
            "ms",
            1,
            |run| run.account.effective_latency_ms,
        ),
        bar(
            "wire",
            "Bytes on the link for each byte of content that arrived",
            "×",
            2,
            MiddlewareRun::wire_overhead,
        ),
    ]
}

/// Plots of costs.
fn cost_plots() -> [BarPlot; 4] {
    let bar = |name, title, unit, digits, figure: FigureOf, is_of_machine| BarPlot {
        name,
        title,
        unit,
        digits,
        figure,
        is_of_machine,
    };
    [
        bar(
            "publisher_memory",
            "Resident memory of the publisher, in MiB",
            "MiB",
            1,
            |run| Some(run.publisher.rss_max_bytes as f64 / MIB),
            false,
        ),
        bar(
            "subscriber_memory",
            "Resident memory of the subscriber, in MiB",
            "MiB",
            1,
            |run| (run.subscriber.elapsed_s > 0.0).then(|| run.subscriber.rss_max_bytes as f64 / MIB),
            false,
        ),
        bar(
            "publisher_cpu",
            "Processor of the publisher, in percent of the whole machine (published: of another machine; as printed, the bars of \
             fastdds-async were rows of fastdds-sync)",
            "%",
            2,
            |run| Some(run.publisher.cores()),
            true,
        ),
        bar(
            "subscriber_cpu",
            "Processor of the subscriber, in percent of the whole machine (published: of another machine)",
            "%",
            2,
            |run| (run.subscriber.elapsed_s > 0.0).then(|| run.subscriber.cores()),
            true,
        ),
    ]
}

/// Cells of the same case and link, in order.
fn groups<'a, 'b>(cells: &'b [Cell<'a>]) -> Vec<Vec<&'b Cell<'a>>> {
    let groups = grouped(cells, |cell| (cell.link, cell.case));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Cells of the same case, in order.
fn by_case<'a, 'b>(cells: &'b [Cell<'a>]) -> Vec<Vec<&'b Cell<'a>>> {
    let cases = grouped(cells, |cell| cell.case);
    cases.into_iter().map(|(_, of_case)| of_case).collect()
}

fn name_of(group: &[&Cell<'_>]) -> String {
    format!("{}, {}", group[0].case, group[0].link)
}

/// Share of planned messages over the time since they were due.
fn delivered(number: usize, group: &[&Cell<'_>]) -> Plot {
    let mut csv = Csv::of(["middleware", "deadline_ms", "delivered_percent"]);
    let line = |(colour, cell): (usize, &&Cell<'_>)| {
        let mut points = Vec::new();
        for (place, deadline) in DEADLINES_MS.iter().enumerate() {
            let share = cell.estimate(|run| run.account.delivered.get(place).map(|share| 100.0 * share));
            let share = share.map_or(0.0, |estimate| estimate.median);
            points.push((place as f64, share));
            csv.row(&[&cell.middleware, deadline, &share]);
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
        ..Axes::around(&lines, "", "")
    };
    let title = format!("Messages that arrived in time: {}", name_of(group));
    lines::plot(format!("delivered_{number}"), title, (&lines, &axes), csv)
}

/// Each second of each run.
fn silences(number: usize, group: &[&Cell<'_>]) -> Option<Plot> {
    let svg = raster::draw(group)?;
    let mut csv = Csv::of(["middleware", "run", "second", "received"]);
    for cell in group {
        for run in &cell.runs {
            for (second, count) in run.account.received_each_s.iter().enumerate() {
                csv.row(&[&cell.middleware, &(run.repetition + 1), &second, count]);
            }
        }
    }
    Some(Plot {
        name: format!("silences_{number}"),
        title: format!(
            "Each second of each run, red where nothing arrived: {}",
            name_of(group)
        ),
        svg,
        csv: csv.text(),
    })
}

/// A figure of every cell as a bar, by link.
struct BarPlot {
    /// Name of the plot, and of the published figure.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    digits: usize,
    figure: FigureOf,
    /// Cores, to be drawn as a share of the machine's.
    is_of_machine: bool,
}

impl BarPlot {
    fn draw(&self, cells: &[Cell<'_>], context: &Context<'_>, cores: f64) -> Option<Plot> {
        let columns = "case,link,middleware,median,low,high,published";
        let scale = (self.unit, self.digits, 1e-3);
        let mut chart = Chart::new(scale, &columns.split(',').collect::<Vec<_>>());
        let factor = if self.is_of_machine { 100.0 / cores } else { 1.0 };
        for group in groups(cells) {
            for (series, cell) in group.iter().enumerate() {
                let estimate = cell.estimate(|run| (self.figure)(run).map(|figure| factor * figure));
                let published = context.figures(cell).remove(self.name);
                let text = |estimate: Option<&Estimate>, figure: fn(&Estimate) -> f64| {
                    estimate.map_or(String::new(), |estimate| figure(estimate).to_string())
                };
                let median = text(estimate.as_ref(), |estimate| estimate.median);
                let low = text(estimate.as_ref(), |estimate| estimate.ends().0);
                let high = text(estimate.as_ref(), |estimate| estimate.ends().1);
                let theirs = text(published.as_ref(), |estimate| estimate.median);
                let bar = Bar {
                    other: published,
                    ..Bar::new(&cell.middleware, series, estimate)
                };
                let row: [&dyn Display; 7] = [
                    &cell.case,
                    &cell.link,
                    &cell.middleware,
                    &median,
                    &low,
                    &high,
                    &theirs,
                ];
                chart.add(&name_of(&group), bar, &row);
            }
        }
        chart.plot_with_published(self.name, self.title)
    }
}

/// A node without topics: 1.2.1 and 1.2.2 of the published report.
mod idle {
    use super::*;
    use crate::statistics::quantile_sorted;

    type Part = (&'static str, &'static str, FigureOf);

    /// Processor at the 95th percentile of its seconds, their median, their mean; memory of each kind.
    pub(super) fn plots(cells: &[Cell<'_>], context: &Context<'_>) -> Vec<Plot> {
        let busy: [Part; 3] = [
            ("95 % of the seconds", "cpu_p95", |run| quantile(run, 0.95)),
            ("median of the seconds", "cpu_median", |run| quantile(run, 0.5)),
            ("mean", "cpu_mean", |run| Some(100.0 * run.publisher.cores())),
        ];
        let memory: [Part; 3] = [
            ("of no file", "anonymous", |run| {
                Some(run.publisher.anonymous_bytes as f64 / MIB)
            }),
            ("resident", "resident", |run| {
                Some(run.publisher.rss_max_bytes as f64 / MIB)
            }),
            ("virtual", "virtual", |run| {
                Some(run.publisher.virtual_bytes as f64 / MIB)
            }),
        ];
        let processor = plot(
            "idle_cpu",
            "Processor of an idle node, in percent of a core",
            ("%", 2),
            &busy,
            cells,
            context,
        );
        let memory = plot(
            "idle_memory",
            "Memory of an idle node, in MiB",
            ("MiB", 1),
            &memory,
            cells,
            context,
        );
        processor.into_iter().chain(memory).collect()
    }

    fn quantile(run: &MiddlewareRun, share: f64) -> Option<f64> {
        let mut busy: Vec<f64> = run.samples[0].iter().map(|sample| 100.0 * sample.busy).collect();
        busy.sort_by(f64::total_cmp);
        quantile_sorted(&busy, share)
    }

    fn plot(
        name: &str,
        title: &str,
        (unit, digits): (&'static str, usize),
        parts: &[Part],
        cells: &[Cell<'_>],
        context: &Context<'_>,
    ) -> Option<Plot> {
        let mut chart = Chart::new(
            (unit, digits, 1e-3),
            &["figure", "link", "middleware", "median", "published"],
        );
        for (part, key, figure) in parts {
            for (series, cell) in cells.iter().enumerate() {
                let Some(estimate) = cell.estimate(figure) else {
                    continue;
                };
                let published = context.figures(cell).remove(key);
                let theirs = published
                    .as_ref()
                    .map_or(String::new(), |figure| figure.median.to_string());
                let median = estimate.median;
                let bar = Bar {
                    other: published,
                    ..Bar::new(&cell.middleware, series, estimate)
                };
                chart.add(part, bar, &[part, &cell.link, &cell.middleware, &median, &theirs]);
            }
        }
        chart.plot_with_published(name, title)
    }
}
