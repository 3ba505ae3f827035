//! Labels with their values below each other, spans and times, as `info` shows them.

use holdall_model::time::Timestamp;
use jiff::tz::TimeZone;
use std::{fmt::Write, time::Duration};

/// Labels are padded to this width.
pub const LABEL_CELLS: usize = 19;

/// A label and its value.
pub fn push(text: &mut String, label: &str, value: &str) {
    writeln!(text, "{label:<LABEL_CELLS$}{value}").expect("writing to a String cannot fail");
}

/// A label and values below each other; without a value only the label.
pub fn push_list(text: &mut String, label: &str, cells: usize, values: &[String]) {
    let mut values = values.iter();
    let first = values.next().map_or("", String::as_str);
    writeln!(text, "{label:<cells$}{first}").expect("writing to a String cannot fail");
    for value in values {
        writeln!(text, "{:<cells$}{value}", "").expect("writing to a String cannot fail");
    }
}

/// `2.590000997`.
pub fn seconds(span: Duration) -> String {
    format!("{}.{:09}", span.as_secs(), span.subsec_nanos())
}

/// `Nov 14 2023 22:13:20.000000003 (1700000000.000000003)`.
pub fn time_point(time: Timestamp, zone: &TimeZone) -> String {
    let nanos = i128::from(time.as_nanos());
    let local = jiff::Timestamp::from_nanosecond(nanos)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_zoned(zone.clone());
    let sec = time.as_nanos().div_euclid(1_000_000_000);
    let nsec = time.as_nanos().rem_euclid(1_000_000_000);
    format!(
        "{}.{nsec:09} ({sec}.{nsec:09})",
        local.strftime("%b %e %Y %H:%M:%S")
    )
}
