//! The traffic on a link, counted from the packets themselves: fragments, multicast, RTPS submessages, repairs, TCP
//! retransmissions.

use super::model::DropReason;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Packets and their bytes, IP headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// How many.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// One more packet.
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Packets that never arrived, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Lost at random.
    pub loss: Amount,
    /// The queue was full.
    pub queue: Amount,
    /// During an outage.
    pub outage: Amount,
    /// The receiving device refused it.
    pub refused: Amount,
}

impl Dropped {
    /// One more for a reason of the model.
    pub fn add(&mut self, reason: DropReason, bytes: usize) {
        match reason {
            DropReason::Loss => self.loss.add(bytes),
            DropReason::Queue => self.queue.add(bytes),
            DropReason::Outage => self.outage.add(bytes),
        }
    }

    /// All of them.
    pub fn packets(&self) -> u64 {
        [self.loss, self.queue, self.outage, self.refused]
            .iter()
            .map(|amount| amount.packets)
            .sum()
    }
}

/// One direction of a link. `entered = arrived + dropped + under_way`, to the packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounters {
    /// Packets that the sending end gave to the link.
    pub entered: Amount,
    /// Packets that the receiving end got.
    pub arrived: Amount,
    /// Packets that it never got.
    pub dropped: Dropped,
    /// Packets in flight when the link ended.
    pub under_way: u64,
    /// Packets that are a part of a larger IP datagram.
    pub fragments: u64,
    /// Packets to a multicast address.
    pub multicast: u64,
    /// Submessages of DDS's wire protocol by kind, in whole packets and first fragments.
    pub rtps: BTreeMap<&'static str, u64>,
    /// DATA and DATA_FRAG submessages whose sequence or fragment number is not above all earlier ones of their writer.
    pub rtps_repairs: u64,
    /// TCP segments with bytes that were sent before.
    pub tcp_retransmissions: u64,
}

/// Most flows (writers, connections) that are distinguished in each direction; others are counted without repairs.
const FLOWS_MAX: usize = 65_536;

/// Counts the packets that enter one direction.
#[derive(Debug, Default)]
pub struct Watch {
    /// State by prefix and entity of the writer: the highest sequence number, and the end of its highest fragment.
    writers: HashMap<[u8; 16], (u64, u32)>,
    /// Sequence number of the next new byte, by addresses and ports.
    connections: HashMap<[u8; 12], u32>,
}

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Big-endian numbers of a packet, `None` beyond its end.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Watch {
    /// Counts a packet (IPv4 or IPv6, without a link header) that enters.
    pub fn note(&mut self, packet: &[u8], counters: &mut DirectionCounters) {
        counters.entered.add(packet.len());
        // An unreadable packet counts like any other.
        let _ = self.note_content(packet, counters);
    }

    fn note_content(&mut self, packet: &[u8], counters: &mut DirectionCounters) -> Option<()> {
        let first = *packet.first()?;
        if first >> 4 == 6 {
            counters.multicast += u64::from(*packet.get(24)? == 0xff);
            return None;
        }
        let header = usize::from(first & 15) * 4;
        let fragment = be16(packet, 6)?;
        counters.multicast += u64::from(*packet.get(16)? >> 4 == 14);
        counters.fragments += u64::from(fragment & 0x3fff != 0);
        // Only the first fragment has the header of the protocol.
        if fragment & 0x1fff != 0 {
            return None;
        }
        let body = packet.get(header..)?;
        match packet[9] {
            PROTOCOL_UDP => self.note_rtps(body.get(8..)?, counters),
            PROTOCOL_TCP => self.note_tcp(packet, header, counters),
            _ => None,
        }
    }

    fn note_tcp(&mut self, packet: &[u8], header: usize, counters: &mut DirectionCounters) -> Option<()> {
        let total = usize::from(be16(packet, 2)?);
        let segment = packet.get(header..)?;
        let flags = *segment.get(13)?;
        let sequence = be32(segment, 4)?;
        let data_at = header + usize::from(segment[12] >> 4) * 4;
        // SYN and FIN take a number each.
        let taken =
            total.checked_sub(data_at)? as u32 + u32::from(flags & 2 != 0) + u32::from(flags & 1 != 0);
        if taken == 0 {
            return None;
        }
        let mut key = [0; 12];
        key[..8].copy_from_slice(packet.get(12..20)?);
        key[8..].copy_from_slice(segment.get(..4)?);
        let end = sequence.wrapping_add(taken);
        let is_known = self.connections.contains_key(&key);
        if !is_known && self.connections.len() >= FLOWS_MAX {
            return None;
        }
        let next = self.connections.entry(key).or_insert(sequence);
        // A new connection on the same ports begins anew.
        if flags & 2 != 0 && end.wrapping_sub(*next) != 0 && is_known {
            *next = sequence;
        }
        let is_new = (end.wrapping_sub(*next) as i32) > 0;
        if is_new {
            *next = end;
        } else {
            counters.tcp_retransmissions += 1;
        }
        Some(())
    }

    fn note_rtps(&mut self, message: &[u8], counters: &mut DirectionCounters) -> Option<()> {
        const HEADER_BYTES: usize = 20;
        if !message.starts_with(b"RTPS") {
            return None;
        }
        let prefix: [u8; 12] = message.get(8..HEADER_BYTES)?.try_into().ok()?;
        let mut at = HEADER_BYTES;
        while let Some(&[kind, flags, first, second]) = message.get(at..at + 4) {
            let is_little = flags & 1 != 0;
            let length = [first, second];
            let length = usize::from(if is_little {
                u16::from_le_bytes(length)
            } else {
                u16::from_be_bytes(length)
            });
            *counters.rtps.entry(submessage_name(kind)).or_default() += 1;
            let body = message.get(at + 4..)?;
            if matches!(kind, DATA | DATA_FRAG) && self.is_repair(prefix, kind, body, is_little) == Some(true)
            {
                counters.rtps_repairs += 1;
            }
            // Zero is "to the end of the message", but for two kinds that may be empty.
            if length == 0 && !matches!(kind, PAD | INFO_TS) {
                break;
            }
            at += 4 + length;
        }
        Some(())
    }

    /// Whether the writer sent this sample, or this part of it, before; `None` if that cannot be read.
    fn is_repair(&mut self, prefix: [u8; 12], kind: u8, body: &[u8], is_little: bool) -> Option<bool> {
        let u32_at = |at: usize| {
            let bytes = body.get(at..at + 4)?.try_into().ok()?;
            Some(if is_little {
                u32::from_le_bytes(bytes)
            } else {
                u32::from_be_bytes(bytes)
            })
        };
        let mut writer = [0; 16];
        writer[..12].copy_from_slice(&prefix);
        writer[12..].copy_from_slice(body.get(8..12)?);
        let sequence = u64::from(u32_at(12)?) << 32 | u64::from(u32_at(16)?);
        let last_fragment = if kind == DATA_FRAG {
            let count = u32_at(24)? & 0xffff;
            let count = if is_little { count } else { u32_at(24)? >> 16 };
            u32_at(20)?.saturating_add(count.saturating_sub(1))
        } else {
            u32::MAX
        };
        let is_known = self.writers.contains_key(&writer);
        if !is_known && self.writers.len() >= FLOWS_MAX {
            return None;
        }
        let highest = self.writers.entry(writer).or_default();
        let is_repair = (sequence, last_fragment) <= *highest;
        *highest = (sequence, last_fragment).max(*highest);
        Some(is_repair)
    }
}

const PAD: u8 = 0x01;
const INFO_TS: u8 = 0x09;
const DATA: u8 = 0x15;
const DATA_FRAG: u8 = 0x16;

/// Names of the RTPS specification, version 2.5, table 8.13.
fn submessage_name(kind: u8) -> &'static str {
    match kind {
        PAD => "PAD",
        0x06 => "ACKNACK",
        0x07 => "HEARTBEAT",
        0x08 => "GAP",
        INFO_TS => "INFO_TS",
        0x0c => "INFO_SRC",
        0x0d => "INFO_REPLY_IP4",
        0x0e => "INFO_DST",
        0x0f => "INFO_REPLY",
        0x12 => "NACK_FRAG",
        0x13 => "HEARTBEAT_FRAG",
        DATA => "DATA",
        DATA_FRAG => "DATA_FRAG",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ipv4(protocol: u8, fragment: u16, to: [u8; 4], body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend_from_slice(&(20 + body.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(&fragment.to_be_bytes());
        packet.extend_from_slice(&[64, protocol, 0, 0, 10, 99, 0, 1]);
        packet.extend_from_slice(&to);
        packet.extend_from_slice(body);
        packet
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend_from_slice(payload);
        ipv4(PROTOCOL_UDP, 0, [10, 99, 0, 2], &body)
    }

    fn rtps(submessages: &[Vec<u8>]) -> Vec<u8> {
        udp(&[b"RTPS\x02\x01\x01\x10prefix-of-12".to_vec(), submessages.concat()].concat())
    }

    fn submessage(kind: u8, little: bool, body: &[u8]) -> Vec<u8> {
        let length = body.len() as u16;
        let length = if little {
            length.to_le_bytes()
        } else {
            length.to_be_bytes()
        };
        [&[kind, u8::from(little)], length.as_slice(), body].concat()
    }

    fn data(little: bool, sequence: u32) -> Vec<u8> {
        let number = |number: u32| {
            if little {
                number.to_le_bytes()
            } else {
                number.to_be_bytes()
            }
        };
        submessage(
            DATA,
            little,
            &[[0; 8], [1; 8]]
                .concat()
                .iter()
                .copied()
                .take(12)
                .chain(number(0))
                .chain(number(sequence))
                .collect::<Vec<_>>(),
        )
    }

    fn data_frag(sequence: u32, first: u32, count: u16) -> Vec<u8> {
        let mut body = [0; 12].to_vec();
        for number in [0, sequence, first] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(&count.to_le_bytes());
        body.extend_from_slice(&1344u16.to_le_bytes());
        submessage(DATA_FRAG, true, &body)
    }

    fn counted(packets: &[Vec<u8>]) -> DirectionCounters {
        let (mut watch, mut counters) = (Watch::default(), DirectionCounters::default());
        for packet in packets {
            watch.note(packet, &mut counters);
        }
        counters
    }

    #[test]
    fn fragments_and_multicast_are_counted() {
        let counters = counted(&[
            udp(b"x"),
            ipv4(PROTOCOL_UDP, 0x2000, [10, 99, 0, 2], &[0; 30]),
            ipv4(PROTOCOL_UDP, 0x00b9, [10, 99, 0, 2], &[0; 30]),
            ipv4(PROTOCOL_UDP, 0x4000, [239, 255, 0, 1], &[0; 30]),
            Vec::new(),
        ]);
        assert_eq!((counters.fragments, counters.multicast), (2, 1));
        assert_eq!(
            counters.entered,
            Amount {
                packets: 5,
                bytes: 29 + 50 * 3
            }
        );
    }

    #[test]
    fn samples_that_come_again_are_repairs_in_both_byte_orders() {
        for little in [false, true] {
            let heartbeat = submessage(0x07, little, &[0; 28]);
            let counters = counted(&[
                rtps(&[
                    submessage(INFO_TS, little, &[0; 8]),
                    data(little, 1),
                    heartbeat.clone(),
                ]),
                rtps(&[data(little, 3)]),
                rtps(&[data(little, 2)]),
                rtps(&[data(little, 3)]),
                rtps(&[data(little, 4), heartbeat]),
            ]);
            assert_eq!(
                counters.rtps,
                [("DATA", 5), ("HEARTBEAT", 2), ("INFO_TS", 1)].into()
            );
            assert_eq!(counters.rtps_repairs, 2);
        }
    }

    #[test]
    fn fragments_of_samples_that_come_again_are_repairs() {
        let counters = counted(&[
            rtps(&[data_frag(1, 1, 2)]),
            rtps(&[data_frag(1, 3, 2)]),
            rtps(&[data_frag(1, 1, 2)]),
            rtps(&[data_frag(2, 1, 2)]),
            rtps(&[data_frag(1, 3, 2)]),
        ]);
        assert_eq!((counters.rtps["DATA_FRAG"], counters.rtps_repairs), (5, 2));
    }

    fn tcp(sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
        let mut body = vec![0x1f, 0x90, 0x50, 0x50];
        body.extend_from_slice(&sequence.to_be_bytes());
        body.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        body.resize(body.len() + payload, 7);
        ipv4(PROTOCOL_TCP, 0x4000, [10, 99, 0, 2], &body)
    }

    #[test]
    fn bytes_that_were_sent_before_are_retransmissions_also_where_numbers_wrap() {
        const ACK: u8 = 16;
        let start = u32::MAX - 1000;
        let counters = counted(&[
            tcp(start, 2, 0),
            tcp(start.wrapping_add(1), ACK, 0),
            tcp(start.wrapping_add(1), ACK, 600),
            tcp(start.wrapping_add(601), ACK, 600),
            tcp(start.wrapping_add(601), ACK, 600),
            tcp(start.wrapping_add(1201), ACK | 1, 10),
            tcp(start.wrapping_add(1201), ACK | 1, 10),
        ]);
        assert_eq!(counters.tcp_retransmissions, 2);
    }

    proptest! {
        #[test]
        fn no_packet_is_too_strange(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
            let counters = counted(&packets);
            prop_assert_eq!(counters.entered.packets, packets.len() as u64);
            counted(&packets.iter().map(|payload| rtps(std::slice::from_ref(payload))).collect::<Vec<_>>());
        }
    }
}
