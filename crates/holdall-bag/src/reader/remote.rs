//! Storage files in a bucket: MCAP is read in place, recognized by its end; files of other storages are copied first.

use super::{
    error::{ReadError, io_error},
    ros1::SharedReader,
};
use holdall_io::{
    fs::{self, File},
    remote,
    scratch::ScratchDirectory,
};
use holdall_model::units::format_bytes;
use holdall_storage::{
    Storage, StorageError,
    compression::scratch,
    readable_storages,
    reader::{IndexedPart, Messages, ReadQuery, StorageReader, StorageSummary},
};
use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock},
};

/// Space that a copy leaves free on the disk.
const SPARE_BYTES: u64 = 256 << 20;

/// The storage of an object that ends as its files do: a request for its beginning is not needed. `None` for a file of this computer.
///
/// # Errors
/// An object that cannot be read.
pub(super) fn storage_by_end(path: &Path) -> Result<Option<&'static dyn Storage>, ReadError> {
    if !remote::is_remote(path) {
        return Ok(None);
    }
    let file = File::open(path)?;
    for storage in readable_storages() {
        let Some(magic) = storage.end_magic() else {
            continue;
        };
        let mut end = vec![0; magic.len()];
        let Some(offset) = file.len_bytes().checked_sub(magic.len() as u64) else {
            continue;
        };
        file.read_exact_at(&mut end, offset)?;
        if end == magic {
            return Ok(Some(storage));
        }
    }
    Ok(None)
}

/// Whether reading a path means copying it first.
pub(super) fn is_copied(path: &Path) -> bool {
    remote::is_remote(path) && matches!(storage_by_end(path), Ok(None))
}

/// Copies an object to a temporary directory, and opens the copy with `open`.
///
/// # Errors
/// An object that cannot be read, a disk without room for it, and `open`'s own errors.
pub(super) fn open_copy(
    path: &Path,
    open: impl FnOnce(&Path) -> Result<SharedReader, ReadError>,
) -> Result<SharedReader, ReadError> {
    let parent = scratch();
    let bytes = fs::file_len(path)?;
    let room = fs::available_bytes(&parent)?.saturating_sub(SPARE_BYTES);
    if bytes > room {
        let source = io::Error::new(
            io::ErrorKind::StorageFull,
            format!(
                "it is read from a copy of {}, and {} has room for {}; set TMPDIR to a directory with more",
                format_bytes(bytes),
                parent.display(),
                format_bytes(room)
            ),
        );
        return Err(io_error("copy", path, source));
    }
    tracing::warn!(
        "{}: it cannot be read in place, so {} are copied to {}",
        path.display(),
        format_bytes(bytes),
        parent.display()
    );
    let directory = ScratchDirectory::create(&parent)?;
    let copy = directory
        .path()
        .join(path.file_name().unwrap_or("storage".as_ref()));
    fs::download(path, &copy)?;
    let inner = open(&copy).map_err(|error| error.in_file(path))?;
    let named = |summary: &StorageSummary| StorageSummary {
        path: path.to_owned(),
        ..summary.clone()
    };
    Ok(Arc::new(CopiedReader {
        outline: named(inner.outline()),
        summary: OnceLock::new(),
        inner,
        directory: Arc::new(directory),
    }))
}

/// A reader of a copy, which is removed when the reader and its iterators are dropped.
struct CopiedReader {
    inner: SharedReader,
    outline: StorageSummary,
    summary: OnceLock<StorageSummary>,
    directory: Arc<ScratchDirectory>,
}

impl StorageReader for CopiedReader {
    fn summary(&self) -> &StorageSummary {
        self.summary.get_or_init(|| StorageSummary {
            path: self.outline.path.clone(),
            ..self.inner.summary().clone()
        })
    }

    fn outline(&self) -> &StorageSummary {
        &self.outline
    }

    fn messages(&self, query: &ReadQuery) -> Result<Messages, StorageError> {
        let (directory, path) = (Arc::clone(&self.directory), self.outline.path.clone());
        let messages = self.inner.messages(query).map_err(|error| error.in_file(&path))?;
        Ok(Box::new(messages.map(move |message| {
            // Kept during the iteration, which may open the file again.
            let _ = &directory;
            message.map_err(|error| error.in_file(&path))
        })))
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        self.inner.part_at(offset)
    }
}
