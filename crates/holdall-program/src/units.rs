//! Sizes and spans as people write and read them: `100MiB`, `200ms`, `62.4 KiB`, `1.49 GiB/s`.

use holdall::{reader::Moment, tools::Shift};
use holdall_model::time::Timestamp;
pub use holdall_model::units::{format_byte_rate, format_bytes, format_count};
use std::time::Duration;

/// Why a size or a span could not be read; the sentence follows the name of the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not begin with a number.
    #[error("expected a number, for example {example}")]
    NoNumber {
        /// A text that would have been accepted.
        example: &'static str,
    },
    /// The letters after the number are not a known unit.
    #[error("unknown unit \"{unit}\"; use one of {known}")]
    UnknownUnit {
        /// The unit in the text.
        unit: String,
        /// All units that are accepted.
        known: &'static str,
    },
    /// The value is below zero.
    #[error("must not be negative")]
    Negative,
    /// The value does not fit.
    #[error("too large")]
    TooLarge,
    /// A part of a byte.
    #[error("not a whole number of bytes")]
    PartOfByte,
}

const BYTE_UNITS: &str = "B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024)";
const TIME_UNITS: &str = "ns, us, ms, s, min, h";

/// Splits `12.5MiB` into the number `12.5` and the unit `MiB`.
fn split_number<'a>(text: &'a str, example: &'static str) -> Result<(f64, &'a str, &'a str), UnitError> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && (*c == '-' || *c == '+'))))
        .map_or(text.len(), |(at, _)| at);
    let (digits, unit) = text.split_at(end);
    let number: f64 = digits.parse().map_err(|_| UnitError::NoNumber { example })?;
    if number < 0.0 {
        return Err(UnitError::Negative);
    }
    Ok((number, digits, unit.trim()))
}

/// Reads a number of bytes: plain, or with a unit (`100MiB`, `1.5 GB`).
///
/// # Errors
/// The text has no number, the unit is unknown, or the value is negative, too large or not a whole number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let (number, digits, unit) = split_number(text, "104857600 or 100MiB")?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => {
            return Err(UnitError::UnknownUnit {
                unit: unit.to_owned(),
                known: BYTE_UNITS,
            });
        }
    };
    if let Ok(whole) = digits.trim_start_matches('+').parse::<u64>() {
        return whole.checked_mul(factor).ok_or(UnitError::TooLarge);
    }
    let bytes = number * factor as f64;
    if !bytes.is_finite() || bytes >= 9.0e18 {
        return Err(UnitError::TooLarge);
    }
    if factor == 1 && bytes.fract() != 0.0 {
        return Err(UnitError::PartOfByte);
    }
    // Checked above: 0 <= bytes < 9e18.
    Ok(bytes.round() as u64)
}

/// Reads a span; a plain number counts in `plain_unit`.
fn parse_span(text: &str, plain_unit: Duration, example: &'static str) -> Result<Duration, UnitError> {
    let (number, _, unit) = split_number(text, example)?;
    let unit_nanos: f64 = match unit {
        "" => plain_unit.as_secs_f64() * 1e9,
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        _ => {
            return Err(UnitError::UnknownUnit {
                unit: unit.to_owned(),
                known: TIME_UNITS,
            });
        }
    };
    let nanos = (number * unit_nanos).round();
    if !nanos.is_finite() || nanos >= 9.0e18 {
        return Err(UnitError::TooLarge);
    }
    // Checked above: 0 <= nanos < 9e18.
    Ok(Duration::from_nanos(nanos as u64))
}

/// Reads a span of time; a plain number is seconds (`5`, `0.5`, `5s`, `200ms`, `1.5min`).
///
/// # Errors
/// The text has no number, the unit is unknown, or the value is negative or longer than 285 years.
pub fn parse_seconds(text: &str) -> Result<Duration, UnitError> {
    parse_span(text, Duration::from_secs(1), "5 or 200ms")
}

/// How far times move: seconds without a unit, to earlier times with a minus sign.
///
/// # Errors
/// The text is not a span.
pub fn parse_shift(text: &str) -> Result<Shift, UnitError> {
    match text.strip_prefix('-') {
        Some(span) => parse_seconds(span).map(Shift::Earlier),
        None => parse_seconds(text.strip_prefix('+').unwrap_or(text)).map(Shift::Later),
    }
}

/// Reads a span of time; a plain number is milliseconds (`100`, `100ms`, `1s`).
///
/// # Errors
/// As [`parse_seconds`].
pub fn parse_milliseconds(text: &str) -> Result<Duration, UnitError> {
    parse_span(text, Duration::from_millis(1), "100 or 1s")
}

/// Reads a span of time in seconds where any negative value means "without end" (rosbag2's `-1`).
///
/// # Errors
/// As [`parse_seconds`], but negative values are accepted.
pub fn parse_seconds_or_endless(text: &str) -> Result<Option<Duration>, UnitError> {
    match parse_seconds(text) {
        Ok(span) => Ok(Some(span)),
        Err(UnitError::Negative) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a point in time as every verb does: `10`, `+10` or `500ms` after the first message; `@1700000000.25`, seconds since 1970; nanoseconds since
/// 1970 as rosbag2 has them; `2026-11-25T12:03:11.5`, a date, also without a time of day or with an offset from UTC.
///
/// # Errors
/// A text of any other form, with the forms that are accepted.
pub fn parse_moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    let at = |nanos| Ok(Moment::At(Timestamp::from_nanos(nanos)));
    if let Some(seconds) = text.strip_prefix('@') {
        return at(parse_instant(seconds)?);
    }
    // No bag is 31 years long: long whole numbers are nanoseconds.
    if text.len() >= 16
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(nanos) = text.parse()
    {
        return at(nanos);
    }
    if let Some(time) = Timestamp::from_utc_text(text) {
        return Ok(Moment::At(time));
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return i64::try_from(time.as_nanosecond()).map_or_else(|_| Err(MOMENTS.to_owned()), at);
    }
    parse_seconds(text)
        .map(Moment::AfterStart)
        .map_err(|error| match error {
            UnitError::NoNumber { .. } => MOMENTS.to_owned(),
            error => error.to_string(),
        })
}

const MOMENTS: &str =
    "expected seconds after the first message (10), or a time (@1700000000.25, 2026-11-25T12:03:11, in UTC)";

/// Reads seconds since 1970, exact to the nanosecond, as nanoseconds.
fn parse_instant(text: &str) -> Result<i64, String> {
    let expected =
        || format!("expected seconds since 1970 after the @, for example @1700000000.25, found \"{text}\"");
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(expected());
    }
    let seconds: i64 = whole.parse().map_err(|_| expected())?;
    // Digits after the ninth are ignored.
    let nanos: i64 = format!("{:0<9}", &fraction[..fraction.len().min(9)])
        .parse()
        .map_err(|_| expected())?;
    seconds
        .checked_mul(1_000_000_000)
        .and_then(|whole| whole.checked_add(nanos))
        .ok_or_else(expected)
}

/// Writes a running time: `00:42`, `1:02:03`.
pub fn format_elapsed(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes:02}:{seconds:02}")
    }
}

/// Writes a span in a sentence: `850 ms`, `12.3 s`, `1:02:03`.
pub fn format_span(span: Duration) -> String {
    match span.as_secs_f64() {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 600.0 => format!("{s:.1} s"),
        _ => format_elapsed(span),
    }
}

/// Writes "1 message", "2 messages".
pub fn plural(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {noun}{s}", format_count(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_plain_and_with_units() {
        for (text, bytes) in [
            ("0", 0),
            ("104857600", 104_857_600),
            ("100MiB", 100 << 20),
            ("100 MiB", 100 << 20),
            ("1GB", 1_000_000_000),
            ("1.5GB", 1_500_000_000),
            ("0.5KiB", 512),
            ("12b", 12),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bytes_that_mean_nothing_are_refused_with_a_reason() {
        assert_eq!(parse_bytes("-1"), Err(UnitError::Negative));
        assert_eq!(parse_bytes("1.5"), Err(UnitError::PartOfByte));
        assert_eq!(parse_bytes("18446744073709551616"), Err(UnitError::TooLarge));
        assert_eq!(parse_bytes("99999999TiB"), Err(UnitError::TooLarge));
        assert!(matches!(parse_bytes(""), Err(UnitError::NoNumber { .. })));
        assert!(matches!(parse_bytes("big"), Err(UnitError::NoNumber { .. })));
        assert!(matches!(parse_bytes("1.2.3"), Err(UnitError::NoNumber { .. })));
        // "100M" means 10^6 to some and 2^20 to others.
        assert!(matches!(parse_bytes("100M"), Err(UnitError::UnknownUnit { .. })));
    }

    #[test]
    fn spans_are_read_in_the_flags_own_unit_or_the_written_one() {
        assert_eq!(parse_seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_seconds("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_seconds("1.5 min"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_milliseconds("100"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_milliseconds("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_seconds("-2"), Err(UnitError::Negative));
        assert!(matches!(parse_seconds("5x"), Err(UnitError::UnknownUnit { .. })));
        assert_eq!(
            parse_seconds("1e400"),
            Err(UnitError::UnknownUnit {
                unit: "e400".into(),
                known: TIME_UNITS
            })
        );
        assert_eq!(parse_seconds("999999999999999"), Err(UnitError::TooLarge));
        assert_eq!(parse_seconds_or_endless("-1"), Ok(None));
        assert_eq!(parse_seconds_or_endless("2"), Ok(Some(Duration::from_secs(2))));
    }

    #[test]
    fn every_form_of_a_point_in_time_is_read() {
        let at = |nanos| Ok(Moment::At(Timestamp::from_nanos(nanos)));
        let after = |millis| Ok(Moment::AfterStart(Duration::from_millis(millis)));
        for (text, moment) in [
            ("10", after(10_000)),
            ("+1.5", after(1500)),
            ("500ms", after(500)),
            ("2 min", after(120_000)),
            ("1700000000", after(1_700_000_000_000)),
            ("@1700000000.25", at(1_700_000_000_250_000_000)),
            ("@0", at(0)),
            ("1700000000000000003", at(1_700_000_000_000_000_003)),
            ("2023-11-14T22:13:20", at(1_700_000_000_000_000_000)),
            ("2023-11-14 22:13:20.5Z", at(1_700_000_000_500_000_000)),
            ("2023-11-14T23:13:20+01:00", at(1_700_000_000_000_000_000)),
            ("2023-11-14", at(1_699_920_000_000_000_000)),
        ] {
            assert_eq!(parse_moment(text), moment, "{text}");
        }
        for text in [
            "",
            "+",
            "+-1",
            "-5",
            "yesterday",
            "@",
            "@x",
            "@-1",
            "2023-13-01",
            "10x",
        ] {
            assert!(parse_moment(text).is_err(), "{text}");
        }
        assert_eq!(parse_moment("yesterday"), Err(MOMENTS.to_owned()));
    }

    #[test]
    fn points_in_time_are_exact() {
        assert_eq!(
            parse_instant("1700000000.123456789"),
            Ok(1_700_000_000_123_456_789)
        );
        assert_eq!(parse_instant("1700000000"), Ok(1_700_000_000_000_000_000));
        assert_eq!(parse_instant("0.5"), Ok(500_000_000));
        for bad in [
            "",
            "-1",
            "1e9",
            "x",
            "99999999999999999999",
            ".5",
            "1700000000000000000",
        ] {
            assert!(parse_instant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_and_spans_read_well() {
        assert_eq!(format_count(1_234_567), "1 234 567");
        assert_eq!(format_count(12), "12");
        assert_eq!(plural(1, "message"), "1 message");
        assert_eq!(plural(2000, "message"), "2 000 messages");
        assert_eq!(format_elapsed(Duration::from_secs(42)), "00:42");
        assert_eq!(format_elapsed(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(format_span(Duration::from_millis(850)), "850 ms");
        assert_eq!(format_span(Duration::from_millis(12_340)), "12.3 s");
    }
}
