//! Durability while a recording runs: when a sync is requested, what it covers, and what is known once it has ended.

use super::shared::DrainShared;
use crate::{Setting, step_wait::Absence, write::options::DrainOptions};
use holdall_io::range_lock::Waiting;
use holdall_model::loss::{
    DURABILITY_RECORD,
    durability::{Arrivals, LossWindow, Verdict},
    ledger::Ledger,
};
use holdall_storage::writer::MetadataEntries;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long the drain sleeps while nothing comes.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// How long it sleeps while a sync is in flight: the sync's end must be noticed soon.
const SYNC_LOOK: Duration = Duration::from_millis(10);

/// The loss window, and the sync in flight.
pub(super) struct Durable {
    window: LossWindow,
    arrivals: Arrivals,
    /// Messages by topic that the sync in flight covers.
    syncing: Vec<u64>,
    /// The journal's place that the sync in flight covers.
    syncing_journal: u64,
    /// How long writes had waited for other programs in all when the last sync ended.
    held_before: Duration,
    /// A span in which this process did not run, as long as it can explain findings.
    absence: Option<Absence>,
    /// Messages in the cache may be arbitrarily old, and have no guarantee until they are requested.
    snapshot: bool,
    shared: Arc<DrainShared>,
}

impl Durable {
    /// Nothing was received yet.
    pub fn new(options: &DrainOptions, shared: Arc<DrainShared>) -> Self {
        let durable = Self {
            window: LossWindow::new(options.max_loss_window),
            arrivals: Arrivals::default(),
            syncing: Vec::new(),
            syncing_journal: 0,
            held_before: Waiting::total(),
            absence: None,
            snapshot: options.snapshot,
            shared,
        };
        durable.publish();
        durable
    }

    fn publish(&self) {
        let durability = self.window.status().clone();
        self.shared.update_status(|status| status.durability = durability);
    }

    /// The window that was requested.
    pub fn window(&self) -> Option<Duration> {
        self.window.status().window
    }

    /// A segment was taken from the cache; returns when the first of its messages was received, at the earliest.
    pub fn segment_taken(&mut self, now: Duration) -> Duration {
        let oldest = self.arrivals.take().filter(|_| !self.snapshot);
        let received = oldest.unwrap_or(now);
        self.window.received(received);
        received
    }

    /// Messages were written that were received at `received` or later.
    pub fn received(&mut self, received: Duration) {
        self.window.received(received);
    }

    /// Notes how many segments were in the cache at `now`.
    pub fn sample_arrivals(&mut self, now: Duration, queued: u64) {
        self.arrivals.sample(now, queued);
    }

    pub fn is_syncing(&self) -> bool {
        self.window.is_in_flight()
    }

    /// The sync has ended: its messages are durable. Returns the journal's place before which all are.
    pub fn sync_ended(&mut self, now: Duration, encoder: Option<(&str, Duration)>) -> u64 {
        let verdict = self.window.ended(now, self.syncing.iter().sum());
        self.warn_of(verdict, encoder, now);
        self.held_before = Waiting::total();
        let durability = self.window.status().clone();
        let syncing = &mut self.syncing;
        self.shared.update_status(|status| {
            status.durability = durability;
            std::mem::swap(&mut status.durable, syncing);
        });
        self.syncing_journal
    }

    /// Whether a sync must begin. Warns when the loss window cannot be kept; `encoder` is a topic and how long its messages have waited for one.
    pub fn is_due(&mut self, now: Duration, encoder: Option<(&str, Duration)>) -> bool {
        let verdict = self.window.check(now);
        self.warn_of(verdict, encoder, now);
        self.window.is_due(now)
    }

    /// A sync was requested, of what the ledger and the journal have. Messages held back since `held` are in no file yet.
    pub fn sync_begun(&mut self, now: Duration, journal_end: u64, ledger: &Ledger, held: Option<Duration>) {
        self.syncing_journal = journal_end;
        self.syncing.clear();
        self.syncing
            .extend(ledger.topics.iter().map(|topic| topic.recorded));
        self.window.begun(now);
        if let Some(held) = held {
            self.window.received(held);
        }
    }

    /// Warns once when the loss window cannot be kept; the report and the bag have the details.
    fn warn_of(&self, verdict: Verdict, encoder: Option<(&str, Duration)>, now: Duration) {
        if let (Verdict::FirstMiss(miss), Some(window)) = (verdict, self.window.status().window) {
            let held = Waiting::total().saturating_sub(self.held_before);
            // A drain that was at work sees no wait that was too long; the recorder's thread does.
            let absence = self.absence.map(|absence| absence.span);
            let absence = absence.or_else(|| self.shared.absence(now));
            tracing::warn!(
                setting = Setting::MaxLossWindow.name(),
                "the loss window of {:.3} s was not kept, a power cut would have taken the last {:.3} s: {}",
                window.as_secs_f64(),
                miss.age.as_secs_f64(),
                miss.why(absence, held, encoder),
            );
        }
        if verdict != Verdict::Kept {
            self.publish();
        }
    }

    /// How long to wait for messages, at most: until something must be done although nothing arrives. `now` is read when a sync is to begin.
    pub fn idle(&self, has_failed: bool, gather: Duration, now: impl FnOnce() -> Duration) -> Duration {
        let longest = if self.is_syncing() { SYNC_LOOK } else { IDLE_MAX };
        let next = self.window.next_begin().filter(|_| !has_failed);
        // A deadline that has passed is met by the step that follows.
        next.map_or(longest, |next| next.saturating_sub(now()).clamp(gather, longest))
    }

    /// A wait began at `began` and was to end `at_most` later: notes whether this process did not run.
    pub fn waited(&mut self, began: Duration, at_most: Duration, now: Duration) {
        let absence = Absence::of_wait(began, at_most, now);
        self.absence = absence.or(self.absence.filter(|absence| absence.explains(now)));
    }

    /// The record for the bag, if there is a loss window.
    pub fn record(&self) -> Option<(String, MetadataEntries)> {
        let status = self.window.status();
        status
            .window
            .is_some()
            .then(|| (DURABILITY_RECORD.to_owned(), status.entries()))
    }

    /// The bag was closed at `now`, and all that the ledger has recorded is durable.
    pub fn closed(&mut self, now: Duration, ledger: &Ledger) {
        self.window.closed(now, ledger.recorded());
        self.shared.update_status(|status| {
            status.durable = ledger.topics.iter().map(|topic| topic.recorded).collect();
        });
    }

    /// Publishes the state at the end; returns the entries for `metadata.yaml`.
    pub fn end(&self) -> BTreeMap<String, String> {
        self.publish();
        self.window.status().custom_data()
    }
}
