//! Checks a whole database: SQLite's integrity check, rosbag2's tables, topics and definitions.

use super::{SqliteReader, failed, format::STORAGE_ID, recover};
use crate::{
    check::{FileCheck, Progress},
    error::StorageResult,
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
};
use holdall_io::lock::writer_of;
use holdall_model::time::Timestamp;
use rusqlite::Connection;
use std::{collections::HashMap, path::Path};

/// Most complaints of SQLite that are reported.
const COMPLAINTS_MAX: usize = 100;

/// Checks a database.
///
/// # Errors
/// A file that cannot be read, or is not a database of rosbag2.
pub fn check(path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
    let (place, connection, condition) = recover::open(path)?;
    let mut check = FileCheck {
        path: path.to_owned(),
        storage_id: STORAGE_ID,
        file_bytes: holdall_io::fs::file_len(path)?,
        ..FileCheck::default()
    };
    if let FileCondition::Damaged { reason, .. } = condition {
        check.problem(None, "database", "all that was written", reason);
    }
    let is_recorded = writer_of(path)?.is_some_and(|holder| holder.process != Some(std::process::id()));
    let is_written = place.is_written() || is_recorded;
    let version = version_of(&connection, path)?;
    let is_sound = if is_written {
        // It reads all pages in one transaction, and its writer would wait for that.
        let what = "integrity of the database";
        let found = "not checked: another program is writing it, and would have to wait";
        check.notice(None, what, "ok", found);
        true
    } else {
        integrity(&connection, path, &mut check)?
    };
    progress(check.file_bytes / 2);
    if !is_sound {
        count_readable(path, &mut check);
        return Ok(check);
    }
    let reader = SqliteReader::open(path)?;
    let summary = reader.summary();
    let counted = summary.message_count;
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
    if !is_written && version_of(&connection, path)? == version {
        let rows = check.message_count;
        check.same(None, "messages whose topic there is", rows, counted);
    }
    schema(&connection, path, &mut check)?;
    progress(check.file_bytes);
    Ok(check)
}

/// Counts the messages of a damaged database that its reader gives out.
fn count_readable(path: &Path, check: &mut FileCheck) {
    let Ok(reader) = SqliteReader::open(path) else {
        return;
    };
    let query = ReadQuery {
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    let channels = &reader.summary().channels;
    let mut counts = vec![0; channels.len()];
    let mut times: Option<(Timestamp, Timestamp)> = None;
    for message in reader.messages(&query).into_iter().flatten().flatten() {
        let time = message.log_time;
        times = Some(times.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        if let Some(count) = counts.get_mut(message.channel.0 as usize) {
            *count += 1;
        }
    }
    check.message_count = counts.iter().sum();
    (check.starting_time, check.ending_time) = times.unzip();
    let topics = channels.iter().map(|channel| channel.info.topic.clone());
    check.topics = topics.zip(counts).collect();
    check.metadata = reader.summary().metadata.clone();
}

/// A number that changes when another program commits a transaction.
fn version_of(connection: &Connection, path: &Path) -> StorageResult<i64> {
    let version = connection.pragma_query_value(None, "data_version", |row| row.get(0));
    version.map_err(failed("read", path))
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
                    // The newest SQLite has several complaints in a row.
                    for line in text.lines() {
                        check.problem(None, "integrity of the database", "ok", line);
                    }
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
    let mut rows = 0;
    let mut latest: HashMap<i64, i64> = HashMap::new();
    let mut times: Option<(i64, i64)> = None;
    let mut read = || -> rusqlite::Result<()> {
        // In pieces: a program that writes the database waits for the end of each query.
        let query = "SELECT id, topic_id, timestamp FROM messages WHERE id > ?1 ORDER BY id LIMIT 4096";
        let mut statement = connection.prepare(query)?;
        let mut last = Some(i64::MIN);
        while let Some(after) = last.take() {
            let mut found = statement.query([after])?;
            while let Some(row) = found.next()? {
                let (id, topic_id, time): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                last = Some(id);
                rows += 1;
                times = Some(times.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
                let latest = latest.entry(topic_id).or_insert(time);
                check.out_of_order += u64::from(time < *latest);
                *latest = time;
            }
        }
        Ok(())
    };
    read().map_err(failed("read", path))?;
    check.message_count = rows;
    check.starting_time = times.map(|(first, _)| Timestamp::from_nanos(first));
    check.ending_time = times.map(|(_, last)| Timestamp::from_nanos(last));
    let twice = "SELECT count(*) - count(DISTINCT name || char(0) || type) FROM topics";
    let twice: i64 = connection
        .query_row(twice, [], |row| row.get(0))
        .map_err(failed("read", path))?;
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
