//! The result of a repair, for people and programs.

use super::{check::state_lines, paint::Paint};
use crate::units::{format_bytes, plural};
use holdall::{reader::BagState, tools::repair::RepairReport};
use holdall_model::text::{Outside, OutsidePath};
use serde_json::{Value, json};

/// A line for each file that was repaired, and a summary.
pub fn text(report: &RepairReport, paint: Paint) -> Vec<String> {
    let mut lines: Vec<String> = report
        .files
        .iter()
        .filter(|file| file.repaired)
        .map(|file| {
            format!(
                "{}: {} kept, {} added",
                OutsidePath(&file.path),
                plural(file.messages.unwrap_or(0), "message"),
                format_bytes(file.tail_bytes),
            )
        })
        .collect();
    let bag = OutsidePath(&report.bag);
    if let Some(salvaged) = &report.salvaged {
        let left_out = match salvaged.left_out.is_empty() {
            true => String::new(),
            false => format!("; {}", salvaged.left_out.clause()),
        };
        lines.push(format!(
            "{bag}: rebuilt from all that can be read, {}{left_out}",
            plural(salvaged.messages, "message")
        ));
    }
    let problems = plural(report.problem_count, "problem");
    lines.push(match (report.has_changed(), report.problem_count) {
        (true, 0) => format!(
            "{bag}: {}, {}",
            paint.good("repaired"),
            plural(report.messages, "message")
        ),
        (true, _) => format!(
            "{bag}: {}, but for {} that a repair cannot fix",
            paint.bad("repaired in part"),
            problems
        ),
        (false, 0) => format!("{bag}: {}", paint.good("nothing to repair")),
        (false, _) => format!(
            "{bag}: {}: it has {problems} that a repair cannot fix",
            paint.bad("nothing was changed")
        ),
    });
    let is_left = report.problem_count > 0 && report.salvaged.is_none();
    lines.extend(is_left.then(|| format!("`holdall repair {bag} -o NEW` saves what can be read")));
    if let Some(count) = report.rescued.filter(|_| report.has_changed()) {
        lines.push(format!(
            "{} came from the memory of the recorder, which was killed",
            plural(count, "message")
        ));
    }
    lines.extend(report.state.iter().flat_map(state_lines));
    lines.extend(
        report
            .unsaved
            .iter()
            .map(|what| paint.bad(&format!("not saved: {}", Outside(what)))),
    );
    lines.extend(
        report
            .problems
            .iter()
            .map(|what| paint.bad(&format!("problem: {}", Outside(what)))),
    );
    let hidden = report.problem_count.saturating_sub(report.problems.len() as u64);
    if hidden > 0 {
        lines.push(format!("and {hidden} more (`holdall check` lists them)"));
    }
    lines
}

/// The report for programs.
pub fn json(report: &RepairReport) -> Value {
    let files: Vec<Value> = report
        .files
        .iter()
        .map(|file| {
            json!({
                "path": file.path,
                "repaired": file.repaired,
                "message_count": file.messages,
                "tail_bytes": file.tail_bytes,
            })
        })
        .collect();
    json!({
        "bag": report.bag,
        "changed": report.has_changed(),
        "metadata_written": report.metadata_written,
        "rescued_message_count": report.rescued,
        "message_count": report.messages,
        "salvaged_message_count": report.salvaged.as_ref().map(|salvaged| salvaged.messages),
        "left_out_message_count": report.salvaged.as_ref().map_or(Some(0), |salvaged| salvaged.left_out.messages),
        "files": files,
        "unsaved": report.unsaved,
        "problems": report.problems,
        "problem_count": report.problem_count,
        "state": report.state.as_ref().map(BagState::summary),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_repair_cannot_mend_is_not_the_last_word() {
        let report = RepairReport {
            bag: "bag".into(),
            problem_count: 2,
            ..RepairReport::default()
        };
        let said = text(&report, Paint::Plain).join("\n");
        assert!(
            said.contains("2 problems") && said.contains("`holdall repair bag -o NEW`"),
            "{said}"
        );
    }
}
