//! Finds the bags below a folder, without opening any.

use super::CatalogError;
use crate::reader::listing::storage_files;
use holdall_io::fs::{self, DirEntry};
use holdall_storage::{compression::unpacked_name, storage_of_directory};
use std::path::{Path, PathBuf};

/// Deepest folder below a root that is entered.
const DEPTH_MAX: usize = 64;
/// The file that describes a bag, in its directory.
const METADATA_FILE: &str = "metadata.yaml";

/// A bag that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub path: PathBuf,
    /// The named folder below which it is.
    pub root: PathBuf,
    /// Changes when a file of the bag does: their number, bytes, newest change, and a checksum over all names, lengths and times.
    pub fingerprint: String,
}

/// The bags below `root`, or the bag that it is. Folders that are links, and names that begin with a dot, are left out.
pub(super) fn bags_below(root: &Path, found: &mut Vec<Candidate>) -> Result<(), CatalogError> {
    let about = fs::about(root)?;
    if about.is_dir() {
        return walk(root, root, 0, found);
    }
    let candidate = candidate(root, root, &[root.to_owned()])?;
    found.push(candidate);
    Ok(())
}

fn walk(root: &Path, folder: &Path, depth: usize, found: &mut Vec<Candidate>) -> Result<(), CatalogError> {
    let entries = fs::list_dir(folder)?;
    let is_bag = storage_of_directory(folder).is_some()
        || entries
            .iter()
            .any(|entry| entry.path.file_name().is_some_and(|name| name == METADATA_FILE));
    if is_bag {
        found.push(candidate(root, folder, &files_of(&entries)?)?);
        return Ok(());
    }
    let files = storage_files(folder).map_err(|error| CatalogError::Bag(Box::new(error)))?;
    if !files.is_empty() && files.iter().all(|file| is_split_of(folder, file)) {
        found.push(candidate(root, folder, &files)?);
    } else {
        for file in &files {
            found.push(candidate(root, file, std::slice::from_ref(file))?);
        }
    }
    for DirEntry { path, is_dir } in &entries {
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_entered = *is_dir && !is_hidden && !files.contains(path) && !fs::is_link(path);
        if is_entered && depth < DEPTH_MAX {
            walk(root, path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// True for `lab/lab_3.mcap`: a file of a recording that was cut off before it could write its metadata.
fn is_split_of(folder: &Path, file: &Path) -> bool {
    let (Some(folder), plain) = (folder.file_name(), unpacked_name(file)) else {
        return false;
    };
    let stem = plain
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    stem.strip_prefix(&*folder.to_string_lossy())
        .and_then(|rest| rest.strip_prefix('_'))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The files in a bag's directory, with those of storages that are directories.
fn files_of(entries: &[DirEntry]) -> Result<Vec<PathBuf>, CatalogError> {
    let mut files = Vec::new();
    for DirEntry { path, is_dir } in entries {
        if !is_dir {
            files.push(path.clone());
        } else if storage_of_directory(path).is_some() {
            let inner = fs::list_dir(path)?;
            files.extend(
                inner
                    .into_iter()
                    .filter(|entry| !entry.is_dir)
                    .map(|entry| entry.path),
            );
        }
    }
    Ok(files)
}

fn candidate(root: &Path, path: &Path, files: &[PathBuf]) -> Result<Candidate, CatalogError> {
    let (mut bytes, mut newest) = (0_u64, i64::MIN);
    let mut sum = crc32fast::Hasher::new();
    for file in files {
        let Some(stamp) = fs::change_stamp(file)? else {
            continue;
        };
        bytes = bytes.saturating_add(stamp.len_bytes);
        newest = newest.max(stamp.changed_nanos);
        sum.update(file.as_os_str().as_encoded_bytes());
        sum.update(&stamp.len_bytes.to_le_bytes());
        sum.update(&stamp.changed_nanos.to_le_bytes());
    }
    let fingerprint = format!("{} {bytes} {newest} {:08x}", files.len(), sum.finalize());
    Ok(Candidate {
        path: path.to_owned(),
        root: root.to_owned(),
        fingerprint,
    })
}
