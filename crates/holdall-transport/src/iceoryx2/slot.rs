//! One subscription as the threads share it: the receiver in it comes and goes with the service.

use super::{graph::GraphWake, receiver::Receiver};
use crate::{Sink, Subscription};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// What a subscription is.
pub(super) struct Slot {
    pub topic: String,
    pub sink: Arc<dyn Sink>,
    /// Locked by the receive thread while it takes samples; by others for moments only.
    receiver: Mutex<Option<Receiver>>,
    /// Nobody wants it any more.
    closed: AtomicBool,
    pub matched_publishers: AtomicUsize,
}

impl Slot {
    /// A subscription whose service has not been looked for yet.
    pub fn new(topic: String, sink: Arc<dyn Sink>) -> Self {
        Self {
            topic,
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
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it a receiver, unless it was closed meanwhile.
    pub fn attach(&self, receiver: Receiver) {
        let mut place = self.receiver();
        if !self.is_closed() {
            *place = Some(receiver);
        }
    }

    /// Takes the receiver away; what has arrived is offered before.
    pub fn detach(&self) {
        if let Some(mut receiver) = self.receiver().take() {
            receiver.take(&*self.sink);
        }
        self.matched_publishers.store(0, Ordering::Release);
    }

    /// Ends it: when this has returned the sink is not called any more.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(self.receiver().take());
    }
}

/// A subscription as the recorder holds it.
pub(super) struct Iceoryx2Subscription {
    pub slot: Arc<Slot>,
    pub graph: Arc<GraphWake>,
}

impl Subscription for Iceoryx2Subscription {
    fn matched_publishers(&self) -> usize {
        self.slot.matched_publishers.load(Ordering::Acquire)
    }
}

impl Drop for Iceoryx2Subscription {
    fn drop(&mut self) {
        self.slot.close();
        self.graph.wake();
    }
}
