//! A recording that waits for events: segments go into the ring, and from there into the bag or out of memory.

use super::{Drain, HeldPayload};
use crate::{
    Setting,
    cache::{CacheEntry, Place, Segment, Stored},
    options::TriggerOptions,
    trigger::{Fate, MessageTime, RingPayload, Triggered},
};
use holdall_io::mutex::lock;
use holdall_model::{
    loss::{LossStage, ledger::Interval},
    marker::{MARKER_NAME_BYTES_MAX, Marker},
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::time::Duration;

/// Payload bytes that leave the ring in one step, so that the cache is emptied in time.
const STEP_BYTES_MAX: usize = 4 << 20;

/// Messages that leave the ring in one step.
const STEP_MESSAGES_MAX: usize = 10_000;

/// Topics that have not appeared by then are named in the log.
const ABSENT_AFTER: Duration = Duration::from_secs(5);

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

impl Drain {
    /// Keeps messages until an event shows that they are wanted.
    pub(crate) fn with_triggers(mut self, options: Option<&TriggerOptions>, time: MessageTime) -> Self {
        self.triggered = options.map(|options| Box::new(Triggered::new(options, time)));
        self.publish_triggered();
        self
    }

    /// Whether the ring has messages to write now.
    pub(super) fn has_due_messages(&self) -> bool {
        let triggered = self.triggered.as_ref();
        triggered.is_some_and(|triggered| triggered.oldest_fate() == Some(Fate::Write))
    }

    pub(super) fn watch_topic(
        &mut self,
        topic: TopicId,
        info: &TopicInfo,
        definition: Option<&MessageDefinition>,
    ) {
        if let Some(triggered) = &mut self.triggered {
            triggered.conditions.add_topic(topic, info, &mut triggered.status);
        }
        if let Some(definition) = definition {
            self.watch_type(topic, definition);
        }
    }

    pub(super) fn watch_type(&mut self, topic: TopicId, definition: &MessageDefinition) {
        if let Some(triggered) = &mut self.triggered {
            triggered
                .conditions
                .define(topic, definition, &mut triggered.status);
            self.publish_triggered();
        }
    }

    /// Takes note of events that were asked for.
    pub(super) fn add_requested(&mut self, events: Vec<RequestedEvent>) {
        let Some(mut triggered) = self.triggered.take() else {
            return;
        };
        for event in events {
            triggered.status.requested += 1;
            let time = triggered.time.watch.steady_of(event.time);
            self.begin_event(&mut triggered, time, (&event.name, Some(event.time)));
        }
        self.triggered = Some(triggered);
    }

    /// Does the work due at `now` (monotonic time), beginning with a segment that comes into the ring.
    pub(super) fn step_triggered(&mut self, segment: Option<Segment>, now: Duration) {
        let Some(mut triggered) = self.triggered.take() else {
            return;
        };
        let is_caught_up = segment.is_none();
        match segment {
            Some(segment) => self.absorb(&mut triggered, segment),
            // Nothing waits: a message that has not arrived by now was not sent.
            None => match (triggered.time.now)() {
                Some(time) => triggered.set_now(time),
                None => triggered.conditions.reset(),
            },
        }
        if let Some(time) = triggered.now() {
            triggered.conditions.check(time);
        }
        self.begin_fired(&mut triggered);
        self.release_decided(&mut triggered, now);
        if triggered.is_over(is_caught_up) {
            self.end_events(&mut triggered);
        }
        triggered.forget_old();
        warn_of_absent_topics(&mut triggered, now);
        let is_status_due = now >= triggered.next_status;
        if is_status_due {
            triggered.next_status = now + STATUS_INTERVAL;
        }
        self.triggered = Some(triggered);
        if is_status_due {
            self.publish_triggered();
        }
    }

    /// Takes a segment's messages into the ring, past the triggers.
    fn absorb(&mut self, triggered: &mut Triggered, mut segment: Segment) {
        let mut place = Place::default();
        while let Some(Stored {
            entry, payload, next, ..
        }) = segment.message(place)
        {
            let time = triggered.time.watch.steady_of(entry.log_time);
            triggered.set_now(time);
            if triggered.conditions.watches(entry.topic) && self.is_of_own_type(&entry) {
                triggered.conditions.message(entry.topic, time, payload);
                // Before it goes into the ring, which may have to make room for it.
                self.begin_fired(triggered);
            }
            if let Some((loan, pinned_bytes)) = segment.take_loan(place) {
                self.cache.loan_returned(entry.topic, pinned_bytes);
                self.keep(triggered, (entry, time), RingPayload::Loan(loan, pinned_bytes));
            } else if let Some(PayloadRef::Bytes(bytes)) = segment.message(place).map(|stored| stored.payload)
            {
                self.keep(triggered, (entry, time), RingPayload::Copy(bytes));
            }
            place = next;
        }
        self.count_runs();
        self.release_segment(segment, false);
    }

    /// Whether a message has the type that its topic's triggers are compiled for.
    fn is_of_own_type(&mut self, entry: &CacheEntry) -> bool {
        let own = self.topics.get(entry.topic.0 as usize).copied().flatten();
        own.is_none() || self.bag_topic(entry) == own
    }

    /// Puts a message into the ring, and takes as many out as have to make room.
    fn keep(
        &mut self,
        triggered: &mut Triggered,
        message: (CacheEntry, Timestamp),
        mut payload: RingPayload<'_>,
    ) {
        while let Err(back) = triggered.ring.push(message, payload) {
            let fate = triggered.oldest_fate();
            if fate == Some(Fate::Open) {
                warn_of_short_ring(triggered, message.1);
            }
            self.take_oldest(triggered, fate == Some(Fate::Write));
            payload = back;
        }
    }

    /// Begins the events that the triggers have seen.
    fn begin_fired(&mut self, triggered: &mut Triggered) {
        for fired in triggered.conditions.take_fired() {
            triggered.status.triggers[fired.trigger].events += 1;
            let text = triggered.conditions.text(fired.trigger).to_owned();
            let stamp = fired.is_marked.then(|| triggered.time.watch.stamp_of(fired.time));
            self.begin_event(triggered, fired.time, (&text, stamp));
        }
    }

    /// Begins an event, with a marker where there is a time for it on the clock of the messages.
    fn begin_event(
        &mut self,
        triggered: &mut Triggered,
        time: Timestamp,
        (reason, stamp): (&str, Option<Timestamp>),
    ) {
        let is_first = triggered.event(time);
        if let Some(stamp) = stamp {
            let what = if is_first {
                "recording around it"
            } else {
                "recording longer"
            };
            tracing::info!("event {reason:?}: {what}");
            self.mark_event(stamp, reason);
        }
        // Seen by others at once.
        triggered.next_status = Duration::ZERO;
    }

    fn mark_event(&mut self, time: Timestamp, reason: &str) {
        let mut end = reason.len().min(MARKER_NAME_BYTES_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let marker = Marker::new(time, &reason[..end]);
        if let Ok(marker) = marker
            && self.shared.reserve_marker()
        {
            self.unwritten_markers.push(marker);
        }
    }

    /// Takes messages out of the ring whose fate is known, some at a time.
    fn release_decided(&mut self, triggered: &mut Triggered, now: Duration) {
        self.forget_vacated();
        if let Some(watch) = &mut self.watch {
            watch.reread_length();
        }
        let (mut bytes, mut written) = (0, None);
        for _ in 0..STEP_MESSAGES_MAX {
            let Some(entry) = triggered.ring.oldest().filter(|_| bytes < STEP_BYTES_MAX) else {
                break;
            };
            match triggered.oldest_fate() {
                None | Some(Fate::Open) => break,
                Some(Fate::LeaveOut) => self.take_oldest(triggered, false),
                Some(Fate::Write) => {
                    bytes += triggered.ring.oldest_payload().map_or(0, |payload| payload.len());
                    written = Some(entry.log_time);
                    self.take_oldest(triggered, true);
                }
            }
        }
        if let Some(last) = written {
            self.window.received(now);
            self.checkpoints.written_until(last);
        }
        self.count_runs();
    }

    /// Takes the oldest message out of the ring: into the bag, or left out on request.
    fn take_oldest(&mut self, triggered: &mut Triggered, is_wanted: bool) {
        let Some(entry) = triggered.ring.oldest() else {
            return;
        };
        if !is_wanted {
            let interval = Interval::of_message(LossStage::Policy, entry.sequence, entry.log_time);
            lock(&self.ledger).miss(entry.topic, entry.publisher, interval);
            self.watch_dropped(&entry, triggered.ring.oldest_payload());
        } else if self.is_waiting(entry.topic) {
            if let Some(payload) = self.take_payload(triggered, entry.topic) {
                let received = self.last_step;
                self.hold(entry, payload, received);
            }
        } else if self.packing.is_some() {
            if let Some(payload) = self.take_payload(triggered, entry.topic) {
                self.pack(entry, payload);
            }
        } else if let Some(payload) = triggered.ring.oldest_payload() {
            self.write(entry, payload, payload.len());
        }
        triggered.ring.pop();
    }

    /// Takes the oldest message's payload out of the ring; the cache counts its memory from now on.
    fn take_payload(&self, triggered: &mut Triggered, topic: TopicId) -> Option<HeldPayload> {
        let payload = match triggered.ring.take_oldest_loan() {
            Some((loan, pinned_bytes)) => HeldPayload::Loan(loan, pinned_bytes),
            None => {
                let PayloadRef::Bytes(bytes) = triggered.ring.oldest_payload()? else {
                    return None;
                };
                HeldPayload::Bytes(bytes.into())
            }
        };
        self.cache.hold(topic, payload.held_bytes());
        Some(payload)
    }

    /// The file of the last events is complete; the next events have another.
    fn end_events(&mut self, triggered: &mut Triggered) {
        triggered.status.is_recording = false;
        triggered.next_status = Duration::ZERO;
        tracing::info!("the event is over; waiting for the next");
        if self.failure.is_none()
            && let Err(error) = self.write_markers()
        {
            self.fail(error);
        }
        self.split();
    }

    /// Decides about all messages of the ring, when no more come.
    pub(super) fn finish_triggered(&mut self) {
        let Some(mut triggered) = self.triggered.take() else {
            return;
        };
        while let Some(entry) = triggered.ring.oldest() {
            let is_wanted = triggered.oldest_fate() == Some(Fate::Write);
            if is_wanted {
                self.checkpoints.written_until(entry.log_time);
            }
            self.take_oldest(&mut triggered, is_wanted);
        }
        self.count_runs();
        self.triggered = Some(triggered);
        self.publish_triggered();
    }

    fn publish_triggered(&mut self) {
        if let Some(triggered) = &mut self.triggered {
            triggered.status.waiting = triggered.ring.len();
            triggered.status.waiting_bytes = triggered.ring.bytes() as u64;
            lock(&self.shared.status).triggered = Some(triggered.status.clone());
        }
    }
}

/// A name that was mistyped never appears.
fn warn_of_absent_topics(triggered: &mut Triggered, now: Duration) {
    let due = *triggered
        .absent_due
        .get_or_insert(now.saturating_add(ABSENT_AFTER));
    if now < due {
        return;
    }
    triggered.absent_due = Some(Duration::MAX);
    for trigger in triggered
        .status
        .triggers
        .iter()
        .filter(|trigger| !trigger.is_topic_known)
    {
        tracing::warn!(
            "trigger {}: its topic has not appeared among the recorded ones so far",
            trigger.text
        );
    }
}

/// The oldest message must go although it could be wanted.
fn warn_of_short_ring(triggered: &mut Triggered, now: Timestamp) {
    let Some(oldest) = triggered.ring.oldest_time() else {
        return;
    };
    let kept = now.saturating_since(oldest);
    if kept >= triggered.before() {
        return;
    }
    let shortest = &mut triggered.status.shortest_kept;
    *shortest = Some(shortest.map_or(kept, |known| known.min(kept)));
    if !std::mem::replace(&mut triggered.is_short_known, true) {
        tracing::warn!(
            setting = Setting::CacheBytesMax.name(),
            "the memory for messages before an event is full: it holds the last {:.1} s of {:.1} s",
            kept.as_secs_f64(),
            triggered.before().as_secs_f64(),
        );
    }
}
