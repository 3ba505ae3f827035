//! Topics whose type has a key: how their samples are counted, and which hashes of keys leave this computer.
//!
//! The end of an instance (dispose, unregister) has a sequence number but is not a message: messages are counted without them. Payloads are bytes
//! here, so the hash of a key is not known; Cyclone sends one with each sample, and readers would take all samples for those of one instance. So the
//! hash leaves as padding, and readers find the key in the payload.

use super::{
    locators::{FLAG_INLINE_QOS, Submessage, parameters},
    reply_identity::any_submessage,
};
use holdall_io::mutex::lock;
use holdall_model::topic::Gid;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// True when some writer of this process has a key; until then, each packet costs one look at this.
static ANY_WRITER: AtomicBool = AtomicBool::new(false);

/// The ends of instances, by writer.
static ENDS: Mutex<BTreeMap<Gid, Ends>> = Mutex::new(BTreeMap::new());

/// Most numbers that are kept for each writer, and most writers. Older ends count as before all later messages.
const ENDS_MAX: usize = 4_096;
const WRITERS_MAX: usize = 10_000;

#[derive(Default)]
struct Ends {
    /// Ends before those that are kept.
    before: u64,
    kept: BTreeSet<u64>,
}

/// A number of this writer is the end of an instance.
pub(in crate::dds) fn note_end(writer: Gid, sequence: u64) {
    let mut all = lock(&ENDS);
    if all.len() >= WRITERS_MAX && !all.contains_key(&writer) {
        return;
    }
    let ends = all.entry(writer).or_default();
    ends.kept.insert(sequence);
    if ends.kept.len() > ENDS_MAX {
        ends.kept.pop_first();
        ends.before += 1;
    }
}

/// The number of a message among a writer's messages, without the ends of instances up to it.
pub(in crate::dds) fn number_of_message(writer: Gid, sequence: u64) -> u64 {
    let all = lock(&ENDS);
    all.get(&writer).map_or(sequence, |ends| {
        let counted = ends.before + ends.kept.range(..=sequence).count() as u64;
        sequence.saturating_sub(counted)
    })
}

/// A writer begins to send.
pub(in crate::dds) fn note_writer(is_keyed: bool) {
    if is_keyed {
        ANY_WRITER.store(true, Ordering::Release);
    }
}

const PID_KEY_HASH: u16 = 0x0070;
const KEY_HASH_BYTES: u16 = 16;
const PID_PAD: u16 = 0;
const DATA: u8 = 0x15;
const DATA_FRAGMENT: u8 = 0x16;
/// Entity kind of an application's writer with a key (RTPS 2.5, 9.3.1.2).
const WRITER_WITH_KEY: u8 = 0x02;

/// Where the parameter with the hash of a key begins, in a submessage of a writer with a key.
fn key_hash(bytes: &[u8], data: &Submessage) -> Option<usize> {
    let is_data = matches!(data.id, DATA | DATA_FRAGMENT) && data.flags & FLAG_INLINE_QOS != 0;
    if !is_data || bytes.get(data.at + 15) != Some(&WRITER_WITH_KEY) {
        return None;
    }
    let order = data.order();
    let begin = data.at + 8 + usize::from(order.u16(bytes, data.at + 6)?);
    let found = parameters(bytes, begin, order).into_iter();
    found
        .filter(|(at, id)| *id == PID_KEY_HASH && order.u16(bytes, at + 2) == Some(KEY_HASH_BYTES))
        .map(|(at, _)| at)
        .next()
}

/// Whether a packet, given in the pieces that it is sent from, holds the hash of a key.
pub(in crate::dds) fn has_key_hash<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    ANY_WRITER.load(Ordering::Acquire)
        && any_submessage(pieces, |_, piece, next| key_hash(piece, next).is_some())
}

/// Turns the hashes of keys into padding.
pub(in crate::dds) fn remove_key_hashes(packet: &mut [u8]) {
    let mut at = super::locators::HEADER_BYTES;
    while let Some(next) = super::locators::submessage(packet, at) {
        if let Some(parameter) = key_hash(packet, &next) {
            packet[parameter..parameter + 2].copy_from_slice(&PID_PAD.to_ne_bytes());
        }
        at = next.end.min(packet.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::wire::locators::HEADER_BYTES;
    use proptest::prelude::*;

    fn packet(kind: u8, parameter: u16) -> Vec<u8> {
        let mut packet = b"RTPS".to_vec();
        packet.extend([0; HEADER_BYTES - 4]);
        packet.extend([
            DATA,
            1 | FLAG_INLINE_QOS | 4,
            52,
            0,
            0,
            0,
            16,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
            kind,
        ]);
        packet.extend([0, 0, 0, 0, 9, 0, 0, 0]);
        packet.extend(parameter.to_le_bytes());
        packet.extend([16, 0]);
        packet.extend([0; 16]);
        packet.extend([1, 0, 0, 0, 0, 1, 0, 0, 7, 7, 7, 7]);
        packet
    }

    #[test]
    fn hashes_of_keys_leave_as_padding_and_nothing_else_changes() {
        let mut keyed = packet(WRITER_WITH_KEY, PID_KEY_HASH);
        remove_key_hashes(&mut keyed);
        assert_eq!(keyed, packet(WRITER_WITH_KEY, PID_PAD));
        let mut builtin = packet(0xc2, PID_KEY_HASH);
        remove_key_hashes(&mut builtin);
        assert_eq!(builtin, packet(0xc2, PID_KEY_HASH));
    }

    #[test]
    fn messages_are_counted_without_the_ends_of_instances() {
        let writer = Gid([0xed; 16]);
        let number = |sequence| number_of_message(writer, sequence);
        assert_eq!(number(7), 7);
        for end in [3, 5, 5] {
            note_end(writer, end);
        }
        assert_eq!([1, 2, 4, 6, 7].map(number), [1, 2, 3, 4, 5]);
        for end in 0..2 * ENDS_MAX as u64 {
            note_end(writer, 100 + 2 * end);
        }
        let last = 100 + 4 * ENDS_MAX as u64;
        assert_eq!(number(last + 1) + 1, number(last + 2));
        assert_eq!(number(last + 1), last + 1 - 2 - 2 * ENDS_MAX as u64);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..60), at in 0usize..80) {
            let mut whole = packet(WRITER_WITH_KEY, PID_KEY_HASH);
            let at = at.min(whole.len());
            let end = (at + bytes.len()).min(whole.len());
            whole.splice(at..end, bytes);
            remove_key_hashes(&mut whole);
        }
    }
}
