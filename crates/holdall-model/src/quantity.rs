//! Sizes, spans and rates as people write them: `100MiB`, `200ms`, `2.5Hz`. Each has one parser, for the command line, files of settings and triggers.

use std::time::Duration;

/// Why a size, a span or a rate could not be read; the sentence follows the name of the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
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
    /// Zero, where something must happen.
    #[error("must be greater than 0")]
    Zero,
}

const BYTE_UNITS: &str = "B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024)";
const TIME_UNITS: &str = "ns, us, ms, s, min, h";

/// Splits `12.5MiB` into the number `12.5` and the unit `MiB`.
fn split_number<'a>(text: &'a str, example: &'static str) -> Result<(f64, &'a str, &'a str), QuantityError> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && (*c == '-' || *c == '+'))))
        .map_or(text.len(), |(at, _)| at);
    let (digits, unit) = text.split_at(end);
    let number: f64 = digits.parse().map_err(|_| QuantityError::NoNumber { example })?;
    if number < 0.0 {
        return Err(QuantityError::Negative);
    }
    Ok((number, digits, unit.trim()))
}

/// Reads a number of bytes: plain, or with a unit (`100MiB`, `1.5 GB`).
///
/// # Errors
/// The text has no number, the unit is unknown, or the value is negative, too large or not a whole number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
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
            return Err(QuantityError::UnknownUnit {
                unit: unit.to_owned(),
                known: BYTE_UNITS,
            });
        }
    };
    if let Ok(whole) = digits.trim_start_matches('+').parse::<u64>() {
        return whole.checked_mul(factor).ok_or(QuantityError::TooLarge);
    }
    let bytes = number * factor as f64;
    if !bytes.is_finite() || bytes >= 9.0e18 {
        return Err(QuantityError::TooLarge);
    }
    if factor == 1 && bytes.fract() != 0.0 {
        return Err(QuantityError::PartOfByte);
    }
    // Checked above: 0 <= bytes < 9e18.
    Ok(bytes.round() as u64)
}

/// Reads a span; a plain number counts in `plain_unit`.
fn parse_span(text: &str, plain_unit: Duration, example: &'static str) -> Result<Duration, QuantityError> {
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
            return Err(QuantityError::UnknownUnit {
                unit: unit.to_owned(),
                known: TIME_UNITS,
            });
        }
    };
    let nanos = (number * unit_nanos).round();
    if !nanos.is_finite() || nanos >= 9.0e18 {
        return Err(QuantityError::TooLarge);
    }
    // Checked above: 0 <= nanos < 9e18.
    Ok(Duration::from_nanos(nanos as u64))
}

/// Reads a span of time; a plain number is seconds (`5`, `0.5`, `5s`, `200ms`, `1.5min`).
///
/// # Errors
/// The text has no number, the unit is unknown, or the value is negative or longer than 285 years.
pub fn parse_seconds(text: &str) -> Result<Duration, QuantityError> {
    parse_span(text, Duration::from_secs(1), "5 or 200ms")
}

/// Reads a span of time; a plain number is milliseconds (`100`, `100ms`, `1s`).
///
/// # Errors
/// As [`parse_seconds`].
pub fn parse_milliseconds(text: &str) -> Result<Duration, QuantityError> {
    parse_span(text, Duration::from_millis(1), "100 or 1s")
}

/// Reads a span of time in seconds where any negative value means "without end" (rosbag2's `-1`).
///
/// # Errors
/// As [`parse_seconds`], but negative values are accepted.
pub fn parse_seconds_or_endless(text: &str) -> Result<Option<Duration>, QuantityError> {
    match parse_seconds(text) {
        Ok(span) => Ok(Some(span)),
        Err(QuantityError::Negative) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a rate in messages or events a second, 0 included: `10`, `2.5`, `10Hz`.
///
/// # Errors
/// The text has no number or another unit, or the value is negative or not finite.
pub fn parse_hertz(text: &str) -> Result<f64, QuantityError> {
    let bare = text.trim();
    let bare = bare
        .strip_suffix("Hz")
        .or_else(|| bare.strip_suffix("hz"))
        .unwrap_or(bare);
    // Also with an exponent.
    if let Ok(number) = bare.trim_end().parse::<f64>()
        && number.is_finite()
        && number >= 0.0
    {
        return Ok(number);
    }
    let (number, _, unit) = split_number(text, "10 or 2.5Hz")?;
    match unit {
        "" | "Hz" | "hz" if number.is_finite() => Ok(number),
        "" | "Hz" | "hz" => Err(QuantityError::TooLarge),
        _ => Err(QuantityError::UnknownUnit {
            unit: unit.to_owned(),
            known: "Hz",
        }),
    }
}

/// As [`parse_hertz`], above 0.
///
/// # Errors
/// As [`parse_hertz`], and for 0.
pub fn parse_hertz_above_zero(text: &str) -> Result<f64, QuantityError> {
    match parse_hertz(text)? {
        0.0 => Err(QuantityError::Zero),
        hertz => Ok(hertz),
    }
}

/// Reads a factor of speed, above 0: `0.5`, `2`.
///
/// # Errors
/// The text is not a number, or the value is not above 0 or not finite.
pub fn parse_factor(text: &str) -> Result<f64, QuantityError> {
    let example = "0.5";
    match text.trim().parse::<f64>() {
        Ok(factor) if factor.is_nan() => Err(QuantityError::NoNumber { example }),
        Ok(factor) if factor <= 0.0 => Err(QuantityError::Zero),
        Ok(factor) if factor.is_infinite() => Err(QuantityError::TooLarge),
        Ok(factor) => Ok(factor),
        Err(_) => Err(QuantityError::NoNumber { example }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(parse_bytes("-1"), Err(QuantityError::Negative));
        assert_eq!(parse_bytes("1.5"), Err(QuantityError::PartOfByte));
        assert_eq!(parse_bytes("18446744073709551616"), Err(QuantityError::TooLarge));
        assert_eq!(parse_bytes("99999999TiB"), Err(QuantityError::TooLarge));
        assert!(matches!(parse_bytes(""), Err(QuantityError::NoNumber { .. })));
        assert!(matches!(parse_bytes("big"), Err(QuantityError::NoNumber { .. })));
        assert!(matches!(
            parse_bytes("1.2.3"),
            Err(QuantityError::NoNumber { .. })
        ));
        // "100M" means 10^6 to some and 2^20 to others.
        assert!(matches!(
            parse_bytes("100M"),
            Err(QuantityError::UnknownUnit { .. })
        ));
    }

    #[test]
    fn spans_are_read_in_the_flags_own_unit_or_the_written_one() {
        assert_eq!(parse_seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_seconds("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_seconds("1.5 min"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_milliseconds("100"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_milliseconds("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_seconds("-2"), Err(QuantityError::Negative));
        assert!(matches!(
            parse_seconds("5x"),
            Err(QuantityError::UnknownUnit { .. })
        ));
        assert_eq!(
            parse_seconds("1e400"),
            Err(QuantityError::UnknownUnit {
                unit: "e400".into(),
                known: TIME_UNITS
            })
        );
        assert_eq!(parse_seconds("999999999999999"), Err(QuantityError::TooLarge));
        assert_eq!(parse_seconds_or_endless("-1"), Ok(None));
        assert_eq!(parse_seconds_or_endless("2"), Ok(Some(Duration::from_secs(2))));
    }

    #[test]
    fn rates_and_factors_are_read() {
        assert_eq!(parse_hertz("10"), Ok(10.0));
        assert_eq!(parse_hertz("2.5 Hz"), Ok(2.5));
        assert_eq!(parse_hertz("0"), Ok(0.0));
        assert_eq!(parse_hertz("1e-2"), Ok(0.01));
        assert_eq!(parse_hertz("1e2 Hz"), Ok(100.0));
        assert_eq!(parse_hertz_above_zero("0"), Err(QuantityError::Zero));
        assert_eq!(parse_hertz("-1"), Err(QuantityError::Negative));
        for wrong in ["", "fast", "nan", "inf", "10kHz", "Hz"] {
            assert!(parse_hertz(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_factor("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "fast", ""] {
            assert!(parse_factor(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in 0_u64..1 << 60, millis in 0_u64..1 << 50) {
            prop_assert_eq!(parse_bytes(&bytes.to_string()), Ok(bytes));
            prop_assert_eq!(parse_bytes(&format!("{} KiB", bytes >> 10)), Ok(bytes >> 10 << 10));
            prop_assert_eq!(parse_milliseconds(&millis.to_string()), parse_seconds(&format!("{millis}ms")));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,20}") {
            let _ = (parse_bytes(&text), parse_seconds(&text), parse_hertz(&text), parse_factor(&text));
        }
    }
}
