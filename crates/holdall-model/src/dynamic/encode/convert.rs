//! Makes typed values from the literals of a text, by a definition.

use super::{
    VALUE_BYTES_MAX,
    literal::{Literal, shown},
    value::{Plain, Plains, Value},
    writer::{check_count, check_length},
};
use crate::{
    dynamic::{
        ElementPlan, EncodeError, FieldPlan, StructPlan, TypePlan, primitives::is_octet,
        value::size_of as bytes_of,
    },
    interface::{Arity, Primitive},
};
use base64::{Engine, engine::general_purpose::STANDARD};

impl TypePlan {
    /// A message from the literals of a text. Fields that the text leaves out get their defaults. A text for a
    /// list of bytes is base64.
    ///
    /// # Errors
    /// A value that does not fit its field, or the name of a field that the type does not have.
    pub(crate) fn value_of(&self, literal: &Literal) -> Result<Value, EncodeError> {
        Converter::new(self)
            .structure(self.root(), literal)
            .map_err(|error| error.in_type(self.type_name()))
    }

    /// The value of a field of this plan that is left out: its default, else zero, an empty text, an empty list.
    ///
    /// # Errors
    /// As [`TypePlan::default_value`].
    pub fn absent(&self, field: &FieldPlan) -> Result<Value, EncodeError> {
        Converter::new(self)
            .absent(field)
            .map_err(|error| error.in_field(&field.name))
    }

    /// The value that a literal is in a field of this plan.
    ///
    /// # Errors
    /// A value that does not fit the field.
    pub fn field_of(&self, field: &FieldPlan, literal: &Literal) -> Result<Value, EncodeError> {
        Converter::new(self)
            .field(field, literal)
            .map_err(|error| error.in_field(&field.name))
    }

    /// A message whose fields all have their defaults.
    ///
    /// # Errors
    /// A default in the definition that does not fit its field, or a type whose arrays are beyond
    /// [`VALUE_BYTES_MAX`].
    pub fn default_value(&self) -> Result<Value, EncodeError> {
        self.value_of(&Literal::Null)
    }
}

/// Makes values, and counts their memory.
pub(in crate::dynamic) struct Converter<'p> {
    plan: &'p TypePlan,
    bytes_left: u64,
}

impl<'p> Converter<'p> {
    pub const fn new(plan: &'p TypePlan) -> Self {
        Self {
            plan,
            bytes_left: VALUE_BYTES_MAX,
        }
    }

    fn spend(&mut self, bytes: u64) -> Result<(), EncodeError> {
        let needed = bytes.saturating_add(size_of::<Value>() as u64);
        match self.bytes_left.checked_sub(needed) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(EncodeError::new(
                format!("values of at most {VALUE_BYTES_MAX} bytes of memory"),
                "more",
            )),
        }
    }

    /// A struct; as deep as its definition.
    fn structure(&mut self, structure: &StructPlan, literal: &Literal) -> Result<Value, EncodeError> {
        self.spend(0)?;
        let given = match literal {
            Literal::Map(entries) => entries.as_slice(),
            Literal::Null => &[],
            other => {
                let expected = format!("a map with the fields of {}", structure.type_name);
                return Err(EncodeError::new(expected, other.noun()));
            }
        };
        let known: &[FieldPlan] = if structure.is_empty {
            &[]
        } else {
            &structure.fields
        };
        let mut by_field = vec![None; known.len()];
        for (name, value) in given {
            match structure.field(name).filter(|_| !structure.is_empty) {
                Some((index, _)) => by_field[index] = Some(value),
                None => return Err(unknown_field(structure, name)),
            }
        }
        let mut fields = Vec::with_capacity(known.len());
        for (field, given) in known.iter().zip(by_field) {
            let value = match given {
                Some(literal) => self.field(field, literal),
                None => self.absent(field),
            };
            fields.push(value.map_err(|error| error.in_field(&field.name))?);
        }
        Ok(Value::Struct(fields))
    }

    /// All that a field holds.
    pub fn field(&mut self, field: &FieldPlan, literal: &Literal) -> Result<Value, EncodeError> {
        if field.arity == Arity::One {
            return self.element(field, literal);
        }
        let items = match (literal, field.element) {
            (Literal::List(items), _) => items,
            (Literal::Text(text) | Literal::Scalar(text), ElementPlan::Primitive(kind)) if is_octet(kind) => {
                return self.octets(field, kind, text);
            }
            (other, _) => return Err(EncodeError::new(list_noun(field), other.noun())),
        };
        check_count(field.arity, items.len() as u64)?;
        let ElementPlan::Primitive(kind) = field.element else {
            self.spend(0)?;
            let items = items.iter().enumerate().map(|(index, item)| {
                self.element(field, item)
                    .map_err(|error| error.in_item(index as u64))
            });
            return Ok(Value::List(items.collect::<Result<_, _>>()?));
        };
        self.spend((items.len() as u64).saturating_mul(bytes_of(kind) as u64))?;
        let mut bytes = Vec::with_capacity(items.len() * bytes_of(kind));
        for (index, item) in items.iter().enumerate() {
            let plain = plain(kind, item).map_err(|error| error.in_item(index as u64))?;
            bytes.extend_from_slice(&plain.bytes()[..bytes_of(kind)]);
        }
        Ok(Value::Plains(Plains { kind, bytes }))
    }

    fn octets(&mut self, field: &FieldPlan, kind: Primitive, text: &str) -> Result<Value, EncodeError> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| EncodeError::new(format!("{} or base64", list_noun(field)), shown(text)))?;
        check_count(field.arity, bytes.len() as u64)?;
        self.spend(bytes.len() as u64)?;
        Ok(Value::Plains(Plains { kind, bytes }))
    }

    /// One value of a field's element type.
    pub fn element(&mut self, field: &FieldPlan, literal: &Literal) -> Result<Value, EncodeError> {
        match field.element {
            ElementPlan::Struct(index) => self.structure(self.plan.structure(index), literal),
            ElementPlan::Primitive(kind) => {
                self.spend(0)?;
                plain(kind, literal).map(Value::Plain)
            }
            ElementPlan::Text { length_max } => {
                let text = text(literal)?;
                check_length(text.len(), length_max, "bytes")?;
                self.spend(text.len() as u64)?;
                Ok(Value::Text(text.into()))
            }
            ElementPlan::WideText { length_max } => {
                let text = text(literal)?;
                let units: Vec<u16> = text.encode_utf16().collect();
                check_length(units.len(), length_max, "characters")?;
                self.spend(2 * units.len() as u64)?;
                Ok(Value::Wide(units))
            }
        }
    }

    /// The value of a field that a text leaves out.
    fn absent(&mut self, field: &FieldPlan) -> Result<Value, EncodeError> {
        if let Some(default) = &field.default {
            return default
                .literal(field)
                .and_then(|literal| self.field(field, &literal).ok())
                .ok_or_else(|| {
                    let expected = format!("a default of type {}", field.type_text(self.plan));
                    EncodeError::new(expected, format!("{} in the definition", shown(default.text())))
                });
        }
        let count = match field.arity {
            Arity::One => return self.zero(field),
            Arity::Array(count) => count,
            Arity::BoundedSequence(_) | Arity::UnboundedSequence => 0,
        };
        if let ElementPlan::Primitive(kind) = field.element {
            let size = count.saturating_mul(bytes_of(kind) as u64);
            self.spend(size)?;
            // Within the bound, so it fits into memory.
            let bytes = vec![0; usize::try_from(size).unwrap_or_default()];
            return Ok(Value::Plains(Plains { kind, bytes }));
        }
        self.spend(0)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.zero(field)?);
        }
        Ok(Value::List(items))
    }

    /// One value of a field without a default.
    fn zero(&mut self, field: &FieldPlan) -> Result<Value, EncodeError> {
        self.spend(0)?;
        Ok(match field.element {
            ElementPlan::Struct(index) => return self.structure(self.plan.structure(index), &Literal::Null),
            ElementPlan::Primitive(kind) => Value::Plain(Plain::of_bytes(kind, &[])),
            ElementPlan::Text { .. } => Value::Text(Vec::new()),
            ElementPlan::WideText { .. } => Value::Wide(Vec::new()),
        })
    }
}

fn unknown_field(structure: &StructPlan, name: &str) -> EncodeError {
    let expected = if structure.is_empty {
        format!("no field, {} has none", structure.type_name)
    } else {
        let names: Vec<&str> = structure.fields.iter().map(|field| field.name.as_str()).collect();
        format!("a field of {} ({})", structure.type_name, names.join(", "))
    };
    EncodeError::new(expected, shown(name))
}

fn list_noun(field: &FieldPlan) -> String {
    match field.arity {
        Arity::Array(count) => format!("a list of {count}"),
        Arity::BoundedSequence(most) => format!("a list of at most {most}"),
        Arity::One | Arity::UnboundedSequence => "a list".to_owned(),
    }
}

fn text(literal: &Literal) -> Result<&str, EncodeError> {
    match literal {
        Literal::Text(text) | Literal::Scalar(text) => Ok(text),
        other => Err(EncodeError::new("a text", other.noun())),
    }
}

/// A plain value.
pub(super) fn plain(kind: Primitive, literal: &Literal) -> Result<Plain, EncodeError> {
    macro_rules! integer {
        ($number:ty) => {{
            let number = match literal {
                Literal::Integer(number) => Some(*number),
                Literal::Decimal(text) | Literal::Scalar(text) => whole_number(text),
                _ => None,
            };
            match number.and_then(|number| <$number>::try_from(number).ok()) {
                Some(number) => Plain::of_bytes(kind, &number.to_le_bytes()),
                None => {
                    let expected = format!("a whole number in {}..{}", <$number>::MIN, <$number>::MAX);
                    return Err(EncodeError::new(expected, literal.noun()));
                }
            }
        }};
    }
    Ok(match kind {
        Primitive::Boolean => match truth(literal) {
            Some(value) => Plain::of_bytes(kind, &[u8::from(value)]),
            None => return Err(EncodeError::new("true or false", literal.noun())),
        },
        Primitive::Int8 => integer!(i8),
        Primitive::Uint8 | Primitive::Char | Primitive::Byte => integer!(u8),
        Primitive::Int16 => integer!(i16),
        Primitive::Uint16 | Primitive::Wchar => integer!(u16),
        Primitive::Int32 => integer!(i32),
        Primitive::Uint32 => integer!(u32),
        Primitive::Int64 => integer!(i64),
        Primitive::Uint64 => integer!(u64),
        Primitive::Float => Plain::of_bytes(kind, &single(literal)?.to_le_bytes()),
        Primitive::Double => Plain::of_bytes(kind, &double(literal)?.to_le_bytes()),
        Primitive::LongDouble => Plain::of_bytes(kind, &double_to_quad(double(literal)?).to_le_bytes()),
    })
}

fn truth(literal: &Literal) -> Option<bool> {
    match literal {
        Literal::Bool(value) => Some(*value),
        Literal::Scalar(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some(true),
            "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number as YAML and `.msg` files have it: decimal, or after `0x`, `0o`, `0b`.
fn whole_number(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let prefixes = [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2)];
    let in_base = prefixes
        .iter()
        .find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, *base)));
    let (digits, base) = in_base.unwrap_or((digits, 10));
    if digits.starts_with(['-', '+']) {
        return None;
    }
    // As many digits as 128 bits hold, without the sign's bit.
    i128::from_str_radix(digits, base)
        .ok()
        .map(|number| sign * number)
}

/// Numbers that are not finite, as JSON texts and YAML have them.
fn not_finite(literal: &Literal) -> Option<f64> {
    let text = match literal {
        Literal::Text(text) => text.as_str(),
        Literal::Scalar(text) => text.trim_start_matches('+'),
        _ => return None,
    };
    Some(match text {
        "NaN" | ".nan" | ".NaN" | ".NAN" | "nan" => f64::NAN,
        "Infinity" | ".inf" | ".Inf" | ".INF" | "inf" => f64::INFINITY,
        "-Infinity" | "-.inf" | "-.Inf" | "-.INF" | "-inf" => f64::NEG_INFINITY,
        _ => return None,
    })
}

/// A number of a YAML scalar, in the width of the field.
fn finite<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_number = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|_| is_number)
}

fn double(literal: &Literal) -> Result<f64, EncodeError> {
    let number = match literal {
        Literal::Float(number) => return Ok(*number),
        Literal::Integer(number) => Some(*number as f64),
        Literal::Decimal(text) | Literal::Scalar(text) => {
            finite(text).or_else(|| whole_number(text).map(|number| number as f64))
        }
        _ => None,
    };
    number
        // Texts beyond the range become infinite.
        .filter(|number| number.is_finite())
        .or_else(|| not_finite(literal))
        .ok_or_else(|| EncodeError::new("a number", literal.noun()))
}

fn single(literal: &Literal) -> Result<f32, EncodeError> {
    let number = match literal {
        Literal::Decimal(text) | Literal::Scalar(text) => finite(text),
        _ => None,
    };
    let number = match number {
        Some(number) => number,
        None => {
            let number = double(literal)?;
            if number.is_infinite() || number.is_nan() {
                return Ok(number as f32);
            }
            number as f32
        }
    };
    if number.is_finite() {
        return Ok(number);
    }
    let expected = format!("a number in {:e}..{:e}", f32::MIN, f32::MAX);
    Err(EncodeError::new(expected, literal.noun()))
}

/// A double as IEEE 754 binary128, the CDR form of a `long double`, without rounding.
fn double_to_quad(value: f64) -> u128 {
    let bits = value.to_bits();
    let sign = u128::from(bits >> 63) << 127;
    let exponent = (bits >> 52) & 0x7ff;
    let fraction = bits & ((1 << 52) - 1);
    let (exponent, fraction) = match (exponent, fraction) {
        (0, 0) => (0, 0),
        (0x7ff, fraction) => (0x7fff, fraction),
        // Below 2^-1022: the first bit that is set becomes the one before the point.
        (0, fraction) => {
            let shift = fraction.leading_zeros() - 11;
            let exponent = 16383 - 1022 - u64::from(shift);
            (exponent, (fraction << shift) & ((1 << 52) - 1))
        }
        (exponent, fraction) => (exponent + 16383 - 1023, fraction),
    };
    sign | (u128::from(exponent) << 112) | (u128::from(fraction) << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_become_long_doubles_and_come_back() {
        for value in [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.1,
            1e300,
            f64::MIN_POSITIVE,
            5e-324,
            3e-310,
            f64::INFINITY,
        ] {
            let quad = Plain::of_bytes(Primitive::LongDouble, &double_to_quad(value).to_le_bytes());
            let crate::dynamic::Scalar::F64(back) = quad.scalar() else {
                panic!("a long double is read as a double");
            };
            assert_eq!(back.to_bits(), value.to_bits(), "{value:e}");
        }
    }

    #[test]
    fn whole_numbers_have_the_notations_of_python() {
        let cases = [
            ("12", Some(12)),
            ("-0x1f", Some(-31)),
            ("+7", Some(7)),
            ("0b101", Some(5)),
            ("0o17", Some(15)),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("1.0", None),
            ("", None),
            ("--1", None),
            ("0x-1", None),
            ("1e3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(whole_number(text), expected, "{text}");
        }
    }
}
