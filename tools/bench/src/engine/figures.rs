//! Figures as people read them: short, with their unit.

use super::UNSUPPORTED;
use crate::{limits::Limits, statistics::Estimate};
use holdall_model::units::{GIB, format_mebibyte_rate as rate};

/// Processor seconds for each GiB; stored results have them for each 10⁹ bytes.
pub(crate) fn cpu_per_gib(cpu_s_per_gb: f64) -> String {
    format!("{:.3}", cpu_s_per_gb * (GIB / 1e9))
}

/// Messages a second as k or M.
pub(crate) fn frequency(per_s: f64) -> String {
    match per_s {
        millions if millions >= 1e6 => format!("{:.2} M/s", millions / 1e6),
        thousands if thousands >= 1e4 => format!("{:.1} k/s", thousands / 1e3),
        few => format!("{few:.0} /s"),
    }
}

/// Nanoseconds in the unit that keeps them short.
pub(crate) fn span(nanos: u64) -> String {
    match nanos as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// A ratio with its interval; a mark precedes it when `compared` and the interval does not exclude 1.
pub(crate) fn ratio_text(estimate: Option<&Estimate>, compared: bool) -> String {
    let Some(estimate) = estimate else {
        return "–".to_owned();
    };
    let is_carried = estimate.interval.is_some_and(|interval| !interval.contains(1.0));
    let mark = if compared && !is_carried { UNSUPPORTED } else { "" };
    format!("{mark}{}", estimate.text(2, ""))
}

/// The limits of a run in one or more lines.
pub(crate) fn limits_text(limit: &Limits) -> String {
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), rate);
    let shape = limit
        .direct_shape
        .map(|shape| format!(" ({} KiB × {})", shape.block_bytes >> 10, shape.depth))
        .unwrap_or_default();
    let mut text = format!(
        "limits of this run: direct write {}{shape}, buffered write {}, memcpy {}, CRC-32 {}",
        shown(limit.direct_write_bytes_per_s),
        shown(limit.buffered_write_bytes_per_s),
        shown(limit.memcpy_bytes_per_s),
        shown(limit.crc32_bytes_per_s)
    );
    if let Some(codec) = &limit.codec {
        text.push_str(&format!(
            "\n{} on one thread: {}, on {} side by side: {}, {:.2} : 1",
            codec.codec,
            rate(codec.bytes_per_s),
            codec.threads,
            rate(codec.all_bytes_per_s),
            codec.compression_ratio
        ));
    }
    if let Some(reason) = &limit.direct_refused {
        text.push_str(&format!("\ndirect writes are not possible here: {reason}"));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Interval;

    #[test]
    fn figures_are_short_and_carry_their_unit() {
        assert_eq!(cpu_per_gib(0.1), "0.107");
        assert_eq!(
            (frequency(9.6e6), frequency(45_600.0), frequency(30.0)),
            ("9.60 M/s".into(), "45.6 k/s".into(), "30 /s".into())
        );
        assert_eq!(
            (span(850), span(12_340), span(4_000_000), span(2_000_000_000)),
            ("850 ns".into(), "12.3 µs".into(), "4.0 ms".into(), "2.0 s".into())
        );
    }

    #[test]
    fn a_ratio_is_marked_where_its_interval_holds_one() {
        let estimate = |low, high| Estimate {
            median: 1.1,
            interval: Some(Interval { low, high }),
            repetitions: 3,
        };
        assert_eq!(ratio_text(Some(&estimate(0.9, 1.2)), true), "≈1.10 [0.90, 1.20]");
        assert_eq!(ratio_text(Some(&estimate(1.05, 1.2)), true), "1.10 [1.05, 1.20]");
        assert_eq!(ratio_text(None, true), "–");
    }
}
