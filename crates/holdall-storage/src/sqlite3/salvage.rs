//! Finds the readable part of a damaged database: the rows of all whole pages, even those that nothing leads to any more.

use super::{
    btree::{Cell, Pages, Value, values},
    failed,
    rollback::RolledBack,
    search::Search,
};
use crate::error::{StorageError, StorageResult};
use holdall_io::scratch::ScratchDirectory;
use holdall_model::metadata::{BagMetadata, TopicWithMessageCount};
use holdall_model::units::counted;
use rusqlite::Connection;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Rows that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    /// Offset of the damage, in bytes from the start of the file; different for each gap.
    pub(super) offset: u64,
    /// Number of missing messages, if none was removed before; `None` when unknown.
    pub(super) count: Option<u64>,
    /// The times before and after them, in nanoseconds.
    pub(super) times: (i64, i64),
    /// A description of them, one clause.
    pub(super) text: String,
}

impl Gap {
    /// The damage as an error of the file at `path`.
    pub(super) fn error(&self, path: &Path) -> StorageError {
        StorageError::Unreadable {
            path: path.to_owned(),
            offset: self.offset,
            reason: self.text.clone(),
            count: self.count,
            times: self.times,
        }
    }
}

/// Whether an error means damage in the file.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase | SystemIoFailure)
    )
}

/// The whole rows of a damaged database, in a new database with rosbag2's tables. Instead of the bytes of messages it has their
/// places.
#[derive(Debug)]
pub(super) struct Salvaged {
    path: PathBuf,
    pages: Pages,
    directory: ScratchDirectory,
    /// The column of messages that has their bytes.
    data_column: usize,
    /// Unreadable rows.
    pub(super) gaps: Vec<Gap>,
}

impl Salvaged {
    /// Looks at all pages of the database at `path`, whose bytes are `source`; `None` if none is of a table of messages.
    ///
    /// # Errors
    /// A file that cannot be read, no room for the list of rows.
    pub(super) fn of(path: &Path, source: &Arc<RolledBack>) -> StorageResult<Option<Self>> {
        let Some(pages) = Pages::of(source)? else {
            return Ok(None);
        };
        tracing::debug!(path = %path.display(), "the database is damaged: all its pages are looked at");
        let directory = crate::compression::scratch_directory()?;
        let connection = Connection::open(database_in(&directory)).map_err(failed("open", path))?;
        let refused = failed("list the rows of", path);
        let begin = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN";
        connection.execute_batch(begin).map_err(&refused)?;
        let Some(found) = Search::new(&pages, path, &connection).run()? else {
            return Ok(None);
        };
        let end = "CREATE INDEX timestamp_idx ON messages (timestamp); COMMIT";
        connection.execute_batch(end).map_err(&refused)?;
        let mut gaps = found.gaps;
        settle(&connection, &mut gaps).map_err(&refused)?;
        leave_out_unknown(&connection, &mut gaps).map_err(&refused)?;
        gaps.sort_by_key(|gap| gap.offset);
        // A page may have several.
        for place in 1..gaps.len() {
            gaps[place].offset = gaps[place].offset.max(gaps[place - 1].offset + 1);
        }
        drop(connection);
        Ok(Some(Self {
            path: path.to_owned(),
            pages,
            directory,
            data_column: found.data_column,
            gaps,
        }))
    }

    /// The fault, one clause; `error` is the one that revealed it.
    pub(super) fn reason(&self, error: &dyn std::fmt::Display) -> String {
        let counts: Option<Vec<u64>> = self.gaps.iter().map(|gap| gap.count).collect();
        match counts.map(|counts| counts.iter().sum()) {
            Some(0) => format!("{error}; all its messages were found"),
            Some(count) => format!("{error}; {} cannot be read", counted(count, "message")),
            None => format!("{error}; messages cannot be read, how many is not known"),
        }
    }

    /// The database with the rows.
    pub(super) fn database(&self) -> PathBuf {
        database_in(&self.directory)
    }

    /// The bytes of a message, by a connection to [`Self::database`]; `None` for one that has none.
    ///
    /// # Errors
    /// They are damaged.
    pub(super) fn payload(&self, connection: &Connection, id: i64) -> StorageResult<Option<Vec<u8>>> {
        let refused = failed("read", &self.path);
        let query = "SELECT page, cell FROM messages WHERE id = ?1";
        let mut statement = connection.prepare_cached(query).map_err(&refused)?;
        let place = statement.query_row([id], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)));
        let (number, offset): (u32, i64) = place.map_err(&refused)?;
        let page = self.pages.read(number)?;
        let cell: Option<Cell> = self.pages.cell(&page, usize::try_from(offset).unwrap_or(0));
        let Some(cell) = cell.filter(|cell| cell.id == id) else {
            return Ok(None);
        };
        let mut record = self.pages.record(&self.path, &page, &cell)?;
        let columns = values(&record, record.len()).unwrap_or_default();
        let Some(Value::Blob(bytes)) = columns.get(self.data_column) else {
            return Ok(None);
        };
        let begin = bytes.as_ptr() as usize - record.as_ptr() as usize;
        let end = begin + bytes.len();
        record.truncate(end);
        record.drain(..begin);
        Ok(Some(record))
    }
}

fn database_in(directory: &ScratchDirectory) -> PathBuf {
    directory.path().join("rows.db3")
}

/// The metadata of a bag that consists of this file only.
fn metadata(connection: &Connection) -> Option<BagMetadata> {
    let query = "SELECT metadata FROM metadata ORDER BY id DESC LIMIT 1";
    let text: String = connection.query_row(query, [], |row| row.get(0)).ok()?;
    let metadata = BagMetadata::from_yaml(&text).ok()?;
    (metadata.files.len() <= 1).then_some(metadata)
}

/// Compares the gaps with the number of messages that the file states: messages removed before, and messages missing at the
/// end.
fn settle(connection: &Connection, gaps: &mut Vec<Gap>) -> rusqlite::Result<()> {
    let rows: i64 = connection.query_row("SELECT count(*) FROM messages", [], |row| row.get(0))?;
    let Some(metadata) = metadata(connection) else {
        return Ok(());
    };
    let Some(missing) = metadata.message_count.checked_sub(rows.unsigned_abs()) else {
        return Ok(());
    };
    let known: u64 = gaps.iter().filter_map(|gap| gap.count).sum();
    if missing == 0 {
        gaps.clear();
    } else if known == missing {
        gaps.retain(|gap| gap.count.is_some());
    } else if let Some(rest) = missing.checked_sub(known)
        && gaps.iter().filter(|gap| gap.count.is_none()).count() == 1
    {
        gaps.iter_mut()
            .filter(|gap| gap.count.is_none())
            .for_each(|gap| gap.count = Some(rest));
    }
    Ok(())
}

/// Finds the topics that messages name and that cannot be read: by their numbers of messages in the file's metadata. Messages of a topic
/// that is not found are left out.
fn leave_out_unknown(connection: &Connection, gaps: &mut Vec<Gap>) -> rusqlite::Result<()> {
    let query = "SELECT topic_id, count(*), min(timestamp), max(timestamp), min(page) FROM messages \
                 WHERE topic_id NOT IN (SELECT id FROM topics) GROUP BY topic_id";
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
    })?;
    let unknown: Vec<(i64, i64, i64, i64, i64)> = rows.collect::<rusqlite::Result<_>>()?;
    drop(statement);
    if unknown.is_empty() {
        return Ok(());
    }
    let listed = metadata(connection).map(|metadata| metadata.topics_with_message_count);
    let mut listed = listed.unwrap_or_default();
    let is_present = |name: &str| {
        let query = "SELECT count(*) FROM topics WHERE name = ?1";
        connection
            .query_row(query, [name], |row| row.get::<_, i64>(0))
            .map(|count| count > 0)
    };
    let mut missing = Vec::new();
    for topic in listed.drain(..) {
        if topic.message_count > 0 && !is_present(&topic.topic_metadata.name)? {
            missing.push(topic);
        }
    }
    for (id, count, first, last, page) in &unknown {
        let of_count = |topic: &&TopicWithMessageCount| topic.message_count == count.unsigned_abs();
        let mut same = missing.iter().filter(of_count);
        let is_only = unknown.iter().filter(|other| other.1 == *count).count() == 1;
        let found = match (same.next(), same.next()) {
            (Some(topic), None) if is_only => Some(topic),
            _ if unknown.len() == 1 && missing.len() == 1 => missing.first(),
            _ => None,
        };
        if let Some(topic) = found {
            let about = &topic.topic_metadata;
            let insert = "INSERT INTO topics (id, name, type, serialization_format) VALUES (?1, ?2, ?3, ?4)";
            let format = &about.serialization_format;
            connection.execute(insert, rusqlite::params![id, about.name, about.type_name, format])?;
            continue;
        }
        connection.execute("DELETE FROM messages WHERE topic_id = ?1", [id])?;
        gaps.push(Gap {
            offset: u64::try_from(*page).unwrap_or(0),
            count: Some(count.unsigned_abs()),
            times: (*first, *last),
            text: format!(
                "{} of a topic (id {id}) whose name and type cannot be read",
                counted(count.unsigned_abs(), "message")
            ),
        });
    }
    Ok(())
}
