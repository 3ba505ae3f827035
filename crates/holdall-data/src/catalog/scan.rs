//! Finds the bags below a folder, of this computer or in a bucket, without opening any.

use super::CatalogError;
use holdall_bag::reader::listing::{storage_files, storage_files_of};
use holdall_io::{
    fs::{self, DirEntry},
    remote::{self, ObjectAbout},
};
use holdall_storage::{
    compression::unpacked_name, is_storage_extension, storage_by_path, storage_of_directory,
};
use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

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
    /// Changes when a file of the bag does: their number, bytes, newest change, and a checksum over all names, lengths and times (in a
    /// bucket, tags).
    pub fingerprint: String,
}

/// Evidence that a file has changed.
struct Stamp<'a> {
    path: &'a Path,
    len_bytes: u64,
    changed_nanos: i64,
    /// A bucket's tag for the content: it is compared in place of the time, which changes when the same content is sent again.
    tag: Option<&'a str>,
}

impl<'a> Stamp<'a> {
    fn of_object(path: &'a Path, about: &'a ObjectAbout) -> Self {
        let tag = about.e_tag.as_deref();
        Self {
            path,
            len_bytes: about.len_bytes,
            changed_nanos: about.modified_ns.filter(|_| tag.is_none()).unwrap_or_default(),
            tag,
        }
    }
}

fn fingerprint<'a>(stamps: impl IntoIterator<Item = Stamp<'a>>) -> String {
    let (mut files, mut bytes, mut newest) = (0_u64, 0_u64, i64::MIN);
    let mut sum = crc32fast::Hasher::new();
    for stamp in stamps {
        files += 1;
        bytes = bytes.saturating_add(stamp.len_bytes);
        newest = newest.max(stamp.changed_nanos);
        sum.update(stamp.path.as_os_str().as_encoded_bytes());
        sum.update(&stamp.len_bytes.to_le_bytes());
        sum.update(&stamp.changed_nanos.to_le_bytes());
        sum.update(stamp.tag.unwrap_or_default().as_bytes());
    }
    format!("{files} {bytes} {newest} {:08x}", sum.finalize())
}

/// The bags below `root`, or the bag that it is. Folders that are links, and names that begin with a dot, are left out.
pub(super) fn bags_below(root: &Path, found: &mut Vec<Candidate>) -> Result<(), CatalogError> {
    if remote::is_remote(root) {
        return bags_in_bucket(root, found);
    }
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
        if !is_dir && !is_hidden && is_read_only(path) {
            found.push(candidate(root, path, std::slice::from_ref(path))?);
        }
        let is_entered = *is_dir && !is_hidden && !files.contains(path) && !fs::is_link(path);
        if is_entered && depth < DEPTH_MAX {
            walk(root, path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// True for a file that is a bag by itself and that no recorder of ROS 2 writes: one of ROS 1.
fn is_read_only(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| !is_storage_extension(extension)) && storage_by_path(path).is_some()
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
    let mut stamps = Vec::with_capacity(files.len());
    for file in files {
        let Some(stamp) = fs::change_stamp(file)? else {
            continue;
        };
        stamps.push(Stamp {
            path: file,
            len_bytes: stamp.len_bytes,
            changed_nanos: stamp.changed_nanos,
            tag: None,
        });
    }
    let fingerprint = fingerprint(stamps);
    Ok(Candidate {
        path: path.to_owned(),
        root: root.to_owned(),
        fingerprint,
    })
}

/// The objects of one folder.
type Objects = BTreeMap<PathBuf, ObjectAbout>;

/// The bags below a URL: all its objects are listed at once, a thousand with each request.
fn bags_in_bucket(root: &Path, found: &mut Vec<Candidate>) -> Result<(), CatalogError> {
    remote::forget(root);
    let mut folders: BTreeMap<PathBuf, Objects> = BTreeMap::new();
    for entry in fs::list_objects(root)? {
        let path = PathBuf::from(entry.url);
        if let Some(folder) = path.parent().filter(|_| !is_hidden(root, &path)) {
            let folder = folders.entry(folder.to_owned()).or_default();
            folder.insert(path, entry.about);
        }
    }
    if folders.is_empty() {
        // A single file, or nothing, which is an error.
        if fs::about(root)?.is_dir() {
            return Ok(());
        }
        let client = remote::client().map_err(|error| CatalogError::write(root, error))?;
        let about = remote::url(root).map(|url| client.about(url)).transpose();
        let about = about.map_err(|error| CatalogError::write(root, error))?;
        found.extend(about.map(|about| remote_candidate(root, root, [(root, &about)])));
        return Ok(());
    }
    let mut bags: HashSet<PathBuf> = HashSet::new();
    for (folder, objects) in &folders {
        // Folders come before their contents.
        if folder.ancestors().any(|above| bags.contains(above)) {
            continue;
        }
        if objects.contains_key(&folder.join(METADATA_FILE)) {
            bags.insert(folder.clone());
            found.push(of_objects(root, folder, objects));
            continue;
        }
        let entries = objects.keys().map(|path| DirEntry {
            path: path.clone(),
            is_dir: false,
        });
        let files = storage_files_of(entries);
        if !files.is_empty() && files.iter().all(|file| is_split_of(folder, file)) {
            found.push(of_objects(root, folder, objects));
            continue;
        }
        let known = files
            .iter()
            .filter_map(|file| Some((&**file, objects.get(file)?)));
        found.extend(known.map(|(file, about)| remote_candidate(root, file, [(file, about)])));
        let others = objects.iter().filter(|(path, _)| is_read_only(path));
        found.extend(others.map(|(file, about)| remote_candidate(root, file, [(&**file, about)])));
    }
    Ok(())
}

/// Whether a name below the root begins with a dot.
fn is_hidden(root: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(root).unwrap_or(path);
    below.iter().any(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn of_objects(root: &Path, path: &Path, objects: &Objects) -> Candidate {
    remote_candidate(root, path, objects.iter().map(|(path, about)| (&**path, about)))
}

fn remote_candidate<'a>(
    root: &Path,
    path: &Path,
    files: impl IntoIterator<Item = (&'a Path, &'a ObjectAbout)>,
) -> Candidate {
    let stamps = files
        .into_iter()
        .map(|(path, about)| Stamp::of_object(path, about));
    Candidate {
        path: path.to_owned(),
        root: root.to_owned(),
        fingerprint: fingerprint(stamps),
    }
}
