//! What Cyclone DDS's public interface leaves out: reliability, leases, and signs of life, by the GUID of an entity.

use crate::dds::reach::lives::LeaseState;
use holdall_cyclone_sys::*;
use holdall_model::topic::Gid;
use std::ptr::NonNull;

/// A reader that expects a number further than this from the next real one was misled by a forged one.
const MISLED_FROM: u64 = 100_000;

/// Cyclone's clock: elapsed time in nanoseconds.
pub(in crate::dds) fn elapsed() -> i64 {
    // SAFETY: reads a clock.
    unsafe { holdall_elapsed() }
}

/// The globals of a live domain. All calls but [`Globals::as_ptr`] take the lock of an entity, which Cyclone holds while it delivers: they must
/// not be called from a handler.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::dds) struct Globals(NonNull<ddsi_domaingv>);

// SAFETY: only passed to Cyclone's functions, which any thread may call.
unsafe impl Send for Globals {}
// SAFETY: as above.
unsafe impl Sync for Globals {}

impl Globals {
    /// The globals of a domain; `None` when it is not live.
    ///
    /// # Safety
    /// The domain must live as long as this value is used.
    pub(in crate::dds) unsafe fn new(domain: dds_entity_t) -> Option<Self> {
        // SAFETY: any handle may be asked for.
        NonNull::new(unsafe { holdall_globals(domain) }).map(Self)
    }

    /// The address, which is that of one domain as long as it lives.
    pub(in crate::dds) fn as_ptr(self) -> *mut ddsi_domaingv {
        self.0.as_ptr()
    }

    /// Whether one of our participants is still in its domain: Cyclone deletes one whose certificate or permissions expire, but keeps its
    /// handles.
    pub(in crate::dds) fn takes_part(self, participant: Gid) -> bool {
        // SAFETY: the domain is live.
        unsafe { holdall_takes_part(self.as_ptr(), participant.0.as_ptr()) }
    }

    /// Makes one of our volatile reliable readers request all that writers still keep for it, from each writer that it matches from now on.
    pub(in crate::dds) fn request_history(self, reader: Gid) {
        // SAFETY: the domain is live.
        unsafe { holdall_request_history(self.as_ptr(), reader.0.as_ptr()) }
    }

    /// The last sequence number that a writer has announced, where it is known and has announced any.
    pub(in crate::dds) fn announced_sequence(self, writer: Gid) -> Option<u64> {
        // SAFETY: the domain is live.
        let last = unsafe { holdall_announced_sequence(self.as_ptr(), writer.0.as_ptr()) };
        (last > 0).then_some(last)
    }

    /// Lets the proxy of a writer expect number `next` again, after a forged number far away.
    pub(in crate::dds) fn expect_next(self, writer: Gid, next: u64) {
        // SAFETY: the domain is live.
        unsafe { holdall_expect_next(self.as_ptr(), writer.0.as_ptr(), next, MISLED_FROM) }
    }

    /// The last sequence number that all matched reliable readers of one of our writers have acknowledged (without such a reader the last
    /// one written), and the number of these readers, those of our own process left out.
    pub(in crate::dds) fn acknowledged(self, writer: Gid) -> Option<(u64, usize)> {
        let (mut sequence, mut readers) = (0, 0);
        // SAFETY: the domain is live.
        let is_known = unsafe {
            holdall_acknowledged(
                self.as_ptr(),
                writer.0.as_ptr(),
                &raw mut sequence,
                &raw mut readers,
            )
        };
        is_known.then_some((sequence, readers))
    }

    /// Makes the next message of one of our writers request an acknowledgement from its reliable readers.
    pub(in crate::dds) fn request_acknowledgement(self, writer: Gid) {
        // SAFETY: the domain is live.
        unsafe { holdall_request_acknowledgement(self.as_ptr(), writer.0.as_ptr()) }
    }

    /// The lease of another participant; `None` when it is gone, or its lease has no end.
    pub(in crate::dds) fn lease(self, participant: Gid) -> Option<LeaseState> {
        let (mut heard, mut end) = (0, 0);
        // SAFETY: the domain is live.
        let has_end = unsafe {
            holdall_lease(
                self.as_ptr(),
                participant.0.as_ptr(),
                &raw mut heard,
                &raw mut end,
            )
        };
        has_end.then_some(LeaseState { heard, end })
    }

    /// Takes the count of the next ACKNACK of one of our readers to a writer: higher than those before; 0 where they are not matched.
    pub(in crate::dds) fn next_acknowledgement(self, reader: Gid, writer: Gid) -> u32 {
        // SAFETY: the domain is live.
        unsafe { holdall_next_acknowledgement(self.as_ptr(), reader.0.as_ptr(), writer.0.as_ptr()) }
    }

    /// Whether one of our readers has accepted a HEARTBEAT of a writer in a packet that was read after `since` (elapsed time in nanoseconds).
    pub(in crate::dds) fn has_heartbeat(self, reader: Gid, writer: Gid, since: i64) -> bool {
        // SAFETY: the domain is live.
        let accepted =
            unsafe { holdall_heartbeat_accepted(self.as_ptr(), reader.0.as_ptr(), writer.0.as_ptr()) };
        accepted > since
    }
}
