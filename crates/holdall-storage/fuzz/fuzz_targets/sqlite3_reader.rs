//! Any bytes as an SQLite3 database: checked, opened, read.
#![no_main]

use holdall_storage::{
    check::check_file,
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
    let _checked = check_file(&path, &mut |_| {}).is_ok();
    if let Ok(reader) = SqliteReader::open(&path)
        && let Ok(messages) = reader.messages(&ReadQuery::default())
    {
        messages.take(1000).for_each(drop);
    }
});
