//! The account of bags that are copied around events.

use super::Window;
use serde::{Serialize, Serializer};
use std::fmt;

/// Copies that are named, at most; the others are counted.
const NAMED_MAX: usize = 100;

/// A copy around an event that does not have all that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFault {
    /// The copy's bag, or what it would have been; `None` where none was begun.
    pub output: Option<String>,
    /// The event.
    pub event: String,
    /// The span that was asked for.
    pub span: Window,
    /// The bag exists, and messages are missing in it.
    pub is_made: bool,
    /// Why: one sentence.
    pub reason: String,
}

impl fmt::Display for CopyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (event, reason) = (&self.event, &self.reason);
        match (&self.output, self.is_made) {
            (Some(output), true) => write!(f, "incomplete copy {output} ({event}): {reason}"),
            (Some(output), false) => write!(f, "no copy {output} ({event}): {reason}"),
            (None, _) => write!(f, "no copy ({event}): {reason}"),
        }
    }
}

impl Serialize for CopyFault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            output: Option<&'a str>,
            event: &'a str,
            from_ns: i64,
            until_ns: i64,
            state: &'static str,
            reason: &'a str,
        }
        let document = Document {
            output: self.output.as_deref(),
            event: &self.event,
            from_ns: self.span.start.as_nanos(),
            until_ns: self.span.until.as_nanos(),
            state: if self.is_made { "incomplete" } else { "failed" },
            reason: &self.reason,
        };
        document.serialize(serializer)
    }
}

/// How the copies around the events of a recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventCopies {
    /// Copies that have all that was asked for.
    pub whole: u64,
    /// Bags in which messages are missing.
    pub incomplete: u64,
    /// Copies that were not made.
    pub failed: u64,
    /// The first ones that are not whole.
    pub faults: Vec<CopyFault>,
}

impl EventCopies {
    /// Takes note of a copy that has ended; without a fault it is whole.
    pub fn add(&mut self, fault: Option<CopyFault>) {
        let Some(fault) = fault else {
            self.whole += 1;
            return;
        };
        match fault.is_made {
            true => self.incomplete += 1,
            false => self.failed += 1,
        }
        if self.faults.len() < NAMED_MAX {
            self.faults.push(fault);
        }
    }

    /// Copies that are not whole.
    pub fn not_whole(&self) -> u64 {
        self.incomplete + self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use serde_json::json;

    fn fault(is_made: bool) -> CopyFault {
        CopyFault {
            output: Some("ring_event_1".to_owned()),
            event: "/v: x > 1".to_owned(),
            span: Window {
                start: Timestamp::from_nanos(5),
                until: Timestamp::from_nanos(9),
            },
            is_made,
            reason: "ring_event_1 exists".to_owned(),
        }
    }

    #[test]
    fn copies_are_counted_and_the_first_ones_that_are_not_whole_named() {
        let mut copies = EventCopies::default();
        copies.add(None);
        assert_eq!(copies.not_whole(), 0);
        copies.add(Some(fault(true)));
        for _ in 0..NAMED_MAX {
            copies.add(Some(fault(false)));
        }
        assert_eq!((copies.whole, copies.incomplete, copies.failed), (1, 1, 100));
        assert_eq!((copies.not_whole(), copies.faults.len()), (101, NAMED_MAX));
        let said: Vec<String> = copies.faults[..2].iter().map(CopyFault::to_string).collect();
        assert_eq!(
            said,
            [
                "incomplete copy ring_event_1 (/v: x > 1): ring_event_1 exists",
                "no copy ring_event_1 (/v: x > 1): ring_event_1 exists",
            ]
        );
        assert_eq!(
            json!(copies)["faults"][1],
            json!({
                "output": "ring_event_1",
                "event": "/v: x > 1",
                "from_ns": 5,
                "until_ns": 9,
                "state": "failed",
                "reason": "ring_event_1 exists",
            })
        );
    }
}
