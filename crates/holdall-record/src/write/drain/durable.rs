//! Work that is due without a message: the bag's own, syncs for the loss window, files that the ring removed.

use super::Drain;
use crate::{Setting, write::durability::Verdict};
use holdall_bag::writer::WriteError;
use holdall_io::wait::Wait;
use holdall_io::{mutex::lock, range_lock::Waiting};
use std::time::Duration;

/// So many complete files that no caller has taken are enough.
const COMPLETE_FILES_MAX: usize = 1024;

impl Drain {
    /// Maintains the parts of the bag other than messages.
    pub(super) fn maintain_bag(&mut self, now: Duration) -> Result<(), WriteError> {
        // A failure may have come after the ring had removed a file.
        self.count_removed();
        if self.failure.is_some() {
            return Ok(());
        }
        self.bag.step()?;
        if self.options.lists_complete_files {
            self.list_complete();
        }
        self.maintain_durability(now)?;
        self.free_places();
        self.count_removed();
        self.write_markers()?;
        if let Some((name, entries)) = self.checkpoints.record(&self.ledger, now) {
            self.bag.write_record(&name, &entries)?;
        }
        self.maintain_space(now)
    }

    /// Lists files that have become complete, as far as there is room; the others follow.
    fn list_complete(&mut self) {
        let mut complete = lock(&self.shared.complete);
        if complete.len() < COMPLETE_FILES_MAX {
            complete.extend(self.bag.take_complete());
        }
    }

    /// Requests syncs in time, and reports durable messages.
    pub(super) fn maintain_durability(&mut self, now: Duration) -> Result<(), WriteError> {
        if self.window.is_in_flight() && self.bag.is_durable()? {
            self.journal.forget_before(self.syncing_journal);
            let verdict = self.window.ended(now, self.syncing.iter().sum());
            self.warn_of(verdict);
            self.held_before = Waiting::total();
            let durability = self.window.status().clone();
            let mut status = lock(&self.shared.status);
            status.durability = durability;
            std::mem::swap(&mut status.durable, &mut self.syncing);
        }
        let verdict = self.window.check(now);
        self.warn_of(verdict);
        if self.window.is_due(now) {
            self.write_packed(Wait::UntilReady);
            self.bag.make_durable()?;
            self.syncing_journal = self.journal.end();
            self.syncing.clear();
            self.syncing
                .extend(lock(&self.ledger).topics.iter().map(|topic| topic.recorded));
            self.window.begun(now);
            // Held messages are in no file yet.
            if let Some(held) = self.waiting.oldest() {
                self.window.received(held);
            }
        }
        Ok(())
    }

    /// Warns once when the loss window cannot be kept; the report and the bag have the details.
    pub(super) fn warn_of(&mut self, verdict: Verdict) {
        if let (Verdict::FirstMiss(miss), Some(window)) = (verdict, self.options.max_loss_window) {
            let held = Waiting::total().saturating_sub(self.held_before);
            tracing::warn!(
                setting = Setting::MaxLossWindow.name(),
                "the loss window of {:.3} s was not kept, a power cut would have taken the last {:.3} s: {}",
                window.as_secs_f64(),
                miss.age.as_secs_f64(),
                miss.why(self.absence.map(|absence| absence.span), held),
            );
        }
        if verdict != Verdict::Kept {
            lock(&self.shared.status).durability = self.window.status().clone();
        }
    }

    /// When something must be done although nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.window.next_begin().filter(|_| self.failure.is_none())
    }

    pub(super) fn count_removed(&mut self) {
        let vanished = self.bag.take_vanished();
        if !vanished.is_empty() {
            self.count_runs();
            self.update_status(|_| {});
        }
        for count in vanished {
            if let Some(topic) = self.topic_of_bag.get(count.topic.0 as usize) {
                lock(&self.ledger).lose_recorded(*topic, count.messages);
            }
        }
        for count in self.bag.take_removed() {
            if let Some(topic) = self.topic_of_bag.get(count.topic.0 as usize) {
                lock(&self.ledger).remove(*topic, count.messages);
            }
        }
    }
}
