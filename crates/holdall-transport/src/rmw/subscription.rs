//! Subscriptions, which the receiving thread serves until they are dropped.

use super::receiving::{Receiving, Slot};
use crate::Subscription;
use std::sync::Arc;

/// A subscription of a topic.
pub(super) struct RmwSubscription {
    pub slot: Arc<Slot>,
    pub receiving: Arc<Receiving>,
}

impl Subscription for RmwSubscription {
    fn matched_publishers(&self) -> usize {
        self.slot.subscription.matched()
    }
}

impl Drop for RmwSubscription {
    fn drop(&mut self) {
        self.receiving.remove(&self.slot);
    }
}
