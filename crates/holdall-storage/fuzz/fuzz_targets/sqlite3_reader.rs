//! Any bytes as an SQLite3 database.
#![no_main]

use holdall_storage::{
    reader::{ReadQuery, StorageReader},
    sqlite3::SqliteReader,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(dir) = tempfile::tempdir() else { return };
    let path = dir.path().join("fuzz.db3");
    if std::fs::write(&path, data).is_err() {
        return;
    }
    if let Ok(reader) = SqliteReader::open(&path)
        && let Ok(messages) = reader.messages(&ReadQuery::default())
    {
        messages.take(1000).for_each(drop);
    }
});
