//! Points in time and spans between them, in nanoseconds, as bags store them.

use serde::{Deserialize, Serialize, Serializer};
use std::time::Duration;

/// Nanoseconds since the Unix epoch on the clock that stamped it (system time, or simulation time).
///
/// Signed as in rosbag2 (`rcutils_time_point_value_t`); MCAP stores the same value unsigned.
///
/// ```
/// use holdall_model::time::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_nanos(1_700_000_000_000_000_000);
/// let end = start.saturating_add(Duration::from_secs(2));
/// assert_eq!(end.saturating_since(start).as_secs(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A time stamp from nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// This point plus a span, at most the largest representable value.
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// The span from `earlier` to this point; zero when `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }

    /// The date and time of day in UTC to the millisecond, as [`Timestamp::from_utc_text`] reads them: `2026-11-01T12:30:05.250`.
    pub fn to_utc_text(self) -> String {
        let millis = self.0.div_euclid(1_000_000);
        let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
        // The day that the average length of years and months points to, or a neighbouring year.
        let guess = 1970 + days.div_euclid(365);
        let year = (0..=guess.abs_diff(1970) / 1000 + 1)
            .filter_map(|less| guess.checked_sub_unsigned(less))
            .find(|year| days_since_epoch(*year, 1, 1) <= days)
            .unwrap_or(guess);
        let month = (1..=12)
            .rev()
            .find(|month| days_since_epoch(year, *month, 1) <= days)
            .unwrap_or(1);
        let day = days - days_since_epoch(year, month, 1) + 1;
        let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
        format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}")
    }

    /// Reads a date or a date with a time of day, in UTC: `2026-11-01`, `2026-11-01T12:30`, `2026-11-01T12:30:05.25Z`; or with an offset from it,
    /// `2026-11-01T13:30+01:00`. `None` for anything else, and for times that have no number of nanoseconds.
    pub fn from_utc_text(text: &str) -> Option<Self> {
        let utc = text.strip_suffix('Z');
        let offset = (text.len() > DATE_BYTES && utc.is_none())
            .then(|| text.rfind(['+', '-']))
            .flatten()
            .filter(|at| *at > DATE_BYTES);
        match offset.and_then(|at| text.split_at_checked(at)) {
            Some((local, offset)) => {
                let local = Self::from_local_text(local)?;
                local.0.checked_sub(offset_nanos(offset)?).map(Self)
            }
            None => Self::from_local_text(utc.unwrap_or(text)),
        }
    }

    /// As [`Self::from_utc_text`], without an offset.
    fn from_local_text(text: &str) -> Option<Self> {
        let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, ""));
        let mut parts = date.splitn(3, '-').map(digits);
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + i64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        if !(1..=days).contains(&day) {
            return None;
        }
        let seconds = days_since_epoch(year, month, day).checked_mul(86_400)?;
        seconds
            .checked_mul(NANOS)?
            .checked_add(nanos_of_day(clock)?)
            .map(Self)
    }
}

const NANOS: i64 = 1_000_000_000;

/// Bytes of `2026-11-01`, whose hyphens are none of an offset.
const DATE_BYTES: usize = 10;

/// `+01:00`, `-0230` or `+01`, positive to the east.
fn offset_nanos(text: &str) -> Option<i64> {
    let (sign, clock) = match text.strip_prefix('-') {
        Some(clock) => (-1, clock),
        None => (1, text.strip_prefix('+')?),
    };
    let (hours, minutes) = match clock.len() {
        2 => (clock, "00"),
        4 => clock.split_at_checked(2)?,
        5 => clock.split_once(':')?,
        _ => return None,
    };
    nanos_of_day(&format!("{hours}:{minutes}")).map(|nanos| sign * nanos)
}

/// A number of at most nine digits.
fn digits(text: &str) -> Option<i64> {
    let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Days from 1970 to a date of the Gregorian calendar; years begin in March, so that a leap day is the last one.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let before_year = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before_year + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// `12:30` or `12:30:05.25` since midnight; nothing is midnight.
fn nanos_of_day(clock: &str) -> Option<i64> {
    if clock.is_empty() {
        return Some(0);
    }
    let mut parts = clock.splitn(3, ':');
    let (hours, minutes) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let (whole, fraction) = parts
        .next()
        .map_or(("0", "0"), |text| text.split_once('.').unwrap_or((text, "0")));
    let seconds = digits(whole)?;
    digits(fraction)?;
    let nanos = digits(&format!("{fraction:0<9}"))?;
    (hours < 24 && minutes < 60 && seconds < 60)
        .then(|| ((hours * 60 + minutes) * 60 + seconds) * NANOS + nanos)
}

/// Serializes a span as seconds.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_seconds<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs_f64()).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_nanoseconds_since_1970() {
        for (text, seconds) in [
            ("1970-01-01", 0.0),
            ("2000-02-29T12:00", 951_825_600.0),
            ("2026-11-01", 1_793_491_200.0),
            ("2026-11-01T00:01:30.5Z", 1_793_491_290.5),
            ("1969-12-31 23:59:59", -1.0),
            ("1970-01-01T01:00+01:00", 0.0),
            ("1970-01-01T01:00:00.25+0100", 0.25),
            ("1970-01-01 00:00-02", 7200.0),
        ] {
            let found = Timestamp::from_utc_text(text).map(|time| time.as_nanos() as f64 / 1e9);
            assert_eq!(found, Some(seconds), "{text}");
        }
        for text in [
            "2026-02-29",
            "2026-1",
            "x",
            "2026-11-01T25:00",
            "2026-11-01T1",
            "9999-01-01",
            "2026-00-10",
            "2026-11-01T12:30+01:00+01:00",
            "2026-11-01T12:30+01:00Z",
            "2026-11-01T12:30-",
            "2026-11-01T12:30+1",
            "2026-11-01T12:30+25:00",
            "",
        ] {
            assert_eq!(Timestamp::from_utc_text(text), None, "{text}");
        }
    }
}
