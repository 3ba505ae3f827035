//! Sizes and rates as people read them: powers of 1024 everywhere; JSON and CSV have plain bytes instead.

/// Bytes of a MiB, for figures that share one unit: axes, columns.
pub const MIB: f64 = 1_048_576.0;

/// Bytes of a GiB.
pub const GIB: f64 = 1_073_741_824.0;

/// Writes a size as `ros2 bag info` does: powers of 1024, one decimal except for bytes (`62.4 KiB`).
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0);
    format!("{size:.decimals$} {}", UNITS[unit])
}

/// Writes a rate with three significant digits, in powers of 1024 as sizes (`1.49 GiB/s`, `210 MiB/s`, `0
/// B/s`).
pub fn format_byte_rate(bytes_per_s: f64) -> String {
    const UNITS: [&str; 4] = ["B/s", "KiB/s", "MiB/s", "GiB/s"];
    let mut rate = bytes_per_s.max(0.0);
    let mut unit = 0;
    while rate >= 999.5 && unit + 1 < UNITS.len() {
        rate /= 1024.0;
        unit += 1;
    }
    let decimals = match rate {
        _ if unit == 0 => 0,
        r if r < 9.995 => 2,
        r if r < 99.95 => 1,
        _ => 0,
    };
    format!("{rate:.decimals$} {}", UNITS[unit])
}

/// Writes a rate in MiB/s whatever its size, so that the cells of a column can be compared (`1984 MiB/s`,
/// `0.25 MiB/s`).
pub fn format_mebibyte_rate(bytes_per_s: f64) -> String {
    match bytes_per_s / MIB {
        rate if rate < 10.0 => format!("{rate:.2} MiB/s"),
        rate => format!("{rate:.0} MiB/s"),
    }
}

/// Writes a whole number with thin groups of three for people (`1 234 567`).
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 message`, `2 messages`. `noun` is a singular whose plural adds an s.
pub fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_ros2_bag_info_writes_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (62_453, "61.0 KiB"),
            (5 << 40, "5.0 TiB"),
            (5000 << 40, "4.9 PiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }

    #[test]
    fn rates_keep_three_digits() {
        for (rate, text) in [
            (0.0, "0 B/s"),
            (999.4, "999 B/s"),
            (1.49 * GIB, "1.49 GiB/s"),
            (210.4 * MIB, "210 MiB/s"),
            (12.34 * 1024.0, "12.3 KiB/s"),
            (999.6 * 1024.0, "0.98 MiB/s"),
        ] {
            assert_eq!(format_byte_rate(rate), text);
        }
    }

    #[test]
    fn rates_of_a_column_share_their_unit() {
        assert_eq!(
            [0.0, 0.25 * MIB, 9.5 * MIB, 1984.4 * MIB].map(format_mebibyte_rate),
            ["0.00 MiB/s", "0.25 MiB/s", "9.50 MiB/s", "1984 MiB/s"]
        );
    }
}
