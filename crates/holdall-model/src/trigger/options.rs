//! Events that a recording waits for, and how much it keeps around them.

use super::Trigger;
use std::time::Duration;

/// Events that a recording waits for, and how much it keeps around each.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerOptions {
    /// Any of these is an event (`--trigger`); without any, events come on request only.
    pub triggers: Vec<Trigger>,
    /// Span kept before an event (`--before`).
    pub before: Duration,
    /// Span recorded after it (`--after`).
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
