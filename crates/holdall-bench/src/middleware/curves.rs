//! Figures as lines over what an experiment varies: discovery over the number of nodes, overhead and delivery over the loss of a link.

use super::{
    MiddlewareRun,
    plots::Context,
    table::{Cell, delivered_percent},
};
use crate::{
    error::BenchResult,
    link::spec::Loss,
    suite::report::plots::{
        Plot, csv_cell,
        lines::{self, Axes, Line},
    },
};
use holdall_model::units::MIB;
use std::fmt::Write;

/// With fewer values of what varies there is no line.
const VALUES_MIN: usize = 3;

/// A figure of runs, and how it is drawn.
struct Figure<'a> {
    name: &'a str,
    title: &'a str,
    axis: &'a str,
    of: &'a dyn Fn(&MiddlewareRun) -> Option<f64>,
}

/// Everything that has lines.
///
/// # Errors
/// A plot that cannot be drawn.
pub(crate) fn plots(cells: &[Cell<'_>], context: &Context<'_>) -> BenchResult<Vec<Plot>> {
    let mut plots = Vec::new();
    let discoveries: Vec<&Cell<'_>> = cells.iter().filter(|cell| nodes(cell).is_some()).collect();
    for (number, link) in distinct(discoveries.iter().map(|cell| cell.link.to_owned()))
        .into_iter()
        .enumerate()
    {
        let those = |cell: &&Cell<'_>| (cell.link == link).then(|| nodes(cell)).flatten();
        for figure in DISCOVERY {
            plots.extend(draw(number, &figure, (&link, "nodes"), &discoveries, &those)?);
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
            plots.extend(draw(
                number,
                &figure,
                (&name, "loss of packets, %"),
                &all,
                &those,
            )?);
        }
    }
    Ok(plots)
}

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

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// A line for each middleware over the place that `x` gives its cells; `None` where too few have one.
fn draw(
    number: usize,
    figure: &Figure<'_>,
    (name, x_axis): (&str, &str),
    cells: &[&Cell<'_>],
    x: &dyn Fn(&&Cell<'_>) -> Option<f64>,
) -> BenchResult<Option<Plot>> {
    let mut csv = format!("middleware,x,{}\n", figure.name);
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
            let _never_fails = writeln!(csv, "{},{at},{value}", csv_cell(&middleware)).is_ok();
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
        return Ok(None);
    }
    let points = || drawn.iter().flat_map(|line| &line.points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let most = points().map(|point| point.1).fold(1e-3, f64::max);
    let axes = Axes {
        x: (0.0..last, x_axis),
        y: (0.0..most * 1.1, figure.axis),
        places: &[],
        borders: &[],
        is_log: false,
    };
    Ok(Some(Plot {
        name: format!("{}_{number}", figure.name),
        title: format!("{}: {name}", figure.title),
        svg: lines::draw(&drawn, &axes)?,
        csv,
    }))
}
