//! The simulated bag directory: its metadata as text that a power cut may take back, its storage files on the simulated disk.

use holdall::writer::BagFolder;
use holdall_io::{
    disk::{DiskError, Operation},
    hold::is_held,
    mutex::lock,
    sim::{SimDiskHandle, SimRng},
};
use holdall_model::time::Timestamp;
use holdall_storage::{Storage, StorageResult, reader::StorageReader, writer::MetadataEntries};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

/// Versions of a text that a power cut may leave, where there are many.
const TEXTS_MAX: usize = 100;

/// The errno of a full disk.
const ENOSPC: i32 = 28;

/// The versions of a text file: the last durable one and those after it.
#[derive(Clone, Debug, Default)]
struct Text {
    durable: Option<String>,
    unsynced: Vec<String>,
}

/// The directory; clones are the same one.
#[derive(Clone)]
pub struct SimFolder {
    texts: Arc<Mutex<BTreeMap<PathBuf, Text>>>,
    disk: SimDiskHandle,
    /// A real directory, for readers that want real files.
    scratch: PathBuf,
    /// A real directory that is as this one.
    mirror: Arc<OnceLock<Mirror>>,
}

/// A real directory, with the storage files as they were last written.
struct Mirror {
    directory: PathBuf,
    files: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
}

impl SimFolder {
    /// An empty directory on `disk`; `scratch` is a real one for files to read.
    pub fn new(disk: SimDiskHandle, scratch: &Path) -> Self {
        Self {
            texts: Arc::default(),
            disk,
            scratch: scratch.to_owned(),
            mirror: Arc::default(),
        }
    }

    /// Keeps a real directory as this one from now on: texts and removals at once, storage files with [`Self::sync_mirror`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn mirror(&self, directory: &Path) -> io::Result<()> {
        let mirror = Mirror {
            directory: directory.to_owned(),
            files: Mutex::default(),
        };
        let mirror = self.mirror.get_or_init(|| mirror);
        self.visible()
            .iter()
            .try_for_each(|(path, text)| fs::write(mirror.path_of(path), text))
    }

    /// Writes the storage files that have changed into the real directory.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn sync_mirror(&self) -> io::Result<()> {
        let Some(mirror) = self.mirror.get() else {
            return Ok(());
        };
        let mut known = lock(&mirror.files);
        for (path, bytes) in self.disk.visible() {
            if known.get(&path) != Some(&bytes) {
                fs::write(mirror.path_of(&path), &bytes)?;
                known.insert(path, bytes);
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Text>> {
        lock(&self.texts)
    }

    /// The files as a reader sees them now.
    pub fn visible(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let texts = self.lock();
        let last = |text: &Text| text.unsynced.last().or(text.durable.as_ref()).cloned();
        texts
            .iter()
            .filter_map(|(path, text)| Some((path.clone(), last(text)?.into_bytes())))
            .collect()
    }

    /// The files after a power cut: each in its durable version, or any later one, and now and then as zeros of at
    /// most that one's length.
    pub fn survivors(&self, rng: &mut SimRng) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut survivors = BTreeMap::new();
        for (path, text) in self.lock().iter() {
            let chosen = rng.below(text.unsynced.len() as u64 + 1) as usize;
            let (later, torn) = match chosen.checked_sub(1) {
                Some(later) => (text.unsynced.get(later), rng.chance(200_000)),
                None => (text.durable.as_ref(), false),
            };
            if let Some(later) = later {
                let mut bytes = later.clone().into_bytes();
                if torn {
                    // The name was durable before the content: a file of zeros, or of nothing.
                    bytes.fill(0);
                    bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
                }
                survivors.insert(path.clone(), bytes);
            }
        }
        survivors
    }
}

impl Mirror {
    fn path_of(&self, path: &Path) -> PathBuf {
        self.directory.join(path.file_name().unwrap_or_default())
    }

    fn remove(&self, path: &Path) {
        lock(&self.files).remove(path);
        // A file that was never written is not there.
        drop(fs::remove_file(self.path_of(path)));
    }
}

impl BagFolder for SimFolder {
    fn create_new(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        let available = self.disk.available_bytes();
        if available < text.len() as u64 {
            let full = io::Error::from_raw_os_error(ENOSPC);
            return Err(DiskError::new(path, Operation::Write, full));
        }
        let mut texts = self.lock();
        let known = texts.entry(path.to_owned()).or_default();
        if durable {
            known.unsynced.clear();
            known.durable = Some(text.to_owned());
            // The new name is made durable by a sync of the directory.
            self.disk.sync_directory();
        } else {
            known.unsynced.push(text.to_owned());
            if self.mirror.get().is_some() {
                // One of a day's thousands of versions survives a power cut.
                let surplus = known.unsynced.len().saturating_sub(TEXTS_MAX);
                known.unsynced.drain(..surplus);
            }
        }
        match self.mirror.get() {
            Some(mirror) => fs::write(mirror.path_of(path), text)
                .map_err(|error| DiskError::new(path, Operation::Write, error)),
            None => Ok(()),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove(path);
        self.lock().remove(path);
        if let Some(mirror) = self.mirror.get() {
            mirror.remove(path);
        }
        Ok(())
    }

    fn is_held(&self, _directory: &Path, first: Timestamp, last: Timestamp) -> bool {
        let mirror = self.mirror.get();
        mirror.is_some_and(|mirror| is_held(&mirror.directory, first, last))
    }

    fn open_reader(&self, storage: &dyn Storage, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        let name = path.file_name().unwrap_or_default();
        let real = self.scratch.join(name);
        let bytes = self.disk.read(path).unwrap_or_default();
        // A scratch file that cannot be written shows as one that cannot be read.
        drop(fs::write(&real, bytes));
        let reader = storage.open_reader(&real);
        drop(fs::remove_file(&real));
        reader
    }

    fn file_len(&self, path: &Path) -> Result<u64, DiskError> {
        let absent = || DiskError::new(path, Operation::Open, io::ErrorKind::NotFound.into());
        let bytes = self.disk.read(path).ok_or_else(absent)?;
        Ok(bytes.len() as u64)
    }

    fn cut(&self, path: &Path, length_bytes: u64) -> Result<(), DiskError> {
        let mut bytes = self.disk.read(path).unwrap_or_default();
        bytes.truncate(usize::try_from(length_bytes).unwrap_or(usize::MAX));
        self.disk.replace(path, bytes);
        Ok(())
    }

    fn complete_file(
        &self,
        storage: &dyn Storage,
        path: &Path,
        records: &[(&str, MetadataEntries)],
    ) -> StorageResult<()> {
        let real = self.scratch.join(path.file_name().unwrap_or_default());
        let before = self.disk.read(path).unwrap_or_default();
        drop(fs::write(&real, &before));
        let repaired = storage.repair(&real, records, holdall_storage::RepairTarget::Copy);
        let after = fs::read(&real).unwrap_or_default();
        drop(fs::remove_file(&real));
        repaired?;
        let growth = after.len().saturating_sub(before.len()) as u64;
        if growth > self.disk.available_bytes() {
            let full = io::Error::from_raw_os_error(ENOSPC);
            return Err(DiskError::new(path, Operation::Write, full).into());
        }
        self.disk.replace(path, after);
        Ok(())
    }
}
