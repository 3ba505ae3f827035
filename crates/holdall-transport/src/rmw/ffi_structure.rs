//! A message of the shim as the structure that nodes publish and take, as an owned value.

use super::{
    ffi::{RawInfo, Shim, TypeSupport, c_string},
    ffi_entity::{Info, RawPublisher, RawSubscription, taken},
};
use std::{ffi::c_void, ptr::NonNull, sync::Arc};

/// A structure, which one message after the other is taken into or published from.
pub(super) struct Structure {
    shim: Arc<Shim>,
    raw: NonNull<c_void>,
}

// SAFETY: the memory is the structure's own, and no thread's in particular.
unsafe impl Send for Structure {}

impl Structure {
    /// An empty structure; the functions of its type in `library` begin with `prefix`.
    ///
    /// # Errors
    /// One clause where its package is not installed.
    pub(super) fn new(
        shim: &Arc<Shim>,
        types: TypeSupport,
        library: &str,
        prefix: &str,
    ) -> Result<Self, String> {
        let (library, prefix) = (c_string(library)?, c_string(prefix)?);
        // SAFETY: both texts end with NUL; the type support lives as long as the process.
        let raw = unsafe { (shim.0.structure)(library.as_ptr(), prefix.as_ptr(), types.0.as_ptr()) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(|| shim.reason())?,
            shim: Arc::clone(shim),
        })
    }

    /// Gives it the content of a serialized message of its type.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn fill(&mut self, message: &[u8]) -> Result<(), String> {
        // SAFETY: the structure is live; the message is read during the call only.
        let outcome = unsafe {
            (self.shim.0.structure_fill)(self.raw.as_ptr(), message.as_ptr(), message.len() as u64)
        };
        (outcome == 0).then_some(()).ok_or_else(|| self.shim.reason())
    }

    /// Publishes it with this number.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn publish(&mut self, publisher: &RawPublisher, number: u64) -> Result<(), String> {
        // SAFETY: both are live and of one type; the structure is only read by the implementation.
        let outcome =
            unsafe { (self.shim.0.publish_structure)(publisher.raw.as_ptr(), self.raw.as_ptr(), number) };
        (outcome == 0).then_some(()).ok_or_else(|| self.shim.reason())
    }

    /// Takes the next message into it, and returns its number; `None` when none is waiting.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn take(&mut self, subscription: &RawSubscription) -> Result<Option<(u64, Info)>, String> {
        let (mut number, mut info) = (0, RawInfo::default());
        // SAFETY: both are live and of one type; the shim leaves a valid structure, whatever it returns.
        let outcome = unsafe {
            (self.shim.0.take_structure)(
                subscription.raw.as_ptr(),
                self.raw.as_ptr(),
                &raw mut number,
                &raw mut info,
            )
        };
        Ok(taken(&self.shim, outcome, &info)?.map(|info| (number, info)))
    }
}

impl Drop for Structure {
    fn drop(&mut self) {
        // SAFETY: this value owns it.
        unsafe { (self.shim.0.structure_free)(self.raw.as_ptr()) };
    }
}
