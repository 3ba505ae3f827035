//! The report of a recording that waits for events.

use super::{EventCopies, Trigger};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// How often a trigger has fired.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TriggerCount {
    /// As it was written.
    #[serde(rename = "trigger")]
    pub text: String,
    /// Events.
    pub events: u64,
    /// Its topic was recorded.
    #[serde(rename = "topic_recorded")]
    pub is_topic_known: bool,
    /// Why it cannot fire: one clause.
    pub fault: Option<String>,
}

/// The state of a recording that waits for events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerStatus {
    /// In the order in which they were given.
    pub triggers: Vec<TriggerCount>,
    /// Everything is recorded, and what is around an event is copied into another bag.
    pub promotes: bool,
    /// How these copies ended.
    pub copies: EventCopies,
    /// Events on request.
    pub requested: u64,
    /// The window of an event is not over.
    pub is_recording: bool,
    /// Messages that wait for an event.
    pub waiting: u64,
    /// Their memory, in bytes.
    pub waiting_bytes: u64,
    /// The shortest span kept with memory full, if it was shorter than the time to keep before an event.
    pub shortest_kept: Option<Duration>,
}

impl TriggerStatus {
    /// Nothing has happened.
    pub fn new(triggers: &[Trigger]) -> Self {
        let count = |trigger: &Trigger| TriggerCount {
            text: trigger.text.clone(),
            ..TriggerCount::default()
        };
        Self {
            triggers: triggers.iter().map(count).collect(),
            ..Self::default()
        }
    }

    /// All events.
    pub fn events(&self) -> u64 {
        self.triggers.iter().map(|trigger| trigger.events).sum::<u64>() + self.requested
    }
}

/// With the sum of all events.
impl Serialize for TriggerStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            count: u64,
            requested: u64,
            promotes: bool,
            copies: Option<&'a EventCopies>,
            recording: bool,
            waiting_messages: u64,
            waiting_bytes: u64,
            shortest_kept_s: Option<f64>,
            triggers: &'a [TriggerCount],
        }
        let document = Document {
            count: self.events(),
            requested: self.requested,
            promotes: self.promotes,
            copies: self.promotes.then_some(&self.copies),
            recording: self.is_recording,
            waiting_messages: self.waiting,
            waiting_bytes: self.waiting_bytes,
            shortest_kept_s: self.shortest_kept.map(|span| span.as_secs_f64()),
            triggers: &self.triggers,
        };
        document.serialize(serializer)
    }
}
