//! Any text as a configuration file of a storage.
#![no_main]

use holdall_storage::{mcap::McapOptions, sqlite3::SqliteOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = McapOptions::default().with_config(text);
    let _ = SqliteOptions::default().with_config(text);
});
