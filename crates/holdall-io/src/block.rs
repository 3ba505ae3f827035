//! Blocks: page-aligned memory from a bounded pool, the unit in which bytes travel to the disk.

use crate::mutex::lock;
use std::{
    io,
    ptr::NonNull,
    sync::{Arc, Mutex},
};

/// Alignment of a block's memory and of every offset and length that a disk is given, in bytes.
pub const BLOCK_ALIGNMENT: usize = 4096;

/// Default size of a block in bytes.
pub const BLOCK_BYTES_DEFAULT: usize = 4 << 20;

/// Default number of blocks in a pool.
pub const BLOCK_COUNT_DEFAULT: usize = 12;

/// Index of a stand-in for a block whose memory was given up, see [`Block::abandon`].
const NO_INDEX: u32 = u32::MAX;

/// Least size in bytes of a block whose pool is shared by several streams.
const BLOCK_BYTES_SHARED_MIN: usize = 512 << 10;

/// How large a [`BlockPool`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPoolOptions {
    /// Capacity of one block; rounded up to a multiple of [`BLOCK_ALIGNMENT`].
    pub block_bytes: usize,
    /// How many blocks there are; at least 2.
    pub block_count: usize,
    /// Ask the kernel for 2 MiB pages (fewer page faults and fewer segments per write; memory is then faulted in 2 MiB steps).
    pub huge_pages: bool,
}

impl Default for BlockPoolOptions {
    fn default() -> Self {
        Self {
            block_bytes: BLOCK_BYTES_DEFAULT,
            block_count: BLOCK_COUNT_DEFAULT,
            huge_pages: true,
        }
    }
}

impl BlockPoolOptions {
    /// A pool for several streams at a time: each has as many blocks as before, which are smaller, so that the memory stays about the same.
    #[must_use]
    pub fn shared_by(self, streams: usize) -> Self {
        let least = BLOCK_BYTES_SHARED_MIN.min(self.block_bytes);
        Self {
            block_bytes: (self.block_bytes / streams.max(1)).max(least),
            block_count: self.block_count.saturating_mul(streams.max(1)),
            ..self
        }
    }
}

/// The memory of a pool and the list of its free blocks.
struct Region {
    base: NonNull<u8>,
    block_bytes: usize,
    block_count: usize,
    /// The first bytes of each block that its user does not see.
    front_bytes: usize,
    /// Last returned, first taken: that block is most likely still in the processor's cache, and memory never
    /// needed is never touched.
    free: Mutex<Vec<u32>>,
}

// SAFETY: the region is plain memory; each block of it is owned by at most one `Block` at a time (the free
// list hands out an index once), so no two threads touch the same bytes without a hand-over.
unsafe impl Send for Region {}
// SAFETY: as above; the free list is protected by a mutex.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` was mapped with exactly this length in `BlockPool::new`, and every `Block` holds an `Arc` of this
        // region, so no block is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.block_bytes * self.block_count) };
    }
}

/// A bounded set of blocks that are reused. Cheap to clone: clones share the blocks.
#[derive(Clone)]
pub struct BlockPool {
    region: Arc<Region>,
}

impl BlockPool {
    /// Reserves address space for all blocks; memory is taken when a block is first written to.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub fn new(options: BlockPoolOptions) -> io::Result<Self> {
        Self::with_front(options, 0)
    }

    /// As [`BlockPool::new`], but the first `front_bytes` of each block, a multiple of [`BLOCK_ALIGNMENT`], are reserved for the disk.
    pub(crate) fn with_front(options: BlockPoolOptions, front_bytes: usize) -> io::Result<Self> {
        let block_bytes = options.block_bytes.max(front_bytes + 1);
        let block_bytes = block_bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let block_count = options.block_count.clamp(2, u16::MAX as usize);
        let bytes = block_bytes.checked_mul(block_count).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                "block pool larger than the address space",
            )
        })?;
        // SAFETY: a fresh anonymous private mapping; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if options.huge_pages {
            // SAFETY: advice about the mapping made above; failing is harmless (kernels without huge pages).
            unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        }
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "block pool mapped at address 0"))?;
        let free = (0..block_count)
            .rev()
            .map(|index| u32::try_from(index).unwrap_or(u32::MAX))
            .collect();
        Ok(Self {
            region: Arc::new(Region {
                base,
                block_bytes,
                block_count,
                front_bytes,
                free: Mutex::new(free),
            }),
        })
    }

    /// Takes a free block; `None` while all are in use. Its content is whatever was last in it.
    pub fn take(&self) -> Option<Block> {
        let index = lock(&self.region.free).pop()?;
        // SAFETY: `index` is below `block_count`, so the pointer stays inside the mapping.
        let whole = unsafe { self.region.base.add(index as usize * self.region.block_bytes) };
        let mut block = Block {
            start: whole,
            capacity: self.region.block_bytes,
            index,
            region: Arc::clone(&self.region),
        };
        block.hide_front();
        Some(block)
    }

    /// Blocks that can be taken now.
    pub fn free_count(&self) -> usize {
        lock(&self.region.free).len()
    }

    /// Blocks in all.
    pub fn block_count(&self) -> usize {
        self.region.block_count
    }

    /// Capacity of each block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.region.block_bytes - self.region.front_bytes
    }

    /// Capacity of one block in bytes, including the part that its user does not see.
    pub(crate) fn whole_block_bytes(&self) -> usize {
        self.region.block_bytes
    }

    /// The address of block `index`, for registering it with the kernel.
    pub(crate) fn block_address(&self, index: usize) -> Option<*mut u8> {
        // SAFETY: `index` is checked to be inside the mapping.
        (index < self.region.block_count)
            .then(|| unsafe { self.region.base.as_ptr().add(index * self.region.block_bytes) })
    }
}

impl std::fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockPool")
            .field("block_bytes", &self.block_bytes())
            .field("block_count", &self.block_count())
            .field("free", &self.free_count())
            .finish()
    }
}

/// One block of a [`BlockPool`], owned; returns to its pool when dropped.
pub struct Block {
    start: NonNull<u8>,
    capacity: usize,
    index: u32,
    region: Arc<Region>,
}

// SAFETY: a block is the only owner of its bytes.
unsafe impl Send for Block {}
// SAFETY: shared access only reads.
unsafe impl Sync for Block {}

impl Block {
    /// All bytes of the block, written to or not.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping holds `capacity` initialised bytes from `start` (anonymous memory is zero), owned by this block.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity) }
    }

    /// All bytes of the block, to be written to.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }

    /// Its capacity in bytes; a multiple of [`BLOCK_ALIGNMENT`].
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Removes its memory from use permanently, because the kernel may still read it; returns an empty stand-in.
    pub(crate) fn abandon(self) -> Block {
        let stand_in = Block {
            start: self.start,
            capacity: 0,
            index: NO_INDEX,
            region: Arc::clone(&self.region),
        };
        std::mem::forget(self);
        stand_in
    }

    /// Bytes before those that the user sees; zero if the pool has none, and while they are shown.
    pub(crate) fn front_bytes(&self) -> usize {
        if self.capacity + self.region.front_bytes == self.region.block_bytes {
            self.region.front_bytes
        } else {
            0
        }
    }

    /// Makes the bytes before those that the user sees part of the block.
    pub(crate) fn show_front(&mut self) {
        let front = self.front_bytes();
        // SAFETY: `front` bytes before `start` are the beginning of the same block of the mapping.
        self.start = unsafe { self.start.sub(front) };
        self.capacity += front;
    }

    /// Undoes [`Block::show_front`]. Does nothing to a stand-in.
    pub(crate) fn hide_front(&mut self) {
        let front = self.region.front_bytes;
        if self.capacity == self.region.block_bytes {
            // SAFETY: a block of the mapping is longer than its front.
            self.start = unsafe { self.start.add(front) };
            self.capacity -= front;
        }
    }

    /// Its place in the pool.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Whether it comes from `pool`.
    pub(crate) fn is_of(&self, pool: &BlockPool) -> bool {
        Arc::ptr_eq(&self.region, &pool.region)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        lock(&self.region.free).push(self.index);
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block")
            .field("index", &self.index)
            .field("capacity", &self.capacity)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_pool() -> BlockPool {
        BlockPool::new(BlockPoolOptions {
            block_bytes: 5000,
            block_count: 3,
            huge_pages: false,
        })
        .unwrap()
    }

    #[test]
    fn block_is_aligned_and_rounded_up() {
        let block = small_pool().take().unwrap();
        assert_eq!(block.capacity(), 8192);
        assert_eq!(block.as_slice().as_ptr() as usize % BLOCK_ALIGNMENT, 0);
    }

    #[test]
    fn pool_is_bounded_and_recycles() {
        let pool = small_pool();
        let blocks: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((blocks.len(), pool.free_count()), (3, 0));
        drop(blocks);
        assert_eq!(pool.free_count(), 3);
        assert!(pool.take().is_some());
    }

    #[test]
    fn blocks_do_not_overlap() {
        let pool = small_pool();
        let mut a = pool.take().unwrap();
        let mut b = pool.take().unwrap();
        a.as_mut_slice().fill(1);
        b.as_mut_slice().fill(2);
        assert!(a.as_slice().iter().all(|&byte| byte == 1));
    }

    #[test]
    fn block_outlives_its_pool() {
        let mut block = small_pool().take().unwrap();
        block.as_mut_slice()[8191] = 7;
        assert_eq!(block.as_slice()[8191], 7);
    }
}
