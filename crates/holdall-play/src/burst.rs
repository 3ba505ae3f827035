//! Bursts of messages to play at once while paused: their lengths, and the askers to answer.

use super::control::{Asker, Reply};
use std::collections::VecDeque;

/// Bursts that may wait for their turn.
const BURSTS_MAX: usize = 1024;

struct Burst {
    /// How many are left; `None` for all.
    left: Option<u64>,
    played: u64,
    asker: Option<Asker>,
}

impl Burst {
    /// Answers with the number of messages played so far.
    fn answer(self) {
        if let Some(asker) = self.asker {
            asker.answer(Reply::Played(self.played));
        }
    }
}

/// The requested bursts in their order.
#[derive(Default)]
pub(super) struct Bursts(VecDeque<Burst>);

impl Bursts {
    /// Adds a burst of `left` messages, of all that remain if `None`; it is answered once it was played.
    pub fn add(&mut self, left: Option<u64>, asker: Option<Asker>) {
        let burst = Burst {
            left,
            played: 0,
            asker,
        };
        if left == Some(0) || self.0.len() >= BURSTS_MAX {
            burst.answer();
        } else {
            self.0.push_back(burst);
        }
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a message of the first burst.
    pub fn played(&mut self) {
        let Some(burst) = self.0.front_mut() else { return };
        burst.played += 1;
        burst.left = burst.left.map(|left| left - 1);
        if burst.left == Some(0) {
            self.0.pop_front().into_iter().for_each(Burst::answer);
        }
    }

    /// Ends all bursts where they are.
    pub fn end(&mut self) {
        self.0.drain(..).for_each(Burst::answer);
    }
}
