//! Which files an encrypted bag has: its metadata, encrypted itself, names the identifier of each, so that none can be exchanged for another.

use holdall_io::{
    disk::DiskError,
    fs,
    sealed::{Seal, identifier_of, seal_of},
};
use holdall_model::metadata::{BagMetadata, METADATA_BYTES_MAX};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Key in `custom_data` of the metadata of an encrypted bag: the identifiers of its files by name, as JSON. Older bags have none.
pub const SEALED_KEY: &str = "holdall.sealed";

/// Notes the identifiers of the files that `metadata` names in the bag in `directory`; of a bag that is not encrypted nothing.
pub fn note_sealed(directory: &Path, metadata: &mut BagMetadata) {
    let identifiers: BTreeMap<&str, String> = metadata
        .relative_file_paths
        .iter()
        .filter_map(|name| Some((name.as_str(), identifier_of(&directory.join(name)).ok()??)))
        .collect();
    let text = (!identifiers.is_empty()).then(|| serde_json::to_string(&identifiers).ok());
    match text.flatten() {
        Some(text) => metadata.custom_data.insert(SEALED_KEY.to_owned(), text),
        None => metadata.custom_data.remove(SEALED_KEY),
    };
}

/// Notes them again after a file of the bag was replaced, if its metadata has them.
///
/// # Errors
/// When the metadata cannot be written.
pub fn note_replaced(file: &Path) -> Result<(), DiskError> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let path = directory.join("metadata.yaml");
    let text = fs::read_to_string(&path, METADATA_BYTES_MAX);
    let Some(mut metadata) = text.ok().and_then(|text| BagMetadata::from_yaml(&text).ok()) else {
        return Ok(());
    };
    if !metadata.custom_data.contains_key(SEALED_KEY) {
        return Ok(());
    }
    note_sealed(directory, &mut metadata);
    fs::write_atomically(&path, metadata.to_yaml().as_bytes())
}

/// A file that does not belong to the encrypted bag that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealFault {
    /// Which.
    pub path: PathBuf,
    /// The fault, a clause.
    pub found: &'static str,
    /// It was not encrypted for this bag at all, so its content may be anybody's.
    pub is_foreign: bool,
}

impl SealFault {
    /// It as a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "{}: secret: expected that of the encrypted bag that it is in, found {}",
            self.path.display(),
            self.found
        )
    }
}

/// The first bytes of a file.
enum Beginning {
    Sealed(Seal),
    Plain,
    /// It cannot be read, which is reported elsewhere, or is still empty.
    Unknown,
}

fn beginning(path: &Path) -> Beginning {
    match seal_of(path) {
        Ok(Some(seal)) => Beginning::Sealed(seal),
        Ok(None) if matches!(fs::begins_with_zeros(path), Ok(false)) => Beginning::Plain,
        Ok(None) | Err(_) => Beginning::Unknown,
    }
}

/// Files of the bag in `directory` that are of another bag, not encrypted where others are, or not those that its `metadata` names.
pub fn seal_faults(directory: &Path, metadata: Option<&BagMetadata>, files: &[PathBuf]) -> Vec<SealFault> {
    let metadata_path = directory.join("metadata.yaml");
    let begins: Vec<Beginning> = files.iter().map(|file| beginning(file)).collect();
    let of_metadata = beginning(&metadata_path);
    let seals = [&of_metadata].into_iter().chain(&begins);
    let mut seals = seals.filter_map(|begins| match begins {
        Beginning::Sealed(seal) => Some(seal),
        Beginning::Plain | Beginning::Unknown => None,
    });
    let Some(seal) = seals.next() else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    let mut fault = |path: &Path, found, is_foreign| {
        let path = path.to_owned();
        faults.push(SealFault {
            path,
            found,
            is_foreign,
        });
    };
    if matches!(of_metadata, Beginning::Plain) {
        fault(
            &metadata_path,
            "none: it is not encrypted, but its files are",
            false,
        );
    }
    let named = metadata.and_then(|metadata| metadata.custom_data.get(SEALED_KEY));
    let named = named.filter(|_| matches!(of_metadata, Beginning::Sealed(_)));
    let named: Option<BTreeMap<String, String>> = named.and_then(|text| serde_json::from_str(text).ok());
    for (path, begins) in files.iter().zip(&begins) {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_named = |named: &BTreeMap<String, String>| {
            let expected = name.and_then(|name| named.get(name));
            let found = identifier_of(path).ok().flatten();
            expected.is_some() && expected == found.as_ref()
        };
        match begins {
            Beginning::Sealed(of_file) if !seal.is_of_same_bag(of_file) => {
                fault(path, "that of another bag", true)
            }
            Beginning::Sealed(_) if named.as_ref().is_some_and(|named| !is_named(named)) => {
                fault(path, "that of another file, or of an older one", false);
            }
            Beginning::Plain => fault(path, "none: it is not encrypted", true),
            Beginning::Sealed(_) | Beginning::Unknown => {}
        }
    }
    faults
}
