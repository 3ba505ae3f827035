//! A segment: a run of messages in arrival order, header and small payload side by side in one arena, large payloads as loans.

use crate::status::Surviving;
use holdall_bag::rescue::{CacheEntry, HEADER_BYTES, Header, KIND_MESSAGES, list_bytes};
use holdall_io::survivor::{Arena, Region};
use holdall_model::{
    message::{Kept, Loan, PayloadRef},
    time::Timestamp,
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Bytes charged to a topic for a loan in addition to its pinned memory: header, place in the list, allocation.
pub(crate) const LOAN_OVERHEAD_BYTES: usize = 128;

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

    /// The largest shape that still fits at least 16 times into `cache_bytes_max`.
    pub fn for_cache(cache_bytes_max: usize) -> Self {
        let mut shape = Self::LARGEST;
        while shape.footprint_bytes() * 16 > cache_bytes_max && shape.arena_bytes > 1024 {
            shape.arena_bytes /= 2;
            shape.loans_max = (shape.loans_max / 2).max(4);
        }
        shape
    }

    /// Memory that one segment uses, in bytes, full or not, without memory pinned by its loans.
    pub(crate) const fn footprint_bytes(&self) -> usize {
        self.arena_bytes + self.loans_max * size_of::<Option<HeldLoan>>()
    }

    /// Payloads longer than this get a separate allocation, so that little of an arena stays unused.
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
    /// Bytes charged to its topic, without memory pinned by a loan.
    pub charge_bytes: usize,
    /// The next message's place.
    pub next: Place,
}

/// A loan with its pinned bytes, queried once.
pub(crate) struct HeldLoan {
    /// The payload.
    pub loan: Box<dyn Loan>,
    /// Bytes that it pins.
    pub pinned_bytes: usize,
    /// Keeps the bytes in the place that the message's header names; `None` if it names none.
    pub kept: Option<Kept>,
}

impl HeldLoan {
    /// A loan whose bytes are kept, or not.
    pub fn new(loan: Box<dyn Loan>, pinned_bytes: usize, kept: Option<Kept>) -> Self {
        Self {
            loan,
            pinned_bytes,
            kept,
        }
    }
}

/// Holds on bytes in the region's buffers to which headers in an arena refer. To be dropped after the arena is cleared.
#[derive(Default)]
pub struct KeptBytes {
    holds: Vec<Kept>,
    bytes: usize,
}

impl KeptBytes {
    /// Adds a hold that pins this many bytes.
    pub fn add(&mut self, hold: Kept, bytes: usize) {
        self.holds.push(hold);
        self.bytes += bytes;
    }

    /// Adds all of another, which is empty then.
    pub fn append(&mut self, other: &mut Self) {
        self.holds.append(&mut other.holds);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Bytes that they pin.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Releases them.
    pub fn clear(&mut self) {
        self.holds.clear();
        self.bytes = 0;
    }
}

type OnIncomplete = Box<dyn Fn() + Send + Sync>;

/// Where segments get their arenas from: memory that survives the process while there is some, else ordinary memory.
#[derive(Clone, Default)]
pub struct ArenaSource {
    region: Option<Region>,
    /// Called when messages may not survive the process.
    on_incomplete: Arc<OnceLock<OnIncomplete>>,
    is_ordinary: Arc<AtomicBool>,
    is_incomplete: Arc<AtomicBool>,
}

impl ArenaSource {
    /// Slots of this region, which hold an arena of the cache's shape each.
    pub(crate) fn of_region(region: Region) -> Self {
        Self {
            region: Some(region),
            ..Self::default()
        }
    }

    /// The region, if any.
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// A loan came whose bytes do not survive the process.
    pub(crate) fn note_unkept(&self) {
        self.is_incomplete.store(true, Ordering::Relaxed);
    }

    /// How much of what segments hold survives the process.
    pub(crate) fn survival(&self) -> Surviving {
        match (&self.region, self.is_incomplete.load(Ordering::Relaxed)) {
            (None, _) => Surviving::Nothing,
            (Some(_), true) => Surviving::Part,
            (Some(_), false) => Surviving::All,
        }
    }

    /// An arena that survives the process; `None` if there is no memory left for it.
    pub(crate) fn surviving_arena(&self) -> Option<Arena> {
        self.region
            .as_ref()
            .and_then(|region| region.arena(KIND_MESSAGES))
    }

    /// Sets the function that is called when messages may not survive.
    pub(crate) fn on_incomplete(&self, call: impl Fn() + Send + Sync + 'static) {
        // Set once, where the source is made.
        drop(self.on_incomplete.set(Box::new(call)));
    }

    /// Reports that messages may not survive the process.
    pub(crate) fn report_incomplete(&self) {
        self.is_incomplete.store(true, Ordering::Relaxed);
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
                    "the shared memory is full: if this process is killed, messages in ordinary memory are lost"
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
    // Dropped after the arena, which refers to it.
    kept: KeptBytes,
    /// Loans whose bytes do not survive.
    unkept: usize,
    pinned_bytes: usize,
    messages: usize,
    /// It means something while there are messages.
    last_log_time: Timestamp,
    /// When its messages came, if that is kept, on a clock that does not jump.
    came: Option<(Timestamp, Timestamp)>,
}

impl Segment {
    /// An empty segment; its memory is reserved and not yet touched.
    pub fn new(shape: SegmentShape, source: &ArenaSource) -> Self {
        Self {
            shape,
            arena: source.arena(shape.arena_bytes),
            loans: Vec::with_capacity(shape.loans_max),
            kept: KeptBytes::default(),
            unkept: 0,
            pinned_bytes: 0,
            messages: 0,
            last_log_time: Timestamp::from_nanos(0),
            came: None,
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

    /// Whether payloads of it were in memory that does not survive.
    pub(crate) fn has_unkept(&self) -> bool {
        self.unkept > 0
    }

    /// The holds on bytes to which [`Segment::bytes`] refers.
    pub fn kept(&mut self) -> &mut KeptBytes {
        &mut self.kept
    }

    /// Its place among all runs of messages.
    pub fn order(&self) -> u64 {
        self.arena.order()
    }

    /// The bytes of its messages in memory; [`survived`](holdall_bag::rescue::survived) reads them.
    pub fn bytes(&self) -> &[u8] {
        self.arena.as_slice()
    }

    /// Gives the segment another arena, and returns the one that has its messages. Nothing but [`Segment::clear`] may follow.
    pub(crate) fn exchange_arena(&mut self, empty: Arena) -> Arena {
        std::mem::replace(&mut self.arena, empty)
    }

    /// True if a payload of this many bytes can be copied in.
    #[inline]
    pub(crate) fn fits_copy(&self, payload_bytes: usize) -> bool {
        self.shape.arena_bytes - self.arena.len() >= payload_bytes + HEADER_BYTES
    }

    /// True if the segment can hold one more loan with this many bytes of ranges.
    pub(crate) fn fits_loan(&self, ranges_bytes: usize) -> bool {
        self.fits_copy(ranges_bytes) && self.loans.len() < self.shape.loans_max
    }

    /// Appends a message and copies its payload; the caller has asked [`Segment::fits_copy`].
    #[inline]
    pub(crate) fn push_copy(&mut self, entry: CacheEntry, payload: &[u8]) {
        debug_assert!(
            self.fits_copy(payload.len()),
            "copied into a segment without room"
        );
        // An arena has at most 256 KiB: the length fits into 32 bits.
        let header = Header {
            entry,
            len_or_loan: payload.len() as u32,
            is_loan: false,
            has_ranges: false,
        };
        self.push(&header, payload);
    }

    /// Appends a message whose payload stays in its place, and the location of the payload; the caller has asked [`Segment::fits_loan`].
    pub(crate) fn push_loan(&mut self, entry: CacheEntry, mut held: HeldLoan, ranges: &[u8]) {
        debug_assert!(
            self.fits_loan(ranges.len()),
            "moved a loan into a segment without room"
        );
        let kept = held.kept.take().filter(|_| self.survives());
        let header = Header {
            entry,
            len_or_loan: self.loans.len() as u32,
            is_loan: true,
            has_ranges: kept.is_some(),
        };
        self.push(&header, if kept.is_some() { ranges } else { &[] });
        self.pinned_bytes += held.pinned_bytes;
        match kept {
            Some(hold) => self.kept.add(hold, held.pinned_bytes),
            None => self.unkept += 1,
        }
        self.loans.push(Some(held));
    }

    #[inline]
    fn push(&mut self, header: &Header, payload: &[u8]) {
        self.arena.append(&header.to_bytes(), payload);
        self.messages += 1;
        self.last_log_time = header.entry.log_time;
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.messages
    }

    /// True if it holds no message.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Bytes pinned by the loans that it still holds.
    #[inline]
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// Takes note of when the last message came.
    pub(crate) fn came(&mut self, time: Timestamp) {
        let first = self
            .came
            .filter(|_| self.messages > 1)
            .map_or(time, |(first, _)| first);
        self.came = Some((first, time));
    }

    /// When the first message came.
    pub(crate) fn first_time(&self) -> Option<Timestamp> {
        self.came.filter(|_| self.messages > 0).map(|(first, _)| first)
    }

    /// When the last message came.
    pub(crate) fn last_time(&self) -> Option<Timestamp> {
        self.came.filter(|_| self.messages > 0).map(|(_, last)| last)
    }

    /// The last message's log time.
    pub(crate) fn last_log_time(&self) -> Option<Timestamp> {
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
            has_ranges,
        } = self.header(place)?;
        let after_header = place.0 + HEADER_BYTES;
        if is_loan {
            let ranges_bytes = if has_ranges {
                list_bytes(self.arena.as_slice().get(after_header..)?)?
            } else {
                0
            };
            let held = self.loans.get(len_or_loan as usize).and_then(Option::as_ref);
            let payload = held.map_or(PayloadRef::Bytes(&[]), |held| {
                PayloadRef::Loan(held.loan.as_ref())
            });
            return Some(Stored {
                entry,
                payload,
                charge_bytes: LOAN_OVERHEAD_BYTES,
                next: Place(after_header + ranges_bytes),
            });
        }
        let end = after_header + len_or_loan as usize;
        let payload = PayloadRef::Bytes(self.arena.as_slice().get(after_header..end)?);
        Some(Stored {
            entry,
            payload,
            charge_bytes: end - place.0,
            next: Place(end),
        })
    }

    /// Takes the loan of a message out, with what it pins in bytes; `None` if the payload was copied or is gone.
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
        self.kept.clear();
        self.unkept = 0;
        self.pinned_bytes = 0;
        self.messages = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
