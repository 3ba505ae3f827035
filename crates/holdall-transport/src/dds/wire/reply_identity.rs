//! Which request a reply answers, in the way that Fast DDS clients need it: the *related sample identity* in the inline QoS of a reply.
//!
//! Cyclone DDS has no call for such a parameter. Each of its packets leaves through a function of this transport ([`crate::dds::ffi::announcing`]), which
//! adds the parameter to the first packet of a reply and to each repetition (docs/adr/0015). Cyclone keeps the reply alone, and a client gets it
//! alone as payload.

use super::locators::{FLAG_INLINE_QOS, HEADER_BYTES, Order, PID_SENTINEL, Submessage, submessage};
use holdall_model::topic::Gid;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// A request: the client's writer and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) struct RequestIdentity {
    /// The client's writer.
    pub client: Gid,
    /// Its sequence number of the request.
    pub sequence: u64,
}

/// `PID_RELATED_SAMPLE_IDENTITY`: Fast DDS from 2.10 on reads it from every vendor.
const PID_RELATED: u16 = 0x0083;
/// The same parameter before it had a standard number: Fast DDS 2.6 reads only this one, later versions ignore it from other vendors.
const PID_RELATED_OLD: u16 = 0x800f;
const IDENTITY_BYTES: usize = 24;
const DATA: u8 = 0x15;
const DATA_FRAGMENT: u8 = 0x16;

/// Identities that are kept for each writer: more than a writer keeps samples to repeat.
const KEPT_MAX: usize = 512;

/// The replies that are sent, or may be sent again, by writer.
static REPLIES: RwLock<BTreeMap<Gid, Kept>> = RwLock::new(BTreeMap::new());

/// Sequence number and request, in ascending order.
type Kept = VecDeque<(u64, RequestIdentity)>;

/// True when some writer of this process sends replies; until then, each packet costs one look at this.
static ANY: AtomicBool = AtomicBool::new(false);

/// The identities of one writer's replies, as long as this lives.
pub(in crate::dds) struct ReplyIdentities(Gid);

impl ReplyIdentities {
    /// Begins to add identities to what `writer` sends.
    pub(in crate::dds) fn of(writer: Gid) -> Self {
        replies_mut(|replies| replies.insert(writer, Kept::new()));
        ANY.store(true, Ordering::Release);
        Self(writer)
    }

    /// The sample with this number will answer `request`. Must be called before the sample is written.
    pub(in crate::dds) fn add(&self, sequence: u64, request: RequestIdentity) {
        replies_mut(|replies| {
            let kept = replies.entry(self.0).or_default();
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back((sequence, request));
        });
    }

    /// The sample was not written after all.
    pub(in crate::dds) fn remove(&self, sequence: u64) {
        replies_mut(|replies| {
            let kept = replies.entry(self.0).or_default();
            kept.retain(|(number, _)| *number != sequence);
        });
    }
}

impl Drop for ReplyIdentities {
    fn drop(&mut self) {
        let is_last = replies_mut(|replies| {
            replies.remove(&self.0);
            replies.is_empty()
        });
        if is_last {
            ANY.store(false, Ordering::Release);
        }
    }
}

fn replies_mut<T>(with: impl FnOnce(&mut BTreeMap<Gid, Kept>) -> T) -> T {
    with(&mut REPLIES.write().unwrap_or_else(PoisonError::into_inner))
}

/// The request that a `DATA` or `DATA_FRAG` submessage answers, if any.
fn answered(prefix: &[u8], bytes: &[u8], data: &Submessage) -> Option<RequestIdentity> {
    if !matches!(data.id, DATA | DATA_FRAGMENT) {
        return None;
    }
    let mut writer = [0; 16];
    writer[..12].copy_from_slice(prefix);
    writer[12..].copy_from_slice(bytes.get(data.at + 12..data.at + 16)?);
    let order = data.order();
    let sequence =
        u64::from(order.u32(bytes, data.at + 16)?) << 32 | u64::from(order.u32(bytes, data.at + 20)?);
    let replies = REPLIES.read().unwrap_or_else(PoisonError::into_inner);
    let kept = replies.get(&Gid(writer))?;
    let index = kept.binary_search_by_key(&sequence, |(number, _)| *number).ok()?;
    Some(kept[index].1)
}

/// Whether a packet, given in the pieces that it is sent from, holds a reply.
pub(in crate::dds) fn has_reply<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    ANY.load(Ordering::Acquire)
        && any_submessage(pieces, |prefix, piece, next| {
            answered(prefix, piece, next).is_some()
        })
}

/// Whether `is_wanted` is true for a submessage of a packet, given in the pieces that it is sent from; it is called with the packet's GUID prefix,
/// and the piece that the submessage's head is in.
///
/// Called for each packet that leaves, so nothing is copied: the head of a submessage is never split.
pub(in crate::dds) fn any_submessage<'a>(
    mut pieces: impl Iterator<Item = &'a [u8]>,
    is_wanted: impl Fn(&[u8], &[u8], &Submessage) -> bool,
) -> bool {
    let Some(first) = pieces.next() else {
        return false;
    };
    let Some(prefix) = first.get(8..HEADER_BYTES) else {
        return false;
    };
    let (mut piece, mut at) = (first, HEADER_BYTES);
    loop {
        while at < piece.len() {
            let Some(next) = submessage(piece, at) else {
                return false;
            };
            if is_wanted(prefix, piece, &next) {
                return true;
            }
            if next.end == usize::MAX {
                return false;
            }
            at = next.end;
        }
        at -= piece.len();
        match pieces.next() {
            Some(next) => piece = next,
            None => return false,
        }
    }
}

/// A copy of a packet whose replies have their identities.
pub(in crate::dds) fn with_identities(packet: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(packet.len() + 2 * (4 + IDENTITY_BYTES) + 4);
    let mut at = HEADER_BYTES.min(packet.len());
    copy.extend_from_slice(&packet[..at]);
    let prefix = packet.get(8..HEADER_BYTES).unwrap_or(&[0; 12]);
    while let Some(next) = submessage(packet, at) {
        let end = next.end.min(packet.len());
        let changed =
            answered(prefix, packet, &next).and_then(|request| identified(&packet[..end], &next, request));
        match changed {
            Some(changed) => copy.extend_from_slice(&changed),
            None => copy.extend_from_slice(&packet[at..end]),
        }
        at = end;
    }
    copy.extend_from_slice(&packet[at..]);
    copy
}

/// A submessage, which ends with `packet`, with an identity in its inline QoS; `None` where there is no room.
fn identified(packet: &[u8], data: &Submessage, request: RequestIdentity) -> Option<Vec<u8>> {
    let order = data.order();
    // Counted from after the field itself.
    let parameters = data.at + 8 + usize::from(order.u16(packet, data.at + 6)?);
    let (head, rest) = packet.get(data.at..)?.split_at_checked(parameters - data.at)?;
    let mut changed = head.to_vec();
    for id in [PID_RELATED, PID_RELATED_OLD] {
        order.put_u16(&mut changed, id);
        order.put_u16(&mut changed, IDENTITY_BYTES as u16);
        changed.extend_from_slice(&request.client.0);
        order.put_u32(&mut changed, (request.sequence >> 32) as u32);
        order.put_u32(&mut changed, request.sequence as u32);
    }
    if data.flags & FLAG_INLINE_QOS == 0 {
        changed[1] |= FLAG_INLINE_QOS;
        order.put_u16(&mut changed, PID_SENTINEL);
        order.put_u16(&mut changed, 0);
    }
    changed.extend_from_slice(rest);
    if data.end != usize::MAX {
        let mut len = Vec::new();
        order.put_u16(&mut len, u16::try_from(changed.len() - 4).ok()?);
        changed[2..4].copy_from_slice(&len);
    }
    Some(changed)
}

/// The request that a sample with this inline QoS answers.
pub(in crate::dds) fn identity_in(parameters: &[u8], is_little: bool) -> Option<RequestIdentity> {
    let order = Order { is_little };
    let mut at = 0;
    loop {
        let (id, len) = (
            order.u16(parameters, at)?,
            usize::from(order.u16(parameters, at + 2)?),
        );
        if id == PID_SENTINEL {
            return None;
        }
        if matches!(id, PID_RELATED | PID_RELATED_OLD) && len == IDENTITY_BYTES {
            let mut client = [0; 16];
            client.copy_from_slice(parameters.get(at + 4..at + 20)?);
            let high = order.u32(parameters, at + 20)?;
            let low = order.u32(parameters, at + 24)?;
            return Some(RequestIdentity {
                client: Gid(client),
                sequence: u64::from(high) << 32 | u64::from(low),
            });
        }
        at += 4 + len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: Gid = Gid([7; 16]);

    fn writer(number: u8) -> Gid {
        let mut gid = [number; 16];
        gid[15] = 3;
        Gid(gid)
    }

    /// A packet of a writer: a time stamp, then a sample, which may be left without its length.
    fn packet(writer: Gid, sequence: u32, is_fragment: bool, has_len: bool) -> Vec<u8> {
        let mut packet = b"RTPS\x02\x01\x01\x10".to_vec();
        packet.extend_from_slice(&writer.0[..12]);
        packet.extend_from_slice(&[0x09, 1, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let fixed = if is_fragment { 28_u16 } else { 16 };
        let len = if has_len { 4 + fixed + 8 } else { 0 };
        packet.extend_from_slice(&[if is_fragment { 0x16 } else { 0x15 }, 5]);
        packet.extend_from_slice(&len.to_le_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(&fixed.to_le_bytes());
        packet.extend_from_slice(&[0; 4]);
        packet.extend_from_slice(&writer.0[12..]);
        packet.extend_from_slice(&[0; 4]);
        packet.extend_from_slice(&sequence.to_le_bytes());
        packet.extend_from_slice(&[9; 12][..usize::from(fixed) - 16]);
        packet.extend_from_slice(b"\0\x01\0\0body");
        packet
    }

    fn request(sequence: u64) -> RequestIdentity {
        RequestIdentity {
            client: CLIENT,
            sequence,
        }
    }

    #[test]
    fn a_reply_gets_its_identity_and_keeps_its_payload() {
        let writer = writer(1);
        let identities = ReplyIdentities::of(writer);
        identities.add(5, request(1 << 32 | 9));
        for (is_fragment, has_len) in [(false, true), (true, true), (false, false)] {
            let before = packet(writer, 5, is_fragment, has_len);
            assert!(has_reply([&before[..20], &before[20..]].into_iter()));
            let after = with_identities(&before);
            assert_eq!(after.len(), before.len() + 60);
            let data = submessage(&after, 32).unwrap();
            assert_eq!(data.flags, 5 | FLAG_INLINE_QOS);
            assert_eq!(data.end.min(after.len()), after.len());
            let parameters = 32 + if is_fragment { 36 } else { 24 };
            assert_eq!(&after[parameters..][..4], [0x83, 0, 24, 0]);
            assert_eq!(&after[parameters + 28..][..4], [0x0f, 0x80, 24, 0]);
            let found = identity_in(&after[parameters..], true);
            assert_eq!(found, Some(request(1 << 32 | 9)));
            assert!(after.ends_with(b"\x01\0\0\0\0\x01\0\0body"));
        }
    }

    #[test]
    fn other_packets_stay_as_they_are() {
        let (ours, other) = (writer(2), writer(3));
        let identities = ReplyIdentities::of(ours);
        identities.add(5, request(9));
        for packet in [packet(other, 5, false, true), packet(ours, 6, false, true)] {
            assert!(!has_reply([&packet[..]].into_iter()));
            assert_eq!(with_identities(&packet), packet);
        }
        identities.remove(5);
        assert!(!has_reply([&packet(ours, 5, false, true)[..]].into_iter()));
        identities.add(5, request(9));
        drop(identities);
        assert!(!has_reply([&packet(ours, 5, false, true)[..]].into_iter()));
    }

    #[test]
    fn inline_qos_that_is_there_already_stays() {
        let writer = writer(4);
        let identities = ReplyIdentities::of(writer);
        identities.add(1, request(2));
        let mut before = packet(writer, 1, false, true);
        let status = [0x71, 0, 4, 0, 0, 0, 0, 3, 1, 0, 0, 0];
        before.splice(56..56, status);
        before[33] |= FLAG_INLINE_QOS;
        before[34] += 12;
        let after = with_identities(&before);
        assert_eq!(after.len(), before.len() + 56);
        assert_eq!(identity_in(&after[56..], true), Some(request(2)));
        assert_eq!(&after[112..124], status);
    }

    #[test]
    fn only_the_last_identities_are_kept() {
        let writer = writer(5);
        let identities = ReplyIdentities::of(writer);
        (1..=KEPT_MAX as u64 + 1).for_each(|number| identities.add(number, request(number)));
        assert!(!has_reply([&packet(writer, 1, false, true)[..]].into_iter()));
        assert!(has_reply([&packet(writer, 2, false, true)[..]].into_iter()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..60) {
            let writer = writer(6);
            let identities = ReplyIdentities::of(writer);
            identities.add(1, request(2));
            let mut packet = packet(writer, 1, false, true);
            packet.truncate(packet.len() - at.min(packet.len()));
            packet.extend_from_slice(&bytes);
            has_reply([&packet[..]].into_iter());
            prop_assert!(with_identities(&packet).len() >= packet.len());
            identity_in(&bytes, at % 2 == 0);
        }
    }
}
