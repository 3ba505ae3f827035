//! Figures over a variable of the experiment: nodes, loss, types of messages.

use super::{
    CaseKind, Cell, Chart, Context, Figure, Lines, MIB, MiddlewareRun, Points, delivered_percent, distinct,
    figure, grouped, name_of, subscriber,
};
use crate::chart::{Map, Square};

/// With fewer values of a variable no line is drawn over it.
const VALUES_MIN: usize = 3;
/// With fewer links a map shows no more than the bars.
const LINKS_MIN: usize = 2;
/// Deadline of the map, in milliseconds.
const DEADLINE_MS: f64 = 1000.0;

const DISCOVERY: [Figure; 3] = [
    figure(
        "discovery_time",
        "Time until every node knows all of the other half",
        "seconds",
        0,
        |run| run.discovery.as_ref()?.complete_s(),
    ),
    figure(
        "discovery_packets",
        "Packets on the link until then",
        "packets",
        0,
        |run| Some((run.wire?.forward_packets + run.wire?.back_packets) as f64),
    ),
    figure(
        "discovery_bytes",
        "Bytes on the link until then",
        "MiB",
        0,
        |run| Some((run.wire?.forward_bytes + run.wire?.back_bytes) as f64 / MIB),
    ),
];

const OVER_LOSS: [Figure; 2] = [
    figure(
        "overhead",
        "Bytes on the link for each byte of content that arrived",
        "wire ÷ content",
        0,
        MiddlewareRun::wire_overhead,
    ),
    figure(
        "intime",
        "Messages that arrived within a second",
        "% of planned",
        0,
        |run| delivered_percent(run, DEADLINE_MS).filter(|_| run.account.planned > 0),
    ),
];

/// Figures over the number of nodes.
pub(super) fn discoveries(cells: &[Cell<'_>]) -> Vec<Chart> {
    let nodes = |cell: &Cell<'_>| Some(f64::from(cell.runs.first()?.discovery.as_ref()?.nodes));
    let mut charts = Vec::new();
    for (number, (link, those)) in grouped(cells, |cell| cell.link).into_iter().enumerate() {
        let over = DISCOVERY
            .iter()
            .filter_map(|figure| over(number, figure, (link, "nodes"), &those, &nodes));
        charts.extend(over);
    }
    charts
}

/// Figures over the loss of links that are equal otherwise.
pub(super) fn over_loss(cells: &[Cell<'_>], context: &Context<'_>) -> Vec<Chart> {
    // A key of the cells that differ by their link's loss only, and that loss in percent.
    let family = |cell: &Cell<'_>| {
        let mut spec = context.place(cell)?.1.spec.clone()?;
        let loss = std::mem::take(&mut spec.loss);
        loss.burst
            .is_none()
            .then(|| (format!("{} {spec:?}", cell.case), 100.0 * loss.share))
    };
    let families = grouped(cells.iter().filter(|cell| family(cell).is_some()), |cell| {
        family(cell).map(|(key, _)| key)
    });
    let mut charts = Vec::new();
    for (number, (_, those)) in families.iter().enumerate() {
        let names = (&*name_of(those), "loss of packets, %");
        let loss = |cell: &Cell<'_>| Some(family(cell)?.1);
        charts.extend(
            OVER_LOSS
                .iter()
                .filter_map(|figure| over(number, figure, names, those, &loss)),
        );
    }
    charts
}

/// A line for each middleware over the place that `x` gives its cells; `None` if too few have one.
fn over(
    number: usize,
    figure: &Figure,
    (name, x_axis): (&str, &str),
    cells: &[&Cell<'_>],
    x: &dyn Fn(&Cell<'_>) -> Option<f64>,
) -> Option<Chart> {
    let mut lines = Lines::over(x_axis, figure.unit);
    for (colour, (middleware, own)) in grouped(cells, |cell| &cell.middleware).into_iter().enumerate() {
        let point = |cell: &&&Cell<'_>| Some((x(cell)?, cell.estimate(figure.of)?.median));
        let mut points: Points = own.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        lines.add(middleware, Some(colour), points);
    }
    let has_values = lines.lines.iter().any(|line| line.points.len() >= VALUES_MIN);
    let title = format!("{}: {name}", figure.title);
    let name = format!("{}_{number}", figure.name);
    has_values.then(|| lines.chart(&name, &title, ["middleware", "x", figure.name]))
}

/// With the names of published figures.
const OVER_TYPES: [(Figure, &str); 3] = [
    (
        figure(
            "types_received",
            "Messages received each second by type",
            "received/s",
            0,
            |run| Some(run.account.received_per_s),
        ),
        "received",
    ),
    (
        figure(
            "types_latency",
            "Effective latency from publish by type",
            "ms",
            0,
            |run| run.account.effective_latency_ms,
        ),
        "latency",
    ),
    (
        figure(
            "types_cpu",
            "Processor of the subscriber by type, in percent of a core (published: of the whole machine)",
            "%",
            0,
            |run| subscriber(run, 100.0 * run.subscriber.cores()),
        ),
        "subscriber_cpu",
    ),
];

/// Figures over the loads of one host, in the order of their sizes (1.2.3); published ones in grey.
pub(super) fn over_types(cells: &[Cell<'_>], context: &Context<'_>) -> Vec<Chart> {
    let is_local = |cell: &&Cell<'_>| {
        let place = context.place(cell);
        place.is_some_and(|(case, link)| link.spec.is_none() && case.kind == CaseKind::Load)
    };
    let local: Vec<&Cell<'_>> = cells.iter().filter(is_local).collect();
    let cases = distinct(local.iter().map(|cell| cell.case));
    if cases.len() < VALUES_MIN {
        return Vec::new();
    }
    let one = |(figure, key): &(Figure, &str)| {
        let mut lines = Lines::over("", figure.unit);
        lines.places = cases.iter().map(ToString::to_string).collect();
        for (colour, (middleware, own)) in grouped(&local, |cell| &cell.middleware).into_iter().enumerate() {
            let points = |value: &dyn Fn(&Cell<'_>) -> Option<f64>| {
                let each = cases.iter().enumerate();
                each.filter_map(|(place, case)| {
                    Some((place as f64, value(own.iter().find(|cell| cell.case == *case)?)?))
                })
                .collect()
            };
            let theirs = points(&|cell| Some(context.figures(cell).get(key)?.median));
            lines.add(&format!("{middleware}, published"), None, theirs);
            lines.add(
                middleware,
                Some(colour),
                points(&|cell| Some(cell.estimate(figure.of)?.median)),
            );
        }
        let title = format!("{}; grey: published", figure.title);
        lines.chart(figure.name, &title, ["middleware", "case", figure.name])
    };
    OVER_TYPES.iter().map(one).collect()
}

/// The share of messages in time by middleware and link; `None` if there are too few of both.
pub(super) fn in_time(number: usize, cells: &[&Cell<'_>]) -> Option<Chart> {
    let links = distinct(cells.iter().map(|cell| cell.link));
    let middlewares = distinct(cells.iter().map(|cell| cell.middleware.as_str()));
    if links.len() < LINKS_MIN || middlewares.len() < 2 {
        return None;
    }
    let map = Map::of(&middlewares, &links, |middleware, link| {
        let mut own = cells.iter().filter(|cell| cell.middleware == middleware);
        let cell = own.find(|cell| cell.link == link)?;
        let percent = cell.estimate(|run| delivered_percent(run, DEADLINE_MS))?.median;
        Some(Square {
            percent,
            value: percent,
            text: format!("{percent:.0} %"),
            published: None,
        })
    });
    let title = format!(
        "Messages that arrived within a second, in percent of planned: {}",
        cells[0].case
    );
    Some(map.chart(
        &format!("heat_{number}"),
        &title,
        ["middleware", "link", "delivered_in_1s_percent", ""],
    ))
}
