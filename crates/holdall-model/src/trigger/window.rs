//! The span around an event that is copied, made longer by events that come before it is over.

use crate::time::Timestamp;
use std::time::Duration;

/// How much longer than that of one event a window becomes, at most: all that comes until its end is kept.
const LONGER_MAX: Duration = Duration::from_secs(600);

/// A span around events, with both its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first moment.
    pub start: Timestamp,
    /// Its last one.
    pub until: Timestamp,
}

impl Window {
    /// From `before` an event until `after` it.
    pub fn around(event: Timestamp, before: Duration, after: Duration) -> Self {
        let nanos = i64::try_from(before.as_nanos()).unwrap_or(i64::MAX);
        Self {
            start: Timestamp::from_nanos(event.as_nanos().saturating_sub(nanos)),
            until: event.saturating_add(after),
        }
    }

    /// Becomes as long as both; false where they do not touch, or would be too long together.
    pub fn join(&mut self, other: Self) -> bool {
        let both = Self {
            start: self.start.min(other.start),
            until: self.until.max(other.until),
        };
        let longest = other
            .until
            .saturating_since(other.start)
            .saturating_add(LONGER_MAX);
        let touches = other.start <= self.until && self.start <= other.until;
        let joins = touches && both.until.saturating_since(both.start) <= longest;
        if joins {
            *self = both;
        }
        joins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(seconds: i64) -> Window {
        let event = Timestamp::from_nanos(seconds * 1_000_000_000);
        Window::around(event, Duration::from_secs(30), Duration::from_secs(10))
    }

    #[test]
    fn events_that_come_before_its_end_make_a_window_longer_up_to_a_bound() {
        let mut window = around(100);
        assert!(!window.join(around(141)) && window == around(100), "apart");
        assert!(window.join(around(105)) && window.join(around(140)));
        assert_eq!(
            (window.start, window.until),
            (around(100).start, around(140).until)
        );
        // A rule of a contract may have been broken for some time when that is seen.
        assert!(window.join(around(90)) && window.start == around(90).start);
        let joined = (0..100)
            .take_while(|number| window.join(around(140 + 30 * number)))
            .count();
        assert!((15..25).contains(&joined), "{joined}");
    }
}
