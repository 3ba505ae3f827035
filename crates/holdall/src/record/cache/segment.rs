//! A segment: a run of messages in arrival order, header and small payload side by side in one arena, large payloads as loans.

use super::CacheEntry;
use holdall_io::survivor::{Arena, Region};
use holdall_model::{
    loss::ledger::PublisherIndex,
    message::{Loan, PayloadRef},
    time::Timestamp,
    topic::TopicId,
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Bytes of a message's header in the arena: see [`Header`].
pub const HEADER_BYTES: usize = 40;

/// What a loan costs its topic in addition to what it pins, in bytes: header, place in the list, allocation.
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
    /// The largest shape. Small enough to be evicted or counted in some ten microseconds, large enough that
    /// one lock for taking it costs nothing per message.
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

    /// Memory that one segment uses, in bytes, full or not, without what its loans pin.
    pub const fn footprint_bytes(&self) -> usize {
        self.arena_bytes + self.loans_max * size_of::<Option<HeldLoan>>()
    }

    /// Payloads longer than this are kept in an allocation of their own, so that little of an arena stays unused.
    pub const fn copy_bytes_max(&self) -> usize {
        self.arena_bytes / 4
    }
}

/// A message's place in its segment; the first one is `Place::default()`.
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
    /// The next message's place.
    pub next: Place,
}

/// A loan with what it pins, queried once.
struct HeldLoan {
    loan: Box<dyn Loan>,
    pinned_bytes: usize,
}

const HAS_PUBLISH_TIME: u32 = 1;
const HAS_SEQUENCE: u32 = 2;
const IS_LOAN: u32 = 4;
/// Not a message but a run header: the messages that follow, this many bytes, are one segment's; it gives the segment's place among all.
const IS_RUN: u32 = 8;

/// Bytes of the header before a run of gathered messages.
pub const RUN_HEADER_BYTES: usize = HEADER_BYTES;

/// The header before a segment's messages, `bytes` long, where several segments are gathered in one arena.
pub fn run_header(order: u64, bytes: usize) -> [u8; RUN_HEADER_BYTES] {
    let mut header = [0; RUN_HEADER_BYTES];
    header[0..8].copy_from_slice(&order.to_le_bytes());
    // An arena has at most 256 KiB.
    header[32..36].copy_from_slice(&(bytes as u32).to_le_bytes());
    header[36..40].copy_from_slice(&IS_RUN.to_le_bytes());
    header
}

/// A message as it was found in an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurvivedMessage {
    /// Its header.
    pub entry: CacheEntry,
    /// Where its payload is in the arena; `None` when it was in the transport's memory and is lost.
    pub payload: Option<std::ops::Range<usize>>,
}

/// Messages that follow each other in an arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurvivedRun {
    /// The segment that they are of, where they were gathered.
    pub order: Option<u64>,
    /// The messages.
    pub messages: Vec<SurvivedMessage>,
}

/// Reads the arena of a segment, or one of gathered segments. Ends at what cannot be right.
pub fn survived(bytes: &[u8]) -> Vec<SurvivedRun> {
    let mut runs: Vec<SurvivedRun> = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let flags = u32::from_le_bytes([header[36], header[37], header[38], header[39]]);
        at += HEADER_BYTES;
        if flags == IS_RUN {
            let order = header.first_chunk().map(|order| u64::from_le_bytes(*order));
            runs.push(SurvivedRun {
                order,
                messages: Vec::new(),
            });
            continue;
        }
        if flags & !(HAS_PUBLISH_TIME | HAS_SEQUENCE | IS_LOAN) != 0 {
            break;
        }
        let header = Header::from_bytes(header);
        let payload = if header.is_loan {
            None
        } else {
            let end = at + header.len_or_loan as usize;
            if end > bytes.len() {
                break;
            }
            Some(std::mem::replace(&mut at, end)..end)
        };
        if runs.is_empty() {
            runs.push(SurvivedRun::default());
        }
        if let Some(run) = runs.last_mut() {
            let entry = header.entry;
            run.messages.push(SurvivedMessage { entry, payload });
        }
    }
    runs
}

/// A header in the arena's layout, little-endian: log time, publish time, sequence, topic, publisher, length
/// of the payload (or number of the loan), flags.
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

/// Slots of a region with this kind hold messages as segments lay them out.
pub const KIND_MESSAGES: u32 = 1;

type OnIncomplete = Box<dyn Fn() + Send + Sync>;

/// Where segments get their arenas from: memory that survives the process while there is some, else ordinary memory.
#[derive(Clone, Default)]
pub struct ArenaSource {
    region: Option<Region>,
    /// Called when messages may not survive the process.
    on_incomplete: Arc<OnceLock<OnIncomplete>>,
    is_ordinary: Arc<AtomicBool>,
}

impl ArenaSource {
    /// Slots of this region, which hold an arena of the cache's shape each.
    pub fn of_region(region: Region) -> Self {
        Self {
            region: Some(region),
            ..Self::default()
        }
    }

    /// The region, where there is one.
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// An arena that survives the process; `None` when there is no memory for one.
    pub fn surviving_arena(&self) -> Option<Arena> {
        self.region
            .as_ref()
            .and_then(|region| region.arena(KIND_MESSAGES))
    }

    /// Sets what is called when messages may not survive.
    pub fn on_incomplete(&self, call: impl Fn() + Send + Sync + 'static) {
        // Set once, where the source is made.
        drop(self.on_incomplete.set(Box::new(call)));
    }

    /// Reports that messages may not survive the process.
    pub fn report_incomplete(&self) {
        if let Some(call) = self.on_incomplete.get() {
            call();
        }
    }

    fn arena(&self, bytes: usize) -> Arena {
        if self.region.is_none() {
            return Arena::heap(bytes);
        }
        self.surviving_arena().unwrap_or_else(|| {
            if !self.is_ordinary.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "the shared memory is full: if this process is killed, messages that wait in ordinary memory are lost"
                );
                self.report_incomplete();
            }
            Arena::heap(bytes)
        })
    }
}

/// A run of messages in arrival order.
pub struct Segment {
    shape: SegmentShape,
    arena: Arena,
    loans: Vec<Option<HeldLoan>>,
    pinned_bytes: usize,
    messages: usize,
    /// These two mean something while there are messages.
    first_log_time: Timestamp,
    last_log_time: Timestamp,
}

impl Segment {
    /// An empty segment; its memory is reserved and not yet touched.
    pub fn new(shape: SegmentShape, source: &ArenaSource) -> Self {
        Self {
            shape,
            arena: source.arena(shape.arena_bytes),
            loans: Vec::with_capacity(shape.loans_max),
            pinned_bytes: 0,
            messages: 0,
            first_log_time: Timestamp::from_nanos(0),
            last_log_time: Timestamp::from_nanos(0),
        }
    }

    /// An empty segment with all its memory mapped in, so that filling it causes no page fault.
    pub fn touched(shape: SegmentShape, source: &ArenaSource) -> Self {
        let mut segment = Self::new(shape, source);
        // Every byte is written once: a page that was never written would fault in the receive path.
        segment.arena.touch();
        segment
    }

    /// Whether its messages survive the process, without their loans.
    pub fn survives(&self) -> bool {
        self.arena.survives()
    }

    /// Whether messages of it were in memory of the transport.
    pub fn has_loans(&self) -> bool {
        !self.loans.is_empty()
    }

    /// Its place among all runs of messages.
    pub fn order(&self) -> u64 {
        self.arena.order()
    }

    /// The bytes of its messages in memory; [`survived`] reads them.
    pub fn bytes(&self) -> &[u8] {
        self.arena.as_slice()
    }

    /// Gives the segment another arena, and returns the one that has its messages. Nothing but [`Segment::clear`] may follow.
    pub fn exchange_arena(&mut self, empty: Arena) -> Arena {
        std::mem::replace(&mut self.arena, empty)
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
        let header = Header {
            entry,
            len_or_loan: payload.len() as u32,
            is_loan: false,
        };
        self.push(&header, payload);
    }

    /// Appends a message whose payload stays where it is; the caller has asked [`Segment::fits_loan`].
    pub fn push_loan(&mut self, entry: CacheEntry, loan: Box<dyn Loan>, pinned_bytes: usize) {
        debug_assert!(self.fits_loan(), "moved a loan into a segment without room");
        let header = Header {
            entry,
            len_or_loan: self.loans.len() as u32,
            is_loan: true,
        };
        self.push(&header, &[]);
        self.loans.push(Some(HeldLoan { loan, pinned_bytes }));
        self.pinned_bytes += pinned_bytes;
    }

    #[inline]
    fn push(&mut self, header: &Header, payload: &[u8]) {
        self.arena.append(&header.to_bytes(), payload);
        if self.messages == 0 {
            self.first_log_time = header.entry.log_time;
        }
        self.messages += 1;
        self.last_log_time = header.entry.log_time;
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
        (self.messages > 0).then_some(self.first_log_time)
    }

    /// The last message's log time.
    pub fn last_log_time(&self) -> Option<Timestamp> {
        (self.messages > 0).then_some(self.last_log_time)
    }

    #[inline]
    fn header(&self, place: Place) -> Option<Header> {
        let bytes = self.arena.as_slice().get(place.0..)?.first_chunk()?;
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
        let payload = PayloadRef::Bytes(self.arena.as_slice().get(behind..end)?);
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

    /// Forgets all messages, returns loans and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.loans.clear();
        self.pinned_bytes = 0;
        self.messages = 0;
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
