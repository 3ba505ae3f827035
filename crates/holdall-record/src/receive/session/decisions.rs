//! Decisions of the graph that are still to be carried out: each queues at most one command, and waits until the drain has room for it.

use super::source::Moment;
use crate::{receive::discovery::GraphDecision, write::drain::COMMANDS_MAX};
use std::collections::VecDeque;

/// A decision of the graph.
pub(super) struct Decided {
    /// The transport that it came from.
    pub number: usize,
    pub decision: GraphDecision,
    pub moment: Moment,
}

/// Decisions from one poll of the graph, in order: the next poll waits until all are carried out.
#[derive(Default)]
pub(super) struct Decisions {
    queue: VecDeque<Decided>,
    /// The log already has a warning that topics wait for the drain.
    is_delay_known: bool,
}

impl Decisions {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds what transport `number` has shown at `moment`.
    pub fn add(&mut self, number: usize, decisions: impl IntoIterator<Item = GraphDecision>, moment: Moment) {
        let decisions = decisions.into_iter().map(|decision| Decided {
            number,
            decision,
            moment,
        });
        self.queue.extend(decisions);
    }

    /// The next one to carry out.
    pub fn take_next(&mut self) -> Option<Decided> {
        self.queue.pop_front()
    }

    /// Whether a topic is going to be subscribed to.
    pub fn has_topic(&self, name: &str) -> bool {
        self.queue.iter().any(|decided| match &decided.decision {
            GraphDecision::Record(plan) => plan.name == name,
            GraphDecision::Publisher(publisher) => publisher.topic == name,
            _ => false,
        })
    }

    /// Warns once that topics wait because the drain has no room.
    pub fn warn_of_delay(&mut self) {
        if !std::mem::replace(&mut self.is_delay_known, true) {
            tracing::warn!(
                "more than {COMMANDS_MAX} topics appeared while the disk was busy; further ones are recorded later"
            );
        }
    }

    /// The recording has ended: warns of topics that still wait.
    pub fn warn_of_remaining(&self) {
        let is_new = |decided: &&Decided| matches!(decided.decision, GraphDecision::Record(_));
        let unheard = self.queue.iter().filter(is_new).count();
        if unheard > 0 {
            tracing::warn!(
                "{unheard} topics were never subscribed to: the disk was busy from their appearance to the end"
            );
        }
    }
}
