//! Conditions as they change: each is seen once when it becomes true, and again after it was false.

use crate::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// A condition that becomes true.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edge(bool);

impl Edge {
    /// Takes note of the condition; true when it has just become true.
    pub fn rises(&mut self, holds: bool) -> bool {
        !std::mem::replace(&mut self.0, holds) && holds
    }
}

/// Watches for a topic to fall silent.
#[derive(Clone, Copy, Debug)]
pub struct SilenceWatch {
    span: Duration,
    /// The last message, until the silence after it was seen.
    last: Option<Timestamp>,
}

impl SilenceWatch {
    /// Silence means no message for `span`. A topic that was never heard does not fall silent.
    pub fn new(span: Duration) -> Self {
        Self { span, last: None }
    }

    /// Takes note of a message.
    pub fn message(&mut self, time: Timestamp) {
        self.last = Some(time);
    }

    /// When the topic fell silent, once, if it is silent now.
    pub fn check(&mut self, now: Timestamp) -> Option<Timestamp> {
        let due = self.last?.saturating_add(self.span);
        (due <= now).then(|| {
            self.last = None;
            due
        })
    }

    /// Whether a message came, and no silence since.
    pub fn is_heard(&self) -> bool {
        self.last.is_some()
    }

    /// Begins anew, with a topic that was never heard.
    pub fn reset(&mut self) {
        self.last = None;
    }
}

/// Messages over which a rate is measured: as many as come within a second, within these bounds.
const RATE_MESSAGES_MIN: f64 = 5.0;
const RATE_MESSAGES_MAX: f64 = 1000.0;

/// Watches for a topic's rate to fall below a bound. The rate is below when the last messages, as many as the bound allows in a second (5 at
/// least, 1000 at most), took longer than they would at the bound.
#[derive(Clone, Debug)]
pub struct RateWatch {
    count: usize,
    span: Duration,
    /// The last messages, at most `count`.
    times: VecDeque<Timestamp>,
    /// The rate was reached, and not missed since.
    is_armed: bool,
}

impl RateWatch {
    /// Watches for a rate below `bound`, in Hz; it has to be reached first.
    pub fn new(bound: f64) -> Self {
        let count = bound.ceil().clamp(RATE_MESSAGES_MIN, RATE_MESSAGES_MAX);
        Self {
            count: count as usize,
            span: Duration::try_from_secs_f64(count / bound).unwrap_or(Duration::MAX),
            times: VecDeque::new(),
            is_armed: false,
        }
    }

    /// The time until which the rate of messages met the bound.
    fn kept_until(&self) -> Option<Timestamp> {
        let oldest = self.times.front().filter(|_| self.times.len() == self.count)?;
        Some(oldest.saturating_add(self.span))
    }

    /// Takes note of a message; to be called after [`RateWatch::check`] with its time.
    pub fn message(&mut self, time: Timestamp) {
        if self.times.len() == self.count {
            self.times.pop_front();
        }
        self.times.push_back(time);
        self.is_armed |= self.kept_until().is_some_and(|until| until >= time);
    }

    /// When the rate fell below the bound, once, if it is below now.
    pub fn check(&mut self, now: Timestamp) -> Option<Timestamp> {
        let until = self.kept_until().filter(|until| self.is_armed && *until < now)?;
        self.is_armed = false;
        Some(until)
    }

    /// Whether the rate was reached, and not missed since.
    pub fn is_reached(&self) -> bool {
        self.is_armed
    }

    /// The most messages that it looks back at.
    pub fn messages_max(&self) -> usize {
        self.count
    }

    /// Begins anew, with a rate that was not reached.
    pub fn reset(&mut self) {
        self.times.clear();
        self.is_armed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(number: i64) -> Timestamp {
        Timestamp::from_nanos(number * 1_000_000)
    }

    #[test]
    fn an_edge_is_seen_once() {
        let mut edge = Edge::default();
        let seen = [false, true, true, false, true].map(|holds| edge.rises(holds));
        assert_eq!(seen, [false, true, false, false, true]);
    }

    #[test]
    fn silence_is_seen_once_after_a_message() {
        let mut watch = SilenceWatch::new(Duration::from_secs(2));
        assert_eq!(watch.check(ms(100_000)), None, "never heard");
        watch.message(ms(1000));
        assert_eq!(watch.check(ms(2999)), None);
        assert_eq!(watch.check(ms(3500)), Some(ms(3000)), "when it began");
        assert_eq!(watch.check(ms(9000)), None);
        watch.message(ms(9000));
        watch.message(ms(10_000));
        assert_eq!(watch.check(ms(12_000)), Some(ms(12_000)));
    }

    /// Times at which a stream of messages falls below the bound.
    fn falls(bound: f64, times: impl IntoIterator<Item = i64>, end: i64) -> Vec<i64> {
        let mut watch = RateWatch::new(bound);
        let mut falls = Vec::new();
        for time in times {
            falls.extend(watch.check(ms(time)));
            watch.message(ms(time));
        }
        falls.extend(watch.check(ms(end)));
        falls
            .into_iter()
            .map(|time| time.as_nanos() / 1_000_000)
            .collect()
    }

    #[test]
    fn a_rate_below_its_bound_is_seen_once() {
        let at = |hertz: i64, from: i64, until: i64| (from..until).step_by((1000 / hertz) as usize);
        assert_eq!(falls(5.0, at(10, 0, 10_000), 10_000), [] as [i64; 0]);
        assert_eq!(
            falls(5.0, at(2, 0, 10_000), 10_000),
            [] as [i64; 0],
            "never reached"
        );
        // The fifth message before the gap came at 4500: one second later the rate is missed.
        assert_eq!(falls(5.0, at(10, 0, 5000), 20_000), [5500]);
        let slower = at(10, 0, 5000)
            .chain(at(2, 5000, 9000))
            .chain(at(10, 9000, 12_000));
        assert_eq!(falls(5.0, slower.chain(at(1, 12_000, 15_000)), 15_000).len(), 2);
        // Five messages at 0.5 Hz take ten seconds.
        assert_eq!(falls(0.5, at(1, 0, 20_000), 40_000), [25_000]);
    }
}
