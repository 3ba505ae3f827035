//! Steady time alongside a clock that jumps: where the clock jumped, and how its times map to steady ones.

use crate::time::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::{collections::VecDeque, fmt, time::Duration};

/// A clock that is off by less than this at once has not jumped: it was adjusted.
pub const JUMP_NANOS_MIN: i64 = 100_000_000;

/// Smaller changes are read as noise of two clocks that are read one after the other.
const DRIFT_NANOS_MIN: i64 = 5_000_000;

/// A step of simulated time is a jump forward when it is longer than this and longer than [`SIMULATED_FACTOR`] times the expected
/// step.
const SIMULATED_NANOS_MIN: f64 = 1e9;
const SIMULATED_FACTOR: f64 = 2.0;
/// The speed of simulated time is not taken from a jump within less time than this.
const SPEED_NANOS_MIN: f64 = 5e6;
/// As many of them in a row as this are its speed: `/clock` at 500 Hz, a thousand times as fast as time.
const QUICK_JUMPS_MAX: u32 = 10;

/// Spans between two jumps that are remembered. Messages wait for seconds at most, too short a time for this many
/// jumps.
const ERAS_MAX: usize = 64;

/// Messages are stamped a little before or after a jump is noticed.
const SLACK_NANOS: i64 = 200_000_000;

/// Which clock stamps messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StampClock {
    /// The computer's time of day.
    #[default]
    Wall,
    /// Simulated time of `/clock`.
    Simulated,
}

/// A clock jumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockJump {
    /// Which one.
    pub clock: StampClock,
    /// The time the clock would have shown without the jump.
    pub from: Timestamp,
    /// The time it showed instead.
    pub to: Timestamp,
}

/// With the sentence about it as `text`.
impl Serialize for ClockJump {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("ClockJump", 3)?;
        object.serialize_field("text", &self.to_string())?;
        object.serialize_field("from_ns", &self.from)?;
        object.serialize_field("to_ns", &self.to)?;
        object.end()
    }
}

impl ClockJump {
    /// Nanoseconds that it jumped forward; negative for a jump back.
    pub const fn nanos(self) -> i64 {
        self.to.as_nanos().saturating_sub(self.from.as_nanos())
    }

    /// Whether times repeat that the clock has already shown.
    pub const fn is_back(self) -> bool {
        self.nanos() < 0
    }
}

impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.is_back() { "back" } else { "forward" };
        let seconds = self.nanos().unsigned_abs() as f64 / 1e9;
        match self.clock {
            StampClock::Wall => write!(f, "the clock of this computer was set {way} by {seconds:.3} s"),
            StampClock::Simulated => write!(f, "simulated time was set {way} by {seconds:.3} s"),
        }
    }
}

/// The time between two jumps.
#[derive(Clone, Copy, Debug)]
struct Era {
    /// The clock's time minus steady time, in nanoseconds.
    offset: i64,
    /// When it began, in steady time.
    since: i64,
}

/// A clock as it was seen, and the steady time alongside it, which runs at the clock's rate and does not
/// jump.
///
/// ```
/// use holdall_model::{time::Timestamp, time_line::TimeLine};
/// use std::time::Duration;
///
/// let (mut line, at) = (TimeLine::default(), |seconds: i64| Timestamp::from_nanos(seconds * 1_000_000_000));
/// assert_eq!(line.see_wall(at(1000), Duration::from_secs(5)), None);
/// let jump = line.see_wall(at(4601), Duration::from_secs(6)).expect("it was set");
/// assert_eq!(jump.nanos(), 3600 * 1_000_000_000);
/// let span = line.steady_of(at(4601)).saturating_since(line.steady_of(at(1000)));
/// assert_eq!(span, Duration::from_secs(1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct TimeLine {
    /// The last one is the present one.
    eras: VecDeque<Era>,
    /// Jumps so far.
    jumps: u64,
    /// Steady time when the clock was last seen, in nanoseconds.
    now: i64,
    /// The last simulated time: when it was seen (monotonic), its value, and its speed.
    simulated: Option<(Duration, i64, f64)>,
    /// Jumps forward in a row that each came within [`SPEED_NANOS_MIN`].
    quick_jumps: u32,
}

impl TimeLine {
    /// Takes note of the time of day at a monotonic time; returns a jump since the last call.
    pub fn see_wall(&mut self, now: Timestamp, monotonic: Duration) -> Option<ClockJump> {
        let steady = nanos(monotonic);
        self.now = steady;
        let offset = now.as_nanos().saturating_sub(steady);
        let Some(era) = self.eras.back_mut() else {
            self.eras.push_back(Era {
                offset,
                since: steady,
            });
            return None;
        };
        let change = offset.saturating_sub(era.offset);
        if change.saturating_abs() < JUMP_NANOS_MIN {
            if change.saturating_abs() >= DRIFT_NANOS_MIN {
                era.offset = offset;
            }
            return None;
        }
        let from = Timestamp::from_nanos(now.as_nanos().saturating_sub(change));
        Some(self.jump(StampClock::Wall, from, now))
    }

    /// Takes note of a message on `/clock` that arrived at a monotonic time; returns a jump since the last one. Simulated time may run at
    /// any speed and may pause; a step forward is a jump when it is far longer than the previous speed explains.
    pub fn see_simulated(&mut self, time: Timestamp, monotonic: Duration) -> Option<ClockJump> {
        let to = time.as_nanos();
        let Some((seen, last, speed)) = self.simulated else {
            self.simulated = Some((monotonic, to, 1.0));
            self.now = to;
            self.eras.push_back(Era { offset: 0, since: to });
            return None;
        };
        let step = to.saturating_sub(last);
        let waited = nanos(monotonic.saturating_sub(seen)).max(1) as f64;
        let expected = SIMULATED_FACTOR * speed.max(1.0) * waited;
        let step_max = SIMULATED_NANOS_MIN + expected;
        let is_forward = step as f64 > step_max;
        self.quick_jumps = match is_forward && waited < SPEED_NANOS_MIN {
            true => self.quick_jumps.saturating_add(1),
            false => 0,
        };
        // A jump is not a speed, least of all one within a moment; but a clock that stays so fast is believed in the end.
        let speed = if (1..QUICK_JUMPS_MAX).contains(&self.quick_jumps) {
            speed
        } else {
            (speed + (step.max(0) as f64).min(step_max) / waited) / 2.0
        };
        self.simulated = Some((monotonic, to, speed));
        if step > -JUMP_NANOS_MIN && !is_forward {
            self.now = self.now.saturating_add(step);
            return None;
        }
        Some(self.jump(StampClock::Simulated, Timestamp::from_nanos(last), time))
    }

    fn jump(&mut self, clock: StampClock, from: Timestamp, to: Timestamp) -> ClockJump {
        if self.eras.len() == ERAS_MAX {
            self.eras.pop_front();
        }
        let offset = to.as_nanos().saturating_sub(self.now);
        self.eras.push_back(Era {
            offset,
            since: self.now,
        });
        self.jumps += 1;
        ClockJump { clock, from, to }
    }

    /// Jumps so far.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Steady time when the clock was last seen.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// The steady time of a message that was stamped a short while ago, at most as long as it waited.
    pub fn steady_of(&self, stamp: Timestamp) -> Timestamp {
        let place = self.place(stamp);
        let offset = self.eras.get(place).map_or(0, |era| era.offset);
        Timestamp::from_nanos(stamp.as_nanos().saturating_sub(offset))
    }

    /// How many jumps were before such a message was stamped.
    pub fn jumps_before(&self, stamp: Timestamp) -> u64 {
        let later = self.eras.len().saturating_sub(self.place(stamp) + 1);
        self.jumps.saturating_sub(later as u64)
    }

    /// The clock's time at a steady time.
    pub fn stamp_of(&self, steady: Timestamp) -> Timestamp {
        let eras = self.eras.iter().rev();
        let era = eras.clone().find(|era| era.since <= steady.as_nanos());
        let offset = era.or(self.eras.front()).map_or(0, |era| era.offset);
        Timestamp::from_nanos(steady.as_nanos().saturating_add(offset))
    }

    /// The era of a stamp: the last one that had this time.
    fn place(&self, stamp: Timestamp) -> usize {
        let mut until = self.now;
        for (place, era) in self.eras.iter().enumerate().rev() {
            let steady = stamp.as_nanos().saturating_sub(era.offset);
            let is_first = place == 0;
            let since = era.since.saturating_sub(SLACK_NANOS);
            if (is_first || steady >= since) && steady <= until.saturating_add(SLACK_NANOS) {
                return place;
            }
            until = era.since;
        }
        self.eras.len().saturating_sub(1)
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn steady(line: &TimeLine, stamp: i64) -> i64 {
        line.steady_of(at(stamp)).as_nanos() / 1_000_000
    }

    #[test]
    fn a_wall_clock_that_is_set_leaves_steady_time_alone() {
        let mut line = TimeLine::default();
        assert_eq!(line.see_wall(at(100_000), ms(1000)), None);
        assert_eq!(line.see_wall(at(100_500), ms(1500)), None);
        let jump = line.see_wall(at(3_701_000), ms(2000)).expect("an hour");
        assert_eq!(
            (jump.from, jump.to, jump.is_back()),
            (at(101_000), at(3_701_000), false)
        );
        // One that waited since before the jump, one after it.
        assert_eq!((steady(&line, 100_900), steady(&line, 3_701_000)), (1900, 2000));
        let jump = line.see_wall(at(2000), ms(2500)).expect("back to 1970");
        assert!(jump.is_back());
        assert_eq!(jump.nanos(), -3_699_500 * 1_000_000);
        assert_eq!(
            [3_701_400, 1990, 100_900].map(|stamp| steady(&line, stamp)),
            [2400, 2490, 1900]
        );
        assert_eq!(
            [3_701_400, 1990, 100_900].map(|stamp| line.jumps_before(at(stamp))),
            [1, 2, 0]
        );
        assert_eq!(line.stamp_of(at(2400)), at(3_701_400));
        assert_eq!(line.stamp_of(at(2600)), at(2100));
    }

    #[test]
    fn a_clock_that_is_slewed_does_not_jump() {
        let mut line = TimeLine::default();
        for step in 0..1000 {
            // Half a millisecond in ten.
            assert_eq!(
                line.see_wall(at(50_000 + step * 21 / 2), ms(10 * step as u64)),
                None
            );
        }
        assert!((steady(&line, 50_000 + 10_500) - 10_000).abs() < 20);
    }

    #[test]
    fn jumps_of_simulated_time_that_follow_each_other_are_all_named() {
        let mut line = TimeLine::default();
        assert_eq!(line.see_simulated(at(1000), ms(0)), None);
        assert_eq!(line.see_simulated(at(1010), ms(10)), None);
        for number in 1..=3 {
            let jump = line.see_simulated(at(1010 + number * 3_600_000), ms(10 + 10 * number as u64));
            assert_eq!(
                jump.map(ClockJump::nanos),
                Some(3_600_000 * 1_000_000),
                "{number}"
            );
        }
        assert_eq!(line.jumps(), 3);
    }

    #[test]
    fn a_jump_within_a_moment_is_not_the_speed_of_simulated_time() {
        let mut line = TimeLine::default();
        assert_eq!(line.see_simulated(at(1000), ms(0)), None);
        assert!(line.see_simulated(at(11_000), ms(0)).is_some());
        assert!(line.see_simulated(at(281_000), ms(6)).is_some());
        assert_eq!(line.jumps(), 2);
    }

    #[test]
    fn a_clock_that_is_fast_at_a_high_rate_is_learned() {
        let mut line = TimeLine::default();
        for step in 0..10_000u64 {
            line.see_simulated(at(2000 * step as i64), ms(2 * step));
        }
        assert!(line.jumps() < 40, "{}", line.jumps());
    }

    #[test]
    fn simulated_time_may_rest_and_go_at_any_speed() {
        let mut line = TimeLine::default();
        let (mut sim, mut now) = (10_000, 0);
        for speed in [1, 0, 3, 30, 1] {
            for _ in 0..200 {
                (sim, now) = (sim + speed * 20, now + 20);
                assert_eq!(line.see_simulated(at(sim), ms(now)), None, "speed {speed}");
            }
        }
        // It rested without a message, and continues.
        assert_eq!(line.see_simulated(at(sim + 20), ms(now + 60_000)), None);
        assert_eq!(steady(&line, sim), sim);
    }

    #[test]
    fn a_simulator_that_is_reset_jumps_back_and_one_that_is_moved_forward() {
        let mut line = TimeLine::default();
        for step in 0..100 {
            assert_eq!(
                line.see_simulated(at(10_000 + step * 50), ms(step as u64 * 50)),
                None
            );
        }
        let jump = line.see_simulated(at(10_000), ms(5000)).expect("reset");
        assert_eq!(
            (jump.from, jump.to, jump.clock),
            (at(14_950), at(10_000), StampClock::Simulated)
        );
        line.see_simulated(at(10_050), ms(5050));
        assert_eq!(steady(&line, 10_050), 15_000, "as long as both runs");
        let jump = line.see_simulated(at(70_100), ms(5100)).expect("a minute");
        assert_eq!(jump.nanos(), 60_050 * 1_000_000);
        assert_eq!(steady(&line, 70_100), 15_000);
        assert_eq!(line.jumps(), 2);
    }

    #[test]
    fn many_jumps_take_no_more_memory() {
        let mut line = TimeLine::default();
        for step in 0..10_000 {
            line.see_wall(at(step % 2 * 1_000_000), ms(step as u64));
        }
        assert!(line.eras.len() <= ERAS_MAX);
        assert_eq!(line.jumps(), 9999);
    }
}
