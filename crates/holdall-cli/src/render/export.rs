//! What an export has written, for people.

use crate::units::plural;
use holdall::export::ExportReport;
use holdall_model::text::{Outside, OutsidePath};

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
