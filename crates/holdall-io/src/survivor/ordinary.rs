//! Receive buffers in ordinary memory, for a process whose regions have none left, or that has no region.
//!
//! They do not come from the allocator: memory that it keeps after a backlog is returned only by a call that holds its locks, and a
//! receiving thread that allocates meanwhile waits for it. Here each buffer is returned separately, and no lock is held during a
//! system call.

use super::buffers::BUFFER_BYTES;
use crate::mutex::lock;
use std::{
    ptr::{self, NonNull},
    sync::{Mutex, OnceLock},
};

/// Maximum numbers of buffers. They take address space; only buffers that were used take memory. The lower numbers are for
/// limited address space.
const COUNTS_MAX: [u32; 3] = [4096, 1024, 256];

/// Free buffers that keep their memory until [`free_idle_buffers`], for the reason that those of a region do.
const READY_MAX: usize = 96;

/// All buffers.
struct Buffers {
    base: NonNull<u8>,
    count: u32,
    free: Mutex<Free>,
}

// SAFETY: plain memory that is mapped forever; the free lists hand out each buffer once.
unsafe impl Send for Buffers {}
// SAFETY: as above; the free lists are protected by a mutex.
unsafe impl Sync for Buffers {}

/// Numbers of buffers that are not in use.
struct Free {
    /// Free buffers with memory.
    ready: Vec<u32>,
    /// Free buffers without memory.
    empty: Vec<u32>,
    /// Buffers from this one on were never in use.
    fresh: u32,
}

/// Mapped when a buffer is first requested; `None` without enough address space.
static BUFFERS: OnceLock<Option<Buffers>> = OnceLock::new();

impl Buffers {
    fn map() -> Option<Self> {
        COUNTS_MAX.into_iter().find_map(Self::with_count)
    }

    fn with_count(count: u32) -> Option<Self> {
        // SAFETY: a fresh anonymous private mapping; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                count as usize * BUFFER_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED)?;
        // The lists never grow: a receiving thread does not allocate under the lock.
        let free = Mutex::new(Free {
            ready: Vec::with_capacity(READY_MAX),
            empty: Vec::with_capacity(count as usize),
            fresh: 0,
        });
        Some(Self { base, count, free })
    }

    fn take(&self) -> Option<NonNull<u8>> {
        let mut free = lock(&self.free);
        let number = free.ready.pop().or_else(|| free.empty.pop()).or_else(|| {
            let fresh = free.fresh;
            (fresh < self.count).then(|| {
                free.fresh += 1;
                fresh
            })
        })?;
        drop(free);
        Some(self.start(number))
    }

    fn start(&self, number: u32) -> NonNull<u8> {
        // SAFETY: `number` is below `count`, so the buffer is inside of the mapping.
        unsafe { self.base.add(number as usize * BUFFER_BYTES) }
    }

    fn number_of(&self, address: usize) -> Option<u32> {
        let offset = address.checked_sub(self.base.addr().get())?;
        let number = offset / BUFFER_BYTES;
        (number < self.count as usize).then_some(number as u32)
    }

    fn put_back(&self, number: u32) {
        let mut free = lock(&self.free);
        if free.ready.len() < READY_MAX {
            return free.ready.push(number);
        }
        drop(free);
        self.empty(number);
    }

    /// Gives the memory of a buffer back to the system. It is in no list until that is done.
    fn empty(&self, number: u32) {
        // SAFETY: a whole buffer that is in no list and not in use. A failure leaves the memory in use and nothing else.
        unsafe {
            libc::madvise(
                self.start(number).as_ptr().cast(),
                BUFFER_BYTES,
                libc::MADV_DONTNEED,
            )
        };
        lock(&self.free).empty.push(number);
    }
}

/// A buffer of [`BUFFER_BYTES`], aligned to a page; `None` when all are in use or address space is lacking.
pub fn allocate() -> Option<NonNull<u8>> {
    BUFFERS.get_or_init(Buffers::map).as_ref()?.take()
}

/// Whether this is an address in a buffer.
#[inline]
pub fn is_buffer(address: usize) -> bool {
    matches!(BUFFERS.get(), Some(Some(buffers)) if buffers.number_of(address).is_some())
}

/// Releases a buffer of [`allocate`]; false for any other memory.
pub fn release(start: NonNull<u8>) -> bool {
    let Some(Some(buffers)) = BUFFERS.get() else {
        return false;
    };
    let Some(number) = buffers.number_of(start.addr().get()) else {
        return false;
    };
    buffers.put_back(number);
    true
}

/// Gives the memory of free buffers back.
pub(super) fn free_idle_buffers() {
    let Some(Some(buffers)) = BUFFERS.get() else {
        return;
    };
    for _ in 0..READY_MAX {
        let Some(number) = lock(&buffers.free).ready.pop() else {
            return;
        };
        buffers.empty(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers of the mapping that have memory, by the kernel's word.
    fn resident(buffers: &[NonNull<u8>]) -> usize {
        let has_memory = |buffer: &&NonNull<u8>| {
            let mut pages = vec![0_u8; BUFFER_BYTES / 4096];
            // SAFETY: a whole buffer of a mapping, and room for a byte of each of its pages.
            let asked = unsafe { libc::mincore(buffer.as_ptr().cast(), BUFFER_BYTES, pages.as_mut_ptr()) };
            assert_eq!(asked, 0);
            pages.iter().any(|page| page & 1 == 1)
        };
        buffers.iter().filter(has_memory).count()
    }

    #[test]
    fn a_backlog_gives_its_buffers_back_one_by_one() {
        let stall: Vec<_> = (0..READY_MAX + 50).map(|_| allocate().unwrap()).collect();
        assert_eq!(resident(&stall), 0, "address space only");
        for buffer in &stall {
            // SAFETY: a buffer of this length that nothing else uses.
            unsafe { ptr::write_bytes(buffer.as_ptr(), 7, BUFFER_BYTES) };
        }
        assert_eq!(resident(&stall), stall.len());
        for (released, buffer) in stall.iter().enumerate() {
            assert!(release(*buffer));
            let kept = READY_MAX.min(released + 1);
            assert_eq!(
                resident(&stall[..=released]),
                kept,
                "beyond what is kept each goes at once"
            );
        }
        free_idle_buffers();
        assert_eq!(resident(&stall), 0);
        let again = allocate().unwrap();
        assert!(stall.contains(&again) && is_buffer(again.addr().get()));
        assert!(release(again) && !release(NonNull::dangling()));
    }
}
