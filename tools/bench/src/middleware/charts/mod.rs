//! The plots of an evaluation, with published figures in grey where they are at hand.

mod over;
mod seconds;

use super::{
    CaseKind, EvaluatedLink, Evaluation, EvaluationResult, MiddlewareCase, MiddlewareRun,
    PublishedEvaluation,
    account::DEADLINES_MS,
    published::{PublishedFigures, Side},
    table::{Cell, cells, delivered_percent},
};
use crate::{
    chart::{Bars, Chart, Line, Lines, Map, Square, row},
    engine::{distinct, grouped},
    measure::ProcessSample,
    statistics::quantile_sorted,
};
use holdall_model::units::MIB;
use over::{discoveries, in_time, over_loss, over_types};
use seconds::{ARRIVAL, COST, each_second};

/// Names of [`DEADLINES_MS`].
const DEADLINES: [&str; 10] = ["1 ms", "3", "10", "33", "100", "333", "1 s", "3.3", "10", "33"];
/// With more links than this, cost is not drawn over time.
const LINKS_OVER_TIME_MAX: usize = 12;

/// The context of a result in addition to its runs.
pub(crate) struct Context<'a> {
    /// The experiment, for its links.
    pub evaluation: Option<&'a Evaluation>,
    /// Published figures.
    pub published: Option<&'a PublishedEvaluation>,
}

impl<'a> Context<'a> {
    /// The load and the link of a cell, if the experiment is known.
    fn place(&self, cell: &Cell<'_>) -> Option<(&'a MiddlewareCase, &'a EvaluatedLink)> {
        let evaluation = self.evaluation?;
        let cases = evaluation.cases.iter();
        let mut cases = cases.flat_map(|case| std::iter::once(case).chain(case.beside.as_deref()));
        let case = cases.find(|case| case.label == cell.case)?;
        let link = evaluation.links.iter().find(|link| link.label == cell.link)?;
        Some((case, link))
    }

    fn figures(&self, cell: &Cell<'_>) -> PublishedFigures {
        let found = self
            .place(cell)
            .and_then(|(case, link)| self.published?.figures(&cell.middleware, case, link));
        found.unwrap_or_default()
    }

    fn seconds(&self, cell: &Cell<'_>, side: Side) -> Vec<Points> {
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
pub(crate) fn charts(result: &EvaluationResult, context: &Context<'_>) -> Vec<Chart> {
    let cells: Vec<Cell<'_>> = cells(result).into_iter().filter(Cell::is_valid).collect();
    // A node without topics has only a cost.
    let is_idle = |run: &MiddlewareRun| run.account.planned == 0 && run.discovery.is_none();
    if result.runs.iter().all(is_idle) {
        let idle = IDLE.iter().filter_map(|(name, title, unit, digits, parts)| {
            idle(
                name,
                title,
                Bars::new(unit, *digits, 1e-3),
                parts,
                &cells,
                context,
            )
        });
        return idle.collect();
    }
    if result.runs.iter().any(|run| run.discovery.is_some()) {
        return discoveries(&cells);
    }
    let mut charts = Vec::new();
    let groups = grouped(&cells, |cell| (cell.link, cell.case));
    for (number, (_, group)) in groups.iter().enumerate() {
        charts.push(delivered(number, group));
        let is_linked = group.iter().any(|cell| context.is_linked(cell));
        let costs = ARRIVAL.len()
            + if is_linked && groups.len() <= LINKS_OVER_TIME_MAX {
                COST.len()
            } else {
                0
            };
        let seconds = ARRIVAL.iter().chain(&COST).take(costs);
        charts.extend(seconds.filter_map(|figure| each_second(number, figure, group, context)));
        charts.extend(silences(number, group));
    }
    charts.extend(over_loss(&cells, context));
    charts.extend(over_types(&cells, context));
    for (number, (_, of_case)) in grouped(&cells, |cell| cell.case).iter().enumerate() {
        charts.extend(in_time(number, of_case));
        charts.extend(pairs(number, of_case, context));
    }
    let cores = result.machine.cores.max(1) as f64;
    charts.extend(
        BARS.iter()
            .filter_map(|figure| bars(figure, &cells, context, 1.0)),
    );
    charts.extend(
        SHARES
            .iter()
            .filter_map(|figure| bars(figure, &cells, context, 100.0 / cores)),
    );
    charts
}

type Points = Vec<(f64, f64)>;
type FigureOf = fn(&MiddlewareRun) -> Option<f64>;

/// A figure of a run; its name is that of its plot, and of the published figure.
struct Figure {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    digits: usize,
    of: FigureOf,
}

const fn figure(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    digits: usize,
    of: FigureOf,
) -> Figure {
    Figure {
        name,
        title,
        unit,
        digits,
        of,
    }
}

/// Whether the subscriber was measured.
fn subscriber(run: &MiddlewareRun, figure: f64) -> Option<f64> {
    (run.subscriber.elapsed_s > 0.0).then_some(figure)
}

/// Figures of every cell as bars.
const BARS: [Figure; 7] = [
    figure("received", "Messages received each second", "/s", 1, |run| {
        Some(run.account.received_per_s)
    }),
    figure("sent", "Messages sent each second", "/s", 1, |run| {
        Some(run.account.sent_per_s)
    }),
    figure(
        "lost",
        "Planned messages that did not arrive, in percent (published: of those sent)",
        "%",
        1,
        |run| Some(run.account.lost_percent()),
    ),
    figure(
        "latency",
        "Effective latency as published: mean of the seconds in which something arrived, from publish",
        "ms",
        1,
        |run| run.account.effective_latency_ms,
    ),
    figure(
        "wire",
        "Bytes on the link for each byte of content that arrived",
        "×",
        2,
        MiddlewareRun::wire_overhead,
    ),
    figure(
        "publisher_memory",
        "Resident memory of the publisher, in MiB",
        "MiB",
        1,
        |run| Some(run.publisher.rss_max_bytes as f64 / MIB),
    ),
    figure(
        "subscriber_memory",
        "Resident memory of the subscriber, in MiB",
        "MiB",
        1,
        |run| subscriber(run, run.subscriber.rss_max_bytes as f64 / MIB),
    ),
];

/// Cores, drawn as a share of the machine's.
const SHARES: [Figure; 2] = [
    figure(
        "publisher_cpu",
        "Processor of the publisher, in percent of the whole machine (published: of another machine; as printed, the bars of \
         fastdds-async were rows of fastdds-sync)",
        "%",
        2,
        |run| Some(run.publisher.cores()),
    ),
    figure(
        "subscriber_cpu",
        "Processor of the subscriber, in percent of the whole machine (published: of another machine)",
        "%",
        2,
        |run| subscriber(run, run.subscriber.cores()),
    ),
];

/// A figure of every cell as a bar, by load and link.
fn bars(figure: &Figure, cells: &[Cell<'_>], context: &Context<'_>, factor: f64) -> Option<Chart> {
    let mut bars = Bars::new(figure.unit, figure.digits, 1e-3);
    let mut words = Vec::new();
    for (_, group) in grouped(cells, |cell| (cell.link, cell.case)) {
        for (series, cell) in group.iter().enumerate() {
            let estimate = cell.estimate(|run| (figure.of)(run).map(|figure| factor * figure));
            let published = context.figures(cell).remove(figure.name);
            bars.add(
                (&name_of(&group), &cell.middleware),
                series,
                estimate.as_ref(),
                published.as_ref(),
            );
            words.push(row(&[&cell.case, &cell.link, &cell.middleware]));
        }
    }
    let chart = bars.chart(figure.name, figure.title, ["", "", "median", "published"])?;
    Some(chart.with_words(&["case", "link", "middleware"], words))
}

/// A plot of a node without topics, 1.2.1 and 1.2.2 of the published report: name, title, unit, digits; for each group of bars its name, that of the
/// published figure, and the figure.
type Idle = (
    &'static str,
    &'static str,
    &'static str,
    usize,
    &'static [(&'static str, &'static str, FigureOf)],
);

/// Address space is a hundred times the memory: on one axis the others could not be read.
const IDLE: [Idle; 3] = [
    (
        "idle_cpu",
        "Processor of an idle node, in percent of a core",
        "%",
        2,
        &[
            ("95 % of the seconds", "cpu_p95", |run| quantile(run, 0.95)),
            ("median of the seconds", "cpu_median", |run| quantile(run, 0.5)),
            ("mean", "cpu_mean", |run| Some(100.0 * run.publisher.cores())),
        ],
    ),
    (
        "idle_memory",
        "Memory of an idle node, in MiB",
        "MiB",
        1,
        &[
            ("of no file", "anonymous", |run| {
                Some(run.publisher.anonymous_bytes as f64 / MIB)
            }),
            ("resident", "resident", |run| {
                Some(run.publisher.rss_max_bytes as f64 / MIB)
            }),
        ],
    ),
    (
        "idle_virtual",
        "Address space of an idle node, in MiB",
        "MiB",
        0,
        &[("virtual", "virtual", |run| {
            Some(run.publisher.virtual_bytes as f64 / MIB)
        })],
    ),
];

fn quantile(run: &MiddlewareRun, share: f64) -> Option<f64> {
    let mut busy: Vec<f64> = run.samples[0].iter().map(|sample| 100.0 * sample.busy).collect();
    busy.sort_by(f64::total_cmp);
    quantile_sorted(&busy, share)
}

fn idle(
    name: &str,
    title: &str,
    mut bars: Bars,
    parts: &[(&str, &str, FigureOf)],
    cells: &[Cell<'_>],
    context: &Context<'_>,
) -> Option<Chart> {
    let mut words = Vec::new();
    for (part, key, figure) in parts {
        for (series, cell) in cells.iter().enumerate() {
            if let Some(estimate) = cell.estimate(figure) {
                let published = context.figures(cell).remove(key);
                bars.add(
                    (part, &cell.middleware),
                    series,
                    Some(&estimate),
                    published.as_ref(),
                );
                words.push(row(&[part, &cell.link, &cell.middleware]));
            }
        }
    }
    let chart = bars.chart(name, title, ["", "", "median", "published"])?;
    Some(chart.with_words(&["figure", "link", "middleware"], words))
}

fn name_of(group: &[&Cell<'_>]) -> String {
    format!("{}, {}", group[0].case, group[0].link)
}

/// Share of planned messages over the time since they were due.
fn delivered(number: usize, group: &[&Cell<'_>]) -> Chart {
    let mut lines = Lines::over("after it was due", "arrived, % of planned");
    for (colour, cell) in group.iter().enumerate() {
        let share = |place: usize| {
            let share = cell.estimate(|run| run.account.delivered.get(place).map(|share| 100.0 * share));
            (place as f64, share.map_or(0.0, |estimate| estimate.median))
        };
        lines.add(
            &cell.middleware,
            Some(colour),
            (0..DEADLINES_MS.len()).map(share).collect(),
        );
    }
    lines.x_end = Some((DEADLINES.len() - 1) as f64);
    lines.y_end = Some(100.0);
    lines.places = DEADLINES.map(str::to_owned).to_vec();
    let title = format!("Messages that arrived in time: {}", name_of(group));
    let columns = ["middleware", "deadline_ms", "delivered_percent"];
    let mut data = vec![row(&[&columns[0], &columns[1], &columns[2]])];
    for line in &lines.lines {
        let points = DEADLINES_MS.iter().zip(&line.points);
        data.extend(points.map(|(deadline, (_, share))| row(&[&line.name, deadline, share])));
    }
    let chart = lines.chart(&format!("delivered_{number}"), &title, columns);
    chart.with_data(data)
}

/// Each second of each run, red where nothing arrived.
fn silences(number: usize, group: &[&Cell<'_>]) -> Option<Chart> {
    let runs = || {
        group.iter().flat_map(|cell| {
            cell.runs
                .iter()
                .map(move |run| (cell, &run.account.received_each_s))
        })
    };
    let seconds = runs().map(|(_, counts)| counts.len()).max()?;
    let most = runs().flat_map(|(_, counts)| counts).copied().max()?;
    if seconds < 2 || most == 0 {
        return None;
    }
    // A second with few messages differs from one with none.
    let percent = |count: u64| {
        if count == 0 {
            0.0
        } else {
            60.0 + 40.0 * count as f64 / most as f64
        }
    };
    let square = |count: &u64| {
        Some(Square {
            percent: percent(*count),
            value: *count as f64,
            text: String::new(),
            published: None,
        })
    };
    let mut rows = Vec::new();
    let mut words = Vec::new();
    for (cell, run) in group
        .iter()
        .flat_map(|cell| cell.runs.iter().map(move |run| (cell, run)))
    {
        let (name, number) = (&cell.middleware, run.repetition + 1);
        let counts = &run.account.received_each_s;
        rows.push((format!("{name} {number}"), counts.iter().map(square).collect()));
        words.extend((0..counts.len()).map(|second| row(&[name, &number, &second])));
    }
    let map = Map {
        rows,
        columns: (0..seconds).map(|second| format!("{second} s")).collect(),
        is_small: true,
    };
    let title = format!(
        "Each second of each run, red where nothing arrived: {}",
        name_of(group)
    );
    let chart = map.chart(&format!("silences_{number}"), &title, ["", "", "received", ""]);
    Some(chart.with_words(&["middleware", "run", "second"], words))
}

/// Figures of each pair of middlewares.
const PAIRS: [Figure; 3] = [
    figure(
        "received",
        "Messages received, in percent of planned",
        " %",
        0,
        |run| Some(100.0 - run.account.lost_percent()),
    ),
    figure("latency", "Median latency from due", " ms", 2, |run| {
        Some(run.account.from_due?.p50_ms)
    }),
    figure("cpu", "Processor of both sides, in cores", "", 3, |run| {
        Some(run.publisher.cores() + run.subscriber.cores())
    }),
];

/// A matrix of publishers and subscribers for each figure; empty when all pairs use one middleware.
fn pairs(number: usize, cells: &[&Cell<'_>], context: &Context<'_>) -> Vec<Chart> {
    let sides = |cell: &&Cell<'_>| {
        let sides = &cell.runs.first()?.middleware.sides;
        Some([sides[0].name.clone(), sides[1].name.clone()])
    };
    let named: Vec<_> = cells
        .iter()
        .filter_map(|cell| Some((sides(cell)?, *cell)))
        .collect();
    if named
        .iter()
        .all(|([publisher, subscriber], _)| publisher == subscriber)
    {
        return Vec::new();
    }
    let [publishers, subscribers] =
        [0, 1].map(|side| distinct(named.iter().map(|(names, _)| names[side].as_str())));
    let one = |figure: &Figure| {
        let is_share = figure.name == "received";
        let medians = named.iter().map(|(_, cell)| cell.estimate(figure.of));
        let most = medians
            .flatten()
            .map(|estimate| estimate.median)
            .fold(1e-9, f64::max);
        let published = context.published.filter(|_| is_share);
        let map = Map::of(&publishers, &subscribers, |from, to| {
            let (_, cell) = named.iter().find(|(names, _)| *names == [from, to])?;
            let value = cell.estimate(figure.of)?.median;
            // The worst of a cost has nearly the colour of nothing.
            let percent = if is_share {
                value
            } else {
                100.0 - 80.0 * value / most
            };
            let theirs = published.and_then(|published| published.pair(from, to));
            Some(Square {
                percent,
                value,
                text: format!("{value:.*}{}", figure.digits, figure.unit),
                published: theirs.map(|count| (count, format!("{count:.1} of 5"))),
            })
        });
        let grey = if published.is_some() {
            "; grey: published, of 5 each second"
        } else {
            ""
        };
        let case = named.first().map_or("", |(_, cell)| cell.case);
        map.chart(
            &format!("pairs_{}_{number}", figure.name),
            &format!(
                "{} by publisher (row) and subscriber (column): {case}{grey}",
                figure.title
            ),
            ["publisher", "subscriber", figure.name, "published_of_5_per_s"],
        )
    };
    PAIRS.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        machine::Machine,
        middleware::{Account, WorkerCost},
    };

    fn run(middleware: &str, link: &str) -> MiddlewareRun {
        MiddlewareRun {
            case: "load".to_owned(),
            link: link.to_owned(),
            middleware: middleware.parse().unwrap(),
            repetition: 0,
            invalid: None,
            message_bytes: 8,
            matched_s: [None; 2],
            account: Account {
                planned: 4,
                received_each_s: vec![3, 0],
                ..Account::default()
            },
            publisher: WorkerCost::default(),
            subscriber: WorkerCost::default(),
            wire: None,
            discovery: None,
            clock: None,
            samples: Default::default(),
            beside: None,
        }
    }

    fn charts_of(runs: Vec<MiddlewareRun>) -> Vec<Chart> {
        let result = EvaluationResult {
            experiment: String::new(),
            title: String::new(),
            source: None,
            scale: 1.0,
            duration_s: 2.0,
            warm_up_s: 0.0,
            command: String::new(),
            earlier: Vec::new(),
            machine: Machine::default(),
            other_machine: None,
            runs,
            absent: Vec::new(),
            settings: Vec::new(),
        };
        let context = Context {
            evaluation: None,
            published: None,
        };
        charts(&result, &context)
    }

    #[test]
    fn data_have_a_column_for_each_name_of_a_bar_or_cell() {
        let charts = charts_of(vec![
            run("cyclone", "a"),
            run("fastdds-sync>cyclone", "a"),
            run("cyclone", "b"),
        ]);
        let begins = |name: &str| {
            let chart = charts.iter().find(|chart| chart.name == name).unwrap();
            chart.csv().lines().take(2).collect::<Vec<_>>().join(" / ")
        };
        for (name, expected) in [
            (
                "received",
                "case,link,middleware,median,low,high,published / load,a,cyclone,0,0,0,",
            ),
            ("silences_0", "middleware,run,second,received / cyclone,1,0,3"),
            (
                "pairs_received_0",
                "publisher,subscriber,received,published_of_5_per_s / cyclone,cyclone,0,",
            ),
            (
                "delivered_0",
                "middleware,deadline_ms,delivered_percent / cyclone,1,0",
            ),
            ("seconds_0", "middleware,second,received / cyclone,1,3"),
            ("heat_0", "middleware,link,delivered_in_1s_percent"),
        ] {
            assert_eq!(begins(name), expected, "{name}");
        }
        let mut idle = run("udp", "a");
        idle.account.planned = 0;
        let csv = charts_of(vec![idle])[0].csv();
        assert!(
            csv.starts_with("figure,link,middleware,median,low,high,published\nmean,a,udp,"),
            "{csv}"
        );
    }
}
