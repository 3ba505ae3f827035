//! The page itself: one file with its style and pictures in it, in HTML that a browser needs no network for.

use super::{Loaded, LoadedEvaluation, Results, Storages, compare, plots};
use crate::{
    engine::{UNSUPPORTED, limits_text},
    kinds::storage::sheet,
    middleware::{self, PublishedEvaluation},
    people::{self, PeopleResult},
    statistics::Estimate,
    suite::{
        ladders,
        noise::Noise,
        sheet::{Column, Sheet},
        table::{EXPLANATIONS, Row, rows, sheets},
    },
};
use std::fmt::Write;

/// Appends text; writing into a string does not fail.
macro_rules! put {
    ($body:ident, $($text:tt)+) => {
        let _never_fails = write!($body, $($text)+).is_ok();
    };
}

const STYLE: &str = include_str!("style.css");

/// The whole page; `other` are results to compare with.
pub fn html(loaded: &Results, other: &Results) -> String {
    let mut body = String::from(
        "<a class=skip href=\"#results\">To the results</a><header><h1>holdall bench: results</h1>",
    );
    let machines = loaded.experiments.iter().map(|one| &one.result.machine);
    let machines = machines.chain(loaded.evaluations.iter().map(|one| &one.result.machine));
    let mut machines = machines.chain(loaded.storages.iter().map(|one| &one.result.machine));
    if let Some(machine) = machines.next() {
        put!(
            body,
            "<p class=soft>{} × {}, {:.0} GiB memory, Linux {}, {}; holdall {}</p>",
            machine.cores,
            escape(&machine.processor),
            machine.memory_bytes as f64 / holdall_model::units::GIB,
            escape(&machine.kernel),
            escape(&machine.file_system),
            escape(&machine.holdall)
        );
    }
    body.push_str("</header><nav aria-label=Experiments><ul>");
    let mut entry = |id: &str, title: &str| {
        let (id, title) = (escape(id), escape(title));
        put!(
            body,
            "<li><a href=\"#{id}\">{id}</a> <span class=soft>{title}</span></li>"
        );
    };
    for one in &loaded.experiments {
        entry(&one.result.experiment, &one.result.title);
    }
    for one in &loaded.evaluations {
        entry(&one.result.experiment, &one.result.title);
    }
    if !loaded.people.is_empty() {
        entry(people::ID, PEOPLE_TITLE);
    }
    for one in &loaded.storages {
        entry(&one.id, STORAGES_TITLE);
    }
    body.push_str("</ul></nav><main id=results>");
    if !(loaded.experiments.is_empty() && loaded.storages.is_empty()) {
        how_to_read(&mut body);
    }
    for one in &loaded.experiments {
        let there = other
            .experiments
            .iter()
            .find(|other| other.result.experiment == one.result.experiment);
        section(&mut body, one, there);
    }
    for one in &loaded.evaluations {
        evaluation(&mut body, one, loaded.published.as_ref());
    }
    for one in &loaded.people {
        people_section(&mut body, one);
    }
    for one in &loaded.storages {
        let there = other.storages.iter().find(|other| other.id == one.id);
        storages(&mut body, one, there);
    }
    body.push_str("</main>");
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><title>holdall bench: results</title><style>{STYLE}</style></head>\
         <body>{body}</body></html>\n"
    )
}

fn section(body: &mut String, one: &Loaded, there: Option<&Loaded>) {
    let result = &one.result;
    let id = escape(&result.experiment);
    put!(
        body,
        "<section id=\"{id}\"><h2>{id}: {}</h2><p class=soft>{}Scale {}, {} runs. <code>{}</code></p>",
        escape(&result.title),
        one.experiment
            .as_ref()
            .and_then(|experiment| experiment.source.as_ref())
            .map(|source| format!("{}. ", escape(source)))
            .unwrap_or_default(),
        result.scale,
        result.runs.len(),
        escape(&result.command)
    );
    let rows = rows(result, one.experiment.as_ref());
    if let Some(sentence) = Noise::of(&result.runs).too_noisy(result.machine.cores) {
        put!(body, "<p class=banner role=note>{}</p>", escape(&sentence));
    }
    notes(body, one, &rows);
    let name = (result.experiment.as_str(), result.command.as_str());
    if let Some(there) = there {
        let changes = compare::changes(one, there);
        for plot in plots::of_changes(&changes) {
            figure(body, name, &plot);
        }
        comparison(body, &changes, there);
        body.push_str("<h3>This folder by itself</h3>");
    }
    for plot in plots::of(one) {
        figure(body, name, &plot);
    }
    for sheet in sheets(&rows) {
        table(body, &sheet);
    }
    body.push_str("</section>");
}

/// The words that explain columns and marks, before the first of them.
fn how_to_read(body: &mut String) {
    body.push_str("<section class=words><h2>How to read this page</h2><dl>");
    for (name, text) in EXPLANATIONS {
        put!(body, "<dt>{}<dd>{}", escape(name), escape(text));
    }
    body.push_str(
        "</dl><p>Each experiment begins with its command, its limits and the noise of the machine; then come its plots, each with data, \
         then its tables. Wide tables scroll sideways in their box.</p></section>",
    );
}

fn storages(body: &mut String, one: &Storages, there: Option<&Storages>) {
    put!(
        body,
        "<section id=\"{0}\"><h2>{0}: {1}</h2><p class=soft>{2}. <code>{3}</code></p>",
        escape(&one.id),
        escape(STORAGES_TITLE),
        escape(&one.result.body.about()),
        escape(&one.result.command)
    );
    if let Some(there) = there {
        put!(
            body,
            "<p class=soft>Compared with {}: {}, {}.</p>",
            escape(&there.path.display().to_string()),
            escape(&there.result.body.about()),
            escape(&there.result.machine.processor)
        );
    }
    put!(
        body,
        "<ul class=soft><li>{}</li><li>Durable: payload bytes through the time from the first message to the end of close and sync. \
             Brackets: 95 % bootstrap interval of the median. ÷ limit, ÷ rival: round by round.</li></ul>",
        escape(&limits_text(&one.result.limit))
    );
    for plot in one.plots(there) {
        figure(body, (&one.id, &one.result.command), &plot);
    }
    table(body, &sheet(&one.result.body.cells));
    body.push_str("</section>");
}

fn evaluation(body: &mut String, one: &LoadedEvaluation, published: Option<&PublishedEvaluation>) {
    let result = &one.result;
    let source = result
        .source
        .as_ref()
        .map(|source| format!("{source}. "))
        .unwrap_or_default();
    put!(
        body,
        "<section id=\"{0}\"><h2>{0}: {1}</h2><p class=soft>{2}{3} s after {4} s of warm-up, {5} runs. <code>{6}</code></p><ul class=soft>",
        escape(&result.experiment),
        escape(&result.title),
        escape(&source),
        result.duration_s,
        result.warm_up_s,
        result.runs.len(),
        escape(&result.command)
    );
    for (name, settings) in &result.settings {
        put!(body, "<li>{}: {}</li>", escape(name), escape(settings));
    }
    for absent in &result.absent {
        let [name, reason] = [&absent.middleware, &absent.reason].map(|text| escape(text));
        put!(body, "<li>Not run: {name}: {reason}</li>");
    }
    body.push_str("</ul>");
    for sheet in middleware::sheets(result) {
        table(body, &sheet);
    }
    put!(body, "<p class=soft>{}</p>", escape(middleware::WORDS));
    for plot in one.plots(published) {
        figure(body, (&result.experiment, &result.command), &plot);
    }
    body.push_str("</section>");
}

const STORAGES_TITLE: &str = "raw write throughput of storages";

const PEOPLE_TITLE: &str = "answers of users, issues and pull requests";

fn people_section(body: &mut String, one: &PeopleResult) {
    put!(
        body,
        "<section id=\"{0}\"><h2>{0}: {PEOPLE_TITLE}</h2><p class=soft>{1} <code>{2}</code></p>",
        people::ID,
        escape(people::WORDS),
        escape(&one.command)
    );
    for plot in people::plots(one) {
        figure(body, (people::ID, &one.command), &plot);
    }
    for sheet in people::sheets(one) {
        table(body, &sheet);
    }
    body.push_str("</section>");
}

/// A picture with its data and its command below.
fn figure(body: &mut String, (id, command): (&str, &str), plot: &plots::Plot) {
    put!(
        body,
        "<figure><figcaption>{title}</figcaption><div class=scroll tabindex=0 role=region aria-label=\"{title}\">{svg}</div>\
             <details><summary>Data and command</summary><p><code>{command}</code></p><p><a download=\"{id}_{name}.csv\" \
             href=\"data:text/csv;charset=utf-8,{data}\">Save as CSV</a></p>\
             <p>Beside this page: <a href=\"{id}_{name}.svg\">SVG</a>, <a href=\"{id}_{name}.png\">PNG</a></p><pre tabindex=0>{csv}</pre></details></figure>",
        title = escape(&plot.title),
        svg = labelled(&plot.svg, &plot.title),
        command = escape(command),
        id = escape(&super::file_stem(id)),
        name = plot.name,
        data = percent_encoded(&plot.csv),
        csv = escape(&plot.csv)
    );
}

/// Text within an address: all but letters, digits and `-._~` is written as bytes.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            put!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A picture with a title for screen readers.
fn labelled(svg: &str, title: &str) -> String {
    svg.replacen(
        "<svg",
        &format!("<svg role=img aria-label=\"{}\"", escape(title)),
        1,
    )
}

fn table(body: &mut String, sheet: &Sheet<'_>) {
    put!(
        body,
        "<h3>{0}</h3>{1}<div class=scroll tabindex=0 role=region aria-label=\"{0}\"><table><thead><tr>",
        escape(sheet.title),
        scroll_hint(sheet)
    );
    for (column, name) in sheet.header.iter().enumerate() {
        let class = if column < sheet.words { " class=name" } else { "" };
        put!(body, "<th{class} scope=col>{}", escape(name));
    }
    body.push_str("</tr></thead><tbody>");
    for row in &sheet.rows {
        body.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if column < sheet.words { " class=name" } else { "" };
            put!(body, "<td{class}>{}", escape(cell));
        }
        body.push_str("</tr>");
    }
    body.push_str("</tbody></table></div>");
}

/// Characters of a table's rows that a page of full width shows.
const PAGE_CELLS: usize = 150;

/// Characters that a row needs for each column in addition to its text.
const COLUMN_CELLS: usize = 3;

/// A hint that a table scrolls: always when it is wider than the page, else on narrow screens only.
fn scroll_hint(sheet: &Sheet<'_>) -> String {
    let width = (0..sheet.header.len()).map(|column| sheet.width(column) + COLUMN_CELLS);
    let class = if width.sum::<usize>() > PAGE_CELLS {
        "hint"
    } else {
        "hint narrow"
    };
    format!(
        "<p class=\"{class}\">{} columns; scroll sideways to see all →</p>",
        sheet.header.len()
    )
}

/// Notes on the plots and tables: ladders, skipped runs, limits and noise of the machine.
fn notes(body: &mut String, one: &Loaded, rows: &[Row<'_>]) {
    let mut lines = one
        .experiment
        .as_ref()
        .map_or_else(Vec::new, |experiment| ladders::sentences(rows, experiment));
    let skipped = one.result.skipped.iter();
    lines.extend(skipped.map(|one| format!("Not run: {}, {}: {}", one.case, one.setting, one.reason)));
    let noise = Noise::of(&one.result.runs);
    lines.push(format!("Limits of these runs: {}.", noise.limits_text()));
    lines.push(format!("Noise of the machine: {}.", noise.text()));
    body.push_str("<ul class=soft>");
    for line in lines {
        put!(body, "<li>{}</li>", escape(&line));
    }
    body.push_str("</ul>");
}

fn comparison(body: &mut String, changes: &[compare::Change], there: &Loaded) {
    put!(
        body,
        "<h3>Compared with {}</h3><p class=soft>There: scale {}, {} runs, {}. <code>{}</code></p>",
        escape(&there.folder.display().to_string()),
        there.result.scale,
        there.result.runs.len(),
        escape(&there.result.machine.processor),
        escape(&there.result.command)
    );
    let columns: [Column<compare::Change>; 8] = [
        ("case", |change| change.case.clone()),
        ("setting", |change| change.setting.clone()),
        ("recorded there", |change| with_ends(&change.recorded[0], 2)),
        ("here", |change| with_ends(&change.recorded[1], 2)),
        ("", |change| verdict(change.is_carried, &change.recorded, true)),
        ("CPU s/GiB there", |change| with_ends(&change.cpu_s_per_gib[0], 3)),
        ("here", |change| with_ends(&change.cpu_s_per_gib[1], 3)),
        ("", |change| {
            verdict(change.is_cpu_carried, &change.cpu_s_per_gib, false)
        }),
    ];
    table(body, &Sheet::of("", 2, &columns, changes));
    if changes.is_empty() {
        body.push_str("<p>Both folders have no setting in common.</p>");
    }
    body.push_str(
        "<p class=soft>≈: the intervals overlap, or there are too few repetitions for intervals.</p>",
    );
}

fn verdict(is_carried: bool, [there, here]: &[Estimate; 2], more_is_better: bool) -> String {
    let is_better = (here.median > there.median) == more_is_better;
    let word = if is_better { "better" } else { "worse" };
    (if is_carried { word } else { UNSUPPORTED }).to_owned()
}

/// A median with its interval.
fn with_ends(estimate: &Estimate, digits: usize) -> String {
    let median = estimate.median;
    match estimate.interval {
        Some(ends) => format!(
            "{median:.digits$} [{:.digits$}, {:.digits$}]",
            ends.low, ends.high
        ),
        None => format!("{median:.digits$}"),
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
