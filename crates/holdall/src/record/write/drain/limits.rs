//! What depends on each message that is written: the limits of the whole recording, and the latched messages that files repeat.

use super::Drain;
use crate::{
    record::{
        cache::CacheEntry,
        limits::{LimitGuard, ReachedLimit, RecordingLimits},
        write::latched::LatchedKeeper,
    },
    writer::BagTopic,
};
use holdall_io::mutex::lock;
use holdall_model::{message::PayloadRef, time::Timestamp, topic::TopicId};
use std::sync::Arc;

/// One of the two is there; most recordings have neither, and pay for neither.
pub(super) struct Watch {
    /// The recording must not exceed a size or a number of messages.
    limits: Option<LimitGuard>,
    /// Files repeat latched messages.
    latched: Option<Arc<LatchedKeeper>>,
}

impl Watch {
    /// `None` where no message has to be watched.
    pub(super) fn of(limits: RecordingLimits, latched: Option<Arc<LatchedKeeper>>) -> Option<Box<Self>> {
        let limits = LimitGuard::watch(limits);
        let is_needed = limits.is_some() || latched.is_some();
        is_needed.then(|| Box::new(Self { limits, latched }))
    }

    pub(super) fn reread_length(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.reread_length();
        }
    }
}

impl Drain {
    /// Repeats what `keeper` has at the beginning of each file. Called before the first message.
    pub(crate) fn with_latched(mut self, keeper: Option<Arc<LatchedKeeper>>) -> Self {
        if let Some(keeper) = keeper {
            self.watch = Watch::of(self.options.limits, Some(Arc::clone(&keeper)));
            self.bag
                .set_latched(Box::new(move |begin| keeper.messages(begin)));
        }
        self
    }

    /// Whether the recording is over before this message.
    #[cold]
    pub(super) fn exceeds_limit(&mut self, log_time: Timestamp, payload_bytes: usize) -> bool {
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
