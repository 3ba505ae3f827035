//! An evaluation's table: a row for each link and middleware.

use super::{EvaluationResult, MiddlewareRun, WorkerCost};
use crate::{statistics::Estimate, suite::sheet::Sheet};
use holdall_model::units::MIB;

/// All valid repetitions of a case over a link with a middleware.
pub(crate) struct Cell<'a> {
    /// The case's label.
    pub case: &'a str,
    /// The link's label.
    pub link: &'a str,
    /// The middleware's name.
    pub middleware: String,
    /// Valid runs; all when none is valid.
    pub runs: Vec<&'a MiddlewareRun>,
    /// How many runs are left out or mean nothing.
    pub invalid: usize,
}

impl Cell<'_> {
    /// Median and interval of a figure over the repetitions; `None` if no run has it.
    pub(crate) fn estimate(&self, figure: impl Fn(&MiddlewareRun) -> Option<f64>) -> Option<Estimate> {
        let each: Vec<f64> = self.runs.iter().filter_map(|run| figure(run)).collect();
        Estimate::of(&each, 1)
    }
}

/// The cells in the order of the first repetition.
pub(crate) fn cells(result: &EvaluationResult) -> Vec<Cell<'_>> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for run in &result.runs {
        let name = run.middleware.to_string();
        let is_same =
            |cell: &&mut Cell<'_>| cell.case == run.case && cell.link == run.link && cell.middleware == name;
        match cells.iter_mut().find(is_same) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell {
                case: &run.case,
                link: &run.link,
                middleware: name,
                runs: vec![run],
                invalid: 0,
            }),
        }
    }
    for cell in &mut cells {
        cell.invalid = cell.runs.iter().filter(|run| run.invalid.is_some()).count();
        if cell.invalid < cell.runs.len() {
            cell.runs.retain(|run| run.invalid.is_none());
        }
    }
    cells
}

/// The share of planned messages that arrived within this time after they were due, in percent.
pub(crate) fn delivered_percent(run: &MiddlewareRun, deadline_ms: f64) -> Option<f64> {
    let place = super::account::DEADLINES_MS
        .iter()
        .position(|one| *one == deadline_ms)?;
    run.account.delivered.get(place).map(|share| 100.0 * share)
}

/// Nodes without topics, for which there is only a cost.
fn idle_sheet(cells: &[Cell<'_>]) -> Sheet<'static> {
    let rows = cells.iter().map(|cell| {
        let figure = |digits: usize, of: &dyn Fn(&WorkerCost) -> f64| {
            let estimate = cell.estimate(|run| Some(of(&run.publisher)));
            estimate.map_or("–".to_owned(), |estimate| {
                format!("{:.digits$}", estimate.median)
            })
        };
        vec![
            cell.link.to_owned(),
            cell.middleware.clone(),
            figure(2, &|cost| 100.0 * cost.cores()),
            figure(1, &|cost| cost.rss_max_bytes as f64 / MIB),
            figure(1, &|cost| cost.anonymous_bytes as f64 / MIB),
            figure(1, &|cost| cost.virtual_bytes as f64 / MIB),
            cell.runs.len().to_string(),
        ]
    });
    Sheet {
        title: "An idle node",
        header: vec![
            "link",
            "middleware",
            "% of a core",
            "resident MiB",
            "of no file MiB",
            "virtual MiB",
            "runs",
        ],
        words: 2,
        rows: rows.collect(),
    }
}

/// Nodes that only discover each other.
fn discovery_sheet(cells: &[Cell<'_>]) -> Sheet<'static> {
    let rows = cells.iter().map(|cell| {
        let figure = |digits: usize, of: &dyn Fn(&MiddlewareRun) -> Option<f64>| {
            let estimate = cell.estimate(of);
            estimate.map_or("–".to_owned(), |estimate| {
                format!("{:.digits$}", estimate.median)
            })
        };
        let known = |run: &MiddlewareRun, share: f64| {
            let known = &run.discovery.as_ref()?.known_s;
            // Rounded down to a node.
            known
                .get((share * known.len().saturating_sub(1) as f64) as usize)
                .copied()
        };
        vec![
            cell.case.to_owned(),
            cell.link.to_owned(),
            cell.middleware.clone(),
            figure(0, &|run| Some(run.discovery.as_ref()?.complete_percent())),
            figure(2, &|run| known(run, 0.0)),
            figure(2, &|run| known(run, 0.5)),
            figure(2, &|run| run.discovery.as_ref()?.complete_s()),
            figure(0, &|run| {
                Some((run.wire?.forward_packets + run.wire?.back_packets) as f64)
            }),
            figure(2, &|run| {
                Some((run.wire?.forward_bytes + run.wire?.back_bytes) as f64 / MIB)
            }),
            cell.runs.len().to_string(),
        ]
    });
    Sheet {
        title: "Until all nodes know each other",
        header: vec![
            "case",
            "link",
            "middleware",
            "% of nodes",
            "first s",
            "half s",
            "all s",
            "packets",
            "MiB",
            "runs",
        ],
        words: 3,
        rows: rows.collect(),
    }
}

/// The tables for people.
pub(crate) fn sheets(result: &EvaluationResult) -> Vec<Sheet<'static>> {
    let cells = cells(result);
    if result.runs.iter().any(|run| run.discovery.is_some()) {
        vec![discovery_sheet(&cells)]
    } else if result.runs.iter().all(|run| run.account.planned == 0) {
        vec![idle_sheet(&cells)]
    } else {
        vec![sheet(&cells), loss_sheet(&cells)]
    }
}

/// The table of all cells.
fn sheet(cells: &[Cell<'_>]) -> Sheet<'static> {
    let has_cases = cells.iter().any(|cell| cell.case != cells[0].case);
    let mut header = vec!["link", "middleware"];
    if has_cases {
        header.insert(0, "case");
    }
    let words = header.len();
    header.extend([
        "sent/s",
        "received/s",
        "in 100 ms",
        "in 1 s",
        "lost",
        "from due p50",
        "p99",
        "from publish p50",
        "longest silence",
        "wire ÷ content",
        "publisher",
        "subscriber",
        "runs",
    ]);
    let rows = cells.iter().map(|cell| {
        let mut row = vec![cell.link.to_owned(), cell.middleware.clone()];
        if has_cases {
            row.insert(0, cell.case.to_owned());
        }
        let mut figure = |digits: usize, unit: &str, of: &dyn Fn(&MiddlewareRun) -> Option<f64>| {
            let text = cell
                .estimate(of)
                .map(|estimate| format!("{:.digits$}{unit}", estimate.median));
            row.push(text.unwrap_or_else(|| "–".to_owned()));
        };
        figure(1, "", &|run| Some(run.account.sent_per_s));
        figure(1, "", &|run| Some(run.account.received_per_s));
        figure(1, " %", &|run| delivered_percent(run, 100.0));
        figure(1, " %", &|run| delivered_percent(run, 1000.0));
        figure(1, " %", &|run| Some(run.account.lost_percent()));
        figure(1, " ms", &|run| Some(run.account.from_due?.p50_ms));
        figure(1, " ms", &|run| Some(run.account.from_due?.p99_ms));
        figure(1, " ms", &|run| Some(run.account.from_publish?.p50_ms));
        figure(1, " s", &|run| Some(run.account.silence_longest_s));
        figure(2, "", &MiddlewareRun::wire_overhead);
        figure(3, " cores", &|run| Some(run.publisher.cores()));
        figure(3, " cores", &|run| {
            (run.subscriber.elapsed_s > 0.0).then(|| run.subscriber.cores())
        });
        row.push(match cell.invalid {
            0 => cell.runs.len().to_string(),
            invalid => format!("{} ({invalid} invalid)", cell.runs.len()),
        });
        row
    });
    Sheet {
        title: "What arrived, and when",
        header,
        words,
        rows: rows.collect(),
    }
}

/// The fate of the planned messages, all runs of a cell together.
fn loss_sheet(cells: &[Cell<'_>]) -> Sheet<'static> {
    let has_cases = cells.iter().any(|cell| cell.case != cells[0].case);
    let rows = cells.iter().map(|cell| {
        let sum =
            |of: &dyn Fn(&MiddlewareRun) -> u64| cell.runs.iter().map(|run| of(run)).sum::<u64>().to_string();
        let unmatched =
            |run: &MiddlewareRun| u64::from(run.matched_s.contains(&None) && run.subscriber.elapsed_s > 0.0);
        let lateness = cell.estimate(|run| Some(run.account.lateness?.p99_ms));
        let case = has_cases.then(|| cell.case.to_owned());
        let words = [cell.link.to_owned(), cell.middleware.clone()];
        let figures = [
            sum(&|run| run.account.planned),
            sum(&|run| run.account.not_sent),
            sum(&|run| run.account.refused),
            sum(&|run| run.account.before_match),
            sum(&|run| run.account.history),
            sum(&|run| run.account.transport),
            sum(&|run| run.account.tail),
            sum(&|run| run.account.received),
            sum(&unmatched),
            lateness.map_or("–".to_owned(), |estimate| format!("{:.1} ms", estimate.median)),
        ];
        case.into_iter().chain(words).chain(figures).collect()
    });
    let words = ["case", "link", "middleware"];
    Sheet {
        title: "What became of every planned message",
        header: words
            .into_iter()
            .skip(usize::from(!has_cases))
            .chain([
                "planned",
                "not sent",
                "refused",
                "before match",
                "history",
                "transport",
                "tail",
                "received",
                "runs not matched",
                "publish late p99",
            ])
            .collect(),
        words: 2 + usize::from(has_cases),
        rows: rows.collect(),
    }
}

/// The explanations of words in both tables.
pub(crate) const WORDS: &str = "In 100 ms, in 1 s: share of planned messages that arrived so soon after they were due. From due: of those that \
     arrived. Not sent: the publisher was still busy with earlier ones. History: overwritten by a reliable writer before it had arrived. Tail: \
     nothing after it arrived. Wire ÷ content: bytes on the link both ways, discovery included, for each byte of content that arrived.";

/// Both tables as text.
pub fn evaluation_table(result: &EvaluationResult) -> String {
    let mut text = String::new();
    for sheet in sheets(result) {
        text.push_str(&format!("{}\n\n", sheet.text()));
    }
    text.push_str(&format!("{WORDS}\n"));
    for (middleware, settings) in &result.settings {
        text.push_str(&format!("\n{middleware}: {settings}"));
    }
    let clocks = result.runs.iter().filter_map(|run| run.clock);
    if let Some(most) = clocks.map(|clock| clock.uncertainty_us()).reduce(f64::max) {
        text.push_str(&format!(
            "\nlatencies between both machines are known to ± {most:.0} µs"
        ));
    }
    for absent in &result.absent {
        text.push_str(&format!("\nnot run: {}: {}", absent.middleware, absent.reason));
    }
    text
}
