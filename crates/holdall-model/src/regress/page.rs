//! The results of a suite as a page: what differs, where, and how far over time.

use super::{
    CaseOutcome, CaseResult,
    junit::escaped,
    result::{FieldDistance, TopicComparison},
};
use std::fmt::Write;

/// Size of a plot in pixels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 60.0;

/// Fields of a topic that are drawn, those with the largest distances first.
const DRAWN_MAX: usize = 12;

const HEAD: &str = "<!doctype html><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
table { border-collapse: collapse; margin: .5rem 0 } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top }
li.note { opacity: .75 } .passed { color: #2a8a3e } .failed, .error { color: #c0392b } code { overflow-wrap: anywhere }
polyline { fill: none; stroke: #2f6fb3; stroke-width: 1.5 } svg { background: #8881 }
</style>
";

/// The text of a file.
pub fn page(suite: &str, results: &[CaseResult]) -> String {
    let name = escaped(suite);
    let mut html = format!("{HEAD}<title>{name}</title>\n<h1>{name}</h1>\n<table>\n");
    // Writing to a String cannot fail.
    for result in results {
        let (class, case) = (class(result.outcome), escaped(&result.case));
        let first = result.problems.first().map(|problem| escaped(problem));
        let _ = writeln!(
            html,
            "<tr><td class=\"{class}\">{class}<td><a href=\"#{case}\">{case}</a><td>{:.1} s<td>{}",
            result.seconds,
            first.unwrap_or_default()
        );
    }
    html.push_str("</table>\n");
    for result in results {
        let case = escaped(&result.case);
        let _ = writeln!(
            html,
            "<h2 id=\"{case}\">{case}</h2>\n<p><a href=\"{case}/\">files</a> · <a href=\"{case}/software.log\">what the software wrote</a>\n<ul>"
        );
        for problem in &result.problems {
            let _ = writeln!(html, "<li>{}", escaped(problem));
        }
        for note in &result.notes {
            let _ = writeln!(html, "<li class=\"note\">{}", escaped(note));
        }
        html.push_str("</ul>\n");
        for (topic, comparison) in &result.topics {
            topic_part(&mut html, topic, comparison);
        }
    }
    html
}

fn class(outcome: CaseOutcome) -> &'static str {
    match outcome {
        CaseOutcome::Passed => "passed",
        CaseOutcome::Failed => "failed",
        CaseOutcome::Error => "error",
    }
}

fn topic_part(html: &mut String, topic: &str, comparison: &TopicComparison) {
    let TopicComparison {
        golden,
        found,
        missing,
        extra,
        different,
        ..
    } = comparison;
    let _ = writeln!(
        html,
        "<h3>{}</h3>\n<p>{golden} golden messages, {found} now: {missing} missing, {extra} more, {different} differ",
        escaped(topic)
    );
    if !comparison.first.is_empty() {
        html.push_str("<table><tr><th>message<th>field<th>golden<th>now\n");
        for message in &comparison.first {
            for (field, (golden, found)) in &message.fields {
                let _ = writeln!(
                    html,
                    "<tr><td>{}<td><code>{}</code><td><code>{}</code><td><code>{}</code>",
                    message.number,
                    escaped(field),
                    escaped(&golden.to_string()),
                    escaped(&found.to_string())
                );
            }
        }
        html.push_str("</table>\n");
    }
    let mut distances: Vec<_> = comparison.distances.iter().collect();
    distances.sort_by(|(_, one), (_, other)| other.largest.total_cmp(&one.largest));
    for (field, distance) in distances.into_iter().take(DRAWN_MAX) {
        let _ = writeln!(
            html,
            "<p><code>{}</code>, largest distance {}<br>{}",
            escaped(field),
            distance.largest,
            plot(distance)
        );
    }
}

/// Distances over the pairs of messages.
fn plot(distance: &FieldDistance) -> String {
    let step = WIDTH / (distance.values.len().max(2) - 1) as f64;
    let points = distance.values.iter().enumerate().map(|(place, value)| {
        let part = if distance.largest > 0.0 {
            value / distance.largest
        } else {
            0.0
        };
        format!(
            "{:.1},{:.1}",
            place as f64 * step,
            HEIGHT - part * (HEIGHT - 2.0) - 1.0
        )
    });
    let points = points.collect::<Vec<_>>().join(" ");
    format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\"><polyline points=\"{points}\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_what_differs_and_draws_how_far() {
        let mut comparison = TopicComparison {
            different: 1,
            ..TopicComparison::default()
        };
        let distance = comparison.distances.entry("pose.x".to_owned()).or_default();
        distance.note(1, 0.0);
        distance.note(2, 0.5);
        let result = CaseResult {
            case: "yard".to_owned(),
            outcome: CaseOutcome::Failed,
            problems: vec!["/a: <b>".to_owned()],
            topics: [("/a".to_owned(), comparison)].into(),
            ..CaseResult::default()
        };
        let html = page("suite", &[result]);
        assert!(
            html.contains("/a: &lt;b&gt;") && html.contains("largest distance 0.5"),
            "{html}"
        );
        assert!(html.contains("points=\"0.0,59.0 560.0,1.0\""), "{html}");
    }
}
