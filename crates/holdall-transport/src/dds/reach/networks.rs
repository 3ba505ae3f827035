//! The networks of this computer that a domain uses: all of them, also those that come and go while it runs.
//!
//! Cyclone has four interfaces at most, chosen when a domain starts. It gets loopback and one other (`config`). It hears the rest, because
//! its sockets are bound to no address, and its multicast groups are joined here on each interface. What it sends to the rest leaves by the
//! system's routes ([`crate::dds::ffi::announcing`] asks here for the way), and each peer is sent the one address that it reaches us by.

use crate::dds::wire::locators::{AnnouncedInterface, Destination};
use holdall_io::socket::{InterfaceAddress, source_address};
use holdall_model::network::{NETWORKS_MAX, Network};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket},
};

/// Where participants announce themselves to all.
pub(in crate::dds) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 0, 1);

/// Number of announcements to a new network, one poll apart: its first packets may be lost.
const FRESH_ROUNDS: u32 = 6;

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum Way {
    /// By the connection that Cyclone has chosen.
    Cyclones,
    /// To this computer, at an address that it no longer has.
    Loopback,
    /// By the system's routes.
    Routed,
}

/// Sends announcements out of one interface.
struct Multicast {
    from: Ipv4Addr,
    to_others: UdpSocket,
    /// Time to live 0.
    to_us: UdpSocket,
}

/// The networks that a domain uses now.
pub(in crate::dds) struct Networks {
    /// All that this computer has, not only those that the user has named.
    is_wide: bool,
    /// Those that Cyclone knows.
    cyclones: Vec<AnnouncedInterface>,
    /// Those that are announced.
    interfaces: Vec<AnnouncedInterface>,
    /// Names of the interfaces, by address, also of those that are not used.
    names: BTreeMap<Ipv4Addr, String>,
    /// Addresses of interfaces that are down.
    down: BTreeSet<Ipv4Addr>,
    /// Addresses of interfaces that are up and have no carrier: only nodes of this computer can be heard there.
    unplugged: BTreeSet<Ipv4Addr>,
    /// All addresses that this computer has, or had.
    known: BTreeSet<Ipv4Addr>,
    /// Their masks.
    masks: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// Other addresses of computers that have one on a network that is lost, by that one.
    detours: HashMap<Ipv4Addr, Ipv4Addr>,
    /// Detours were taken at some time: peers may send by another network than they were found on.
    has_detoured: bool,
    /// Those that it no longer has.
    gone: BTreeSet<Ipv4Addr>,
    multicast: Vec<Multicast>,
    /// How many hops multicast may take; `None` where Cyclone sends none.
    hops: Option<u32>,
    /// Cyclone's sockets for multicast.
    receivers: Vec<UdpSocket>,
    /// Networks whose multicast cannot be received, and why.
    unjoined: BTreeMap<Ipv4Addr, String>,
    /// Announcements that new networks still get, by address.
    fresh: BTreeMap<Ipv4Addr, u32>,
}

impl Networks {
    /// Begins with what Cyclone uses; those of `multicast` send announcements to all.
    pub(in crate::dds) fn new(
        is_wide: bool,
        cyclones: Vec<AnnouncedInterface>,
        multicast: &[(Ipv4Addr, u32)],
        receivers: Vec<UdpSocket>,
    ) -> Self {
        let known = cyclones.iter().map(|interface| interface.address).collect();
        let mut networks = Self {
            is_wide,
            interfaces: cyclones.clone(),
            cyclones,
            names: BTreeMap::new(),
            down: BTreeSet::new(),
            unplugged: BTreeSet::new(),
            known,
            masks: BTreeMap::new(),
            detours: HashMap::new(),
            has_detoured: false,
            gone: BTreeSet::new(),
            multicast: Vec::new(),
            hops: multicast.first().map(|(_, hops)| *hops),
            receivers,
            unjoined: BTreeMap::new(),
            fresh: BTreeMap::new(),
        };
        for (from, hops) in multicast {
            networks.open(*from, *hops);
        }
        networks
    }

    fn open(&mut self, from: Ipv4Addr, hops: u32) {
        let sockets = multicast_socket(from, Some(hops)).zip(multicast_socket(from, None));
        self.multicast.extend(sockets.map(|(to_others, to_us)| Multicast {
            from,
            to_others,
            to_us,
        }));
    }

    /// Applies the addresses that this computer has now.
    pub(in crate::dds) fn follow(&mut self, all: &[InterfaceAddress]) {
        let now: BTreeMap<Ipv4Addr, &InterfaceAddress> = all
            .iter()
            .filter(|address| address.is_up)
            .map(|address| (address.address, address))
            .collect();
        self.known.extend(now.keys());
        self.gone = self
            .known
            .iter()
            .copied()
            .filter(|address| !now.contains_key(address))
            .collect();
        for address in all {
            self.names.insert(address.address, address.interface.clone());
            self.masks.insert(address.address, address.mask);
        }
        let down = all.iter().map(|address| address.address);
        self.down = down.filter(|address| !now.contains_key(address)).collect();
        let unplugged = now.values().filter(|one| !one.has_carrier);
        let unplugged = unplugged.map(|one| one.address).collect();
        let before = std::mem::replace(&mut self.unplugged, unplugged);
        if self.is_wide {
            self.widen(&now);
            let plugged = before
                .iter()
                .filter(|one| !self.unplugged.contains(one) && now.contains_key(one));
            self.fresh.extend(plugged.map(|one| (*one, FRESH_ROUNDS)));
        }
    }

    /// Uses every network that is up, and no other.
    fn widen(&mut self, now: &BTreeMap<Ipv4Addr, &InterfaceAddress>) {
        let before: BTreeSet<Ipv4Addr> = self.interfaces.iter().map(|one| one.address).collect();
        let mut interfaces = self.cyclones.clone();
        interfaces.retain(|one| now.contains_key(&one.address));
        let others = now.values().filter(|one| !one.is_loopback);
        for other in others {
            if interfaces.iter().all(|one| one.address != other.address) {
                interfaces.push(AnnouncedInterface {
                    address: other.address,
                    announced: other.address,
                    mask: other.mask,
                    is_loopback: false,
                });
            }
        }
        self.interfaces = interfaces;
        self.multicast.retain(|one| now.contains_key(&one.from));
        self.fresh.retain(|address, _| now.contains_key(address));
        let mut unjoined = std::mem::take(&mut self.unjoined).into_keys();
        unjoined
            .by_ref()
            .filter(|address| now.contains_key(address))
            .for_each(|address| self.join(address));
        let new: Vec<AnnouncedInterface> = self
            .interfaces
            .iter()
            .copied()
            .filter(|one| !before.contains(&one.address) || self.is_unopened(one, now))
            .collect();
        for one in new {
            if let Some(hops) = self.hops.filter(|_| now[&one.address].has_multicast) {
                self.open(one.address, hops);
                self.join(one.address);
            }
            self.fresh.insert(one.address, FRESH_ROUNDS);
        }
    }

    /// Receives what is sent to all on a network.
    fn join(&mut self, address: Ipv4Addr) {
        // Joined already where the address was here before, or another one of the same interface.
        let joins = self
            .receivers
            .iter()
            .map(|socket| socket.join_multicast_v4(&GROUP, &address));
        let failed = joins
            .filter_map(Result::err)
            .find(|error| error.kind() != ErrorKind::AddrInUse);
        if let Some(error) = failed {
            self.unjoined.insert(address, error.to_string());
        }
    }

    /// An interface that announcements could leave by, but do not.
    fn is_unopened(&self, one: &AnnouncedInterface, now: &BTreeMap<Ipv4Addr, &InterfaceAddress>) -> bool {
        self.hops.is_some()
            && now[&one.address].has_multicast
            && self.multicast.iter().all(|open| open.from != one.address)
    }

    /// Whether some packets leave in another way than Cyclone's.
    pub(in crate::dds) fn has_ways(&self) -> bool {
        let is_other = |one: &AnnouncedInterface| !self.cyclones.contains(one);
        !self.gone.is_empty() || self.is_wide && self.interfaces.iter().any(is_other)
    }

    /// How a packet leaves that Cyclone sends from the interface with the address `from`.
    pub(in crate::dds) fn way(&self, from: Ipv4Addr, to: Ipv4Addr) -> Way {
        if to.is_multicast() || to.is_loopback() {
            return Way::Cyclones;
        }
        if self.gone.contains(&to) {
            return Way::Loopback;
        }
        let is_near = || {
            let interface = self.cyclones.iter().find(|one| one.address == from);
            interface.is_none_or(|one| one.reaches(to))
        };
        let is_cyclones = !self.is_wide
            || self.known.contains(&to)
            || !self.gone.contains(&from) && is_near()
            || !from.is_loopback() && !self.has_ways();
        if is_cyclones { Way::Cyclones } else { Way::Routed }
    }

    /// Where a unicast packet goes to.
    pub(in crate::dds) fn destination(&self, address: Ipv4Addr) -> Destination {
        if self.is_ours(address) {
            Destination::ThisHost
        } else {
            Destination::Host {
                address,
                source: source_address(address),
            }
        }
    }

    /// Whether an address is on a network that this computer has lost.
    pub(in crate::dds) fn is_lost(&self, address: Ipv4Addr) -> bool {
        let mut own = self.beside(address).peekable();
        own.peek().is_some() && own.all(|own| self.gone.contains(&own) || self.unplugged.contains(&own))
    }

    /// Whether this is so with the addresses that this computer has now, which were not applied yet.
    pub(in crate::dds) fn is_lost_now(&self, address: Ipv4Addr, all: &[InterfaceAddress]) -> bool {
        let mut own = self.beside(address).peekable();
        let works = |own| {
            let of_own = |one: &&InterfaceAddress| one.address == own;
            all.iter()
                .find(of_own)
                .is_some_and(|one| one.is_up && one.has_carrier)
        };
        own.peek().is_some() && !own.any(works)
    }

    /// The addresses on the network of another one that this computer has, or had.
    fn beside(&self, address: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let known = self.known.iter().copied();
        known.filter(move |own| {
            let mask = self.masks.get(own).map_or(0, |mask| mask.to_bits());
            mask != 0 && address.to_bits() & mask == own.to_bits() & mask
        })
    }

    /// Sets which other addresses packets go to; true when an address has one that had none.
    pub(in crate::dds) fn set_detours(&mut self, detours: HashMap<Ipv4Addr, Ipv4Addr>) -> bool {
        let is_new = detours.keys().any(|to| !self.detours.contains_key(to));
        self.has_detoured |= !detours.is_empty();
        self.detours = detours;
        is_new
    }

    /// The address to send to instead of this one, whose network is lost.
    pub(in crate::dds) fn detour(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        self.detours.get(&to).copied()
    }

    /// Whether peers may have to be given another address than the one by which they found us.
    pub(in crate::dds) fn has_detoured(&self) -> bool {
        self.has_detoured
    }

    /// Whether all networks of this computer are used.
    pub(in crate::dds) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// Whether an address is one of this computer.
    pub(in crate::dds) fn is_ours(&self, address: Ipv4Addr) -> bool {
        address.is_loopback() || self.known.contains(&address)
    }

    /// What is announced.
    pub(in crate::dds) fn interfaces(&self) -> &[AnnouncedInterface] {
        &self.interfaces
    }

    /// The addresses of this computer, without loopback's, where participants may listen that use one interface only.
    pub(in crate::dds) fn own_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let own = self
            .interfaces
            .iter()
            .filter(|one| self.is_wide && !one.is_loopback);
        own.map(|one| one.address)
    }

    /// The new networks that need an announcement now.
    pub(in crate::dds) fn take_fresh(&mut self) -> Vec<Ipv4Addr> {
        let due = self.fresh.keys().copied().collect();
        self.fresh.retain(|_, rounds| {
            *rounds -= 1;
            *rounds > 0
        });
        due
    }

    /// Cyclone announces to the networks that exist at the start.
    pub(in crate::dds) fn forget_fresh(&mut self) {
        self.fresh.clear();
    }

    /// Calls `send` with the sockets for an announcement by multicast, and where each leads: those of the interface `only`, or all; false when
    /// there are none.
    pub(in crate::dds) fn each_multicast(
        &self,
        only: Option<Ipv4Addr>,
        mut send: impl FnMut(&UdpSocket, Destination),
    ) -> bool {
        let is_wanted = |one: &&Multicast| only.is_none_or(|only| one.from == only);
        let mut is_sent = false;
        for one in self.multicast.iter().filter(is_wanted) {
            send(&one.to_others, Destination::Neighbours(one.from));
            send(&one.to_us, Destination::ThisHost);
            is_sent = true;
        }
        is_sent
    }

    /// The one interface that an announcement leaves by which Cyclone sends out of `from`; `None` for all.
    pub(in crate::dds) fn only(&self, from: Ipv4Addr) -> Option<Ipv4Addr> {
        (!self.is_wide).then_some(from)
    }

    /// All networks, those that are used before those that are not; at most [`NETWORKS_MAX`].
    pub(in crate::dds) fn list(&self) -> Vec<Network> {
        let nameless = self
            .interfaces
            .iter()
            .filter(|one| !self.names.contains_key(&one.address));
        let nameless = nameless.map(|one| self.network(one.address, &one.address.to_string()));
        let named = self
            .names
            .iter()
            .map(|(address, name)| self.network(*address, name));
        let mut all: Vec<Network> = nameless.chain(named).collect();
        all.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.cmp(b)));
        all.truncate(NETWORKS_MAX);
        all
    }

    fn network(&self, address: Ipv4Addr, name: &str) -> Network {
        let is_chosen = self.interfaces.iter().any(|one| one.address == address);
        let reason = if self.down.contains(&address) {
            Some(DOWN.to_owned())
        } else if self.gone.contains(&address) {
            Some(GONE.to_owned())
        } else if !is_chosen {
            Some(LEFT_OUT.to_owned())
        } else if self.unplugged.contains(&address) {
            Some(UNPLUGGED.to_owned())
        } else {
            let unjoined = self.unjoined.get(&address);
            unjoined.map(|error| {
                format!("nodes there are heard only when they know this computer ({error}); {JOIN_TIP}")
            })
        };
        Network {
            interface: name.to_owned(),
            address,
            used: is_chosen && !self.gone.contains(&address) && !self.unplugged.contains(&address),
            reason,
        }
    }
}

const DOWN: &str = "its interface is down";
const GONE: &str = "its interface has lost the address, or is gone";
const UNPLUGGED: &str = "no carrier: its cable is unplugged, or its other end is down";
const LEFT_OUT: &str = "CYCLONEDDS_URI or ROS_AUTOMATIC_DISCOVERY_RANGE leaves it out";
const JOIN_TIP: &str = "raise the limit: sysctl -w net.ipv4.igmp_max_memberships=200";

/// A socket that sends multicast out of the interface with this address: to other hosts at most `hops` away, or only to this one.
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

/// Logs which networks are used, once, and what changes after that.
#[derive(Default)]
pub(in crate::dds) struct NetworkLog {
    has_begun: bool,
    networks: Vec<Network>,
}

impl NetworkLog {
    /// Takes note of the networks that this computer has now.
    pub(in crate::dds) fn note(&mut self, now: Vec<Network>) {
        if now == self.networks {
            return;
        }
        let used = |networks: &[Network]| -> BTreeSet<String> {
            let used = networks.iter().filter(|one| one.used);
            used.map(ToString::to_string).collect()
        };
        let list = |names: Vec<&String>| {
            let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
            names.join(", ")
        };
        let (before, used) = (used(&self.networks), used(&now));
        if self.has_begun {
            let come: Vec<_> = used.difference(&before).collect();
            for one in now
                .iter()
                .filter(|one| !one.used && before.contains(&one.to_string()))
            {
                let reason = one.reason.as_deref().unwrap_or(GONE);
                tracing::warn!(
                    "DDS has lost the network {one}: {reason}; nodes of other computers there are not heard until it is back"
                );
            }
            if !come.is_empty() {
                tracing::info!("DDS uses the network {}, which has come", list(come));
            }
        } else {
            tracing::info!("DDS uses the networks {}", list(used.iter().collect()));
        }
        for one in now.iter().filter(|one| !self.networks.contains(one)) {
            match &one.reason {
                Some(reason) if one.used => tracing::warn!("DDS uses the network {one} in part: {reason}"),
                Some(reason) if !before.contains(&one.to_string()) => {
                    tracing::info!("DDS does not use the network {one}: {reason}");
                }
                _ => {}
            }
        }
        self.has_begun = true;
        self.networks = now;
    }

    /// The networks as last noted.
    pub(in crate::dds) fn networks(&self) -> &[Network] {
        &self.networks
    }
}

/// Where a socket sends to.
pub(in crate::dds) fn socket_address(address: Ipv4Addr, port: u32) -> Option<SocketAddrV4> {
    Some(SocketAddrV4::new(address, u16::try_from(port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const WIRED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
    const DOCKER: Ipv4Addr = Ipv4Addr::new(172, 17, 0, 1);
    const LATE: Ipv4Addr = Ipv4Addr::new(192, 168, 5, 2);
    const FAR: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

    fn interface(name: &str, address: Ipv4Addr) -> InterfaceAddress {
        InterfaceAddress {
            interface: name.to_owned(),
            address,
            mask: Ipv4Addr::new(255, 255, 255, 0),
            is_up: true,
            has_carrier: true,
            is_loopback: address.is_loopback(),
            has_multicast: false,
        }
    }

    fn announced(address: Ipv4Addr) -> AnnouncedInterface {
        AnnouncedInterface {
            address,
            announced: address,
            mask: Ipv4Addr::new(255, 255, 255, 0),
            is_loopback: address.is_loopback(),
        }
    }

    fn networks(is_wide: bool) -> Networks {
        let cyclones = vec![announced(LOOPBACK), announced(WIRED)];
        let mut networks = Networks::new(is_wide, cyclones, &[], Vec::new());
        networks.follow(&[interface("lo", LOOPBACK), interface("eth0", WIRED)]);
        networks
    }

    #[test]
    fn one_network_is_left_to_cyclone() {
        let networks = networks(true);
        assert!(!networks.has_ways());
        for to in [LOOPBACK, WIRED, Ipv4Addr::new(10, 0, 0, 9), FAR] {
            assert_eq!(networks.way(WIRED, to), Way::Cyclones, "{to}");
        }
        // A peer that the user names is sent to from the first interface, which is loopback.
        assert_eq!(networks.way(LOOPBACK, FAR), Way::Routed);
    }

    #[test]
    fn what_cyclone_does_not_know_is_routed_and_announced() {
        let mut networks = networks(true);
        networks.follow(&[
            interface("lo", LOOPBACK),
            interface("eth0", WIRED),
            interface("docker0", DOCKER),
        ]);
        assert!(networks.has_ways());
        assert_eq!(networks.way(WIRED, Ipv4Addr::new(10, 0, 0, 9)), Way::Cyclones);
        assert_eq!(networks.way(WIRED, Ipv4Addr::new(172, 17, 0, 2)), Way::Routed);
        assert_eq!(networks.way(WIRED, FAR), Way::Routed);
        assert_eq!(networks.way(WIRED, DOCKER), Way::Cyclones);
        assert_eq!(networks.own_addresses().collect::<Vec<_>>(), [WIRED, DOCKER]);
        assert_eq!(networks.take_fresh(), [DOCKER]);
    }

    #[test]
    fn networks_come_and_go() {
        let mut networks = networks(true);
        networks.follow(&[interface("lo", LOOPBACK), interface("wlan0", LATE)]);
        assert_eq!(networks.own_addresses().collect::<Vec<_>>(), [LATE]);
        assert_eq!(networks.way(WIRED, Ipv4Addr::new(192, 168, 5, 9)), Way::Routed);
        assert_eq!(networks.way(WIRED, Ipv4Addr::new(10, 0, 0, 9)), Way::Routed);
        assert_eq!(networks.way(WIRED, WIRED), Way::Loopback);
        let listed = |networks: &Networks| -> Vec<_> {
            let one = |one: Network| (one.to_string(), one.used, one.reason.unwrap_or_default());
            networks.list().into_iter().map(one).collect()
        };
        let (lo, wlan0) = (
            ("lo (127.0.0.1)".to_owned(), true, String::new()),
            ("wlan0 (192.168.5.2)".to_owned(), true, String::new()),
        );
        let eth0 = |reason: &str| ("eth0 (10.0.0.7)".to_owned(), false, reason.to_owned());
        assert_eq!(listed(&networks), [lo.clone(), wlan0.clone(), eth0(GONE)]);
        let down = InterfaceAddress {
            is_up: false,
            ..interface("eth0", WIRED)
        };
        networks.follow(&[interface("lo", LOOPBACK), interface("wlan0", LATE), down]);
        assert_eq!(listed(&networks), [lo, wlan0, eth0(DOWN)]);
        for _ in 0..FRESH_ROUNDS {
            assert_eq!(networks.take_fresh(), [LATE]);
        }
        assert!(networks.take_fresh().is_empty());
        networks.follow(&[interface("lo", LOOPBACK), interface("eth0", WIRED)]);
        for _ in 0..FRESH_ROUNDS {
            assert_eq!(networks.take_fresh(), [WIRED]);
        }
        let unplugged = InterfaceAddress {
            has_carrier: false,
            ..interface("eth0", WIRED)
        };
        networks.follow(&[interface("lo", LOOPBACK), unplugged]);
        assert!(listed(&networks).contains(&eth0(UNPLUGGED)));
        // Nodes of this computer can use it.
        assert_eq!(networks.own_addresses().collect::<Vec<_>>(), [WIRED]);
        assert!(networks.take_fresh().is_empty());
        let (far, other) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(192, 168, 5, 9));
        assert!(networks.is_lost(far) && networks.is_lost(other) && !networks.is_lost(FAR));
        let now = [interface("lo", LOOPBACK), interface("eth0", WIRED)];
        assert!(!networks.is_lost_now(far, &now) && networks.is_lost_now(other, &now));
        networks.follow(&now);
        assert!(!networks.is_lost(far));
        assert_eq!(networks.take_fresh(), [WIRED]);
    }

    #[test]
    fn interfaces_that_the_user_names_are_all_that_is_used() {
        let mut networks = networks(false);
        networks.follow(&[
            interface("lo", LOOPBACK),
            interface("eth0", WIRED),
            interface("docker0", DOCKER),
        ]);
        assert!(!networks.has_ways());
        assert_eq!(networks.way(LOOPBACK, FAR), Way::Cyclones);
        assert_eq!(networks.own_addresses().count(), 0);
        let reason = |name: &str| {
            let one = networks.list().into_iter().find(|one| one.interface == name);
            one.unwrap().reason
        };
        assert_eq!(
            (reason("eth0"), reason("docker0")),
            (None, Some(LEFT_OUT.to_owned()))
        );
        assert_eq!(networks.interfaces().len(), 2);
        assert!(networks.is_ours(DOCKER));
    }
}
