//! The metadata of a bag, and the storage files that it names.

use super::{BagFile, Ros1View};
use crate::reader::{
    error::{ReadError, io_error},
    file::{self, Payloads, UnpackedFiles},
};
use holdall_io::{fs, remote};
use holdall_model::metadata::{BagMetadata, FileInformation, METADATA_BYTES_MAX};
use holdall_storage::compression::{is_packed_name, packed_name, unpacked_name};
use std::{
    io,
    path::{Component, Path, PathBuf},
};

/// A folder in a bucket with more files than this is listed in place of a request for each.
const LISTED_MIN: usize = 2;

/// Why a metadata file cannot be used.
pub(super) enum Unusable {
    Missing,
    /// It is readable, but lists nothing.
    NamesNothing,
    Damaged(holdall_model::metadata::MetadataError),
    Unreadable(ReadError),
}

pub(super) fn read_metadata(path: &Path) -> Result<BagMetadata, Unusable> {
    let bytes = fs::read(path, METADATA_BYTES_MAX).map_err(|error| match error {
        error if error.is_not_found() => Unusable::Missing,
        error => Unusable::Unreadable(ReadError::Disk(error)),
    })?;
    // Foreign bytes in a name must not make the rest unreadable.
    BagMetadata::from_yaml(&String::from_utf8_lossy(&bytes)).map_err(Unusable::Damaged)
}

/// A named file, or its packed or unpacked form if it was converted after the metadata was written.
fn present(path: PathBuf) -> io::Result<(PathBuf, fs::About)> {
    let missing = match fs::about(&path) {
        Ok(about) => return Ok((path, about)),
        Err(error) => error.into_io(),
    };
    let other = if is_packed_name(&path) {
        unpacked_name(&path)
    } else {
        packed_name(&path)
    };
    match fs::about(&other) {
        Ok(about) if missing.kind() == io::ErrorKind::NotFound => Ok((other, about)),
        _ => Err(missing),
    }
}

fn is_inside(relative: &str) -> bool {
    let mut components = Path::new(relative).components();
    !relative.is_empty()
        && components.all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

/// Those of the files that the metadata names which are in the bag.
pub(super) fn present_files(bag: &Path, metadata: &BagMetadata) -> Vec<PathBuf> {
    let named = metadata.relative_file_paths.iter();
    let inside = named.filter(|relative| is_inside(relative));
    let found = inside.filter_map(|relative| present(bag.join(relative)).ok());
    found.map(|(path, _)| path).collect()
}

/// Finds the files that the metadata names, which must exist in the bag.
pub(super) fn named_files(
    bag: &Path,
    metadata: &BagMetadata,
    payloads: Payloads,
) -> Result<Vec<BagFile>, ReadError> {
    let mut found = Vec::new();
    let unpacked = UnpackedFiles::default();
    if metadata.relative_file_paths.len() > LISTED_MIN && remote::is_remote(bag) {
        // One listing answers later questions about each file. A server that does not list is asked about each.
        let _ = fs::list_dir(bag);
    }
    let mut missing = None;
    for (index, relative) in metadata.relative_file_paths.iter().enumerate() {
        if !is_inside(relative) {
            return Err(ReadError::PathOutside {
                bag: bag.to_owned(),
                found: relative.clone(),
            });
        }
        let path = bag.join(relative);
        match present(path.clone()) {
            Ok((path, about)) => {
                let information = metadata.files.get(index).filter(|file| same_file(file, relative));
                found.push(BagFile {
                    bytes: file::length(&path, &about),
                    path,
                    earliest: information.and_then(|file| file.starting_time),
                    latest: information
                        .and_then(|file| Some(file.starting_time?.saturating_add(file.duration))),
                    empty: information.is_some_and(|file| file.message_count == 0),
                    payloads,
                    reader: None,
                    unpacked: unpacked.clone(),
                    view: Ros1View::default(),
                    hidden: None,
                    kept: None,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing.get_or_insert_with(|| PathBuf::from(relative));
            }
            Err(error) => return Err(io_error("open", &path, error)),
        }
    }
    match missing {
        None => Ok(found),
        Some(file) => Err(ReadError::MissingFile {
            bag: bag.to_owned(),
            file,
            named: metadata.relative_file_paths.len(),
            present: found.len(),
        }),
    }
}

/// Both lists are in the same order; older metadata has paths with the bag's name as prefix, and only one of
/// them shows that a file is packed.
fn same_file(information: &FileInformation, relative: &str) -> bool {
    let name = |path: &str| unpacked_name(Path::new(path)).file_name().map(ToOwned::to_owned);
    name(&information.path) == name(relative)
}
