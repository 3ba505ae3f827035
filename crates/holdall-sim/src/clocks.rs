//! The clocks of a world, which jump: the truth about them, and whether the recorder says it and reads back in the order of recording.

use crate::{
    aftermath::Aftermath,
    found::FoundBag,
    judge::sent,
    payload,
    plan::{Plan, SizeClass, TOPICS},
    verdict::{Invariant, Violation},
};
use holdall::reader::Bag;
use holdall_model::time_line::{ClockJump, StampClock};
use std::{collections::BTreeMap, path::Path, time::Duration};

/// The first time on `/clock`, in nanoseconds.
const SIMULATED_START: i64 = 1_200_000_000_000_000_000;

/// A jump may be said too long or too short by this much, in nanoseconds: the clocks run on until it is seen.
const JUMP_OFF_MAX: u64 = 500_000_000;

/// Time between two times on `/clock`.
const TICK_INTERVAL: Duration = Duration::from_millis(10);

/// The truth about a world's clocks.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    /// `/clock` stamps messages.
    is_simulated: bool,
    /// When `/clock` is due again.
    next: Duration,
    /// What `/clock` said last in nanoseconds, and when; `None` before its first message.
    said: Option<(i64, Duration)>,
    /// The time of day was set, or simulated time jumped.
    pub was_set: bool,
    /// How far the clock that stamps messages jumped in all, in nanoseconds.
    jumped: i64,
    /// How often.
    jumps: u64,
}

impl Clocks {
    /// Clocks of a recording with or without simulated time.
    pub fn new(is_simulated: bool) -> Self {
        Self {
            is_simulated,
            ..Self::default()
        }
    }

    /// Whether nothing is recorded because `/clock` has said nothing yet.
    pub fn are_awaited(&self) -> bool {
        self.is_simulated && self.said.is_none()
    }

    /// The time of day is set.
    pub fn set_by(&mut self, nanos: i64) {
        self.was_set = true;
        if !self.is_simulated {
            self.jump(nanos);
        }
    }

    fn jump(&mut self, nanos: i64) {
        self.was_set = true;
        self.jumped += nanos;
        self.jumps += 1;
    }

    /// Simulated time begins, or jumps; returns the time to be said on `/clock` at `now`.
    pub fn simulate(&mut self, nanos: i64, now: Duration) -> Option<i64> {
        if !self.is_simulated {
            return None;
        }
        match self.going_on(now) {
            Some(time) => {
                self.jump(nanos);
                self.say(time + nanos, now)
            }
            None => self.say(SIMULATED_START, now),
        }
    }

    /// The time to be said on `/clock` at `now`; `None` before it has begun, and until it is due again.
    pub fn tick(&mut self, now: Duration) -> Option<i64> {
        if now < self.next {
            return None;
        }
        self.next = now + TICK_INTERVAL;
        let time = self.going_on(now)?;
        self.say(time, now)
    }

    /// When `/clock` is due again; never if it stamps nothing.
    pub fn next_tick(&self) -> Duration {
        match self.is_simulated {
            true => self.next,
            false => Duration::MAX,
        }
    }

    fn going_on(&self, now: Duration) -> Option<i64> {
        let (said, at) = self.said?;
        Some(said + i64::try_from(now.saturating_sub(at).as_nanos()).unwrap_or(0))
    }

    fn say(&mut self, time: i64, now: Duration) -> Option<i64> {
        self.said = Some((time, now));
        Some(time)
    }

    /// Compares what is said about jumps with the truth. Two jumps between two looks are one.
    fn judge_said(&self, said: &[ClockJump], by: &str) -> Result<(), Violation> {
        let violation = |what: String| Err(Violation::new(Invariant::Clocks, format!("{by}: {what}")));
        let clock = match self.is_simulated {
            true => StampClock::Simulated,
            false => StampClock::Wall,
        };
        if let Some(wrong) = said.iter().find(|jump| jump.clock != clock) {
            return violation(format!("{wrong}, which does not stamp messages"));
        }
        let sum: i64 = said.iter().map(|jump| jump.nanos()).sum();
        if said.len() as u64 > self.jumps || sum.abs_diff(self.jumped) > JUMP_OFF_MAX * self.jumps.max(1) {
            return violation(format!(
                "{} jumps by {sum} ns in all; there were {} by {} ns",
                said.len(),
                self.jumps,
                self.jumped
            ));
        }
        Ok(())
    }
}

/// Judges what a recording that was stopped says about its clocks, and in which order its bag is read.
///
/// # Errors
/// The first broken invariant.
pub fn judge(plan: &Plan, after: &Aftermath, bag: &Path, found: &FoundBag) -> Result<(), Violation> {
    let Some((report, _)) = &after.stopped else {
        return Ok(());
    };
    if !plan.has_jumps || report.failure.is_some() || after.disk_failed {
        return Ok(());
    }
    after
        .clocks
        .judge_said(&report.status.clock_jumps.named, "the report")?;
    if found.messages.is_empty() {
        return Ok(());
    }
    let bag = Bag::open(bag).map_err(|error| Violation::new(Invariant::Opens, error.to_string()))?;
    after.clocks.judge_said(&bag.clock_jumps(), "the bag")?;
    judge_reading(after, &bag)
}

/// Messages of a publisher are read in the order in which they arrived, also where their times repeat.
fn judge_reading(after: &Aftermath, bag: &Bag) -> Result<(), Violation> {
    let mut last: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for message in bag.messages() {
        let message = message.map_err(|error| Violation::new(Invariant::Opens, error.to_string()))?;
        let Some((number, sequence)) = payload::name(&message.payload) else {
            continue;
        };
        let Some((life, sent)) = sent(&after.lives, number, sequence) else {
            continue;
        };
        // Simulated time gives several messages one stamp, and those of two lanes have no order then.
        let is_mixed =
            |topic: &crate::plan::TopicPlan| topic.name == life.topic && topic.sizes == SizeClass::Mixed;
        let is_unordered = after.clocks.is_simulated && TOPICS.iter().any(is_mixed);
        // A latched message that was held is stamped later.
        let Some(arrival) = sent.arrival.filter(|arrival| !arrival.paused && !is_unordered) else {
            continue;
        };
        if let Some((place, before)) = last.insert(number, (arrival.place, sequence))
            && place > arrival.place
        {
            let what = format!(
                "{}: message {sequence} of publisher {number} is read after message {before}, which arrived later",
                life.topic
            );
            return Err(Violation::new(Invariant::Order, what));
        }
    }
    Ok(())
}
