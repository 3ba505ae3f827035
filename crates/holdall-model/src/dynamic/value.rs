//! Single values as views of a payload.

use crate::interface::Primitive;
use serde_json::Value;
use std::borrow::Cow;

/// One value that is neither a struct nor a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// `bool`; any byte but 0 is true.
    Bool(bool),
    /// `int8`.
    I8(i8),
    /// `uint8`, `byte`, `char`.
    U8(u8),
    /// `int16`.
    I16(i16),
    /// `uint16`, `wchar`.
    U16(u16),
    /// `int32`.
    I32(i32),
    /// `uint32`.
    U32(u32),
    /// `int64`.
    I64(i64),
    /// `uint64`.
    U64(u64),
    /// `float32`.
    F32(f32),
    /// `float64`; also `long double`, rounded.
    F64(f64),
    /// `string`.
    Text(Text<'a>),
    /// `wstring`.
    Wide(WideText<'a>),
}

impl Scalar<'_> {
    /// As a JSON value; `null` for a number that JSON lacks.
    pub(super) fn to_json(self) -> Value {
        match self {
            Self::Bool(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U8(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I64(value) => value.into(),
            Self::U64(value) => value.into(),
            // 11.1, not 11.100000381.
            Self::F32(value) => value.to_string().parse::<f64>().map_or(Value::Null, Value::from),
            Self::F64(value) => value.into(),
            Self::Text(text) => text.to_str().into(),
            Self::Wide(text) => text.to_text().into(),
        }
    }
}

/// The bytes of a `string`, without the zero at its end. ROS 2 expects UTF-8 and does not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub &'a [u8]);

impl<'a> Text<'a> {
    /// The text; bytes that are not UTF-8 become U+FFFD.
    pub fn to_str(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }
}

/// The characters of a `wstring`: UTF-16, in slots of two or four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideText<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) slot_bytes: usize,
    pub(super) little_endian: bool,
}

impl WideText<'_> {
    /// Number of 16-bit characters.
    pub fn len(self) -> usize {
        self.bytes.len() / self.slot_bytes
    }

    /// True for an empty text.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The characters in order.
    pub fn units(self) -> impl Iterator<Item = u16> {
        self.bytes.chunks_exact(self.slot_bytes).map(move |slot| {
            if self.little_endian {
                u16::from_le_bytes([slot[0], slot[1]])
            } else {
                u16::from_be_bytes([slot[self.slot_bytes - 2], slot[self.slot_bytes - 1]])
            }
        })
    }

    /// The text; surrogates without a partner become U+FFFD.
    pub fn to_text(self) -> String {
        char::decode_utf16(self.units())
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    }
}

/// Size of a primitive on the wire, in bytes.
pub(super) const fn size_of(primitive: Primitive) -> usize {
    match primitive {
        Primitive::Int8 | Primitive::Uint8 | Primitive::Char | Primitive::Boolean | Primitive::Byte => 1,
        Primitive::Int16 | Primitive::Uint16 | Primitive::Wchar => 2,
        Primitive::Int32 | Primitive::Uint32 | Primitive::Float => 4,
        Primitive::Int64 | Primitive::Uint64 | Primitive::Double => 8,
        Primitive::LongDouble => 16,
    }
}

/// Reads a primitive from exactly its number of bytes.
#[inline]
pub(super) fn scalar_of(primitive: Primitive, bytes: &[u8], little_endian: bool) -> Scalar<'static> {
    macro_rules! number {
        ($type:ty) => {{
            let mut value = [0; size_of::<$type>()];
            value.copy_from_slice(&bytes[..size_of::<$type>()]);
            if little_endian {
                <$type>::from_le_bytes(value)
            } else {
                <$type>::from_be_bytes(value)
            }
        }};
    }
    use std::mem::size_of;
    match primitive {
        Primitive::Boolean => Scalar::Bool(bytes[0] != 0),
        Primitive::Int8 => Scalar::I8(number!(i8)),
        Primitive::Uint8 | Primitive::Char | Primitive::Byte => Scalar::U8(bytes[0]),
        Primitive::Int16 => Scalar::I16(number!(i16)),
        Primitive::Uint16 | Primitive::Wchar => Scalar::U16(number!(u16)),
        Primitive::Int32 => Scalar::I32(number!(i32)),
        Primitive::Uint32 => Scalar::U32(number!(u32)),
        Primitive::Int64 => Scalar::I64(number!(i64)),
        Primitive::Uint64 => Scalar::U64(number!(u64)),
        Primitive::Float => Scalar::F32(number!(f32)),
        Primitive::Double => Scalar::F64(number!(f64)),
        Primitive::LongDouble => Scalar::F64(quad_to_double(number!(u128))),
    }
}

/// IEEE 754 binary128, the CDR form of a `long double`, rounded towards zero to binary64.
fn quad_to_double(bits: u128) -> f64 {
    let sign = if bits >> 127 == 1 { -1.0 } else { 1.0 };
    let exponent = ((bits >> 112) & 0x7fff) as i32;
    // The upper 52 of the 112 bits after the point.
    let fraction = ((bits >> 60) & ((1 << 52) - 1)) as u64;
    match exponent {
        0x7fff if fraction == 0 && bits << 16 == 0 => sign * f64::INFINITY,
        0x7fff => f64::NAN,
        // Numbers below 2^-16382 are zero as a double.
        0 => sign * 0.0,
        _ => {
            let mantissa = 1.0 + fraction as f64 / (1_u64 << 52) as f64;
            // In two steps: the inverse of a power beyond 2^1023 is zero, and the product need not be.
            let exponent = exponent - 16383;
            let step = exponent / 2;
            sign * mantissa * 2.0_f64.powi(step) * 2.0_f64.powi(exponent - step)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_doubles_are_rounded() {
        // sign, exponent + 16383, fraction of 112 bits
        let quad = |sign: u128, exponent: i32, upper: u64| {
            (sign << 127) | (u128::from((exponent + 16383) as u16) << 112) | (u128::from(upper) << 60)
        };
        assert_eq!(quad_to_double(quad(0, 0, 1 << 51)), 1.5);
        assert_eq!(quad_to_double(quad(1, 10, 0)), -1024.0);
        assert_eq!(quad_to_double(0), 0.0);
        assert_eq!(quad_to_double(quad(0, -1074, 0)), 5e-324);
        assert_eq!(
            quad_to_double(quad(0, -1030, 1 << 51)),
            1.5 * 2.0_f64.powi(-1020) / 1024.0
        );
        assert_eq!(quad_to_double(quad(0, 16384, 0)), f64::INFINITY);
        assert!(quad_to_double(quad(0, 16384, 1)).is_nan());
        assert_eq!(quad_to_double(quad(0, 5000, 0)), f64::INFINITY);
    }

    #[test]
    fn wide_texts_are_read_in_both_widths_and_orders() {
        let wide = |bytes, slot_bytes, little_endian| {
            WideText {
                bytes,
                slot_bytes,
                little_endian,
            }
            .to_text()
        };
        assert_eq!(wide(&[0x61, 0, 0xac, 0x20], 2, true), "a€");
        assert_eq!(wide(&[0, 0x61, 0x20, 0xac], 2, false), "a€");
        assert_eq!(wide(&[0x61, 0, 0, 0, 0xac, 0x20, 0, 0], 4, true), "a€");
        assert_eq!(wide(&[0, 0, 0, 0x61, 0, 0, 0x20, 0xac], 4, false), "a€");
        assert_eq!(wide(&[0x00, 0xd8], 2, true), "\u{fffd}");
    }
}
