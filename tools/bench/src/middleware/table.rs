//! An evaluation's table: a row for each link and middleware.

use super::{EvaluationResult, MiddlewareRun, WorkerCost};
use crate::{
    sheet::{Column, DASH, Sheet},
    statistics::Estimate,
};
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
    /// False if all its runs are invalid: then it is not drawn.
    pub(crate) fn is_valid(&self) -> bool {
        self.runs.iter().any(|run| run.invalid.is_none())
    }

    /// Median and interval of a figure over the repetitions; `None` if no run has it.
    pub(crate) fn estimate(&self, figure: impl Fn(&MiddlewareRun) -> Option<f64>) -> Option<Estimate> {
        let each: Vec<f64> = self.runs.iter().filter_map(|run| figure(run)).collect();
        Estimate::of(&each, 1)
    }

    /// Messages received a second; `None` without a valid run, or of a case that sends none.
    pub(crate) fn received(&self) -> Option<Estimate> {
        let rate = |run: &MiddlewareRun| (run.account.planned > 0).then_some(run.account.received_per_s);
        self.estimate(rate).filter(|_| self.is_valid())
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

impl Cell<'_> {
    /// The median of a figure, or a dash.
    fn text(&self, digits: usize, unit: &str, figure: impl Fn(&MiddlewareRun) -> Option<f64>) -> String {
        let estimate = self.estimate(figure);
        estimate.map_or(DASH.to_owned(), |estimate| {
            format!("{:.digits$}{unit}", estimate.median)
        })
    }

    /// The sum of a count over all runs.
    fn sum(&self, count: impl Fn(&MiddlewareRun) -> u64) -> String {
        self.runs.iter().map(|run| count(run)).sum::<u64>().to_string()
    }

    fn runs(&self) -> String {
        match self.invalid {
            0 => self.runs.len().to_string(),
            invalid => format!("{} ({invalid} invalid)", self.runs.len()),
        }
    }
}

/// The words that name a row.
fn names<'a>() -> [Column<Cell<'a>>; 3] {
    [
        ("case", |cell| cell.case.to_owned()),
        ("link", |cell| cell.link.to_owned()),
        ("middleware", |cell| cell.middleware.clone()),
    ]
}

/// A table of all cells; the case is left out where there is only one.
fn sheet<'a>(title: &str, columns: &[Column<Cell<'a>>], cells: &[Cell<'a>]) -> Sheet {
    let has_cases = cells.iter().any(|cell| cell.case != cells[0].case);
    let names = names().into_iter().skip(usize::from(!has_cases));
    let all: Vec<_> = names.chain(columns.iter().copied()).collect();
    Sheet::of(title, all.len() - columns.len(), &all, cells)
}

/// The tables for people.
pub(crate) fn sheets(result: &EvaluationResult) -> Vec<Sheet> {
    let cells = cells(result);
    if result.runs.iter().any(|run| run.discovery.is_some()) {
        vec![sheet("Until all nodes know each other", &discovery(), &cells)]
    } else if result.runs.iter().all(|run| run.account.planned == 0) {
        vec![sheet("An idle node", &idle(), &cells)]
    } else {
        vec![
            sheet("What arrived, and when", &arrivals(), &cells),
            sheet("What became of every planned message", &fates(), &cells),
        ]
    }
}

/// Nodes without topics, for which there is only a cost.
fn idle<'a>() -> [Column<Cell<'a>>; 5] {
    fn of(cell: &Cell<'_>, digits: usize, figure: fn(&WorkerCost) -> f64) -> String {
        cell.text(digits, "", |run| Some(figure(&run.publisher)))
    }
    [
        ("% of a core", |cell| of(cell, 2, |cost| 100.0 * cost.cores())),
        ("resident MiB", |cell| {
            of(cell, 1, |cost| cost.rss_max_bytes as f64 / MIB)
        }),
        ("of no file MiB", |cell| {
            of(cell, 1, |cost| cost.anonymous_bytes as f64 / MIB)
        }),
        ("virtual MiB", |cell| {
            of(cell, 1, |cost| cost.virtual_bytes as f64 / MIB)
        }),
        ("runs", |cell| cell.runs.len().to_string()),
    ]
}

/// Nodes that only discover each other.
fn discovery<'a>() -> [Column<Cell<'a>>; 7] {
    fn known(cell: &Cell<'_>, share: f64) -> String {
        cell.text(2, "", |run| {
            let known = &run.discovery.as_ref()?.known_s;
            // Rounded down to a node.
            let place = (share * known.len().saturating_sub(1) as f64) as usize;
            known.get(place).copied()
        })
    }
    [
        ("% of nodes", |cell| {
            cell.text(0, "", |run| Some(run.discovery.as_ref()?.complete_percent()))
        }),
        ("first s", |cell| known(cell, 0.0)),
        ("half s", |cell| known(cell, 0.5)),
        ("all s", |cell| {
            cell.text(2, "", |run| run.discovery.as_ref()?.complete_s())
        }),
        ("packets", |cell| {
            cell.text(0, "", |run| {
                Some((run.wire?.forward_packets + run.wire?.back_packets) as f64)
            })
        }),
        ("MiB", |cell| {
            cell.text(2, "", |run| {
                Some((run.wire?.forward_bytes + run.wire?.back_bytes) as f64 / MIB)
            })
        }),
        ("runs", |cell| cell.runs.len().to_string()),
    ]
}

fn arrivals<'a>() -> [Column<Cell<'a>>; 13] {
    [
        ("sent/s", |cell| {
            cell.text(1, "", |run| Some(run.account.sent_per_s))
        }),
        ("received/s", |cell| {
            cell.text(1, "", |run| Some(run.account.received_per_s))
        }),
        ("in 100 ms", |cell| {
            cell.text(1, " %", |run| delivered_percent(run, 100.0))
        }),
        ("in 1 s", |cell| {
            cell.text(1, " %", |run| delivered_percent(run, 1000.0))
        }),
        ("lost", |cell| {
            cell.text(1, " %", |run| Some(run.account.lost_percent()))
        }),
        ("from due p50", |cell| {
            cell.text(1, " ms", |run| Some(run.account.from_due?.p50_ms))
        }),
        ("p99", |cell| {
            cell.text(1, " ms", |run| Some(run.account.from_due?.p99_ms))
        }),
        ("from publish p50", |cell| {
            cell.text(1, " ms", |run| Some(run.account.from_publish?.p50_ms))
        }),
        ("longest silence", |cell| {
            cell.text(1, " s", |run| Some(run.account.silence_longest_s))
        }),
        ("wire ÷ content", |cell| {
            cell.text(2, "", MiddlewareRun::wire_overhead)
        }),
        ("publisher", |cell| {
            cell.text(3, " cores", |run| Some(run.publisher.cores()))
        }),
        ("subscriber", |cell| {
            let is_known = |run: &MiddlewareRun| run.subscriber.elapsed_s > 0.0;
            cell.text(3, " cores", |run| is_known(run).then(|| run.subscriber.cores()))
        }),
        ("runs", Cell::runs),
    ]
}

/// The fate of the planned messages, all runs of a cell together.
fn fates<'a>() -> [Column<Cell<'a>>; 10] {
    [
        ("planned", |cell| cell.sum(|run| run.account.planned)),
        ("not sent", |cell| cell.sum(|run| run.account.not_sent)),
        ("refused", |cell| cell.sum(|run| run.account.refused)),
        ("before match", |cell| cell.sum(|run| run.account.before_match)),
        ("history", |cell| cell.sum(|run| run.account.history)),
        ("transport", |cell| cell.sum(|run| run.account.transport)),
        ("tail", |cell| cell.sum(|run| run.account.tail)),
        ("received", |cell| cell.sum(|run| run.account.received)),
        ("runs not matched", |cell| {
            cell.sum(|run| u64::from(run.matched_s.contains(&None) && run.subscriber.elapsed_s > 0.0))
        }),
        ("publish late p99", |cell| {
            cell.text(1, " ms", |run| Some(run.account.lateness?.p99_ms))
        }),
    ]
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
