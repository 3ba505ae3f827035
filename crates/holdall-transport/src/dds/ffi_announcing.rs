//! Changes some packets that Cyclone sends (participant announcements and service replies): replaces Cyclone's function for sending.
//!
//! Cyclone has one announcement for all peers, and nothing in its configuration changes that. Each of its connections has a pointer to the
//! function that sends a packet; the one here passes packets on unchanged, except those that [`super::locators`] and [`super::reply_identity`]
//! change. An announcement by multicast leaves each network ([`super::networks`]) twice: to other hosts, with the address of its interface, and to
//! this host (time to live 0), with loopback's. A packet that Cyclone would send from an interface that does not lead to its destination leaves from
//! a socket of this transport. Cyclone's function for reading discovery is replaced, too.
//!
//! The layouts are those of `ddsi__tran.h` and `ddsi_nwinterfaces.h` of Cyclone DDS 11.0.1. A connection is only touched when it points back
//! to its domain and to an interface with an IPv4 address; otherwise Cyclone's behaviour stays unchanged.

use super::{
    ffi_reliability::{DomainGlobals, ENTITY_ID_PARTICIPANT},
    handshake_names::{accepted_by_all, has_handshake},
    keys::{has_key_hash, remove_key_hashes},
    locators::{
        AnnouncedInterface, Change, HEADER_BYTES, announcement_ports, asking_for_heartbeats, change_of,
        is_farewell, keep_reachable, named_destination, needed, split_fragment_requests, with_addresses,
    },
    networks::{GROUP, Networks, Way, socket_address},
    repeats::{GuidPrefix, Repeats},
    reply_identity::{has_reply, with_identities},
};
use cyclors::{dds_entity_t, dds_return_t, ddsrt_iovec_t};
use holdall_io::{mutex::lock, socket::InterfaceAddress};
use holdall_model::{network::Network, topic::Gid};
use std::{
    collections::HashSet,
    ffi::c_void,
    mem,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::fd::{AsRawFd as _, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
};

/// `ddsi_tran_write_msgfrags_t`: the pieces of a packet to send, which follow this header.
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

/// `ddsi_tran_read_fn_t`; the fifth argument begins with the locator that the packet came from.
type Receive =
    unsafe extern "C" fn(*mut Connection, *mut u8, usize, bool, *mut RawLocator, *mut usize) -> i32;

/// The beginning of `struct ddsi_tran_conn`.
#[repr(C)]
pub(super) struct Connection {
    port: u32,
    kind: u32,
    is_multicast: bool,
    domain: *mut DomainGlobals,
    /// `ddsi_tran_handle_fn_t`: the socket.
    socket: unsafe extern "C" fn(*mut Connection) -> i32,
    /// [`Receive`]; read by Cyclone's threads.
    receive: *mut c_void,
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
    allow_multicast: u32,
}

const KIND_UDP_V4: i32 = 1;
/// `ddsi_network_interface::loopback`, a bit field.
const INTERFACE_LOOPBACK: u32 = 1 << 3;

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(Connection, domain) == 16);
    assert!(offset_of!(Connection, receive) == 32);
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

/// How far into `struct dds_domain` to search for its `ddsi_domaingv`; the struct is far larger, because the globals are at its end.
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

/// Cyclone's functions: one of each for all connections, because all of them are UDP.
static CYCLONES: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CYCLONES_RECEIVE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// True when some domain sends some packets in another way than Cyclone; until then, each packet costs one look at this.
static ANY_WAYS: AtomicBool = AtomicBool::new(false);

/// The domains of this process that send through this module.
static DOMAINS: RwLock<Vec<Arc<State>>> = RwLock::new(Vec::new());

/// The means by which a domain sends.
struct State {
    /// Address of the domain's globals.
    domain: usize,
    /// Address of the connection of the loopback interface.
    loopback: Option<usize>,
    networks: RwLock<Networks>,
    /// The last announcement, with all addresses.
    announcement: Mutex<Option<Vec<u8>>>,
    /// Bound to no address; sends the packets that Cyclone's connections do not send.
    anywhere: OnceLock<UdpSocket>,
    /// Sends announcements to a new participant again.
    repeats: Option<Repeats>,
    /// Participants whose packets come from other computers.
    far: Mutex<HashSet<GuidPrefix>>,
}

/// Participants of other computers that are remembered; with more, every participant counts as one of them.
const FAR_MAX: usize = 4_096;

/// Announces a domain's participants to each peer with the addresses that it needs, as long as this lives.
pub(super) struct Announcing(Arc<State>);

impl Announcing {
    /// Starts; `None`, with nothing changed, where Cyclone's connections are not as expected (another transport than UDP over IPv4).
    ///
    /// `is_wide` uses all networks of this computer, not only those of Cyclone's interfaces.
    ///
    /// # Safety
    /// `domain` must be live, without participants yet, and deleted before this value is dropped.
    pub(super) unsafe fn new(domain: dds_entity_t, is_wide: bool) -> Option<Self> {
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
        let state = Arc::new(unsafe { State::new(domain, &connections, is_wide) });
        let mut domains = DOMAINS.write().unwrap_or_else(PoisonError::into_inner);
        domains.push(Arc::clone(&state));
        for (connection, _) in &connections {
            // SAFETY: the pointer is live and aligned; Cyclone's threads read it as one word, before or after.
            unsafe { AtomicPtr::from_ptr(&raw mut (**connection).send) }
                .store(send as *mut c_void, Ordering::Release);
        }
        // SAFETY: as above.
        unsafe { hook_receive(domain) };
        Some(Self(state))
    }

    /// Applies the addresses that this machine has now; announces our participant on networks that have come. `ports` are the domain and the
    /// highest participant index.
    pub(super) fn follow(&self, addresses: &[InterfaceAddress], ports: (u32, u32)) -> Vec<Network> {
        let state = &self.0;
        let (fresh, list) = {
            let mut networks = state.networks.write().unwrap_or_else(PoisonError::into_inner);
            networks.follow(addresses);
            if networks.has_ways() {
                ANY_WAYS.store(true, Ordering::Release);
            }
            (networks.take_fresh(), networks.list())
        };
        let packet = lock(&state.announcement).clone();
        if let Some(packet) = packet.filter(|_| !fresh.is_empty()) {
            // By the domain's rule for ports (RTPS 2.5, 9.6.2.3).
            let group = socket_address(GROUP, 7_400 + 250 * ports.0);
            for address in fresh {
                group.map(|group| state.send_multicast(Some(address), group, &packet));
                self.announce_to(&announcement_ports(address, ports.0, ports.1));
            }
        }
        list
    }

    /// Applies the addresses that this machine has when the domain starts, which Cyclone announces itself.
    pub(super) fn begin(&self, addresses: &[InterfaceAddress]) -> Vec<Network> {
        let mut networks = self.0.networks.write().unwrap_or_else(PoisonError::into_inner);
        networks.follow(addresses);
        networks.forget_fresh();
        if networks.has_ways() {
            ANY_WAYS.store(true, Ordering::Release);
        }
        networks.list()
    }

    /// Whether all packets of discovery that came from a participant came from an address of this computer, where no link can lose them.
    pub(super) fn is_near(&self, participant: Gid) -> bool {
        let far = lock(&self.0.far);
        far.len() < FAR_MAX
            && !participant
                .0
                .first_chunk()
                .is_some_and(|prefix| far.contains(prefix))
    }

    /// Announces our participant to these addresses, which Cyclone does not know; does nothing before Cyclone has announced it once.
    pub(super) fn announce_to(&self, peers: &[SocketAddrV4]) {
        let state = &self.0;
        let packet = lock(&state.announcement).clone();
        let (Some(packet), Some(socket)) = (packet, state.anywhere()) else {
            return;
        };
        let mut last = None;
        for peer in peers {
            if last.as_ref().is_none_or(|(address, _)| address != peer.ip()) {
                last = Some((*peer.ip(), state.for_unicast(&packet, *peer.ip())));
            }
            let Some((_, packet)) = &last else { continue };
            if let Err(error) = socket.send_to(packet, peer) {
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

/// Makes Cyclone read discovery through [`receive`].
///
/// # Safety
/// `domain` must be live and verified, and in [`DOMAINS`].
unsafe fn hook_receive(domain: *const DomainGlobals) {
    // SAFETY: the caller vouches for the domain; a connection is live as long as its domain. Cyclone's threads read the pointer as one word.
    unsafe {
        let [group, _, own, _] = (*domain).connections;
        for connection in [group, own].map(<*mut c_void>::cast::<Connection>) {
            if connection.is_null() || !ptr::eq((*connection).domain, domain) {
                continue;
            }
            let original = (*connection).receive;
            let before = CYCLONES_RECEIVE.swap(original, Ordering::AcqRel);
            if !before.is_null() && before != original {
                CYCLONES_RECEIVE.store(before, Ordering::Release);
                continue;
            }
            AtomicPtr::from_ptr(&raw mut (*connection).receive)
                .store(receive as *mut c_void, Ordering::Release);
        }
    }
}

/// The sockets by which a domain receives multicast: of its participants and of its data.
///
/// # Safety
/// `domain` must be live and verified.
unsafe fn multicast_receivers(domain: *const DomainGlobals) -> Vec<UdpSocket> {
    // SAFETY: the caller vouches for the domain; a connection is live as long as its domain, and so is its socket, which is copied here.
    unsafe {
        let [participants, data, ..] = (*domain).connections;
        let connections = [participants, data].map(<*mut c_void>::cast::<Connection>);
        let sockets = connections.into_iter().filter_map(|connection| {
            let is_ours = !connection.is_null() && ptr::eq((*connection).domain, domain);
            let socket = is_ours.then(|| ((*connection).socket)(connection))?;
            let copy = (socket >= 0).then(|| BorrowedFd::borrow_raw(socket).try_clone_to_owned());
            copy?.ok().map(UdpSocket::from)
        });
        sockets.collect()
    }
}

impl State {
    /// # Safety
    /// The domain and its connections must be live.
    unsafe fn new(
        domain: *const DomainGlobals,
        connections: &[(*mut Connection, AnnouncedInterface)],
        is_wide: bool,
    ) -> Self {
        let interfaces: Vec<_> = connections.iter().map(|(_, interface)| *interface).collect();
        let loopback = connections.iter().find(|(_, interface)| interface.is_loopback);
        // SAFETY: the caller vouches for the connections, whose function takes the connection itself.
        let multicast: Vec<_> = unsafe {
            let able = connections
                .iter()
                .filter(|(connection, _)| sends_multicast(*connection));
            able.map(|(connection, interface)| {
                let hops = multicast_ttl(((**connection).socket)(*connection));
                (interface.address, hops)
            })
            .collect()
        };
        if is_wide && interfaces.iter().all(|interface| interface.is_loopback) {
            for (connection, _) in connections {
                // Cyclone skips other hosts when it has only loopback, but a network may appear. SAFETY: as above; the interface is part of the
                // domain's globals, and no thread reads it before there is a participant.
                unsafe { (*(**connection).interface.cast_mut()).flags &= !INTERFACE_LOOPBACK };
            }
        }
        // SAFETY: the caller vouches for the domain.
        let receivers = unsafe { multicast_receivers(domain) };
        Self {
            domain: domain as usize,
            loopback: loopback.map(|(connection, _)| *connection as usize),
            networks: RwLock::new(Networks::new(is_wide, interfaces, &multicast, receivers)),
            announcement: Mutex::new(None),
            anywhere: OnceLock::new(),
            repeats: Repeats::start()
                .inspect_err(|error| tracing::debug!("announcements are sent once: {error}"))
                .ok(),
            far: Mutex::default(),
        }
    }

    /// Notes the participant that a packet of another computer comes from.
    fn note_far(&self, packet: &[u8]) {
        if let Some(prefix) = packet.get(8..HEADER_BYTES).and_then(<[u8]>::first_chunk) {
            let mut far = lock(&self.far);
            if far.len() < FAR_MAX {
                far.insert(*prefix);
            }
        }
    }

    fn of(domain: usize) -> Option<Arc<Self>> {
        let domains = DOMAINS.read().unwrap_or_else(PoisonError::into_inner);
        domains
            .iter()
            .find(|state| state.domain == domain)
            .map(Arc::clone)
    }

    fn networks(&self) -> RwLockReadGuard<'_, Networks> {
        self.networks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket bound to no address: the system's routes decide by which interface it sends.
    fn anywhere(&self) -> Option<&UdpSocket> {
        if self.anywhere.get().is_none() {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
            let _ = self.anywhere.set(socket);
        }
        self.anywhere.get()
    }

    /// An announcement as a participant at this address needs it.
    fn for_unicast(&self, packet: &[u8], to: Ipv4Addr) -> Vec<u8> {
        let networks = self.networks();
        let addresses = needed(networks.interfaces(), networks.destination(to));
        asking_for_heartbeats(&with_addresses(packet, &addresses))
    }

    /// Sends an announcement to all participants of this computer at a port: one that uses another interface than loopback ignores what
    /// comes from loopback.
    fn to_own_addresses(&self, packet: &[u8], port: u32) {
        let own: Vec<Ipv4Addr> = self.networks().own_addresses().collect();
        let Some(socket) = self.anywhere() else { return };
        for to in own
            .into_iter()
            .filter_map(|address| socket_address(address, port))
        {
            if let Err(error) = socket.send_to(packet, to) {
                tracing::debug!("no announcement to {to}: {error}");
            }
        }
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

    /// Keeps the requests for fragments in a packet for later; returns the rest of the packet, or `None` when the whole packet must be sent now.
    fn postpone(&self, packet: &[u8], to: &RawLocator) -> Option<Option<Vec<u8>>> {
        let (rest, requests) = split_fragment_requests(packet);
        let to = SocketAddrV4::new(to.ipv4()?, u16::try_from(to.port).ok()?);
        self.repeats.as_ref()?.send_later(to, requests).then_some(rest)
    }

    /// Sends an announcement by multicast out of the interface `only`, or of all; false when it has no sockets.
    fn send_multicast(&self, only: Option<Ipv4Addr>, to: SocketAddrV4, packet: &[u8]) -> bool {
        let networks = self.networks();
        networks.each_multicast(only, |socket, destination| {
            let packet = with_addresses(packet, &needed(networks.interfaces(), destination));
            if let Err(error) = socket.send_to(&packet, to) {
                tracing::debug!("no announcement to {to}: {error}");
            }
        })
    }
}

/// Whether Cyclone announces participants by multicast on a connection's interface.
///
/// # Safety
/// The connection must be live.
unsafe fn sends_multicast(connection: *const Connection) -> bool {
    // SAFETY: the caller vouches for the connection; its interface lives as long.
    unsafe { (*(*connection).interface).allow_multicast != 0 }
}

/// How many hops this socket's multicast may take; 1 where the system does not report it.
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

/// `DDS_RETCODE_OK`.
const OK: i32 = 0;

/// Called by Cyclone to send a packet.
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
    // SAFETY: set before this function could be called, and only ever to a `Send`.
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

/// Sends a packet in another way than Cyclone would; `None` when it must be sent unchanged.
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
    // SAFETY: the header is followed by the number of pieces that it states, each readable.
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
    let has_key_hash = has_key_hash(pieces_of());
    // SAFETY: the connection is live, and so are the domain and the interface that it points to.
    let (domain, from) = unsafe {
        (
            (*connection).domain as usize,
            (*(*connection).interface).address.ipv4()?,
        )
    };
    let is_as_written = change.is_none() && !has_reply && !has_handshake && !has_key_hash;
    // Loopback leads to this computer only.
    let is_stray = from.is_loopback() && !address.is_loopback() && !address.is_multicast();
    if is_as_written && !is_stray && !ANY_WAYS.load(Ordering::Acquire) {
        return None;
    }
    let state = State::of(domain)?;
    let way = state.networks().way(from, address);
    let report = |wanted: usize| {
        if !written.is_null() {
            // SAFETY: Cyclone passes null or a writable place.
            unsafe { *written = wanted };
        }
    };
    // SAFETY: Cyclone vouches for the connection, and the loopback connection lives as long as the domain; the pieces are readable.
    let deliver = |pieces: *const Pieces| unsafe {
        match way {
            Way::Cyclones => Some(original(
                connection,
                &raw const *destination,
                pieces,
                flags,
                written,
            )),
            Way::Loopback => {
                // A participant of this host at an address of an interface that is down: loopback still leads there.
                let mut to = *destination;
                to.address[12..].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
                Some(original(
                    state.loopback? as *mut Connection,
                    &raw const to,
                    pieces,
                    flags,
                    written,
                ))
            }
            Way::Routed => {
                let to = socket_address(address, destination.port)?;
                send_anywhere(state.anywhere()?, to, pieces);
                Some(OK)
            }
        }
    };
    if is_as_written {
        if way == Way::Cyclones {
            return None;
        }
        let code = deliver(pieces)?;
        report(pieces_of().map(<[u8]>::len).sum());
        return Some(code);
    }
    let mut packet: Vec<u8> = pieces_of().flatten().copied().collect();
    // Cyclone expects the size that it asked to send.
    let wanted = packet.len();
    if has_reply {
        packet = with_identities(&packet);
    }
    if has_handshake {
        packet = accepted_by_all(&packet);
    }
    if has_key_hash {
        remove_key_hashes(&mut packet);
    }
    let is_announcement = change == Some(Change::Announcement);
    if is_announcement {
        state.remember(&packet);
    }
    if is_announcement && address.is_multicast() {
        let to = socket_address(address, destination.port)?;
        let only = state.networks().only(from);
        if !state.send_multicast(only, to, &packet) {
            return None;
        }
        report(wanted);
        return Some(OK);
    }
    let chosen = if change == Some(Change::FragmentRequest) {
        let Some(rest) = state.postpone(&packet, destination)? else {
            report(wanted);
            return Some(OK);
        };
        rest
    } else if is_announcement {
        state.for_unicast(&packet, address)
    } else {
        asking_for_heartbeats(&packet)
    };
    if is_announcement && address.is_loopback() && named_destination(&packet).is_none() {
        state.to_own_addresses(&chosen, destination.port);
    }
    let one = OnePiece {
        head: Pieces {
            count: 1,
            reserved: iovec(&[]),
        },
        piece: iovec(&chosen),
    };
    let code = deliver((&raw const one).cast())?;
    if is_announcement {
        state.repeat(&chosen, destination);
    }
    if code == OK {
        report(wanted);
    }
    Some(code)
}

/// Sends pieces as one packet, if a route exists.
///
/// # Safety
/// The pieces must be readable.
unsafe fn send_anywhere(socket: &UdpSocket, to: SocketAddrV4, pieces: *const Pieces) {
    // SAFETY: an all-zero address and message are valid; both live until the call returns, and the caller vouches for the pieces, which
    // `sendmsg` only reads.
    let sent = unsafe {
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = to.port().to_be();
        address.sin_addr.s_addr = to.ip().to_bits().to_be();
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        message.msg_iov = pieces.add(1).cast::<libc::iovec>().cast_mut();
        message.msg_iovlen = (*pieces).count;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        // As with a lost packet: reliable messages are sent again.
        tracing::debug!("nothing sent to {to}: {}", std::io::Error::last_os_error());
    }
}

/// Called by Cyclone to receive a packet of discovery.
///
/// # Safety
/// Cyclone calls it with a live connection and a buffer of `room` bytes; `from` may be null, `received` must not.
unsafe extern "C" fn receive(
    connection: *mut Connection,
    buffer: *mut u8,
    room: usize,
    may_be_spurious: bool,
    from: *mut RawLocator,
    received: *mut usize,
) -> i32 {
    let original = CYCLONES_RECEIVE.load(Ordering::Acquire);
    // SAFETY: set before this function could be called, and only ever to a `Receive`; Cyclone vouches for the rest.
    let code = unsafe {
        let original: Receive = mem::transmute(original);
        original(connection, buffer, room, may_be_spurious, from, received)
    };
    if code == OK && !from.is_null() {
        // SAFETY: Cyclone has written `received` bytes and their source. A panic must not unwind into C.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe {
            let packet = slice::from_raw_parts_mut(buffer, (*received).min(room));
            let from = (*from).ipv4()?;
            let state = State::of((*connection).domain as usize)?;
            let networks = state.networks();
            if !networks.is_ours(from) {
                state.note_far(packet);
                if networks.is_wide() {
                    keep_reachable(packet, from, |address| networks.is_ours(address));
                }
            }
            Some(())
        }));
        if outcome.is_err() {
            tracing::error!("an announcement could not be read");
        }
    }
    code
}

fn iovec(bytes: &[u8]) -> ddsrt_iovec_t {
    ddsrt_iovec_t {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}
