//! Any bytes as the log, a table or the manifest of a valid LevelDB storage: opened, read, checked.
#![no_main]

use holdall_storage::{
    check::check_file,
    leveldb::LeveldbReader,
    reader::{ReadOrder, ReadQuery, StorageReader},
};
use libfuzzer_sys::fuzz_target;
use std::fs;

/// The first byte selects the file that the other bytes are written to.
const FILES: [&str; 4] = ["000003.log", "000005.ldb", "MANIFEST-000002", "CURRENT"];

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else {
        return;
    };
    let Ok(folder) = tempfile::tempdir() else { return };
    let bag = folder.path().join("bag_0");
    for database in ["_t_ldb_metadata", "_t_ldb_message"] {
        let path = bag.join(database);
        if fs::create_dir_all(&path).is_err() {
            return;
        }
        let mut files = vec![FILES[usize::from(which) % FILES.len()]];
        // A manifest is read only if `CURRENT` names it.
        if files[0].starts_with("MANIFEST") {
            let _written = fs::write(path.join("CURRENT"), "MANIFEST-000002\n").is_ok();
        }
        if which & 0x80 != 0 {
            files.push("000003.log");
        }
        for file in files {
            if fs::write(path.join(file), bytes).is_err() {
                return;
            }
        }
    }
    let _checked = check_file(&bag, &mut |_| {}).is_ok();
    let Ok(reader) = LeveldbReader::open(&bag) else {
        return;
    };
    for order in [ReadOrder::LogTime, ReadOrder::File] {
        if let Ok(messages) = reader.messages(&ReadQuery {
            order,
            ..ReadQuery::default()
        }) {
            messages.take(1000).for_each(drop);
        }
    }
});
