//! Events that promote parts of a ring: its files around an event are kept from the moment at which that is seen until they are copied.

use super::{shared::DrainShared, triggered::RequestedEvent};
use crate::{
    options::Trigger,
    trigger::{Conditions, MessageTime, TriggerCount, TriggerStatus, warn_of_absent_topics},
};
use holdall_io::hold::Hold;
use holdall_model::{
    marker::Marker,
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
    trigger::Window,
};
use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

/// What broken rules are called among the events.
const CONTRACT: &str = "contract";

/// Events of which a ring's part is copied into a bag, and how much of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromoteOptions {
    /// Any of these is an event.
    pub triggers: Vec<Trigger>,
    /// The alarm of a broken rule of the contract is one, too.
    pub on_contract: bool,
    /// Span copied before an event.
    pub before: Duration,
    /// Span copied after it.
    pub after: Duration,
}

/// A part of a ring that events want in a bag. The ring keeps its files while this lives.
#[derive(Debug)]
pub struct RingWindow {
    /// Its span, in log time.
    pub span: Window,
    /// The trigger, or the broken rule, of its first event.
    pub reason: String,
    /// What keeps the files; `None` where the file system has no locks or no room.
    pub hold: Option<Hold>,
}

/// The events of a recording that promote parts of its ring.
pub(super) struct Promoting {
    options: PromoteOptions,
    /// The bag's directory.
    ring: PathBuf,
    time: MessageTime,
    conditions: Conditions,
    /// Topics of which it gets messages before they are written.
    received: BTreeSet<TopicId>,
    status: TriggerStatus,
    shared: Arc<DrainShared>,
    /// Until it is over.
    open: Option<RingWindow>,
    /// When topics that have not appeared are named in the log, once.
    absent_due: Option<Duration>,
}

impl Promoting {
    /// No event has come.
    pub fn new(options: PromoteOptions, ring: PathBuf, time: MessageTime, shared: Arc<DrainShared>) -> Self {
        let mut status = TriggerStatus::new(&options.triggers);
        status.promotes = true;
        let of_contract = options.on_contract.then(|| TriggerCount {
            text: CONTRACT.to_owned(),
            is_topic_known: true,
            ..TriggerCount::default()
        });
        status.triggers.extend(of_contract);
        let promoting = Self {
            conditions: Conditions::new(&options.triggers),
            options,
            ring,
            time,
            received: BTreeSet::new(),
            status,
            shared,
            open: None,
            absent_due: None,
        };
        promoting.publish();
        promoting
    }

    /// A topic is recorded from now on. `is_received`: [`Self::received`] gets its messages, [`Self::message`] ignores what is written of it.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo, is_received: bool) {
        if self.received.contains(&topic) {
            return;
        }
        self.conditions.add_topic(topic, info, &mut self.status);
        if is_received {
            self.received.insert(topic);
        }
        self.publish();
    }

    /// The definition of a topic's own type.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition) {
        self.conditions.define(topic, definition, &mut self.status);
        self.publish();
    }

    /// Takes note of a message of a topic.
    #[inline]
    pub fn message(&mut self, topic: TopicId, time: Timestamp, payload: PayloadRef<'_>) {
        if self.conditions.watches(topic) && !self.received.contains(&topic) {
            self.received(topic, time, payload);
        }
    }

    /// As [`Self::message`], of a topic whose messages get another form before they are written.
    pub fn received(&mut self, topic: TopicId, time: Timestamp, payload: PayloadRef<'_>) {
        if self.conditions.watches(topic) {
            let steady = self.time.watch.steady_of(time);
            self.conditions.message(topic, steady, payload);
            self.begin_fired();
        }
    }

    /// Takes note of rules of the contract that are broken. What is before all that is copied of an event counts from now on: a rule may have been broken
    /// for hours when that is seen.
    pub fn add_requested(&mut self, events: Vec<RequestedEvent>) {
        let present = self.time.watch.stamp_of(self.time.watch.steady_now());
        let earliest = Window::around(present, self.options.before, Duration::ZERO).start;
        for event in events {
            let time = if event.time < earliest {
                present
            } else {
                event.time
            };
            // The last one is the contract.
            if let Some(count) = self.status.triggers.last_mut() {
                count.events += 1;
            }
            self.begin_event(time, event.name);
        }
    }

    /// Takes note of the time: that of the last message that was taken, `last`, or the present if nothing waits. `now` is monotonic.
    pub fn step(&mut self, last: Option<Timestamp>, now: Duration) {
        let present = match last {
            Some(last) => Some(self.time.watch.steady_of(last)),
            None => (self.time.now)(),
        };
        match present {
            Some(time) => {
                self.conditions.check(time);
                self.begin_fired();
            }
            None => self.conditions.reset(),
        }
        let present = present.unwrap_or_else(|| self.time.watch.steady_now());
        let is_over = |open: &RingWindow| self.time.watch.steady_of(open.span.until) < present;
        if self.open.as_ref().is_some_and(is_over) {
            self.close();
        }
        warn_of_absent_topics(&self.status, &mut self.absent_due, now);
    }

    /// Hands over what is open, when no more messages come.
    pub fn finish(&mut self) {
        self.close();
    }

    /// Begins the events that the triggers have seen.
    fn begin_fired(&mut self) {
        for fired in self.conditions.take_fired() {
            self.status.triggers[fired.trigger].events += 1;
            let text = self.conditions.text(fired.trigger).to_owned();
            let time = self.time.watch.stamp_of(fired.time);
            if fired.is_marked
                && let Ok(marker) = Marker::shortened(time, &text)
            {
                self.shared.mark(marker);
            }
            self.begin_event(time, text);
        }
    }

    fn begin_event(&mut self, time: Timestamp, reason: String) {
        let span = Window::around(time, self.options.before, self.options.after);
        if let Some(open) = &mut self.open {
            let start = open.span.start;
            if open.span.join(span) {
                if open.span.start < start {
                    open.hold = Hold::take(&self.ring, Some(open.span.start), None).or(open.hold.take());
                }
                return self.publish();
            }
            if span.until <= open.span.until {
                // A broken rule was seen late. It does not end the window of a later event.
                let hold = Hold::take(&self.ring, Some(span.start), Some(span.until));
                return self.shared.add_ring_window(RingWindow { span, reason, hold });
            }
        }
        // Events to come may make it longer.
        let hold = Hold::take(&self.ring, Some(span.start), None);
        self.close();
        tracing::info!("event {reason:?}: what is around it is copied beside the ring");
        if hold.is_none() {
            tracing::warn!(
                "the ring cannot keep what is copied of it: its file system has no locks or no room"
            );
        }
        self.open = Some(RingWindow { span, reason, hold });
        self.publish();
    }

    /// The window is over: no more events make it longer.
    fn close(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let Window { start, until } = open.span;
        open.hold = Hold::take(&self.ring, Some(start), Some(until)).or(open.hold);
        self.shared.add_ring_window(open);
        self.publish();
    }

    fn publish(&self) {
        let status = TriggerStatus {
            is_recording: self.open.is_some(),
            ..self.status.clone()
        };
        self.shared.update_status(|shown| {
            let copies = shown.triggered.take().unwrap_or_default().copies;
            shown.triggered = Some(TriggerStatus { copies, ..status });
        });
    }
}
