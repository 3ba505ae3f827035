//! Requests to Fast DDS in the form that it answers: first acknowledgements, and requests for fragments.
//!
//! A Fast DDS participant that discovers us sends the heartbeats of its discovery writers first, and announces itself after that, so Cyclone does not
//! know their participant yet and drops them. Cyclone then asks with an empty ACKNACK that begins at 1; Fast DDS takes that for an acknowledgement
//! and stays silent until its next heartbeat, a second later. To ask for a heartbeat, Fast DDS itself sends an ACKNACK that begins at 0.
//!
//! It knows our readers for as long as it hears us, also when its participant was lost here (it was stopped for longer than its lease, or did not get
//! through). It takes no ACKNACK then whose count it has had, and does not answer Cyclone's first ones, which count 0 each.

use super::locators::{
    ACKNACK, HEADER_BYTES, INFO_DESTINATION, NACK_FRAGMENTS, SUBMESSAGE_HEADER_BYTES, Submessage,
    VENDOR_FAST_DDS, submessage,
};
use holdall_model::topic::Gid;

/// Whether an INFO_DST names a participant of Fast DDS.
pub(in crate::dds) fn names_fast_dds(bytes: &[u8], destination: &Submessage) -> bool {
    let prefix = destination.at + SUBMESSAGE_HEADER_BYTES;
    bytes.get(prefix..prefix + 2) == Some(&VENDOR_FAST_DDS)
}

/// An ACKNACK from before anything was received: it begins at 1, names no number, and has the count 0.
pub(in crate::dds) fn is_first_acknowledgement(bytes: &[u8], acknowledgement: &Submessage) -> bool {
    let order = acknowledgement.order();
    let [high, low, bits, count] =
        [12, 16, 20, 24].map(|offset| order.u32(bytes, acknowledgement.at + offset));
    acknowledgement.id == ACKNACK && (high, low, bits, count) == (Some(0), Some(1), Some(0), Some(0))
}

/// A copy of a packet whose first acknowledgements for Fast DDS begin at 0, which it answers with a heartbeat, and have the next `count` of a reader
/// and a writer.
pub(in crate::dds) fn asking_for_heartbeats(packet: &[u8], count: impl Fn(Gid, Gid) -> u32) -> Vec<u8> {
    let mut copy = packet.to_vec();
    let mut at = HEADER_BYTES;
    let mut fast_dds = None;
    while let Some(next) = submessage(packet, at) {
        if next.id == INFO_DESTINATION {
            let is_named = names_fast_dds(packet, &next);
            fast_dds = Some(next.at + SUBMESSAGE_HEADER_BYTES).filter(|_| is_named);
        } else if let Some(prefix) = fast_dds
            && is_first_acknowledgement(packet, &next)
        {
            let gid = |prefix: usize, entity: usize| {
                let mut gid = [0; 16];
                gid[..12].copy_from_slice(&packet[prefix..prefix + 12]);
                gid[12..].copy_from_slice(&packet[entity..entity + 4]);
                Gid(gid)
            };
            copy[next.at + 16..next.at + 20].fill(0);
            let mut bytes = Vec::new();
            let count = count(gid(8, next.at + 4), gid(prefix, next.at + 8));
            next.order().put_u32(&mut bytes, count);
            copy[next.at + 24..next.at + 28].copy_from_slice(&bytes);
        }
        at = next.end.min(packet.len());
    }
    copy
}

/// A packet without its requests for fragments from Fast DDS, `None` where nothing else is in it, and a packet with those alone.
pub(in crate::dds) fn split_fragment_requests(packet: &[u8]) -> (Option<Vec<u8>>, Vec<u8>) {
    let mut at = HEADER_BYTES.min(packet.len());
    let mut rest = packet[..at].to_vec();
    let mut requests = rest.clone();
    let (mut has_rest, mut is_for_fast_dds) = (false, false);
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        let bytes = &packet[at..end];
        if next.id == INFO_DESTINATION {
            is_for_fast_dds = names_fast_dds(packet, &next);
            rest.extend_from_slice(bytes);
            requests.extend_from_slice(bytes);
        } else if is_for_fast_dds && next.id == NACK_FRAGMENTS {
            requests.extend_from_slice(bytes);
        } else {
            has_rest = true;
            rest.extend_from_slice(bytes);
        }
        at = end;
    }
    (has_rest.then_some(rest), requests)
}
