//! What a recording waits for, and how much it keeps.

pub use holdall_model::trigger::Trigger;
use std::time::Duration;

/// What a recording waits for, and how much it keeps around each event.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerOptions {
    /// Any of these is an event (`--trigger`); without any, events come on request only.
    pub triggers: Vec<Trigger>,
    /// What is kept before an event (`--before`).
    pub before: Duration,
    /// What is recorded after it (`--after`).
    pub after: Duration,
    /// Memory for messages that wait for an event, in bytes; the oldest are evicted when it is full.
    pub ring_bytes_max: usize,
}

impl Default for TriggerOptions {
    fn default() -> Self {
        Self {
            triggers: Vec::new(),
            before: Duration::from_secs(30),
            after: Duration::from_secs(10),
            ring_bytes_max: 75 << 20,
        }
    }
}
