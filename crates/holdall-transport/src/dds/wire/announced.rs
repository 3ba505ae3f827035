//! What participants announce about themselves: a pure reader of discovery packets, for participants that Cyclone DDS drops.

use super::locators::{
    ANNOUNCED_LOCATORS, GuidPrefix, HEADER_BYTES, KIND_UDP_V4, LOCATOR_BYTES, Order, Submessage,
    is_announcement, is_farewell, parameters, payload_of, submessage,
};
use std::collections::BTreeSet;

/// Begins each packet of RTPS.
const MAGIC: &[u8] = b"RTPS";
/// `PID_DEFAULT_MULTICAST_LOCATOR`.
const DEFAULT_MULTICAST_LOCATOR: u16 = 0x0048;
const PID_DOMAIN_ID: u16 = 0x000f;
const PID_PARTICIPANT_GUID: u16 = 0x0050;
const PID_PROPERTY_LIST: u16 = 0x0059;
const PID_ENTITY_NAME: u16 = 0x0062;
/// Identity token, permissions token, security information and the algorithms of DDS Security: what only secured participants announce.
const PIDS_OF_SECURITY: [u16; 4] = [0x1001, 0x1002, 0x1005, 0x1007];
/// Most properties of a participant that are read.
const PROPERTIES_MAX: u32 = 64;
/// Longest text that is kept, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// What can carry messages to a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::dds) enum Carrier {
    UdpV4,
    UdpV6,
    Tcp,
    SharedMemory,
    Other(u32),
}

impl Carrier {
    fn of(kind: u32) -> Self {
        match kind {
            KIND_UDP_V4 => Self::UdpV4,
            2 => Self::UdpV6,
            4 | 8 => Self::Tcp,
            // Fast DDS, and Connext.
            16 | 0x0100_0000 => Self::SharedMemory,
            other => Self::Other(other),
        }
    }

    /// In words.
    pub(in crate::dds) const fn name(self) -> &'static str {
        match self {
            Self::UdpV4 => "UDP",
            Self::UdpV6 => "UDP over IPv6",
            Self::Tcp => "TCP",
            Self::SharedMemory => "shared memory",
            Self::Other(_) => "a transport of its vendor",
        }
    }
}

/// A participant's announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::dds) struct Announced {
    /// The participant that it describes.
    pub participant: GuidPrefix,
    /// Its domain, where it is announced.
    pub domain: Option<u32>,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// The computer and the process that it runs in, where its vendor announces them.
    pub host: Option<String>,
    pub process: Option<u32>,
    /// What its messages can be received over.
    pub data: BTreeSet<Carrier>,
    /// What its endpoints can be discovered over.
    pub discovery: BTreeSet<Carrier>,
    /// It takes part in a secured domain.
    pub is_secured: bool,
}

impl Announced {
    /// True when neither messages nor endpoints reach it over UDP and IPv4.
    pub(in crate::dds) fn lacks_udp(&self) -> bool {
        let lacks =
            |carriers: &BTreeSet<Carrier>| !carriers.is_empty() && !carriers.contains(&Carrier::UdpV4);
        lacks(&self.data) || lacks(&self.discovery)
    }
}

/// The announcements in a packet from the network; farewells and everything else are skipped.
pub(in crate::dds) fn announced_in(packet: &[u8]) -> Vec<Announced> {
    let mut found = Vec::new();
    if packet.len() < HEADER_BYTES || !packet.starts_with(MAGIC) || is_farewell(packet) {
        return found;
    }
    let mut at = HEADER_BYTES;
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        if is_announcement(packet, &next) {
            found.extend(announced(&packet[..end], &next));
        }
        at = end;
    }
    found
}

/// Reads one announcement, which fills the bytes.
fn announced(packet: &[u8], data: &Submessage) -> Option<Announced> {
    let payload = payload_of(packet, data)?;
    let order = Order {
        is_little: packet.get(payload + 1)? & 1 != 0,
    };
    let mut about = Announced {
        participant: packet.get(8..HEADER_BYTES)?.try_into().ok()?,
        ..Announced::default()
    };
    for (place, id) in parameters(packet, payload + 4, order) {
        let len = usize::from(order.u16(packet, place + 2)?);
        let value = packet.get(place + 4..place + 4 + len)?;
        about.note(id, value, order);
    }
    Some(about)
}

impl Announced {
    /// Applies one parameter; ones that are too short are skipped.
    fn note(&mut self, id: u16, value: &[u8], order: Order) {
        let [default_unicast, discovery_unicast] = ANNOUNCED_LOCATORS;
        if PIDS_OF_SECURITY.contains(&id) {
            self.is_secured = true;
        } else if id == PID_DOMAIN_ID {
            self.domain = order.u32(value, 0);
        } else if id == PID_ENTITY_NAME {
            self.name = text(value, &mut 0, order).filter(|name| !name.is_empty());
        } else if id == PID_PROPERTY_LIST {
            self.note_properties(value, order);
        } else if id == PID_PARTICIPANT_GUID {
            let prefix = value.get(..12).and_then(|prefix| prefix.try_into().ok());
            self.participant = prefix.unwrap_or(self.participant);
        } else if value.len() >= LOCATOR_BYTES
            && let Some(kind) = order.u32(value, 0)
        {
            if id == default_unicast || id == DEFAULT_MULTICAST_LOCATOR {
                self.data.insert(Carrier::of(kind));
            } else if id == discovery_unicast {
                self.discovery.insert(Carrier::of(kind));
            }
        }
    }

    fn note_properties(&mut self, value: &[u8], order: Order) {
        let count = order.u32(value, 0).unwrap_or(0).min(PROPERTIES_MAX);
        let mut at = 4;
        for _ in 0..count {
            let Some(name) = text(value, &mut at, order) else {
                return;
            };
            let Some(content) = text(value, &mut at, order) else {
                return;
            };
            match name.as_str() {
                // Fast DDS appends a number to the name.
                "fastdds.physical_data.host" => {
                    self.host = content.split(':').next().map(str::to_owned);
                }
                "__Hostname" => self.host = Some(content),
                "fastdds.physical_data.process" | "__Pid" => self.process = content.trim().parse().ok(),
                _ => {}
            }
        }
    }
}

/// Reads a length-prefixed text at `at`, and moves `at` to the next aligned place.
fn text(bytes: &[u8], at: &mut usize, order: Order) -> Option<String> {
    let len = usize::try_from(order.u32(bytes, *at)?).ok()?;
    let begin = *at + 4;
    let content = bytes.get(begin..begin.checked_add(len)?)?;
    *at = (begin + len).next_multiple_of(4);
    let content = content.split(|byte| *byte == 0).next().unwrap_or_default();
    let kept = &content[..content.len().min(TEXT_BYTES_MAX)];
    Some(String::from_utf8_lossy(kept).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sent by a node of Jazzy (Fast DDS 2.14.5) in domain 77 with `FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA`, and by one without that.
    const LARGE_DATA: &str = include_str!("../announcements/fast_dds_large_data.hex");
    const DEFAULT: &str = include_str!("../announcements/fast_dds_default.hex");

    fn captured(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn one(packet: &[u8]) -> Announced {
        let [about] = &announced_in(packet)[..] else {
            panic!("not one announcement")
        };
        about.clone()
    }

    #[test]
    fn a_participant_without_udp_is_noticed() {
        let about = one(&captured(LARGE_DATA));
        assert_eq!(about.participant[..4], [0x01, 0x0f, 0x78, 0xfd]);
        assert_eq!(
            (about.name.as_deref(), about.host.as_deref()),
            (Some("/"), Some("vm"))
        );
        assert_eq!((about.process, about.is_secured), (Some(30_373), false));
        assert_eq!(about.data, BTreeSet::from([Carrier::Tcp, Carrier::SharedMemory]));
        assert_eq!(about.discovery, BTreeSet::from([Carrier::Tcp]));
        assert!(about.lacks_udp());
    }

    #[test]
    fn a_participant_with_udp_beside_shared_memory_is_heard() {
        let about = one(&captured(DEFAULT));
        assert_eq!(
            about.data,
            BTreeSet::from([Carrier::UdpV4, Carrier::SharedMemory])
        );
        assert!(!about.lacks_udp() && !about.is_secured);
    }

    /// The captured packet with one more parameter before all others.
    fn with_parameter(id: u16, value: &[u8]) -> Vec<u8> {
        let mut packet = captured(DEFAULT);
        let data = HEADER_BYTES + 12;
        let at = data + 4 + 20 + 4;
        let mut parameter = id.to_le_bytes().to_vec();
        parameter.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        parameter.extend(value);
        packet.splice(at..at, parameter);
        let len = u16::from_le_bytes([packet[data + 2], packet[data + 3]]);
        let len = len + 4 + u16::try_from(value.len()).unwrap();
        packet[data + 2..data + 4].copy_from_slice(&len.to_le_bytes());
        packet
    }

    #[test]
    fn secured_participants_and_domains_are_noticed() {
        assert!(one(&with_parameter(0x1001, &[0; 8])).is_secured);
        assert!(one(&with_parameter(0x1005, &[0; 8])).is_secured);
        assert_eq!(
            one(&with_parameter(PID_DOMAIN_ID, &[77, 0, 0, 0])).domain,
            Some(77)
        );
        assert_eq!(one(&with_parameter(PID_DOMAIN_ID, &[77, 0])).domain, None);
    }

    #[test]
    fn what_announces_nothing_is_skipped() {
        assert_eq!(announced_in(b""), []);
        assert_eq!(announced_in(b"RTPS"), []);
        let mut other = captured(DEFAULT);
        other[0] = b'X';
        assert_eq!(announced_in(&other), []);
        // A farewell has no payload.
        let mut farewell = captured(DEFAULT);
        farewell[HEADER_BYTES + 13] &= !4;
        assert_eq!(announced_in(&farewell), []);
    }

    #[test]
    fn cut_packets_are_survived() {
        let whole = captured(LARGE_DATA);
        for len in 0..whole.len() {
            announced_in(&whole[..len]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..500) {
            let mut whole = captured(LARGE_DATA);
            let at = at.min(whole.len());
            let end = (at + bytes.len()).min(whole.len());
            whole.splice(at..end, bytes);
            for about in announced_in(&whole) {
                prop_assert!(about.name.is_none_or(|name| name.len() <= 3 * TEXT_BYTES_MAX));
            }
        }
    }
}
