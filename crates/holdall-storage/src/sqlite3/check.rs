//! Checks a whole database: SQLite's integrity check, rosbag2's tables, topics and definitions.

use super::{SqliteReader, failed, format::STORAGE_ID, recover};
use crate::{
    check::{FileCheck, Progress},
    error::StorageResult,
    reader::{FileCondition, StorageReader},
};
use holdall_model::time::Timestamp;
use rusqlite::Connection;
use std::path::Path;

/// Most complaints of SQLite that are reported.
const COMPLAINTS_MAX: usize = 100;

/// Checks a database.
///
/// # Errors
/// A file that cannot be read, or is not a database of rosbag2.
pub fn check(path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
    let (_place, connection, condition) = recover::open(path)?;
    let mut check = FileCheck {
        path: path.to_owned(),
        storage_id: STORAGE_ID,
        file_bytes: holdall_io::fs::file_len(path)?,
        ..FileCheck::default()
    };
    if let FileCondition::Damaged { reason, .. } = condition {
        check.problem(None, "database", "all that was written", reason);
    }
    let is_sound = integrity(&connection, path, &mut check)?;
    progress(check.file_bytes / 2);
    // Reading a damaged database is recovery, not a check.
    if !is_sound {
        return Ok(check);
    }
    recover::columns(&connection, path)?;
    let reader = SqliteReader::open(path)?;
    let summary = reader.summary();
    check.message_count = summary.message_count;
    check.metadata = summary.metadata.clone();
    for channel in &summary.channels {
        check
            .topics
            .push((channel.info.topic.clone(), channel.message_count));
        if channel.info.topic.serialization_format == "cdr" {
            check.check_definition(None, &channel.info);
        }
    }
    messages(&connection, path, &mut check)?;
    schema(&connection, path, &mut check)?;
    progress(check.file_bytes);
    Ok(check)
}

/// True when SQLite finds no damage.
fn integrity(connection: &Connection, path: &Path, check: &mut FileCheck) -> StorageResult<bool> {
    let query = format!("PRAGMA integrity_check({COMPLAINTS_MAX})");
    let mut statement = connection.prepare(&query).map_err(failed("check", path))?;
    let mut rows = statement.query([]).map_err(failed("check", path))?;
    let mut is_sound = true;
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                let text: String = row.get(0).map_err(failed("check", path))?;
                if text != "ok" {
                    is_sound = false;
                    check.problem(None, "integrity of the database", "ok", text);
                }
            }
            Ok(None) => return Ok(is_sound),
            Err(error) => {
                check.problem(None, "integrity of the database", "ok", error);
                return Ok(false);
            }
        }
    }
}

/// Finds messages without a topic, and checks the order of the others.
fn messages(connection: &Connection, path: &Path, check: &mut FileCheck) -> StorageResult<()> {
    let number = |query: &str| {
        connection
            .query_row(query, [], |row| row.get::<_, i64>(0))
            .map_err(failed("read", path))
    };
    let rows = number("SELECT count(*) FROM messages")?.unsigned_abs();
    check.same(None, "messages whose topic there is", rows, check.message_count);
    check.message_count = rows;
    check.out_of_order = number(
        "SELECT count(*) FROM (SELECT timestamp < lag(timestamp) OVER (PARTITION BY topic_id ORDER BY id) AS late \
         FROM messages) WHERE late",
    )?
    .unsigned_abs();
    let times = "SELECT min(timestamp), max(timestamp) FROM messages";
    let (first, last): (Option<i64>, Option<i64>) = connection
        .query_row(times, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(failed("read", path))?;
    check.starting_time = first.map(Timestamp::from_nanos);
    check.ending_time = last.map(Timestamp::from_nanos);
    let twice = "SELECT count(*) - count(DISTINCT name || char(0) || type) FROM topics";
    let twice = number(twice)?;
    if twice > 0 {
        check.notice(
            None,
            "topics",
            "each once",
            format!("{twice} more of the same name and type"),
        );
    }
    Ok(())
}

/// Compares the version stored in the database with its tables.
fn schema(connection: &Connection, path: &Path, check: &mut FileCheck) -> StorageResult<()> {
    let columns = recover::columns(connection, path)?;
    let stated: Option<i64> = connection
        .query_row("SELECT max(schema_version) FROM schema", [], |row| row.get(0))
        .ok()
        .flatten();
    let has = if columns.message_definitions && columns.type_description_hash {
        4
    } else if columns.metadata {
        3
    } else if columns.offered_qos_profiles {
        2
    } else {
        1
    };
    match stated {
        Some(stated) => check.same(None, "version of the tables", has, stated),
        None if has >= 3 => check.problem(None, "version of the tables", has, "none"),
        None => {}
    }
    let index = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND tbl_name = 'messages'";
    let indexes: i64 = connection
        .query_row(index, [], |row| row.get(0))
        .map_err(failed("read", path))?;
    if indexes == 0 {
        check.notice(
            None,
            "index of messages by time",
            "one",
            "none: reading in time order sorts all",
        );
    }
    Ok(())
}
