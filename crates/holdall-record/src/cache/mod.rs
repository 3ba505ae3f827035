//! The cache between receiving and writing: bounded in bytes really held, full according to a stated policy, without clock or thread.

mod returned;
mod segment;
mod shared;
#[cfg(test)]
mod tests;

pub use holdall_bag::rescue::CacheEntry;
pub use holdall_model::cache::{Admission, CacheOptions, CachePolicy, TopicPriority};
pub(crate) use segment::HeldLoan;
pub use segment::{ArenaSource, KeptBytes, Place, Segment, SegmentShape, Stored};
pub use shared::{Offered, SharedCache, Waited};

use holdall_bag::{rescue::HEADER_BYTES, writer::SteadyOf};
use holdall_model::{time::Timestamp, topic::TopicId};
use segment::LOAN_OVERHEAD_BYTES;
use std::{collections::VecDeque, time::Duration};

/// A cache presses its drain when this part of its first size is used.
const PRESSING_PART: usize = 8;

/// The smallest cache, in bytes; smaller requests (rosbag2's 0, "write each message straight") get this.
pub(crate) const CACHE_BYTES_MIN: usize = 64 * 1024;

/// Segments that may always exist: one being filled, one being written, and two to change with.
const SEGMENTS_MIN: usize = 4;

/// Segments to allocate at the start, if they take no more than a sixteenth of the cache: a loan of some megabytes fills a segment by
/// itself, and allocating one during an offer costs a system call and page faults, about 20 µs.
const SEGMENTS_READY_MAX: usize = 16;

/// A payload to be put into the cache.
pub enum Body<'a> {
    /// To be copied.
    Copy(&'a [u8]),
    /// To be moved in; taken out of the option when the cache has taken it. With its pinned bytes, and the places of its bytes.
    Move(&'a mut Option<HeldLoan>, usize, &'a [u8]),
}

impl Body<'_> {
    /// Bytes charged to its topic while the cache holds it.
    #[inline]
    fn charge_bytes(&self) -> usize {
        match self {
            Self::Copy(payload) => HEADER_BYTES + payload.len(),
            Self::Move(_, pinned_bytes, _) => LOAN_OVERHEAD_BYTES + *pinned_bytes,
        }
    }
}

/// Why a message could not enter at once.
pub(crate) enum Blocked {
    /// There is no room for it: it is dropped.
    Refused,
    /// A segment is needed: make one outside the lock, hand it to [`Cache::add_segment`], try again.
    NeedsSegment,
    /// These messages, the oldest, were evicted: count them outside the lock, hand the segment to [`Cache::recycle`], try again.
    Evicted(Segment),
    /// This memory is needed for a loan: drop it outside the lock, try again.
    Surplus(Segment),
}

/// Result of [`Cache::take`].
pub enum Taken {
    /// The oldest messages, to be written and returned with [`Cache::recycle`].
    Segment(Segment),
    /// There is nothing to write.
    Nothing,
    /// A segment is needed to change with: hand one to [`Cache::add_segment`] and take again.
    NeedsSegment,
}

/// Messages between the transport and the disk, oldest first.
///
/// Its memory is `max(segments, segments_min) × footprint + pinned by loans`, and that sum never grows beyond `bytes_max`, with one exception: a
/// loan larger than what the segments leave is taken when no other loan is held, so that it can be recorded at all.
pub struct Cache {
    shape: SegmentShape,
    source: ArenaSource,
    bytes_max: usize,
    /// From this much memory in use on the drain is woken, in bytes.
    pressing_bytes: usize,
    duration_max: Option<Duration>,
    /// A message's time on a clock that does not jump; used with `duration_max`.
    steady: Option<SteadyOf>,
    snapshot: bool,
    pinned_batch_bytes: usize,
    admission: Admission,
    /// Being filled.
    current: Segment,
    /// Filled and waiting, oldest first.
    full: VecDeque<Segment>,
    /// Snapshot mode: to be written, oldest first.
    dumped: VecDeque<Segment>,
    /// Snapshot mode: the segment being filled must be written too, as soon as another can replace it.
    dump_current: bool,
    /// Empty and ready.
    spare: Vec<Segment>,
    /// A segment was evicted so that the next message gets it.
    evicts_for_reuse: bool,
    /// All that exist: current, full, dumped, spare, and those being written or counted.
    segments: usize,
    /// Segments that are never freed, and counted as if they always existed.
    segments_min: usize,
    /// Pinned by all loans in here, and by those being written.
    pinned_bytes: usize,
}

impl Cache {
    /// An empty cache with its first segments ready.
    pub fn new(options: &CacheOptions) -> Self {
        Self::with_source(options, ArenaSource::default())
    }

    /// As [`Cache::new`], with memory from `source`.
    pub(crate) fn with_source(options: &CacheOptions, source: ArenaSource) -> Self {
        let bytes_max = options.bytes_max.max(CACHE_BYTES_MIN);
        let shape = SegmentShape::for_cache(bytes_max);
        let segments_min = (bytes_max / 16 / shape.footprint_bytes()).clamp(SEGMENTS_MIN, SEGMENTS_READY_MAX);
        let segments_max = options.bytes_most().max(bytes_max) / shape.footprint_bytes() + segments_min;
        let mut spare = Vec::with_capacity(segments_max);
        spare.extend((1..segments_min).map(|_| Segment::touched(shape, &source)));
        let policy = if options.snapshot {
            CachePolicy::DropOld
        } else {
            options.policy
        };
        Self {
            shape,
            bytes_max,
            pressing_bytes: bytes_max / PRESSING_PART,
            duration_max: options.duration_max,
            steady: None,
            snapshot: options.snapshot,
            pinned_batch_bytes: (bytes_max / 32).clamp(shape.arena_bytes, 8 * 1024 * 1024),
            admission: Admission::new(policy, bytes_max),
            current: Segment::touched(shape, &source),
            source,
            full: VecDeque::with_capacity(segments_max),
            dumped: VecDeque::with_capacity(if options.snapshot { segments_max } else { 0 }),
            dump_current: false,
            spare,
            evicts_for_reuse: false,
            segments: segments_min,
            segments_min,
            pinned_bytes: 0,
        }
    }

    /// Measures its span by a clock that does not jump instead of by log times.
    pub(crate) fn measuring_by(mut self, steady: SteadyOf) -> Self {
        self.steady = Some(steady).filter(|_| self.duration_max.is_some());
        self
    }

    /// Gives a topic another priority than the normal one.
    pub fn prioritize(&mut self, topic: TopicId, priority: TopicPriority) {
        self.admission.prioritize(topic, priority);
    }

    /// Takes another rule of admission, to compare.
    pub fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// How much each of its segments holds.
    pub fn shape(&self) -> SegmentShape {
        self.shape
    }

    /// Where its segments get their memory from.
    pub fn source(&self) -> &ArenaSource {
        &self.source
    }

    /// Its limit in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Sets its limit in bytes. What it holds beyond a smaller one stays until it is written.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        // Half of it is for others than the segments that are never freed, so that loans come in one after the other; not more than at first.
        let least =
            (2 * self.segments_min * self.shape.footprint_bytes()).min(self.pressing_bytes * PRESSING_PART);
        self.bytes_max = bytes_max.max(CACHE_BYTES_MIN).max(least);
        self.admission.set_bytes_max(self.bytes_max);
    }

    /// Segments that hold messages to be written, the one being filled included.
    pub(crate) fn queued_segments(&self) -> usize {
        self.full.len() + self.dumped.len() + usize::from(!self.current.is_empty())
    }

    /// Bytes that messages in it hold: payloads, their overhead, and pinned memory of loans. For showing how full it is.
    pub fn held_bytes(&self) -> usize {
        self.admission.held_bytes()
    }

    /// Memory that it takes from the system and the transports, in bytes, used or ready for use.
    pub fn memory_bytes(&self) -> usize {
        self.segments.max(self.segments_min) * self.shape.footprint_bytes() + self.pinned_bytes
    }

    /// Memory that cannot be taken for another message, in bytes.
    #[inline]
    fn used_bytes(&self) -> usize {
        (self.segments - self.spare.len()) * self.shape.footprint_bytes() + self.pinned_bytes
    }

    /// Stores a message.
    ///
    /// # Errors
    /// When there is no room, or when something has to be done outside the lock first.
    #[inline]
    pub fn offer(&mut self, entry: CacheEntry, body: &mut Body<'_>) -> Result<(), Blocked> {
        let topic = entry.topic;
        if !self
            .admission
            .admits(topic, self.used_bytes(), body.charge_bytes())
        {
            return Err(Blocked::Refused);
        }
        let time = match self.duration_max {
            None => None,
            Some(duration_max) => Some(self.keep_span(entry.log_time, duration_max)?),
        };
        match body {
            Body::Copy(payload) => {
                if !self.current.fits_copy(payload.len()) {
                    if payload.len() + HEADER_BYTES > self.shape.arena_bytes {
                        return Err(Blocked::Refused);
                    }
                    self.rotate()?;
                }
                self.current.push_copy(entry, payload);
                self.admission.charge(topic, HEADER_BYTES + payload.len());
            }
            Body::Move(loan, pinned_bytes, ranges) => self.offer_loan(entry, loan, *pinned_bytes, ranges)?,
        }
        if let Some(time) = time {
            self.current.came(time);
        }
        Ok(())
    }

    fn offer_loan(
        &mut self,
        entry: CacheEntry,
        loan: &mut Option<HeldLoan>,
        pinned_bytes: usize,
        ranges: &[u8],
    ) -> Result<(), Blocked> {
        if !self.current.fits_loan(ranges.len()) || self.current.pinned_bytes() >= self.pinned_batch_bytes {
            self.rotate()?;
        }
        self.make_room(pinned_bytes)?;
        // A loan that was taken already has nothing left to store.
        let Some(loan) = loan.take() else {
            return Err(Blocked::Refused);
        };
        let topic = entry.topic;
        self.admission.charge(topic, LOAN_OVERHEAD_BYTES + pinned_bytes);
        self.pinned_bytes += pinned_bytes;
        self.current.push_loan(entry, loan, ranges);
        Ok(())
    }

    /// Appends the segment being filled to the full ones and begins another.
    fn rotate(&mut self) -> Result<(), Blocked> {
        if self.current.is_empty() {
            return Ok(());
        }
        if let Some(next) = self.spare.pop() {
            self.change_current(next);
            return Ok(());
        }
        if self.may_add_segment() {
            self.segments += 1;
            return Err(Blocked::NeedsSegment);
        }
        match self.admission.policy() {
            CachePolicy::DropOld => {
                let oldest = self.full.pop_front();
                self.evicts_for_reuse = oldest.is_some();
                Err(oldest.map_or(Blocked::Refused, Blocked::Evicted))
            }
            CachePolicy::DropNew | CachePolicy::Fair => Err(Blocked::Refused),
        }
    }

    fn change_current(&mut self, next: Segment) {
        let filled = std::mem::replace(&mut self.current, next);
        if std::mem::take(&mut self.dump_current) {
            self.dumped.push_back(filled);
        } else {
            self.full.push_back(filled);
        }
    }

    fn may_add_segment(&self) -> bool {
        self.segments < self.segments_min
            || (self.segments + 1) * self.shape.footprint_bytes() + self.pinned_bytes <= self.bytes_max
    }

    /// Ok when a loan that pins this much may come in.
    fn make_room(&mut self, pinned_bytes: usize) -> Result<(), Blocked> {
        if self.memory_bytes() + pinned_bytes <= self.bytes_max {
            return Ok(());
        }
        if self.segments > self.segments_min
            && let Some(surplus) = self.spare.pop()
        {
            self.segments -= 1;
            return Err(Blocked::Surplus(surplus));
        }
        if self.admission.policy() == CachePolicy::DropOld {
            if let Some(oldest) = self.full.pop_front() {
                return Err(Blocked::Evicted(oldest));
            }
            if !self.current.is_empty() {
                // Only the segment being filled is left to evict.
                self.rotate()?;
                return Err(self.full.pop_front().map_or(Blocked::Refused, Blocked::Evicted));
            }
        }
        if self.pinned_bytes == 0 {
            Ok(())
        } else {
            Err(Blocked::Refused)
        }
    }

    /// Makes room for a message with this log time: no segment has messages that are older than the limit alone. Returns when it came.
    #[cold]
    fn keep_span(&mut self, log_time: Timestamp, duration_max: Duration) -> Result<Timestamp, Blocked> {
        let now = self.steady.as_ref().map_or(log_time, |steady| steady(log_time));
        // A segment with such a long span is too coarse to be evicted whole.
        let is_stale = |first| now.saturating_since(first) > duration_max / 16;
        if self.current.first_time().is_some_and(is_stale) {
            self.rotate()?;
        }
        let expired = |segment: &Segment| {
            segment
                .last_time()
                .is_some_and(|last| now.saturating_since(last) > duration_max)
        };
        if self.full.front().is_some_and(expired)
            && let Some(oldest) = self.full.pop_front()
        {
            return Err(Blocked::Evicted(oldest));
        }
        Ok(now)
    }

    /// Adds a segment that was requested by [`Blocked::NeedsSegment`] or [`Taken::NeedsSegment`], or reserved before.
    pub(crate) fn add_segment(&mut self, segment: Segment) {
        self.spare.push(segment);
    }

    /// Reserves one more segment while fewer than two are ready, so that a burst finds memory that is mapped in already.
    /// When true, hand one to [`Cache::add_segment`].
    pub(crate) fn reserve_spare(&mut self) -> bool {
        let reserve = self.spare.len() < 2 && self.may_add_segment();
        self.segments += usize::from(reserve);
        reserve
    }

    /// Takes the oldest messages out. `partial` also takes a segment that is not full yet.
    pub fn take(&mut self, partial: bool) -> Taken {
        if self.dumped.is_empty()
            && self.dump_current
            && let Err(taken) = self.rotate_for_take()
        {
            return taken;
        }
        if let Some(segment) = self.dumped.pop_front() {
            return Taken::Segment(segment);
        }
        if self.snapshot {
            return Taken::Nothing;
        }
        if self.full.is_empty() {
            let worth = partial || self.current.pinned_bytes() >= self.pinned_batch_bytes;
            if !worth || self.current.is_empty() {
                return Taken::Nothing;
            }
            match self.rotate_for_take() {
                Ok(()) => {}
                Err(taken) => return taken,
            }
        }
        self.full.pop_front().map_or(Taken::Nothing, Taken::Segment)
    }

    /// Rotates without ever evicting messages.
    fn rotate_for_take(&mut self) -> Result<(), Taken> {
        if let Some(next) = self.spare.pop() {
            self.change_current(next);
            Ok(())
        } else if self.may_add_segment() {
            self.segments += 1;
            Err(Taken::NeedsSegment)
        } else {
            // All others are being written; one of them comes back soon.
            Err(Taken::Nothing)
        }
    }

    /// Snapshot mode: lets everything in the ring be taken.
    pub fn dump(&mut self) {
        if self.snapshot {
            self.dumped.append(&mut self.full);
            self.dump_current = !self.current.is_empty();
        }
    }

    /// Snapshot mode: takes out the rest of the ring at the end, to be counted and not written.
    pub(crate) fn take_undumped_ring(&mut self) -> Option<Segment> {
        if !self.snapshot {
            return None;
        }
        if self.full.is_empty() && !self.current.is_empty() && !self.dump_current {
            // One segment more than before, for the short time until the last ones are returned.
            self.segments += 1;
            self.full.push_back(std::mem::replace(
                &mut self.current,
                Segment::new(self.shape, &self.source),
            ));
        }
        self.full.pop_front()
    }

    /// True if the cache is so full that the drain must not sleep. At least an eighth of its first size: the thread that
    /// wakes the drain may have to wait until the drain has written its backlog (2 ms for 8 MiB on two cores).
    #[inline]
    pub(crate) fn is_pressing(&self) -> bool {
        self.has_dumped() || (!self.snapshot && self.used_bytes() > self.pressing_bytes)
    }

    /// True if there is a full segment to take.
    #[inline]
    pub(crate) fn has_full(&self) -> bool {
        let pinned = self.current.pinned_bytes() >= self.pinned_batch_bytes;
        self.has_dumped() || (!self.snapshot && (pinned || !self.full.is_empty()))
    }

    fn has_dumped(&self) -> bool {
        self.dump_current || !self.dumped.is_empty()
    }

    /// True if there is something to take.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        let filled = !self.full.is_empty() || !self.current.is_empty();
        self.has_dumped() || (!self.snapshot && filled)
    }

    /// Counts memory that is kept for a message of this topic outside of a segment.
    pub fn hold(&mut self, topic: TopicId, bytes: usize) {
        self.pinned_bytes += bytes;
        self.admission.charge(topic, bytes);
    }

    /// Accounts for a loan that was taken out of a segment and returned to its transport.
    pub fn loan_returned(&mut self, topic: TopicId, pinned_bytes: usize) {
        debug_assert!(
            self.pinned_bytes >= pinned_bytes,
            "more was given back than pinned"
        );
        self.pinned_bytes = self.pinned_bytes.saturating_sub(pinned_bytes);
        self.admission.credit(topic, pinned_bytes);
    }

    /// Credits topics with the bytes that the messages of returned segments were charged.
    pub fn credit(&mut self, credits: &[(TopicId, usize)]) {
        for &(topic, bytes) in credits {
            self.admission.credit(topic, bytes);
        }
    }

    /// Takes out the segments that a backlog needed and that are not needed now, to be freed outside the lock.
    pub(crate) fn take_idle(&mut self) -> Vec<Segment> {
        let surplus = self
            .segments
            .saturating_sub(self.segments_min)
            .min(self.spare.len());
        self.segments -= surplus;
        self.spare.split_off(self.spare.len() - surplus)
    }

    /// Takes back an emptied segment. Returns it if its memory should be freed (outside the lock).
    pub fn recycle(&mut self, segment: Segment) -> Option<Segment> {
        debug_assert!(
            segment.is_empty() && segment.pinned_bytes() == 0,
            "recycled with messages in it"
        );
        // One that was evicted for the next message is that message's: else a limit that has become smaller would take all beyond it at once.
        let is_wanted = std::mem::take(&mut self.evicts_for_reuse) && self.spare.is_empty();
        if !is_wanted && self.segments > self.segments_min && self.memory_bytes() > self.bytes_max {
            self.segments -= 1;
            return Some(segment);
        }
        self.spare.push(segment);
        None
    }
}
