//! The result lines of the verbs that work on bags.

use super::labels::time_point;
use crate::units::{format_bytes, plural};
use comfy_table::{CellAlignment, Table};
use holdall::{
    recode::Verified,
    tools::{ExpiredTopic, LeftOut, LeftOutMessages, Reindexed, Written},
};
use holdall_model::{
    recoding::Recoding,
    text::{Outside, OutsidePath},
};
use holdall_storage::storages;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// Usual name of the formats that have chunks: `MCAP`.
pub fn chunk_titles() -> String {
    let titles: Vec<&str> = storages()
        .iter()
        .filter(|storage| storage.chunks().is_some())
        .map(|storage| storage.title())
        .collect();
    titles.join(" and ")
}

/// One line about a bag that was made.
pub fn written(written: &Written) -> String {
    let files = plural(written.files.len() as u64, "file");
    let copied = match written.copied_chunks {
        0 => String::new(),
        chunks => format!(
            "; {} ({}) copied unchanged",
            plural(chunks, "chunk"),
            format_bytes(written.copied_bytes)
        ),
    };
    let changed = match written.changed_messages {
        0 => String::new(),
        count => format!("; {} changed", plural(count, "message")),
    };
    let left_out = if written.left_out.is_empty() {
        String::new()
    } else {
        format!("; {}", written.left_out.clause())
    };
    format!(
        "{}: {}, {}, {files}{copied}{changed}{left_out}",
        OutsidePath(&written.directory),
        plural(written.messages, "message"),
        format_bytes(written.bytes)
    ) + &recoded(&written.recoded)
}

/// A line for each topic whose messages got another form.
fn recoded(list: &[Recoding]) -> String {
    list.iter()
        .map(|recoding| format!("\n  {}", recoding.done_clause()))
        .collect()
}

/// What was compared before the originals were deleted.
pub fn verified(verified: &Verified) -> String {
    let mut text = format!(
        "{} compared, the originals deleted",
        plural(verified.messages, "message")
    );
    for (topic, images) in &verified.images {
        let (count, worst) = (plural(images.samples, "image"), images.worst_clause());
        text.push_str(&format!("\n  {}: {count} with {worst}", Outside(topic)));
    }
    text
}

/// The same for programs.
pub fn written_json(written: &Written) -> Value {
    json!({
        "path": written.directory,
        "files": written.files,
        "message_count": written.messages,
        "changed_message_count": written.changed_messages,
        "bytes": written.bytes,
        "copied_chunks": written.copied_chunks,
        "copied_bytes": written.copied_bytes,
        "recoded": written.recoded,
        "left_out_message_count": written.left_out.messages,
        "left_out": written.left_out.places.iter().map(left_out_json).collect::<Vec<_>>(),
        "left_out_count": written.left_out.place_count,
        "expired": written.expired,
    })
}

/// A line about a topic of which a ring no longer has all of the span.
pub fn expired(expired: &ExpiredTopic) -> String {
    let topic = Outside(&expired.topic);
    match expired.before {
        Some(before) => {
            let before = time_point(before, &TimeZone::system());
            format!("{topic}: what was before {before} has expired in the ring")
        }
        None => format!("{topic}: all of it has expired in the ring"),
    }
}

/// Places that lines are about; the others are counted.
const PLACES_SHOWN_MAX: usize = 20;

/// A line for each place of the inputs that cannot be read, without those that were in a notice.
pub fn left_out(all: &LeftOutMessages) -> Vec<String> {
    let shown = all.places.iter().take(PLACES_SHOWN_MAX);
    let mut lines: Vec<String> = shown
        .filter(|place| !place.is_noticed)
        .map(ToString::to_string)
        .collect();
    let more = all.place_count.saturating_sub(PLACES_SHOWN_MAX as u64);
    if more > 0 {
        lines.push(format!("and {} more", plural(more, "damaged place")));
    }
    lines
}

fn left_out_json(place: &LeftOut) -> Value {
    json!({
        "reason": place.reason,
        "message_count": place.messages,
        "first_time": place.times.map(|(first, _)| first.as_nanos()),
        "last_time": place.times.map(|(_, last)| last.as_nanos()),
    })
}

/// One line about a bag that was reindexed.
pub fn reindexed(done: &Reindexed) -> String {
    let indexed = match done.indexed.len() {
        0 => String::new(),
        1 => ", 1 file was given an index".to_owned(),
        count => format!(", {count} files were given an index"),
    };
    format!(
        "{}: metadata.yaml written, {}{indexed}",
        OutsidePath(&done.directory),
        plural(done.messages, "message")
    )
}

/// The same for programs.
pub fn reindexed_json(done: &Reindexed) -> Value {
    json!({
        "path": done.directory,
        "message_count": done.messages,
        "unreadable_message_count": done.unreadable,
        "has_missing_files": done.has_missing_files,
        "problem_count": done.problem_count,
        "indexed_files": done.indexed,
        "notices": done.notices,
    })
}

/// Rows as a table; numbers are aligned to the right.
pub fn table(columns: &[&str], rows: &[Value]) -> String {
    let mut table = Table::new();
    table.load_style(super::TABLE_STYLE);
    table.set_header(columns.iter().map(|column| column.replace('_', " ")));
    for row in rows {
        table.add_row(columns.iter().map(|column| cell(&row[*column])));
    }
    for (place, column) in columns.iter().enumerate() {
        let is_number = rows.first().is_some_and(|row| row[*column].is_number());
        if let Some(column) = table.column_mut(place).filter(|_| is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => Outside(text).to_string(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
