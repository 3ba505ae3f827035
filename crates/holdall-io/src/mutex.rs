//! Locking for shared state: a thread that panicked while it held a lock does not stop the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even after a panic: if one thread of a recording fails, the others close it.
///
/// The mutex is the standard library's because waiting threads get it in any order: `parking_lot` hands a contended lock to
/// the thread that waits, and a receiving thread then waits until that one has a processor (docs/adr/0014).
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
