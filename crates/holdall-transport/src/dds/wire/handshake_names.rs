//! Puts our handshakes of secured domains into a form that Fast DDS accepts: names of algorithms lose the NUL that Cyclone DDS appends, and
//! handshakes precede the protected parts of their packet.
//!
//! DDS Security 1.1 defines the names as sequences of bytes. Fast DDS refuses a reply to its own proposal when a name ends with NUL. So the NUL is
//! left out of the packet, and out of our properties that are hashed and signed. Cyclone DDS accepts both forms.
//!
//! Fast DDS drops the rest of a packet after a submessage that it cannot decode yet. Cyclone considers a handshake done when it has queued the last
//! message, and by then asks for keys over a protected channel: where one packet had both, the last message was lost and never repeated. After that
//! message Fast DDS has the key of the channel.

use super::{
    locators::{GuidPrefix, HEADER_BYTES, Order, Submessage, payload_of, submessage},
    reply_identity::any_submessage,
};
use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

/// The properties with such names, in the form that is written.
const PROPERTIES: [&[u8]; 2] = [b"c.dsign_algo\0", b"c.kagree_algo\0"];
/// Writer of handshakes: `ENTITYID_P2P_BUILTIN_PARTICIPANT_STATELESS_WRITER`.
const HANDSHAKES: [u8; 4] = [0, 2, 1, 0xc3];
const DATA: u8 = 0x15;
const INFO_TS: u8 = 0x09;
const INFO_DST: u8 = 0x0e;
/// Protected parts begin and end with these.
const SEC_PREFIX: u8 = 0x31;
const SEC_POSTFIX: u8 = 0x32;

/// Our secured participants.
static OWN: RwLock<Vec<GuidPrefix>> = RwLock::new(Vec::new());
/// True when we have one; until then, each packet costs one look at this.
static ANY: AtomicBool = AtomicBool::new(false);

/// Marks one of our participants as secured, as long as this lives.
pub(in crate::dds) struct SecuredParticipant(GuidPrefix);

impl SecuredParticipant {
    /// Begins to change its handshakes.
    pub(in crate::dds) fn new(prefix: GuidPrefix) -> Self {
        OWN.write().unwrap_or_else(PoisonError::into_inner).push(prefix);
        ANY.store(true, Ordering::Release);
        Self(prefix)
    }
}

impl Drop for SecuredParticipant {
    fn drop(&mut self) {
        let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
        own.retain(|prefix| *prefix != self.0);
        ANY.store(!own.is_empty(), Ordering::Release);
    }
}

/// Whether a packet, given in the pieces that it is sent from, has a message of a handshake.
pub(in crate::dds) fn has_handshake<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    ANY.load(Ordering::Acquire) && any_submessage(pieces, |_, piece, next| is_handshake(piece, next))
}

fn is_handshake(bytes: &[u8], next: &Submessage) -> bool {
    next.id == DATA && bytes.get(next.at + 12..next.at + 16) == Some(&HANDSHAKES[..])
}

/// A copy of a packet with handshakes that Fast DDS accepts.
pub(in crate::dds) fn accepted_by_all(packet: &[u8]) -> Vec<u8> {
    let bare = with_bare_names(packet);
    with_protected_last(&bare).unwrap_or(bare)
}

/// A copy of a packet in which everything that is protected comes last; `None` where there is nothing to move.
fn with_protected_last(packet: &[u8]) -> Option<Vec<u8>> {
    let mut at = HEADER_BYTES;
    let (mut first, mut last) = (packet.get(..at)?.to_vec(), Vec::new());
    // The last submessages that set the destination and the time of those after them.
    let (mut receiver, mut time): (&[u8], &[u8]) = (&[], &[]);
    let mut is_protected = false;
    while let Some(next) = submessage(packet, at) {
        // A submessage of unknown length must stay last.
        let bytes = packet.get(at..next.end)?;
        if next.id == SEC_PREFIX && !is_protected {
            is_protected = true;
            last.extend_from_slice(receiver);
            last.extend_from_slice(time);
        }
        match next.id {
            _ if is_protected => last.extend_from_slice(bytes),
            INFO_DST => receiver = bytes,
            INFO_TS => time = bytes,
            _ => {}
        }
        if !is_protected {
            first.extend_from_slice(bytes);
        }
        is_protected &= next.id != SEC_POSTFIX;
        at = next.end;
    }
    if last.is_empty() {
        return None;
    }
    first.extend_from_slice(&last);
    first.extend_from_slice(packet.get(at..)?);
    Some(first)
}

/// A copy of a packet whose handshakes have no NUL at the end of names.
fn with_bare_names(packet: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(packet.len());
    let mut at = HEADER_BYTES.min(packet.len());
    copy.extend_from_slice(&packet[..at]);
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        let changed = is_handshake(packet, &next)
            .then(|| changed(&packet[..end], &next))
            .flatten();
        match changed {
            Some(changed) => copy.extend_from_slice(&changed),
            None => copy.extend_from_slice(&packet[at..end]),
        }
        at = end;
    }
    copy.extend_from_slice(&packet[at..]);
    copy
}

/// A submessage, which ends with `packet`, without the NULs; `None` where there are none.
fn changed(packet: &[u8], data: &Submessage) -> Option<Vec<u8>> {
    let payload = payload_of(packet, data)?;
    let order = Order {
        is_little: packet.get(payload + 1)? & 1 != 0,
    };
    let (head, content) = packet.get(data.at..)?.split_at_checked(payload + 4 - data.at)?;
    let mut changed = [head, &bare(content, order)?[..]].concat();
    if data.end != usize::MAX {
        let mut len = Vec::new();
        data.order()
            .put_u16(&mut len, u16::try_from(changed.len() - 4).ok()?);
        changed[2..4].copy_from_slice(&len);
    }
    Some(changed)
}

/// The bytes to hash in place of these properties of a handshake; `None` when they are unchanged, as those of other participants are.
#[cfg(any(
    test,
    all(feature = "sros2", any(target_arch = "x86_64", target_arch = "aarch64"))
))]
pub(in crate::dds) fn to_be_hashed(properties: &[u8]) -> Option<Vec<u8>> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    // `c.pdata` has the GUID.
    let is_own = own
        .iter()
        .any(|prefix| properties.windows(prefix.len()).any(|bytes| bytes == prefix));
    is_own
        .then(|| bare(properties, Order { is_little: false }))
        .flatten()
}

/// Serialized properties without the NULs; `None` where there are none.
fn bare(bytes: &[u8], order: Order) -> Option<Vec<u8>> {
    let mut out: Option<Vec<u8>> = None;
    let mut copied = 0;
    for property in PROPERTIES {
        let Some(name) = bytes
            .windows(property.len())
            .position(|window| window == property)
        else {
            continue;
        };
        let at = name + property.len().next_multiple_of(4);
        let Some(len) = order.u32(bytes, at).and_then(|len| usize::try_from(len).ok()) else {
            continue;
        };
        let (begin, end) = (at + 4, (at + 4).saturating_add(len));
        if name < copied || len < 2 || bytes.get(end - 1) != Some(&0) {
            continue;
        }
        let out = out.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
        out.extend_from_slice(&bytes[copied..at]);
        order.put_u32(out, u32::try_from(len - 1).ok()?);
        out.extend_from_slice(&bytes[begin..end - 1]);
        copied = (at + 4 + len.next_multiple_of(4)).min(bytes.len());
        if copied < bytes.len() {
            out.resize(out.len() + (len - 1).next_multiple_of(4) - (len - 1), 0);
        }
    }
    out.map(|mut out| {
        out.extend_from_slice(&bytes[copied..]);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(name: &[u8], value: &[u8], order: Order) -> Vec<u8> {
        let mut out = Vec::new();
        for text in [name, value] {
            order.put_u32(&mut out, u32::try_from(text.len()).unwrap());
            out.extend_from_slice(text);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    fn properties(dsign: &[u8], kagree: &[u8], order: Order) -> Vec<u8> {
        let before = property(b"c.id\0", b"a certificate\n", order);
        let dsign = property(b"c.dsign_algo\0", dsign, order);
        [before, dsign, property(b"c.kagree_algo\0", kagree, order)].concat()
    }

    #[test]
    fn names_lose_their_nul_and_nothing_else_changes() {
        for order in [Order { is_little: true }, Order { is_little: false }] {
            for (dsign, kagree) in [
                (&b"ECDSA-SHA256"[..], &b"DH+MODP-2048-256"[..]),
                (&b"RSASSA-PSS-SHA256"[..], &b"ECDH+prime256v1-CEUM"[..]),
            ] {
                let bare_ones = properties(dsign, kagree, order);
                let given = properties(&[dsign, b"\0"].concat(), &[kagree, b"\0"].concat(), order);
                assert_eq!(bare(&given, order).unwrap(), bare_ones);
                assert_eq!(bare(&bare_ones, order), None);
            }
        }
        let cut = properties(
            b"ECDSA-SHA256\0",
            b"DH+MODP-2048-256\0",
            Order { is_little: true },
        );
        for len in 0..cut.len() {
            bare(&cut[..len], Order { is_little: true });
        }
    }

    #[test]
    fn only_our_own_properties_are_hashed_otherwise() {
        let order = Order { is_little: false };
        let given = properties(b"ECDSA-SHA256\0", b"DH+MODP-2048-256\0", order);
        let own: GuidPrefix = [0xee; 12];
        let of_own = [&given[..], &own].concat();
        assert_eq!(to_be_hashed(&of_own), None);
        let secured = SecuredParticipant::new(own);
        assert_eq!(to_be_hashed(&of_own).unwrap().len(), of_own.len() - 8);
        assert_eq!(to_be_hashed(&given), None);
        drop(secured);
        assert_eq!(to_be_hashed(&of_own), None);
    }

    #[test]
    fn a_handshake_in_a_packet_is_shortened_and_others_are_left_alone() {
        let order = Order { is_little: true };
        let content = properties(b"ECDSA-SHA256\0", b"DH+MODP-2048-256\0", order);
        let packet = |writer: [u8; 4]| {
            let mut packet = b"RTPS\x02\x05\x01\x10".to_vec();
            packet.extend([7; 12]);
            let body = [
                &[0, 0, 16, 0, 0, 0, 0, 0][..],
                &writer,
                &[0, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0],
                &content,
            ]
            .concat();
            packet.extend([DATA, 5]);
            packet.extend(u16::try_from(body.len()).unwrap().to_le_bytes());
            packet.extend(body);
            packet.extend([0x09, 1, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
            packet
        };
        let ours = packet(HANDSHAKES);
        let changed = with_bare_names(&ours);
        assert_eq!(changed.len(), ours.len() - 8);
        assert_eq!(with_bare_names(&changed), changed);
        let first = submessage(&changed, HEADER_BYTES).unwrap();
        assert_eq!(changed[first.end], 0x09, "the next one follows");
        let other = packet([0, 0, 1, 3]);
        assert_eq!(with_bare_names(&other), other);
        let _secured = SecuredParticipant::new([0xdd; 12]);
        assert!(has_handshake(ours.chunks(64)) && !has_handshake(other.chunks(64)));
    }

    #[test]
    fn what_is_protected_comes_last_in_a_packet_with_a_handshake() {
        let one = |id: u8, content: &[u8]| {
            let len = u16::try_from(content.len()).unwrap().to_le_bytes();
            [&[id, 1, len[0], len[1]][..], content].concat()
        };
        let header = [&b"RTPS\x02\x05\x01\x10"[..], &[7; 12]].concat();
        let (receiver, time) = (one(INFO_DST, &[1; 12]), one(INFO_TS, &[2; 8]));
        let heartbeat = one(0x07, &[3; 28]);
        let protected = [
            one(SEC_PREFIX, &[4; 20]),
            one(0x30, &[5; 24]),
            one(SEC_POSTFIX, &[6; 20]),
        ]
        .concat();
        let handshake = one(DATA, &[8; 40]);
        let parts: [&[u8]; 6] = [&header, &receiver, &heartbeat, &protected, &time, &handshake];
        let expected: [&[u8]; 7] = [
            &header, &receiver, &heartbeat, &time, &handshake, &receiver, &protected,
        ];
        assert_eq!(with_protected_last(&parts.concat()).unwrap(), expected.concat());
        let unprotected = [&header[..], &receiver, &heartbeat, &handshake].concat();
        assert_eq!(with_protected_last(&unprotected), None);
        // The last submessage may have no length, which means that it ends with the packet.
        let mut open = parts.concat();
        let len = open.len() - handshake.len() + 2;
        open[len..len + 2].fill(0);
        assert_eq!(with_protected_last(&open), None);
        for len in 0..open.len() {
            with_protected_last(&open[..len]);
        }
    }
}
