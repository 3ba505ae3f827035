//! Results of a check: a verdict for each file with the findings below it, and as JSON.

use super::{labels::time_point, paint::Paint};
use crate::units::{format_bytes, format_count, plural};
use holdall::{
    reader::{BagState, Condition},
    tools::check::BagCheck,
};
use holdall_model::{
    lake::{LakeGrade, LakeVerdict},
    text::{Outside, OutsidePath},
};
use holdall_storage::check::{FileCheck, Finding, Findings, Severity};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::{fmt::Write, path::Path};

/// Findings of one file that are shown to people; JSON has more.
const SHOWN_MAX: usize = 20;

/// A bag's check for people.
pub fn text(check: &BagCheck, paint: Paint) -> String {
    let mut text = String::new();
    for file in &check.files {
        let facts = format!(
            "{}, {}, {}",
            plural(file.message_count, "message"),
            plural(file.topics.len() as u64, "topic"),
            format_bytes(file.file_bytes)
        );
        verdict(&mut text, &file.path, &file.findings, &facts, paint);
    }
    // A single file has no metadata to judge.
    if check.files.len() != 1 || check.files[0].path != check.path {
        verdict(&mut text, &check.path, &check.bag, "the bag as a whole", paint);
    }
    for line in check.state.iter().flat_map(state_lines) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// A grade with its reasons.
pub fn lake(verdict: &LakeVerdict, paint: Paint) -> String {
    let grade = format!("{:?}", verdict.grade);
    let grade = match verdict.grade {
        LakeGrade::A | LakeGrade::B => paint.good(&grade),
        LakeGrade::C | LakeGrade::D | LakeGrade::F => paint.bad(&grade),
    };
    let mut text = format!("lake: grade {grade}\n");
    for fault in &verdict.faults {
        let _ = writeln!(
            text,
            "  {}: {}{}",
            fault.rule,
            Outside(&fault.reason),
            remedy(fault.rule)
        );
    }
    text
}

/// What to do about a fault.
fn remedy(rule: &str) -> &'static str {
    match rule {
        "format" => " (holdall convert -s mcap)",
        "index" => " (holdall reindex)",
        "span" => " (holdall record -d 60, holdall split -d 60)",
        "chunks" => " (chunkSize in --storage-config-file)",
        "compression" => " (--storage-preset-profile zstd_fast, holdall compress)",
        "separation" => " (holdall record --separate-above 1MB)",
        "ids" => " (holdall record --custom-data robot_id=r7)",
        _ => "",
    }
}

/// The state of a bag below findings or results: nothing for a bag that is complete.
pub(super) fn state_lines(state: &BagState) -> Vec<String> {
    if state.condition == Condition::Complete {
        return Vec::new();
    }
    let time = |at| time_point(at, &TimeZone::system());
    let mut lines = vec![
        format!("state: {}", state.condition.as_str()),
        format!("lost messages: {}", state.lost_line(time)),
    ];
    lines.extend(state.more_lines(time));
    lines
}

fn verdict(text: &mut String, path: &Path, findings: &Findings, facts: &str, paint: Paint) {
    let word = match findings.problems {
        0 => paint.good("sound"),
        1 => paint.bad("1 problem"),
        count => paint.bad(&format!("{count} problems")),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {word} ({facts})", OutsidePath(path));
    for finding in findings.list.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "  {}", line(finding, path, paint));
    }
    let hidden = (findings.problems + findings.notices).saturating_sub(SHOWN_MAX as u64);
    if hidden > 0 {
        let _ = writeln!(
            text,
            "  and {} more (--json shows up to 1000)",
            format_count(hidden)
        );
    }
}

/// One finding without the path in the line above it.
fn line(finding: &Finding, shown: &Path, paint: Paint) -> String {
    let mark = match finding.severity {
        Severity::Problem => paint.bad("problem"),
        Severity::Notice => paint.faint("notice"),
    };
    let path = if finding.path == shown {
        String::new()
    } else {
        let name = finding.path.strip_prefix(shown).unwrap_or(&finding.path);
        format!(" {}", OutsidePath(name))
    };
    let place = finding
        .offset
        .map_or_else(String::new, |offset| format!(" at byte {offset}"));
    let Finding {
        what,
        expected,
        found,
        ..
    } = finding;
    format!(
        "{mark}{path}{place}: {}: expected {}, found {}",
        Outside(what),
        Outside(expected),
        Outside(found)
    )
}

/// A bag's check for programs.
pub fn json(check: &BagCheck) -> Value {
    json!({
        "path": check.path,
        "sound": check.is_sound(),
        "problems": check.problems(),
        "state": check.state.as_ref().map(BagState::summary),
        "files": check.files.iter().map(file_json).collect::<Vec<_>>(),
        "findings": check.bag,
    })
}

fn file_json(file: &FileCheck) -> Value {
    let topics: Vec<Value> = file
        .topics
        .iter()
        .map(|(topic, count)| json!({"name": topic.name, "type": topic.type_name, "message_count": count}))
        .collect();
    json!({
        "path": file.path,
        "sound": file.findings.is_sound(),
        "storage_identifier": file.storage_id,
        "bytes": file.file_bytes,
        "message_count": file.message_count,
        "starting_time": file.starting_time.map(|time| time.as_nanos()),
        "ending_time": file.ending_time.map(|time| time.as_nanos()),
        "out_of_order": file.out_of_order,
        "topics": topics,
        "findings": file.findings,
    })
}
