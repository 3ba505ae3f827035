//! Attachments of a bag, for people and programs.

use super::tools::table;
use crate::units::format_bytes;
use holdall::tools::attach::{Attachment, Contents};
use holdall_model::text::Outside;
use serde::Serialize;
use serde_json::{Value, json};

/// A table of the attachments, and the pairs of each metadata record.
pub fn list(contents: &Contents) -> String {
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

/// An attachment in the JSON of `holdall info`.
#[derive(Serialize)]
pub struct AttachmentJson<'a> {
    name: &'a str,
    media_type: &'a str,
    bytes: u64,
}

impl<'a> AttachmentJson<'a> {
    /// Its name, type and size.
    pub fn of(found: &'a Attachment) -> Self {
        Self {
            name: &found.info.name,
            media_type: &found.info.media_type,
            bytes: found.info.bytes,
        }
    }
}

/// The same as a JSON object.
pub fn json(contents: &Contents) -> Value {
    let attachments = contents.attachments.iter().map(|found| {
        json!({
            "name": found.info.name,
            "media_type": found.info.media_type,
            "bytes": found.info.bytes,
            "log_time": found.info.log_time.as_nanos(),
            "create_time": found.info.create_time.map(|time| time.as_nanos()),
            "file": found.file.display().to_string(),
        })
    });
    let metadata = contents
        .metadata
        .iter()
        .map(|(name, entries)| json!({"name": name, "entries": entries}));
    json!({
        "attachments": attachments.collect::<Vec<Value>>(),
        "metadata": metadata.collect::<Vec<Value>>(),
    })
}
