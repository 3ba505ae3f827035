//! All storage backends: a new one is its folder and a line here.

use crate::{
    compression::ZSTD_MAGIC,
    error::{StorageError, StorageResult},
    leveldb::LeveldbStorage,
    mcap::McapStorage,
    rosbag1::Rosbag1Storage,
    storage::Storage,
};
use holdall_io::fs;
use std::path::Path;

/// The backend that is used unless the user names one.
pub const DEFAULT_STORAGE_ID: &str = crate::mcap::options::STORAGE_ID;

/// Backends that record; the first one is the default.
static STORAGES: &[&dyn Storage] = &[
    &McapStorage,
    #[cfg(feature = "sqlite3")]
    &crate::sqlite3::SqliteStorage,
    &LeveldbStorage,
];

/// Backends that only read.
static READ_ONLY_STORAGES: &[&dyn Storage] = &[&Rosbag1Storage];

/// All backends that can record.
pub fn storages() -> &'static [&'static dyn Storage] {
    STORAGES
}

/// All backends, including those that only read.
pub fn readable_storages() -> impl Iterator<Item = &'static dyn Storage> {
    STORAGES.iter().chain(READ_ONLY_STORAGES).copied()
}

/// The backend with this id, for recording.
///
/// # Errors
/// An unknown id.
pub fn storage_by_id(id: &str) -> StorageResult<&'static dyn Storage> {
    storages()
        .iter()
        .find(|storage| storage.id() == id)
        .copied()
        .ok_or_else(|| StorageError::UnknownStorage {
            expected: storages()
                .iter()
                .map(|storage| storage.id())
                .collect::<Vec<_>>()
                .join(", "),
            found: id.to_owned(),
        })
}

/// The backend that uses the extension of `path`, or recognizes the directory.
pub fn storage_by_path(path: &Path) -> Option<&'static dyn Storage> {
    if let Some(storage) = storage_of_directory(path) {
        return Some(storage);
    }
    let extension = path.extension()?.to_str()?;
    readable_storages().find(|storage| storage.extensions().contains(&extension))
}

/// The backend that has the directory at `path` as one of its "files".
pub fn storage_of_directory(path: &Path) -> Option<&'static dyn Storage> {
    // This kind is not read from a bucket; looking for it would take a request for each file.
    if holdall_io::remote::is_remote(path) {
        return None;
    }
    readable_storages().find(|storage| storage.is_directory() && storage.is_its_directory(path))
}

/// The backend of a file that begins with `head`, its first 16 bytes.
pub fn storage_by_magic(head: &[u8]) -> Option<&'static dyn Storage> {
    let begins = |magic: &[u8]| head.starts_with(magic);
    readable_storages().find(|storage| storage.magic().is_some_and(begins))
}

/// The backend of the file or directory at `path`, by its first bytes, whatever its name; by its extension where nothing was written in it
/// yet, its beginning is damaged or it is in a bucket. `None` for a packed file.
pub fn storage_of_file(path: &Path) -> Option<&'static dyn Storage> {
    if holdall_io::remote::is_remote(path) || fs::is_dir(path) {
        return storage_by_path(path);
    }
    let mut head = vec![0; 16];
    let read = fs::File::open(path).and_then(|file| file.read_at(&mut head, 0));
    head.truncate(read.unwrap_or(0));
    if head.starts_with(&ZSTD_MAGIC) {
        return None;
    }
    storage_by_magic(&head).or_else(|| storage_by_path(path))
}

/// Whether this extension, without dot, is that of a backend that records.
pub fn is_storage_extension(extension: &str) -> bool {
    storages()
        .iter()
        .any(|storage| storage.extensions().contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_ids_are_refused_with_the_known_ones() {
        assert_eq!(storage_by_id("mcap").unwrap().id(), "mcap");
        let error = storage_by_id("rosbag").err().unwrap().to_string();
        assert!(error.contains("rosbag") && error.contains("mcap"), "{error}");
    }

    #[test]
    fn files_are_known_by_their_extension() {
        assert_eq!(storage_by_path(Path::new("a/b_0.mcap")).unwrap().id(), "mcap");
        assert!(storage_by_path(Path::new("a/b.txt")).is_none());
    }

    #[test]
    fn files_that_are_there_are_known_by_their_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let id = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            storage_of_file(&path).map(Storage::id)
        };
        assert_eq!(id("recording", b"\x89MCAP0\r\n..."), Some("mcap"));
        assert_eq!(id("b_0.db3", b"\x89MCAP0\r\n..."), Some("mcap"));
        assert_eq!(id("t.bag.active", b"#ROSBAG V2.0\n..."), Some("rosbag1"));
        assert_eq!(id("empty.mcap", b""), Some("mcap"));
        assert_eq!(
            (id("notes", b"text"), id("a.mcap.zstd", &ZSTD_MAGIC)),
            (None, None)
        );
        assert_eq!(id("a.mcap", &ZSTD_MAGIC), None);
    }
}
