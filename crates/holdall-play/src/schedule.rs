//! Computes when a message is due: maps bag time to monotonic time under rate, delay, pause and seek; callers pass the present time.

use holdall_model::time::Timestamp;
use std::time::Duration;

/// Slowest and fastest rate that keep times within the range of 64-bit nanoseconds.
const RATE_MIN: f64 = 1e-6;
const RATE_MAX: f64 = 1e9;

/// True for a rate that a schedule can run at: finite, above zero and not absurd.
pub(crate) fn is_rate_valid(rate: f64) -> bool {
    rate.is_finite() && (RATE_MIN..=RATE_MAX).contains(&rate)
}

/// The state of bag time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Bag time is `at` until monotonic time reaches `from`, and moves from then on.
    Running { from: Duration, at: Timestamp },
    /// Bag time rests at `at`; once resumed it still waits for `delay` before it moves.
    Paused { at: Timestamp, delay: Duration },
}

/// Maps bag time to monotonic time. It owns no clock: every call that needs the time is given it.
///
/// Bag time never jumps unless [`Schedule::jump`] is called: pausing, resuming and a new rate continue from
/// its present value.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate: f64,
    state: State,
}

impl Schedule {
    /// A schedule at rest at `start`, which waits for `delay` once it is resumed.
    ///
    /// `rate` must be from `RATE_MIN` to `RATE_MAX`; another one is taken as 1.
    pub fn paused(start: Timestamp, rate: f64, delay: Duration) -> Self {
        Self {
            rate: if is_rate_valid(rate) { rate } else { 1.0 },
            state: State::Paused { at: start, delay },
        }
    }

    /// Bag time at monotonic time `now`.
    pub fn position(&self, now: Duration) -> Timestamp {
        match self.state {
            State::Paused { at, .. } => at,
            State::Running { from, at } => at.saturating_add(scale(now.saturating_sub(from), self.rate)),
        }
    }

    /// Monotonic time at which a message stamped `stamp` is due, which may be in the past; `None` while paused.
    pub fn due(&self, stamp: Timestamp) -> Option<Duration> {
        match self.state {
            State::Paused { .. } => None,
            State::Running { from, at } => {
                Some(from.saturating_add(scale(stamp.saturating_since(at), 1.0 / self.rate)))
            }
        }
    }

    /// Stops bag time; the rest of a delay is kept.
    pub fn pause(&mut self, now: Duration) {
        if let State::Running { from, .. } = self.state {
            self.state = State::Paused {
                at: self.position(now),
                delay: from.saturating_sub(now),
            };
        }
    }

    /// Lets bag time advance from its present value.
    pub fn resume(&mut self, now: Duration) {
        if let State::Paused { at, delay } = self.state {
            self.state = State::Running {
                from: now.saturating_add(delay),
                at,
            };
        }
    }

    /// True while bag time does not advance.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused { .. })
    }

    /// Changes the speed from now on; false, and nothing changed, for a rate that is not valid.
    pub fn set_rate(&mut self, now: Duration, rate: f64) -> bool {
        if !is_rate_valid(rate) {
            return false;
        }
        let position = self.position(now);
        if let State::Running { from, at } = &mut self.state {
            (*from, *at) = ((*from).max(now), position);
        }
        self.rate = rate;
        true
    }

    /// The current speed.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Puts bag time to `to`, paused or not; the rest of a delay is kept.
    pub fn jump(&mut self, now: Duration, to: Timestamp) {
        match &mut self.state {
            State::Paused { at, .. } => *at = to,
            State::Running { from, at } => (*from, *at) = ((*from).max(now), to),
        }
    }
}

/// A span times a factor, held at the largest span that a [`Timestamp`] can be moved by. Exact for factor 1.
fn scale(span: Duration, factor: f64) -> Duration {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    if factor == 1.0 {
        return Duration::from_nanos(nanos);
    }
    // 53 bits of mantissa: exact to the nanosecond for spans up to 104 days. `as` holds the result within u64.
    Duration::from_nanos((nanos as f64 * factor).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_003);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn running(rate: f64, delay: Duration, now: Duration) -> Schedule {
        let mut schedule = Schedule::paused(START, rate, delay);
        schedule.resume(now);
        schedule
    }

    #[test]
    fn a_message_is_due_at_its_distance_from_the_start_over_the_rate() {
        for (rate, expected) in [(1.0, ms(1500)), (2.0, ms(1250)), (0.5, ms(2000))] {
            let schedule = running(rate, Duration::ZERO, ms(1000));
            assert_eq!(
                schedule.due(START.saturating_add(ms(500))),
                Some(expected),
                "rate {rate}"
            );
        }
    }

    #[test]
    fn stamps_before_the_position_are_due_at_once() {
        let schedule = running(1.0, Duration::ZERO, ms(7));
        assert_eq!(schedule.due(Timestamp::from_nanos(0)), Some(ms(7)));
    }

    #[test]
    fn delay_holds_the_position_and_is_not_scaled_by_the_rate() {
        let schedule = running(10.0, ms(300), ms(100));
        assert_eq!(schedule.position(ms(399)), START);
        assert_eq!(schedule.due(START), Some(ms(400)));
        assert_eq!(schedule.position(ms(401)), START.saturating_add(ms(10)));
    }

    #[test]
    fn pausing_within_the_delay_keeps_what_is_left_of_it() {
        let mut schedule = running(1.0, ms(300), ms(0));
        schedule.pause(ms(100));
        schedule.resume(ms(5000));
        assert_eq!(schedule.due(START), Some(ms(5200)));
    }

    #[test]
    fn nothing_is_due_while_paused_and_the_position_continues_unchanged() {
        let mut schedule = running(2.0, Duration::ZERO, ms(0));
        schedule.pause(ms(100));
        assert!(schedule.is_paused());
        assert_eq!(schedule.due(START), None);
        assert_eq!(schedule.position(ms(9000)), START.saturating_add(ms(200)));
        schedule.resume(ms(9000));
        assert_eq!(schedule.position(ms(9001)), START.saturating_add(ms(202)));
    }

    #[test]
    fn a_new_rate_keeps_the_position() {
        let mut schedule = running(1.0, Duration::ZERO, ms(0));
        assert!(schedule.set_rate(ms(100), 4.0));
        assert_eq!(schedule.position(ms(100)), START.saturating_add(ms(100)));
        assert_eq!(schedule.due(START.saturating_add(ms(140))), Some(ms(110)));
    }

    #[test]
    fn a_new_rate_within_the_delay_does_not_shorten_it() {
        let mut schedule = running(1.0, ms(300), ms(0));
        assert!(schedule.set_rate(ms(100), 2.0));
        assert_eq!(schedule.due(START.saturating_add(ms(10))), Some(ms(305)));
    }

    #[test]
    fn rates_that_make_no_sense_are_refused() {
        let mut schedule = running(1.0, Duration::ZERO, ms(0));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            assert!(!schedule.set_rate(ms(1), rate), "{rate}");
        }
        assert_eq!(schedule.rate(), 1.0);
    }

    #[test]
    fn jumping_moves_the_position_running_or_paused() {
        let mut schedule = running(1.0, Duration::ZERO, ms(0));
        let target = START.saturating_add(ms(5000));
        schedule.jump(ms(10), target);
        assert_eq!(schedule.due(target), Some(ms(10)));
        schedule.pause(ms(10));
        schedule.jump(ms(20), START);
        assert_eq!(schedule.position(ms(30)), START);
        assert!(schedule.is_paused());
    }

    proptest! {
        #[test]
        fn position_at_the_due_time_is_the_stamp(
            offset in 0_u64..86_400_000_000_000, rate in 0.01_f64..100.0, now in 0_u64..1_000_000_000_000,
        ) {
            let schedule = running(rate, Duration::ZERO, Duration::from_nanos(now));
            let stamp = START.saturating_add(Duration::from_nanos(offset));
            let due = schedule.due(stamp).expect("running");
            let difference = schedule.position(due).as_nanos() - stamp.as_nanos();
            // One nanosecond of monotonic time is `rate` nanoseconds of bag time.
            prop_assert!(difference.abs() <= 2 + rate.ceil() as i64, "{difference}");
        }

        #[test]
        fn any_walk_of_pauses_and_rates_never_moves_back(
            steps in proptest::collection::vec((0_u64..1_000_000_000, 0_u8..4, 0.1_f64..10.0), 1..50),
        ) {
            let mut now = Duration::ZERO;
            let mut schedule = running(1.0, ms(20), now);
            let mut before = schedule.position(now);
            for (span, what, rate) in steps {
                now += Duration::from_nanos(span);
                match what {
                    0 => schedule.pause(now),
                    1 => schedule.resume(now),
                    2 => prop_assert!(schedule.set_rate(now, rate)),
                    _ => {}
                }
                let position = schedule.position(now);
                prop_assert!(position >= before);
                before = position;
            }
        }
    }
}
