//! Checks of each written message: the limits of the whole recording, the latched messages that files repeat, and after a jump
//! of the clock on which side of it the message is.

use crate::{
    cache::CacheEntry,
    clock_watch::ClockWatch,
    limits::{LimitGuard, ReachedLimit, RecordingLimits},
    write::latched::{InBag, LatchedKeeper},
};
use holdall_bag::writer::BagTopic;
use holdall_io::mutex::lock;
use holdall_model::{loss::ledger::Ledger, message::PayloadRef, time::Timestamp, topic::TopicId};
use std::sync::{Arc, Mutex};

/// Has at least one of these.
#[derive(Default)]
struct Checks {
    /// The recording must not exceed a size or a number of messages.
    limits: Option<LimitGuard>,
    /// Files repeat latched messages.
    latched: Option<Arc<LatchedKeeper>>,
    /// Jumps of the clock before the last message that was written, once there was one.
    jumps: Option<u64>,
}

/// What is checked; most recordings have nothing, and pay nothing.
pub(super) struct Watch {
    checks: Option<Box<Checks>>,
    /// Set when the clock that stamps messages is watched.
    clock: Option<Arc<ClockWatch>>,
}

impl Watch {
    pub fn new(limits: RecordingLimits) -> Self {
        let checks = LimitGuard::watch(limits).map(|limits| {
            Box::new(Checks {
                limits: Some(limits),
                ..Checks::default()
            })
        });
        Self { checks, clock: None }
    }

    pub fn set_latched(&mut self, keeper: Arc<LatchedKeeper>) {
        self.checks.get_or_insert_default().latched = Some(keeper);
    }

    pub fn set_clock(&mut self, clock: Arc<ClockWatch>) {
        self.clock = Some(clock);
    }

    /// Whether anything is checked for each message.
    #[inline]
    pub fn is_needed(&self) -> bool {
        self.checks.is_some()
    }

    pub fn reread_length(&mut self) {
        if let Some(limits) = self.checks.as_mut().and_then(|checks| checks.limits.as_mut()) {
            limits.reread_length();
        }
    }

    /// Checks the clock after messages were taken and before they are written, so that the clock that stamped them is known.
    pub fn check_clock(&mut self) {
        let Some(clock) = &self.clock else { return };
        clock.look();
        if clock.count() > 0 {
            self.checks.get_or_insert_default().jumps.get_or_insert(0);
        }
    }

    /// Whether the clock has jumped back between the last message and this one.
    pub fn jumped_back_before(&mut self, stamp: Timestamp) -> bool {
        let jumps = self.checks.as_mut().and_then(|checks| checks.jumps.as_mut());
        let Some((clock, seen)) = self.clock.as_ref().zip(jumps) else {
            return false;
        };
        let before = clock.jumps_before(stamp);
        if before == *seen {
            return false;
        }
        let is_back = clock.jumped_back_since(before.min(*seen), before.max(*seen));
        *seen = before;
        is_back
    }

    /// The limit that is reached before a message of `payload_bytes`, if one is. `length` is the bag's, in bytes.
    pub fn reached_before(
        &mut self,
        log_time: Timestamp,
        payload_bytes: usize,
        length: impl FnOnce() -> u64,
    ) -> Option<ReachedLimit> {
        let limits = self.checks.as_mut()?.limits.as_mut()?;
        limits.reached_before(log_time, payload_bytes, length)
    }

    /// Takes note of a message that was written; returns the limit that is now reached.
    pub fn written(
        &mut self,
        entry: &CacheEntry,
        payload: PayloadRef<'_>,
        place: &InBag,
        ledger: &Mutex<Ledger>,
    ) -> Option<ReachedLimit> {
        let checks = self.checks.as_mut()?;
        if let Some(keeper) = checks.latched.as_ref().filter(|keeper| keeper.keeps(entry.topic)) {
            let ledger = lock(ledger);
            let publisher = ledger.publisher(entry.topic, entry.publisher);
            let publisher = publisher.and_then(|publisher| publisher.info());
            drop(ledger);
            keeper.keep_written(entry, publisher, payload, place);
        }
        let limits = checks.limits.as_mut()?;
        limits.written(entry.log_time, payload.len())
    }

    /// Takes note of a message that is not written.
    pub fn left_out(&self, entry: &CacheEntry, payload: Option<PayloadRef<'_>>, ledger: &Mutex<Ledger>) {
        if let (Some(keeper), Some(payload)) = (self.keeper(), payload) {
            keeper.keep_dropped(entry, payload, ledger);
        }
    }

    /// A topic of the bag is where messages of a recorded topic's own type go.
    pub fn place(&self, topic: TopicId, place: BagTopic) {
        if let Some(keeper) = self.keeper() {
            keeper.place(topic, place);
        }
    }

    /// Whether files repeat the last messages of a topic.
    pub fn repeats(&self, topic: TopicId) -> bool {
        self.keeper().is_some_and(|keeper| keeper.keeps(topic))
    }

    fn keeper(&self) -> Option<&Arc<LatchedKeeper>> {
        self.checks.as_ref().and_then(|checks| checks.latched.as_ref())
    }
}
