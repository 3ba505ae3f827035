//! Where Cyclone's receive buffers are: in memory that survives the process while a recording offers some, else in ordinary memory; never on the
//! heap, which would keep what a backlog has used.
//!
//! Cyclone has one set of allocation functions for the process. The functions here are those of libc, except for blocks of a receive buffer's size.

use super::sertype::RECEIVE_BUFFER_BYTES;
use holdall_cyclone_sys::{ddsrt_allocation_ops_t, ddsrt_set_allocator};
use holdall_io::survivor::{buffers, ordinary};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::Once,
};

/// Makes Cyclone allocate receive buffers where they survive. Must be called before any other function of Cyclone: none of its threads may allocate
/// in the meantime.
pub(in crate::dds) fn place_receive_buffers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ops = ddsrt_allocation_ops_t {
            malloc: Some(allocate),
            // Null means libc's.
            calloc: None,
            realloc: Some(reallocate),
            free: Some(release),
        };
        // SAFETY: the functions live for ever, and keep to the contract of libc's; blocks of libc's may be passed to them.
        unsafe { ddsrt_set_allocator(ops) };
    });
}

unsafe extern "C" fn allocate(bytes: usize) -> *mut c_void {
    if bytes == RECEIVE_BUFFER_BYTES
        && let Some(buffer) = buffers::allocate().or_else(ordinary::allocate)
    {
        return buffer.as_ptr().cast();
    }
    // SAFETY: any size may be asked for.
    unsafe { libc::malloc(bytes) }
}

unsafe extern "C" fn release(block: *mut c_void) {
    if let Some(start) = NonNull::new(block.cast::<u8>()) {
        let is_surviving = buffers::may_be_buffer(start.addr().get()) && buffers::release(start);
        if is_surviving || ordinary::release(start) {
            return;
        }
    }
    // SAFETY: Cyclone passes null, or a block of `allocate` or `reallocate`; it is not a buffer, so it belongs to libc.
    unsafe { libc::free(block) }
}

unsafe extern "C" fn reallocate(block: *mut c_void, bytes: usize) -> *mut c_void {
    let is_surviving = buffers::may_be_buffer(block.addr()) && buffers::is_buffer(block.addr());
    if !is_surviving && !ordinary::is_buffer(block.addr()) {
        // SAFETY: as in `release`.
        return unsafe { libc::realloc(block, bytes) };
    }
    // A block that happened to have a receive buffer's size.
    // SAFETY: both blocks have the bytes that are copied, and the old one is in use until it is released.
    unsafe {
        let moved = libc::malloc(bytes);
        if !moved.is_null() {
            ptr::copy_nonoverlapping(
                block.cast::<u8>(),
                moved.cast::<u8>(),
                bytes.min(RECEIVE_BUFFER_BYTES),
            );
            release(block);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::survivor::{Region, RegionShape};

    #[test]
    fn only_blocks_of_a_receive_buffers_size_are_in_the_region() {
        let dir = tempfile::tempdir().unwrap();
        let shape = RegionShape {
            slot_bytes: 4096,
            slots_max: 1,
            buffers_max: 1,
        };
        let region = Region::create(dir.path(), shape).unwrap();
        let _serving = region.serve_buffers();
        let is_in = |block: *mut c_void| {
            // SAFETY: a block of at least this length.
            let bytes = unsafe { std::slice::from_raw_parts(block.cast::<u8>(), 8) };
            region.offset_in_buffers(bytes).is_some()
        };
        // SAFETY: the blocks are used within their lengths and released once.
        unsafe {
            let buffer = allocate(RECEIVE_BUFFER_BYTES);
            ptr::write_bytes(buffer.cast::<u8>(), 7, RECEIVE_BUFFER_BYTES);
            // There is only one.
            let second = allocate(RECEIVE_BUFFER_BYTES);
            let small = allocate(100);
            assert_eq!([buffer, second, small].map(is_in), [true, false, false]);
            let is_ordinary = |block: *mut c_void| ordinary::is_buffer(block.addr());
            assert_eq!([buffer, second, small].map(is_ordinary), [false, true, false]);
            let moved = reallocate(buffer, 2 * RECEIVE_BUFFER_BYTES);
            assert!(!is_in(moved) && *moved.cast::<u8>().add(RECEIVE_BUFFER_BYTES - 1) == 7);
            let again = allocate(RECEIVE_BUFFER_BYTES);
            assert!(is_in(again), "a block that has moved is free");
            let small = reallocate(small, 200);
            ptr::write_bytes(second.cast::<u8>(), 8, RECEIVE_BUFFER_BYTES);
            let second = reallocate(second, 2 * RECEIVE_BUFFER_BYTES);
            assert!(!is_ordinary(second) && *second.cast::<u8>().add(RECEIVE_BUFFER_BYTES - 1) == 8);
            for block in [second, small, moved, again, ptr::null_mut()] {
                release(block);
            }
        }
    }
}
