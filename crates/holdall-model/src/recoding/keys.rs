//! When the key frames of a video were logged, so that decoding of any picture begins with one look into a list.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Key frames of a topic that are listed at most: 18 hours with one each second. Of more every second one is listed, then every fourth.
const KEYS_MAX: usize = 1 << 16;

const MILLI_NANOS: i64 = 1_000_000;

/// The log times of key frames in whole milliseconds, rounded down: as text the first one since 1970, and the differences after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct KeyTimes {
    /// In order.
    millis: Vec<i64>,
    /// Number of key frames of which one is listed; a power of two.
    step: usize,
    /// Key frames since the last one that is listed.
    since: usize,
}

impl KeyTimes {
    /// True if it lists none.
    pub const fn is_empty(&self) -> bool {
        self.millis.is_empty()
    }

    /// Adds the next one. One that was logged before the last one is not listed.
    pub fn add(&mut self, time: Timestamp) {
        let milli = time.as_nanos().div_euclid(MILLI_NANOS);
        self.since += 1;
        if self
            .millis
            .last()
            .is_some_and(|last| *last > milli || self.since < self.step)
        {
            return;
        }
        if self.millis.len() >= KEYS_MAX {
            let mut number = 0;
            self.millis.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step = self.step.max(1) * 2;
        }
        self.since = 0;
        self.millis.push(milli);
    }

    /// A time from which on a key frame is before `time`, as late as the list knows one.
    pub fn before(&self, time: Timestamp) -> Option<Timestamp> {
        // A key frame of the last millisecond may be after `time`.
        let end = time.as_nanos().div_euclid(MILLI_NANOS);
        let count = self.millis.partition_point(|milli| *milli < end);
        let milli = self.millis.get(count.checked_sub(1)?)?;
        Some(Timestamp::from_nanos(milli.checked_mul(MILLI_NANOS)?))
    }
}

impl From<String> for KeyTimes {
    /// Text that is not such a list is read until its first fault.
    fn from(text: String) -> Self {
        let mut times = Self::default();
        let mut at = 0_i64;
        for number in text
            .split(' ')
            .take(KEYS_MAX)
            .map_while(|word| word.parse::<i64>().ok())
        {
            let is_first = times.millis.is_empty();
            match at.checked_add(number).filter(|_| is_first || number >= 0) {
                Some(next) => at = next,
                None => break,
            }
            times.millis.push(at);
        }
        times
    }
}

impl From<KeyTimes> for String {
    fn from(times: KeyTimes) -> Self {
        let mut text = Self::new();
        let mut last = 0;
        for milli in times.millis {
            let space = if text.is_empty() { "" } else { " " };
            // Writing to a text does not fail.
            let _ = write!(text, "{space}{}", milli - last);
            last = milli;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn the_last_key_frame_before_a_time_is_found() {
        let mut keys = KeyTimes::default();
        for nanos in [
            5_300_000,
            1_005_900_000,
            2_005_000_000,
            2_004_000_000,
            2_005_100_000,
        ] {
            keys.add(at(nanos));
        }
        let text = String::from(keys.clone());
        assert_eq!(text, "5 1000 1000 0");
        assert_eq!(KeyTimes::from(text).millis, keys.millis);
        for (time, found) in [
            (5_300_000, None),
            (6_000_000, Some(5_000_000)),
            // It may have been logged a little later in the same millisecond.
            (1_005_950_000, Some(5_000_000)),
            (1_006_000_000, Some(1_005_000_000)),
            (i64::MAX, Some(2_005_000_000)),
        ] {
            assert_eq!(keys.before(at(time)), found.map(at), "{time}");
        }
    }

    #[test]
    fn a_long_video_lists_fewer() {
        let mut keys = KeyTimes::default();
        for second in 0..3 * KEYS_MAX as i64 {
            keys.add(at(second * 1_000_000_000));
        }
        assert!(keys.millis.len() <= KEYS_MAX && keys.step == 4, "{}", keys.step);
        for second in [1000, 100_000, 3 * KEYS_MAX as i64] {
            let found = keys.before(at(second * 1_000_000_000)).unwrap();
            let seconds = second - found.as_nanos() / 1_000_000_000;
            assert!((1..=8).contains(&seconds), "{seconds}");
        }
    }

    #[test]
    fn damaged_text_is_read_as_far_as_it_goes() {
        assert_eq!(KeyTimes::from("7 5 x 9".to_owned()).millis, [7, 12]);
        assert_eq!(KeyTimes::from("7 -5".to_owned()).millis, [7]);
        assert!(KeyTimes::from(format!("{} {}", i64::MAX, i64::MAX)).millis.len() == 1);
        assert!(KeyTimes::from(String::new()).is_empty());
    }
}
