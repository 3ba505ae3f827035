//! Checks of each written message: the limits of the whole recording, the latched messages that files repeat, and after a jump
//! of the clock on which side of it the message is.

use super::Drain;
use crate::{
    cache::CacheEntry,
    clock_watch::ClockWatch,
    limits::{LimitGuard, ReachedLimit, RecordingLimits},
    write::latched::LatchedKeeper,
};
use holdall_bag::writer::BagTopic;
use holdall_io::mutex::lock;
use holdall_model::{message::PayloadRef, time::Timestamp, topic::TopicId};
use std::sync::Arc;

/// Has at least one of these; most recordings have none, and pay nothing.
#[derive(Default)]
pub(super) struct Watch {
    /// The recording must not exceed a size or a number of messages.
    limits: Option<LimitGuard>,
    /// Files repeat latched messages.
    latched: Option<Arc<LatchedKeeper>>,
    /// Jumps of the clock before the last message that was written, once there was one.
    jumps: Option<u64>,
}

impl Watch {
    /// `None` if no message has to be watched.
    pub(super) fn of(limits: RecordingLimits, latched: Option<Arc<LatchedKeeper>>) -> Option<Box<Self>> {
        let limits = LimitGuard::watch(limits);
        let is_needed = limits.is_some() || latched.is_some();
        is_needed.then(|| {
            Box::new(Self {
                limits,
                latched,
                jumps: None,
            })
        })
    }

    pub(super) fn reread_length(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.reread_length();
        }
    }
}

impl Drain {
    /// Repeats the messages that `keeper` has at the beginning of each file. Called before the first message.
    pub(crate) fn with_latched(mut self, keeper: Option<Arc<LatchedKeeper>>) -> Self {
        if let Some(keeper) = keeper {
            self.watch = Watch::of(self.options.limits, Some(Arc::clone(&keeper)));
            self.bag
                .set_latched(Box::new(move |begin| keeper.messages(begin)));
        }
        self
    }

    /// Has spans measured by a clock that does not jump, and a new file begun where the one that stamps messages jumps back.
    pub(crate) fn with_clock(mut self, time: Arc<ClockWatch>, splits_by_span: bool) -> Self {
        if splits_by_span {
            let of_bag = Arc::clone(&time);
            self.bag
                .measure_spans_by(Box::new(move |stamp| of_bag.steady_of(stamp)));
        }
        self.time = Some(time);
        self
    }

    /// Checks the clock after messages were taken and before they are written, so that the clock that stamped them is known.
    pub(super) fn check_clock(&mut self) {
        let Some(time) = &self.time else { return };
        time.look();
        if time.count() > 0 {
            self.watch.get_or_insert_default().jumps.get_or_insert(0);
        }
    }

    /// Begins a new file where the clock has jumped back before this message: times of one file do not come twice, and files are read
    /// one after the other. So does one of before the jump that was held back until after it.
    fn split_where_time_comes_again(&mut self, stamp: Timestamp) {
        let Some((time, seen)) = self
            .time
            .as_ref()
            .zip(self.watch.as_ref().and_then(|watch| watch.jumps))
        else {
            return;
        };
        let before = time.jumps_before(stamp);
        if before == seen {
            return;
        }
        let is_back = time.jumped_back_since(seen.min(before), seen.max(before));
        if let Some(watch) = &mut self.watch {
            watch.jumps = Some(before);
        }
        if is_back && self.bag.has_messages() {
            match self.bag.split() {
                Ok(()) => self.report_split(),
                Err(error) => self.fail(error),
            }
        }
    }

    /// Does the work due before a message is written; true if the recording is over before it.
    #[cold]
    pub(super) fn must_leave_out(&mut self, log_time: Timestamp, payload_bytes: usize) -> bool {
        self.split_where_time_comes_again(log_time);
        self.exceeds_limit(log_time, payload_bytes)
    }

    /// Whether the recording is over before this message.
    fn exceeds_limit(&mut self, log_time: Timestamp, payload_bytes: usize) -> bool {
        let bag = &self.bag;
        let limits = self.watch.as_mut().and_then(|watch| watch.limits.as_mut());
        let reached =
            limits.and_then(|limits| limits.reached_before(log_time, payload_bytes, || bag.length()));
        reached.inspect(|limit| self.report_limit(*limit)).is_some()
    }

    /// Takes note of a message that was written.
    #[cold]
    pub(super) fn watch_written(&mut self, entry: &CacheEntry, topic: BagTopic, payload: PayloadRef<'_>) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        if let Some(keeper) = watch.latched.as_ref().filter(|keeper| keeper.keeps(entry.topic)) {
            let ledger = lock(&self.ledger);
            let publisher = ledger.publisher(entry.topic, entry.publisher);
            let publisher = publisher.and_then(|publisher| publisher.info());
            drop(ledger);
            let file = self.bag.file_number();
            keeper.keep_written(entry, topic, publisher, (payload, self.packing.is_some(), file));
        }
        let limits = watch.limits.as_mut();
        if let Some(limit) = limits.and_then(|limits| limits.written(entry.log_time, payload.len())) {
            self.report_limit(limit);
        }
    }

    /// Takes note of a message that is not written.
    pub(super) fn watch_dropped(&self, entry: &CacheEntry, payload: Option<PayloadRef<'_>>) {
        let keeper = self.watch.as_ref().and_then(|watch| watch.latched.as_ref());
        if let (Some(keeper), Some(payload)) = (keeper, payload) {
            keeper.keep_dropped(entry, payload, &self.ledger);
        }
    }

    /// A topic of the bag is where messages of a recorded topic's own type go.
    pub(super) fn watch_place(&self, topic: TopicId, place: BagTopic) {
        if let Some(keeper) = self.watch.as_ref().and_then(|watch| watch.latched.as_ref()) {
            keeper.place(topic, place);
        }
    }

    fn report_limit(&self, limit: ReachedLimit) {
        self.shared.reach(limit);
    }
}
