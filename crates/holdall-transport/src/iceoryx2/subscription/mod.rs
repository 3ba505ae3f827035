//! One subscription as the threads share it: its receiver appears and leaves with the service.

mod pace;
mod receiver;
mod thread;

pub(super) use receiver::{Receiver, gid};
pub(super) use thread::{RECEIVE_THREAD, Receiving};

use super::discovery::DiscoveryWake;
use crate::{Sink, Subscription};
use holdall_io::mutex::lock;
use holdall_model::topic::Gid;
use receiver::TURN_MAX;
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// A subscription.
pub(super) struct Slot {
    pub topic: String,
    /// A service of another type is another subscription's.
    pub type_name: String,
    pub sink: Arc<dyn Sink>,
    /// Locked by the receive thread while it takes samples; by other threads only briefly.
    receiver: Mutex<Option<Receiver>>,
    /// Its subscription has been dropped.
    closed: AtomicBool,
    pub matched_publishers: AtomicUsize,
}

impl Slot {
    /// A subscription whose service has not been searched for yet.
    pub fn new(topic: String, type_name: String, sink: Arc<dyn Sink>) -> Self {
        Self {
            topic,
            type_name,
            sink,
            receiver: Mutex::new(None),
            closed: AtomicBool::new(false),
            matched_publishers: AtomicUsize::new(0),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The receiver, while there is a service.
    pub fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        lock(&self.receiver)
    }

    /// Gives it a receiver, unless it has been closed.
    pub fn attach(&self, receiver: Receiver) {
        let mut place = self.receiver();
        if !self.is_closed() {
            *place = Some(receiver);
        }
    }

    /// Removes the receiver; samples that have arrived are offered first.
    pub(crate) fn detach(&self) {
        if let Some(mut receiver) = self.receiver().take() {
            self.drain(&mut receiver);
        }
        self.matched_publishers.store(0, Ordering::Release);
    }

    /// Offers the samples that have arrived; false when more of them remain.
    fn drain(&self, receiver: &mut Receiver) -> bool {
        /// A publisher that never pauses could prolong it forever.
        const TURNS_MAX: usize = 16;
        (0..TURNS_MAX).any(|_| receiver.take(&*self.sink).samples < TURN_MAX)
    }

    /// Ends it: samples that have arrived are offered, and after this has returned the sink is not called any more.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.detach();
    }
}

/// A subscription as the recorder holds it.
pub(super) struct Iceoryx2Subscription {
    pub slot: Arc<Slot>,
    pub discovery: Arc<DiscoveryWake>,
    /// The samples that had arrived when its end was requested are offered.
    pub is_drained: bool,
}

impl Subscription for Iceoryx2Subscription {
    fn matched_publishers(&self) -> usize {
        self.slot.matched_publishers.load(Ordering::Acquire)
    }

    /// A full buffer drops its oldest sample, never the newest: once it was empty, nothing of before is missing at the end.
    fn ask_ends(&mut self) {
        if !self.is_drained {
            let mut receiver = self.slot.receiver();
            self.is_drained = receiver.as_mut().is_none_or(|receiver| self.slot.drain(receiver));
        }
    }

    fn has_answered(&self, _publisher: Gid) -> bool {
        self.is_drained
    }
}

impl Drop for Iceoryx2Subscription {
    fn drop(&mut self) {
        self.slot.close();
        self.discovery.wake();
    }
}
