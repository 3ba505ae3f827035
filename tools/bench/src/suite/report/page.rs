//! The page itself: one file with its style and pictures in it, in HTML that a browser needs no network for.

use super::{Results, Section, file_stem};
use crate::{
    chart::{Chart, escape},
    sheet::Sheet,
    suite::table::EXPLANATIONS,
};
use std::fmt::Write;

/// Appends text; writing into a string does not fail.
macro_rules! put {
    ($body:ident, $($text:tt)+) => {
        let _never_fails = write!($body, $($text)+).is_ok();
    };
}

const STYLE: &str = include_str!("style.css");

/// The whole page with these sections.
pub(super) fn html(loaded: &Results, sections: &[Section]) -> String {
    let mut body = String::from(
        "<a class=skip href=\"#results\">To the results</a><header><h1>holdall bench: results</h1>",
    );
    let machines = loaded.machines();
    for (machine, names) in &machines {
        let names = match machines.len() {
            1 => String::new(),
            _ => format!("Machine of {}: ", escape(names)),
        };
        put!(body, "<p class=soft>{names}{}</p>", escape(machine));
    }
    body.push_str("</header><nav aria-label=Experiments><ul>");
    for Section { id, title, .. } in sections {
        let (id, title) = (escape(id), escape(title));
        put!(
            body,
            "<li><a href=\"#{id}\">{id}</a> <span class=soft>{title}</span></li>"
        );
    }
    body.push_str("</ul></nav><main id=results>");
    if !(loaded.experiments.is_empty() && loaded.storages.is_empty()) {
        how_to_read(&mut body);
    }
    for one in sections {
        section(&mut body, one);
    }
    body.push_str("</main>");
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><title>holdall bench: results</title><style>{STYLE}</style></head>\
         <body>{body}</body></html>\n"
    )
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

fn section(body: &mut String, one: &Section) {
    put!(
        body,
        "<section id=\"{0}\"><h2>{0}: {1}</h2><p class=soft>{2} <code>{3}</code></p>",
        escape(&one.id),
        escape(&one.title),
        escape(&one.about),
        escape(&one.command)
    );
    if let Some(sentence) = &one.banner {
        put!(body, "<p class=banner role=note>{}</p>", escape(sentence));
    }
    body.push_str("<ul class=soft>");
    for note in &one.notes {
        put!(body, "<li>{}</li>", escape(note));
    }
    body.push_str("</ul>");
    for chart in &one.charts {
        figure(body, one, chart);
    }
    for sheet in &one.sheets {
        table(body, sheet);
    }
    body.push_str("</section>");
}

/// A picture with its data and its command below.
fn figure(body: &mut String, section: &Section, chart: &Chart) {
    let (title, csv) = (escape(&chart.title), chart.csv());
    // A title for screen readers.
    let labelled = format!("<svg role=img aria-label=\"{title}\"");
    put!(
        body,
        "<figure><figcaption>{title}</figcaption><div class=scroll tabindex=0 role=region aria-label=\"{title}\">{svg}</div>\
             <details><summary>Data and command</summary><p><code>{command}</code></p><p><a download=\"{id}_{name}.csv\" \
             href=\"data:text/csv;charset=utf-8,{data}\">Save as CSV</a></p>\
             <p>Beside this page: <a href=\"{id}_{name}.svg\">SVG</a>, <a href=\"{id}_{name}.png\">PNG</a></p><pre tabindex=0>{csv}</pre></details></figure>",
        svg = chart.svg().replacen("<svg", &labelled, 1),
        command = escape(&section.command),
        id = escape(&file_stem(&section.id)),
        name = chart.name,
        data = percent_encoded(&csv),
        csv = escape(&csv)
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

/// Characters of a table's rows that a page of full width shows.
const PAGE_CELLS: usize = 150;

/// Characters that a row needs for each column in addition to its text.
const COLUMN_CELLS: usize = 3;

fn table(body: &mut String, sheet: &Sheet) {
    // A hint that it scrolls: always when it is wider than the page, else on narrow screens only.
    let width = (0..sheet.header.len()).map(|column| sheet.width(column) + COLUMN_CELLS);
    let is_wide = width.sum::<usize>() > PAGE_CELLS;
    put!(
        body,
        "<h3>{0}</h3><p class=\"{1}\">{2} columns; scroll sideways to see all →</p>\
             <div class=scroll tabindex=0 role=region aria-label=\"{0}\"><table><thead>",
        escape(&sheet.title),
        if is_wide { "hint" } else { "hint narrow" },
        sheet.header.len()
    );
    let row = |body: &mut String, tag: &str, cells: &[String]| {
        body.push_str("<tr>");
        for (column, cell) in cells.iter().enumerate() {
            let class = if column < sheet.words { " class=name" } else { "" };
            put!(body, "<{tag}{class}>{}", escape(cell));
        }
        body.push_str("</tr>");
    };
    row(body, "th scope=col", &sheet.header);
    body.push_str("</thead><tbody>");
    for cells in &sheet.rows {
        row(body, "td", cells);
    }
    body.push_str("</tbody></table></div>");
}
