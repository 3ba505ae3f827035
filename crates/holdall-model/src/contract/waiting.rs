//! Facts that wait until no earlier ones can come, in the order of their times.

use super::content::Facts;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// A row of those that came in order, and a heap of those that came late.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    in_order: VecDeque<Facts>,
    late: BinaryHeap<Reverse<Facts>>,
    /// Memory that they take, about.
    pub bytes: usize,
}

impl Waiting {
    pub fn push(&mut self, facts: Facts) {
        self.bytes += facts.held_bytes();
        match self.in_order.back() {
            Some(last) if facts < *last => self.late.push(Reverse(facts)),
            _ => self.in_order.push_back(facts),
        }
    }

    /// The first of them.
    pub fn first(&self) -> Option<&Facts> {
        let late = self.late.peek().map(|Reverse(facts)| facts);
        self.in_order.front().into_iter().chain(late).min()
    }

    pub fn pop(&mut self) -> Option<Facts> {
        let is_late = match (self.in_order.front(), self.late.peek()) {
            (Some(first), Some(Reverse(late))) => late < first,
            (first, _) => first.is_none(),
        };
        let facts = match is_late {
            true => self.late.pop().map(|Reverse(facts)| facts),
            false => self.in_order.pop_front(),
        }?;
        self.bytes -= facts.held_bytes();
        Some(facts)
    }
}
