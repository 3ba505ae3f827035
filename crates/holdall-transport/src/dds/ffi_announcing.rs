//! Changes some packets that Cyclone sends, participant announcements and replies of services: a function in the place of Cyclone's own for sending.
//!
//! Cyclone has one announcement for all peers, and nothing in its configuration changes that. Each of its connections has a pointer to the
//! function that sends a packet; ours passes packets on unchanged but for those that [`super::locators`] and [`super::reply_identity`] are about.
//! An announcement by multicast leaves twice: to other hosts, with the address of its interface, and to this host (time to live 0), with
//! loopback's.
//!
//! The layouts are those of `ddsi__tran.h` and `ddsi_nwinterfaces.h` of Cyclone DDS 11.0.1. A connection is only touched when it points back
//! to its domain and to an interface with an IPv4 address; else everything stays as Cyclone does it.

use super::{
    ffi_reliability::{DomainGlobals, ENTITY_ID_PARTICIPANT},
    handshake_names::{accepted_by_all, has_handshake},
    locators::{
        AnnouncedInterface, Change, Destination, asking_for_heartbeats, change_of, is_farewell,
        named_destination, needed, split_fragment_requests, unicast_destination, with_addresses,
    },
    repeats::Repeats,
    reply_identity::{has_reply, with_identities},
};
use cyclors::{dds_entity_t, dds_return_t, ddsrt_iovec_t};
use holdall_io::mutex::lock;
use std::{
    collections::BTreeSet,
    ffi::c_void,
    net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
};

/// `ddsi_tran_write_msgfrags_t`: what a packet is sent from. The pieces follow this header.
#[repr(C)]
struct Pieces {
    count: usize,
    reserved: ddsrt_iovec_t,
}

/// [`Pieces`] with one piece.
#[repr(C)]
struct OnePiece {
    head: Pieces,
    piece: ddsrt_iovec_t,
}

/// `ddsi_tran_write_fn_t`.
type Send = unsafe extern "C" fn(*mut Connection, *const RawLocator, *const Pieces, u32, *mut usize) -> i32;

/// The beginning of `struct ddsi_tran_conn`.
#[repr(C)]
pub(super) struct Connection {
    port: u32,
    kind: u32,
    is_multicast: bool,
    domain: *mut DomainGlobals,
    /// `ddsi_tran_handle_fn_t`: the socket.
    socket: unsafe extern "C" fn(*mut Connection) -> i32,
    read: *mut c_void,
    /// [`Send`]; read by Cyclone's threads.
    send: *mut c_void,
    others: [*mut c_void; 3],
    flags: [bool; 4],
    references: u32,
    interface: *const NetworkInterface,
}

/// `ddsi_locator_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawLocator {
    kind: i32,
    port: u32,
    address: [u8; 16],
}

impl RawLocator {
    /// The IPv4 address, which is in the last four bytes.
    fn ipv4(&self) -> Option<Ipv4Addr> {
        let [.., a, b, c, d] = self.address;
        (self.kind == KIND_UDP_V4).then(|| Ipv4Addr::new(a, b, c, d))
    }
}

/// The beginning of `struct ddsi_network_interface`.
#[repr(C)]
struct NetworkInterface {
    address: RawLocator,
    announced: RawLocator,
    mask: RawLocator,
    index: u32,
    flags: u32,
}

const KIND_UDP_V4: i32 = 1;
/// `ddsi_network_interface::loopback`, a bit field.
const INTERFACE_LOOPBACK: u32 = 1 << 3;

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(Connection, domain) == 16);
    assert!(offset_of!(Connection, send) == 40);
    assert!(offset_of!(Connection, interface) == 80);
    assert!(offset_of!(NetworkInterface, flags) == 76);
    assert!(size_of::<Pieces>() == 24 && offset_of!(OnePiece, piece) == 24);
};

unsafe extern "C" {
    /// The struct of an entity (`dds__entity.h`), which stays until it is unpinned.
    fn dds_entity_pin(handle: dds_entity_t, entity: *mut *mut c_void) -> dds_return_t;
    fn dds_entity_unpin(entity: *mut c_void);
}

/// How far into `struct dds_domain` its `ddsi_domaingv` is searched; the struct is larger by far, as the globals end it.
const GLOBALS_OFFSET_MAX: usize = 2_048;

/// The globals of a domain.
///
/// They are part of `struct dds_domain`, after members of many sizes. The right place is where the first GUID is one of a participant and
/// the first connection points back to that very place.
///
/// # Safety
/// `domain` must be a live domain.
unsafe fn globals_of(domain: dds_entity_t) -> Option<*const DomainGlobals> {
    // SAFETY: the caller vouches for the domain. All reads but the last are inside of `struct dds_domain`, which is larger than the furthest
    // place and `DomainGlobals`; a pointer is followed only where a participant's GUID is in front of it, so that it is a connection.
    unsafe {
        let mut entity = ptr::null_mut();
        if dds_entity_pin(domain, &raw mut entity) < 0 {
            return None;
        }
        let found = (0..GLOBALS_OFFSET_MAX).step_by(8).find_map(|offset| {
            let globals = entity.byte_add(offset).cast::<DomainGlobals>().cast_const();
            has_own_connection(globals).then_some(globals)
        });
        dds_entity_unpin(entity);
        found
    }
}

/// Whether these are a domain's globals: they have a participant's GUID, and a connection that points back to them.
///
/// # Safety
/// All of `DomainGlobals` must be readable there.
pub(super) unsafe fn has_own_connection(globals: *const DomainGlobals) -> bool {
    // SAFETY: the caller vouches for the globals; a pointer is followed only where a participant's GUID is in front of it, so that it is a
    // connection.
    unsafe {
        let connection = (*globals).transmit_connections[0].cast::<Connection>();
        (*globals).participant_base.0[3] == ENTITY_ID_PARTICIPANT
            && !connection.is_null()
            && connection.is_aligned()
            && ptr::eq((*connection).domain, globals)
    }
}

/// Cyclone's own function; one for all connections, as all of ours are UDP.
static CYCLONES: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Some domain had an address that is gone: so long as none had, packets pass with one look at this.
static ANY_GONE: AtomicBool = AtomicBool::new(false);

/// The domains of this process that send through us.
static DOMAINS: RwLock<Vec<Arc<State>>> = RwLock::new(Vec::new());

/// What a domain sends with.
struct State {
    /// Address of the domain's globals.
    domain: usize,
    interfaces: Vec<AnnouncedInterface>,
    /// Address of the connection of the loopback interface.
    loopback: Option<usize>,
    /// By interface address: sockets for other hosts and for this one.
    multicast: Vec<(Ipv4Addr, UdpSocket, UdpSocket)>,
    own: RwLock<OwnAddresses>,
    /// Some address that was ours is gone: looked at with each packet.
    has_gone: AtomicBool,
    /// The last announcement, with all addresses.
    announcement: Mutex<Option<Vec<u8>>>,
    /// For announcements to peers that Cyclone does not know.
    to_peers: OnceLock<UdpSocket>,
    /// Sends announcements to a new participant again.
    repeats: Option<Repeats>,
}

#[derive(Default)]
struct OwnAddresses {
    /// All that this machine has, or had.
    known: BTreeSet<Ipv4Addr>,
    /// Those that it has no more.
    gone: BTreeSet<Ipv4Addr>,
}

/// Announces a domain's participants to each peer with the addresses that it needs, as long as this lives.
pub(super) struct Announcing(Arc<State>);

impl Announcing {
    /// Begins; `None` where Cyclone's connections are not as expected (another transport than UDP over IPv4), and nothing is changed.
    ///
    /// # Safety
    /// `domain` must be live, without participants yet, and deleted before this goes.
    pub(super) unsafe fn new(domain: dds_entity_t) -> Option<Self> {
        // SAFETY: the caller vouches for the domain.
        let domain = unsafe { globals_of(domain) }?;
        // SAFETY: as above; its connections live as long as it does.
        let connections = unsafe { connections_of(domain) }?;
        // SAFETY: as above.
        let original = unsafe { (*connections.first()?.0).send };
        // SAFETY: as above.
        let all_same = connections
            .iter()
            .all(|(connection, _)| unsafe { (**connection).send } == original);
        if !all_same || original.is_null() || original == send as *mut c_void {
            return None;
        }
        let others = CYCLONES.swap(original, Ordering::AcqRel);
        if !others.is_null() && others != original {
            CYCLONES.store(others, Ordering::Release);
            return None;
        }
        // SAFETY: as above.
        let state = Arc::new(unsafe { State::new(domain as usize, &connections) });
        let mut domains = DOMAINS.write().unwrap_or_else(PoisonError::into_inner);
        domains.push(Arc::clone(&state));
        for (connection, _) in &connections {
            // SAFETY: the pointer is live and aligned; Cyclone's threads read it as one word, before or after.
            unsafe { AtomicPtr::from_ptr(&raw mut (**connection).send) }
                .store(send as *mut c_void, Ordering::Release);
        }
        Some(Self(state))
    }

    /// Takes note of the addresses that this machine has now.
    pub(super) fn set_own_addresses(&self, addresses: &BTreeSet<Ipv4Addr>) {
        let mut own = self.0.own.write().unwrap_or_else(PoisonError::into_inner);
        own.known.extend(addresses);
        own.gone = own.known.difference(addresses).copied().collect();
        self.0.has_gone.store(!own.gone.is_empty(), Ordering::Release);
        if !own.gone.is_empty() {
            ANY_GONE.store(true, Ordering::Release);
        }
    }

    /// Announces our participant to these addresses, which Cyclone does not know; does nothing before Cyclone has announced it once.
    pub(super) fn announce_to(&self, peers: &[SocketAddrV4]) {
        let state = &self.0;
        let packet = lock(&state.announcement).clone();
        let socket = state.to_peers.get().map_or_else(
            || {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
                Some(state.to_peers.get_or_init(|| socket))
            },
            Some,
        );
        let (Some(packet), Some(socket)) = (packet, socket) else {
            return;
        };
        for peer in peers {
            let packet = with_addresses(&packet, &needed(&state.interfaces, state.destination(*peer.ip())));
            if let Err(error) = socket.send_to(&packet, peer) {
                tracing::debug!("no announcement to {peer}: {error}");
            }
        }
    }
}

impl Drop for Announcing {
    fn drop(&mut self) {
        let mut domains = DOMAINS.write().unwrap_or_else(PoisonError::into_inner);
        domains.retain(|state| state.domain != self.0.domain);
    }
}

/// The UDP connections that a domain sends with, and their interfaces; `None` when one is not as expected.
///
/// # Safety
/// `domain` must be live and verified.
unsafe fn connections_of(domain: *const DomainGlobals) -> Option<Vec<(*mut Connection, AnnouncedInterface)>> {
    // SAFETY: the caller vouches for the domain; a connection is live as long as its domain, and so is the interface that it points to.
    unsafe {
        let mut found = Vec::new();
        for connection in (*domain).transmit_connections {
            if connection.is_null() {
                continue;
            }
            let connection = connection.cast::<Connection>();
            let interface = (*connection).interface;
            if !ptr::eq((*connection).domain, domain) || interface.is_null() {
                return None;
            }
            found.push((
                connection,
                AnnouncedInterface {
                    address: (*interface).address.ipv4()?,
                    announced: (*interface).announced.ipv4()?,
                    mask: (*interface).mask.ipv4()?,
                    is_loopback: (*interface).flags & INTERFACE_LOOPBACK != 0,
                },
            ));
        }
        (!found.is_empty()).then_some(found)
    }
}

impl State {
    /// # Safety
    /// The connections must be live.
    unsafe fn new(domain: usize, connections: &[(*mut Connection, AnnouncedInterface)]) -> Self {
        let interfaces: Vec<_> = connections.iter().map(|(_, interface)| *interface).collect();
        let loopback = connections.iter().find(|(_, interface)| interface.is_loopback);
        let multicast = connections.iter().filter_map(|(connection, interface)| {
            let address = interface.address;
            // SAFETY: the caller vouches for the connection, whose function takes the connection itself.
            let hops = unsafe { multicast_ttl(((**connection).socket)(*connection)) };
            Some((
                address,
                multicast_socket(address, Some(hops))?,
                multicast_socket(address, None)?,
            ))
        });
        Self {
            domain,
            loopback: loopback.map(|(connection, _)| *connection as usize),
            multicast: multicast.collect(),
            own: RwLock::new(OwnAddresses {
                known: interfaces.iter().map(|interface| interface.address).collect(),
                gone: BTreeSet::new(),
            }),
            interfaces,
            has_gone: AtomicBool::new(false),
            announcement: Mutex::new(None),
            to_peers: OnceLock::new(),
            repeats: Repeats::start()
                .inspect_err(|error| tracing::debug!("announcements are sent once: {error}"))
                .ok(),
        }
    }

    fn of(domain: usize) -> Option<Arc<Self>> {
        let domains = DOMAINS.read().unwrap_or_else(PoisonError::into_inner);
        domains
            .iter()
            .find(|state| state.domain == domain)
            .map(Arc::clone)
    }

    fn destination(&self, address: Ipv4Addr) -> Destination {
        unicast_destination(
            address,
            &self.own.read().unwrap_or_else(PoisonError::into_inner).known,
        )
    }

    fn is_gone(&self, address: Ipv4Addr) -> bool {
        self.own
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .gone
            .contains(&address)
    }

    /// Keeps an announcement that is meant for all, until a farewell.
    fn remember(&self, packet: &[u8]) {
        let mut announcement = lock(&self.announcement);
        if is_farewell(packet) {
            *announcement = None;
            self.repeats.iter().for_each(Repeats::stop);
        } else if named_destination(packet).is_none() {
            *announcement = Some(packet.to_vec());
        }
    }

    /// Sends an announcement to one participant again, which may not listen yet.
    fn repeat(&self, packet: &[u8], to: &RawLocator) {
        let address = to.ipv4().zip(u16::try_from(to.port).ok());
        let (Some(repeats), Some((address, port))) = (&self.repeats, address) else {
            return;
        };
        if !is_farewell(packet)
            && let Some(participant) = named_destination(packet)
        {
            repeats.add(participant, SocketAddrV4::new(address, port), packet);
        }
    }

    /// Keeps the requests for fragments in a packet for later; `None` when the whole packet is to be sent now, else the rest of it.
    fn postpone(&self, packet: &[u8], to: &RawLocator) -> Option<Option<Vec<u8>>> {
        let (rest, requests) = split_fragment_requests(packet);
        let to = SocketAddrV4::new(to.ipv4()?, u16::try_from(to.port).ok()?);
        self.repeats.as_ref()?.send_later(to, requests).then_some(rest)
    }

    /// Sends an announcement by multicast; false when there are no sockets for that interface.
    fn send_multicast(&self, from: Ipv4Addr, to: SocketAddrV4, packet: &[u8]) -> bool {
        let Some((_, to_others, to_us)) = self.multicast.iter().find(|(address, ..)| *address == from) else {
            return false;
        };
        for (socket, destination) in [
            (to_others, Destination::Neighbours(from)),
            (to_us, Destination::ThisHost),
        ] {
            let packet = with_addresses(packet, &needed(&self.interfaces, destination));
            if let Err(error) = socket.send_to(&packet, to) {
                tracing::debug!("no announcement to {to} from {from}: {error}");
            }
        }
        true
    }
}

/// How many hops multicast may take that this socket sends; 1 where the system does not say.
fn multicast_ttl(socket: i32) -> u32 {
    let mut hops = 1u32;
    let mut len = libc::socklen_t::try_from(size_of::<u32>()).unwrap_or(4);
    // SAFETY: `hops` and `len` are writable and of the sizes given; a closed descriptor only makes the call fail.
    unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_TTL,
            (&raw mut hops).cast(),
            &raw mut len,
        );
    }
    hops
}

/// A socket that sends multicast out of the interface with this address: to other hosts so many hops away, or to this one only.
fn multicast_socket(from: Ipv4Addr, hops: Option<u32>) -> Option<UdpSocket> {
    // Linux sends multicast out of the interface that has the address that the socket is bound to.
    let open = || {
        let socket = UdpSocket::bind((IpAddr::V4(from), 0))?;
        socket.set_multicast_loop_v4(hops.is_none())?;
        socket.set_multicast_ttl_v4(hops.unwrap_or(0))?;
        socket.set_nonblocking(true)?;
        Ok::<_, std::io::Error>(socket)
    };
    open()
        .inspect_err(|error| tracing::debug!("no socket for announcements from {from}: {error}"))
        .ok()
}

/// `DDS_RETCODE_OK`.
const OK: i32 = 0;

/// What Cyclone calls to send a packet.
///
/// # Safety
/// Cyclone calls it with a live connection, destination and pieces; `written` may be null.
unsafe extern "C" fn send(
    connection: *mut Connection,
    destination: *const RawLocator,
    pieces: *const Pieces,
    flags: u32,
    written: *mut usize,
) -> i32 {
    let original = CYCLONES.load(Ordering::Acquire);
    // SAFETY: set before this function could be called, and never to anything else than a `Send`.
    let original: Send = unsafe { std::mem::transmute(original) };
    // SAFETY: Cyclone vouches for all pointers. A panic must not unwind into C.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe {
        changed(original, connection, &*destination, pieces, flags, written)
    }));
    match outcome {
        Ok(Some(code)) => code,
        // SAFETY: as Cyclone has called us.
        _ => unsafe { original(connection, destination, pieces, flags, written) },
    }
}

/// Sends a packet otherwise than Cyclone would; `None` when it is to be sent unchanged.
///
/// # Safety
/// As for [`send`].
unsafe fn changed(
    original: Send,
    connection: *mut Connection,
    destination: &RawLocator,
    pieces: *const Pieces,
    flags: u32,
    written: *mut usize,
) -> Option<i32> {
    // SAFETY: the pieces follow the header, as many as it says, each readable.
    let pieces_of = || unsafe {
        let first = pieces.add(1).cast::<ddsrt_iovec_t>();
        slice::from_raw_parts(first, (*pieces).count)
            .iter()
            .map(|piece| slice::from_raw_parts(piece.iov_base.cast::<u8>().cast_const(), piece.iov_len))
    };
    let address = destination.ipv4()?;
    let change = change_of(pieces_of());
    let has_reply = has_reply(pieces_of());
    let has_handshake = has_handshake(pieces_of());
    // SAFETY: the connection is live, and so is the domain that it points to.
    let domain = unsafe { (*connection).domain } as usize;
    let state = if change.is_some() || has_reply || has_handshake || ANY_GONE.load(Ordering::Acquire) {
        State::of(domain)?
    } else {
        return None;
    };
    let mut to = (connection, *destination);
    if !address.is_multicast() && state.has_gone.load(Ordering::Acquire) && state.is_gone(address) {
        // A participant of this host at an address of an interface that is down: loopback still leads there.
        to.0 = state.loopback? as *mut Connection;
        to.1.address[12..].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    }
    if change.is_none() && !has_reply && !has_handshake {
        // SAFETY: the loopback connection lives as long as the domain.
        return Some(unsafe { original(to.0, &raw const to.1, pieces, flags, written) });
    }
    let mut packet: Vec<u8> = pieces_of().flatten().copied().collect();
    // Cyclone expects as much as it wanted to send.
    let wanted = packet.len();
    if has_reply {
        packet = with_identities(&packet);
    }
    if has_handshake {
        packet = accepted_by_all(&packet);
    }
    let is_announcement = change == Some(Change::Announcement);
    if is_announcement {
        state.remember(&packet);
    }
    if is_announcement && address.is_multicast() {
        // SAFETY: the interface lives as long as the connection.
        let from = unsafe { (*(*connection).interface).address.ipv4()? };
        let port = u16::try_from(destination.port).ok()?;
        if !state.send_multicast(from, SocketAddrV4::new(address, port), &packet) {
            return None;
        }
        if !written.is_null() {
            // SAFETY: Cyclone passes null or a writable place.
            unsafe { *written = wanted };
        }
        return Some(OK);
    }
    let chosen = if change == Some(Change::FragmentRequest) {
        let Some(rest) = state.postpone(&packet, &to.1)? else {
            if !written.is_null() {
                // SAFETY: as above.
                unsafe { *written = wanted };
            }
            return Some(OK);
        };
        rest
    } else if is_announcement {
        let addresses = needed(&state.interfaces, state.destination(address));
        asking_for_heartbeats(&with_addresses(&packet, &addresses))
    } else {
        asking_for_heartbeats(&packet)
    };
    let one = OnePiece {
        head: Pieces {
            count: 1,
            reserved: iovec(&[]),
        },
        piece: iovec(&chosen),
    };
    // SAFETY: `one` points to `chosen`, and both live until the call returns.
    let code = unsafe { original(to.0, &raw const to.1, (&raw const one).cast(), flags, written) };
    if is_announcement {
        state.repeat(&chosen, &to.1);
    }
    if !written.is_null() && code == OK {
        // SAFETY: as above.
        unsafe { *written = wanted };
    }
    Some(code)
}

fn iovec(bytes: &[u8]) -> ddsrt_iovec_t {
    ddsrt_iovec_t {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}
