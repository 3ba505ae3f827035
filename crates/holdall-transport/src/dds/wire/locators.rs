//! Packets that leave in another form than Cyclone DDS writes: announcements with the addresses that a peer needs.
//!
//! Cyclone announces the addresses of all interfaces that it uses, loopback among them, to everyone. A Fast DDS publisher then sends each
//! message once to each address: a publisher on this host twice, one on another host once more to its own loopback. So the addresses are chosen when
//! an announcement leaves, by its destination.

use super::for_fast_dds::{is_first_acknowledgement, names_fast_dds};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The first 12 bytes of the GUIDs of a participant.
pub(in crate::dds) type GuidPrefix = [u8; 12];

/// An interface that Cyclone uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) struct AnnouncedInterface {
    /// Its own address.
    pub address: Ipv4Addr,
    /// The address that is announced for it, which differs across a NAT.
    pub announced: Ipv4Addr,
    /// Its network mask.
    pub mask: Ipv4Addr,
    /// Reaches this host only.
    pub is_loopback: bool,
}

impl AnnouncedInterface {
    /// Whether an address is on its network.
    pub(in crate::dds) fn reaches(&self, address: Ipv4Addr) -> bool {
        let mask = self.mask.to_bits();
        mask != 0 && address.to_bits() & mask == self.address.to_bits() & mask
    }
}

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum Destination {
    /// Participants of this host.
    ThisHost,
    /// Other hosts, by multicast out of the interface with this address.
    Neighbours(Ipv4Addr),
    /// Another host.
    Host {
        /// Its address.
        address: Ipv4Addr,
        /// The address that packets to it leave from, where a route leads there.
        source: Option<Ipv4Addr>,
    },
}

/// The announced addresses that a destination needs; empty when no choice is better than all.
pub(in crate::dds) fn needed(interfaces: &[AnnouncedInterface], destination: Destination) -> Vec<Ipv4Addr> {
    let announced = |wanted: &dyn Fn(&AnnouncedInterface) -> bool| -> Vec<Ipv4Addr> {
        let chosen = interfaces.iter().filter(|interface| wanted(interface));
        chosen.map(|interface| interface.announced).collect()
    };
    match destination {
        Destination::ThisHost => {
            let loopback = announced(&|interface| interface.is_loopback);
            // Without loopback, any other one works: each is an address of this host.
            let first = || interfaces.first().map(|interface| interface.announced);
            if loopback.is_empty() {
                first().into_iter().collect()
            } else {
                loopback
            }
        }
        Destination::Neighbours(from) => announced(&|interface| interface.address == from),
        Destination::Host { address, source } => {
            // Only one address, where one is known to lead back: a publisher sends each message to each address.
            let is_network = |interface: &AnnouncedInterface| !interface.is_loopback;
            let mut chosen =
                announced(&|interface| is_network(interface) && source == Some(interface.address));
            if chosen.is_empty() {
                chosen = announced(&|interface| is_network(interface) && interface.reaches(address));
            }
            if chosen.is_empty() {
                chosen = announced(&is_network);
            }
            chosen
        }
    }
}

/// Addresses of one kind that Fast DDS keeps of a participant.
const KEPT_BY_FAST_DDS: usize = 4;

/// The announced addresses at which a destination reaches our discovery, when it `needed` these for messages: those of all other networks, too,
/// unless routers lead to it: it may reach none of them.
///
/// Neither Fast DDS nor Cyclone sends discovery to another address than those of the first announcement, also when that network is lost later.
pub(in crate::dds) fn needed_by_discovery(
    interfaces: &[AnnouncedInterface],
    destination: Destination,
    mut needed: Vec<Ipv4Addr>,
) -> Vec<Ipv4Addr> {
    let is_near = match destination {
        Destination::ThisHost => false,
        Destination::Neighbours(_) => true,
        Destination::Host { address, .. } => interfaces.iter().any(|one| one.reaches(address)),
    };
    if is_near && !needed.is_empty() {
        for other in interfaces.iter().filter(|one| !one.is_loopback) {
            if needed.len() < KEPT_BY_FAST_DDS && !needed.contains(&other.announced) {
                needed.push(other.announced);
            }
        }
    }
    needed
}

/// The ports on which participants of a domain listen for announcements (RTPS 2.5, 9.6.2.3), at an address without a port.
pub(in crate::dds) fn announcement_ports(
    address: Ipv4Addr,
    domain: u32,
    index_max: u32,
) -> Vec<SocketAddrV4> {
    let port = |index: u32| u16::try_from(7_400 + 250 * domain + 10 + 2 * index).ok();
    (0..=index_max)
        .filter_map(port)
        .map(|port| SocketAddrV4::new(address, port))
        .collect()
}

pub(in crate::dds) const HEADER_BYTES: usize = 20;
pub(in crate::dds) const SUBMESSAGE_HEADER_BYTES: usize = 4;
const PAD: u8 = 0x01;
const INFO_TIMESTAMP: u8 = 0x09;
pub(in crate::dds) const ACKNACK: u8 = 0x06;
const DATA: u8 = 0x15;
pub(in crate::dds) const INFO_DESTINATION: u8 = 0x0e;
pub(in crate::dds) const NACK_FRAGMENTS: u8 = 0x12;
/// `DATA` flags: little endian, with inline QoS, with payload.
const FLAG_LITTLE_ENDIAN: u8 = 1;
pub(in crate::dds) const FLAG_INLINE_QOS: u8 = 2;
const FLAG_PAYLOAD: u8 = 4;
/// The first two bytes of the GUIDs of Fast DDS.
pub(in crate::dds) const VENDOR_FAST_DDS: [u8; 2] = [0x01, 0x0f];
/// `ENTITYID_SPDP_BUILTIN_PARTICIPANT_WRITER`.
const PARTICIPANT_WRITER: [u8; 4] = [0x00, 0x01, 0x00, 0xc2];
pub(in crate::dds) const PID_SENTINEL: u16 = 0x0001;
/// Writers of discovery: participants, publishers and subscriptions.
const DISCOVERY_WRITERS: [[u8; 4]; 3] = [
    PARTICIPANT_WRITER,
    [0x00, 0x00, 0x03, 0xc2],
    [0x00, 0x00, 0x04, 0xc2],
];
const PID_PAD: u16 = 0;
/// Where discovery is received.
const PID_METATRAFFIC_UNICAST_LOCATOR: u16 = 0x0032;
/// This and `PID_DEFAULT_UNICAST_LOCATOR`.
pub(in crate::dds) const ANNOUNCED_LOCATORS: [u16; 2] = [0x0031, PID_METATRAFFIC_UNICAST_LOCATOR];
/// These, and an endpoint's `PID_UNICAST_LOCATOR`.
const RECEIVED_LOCATORS: [u16; 3] = [0x002f, 0x0031, 0x0032];
/// A parameter with an address, and its head.
const LOCATOR_PARAMETER_BYTES: usize = 4 + LOCATOR_BYTES;
pub(in crate::dds) const LOCATOR_BYTES: usize = 24;
/// `LOCATOR_KIND_UDPv4`.
pub(in crate::dds) const KIND_UDP_V4: u32 = 1;

/// A submessage inside a packet.
pub(in crate::dds) struct Submessage {
    /// Its kind.
    pub id: u8,
    /// Which parts follow, and in which byte order.
    pub flags: u8,
    /// Where its header begins.
    pub at: usize,
    /// One past its last byte.
    pub end: usize,
}

impl Submessage {
    /// The byte order of its numbers.
    pub(in crate::dds) fn order(&self) -> Order {
        Order {
            is_little: self.flags & FLAG_LITTLE_ENDIAN != 0,
        }
    }
}

/// Reads integers in the byte order of a submessage or payload.
#[derive(Clone, Copy)]
pub(in crate::dds) struct Order {
    /// Little endian.
    pub is_little: bool,
}

impl Order {
    pub(in crate::dds) fn put_u16(self, bytes: &mut Vec<u8>, value: u16) {
        bytes.extend_from_slice(&if self.is_little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        });
    }

    pub(in crate::dds) fn put_u32(self, bytes: &mut Vec<u8>, value: u32) {
        bytes.extend_from_slice(&if self.is_little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        });
    }

    pub(in crate::dds) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.is_little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    }

    pub(in crate::dds) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.is_little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    }
}

/// The submessage at `at` of bytes that may end inside it.
pub(in crate::dds) fn submessage(bytes: &[u8], at: usize) -> Option<Submessage> {
    let (id, flags) = (*bytes.get(at)?, *bytes.get(at + 1)?);
    let order = Order {
        is_little: flags & FLAG_LITTLE_ENDIAN != 0,
    };
    let len = usize::from(order.u16(bytes, at + 2)?);
    let end = if len == 0 && !matches!(id, PAD | INFO_TIMESTAMP) {
        // The last one of a packet may omit its length.
        usize::MAX
    } else {
        at + SUBMESSAGE_HEADER_BYTES + len
    };
    Some(Submessage { id, flags, at, end })
}

/// Why a packet is not sent as Cyclone has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum Change {
    /// It announces a participant.
    Announcement,
    /// It asks Fast DDS for its first heartbeat.
    FirstAcknowledgement,
    /// It asks Fast DDS for fragments that may be in flight.
    FragmentRequest,
    /// It announces an endpoint.
    Endpoint,
}

/// Whether a packet, given in the pieces that it is sent from, must be changed.
///
/// Called for each packet that leaves, so nothing is copied: a submessage that matters is never split before its payload.
pub(in crate::dds) fn change_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<Change> {
    let mut at = HEADER_BYTES;
    let mut is_for_fast_dds = false;
    let mut found = None;
    for piece in pieces {
        while at < piece.len() {
            let Some(next) = submessage(piece, at) else {
                return found;
            };
            if is_announcement(piece, &next) {
                return Some(Change::Announcement);
            }
            if next.id == INFO_DESTINATION {
                is_for_fast_dds = names_fast_dds(piece, &next);
            } else if is_for_fast_dds && is_first_acknowledgement(piece, &next) {
                // An announcement may follow in the same packet.
                found = Some(Change::FirstAcknowledgement);
            } else if is_for_fast_dds && next.id == NACK_FRAGMENTS {
                found = found.or(Some(Change::FragmentRequest));
            } else if is_discovery(piece, &next) {
                found = found.or(Some(Change::Endpoint));
            }
            if next.end == usize::MAX {
                return found;
            }
            at = next.end;
        }
        at -= piece.len();
    }
    found
}

pub(in crate::dds) fn is_announcement(bytes: &[u8], submessage: &Submessage) -> bool {
    let writer = submessage.at + 12;
    submessage.id == DATA && bytes.get(writer..writer + 4) == Some(&PARTICIPANT_WRITER)
}

/// A copy of a packet; its participant announcements hold the unicast addresses in `needed` instead of the original ones, and those in `discovery`
/// for discovery.
///
/// With none needed, an announcement keeps its addresses.
pub(in crate::dds) fn with_addresses(packet: &[u8], needed: &[Ipv4Addr], discovery: &[Ipv4Addr]) -> Vec<u8> {
    let added = needed.len() + discovery.len();
    let mut copy = Vec::with_capacity(packet.len() + added * LOCATOR_PARAMETER_BYTES);
    let mut at = HEADER_BYTES.min(packet.len());
    copy.extend_from_slice(&packet[..at]);
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        let begin = copy.len();
        let is_changed = is_announcement(packet, &next) && !needed.is_empty();
        let locators = if is_changed {
            unicast_locators(&packet[..end], &next, &ANNOUNCED_LOCATORS)
        } else {
            Vec::new()
        };
        for (index, locator) in locators.iter().enumerate() {
            copy.extend_from_slice(&packet[at..locator.at]);
            at = locator.at + LOCATOR_PARAMETER_BYTES;
            if locators[..index].iter().any(|other| other.id == locator.id) {
                continue;
            }
            let is_discovery = locator.id == PID_METATRAFFIC_UNICAST_LOCATOR;
            for address in if is_discovery { discovery } else { needed } {
                let own = &packet[locator.at..at];
                copy.extend_from_slice(&own[..LOCATOR_PARAMETER_BYTES - 4]);
                copy.extend(address.octets());
            }
        }
        copy.extend_from_slice(&packet[at..end]);
        if next.end != usize::MAX {
            let len = u16::try_from(copy.len() - begin - SUBMESSAGE_HEADER_BYTES).unwrap_or(0);
            let bytes = if next.flags & FLAG_LITTLE_ENDIAN != 0 {
                len.to_le_bytes()
            } else {
                len.to_be_bytes()
            };
            copy[begin + 2..begin + 4].copy_from_slice(&bytes);
        }
        at = end;
    }
    copy.extend_from_slice(&packet[at..]);
    copy
}

/// A parameter with a unicast address of UDP over IPv4.
pub(in crate::dds) struct UnicastLocator {
    /// Where it begins.
    at: usize,
    id: u16,
    /// Its port.
    pub port: u32,
    address: Ipv4Addr,
}

/// The unicast addresses in the payload of a `DATA` submessage, in the order of the packet.
pub(in crate::dds) fn unicast_locators(packet: &[u8], data: &Submessage, ids: &[u16]) -> Vec<UnicastLocator> {
    let Some(payload) = payload_of(packet, data) else {
        return Vec::new();
    };
    let order = Order {
        is_little: packet.get(payload + 1).is_some_and(|kind| kind & 1 != 0),
    };
    let found = parameters(packet, payload + 4, order).into_iter();
    found
        .filter(|(at, id)| {
            ids.contains(id)
                && order.u16(packet, at + 2) == Some(LOCATOR_BYTES as u16)
                && order.u32(packet, at + 4) == Some(KIND_UDP_V4)
        })
        .filter_map(|(at, id)| {
            let octets: [u8; 4] = packet.get(at + 24..at + 28)?.try_into().ok()?;
            Some(UnicastLocator {
                at,
                id,
                port: order.u32(packet, at + 8)?,
                address: octets.into(),
            })
        })
        .collect()
}

/// Keeps only the addresses by which we reach a participant or endpoint of another host, whose packet came from `from`: that address, where it is
/// among those announced, else all that this computer does not have itself. The others become padding.
///
/// A host announces the addresses of all its interfaces, including those that do not lead here and those that we have, too: each computer with Docker
/// is 172.17.0.1.
pub(in crate::dds) fn keep_reachable(packet: &mut [u8], from: Ipv4Addr, is_ours: impl Fn(Ipv4Addr) -> bool) {
    let mut at = HEADER_BYTES;
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        if is_discovery(packet, &next) {
            let locators = unicast_locators(&packet[..end], &next, &RECEIVED_LOCATORS);
            for id in RECEIVED_LOCATORS {
                let of_kind = || locators.iter().filter(move |locator| locator.id == id);
                let is_kept = |locator: &UnicastLocator| {
                    if of_kind().any(|other| other.address == from) {
                        locator.address == from
                    } else {
                        !is_ours(locator.address)
                    }
                };
                if of_kind().any(is_kept) {
                    for locator in of_kind().filter(|locator| !is_kept(locator)) {
                        packet[locator.at..locator.at + 2].copy_from_slice(&PID_PAD.to_ne_bytes());
                    }
                }
            }
        }
        at = end;
    }
}

/// Whether a submessage announces a participant or an endpoint.
pub(in crate::dds) fn is_discovery(bytes: &[u8], submessage: &Submessage) -> bool {
    let writer = submessage.at + 12;
    let writer = bytes.get(writer..writer + 4);
    submessage.id == DATA && DISCOVERY_WRITERS.iter().any(|known| writer == Some(known))
}

/// Where the payload of a `DATA` submessage begins.
pub(in crate::dds) fn payload_of(packet: &[u8], data: &Submessage) -> Option<usize> {
    let order = Order {
        is_little: data.flags & FLAG_LITTLE_ENDIAN != 0,
    };
    if data.flags & FLAG_PAYLOAD == 0 {
        return None;
    }
    let mut at = data.at + 8 + usize::from(order.u16(packet, data.at + 6)?);
    if data.flags & FLAG_INLINE_QOS != 0 {
        let last = parameters(packet, at, order).last().copied();
        at = match last {
            Some((parameter, _)) => parameter + 4 + usize::from(order.u16(packet, parameter + 2)?) + 4,
            None => at + 4,
        };
    }
    Some(at)
}

/// Where parameters begin and what they are, up to the sentinel.
pub(in crate::dds) fn parameters(packet: &[u8], mut at: usize, order: Order) -> Vec<(usize, u16)> {
    let mut found = Vec::new();
    while let (Some(id), Some(len)) = (order.u16(packet, at), order.u16(packet, at + 2)) {
        let end = at + 4 + usize::from(len);
        if id == PID_SENTINEL || end > packet.len() {
            break;
        }
        found.push((at, id));
        at = end;
    }
    found
}

/// The participant that a packet is meant for; `None` when it is for all, which Cyclone writes as a prefix of zeros.
pub(in crate::dds) fn named_destination(packet: &[u8]) -> Option<GuidPrefix> {
    let mut at = HEADER_BYTES;
    let mut named = None;
    while let Some(next) = submessage(packet, at) {
        if next.id == INFO_DESTINATION {
            let prefix = next.at + SUBMESSAGE_HEADER_BYTES;
            let prefix = packet
                .get(prefix..prefix + 12)
                .and_then(|prefix| prefix.try_into().ok());
            named = named.or(prefix.filter(|prefix| *prefix != [0; 12]));
        }
        at = next.end.min(packet.len());
    }
    named
}

/// True when a packet announces that a participant leaves: an announcement without a payload.
pub(in crate::dds) fn is_farewell(packet: &[u8]) -> bool {
    let mut at = HEADER_BYTES;
    while let Some(next) = submessage(packet, at) {
        if is_announcement(packet, &next) && next.flags & FLAG_PAYLOAD == 0 {
            return true;
        }
        at = next.end.min(packet.len());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::wire::for_fast_dds::{asking_for_heartbeats, split_fragment_requests};
    use proptest::prelude::*;

    const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const WIRED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const WIRELESS: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 7);

    fn interface(address: Ipv4Addr, mask: [u8; 4]) -> AnnouncedInterface {
        AnnouncedInterface {
            address,
            announced: address,
            mask: mask.into(),
            is_loopback: address.is_loopback(),
        }
    }

    fn interfaces() -> [AnnouncedInterface; 3] {
        [
            interface(LOOPBACK, [255, 0, 0, 0]),
            interface(WIRED, [255, 255, 255, 0]),
            interface(WIRELESS, [255, 255, 255, 0]),
        ]
    }

    fn locator(id: u16, address: Ipv4Addr) -> Vec<u8> {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend(24u16.to_le_bytes());
        bytes.extend(KIND_UDP_V4.to_le_bytes());
        bytes.extend(7411u32.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(address.octets());
        bytes
    }

    /// A packet with an `INFO_TS`, an announcement with these locators, and a `HEARTBEAT` without a length.
    fn packet(locators: &[(u16, Ipv4Addr)], with_inline_qos: bool) -> Vec<u8> {
        let mut data = vec![0, 0, 16, 0, 0, 0, 0, 0];
        data.extend(PARTICIPANT_WRITER);
        data.extend([0, 0, 0, 0, 1, 0, 0, 0]);
        if with_inline_qos {
            data.extend([0x70, 0, 4, 0, 9, 9, 9, 9, 1, 0, 0, 0]);
        }
        data.extend([0, 3, 0, 0, 0x15, 0, 4, 0, 2, 5, 0, 0]);
        for (id, address) in locators {
            data.extend(locator(*id, *address));
        }
        data.extend([1, 0, 0, 0]);
        let mut packet = b"RTPS".to_vec();
        packet.extend([0; HEADER_BYTES - 4]);
        packet.extend([0x09, 1, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let flags = FLAG_LITTLE_ENDIAN | FLAG_PAYLOAD | if with_inline_qos { FLAG_INLINE_QOS } else { 0 };
        packet.extend([DATA, flags]);
        packet.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
        packet.extend(data);
        packet.extend([0x07, 1, 0, 0, 7, 7, 7, 7]);
        packet
    }

    fn host(address: Ipv4Addr, source: Option<Ipv4Addr>) -> Destination {
        Destination::Host { address, source }
    }

    #[test]
    fn this_host_needs_loopback_and_others_the_interface_between_us() {
        let all = interfaces();
        assert_eq!(needed(&all, Destination::ThisHost), [LOOPBACK]);
        assert_eq!(needed(&all, Destination::Neighbours(WIRED)), [WIRED]);
        assert_eq!(
            needed(&all, host(Ipv4Addr::new(192, 168, 1, 99), None)),
            [WIRELESS]
        );
        let far = Ipv4Addr::new(8, 8, 8, 8);
        assert_eq!(needed(&all, host(far, None)), [WIRED, WIRELESS]);
        assert_eq!(needed(&all, host(far, Some(WIRELESS))), [WIRELESS]);
        assert_eq!(needed(&all, host(far, Some(LOOPBACK))), [WIRED, WIRELESS]);
    }

    #[test]
    fn discovery_of_another_host_reaches_us_on_all_networks() {
        let all = interfaces();
        let of = |destination| needed_by_discovery(&all, destination, needed(&all, destination));
        assert_eq!(of(Destination::ThisHost), [LOOPBACK]);
        assert_eq!(of(Destination::Neighbours(WIRELESS)), [WIRELESS, WIRED]);
        assert_eq!(of(host(Ipv4Addr::new(192, 168, 1, 99), None)), [WIRELESS, WIRED]);
        let far = Ipv4Addr::new(8, 8, 8, 8);
        assert_eq!(of(host(far, Some(WIRELESS))), [WIRELESS]);
        let none = needed_by_discovery(&all, Destination::Neighbours(WIRED), Vec::new());
        assert!(none.is_empty());
        let many = [1, 2, 3, 4, 5, 6].map(|net| interface(Ipv4Addr::new(10, net, 0, 1), [255, 255, 255, 0]));
        assert_eq!(
            needed_by_discovery(&many, Destination::Neighbours(WIRED), vec![many[5].address]).len(),
            4
        );
    }

    #[test]
    fn without_loopback_this_host_needs_one_address() {
        assert_eq!(needed(&interfaces()[1..], Destination::ThisHost), [WIRED]);
        assert_eq!(needed(&[], Destination::ThisHost), [Ipv4Addr::LOCALHOST; 0]);
    }

    #[test]
    fn an_announcement_holds_what_is_needed_and_nothing_else_changes() {
        let both = [(0x31, LOOPBACK), (0x31, WIRED), (0x32, LOOPBACK), (0x32, WIRED)];
        for inline in [false, true] {
            let whole = packet(&both, inline);
            for address in [LOOPBACK, WIRED] {
                let expected = packet(&[(0x31, address), (0x32, address)], inline);
                assert_eq!(with_addresses(&whole, &[address], &[address]), expected);
            }
            let all = [LOOPBACK, WIRED];
            assert_eq!(with_addresses(&whole, &all, &all), whole);
            let expected = packet(&[(0x31, WIRED), (0x32, WIRED), (0x32, WIRELESS)], inline);
            assert_eq!(with_addresses(&whole, &[WIRED], &[WIRED, WIRELESS]), expected);
        }
    }

    #[test]
    fn an_announcement_is_never_left_without_an_address() {
        let whole = packet(&[(0x31, LOOPBACK), (0x32, WIRED)], false);
        assert_eq!(with_addresses(&whole, &[], &[]), whole);
    }

    #[test]
    fn an_announcement_gets_addresses_that_cyclone_does_not_know() {
        let whole = packet(
            &[(0x31, LOOPBACK), (0x31, WIRED), (0x32, LOOPBACK), (0x32, WIRED)],
            true,
        );
        let expected = packet(&[(0x31, WIRELESS), (0x32, WIRELESS)], true);
        assert_eq!(with_addresses(&whole, &[WIRELESS], &[WIRELESS]), expected);
        let one = packet(&[(0x31, LOOPBACK), (0x32, LOOPBACK)], false);
        let both = [(0x31, WIRED), (0x31, WIRELESS), (0x32, WIRED), (0x32, WIRELESS)];
        let all = [WIRED, WIRELESS];
        assert_eq!(with_addresses(&one, &all, &all), packet(&both, false));
    }

    #[test]
    fn another_host_is_reached_by_the_address_that_it_sends_from() {
        const THEIRS: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 99);
        const DOCKER: Ipv4Addr = Ipv4Addr::new(172, 17, 0, 1);
        let is_ours = |address: Ipv4Addr| [LOOPBACK, WIRED, DOCKER].contains(&address);
        let all = [(0x2f, DOCKER), (0x2f, THEIRS), (0x31, DOCKER), (0x31, THEIRS)];
        let kept = [(0, DOCKER), (0x2f, THEIRS), (0, DOCKER), (0x31, THEIRS)];
        // Across a NAT it sends from an address that it does not know.
        for from in [THEIRS, Ipv4Addr::new(9, 9, 9, 9)] {
            for writer in [0xc2_u8, 0x03] {
                let mut received = packet(&all, false);
                let mut expected = packet(&kept, false);
                if writer == 0x03 {
                    let entity = HEADER_BYTES + 8 + 4 + 12;
                    received[entity..entity + 4].copy_from_slice(&DISCOVERY_WRITERS[1]);
                    expected[entity..entity + 4].copy_from_slice(&DISCOVERY_WRITERS[1]);
                }
                keep_reachable(&mut received, from, is_ours);
                assert_eq!(received, expected, "{from} {writer:x}");
            }
        }
        let mut only_ours = packet(&[(0x31, DOCKER)], false);
        keep_reachable(&mut only_ours, THEIRS, is_ours);
        assert_eq!(only_ours, packet(&[(0x31, DOCKER)], false));
    }

    #[test]
    fn announcements_are_recognised_in_pieces() {
        let whole = packet(&[(0x31, LOOPBACK)], false);
        let pieces = [&whole[..20], &whole[20..32], &whole[32..56], &whole[56..]];
        assert_eq!(change_of(pieces.into_iter()), Some(Change::Announcement));
        assert_eq!(change_of([&whole[..]].into_iter()), Some(Change::Announcement));
        let mut other = whole.clone();
        other[32 + 15] = 0xc7;
        assert_eq!(change_of([&other[..]].into_iter()), None);
        assert_eq!(change_of([&whole[..32], &[]].into_iter()), None);
        assert_eq!(change_of(std::iter::empty()), None);
    }

    /// A packet with an ACKNACK for a participant of this vendor.
    fn acknowledgement(vendor: [u8; 2], begin: u32, count: u32) -> Vec<u8> {
        let mut packet = b"RTPS".to_vec();
        packet.extend([0; HEADER_BYTES - 4]);
        packet.extend([INFO_DESTINATION, 1, 12, 0]);
        packet.extend(vendor);
        packet.extend([7; 10]);
        packet.extend([ACKNACK, 1, 24, 0, 0, 0, 3, 0xc7, 0, 0, 3, 0xc2, 0, 0, 0, 0]);
        packet.extend(begin.to_le_bytes());
        packet.extend([0; 4]);
        packet.extend(count.to_le_bytes());
        packet
    }

    #[test]
    fn a_first_acknowledgement_asks_fast_dds_for_a_heartbeat() {
        let first = acknowledgement(VENDOR_FAST_DDS, 1, 0);
        let pieces = [&first[..20], &first[20..]];
        assert_eq!(change_of(pieces.into_iter()), Some(Change::FirstAcknowledgement));
        let counted = asking_for_heartbeats(&first, |reader, writer| {
            let expected = [&VENDOR_FAST_DDS[..], &[7; 10], &[0, 0, 3, 0xc2]].concat();
            assert_eq!(
                (&reader.0[12..], &writer.0[..]),
                (&[0, 0, 3, 0xc7][..], &expected[..])
            );
            5
        });
        assert_eq!(counted, acknowledgement(VENDOR_FAST_DDS, 0, 5));
        for other in [
            acknowledgement([0x01, 0x10], 1, 0),
            acknowledgement(VENDOR_FAST_DDS, 1, 1),
            acknowledgement(VENDOR_FAST_DDS, 5, 0),
        ] {
            assert_eq!(change_of([&other[..]].into_iter()), None);
            assert_eq!(asking_for_heartbeats(&other, |_, _| 5), other);
        }
    }

    #[test]
    fn requests_for_fragments_leave_on_their_own() {
        let acknowledgement = acknowledgement(VENDOR_FAST_DDS, 5, 3);
        let request = [&[NACK_FRAGMENTS, 1, 8, 0][..], &[9; 8]].concat();
        let both = [&acknowledgement[..], &request].concat();
        let destination = HEADER_BYTES + 16;
        let alone = [&acknowledgement[..destination], &request].concat();
        assert_eq!(change_of([&both[..]].into_iter()), Some(Change::FragmentRequest));
        assert_eq!(
            split_fragment_requests(&both),
            (Some(acknowledgement), alone.clone())
        );
        assert_eq!(split_fragment_requests(&alone), (None, alone.clone()));
        let mut for_others = alone;
        for_others[HEADER_BYTES + 4] = 0x33;
        assert_eq!(change_of([&for_others[..]].into_iter()), None);
        assert_eq!(split_fragment_requests(&for_others).0, Some(for_others.clone()));
    }

    #[test]
    fn an_announcement_after_a_first_acknowledgement_is_not_missed() {
        let both = |address: &[(u16, Ipv4Addr)], begin| {
            let mut packed = acknowledgement(VENDOR_FAST_DDS, begin, 0);
            packed.extend(&packet(address, false)[HEADER_BYTES..]);
            packed
        };
        let whole = both(&[(0x31, LOOPBACK), (0x31, WIRED)], 1);
        let pieces = [&whole[..20], &whole[20..64], &whole[64..]];
        assert_eq!(change_of(pieces.into_iter()), Some(Change::Announcement));
        let changed = asking_for_heartbeats(&with_addresses(&whole, &[LOOPBACK], &[LOOPBACK]), |_, _| 0);
        assert_eq!(changed, both(&[(0x31, LOOPBACK)], 0));
    }

    #[test]
    fn a_packet_for_one_participant_is_noticed() {
        let to = |prefix: [u8; 12]| {
            let mut directed = packet(&[(0x31, LOOPBACK)], false);
            directed.splice(20..20, [&[INFO_DESTINATION, 1, 12, 0][..], &prefix].concat());
            directed
        };
        assert_eq!(named_destination(&packet(&[(0x31, LOOPBACK)], false)), None);
        // An announcement of Cyclone to an address before it knows the participant there.
        assert_eq!(named_destination(&to([0; 12])), None);
        assert_eq!(named_destination(&to([7; 12])), Some([7; 12]));
    }

    #[test]
    fn a_farewell_has_no_payload() {
        let mut packet = packet(&[(0x31, LOOPBACK)], true);
        assert!(!is_farewell(&packet));
        let data = packet.iter().position(|byte| *byte == DATA).unwrap();
        packet[data + 1] &= !FLAG_PAYLOAD;
        assert!(is_farewell(&packet));
    }

    #[test]
    fn ports_are_those_of_the_domain() {
        let ports = announcement_ports(WIRED, 1, 2);
        let expected = [7660, 7662, 7664].map(|port| SocketAddrV4::new(WIRED, port));
        assert_eq!(ports, expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..100) {
            let mut whole = packet(&[(0x31, LOOPBACK), (0x31, WIRED)], true);
            let at = at.min(whole.len());
            let end = (at + bytes.len()).min(whole.len());
            whole.splice(at..end, bytes);
            let copy = with_addresses(&whole, &[WIRED], &[WIRED]);
            prop_assert!(copy.len() <= whole.len());
            let mut received = whole.clone();
            keep_reachable(&mut received, WIRED, |address| address == LOOPBACK);
            change_of([&whole[..]].into_iter());
            prop_assert_eq!(asking_for_heartbeats(&whole, |_, _| 1).len(), whole.len());
            named_destination(&whole);
            is_farewell(&whole);
            split_fragment_requests(&whole);
        }
    }
}
