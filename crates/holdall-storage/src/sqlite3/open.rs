//! Opens a new database for writing: through the disk layer, or by SQLite alone.

use super::{
    engine::Engine,
    failed, ffi_reader,
    ffi_vfs::{self, BlockFile},
    locks::WriterLocks,
    options::SqliteOptions,
};
use crate::error::StorageResult;
use holdall_io::{disk::FileId, queue::DiskQueue, range_lock::Waiting};
use rusqlite::{Connection, OpenFlags};
use std::{path::Path, sync::Arc, time::Duration};

/// How long a write that meets another program's lock sleeps before it tries again, in milliseconds.
const BUSY_MILLIS: u64 = 5;
/// The wait is logged each time that this many tries have failed.
const BUSY_LOG_TRIES: u32 = 1000;

/// Opens the empty file that the queue has made. SQLite itself writes a write-ahead log and pages that are smaller than the disk's:
/// its locks let other programs change the database between two transactions, and so it waits for them.
pub(super) fn open(
    q: &mut DiskQueue,
    file: FileId,
    path: &Path,
    options: &SqliteOptions,
) -> StorageResult<Engine> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let refused = failed("open", path);
    if options.has_write_ahead_log() || options.has_small_pages() {
        ffi_vfs::check_registered().map_err(&refused)?;
        let opened = Connection::open_with_flags_and_vfs(path, flags, ffi_reader::NAME);
        let mut connection = opened.map_err(&refused)?;
        connection.busy_handler(Some(wait_for_others)).map_err(&refused)?;
        return Ok(Engine::new(path, connection, None));
    }
    let locks = Arc::new(WriterLocks::reserve(path)?);
    // Until the file is cut to the database's length.
    q.keep_until_closed(file, Box::new(Arc::clone(&locks)))?;
    let (connection, blocks) = BlockFile::open(path, file, flags, locks).map_err(&refused)?;
    Ok(Engine::new(path, connection, Some(blocks)))
}

/// SQLite's call when another program has locked the database: it tries again, for as long as it takes.
fn wait_for_others(tried: i32) -> bool {
    if tried > 0 && tried.unsigned_abs().is_multiple_of(BUSY_LOG_TRIES) {
        tracing::warn!(
            "another program has locked the database for {} s: what is received waits in memory until it is released",
            u64::from(tried.unsigned_abs()) * BUSY_MILLIS / 1000
        );
    }
    let waiting = Waiting::begin();
    std::thread::sleep(Duration::from_millis(BUSY_MILLIS));
    drop(waiting);
    true
}
