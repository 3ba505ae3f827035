//! Opens a database without changing it, even one that was not closed.

use super::{
    engine::run_pragma,
    failed, ffi_reader, ffi_rolled_back, ffi_vfs,
    format::{Columns, MAGIC, STORAGE_ID},
    locks::ReaderLocks,
    rollback::{JOURNAL_MAGIC, RolledBack},
    salvage::{self, Salvaged},
};
use crate::{
    error::{StorageError, StorageResult},
    reader::FileCondition,
};
use holdall_io::{
    fs::{self, File, Kind},
    remote,
    scratch::ScratchDirectory,
};
use rusqlite::{Connection, OpenFlags};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A write-ahead log with content is longer than its header.
const LOG_HEADER_BYTES: u64 = 32;
/// Offset of the byte in a database's header that marks a write-ahead log.
const READ_VERSION_AT: usize = 19;
/// Bytes read from the start of a database.
const HEADER_BYTES: usize = 20;
/// Disk space that a copy leaves free, in bytes.
const SPARE_BYTES: u64 = 256 << 20;
/// How long a reader waits for a program that is changing the database, in milliseconds: a commit to a slow disk takes seconds.
const WAIT_MILLIS: u64 = 30_000;

/// How a database is opened: directly, through its rollback journal, or as a copy in which SQLite has applied its write-ahead log.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Opened without checking for logs and locks, which would create files.
    immutable: bool,
    /// Removed when its last reader is dropped.
    copy: Option<Arc<ScratchDirectory>>,
    rolled_back: Option<Arc<RolledBack>>,
    is_written: bool,
    /// The readable part of a damaged database, which is read instead of it.
    salvaged: Option<Arc<Salvaged>>,
}

impl Place {
    /// Opens a connection.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn connect(&self) -> StorageResult<Connection> {
        self.try_connect().map_err(failed("open", &self.path))
    }

    /// The rows of a damaged database, which connections are to.
    pub fn salvaged(&self) -> Option<&Arc<Salvaged>> {
        self.salvaged.as_ref()
    }

    /// The same database with connections to the rows that can be read; `None` if it is that already, has none, or is being changed.
    ///
    /// # Errors
    /// A file that cannot be read, no room for the list of rows.
    pub fn salvage(&self) -> StorageResult<Option<Self>> {
        if self.is_written || self.salvaged.is_some() {
            return Ok(None);
        }
        let source = match &self.rolled_back {
            Some(source) => Arc::clone(source),
            None => {
                if self.copy.is_some() {
                    // Moves data that is only in the log into the copy.
                    let connection = self.try_connect().ok();
                    connection.map(|connection| run_pragma(&connection, "wal_checkpoint(TRUNCATE)"));
                }
                Arc::new(RolledBack::without_journal(&self.path)?)
            }
        };
        let salvaged = Salvaged::of(&self.path, &source)?;
        Ok(salvaged.map(|salvaged| Self {
            salvaged: Some(Arc::new(salvaged)),
            ..self.clone()
        }))
    }

    /// Whether a living program had the database open for writing when it was opened here: a read transaction keeps that from ending
    /// its own, so it must be short.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// The condition of a damaged database; `error` is how that was noticed.
    pub fn condition(&self, error: &StorageError) -> FileCondition {
        match &self.salvaged {
            Some(salvaged) => FileCondition::Damaged {
                offset: salvaged.gaps.first().map_or(0, |gap| gap.offset),
                reason: salvaged.reason(error),
            },
            None => FileCondition::Complete,
        }
    }

    fn try_connect(&self) -> rusqlite::Result<Connection> {
        let access = if self.copy.is_some() {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        } else {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        };
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = if let Some(salvaged) = &self.salvaged {
            Connection::open_with_flags(salvaged.database(), flags)?
        } else if let Some(rolled_back) = &self.rolled_back {
            ffi_rolled_back::connect(rolled_back, &uri(&self.path, self.immutable))?
        } else if self.immutable {
            let uri = uri(&self.path, true);
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
        } else if self.copy.is_some() {
            Connection::open_with_flags(&self.path, flags)?
        } else {
            ffi_vfs::check_registered()?;
            Connection::open_with_flags_and_vfs(&self.path, flags, ffi_reader::NAME)?
        };
        connection.busy_timeout(Duration::from_millis(WAIT_MILLIS))?;
        // Functions and tables that the file's schema names are not run.
        connection.pragma_update(None, "trusted_schema", false)?;
        let read = || connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()));
        match read() {
            Err(error) if salvage::is_damage(&error) => {
                // So SQLite opens a file that was cut off, too.
                connection.pragma_update(None, "writable_schema", true)?;
                read()?;
            }
            read => read?,
        }
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

impl Leftover {
    /// The condition of a database read along with this leftover; `is_certain` when its program is known to be dead.
    fn condition(self, is_certain: bool) -> FileCondition {
        let reason = match self {
            Self::WriteAheadLog => return FileCondition::Complete,
            Self::Journal if is_certain => {
                "a program stopped in a transaction, which is rolled back here: its messages are not there"
            }
            Self::Journal => {
                "a program stopped in a transaction, or is in one now (this file system has no locks to find out), which is \
                 rolled back here: its messages are not there"
            }
        };
        FileCondition::Damaged {
            offset: 0,
            reason: reason.to_owned(),
        }
    }

    /// The fault when it cannot be read.
    fn unread(self) -> &'static str {
        match self {
            Self::WriteAheadLog => "its write-ahead log cannot be read here: the newest messages are missing",
            Self::Journal => "a program stopped in a transaction that cannot be rolled back here",
        }
    }
}

/// Opens for reading, and changes nothing: neither the file, nor the files next to it, nor its directory. A
/// write-ahead log is applied in a copy, a rollback journal while reading. Files that a living program keeps next to the database are not
/// touched: its commits are read, with SQLite's locks. If a database cannot be opened, the rows in its pages are read.
pub(super) fn open(path: &Path) -> StorageResult<(Place, Connection, FileCondition)> {
    match open_whole(path) {
        Err(error) if error.is_damage_or_format() => match open_damaged(path)? {
            Some(place) => {
                let connection = place.connect()?;
                let condition = place.condition(&error);
                Ok((place, connection, condition))
            }
            None => Err(error),
        },
        Ok((place, connection, FileCondition::Complete)) if !place.is_written && lacks_pages(path)? => {
            let condition = FileCondition::Damaged {
                offset: fs::file_len(path)?,
                reason:
                    "expected all pages that the first one states, found the end of the file: it was cut off"
                        .into(),
            };
            Ok((place, connection, condition))
        }
        opened => opened,
    }
}

/// Finds the rows of a database that SQLite cannot open; `None` without any.
fn open_damaged(path: &Path) -> StorageResult<Option<Place>> {
    let locks = ReaderLocks::open(path)?;
    let (left, is_written) = leftover(path, &locks)?;
    let rolled_back = match left {
        Some(Leftover::Journal) => RolledBack::open(path, &beside(path, "-journal"), locks).ok(),
        _ => None,
    };
    let rolled_back = match rolled_back {
        Some(rolled_back) => rolled_back,
        None => RolledBack::without_journal(path)?,
    };
    let place = Place {
        path: path.to_owned(),
        immutable: true,
        copy: None,
        rolled_back: Some(Arc::new(rolled_back)),
        is_written,
        salvaged: None,
    };
    place.salvage()
}

fn open_whole(path: &Path) -> StorageResult<(Place, Connection, FileCondition)> {
    let header = check_magic(path)?;
    let complete = FileCondition::Complete;
    let in_place = |immutable, is_written| Place {
        path: path.to_owned(),
        immutable,
        copy: None,
        rolled_back: None,
        is_written,
        salvaged: None,
    };
    // SQLite opens by a name, which may lead out of a folder that is given to others by then.
    let is_given = fs::is_given(path);
    let alone = |immutable, is_written| -> StorageResult<Place> {
        let handle = is_given.then(|| RolledBack::without_journal(path)).transpose()?;
        Ok(Place {
            rolled_back: handle.map(Arc::new),
            ..in_place(immutable, is_written)
        })
    };
    let locks = ReaderLocks::open(path)?;
    let (left, is_written) = leftover(path, &locks)?;
    let Some(left) = left else {
        // With locks, if none of them needs its own file; another program may be writing.
        let needs_file = header.get(READ_VERSION_AT) == Some(&2) && (!is_written || is_given);
        drop(locks);
        if !needs_file {
            let place = alone(false, is_written)?;
            match place.try_connect() {
                Ok(connection) => return Ok((place, connection, complete)),
                Err(error) if is_busy(&error) => return Err(being_written(path)),
                Err(error) if is_written => return Err(failed("open", path)(error)),
                Err(_) => {}
            }
        }
        let place = alone(true, false)?;
        return Ok((place.clone(), place.connect()?, complete));
    };
    let is_certain = !locks.is_impossible();
    let place = match left {
        Leftover::WriteAheadLog => copy(path),
        Leftover::Journal => {
            RolledBack::open(path, &beside(path, "-journal"), locks).map(|rolled_back| Place {
                rolled_back: Some(Arc::new(rolled_back)),
                ..in_place(true, false)
            })
        }
    };
    match place.and_then(|place| Ok((place.connect()?, place))) {
        Ok((connection, place)) => Ok((place, connection, left.condition(is_certain))),
        Err(error) => {
            let place = alone(true, false)?;
            let connection = place.connect()?;
            let reason = format!("{} ({error})", left.unread());
            Ok((place, connection, FileCondition::Damaged { offset: 0, reason }))
        }
    }
}

/// Whether another program's lock made a call fail.
fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    )
}

fn being_written(path: &Path) -> StorageError {
    StorageError::Unsupported {
        path: path.to_owned(),
        what: "reading",
        reason: "another program is writing it, and has not let others read for 30 s; try again later".into(),
    }
}

/// Files that a dead program has left, and whether a living one is writing the database. With a journal, the locks keep writers
/// from changing pages when this returns.
fn leftover(path: &Path, locks: &ReaderLocks) -> StorageResult<(Option<Leftover>, bool)> {
    let log = beside(path, "-wal");
    if fs::exists(&log)? {
        // SQLite opens each of them, and an open of a FIFO waits forever. None is opened here: a close would end the locks that this
        // process may have on it.
        for suffix in ["-journal", "-shm"] {
            let beside = beside(path, suffix);
            if fs::exists(&beside)? && fs::about(&beside)?.kind != Kind::File {
                File::open(&beside)?;
            }
        }
        let is_used = locks.user().is_some();
        let has_content = File::open(&log)?.len_bytes() > LOG_HEADER_BYTES;
        return Ok((
            (has_content && !is_used).then_some(Leftover::WriteAheadLog),
            is_used,
        ));
    }
    let is_written = locks.writer().is_some();
    if !has_journal(path)? {
        return Ok((None, is_written));
    }
    // A commit may have been running. Once we have a reader's lock, a journal belongs to a program that is dead, or
    // has not begun to change pages.
    if !locks.share(WAIT_MILLIS) {
        return Err(being_written(path));
    }
    if has_journal(path)? && locks.writer().is_none() {
        return Ok((Some(Leftover::Journal), false));
    }
    locks.release();
    Ok((None, true))
}

/// Whether a database is shorter than the pages that its header states; false while a program may be changing it.
pub(super) fn lacks_pages(path: &Path) -> StorageResult<bool> {
    if remote::is_remote(path) || fs::exists(&beside(path, "-wal"))? || fs::exists(&beside(path, "-journal"))?
    {
        return Ok(false);
    }
    let (file, mut header) = (File::open(path)?, [0; 100]);
    if file.read_at(&mut header, 0)? < header.len() {
        return Ok(true);
    }
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let page_bytes = match u64::from(number(16) >> 16) {
        1 => 65_536,
        bytes => bytes,
    };
    // Programs before 3.7 leave a number that is not valid.
    let is_valid = number(24) == number(92);
    Ok(is_valid && file.len_bytes() < page_bytes * u64::from(number(28)))
}

fn has_journal(path: &Path) -> StorageResult<bool> {
    let journal = match File::open(&beside(path, "-journal")) {
        Ok(journal) => journal,
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut begin = [0; JOURNAL_MAGIC.len()];
    let read = journal.read_at(&mut begin, 0)?;
    Ok(read == begin.len() && begin == JOURNAL_MAGIC)
}

/// Copies a database with its write-ahead log.
fn copy(path: &Path) -> StorageResult<Place> {
    let directory = crate::compression::scratch_directory()?;
    let to = directory.path().join(path.file_name().unwrap_or_default());
    let log = beside(path, "-wal");
    let needed = fs::file_len(path)? + fs::file_len(&log)?;
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
    for (from, to) in [(path, &to), (&log, &beside(&to, "-wal"))] {
        fs::convert_file(from, to, false, |from, to| std::io::copy(from, to).map(drop))?;
    }
    Ok(Place {
        path: to,
        immutable: false,
        copy: Some(Arc::new(directory)),
        rolled_back: None,
        is_written: false,
        salvaged: None,
    })
}

/// The path with a suffix appended to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The path as a URI; `immutable` keeps SQLite from checking for logs and locks.
fn uri(path: &Path, immutable: bool) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(char::from(*byte))
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri + if immutable { "?immutable=1" } else { "" }
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
