//! An arena: bytes that are appended and published, in a slot of a region or in ordinary memory.

use super::{
    Mapping,
    layout::{WORD_KIND, WORD_LEN, WORD_ORDER},
    lock,
};
use std::{
    alloc::{Layout, handle_alloc_error},
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes that grow at their end until they are cleared. Those of a region's slot survive the process from
/// [`Arena::publish`] on.
pub struct Arena {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// The published length; in ordinary memory it is never read.
    published: NonNull<AtomicU64>,
    home: Home,
}

/// The owner of the memory.
enum Home {
    Slot {
        mapping: Arc<Mapping>,
        slot: u32,
    },
    /// A private mapping, returned to the system with the arena.
    Heap,
}

// SAFETY: an arena is the only owner of its bytes and of its entry in the table.
unsafe impl Send for Arena {}
// SAFETY: shared access only reads.
unsafe impl Sync for Arena {}

/// The header of an arena in ordinary memory: the length that it publishes, and padding that aligns the rest.
const HEAP_HEAD_BYTES: usize = 64;

fn heap_layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity.saturating_add(HEAP_HEAD_BYTES), 64)
        .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
}

impl Arena {
    /// Ordinary memory: it is lost with the process.
    pub fn heap(capacity: usize) -> Self {
        let layout = heap_layout(capacity);
        // SAFETY: a fresh anonymous private mapping, which is not empty; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                layout.size(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) else {
            handle_alloc_error(layout);
        };
        Self {
            // SAFETY: the allocation has this many bytes more than the capacity.
            start: unsafe { base.add(HEAP_HEAD_BYTES) },
            capacity,
            len: 0,
            // In one mapping with the bytes; aligned for it, and zero.
            published: base.cast(),
            home: Home::Heap,
        }
    }

    pub(super) fn of_slot(mapping: Arc<Mapping>, slot: u32, kind: u32) -> Self {
        // SAFETY: this arena owns the words of a slot that was just taken.
        unsafe {
            mapping.word(slot, WORD_LEN).as_ref().store(0, Ordering::Release);
            mapping
                .word(slot, WORD_KIND)
                .as_ref()
                .store(u64::from(kind), Ordering::Release);
        }
        Self {
            start: mapping.start(slot),
            capacity: mapping.stride,
            len: 0,
            published: mapping.word(slot, WORD_LEN),
            home: Home::Slot { mapping, slot },
        }
    }

    /// The order of its first bytes among the region's arenas; 0 for ordinary memory.
    pub fn order(&self) -> u64 {
        let Home::Slot { mapping, slot } = &self.home else {
            return 0;
        };
        // SAFETY: the word is this slot's own.
        let order = unsafe { mapping.word(*slot, WORD_ORDER).as_ref() };
        order.load(Ordering::Relaxed)
    }

    /// Whether its bytes survive the process.
    pub fn survives(&self) -> bool {
        matches!(self.home, Home::Slot { .. })
    }

    /// Bytes that it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes were written by `append`, and are owned by this arena.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Appends two runs of bytes and publishes both at once.
    ///
    /// # Panics
    /// When they do not fit: a bug in the caller.
    #[inline]
    pub fn append(&mut self, head: &[u8], tail: &[u8]) {
        assert!(
            head.len() + tail.len() <= self.capacity - self.len,
            "appended to an arena without room"
        );
        if self.len == 0 {
            self.begin();
        }
        // SAFETY: the room was checked above; the caller's slice cannot be in the part after `len`, to which
        // no references exist.
        unsafe {
            let end = self.start.as_ptr().add(self.len);
            std::ptr::copy_nonoverlapping(head.as_ptr(), end, head.len());
            std::ptr::copy_nonoverlapping(tail.as_ptr(), end.add(head.len()), tail.len());
        }
        self.len += head.len() + tail.len();
        self.publish();
    }

    /// Overwrites bytes that are in it already.
    ///
    /// # Panics
    /// When they are not: a defect of the caller.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "overwrote what is not in the arena");
        // SAFETY: the range is inside of the bytes written so far, which this arena owns.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    /// Gives the bytes that follow a new place in the order of all that the region has held.
    #[cold]
    fn begin(&mut self) {
        if let Home::Slot { mapping, slot } = &self.home {
            mapping.point();
            let order = mapping.next_order.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the word is this slot's own.
            unsafe { mapping.word(*slot, WORD_ORDER).as_ref() }.store(order, Ordering::Release);
        }
    }

    #[inline]
    fn publish(&self) {
        // SAFETY: the word belongs to this arena for as long as it lives. `Release` keeps the compiler from
        // moving the stores of the bytes after it.
        unsafe { self.published.as_ref() }.store(self.len as u64, Ordering::Release);
    }

    /// Clears its bytes, and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.point();
        self.len = 0;
        self.publish();
        self.point();
    }

    /// See [`super::Region::watch`].
    fn point(&self) {
        if let Home::Slot { mapping, .. } = &self.home {
            mapping.point();
        }
    }

    /// Writes every page once, so that appending causes no page fault. To be called on an empty arena.
    pub fn touch(&mut self) {
        if self.len == 0 {
            // SAFETY: this arena owns the whole capacity, and none of it is in use.
            unsafe { std::ptr::write_bytes(self.start.as_ptr(), 0xA5, self.capacity) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.point();
        match &self.home {
            Home::Slot { mapping, slot } => {
                // SAFETY: this arena owns the words of this slot until its number is returned.
                unsafe {
                    mapping.word(*slot, WORD_LEN).as_ref().store(0, Ordering::Release);
                    mapping
                        .word(*slot, WORD_ORDER)
                        .as_ref()
                        .store(0, Ordering::Release);
                }
                mapping.punch(*slot);
                lock(&mapping.free).push(*slot);
            }
            // SAFETY: mapped with this length in `heap`, `HEAP_HEAD_BYTES` before its start, and owned by this arena
            // alone.
            Home::Heap => unsafe {
                libc::munmap(
                    self.start.sub(HEAP_HEAD_BYTES).as_ptr().cast(),
                    heap_layout(self.capacity).size(),
                );
            },
        }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .field("survives", &self.survives())
            .finish()
    }
}
