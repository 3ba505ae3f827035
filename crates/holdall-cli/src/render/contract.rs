//! Verdicts of contracts for people.

use super::{labels::time_point, paint::Paint};
use holdall_model::{
    contract::{Contract, ContractStatus, Outcome, Verdict, Violation, sentence},
    text::Outside,
    units::counted,
};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::{fmt::Write, path::PathBuf};

/// Rules and violations that are shown to people; JSON has more.
const SHOWN_MAX: usize = 20;
const VIOLATIONS_MAX: usize = 3;

/// The verdict at the end of a recording.
pub fn of_recording(contract: &Contract, status: &ContractStatus, paint: Paint) -> String {
    match &status.verdict {
        Some(verdict) => text(contract, verdict, paint).trim_end().to_owned(),
        None => format!("contract {}", paint.bad("unknown (it was not judged to the end)")),
    }
}

/// The verdict: one line, then each rule that has not passed, with its first violations.
pub fn text(contract: &Contract, verdict: &Verdict, paint: Paint) -> String {
    let mut text = format!("contract {}\n", paint_of(verdict.outcome, &verdict.line(), paint));
    let open = verdict
        .rules
        .iter()
        .filter(|rule| rule.outcome != Outcome::Passed);
    for rule in open.clone().take(SHOWN_MAX) {
        let known = contract
            .rules
            .get(rule.rule)
            .map_or_else(|| rule.kind.clone(), sentence);
        let topic = rule.topic.as_deref().filter(|topic| !known.starts_with(topic));
        let of_topic = topic.map_or_else(String::new, |topic| format!(" ({})", Outside(topic)));
        let word = paint_of(rule.outcome, rule.outcome.as_str(), paint);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {word}{of_topic} {}", Outside(&known));
        if rule.outcome == Outcome::Unknown {
            let _ = writeln!(
                text,
                "    {}",
                Outside(rule.reason.as_deref().unwrap_or_default())
            );
        }
        let is_of = |violation: &&Violation| (violation.rule, &violation.topic) == (rule.rule, &rule.topic);
        for violation in verdict.violations.iter().filter(is_of).take(VIOLATIONS_MAX) {
            let _ = writeln!(text, "    {}", line(violation));
        }
        let more = rule.violations.saturating_sub(VIOLATIONS_MAX as u64);
        if more > 0 {
            let _ = writeln!(text, "    and {more} more");
        }
    }
    let hidden = open.count().saturating_sub(SHOWN_MAX);
    if hidden > 0 {
        let _ = writeln!(text, "  and {hidden} more rules (--json has them)");
    }
    if let Some(until) = verdict.expired.values().flatten().max() {
        let topics = counted(verdict.expired.len() as u64, "topic");
        let until = time_point(*until, &TimeZone::system());
        let _ = writeln!(
            text,
            "  not judged: messages of {topics} before {until}, which have expired"
        );
    }
    if verdict.not_judged > 0 {
        let _ = writeln!(
            text,
            "  not judged: {} messages or topics, too late or too many",
            verdict.not_judged
        );
    }
    text
}

fn line(violation: &Violation) -> String {
    let time = |at| time_point(at, &TimeZone::system());
    let seconds = violation
        .until
        .map(|until| until.saturating_since(violation.since).as_secs_f64());
    let span = match seconds {
        None => ", until the end".to_owned(),
        Some(seconds) if seconds > 0.0 => format!(", for {seconds:.3} s"),
        Some(_) => String::new(),
    };
    format!("{}{span}: {}", time(violation.since), Outside(&violation.text))
}

fn paint_of(outcome: Outcome, text: &str, paint: Paint) -> String {
    match outcome {
        Outcome::Failed => paint.bad(text),
        Outcome::Passed => paint.good(text),
        Outcome::Warned | Outcome::Unknown => paint.faint(text),
    }
}

/// The rules of a contract with how many bags each passed, and the first bag in which it failed.
pub fn by_rule(contract: &Contract, verdicts: &[(PathBuf, Verdict)]) -> Vec<Value> {
    let rows = contract.rules.iter().enumerate().map(|(number, rule)| {
        let worst = |verdict: &Verdict| {
            let of_rule = verdict.rules.iter().filter(|result| result.rule == number);
            of_rule.map(|result| result.outcome).max()
        };
        let count = |outcome| {
            verdicts
                .iter()
                .filter(|(_, verdict)| worst(verdict) == Some(outcome))
                .count()
        };
        let is_first = |verdict: &Verdict| {
            worst(verdict).is_some_and(|worst| worst == Outcome::Failed || worst == Outcome::Warned)
        };
        let first = verdicts.iter().find(|(_, verdict)| is_first(verdict));
        json!({
            "rule": sentence(rule),
            "passed": count(Outcome::Passed),
            "warned": count(Outcome::Warned),
            "unknown": count(Outcome::Unknown),
            "failed": count(Outcome::Failed),
            "first": first.map_or_else(String::new, |(path, _)| path.display().to_string()),
        })
    });
    rows.collect()
}
