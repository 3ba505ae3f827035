//! Rows that SQLite's engine writes: all of them where pages are not built here, else what changes old rows or makes tables.

use super::{
    failed,
    ffi_vfs::BlockFile,
    format::{INSERT_MESSAGE, INSERT_MESSAGE_PUBLISHER},
    topics::Place,
};
use crate::error::{StorageError, StorageResult};
use holdall_model::message::PayloadRef;
use rusqlite::{Connection, blob::ZeroBlob, params, params_from_iter, types::Value};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// Small messages are gathered and inserted together, so that the prepared statement is looked up once for many.
const GATHERED_BYTES_MAX: usize = 256 << 10;
/// From this size on a message is inserted at once: another copy would cost more than the look-up.
const GATHER_PAYLOAD_BYTES_MAX: usize = 2 << 10;
/// From this size on a message is written into its row piece by piece, in pieces of the second size.
const LARGE_BYTES_MIN: usize = 8 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// A gathered message; its payload is the next part of the gathered bytes.
struct Gathered {
    timestamp: i64,
    place: Place,
    payload_bytes: usize,
}

/// The engine's connection to the database.
pub(super) struct Engine {
    path: PathBuf,
    connection: Connection,
    /// How pages get to the disk layer; `None` if SQLite writes everything itself.
    blocks: Option<BlockFile>,
    gathered: Vec<Gathered>,
    gathered_bytes: Vec<u8>,
    in_transaction: bool,
}

impl Engine {
    pub(super) fn new(path: &Path, connection: Connection, blocks: Option<BlockFile>) -> Self {
        Self {
            path: path.to_owned(),
            connection,
            blocks,
            gathered: Vec::new(),
            gathered_bytes: Vec::new(),
            in_transaction: false,
        }
    }

    /// How its pages get to the disk layer; `None` if SQLite writes everything itself.
    pub(super) fn blocks(&self) -> Option<&BlockFile> {
        self.blocks.as_ref()
    }

    /// Runs a pragma and ignores its answer.
    pub(super) fn pragma(&self, action: &'static str, pragma: &str) -> StorageResult<()> {
        run_pragma(&self.connection, pragma).map_err(failed(action, &self.path))
    }

    /// Runs a statement.
    pub(super) fn execute(
        &self,
        action: &'static str,
        statement: &str,
        values: impl rusqlite::Params,
    ) -> StorageResult<()> {
        self.connection
            .execute(statement, values)
            .map(drop)
            .map_err(refused(action, self.blocks.as_ref(), &self.path))
    }

    /// Inserts a row whose first column is its id; without one it gets the next.
    pub(super) fn insert(&mut self, table: &str, id: Option<i64>, values: &[Value]) -> StorageResult<()> {
        self.insert_gathered()?;
        let places = ",?".repeat(values.len());
        let statement = format!("INSERT INTO {table} VALUES (?{places})");
        let id = id.map_or(Value::Null, Value::Integer);
        let values = std::iter::once(&id).chain(values);
        self.execute("insert into", &statement, params_from_iter(values))
    }

    /// Begins a transaction, unless it has begun.
    pub(super) fn begin(&mut self) -> StorageResult<()> {
        if !self.in_transaction {
            self.execute("begin a transaction in", "BEGIN IMMEDIATE", [])?;
            self.in_transaction = true;
        }
        Ok(())
    }

    /// Inserts a message into the transaction, which begins with the first.
    pub(super) fn message(
        &mut self,
        timestamp: i64,
        place: Place,
        payload: PayloadRef<'_>,
    ) -> StorageResult<()> {
        self.begin()?;
        if payload.len() >= GATHER_PAYLOAD_BYTES_MAX {
            return self.insert_one(timestamp, place, payload);
        }
        let before = self.gathered_bytes.len();
        payload.for_each_slice(|slice| self.gathered_bytes.extend_from_slice(slice));
        let payload_bytes = self.gathered_bytes.len() - before;
        self.gathered.push(Gathered {
            timestamp,
            place,
            payload_bytes,
        });
        if self.gathered_bytes.len() + self.gathered.len() * size_of::<Gathered>() >= GATHERED_BYTES_MAX {
            self.insert_gathered()?;
        }
        Ok(())
    }

    fn insert_gathered(&mut self) -> StorageResult<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let refused = refused("insert into", self.blocks.as_ref(), &self.path);
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE).map_err(&refused)?;
        let mut rest = &self.gathered_bytes[..];
        for message in &self.gathered {
            let (payload, next) = rest.split_at(message.payload_bytes);
            rest = next;
            insert
                .execute(params![message.timestamp, message.place.topic_id, payload])
                .map_err(&refused)?;
            if let Some(publisher_id) = message.place.publisher_id {
                self.insert_publisher_of_last(publisher_id).map_err(&refused)?;
            }
        }
        drop(insert);
        self.gathered.clear();
        self.gathered_bytes.clear();
        Ok(())
    }

    /// Notes the publisher of the message that was just inserted.
    fn insert_publisher_of_last(&self, publisher_id: i64) -> rusqlite::Result<()> {
        let row = self.connection.last_insert_rowid();
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE_PUBLISHER)?;
        insert.execute([row, publisher_id]).map(drop)
    }

    fn insert_one(&mut self, timestamp: i64, place: Place, payload: PayloadRef<'_>) -> StorageResult<()> {
        let topic_id = place.topic_id;
        self.insert_gathered()?;
        let refused = refused("insert into", self.blocks.as_ref(), &self.path);
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE).map_err(&refused)?;
        let length = payload.len();
        if length >= LARGE_BYTES_MIN {
            insert
                .execute(params![timestamp, topic_id, ZeroBlob(length as u64)])
                .map_err(&refused)?;
            self.fill_last(payload)?;
        }
        match payload {
            _ if length >= LARGE_BYTES_MIN => Ok(0),
            PayloadRef::Bytes(bytes) => insert.execute(params![timestamp, topic_id, bytes]),
            PayloadRef::Loan(_) => {
                // SQLite wants a payload in one piece.
                payload.for_each_slice(|slice| self.gathered_bytes.extend_from_slice(slice));
                insert.execute(params![timestamp, topic_id, &self.gathered_bytes[..]])
            }
        }
        .map_err(&refused)?;
        if let Some(publisher_id) = place.publisher_id {
            self.insert_publisher_of_last(publisher_id).map_err(&refused)?;
        }
        drop(insert);
        self.gathered_bytes.clear();
        Ok(())
    }

    /// Writes a large payload piece by piece over the zeros of the row that was just inserted: bound to the statement SQLite holds it twice.
    fn fill_last(&self, payload: PayloadRef<'_>) -> StorageResult<()> {
        let row = self.connection.last_insert_rowid();
        let blob = self.connection.blob_open("main", "messages", "data", row, false);
        let mut blob = blob.map_err(refused("insert into", self.blocks.as_ref(), &self.path))?;
        let mut written = Ok(());
        payload.for_each_slice(|slice| {
            for piece in slice.chunks(PIECE_BYTES) {
                if written.is_ok() {
                    written = blob.write_all(piece);
                }
            }
        });
        written.map_err(|source| StorageError::Io {
            action: "insert into",
            path: self.path.clone(),
            source,
        })
    }

    /// Ends the transaction.
    pub(super) fn commit(&mut self) -> StorageResult<()> {
        self.insert_gathered()?;
        if std::mem::take(&mut self.in_transaction) {
            self.execute("commit a transaction to", "COMMIT", [])?;
        }
        Ok(())
    }

    /// The database's length in bytes.
    pub(super) fn length_bytes(&self) -> StorageResult<u64> {
        let pragma = |name: &str| {
            let value = self
                .connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            value
                .map(i64::unsigned_abs)
                .map_err(failed("ask for the length of", &self.path))
        };
        Ok(pragma("page_count")? * pragma("page_size")?)
    }

    /// Its tables and indexes: name and root page.
    pub(super) fn roots(&self) -> StorageResult<Vec<(String, u32)>> {
        let query = "SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0";
        let roots = || {
            let mut statement = self.connection.prepare_cached(query)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        roots().map_err(refused("read", self.blocks.as_ref(), &self.path))
    }

    /// Closes the connection: a write-ahead log is moved into the database, and removed. Returns what has its pages.
    pub(super) fn close(self) -> (StorageResult<()>, Option<BlockFile>) {
        let closed = self.connection.close();
        let closed = closed.map_err(|(_, error)| failed("close", &self.path)(error));
        (closed, self.blocks)
    }
}

/// Converts an error of the database library: where the disk has failed, its own error has the cause.
fn refused<'a>(
    action: &'static str,
    blocks: Option<&'a BlockFile>,
    path: &'a Path,
) -> impl Fn(rusqlite::Error) -> StorageError + 'a {
    move |source| match blocks.and_then(BlockFile::take_error) {
        Some(error) => error.into(),
        None => failed(action, path)(source),
    }
}

/// Runs a pragma and ignores its answer.
pub(super) fn run_pragma(connection: &Connection, pragma: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
