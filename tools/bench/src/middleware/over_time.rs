//! Figures of each second of the runs of a load over a link: each run faint, their mean bold; published runs in grey.

use super::{MiddlewareRun, plots::Context, published::Side, table::Cell};
use crate::{
    engine::Csv,
    measure::ProcessSample,
    suite::report::plots::{
        Plot,
        lines::{self, Axes, Line},
    },
};
use holdall_model::units::MIB;

type Points = Vec<(f64, f64)>;

/// A figure of each second.
struct Figure {
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    points: fn(&MiddlewareRun) -> Points,
    /// Whose published figures they are.
    published: Option<Side>,
}

fn counts(each_s: &[u64]) -> Points {
    each_s
        .iter()
        .zip(1..)
        .map(|(count, second)| (f64::from(second), *count as f64))
        .collect()
}

fn sampled(samples: &[ProcessSample], figure: fn(&ProcessSample) -> f64) -> Points {
    samples
        .iter()
        .map(|sample| (sample.at_s + 1.0, figure(sample)))
        .collect()
}

const ARRIVAL: [Figure; 2] = [
    Figure {
        name: "seconds",
        title: "Messages received in each second",
        axis: "received",
        points: |run| counts(&run.account.received_each_s),
        published: Some(Side::Subscriber),
    },
    Figure {
        name: "sent_seconds",
        title: "Messages sent in each second",
        axis: "sent",
        points: |run| counts(&run.account.sent_each_s),
        published: Some(Side::Publisher),
    },
];

const COST: [Figure; 5] = [
    Figure {
        name: "latency_seconds",
        title: "Mean latency of each second, from publish",
        axis: "ms",
        points: |run| {
            let seconds = run.account.latency_each_s_ms.iter().zip(1..);
            seconds
                .filter_map(|(latency, second)| Some((f64::from(second), (*latency)?)))
                .collect()
        },
        published: None,
    },
    Figure {
        name: "publisher_cpu_seconds",
        title: "Processor of the publisher in each second",
        axis: "cores",
        points: |run| sampled(&run.samples[0], |sample| sample.busy),
        published: None,
    },
    Figure {
        name: "subscriber_cpu_seconds",
        title: "Processor of the subscriber in each second",
        axis: "cores",
        points: |run| sampled(&run.samples[1], |sample| sample.busy),
        published: None,
    },
    Figure {
        name: "publisher_memory_seconds",
        title: "Resident memory of the publisher in each second",
        axis: "MiB",
        points: |run| sampled(&run.samples[0], |sample| sample.rss_bytes as f64 / MIB),
        published: None,
    },
    Figure {
        name: "subscriber_memory_seconds",
        title: "Resident memory of the subscriber in each second",
        axis: "MiB",
        points: |run| sampled(&run.samples[1], |sample| sample.rss_bytes as f64 / MIB),
        published: None,
    },
];

/// The arrivals in each second, and with `has_cost` their costs.
pub(crate) fn plots(
    number: usize,
    name: &str,
    group: &[&Cell<'_>],
    context: &Context<'_>,
    has_cost: bool,
) -> Vec<Plot> {
    let figures = ARRIVAL.into_iter().chain(COST.into_iter().filter(|_| has_cost));
    figures
        .filter_map(|figure| draw(number, name, &figure, group, context))
        .collect()
}

/// The mean of all runs at each second, of those that have it.
fn mean_of(runs: &[Points]) -> Points {
    let mut all: Points = runs.concat();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let seconds = all.chunk_by(|a, b| a.0 == b.0);
    seconds.map(|points| (points[0].0, average(points))).collect()
}

fn average(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.1).sum::<f64>() / (points.len() as f64).max(1.0)
}

fn draw(
    number: usize,
    name: &str,
    figure: &Figure,
    group: &[&Cell<'_>],
    context: &Context<'_>,
) -> Option<Plot> {
    let mut csv = Csv::of(["middleware", "second", figure.axis]);
    let mut lines = Vec::new();
    for (colour, cell) in group.iter().enumerate() {
        let ours: Vec<Points> = cell.runs.iter().map(|run| (figure.points)(run)).collect();
        let theirs = figure
            .published
            .map_or_else(Vec::new, |side| context.seconds(cell, side));
        let sources = [
            (format!("{}, published", cell.middleware), theirs, None),
            (cell.middleware.clone(), ours, Some(colour)),
        ];
        for (name, runs, colour) in sources {
            let mean = mean_of(&runs);
            if mean.is_empty() {
                continue;
            }
            for (second, value) in &mean {
                csv.row(&[&name, second, value]);
            }
            let line = |name: String, points: Points| Line {
                name,
                points,
                dotted: false,
                colour,
            };
            let name = format!("{name}: {:.2} on average", average(&mean));
            if runs.len() > 1 {
                lines.extend(runs.into_iter().map(|points| line(String::new(), points)));
            }
            lines.push(line(name, mean));
        }
    }
    let axes = Axes::around(&lines, "second", figure.axis);
    if axes.x.0.end < 2.0 {
        return None;
    }
    let axes = Axes {
        x: (1.0..axes.x.0.end, "second"),
        ..axes
    };
    Some(lines::plot(
        format!("{}_{number}", figure.name),
        format!("{}, each run faint, their mean bold: {name}", figure.title),
        (&lines, &axes),
        csv,
    ))
}
