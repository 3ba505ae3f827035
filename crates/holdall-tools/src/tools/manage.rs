//! Renames, labels, annotates and removes bags of a folder. A bag that is being recorded is not touched.

use super::ToolError;
use holdall_bag::{Bag, live::lock_bag, reader::io_error};
use holdall_io::{fs, lock::WriteLock};
use holdall_model::{
    marker::{MARKERS_CUSTOM_KEY, MARKERS_MAX, Marker},
    metadata::{BagMetadata, METADATA_BYTES_MAX},
    recoding::{Likeness, Recoding},
};
use holdall_storage::{compression::unpacked_name, storage_of_directory};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Keys of `custom_data` that are holdall's own: no labels.
const OWN_KEYS: &str = "holdall.";

/// Bytes of a label's name and of its value, at most.
const KEY_BYTES_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 1000;

fn unsupported(path: &Path, reason: impl Into<String>) -> ToolError {
    ToolError::Unsupported {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

/// The labels of a bag: what its `custom_data` has besides holdall's own keys, as `holdall record --custom-data` writes it.
pub fn labels(bag: &Bag) -> BTreeMap<String, String> {
    let custom = bag.metadata().custom_data.iter();
    let own = custom.filter(|(key, _)| !key.starts_with(OWN_KEYS));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Gives a bag directory these labels and no others, in its `metadata.yaml`.
///
/// # Errors
/// A bag that is being recorded, or has no `metadata.yaml` that can be read; a name or a value that is too long.
pub fn set_labels(path: &Path, labels: &BTreeMap<String, String>) -> Result<(), ToolError> {
    change_metadata(path, "labels", |metadata| put_labels(path, metadata, labels))
}

/// What became of markers that were to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedMarkers {
    /// Those that the bag did not have.
    pub added: u64,
    /// Those beyond [`MARKERS_MAX`], which were not added.
    pub without_room: u64,
}

/// Adds markers to a bag directory, in its `metadata.yaml`: its storage files do not change.
///
/// # Errors
/// As [`set_labels`]; a storage file that cannot be read.
pub fn add_markers(path: &Path, markers: &[Marker]) -> Result<AddedMarkers, ToolError> {
    change_metadata(path, "markers that are added", |metadata| {
        let had: BTreeSet<Marker> = Bag::open_locked(path)?.markers()?.into_iter().collect();
        let new: BTreeSet<&Marker> = markers.iter().filter(|marker| !had.contains(marker)).collect();
        let room = MARKERS_MAX.saturating_sub(had.len()).min(new.len());
        let without_room = (new.len() - room) as u64;
        let mut all: Vec<Marker> = new.into_iter().take(room).cloned().collect();
        all.extend(had);
        all.sort();
        let list = Marker::list_to_json(&all);
        metadata.custom_data.insert(MARKERS_CUSTOM_KEY.to_owned(), list);
        Ok(AddedMarkers {
            added: room as u64,
            without_room,
        })
    })
}

/// Notes in a bag directory, in its `metadata.yaml`, how similar all images of these topics are to those that they were made from.
///
/// # Errors
/// As [`set_labels`].
pub fn set_verified(path: &Path, images: &BTreeMap<String, Likeness>) -> Result<(), ToolError> {
    change_metadata(path, "an account of its video", |metadata| {
        let mut list = Recoding::list_in(&metadata.custom_data);
        for (topic, likeness) in images {
            // The last one is what was compared.
            let last = list.iter_mut().rfind(|one| one.topic == *topic);
            if let Some(last) = last {
                last.verified = Some(*likeness);
            }
        }
        metadata.custom_data.extend(Recoding::list_to_custom_data(&list));
        Ok(())
    })
}

/// Replaces the `metadata.yaml` of a bag directory that nothing writes to.
fn change_metadata<T>(
    path: &Path,
    what: &str,
    change: impl FnOnce(&mut BagMetadata) -> Result<T, ToolError>,
) -> Result<T, ToolError> {
    let file = path.join("metadata.yaml");
    if !fs::is_dir(path) || !fs::exists(&file)? {
        return Err(unsupported(
            path,
            format!("only a bag with metadata.yaml has {what}; holdall reindex writes one"),
        ));
    }
    let _lock = lock_bag(path)?;
    let text = fs::read_to_string(&file, METADATA_BYTES_MAX)
        .map_err(|error| io_error("read", &file, error.into_io()))?;
    let mut metadata =
        BagMetadata::from_yaml(&text).map_err(|error| unsupported(&file, error.to_string()))?;
    let changed = change(&mut metadata)?;
    let listed: Vec<PathBuf> = metadata
        .relative_file_paths
        .iter()
        .map(|name| path.join(name))
        .collect();
    super::description::replace_metadata(&file, &listed, &metadata.to_yaml())?;
    Ok(changed)
}

fn put_labels(
    path: &Path,
    metadata: &mut BagMetadata,
    labels: &BTreeMap<String, String>,
) -> Result<(), ToolError> {
    // A recorder may have written names that are refused here: they stay.
    let is_new = |(key, value): &(&String, &String)| metadata.custom_data.get(*key) != Some(*value);
    for (key, value) in labels.iter().filter(is_new) {
        let is_name = |letter: char| letter.is_alphanumeric() || "._- ".contains(letter);
        if key.is_empty()
            || key.len() > KEY_BYTES_MAX
            || !key.chars().all(is_name)
            || key.starts_with(OWN_KEYS)
        {
            return Err(unsupported(
                path,
                format!(
                    "{key:?} is not the name of a label: up to {KEY_BYTES_MAX} letters, digits, dots, hyphens and spaces, not beginning with {OWN_KEYS}"
                ),
            ));
        }
        if value.len() > VALUE_BYTES_MAX || value.chars().any(char::is_control) {
            return Err(unsupported(
                path,
                format!(
                    "the value of {key:?} is longer than {VALUE_BYTES_MAX} bytes or has control characters"
                ),
            ));
        }
    }
    metadata.custom_data.retain(|key, _| key.starts_with(OWN_KEYS));
    metadata.custom_data.extend(labels.clone());
    Ok(())
}

/// Locks a bag for a change of its name, or of all of it.
///
/// # Errors
/// A bag that is being recorded, or may be; a directory that has more directories than the bag's storage: other bags may be in them.
fn lock_whole(path: &Path) -> Result<WriteLock, ToolError> {
    let lock = lock_bag(path)?.ok_or_else(|| {
        unsupported(
            path,
            "its file system has no locks, so that nothing shows whether the bag is being recorded",
        )
    })?;
    if fs::is_dir(path) {
        let listed = fs::list_dir(path)?;
        let other = listed
            .iter()
            .find(|entry| fs::is_dir(&entry.path) && storage_of_directory(&entry.path).is_none());
        if let Some(other) = other {
            let name = other.path.file_name().unwrap_or_default().to_string_lossy();
            return Err(unsupported(
                path,
                format!("the directory {name:?} in it is not a part of the bag; move it elsewhere first"),
            ));
        }
    }
    Ok(lock)
}

/// The ending of a storage file: `.mcap`, `.mcap.zstd`.
fn ending(path: &Path) -> Option<&str> {
    let plain = unpacked_name(path);
    path.file_name()?
        .to_str()?
        .get(plain.file_stem()?.to_str()?.len()..)
}

/// Gives a bag another name in the same folder; returns where it is then. A single storage file keeps its ending.
///
/// # Errors
/// A name that is not that of a file, or is taken; a bag that is being recorded.
pub fn rename(path: &Path, name: &str) -> Result<PathBuf, ToolError> {
    let is_plain = Path::new(name).file_name() == Some(OsStr::new(name)) && !name.starts_with('.');
    if !is_plain || name.chars().any(char::is_control) {
        return Err(ToolError::OutputName { path: name.into() });
    }
    let mut to = path.with_file_name(name);
    if !fs::is_dir(path)
        && let Some(ending) = ending(path)
        && !name.ends_with(ending)
    {
        to.as_mut_os_string().push(ending);
    }
    let _lock = lock_whole(path)?;
    if fs::exists(&to)? {
        return Err(ToolError::OutputExists { path: to });
    }
    fs::rename_new(path, &to)?;
    Ok(to)
}

/// Refuses a bag whose removal would take more than what was read of it: one that is being recorded, and a directory with anything else in it.
///
/// # Errors
/// As said; a directory that cannot be read.
pub fn expect_alone(bag: &Bag) -> Result<(), ToolError> {
    let path = bag.path();
    if bag.writer().is_some() {
        return Err(unsupported(path, "it is being recorded"));
    }
    if !fs::is_dir(path) || bag.files().iter().any(|file| file.path == path) {
        return Ok(());
    }
    let files = bag.files().iter().map(|file| unpacked_name(&file.path));
    let names: BTreeSet<OsString> = files
        .filter_map(|file| file.file_name().map(OsStr::to_owned))
        .collect();
    for entry in fs::list_dir(path)? {
        let plain = unpacked_name(&entry.path);
        let name = plain.file_name().unwrap_or_default().to_string_lossy();
        // A database has its log beside it.
        let mut logs = ["-wal", "-shm", "-journal"].into_iter();
        let bare = logs.find_map(|end| name.strip_suffix(end));
        let is_part = names.contains(OsStr::new(bare.unwrap_or(&name)))
            || name == "metadata.yaml"
            || name.starts_with(".holdall-");
        if !is_part {
            let reason = format!("{name:?} in it is not a part of the bag; move it elsewhere first");
            return Err(unsupported(path, reason));
        }
    }
    Ok(())
}

/// Removes a bag for good: its directory, or its single storage file.
///
/// # Errors
/// A bag that is being recorded; a disk that refuses.
pub fn remove(path: &Path) -> Result<(), ToolError> {
    let lock = lock_whole(path)?;
    if fs::is_dir(path) {
        fs::remove_dir_all(path)?;
    } else {
        fs::remove_file(path)?;
    }
    drop(lock);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::Writer;
    use holdall_model::time::Timestamp;

    fn bag(path: &Path) {
        let mut writer = Writer::create(path).unwrap();
        let topic = writer.add_topic("/a", "std_msgs/msg/UInt8").unwrap();
        writer
            .write(topic, Timestamp::from_nanos(5), &[0, 1, 0, 0, 7])
            .unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn a_bag_is_labelled_renamed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        bag(&path);
        let wanted: BTreeMap<_, _> = [("site".to_owned(), "hall: 3 <b>".to_owned())].into();
        set_labels(&path, &wanted).unwrap();
        assert_eq!(labels(&Bag::open(&path).unwrap()), wanted);
        for (key, value) in [("holdall.x", "1"), ("", "1"), ("a\n", "1"), ("a", "\u{1b}[0m")] {
            let refused = [(key.to_owned(), value.to_owned())].into();
            assert!(set_labels(&path, &refused).is_err(), "{key:?}");
        }
        for name in ["", ".", "..", "a/b", "/a", ".hidden"] {
            assert!(rename(&path, name).is_err(), "{name:?}");
        }
        bag(&folder.path().join("taken"));
        assert!(rename(&path, "taken").is_err());
        let renamed = rename(&path, "hall 3").unwrap();
        let opened = Bag::open(&renamed).unwrap();
        assert_eq!((labels(&opened), opened.messages().count()), (wanted, 1));
        remove(&renamed).unwrap();
        assert!(!renamed.exists());
        set_labels(&folder.path().join("taken"), &BTreeMap::new()).unwrap();
    }

    #[test]
    fn a_bag_with_other_files_in_it_is_not_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        bag(&path);
        let opened = Bag::open(&path).unwrap();
        expect_alone(&opened).unwrap();
        expect_alone(&Bag::open(&opened.files()[0].path).unwrap()).unwrap();
        std::fs::write(path.join("notes.txt"), "calibrated").unwrap();
        let refused = expect_alone(&opened).unwrap_err().to_string();
        assert!(refused.contains("\"notes.txt\" in it is not a part"), "{refused}");
    }

    #[test]
    fn a_bag_with_other_bags_in_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (folder.path().join("runs"), folder.path().join("runs/monday"));
        bag(&outer);
        bag(&inner);
        let refused = remove(&outer).unwrap_err().to_string();
        assert!(refused.contains("\"monday\" in it"), "{refused}");
        assert!(rename(&outer, "other").is_err());
        assert!(inner.join("metadata.yaml").exists() && outer.join("metadata.yaml").exists());
        remove(&inner).unwrap();
        remove(&outer).unwrap();
    }

    #[test]
    fn a_storage_file_keeps_its_whole_ending() {
        let folder = tempfile::tempdir().unwrap();
        for (from, name, to) in [
            ("a.mcap", "b", "b.mcap"),
            ("c.mcap.zstd", "d", "d.mcap.zstd"),
            ("e.mcap.zstd", "f.mcap.zstd", "f.mcap.zstd"),
            ("g.db3", "h.i", "h.i.db3"),
        ] {
            std::fs::write(folder.path().join(from), "").unwrap();
            assert_eq!(
                rename(&folder.path().join(from), name).unwrap(),
                folder.path().join(to)
            );
        }
    }
}
