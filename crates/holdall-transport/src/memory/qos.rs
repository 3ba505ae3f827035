//! How many messages a publisher of a memory network keeps for late subscriptions.

use super::network::Kept;
use holdall_model::qos::{self, Durability, QosProfile};
use std::collections::VecDeque;

/// Messages for late subscriptions: the last `depth`, or all, of a transient-local publisher.
pub(super) struct History {
    depth_max: usize,
    messages: VecDeque<Kept>,
}

impl History {
    /// The history that a profile requests.
    pub fn of(profile: &QosProfile) -> Self {
        let depth_max = match (profile.durability, profile.history) {
            (Durability::TransientLocal, qos::History::KeepAll) => usize::MAX,
            (Durability::TransientLocal, _) => usize::try_from(profile.depth).unwrap_or(usize::MAX).max(1),
            _ => 0,
        };
        Self {
            depth_max,
            messages: VecDeque::new(),
        }
    }

    /// Adds a message and drops the oldest when full.
    pub fn push(&mut self, message: Kept) {
        if self.depth_max == 0 {
            return;
        }
        if self.messages.len() == self.depth_max {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// The messages for a subscription that requests them.
    pub(crate) fn for_late(&self, request: &QosProfile) -> Vec<Kept> {
        if request.durability == Durability::TransientLocal {
            self.messages.iter().cloned().collect()
        } else {
            Vec::new()
        }
    }
}
