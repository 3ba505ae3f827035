//! The cache as threads share it: one short lock per message, memory and counting outside of it, and few wake-ups.

use super::{
    Admission, ArenaSource, Blocked, Body, Cache, CacheEntry, CacheOptions, HeldLoan, Place, Segment,
    SegmentShape, Stored, Taken, TopicPriority,
    returned::{Returned, Sums},
};
use holdall_bag::{rescue::list_ranges, writer::SteadyOf};
use holdall_io::{mutex::lock, survivor};
use holdall_model::{
    message::{Loan, Payload},
    time::Timestamp,
    topic::TopicId,
};
use std::{
    cell::RefCell,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Outcome of an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The cache holds it.
    Stored,
    /// There was no room: it is lost.
    Full,
    /// The recording is being closed: it is lost.
    Closed,
}

/// State that the drain found after waiting.
pub enum Waited {
    /// The oldest messages, to be returned with [`SharedCache::release`].
    Segment(Segment),
    /// Nothing came, or [`SharedCache::wake`] was called.
    Idle,
    /// The cache was closed and everything was taken.
    Finished,
}

/// The condition that the drain waits for; otherwise it need not be woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    ForFirst,
    ForPressure,
}

struct Inner {
    cache: Cache,
    waiting: Waiting,
    /// Times in a row that the drain found nothing.
    quiet_rounds: u32,
    woken: bool,
    closed: bool,
    /// Log time of the last large message that woke the drain.
    prompted: Timestamp,
}

/// Called for each message that was evicted after it had been stored; outside the lock, on the thread that needed the room.
pub(crate) type CountEvicted = Box<dyn Fn(&Stored<'_>) + Send + Sync>;

/// A `Cache` between receiving threads and one draining thread.
pub struct SharedCache {
    inner: Mutex<Inner>,
    returned: Mutex<Returned>,
    /// Lists of the thread that returns segments, empty between two of them: their memory is used again.
    sums: Mutex<Sums>,
    /// There is something in `returned`.
    has_returned: AtomicBool,
    ready: Condvar,
    count_evicted: CountEvicted,
    shape: SegmentShape,
    source: ArenaSource,
}

/// Times that the drain polls for messages before it waits to be woken.
const LINGER_ROUNDS: u32 = 10;

/// How often the drain is woken for large messages at most.
const PROMPT_INTERVAL: Duration = Duration::from_millis(2);

/// Attempts of one message to get in; each attempt makes progress, other threads may use it up.
const ATTEMPTS_MAX: usize = 64;

impl SharedCache {
    /// An empty cache.
    pub fn new(options: &CacheOptions, count_evicted: CountEvicted) -> Self {
        Self::over(Cache::new(options), count_evicted)
    }

    /// An empty cache with memory from `source`.
    ///
    /// Its span is measured by `steady`, which gives a message's time on a clock that does not jump.
    pub(crate) fn with_source(
        options: &CacheOptions,
        source: ArenaSource,
        evicted: CountEvicted,
        steady: SteadyOf,
    ) -> Self {
        Self::over(Cache::with_source(options, source).measuring_by(steady), evicted)
    }

    /// An empty cache with another rule of admission, to compare.
    pub fn with_admission(options: &CacheOptions, admission: Admission, count_evicted: CountEvicted) -> Self {
        Self::over(Cache::new(options).with_admission(admission), count_evicted)
    }

    fn over(cache: Cache, count_evicted: CountEvicted) -> Self {
        let (shape, source) = (cache.shape(), cache.source().clone());
        let inner = Inner {
            cache,
            waiting: Waiting::No,
            quiet_rounds: 0,
            woken: false,
            closed: false,
            prompted: Timestamp::from_nanos(0),
        };
        Self {
            inner: Mutex::new(inner),
            returned: Mutex::default(),
            sums: Mutex::default(),
            has_returned: AtomicBool::new(false),
            ready: Condvar::new(),
            count_evicted,
            shape,
            source,
        }
    }

    /// Locks the cache and applies everything that was returned. A panic elsewhere leaves the cache in its
    /// state between two steps: messages in it are still good.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = lock(&self.inner);
        if self.has_returned.load(Ordering::Acquire) {
            self.collect_returned(&mut inner.cache);
        }
        inner
    }

    fn lock_returned(&self) -> MutexGuard<'_, Returned> {
        lock(&self.returned)
    }

    #[cold]
    fn collect_returned(&self, cache: &mut Cache) {
        let mut returned = self.lock_returned();
        let Returned {
            segments,
            made,
            credits,
            pinned,
            surplus,
        } = &mut *returned;
        for (topic, bytes) in pinned.drain(..) {
            cache.loan_returned(topic, bytes);
        }
        made.drain(..).for_each(|segment| cache.add_segment(segment));
        cache.credit(credits);
        credits.clear();
        surplus.extend(segments.drain(..).filter_map(|segment| cache.recycle(segment)));
        self.has_returned.store(false, Ordering::Release);
    }

    /// Notes returned memory, and frees the excess.
    fn put_returned(&self, note: impl FnOnce(&mut Returned)) {
        let mut returned = self.lock_returned();
        note(&mut returned);
        let surplus = std::mem::take(&mut returned.surplus);
        self.has_returned.store(true, Ordering::Release);
        drop(returned);
        drop(surplus);
    }

    /// Gives a topic another priority than the normal one, by [`CachePolicy::Fair`](super::CachePolicy::Fair).
    pub fn prioritize(&self, topic: TopicId, priority: TopicPriority) {
        self.lock().cache.prioritize(topic, priority);
    }

    /// Stores a message, or returns why not. Waits for nothing but the lock.
    #[inline]
    pub fn offer(&self, entry: CacheEntry, payload: Payload<'_>) -> Offered {
        match payload {
            Payload::Borrowed(bytes) if bytes.len() <= self.shape.copy_bytes_max() => {
                self.enter(entry, &mut Body::Copy(bytes))
            }
            Payload::Borrowed(bytes) => self.offer_large_copy(entry, bytes),
            Payload::Loaned(loan) => self.offer_loan(entry, loan),
        }
    }

    /// Stores a loan. Where its bytes survive the process in their place, the place is stored with it.
    fn offer_loan(&self, entry: CacheEntry, loan: Box<dyn Loan>) -> Offered {
        thread_local! {
            static RANGES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let pinned_bytes = loan.pinned_bytes();
        RANGES.with_borrow_mut(|ranges| {
            let kept = self
                .source
                .region()
                .and_then(|region| list_ranges(&*loan, region, ranges, self.shape.copy_bytes_max()));
            if kept.is_none() {
                self.source.note_unkept();
                ranges.clear();
            }
            let mut held = Some(HeldLoan::new(loan, pinned_bytes, kept));
            self.enter(entry, &mut Body::Move(&mut held, pinned_bytes, ranges))
        })
    }

    #[cold]
    fn offer_large_copy(&self, entry: CacheEntry, bytes: &[u8]) -> Offered {
        // Copied before the lock is taken: some 100 KiB would keep other topics waiting.
        self.offer_loan(entry, Box::new(Box::<[u8]>::from(bytes)))
    }

    #[inline]
    fn enter(&self, entry: CacheEntry, body: &mut Body<'_>) -> Offered {
        for _ in 0..ATTEMPTS_MAX {
            let mut inner = self.lock();
            if inner.closed {
                return Offered::Closed;
            }
            match inner.cache.offer(entry, body) {
                Ok(()) => {
                    let wake = match inner.waiting {
                        Waiting::No => false,
                        Waiting::ForFirst => inner.cache.has_any(),
                        Waiting::ForPressure => {
                            inner.cache.is_pressing() || self.is_prompt(&mut inner, &entry, body)
                        }
                    };
                    if wake {
                        inner.waiting = Waiting::No;
                    }
                    drop(inner);
                    if wake {
                        self.ready.notify_one();
                    }
                    return Offered::Stored;
                }
                Err(Blocked::Refused) => return Offered::Full,
                Err(blocked) => self.resolve(inner, blocked),
            }
        }
        Offered::Full
    }

    /// Whether to wake the drain for a large message whose only copy is in transport memory that does not survive, until the
    /// drain has written it. Waking costs some ten microseconds, so not more often than every [`PROMPT_INTERVAL`].
    #[inline]
    fn is_prompt(&self, inner: &mut Inner, entry: &CacheEntry, body: &Body<'_>) -> bool {
        let is_unkept = matches!(body, Body::Move(_, _, []));
        if !is_unkept || self.source.region().is_none() {
            return false;
        }
        // Either way: the time of day may have been set.
        let [since, until] = [(entry.log_time, inner.prompted), (inner.prompted, entry.log_time)]
            .map(|(later, earlier)| later.saturating_since(earlier));
        let is_due = since.max(until) >= PROMPT_INTERVAL;
        if is_due {
            inner.prompted = entry.log_time;
        }
        is_due
    }

    /// Does, outside the lock, the work that a message has to wait for before it can enter.
    #[cold]
    fn resolve(&self, inner: MutexGuard<'_, Inner>, blocked: Blocked) {
        drop(inner);
        match blocked {
            Blocked::Refused => {}
            Blocked::NeedsSegment => {
                let segment = Segment::new(self.shape, &self.source);
                self.lock().cache.add_segment(segment);
            }
            Blocked::Surplus(segment) => drop(segment),
            Blocked::Evicted(segment) => self.evict_segment(segment),
        }
    }

    /// Counts all messages of a segment as evicted and returns it.
    fn evict_segment(&self, segment: Segment) {
        let mut place = Place::default();
        while let Some(stored) = segment.message(place) {
            (self.count_evicted)(&stored);
            place = stored.next;
        }
        self.release(segment);
    }

    /// Takes the oldest messages, or waits for them: for `gather` while a segment fills and for a while after the last message, then
    /// for `idle_max`.
    ///
    /// Waking a thread costs the receiving thread some ten microseconds, so it is done only for the first message
    /// after a rest and when an eighth of the cache is in use; in between, the drain polls every `gather`.
    pub fn wait(&self, gather: Duration, idle_max: Duration) -> Waited {
        let mut inner = self.lock();
        let busy = |inner: &Inner| inner.cache.has_full() || inner.closed || inner.woken;
        if !busy(&inner) && !inner.cache.has_any() && inner.quiet_rounds >= LINGER_ROUNDS {
            inner = self.sleep(inner, Waiting::ForFirst, idle_max);
        }
        if !busy(&inner) && (inner.cache.has_any() || inner.quiet_rounds < LINGER_ROUNDS) {
            inner = self.sleep(inner, Waiting::ForPressure, gather);
        }
        inner.woken = false;
        inner.quiet_rounds = if inner.cache.has_any() {
            0
        } else {
            inner.quiet_rounds.saturating_add(1)
        };
        let (closed, taken) = (inner.closed, self.take_partial(inner));
        match taken {
            Some(segment) => Waited::Segment(segment),
            None if closed => Waited::Finished,
            None => Waited::Idle,
        }
    }

    fn sleep<'a>(
        &self,
        mut inner: MutexGuard<'a, Inner>,
        waiting: Waiting,
        at_most: Duration,
    ) -> MutexGuard<'a, Inner> {
        inner.waiting = waiting;
        let (mut inner, _) = self
            .ready
            .wait_timeout_while(inner, at_most, |inner| inner.waiting != Waiting::No)
            .unwrap_or_else(PoisonError::into_inner);
        inner.waiting = Waiting::No;
        inner
    }

    /// Takes the oldest messages without waiting; for a caller that drives the drain by steps.
    pub fn try_take(&self) -> Option<Segment> {
        self.take_partial(self.lock())
    }

    fn take_partial<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> Option<Segment> {
        // The second round has the segment that the first one asked for, unless an offer took it.
        for _ in 0..ATTEMPTS_MAX {
            match inner.cache.take(true) {
                Taken::Segment(segment) => {
                    self.make_spare(inner);
                    return Some(segment);
                }
                Taken::Nothing => return None,
                Taken::NeedsSegment => inner = self.hand_in_segment(inner),
            }
        }
        None
    }

    /// Makes a segment while few are ready, outside the lock.
    fn make_spare(&self, mut inner: MutexGuard<'_, Inner>) {
        let reserved = inner.cache.reserve_spare();
        drop(inner);
        if reserved {
            let segment = Segment::touched(self.shape, &self.source);
            self.put_returned(|returned| returned.made.push(segment));
        }
    }

    fn hand_in_segment<'a>(&'a self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        drop(inner);
        let segment = Segment::touched(self.shape, &self.source);
        let mut inner = self.lock();
        inner.cache.add_segment(segment);
        inner
    }

    /// Counts memory that the drain keeps for a message beyond its segment; [`SharedCache::loan_returned`] ends it.
    pub fn hold(&self, topic: TopicId, bytes: usize) {
        self.lock().cache.hold(topic, bytes);
    }

    /// Accounts for a loan that was taken out of a segment and returned to its transport.
    pub fn loan_returned(&self, topic: TopicId, pinned_bytes: usize) {
        self.put_returned(|returned| returned.pinned.push((topic, pinned_bytes)));
    }

    /// Takes a segment back whose messages were written or counted; loans still in it are returned.
    pub fn release(&self, segment: Segment) {
        self.release_after(segment, |_| {});
    }

    /// As [`SharedCache::release`]; `keep` may take the arena that has the messages before they are forgotten.
    pub(crate) fn release_after(&self, mut segment: Segment, keep: impl FnOnce(&mut Segment)) {
        // A receiving thread that evicts does not wait for the drain: it uses separate lists.
        let mut shared = self.sums.try_lock().ok();
        let mut own = Sums::default();
        let Sums { credits, pinned } = shared.as_deref_mut().unwrap_or(&mut own);
        let mut place = Place::default();
        while let Some(Stored {
            entry,
            charge_bytes,
            next,
            ..
        }) = segment.message(place)
        {
            match credits.last_mut() {
                Some((last, sum)) if *last == entry.topic => *sum += charge_bytes,
                _ => credits.push((entry.topic, charge_bytes)),
            }
            if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
                drop(loan);
                pinned.push((entry.topic, pinned_bytes));
            }
            place = next;
        }
        keep(&mut segment);
        segment.clear();
        self.put_returned(|returned| {
            returned.credits.append(credits);
            returned.pinned.append(pinned);
            returned.segments.push(segment);
        });
    }

    /// Snapshot mode: lets everything in the ring be drained.
    pub fn dump(&self) {
        self.lock().cache.dump();
        self.wake();
    }

    /// Makes a waiting drain check for due work.
    pub fn wake(&self) {
        let mut inner = self.lock();
        inner.woken = true;
        inner.waiting = Waiting::No;
        drop(inner);
        self.ready.notify_one();
    }

    /// Frees the segments and buffers that a backlog needed and that are not needed now.
    pub(crate) fn free_idle(&self) {
        let idle = self.lock().cache.take_idle();
        drop(idle);
        survivor::free_idle_buffers();
    }

    /// Refuses messages from now on; its contents can still be taken. Messages of an undumped ring are counted as evicted.
    pub fn close(&self) {
        self.lock().closed = true;
        loop {
            // Bounded by the contents of the ring: no more messages come in.
            let Some(segment) = self.lock().cache.take_undumped_ring() else {
                break;
            };
            self.evict_segment(segment);
        }
        self.wake();
    }

    /// Segments that hold messages to be written, the one being filled included.
    pub(crate) fn queued_segments(&self) -> usize {
        self.lock().cache.queued_segments()
    }

    /// Bytes that its messages hold.
    pub fn held_bytes(&self) -> usize {
        self.lock().cache.held_bytes()
    }

    /// Memory that it takes, used or ready for use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lock().cache.memory_bytes()
    }

    /// How much each of its segments holds.
    pub fn shape(&self) -> SegmentShape {
        self.shape
    }

    /// Where its segments get their memory from.
    pub fn source(&self) -> &ArenaSource {
        &self.source
    }

    /// Sets its limit in bytes.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.lock().cache.set_bytes_max(bytes_max);
    }

    /// Its present limit in bytes.
    pub fn bytes_max(&self) -> usize {
        self.lock().cache.bytes_max()
    }
}
