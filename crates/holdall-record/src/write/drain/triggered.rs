//! A recording that waits for events: segments go into the ring, and from there into the bag or out of memory.

use super::{
    delivery::{Delivery, Route},
    shared::DrainShared,
};
use crate::{
    Setting,
    cache::{CacheEntry, Place, Segment, Stored},
    options::TriggerOptions,
    trigger::{Conditions, MessageTime, Ring, RingPayload, TriggerStatus, warn_of_absent_topics},
    write::{checkpoint::Checkpoints, waiting::HeldPayload},
};
use holdall_model::{
    marker::Marker,
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
    trigger::{Fate, Wanted},
};
use std::{sync::Arc, time::Duration};

/// Payload bytes that leave the ring in one step, so that the cache is emptied in time.
const STEP_BYTES_MAX: usize = 4 << 20;

/// Messages that leave the ring in one step.
const STEP_MESSAGES_MAX: usize = 10_000;

/// How often the state of the ring is reported.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// An event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedEvent {
    /// When.
    pub time: Timestamp,
    /// Its name.
    pub name: String,
}

/// Keeps messages until an event shows that they are wanted.
pub(super) struct Triggered {
    time: MessageTime,
    ring: Ring,
    conditions: Conditions,
    wanted: Wanted,
    status: TriggerStatus,
    shared: Arc<DrainShared>,
    /// Of events that were seen, for the bag.
    markers: Vec<Marker>,
    /// Messages that an event could have needed were evicted for lack of memory, and that was logged.
    is_short_known: bool,
    /// When the last step was, in monotonic time.
    last_step: Duration,
    /// When the status is published next.
    next_status: Duration,
    /// When topics that have not appeared are named in the log, once.
    absent_due: Option<Duration>,
}

impl Triggered {
    /// Nothing has come, and nothing is wanted.
    pub fn new(options: &TriggerOptions, time: MessageTime, shared: Arc<DrainShared>) -> Self {
        let mut triggered = Self {
            time,
            ring: Ring::new(options.ring_bytes_max),
            conditions: Conditions::new(&options.triggers),
            wanted: Wanted::new(options.before, options.after),
            status: TriggerStatus::new(&options.triggers),
            shared,
            markers: Vec::new(),
            is_short_known: false,
            last_step: Duration::ZERO,
            next_status: Duration::ZERO,
            absent_due: None,
        };
        triggered.publish();
        triggered
    }

    /// Whether the ring has messages to write now.
    pub fn has_due_messages(&self) -> bool {
        self.oldest_fate() == Some(Fate::Write)
    }

    /// The fate of the oldest message.
    fn oldest_fate(&self) -> Option<Fate> {
        self.ring.oldest_time().map(|time| self.wanted.fate(time))
    }

    /// Messages of this topic will come.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo, definition: Option<&MessageDefinition>) {
        self.conditions.add_topic(topic, info, &mut self.status);
        if let Some(definition) = definition {
            self.define(topic, definition);
        }
    }

    /// The definition of a topic's own type.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition) {
        self.conditions.define(topic, definition, &mut self.status);
        self.publish();
    }

    /// Takes note of events that were asked for; call [`Self::take_markers`] then.
    pub fn add_requested(&mut self, events: Vec<RequestedEvent>) {
        for event in events {
            self.status.requested += 1;
            let time = self.time.watch.steady_of(event.time);
            self.begin_event(time, &event.name, Some(event.time));
        }
    }

    /// Begins the step at `now` (monotonic time). Takes the messages of a segment into the ring, past the triggers; without one, nothing waits:
    /// a message that has not arrived by now was not sent.
    pub fn begin_step(&mut self, segment: Option<&mut Segment>, delivery: &mut Delivery, now: Duration) {
        self.last_step = now;
        match segment {
            Some(segment) => self.absorb(segment, delivery),
            None => match (self.time.now)() {
                Some(time) => self.wanted.set_now(time),
                None => self.conditions.reset(),
            },
        }
        if let Some(time) = self.wanted.now() {
            self.conditions.check(time);
        }
        self.begin_fired();
    }

    fn absorb(&mut self, segment: &mut Segment, delivery: &mut Delivery) {
        let mut place = Place::default();
        while let Some(Stored {
            entry, payload, next, ..
        }) = segment.message(place)
        {
            let time = self.time.watch.steady_of(entry.log_time);
            self.wanted.set_now(time);
            if self.conditions.watches(entry.topic) && delivery.writer().is_of_own_type(&entry) {
                self.conditions.message(entry.topic, time, payload);
                // Before it goes into the ring, which may have to make room for it.
                self.begin_fired();
            }
            if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
                delivery.cache().loan_returned(entry.topic, pinned_bytes);
                self.keep(entry, time, RingPayload::Loan(loan, pinned_bytes), delivery);
            } else if let Some(PayloadRef::Bytes(bytes)) = segment.message(place).map(|stored| stored.payload)
            {
                self.keep(entry, time, RingPayload::Copy(bytes), delivery);
            }
            place = next;
        }
        delivery.writer().count_runs();
    }

    /// Puts a message into the ring, and takes as many out as have to make room.
    fn keep(
        &mut self,
        entry: CacheEntry,
        time: Timestamp,
        mut payload: RingPayload<'_>,
        delivery: &mut Delivery,
    ) {
        while let Err(back) = self.ring.push(entry, time, payload) {
            let fate = self.oldest_fate();
            if fate == Some(Fate::Open) {
                self.warn_of_short_ring(time);
            }
            self.take_oldest(fate == Some(Fate::Write), delivery);
            payload = back;
        }
    }

    /// Begins the events that the triggers have seen.
    fn begin_fired(&mut self) {
        for fired in self.conditions.take_fired() {
            self.status.triggers[fired.trigger].events += 1;
            let text = self.conditions.text(fired.trigger).to_owned();
            let stamp = fired.is_marked.then(|| self.time.watch.stamp_of(fired.time));
            self.begin_event(fired.time, &text, stamp);
        }
    }

    /// Begins an event, with a marker if there is a `stamp` for it on the clock of the messages.
    fn begin_event(&mut self, time: Timestamp, reason: &str, stamp: Option<Timestamp>) {
        self.wanted.add_around(time);
        let was_recording = std::mem::replace(&mut self.status.is_recording, true);
        if let Some(stamp) = stamp {
            let what = if was_recording {
                "recording longer"
            } else {
                "recording around it"
            };
            tracing::info!("event {reason:?}: {what}");
            self.mark_event(stamp, reason);
        }
        // Seen by others at once.
        self.next_status = Duration::ZERO;
    }

    fn mark_event(&mut self, time: Timestamp, reason: &str) {
        if let Ok(marker) = Marker::shortened(time, reason)
            && self.shared.reserve_marker()
        {
            self.markers.push(marker);
        }
    }

    /// The markers of events since the last call.
    pub fn take_markers(&mut self) -> Vec<Marker> {
        std::mem::take(&mut self.markers)
    }

    /// Takes messages out of the ring whose fate is known, some at a time. Returns the log time of the last one that was written.
    pub fn release_decided(&mut self, delivery: &mut Delivery) -> Option<Timestamp> {
        delivery.writer().begin_messages();
        let (mut bytes, mut written) = (0, None);
        for _ in 0..STEP_MESSAGES_MAX {
            let Some(entry) = self.ring.oldest().filter(|_| bytes < STEP_BYTES_MAX) else {
                break;
            };
            match self.oldest_fate() {
                None | Some(Fate::Open) => break,
                Some(Fate::LeaveOut) => self.take_oldest(false, delivery),
                Some(Fate::Write) => {
                    bytes += self.ring.oldest_payload().map_or(0, |payload| payload.len());
                    written = Some(entry.log_time);
                    self.take_oldest(true, delivery);
                }
            }
        }
        delivery.writer().count_runs();
        written
    }

    /// Takes the oldest message out of the ring: into the bag, or left out on request.
    fn take_oldest(&mut self, is_wanted: bool, delivery: &mut Delivery) {
        let Some(entry) = self.ring.oldest() else {
            return;
        };
        if !is_wanted {
            delivery.writer().leave_out(&entry, self.ring.oldest_payload());
        } else if delivery.route(entry.topic) != Route::Write {
            if let Some(payload) = self.take_payload() {
                // The cache counts its memory from now on.
                delivery.cache().hold(entry.topic, payload.held_bytes());
                delivery.take(entry, payload, self.last_step);
            }
        } else if let Some(payload) = self.ring.oldest_payload() {
            delivery.write(entry, payload);
        }
        self.ring.pop();
    }

    /// Takes the oldest message's payload out of the ring.
    fn take_payload(&mut self) -> Option<HeldPayload> {
        if let Some((loan, pinned_bytes)) = self.ring.take_oldest_loan() {
            return Some(HeldPayload::Loan(loan, pinned_bytes));
        }
        let PayloadRef::Bytes(bytes) = self.ring.oldest_payload()? else {
            return None;
        };
        Some(HeldPayload::Bytes(bytes.into()))
    }

    /// Whether the file of the last events is complete now. `is_caught_up`: nothing waits to come into the ring.
    pub fn ends_events(&mut self, is_caught_up: bool) -> bool {
        let is_over = self.status.is_recording
            && self
                .wanted
                .is_over(self.ring.oldest_time(), self.ring.newest(), is_caught_up);
        if is_over {
            self.status.is_recording = false;
            self.next_status = Duration::ZERO;
            tracing::info!("the event is over; waiting for the next");
        }
        is_over
    }

    /// Ends the step.
    pub fn end_step(&mut self) {
        let now = self.last_step;
        self.wanted.forget_old(self.ring.oldest_time());
        warn_of_absent_topics(&self.status, &mut self.absent_due, now);
        if now >= self.next_status {
            self.next_status = now + STATUS_INTERVAL;
            self.publish();
        }
    }

    /// Decides about all messages of the ring, when no more come.
    pub fn finish(&mut self, delivery: &mut Delivery, checkpoints: &Checkpoints) {
        while let Some(entry) = self.ring.oldest() {
            let is_wanted = self.oldest_fate() == Some(Fate::Write);
            if is_wanted {
                checkpoints.written_until(entry.log_time);
            }
            self.take_oldest(is_wanted, delivery);
        }
        delivery.writer().count_runs();
        self.publish();
    }

    fn publish(&mut self) {
        self.status.waiting = self.ring.len();
        self.status.waiting_bytes = self.ring.bytes() as u64;
        let triggered = Some(self.status.clone());
        self.shared.update_status(|status| status.triggered = triggered);
    }

    /// The oldest message must go although it could be wanted.
    fn warn_of_short_ring(&mut self, now: Timestamp) {
        let Some(oldest) = self.ring.oldest_time() else {
            return;
        };
        let before = self.wanted.before();
        let kept = now.saturating_since(oldest);
        if kept >= before {
            return;
        }
        let shortest = &mut self.status.shortest_kept;
        *shortest = Some(shortest.map_or(kept, |known| known.min(kept)));
        if !std::mem::replace(&mut self.is_short_known, true) {
            tracing::warn!(
                setting = Setting::CacheBytesMax.name(),
                "the memory for messages before an event is full: it holds the last {:.1} s of {:.1} s",
                kept.as_secs_f64(),
                before.as_secs_f64(),
            );
        }
    }
}
