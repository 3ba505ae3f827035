//! Finds the storage files in a directory without metadata.

use super::error::{ReadError, io_error};
use holdall_io::fs::{self, DirEntry};
use holdall_model::file_class::are_numbered_together;
use holdall_storage::{
    compression::{is_packed_name, unpacked_name},
    is_storage_extension, storage_of_directory, storages,
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// Most files in a directory that are listed; a bag has fewer.
const ENTRIES_MAX: usize = 1_000_000;

/// The storage files in `directory` in the order of their numbers: `bag_2.mcap` before `bag_10.mcap`.
pub fn storage_files(directory: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let listed = fs::list_dir_up_to(directory, ENTRIES_MAX);
    let listed = listed.map_err(|error| io_error("list", directory, error.into_io()))?;
    Ok(storage_files_of(listed))
}

/// The storage files among the entries of a directory, in the order of their numbers.
pub fn storage_files_of(entries: impl IntoIterator<Item = DirEntry>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for DirEntry { path, is_dir } in entries {
        let plain = unpacked_name(&path);
        let extension = plain
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        let is_storage = if is_dir {
            storage_of_directory(&path).is_some()
        } else {
            is_storage_extension(extension)
        };
        if is_storage {
            files.push(path);
        }
    }
    // A file that was being packed exists twice: the original, which is always whole, and the packed one.
    let plain: HashSet<PathBuf> = files
        .iter()
        .filter(|path| !is_packed_name(path))
        .cloned()
        .collect();
    files.retain(|path| !is_packed_name(path) || !plain.contains(&unpacked_name(path)));
    files.sort_by_cached_key(|path| (class_and_number(path), path.display().to_string()));
    let folder = files
        .first()
        .and_then(|path| path.parent()?.file_name()?.to_str());
    let named: Vec<_> = files.iter().map(|path| class_and_number(path)).collect();
    if are_numbered_together(&named, folder) {
        files.sort_by_cached_key(|path| class_and_number(path).1);
    }
    files
}

/// Describes a directory without metadata and storage files, as a clause for the user.
pub fn describe_without_storage(directory: &Path) -> Result<String, ReadError> {
    let listed =
        fs::list_dir_up_to(directory, 1).map_err(|error| io_error("list", directory, error.into_io()))?;
    let extensions: Vec<String> = storages()
        .iter()
        .flat_map(|storage| storage.extensions())
        .map(|extension| format!(".{extension}"))
        .collect();
    let extensions = extensions.join(", ");
    Ok(if listed.is_empty() {
        "the directory is empty".to_owned()
    } else if fs::exists(&directory.join("metadata.yaml")).unwrap_or(false) {
        format!("it holds metadata.yaml and no storage file ({extensions})")
    } else {
        format!("it holds neither metadata.yaml nor a storage file ({extensions})")
    })
}

/// The name without its number, which files of one class of topics share, and the number.
pub(super) fn class_and_number(path: &Path) -> (String, u64) {
    let plain = unpacked_name(path);
    let stem = plain.file_stem().unwrap_or_default().to_string_lossy();
    let head = stem.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = stem[head.len()..].parse().unwrap_or(u64::MAX);
    (head.to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_come_in_the_order_of_their_numbers() {
        let directory = tempfile::tempdir().expect("temporary directory");
        for name in [
            "b_10.mcap.zstd",
            "b_2.mcap",
            "b_2.mcap.zstd",
            "b_0.mcap",
            "notes.txt",
            "notes.txt.zstd",
            "b_1.db3",
        ] {
            fs::write(directory.path().join(name), "").expect("write");
        }
        fs::create_dir(directory.path().join("b_3.mcap")).expect("create");
        let files = storage_files(directory.path()).expect("list");
        let names: Vec<_> = files
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        assert_eq!(names, ["b_0.mcap", "b_1.db3", "b_2.mcap", "b_10.mcap.zstd"]);
    }

    #[test]
    fn an_empty_directory_is_distinguished_from_one_without_storage_files() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let found = describe_without_storage(directory.path()).expect("list");
        assert_eq!(found, "the directory is empty");
        fs::write(directory.path().join("notes.txt"), "").expect("write");
        let found = describe_without_storage(directory.path()).expect("list");
        assert!(found.contains("neither"), "{found}");
    }
}
