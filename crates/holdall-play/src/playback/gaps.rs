//! Spans without a message: left out on request, logged if they are long, and without time if only a clock jumped.

use super::{super::options::Pace, super::read_ahead::Source, Playback};
use holdall_io::mutex::lock;
use holdall_model::{
    time::Timestamp,
    time_line::{ClockJump, JUMP_NANOS_MIN},
};
use std::time::Duration;

/// A wait for the next message that is longer is named.
const NAMED_MIN: Duration = Duration::from_secs(60);

/// A round with less bag time than this has no pace.
const ROUND_MIN: Duration = Duration::from_millis(10);

/// How often such a round is played: once in this time.
const SHORT_ROUND: Duration = Duration::from_secs(1);

/// The stamps of markers differ a little from those of the messages around a jump.
const SLACK_NANOS: i64 = 1_000_000_000;

/// Handling of spans without a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// Longer ones take no time.
    pub skipped_from: Option<Duration>,
    /// Where the clocks of the bags jumped.
    pub jumps: Vec<ClockJump>,
}

impl Gaps {
    /// How much of the span between two messages is a jump of the clock and took no time when it was recorded.
    fn jumped(&self, from: Timestamp, to: Timestamp) -> Duration {
        let is_within = |jump: &&ClockJump| {
            let after = jump.from.as_nanos().saturating_add(SLACK_NANOS) >= from.as_nanos();
            let before = jump.to.as_nanos().saturating_sub(SLACK_NANOS) <= to.as_nanos();
            !jump.is_back() && after && before
        };
        let within = self.jumps.iter().filter(is_within);
        within
            .map(|jump| Duration::from_nanos(jump.nanos().unsigned_abs()))
            .sum()
    }

    fn has_back(&self) -> bool {
        self.jumps.iter().any(|jump| jump.is_back())
    }
}

impl<S: Source> Playback<S> {
    /// Moves bag time so that the next message follows at once, if the span before it took no time or should be skipped.
    pub(super) fn cross_gap(&mut self, now: Duration, stamp: Timestamp) {
        let before = std::mem::replace(&mut self.reached, stamp);
        let gaps = &self.parts.gaps;
        let back = before.as_nanos().saturating_sub(stamp.as_nanos());
        // Where the clock was set back, the bag does not begin with its first time.
        let is_beginning = self.round_began.is_none() && before == self.parts.range.start && gaps.has_back();
        if back >= JUMP_NANOS_MIN || is_beginning {
            return self.jump(now, stamp);
        }
        let span = stamp.saturating_since(before);
        let wait = span.saturating_sub(gaps.jumped(before, stamp));
        if gaps.skipped_from.is_some_and(|from| wait > from) {
            tracing::info!("{} without a message are left out", words(span));
            return self.jump(now, stamp);
        }
        if wait < span {
            self.jump(now, before.saturating_add(span.saturating_sub(wait)));
        }
        let is_paced = self.parts.pace == Pace::Time && !self.is_paused();
        let real = wait.as_secs_f64() / self.parts.schedule.rate();
        let real = Duration::try_from_secs_f64(real).unwrap_or(Duration::MAX);
        if is_paced && real > NAMED_MIN {
            tracing::warn!(
                "the next message comes in {}, at {} UTC: the bag has none before; playing can leave such spans out",
                words(real),
                stamp.to_utc_text(),
            );
        }
    }

    /// Sets where the clocks of the bags jumped.
    #[cfg(test)]
    pub(crate) fn set_jumps(&mut self, jumps: Vec<ClockJump>) {
        self.parts.gaps.jumps = jumps;
    }

    /// Begins the next round. Rounds that take no time do not follow one another at once.
    pub(super) fn begin_round(&mut self, now: Duration) {
        let start = self.parts.range.start;
        let is_short = |(first, _): &(Timestamp, Duration)| self.reached.saturating_since(*first) < ROUND_MIN;
        let next = match self.round_began.take() {
            Some(began) if is_short(&began) => began.1.saturating_add(SHORT_ROUND),
            None => now.saturating_add(SHORT_ROUND),
            Some(_) => now,
        };
        self.reached = start;
        self.jump(next.max(now), start);
        lock(&self.progress).round += 1;
    }

    /// Bag time continues from another point, at `from` (monotonic time).
    fn jump(&mut self, from: Duration, to: Timestamp) {
        self.parts.schedule.jump(from, to);
        self.forget_spacing();
    }
}

/// A span in the largest unit that fits.
fn words(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    for (unit, length) in [
        ("years", 31_557_600.0),
        ("days", 86_400.0),
        ("hours", 3600.0),
        ("minutes", 60.0),
    ] {
        if seconds >= 2.0 * length {
            return format!("{:.1} {unit}", seconds / length);
        }
    }
    format!("{seconds:.1} s")
}
