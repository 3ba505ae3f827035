//! The last messages, oldest first, in segments like the cache's and bounded like it.

use crate::cache::{CacheEntry, HeldLoan, Place, Segment, SegmentShape};
use holdall_model::{
    message::{Loan, PayloadRef},
    time::Timestamp,
};
use std::collections::VecDeque;

/// Empty segments that are kept for use.
const SPARE_MAX: usize = 2;

/// The smallest ring, in bytes.
const RING_BYTES_MIN: usize = 64 * 1024;

/// A payload that comes into the ring.
pub(crate) enum RingPayload<'a> {
    /// To be copied.
    Copy(&'a [u8]),
    /// In the transport's memory, with its pinned bytes.
    Loan(Box<dyn Loan>, usize),
}

/// The last messages.
pub(crate) struct Ring {
    shape: SegmentShape,
    bytes_max: usize,
    /// The last one is being filled.
    segments: VecDeque<Segment>,
    spare: Vec<Segment>,
    /// The oldest message's place in the first segment.
    oldest: Place,
    /// How far log times are ahead of time that does not jump, with the number of messages in a row, oldest first.
    offsets: VecDeque<(i64, u64)>,
    newest: Option<Timestamp>,
    pinned_bytes: usize,
    messages: u64,
}

impl Ring {
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.max(RING_BYTES_MIN);
        Self {
            shape: SegmentShape::for_cache(bytes_max),
            bytes_max,
            segments: VecDeque::new(),
            spare: Vec::new(),
            oldest: Place::default(),
            offsets: VecDeque::new(),
            newest: None,
            pinned_bytes: 0,
            messages: 0,
        }
    }

    /// Messages in it.
    pub fn len(&self) -> u64 {
        self.messages
    }

    /// Its memory, in bytes.
    pub fn bytes(&self) -> usize {
        (self.segments.len() + self.spare.len()) * self.shape.footprint_bytes() + self.pinned_bytes
    }

    /// When the message came that came last, also when it has left, in time that does not jump.
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The oldest message.
    pub fn oldest(&self) -> Option<CacheEntry> {
        Some(self.segments.front()?.message(self.oldest)?.entry)
    }

    /// When the oldest message came, in time that does not jump.
    pub fn oldest_time(&self) -> Option<Timestamp> {
        let (offset, _) = self.offsets.front()?;
        let log_time = self.oldest()?.log_time.as_nanos();
        Some(Timestamp::from_nanos(log_time.saturating_sub(*offset)))
    }

    /// The oldest message's payload.
    pub fn oldest_payload(&self) -> Option<PayloadRef<'_>> {
        Some(self.segments.front()?.message(self.oldest)?.payload)
    }

    /// Takes the oldest message's loan out, with its pinned bytes; `None` if the payload was copied.
    pub fn take_oldest_loan(&mut self) -> Option<(Box<dyn Loan>, usize)> {
        let taken = self.segments.front_mut()?.take_loan(self.oldest);
        self.pinned_bytes -= taken.as_ref().map_or(0, |(_, pinned)| *pinned);
        taken
    }

    /// Removes the oldest message.
    pub fn pop(&mut self) {
        drop(self.take_oldest_loan());
        let Some(first) = self.segments.front_mut() else {
            return;
        };
        let Some(next) = first.message(self.oldest).map(|stored| stored.next) else {
            return;
        };
        self.messages -= 1;
        if let Some((_, count)) = self.offsets.front_mut() {
            *count -= 1;
            if *count == 0 {
                self.offsets.pop_front();
            }
        }
        self.oldest = next;
        if first.message(next).is_some() {
            return;
        }
        self.oldest = Place::default();
        if let Some(mut empty) = self.segments.pop_front() {
            empty.clear();
            if self.spare.len() < SPARE_MAX {
                self.spare.push(empty);
            }
        }
    }

    /// Adds a message that came at `time` (which does not jump), or returns its payload when the oldest has to be removed first. Into an
    /// empty ring everything goes.
    pub fn push<'a>(
        &mut self,
        entry: CacheEntry,
        time: Timestamp,
        payload: RingPayload<'a>,
    ) -> Result<(), RingPayload<'a>> {
        let (payload, loan_bytes) = match payload {
            RingPayload::Copy(bytes) if bytes.len() > self.shape.copy_bytes_max() => {
                let copied: Box<dyn Loan> = Box::new(Box::<[u8]>::from(bytes));
                (RingPayload::Loan(copied, bytes.len()), bytes.len())
            }
            RingPayload::Loan(loan, pinned_bytes) => (RingPayload::Loan(loan, pinned_bytes), pinned_bytes),
            copy @ RingPayload::Copy(_) => (copy, 0),
        };
        let fits = |segment: &Segment| match &payload {
            RingPayload::Copy(bytes) => segment.fits_copy(bytes.len()),
            RingPayload::Loan(..) => segment.fits_loan(0),
        };
        let is_new = !self.segments.back().is_some_and(fits);
        let more = if is_new && self.spare.is_empty() {
            self.shape.footprint_bytes()
        } else {
            0
        };
        if self.messages > 0 && self.bytes() + more + loan_bytes > self.bytes_max {
            return Err(payload);
        }
        if is_new {
            let empty = || Segment::new(self.shape, &crate::cache::ArenaSource::default());
            let segment = self.spare.pop().unwrap_or_else(empty);
            self.segments.push_back(segment);
        }
        let Some(segment) = self.segments.back_mut() else {
            return Err(payload);
        };
        match payload {
            RingPayload::Copy(bytes) => segment.push_copy(entry, bytes),
            RingPayload::Loan(loan, pinned_bytes) => {
                self.pinned_bytes += pinned_bytes;
                segment.push_loan(entry, HeldLoan::new(loan, pinned_bytes, None), &[]);
            }
        }
        self.messages += 1;
        self.newest = Some(time);
        let offset = entry.log_time.as_nanos().saturating_sub(time.as_nanos());
        match self.offsets.back_mut() {
            Some((last, count)) if *last == offset => *count += 1,
            _ => self.offsets.push_back((offset, 1)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{loss::ledger::PublisherIndex, topic::TopicId};

    fn entry(number: u64) -> CacheEntry {
        CacheEntry {
            log_time: Timestamp::from_nanos(number.cast_signed()),
            publish_time: None,
            sequence: Some(number),
            topic: TopicId(0),
            publisher: PublisherIndex(0),
        }
    }

    /// With a clock that is set every thousand messages.
    fn stamped(number: u64) -> (CacheEntry, Timestamp) {
        let time = Timestamp::from_nanos(number.cast_signed() * 2);
        let jumped = time.as_nanos() + number.cast_signed() / 1000 % 3 * 7777;
        let log_time = Timestamp::from_nanos(jumped);
        (
            CacheEntry {
                log_time,
                ..entry(number)
            },
            time,
        )
    }

    fn content(ring: &Ring) -> Vec<u8> {
        let mut bytes = Vec::new();
        ring.oldest_payload()
            .unwrap()
            .for_each_slice(|slice| bytes.extend_from_slice(slice));
        bytes
    }

    #[test]
    fn messages_leave_in_order_and_memory_is_bounded() {
        let bytes_max = 1 << 20;
        let mut ring = Ring::new(bytes_max);
        let (mut popped, mut most) = (0_u64, 0);
        // Small ones, some that are kept outside, and loans.
        let lengths = [10_usize, 100, 0, 3000, 40_000, 70_000];
        for number in 0..5000_u64 {
            let length = lengths[number as usize % lengths.len()];
            let bytes = vec![number as u8; length];
            let mut payload = if number % 7 == 0 {
                RingPayload::Loan(Box::new(Box::<[u8]>::from(bytes.clone())), length)
            } else {
                RingPayload::Copy(&bytes)
            };
            let (entry, time) = stamped(number);
            while let Err(back) = ring.push(entry, time, payload) {
                assert_eq!(ring.oldest().unwrap().sequence, Some(popped));
                assert_eq!(
                    content(&ring),
                    vec![popped as u8; lengths[popped as usize % lengths.len()]]
                );
                ring.pop();
                popped += 1;
                payload = back;
            }
            assert!(ring.bytes() <= bytes_max, "{}", ring.bytes());
            most = most.max(ring.bytes());
            assert_eq!(ring.len(), number + 1 - popped);
            assert_eq!(ring.newest(), Some(stamped(number).1));
            let oldest = ring.oldest().and_then(|oldest| oldest.sequence);
            assert_eq!(ring.oldest_time(), oldest.map(|number| stamped(number).1));
        }
        assert!(popped > 4000 && most > bytes_max * 3 / 4, "{popped} {most}");
        while ring.len() > 0 {
            assert_eq!(ring.oldest().unwrap().sequence, Some(popped));
            ring.pop();
            popped += 1;
        }
        assert_eq!((popped, ring.pinned_bytes), (5000, 0));
        assert!(ring.oldest().is_none() && ring.segments.is_empty());
        ring.pop();
    }

    #[test]
    fn one_message_that_is_larger_than_the_ring_is_held_alone() {
        let mut ring = Ring::new(0);
        let bytes = vec![1; 1 << 20];
        let (entry, time) = stamped(0);
        assert!(ring.push(entry, time, RingPayload::Copy(&bytes)).is_ok());
        let (entry, time) = stamped(1);
        let Err(back) = ring.push(entry, time, RingPayload::Copy(&[2])) else {
            panic!("the ring is full");
        };
        ring.pop();
        assert!(ring.push(entry, time, back).is_ok());
    }
}
