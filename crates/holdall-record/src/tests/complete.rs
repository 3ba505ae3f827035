//! Files that are listed as complete: each once, readable then and unchanged afterwards, the last one too.

use super::*;
use holdall_bag::{
    reader::Bag,
    writer::{CompressionMode, SplitOptions},
};

/// Contents of a listed file: its bytes, or those of all files in it.
fn bytes(path: &Path) -> Vec<Vec<u8>> {
    if !path.is_dir() {
        return vec![fs::read(path).unwrap()];
    }
    let entries = fs::read_dir(path).unwrap();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.iter().flat_map(|entry| bytes(entry)).collect()
}

#[test]
fn each_file_is_listed_once_when_it_is_complete() {
    let ways = [
        ("mcap", CompressionMode::None),
        ("mcap", CompressionMode::File),
        ("mcap", CompressionMode::Message),
        ("sqlite3", CompressionMode::None),
        ("leveldb", CompressionMode::None),
    ];
    for (storage, mode) in ways {
        let mut world = World::new();
        world.options.files.lists_complete_files = true;
        world.options.files.storage_id = storage.to_owned();
        world.options.files.compression.mode = mode;
        let publisher = world.publisher("/chatter", RELIABLE);
        let recording = world.record();
        recording.wait_matched(&publisher);
        let mut listed: Vec<(PathBuf, Vec<Vec<u8>>)> = Vec::new();
        for number in 0..3 {
            publisher.send(&payload(number, 1000));
            recording.wait_recorded(number as u64 + 1);
            assert_eq!(
                recording.control.take_complete_files(),
                [] as [PathBuf; 0],
                "{storage}, {mode:?}"
            );
            recording.control.split();
            let found = std::cell::RefCell::new(Vec::new());
            recording.wait_until("the file is complete", |recording| {
                found.borrow_mut().extend(recording.control.take_complete_files());
                !found.borrow().is_empty()
            });
            for path in found.into_inner() {
                assert_eq!(
                    Bag::open(&path).unwrap().messages().count(),
                    1,
                    "{storage}, {mode:?}"
                );
                let content = bytes(&path);
                listed.push((path, content));
            }
        }
        publisher.send(&payload(3, 1000));
        recording.wait_recorded(4);
        let control = recording.control.clone();
        let recorded = recording.stop();
        listed.extend(control.take_complete_files().into_iter().map(|path| {
            let content = bytes(&path);
            (path, content)
        }));
        let paths: Vec<&PathBuf> = listed.iter().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            recorded.report.files.iter().collect::<Vec<_>>(),
            "{storage}, {mode:?}"
        );
        for (path, content) in &listed {
            assert!(bytes(path) == *content, "{} has changed", path.display());
        }
        assert_eq!(control.take_complete_files(), [] as [PathBuf; 0]);
    }
}

#[test]
fn files_are_listed_on_request_only() {
    let mut world = World::new();
    world.options.files.split = SplitOptions {
        bytes_max: Some(20_000),
        ..SplitOptions::default()
    };
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    for number in 0..100 {
        publisher.send(&payload(number, 1000));
    }
    let control = recording.control.clone();
    assert!(recording.stop().report.files.len() > 1);
    assert_eq!(control.take_complete_files(), [] as [PathBuf; 0]);
}
