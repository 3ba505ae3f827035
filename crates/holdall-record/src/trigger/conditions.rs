//! The triggers of a recording that runs: what they need of it, and what its log and its status say of them.

use super::{Trigger, TriggerStatus};
use crate::clock_watch::ClockWatch;
use holdall_model::{
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
    trigger::{self, Fired},
};
use std::{sync::Arc, time::Duration};

/// Topics that have not appeared by then are named in the log.
const ABSENT_AFTER: Duration = Duration::from_secs(5);

/// The time of the messages, in time that does not jump.
pub(crate) struct MessageTime {
    /// The clock that stamps them.
    pub watch: Arc<ClockWatch>,
    /// The present; `None` while nothing is recorded.
    pub now: Box<dyn Fn() -> Option<Timestamp> + Send>,
}

/// All triggers of a recording.
pub(crate) struct Conditions(trigger::Conditions);

impl Conditions {
    pub fn new(triggers: &[Trigger]) -> Self {
        Self(trigger::Conditions::new(triggers))
    }

    /// A topic is recorded from now on.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo, status: &mut TriggerStatus) {
        self.0.add_topic(topic, info);
        self.note_states(status);
    }

    /// The definition of a topic's type, or that there is none.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition, status: &mut TriggerStatus) {
        if self.watches(topic) {
            self.0.define_stored(topic, definition);
            self.note_states(status);
        }
    }

    fn note_states(&self, status: &mut TriggerStatus) {
        for (count, state) in status.triggers.iter_mut().zip(self.0.states()) {
            count.is_topic_known = state.is_topic_known;
            if let Some(reason) = state.fault.as_ref().filter(|_| state.fault != count.fault) {
                tracing::error!("trigger {}: {reason}; it cannot fire", count.text);
            }
            count.fault.clone_from(&state.fault);
        }
    }

    /// Whether triggers watch a topic.
    pub fn watches(&self, topic: TopicId) -> bool {
        self.0.watches(topic)
    }

    /// Takes note of a message of a topic that is watched.
    pub fn message(&mut self, topic: TopicId, time: Timestamp, payload: PayloadRef<'_>) {
        self.0.message(topic, time, payload);
        for (number, error) in self.0.take_broken() {
            let text = self.0.text(number);
            tracing::warn!("trigger {text}: a message cannot be decoded: {error}");
        }
    }

    /// Takes note of the time, when all messages until then were noted.
    pub fn check(&mut self, now: Timestamp) {
        self.0.check(now);
    }

    /// Forgets when messages came: in a pause none do.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// The events since the last call.
    pub fn take_fired(&mut self) -> Vec<Fired> {
        self.0.take_fired()
    }

    /// A trigger's text.
    pub fn text(&self, trigger: usize) -> &str {
        self.0.text(trigger)
    }
}

/// Names the triggers whose topics have not appeared some time after the first call, once: a name that was mistyped never appears. `now` is monotonic.
pub(crate) fn warn_of_absent_topics(status: &TriggerStatus, due: &mut Option<Duration>, now: Duration) {
    if now < *due.get_or_insert(now.saturating_add(ABSENT_AFTER)) {
        return;
    }
    *due = Some(Duration::MAX);
    for trigger in status.triggers.iter().filter(|trigger| !trigger.is_topic_known) {
        tracing::warn!(
            "trigger {}: its topic has not appeared among the recorded ones so far",
            trigger.text
        );
    }
}
