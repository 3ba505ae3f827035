//! Sizes, spans and points in time as people write and read them: `62.4 KiB`, `1:02:03`.

use holdall::{
    reader::{Moment, MomentError},
    tools::Shift,
};
pub use holdall_model::quantity::{
    QuantityError, parse_bytes, parse_factor, parse_hertz, parse_hertz_above_zero, parse_milliseconds,
    parse_seconds, parse_seconds_or_endless,
};
pub use holdall_model::units::{format_byte_rate, format_bytes, format_count};
use std::time::Duration;

/// How far times move: seconds without a unit, to earlier times with a minus sign.
///
/// # Errors
/// The text is not a span.
pub fn parse_shift(text: &str) -> Result<Shift, QuantityError> {
    match text.strip_prefix('-') {
        Some(span) => parse_seconds(span).map(Shift::Earlier),
        None => parse_seconds(text.strip_prefix('+').unwrap_or(text)).map(Shift::Later),
    }
}

/// Reads a point in time as every verb does.
///
/// # Errors
/// A text of another form, with the forms that are accepted.
pub fn parse_moment(text: &str) -> Result<Moment, MomentError> {
    text.parse()
}

/// Reads a number of things.
///
/// # Errors
/// The text cannot be read as a whole number from 0 on.
pub fn parse_count(text: &str) -> Result<u64, &'static str> {
    text.trim()
        .parse()
        .map_err(|_| "expected a whole number, for example 10")
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
