//! SQLite3: the storage of ROS 2 until Iron, one database of topics and messages.

mod beside;
mod btree;
mod build;
pub mod check;
mod counting;
mod engine;
mod ffi_reader;
mod ffi_rolled_back;
mod ffi_vfs;
pub mod format;
mod locks;
mod open;
pub mod options;
mod pages;
pub mod reader;
mod recover;
mod repair;
mod rollback;
mod salvage;
mod search;
mod tables;
mod topics;
pub mod writer;

pub use options::SqliteOptions;
pub use reader::SqliteReader;
pub(crate) use writer::SqliteWriter;

use crate::RepairTarget;
use crate::{
    check::{FileCheck, Progress},
    error::{StorageError, StorageResult},
    reader::StorageReader,
    repair::Repaired,
    storage::{Storage, StorageOptions},
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::FileId, queue::DiskQueue};
use rusqlite::Connection;
use std::path::Path;

/// The SQLite3 backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SqliteStorage;

impl SqliteStorage {
    fn options(options: &StorageOptions) -> StorageResult<SqliteOptions> {
        let sqlite = SqliteOptions::preset(options.preset.as_deref())?;
        options
            .config
            .as_ref()
            .map_or(Ok(sqlite.clone()), |text| sqlite.with_config(text))
    }
}

impl Storage for SqliteStorage {
    fn id(&self) -> &'static str {
        format::STORAGE_ID
    }

    fn title(&self) -> &'static str {
        "SQLite"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["db3"]
    }

    fn magic(&self) -> Option<&'static [u8]> {
        Some(format::MAGIC)
    }

    fn has_end(&self, path: &Path) -> StorageResult<Option<bool>> {
        Ok(recover::lacks_pages(path)?.then_some(false))
    }

    fn check(&self, path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
        check::check(path, progress)
    }

    fn split_bytes_min(&self) -> u64 {
        86_016
    }

    fn keeps_publishers(&self) -> bool {
        true
    }

    fn writes_blocks(&self) -> bool {
        false
    }

    fn presets(&self) -> &'static [&'static str] {
        &options::PRESETS
    }

    fn check_options(&self, options: &StorageOptions) -> StorageResult<()> {
        Self::options(options).map(drop)
    }

    fn create_writer(
        &self,
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>> {
        Ok(Box::new(SqliteWriter::create(
            q,
            file,
            path,
            &Self::options(options)?,
            options.ros_distro.as_deref(),
        )?))
    }

    fn repair(
        &self,
        path: &Path,
        records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> StorageResult<Option<Repaired>> {
        repair::repair(path, records, target)
    }

    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        Ok(Box::new(SqliteReader::open(path)?))
    }
}

/// Whether a database has a table of this name.
fn has_table(connection: &Connection, path: &Path, name: &str) -> StorageResult<bool> {
    let query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
    let count = connection.query_row(query, [name], |row| row.get::<_, i64>(0));
    count.map(|count| count > 0).map_err(failed("read", path))
}

/// Converts an error of the database library.
fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(rusqlite::Error) -> StorageError + 'a {
    use rusqlite::{Error, ErrorCode};
    move |source| {
        let is_damage = matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        );
        // rosbag2's columns have values of one kind.
        let is_other = matches!(
            source,
            Error::InvalidColumnType(..)
                | Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..)
        );
        match is_damage || is_other {
            true => StorageError::Malformed {
                path: path.to_owned(),
                offset: 0,
                expected: "a whole database".to_owned(),
                found: source.to_string(),
            },
            false => StorageError::Database {
                action,
                path: path.to_owned(),
                source: source.into(),
            },
        }
    }
}
