//! Fetching memory ahead: the processor gets lines while it does other work, instead of waiting for them one after the other.

use std::ops::Range;

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Has the processor fetch these cache lines of `value`, counted from its first byte, and does not wait for them.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn prefetch_lines<T: ?Sized>(value: &T, lines: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    for line in lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        // SAFETY: SSE is part of every x86-64; a prefetch never faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE)) };
    }
}
