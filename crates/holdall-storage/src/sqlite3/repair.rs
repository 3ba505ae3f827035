//! Repairs an unclosed database: rolls back or applies its journal, checks it, adds the closing records.

use super::{
    failed,
    format::{CREATE_RECORDS, ROSBAG2_KEY, ROSBAG2_RECORD, metadata_version},
    has_table,
};
use crate::{
    RepairTarget,
    error::{StorageError, StorageResult},
    repair::Repaired,
    writer::MetadataEntries,
};
use holdall_io::fs;
use rusqlite::{Connection, OpenFlags, Transaction, params};
use std::path::{Path, PathBuf};

/// Metadata rows of a closed database: one from its start, one from its end.
const METADATA_ROWS: i64 = 2;

/// Returns `None` for a closed database without a journal.
///
/// SQLite itself rolls back or applies the journal, in steps that may be killed; the records are one
/// transaction.
///
/// # Errors
/// A database that is damaged: [`StorageError::NotInPlace`], unless it is a copy.
pub(super) fn repair(
    path: &Path,
    records: &[(&str, MetadataEntries)],
    target: RepairTarget,
) -> StorageResult<Option<Repaired>> {
    let mended = mend(path, records);
    let is_damaged = mended
        .as_ref()
        .is_err_and(|error| error.is_damage_or_format() && has_begun(path));
    match target {
        RepairTarget::InPlace if is_damaged => Err(StorageError::NotInPlace {
            path: path.to_owned(),
            reason: "the database is damaged",
        }),
        RepairTarget::InPlace | RepairTarget::Copy => mended,
    }
}

/// Whether anything is in a file but a database without a table of messages.
fn has_begun(path: &Path) -> bool {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    !connection.is_ok_and(|connection| has_table(&connection, path, "messages").is_ok_and(|has| !has))
}

fn mend(path: &Path, records: &[(&str, MetadataEntries)]) -> StorageResult<Option<Repaired>> {
    let had_journal = ["-journal", "-wal"]
        .iter()
        .map(|suffix| fs::exists(&beside(path, suffix)))
        .collect::<Result<Vec<_>, _>>()?
        .contains(&true);
    let before = fs::file_len(path)?;
    // SQLite would follow a link out of the bag; and a FIFO would keep it waiting.
    drop(fs::EditedFile::open(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed("open", path))?;
    let refused = failed("repair", path);
    // Every commit from here on is durable when it returns.
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(&refused)?;
    let count = |table: &str| {
        let query = format!("SELECT count(*) FROM {table}");
        connection
            .query_row(&query, [], |row| row.get::<_, i64>(0))
            .map_err(&refused)
    };
    // Schemas before 3 have no table for closing records, so nothing is missing without them.
    let has_end = !has_table(&connection, path, "metadata")? || count("metadata")? >= METADATA_ROWS;
    if has_end && !had_journal {
        return Ok(None);
    }
    let mut unsaved = Vec::new();
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(&refused)?;
    if verdict != "ok" {
        return Err(StorageError::Malformed {
            path: path.to_owned(),
            offset: 0,
            expected: "a whole database".to_owned(),
            found: verdict,
        });
    }
    if let Ok(messages) = count("messages") {
        if let Err(error) = connection.pragma_update(None, "journal_mode", "DELETE") {
            unsaved.push(format!("its write-ahead log is kept next to it: {error}"));
        }
        let transaction = connection.transaction().map_err(&refused)?;
        if !has_end {
            insert(&transaction, records).map_err(&refused)?;
        }
        transaction.commit().map_err(&refused)?;
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let pages = number("page_count").map_err(&refused)?;
        let database_bytes = pages.unsigned_abs() * number("page_size").map_err(&refused)?.unsigned_abs();
        connection.close().map_err(|(_, error)| refused(error))?;
        cut_reserved(path, database_bytes)?;
        return Ok(Some(Repaired {
            messages: messages.unsigned_abs(),
            tail_bytes: fs::file_len(path)?.saturating_sub(before),
            unsaved,
        }));
    }
    Err(StorageError::Malformed {
        path: path.to_owned(),
        offset: 0,
        expected: "a table `messages`".to_owned(),
        found: "none: the recording had not begun".to_owned(),
    })
}

/// Removes the space that was reserved after the database.
fn cut_reserved(path: &Path, database_bytes: u64) -> StorageResult<()> {
    if fs::file_len(path)? > database_bytes {
        fs::EditedFile::open(path)?.set_len(database_bytes)?;
    }
    Ok(())
}

fn insert(transaction: &Transaction<'_>, records: &[(&str, MetadataEntries)]) -> rusqlite::Result<()> {
    transaction.execute(CREATE_RECORDS, [])?;
    let last: Option<i64> =
        transaction.query_row("SELECT max(record) FROM holdall_records", [], |row| row.get(0))?;
    for (number, (name, entries)) in (last.unwrap_or(0) + 1..).zip(records) {
        if let (ROSBAG2_RECORD, Some(text)) = (*name, entries.get(ROSBAG2_KEY)) {
            let insert = "INSERT INTO metadata (metadata_version, metadata) VALUES (?1, ?2)";
            transaction.execute(insert, params![metadata_version(text), text])?;
            continue;
        }
        for (key, value) in entries {
            let insert = "INSERT INTO holdall_records (record, name, key, value) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(insert, params![number, name, key, value])?;
        }
    }
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
