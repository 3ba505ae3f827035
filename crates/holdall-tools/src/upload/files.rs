//! Which files of a bag are finished, and how a file is recognized as the same.

use super::{UploadError, journal::JOURNAL_BEGIN};
use holdall_bag::{
    live::writer_of_bag,
    reader::{Bag, Condition, ReadError},
    rescue::POINTER_FILE,
    writer::STATE_KEY,
};
use holdall_io::{
    fs::{self, DirEntry, is_stored_sealed},
    lock::writer_of,
    sealed::was_closed,
};
use holdall_model::metadata::{BagMetadata, METADATA_BYTES_MAX};
use holdall_storage::{
    compression::{packed_name, unpacked_name},
    storage_of_file,
};
use std::path::{Path, PathBuf};

/// The file that describes a bag; sent last.
const METADATA_FILE: &str = "metadata.yaml";

/// Folders in folders of a bag that are followed: storages that are folders have one.
const DEPTH_MAX: usize = 4;

/// A file's state: when it is the same, so are its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub bytes: u64,
    pub modified_ns: i64,
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> Result<Self, UploadError> {
        Ok(Self {
            bytes: fs::file_len(path)?,
            modified_ns: fs::modified_ns(path)?,
        })
    }
}

/// The files of a bag.
#[derive(Debug)]
pub(super) struct BagFiles {
    /// What was not closed although no recorder writes it, and why it is unfinished: the bag or one of its files.
    pub torn: Option<(PathBuf, &'static str)>,
    /// What cannot be read of a bag that was ended, if its state is damaged.
    pub damage: Option<String>,
    /// Names of finished files, in the order in which they are sent.
    pub finished: Vec<String>,
    pub unfinished: Vec<String>,
    /// Storage files that the metadata names and that are not here.
    pub missing: Vec<String>,
}

impl BagFiles {
    /// # Errors
    /// A directory that cannot be read or has no storage file.
    pub(super) fn of(bag: &Path) -> Result<Self, UploadError> {
        // Checked first: a recorder that has exited by now has written the metadata that is read next.
        let is_recorded = writer_of_bag(bag).is_some();
        let mut names = Vec::new();
        collect(bag, "", 0, &mut names)?;
        let (metadata, is_hidden) = match read_metadata(&bag.join(METADATA_FILE)) {
            // An encrypted bag is sent unchanged, by a robot that has the public key only.
            Err(UploadError::Disk(error)) if error.lacks_key() => (None, true),
            metadata => (metadata?, false),
        };
        let named = metadata.iter().flat_map(|metadata| &metadata.relative_file_paths);
        let missing: Vec<String> = named.filter(|name| !is_here(bag, name)).cloned().collect();
        // Files in folders of the bag belong to it only where its metadata says so: these may be bags of their own.
        let is_storage = |name: &String| !name.contains('/') && storage_of_file(&bag.join(name)).is_some();
        if metadata.is_none() && !is_hidden && !names.iter().any(is_storage) {
            return Err(UploadError::NotABag {
                path: bag.to_owned(),
                reason: "it has neither metadata.yaml nor a storage file".to_owned(),
            });
        }
        let was_ended = match &metadata {
            Some(metadata) => !metadata.custom_data.contains_key(STATE_KEY),
            // Without the key: memory is kept as long as a recording has not ended.
            None => !(is_hidden && fs::exists(&bag.join(POINTER_FILE))?),
        };
        let mut files = Self {
            torn: None,
            damage: None,
            finished: Vec::new(),
            unfinished: Vec::new(),
            missing: if is_recorded { Vec::new() } else { missing },
        };
        let is_final = !is_recorded && was_ended;
        for name in names {
            let path = bag.join(&name);
            // Before the end of a recording only files that show it are finished.
            let is_whole = has_end(&path)?;
            let is_finished = match is_whole {
                Some(is_whole) => is_whole && writer_of(&path)?.is_none(),
                None => is_final,
            };
            if is_finished {
                files.finished.push(name);
                continue;
            }
            if is_final {
                files.torn = Some((path, "it has no end"));
            }
            files.unfinished.push(name);
        }
        if !is_recorded && !was_ended {
            files.torn = Some((bag.to_owned(), "its recording was not ended"));
        }
        if files.torn.is_some() {
            // It would describe missing files.
            files.finished.retain(|name| name != METADATA_FILE);
        }
        if is_final && !is_hidden && files.torn.is_none() {
            files.damage = damage_of(bag);
        }
        files.finished.sort_by_key(|name| name == METADATA_FILE);
        Ok(files)
    }
}

/// What cannot be read of a bag, or why it cannot be opened. `None` if all can; also of files that were uploaded and removed before, and of those
/// that no key opens here: of these it is not known.
fn damage_of(path: &Path) -> Option<String> {
    let found = Bag::open(path).and_then(|bag| {
        let is_damaged = bag.state()?.condition == Condition::Damaged;
        Ok(bag.damage().filter(|_| is_damaged).map(str::to_owned))
    });
    match found {
        Ok(damage) => damage,
        Err(ReadError::MissingFile { .. }) => None,
        Err(ReadError::Disk(error)) if error.lacks_key() => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Whether a storage file that the metadata names is here: older metadata has the bag's name before it, and a file may have been packed since.
fn is_here(bag: &Path, name: &str) -> bool {
    let name = Path::new(name);
    let bare = name.file_name().map(Path::new).unwrap_or(name);
    [name, bare].into_iter().any(|name| {
        let path = bag.join(name);
        let forms = [packed_name(&path), unpacked_name(&path), path];
        forms.iter().any(|form| fs::exists(form).unwrap_or(true))
    })
}

/// The names of all files in a folder and its folders, but for hidden ones: those are of programs that run.
fn collect(bag: &Path, below: &str, depth: usize, names: &mut Vec<String>) -> Result<(), UploadError> {
    for DirEntry { path, is_dir } in fs::list_dir(&bag.join(below))? {
        let not_text = || UploadError::NotABag {
            path: path.clone(),
            reason: "its name is not UTF-8 text".to_owned(),
        };
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(not_text)?;
        if name.starts_with('.') {
            continue;
        }
        let name = if below.is_empty() {
            name.to_owned()
        } else {
            format!("{below}/{name}")
        };
        if is_dir {
            if depth < DEPTH_MAX {
                collect(bag, &name, depth + 1, names)?;
            }
        } else {
            names.push(name);
        }
    }
    Ok(())
}

fn read_metadata(path: &Path) -> Result<Option<BagMetadata>, UploadError> {
    let bytes = match fs::read(path, METADATA_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let parsed = BagMetadata::from_yaml(&String::from_utf8_lossy(&bytes));
    parsed.map(Some).map_err(|source| {
        let path = path.to_owned();
        UploadError::Read(ReadError::Metadata { path, source })
    })
}

/// Whether a storage file ends as whole ones do; `None` for files that do not show it.
fn has_end(path: &Path) -> Result<Option<bool>, UploadError> {
    let Some(storage) = storage_of_file(path) else {
        return Ok(None);
    };
    if storage.end_magic().is_some() && is_stored_sealed(path) {
        return Ok(Some(was_closed(path)?));
    }
    Ok(storage.has_end(path).map_err(ReadError::from)?)
}

/// Removes a bag's directory, and those in it, when nothing is in them.
pub(super) fn remove_empty_dirs(directory: &Path) -> Result<(), UploadError> {
    let entries = fs::list_dir(directory)?;
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        remove_empty_dirs(&entry.path)?;
    }
    let left = fs::list_dir(directory)?;
    // The journals of uploads to other places do not keep it.
    let is_journal = |entry: &DirEntry| {
        let name = entry.path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(JOURNAL_BEGIN))
    };
    if left.iter().all(is_journal) {
        for journal in &left {
            fs::remove_file(&journal.path)?;
        }
        fs::remove_empty_dir(directory)?;
    }
    Ok(())
}
