//! Memory that survives the death of the process: a file in shared memory, cut into slots, that another process reads afterwards.
//!
//! A process that is killed loses its heap and keeps what it had stored in a shared mapping: the kernel owns
//! these pages. A [`Region`] is such a mapping, [`Arena`]s are its slots. The bytes of an arena are valid
//! from the moment its length is published: an ordinary store in program order, because the only reader comes
//! after the writer's end. A power cut destroys the region.

mod arena;
pub mod buffers;
mod copy;
mod layout;
pub mod ordinary;
mod place;
mod reader;
mod received;

use crate::{
    disk::DiskError,
    fs::{FileNumbers, remove_that_file},
    mutex::lock,
};
pub use arena::Arena;
pub use place::{directory_identity, view_of_files};
pub use reader::{Survivor, SurvivorError, SurvivorSlot, own_user, owner_of};
pub use received::ReceivedBytes;

use layout::{HEADER_BYTES, Header, SLOT_ENTRY_BYTES, boot_id, random_id};
use rustix::{
    fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, open},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    ptr::NonNull,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64},
    },
};

/// Gives the memory of all free buffers back, one after the other: to be called when a backlog is over. No thread waits for it.
pub fn free_idle_buffers() {
    buffers::free_idle_buffers();
    ordinary::free_idle_buffers();
}

/// Directory of regions when the user names none: memory on every Linux.
pub const DIRECTORY: &str = "/dev/shm";

/// The prefix of a region's name.
pub const NAME_PREFIX: &str = "holdall-";

/// Most slots of one region.
const SLOTS_MAX: usize = 1 << 20;

/// Most buffers of one region.
const BUFFERS_MAX: usize = 1 << 16;

/// The unit in which tables are looked through.
const PAGE_BYTES: usize = 4096;

/// The largest page of Linux's kernels (ARM64 has 4, 16 or 64 KiB): slots and buffers begin at a multiple of it, so that none shares a page whose
/// memory is given back.
const LARGEST_PAGE_BYTES: usize = 1 << 16;

/// How large a region may grow; memory is allocated slot by slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionShape {
    /// Bytes of one slot.
    pub slot_bytes: usize,
    /// Most slots.
    pub slots_max: usize,
    /// Most buffers of [`buffers::BUFFER_BYTES`], in addition; fewer where more than half of the free memory would go into them.
    pub buffers_max: usize,
}

/// The mapping, shared by the region and its arenas.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    file: File,
    path: PathBuf,
    slots: usize,
    /// Bytes from one slot to the next: a multiple of [`LARGEST_PAGE_BYTES`].
    stride: usize,
    data_offset: usize,
    free: Mutex<Vec<u32>>,
    next_order: AtomicU64,
    /// Number of buffers, after the slots.
    buffers: usize,
    buffers_offset: usize,
    /// A request for a buffer failed.
    lacks_buffers: AtomicBool,
    /// See [`Region::watch`].
    watch: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

// SAFETY: plain memory; each slot is owned by at most one `Arena` at a time (the free list hands out a number
// once), and the table's words are only accessed as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; the free list is protected by a mutex.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` was mapped with exactly this length in `Region::create`; every arena holds an `Arc` of this mapping, so no
        // arena is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Mapping {
    /// The word of a slot's entry in the table.
    fn word(&self, slot: u32, word: usize) -> NonNull<AtomicU64> {
        let offset = HEADER_BYTES + slot as usize * SLOT_ENTRY_BYTES + word * 8;
        // SAFETY: the table is inside of the mapping for every slot below `slots`, and its words are aligned
        // to 8 bytes.
        unsafe { self.base.add(offset).cast() }
    }

    fn start(&self, slot: u32) -> NonNull<u8> {
        // SAFETY: `slot` is below `slots`, so the slot is inside of the mapping.
        unsafe { self.base.add(self.data_offset + slot as usize * self.stride) }
    }

    /// Allocates memory for a range, so that no later access fails: a full file system would end the process
    /// with a signal.
    fn reserve(&self, offset: usize, bytes: usize) -> io::Result<()> {
        reserve(&self.file, offset, bytes)
    }

    /// See [`Region::watch`].
    fn point(&self) {
        if let Some(watch) = self.watch.get() {
            watch();
        }
    }

    /// Releases the memory of a slot to the system.
    fn punch(&self, slot: u32) {
        self.punch_at(self.data_offset + slot as usize * self.stride, self.stride);
    }

    /// Releases the memory of a range to the system.
    fn punch_at(&self, offset: usize, bytes: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A failure leaves the memory in use and nothing else.
        let _ = fallocate(&self.file, flags, offset as u64, bytes as u64);
    }
}

fn reserve(file: &File, offset: usize, bytes: usize) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), offset as u64, bytes as u64) {
            Err(Errno::INTR) => {}
            reserved => return Ok(reserved?),
        }
    }
}

/// A shared-memory file that outlives the process unless [`Region::remove`] is called. Cheap to clone.
#[derive(Clone)]
pub struct Region {
    mapping: Arc<Mapping>,
    id: [u8; 16],
}

impl Region {
    /// Makes a region with a random name in `directory`. It is locked for as long as this process lives.
    ///
    /// # Errors
    /// When the file cannot be made there, or has no room for its table.
    pub fn create(directory: &Path, shape: RegionShape) -> io::Result<Self> {
        let id = random_id()?;
        let mut name = OsString::from(NAME_PREFIX);
        name.push(layout::hex(&id));
        let path = directory.join(name);
        let file = create_new(&path)?;
        let numbers = FileNumbers::of(&file)?;
        // From here on a failure must not leave the file.
        Self::begin(&path, file, id, shape).inspect_err(|_| drop(remove_that_file(&path, numbers)))
    }

    fn begin(path: &Path, file: File, id: [u8; 16], shape: RegionShape) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::OutOfMemory, "larger than the address space");
        let slots = shape.slots_max.clamp(1, SLOTS_MAX);
        let stride = shape.slot_bytes.max(1).next_multiple_of(LARGEST_PAGE_BYTES);
        let data_offset = (HEADER_BYTES + slots * SLOT_ENTRY_BYTES).next_multiple_of(LARGEST_PAGE_BYTES);
        let buffers = buffers::affordable(
            shape.buffers_max.min(BUFFERS_MAX),
            path.parent().unwrap_or(Path::new("/")),
        );
        let buffers_offset = stride
            .checked_mul(slots)
            .and_then(|bytes| bytes.checked_add(data_offset))
            .ok_or_else(too_large)?;
        let bytes = buffers_offset
            .checked_add(buffers * buffers::BUFFER_BYTES)
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or_else(too_large)?;
        // The lock is released by the kernel when the process ends.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(bytes as u64)?;
        reserve(&file, 0, data_offset)?;
        // SAFETY: a fresh shared mapping of our own file touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(too_large)?;
        let header = Header {
            boot: boot_id()?,
            id,
            slots: slots as u64,
            slot_bytes: stride as u64,
            data_offset: data_offset as u64,
            buffers_bytes: (buffers * buffers::BUFFER_BYTES) as u64,
        };
        // SAFETY: the header's bytes were reserved above and are inside of the mapping; nothing else refers
        // to them.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), HEADER_BYTES) }
            .copy_from_slice(&header.to_bytes());
        let free = (0..slots as u32).rev().collect();
        let mapping = Mapping {
            base,
            bytes,
            file,
            path: path.to_owned(),
            slots,
            stride,
            data_offset,
            free: Mutex::new(free),
            next_order: AtomicU64::new(1),
            buffers,
            buffers_offset,
            lacks_buffers: AtomicBool::new(false),
            watch: OnceLock::new(),
        };
        Ok(Self {
            mapping: Arc::new(mapping),
            id,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.mapping.path
    }

    /// Its identifier, as hexadecimal digits.
    pub fn id(&self) -> String {
        layout::hex(&self.id)
    }

    /// A slot whose bytes are of this kind, which may be any number but 0. `None` when no slot or no memory is left.
    pub fn arena(&self, kind: u32) -> Option<Arena> {
        let slot = lock(&self.mapping.free).pop()?;
        let offset = self.mapping.data_offset + slot as usize * self.mapping.stride;
        if self.mapping.reserve(offset, self.mapping.stride).is_err() {
            lock(&self.mapping.free).push(slot);
            return None;
        }
        Some(Arena::of_slot(Arc::clone(&self.mapping), slot, kind))
    }

    /// Slots that can be taken, memory permitting.
    pub(crate) fn free_slots(&self) -> usize {
        lock(&self.mapping.free).len()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.mapping.slots
    }

    /// Removes the file, when everything in it is stored elsewhere. Arenas stay usable as ordinary memory.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        let numbers = FileNumbers::of(&self.mapping.file)?;
        let removed = remove_that_file(&self.mapping.path, numbers);
        removed.map(drop).map_err(DiskError::into_io)
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("path", &self.mapping.path)
            .field("free_slots", &self.free_slots())
            .finish_non_exhaustive()
    }
}

/// Makes a file that did not exist, which only its owner may read.
fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?))
}

#[cfg(test)]
mod tests;
