//! A segment: a run of messages in arrival order, header and small payload side by side in one arena, large payloads as loans.

use super::{CacheEntry, PublisherIndex};
use holdall_model::{
    message::{Loan, PayloadRef},
    time::Timestamp,
    topic::TopicId,
};

/// Bytes of a message's header in the arena: see [`Header`].
pub const HEADER_BYTES: usize = 40;

/// What a loan costs its topic besides what it pins, in bytes: header, place in the list, allocation.
pub const LOAN_OVERHEAD_BYTES: usize = 128;

/// How much one segment holds; all segments of a cache have the same shape, so that they can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentShape {
    /// Bytes of headers and copied payloads it can hold.
    pub arena_bytes: usize,
    /// Loans it can hold.
    pub loans_max: usize,
}

impl SegmentShape {
    /// The largest shape. Small enough to be given up or counted in some ten microseconds, large enough that one lock for taking it
    /// costs nothing per message.
    const LARGEST: Self = Self {
        arena_bytes: 256 * 1024,
        loans_max: 256,
    };

    /// The largest shape of which at least 16 segments fit into `cache_bytes_max`.
    pub fn for_cache(cache_bytes_max: usize) -> Self {
        let mut shape = Self::LARGEST;
        while shape.footprint_bytes() * 16 > cache_bytes_max && shape.arena_bytes > 1024 {
            shape.arena_bytes /= 2;
            shape.loans_max = (shape.loans_max / 2).max(4);
        }
        shape
    }

    /// Memory that one segment takes, in bytes, full or not, without what its loans pin.
    pub const fn footprint_bytes(&self) -> usize {
        self.arena_bytes + self.loans_max * size_of::<Option<HeldLoan>>()
    }

    /// Payloads longer than this are kept in an allocation of their own, so that little of an arena stays unused.
    pub const fn copy_bytes_max(&self) -> usize {
        self.arena_bytes / 4
    }
}

/// Where a message lies in its segment; the first one is `Place::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(usize);

/// A message of a segment.
pub struct Stored<'a> {
    /// Its header.
    pub entry: CacheEntry,
    /// Its payload; empty when its loan was taken out.
    pub payload: PayloadRef<'a>,
    /// What it costs its topic, in bytes, without what a loan pins.
    pub charge_bytes: usize,
    /// Where the next one lies.
    pub next: Place,
}

/// A loan with what it pins, asked once.
struct HeldLoan {
    loan: Box<dyn Loan>,
    pinned_bytes: usize,
}

const HAS_PUBLISH_TIME: u32 = 1;
const HAS_SEQUENCE: u32 = 2;
const IS_LOAN: u32 = 4;

/// A header as it lies in the arena, little-endian: log time, publish time, sequence, topic, publisher, length of the payload (or
/// number of the loan), flags.
struct Header {
    entry: CacheEntry,
    len_or_loan: u32,
    is_loan: bool,
}

impl Header {
    #[inline]
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let entry = &self.entry;
        let mut flags = if self.is_loan { IS_LOAN } else { 0 };
        flags |= if entry.publish_time.is_some() {
            HAS_PUBLISH_TIME
        } else {
            0
        };
        flags |= if entry.sequence.is_some() { HAS_SEQUENCE } else { 0 };
        let publish_time = entry.publish_time.map_or(0, Timestamp::as_nanos);
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&entry.log_time.as_nanos().to_le_bytes());
        bytes[8..16].copy_from_slice(&publish_time.to_le_bytes());
        bytes[16..24].copy_from_slice(&entry.sequence.unwrap_or(0).to_le_bytes());
        bytes[24..28].copy_from_slice(&entry.topic.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&entry.publisher.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.len_or_loan.to_le_bytes());
        bytes[36..40].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    #[inline]
    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| {
            u64::from_le_bytes([
                bytes[at],
                bytes[at + 1],
                bytes[at + 2],
                bytes[at + 3],
                bytes[at + 4],
                bytes[at + 5],
                bytes[at + 6],
                bytes[at + 7],
            ])
        };
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let flags = half(36);
        let time = |at: usize| Timestamp::from_nanos(word(at).cast_signed());
        Self {
            entry: CacheEntry {
                log_time: time(0),
                publish_time: (flags & HAS_PUBLISH_TIME != 0).then(|| time(8)),
                sequence: (flags & HAS_SEQUENCE != 0).then(|| word(16)),
                topic: TopicId(half(24)),
                publisher: PublisherIndex(half(28)),
            },
            len_or_loan: half(32),
            is_loan: flags & IS_LOAN != 0,
        }
    }
}

/// A run of messages in arrival order.
pub struct Segment {
    shape: SegmentShape,
    arena: Vec<u8>,
    loans: Vec<Option<HeldLoan>>,
    pinned_bytes: usize,
    messages: usize,
    first_log_time: Option<Timestamp>,
    last_log_time: Option<Timestamp>,
}

impl Segment {
    /// An empty segment; its memory is reserved and not yet touched.
    pub fn new(shape: SegmentShape) -> Self {
        Self {
            shape,
            arena: Vec::with_capacity(shape.arena_bytes),
            loans: Vec::with_capacity(shape.loans_max),
            pinned_bytes: 0,
            messages: 0,
            first_log_time: None,
            last_log_time: None,
        }
    }

    /// An empty segment with all its memory mapped in, so that filling it causes no page fault.
    pub fn touched(shape: SegmentShape) -> Self {
        let mut segment = Self::new(shape);
        // Every byte is written once: a page that was never written would fault in the receive path.
        segment.arena.resize(shape.arena_bytes, 0xA5);
        segment.arena.clear();
        segment
    }

    /// True when a payload of this many bytes can be copied in.
    #[inline]
    pub fn fits_copy(&self, payload_bytes: usize) -> bool {
        self.shape.arena_bytes - self.arena.len() >= payload_bytes + HEADER_BYTES
    }

    /// True when one more loan can be held.
    pub fn fits_loan(&self) -> bool {
        self.fits_copy(0) && self.loans.len() < self.shape.loans_max
    }

    /// Appends a message and copies its payload; the caller has asked [`Segment::fits_copy`].
    #[inline]
    pub fn push_copy(&mut self, entry: CacheEntry, payload: &[u8]) {
        debug_assert!(
            self.fits_copy(payload.len()),
            "copied into a segment without room"
        );
        // An arena has at most 256 KiB: the length fits into 32 bits.
        self.push(&Header {
            entry,
            len_or_loan: payload.len() as u32,
            is_loan: false,
        });
        self.arena.extend_from_slice(payload);
    }

    /// Appends a message whose payload stays where it is; the caller has asked [`Segment::fits_loan`].
    pub fn push_loan(&mut self, entry: CacheEntry, loan: Box<dyn Loan>, pinned_bytes: usize) {
        debug_assert!(self.fits_loan(), "moved a loan into a segment without room");
        self.push(&Header {
            entry,
            len_or_loan: self.loans.len() as u32,
            is_loan: true,
        });
        self.loans.push(Some(HeldLoan { loan, pinned_bytes }));
        self.pinned_bytes += pinned_bytes;
    }

    #[inline]
    fn push(&mut self, header: &Header) {
        self.arena.extend_from_slice(&header.to_bytes());
        self.messages += 1;
        self.first_log_time = self.first_log_time.or(Some(header.entry.log_time));
        self.last_log_time = Some(header.entry.log_time);
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.messages
    }

    /// True when it holds no message.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// What the loans that it still holds pin, in bytes.
    #[inline]
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// The first message's log time.
    pub fn first_log_time(&self) -> Option<Timestamp> {
        self.first_log_time
    }

    /// The last message's log time.
    pub fn last_log_time(&self) -> Option<Timestamp> {
        self.last_log_time
    }

    #[inline]
    fn header(&self, place: Place) -> Option<Header> {
        let bytes = self.arena.get(place.0..)?.first_chunk()?;
        Some(Header::from_bytes(bytes))
    }

    /// The message at a place; `None` past the end.
    #[inline]
    pub fn message(&self, place: Place) -> Option<Stored<'_>> {
        let Header {
            entry,
            len_or_loan,
            is_loan,
        } = self.header(place)?;
        let behind = place.0 + HEADER_BYTES;
        if is_loan {
            let held = self.loans.get(len_or_loan as usize).and_then(Option::as_ref);
            let payload = held.map_or(PayloadRef::Bytes(&[]), |held| {
                PayloadRef::Loan(held.loan.as_ref())
            });
            return Some(Stored {
                entry,
                payload,
                charge_bytes: LOAN_OVERHEAD_BYTES,
                next: Place(behind),
            });
        }
        let end = behind + len_or_loan as usize;
        let payload = PayloadRef::Bytes(self.arena.get(behind..end)?);
        Some(Stored {
            entry,
            payload,
            charge_bytes: end - place.0,
            next: Place(end),
        })
    }

    /// Takes the loan of a message out, with what it pins in bytes; `None` when the payload was copied or is gone.
    #[inline]
    pub fn take_loan(&mut self, place: Place) -> Option<(Box<dyn Loan>, usize)> {
        if self.loans.is_empty() {
            return None;
        }
        let Header {
            len_or_loan,
            is_loan: true,
            ..
        } = self.header(place)?
        else {
            return None;
        };
        let held = self.loans.get_mut(len_or_loan as usize)?.take()?;
        self.pinned_bytes -= held.pinned_bytes;
        Some((held.loan, held.pinned_bytes))
    }

    /// Forgets all messages, gives loans back and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.loans.clear();
        self.pinned_bytes = 0;
        self.messages = 0;
        self.first_log_time = None;
        self.last_log_time = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sixteen_segments_fit_from_64_kib_on() {
        for bytes_max in [64 * 1024, 100_000, 1 << 20, 100 << 20, 8 << 30] {
            let shape = SegmentShape::for_cache(bytes_max);
            assert!(
                shape.footprint_bytes() * 16 <= bytes_max,
                "{bytes_max}: {shape:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_header_reads_back_as_it_was_written(
            log_time in any::<i64>(),
            publish_time in any::<Option<i64>>(),
            sequence in any::<Option<u64>>(),
            numbers in any::<[u32; 3]>(),
            is_loan in any::<bool>(),
        ) {
            let entry = CacheEntry {
                log_time: Timestamp::from_nanos(log_time),
                publish_time: publish_time.map(Timestamp::from_nanos),
                sequence,
                topic: TopicId(numbers[0]),
                publisher: PublisherIndex(numbers[1]),
            };
            let read = Header::from_bytes(&Header { entry, len_or_loan: numbers[2], is_loan }.to_bytes());
            prop_assert_eq!((read.entry, read.len_or_loan, read.is_loan), (entry, numbers[2], is_loan));
        }
    }
}
