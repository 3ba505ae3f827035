//! Attachments of a bag, for people and programs.

use super::tools::table;
use crate::units::format_bytes;
use holdall::reader::{Attached, Attachment};
use holdall_model::text::Outside;
use serde_json::{Value, json};

/// A table of the attachments, and the pairs of each metadata record.
pub fn list(contents: &Attached) -> String {
    if contents.attachments.is_empty() && contents.metadata.is_empty() {
        return "nothing is attached".to_owned();
    }
    let mut lines = Vec::new();
    if !contents.attachments.is_empty() {
        let row = |found: &Attachment| {
            json!({
                "attachment": found.info.name,
                "type": found.info.media_type,
                "size": format_bytes(found.info.bytes),
            })
        };
        let rows: Vec<Value> = contents.attachments.iter().map(row).collect();
        lines.push(table(&["attachment", "type", "size"], &rows));
    }
    for (name, entries) in &contents.metadata {
        lines.push(format!("{}:", Outside(name)));
        lines.extend(
            entries
                .iter()
                .map(|(key, value)| format!("  {}: {}", Outside(key), Outside(value))),
        );
    }
    lines.join("\n")
}

/// An attachment of `holdall info`.
pub fn attachment_line(found: &Attachment) -> String {
    let info = &found.info;
    format!(
        "{} | Type: {} | Size: {}",
        Outside(&info.name),
        Outside(&info.media_type),
        format_bytes(info.bytes)
    )
}

/// The same as a JSON object.
pub fn json(contents: &Attached) -> Value {
    let metadata = contents
        .metadata
        .iter()
        .map(|(name, entries)| json!({"name": name, "entries": entries}));
    json!({
        "attachments": contents.attachments,
        "metadata": metadata.collect::<Vec<Value>>(),
    })
}
