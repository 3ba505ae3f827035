//! The short page: a row for every experiment, measured or not, with plots of the first ones, in at most [`WORDS_MAX`] words.

use super::{Loaded, LoadedEvaluation, Results, Storages, plots};
use crate::{
    engine::{distinct, grouped},
    error::BenchResult,
    kinds::storage::Cell as StorageCell,
    middleware::{Cell, MiddlewareRun, WorkerCost, cells},
    sheet::DASH,
    statistics::{Estimate, median},
    suite::{
        config::RecorderKind,
        experiments,
        noise::Noise,
        table::{Row, rows},
    },
};
use holdall_io::fs::write_atomically_unsynced;
use holdall_model::units::format_mebibyte_rate;
use std::{collections::BTreeMap, path::Path};

/// The page's length.
pub const WORDS_MAX: usize = 1200;

/// The page's plots: one of each of its first experiments.
pub const PLOTS_MAX: usize = 6;

/// How many figures a cell has at most, in the order in which rows get them.
const FIGURES_MAX: [usize; 5] = [2, 3, 4, 6, usize::MAX];

/// What every command begins and ends with: the page has it once.
const COMMAND_BEGIN: &str = "holdall bench run ";
const COMMAND_END: &str = " --out DIR";

/// A plot that the page shows.
struct Shown {
    /// Its subject, one sentence.
    title: String,
    /// Its file next to the page.
    file: String,
}

/// Writes the page to `path`, and next to it the first plot of each of the first experiments: `NAME.svg`, `NAME.2.svg`, and so on.
///
/// # Errors
/// A plot that cannot be drawn, a file that cannot be written.
pub fn write_summary(loaded: &Results, path: &Path) -> BenchResult<()> {
    let mut shown: Vec<Shown> = Vec::new();
    for one in &loaded.experiments {
        let Some(chart) = plots::of(one).into_iter().next() else {
            continue;
        };
        let ending = match shown.len() {
            0 => "svg".to_owned(),
            PLOTS_MAX => break,
            before => format!("{}.svg", before + 1),
        };
        let picture = path.with_extension(ending);
        write_atomically_unsynced(&picture, chart.standalone().as_bytes())?;
        let name = picture.file_name().unwrap_or_default();
        shown.push(Shown {
            title: format!("{}: {}", one.result.experiment, chart.title),
            file: name.to_string_lossy().into_owned(),
        });
    }
    let page = markdown(loaded, &shown);
    Ok(write_atomically_unsynced(path, page.as_bytes())?)
}

/// The page: each row has as many figures as there is room for, one at least. Where the shortest rows do not fit, the last ones are in the report only.
fn markdown(loaded: &Results, plots: &[Shown]) -> String {
    let mut lines = rows_of_table(loaded, &[]);
    let mut whole = page(loaded, &lines, lines.len(), plots);
    if words(&whole) <= WORDS_MAX {
        let mut limits = vec![1; lines.len()];
        for more in FIGURES_MAX {
            for row in 0..limits.len() {
                let before = std::mem::replace(&mut limits[row], more);
                lines = rows_of_table(loaded, &limits);
                let longer = page(loaded, &lines, lines.len(), plots);
                if words(&longer) <= WORDS_MAX {
                    whole = longer;
                } else {
                    limits[row] = before;
                }
            }
        }
        return whole;
    }
    let mut fits = page(loaded, &[], lines.len(), plots);
    for count in 1..=lines.len() {
        let longer = page(loaded, &lines[..count], lines.len(), plots);
        if words(&longer) > WORDS_MAX {
            break;
        }
        fits = longer;
    }
    fits
}

/// Words as a reader counts them: figures count; signs, the lines of tables and commands do not.
pub fn words(text: &str) -> usize {
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    let read = text.lines().filter(|line| !line.starts_with("- `"));
    read.flat_map(str::split_whitespace).filter(is_word).count()
}

fn page(loaded: &Results, lines: &[String], all: usize, plots: &[Shown]) -> String {
    let mut out = String::from("# Results\n\n");
    let mut put = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    put("Written by `holdall bench report --summary`; the report without that flag has all figures.\n");
    put(&machines(loaded));
    put("\n| id | question | they | holdall | rivals | runs, disk | verdict |");
    put("|---|---|---|---|---|---|---|");
    for line in lines {
        put(line);
    }
    put(HOW_TO_READ);
    for plot in plots {
        put(&format!("\n![{}]({})", plot.title, plot.file));
    }
    let commands: Vec<String> = loaded
        .commands()
        .iter()
        .map(|command| format!("- `{}`", shortened(command)))
        .collect();
    put("\n## Commands\n");
    put(&format!(
        "`{}`, one of these lines, `{}`:\n",
        COMMAND_BEGIN.trim(),
        COMMAND_END.trim()
    ));
    put(&commands.join("\n"));
    if lines.len() < all {
        put(&format!("\n{} more: see the report.", all - lines.len()));
    }
    out
}

/// A command without what all have in common.
fn shortened(command: &str) -> &str {
    let command = command.strip_prefix(COMMAND_BEGIN).unwrap_or(command);
    command.strip_suffix(COMMAND_END).unwrap_or(command)
}

const HOW_TO_READ: &str = "
Percent: messages recorded of those sent, worst case with its 95 % interval, best case. Slower: cases whose publishers did not keep the rate. *(ours)*: written here after the published design. Disk: its direct or its limited \
rate. ×: a storage's rate ÷ its rival's. Middlewares: messages received a second; idle nodes: part of a core, memory; starting nodes: until all know each other. Noise: the disk varied more than the rows.";

/// The machine of the experiments, or each machine with those that it ran; programs that several of them share stand once.
fn machines(loaded: &Results) -> String {
    let by_machine = loaded.machines();
    if let [(machine, _)] = by_machine.as_slice() {
        return format!("Machine: {machine}.");
    }
    let programs = |machine: &str| machine.split_once("; ").map(|(_, programs)| programs.to_owned());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for found in by_machine.iter().filter_map(|(machine, _)| programs(machine)) {
        *counts.entry(found).or_default() += 1;
    }
    let shared = counts.into_iter().filter(|(_, count)| *count > 1);
    let shared = shared
        .max_by_key(|(_, count)| *count)
        .map(|(programs, _)| programs);
    let line = |(machine, names): &(String, String)| {
        let rest = shared.as_ref().map(|shared| format!("; {shared}"));
        let own = rest
            .and_then(|rest| machine.strip_suffix(&rest))
            .unwrap_or(machine);
        format!("- {names}: {own}.")
    };
    let mut lines: Vec<String> = by_machine.iter().map(line).collect();
    lines.extend(
        shared
            .as_ref()
            .map(|shared| format!("- Where nothing else is named: {shared}.")),
    );
    lines.join("\n")
}

/// What was found in one experiment: a text for each recorder, storage or middleware.
#[derive(Default)]
struct Found {
    they: Vec<String>,
    holdall: Vec<String>,
    rivals: Vec<String>,
    runs: String,
}

impl Found {
    /// What was found in two results of the same experiment.
    fn and(mut self, other: Self) -> Self {
        self.they.extend(other.they);
        self.holdall.extend(other.holdall);
        self.rivals.extend(other.rivals);
        self.runs = format!("{}; {}", self.runs, other.runs);
        self
    }
}

/// A row of every experiment that is shipped, in the order of the documents, then of others; of the figures in its cells, as many as `figures_max` has for
/// the row, or one.
fn rows_of_table(loaded: &Results, figures_max: &[usize]) -> Vec<String> {
    let mut names: Vec<(String, String)> = Vec::new();
    for one in experiments::shipped() {
        if one.id == "B2" {
            names.push(("B1".to_owned(), "raw write throughput of storages".to_owned()));
        }
        if one.id == "L1" {
            names.extend(
                experiments::evaluations()
                    .into_iter()
                    .map(|one| (one.id, one.title)),
            );
            names.push((
                "D8".to_owned(),
                "what users, issues, commits and packages say".to_owned(),
            ));
        }
        names.push((one.id, one.title));
    }
    for one in &loaded.experiments {
        if names.iter().all(|(id, _)| *id != one.result.experiment) {
            names.push((one.result.experiment.clone(), one.result.title.clone()));
        }
    }
    let mut out = Vec::new();
    for (id, title) in names {
        let mut each: Vec<Found> = Vec::new();
        let recorded = loaded
            .experiments
            .iter()
            .filter(|one| one.result.experiment == id);
        each.extend(recorded.map(recorders));
        each.extend(loaded.storages.iter().filter(|one| one.id == id).map(storages));
        each.extend(
            loaded
                .evaluations
                .iter()
                .filter(|one| one.result.experiment == id)
                .map(middlewares),
        );
        let verdict = loaded.verdicts.get(&id).map_or("", String::as_str);
        let one = each.into_iter().reduce(Found::and).unwrap_or_else(|| {
            let how = if id == "D8" && !loaded.people.is_empty() {
                "see the report"
            } else if verdict.is_empty() {
                "not measured"
            } else {
                "data not kept"
            };
            Found {
                holdall: vec![how.to_owned()],
                ..Found::default()
            }
        });
        let figures_max = figures_max.get(out.len()).copied().unwrap_or(1);
        let [they, holdall, rivals] =
            [&one.they, &one.holdall, &one.rivals].map(|cell| listed(cell, figures_max));
        let runs = &one.runs;
        out.push(format!(
            "| {id} | {title} | {they} | {holdall} | {rivals} | {runs} | {verdict} |"
        ));
    }
    out
}

/// The first figures of a cell, and the number of the others.
fn listed(all: &[String], figures_max: usize) -> String {
    let shown = all.len().min(figures_max);
    let more = match all.len() - shown {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    all[..shown].join("; ") + &more
}

/// The recorders of an experiment: the worst and the best case of each.
fn recorders(one: &Loaded) -> Found {
    let rows = rows(&one.result, one.experiment.as_ref());
    let mut found = Found::default();
    let (mut they, mut ours, mut rivals) = (Vec::new(), Vec::new(), Vec::new());
    for (name, rows) in by_recorder(&rows) {
        let published = span(rows.iter().filter_map(|row| row.published_percent), 2, " %");
        // The column says whose they are.
        let name = name.strip_prefix("holdall, ").unwrap_or(&name).to_owned();
        if published != DASH {
            they.push(format!("{} {published}", name.replace(" (ours)", "")));
        }
        let (Some(worst), Some(best)) = (
            lowest(&rows),
            rows.iter()
                .map(|row| row.recorded_percent.median)
                .reduce(f64::max),
        ) else {
            continue;
        };
        let worst = &worst.recorded_percent;
        let text = if format!("{:.2}", worst.median) == format!("{best:.2}") {
            format!("{name} {best:.2} %")
        } else {
            format!("{name} {}–{best:.2} %", worst.text(2, ""))
        };
        let fullest = rows
            .iter()
            .flat_map(|row| &row.runs)
            .flat_map(|run| run.around.core_percents());
        let text = match fullest.reduce(f64::max) {
            Some(percent) => format!("{text}, fullest core {percent:.0} %"),
            None => text,
        };
        let slower = rows.iter().filter(|row| row.slower_text().is_some()).count();
        let text = match slower {
            0 => text,
            slower => format!("{text}, {slower} of {} slower", rows.len()),
        };
        let is_ours = rows[0].setting.recorder == RecorderKind::Holdall;
        if is_ours {
            ours.push(text)
        } else {
            rivals.push(text)
        }
    }
    let of_run = |run: &crate::suite::result::RunResult| {
        let limits = &run.around.limits;
        let held_to = limits.disk_limit_bytes_per_s.unwrap_or(f64::INFINITY);
        let direct = limits.direct_around_bytes_per_s().unwrap_or(f64::INFINITY);
        Some(direct.min(held_to)).filter(|rate| rate.is_finite())
    };
    let limits: Vec<f64> = one.result.runs.iter().filter_map(of_run).collect();
    let disk = median(&limits).map_or(DASH.to_owned(), format_mebibyte_rate);
    let scale = if one.result.scale == 1.0 {
        String::new()
    } else {
        format!(", scale {}", one.result.scale)
    };
    let noise = Noise::of(&one.result.runs).too_noisy_in_short(one.result.machine.cores);
    let noise = if noise.is_some() { ", noise" } else { "" };
    let skipped = one.result.skipped.iter();
    let absent = without(skipped.map(|skipped| skipped.setting.split(", ").next().unwrap_or_default()));
    found.runs = format!("{}, {disk}{scale}{noise}{absent}", one.result.runs.len());
    (found.they, found.holdall, found.rivals) = (they, ours, rivals);
    found
}

type Rows<'r, 'a> = Vec<&'r Row<'a>>;

/// The rows of each recorder with its storage, in the order of the result.
fn by_recorder<'r, 'a>(rows: &'r [Row<'a>]) -> Vec<(String, Rows<'r, 'a>)> {
    grouped(rows, |row| format!("{}, {}", row.recorder, row.storage()))
}

fn lowest<'r, 'a>(rows: &[&'r Row<'a>]) -> Option<&'r Row<'a>> {
    let lower =
        |a: &&&Row<'_>, b: &&&Row<'_>| a.recorded_percent.median.total_cmp(&b.recorded_percent.median);
    rows.iter().min_by(lower).copied()
}

/// The storages: each of holdall's beside its rival.
fn storages(one: &Storages) -> Found {
    let cells = &one.result.body.cells;
    let rounds = cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
    let ratio = |cell: &StorageCell| cell.ratio_to_rival.as_ref().map(|ratio| ratio.median);
    let of_each = |wants: fn(&StorageCell) -> bool| {
        let each = grouped(cells.iter().filter(|cell| wants(cell)), |cell| {
            cell.plugin_config.clone()
        });
        each.into_iter().collect::<Vec<_>>()
    };
    let ours = of_each(|cell| cell.rival.is_some())
        .into_iter()
        .map(|(name, cells)| {
            let ratios = span(cells.iter().filter_map(|cell| ratio(cell)), 2, " ×");
            format!("{name} {ratios}")
        });
    let rivals = of_each(|cell| cell.rival.is_none())
        .into_iter()
        .map(|(name, _)| name);
    let disk = one
        .result
        .limit
        .direct_write_bytes_per_s
        .map_or(DASH.to_owned(), format_mebibyte_rate);
    Found {
        they: Vec::new(),
        holdall: ours.collect(),
        rivals: rivals.collect(),
        runs: format!("{rounds} rounds, {disk}"),
    }
}

/// The middlewares: what each received, over all cases and links.
fn middlewares(one: &LoadedEvaluation) -> Found {
    let mut each = Vec::new();
    let mut they = Vec::new();
    for (name, cells) in grouped(cells(&one.result), |cell| cell.middleware.clone()) {
        let cost = |figure: fn(&WorkerCost) -> f64, digits, unit| {
            let measured =
                |run: &MiddlewareRun| (run.publisher.elapsed_s > 0.0).then(|| figure(&run.publisher));
            let of_cell = |cell: &Cell<'_>| cell.estimate(measured).map(|one: Estimate| one.median);
            span(cells.iter().filter_map(of_cell), digits, unit)
        };
        let runs = &one.result.runs;
        let measured = match runs.iter().all(|run| run.account.planned == 0) {
            _ if runs.iter().any(|run| run.discovery.is_some()) => {
                let complete = |run: &MiddlewareRun| run.discovery.as_ref()?.complete_s();
                let of_cell = |cell: &Cell<'_>| cell.estimate(complete).map(|one: Estimate| one.median);
                span(cells.iter().filter_map(of_cell), 2, " s")
            }
            true => {
                let busy = cost(|cost| 100.0 * cost.cpu_s / cost.elapsed_s, 2, " %");
                let memory = cost(|cost| cost.anonymous_bytes as f64 / f64::from(1 << 20), 1, " MiB");
                format!("{busy}, {memory}")
            }
            false => {
                let received = cells.iter().filter_map(Cell::received);
                span(received.map(|one| one.median), 1, "")
            }
        };
        each.push(format!("{name} {measured}"));
        let published = span(cells.iter().filter_map(|cell| one.published(cell)), 1, "");
        if published != DASH {
            they.push(format!("{name} {published}"));
        }
    }
    let invalid = one.result.runs.iter().filter(|run| run.invalid.is_some()).count();
    let invalid = if invalid > 0 {
        format!(", {invalid} invalid")
    } else {
        String::new()
    };
    let absent = without(one.result.absent.iter().map(|absent| absent.middleware.as_str()));
    Found {
        they,
        holdall: Vec::new(),
        rivals: each,
        runs: format!("{}{invalid}{absent}", one.result.runs.len()),
    }
}

impl LoadedEvaluation {
    /// The published figure of a cell: messages received a second.
    fn published(&self, cell: &Cell<'_>) -> Option<f64> {
        let mut cited = self
            .evaluation
            .iter()
            .flat_map(|evaluation| &evaluation.published);
        cited
            .find(|figure| figure.is_of(cell.case, cell.link, &cell.middleware))
            .map(|figure| figure.received_per_s)
    }
}

/// What was left out of a row, each by its name once.
fn without<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names = distinct(names);
    if names.is_empty() {
        return String::new();
    }
    format!(", without {}", names.join(", "))
}

/// The lowest and the highest figure, one of them where they are equal, a dash without any.
fn span(figures: impl Iterator<Item = f64>, digits: usize, unit: &str) -> String {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = figures.fold(ends, |(low, high), one| (low.min(one), high.max(one)));
    if low > high {
        return DASH.to_owned();
    }
    match (format!("{low:.digits$}"), format!("{high:.digits$}")) {
        (low, high) if low == high => low + unit,
        (low, high) => format!("{low}–{high}{unit}"),
    }
}
