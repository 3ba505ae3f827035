//! The heap of the process: memory that was freed and that the allocator keeps.

/// Returns the freed memory that the allocator keeps to the system. Threads that allocate during the call may
/// wait for all of it, 0.3 µs for each page that is returned: call it when there is little to do.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` has no preconditions; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
