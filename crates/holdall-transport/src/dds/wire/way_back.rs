//! Announcements of our endpoints with their own addresses, for peers that must send to another one than our participant has announced.

use super::locators::{
    HEADER_BYTES, KIND_UDP_V4, LOCATOR_BYTES, Order, is_announcement, is_discovery, payload_of, submessage,
    unicast_locators,
};
use std::net::Ipv4Addr;

const PID_DEFAULT_UNICAST_LOCATOR: u16 = 0x0031;
const PID_UNICAST_LOCATOR: u16 = 0x002f;

/// The port on which our endpoints receive, as a packet announces it with our participant.
pub(in crate::dds) fn data_port(packet: &[u8]) -> Option<u32> {
    let mut at = HEADER_BYTES;
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        if is_announcement(packet, &next) {
            let locators = unicast_locators(&packet[..end], &next, &[PID_DEFAULT_UNICAST_LOCATOR]);
            return Some(locators.first()?.port);
        }
        at = end;
    }
    None
}

/// A copy of a packet whose announcements of endpoints have these addresses and this port, unless they have some already.
pub(in crate::dds) fn with_way_back(packet: &[u8], addresses: &[Ipv4Addr], port: u32) -> Vec<u8> {
    let mut at = HEADER_BYTES.min(packet.len());
    let mut copy = packet[..at].to_vec();
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        let begin = copy.len();
        let is_endpoint = is_discovery(packet, &next)
            && !is_announcement(packet, &next)
            && unicast_locators(&packet[..end], &next, &[PID_UNICAST_LOCATOR]).is_empty();
        let payload = payload_of(packet, &next).filter(|payload| is_endpoint && payload + 4 <= end);
        if let Some(payload) = payload {
            copy.extend_from_slice(&packet[at..payload + 4]);
            let order = Order {
                is_little: packet[payload + 1] & 1 != 0,
            };
            for address in addresses {
                order.put_u16(&mut copy, PID_UNICAST_LOCATOR);
                order.put_u16(&mut copy, LOCATOR_BYTES as u16);
                order.put_u32(&mut copy, KIND_UDP_V4);
                order.put_u32(&mut copy, port);
                copy.extend([0; 12]);
                copy.extend(address.octets());
            }
            at = payload + 4;
        }
        copy.extend_from_slice(&packet[at..end]);
        if next.end != usize::MAX {
            let Ok(len) = u16::try_from(copy.len() - begin - 4) else {
                return packet.to_vec();
            };
            let mut bytes = Vec::new();
            next.order().put_u16(&mut bytes, len);
            copy[begin + 2..begin + 4].copy_from_slice(&bytes);
        }
        at = end;
    }
    copy.extend_from_slice(&packet[at..]);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with one announcement: of a participant with the locator 10.0.0.7:7411, or of a reader.
    fn packet(writer: u8, locator: Option<(u16, [u8; 4])>) -> Vec<u8> {
        let mut payload = vec![0, 3, 0, 0];
        if let Some((id, address)) = locator {
            payload.extend(id.to_le_bytes());
            payload.extend([24, 0, 1, 0, 0, 0]);
            payload.extend(7_411u32.to_le_bytes());
            payload.extend([0; 12]);
            payload.extend(address);
        }
        payload.extend([0x15, 0, 4, 0, 2, 1, 0, 0, 1, 0, 0, 0]);
        let mut packet = vec![0; HEADER_BYTES];
        packet.extend([0x0e, 1, 12, 0]);
        packet.extend([7; 12]);
        packet.extend([0x15, 5]);
        packet.extend((20 + payload.len() as u16).to_le_bytes());
        packet.extend([
            0,
            0,
            16,
            0,
            0,
            0,
            0,
            0,
            0,
            if writer == 1 { 1 } else { 0 },
            writer,
            0xc2,
        ]);
        packet.extend([0, 0, 0, 0, 5, 0, 0, 0]);
        packet.extend(payload);
        // Another submessage follows.
        packet.extend([0x07, 1, 4, 0, 1, 2, 3, 4]);
        packet
    }

    #[test]
    fn endpoints_get_the_address_and_port_and_nothing_else_changes() {
        let participant = packet(0, Some((PID_DEFAULT_UNICAST_LOCATOR, [10, 0, 0, 7])));
        let reader = packet(4, None);
        let way = Ipv4Addr::new(10, 99, 0, 1);
        assert_eq!(
            with_way_back(&reader, &[way], 7_411),
            packet(4, Some((PID_UNICAST_LOCATOR, [10, 99, 0, 1])))
        );
        let already = packet(3, Some((PID_UNICAST_LOCATOR, [10, 0, 0, 7])));
        assert_eq!(with_way_back(&already, &[way], 7_411), already);
        assert_eq!(with_way_back(&participant, &[way], 7_411), participant);
        assert_eq!(data_port(&reader), None);
        for len in 0..reader.len() {
            let _ = (
                with_way_back(&reader[..len], &[way], 1),
                data_port(&participant[..len]),
            );
        }
    }
}
