//! A playback on the screen: the live lines, the sentences at its end, the table of topics, and the report for programs.

use super::{
    fit::{self, Column},
    line::{Line, bar},
    paint::Paint,
};
use crate::units::{format_bytes, format_elapsed, format_span, plural};
use holdall::play::{
    requests::ServiceCalls,
    status::{AnswerReport, Lateness, PlayPhase, PlayReport, PlayStatus, StepReport, TopicReport},
};
use holdall_model::text::Outside;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest progress bar in cells.
const BAR_CELLS_MAX: usize = 32;

/// The live lines, for a terminal of this width.
pub fn live(status: &PlayStatus, hint: &str, paint: Paint, columns: usize) -> Vec<String> {
    let state = match status.phase {
        PlayPhase::Preparing => paint.attention("preparing"),
        PlayPhase::Waiting => paint.attention("waiting  "),
        _ if status.paused => paint.attention("paused   "),
        PlayPhase::Playing => paint.good("playing  "),
        PlayPhase::Ended => paint.good("ended    "),
    };
    let round = if status.round > 1 {
        format!("round {}", status.round)
    } else {
        String::new()
    };
    let (elapsed, duration) = (status.elapsed(), status.duration);
    let share = if duration.is_zero() {
        0.0
    } else {
        elapsed.as_secs_f64() / duration.as_secs_f64()
    };
    let times = format!("{} / {}", format_elapsed(elapsed), format_elapsed(duration));
    let head = Line::new(columns)
        .part(1, &state)
        .stretch(BAR_CELLS_MAX, |cells| bar(share, cells))
        .part(1, &paint.strong(&times))
        .part(2, &format!("×{}", format_rate(status.rate)))
        .part(3, &round)
        .text();
    let left = duration.saturating_sub(elapsed).div_f64(status.rate.max(1e-6));
    let moves = status.phase == PlayPhase::Playing && !status.paused;
    let counts = Line::new(columns)
        .part(1, &format!("{} published", plural(status.published, "message")))
        .part(2, &format_bytes(status.published_bytes))
        .part(
            3,
            &if moves {
                format!("{} left", format_elapsed(left))
            } else {
                String::new()
            },
        );
    let mut counts = counts.text();
    if status.refused > 0 {
        counts += &format!("  {}", paint.bad(&format!("{} refused", status.refused)));
    }
    if status.starved > 0 {
        counts += &format!(
            "  {}",
            paint.attention(&format!("{} read too late", status.starved))
        );
    }
    vec![head, counts, paint.faint(hint)]
}

/// `1.0`, `0.25`, `2.1`: at least one digit after the point, no trailing zeros.
pub fn format_rate(rate: f64) -> String {
    let text = format!("{rate:.3}");
    let text = text.trim_end_matches('0');
    if text.ends_with('.') {
        format!("{text}0")
    } else {
        text.to_owned()
    }
}

/// The sentences at the end.
pub fn summary(report: &PlayReport, paint: Paint) -> Vec<String> {
    let status = &report.status;
    let mut lines = vec![format!(
        "{} {} of {} in {}",
        if report.stopped { "stopped after" } else { "played" },
        plural(status.published, "message"),
        plural(
            report.topics.iter().filter(|topic| topic.published > 0).count() as u64,
            "topic"
        ),
        format_span(report.elapsed),
    )];
    if status.lateness.count > 0 {
        lines.push(format!(
            "lateness: median {}, 99 % below {}, worst {}",
            format_lateness(status.lateness.p50),
            format_lateness(status.lateness.p99),
            format_lateness(status.lateness.max)
        ));
    }
    if status.spacing.count > 0 {
        lines.push(format!(
            "spacing error: median {}, 99 % below {}, worst {}",
            format_lateness(status.spacing.p50),
            format_lateness(status.spacing.p99),
            format_lateness(status.spacing.max)
        ));
    }
    if status.latched > 0 {
        lines.push(format!(
            "{} of latched topics from before the beginning came first",
            plural(status.latched, "message")
        ));
    }
    if report.untaken() > 0 {
        let topics = report.topics.iter().filter(|topic| topic.untaken > 0).count() as u64;
        lines.push(format!(
            "{} of {} had no subscription",
            plural(report.untaken(), "message"),
            plural(topics, "topic")
        ));
    }
    lines.extend(
        report
            .services
            .iter()
            .map(|(name, calls)| calls_line(name, calls, paint)),
    );
    lines.extend(report.steps.iter().flat_map(|steps| steps_lines(report, steps)));
    lines.extend(report.losses().iter().map(|loss| paint.bad(loss)));
    if let Some(failure) = &report.failure {
        lines.push(paint.bad(&format!("ended early: {}", Outside(failure))));
    }
    lines
}

/// `40 µs`, `1.25 ms`, `2.0 s`.
pub fn format_lateness(span: Duration) -> String {
    match span.as_secs_f64() {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

/// The table of `--verbose`: one row per topic, for a terminal of this width.
pub fn table(topics: &[TopicReport], width: Option<usize>) -> String {
    let each = |cell: &dyn Fn(&TopicReport) -> String| topics.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::of_text(1, "Topic", each(&|topic| Outside(&topic.name).to_string())),
        Column::of_text(
            3,
            "Published as",
            each(&|topic| Outside(&topic.published_as).to_string()),
        ),
        Column::of_text(4, "Type", each(&|topic| Outside(&topic.type_name).to_string())),
        Column::of_numbers(1, "Published", each(&|topic| topic.published.to_string())),
        Column::of_numbers(2, "Refused", each(&|topic| topic.refused.to_string())),
        Column::of_numbers(2, "No subscription", each(&|topic| topic.untaken.to_string())),
        Column::of_numbers(
            2,
            "Not acknowledged",
            each(&|topic| topic.unacknowledged.to_string()),
        ),
        Column::of_numbers(3, "Late p99", each(&|topic| format_lateness(topic.lateness.p99))),
        Column::of_numbers(
            3,
            "Spacing p99",
            each(&|topic| format_lateness(topic.spacing.p99)),
        ),
    ];
    fit::table(columns, width)
}

/// The report for programs.
pub fn json(report: &PlayReport) -> Value {
    let status = &report.status;
    let topics: serde_json::Map<String, Value> = report
        .topics
        .iter()
        .map(|topic| (json_name(topic), json_topic(topic)))
        .collect();
    let services: serde_json::Map<String, Value> = report
        .services
        .iter()
        .map(|(name, calls)| (name.clone(), json_calls(calls)))
        .collect();
    json!({
        "elapsed_s": report.elapsed.as_secs_f64(),
        "published": status.published,
        "refused": status.refused,
        "clock_published": report.clock_published,
        "rounds": status.round,
        "read_too_late": status.starved,
        "published_bytes": status.published_bytes,
        "latched_published": status.latched,
        "without_subscription": report.untaken(),
        "lateness": json_lateness(&status.lateness),
        "spacing_error": json_lateness(&status.spacing),
        "services": services,
        "steps": report.steps.as_ref().map(|steps| json_steps(report, steps)),
        "unacked": report.unacked,
        "unacknowledged": report.unacknowledged(),
        "topics": topics,
        "stopped": report.stopped,
        "failure": report.failure,
    })
}

/// How many times faster than real time it was.
fn times_real_time(report: &PlayReport, steps: &StepReport) -> f64 {
    steps.span.as_secs_f64() / report.elapsed.as_secs_f64().max(1e-9)
}

/// What was answered in lock-step.
fn steps_lines(report: &PlayReport, steps: &StepReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{} answered after a median of {}, 99 % below {}, worst {}; {:.2} times real time",
        plural(steps.answered, "message"),
        format_lateness(steps.answer_time.p50),
        format_lateness(steps.answer_time.p99),
        format_lateness(steps.answer_time.max),
        times_real_time(report, steps)
    )];
    for (topic, answers) in &steps.answers {
        lines.push(format!(
            "answers on {}: {}, SHA-256 {}",
            Outside(topic),
            plural(answers.messages, "message"),
            answers.sha256
        ));
        if answers.unasked > 0 {
            lines.push(format!(
                "{} of {} answered nothing: {} came while no message waited, {} with an earlier stamp than all that waited",
                plural(answers.unasked, "message"),
                Outside(topic),
                answers.unasked - answers.earlier,
                answers.earlier
            ));
        }
    }
    lines.push(format!(
        "published in this order: SHA-256 {}",
        steps.published_sha256
    ));
    lines
}

fn json_steps(report: &PlayReport, steps: &StepReport) -> Value {
    let answer = |(topic, answers): (&String, &AnswerReport)| {
        let AnswerReport {
            messages,
            unasked,
            earlier,
            sha256,
        } = answers;
        let value = json!({"messages": messages, "unasked": unasked, "earlier": earlier, "sha256": sha256});
        (topic.clone(), value)
    };
    json!({
        "steps": steps.steps,
        "answered": steps.answered,
        "missing": steps.missing,
        "first_missing": steps.first_missing,
        "answer_time": json_lateness(&steps.answer_time),
        "span_s": steps.span.as_secs_f64(),
        "times_real_time": times_real_time(report, steps),
        "published_sha256": steps.published_sha256,
        "answers": steps.answers.iter().map(answer).collect::<serde_json::Map<_, _>>(),
    })
}

/// How the requests of a service were answered.
fn calls_line(name: &str, calls: &ServiceCalls, paint: Paint) -> String {
    let parts = [
        (calls.late, "late"),
        (calls.refused, "refused"),
        (calls.unanswered(), "unanswered"),
        (calls.without_server, "not sent, without a server"),
        (
            calls.without_content,
            "not sent, because recorded without content",
        ),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let more: String = parts.map(|(count, what)| format!(", {count} {what}")).collect();
    let line = format!(
        "{} to {}, {} answered{more}",
        plural(calls.sent, "request"),
        Outside(name),
        calls.answered
    );
    if calls.all_answered() {
        line
    } else {
        paint.bad(&line)
    }
}

fn json_calls(calls: &ServiceCalls) -> Value {
    json!({
        "sent": calls.sent,
        "answered": calls.answered,
        "late": calls.late,
        "refused": calls.refused,
        "refusal": calls.refusal,
        "unanswered": calls.unanswered(),
        "without_server": calls.without_server,
        "without_content": calls.without_content,
    })
}

/// The topic's name; with the publisher where several have a row.
fn json_name(topic: &TopicReport) -> String {
    match &topic.publisher {
        Some(publisher) => format!("{} @ {publisher}", topic.name),
        None => topic.name.clone(),
    }
}

fn json_lateness(lateness: &Lateness) -> Value {
    json!({
        "count": lateness.count,
        "p50_s": lateness.p50.as_secs_f64(),
        "p99_s": lateness.p99.as_secs_f64(),
        "p99_9_s": lateness.p99_9.as_secs_f64(),
        "p99_99_s": lateness.p99_99.as_secs_f64(),
        "max_s": lateness.max.as_secs_f64(),
    })
}

fn json_topic(topic: &TopicReport) -> Value {
    json!({
        "published_as": topic.published_as,
        "type": topic.type_name,
        "published": topic.published,
        "refused": topic.refused,
        "refusal": topic.refusal,
        "unacknowledged": topic.unacknowledged,
        "without_subscription": topic.untaken,
        "latched_published": topic.latched,
        "lateness": json_lateness(&topic.lateness),
        "spacing_error": json_lateness(&topic.spacing),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::time::Timestamp;

    fn report() -> PlayReport {
        let start = Timestamp::from_nanos(1_700_000_000_000_000_000);
        PlayReport {
            status: PlayStatus {
                phase: PlayPhase::Playing,
                position: start.saturating_add(Duration::from_secs(30)),
                start,
                duration: Duration::from_secs(120),
                rate: 0.5,
                round: 2,
                published: 1234,
                refused: 3,
                starved: 1,
                lateness: Lateness {
                    count: 1234,
                    p50: Duration::from_micros(40),
                    p99: Duration::from_micros(1250),
                    max: Duration::from_millis(2000),
                    ..Lateness::default()
                },
                ..PlayStatus::default()
            },
            elapsed: Duration::from_secs(61),
            services: std::collections::BTreeMap::new(),
            topics: vec![TopicReport {
                name: "/scan".to_owned(),
                published_as: "/old/scan".to_owned(),
                type_name: "sensor_msgs/msg/LaserScan".to_owned(),
                published: 1234,
                refused: 3,
                refusal: Some("a reader blocked it for 0.1 s".to_owned()),
                untaken: 4,
                ..TopicReport::default()
            }],
            clock_published: 0,
            steps: Some(StepReport {
                steps: 8,
                answered: 7,
                missing: 1,
                first_missing: Some("message 3 that waits for an answer has none".to_owned()),
                span: Duration::from_secs(122),
                published_sha256: "00ff".to_owned(),
                answers: [(
                    "/tracks".to_owned(),
                    AnswerReport {
                        messages: 9,
                        unasked: 3,
                        earlier: 2,
                        sha256: "ff00".to_owned(),
                    },
                )]
                .into(),
                ..StepReport::default()
            }),
            unacked: vec!["/old/scan".to_owned()],
            stopped: false,
            failure: None,
        }
    }

    #[test]
    fn live_lines_show_where_playback_is() {
        insta::assert_snapshot!(live(&report().status, "SPACE pause", Paint::Plain, 100).join("\n"));
    }

    #[test]
    fn the_end_reports_what_was_played_and_what_was_not() {
        insta::assert_snapshot!(summary(&report(), Paint::Plain).join("\n"));
    }

    #[test]
    fn the_table_has_a_row_per_topic() {
        insta::assert_snapshot!(table(&report().topics, None));
    }

    #[test]
    fn the_report_for_programs_is_one_object() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&json(&report())).unwrap());
    }

    #[test]
    fn rates_read_well() {
        assert_eq!(format_rate(1.0), "1.0");
        assert_eq!(format_rate(0.25), "0.25");
        assert_eq!(format_rate(1.1 + 0.1 + 0.1), "1.3");
    }
}
