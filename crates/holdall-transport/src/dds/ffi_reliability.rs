//! Four parts of the reliability protocol that Cyclone DDS does not expose: the last sequence number that a
//! writer has announced, the first one that a reader requests, the one that it expects next, and when a writer requests acknowledgements.
//!
//! The layouts are those of `dds/ddsi/ddsi_{domaingv,entity,endpoint,proxy_endpoint}.h` of Cyclone DDS 11.0.1
//! on 64-bit systems, as `cyclors` 0.4.0 builds it: one with security (the feature `sros2`), one without. Checks
//! guard against another layout: the domain must contain our own participant's GUID prefix where it is expected,
//! or, as that of a secured participant is made from its certificate, a connection that points back to it; each
//! entity must contain the GUID that was looked up, and each reader our sertype. Where they fail, nothing is done.

use super::ffi_announcing::has_own_connection;
use cyclors::ddsi_sertype;
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::topic::Gid;
use std::{ffi::c_void, ptr, sync::Once, time::Duration};

/// `ddsi_guid_t`: four words in host byte order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Guid(pub [u32; 4]);

impl Guid {
    pub(super) fn of(gid: Gid) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(gid.0.chunks_exact(4)) {
            let mut array = [0; 4];
            array.copy_from_slice(bytes);
            *word = u32::from_be_bytes(array);
        }
        Self(words)
    }
}

/// `ddsi_xlocator_t`.
#[repr(C)]
pub(super) struct Locator {
    connection: *mut c_void,
    kind: i32,
    port: u32,
    address: [u8; 16],
}

/// Size of the fields before `m_tkmap` in `ddsi_domaingv`: flags, log configuration and configuration.
const DOMAIN_HEAD_BYTES: usize = 960 + DOMAIN_SECURITY_BYTES;

/// What the configuration of security and TLS adds to that.
const DOMAIN_SECURITY_BYTES: usize = if cfg!(feature = "sros2") { 72 } else { 0 };

/// The beginning of `struct ddsi_domaingv`.
#[repr(C)]
pub(super) struct DomainGlobals {
    head: [u64; DOMAIN_HEAD_BYTES / 8],
    instance_map: *mut c_void,
    pub entity_index: *mut c_void,
    events: *mut c_void,
    garbage: *mut c_void,
    lease_lock: libc::pthread_mutex_t,
    leases: *mut c_void,
    factories: [*mut c_void; 2],
    /// Its connections for receiving: multicast and its own ports, each for participants first and for data second. Null where it has none.
    pub connections: [*mut c_void; 4],
    /// Its connections for sending, by interface.
    pub transmit_connections: [*mut c_void; 4],
    interface_locators: [Locator; 4],
    listener: *mut c_void,
    participant_generation: u32,
    participant_lock: libc::pthread_mutex_t,
    participant_condition: libc::pthread_cond_t,
    participants: u32,
    deleted_participants: *mut c_void,
    /// The prefix of the GUIDs of this domain's participants: the first word is the same in all.
    pub participant_base: Guid,
}

/// `struct ddsi_entity_common`.
#[repr(C)]
pub(super) struct EntityCommon {
    pub kind: u32,
    pub guid: Guid,
    updated: i64,
    instance: u64,
    instance_entry: *mut c_void,
    pub lock: libc::pthread_mutex_t,
    only_local: bool,
    domain: *mut DomainGlobals,
    tree_node: [*mut c_void; 4],
    qos_lock: libc::pthread_mutex_t,
}

/// `struct ddsi_proxy_endpoint_common`.
#[repr(C)]
struct ProxyEndpointCommon {
    participant: *mut c_void,
    neighbours: [*mut c_void; 2],
    qos: *mut c_void,
    addresses: *mut c_void,
    unicast: Locator,
    group: Guid,
    vendor: [u8; 2],
    sequence: u64,
    type_pair: *mut c_void,
    /// `ddsi_security_info_t`: which parts of it are protected.
    #[cfg(feature = "sros2")]
    security: [u32; 2],
}

/// The beginning of `struct ddsi_proxy_writer`.
#[repr(C)]
pub(super) struct ProxyWriter {
    pub entity: EntityCommon,
    endpoint: ProxyEndpointCommon,
    /// Root of the tree of our readers that are matched.
    pub readers: *mut c_void,
    reliable_readers: i32,
    readers_out_of_sync: i32,
    /// Highest sequence number known, from DATA and HEARTBEAT.
    last_sequence: u64,
    /// Last fragment known of that message, [`ALL_FRAGMENTS`] when all are.
    last_fragment: u32,
    fragment_request_count: u32,
    next_delivered: u32,
    flags: u32,
    liveliness_count: u32,
    defragmenter: *mut c_void,
    /// Holds what arrived too early, and knows what comes next.
    reorder: *mut c_void,
}

const ALL_FRAGMENTS: u32 = u32::MAX;

/// `struct ddsi_endpoint_common`.
#[repr(C)]
struct EndpointCommon {
    participant: *mut c_void,
    group: Guid,
    local_locators: [*mut c_void; 2],
    type_pair: *mut c_void,
}

/// The beginning of `struct ddsi_reader`.
#[repr(C)]
struct LocalReader {
    entity: EntityCommon,
    endpoint: EndpointCommon,
    status_callback: [*mut c_void; 2],
    cache: *mut c_void,
    qos: *mut c_void,
    /// Bit field, see [`READER_RELIABLE`] and [`READER_WANTS_HISTORY`].
    flags: u32,
    acknack_count: u32,
    partition_addresses: [*mut c_void; 2],
    sertype: *const ddsi_sertype,
}

/// The beginning of `struct ddsi_writer`.
#[repr(C)]
struct LocalWriter {
    entity: EntityCommon,
    endpoint: EndpointCommon,
    status_callback: [*mut c_void; 2],
    throttle_condition: libc::pthread_cond_t,
    sequences: [u64; 3],
    heartbeat_counts: [u32; 2],
    throttling: i32,
    /// `ddsi_hbcontrol::t_of_last_write`, in nanoseconds of the monotonic clock.
    last_write: u64,
}

/// `ddsi_reader::reliable`.
const READER_RELIABLE: u32 = 1;
/// `ddsi_reader::handle_as_transient_local`: read when a writer is matched.
const READER_WANTS_HISTORY: u32 = 2;

const ENTITY_KIND_WRITER: u32 = 3;
const ENTITY_KIND_PROXY_WRITER: u32 = 4;
const ENTITY_KIND_READER: u32 = 5;
pub(super) const ENTITY_ID_PARTICIPANT: u32 = 0x1c1;

// As `offsetof` reports on x86_64; mutexes and condition variables differ on other systems, and so do the
// offsets of all fields after them.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
const _: () = {
    use std::mem::offset_of;
    // With security, and without.
    const fn either(secured: usize, plain: usize) -> usize {
        if cfg!(feature = "sros2") { secured } else { plain }
    }
    assert!(offset_of!(DomainGlobals, entity_index) == either(1040, 968));
    assert!(offset_of!(DomainGlobals, transmit_connections) == either(1160, 1088));
    assert!(offset_of!(DomainGlobals, listener) == either(1320, 1248));
    assert!(offset_of!(DomainGlobals, participant_base) == either(1440, 1368));
    assert!(offset_of!(EntityCommon, lock) == 48);
    assert!(offset_of!(EntityCommon, domain) == 96);
    assert!(offset_of!(EntityCommon, qos_lock) == 136);
    assert!(offset_of!(ProxyWriter, endpoint) == 176);
    assert!(offset_of!(ProxyWriter, last_sequence) == either(312, 304));
    assert!(offset_of!(ProxyWriter, last_fragment) == either(320, 312));
    assert!(offset_of!(ProxyWriter, reorder) == either(352, 344));
    assert!(offset_of!(LocalReader, flags) == 256);
    assert!(offset_of!(LocalReader, sertype) == 280);
    assert!(offset_of!(LocalWriter, last_write) == 328);
};

unsafe extern "C" {
    fn ddsi_lookup_thread_state_real() -> *mut c_void;
    fn ddsi_thread_state_awake(thread: *mut c_void, domain: *const DomainGlobals);
    fn ddsi_thread_state_asleep(thread: *mut c_void);
    fn ddsi_entidx_lookup_proxy_writer_guid(index: *const c_void, guid: *const Guid) -> *mut ProxyWriter;
    fn ddsi_entidx_lookup_participant_guid(index: *const c_void, guid: *const Guid) -> *mut EntityCommon;
    fn ddsi_entidx_lookup_writer_guid(index: *const c_void, guid: *const Guid) -> *mut EntityCommon;
    fn ddsi_writer_max_drop_seq(writer: *const EntityCommon) -> u64;
    fn ddsi_reorder_next_seq(reorder: *const c_void) -> u64;
    fn ddsi_reorder_set_next_seq(reorder: *mut c_void, sequence: u64);
    fn ddsi_reorder_drop_upto(reorder: *mut c_void, end: u64);
    fn ddsi_entidx_lookup_reader_guid(index: *const c_void, guid: *const Guid) -> *mut LocalReader;
}

/// The domain that a sertype is registered with, when its layout is the expected one.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
pub(super) unsafe fn domain_of(
    sertype: *const ddsi_sertype,
    participant: Gid,
) -> Option<*const DomainGlobals> {
    // SAFETY: registration has set the field to the domain's globals, which live as long as the domain.
    let domain = unsafe { *(&raw const (*sertype).gv).cast::<*const DomainGlobals>() };
    if domain.is_null() {
        return None;
    }
    // SAFETY: `ddsi_domaingv` is much larger than `DomainGlobals`, so the read stays inside whatever its layout is.
    let base = unsafe { ptr::read(&raw const (*domain).participant_base) };
    // SAFETY: as above.
    let is_expected = base.0[3] == ENTITY_ID_PARTICIPANT
        && (base.0[0] == Guid::of(participant).0[0] || unsafe { has_own_connection(domain) });
    if is_expected {
        return Some(domain);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "some losses at head and tail cannot be counted: Cyclone DDS has an unexpected memory layout"
        );
    });
    None
}

/// Runs `with` while this thread is awake, in Cyclone's term: entities that are looked up are not freed until
/// then.
///
/// # Safety
/// `domain` must be live.
pub(super) unsafe fn awake<T>(domain: *const DomainGlobals, with: impl FnOnce() -> T) -> T {
    // SAFETY: each `awake` is followed by an `asleep` on the same thread; `with` does not panic.
    unsafe {
        let thread = ddsi_lookup_thread_state_real();
        ddsi_thread_state_awake(thread, domain);
        let outcome = with();
        ddsi_thread_state_asleep(thread);
        outcome
    }
}

/// Whether one of our participants is still in its domain: Cyclone deletes one whose certificate or permissions expire, but keeps its handles.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be one that was of that domain.
pub(super) unsafe fn takes_part(sertype: *const ddsi_sertype, participant: Gid) -> bool {
    // SAFETY: the caller vouches for both; the entity is only compared with null.
    unsafe {
        domain_of(sertype, participant).is_none_or(|domain| {
            awake(domain, || {
                let index = (*domain).entity_index;
                !ddsi_entidx_lookup_participant_guid(index, &Guid::of(participant)).is_null()
            })
        })
    }
}

/// Makes a volatile reliable reader request all that writers still keep for it, from each writer that it
/// matches from now on.
///
/// A writer that matches us first sends at once; until we have matched it as well, we do not receive its
/// messages. Cyclone would then begin with the next one; other vendors' writers send the first ones again on
/// request.
///
/// # Safety
/// `sertype` must be registered with a live domain, `participant` be of that domain, and `reader` one of its readers.
pub(super) unsafe fn ask_late_writers_for_all(sertype: *const ddsi_sertype, participant: Gid, reader: Gid) {
    // SAFETY: the caller vouches for all three. The reader's flags are changed under its lock; no other code
    // changes them after creation.
    unsafe {
        let Some(domain) = domain_of(sertype, participant) else {
            return;
        };
        awake(domain, || {
            let local = ddsi_entidx_lookup_reader_guid((*domain).entity_index, &Guid::of(reader));
            if local.is_null()
                || (*local).entity.kind != ENTITY_KIND_READER
                || (*local).entity.guid != Guid::of(reader)
                || (*local).sertype != sertype
                || (*local).flags & READER_RELIABLE == 0
            {
                return;
            }
            let lock = &raw mut (*local).entity.lock;
            libc::pthread_mutex_lock(lock);
            (*local).flags |= READER_WANTS_HISTORY;
            libc::pthread_mutex_unlock(lock);
        });
    }
}

/// The last sequence numbers that `writers` have announced, for those that are known and have announced any.
///
/// Takes each writer's lock, which Cyclone holds while it delivers: must not be called from a sink.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
pub(super) unsafe fn announced_sequences(
    sertype: *const ddsi_sertype,
    participant: Gid,
    writers: &[Gid],
) -> Vec<(Gid, u64)> {
    // SAFETY: the caller vouches for both; writers are looked up and read while this thread is awake.
    unsafe {
        let Some(domain) = domain_of(sertype, participant) else {
            return Vec::new();
        };
        let last = |gid: &Gid| {
            let writer = ddsi_entidx_lookup_proxy_writer_guid((*domain).entity_index, &Guid::of(*gid));
            Some((*gid, last_sequence(writer, *gid)?))
        };
        awake(domain, || writers.iter().filter_map(last).collect())
    }
}

/// The last sequence number that all matched reliable readers of one of our writers have acknowledged; the last one written where there is no
/// such reader.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
pub(super) unsafe fn acknowledged_sequence(
    sertype: *const ddsi_sertype,
    participant: Gid,
    writer: Gid,
) -> Option<u64> {
    // SAFETY: the caller vouches for both; the writer is read under its lock, as Cyclone does.
    unsafe {
        with_locked_writer(sertype, participant, writer, |local| {
            ddsi_writer_max_drop_seq(local.cast())
        })
    }
}

/// Runs `with` with one of our writers and its lock held, while this thread is awake; `None` when the writer is gone.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
unsafe fn with_locked_writer<T>(
    sertype: *const ddsi_sertype,
    participant: Gid,
    writer: Gid,
    with: impl FnOnce(*mut LocalWriter) -> T,
) -> Option<T> {
    // SAFETY: the caller vouches for both; the entity is not freed while this thread is awake.
    unsafe {
        let domain = domain_of(sertype, participant)?;
        awake(domain, || {
            let index = (*domain).entity_index;
            let local = ddsi_entidx_lookup_writer_guid(index, &Guid::of(writer)).cast::<LocalWriter>();
            if local.is_null()
                || (*local).entity.kind != ENTITY_KIND_WRITER
                || (*local).entity.guid != Guid::of(writer)
            {
                return None;
            }
            let lock = &raw mut (*local).entity.lock;
            libc::pthread_mutex_lock(lock);
            let outcome = with(local);
            libc::pthread_mutex_unlock(lock);
            Some(outcome)
        })
    }
}

/// Makes the next message of one of our writers request an acknowledgement from its reliable readers.
///
/// With a KEEP_LAST history, Cyclone requests acknowledgements only after a message that came 8 ms after the one before, so that a stream of more
/// than 125 messages a second is acknowledged only when it ends. Here the time that it compares is set to "long ago".
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
pub(super) unsafe fn request_acknowledgement(sertype: *const ddsi_sertype, participant: Gid, writer: Gid) {
    // SAFETY: the caller vouches for both; the writer is changed under its lock, as Cyclone does.
    unsafe {
        with_locked_writer(sertype, participant, writer, |local| {
            // With another layout, something else would be there. Cyclone uses this clock, too.
            let now = SystemClock.monotonic();
            let written = Duration::from_nanos((*local).last_write);
            if (now.saturating_sub(RECENT)..=now).contains(&written) {
                (*local).last_write = 0;
            }
        });
    }
}

/// A writer that requests acknowledgements has written more recently than that.
const RECENT: Duration = Duration::from_secs(3600);

/// A reader that expects a number further than this from the next real one was misled by a forged one.
const MISLED_FROM: u64 = 100_000;

/// `DDSI_MAX_SEQ_NUMBER`.
const SEQUENCE_MAX: u64 = i64::MAX as u64;

/// Lets a writer's proxy expect number `next` again, after a forged DATA, GAP or HEARTBEAT with a number far away: a proxy of a best-effort
/// writer drops everything before the highest number that it has seen, one of a reliable writer drops what a HEARTBEAT has declared gone. Messages
/// that the proxy holds out of order are dropped, because one may be forged; a reliable writer sends the rest again. A proxy whose deliveries were
/// not misled only forgets the highest number.
///
/// Takes the writer's lock, which Cyclone holds while it delivers: must not be called from a sink.
///
/// # Safety
/// `sertype` must be registered with a live domain, and `participant` be of that domain.
pub(super) unsafe fn expect_next(sertype: *const ddsi_sertype, participant: Gid, writer: Gid, next: u64) {
    // SAFETY: the caller vouches for both; the writer is looked up and changed while this thread is awake, under its lock, as Cyclone does.
    // Nothing but delivery, which holds the lock too, uses the reorder buffer.
    unsafe {
        let Some(domain) = domain_of(sertype, participant) else {
            return;
        };
        awake(domain, || {
            let proxy = ddsi_entidx_lookup_proxy_writer_guid((*domain).entity_index, &Guid::of(writer));
            if !is_proxy_of(proxy, writer) {
                return;
            }
            let lock = &raw mut (*proxy).entity.lock;
            libc::pthread_mutex_lock(lock);
            let reorder = (*proxy).reorder;
            let expected = ddsi_reorder_next_seq(reorder);
            let is_misled = expected.saturating_sub(next) > MISLED_FROM;
            let expected = if is_misled { next } else { expected };
            ddsi_reorder_drop_upto(reorder, SEQUENCE_MAX);
            ddsi_reorder_set_next_seq(reorder, expected);
            (*proxy).last_sequence = expected - 1;
            (*proxy).last_fragment = ALL_FRAGMENTS;
            libc::pthread_mutex_unlock(lock);
        });
    }
}

/// Whether an entity is the proxy of this writer.
///
/// # Safety
/// `writer` must be null or what the entity index returned while this thread is awake.
unsafe fn is_proxy_of(writer: *const ProxyWriter, gid: Gid) -> bool {
    // SAFETY: kind and GUID never change after creation and are the first fields of every entity.
    !writer.is_null()
        && unsafe {
            (*writer).entity.kind == ENTITY_KIND_PROXY_WRITER && (*writer).entity.guid == Guid::of(gid)
        }
}

/// The proxy of a writer, while this thread is awake.
///
/// # Safety
/// `domain` must be live, and this thread awake.
pub(super) unsafe fn proxy_of(domain: *const DomainGlobals, writer: Gid) -> Option<*mut ProxyWriter> {
    // SAFETY: the caller vouches for both.
    unsafe {
        let proxy = ddsi_entidx_lookup_proxy_writer_guid((*domain).entity_index, &Guid::of(writer));
        is_proxy_of(proxy, writer).then_some(proxy)
    }
}

/// # Safety
/// `writer` must be null or what the entity index returned while this thread is awake.
unsafe fn last_sequence(writer: *mut ProxyWriter, gid: Gid) -> Option<u64> {
    // SAFETY: as the caller vouches.
    if !unsafe { is_proxy_of(writer, gid) } {
        return None;
    }
    // SAFETY: the lock is initialized and is not held by this thread, which is not in a listener.
    let last = unsafe {
        let lock = &raw mut (*writer).entity.lock;
        libc::pthread_mutex_lock(lock);
        let last = (*writer).last_sequence;
        libc::pthread_mutex_unlock(lock);
        last
    };
    (last > 0).then_some(last)
}
