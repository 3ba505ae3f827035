//! The short page: every experiment in one table, with at most three plots and one sentence for each question, in at most 800 words.

use super::{Loaded, Results, by_machine, plots};
use crate::{
    engine::grouped,
    error::BenchResult,
    statistics::median,
    suite::{
        noise::Noise,
        table::{Row, rows},
    },
};
use holdall_io::fs::write_atomically_unsynced;
use holdall_model::units::{GIB, format_mebibyte_rate};
use std::path::Path;

/// The page's length.
pub const WORDS_MAX: usize = 800;

/// The page's plots: one of each of its first experiments.
pub const PLOTS_MAX: usize = 3;

/// A plot that the page shows.
struct Shown {
    /// Its subject, one sentence.
    title: String,
    /// Its file next to the page.
    file: String,
}

/// Writes the page to `path`, and next to it the first plot of each of the first experiments: `NAME.svg`, `NAME.2.svg`,
/// `NAME.3.svg`.
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

/// The page. Experiments that do not fit any more are in the report only.
fn markdown(loaded: &Results, plots: &[Shown]) -> String {
    let all = &loaded.experiments;
    let mut fits = page(&[], all.len(), plots);
    // From the first on: of many only a few are looked at.
    for count in 1..=all.len() {
        let longer = page(&all[..count], all.len(), plots);
        if words(&longer) > WORDS_MAX {
            break;
        }
        fits = longer;
    }
    fits
}

/// Words as a reader counts them: table lines and other signs do not count.
pub fn words(text: &str) -> usize {
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    text.split_whitespace().filter(is_word).count()
}

fn page(experiments: &[Loaded], all: usize, plots: &[Shown]) -> String {
    let mut out = String::from("# Results\n\n");
    let mut put = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    put("Written by `holdall bench report --summary`; the report without that flag has all figures.\n");
    put(&machines(experiments));
    put(
        "\n| experiment | recorder | cases recorded whole | recorded of each case | durable | processor time |",
    );
    put("|---|---|---|---|---|---|");
    for one in experiments {
        for (recorder, rows) in &by_recorder(&rows(&one.result, one.experiment.as_ref())) {
            put(&line(&one.result.experiment, recorder, rows));
        }
    }
    put(
        "\nRecorded: percent of the messages sent, lowest and highest case. Durable: the fastest case, close and sync included. Processor time: of the \
         recorder for each GiB recorded, median of the cases. Noise: the disk's own rate changed by that factor between the runs, or other programs \
         made that load; rows that differ by less mean nothing.",
    );
    for plot in plots {
        put(&format!("\n![{}]({})", plot.title, plot.file));
    }
    put("");
    for one in experiments {
        put(&sentence(one));
    }
    if experiments.len() < all {
        put(&format!("- {} more: see the report.", all - experiments.len()));
    }
    out
}

/// The machine of the experiments, or each machine with those that it ran.
fn machines(experiments: &[Loaded]) -> String {
    let ran = experiments.iter().map(|one| &one.result);
    let by_machine = by_machine(ran.map(|ran| (&ran.machine, ran.experiment.as_str())));
    if let [(machine, _)] = by_machine.as_slice() {
        return format!("Machine: {machine}.");
    }
    let line = |(machine, names): &(String, String)| format!("- Machine of {names}: {machine}.");
    by_machine.iter().map(line).collect::<Vec<String>>().join("\n")
}

type Rows<'r, 'a> = Vec<&'r Row<'a>>;

/// The rows of each recorder with its storage, in the order of the result.
fn by_recorder<'r, 'a>(rows: &'r [Row<'a>]) -> Vec<(String, Rows<'r, 'a>)> {
    grouped(rows, |row| format!("{}, {}", row.recorder, row.storage()))
}

/// Recorded percent of a row, so that 100 means every message.
fn percent(row: &Row<'_>) -> f64 {
    row.recorded_percent.median
}

fn is_whole(row: &Row<'_>) -> bool {
    row.runs.iter().all(|run| run.counts.recorded == run.counts.sent)
}

fn lowest<'r, 'a>(rows: &[&'r Row<'a>]) -> Option<&'r Row<'a>> {
    let lower = |a: &&&Row<'_>, b: &&&Row<'_>| percent(a).total_cmp(&percent(b));
    rows.iter().min_by(lower).copied()
}

fn line(experiment: &str, recorder: &str, rows: &[&Row<'_>]) -> String {
    let whole = rows.iter().filter(|row| is_whole(row)).count();
    let low = lowest(rows).map_or(0.0, percent);
    let high = rows.iter().map(|row| percent(row)).fold(0.0, f64::max);
    let durable = rows
        .iter()
        .map(|row| row.median(|run| run.times.durable_bytes_per_s));
    let cpu: Vec<f64> = rows
        .iter()
        .map(|row| {
            row.median(|run| run.cost.recorder_cpu_s / (run.counts.recorded_bytes.max(1) as f64 / GIB))
        })
        .collect();
    format!(
        "| {experiment} | {recorder} | {whole} of {} | {low:.2}–{high:.2} % | {} | {:.1} s/GiB |",
        rows.len(),
        format_mebibyte_rate(durable.fold(0.0, f64::max)),
        median(&cpu).unwrap_or(0.0),
    )
}

/// The question, and the answer in a few words: the recorders that lost messages, and where.
fn sentence(one: &Loaded) -> String {
    let result = &one.result;
    let rows = rows(result, one.experiment.as_ref());
    let recorders = by_recorder(&rows);
    let mut answers: Vec<String> = Vec::new();
    for (recorder, rows) in &recorders {
        let lossy: Vec<&Row<'_>> = rows.iter().filter(|row| !is_whole(row)).copied().collect();
        if let Some(worst) = lowest(&lossy) {
            answers.push(format!(
                "{recorder} lost messages in {} of {} cases, most in {} ({:.2} % recorded)",
                lossy.len(),
                rows.len(),
                worst.case,
                percent(worst),
            ));
        }
    }
    match recorders.len() - answers.len() {
        0 => {}
        _ if answers.is_empty() => answers.push("everything was recorded".to_owned()),
        _ => answers.push("the others recorded everything".to_owned()),
    }
    let noise = Noise::of(&result.runs).too_noisy_in_short(result.machine.cores);
    format!(
        "- **{}, {}** (`{}`): {}.{}",
        result.experiment,
        result.title,
        result.command,
        answers.join("; "),
        noise.map_or(String::new(), |noise| format!(" {noise}")),
    )
}
