//! Reads a region after the end of the process that wrote it. Every number in it is checked: any process may
//! have made the file.

use super::layout::{
    HEADER_BYTES, Header, SLOT_ENTRY_BYTES, WORD_KIND, WORD_LEN, WORD_ORDER, boot_id, unhex,
};
use crate::{
    clock::{Clock, SystemClock},
    disk::DiskError,
    fs::{FileNumbers, HeldFolder},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// Time between two looks at a region whose process is being ended.
const POLL: Duration = Duration::from_millis(10);

/// Slots that are read at most, and bytes of one slot at most.
const SLOTS_MAX: u64 = super::SLOTS_MAX as u64;
const SLOT_BYTES_MAX: u64 = 1 << 30;

/// Why a region cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SurvivorError {
    /// The process that writes it is alive.
    #[error("{} belongs to a process that is running", path.display())]
    Alive {
        /// Its path.
        path: PathBuf,
    },
    /// It is another file than the expected one.
    #[error("{} is not the expected shared memory: {reason}", path.display())]
    Other {
        /// Its path.
        path: PathBuf,
        /// One clause.
        reason: &'static str,
    },
    /// The system's error.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// The user that a file belongs to; the owner of a link itself, not of its target.
///
/// # Errors
/// When its metadata cannot be read.
pub fn owner_of(path: &Path) -> io::Result<u32> {
    Ok(std::fs::symlink_metadata(path)?.uid())
}

/// The user that this process runs as.
///
/// # Errors
/// When the system does not report it.
pub fn own_user() -> io::Result<u32> {
    owner_of(Path::new("/proc/self"))
}

/// A slot that holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurvivorSlot {
    /// The order of its first bytes, compared with other slots.
    pub order: u64,
    /// The kind of its bytes.
    pub kind: u32,
    /// Number of bytes.
    pub bytes: usize,
    slot: u64,
}

/// A region whose process has ended.
#[derive(Debug)]
pub struct Survivor {
    path: PathBuf,
    folder: HeldFolder,
    file: File,
    header: Header,
    slots: Vec<SurvivorSlot>,
    /// Memory that the file occupies, in bytes.
    allocated_bytes: u64,
}

impl Survivor {
    /// Opens the region at `path`, which must have this id (hexadecimal digits) and belong to `owner`.
    ///
    /// # Errors
    /// When it is not there, is another one, or belongs to a process that is alive.
    pub fn open(path: &Path, id: &str, owner: u32) -> Result<Self, SurvivorError> {
        Self::open_if(path, id, owner, |file| {
            flock(file, FlockOperation::NonBlockingLockShared).is_ok()
        })
    }

    /// As [`Survivor::open`], when its process has ended within `patience`; `None` if the region does not exist, or its process is alive and
    /// `is_awaited` refuses to wait for it. That is given the region, which its process may be changing, if it can be read.
    ///
    /// # Errors
    /// As [`Survivor::open`].
    pub fn open_ended(
        path: &Path,
        id: &str,
        owner: u32,
        patience: Duration,
        is_awaited: impl FnOnce(Option<Self>) -> bool,
    ) -> Result<Option<Self>, SurvivorError> {
        let until = SystemClock.monotonic() + patience;
        let mut is_awaited = Some(is_awaited);
        loop {
            let alive = match Self::open(path, id, owner) {
                Ok(survivor) => return Ok(Some(survivor)),
                Err(SurvivorError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return Ok(None);
                }
                Err(alive @ SurvivorError::Alive { .. }) => alive,
                Err(error) => return Err(error),
            };
            let living = || Self::open_if(path, id, owner, |_| true).ok();
            if is_awaited.take().is_some_and(|is_awaited| !is_awaited(living())) {
                return Ok(None);
            }
            let now = SystemClock.monotonic();
            if now >= until {
                return Err(alive);
            }
            SystemClock.sleep_until(now + POLL);
        }
    }

    fn open_if(
        path: &Path,
        id: &str,
        owner: u32,
        is_ended: impl Fn(&File) -> bool,
    ) -> Result<Self, SurvivorError> {
        let failed = |source| SurvivorError::Io {
            path: path.to_owned(),
            source,
        };
        let other = |reason| SurvivorError::Other {
            path: path.to_owned(),
            reason,
        };
        let folder = HeldFolder::of(path).map_err(failed)?;
        let file = folder.open_file().map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(other("it is not a regular file"));
        }
        if about.uid() != owner || about.mode() & 0o077 != 0 {
            return Err(other("others may have written it"));
        }
        if !is_ended(&file) {
            return Err(SurvivorError::Alive {
                path: path.to_owned(),
            });
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let header = Header::from_bytes(&bytes).ok_or_else(|| other("it has another form"))?;
        if unhex(id) != Some(header.id) {
            return Err(other("it has another id"));
        }
        if boot_id().map_err(failed)? != header.boot {
            return Err(other("it is of another boot"));
        }
        let table_end = || HEADER_BYTES as u64 + header.slots * SLOT_ENTRY_BYTES as u64;
        let fits = header.slots <= SLOTS_MAX
            && (1..=SLOT_BYTES_MAX).contains(&header.slot_bytes)
            && header.data_offset >= table_end()
            && header.data_offset <= about.len()
            && header.slots * header.slot_bytes <= about.len() - header.data_offset
            && header.buffers_bytes <= about.len() - header.data_offset - header.slots * header.slot_bytes;
        if !fits {
            return Err(other("its lengths are not possible"));
        }
        let slots = slots_of(&file, &header).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            folder,
            file,
            header,
            slots,
            allocated_bytes: about.blocks().saturating_mul(512),
        })
    }

    /// Slots that hold bytes, in the order in which they were begun.
    pub fn slots(&self) -> &[SurvivorSlot] {
        &self.slots
    }

    /// The bytes of a slot.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read(&self, slot: &SurvivorSlot) -> Result<Vec<u8>, SurvivorError> {
        let mut bytes = vec![0; slot.bytes];
        self.file
            .read_exact_at(&mut bytes, self.offset_of(slot))
            .map_err(|source| SurvivorError::Io {
                path: self.path.clone(),
                source,
            })?;
        Ok(bytes)
    }

    /// Whether these bytes are in its buffers.
    pub fn has_in_buffers(&self, offset: u64, bytes: u64) -> bool {
        offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.header.buffers_bytes)
    }

    /// Memory that it occupies, in bytes: it cannot hold more than that.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Fills `bytes` from its buffers.
    ///
    /// # Errors
    /// When they are not there, or cannot be read.
    pub fn read_buffers(&self, offset: u64, bytes: &mut [u8]) -> Result<(), SurvivorError> {
        if !self.has_in_buffers(offset, bytes.len() as u64) {
            return Err(SurvivorError::Other {
                path: self.path.clone(),
                reason: "it has fewer buffers",
            });
        }
        let start = self.header.data_offset + self.header.slots * self.header.slot_bytes;
        self.file
            .read_exact_at(bytes, start + offset)
            .map_err(|source| SurvivorError::Io {
                path: self.path.clone(),
                source,
            })
    }

    /// Offset of a slot's bytes in the file.
    pub fn offset_of(&self, slot: &SurvivorSlot) -> u64 {
        self.header.data_offset + slot.slot * self.header.slot_bytes
    }

    /// Removes the file that was opened; another one that has its name now is left alone.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> Result<(), SurvivorError> {
        let numbers = FileNumbers::of(&self.file);
        let removed = numbers.and_then(|numbers| self.folder.remove(numbers).map_err(DiskError::into_io));
        removed.map(drop).map_err(|source| SurvivorError::Io {
            path: self.path.clone(),
            source,
        })
    }
}

fn slots_of(file: &File, header: &Header) -> io::Result<Vec<SurvivorSlot>> {
    // At most 32 MiB, see `SLOTS_MAX`.
    let mut table = vec![0; header.slots as usize * SLOT_ENTRY_BYTES];
    file.read_exact_at(&mut table, HEADER_BYTES as u64)?;
    // Most of a large table is empty; whole pages of it are passed over at once.
    const PAGE_SLOTS: usize = super::PAGE_BYTES / SLOT_ENTRY_BYTES;
    let used = table
        .chunks(super::PAGE_BYTES)
        .zip((0..).step_by(PAGE_SLOTS))
        .filter(|(page, _)| *page != &[0; super::PAGE_BYTES][..page.len()])
        .flat_map(|(page, first)| page.chunks_exact(SLOT_ENTRY_BYTES).zip(first..));
    let mut slots: Vec<SurvivorSlot> = used
        .filter_map(|(entry, slot)| {
            let word = |word: usize| {
                let bytes = entry.get(word * 8..)?.first_chunk()?;
                Some(u64::from_le_bytes(*bytes))
            };
            let (order, bytes) = (word(WORD_ORDER)?, word(WORD_LEN)?);
            let holds = order > 0 && bytes > 0 && bytes <= header.slot_bytes;
            holds.then_some(SurvivorSlot {
                order,
                kind: u32::try_from(word(WORD_KIND)?).ok()?,
                bytes: usize::try_from(bytes).ok()?,
                slot,
            })
        })
        .collect();
    slots.sort_by_key(|slot| slot.order);
    Ok(slots)
}
