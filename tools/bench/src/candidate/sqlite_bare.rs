//! The yardstick for databases: a prepared insert in one transaction for each batch, with rosbag2's tables
//! and pragmas.

use super::raw::{RawMessage, RawWriter};
use crate::error::{BenchError, BenchResult};
use holdall_storage::writer::ChannelInfo;
use rusqlite::{Connection, params};
use std::{
    fs::File,
    path::{Path, PathBuf},
};

/// rosbag2's two ways to write, and one whose transactions are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlitePreset {
    /// No journal on disk, no sync before the end.
    Default,
    /// Write-ahead log, synced at checkpoints: a power cut damages nothing, and may take the last transactions.
    Resilient,
    /// Rollback journal, synced at each transaction, as holdall's `resilient`: a power cut takes at most the last one.
    Durable,
}

impl SqlitePreset {
    const fn pragmas(self) -> &'static str {
        match self {
            Self::Default => "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;",
            Self::Resilient => "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            Self::Durable => "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;",
        }
    }
}

/// Tables and index for messages of rosbag2's schema 4.
const TABLES: &str = "\
CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,\
offered_qos_profiles TEXT NOT NULL,type_description_hash TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);";

/// The loop's database.
pub struct SqliteBareWriter {
    path: PathBuf,
    connection: Connection,
}

impl SqliteBareWriter {
    /// A database at `path`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, channels: &[ChannelInfo], preset: SqlitePreset) -> BenchResult<Self> {
        let connection = Connection::open(path).map_err(failed(path))?;
        connection.execute_batch(preset.pragmas()).map_err(failed(path))?;
        connection.execute_batch(TABLES).map_err(failed(path))?;
        let mut writer = Self {
            path: path.to_owned(),
            connection,
        };
        writer.insert_topics(channels).map_err(failed(path))?;
        Ok(writer)
    }

    fn insert_topics(&mut self, channels: &[ChannelInfo]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut insert = transaction.prepare("INSERT INTO topics VALUES (?1, ?2, ?3, 'cdr', '', '')")?;
        for (channel, id) in channels.iter().zip(1_i64..) {
            insert.execute(params![id, channel.topic.name, channel.topic.type_name])?;
        }
        drop(insert);
        transaction.commit()
    }

    fn insert(&mut self, batch: &[RawMessage<'_>]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut insert = transaction
            .prepare_cached("INSERT INTO messages (timestamp, topic_id, data) VALUES (?1, ?2, ?3)")?;
        for message in batch {
            // SQLite's integers are signed; times before the year 2262 fit.
            let time = i64::try_from(message.log_time_nanos).unwrap_or(i64::MAX);
            insert.execute(params![time, i64::from(message.topic) + 1, message.payload])?;
        }
        drop(insert);
        transaction.commit()
    }
}

fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> BenchError {
    BenchError::rival("SQLite", path)
}

impl RawWriter for SqliteBareWriter {
    fn write_batch(&mut self, batch: &[RawMessage<'_>]) -> BenchResult<()> {
        self.insert(batch).map_err(failed(&self.path))
    }

    fn close(self: Box<Self>) -> BenchResult<()> {
        // Closing the last connection moves the write-ahead log into the database.
        self.connection
            .close()
            .map_err(|(_, error)| failed(&self.path)(error))?;
        let file = File::options()
            .write(true)
            .open(&self.path)
            .map_err(BenchError::io("open", &self.path))?;
        file.sync_all().map_err(BenchError::io("sync", &self.path))?;
        super::raw::sync_parent(&self.path)
    }
}
