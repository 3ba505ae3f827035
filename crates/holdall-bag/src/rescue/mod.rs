//! Messages that a killed recorder had received and its bag does not have: the layout of the memory that survives it, which a recorder writes; how they are found there, and
//! how they are written into the bag.

mod account;
mod catalog;
mod error;
mod layout;
mod leftovers;
mod missing;
mod ranges;
mod write;

pub use error::{FindError, RescueError};
pub use holdall_model::rescue::{Event, KIND_LOG, POINTER_FILE, Pointer};
pub use layout::{CacheEntry, KIND_MESSAGES};
pub use layout::{
    HEADER_BYTES, Header, RUN_HEADER_BYTES, SurvivedMessage, SurvivedPayload, SurvivedRun, forget_ranges,
    run_header, survived,
};
pub use leftovers::{leftovers, report_leftovers};
pub use ranges::{BufferRange, list_bytes, list_ranges};
pub use write::{REPAIR_RECORD, RESCUED_KEY};

use bytes::Bytes;
use catalog::Catalog;
use holdall_io::{
    disk::reason,
    fs,
    survivor::{Survivor, SurvivorError, owner_of},
};
use holdall_model::{
    loss::{
        LossStage,
        ledger::{Ledger, TopicAccount},
    },
    metadata::{BagMetadata, MEMORY_KEY, METADATA_BYTES_MAX},
    time::Timestamp,
};
use holdall_storage::reader::StorageReader;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How long the memory of a bag that is not being recorded may still belong to a process: a program that inspects a killed process delays the end of its
/// memory.
const ENDED_MAX: Duration = Duration::from_secs(5);

/// The pointer file is not longer than this.
const POINTER_BYTES_MAX: u64 = 64 << 10;

/// A message that was in memory.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its header.
    entry: CacheEntry,
    /// Its payload; `None` if only the header has survived.
    payload: Option<FoundPayload>,
}

/// A payload that was in memory.
#[derive(Clone, Debug)]
enum FoundPayload {
    /// Read already.
    Bytes(Bytes),
    /// In pieces, with their total length in bytes: read when needed, because a recorder may have held gigabytes.
    Buffers(Arc<Survivor>, Vec<BufferRange>, usize),
}

impl FoundPayload {
    /// Its bytes.
    fn read(&self) -> Result<Bytes, SurvivorError> {
        let (survivor, ranges, bytes) = match self {
            Self::Bytes(bytes) => return Ok(bytes.clone()),
            Self::Buffers(survivor, ranges, bytes) => (survivor, ranges, *bytes),
        };
        let mut payload = vec![0; bytes];
        let mut rest = &mut payload[..];
        for range in ranges {
            for start in range.starts() {
                let (piece, after) = rest.split_at_mut(rest.len().min(range.len as usize));
                survivor.read_buffers(start, piece)?;
                rest = after;
            }
        }
        Ok(Bytes::from(payload))
    }
}

/// The payload in these ranges; `None` if they cannot be right. No byte belongs to two payloads, so all payloads together are not longer than
/// the memory, of which `left_bytes` remain.
fn in_buffers(
    survivor: &Arc<Survivor>,
    ranges: Vec<BufferRange>,
    left_bytes: &mut u64,
) -> Option<FoundPayload> {
    let mut bytes = 0u64;
    for range in &ranges {
        bytes = bytes.checked_add(range.bytes())?;
        let is_possible = range.len > 0 && range.count > 0 && bytes <= *left_bytes;
        let last = is_possible.then(|| range.last_start())?;
        let is_present = survivor.has_in_buffers(range.start, u64::from(range.len))
            && survivor.has_in_buffers(last, u64::from(range.len));
        if !is_present {
            return None;
        }
    }
    *left_bytes -= bytes;
    let bytes = usize::try_from(bytes).ok()?;
    Some(FoundPayload::Buffers(Arc::clone(survivor), ranges, bytes))
}

/// The memory of a recorder that has died.
#[derive(Debug)]
pub struct Rescue {
    survivor: Arc<Survivor>,
    pointer: PointerFile,
    /// The directory is the one that was recorded into; else it is a copy of it, which leaves the memory alone.
    is_original: bool,
    catalog: Catalog,
    /// In the order in which they were received.
    messages: Vec<Found>,
}

/// The pointer in a bag's directory, and which file it was when it was read.
#[derive(Debug)]
struct PointerFile {
    path: PathBuf,
    numbers: fs::FileNumbers,
}

impl PointerFile {
    fn remove(&self) {
        if let Err(error) = fs::remove_that_file(&self.path, self.numbers) {
            tracing::debug!("{error}");
        }
    }
}

/// A storage file of a bag, as the reader opens it.
pub trait RecordedFile {
    /// Why it cannot be opened.
    type Error;

    /// Its path.
    fn path(&self) -> &Path;

    /// Its reader, which returns payloads as they were sent.
    fn open(&self) -> Result<Arc<dyn StorageReader>, Self::Error>;
}

/// Messages that a bag lacks, and its account with them.
pub struct Missing {
    /// The messages, in the order in which they were received.
    messages: Vec<Found>,
    /// The account of the bag together with them.
    ledger: Ledger,
}

impl Missing {
    /// How many messages.
    pub fn count(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Whether, by the account, nothing that was received is lost.
    pub fn is_all_there(&self) -> bool {
        let lost = |topic: &TopicAccount| topic.missing.get(&LossStage::Storage).copied().unwrap_or(0);
        self.ledger.topics.iter().all(|topic| lost(topic) == 0)
    }

    /// The account of the bag together with them.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The account of the bag together with them.
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }
}

impl Rescue {
    /// The memory that the directory of a bag that is not being recorded points to; `None` if there is none, it is of another boot, or
    /// the bag is a copy of one that is being recorded. Waits a few seconds for a recorder that is being ended.
    ///
    /// # Errors
    /// The memory exists, but cannot be read, belongs to another bag, or its recorder is alive.
    pub fn find(directory: &Path) -> Result<Option<Self>, FindError> {
        Self::find_within(directory, ENDED_MAX)
    }

    /// As [`Rescue::find`]; waits at most `patience`.
    ///
    /// # Errors
    /// As [`Rescue::find`].
    pub fn find_within(directory: &Path, patience: Duration) -> Result<Option<Self>, FindError> {
        let path = directory.join(POINTER_FILE);
        // Before it is read, so that another file that gets the name then is not taken for it.
        let Ok(numbers) = fs::file_numbers(&path) else {
            return Ok(None);
        };
        let unreadable = |reason: String| FindError::Unreadable {
            pointer: path.clone(),
            reason,
        };
        if fs::is_link(&path) {
            return Err(unreadable("it is a link".to_owned()));
        }
        let bytes = match fs::read(&path, POINTER_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => {
                return Err(unreadable(format!(
                    "it cannot be read: {}",
                    reason(&error.into_io())
                )));
            }
        };
        let pointer: Pointer =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let owner = owner_of(&path).map_err(|error| unreadable(error.to_string()))?;
        // A copy of a bag that is being recorded does not wait for that recorder.
        let is_awaited = |living: Option<Survivor>| {
            let catalog = living.and_then(|living| Catalog::in_memory(&living).ok());
            catalog.is_none_or(|catalog| catalog.is_of(directory))
        };
        let survivor = match Survivor::open_ended(&pointer.path, &pointer.id, owner, patience, is_awaited) {
            Ok(Some(survivor)) => survivor,
            Ok(None) => return Ok(None),
            Err(source @ SurvivorError::Alive { .. }) => {
                return Err(FindError::Alive {
                    pointer: path,
                    source,
                });
            }
            Err(error) => return Err(unreadable(error.to_string())),
        };
        let file = PointerFile {
            path: path.clone(),
            numbers,
        };
        let mut read = Self::read(survivor, file).map_err(|error| unreadable(error.to_string()))?;
        read.is_original = read.catalog.is_of(directory);
        if !read.is_original && memory_named_in(directory).as_deref() != Some(pointer.id.as_str()) {
            return Err(unreadable(format!(
                "it points to the memory of another bag, which was recorded to {}; repair that one",
                read.catalog.directory.display()
            )));
        }
        Ok(Some(read))
    }

    fn read(survivor: Survivor, pointer: PointerFile) -> Result<Self, SurvivorError> {
        let survivor = Arc::new(survivor);
        let mut log = Vec::new();
        let mut runs: Vec<(u64, SurvivedRun, Bytes)> = Vec::new();
        let mut segments = HashSet::new();
        for slot in survivor.slots() {
            let bytes = survivor.read(slot)?;
            match slot.kind {
                KIND_LOG => log.extend_from_slice(&bytes),
                KIND_MESSAGES => {
                    let bytes = Bytes::from(bytes);
                    for run in survived(&bytes) {
                        if run.order.is_none() {
                            segments.insert(slot.order);
                        }
                        runs.push((run.order.unwrap_or(slot.order), run, bytes.clone()));
                    }
                }
                _ => {}
            }
        }
        // A segment that was killed between its copy and its end occurs twice.
        runs.retain(|(order, run, _)| run.order.is_none() || !segments.contains(order));
        runs.sort_by_key(|(order, ..)| *order);
        let mut messages = Vec::new();
        let mut left_bytes = survivor.allocated_bytes();
        for (_, run, bytes) in runs {
            for SurvivedMessage { entry, payload } in run.messages {
                let payload = match payload {
                    SurvivedPayload::Arena(range) => Some(FoundPayload::Bytes(bytes.slice(range))),
                    SurvivedPayload::Buffers(ranges) => in_buffers(&survivor, ranges, &mut left_bytes),
                    SurvivedPayload::Lost => None,
                };
                messages.push(Found { entry, payload });
            }
        }
        Ok(Self {
            messages,
            catalog: Catalog::from_log(&log),
            survivor,
            pointer,
            is_original: false,
        })
    }

    /// When the first of its messages was received, by their log times.
    fn earliest(&self) -> Option<Timestamp> {
        self.messages.iter().map(|found| found.entry.log_time).min()
    }

    /// Removes the memory: all of it is in the bag. A copy of the bag leaves it to the original.
    pub(crate) fn remove(self) {
        if !self.is_original {
            tracing::warn!(
                "this bag is a copy of the one that was recorded to {}: the messages stay in memory for that one",
                self.catalog.directory.display()
            );
        } else if let Err(error) = self.survivor.remove() {
            tracing::warn!("{error}");
        }
        self.pointer.remove();
    }

    /// Removes the pointer only.
    pub(crate) fn forget(self) {
        self.pointer.remove();
    }
}

/// The id of the memory that the metadata of a bag that was being recorded names.
fn memory_named_in(directory: &Path) -> Option<String> {
    metadata_of(directory).ok()??.custom_data.remove(MEMORY_KEY)
}

/// The metadata of a bag; `None` if it has none, or one that is damaged. As for a reader, foreign bytes in a name do not matter.
fn metadata_of(directory: &Path) -> Result<Option<BagMetadata>, holdall_io::disk::DiskError> {
    match fs::read(&directory.join("metadata.yaml"), METADATA_BYTES_MAX) {
        Ok(bytes) => Ok(BagMetadata::from_yaml(&String::from_utf8_lossy(&bytes)).ok()),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file of messages that are in memory only.
pub(crate) struct InMemory {
    /// What it goes by.
    pub path: PathBuf,
    /// Reads it.
    pub reader: Arc<dyn StorageReader>,
    /// The storage that the bag was recorded with.
    pub storage: String,
}

/// What the bag in `directory` with these files lacks, as a file that is in memory; `None` if nothing has survived its recorder, or all
/// of it is in the bag.
///
/// # Errors
/// The surviving memory cannot be read.
pub(crate) fn as_reader<F: RecordedFile>(directory: &Path, files: &[F]) -> Result<Option<InMemory>, String>
where
    F::Error: std::fmt::Display,
{
    let Some(rescue) = Rescue::find(directory).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let failed = |error: F::Error| error.to_string();
    if rescue.is_in(files).map_err(failed)? {
        return Ok(None);
    }
    let missing = rescue.missing(files).map_err(failed)?;
    let (path, reader) = write::in_memory(directory, &rescue.catalog, &missing)?;
    Ok(Some(InMemory {
        path,
        reader,
        storage: rescue.catalog.storage,
    }))
}
