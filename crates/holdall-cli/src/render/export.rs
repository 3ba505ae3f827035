//! Results of an export, for people.

use super::hint::AS_JSON;
use crate::units::plural;
use holdall::export::ExportReport;
use holdall_model::text::{Outside, OutsidePath};

/// Why a topic of JSON texts has no table, and where its messages are readable.
pub fn json_topic(topic: &str) -> String {
    format!(
        "{topic}: left out: its messages are JSON texts, whose columns are not known in advance; {AS_JSON}"
    )
}

/// A line for each file or folder.
pub fn text(report: &ExportReport) -> String {
    if report.exported.is_empty() {
        return "nothing was written: no chosen topic has messages that can be written so".to_owned();
    }
    let lines = report.exported.iter().map(|exported| {
        format!(
            "{}: {} of {}",
            OutsidePath(&exported.path),
            plural(exported.messages, "message"),
            Outside(&exported.topic)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}
