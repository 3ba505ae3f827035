//! What arrives and what it costs, in each second of a run.

use super::{Cell, Chart, Context, Line, Lines, MIB, MiddlewareRun, Points, ProcessSample, Side, name_of};

/// A figure of each second of a run.
pub(super) struct EachSecond {
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    points: fn(&MiddlewareRun) -> Points,
    /// Whose published figures they are.
    published: Option<Side>,
}

const fn of_seconds(
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    points: fn(&MiddlewareRun) -> Points,
) -> EachSecond {
    EachSecond {
        name,
        title,
        axis,
        points,
        published: None,
    }
}

fn counts(each_s: &[u64]) -> Points {
    let seconds = each_s.iter().zip(1..);
    seconds
        .map(|(count, second)| (f64::from(second), *count as f64))
        .collect()
}

fn sampled(samples: &[ProcessSample], figure: fn(&ProcessSample) -> f64) -> Points {
    samples
        .iter()
        .map(|sample| (sample.at_s + 1.0, figure(sample)))
        .collect()
}

pub(super) const ARRIVAL: [EachSecond; 2] = [
    EachSecond {
        published: Some(Side::Subscriber),
        ..of_seconds("seconds", "Messages received in each second", "received", |run| {
            counts(&run.account.received_each_s)
        })
    },
    EachSecond {
        published: Some(Side::Publisher),
        ..of_seconds("sent_seconds", "Messages sent in each second", "sent", |run| {
            counts(&run.account.sent_each_s)
        })
    },
];

pub(super) const COST: [EachSecond; 5] = [
    of_seconds(
        "latency_seconds",
        "Mean latency of each second, from publish",
        "ms",
        |run| {
            let seconds = run.account.latency_each_s_ms.iter().zip(1..);
            let known = seconds.filter_map(|(latency, second)| Some((f64::from(second), (*latency)?)));
            known.collect()
        },
    ),
    of_seconds(
        "publisher_cpu_seconds",
        "Processor of the publisher in each second",
        "cores",
        |run| sampled(&run.samples[0], |sample| sample.busy),
    ),
    of_seconds(
        "subscriber_cpu_seconds",
        "Processor of the subscriber in each second",
        "cores",
        |run| sampled(&run.samples[1], |sample| sample.busy),
    ),
    of_seconds(
        "publisher_memory_seconds",
        "Resident memory of the publisher in each second",
        "MiB",
        |run| sampled(&run.samples[0], |sample| sample.rss_bytes as f64 / MIB),
    ),
    of_seconds(
        "subscriber_memory_seconds",
        "Resident memory of the subscriber in each second",
        "MiB",
        |run| sampled(&run.samples[1], |sample| sample.rss_bytes as f64 / MIB),
    ),
];

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

/// Each run faint, their mean bold; published runs in grey.
pub(super) fn each_second(
    number: usize,
    figure: &EachSecond,
    group: &[&Cell<'_>],
    context: &Context<'_>,
) -> Option<Chart> {
    let mut lines = Lines::over("second", figure.axis);
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
            let line = |name: String, points: Points| Line {
                name,
                points,
                dotted: false,
                colour,
            };
            let name = format!("{name}: {:.2} on average", average(&mean));
            if runs.len() > 1 {
                lines
                    .lines
                    .extend(runs.into_iter().map(|points| line(String::new(), points)));
            }
            lines.lines.push(line(name, mean));
        }
    }
    lines.x_begin = 1.0;
    let title = format!(
        "{}, each run faint, their mean bold: {}",
        figure.title,
        name_of(group)
    );
    let name = format!("{}_{number}", figure.name);
    (lines.last() >= 2.0).then(|| lines.chart(&name, &title, ["middleware", "second", figure.axis]))
}
