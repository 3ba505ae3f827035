//! Changes some packets that Cyclone sends (participant announcements and service replies): replaces Cyclone's function for sending.
//!
//! Cyclone has one announcement for all peers, and nothing in its configuration changes that. Each of its connections has a pointer to the
//! function that sends a packet; the one here passes packets on unchanged, except those that [`crate::dds::wire::locators`] and [`crate::dds::wire::reply_identity`]
//! change. An announcement by multicast leaves each network ([`crate::dds::reach::networks`]) twice: to other hosts, with the address of its interface, and to
//! this host (time to live 0), with loopback's. A packet that Cyclone would send from an interface that does not lead to its destination leaves from
//! a socket of this transport. Cyclone's function for reading discovery is replaced, too.

use super::globals::{Globals, elapsed};
use crate::dds::{
    reach::{
        far_peers::FarPeers,
        networks::{GROUP, Networks, Way, socket_address},
        repeats::Repeats,
    },
    wire::{
        for_fast_dds::{asking_for_heartbeats, split_fragment_requests},
        handshake_names::{accepted_by_all, has_handshake},
        keys::{has_key_hash, remove_key_hashes},
        locators::{
            AnnouncedInterface, Change, Destination, HEADER_BYTES, announcement_ports, change_of,
            is_farewell, keep_reachable, named_destination, needed, needed_by_discovery, with_addresses,
        },
        reply_identity::{has_reply, with_identities},
        way_back::{data_port, with_way_back},
    },
};
use holdall_cyclone_sys::*;
use holdall_io::{
    mutex::lock,
    socket::{InterfaceAddress, interface_addresses},
};
use holdall_model::{network::Network, topic::Gid};
use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::fd::{AsRawFd as _, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

/// What Cyclone calls.
static HOOKS: holdall_hooks = holdall_hooks {
    send: Some(send),
    received: Some(received),
};

/// True when some domain sends some packets in another way than Cyclone; until then, each packet costs one look at this.
static ANY_WAYS: AtomicBool = AtomicBool::new(false);

/// True once some domain has lost a network and reaches peers by another one.
static ANY_DETOURS: AtomicBool = AtomicBool::new(false);

/// The domains of this process that send through this module.
static DOMAINS: RwLock<Vec<Arc<State>>> = RwLock::new(Vec::new());

/// The means by which a domain sends.
struct State {
    globals: Globals,
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
    far: Mutex<FarPeers>,
}

/// Announces a domain's participants to each peer with the addresses that it needs, as long as this lives.
pub(in crate::dds) struct Announcing(Arc<State>);

impl Announcing {
    /// Starts; `None`, with nothing changed, where Cyclone's connections are not as expected (another transport than UDP over IPv4).
    ///
    /// `is_wide` uses all networks of this computer, not only those of Cyclone's interfaces.
    ///
    /// # Safety
    /// The domain must be live, without participants yet, and deleted before this value is dropped.
    pub(in crate::dds) unsafe fn new(domain: Globals, is_wide: bool) -> Option<Self> {
        // SAFETY: the caller vouches for the domain.
        let state = Arc::new(unsafe { State::new(domain, is_wide) }?);
        let mut domains = DOMAINS.write().unwrap_or_else(PoisonError::into_inner);
        domains.push(Arc::clone(&state));
        drop(domains);
        let started = Self(state);
        // SAFETY: as above; the hooks live for ever.
        unsafe { holdall_hook(domain.as_ptr(), &raw const HOOKS) }.then_some(started)
    }

    /// Applies the addresses that this machine has now; announces our participant on networks that have come. `ports` are the domain and the
    /// highest participant index. Returns all networks, and whether peers must be given another address of our endpoints, because one is lost.
    pub(in crate::dds) fn follow(
        &self,
        addresses: &[InterfaceAddress],
        ports: (u32, u32),
    ) -> (Vec<Network>, bool) {
        let state = &self.0;
        let (fresh, list, is_cut) = {
            let mut networks = state.networks.write().unwrap_or_else(PoisonError::into_inner);
            networks.follow(addresses);
            let detours = lock(&state.far).follow(&networks, elapsed());
            let is_cut = networks.is_wide() && networks.set_detours(detours);
            if networks.has_ways() {
                ANY_WAYS.store(true, Ordering::Release);
            }
            if networks.has_detoured() {
                ANY_DETOURS.store(true, Ordering::Release);
            }
            (networks.take_fresh(), networks.list(), is_cut)
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
        (list, is_cut)
    }

    /// Applies the addresses that this machine has when the domain starts, which Cyclone announces itself.
    pub(in crate::dds) fn begin(&self, addresses: &[InterfaceAddress]) -> Vec<Network> {
        let mut networks = self.0.networks.write().unwrap_or_else(PoisonError::into_inner);
        networks.follow(addresses);
        networks.forget_fresh();
        if networks.has_ways() {
            ANY_WAYS.store(true, Ordering::Release);
        }
        networks.list()
    }

    /// Whether all packets of discovery that came from a participant came from an address of this computer, where no link can lose them.
    pub(in crate::dds) fn is_near(&self, participant: Gid) -> bool {
        let prefix = participant.0.first_chunk();
        prefix.is_none_or(|prefix| lock(&self.0.far).is_near(prefix))
    }

    /// Since when the network is lost that a participant of another computer sends by (elapsed time in nanoseconds), unless it was heard over
    /// another one since.
    pub(in crate::dds) fn lost(&self, participant: Gid) -> Option<i64> {
        let (sender, lost) = lock(&self.0.far).sender(participant.0.first_chunk()?)?;
        let is_lost_now = || self.0.networks().is_lost_now(sender, &interface_addresses());
        lost.or_else(|| is_lost_now().then(elapsed))
    }

    /// Announces our participant to these addresses, which Cyclone does not know; does nothing before Cyclone has announced it once.
    pub(in crate::dds) fn announce_to(&self, peers: &[SocketAddrV4]) {
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
        // Its domain is deleted: another one may have its place in memory.
        domains.retain(|state| !Arc::ptr_eq(state, &self.0));
    }
}

/// The sockets by which a domain receives multicast: of its participants and of its data.
///
/// # Safety
/// The domain must be live.
unsafe fn multicast_receivers(domain: Globals) -> Vec<UdpSocket> {
    let mut sockets = [-1; 2];
    // SAFETY: the caller vouches for the domain; its sockets live as long, and are copied here.
    unsafe {
        holdall_multicast_sockets(domain.as_ptr(), sockets.as_mut_ptr());
        let valid = sockets.into_iter().filter(|socket| *socket >= 0);
        let copies = valid.filter_map(|socket| BorrowedFd::borrow_raw(socket).try_clone_to_owned().ok());
        copies.map(UdpSocket::from).collect()
    }
}

/// The connections by which a domain sends; none where one of them is not UDP over IPv4.
///
/// # Safety
/// The domain must be live.
unsafe fn senders(domain: Globals) -> Vec<holdall_sender> {
    // SAFETY: all-zero bytes are valid; the caller vouches for the domain.
    unsafe {
        let mut senders: [holdall_sender; HOLDALL_SENDERS_MAX as usize] = mem::zeroed();
        let count = holdall_senders(domain.as_ptr(), senders.as_mut_ptr());
        senders[..count].to_vec()
    }
}

impl State {
    /// `None` where a connection is not UDP over IPv4.
    ///
    /// # Safety
    /// The domain must be live, and without participants.
    unsafe fn new(domain: Globals, is_wide: bool) -> Option<Self> {
        // SAFETY: the caller vouches for the domain.
        let senders = unsafe { senders(domain) };
        let interfaces: Vec<_> = senders
            .iter()
            .map(|sender| AnnouncedInterface {
                address: Ipv4Addr::from_bits(sender.address),
                announced: Ipv4Addr::from_bits(sender.announced),
                mask: Ipv4Addr::from_bits(sender.mask),
                is_loopback: sender.is_loopback,
            })
            .collect();
        if interfaces.is_empty() {
            return None;
        }
        let able = senders.iter().filter(|sender| sender.has_multicast);
        let multicast: Vec<_> = able
            .map(|sender| (Ipv4Addr::from_bits(sender.address), multicast_ttl(sender.socket)))
            .collect();
        let loopback = senders.iter().find(|sender| sender.is_loopback);
        if is_wide && senders.iter().all(|sender| sender.is_loopback) {
            // SAFETY: as above; no thread reads the interfaces before there is a participant.
            unsafe { holdall_reach_other_hosts(domain.as_ptr()) };
        }
        // SAFETY: the caller vouches for the domain.
        let receivers = unsafe { multicast_receivers(domain) };
        Some(Self {
            globals: domain,
            loopback: loopback.map(|sender| sender.connection as usize),
            networks: RwLock::new(Networks::new(is_wide, interfaces, &multicast, receivers)),
            announcement: Mutex::new(None),
            anywhere: OnceLock::new(),
            repeats: Repeats::start()
                .inspect_err(|error| tracing::debug!("announcements are sent once: {error}"))
                .ok(),
            far: Mutex::default(),
        })
    }

    /// Notes the participant that a packet of another computer comes from.
    fn note_far(&self, packet: &[u8], from: Ipv4Addr, is_multicast: bool) {
        if let Some(prefix) = packet.get(8..HEADER_BYTES).and_then(<[u8]>::first_chunk) {
            let is_for_us = !is_multicast && !is_farewell(packet);
            lock(&self.far).heard(*prefix, from, is_for_us);
        }
    }

    /// A copy of a packet for another computer: where peers may need it, announcements of endpoints have the address that it needs.
    fn with_way_back(&self, networks: &Networks, packet: Vec<u8>, to: Destination) -> Vec<u8> {
        if to == Destination::ThisHost || !networks.has_detoured() {
            return packet;
        }
        match lock(&self.announcement).as_deref().and_then(data_port) {
            Some(port) => with_way_back(&packet, &needed(networks.interfaces(), to), port),
            None => packet,
        }
    }

    /// The address to send to instead of another one, whose network is lost.
    fn detour(domain: usize, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let is_any = ANY_DETOURS.load(Ordering::Acquire) && !to.is_multicast();
        let state = is_any.then(|| Self::of(domain))??;
        state.networks().detour(to)
    }

    fn of(domain: usize) -> Option<Arc<Self>> {
        let domains = DOMAINS.read().unwrap_or_else(PoisonError::into_inner);
        domains
            .iter()
            .rev()
            .find(|state| state.globals.as_ptr() as usize == domain)
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

    /// A copy of a packet whose first acknowledgements Fast DDS answers.
    fn asking_for_heartbeats(&self, packet: &[u8]) -> Vec<u8> {
        asking_for_heartbeats(packet, |reader, writer| {
            self.globals.next_acknowledgement(reader, writer)
        })
    }

    /// An announcement as a participant at this address needs it.
    fn for_unicast(&self, packet: &[u8], to: Ipv4Addr) -> Vec<u8> {
        let networks = self.networks();
        self.asking_for_heartbeats(&announcement_for(&networks, packet, networks.destination(to)))
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
    fn repeat(&self, packet: &[u8], to: SocketAddrV4) {
        if let Some(repeats) = &self.repeats
            && !is_farewell(packet)
            && let Some(participant) = named_destination(packet)
        {
            repeats.add(participant, to, packet);
        }
    }

    /// Keeps the requests for fragments in a packet for later; returns the rest of the packet, or `None` when the whole packet must be sent now.
    fn postpone(&self, packet: &[u8], to: SocketAddrV4) -> Option<Option<Vec<u8>>> {
        let (rest, requests) = split_fragment_requests(packet);
        self.repeats.as_ref()?.send_later(to, requests).then_some(rest)
    }

    /// Sends an announcement by multicast out of the interface `only`, or of all; false when it has no sockets.
    fn send_multicast(&self, only: Option<Ipv4Addr>, to: SocketAddrV4, packet: &[u8]) -> bool {
        let networks = self.networks();
        networks.each_multicast(only, |socket, destination| {
            let packet = announcement_for(&networks, packet, destination);
            let packet = self.with_way_back(&networks, packet, destination);
            if let Err(error) = socket.send_to(&packet, to) {
                tracing::debug!("no announcement to {to}: {error}");
            }
        })
    }
}

/// An announcement with the addresses that a destination needs.
fn announcement_for(networks: &Networks, packet: &[u8], destination: Destination) -> Vec<u8> {
    let addresses = needed(networks.interfaces(), destination);
    let discovery = if networks.is_wide() {
        needed_by_discovery(networks.interfaces(), destination, addresses.clone())
    } else {
        addresses.clone()
    };
    with_addresses(packet, &addresses, &discovery)
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
const OK: dds_return_t = 0;

/// Called by Cyclone to send a packet.
///
/// # Safety
/// C passes a packet that is valid during the call, and a place to write to.
unsafe extern "C" fn send(packet: *const holdall_packet, code: *mut dds_return_t) -> bool {
    // A panic must not unwind into C. SAFETY: C vouches for both pointers.
    let outcome = catch_unwind(AssertUnwindSafe(|| changed(unsafe { Packet(&*packet) })));
    let Ok(Some(outcome)) = outcome else { return false };
    // SAFETY: as above.
    unsafe { *code = outcome };
    true
}

/// A packet that Cyclone is about to send; valid as C has passed it.
#[derive(Clone, Copy)]
struct Packet<'a>(&'a holdall_packet);

impl<'a> Packet<'a> {
    fn vectors(self) -> &'a [ddsrt_iovec_t] {
        // SAFETY: C vouches for the number of pieces as long as for the packet.
        unsafe { slice::from_raw_parts(self.0.pieces, self.0.count) }
    }

    fn pieces(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        // SAFETY: each piece is readable as long as the packet.
        let bytes = |piece: &'a ddsrt_iovec_t| unsafe {
            slice::from_raw_parts(piece.iov_base.cast::<u8>().cast_const(), piece.iov_len)
        };
        self.vectors().iter().map(bytes)
    }

    fn to(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to)
    }

    /// Sends it, or `other` in its place, as Cyclone would: by `connection` to an address.
    fn send_by(self, connection: *mut ddsi_tran_conn, to: Ipv4Addr, other: Option<&[u8]>) -> dds_return_t {
        // SAFETY: the connection lives as long as the domain, which Cyclone sends with right now; `other` is readable.
        unsafe {
            match other {
                Some(bytes) => {
                    holdall_send_other(self.0, connection, to.to_bits(), bytes.as_ptr(), bytes.len())
                }
                None => holdall_send(self.0, connection, to.to_bits()),
            }
        }
    }

    /// Sends it, or `other` in its place, where the system's routes lead, if a route exists.
    fn send_anywhere(self, socket: &UdpSocket, to: SocketAddrV4, other: Option<&[u8]>) {
        let sent = match other {
            Some(bytes) => socket.send_to(bytes, to).map(drop),
            // SAFETY: each piece is readable as long as the packet.
            None => unsafe { send_pieces(socket, to, self.vectors()) },
        };
        if let Err(error) = sent {
            // As with a lost packet: reliable messages are sent again.
            tracing::debug!("nothing sent to {to}: {error}");
        }
    }
}

/// Sends a packet in another way than Cyclone would; `None` when it must be sent unchanged.
fn changed(packet: Packet) -> Option<dds_return_t> {
    let detour = State::detour(packet.0.domain as usize, packet.to());
    let address = detour.unwrap_or(packet.to());
    let from = Ipv4Addr::from_bits(packet.0.from);
    let change = change_of(packet.pieces())
        .filter(|change| *change != Change::Endpoint || ANY_DETOURS.load(Ordering::Acquire));
    let has_reply = has_reply(packet.pieces());
    let has_handshake = has_handshake(packet.pieces());
    let has_key_hash = has_key_hash(packet.pieces());
    let is_as_written = change.is_none() && !has_reply && !has_handshake && !has_key_hash;
    // Loopback leads to this computer only.
    let is_stray = from.is_loopback() && !address.is_loopback() && !address.is_multicast();
    if is_as_written && !is_stray && detour.is_none() && !ANY_WAYS.load(Ordering::Acquire) {
        return None;
    }
    let state = State::of(packet.0.domain as usize)?;
    let to = socket_address(address, packet.0.port)?;
    let way = state.networks().way(from, address);
    let deliver = |other: Option<&[u8]>| match way {
        Way::Cyclones => Some(packet.send_by(packet.0.connection, address, other)),
        Way::Loopback => {
            // A participant of this host at an address of an interface that is down: loopback still leads there.
            let loopback = state.loopback? as *mut ddsi_tran_conn;
            Some(packet.send_by(loopback, Ipv4Addr::LOCALHOST, other))
        }
        Way::Routed => {
            packet.send_anywhere(state.anywhere()?, to, other);
            Some(OK)
        }
    };
    if is_as_written {
        let is_cyclones = way == Way::Cyclones && detour.is_none();
        return if is_cyclones { None } else { deliver(None) };
    }
    let mut bytes: Vec<u8> = packet.pieces().flatten().copied().collect();
    if has_reply {
        bytes = with_identities(&bytes);
    }
    if has_handshake {
        bytes = accepted_by_all(&bytes);
    }
    if has_key_hash {
        remove_key_hashes(&mut bytes);
    }
    let is_announcement = change == Some(Change::Announcement);
    if is_announcement {
        state.remember(&bytes);
    }
    // A packet may announce endpoints beside its acknowledgements.
    if change.is_some() && !is_announcement && !address.is_multicast() {
        let networks = state.networks();
        bytes = state.with_way_back(&networks, bytes, networks.destination(address));
    }
    let is_for_all = is_announcement || change == Some(Change::Endpoint) && state.networks().is_wide();
    if is_for_all && address.is_multicast() {
        let only = state.networks().only(from);
        return state.send_multicast(only, to, &bytes).then_some(OK);
    }
    let chosen = if change == Some(Change::FragmentRequest) {
        let Some(rest) = state.postpone(&bytes, to)? else {
            return Some(OK);
        };
        rest
    } else if is_announcement {
        state.for_unicast(&bytes, address)
    } else {
        state.asking_for_heartbeats(&bytes)
    };
    if is_announcement && address.is_loopback() && named_destination(&bytes).is_none() {
        state.to_own_addresses(&chosen, packet.0.port);
    }
    let code = deliver(Some(&chosen))?;
    if is_announcement {
        state.repeat(&chosen, to);
    }
    Some(code)
}

/// Sends pieces as one packet.
///
/// # Safety
/// The pieces must be readable.
unsafe fn send_pieces(socket: &UdpSocket, to: SocketAddrV4, pieces: &[ddsrt_iovec_t]) -> io::Result<()> {
    // SAFETY: an all-zero address and message are valid; both live until the call returns, and the caller vouches for the pieces, which `sendmsg`
    // only reads.
    let sent = unsafe {
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = to.port().to_be();
        address.sin_addr.s_addr = to.ip().to_bits().to_be();
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        message.msg_iov = pieces.as_ptr().cast::<libc::iovec>().cast_mut();
        message.msg_iovlen = pieces.len();
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Called by Cyclone with a packet of discovery.
///
/// # Safety
/// C passes `len` bytes that may be changed.
unsafe extern "C" fn received(
    domain: *mut ddsi_domaingv,
    packet: *mut u8,
    len: usize,
    from: u32,
    is_multicast: bool,
) {
    // A panic must not unwind into C.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let from = Ipv4Addr::from_bits(from);
        let Some(state) = State::of(domain as usize) else {
            return;
        };
        let networks = state.networks();
        if networks.is_ours(from) || len == 0 {
            return;
        }
        // SAFETY: C vouches for it.
        let packet = unsafe { slice::from_raw_parts_mut(packet, len) };
        state.note_far(packet, from, is_multicast);
        if networks.is_wide() {
            keep_reachable(packet, from, |address| networks.is_ours(address));
        }
    }));
    if outcome.is_err() {
        tracing::error!("an announcement could not be read");
    }
}
