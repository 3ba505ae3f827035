//! Recognises a message that comes a second time over another transport, because a bridge repeats it.

use holdall_io::mutex::lock;
use holdall_model::{
    message::{MessageHeader, Payload},
    time::Timestamp,
};
use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hasher},
    sync::Mutex,
};

/// A bridge that takes longer than this brings a new message.
const WINDOW_NANOS: i64 = 10_000_000_000;

/// Messages of a topic that are remembered, at most.
const REMEMBERED_MAX: usize = 4096;

/// Bytes at either end of a payload that are hashed in addition to its checksum: the header with its stamp is
/// in front.
const END_BYTES: usize = 512;

/// Key that distinguishes payloads: length, CRC-32 of all bytes, a 64-bit hash of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fingerprint {
    bytes: usize,
    crc: u32,
    ends: u64,
}

impl Fingerprint {
    fn of(payload: &Payload<'_>) -> Self {
        let bytes = payload.len();
        let (mut crc, mut ends, mut at) = (crc32fast::Hasher::new(), DefaultHasher::new(), 0);
        let mut visit = |slice: &[u8]| {
            crc.update(slice);
            let head = END_BYTES.saturating_sub(at).min(slice.len());
            ends.write(&slice[..head]);
            let tail_begin = bytes.saturating_sub(END_BYTES).max(END_BYTES);
            let tail = tail_begin.saturating_sub(at).clamp(head, slice.len());
            ends.write(&slice[tail..]);
            at += slice.len();
        };
        match payload {
            Payload::Borrowed(slice) => visit(slice),
            Payload::Loaned(loan) => loan.for_each_slice(&mut visit),
        }
        // How a payload is cut into slices differs between transports; `Hasher::write` does not see the cuts of bytes.
        Self {
            bytes,
            crc: crc.finalize(),
            ends: ends.finish(),
        }
    }
}

/// A message that was stored.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// One bit for each transport that has brought it.
    transports: u64,
    log_time: Timestamp,
    sent: (Option<Timestamp>, Option<u64>),
}

#[derive(Default)]
struct State {
    by_content: HashMap<Fingerprint, VecDeque<Seen>>,
    /// In the order of arrival.
    order: VecDeque<(Timestamp, Fingerprint)>,
}

/// The latest messages of one topic. Each is matched with at most one of every other transport, so that a node that sends the same
/// bytes again and again is recorded as often as it sends.
#[derive(Default)]
pub(crate) struct Merging(Mutex<State>);

impl Merging {
    /// Whether a message that comes over `transport` has come over another one; otherwise it is remembered.
    pub(crate) fn is_duplicate(
        &self,
        transport: usize,
        header: &MessageHeader,
        payload: &Payload<'_>,
    ) -> bool {
        let fingerprint = Fingerprint::of(payload);
        let bit = 1_u64 << transport.min(63);
        let sent = (header.publish_time, header.sequence);
        let mut state = lock(&self.0);
        state.forget_before(header.log_time);
        let same = state.by_content.entry(fingerprint).or_default();
        let open = |seen: &Seen| seen.transports & bit == 0;
        // A bridge may keep stamp and sequence; if it does not, the oldest is matched.
        let kept = |seen: &Seen| open(seen) && sent.0.is_some() && seen.sent == sent;
        let place = same.iter().position(kept).or_else(|| same.iter().position(open));
        if let Some(place) = place {
            same[place].transports |= bit;
            return true;
        }
        same.push_back(Seen {
            transports: bit,
            log_time: header.log_time,
            sent,
        });
        state.order.push_back((header.log_time, fingerprint));
        false
    }
}

impl State {
    fn forget_before(&mut self, now: Timestamp) {
        while let Some(&(time, fingerprint)) = self.order.front() {
            let age = now.as_nanos().saturating_sub(time.as_nanos());
            if age <= WINDOW_NANOS && self.order.len() < REMEMBERED_MAX {
                break;
            }
            self.order.pop_front();
            if let Some(same) = self.by_content.get_mut(&fingerprint) {
                let oldest = same.iter().position(|seen| seen.log_time == time);
                oldest.and_then(|place| same.remove(place));
                if same.is_empty() {
                    self.by_content.remove(&fingerprint);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::message::Loan;

    fn header(millis: i64, sequence: u64) -> MessageHeader {
        MessageHeader {
            publisher: None,
            sequence: Some(sequence),
            publish_time: Some(Timestamp::from_nanos(millis * 1_000_000)),
            log_time: Timestamp::from_nanos(millis * 1_000_000),
        }
    }

    fn comes(merging: &Merging, transport: usize, millis: i64, bytes: &[u8]) -> bool {
        merging.is_duplicate(
            transport,
            &header(millis, millis.unsigned_abs()),
            &Payload::Borrowed(bytes),
        )
    }

    #[test]
    fn what_another_transport_brought_is_a_duplicate_once() {
        let merging = Merging::default();
        assert!(!comes(&merging, 0, 1, b"same"));
        assert!(comes(&merging, 1, 2, b"same"));
        assert!(!comes(&merging, 1, 3, b"same"), "sent again");
        assert!(comes(&merging, 0, 4, b"same"), "and bridged the other way");
        assert!(!comes(&merging, 1, 5, b"other"));
    }

    #[test]
    fn what_one_transport_repeats_is_no_duplicate() {
        let merging = Merging::default();
        for millis in 0..5 {
            assert!(!comes(&merging, 0, millis, b"status"));
        }
        for millis in 5..10 {
            assert!(comes(&merging, 1, millis, b"status"));
        }
        assert!(!comes(&merging, 1, 11, b"status"));
    }

    #[test]
    fn a_bridge_that_is_very_late_brings_a_new_message_and_memory_is_bounded() {
        let merging = Merging::default();
        assert!(!comes(&merging, 0, 0, b"late"));
        assert!(!comes(&merging, 1, 10_001, b"late"));
        for number in 0..3 * REMEMBERED_MAX as u64 {
            comes(&merging, 0, 10_002, &number.to_le_bytes());
        }
        let state = merging.0.lock().unwrap();
        assert!(state.order.len() <= REMEMBERED_MAX);
        assert_eq!(
            state.by_content.values().map(VecDeque::len).sum::<usize>(),
            state.order.len()
        );
    }

    struct Pieces(Vec<u8>, usize);

    impl Loan for Pieces {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn pinned_bytes(&self) -> usize {
            self.0.len()
        }
        fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
            self.0.chunks(self.1).for_each(visit);
        }
    }

    #[test]
    fn how_a_payload_is_cut_makes_no_difference_and_each_byte_does() {
        for length in [0_usize, 1, 511, 512, 513, 1023, 1024, 1025, 5000] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let whole = Fingerprint::of(&Payload::Borrowed(&bytes));
            for cut in [1, 7, 512, 700] {
                let pieces = Payload::Loaned(Box::new(Pieces(bytes.clone(), cut)));
                assert_eq!(Fingerprint::of(&pieces), whole, "{length} in pieces of {cut}");
            }
            for changed in [0, length / 2, length.saturating_sub(1)] {
                let mut other = bytes.clone();
                if let Some(byte) = other.get_mut(changed) {
                    *byte ^= 1;
                    assert_ne!(Fingerprint::of(&Payload::Borrowed(&other)), whole);
                }
            }
        }
    }
}
