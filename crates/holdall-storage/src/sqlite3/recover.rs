//! Opens a database as it is, also one that a program left behind when it stopped hard.

use super::{
    failed,
    format::{Columns, MAGIC, STORAGE_ID},
};
use crate::{
    error::{StorageError, StorageResult},
    reader::FileCondition,
};
use holdall_io::fs::{self, File};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

/// Opens for reading. A write-ahead log beside the file is read too; where that is not possible (a read-only medium), the
/// database is read as it is without it.
pub(super) fn open(path: &Path) -> StorageResult<(Connection, FileCondition)> {
    check_magic(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
        Ok(connection)
    });
    let first_error = match opened {
        Ok(connection) => return Ok((connection, FileCondition::Complete)),
        Err(error) => error,
    };
    let uri = immutable_uri(path);
    let connection = Connection::open_with_flags(&uri, flags | OpenFlags::SQLITE_OPEN_URI)
        .map_err(failed("open", path))?;
    let readable = connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()));
    if readable.is_err() {
        return Err(failed("open", path)(first_error));
    }
    let condition = if fs::exists(&log_of(path))? {
        let reason = "its write-ahead log cannot be read here: the newest messages are missing".into();
        FileCondition::Damaged { offset: 0, reason }
    } else {
        FileCondition::Complete
    };
    Ok((connection, condition))
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// The path as a URI; `immutable` keeps SQLite from looking for logs and locks.
fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(char::from(*byte))
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn check_magic(path: &Path) -> StorageResult<()> {
    let mut begin = vec![0; MAGIC.len()];
    let read = File::open(path)?.read_at(&mut begin, 0)?;
    begin.truncate(read);
    if begin == MAGIC {
        return Ok(());
    }
    let found = if begin.is_empty() {
        "an empty file".to_owned()
    } else {
        format!("{begin:02x?}")
    };
    let expected = "\"SQLite format 3\"".to_owned();
    Err(StorageError::WrongFormat {
        path: path.to_owned(),
        storage: STORAGE_ID,
        expected,
        found,
    })
}

/// Finds out what the database has: by its tables, not by the version it says.
pub(super) fn columns(connection: &Connection, path: &Path) -> StorageResult<Columns> {
    let has = |table: &str, column: &str| {
        let query = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
        let count = connection.query_row(query, [table, column], |row| row.get::<_, i64>(0));
        count.map(|count| count > 0).map_err(failed("read", path))
    };
    if !(has("topics", "name")? && has("messages", "data")?) {
        return Err(StorageError::WrongFormat {
            path: path.to_owned(),
            storage: STORAGE_ID,
            expected: "tables `topics` and `messages`".into(),
            found: "a database of something else".into(),
        });
    }
    Ok(Columns {
        offered_qos_profiles: has("topics", "offered_qos_profiles")?,
        type_description_hash: has("topics", "type_description_hash")?,
        message_definitions: has("message_definitions", "encoded_message_definition")?,
        metadata: has("metadata", "metadata")?,
    })
}
