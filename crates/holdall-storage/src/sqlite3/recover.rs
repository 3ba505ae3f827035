//! Opens a database without changing it, even one that was not closed.

use super::{
    failed,
    format::{Columns, MAGIC, STORAGE_ID},
};
use crate::{
    error::{StorageError, StorageResult},
    reader::FileCondition,
};
use holdall_io::{
    fs::{self, File},
    scratch::ScratchDirectory,
};
use rusqlite::{Connection, OpenFlags};
use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

/// First bytes of a rollback journal that has something to roll back.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The part of a journal's header that is read, in bytes, and where it has the database's pages before the transaction and their size.
const JOURNAL_HEADER_BYTES: usize = 28;
const JOURNAL_PAGES_AT: usize = 16;
const JOURNAL_PAGE_BYTES_AT: usize = 24;
/// A write-ahead log with content is longer than its header.
const LOG_HEADER_BYTES: u64 = 32;
/// Offset of the byte in a database's header that marks a write-ahead log.
const READ_VERSION_AT: usize = 19;
/// Bytes read from the start of a database.
const HEADER_BYTES: usize = 20;
/// Disk space that a copy leaves free, in bytes.
const SPARE_BYTES: u64 = 256 << 20;

/// How a database is opened: directly, or as a copy in which SQLite has recovered it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Opened without checking for logs and locks, which would create files.
    immutable: bool,
    /// Removed when its last reader is dropped.
    copy: Option<Arc<ScratchDirectory>>,
}

impl Place {
    /// Opens a connection.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn connect(&self) -> StorageResult<Connection> {
        self.try_connect().map_err(failed("open", &self.path))
    }

    fn try_connect(&self) -> rusqlite::Result<Connection> {
        let access = if self.copy.is_some() {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        } else {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        };
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = if self.immutable {
            let uri = immutable_uri(&self.path);
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
        } else {
            Connection::open_with_flags(&self.path, flags)?
        };
        // Functions and tables that the file's schema names are not run.
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
        Ok(connection)
    }
}

/// A file next to a database that a killed program left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    /// Messages that are not in the database yet.
    WriteAheadLog,
    /// The database's state before a transaction that did not end.
    Journal,
}

/// Opens for reading, and changes nothing: neither the file, nor the files next to it, nor its directory. A
/// write-ahead log or a rollback journal is applied in a copy.
pub(super) fn open(path: &Path) -> StorageResult<(Place, Connection, FileCondition)> {
    let header = check_magic(path)?;
    let complete = FileCondition::Complete;
    let in_place = |immutable| Place {
        path: path.to_owned(),
        immutable,
        copy: None,
    };
    let Some(left) = leftover(path)? else {
        // With locks, if none of them needs its own file; another program may be writing.
        let has_log = header.get(READ_VERSION_AT) == Some(&2);
        if !has_log && let Ok(connection) = in_place(false).try_connect() {
            return Ok((in_place(false), connection, complete));
        }
        let connection = in_place(true).connect()?;
        return Ok((in_place(true), connection, complete));
    };
    let damaged = |reason: String| FileCondition::Damaged { offset: 0, reason };
    match copy(path, left).and_then(|place| Ok((place.connect()?, place))) {
        Ok((connection, place)) => {
            let condition = match left {
                Leftover::WriteAheadLog => complete,
                Leftover::Journal => damaged(
                    "a program stopped in a transaction, which is rolled back in a copy: its messages are not there"
                        .into(),
                ),
            };
            Ok((place, connection, condition))
        }
        Err(error) => {
            let connection = in_place(true).connect()?;
            let what = match left {
                Leftover::WriteAheadLog => {
                    "its write-ahead log cannot be read here: the newest messages are missing"
                }
                Leftover::Journal => "a program stopped in a transaction that cannot be rolled back here",
            };
            Ok((in_place(true), connection, damaged(format!("{what} ({error})"))))
        }
    }
}

fn leftover(path: &Path) -> StorageResult<Option<Leftover>> {
    let log = beside(path, "-wal");
    if fs::exists(&log)? && fs::file_len(&log)? > LOG_HEADER_BYTES {
        return Ok(Some(Leftover::WriteAheadLog));
    }
    let journal = beside(path, "-journal");
    if fs::exists(&journal)? {
        let mut begin = [0; JOURNAL_MAGIC.len()];
        let read = File::open(&journal)?.read_at(&mut begin, 0)?;
        if read == begin.len() && begin == JOURNAL_MAGIC {
            return Ok(Some(Leftover::Journal));
        }
    }
    Ok(None)
}

/// Copies a database with the files next to it.
fn copy(path: &Path, left: Leftover) -> StorageResult<Place> {
    let suffix = match left {
        Leftover::WriteAheadLog => "-wal",
        Leftover::Journal => "-journal",
    };
    let directory = crate::compression::scratch_directory()?;
    let to = directory.path().join(path.file_name().unwrap_or_default());
    let log = beside(path, suffix);
    let database_bytes = match left {
        Leftover::WriteAheadLog => fs::file_len(path)?,
        Leftover::Journal => bytes_before(&log)?.min(fs::file_len(path)?),
    };
    let needed = database_bytes + fs::file_len(&log)?;
    let available = fs::available_bytes(directory.path())?.saturating_sub(SPARE_BYTES);
    if needed > available {
        return Err(StorageError::TooLarge {
            path: path.to_owned(),
            offset: 0,
            what: "a copy in the temporary directory",
            limit: available,
            found: needed,
        });
    }
    for (from, to, bytes) in [
        (path, &to, database_bytes),
        (&log, &beside(&to, suffix), u64::MAX),
    ] {
        fs::convert_file(from, to, false, |from, to| {
            std::io::copy(&mut from.take(bytes), to).map(drop)
        })?;
    }
    Ok(Place {
        path: to,
        immutable: false,
        copy: Some(Arc::new(directory)),
    })
}

/// How long the database was before the transaction of a journal, in bytes: a rollback cuts it there, so that nothing after it is needed, neither pages of the transaction nor reserved space.
fn bytes_before(journal: &Path) -> StorageResult<u64> {
    let mut header = [0; JOURNAL_HEADER_BYTES];
    let read = File::open(journal)?.read_at(&mut header, 0)?;
    let number = |at: usize| {
        let bytes = header[at..].first_chunk().copied();
        u64::from(bytes.map_or(0, u32::from_be_bytes))
    };
    if read < header.len() {
        return Ok(u64::MAX);
    }
    Ok(number(JOURNAL_PAGES_AT) * number(JOURNAL_PAGE_BYTES_AT))
}

/// The path with a suffix appended to its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The path as a URI; `immutable` keeps SQLite from checking for logs and locks.
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

/// Reads and checks the start of the database.
fn check_magic(path: &Path) -> StorageResult<Vec<u8>> {
    let mut begin = vec![0; HEADER_BYTES];
    let read = File::open(path)?.read_at(&mut begin, 0)?;
    begin.truncate(read);
    if begin.starts_with(MAGIC) {
        return Ok(begin);
    }
    begin.truncate(MAGIC.len());
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

/// Finds the columns of the database: by its tables, not by the version that it states.
pub(super) fn columns(connection: &Connection, path: &Path) -> StorageResult<Columns> {
    let has = |table: &str, column: &str| {
        // A view may be endless; rosbag2 creates tables.
        let query = "SELECT count(*) FROM sqlite_master, pragma_table_info(?1) AS columns \
                     WHERE sqlite_master.name = ?1 AND sqlite_master.type = 'table' AND columns.name = ?2";
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
        serialization_format: has("topics", "serialization_format")?,
        offered_qos_profiles: has("topics", "offered_qos_profiles")?,
        type_description_hash: has("topics", "type_description_hash")?,
        message_definitions: has("message_definitions", "encoded_message_definition")?,
        metadata: has("metadata", "metadata")?,
    })
}
