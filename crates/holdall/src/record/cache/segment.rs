//! A segment: a run of messages in arrival order, small payloads copied into one arena, large ones held as loans.

use super::{CacheEntry, PublisherIndex};
use holdall_model::{
    message::{Loan, PayloadRef},
    time::Timestamp,
    topic::TopicId,
};

/// How much one segment holds; all segments of a cache have the same shape, so that they can be used again. Powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentShape {
    /// Messages it can hold.
    pub messages_max: usize,
    /// Bytes of copied payloads it can hold.
    pub arena_bytes: usize,
    /// Loans it can hold.
    pub loans_max: usize,
}

impl SegmentShape {
    /// The largest shape: 2048 messages, 256 KiB of payloads. Small enough to give up or write in some ten microseconds, large enough
    /// that one lock for taking it costs nothing per message.
    const LARGEST: Self = Self {
        messages_max: 2048,
        arena_bytes: 256 * 1024,
        loans_max: 256,
    };

    /// The largest shape of which at least 16 segments fit into `cache_bytes_max`.
    pub fn for_cache(cache_bytes_max: usize) -> Self {
        let mut shape = Self::LARGEST;
        while shape.footprint_bytes() * 16 > cache_bytes_max && shape.messages_max > 16 {
            shape.messages_max /= 2;
            shape.arena_bytes /= 2;
            shape.loans_max = (shape.loans_max / 2).max(4);
        }
        shape
    }

    /// Memory that one segment takes, in bytes, full or not, without what its loans pin.
    pub const fn footprint_bytes(&self) -> usize {
        self.messages_max * size_of::<Slot>()
            + self.arena_bytes
            + self.loans_max * size_of::<Option<HeldLoan>>()
    }

    /// What a copied message costs its topic, in bytes: its share of a segment's slots or of its arena, whichever is larger, so that
    /// the costs in a full segment add up to at least its footprint.
    #[inline]
    pub const fn charge_copy_bytes(&self, payload_bytes: usize) -> usize {
        // Both divisors are powers of two.
        let slot = self.footprint_bytes() >> self.messages_max.trailing_zeros();
        let arena = (payload_bytes * self.footprint_bytes()) >> self.arena_bytes.trailing_zeros();
        if slot > arena { slot } else { arena }
    }

    /// What a loan costs its topic besides what it pins, in bytes.
    pub const fn charge_loan_bytes(&self) -> usize {
        self.footprint_bytes() / self.loans_max
    }

    /// Payloads longer than this are kept in an allocation of their own, so that little of an arena stays unused.
    pub const fn copy_bytes_max(&self) -> usize {
        self.arena_bytes / 4
    }
}

/// Where the payload of a message is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the arena.
    Copied { start: u32, len: u32 },
    /// In the list of loans.
    Loaned { index: u32 },
}

/// One message of a segment.
#[derive(Clone, Copy, Debug)]
struct Slot {
    entry: CacheEntry,
    place: Place,
}

impl Slot {
    /// Fills fresh memory; never read.
    const BLANK: Self = Self {
        entry: CacheEntry {
            log_time: Timestamp::from_nanos(0),
            publish_time: None,
            sequence: None,
            topic: TopicId(0),
            publisher: PublisherIndex(0),
        },
        place: Place::Loaned { index: 0 },
    };
}

/// A loan with what it pins, asked once.
struct HeldLoan {
    loan: Box<dyn Loan>,
    pinned_bytes: usize,
}

/// A run of messages in arrival order.
pub struct Segment {
    shape: SegmentShape,
    slots: Vec<Slot>,
    arena: Vec<u8>,
    loans: Vec<Option<HeldLoan>>,
    pinned_bytes: usize,
}

impl Segment {
    /// An empty segment; its memory is reserved and not yet touched.
    pub fn new(shape: SegmentShape) -> Self {
        Self {
            shape,
            slots: Vec::with_capacity(shape.messages_max),
            arena: Vec::with_capacity(shape.arena_bytes),
            loans: Vec::with_capacity(shape.loans_max),
            pinned_bytes: 0,
        }
    }

    /// An empty segment with all its memory mapped in, so that filling it causes no page fault.
    pub fn touched(shape: SegmentShape) -> Self {
        let mut segment = Self::new(shape);
        // Every byte is written once: a page that was never written would fault in the receive path.
        segment.arena.resize(shape.arena_bytes, 0xA5);
        segment.arena.clear();
        segment.slots.resize(shape.messages_max, Slot::BLANK);
        segment.slots.clear();
        segment
    }

    /// True when a payload of this many bytes can be copied in.
    pub fn fits_copy(&self, payload_bytes: usize) -> bool {
        self.slots.len() < self.shape.messages_max
            && self.shape.arena_bytes - self.arena.len() >= payload_bytes
    }

    /// True when one more loan can be held.
    pub fn fits_loan(&self) -> bool {
        self.slots.len() < self.shape.messages_max && self.loans.len() < self.shape.loans_max
    }

    /// Appends a message and copies its payload; the caller has asked [`Segment::fits_copy`].
    pub fn push_copy(&mut self, entry: CacheEntry, payload: &[u8]) {
        debug_assert!(
            self.fits_copy(payload.len()),
            "copied into a segment without room"
        );
        // Both fit into 32 bits: an arena has at most 256 KiB.
        let place = Place::Copied {
            start: self.arena.len() as u32,
            len: payload.len() as u32,
        };
        self.arena.extend_from_slice(payload);
        self.slots.push(Slot { entry, place });
    }

    /// Appends a message whose payload stays where it is; the caller has asked [`Segment::fits_loan`].
    pub fn push_loan(&mut self, entry: CacheEntry, loan: Box<dyn Loan>, pinned_bytes: usize) {
        debug_assert!(self.fits_loan(), "moved a loan into a segment without room");
        let place = Place::Loaned {
            index: self.loans.len() as u32,
        };
        self.loans.push(Some(HeldLoan { loan, pinned_bytes }));
        self.pinned_bytes += pinned_bytes;
        self.slots.push(Slot { entry, place });
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when it holds no message.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What the loans that it still holds pin, in bytes.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// The header of message `index`; `None` past the end.
    pub fn entry(&self, index: usize) -> Option<&CacheEntry> {
        self.slots.get(index).map(|slot| &slot.entry)
    }

    /// The first message's header.
    pub fn first(&self) -> Option<&CacheEntry> {
        self.slots.first().map(|slot| &slot.entry)
    }

    /// The last message's header.
    pub fn last(&self) -> Option<&CacheEntry> {
        self.slots.last().map(|slot| &slot.entry)
    }

    /// Header and payload of message `index`; `None` past the end, or when its loan was given back.
    pub fn message(&self, index: usize) -> Option<(CacheEntry, PayloadRef<'_>)> {
        let slot = self.slots.get(index)?;
        let payload = match slot.place {
            Place::Copied { start, len } => {
                PayloadRef::Bytes(self.arena.get(start as usize..start as usize + len as usize)?)
            }
            Place::Loaned { index } => {
                PayloadRef::Loan(self.loans.get(index as usize)?.as_ref()?.loan.as_ref())
            }
        };
        Some((slot.entry, payload))
    }

    /// What message `index` costs its topic, in bytes, without what its loan pins.
    pub fn charge_bytes(&self, index: usize) -> usize {
        match self.slots.get(index).map(|slot| slot.place) {
            Some(Place::Copied { len, .. }) => self.shape.charge_copy_bytes(len as usize),
            Some(Place::Loaned { .. }) => self.shape.charge_loan_bytes(),
            None => 0,
        }
    }

    /// Takes the loan of message `index` out, with what it pins in bytes; `None` when the payload was copied or is gone.
    pub fn take_loan(&mut self, index: usize) -> Option<(Box<dyn Loan>, usize)> {
        let Place::Loaned { index } = self.slots.get(index)?.place else {
            return None;
        };
        let held = self.loans.get_mut(index as usize)?.take()?;
        self.pinned_bytes -= held.pinned_bytes;
        Some((held.loan, held.pinned_bytes))
    }

    /// Forgets all messages, gives loans back and keeps the memory.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.arena.clear();
        self.loans.clear();
        self.pinned_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

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
