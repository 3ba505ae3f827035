//! Opens one storage file of a bag with the backend that can read it.

use super::{
    error::{ReadError, io_error},
    listing, remote,
    ros1::SharedReader,
};
use holdall_io::fs::{self, About, File};
use holdall_io::mutex::lock;
use holdall_model::metadata::BagMetadata;
use holdall_storage::{
    Storage,
    compression::{
        CompressionMode, FORMATS, PayloadUnpackingReader, UnpackedReader, ZSTD_MAGIC, has_packed_payloads,
    },
    readable_storages,
    reader::{FileCondition, StorageReader, StorageSummary},
    storage_by_magic, storage_by_path, storage_of_directory,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// First bytes of a Git LFS pointer, which a clone has instead of the file.
const GIT_LFS_BEGIN: &[u8] = b"version https://";

/// Longer files without metadata are opened without reading their first message.
const UNDESCRIBED_BYTES_MAX: u64 = 4 << 30;
/// How payloads are stored in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Payloads {
    /// As sent.
    #[default]
    Plain,
    /// Each one compressed (rosbag2's message compression).
    Packed,
}

/// How payloads are stored in the files of a bag with this metadata; one clause for an unknown compression.
pub(super) fn payloads(metadata: &BagMetadata) -> Result<Payloads, String> {
    let mode = CompressionMode::parse(&metadata.compression_mode)
        .ok_or_else(|| format!("there is no compression mode {:?}", metadata.compression_mode))?;
    let format = metadata.compression_format.as_str();
    if mode != CompressionMode::None && !FORMATS.contains(&format) {
        return Err(format!("expected one of {}", FORMATS.join(", ")));
    }
    Ok(match mode {
        CompressionMode::Message => Payloads::Packed,
        CompressionMode::None | CompressionMode::File => Payloads::Plain,
    })
}

/// Packed files that stay unpacked after their last reader is dropped: the first and the last are opened
/// repeatedly.
const KEPT_UNPACKED: usize = 2;

/// The packed files of one bag that are currently unpacked; clones share them.
#[derive(Clone, Default)]
pub(super) struct UnpackedFiles(Arc<Mutex<Vec<(PathBuf, SharedReader)>>>);

impl UnpackedFiles {
    /// The reader of a packed file, which is unpacked unless it is one of the last files.
    pub fn open(&self, path: &Path, payloads: Payloads) -> Result<SharedReader, ReadError> {
        // Locked while unpacking, so that a file that two callers open is unpacked once.
        let mut kept = lock(&self.0);
        if let Some((_, reader)) = kept.iter().find(|(known, _)| known == path) {
            return Ok(Arc::clone(reader));
        }
        let reader = open(path, payloads)?;
        if kept.len() >= KEPT_UNPACKED {
            kept.remove(0);
        }
        kept.push((path.to_owned(), Arc::clone(&reader)));
        Ok(reader)
    }
}

/// Opens a storage file and undoes rosbag2's compression; the format follows from the first bytes, not from
/// the name.
pub(super) fn open(path: &Path, payloads: Payloads) -> Result<SharedReader, ReadError> {
    let opened: SharedReader = if let Some(storage) = remote::storage_by_end(path)? {
        Arc::from(storage.open_reader(path)?)
    } else if fs::is_dir(path) {
        Arc::from(open_directory(path)?)
    } else if is_copied_to_read(path)? {
        remote::open_copy(path, |copy| open(copy, Payloads::Plain))?
    } else if begins_with(path)?.starts_with(&ZSTD_MAGIC) {
        let open_copy = |copy: &Path| open_plain(copy).map_err(|error| error.in_file(path));
        Arc::new(UnpackedReader::open(path, open_copy)?)
    } else {
        Arc::from(open_plain(path)?)
    };
    Ok(match payloads {
        Payloads::Plain => opened,
        Payloads::Packed => Arc::new(PayloadUnpackingReader::new(opened)),
    })
}

/// Whether a path is an object of a bag that can be read only as a local file; objects that are not bags are not copied.
fn is_copied_to_read(path: &Path) -> Result<bool, ReadError> {
    if !holdall_io::remote::is_remote(path) {
        return Ok(false);
    }
    let head = begins_with(path)?;
    let storage = storage_by_magic(&head);
    // A file without its end is read in place, too.
    Ok(head.starts_with(&ZSTD_MAGIC) || storage.is_some_and(|storage| storage.end_magic().is_none()))
}

/// Opens a file whose payload compression is unknown: its own metadata decides, or its first payload.
pub(super) fn open_unknown(path: &Path) -> Result<(SharedReader, Payloads), ReadError> {
    let reader = open(path, Payloads::Plain)?;
    let described = reader
        .outline()
        .rosbag2_metadata()
        .and_then(|text| BagMetadata::from_yaml_without_lists(text).ok());
    let payloads = match described {
        Some(metadata) => payloads(&metadata).unwrap_or_default(),
        // The index alone of a long MCAP file has megabytes; without rosbag2's record it was written by other
        // programs, which do not compress payloads.
        None if reader.summary().file_bytes > UNDESCRIBED_BYTES_MAX => Payloads::Plain,
        None if matches!(has_packed_payloads(&*reader), Ok(true)) => Payloads::Packed,
        None => Payloads::Plain,
    };
    Ok(match payloads {
        Payloads::Plain => (reader, payloads),
        Payloads::Packed => (Arc::new(PayloadUnpackingReader::new(reader)), payloads),
    })
}

/// The first bytes of a file, fewer if it is shorter.
pub(super) fn begins_with(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut head = vec![0; 16];
    let count = File::open(path)?.read_at(&mut head, 0)?;
    head.truncate(count);
    Ok(head)
}

/// Opens a storage file that is a directory.
fn open_directory(path: &Path) -> Result<Box<dyn StorageReader>, ReadError> {
    if let Some(storage) = storage_of_directory(path) {
        return Ok(storage.open_reader(path)?);
    }
    Err(ReadError::NotABag {
        path: path.to_owned(),
        reason: format!(
            "it is a directory without {} databases",
            titles(|storage| storage.is_directory())
        ),
    })
}

/// Length of a storage file in bytes; the total of its files if it is a directory.
pub(super) fn length(path: &Path, about: &About) -> u64 {
    if !about.is_dir() {
        return about.len_bytes;
    }
    storage_of_directory(path)
        .and_then(|storage| storage.size_bytes(path).ok())
        .unwrap_or(about.len_bytes)
}

/// Opens a storage file whose format its first bytes show, or, where they are damaged, its name.
fn open_plain(path: &Path) -> Result<Box<dyn StorageReader>, ReadError> {
    let head = begins_with(path)?;
    if let Some(storage) = storage_by_magic(&head) {
        return Ok(storage.open_reader(path)?);
    }
    open_by_name(path, &head)?.ok_or_else(|| no_storage(path, &head))
}

/// Opens a file whose first bytes are damaged, if its storage can read the rest; `None` if the storage does not recognize it.
fn open_by_name(path: &Path, head: &[u8]) -> Result<Option<Box<dyn StorageReader>>, ReadError> {
    let Some(storage) = storage_by_path(path).filter(|_| !head.is_empty()) else {
        return Ok(None);
    };
    match storage.open_reader(path) {
        Ok(reader) => Ok(Some(reader)),
        Err(error) if error.is_damage_or_format() => Ok(None),
        // No space for the found messages, or a file locked by others: neither is evidence about the file.
        Err(error) => Err(error.into()),
    }
}

/// The error for a file that begins with these bytes, which no storage writes.
fn no_storage(path: &Path, head: &[u8]) -> ReadError {
    let cut = readable_storages()
        .filter_map(Storage::magic)
        .find(|magic| magic.starts_with(head));
    let reason = if head.is_empty() {
        "the file is empty".to_owned()
    } else if let Some(magic) = cut {
        format!("the file ends within its first {} bytes", magic.len())
    } else if head.starts_with(&ZSTD_MAGIC) {
        "it is a packed file in a packed file".to_owned()
    } else if head.starts_with(GIT_LFS_BEGIN) {
        "it is a pointer of Git LFS, not the file itself (`git lfs pull` gets it)".to_owned()
    } else {
        let known = titles(|storage| !storage.is_directory());
        format!("it is neither a directory nor an {known} file")
    };
    ReadError::NotABag {
        path: path.to_owned(),
        reason,
    }
}

/// Refuses a path that is not a bag, by its first bytes or, for a directory, by the names of its files; does not read
/// the contents of the bag.
pub fn expect_bag(path: &Path) -> Result<(), ReadError> {
    let about = fs::about(path).map_err(|error| io_error("open", path, error.into_io()))?;
    if about.is_dir() {
        let is_bag = storage_of_directory(path).is_some()
            || fs::exists(&path.join("metadata.yaml")).unwrap_or(false)
            || !listing::storage_files(path)?.is_empty();
        return if is_bag {
            Ok(())
        } else {
            Err(ReadError::NotABag {
                path: path.to_owned(),
                reason: listing::describe_without_storage(path)?,
            })
        };
    }
    if remote::storage_by_end(path)?.is_some() {
        return Ok(());
    }
    let head = begins_with(path)?;
    if head.starts_with(&ZSTD_MAGIC)
        || storage_by_magic(&head).is_some()
        || open_by_name(path, &head)?.is_some()
    {
        Ok(())
    } else {
        Err(no_storage(path, &head))
    }
}

/// Usual names of the formats of some storages: `MCAP, SQLite or ROS 1 bag`.
fn titles(which: impl Fn(&dyn Storage) -> bool) -> String {
    let titles: Vec<&str> = readable_storages()
        .filter(|storage| which(*storage))
        .map(Storage::title)
        .collect();
    match titles.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// One sentence for a file that is damaged.
pub fn damage(summary: &StorageSummary) -> Option<String> {
    match &summary.condition {
        FileCondition::Complete | FileCondition::Unindexed => None,
        FileCondition::Damaged { offset, reason } => Some(format!(
            "{} is damaged at byte {offset}: {reason}; {} of its messages can be read",
            summary.path.display(),
            summary.message_count
        )),
    }
}
