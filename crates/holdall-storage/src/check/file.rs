//! Checks a file with the storage that it is of, as its first bytes show.

use super::{FileCheck, Progress};
use crate::{
    StorageResult,
    compression::{ZSTD_MAGIC, scratch_directory, unpack_file, unpacked_name},
    registry::{DEFAULT_STORAGE_ID, storage_by_id, storage_by_magic, storage_by_path, storage_of_directory},
};
use holdall_io::fs::File;
use std::path::Path;

/// Checks a storage file from start to end with the backend that its first bytes identify; a file of no known
/// beginning is checked as one of the default storage.
///
/// # Errors
/// A file that cannot be read, or of a storage that cannot be checked. Damage is not an error here but a
/// finding.
pub fn check_file(path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
    if let Some(storage) = storage_of_directory(path) {
        return storage.check(path, progress);
    }
    let mut begin = vec![0; 16];
    let read = File::open(path)?.read_at(&mut begin, 0)?;
    begin.truncate(read);
    if begin.starts_with(&ZSTD_MAGIC) {
        return check_packed(path, progress);
    }
    match storage_by_magic(&begin).or_else(|| storage_by_path(path)) {
        Some(storage) => storage.check(path, progress),
        None => storage_by_id(DEFAULT_STORAGE_ID)?.check(path, progress),
    }
}

/// A file of rosbag2's file compression: unpacked to a temporary directory and checked there.
fn check_packed(path: &Path, progress: Progress<'_>) -> StorageResult<FileCheck> {
    let directory = scratch_directory()?;
    let name = unpacked_name(path);
    let copy = directory
        .path()
        .join(name.file_name().unwrap_or("storage".as_ref()));
    let front = unpack_file(path, &copy)?;
    let mut found = check_file(&copy, progress).map_err(|error| error.in_file(path))?;
    found.path = path.to_owned();
    for finding in &mut found.findings.list {
        finding.path = path.to_owned();
        finding.what = format!("in the unpacked file: {}", finding.what);
    }
    if let Some(front) = front {
        let bytes = format!("its first {} bytes: {}", front.bytes, front.reason);
        found.problem(
            front.offset,
            "packed file",
            "a file that can be unpacked whole",
            bytes,
        );
    }
    Ok(found)
}
