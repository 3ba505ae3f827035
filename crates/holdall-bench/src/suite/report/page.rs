//! The page itself: one file with its style and pictures in it, in HTML that a browser needs no network for.

use super::{Loaded, compare, plots};
use crate::{
    error::BenchResult,
    suite::{
        ladders,
        noise::Noise,
        table::{Row, Sheet, rows, sheets},
    },
};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// The whole page; `other` are results to compare with.
///
/// # Errors
/// A plot that cannot be drawn.
pub fn html(loaded: &[Loaded], other: &[Loaded]) -> BenchResult<String> {
    let mut body = String::from("<header><h1>holdall bench: results</h1>");
    if let Some(first) = loaded.first() {
        let machine = &first.result.machine;
        push(
            &mut body,
            format_args!(
                "<p class=soft>{} × {}, {:.0} GiB memory, Linux {}, {}; holdall {}</p>",
                machine.cores,
                escape(&machine.processor),
                machine.memory_bytes as f64 / f64::from(1 << 30),
                escape(&machine.kernel),
                escape(&machine.file_system),
                escape(&machine.holdall),
            ),
        );
    }
    body.push_str("</header><nav aria-label=Experiments><ul>");
    for one in loaded {
        let id = escape(&one.result.experiment);
        push(&mut body, format_args!("<li><a href=\"#{id}\">{id}</a></li>"));
    }
    body.push_str("</ul></nav><main>");
    for one in loaded {
        let there = other
            .iter()
            .find(|other| other.result.experiment == one.result.experiment);
        section(&mut body, one, there)?;
    }
    body.push_str("</main>");
    Ok(format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><title>holdall bench: results</title><style>{STYLE}</style></head>\
         <body>{body}</body></html>\n"
    ))
}

fn section(body: &mut String, one: &Loaded, there: Option<&Loaded>) -> BenchResult<()> {
    let result = &one.result;
    let id = escape(&result.experiment);
    push(
        body,
        format_args!(
            "<section id=\"{id}\"><h2>{id}: {}</h2><p class=soft>{}Scale {}, {} runs. <code>{}</code></p>",
            escape(&result.title),
            one.experiment
                .as_ref()
                .and_then(|experiment| experiment.source.as_ref())
                .map(|source| format!("{}. ", escape(source)))
                .unwrap_or_default(),
            result.scale,
            result.runs.len(),
            escape(&result.command),
        ),
    );
    let rows = rows(result, one.experiment.as_ref());
    for sheet in sheets(&rows) {
        table(body, &sheet);
    }
    notes(body, one, &rows);
    if let Some(there) = there {
        comparison(body, &compare::changes(one, there));
    }
    for plot in plots::of(one)? {
        push(
            body,
            format_args!(
                "<figure><figcaption>{}</figcaption>{}<details><summary>Data and command</summary><p><code>{}</code></p><pre>{}</pre></details></figure>",
                escape(&plot.title),
                labelled(&plot.svg, &plot.title),
                escape(&result.command),
                escape(&plot.csv),
            ),
        );
    }
    body.push_str("</section>");
    Ok(())
}

/// A picture that says to a screen reader what it shows.
fn labelled(svg: &str, title: &str) -> String {
    svg.replacen(
        "<svg",
        &format!("<svg role=img aria-label=\"{}\"", escape(title)),
        1,
    )
}

fn table(body: &mut String, sheet: &Sheet) {
    body.push_str("<div class=scroll tabindex=0><table><thead><tr>");
    for (column, name) in sheet.header.iter().enumerate() {
        let class = if column < sheet.words { " class=name" } else { "" };
        push(body, format_args!("<th{class} scope=col>{}", escape(name)));
    }
    body.push_str("</tr></thead><tbody>");
    for row in &sheet.rows {
        body.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if column < sheet.words { " class=name" } else { "" };
            push(body, format_args!("<td{class}>{}", escape(cell)));
        }
        body.push_str("</tr>");
    }
    body.push_str("</tbody></table></div>");
}

/// What belongs to the tables: ladders, what was not run, limits and noise of the machine, how to read it.
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
    lines.push(
        "Durable: bytes in the bag through the time from the first message to the end of close and sync. Brackets: 95 % bootstrap \
         interval of the median. ≈: the intervals cannot tell it from the first row of its case. CPU: percent of one processor, without \
         transport behind the offer, with one the recorder's process. Memory: without the generator's payloads. p99.99: of an offer."
            .to_owned(),
    );
    body.push_str("<ul class=soft>");
    for line in lines {
        push(body, format_args!("<li>{}</li>", escape(&line)));
    }
    body.push_str("</ul>");
}

fn comparison(body: &mut String, changes: &[compare::Change]) {
    body.push_str("<h3>Compared with the other folder</h3><div class=scroll><table><thead><tr><th class=name>case<th class=name>setting<th>recorded there<th>here<th>CPU s/GB there<th>here<th class=name></tr></thead><tbody>");
    for change in changes {
        push(
            body,
            format_args!(
                "<tr><td>{}<td class=name>{}<td>{:.2} %<td>{:.2} %<td>{:.3}<td>{:.3}<td class=name>{}</tr>",
                escape(&change.case),
                escape(&change.setting),
                change.recorded[0].median,
                change.recorded[1].median,
                change.cpu_s_per_gb[0],
                change.cpu_s_per_gb[1],
                if change.is_carried {
                    "changed"
                } else {
                    "≈ not carried by the intervals"
                },
            ),
        );
    }
    body.push_str("</tbody></table></div>");
}

/// Writing into a string does not fail.
fn push(body: &mut String, text: std::fmt::Arguments<'_>) {
    let _never_fails = body.write_fmt(text).is_ok();
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
