//! Buffers of a region: memory of one size for code that takes its receive buffers from a function like `malloc`.
//!
//! Such code asks the process, not a region, so one region of the process serves it: the oldest one that should. A buffer
//! stays in place until it is released, even if its region is gone by then.

use super::{LARGEST_PAGE_BYTES, Mapping, Region};
use crate::mutex::lock;
use crate::os::available_bytes;
use std::{
    path::Path,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Bytes of one buffer.
pub const BUFFER_BYTES: usize = 1 << 20;

/// Free buffers that keep their memory until [`free_idle_buffers`]: the most recently written one is reused first, without page faults. As many as a
/// recording of large and small messages releases at once (64 MiB, when the storage writer is asked to close its open chunks); with half of that each
/// megabyte received cost a hundred page faults.
const READY_MAX: usize = 96;

/// The buffers of a region that serves, or some of whose buffers are in use.
struct Area {
    mapping: Arc<Mapping>,
    serves: bool,
    in_use: usize,
    /// Free, with memory.
    ready: Vec<u32>,
    /// The fewest of these since [`free_unused_buffers`].
    ready_least: usize,
    /// Free, without memory.
    empty: Vec<u32>,
    /// Buffers from this one on were never in use.
    fresh: u32,
}

/// Held for some instructions, and never during a system call: receiving threads take it.
static AREAS: Mutex<Vec<Area>> = Mutex::new(Vec::new());

/// All buffers there ever were are between these addresses.
static LOW: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGH: AtomicUsize = AtomicUsize::new(0);

impl Area {
    fn take_empty(&mut self) -> Option<u32> {
        let number = self.empty.pop().or_else(|| {
            let fresh = self.fresh;
            let is_one = (fresh as usize) < self.mapping.buffers;
            is_one.then(|| {
                self.fresh += 1;
                fresh
            })
        })?;
        self.in_use += 1;
        Some(number)
    }

    fn is_over(&self) -> bool {
        !self.serves && self.in_use == 0
    }
}

/// Notes that a buffer is not in use any more; returns the area when nothing needs it now, to be dropped outside of the lock.
fn put_back(areas: &mut Vec<Area>, mapping: &Arc<Mapping>, number: u32, has_memory: bool) -> Option<Area> {
    let index = areas
        .iter()
        .position(|area| Arc::ptr_eq(&area.mapping, mapping))?;
    let area = &mut areas[index];
    area.in_use -= 1;
    if has_memory {
        area.ready.push(number);
    } else {
        area.empty.push(number);
    }
    area.is_over().then(|| areas.swap_remove(index))
}

/// A buffer of [`BUFFER_BYTES`], aligned to a page; `None` when no region serves, or it has no memory.
pub fn allocate() -> Option<NonNull<u8>> {
    allocate_of(|_| true)
}

/// As [`allocate`], of this region.
pub(super) fn allocate_in(region: &Region) -> Option<NonNull<u8>> {
    allocate_of(|mapping| Arc::ptr_eq(mapping, &region.mapping))
}

fn allocate_of(is_meant: impl Fn(&Arc<Mapping>) -> bool) -> Option<NonNull<u8>> {
    let mut areas = lock(&AREAS);
    let area = areas
        .iter_mut()
        .find(|area| area.serves && is_meant(&area.mapping))?;
    let mapping = Arc::clone(&area.mapping);
    if let Some(number) = area.ready.pop() {
        area.in_use += 1;
        area.ready_least = area.ready_least.min(area.ready.len());
        return Some(mapping.buffer(number));
    }
    area.ready_least = 0;
    let number = area.take_empty();
    drop(areas);
    let Some(number) = number else {
        mapping.lacks_buffers.store(true, Ordering::Relaxed);
        return None;
    };
    if mapping
        .reserve(mapping.buffer_offset(number), BUFFER_BYTES)
        .is_ok()
    {
        return Some(mapping.buffer(number));
    }
    mapping.lacks_buffers.store(true, Ordering::Relaxed);
    let over = put_back(&mut lock(&AREAS), &mapping, number, false);
    drop(over);
    None
}

/// Whether this may be the address of a buffer.
#[inline]
pub fn may_be_buffer(address: usize) -> bool {
    // A caller that has a buffer got it after the bounds were stored.
    address >= LOW.load(Ordering::Relaxed) && address < HIGH.load(Ordering::Relaxed)
}

/// Whether this is the address of a buffer that is in use.
pub fn is_buffer(address: usize) -> bool {
    let areas = lock(&AREAS);
    areas
        .iter()
        .any(|area| area.mapping.offset_in_buffers(address).is_some())
}

/// Releases a buffer of [`allocate`]; false for any other memory.
pub fn release(start: NonNull<u8>) -> bool {
    let address = start.addr().get();
    if !may_be_buffer(address) {
        return false;
    }
    let mut areas = lock(&AREAS);
    let found = areas.iter().enumerate().find_map(|(index, area)| {
        let offset = area.mapping.offset_in_buffers(address)?;
        Some((index, (offset / BUFFER_BYTES) as u32))
    });
    let Some((index, number)) = found else {
        return false;
    };
    let mapping = Arc::clone(&areas[index].mapping);
    let keeps_memory = areas[index].serves && areas[index].ready.len() < READY_MAX;
    if !keeps_memory {
        drop(areas);
        // Still in use for the others until it is put back.
        mapping.punch_at(mapping.buffer_offset(number), BUFFER_BYTES);
        areas = lock(&AREAS);
    }
    let over = put_back(&mut areas, &mapping, number, keeps_memory);
    drop(areas);
    drop(over);
    true
}

/// Gives the memory of free buffers back.
pub(super) fn free_idle_buffers() {
    free_ready(READY_MAX);
}

/// Gives the memory of those buffers back that were free ever since the last call: a backlog that becomes smaller frees more of them than it takes.
pub fn free_unused_buffers() {
    let unused = |area: &mut Area| {
        let now = area.ready.len();
        let unused = area.ready_least.min(now);
        area.ready_least = now - unused;
        unused
    };
    let count = lock(&AREAS).iter_mut().map(unused).sum();
    free_ready(count);
}

fn free_ready(count_max: usize) {
    for _ in 0..count_max {
        let mut areas = lock(&AREAS);
        let Some((mapping, number)) = areas.iter_mut().find_map(|area| {
            let number = area.ready.pop()?;
            // In no list until its memory is gone.
            area.in_use += 1;
            Some((Arc::clone(&area.mapping), number))
        }) else {
            return;
        };
        drop(areas);
        mapping.punch_at(mapping.buffer_offset(number), BUFFER_BYTES);
        let over = put_back(&mut lock(&AREAS), &mapping, number, false);
        drop(over);
    }
}

/// While it exists [`allocate`] may hand out its region's buffers.
pub struct Serving(Arc<Mapping>);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut areas = lock(&AREAS);
        let Some(index) = areas.iter().position(|area| Arc::ptr_eq(&area.mapping, &self.0)) else {
            return;
        };
        areas[index].serves = false;
        let ready = std::mem::take(&mut areas[index].ready);
        let over = areas[index].is_over().then(|| areas.swap_remove(index));
        drop(areas);
        if over.is_none() {
            // They are not handed out again.
            for number in ready {
                self.0.punch_at(self.0.buffer_offset(number), BUFFER_BYTES);
            }
        }
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Serving").field(&self.0.path).finish()
    }
}

impl Region {
    /// Lets [`allocate`] hand out this region's buffers, after those of regions that were to do so before it.
    pub fn serve_buffers(&self) -> Serving {
        let mapping = &self.mapping;
        let first = mapping.base.addr().get() + mapping.buffers_offset;
        LOW.fetch_min(first, Ordering::Relaxed);
        HIGH.fetch_max(first + mapping.buffers * BUFFER_BYTES, Ordering::Relaxed);
        lock(&AREAS).push(Area {
            mapping: Arc::clone(mapping),
            serves: true,
            in_use: 0,
            ready: Vec::with_capacity(READY_MAX),
            ready_least: 0,
            // It never grows under the lock.
            empty: Vec::with_capacity(mapping.buffers),
            fresh: 0,
        });
        Serving(Arc::clone(mapping))
    }

    /// Offset of these bytes in this region's buffers; `None` when they are elsewhere.
    #[inline]
    pub fn offset_in_buffers(&self, bytes: &[u8]) -> Option<u64> {
        let offset = self.mapping.offset_in_buffers(bytes.as_ptr().addr())?;
        let rest = self.mapping.buffers * BUFFER_BYTES - offset;
        (bytes.len() <= rest).then_some(offset as u64)
    }

    /// Whether a request for a buffer failed.
    pub fn lacks_buffers(&self) -> bool {
        self.mapping.lacks_buffers.load(Ordering::Relaxed)
    }
}

impl Mapping {
    #[inline]
    fn offset_in_buffers(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base.addr().get() + self.buffers_offset)?;
        (offset < self.buffers * BUFFER_BYTES).then_some(offset)
    }

    fn buffer_offset(&self, number: u32) -> usize {
        self.buffers_offset + number as usize * BUFFER_BYTES
    }

    fn buffer(&self, number: u32) -> NonNull<u8> {
        // SAFETY: `number` is below `buffers`, so the buffer is inside of the mapping.
        unsafe { self.base.add(self.buffer_offset(number)) }
    }
}

/// As many buffers as are wanted, but only as many as leave half of the free memory in `directory` for other uses.
pub(super) fn affordable(wanted: usize, directory: &Path) -> usize {
    let free_bytes = available_bytes(directory).unwrap_or(0);
    wanted.min(usize::try_from(free_bytes / 2).unwrap_or(usize::MAX) / BUFFER_BYTES)
}

const _: () = assert!(BUFFER_BYTES.is_multiple_of(LARGEST_PAGE_BYTES));
