//! Numbers and booleans as text.

use super::{TextOptions, shown_count};
use crate::dynamic::{Primitives, Scalar};
use base64::{Engine, engine::general_purpose::STANDARD};

/// Most elements between two looks at the length of the text.
const LOOK_EVERY: usize = 1024;

/// How a notation writes values that are not finite, and exponents.
#[derive(Debug)]
pub(super) struct Notation {
    nan: &'static [u8],
    infinity: &'static [u8],
    minus_infinity: &'static [u8],
    /// YAML 1.1 only has floats with a point and a signed exponent: `1.0e+16`.
    full_exponent: bool,
    /// Between two elements of a list.
    between: &'static [u8],
}

pub(super) static JSON: Notation = Notation {
    nan: b"\"NaN\"",
    infinity: b"\"Infinity\"",
    minus_infinity: b"\"-Infinity\"",
    full_exponent: false,
    between: b",",
};

pub(super) static YAML: Notation = Notation {
    nan: b".nan",
    infinity: b".inf",
    minus_infinity: b"-.inf",
    full_exponent: true,
    between: b", ",
};

pub(super) static PLAIN: Notation = Notation {
    nan: b"nan",
    infinity: b"inf",
    minus_infinity: b"-inf",
    full_exponent: false,
    between: b",",
};

/// Appends a number or a boolean; nothing for texts.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, value: Scalar<'_>, notation: &Notation) {
    let mut integer = itoa::Buffer::new();
    let digits = match value {
        Scalar::Bool(true) => "true",
        Scalar::Bool(false) => "false",
        Scalar::I8(value) => integer.format(value),
        Scalar::U8(value) => integer.format(value),
        Scalar::I16(value) => integer.format(value),
        Scalar::U16(value) => integer.format(value),
        Scalar::I32(value) => integer.format(value),
        Scalar::U32(value) => integer.format(value),
        Scalar::I64(value) => integer.format(value),
        Scalar::U64(value) => integer.format(value),
        Scalar::F32(value) if value.is_finite() => {
            return finite(out, zmij::Buffer::new().format_finite(value), notation);
        }
        Scalar::F64(value) if value.is_finite() => {
            return finite(out, zmij::Buffer::new().format_finite(value), notation);
        }
        Scalar::F32(value) => return not_finite(out, f64::from(value), notation),
        Scalar::F64(value) => return not_finite(out, value, notation),
        Scalar::Text(_) | Scalar::Wide(_) => "",
    };
    out.extend_from_slice(digits.as_bytes());
}

/// Appends numbers or booleans with commas between them.
pub(super) fn write_all(out: &mut Vec<u8>, values: Primitives<'_>, notation: &Notation) {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, value, notation);
    }
}

/// Appends a list of numbers or booleans, bytes as base64 if that is wanted; false when the text becomes longer than `end`.
#[inline]
pub(super) fn write_list(
    out: &mut Vec<u8>,
    values: Primitives<'_>,
    options: &TextOptions,
    end: usize,
    notation: &Notation,
) -> bool {
    let shown = shown_count(values.len(), options);
    if options.base64 && values.is_octets() && shown == values.len() {
        // Four characters for three bytes, at most four more.
        if out.len() + values.len() / 3 * 4 > end {
            return false;
        }
        out.push(b'"');
        out.extend_from_slice(STANDARD.encode(values.bytes()).as_bytes());
        out.push(b'"');
        return true;
    }
    out.push(b'[');
    for (index, value) in values.first(shown).iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(notation.between);
        }
        if index % LOOK_EVERY == 0 && out.len() > end {
            return false;
        }
        write(out, value, notation);
    }
    if shown < values.len() {
        if shown > 0 {
            out.extend_from_slice(notation.between);
        }
        out.extend_from_slice(b"\"...\"");
    }
    out.push(b']');
    true
}

/// Appends digits. Those of 0.0, 1.0 and the like are copied without a call: most numbers of most messages are such.
#[inline]
fn append(out: &mut Vec<u8>, digits: &[u8]) {
    match digits {
        [a, b, c] => out.extend_from_slice(&[*a, *b, *c]),
        [a, b, c, d] => out.extend_from_slice(&[*a, *b, *c, *d]),
        digits => out.extend_from_slice(digits),
    }
}

fn finite(out: &mut Vec<u8>, digits: &str, notation: &Notation) {
    // Searched only where it matters: it cost a twentieth of `cat --json`.
    let exponent = if notation.full_exponent {
        digits.split_once('e')
    } else {
        None
    };
    match exponent {
        None => append(out, digits.as_bytes()),
        Some((mantissa, exponent)) => {
            out.extend_from_slice(mantissa.as_bytes());
            if !mantissa.contains('.') {
                out.extend_from_slice(b".0");
            }
            out.push(b'e');
            if !exponent.starts_with(['-', '+']) {
                out.push(b'+');
            }
            out.extend_from_slice(exponent.as_bytes());
        }
    }
}

fn not_finite(out: &mut Vec<u8>, value: f64, notation: &Notation) {
    out.extend_from_slice(if value.is_nan() {
        notation.nan
    } else if value > 0.0 {
        notation.infinity
    } else {
        notation.minus_infinity
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Scalar<'_>, notation: &Notation) -> String {
        let mut out = Vec::new();
        write(&mut out, value, notation);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_notation_has_its_own_exponents() {
        for value in [1e300, 1.5e-9, -2.5e21, 5e-324, 0.0, -0.0, 1.0, 123_456.75] {
            let json = text(Scalar::F64(value), &JSON);
            assert_eq!(
                serde_json::from_str::<f64>(&json).unwrap().to_bits(),
                value.to_bits()
            );
            let yaml = text(Scalar::F64(value), &YAML);
            assert!(yaml.contains('.'), "{yaml}");
            assert_eq!(yaml.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
        let yaml = text(Scalar::F64(1e300), &YAML);
        assert_eq!(yaml, "1.0e+300");
    }

    #[test]
    fn floats_have_the_digits_of_their_width() {
        assert_eq!(text(Scalar::F32(0.1), &JSON), "0.1");
        assert_eq!(
            text(Scalar::F64(f64::from(0.1_f32)), &JSON),
            "0.10000000149011612"
        );
        assert_eq!(text(Scalar::F32(f32::NAN), &JSON), "\"NaN\"");
        assert_eq!(text(Scalar::F64(f64::INFINITY), &YAML), ".inf");
    }
}
