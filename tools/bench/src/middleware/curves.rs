//! Figures as lines over the variable of an experiment: discovery over the number of nodes, overhead and delivery over the loss of a
//! link.

use super::{
    CaseKind, MiddlewareRun,
    plots::Context,
    table::{Cell, delivered_percent},
};
use crate::{
    engine::{Csv, distinct},
    link::spec::Loss,
    suite::report::plots::{
        Plot,
        lines::{self, Axes, Line},
    },
};
use holdall_model::units::MIB;

/// With fewer values of the variable no line is drawn.
const VALUES_MIN: usize = 3;

/// A figure of runs, and how it is drawn.
struct Figure<'a> {
    name: &'a str,
    title: &'a str,
    axis: &'a str,
    of: &'a dyn Fn(&MiddlewareRun) -> Option<f64>,
}

/// Everything that has lines.
pub(crate) fn plots(cells: &[Cell<'_>], context: &Context<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    let discoveries: Vec<&Cell<'_>> = cells.iter().filter(|cell| nodes(cell).is_some()).collect();
    for (number, link) in distinct(discoveries.iter().map(|cell| cell.link.to_owned()))
        .into_iter()
        .enumerate()
    {
        let those = |cell: &&Cell<'_>| (cell.link == link).then(|| nodes(cell)).flatten();
        for figure in DISCOVERY {
            plots.extend(draw(number, &figure, (&link, "nodes"), &discoveries, &those));
        }
    }
    let all: Vec<&Cell<'_>> = cells.iter().collect();
    let families = distinct(
        cells
            .iter()
            .filter_map(|cell| family(cell, context).map(|(name, _)| name)),
    );
    for (number, key) in families.into_iter().enumerate() {
        let those = |cell: &&Cell<'_>| {
            let (family, loss) = family(cell, context)?;
            (family == key).then_some(loss)
        };
        let first = all.iter().find(|cell| those(cell).is_some());
        let name = first.map_or(String::new(), |cell| format!("{}, {}", cell.case, cell.link));
        for figure in OVER_LOSS {
            plots.extend(draw(number, &figure, (&name, "loss of packets, %"), &all, &those));
        }
    }
    plots.extend(over_types(&all, context));
    plots
}

/// Figures over the loads of one host, in the order of their sizes (1.2.3); published ones in grey.
fn over_types(cells: &[&Cell<'_>], context: &Context<'_>) -> Vec<Plot> {
    let is_local = |cell: &&&Cell<'_>| {
        context
            .place(cell)
            .is_some_and(|(case, link)| link.spec.is_none() && case.kind == CaseKind::Load)
    };
    let local: Vec<&&Cell<'_>> = cells.iter().filter(is_local).collect();
    let cases = distinct(local.iter().map(|cell| cell.case.to_owned()));
    if cases.len() < VALUES_MIN {
        return Vec::new();
    }
    let places: Vec<&str> = cases.iter().map(String::as_str).collect();
    let mut plots = Vec::new();
    for (figure, key) in OVER_TYPES {
        let mut csv = Csv::of(["middleware", "case", figure.name]);
        let mut lines = Vec::new();
        for (colour, middleware) in distinct(local.iter().map(|cell| cell.middleware.clone()))
            .into_iter()
            .enumerate()
        {
            let of_case = |case: &String| {
                local
                    .iter()
                    .find(|cell| cell.case == *case && cell.middleware == middleware)
            };
            let ours = |case| Some(of_case(case)?.estimate(figure.of)?.median);
            let theirs = |case| Some(context.figures(of_case(case)?).get(key)?.median);
            let both: [(String, Vec<Option<f64>>, Option<usize>); 2] = [
                (
                    format!("{middleware}, published"),
                    cases.iter().map(theirs).collect(),
                    None,
                ),
                (middleware.clone(), cases.iter().map(ours).collect(), Some(colour)),
            ];
            for (name, values, colour) in both {
                let known = values.iter().zip(&places).enumerate();
                let points: Vec<(f64, f64)> = known
                    .filter_map(|(place, (value, case))| {
                        csv.row(&[&name, case, &(*value)?]);
                        Some((place as f64, (*value)?))
                    })
                    .collect();
                if !points.is_empty() {
                    lines.push(Line {
                        name,
                        points,
                        dotted: true,
                        colour,
                    });
                }
            }
        }
        let axes = Axes {
            places: &places,
            ..Axes::around(&lines, "", figure.axis)
        };
        let title = format!("{}; grey: published", figure.title);
        plots.push(lines::plot(figure.name, title, (&lines, &axes), csv));
    }
    plots
}

/// With the names of published figures.
const OVER_TYPES: [(Figure<'static>, &str); 3] = [
    (
        Figure {
            name: "types_received",
            title: "Messages received each second by type",
            axis: "received/s",
            of: &|run| Some(run.account.received_per_s),
        },
        "received",
    ),
    (
        Figure {
            name: "types_latency",
            title: "Effective latency from publish by type",
            axis: "ms",
            of: &|run| run.account.effective_latency_ms,
        },
        "latency",
    ),
    (
        Figure {
            name: "types_cpu",
            title: "Processor of the subscriber by type, in percent of a core (published: of the whole machine)",
            axis: "%",
            of: &|run| (run.subscriber.elapsed_s > 0.0).then(|| 100.0 * run.subscriber.cores()),
        },
        "subscriber_cpu",
    ),
];

const DISCOVERY: [Figure<'static>; 3] = [
    Figure {
        name: "discovery_time",
        title: "Time until every node knows all of the other half",
        axis: "seconds",
        of: &|run| run.discovery.as_ref()?.complete_s(),
    },
    Figure {
        name: "discovery_packets",
        title: "Packets on the link until then",
        axis: "packets",
        of: &|run| Some((run.wire?.forward_packets + run.wire?.back_packets) as f64),
    },
    Figure {
        name: "discovery_bytes",
        title: "Bytes on the link until then",
        axis: "MiB",
        of: &|run| Some((run.wire?.forward_bytes + run.wire?.back_bytes) as f64 / MIB),
    },
];

const OVER_LOSS: [Figure<'static>; 2] = [
    Figure {
        name: "overhead",
        title: "Bytes on the link for each byte of content that arrived",
        axis: "wire ÷ content",
        of: &MiddlewareRun::wire_overhead,
    },
    Figure {
        name: "intime",
        title: "Messages that arrived within a second",
        axis: "% of planned",
        of: &|run| {
            (run.account.planned > 0)
                .then(|| delivered_percent(run, 1000.0))
                .flatten()
        },
    },
];

fn nodes(cell: &Cell<'_>) -> Option<f64> {
    Some(f64::from(cell.runs.first()?.discovery.as_ref()?.nodes))
}

/// A key of the cells that differ by their link's loss only, and that loss in percent.
fn family(cell: &Cell<'_>, context: &Context<'_>) -> Option<(String, f64)> {
    let (_, link) = context.place(cell)?;
    let mut spec = link.spec.clone()?;
    let loss = spec.loss;
    if loss.burst.is_some() {
        return None;
    }
    spec.loss = Loss::default();
    Some((format!("{} {spec:?}", cell.case), 100.0 * loss.share))
}

/// A line for each middleware over the place that `x` gives its cells; `None` if too few have one.
fn draw(
    number: usize,
    figure: &Figure<'_>,
    (name, x_axis): (&str, &str),
    cells: &[&Cell<'_>],
    x: &dyn Fn(&&Cell<'_>) -> Option<f64>,
) -> Option<Plot> {
    let mut csv = Csv::of(["middleware", "x", figure.name]);
    let mut drawn = Vec::new();
    for (colour, middleware) in distinct(cells.iter().map(|cell| cell.middleware.clone()))
        .into_iter()
        .enumerate()
    {
        let own = cells.iter().filter(|cell| cell.middleware == middleware);
        let point = |cell: &&Cell<'_>| Some((x(cell)?, cell.estimate(figure.of)?.median));
        let mut points: Vec<(f64, f64)> = own.filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (at, value) in &points {
            csv.row(&[&middleware, at, value]);
        }
        if !points.is_empty() {
            drawn.push(Line {
                name: middleware,
                points,
                dotted: true,
                colour: Some(colour),
            });
        }
    }
    if drawn.iter().all(|line| line.points.len() < VALUES_MIN) {
        return None;
    }
    let axes = Axes::around(&drawn, x_axis, figure.axis);
    let title = format!("{}: {name}", figure.title);
    let name = format!("{}_{number}", figure.name);
    Some(lines::plot(name, title, (&drawn, &axes), csv))
}
