//! How long messages may gather before the drain looks for them: shorter while much comes.

use std::time::Duration;

/// While little comes: few wake-ups, little delay.
pub(super) const GATHER_MAX: Duration = Duration::from_millis(5);

/// While much comes: a disk that takes gigabytes a second must not stand still between two looks.
const GATHER_MIN: Duration = Duration::from_millis(1);

/// Much is this many bytes a second: more than eight cameras of 6 MB at 30 Hz bring. Below, what is in flight keeps any disk busy from
/// look to look, and more looks only put the drain in the way of more offers (p99.9 of those cameras' 47 and 109 µs instead of 33), …
const BUSY_BYTES_PER_S: u128 = 2_000_000_000;

/// … over at least this span, in which cameras that fire at the same time are three bursts.
const SPAN: Duration = Duration::from_millis(100);

/// What came of late.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Since when `bytes` are counted, monotonic time.
    since: Duration,
    bytes: u64,
    longest: Duration,
}

impl Gathering {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            since: now,
            bytes: 0,
            longest: GATHER_MAX,
        }
    }

    /// So much was taken out of the cache.
    pub(super) fn took(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// How long the drain may leave the cache alone at `now`. Nobody has to wake it for that: on few processors whoever wakes it waits
    /// until it has written what there is.
    pub(super) fn longest(&mut self, now: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= SPAN {
            let is_busy = u128::from(self.bytes) * 1_000_000_000 >= BUSY_BYTES_PER_S * elapsed.as_nanos();
            self.longest = if is_busy { GATHER_MIN } else { GATHER_MAX };
            (self.since, self.bytes) = (now, 0);
        }
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// How long the drain sleeps at each look of 200 ms in which `bytes` come every `period_ms`.
    fn looks(gathering: &mut Gathering, begin: Duration, bytes: usize, period_ms: u64) -> Vec<Duration> {
        let (mut now, mut came) = (begin, 0);
        let mut looks = Vec::new();
        while now < begin + ms(200) {
            let longest = gathering.longest(now);
            looks.push(longest);
            now += longest;
            let due = (now - begin).as_millis() as u64 / period_ms;
            gathering.took(bytes * (due - came) as usize);
            came = due;
        }
        looks
    }

    #[test]
    fn the_drain_looks_every_millisecond_while_much_comes_and_every_five_when_it_is_over() {
        let mut gathering = Gathering::new(ms(7));
        let busy = looks(&mut gathering, ms(7), 6_220_800, 2);
        let first_short = busy.iter().position(|&longest| longest == GATHER_MIN);
        assert_eq!(first_short, Some(20), "after {SPAN:?}: {busy:?}");
        assert!(busy[20..].iter().all(|&longest| longest == GATHER_MIN));

        let rest = looks(&mut gathering, ms(1000), 100, 1);
        assert!(rest.iter().all(|&longest| longest == GATHER_MAX), "{rest:?}");
    }

    #[test]
    fn eight_cameras_that_fire_together_do_not_hurry_it() {
        let mut gathering = Gathering::new(ms(0));
        let cameras = looks(&mut gathering, ms(0), 8 * 6_220_800, 33);
        assert!(
            cameras.iter().all(|&longest| longest == GATHER_MAX),
            "{cameras:?}"
        );
    }

    #[test]
    fn what_came_before_a_rest_is_not_much_after_it() {
        let mut gathering = Gathering::new(ms(0));
        gathering.took(150_000_000);
        assert_eq!(gathering.longest(ms(99)), GATHER_MAX, "the span is not over");
        assert_eq!(gathering.longest(ms(1000)), GATHER_MAX, "150 MB/s");
        gathering.took(200_000_000);
        assert_eq!(gathering.longest(ms(1100)), GATHER_MIN);
        assert_eq!(gathering.longest(ms(1199)), GATHER_MIN);
        assert_eq!(gathering.longest(ms(1200)), GATHER_MAX);
    }
}
