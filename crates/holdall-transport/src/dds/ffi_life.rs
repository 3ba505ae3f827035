//! Signs of life that Cyclone DDS does not expose: the lease of a participant, and the HEARTBEATs that a reader has accepted.
//!
//! Layouts, checks and locks are as in `ffi_reliability.rs`: a struct that does not look as expected is not used.

use super::{
    ffi_reliability::{EntityCommon, Guid, awake, domain_of, proxy_of},
    lives::LeaseState,
};
use cyclors::ddsi_sertype;
use holdall_model::topic::Gid;
use std::ffi::c_void;

/// `struct ddsi_pwr_rd_match`: a writer's proxy with one of our readers.
#[repr(C)]
struct Match {
    /// `ddsrt_avl_node_t`.
    node: [*mut c_void; 4],
    reader: Guid,
    created: i64,
    acknack_count: u32,
    heartbeat_count: u32,
    heartbeat_stamp: i64,
    /// Elapsed time in nanoseconds when a HEARTBEAT was accepted last, 0 before the first.
    heartbeat_accepted: i64,
}

/// The beginning of `struct ddsi_proxy_participant`.
#[repr(C)]
struct ProxyParticipant {
    entity: EntityCommon,
    references: u32,
    vendor: [u8; 2],
    endpoint_set: u32,
    settings: *mut c_void,
    /// What each packet of the participant renews.
    lease: *const Lease,
}

/// `struct ddsi_lease`.
#[repr(C)]
struct Lease {
    /// Two of `ddsrt_fibheap_node_t`.
    heap: [[u64; 5]; 2],
    scheduled: i64,
    /// When it ends: elapsed time in nanoseconds.
    end: i64,
    duration: i64,
    entity: *const EntityCommon,
}

const ENTITY_KIND_PROXY_PARTICIPANT: u32 = 1;

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Match, reader) == 32);
    assert!(offset_of!(Match, heartbeat_accepted) == 72);
    assert!(offset_of!(ProxyParticipant, lease) == 200);
    assert!(offset_of!(Lease, end) == 88);
    assert!(offset_of!(Lease, entity) == 104);
};

unsafe extern "C" {
    static ddsi_pwr_readers_treedef: c_void;
    fn ddsrt_avl_lookup(definition: *const c_void, tree: *const c_void, key: *const Guid) -> *const Match;
    fn ddsi_entidx_lookup_proxy_participant_guid(
        index: *const c_void,
        guid: *const Guid,
    ) -> *const ProxyParticipant;
    fn ddsrt_time_elapsed() -> i64;
}

/// Cyclone's clock: elapsed time in nanoseconds.
pub(super) fn elapsed() -> i64 {
    // SAFETY: reads a clock.
    unsafe { ddsrt_time_elapsed() }
}

/// The lease of another participant; `None` when it no longer exists, or has no end.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `own` be a participant of that domain.
pub(super) unsafe fn lease_of(
    sertype: *const ddsi_sertype,
    own: Gid,
    participant: Gid,
) -> Option<LeaseState> {
    // SAFETY: the caller vouches for both; what is looked up, and a lease that is replaced, are not freed while this thread is awake.
    unsafe {
        let domain = domain_of(sertype, own)?;
        awake(domain, || {
            let guid = Guid::of(participant);
            let proxy = ddsi_entidx_lookup_proxy_participant_guid((*domain).entity_index, &guid);
            if proxy.is_null()
                || (*proxy).entity.kind != ENTITY_KIND_PROXY_PARTICIPANT
                || (*proxy).entity.guid != guid
            {
                return None;
            }
            let lease = std::ptr::read_volatile(&raw const (*proxy).lease);
            // Its shortest lease: its own, or that of one of its writers.
            if lease.is_null() || (*lease).entity.is_null() {
                return None;
            }
            let of = std::ptr::read(&raw const (*(*lease).entity).guid);
            if of.0[..3] != guid.0[..3] {
                return None;
            }
            let end = std::ptr::read_volatile(&raw const (*lease).end);
            let duration = (*lease).duration;
            (duration > 0).then(|| LeaseState {
                heard: end.saturating_sub(duration),
                end,
            })
        })
    }
}

/// Whether a reader of this process has accepted a HEARTBEAT of a writer in a packet that was read after `since` (elapsed time in nanoseconds).
///
/// Takes the writer's lock, which Cyclone holds while it delivers: must not be called from a sink.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
pub(super) unsafe fn has_heartbeat(
    sertype: *const ddsi_sertype,
    participant: Gid,
    (reader, writer): (Gid, Gid),
    since: i64,
) -> bool {
    // SAFETY: the caller vouches for both; the proxy is read under its lock while this thread is awake.
    unsafe {
        let Some(domain) = domain_of(sertype, participant) else {
            return false;
        };
        awake(domain, || {
            let Some(proxy) = proxy_of(domain, writer) else {
                return false;
            };
            let key = Guid::of(reader);
            let lock = &raw mut (*proxy).entity.lock;
            libc::pthread_mutex_lock(lock);
            let readers = (&raw const (*proxy).readers).cast::<c_void>();
            let found = ddsrt_avl_lookup(&raw const ddsi_pwr_readers_treedef, readers, &key);
            let has = !found.is_null() && (*found).reader == key && (*found).heartbeat_accepted > since;
            libc::pthread_mutex_unlock(lock);
            has
        })
    }
}
