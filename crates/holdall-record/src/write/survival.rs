//! The part of a recorder that survives its process besides messages: a log of topics, publishers and losses in shared memory, and its location. [`holdall_bag::rescue`] has the layout that both share.

use super::retained::{RETAINED_BYTES_MAX, Retained};
use crate::{
    Setting,
    cache::{ArenaSource, CACHE_BYTES_MIN, CacheOptions, SegmentShape},
};
use holdall_bag::rescue::{Event, KIND_LOG, POINTER_FILE, Pointer};
use holdall_io::mutex::lock;
use holdall_io::{
    fs::{self, FileNumbers},
    survivor::{
        Arena, Region, RegionShape,
        buffers::{BUFFER_BYTES, Serving},
    },
};
use holdall_model::loss::ledger::{AccountChange, AccountLog};
use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

/// The log grows to this, in bytes; losses are kept one by one until half of it is full.
const LOG_BYTES_MAX: usize = 32 << 20;

/// More segments exist than the cache counts: one being filled, one being written, and some to change with.
const SLOTS_MORE: usize = 64;

/// A transport's receive buffers hold more than what the cache and the drain keep: what is incomplete, other messages, unused ends. The memory
/// is allocated buffer by buffer.
const BUFFERS_MORE: usize = 1024;

/// The log's memory.
struct Log {
    region: Region,
    shape: SegmentShape,
    arenas: Vec<Arena>,
    /// Memory for the final entry when there is no other memory left.
    reserve: Option<Arena>,
    bytes: usize,
    is_incomplete: bool,
}

impl Log {
    fn add(&mut self, event: &Event) {
        let is_loss = matches!(
            event,
            Event::Account(
                AccountChange::Miss { .. }
                    | AccountChange::Late { .. }
                    | AccountChange::Expired { .. }
                    | AccountChange::Silent { .. }
            )
        );
        let bytes_max = if is_loss { LOG_BYTES_MAX / 2 } else { LOG_BYTES_MAX };
        // Text keys, numbers and texts only: nothing that JSON cannot hold.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        if self.bytes + line.len() > bytes_max || !self.append(&line) {
            self.mark_incomplete();
        }
    }

    fn append(&mut self, mut line: &[u8]) -> bool {
        self.bytes += line.len();
        while !line.is_empty() {
            let room = |arena: &Arena| self.shape.arena_bytes - arena.len();
            if self.arenas.last().is_none_or(|last| room(last) == 0) {
                let Some(arena) = self.region.arena(KIND_LOG) else {
                    return false;
                };
                self.arenas.push(arena);
            }
            let Some(last) = self.arenas.last_mut() else {
                return false;
            };
            let (now, rest) = line.split_at(line.len().min(self.shape.arena_bytes - last.len()));
            self.region.point();
            last.append(now, &[]);
            self.region.point();
            line = rest;
        }
        true
    }

    /// Notes that the log is incomplete from here on.
    fn mark_incomplete(&mut self) {
        if std::mem::replace(&mut self.is_incomplete, true) {
            return;
        }
        if let Some(mut reserve) = self.reserve.take() {
            // On a separate line, even after half of another one.
            reserve.append(b"\n", &serde_json::to_vec(&Event::Incomplete).unwrap_or_default());
            reserve.append(b"\n", &[]);
            self.arenas.push(reserve);
        }
    }
}

/// The log, shared by all parts that write to it. Does nothing if nothing survives.
#[derive(Clone, Default)]
pub struct SurvivalLog(Option<Arc<Mutex<Log>>>);

impl SurvivalLog {
    /// Logs an event.
    #[inline]
    pub fn add(&self, event: impl FnOnce() -> Event) {
        if let Some(log) = &self.0 {
            lock(log).add(&event());
        }
    }

    /// The log for a ledger's changes; `None` if nothing survives.
    pub(crate) fn for_accounts(&self) -> Option<Arc<dyn AccountLog>> {
        self.0.as_ref()?;
        Some(Arc::new(self.clone()))
    }

    /// Notes that the account of surviving messages is not complete.
    pub fn mark_incomplete(&self) {
        if let Some(log) = &self.0 {
            lock(log).mark_incomplete();
        }
    }
}

impl fmt::Debug for SurvivalLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SurvivalLog").field(&self.0.is_some()).finish()
    }
}

impl AccountLog for SurvivalLog {
    fn add(&self, change: AccountChange) {
        Self::add(self, || Event::Account(change));
    }
}

/// The memory of one recording that survives the process.
#[derive(Clone, Default)]
pub struct Survival {
    /// For the cache.
    pub source: ArenaSource,
    /// For the ledger and the drain.
    pub log: SurvivalLog,
    /// The file in the bag's directory that points to it.
    pointer: Arc<OnceLock<FileNumbers>>,
    /// While it exists transports receive into this memory.
    _serving: Option<Arc<Serving>>,
}

impl Survival {
    /// Memory in `directory`; if it cannot be made, warns and records without it.
    pub fn begin(directory: Option<&Path>, cache: &CacheOptions) -> Self {
        let Some(directory) = directory else {
            return Self::default();
        };
        Self::make(directory, cache).unwrap_or_else(|error| {
            tracing::warn!(
                setting = Setting::MaxLossWindow.name(),
                "no shared memory in {}: {error}; if this process is killed, the last messages are lost",
                directory.display()
            );
            Self::default()
        })
    }

    fn make(directory: &Path, cache: &CacheOptions) -> io::Result<Self> {
        let shape = SegmentShape::for_cache(cache.bytes_max.max(CACHE_BYTES_MIN));
        let bytes_max = cache.bytes_most().max(CACHE_BYTES_MIN);
        let slots = bytes_max.div_ceil(shape.arena_bytes)
            + Retained::slots_max(shape)
            + LOG_BYTES_MAX.div_ceil(shape.arena_bytes)
            + SLOTS_MORE;
        let region = Region::create(
            directory,
            RegionShape {
                slot_bytes: shape.arena_bytes,
                slots_max: slots,
                buffers_max: (2 * bytes_max + RETAINED_BYTES_MAX) / BUFFER_BYTES + BUFFERS_MORE,
            },
        )?;
        let serving = Some(Arc::new(region.serve_buffers()));
        let source = ArenaSource::of_region(region.clone());
        let log = Log {
            reserve: region.arena(KIND_LOG),
            region,
            shape,
            arenas: Vec::new(),
            bytes: 0,
            is_incomplete: false,
        };
        let log = SurvivalLog(Some(Arc::new(Mutex::new(log))));
        let incomplete = log.clone();
        source.on_incomplete(move || incomplete.mark_incomplete());
        Ok(Self {
            source,
            log,
            pointer: Arc::default(),
            _serving: serving,
        })
    }

    /// Identity of the memory.
    pub(crate) fn id(&self) -> Option<String> {
        self.source.region().map(Region::id)
    }

    /// Writes into the bag's directory where the memory is.
    pub(crate) fn write_pointer(&self, bag: &Path) {
        let Some(region) = self.source.region() else {
            return;
        };
        let pointer = Pointer {
            path: region.path().to_owned(),
            id: region.id(),
        };
        let text = serde_json::to_vec(&pointer).unwrap_or_default();
        let path = bag.join(POINTER_FILE);
        match fs::write_atomically_unsynced(&path, &text).and_then(|()| fs::file_numbers(&path)) {
            Ok(numbers) => drop(self.pointer.set(numbers)),
            Err(error) => {
                tracing::warn!("{error}; if this process is killed, the last messages are lost");
            }
        }
    }

    /// Writes the memory as a kill at this moment would leave it to a new file; returns the text of a pointer to that file, `None` if there
    /// is no memory. For a simulator.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn copy_as_killed(&self, to: &Path) -> io::Result<Option<String>> {
        let Some(region) = self.source.region() else {
            return Ok(None);
        };
        region.copy_to(to)?;
        let pointer = Pointer {
            path: to.to_owned(),
            id: region.id(),
        };
        Ok(Some(serde_json::to_string(&pointer)?))
    }

    /// Removes both: everything is stored elsewhere now.
    pub fn end(&self, bag: &Path) {
        if let Some(pointer) = self.pointer.get() {
            let removed = fs::remove_that_file(&bag.join(POINTER_FILE), *pointer);
            if let Err(error) = removed {
                tracing::debug!("{error}");
            }
        }
        self.remove();
    }

    /// Removes the memory.
    pub fn remove(&self) {
        let Some(region) = self.source.region() else {
            return;
        };
        if let Err(error) = region.remove() {
            tracing::warn!("{} cannot be removed: {error}", region.path().display());
        }
    }
}
