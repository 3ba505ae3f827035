//! What is looked at of a payload: all of a small one, the beginning and runs of bytes in even distances of a large one.

use crate::message::PayloadRef;

/// Payloads up to this size are looked at as a whole, in bytes.
const WHOLE_BYTES: usize = 64 << 10;
/// The beginning of a larger one.
const HEAD_BYTES: usize = 4 << 10;
/// The runs of the rest.
const RUNS: usize = 128;
const RUN_BYTES: usize = 128;
/// Encapsulation and `header.stamp`, where a type begins with its header.
const FIRST_BYTES: usize = 12;

/// How much of a topic's payloads its rules need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Their size.
    #[default]
    Size,
    /// The first bytes: the stamp of a type that begins with its header.
    Stamp,
    /// A sample.
    Sparse,
    /// All of it.
    Whole,
}

/// A payload as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its size in bytes.
    pub len: usize,
    /// The first bytes, if no more was wanted.
    first: Option<[u8; FIRST_BYTES]>,
    /// All of it, or its beginning; nothing if nothing was wanted.
    pub(super) head: Vec<u8>,
    /// The runs of a large payload, with their places.
    pub(super) runs: Vec<(usize, Vec<u8>)>,
}

impl Sample {
    /// Takes what is wanted of a payload. A payload that is wanted as a whole and larger than `whole_bytes_max` is sampled.
    pub fn take(payload: PayloadRef<'_>, want: Want, whole_bytes_max: usize) -> Self {
        let len = payload.len();
        let mut sample = Self {
            len,
            first: match want {
                Want::Stamp => first_of(payload),
                Want::Size | Want::Sparse | Want::Whole => None,
            },
            head: Vec::new(),
            runs: Vec::new(),
        };
        let is_whole = len <= WHOLE_BYTES || want == Want::Whole && len <= whole_bytes_max;
        match want {
            Want::Size => {}
            Want::Stamp if sample.first.is_some() => {}
            _ if is_whole => {
                sample.head.reserve_exact(len);
                payload.for_each_slice(|slice| sample.head.extend_from_slice(slice));
            }
            _ => sample.sparse(payload),
        }
        sample
    }

    /// The stamp in nanoseconds of a type that begins with its header; `None` for a payload that ends before, or is not plain CDR.
    pub(super) fn first_stamp(&self) -> Option<i64> {
        let first = self
            .first
            .or_else(|| self.head.first_chunk().copied().filter(is_plain))?;
        let [_, order, _, _, s0, s1, s2, s3, n0, n1, n2, n3] = first;
        let (seconds, nanos) = ([s0, s1, s2, s3], [n0, n1, n2, n3]);
        let (seconds, nanos) = match order & 1 {
            0 => (i32::from_be_bytes(seconds), u32::from_be_bytes(nanos)),
            _ => (i32::from_le_bytes(seconds), u32::from_le_bytes(nanos)),
        };
        Some(i64::from(seconds) * 1_000_000_000 + i64::from(nanos))
    }

    fn sparse(&mut self, payload: PayloadRef<'_>) {
        let step = (self.len - HEAD_BYTES - RUN_BYTES) / (RUNS - 1);
        let begins = (0..RUNS).map(|run| HEAD_BYTES + run * step);
        self.runs = begins
            .map(|begin| (begin, Vec::with_capacity(RUN_BYTES)))
            .collect();
        let (mut at, mut run) = (0, 0);
        let (head, runs) = (&mut self.head, &mut self.runs);
        payload.for_each_slice(|slice| {
            let end = at + slice.len();
            if at < HEAD_BYTES {
                head.extend_from_slice(&slice[..slice.len().min(HEAD_BYTES - at)]);
            }
            while let Some((begin, bytes)) = runs.get_mut(run) {
                let from = *begin + bytes.len();
                let until = (*begin + RUN_BYTES).min(end);
                if from >= end {
                    break;
                }
                bytes.extend_from_slice(&slice[from - at..until - at]);
                if bytes.len() < RUN_BYTES {
                    break;
                }
                run += 1;
            }
            at = end;
        });
    }

    /// Whether a payload is here as a whole that is larger than what every rule sees.
    pub(super) fn is_large(&self) -> bool {
        self.head.len() > WHOLE_BYTES
    }

    /// Whether all of the payload is here.
    pub(super) fn is_whole(&self) -> bool {
        self.head.len() == self.len
    }

    /// Memory that it takes, about.
    pub fn held_bytes(&self) -> usize {
        self.head.len() + self.runs.len() * (RUN_BYTES + size_of::<(usize, Vec<u8>)>())
    }

    /// The pieces with their places: the runs, and the head from `begin` on.
    pub(super) fn pieces(&self, begin: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let head = self.head.get(begin..).filter(|head| !head.is_empty());
        let runs = self.runs.iter().filter(move |(at, _)| *at >= begin);
        let runs = runs.map(|(at, bytes)| (*at, bytes.as_slice()));
        head.map(|head| (begin, head)).into_iter().chain(runs)
    }

    /// A digest of the content from a place on.
    pub(super) fn digest(&self, begin: usize) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64 ^ self.len as u64;
        for (_, piece) in self.pieces(begin) {
            let words = piece.chunks_exact(8);
            let rest = words.remainder().iter().map(|byte| u64::from(*byte));
            let words = words.map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
            for word in words.chain(rest) {
                digest = (digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
            }
        }
        digest
    }
}

/// Whether a payload is plain CDR, in which the first fields are next to each other.
fn is_plain(first: &[u8; FIRST_BYTES]) -> bool {
    matches!(first[..2], [0, 0 | 1 | 6 | 7])
}

fn first_of(payload: PayloadRef<'_>) -> Option<[u8; FIRST_BYTES]> {
    let (mut first, mut at) = ([0; FIRST_BYTES], 0);
    payload.for_each_slice(|slice| {
        let more = slice.len().min(FIRST_BYTES - at);
        first[at..at + more].copy_from_slice(&slice[..more]);
        at += more;
    });
    (at == FIRST_BYTES && is_plain(&first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Loan;
    use proptest::prelude::*;

    /// A payload in slices of these sizes.
    struct Sliced(Vec<u8>, Vec<usize>);

    impl Loan for Sliced {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn pinned_bytes(&self) -> usize {
            self.0.len()
        }

        fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
            let (mut rest, mut turn) = (&self.0[..], 0);
            while !rest.is_empty() {
                let (slice, after) = rest.split_at(self.1[turn % self.1.len()].min(rest.len()));
                visit(slice);
                (rest, turn) = (after, turn + 1);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn a_sample_is_the_same_however_the_payload_is_sliced(
            len in 0_usize..300_000, sizes in prop::collection::vec(1_usize..70_000, 1..4),
        ) {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8 ^ at as u8).collect();
            for want in [Want::Size, Want::Stamp, Want::Sparse, Want::Whole] {
                let whole = Sample::take(PayloadRef::Bytes(&bytes), want, 100_000);
                let sliced = Sliced(bytes.clone(), sizes.clone());
                prop_assert_eq!(&Sample::take(PayloadRef::Loan(&sliced), want, 100_000), &whole);
                for (at, piece) in whole.pieces(0) {
                    prop_assert_eq!(piece, &bytes[at..at + piece.len()]);
                }
                let is_whole = len <= WHOLE_BYTES || want == Want::Whole && len <= 100_000;
                let is_enough = want >= Want::Sparse || want == Want::Stamp && len < FIRST_BYTES;
                prop_assert_eq!(whole.is_whole(), is_whole && is_enough || len == 0);
                prop_assert_eq!(whole.first_stamp().is_some(), want != Want::Size && len >= FIRST_BYTES);
            }
        }
    }
}
