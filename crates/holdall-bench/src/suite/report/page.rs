//! The page itself: one file with its style and pictures in it, in HTML that a browser needs no network for.

use super::{Loaded, compare, plots};
use crate::{
    error::BenchResult,
    suite::table::{Row, rows},
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
    table(body, &rows);
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

fn table(body: &mut String, rows: &[Row<'_>]) {
    body.push_str(
        "<div class=scroll><table><thead><tr><th class=name>case<th class=name>recorder<th class=name>storage<th>cache<th>split<th>offered\
         <th>durable<th>÷ disk limit<th>recorded<th>published<th>lost<th>CPU<th>memory</tr></thead><tbody>",
    );
    for row in rows {
        let setting = row.setting;
        let storage = [
            Some(setting.storage_id.as_str()),
            setting.storage_preset_profile.as_deref(),
        ];
        let limit = row.median(|run| {
            run.limits
                .direct_write_bytes_per_s
                .map_or(0.0, |limit| run.durable_bytes_per_s / limit)
        });
        let lost: Vec<String> = row
            .lost()
            .iter()
            .map(|(stage, count)| format!("{} {count}", stage.as_str()))
            .collect();
        push(
            body,
            format_args!(
                "<tr><td>{}<td class=name>{}<td class=name>{}<td>{} MB<td>{}<td>{:.0} MB/s<td>{:.0} MB/s<td>{}<td>{}<td>{}<td>{}<td>{:.0} %<td>{:.0} MiB</tr>",
                escape(row.case),
                escape(&row.recorder),
                escape(&storage.into_iter().flatten().collect::<Vec<_>>().join(" ")),
                setting.max_cache_size_bytes as f64 / 1e6,
                setting
                    .max_bag_size_bytes
                    .map_or("–".to_owned(), |bytes| format!("{} MB", bytes as f64 / 1e6)),
                row.median(|run| run.offered_bytes_per_s) / 1e6,
                row.median(|run| run.durable_bytes_per_s) / 1e6,
                if limit > 0.0 {
                    format!("{limit:.2}")
                } else {
                    "–".to_owned()
                },
                percent(row),
                row.published_percent
                    .map_or("–".to_owned(), |percent| format!("{percent:.2} %")),
                if lost.is_empty() {
                    "–".to_owned()
                } else {
                    lost.join(", ")
                },
                row.median(|run| 100.0 * run.recorder_cpu_s / run.elapsed_s.max(1e-9)),
                row.median(|run| run.rss_max_bytes.saturating_sub(run.generator_bytes) as f64)
                    / f64::from(1 << 20),
            ),
        );
    }
    body.push_str("</tbody></table></div><p class=soft>CPU: percent of one processor behind the offer. Memory: without the generator's payloads. Brackets: 95 % bootstrap interval of the median.</p>");
}

fn percent(row: &Row<'_>) -> String {
    let estimate = &row.recorded_percent;
    match &estimate.interval {
        Some(interval) => format!(
            "{:.2} % [{:.2}, {:.2}]",
            estimate.median, interval.low, interval.high
        ),
        None => format!("{:.2} %", estimate.median),
    }
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
