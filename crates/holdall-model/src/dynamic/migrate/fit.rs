//! Whether values of one plain type are values of another, and how single values become so: exactly, or rounded where a rule allows it.

use crate::{
    dynamic::{
        ElementPlan, EncodeError, FieldPlan, Scalar, TypePlan,
        encode::{Converter, Literal, Plain, Plains, Value, is_same},
    },
    interface::{Arity, Primitive},
};

/// How the elements of a field become those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// Unchanged.
    Same,
    /// Structs, by the pair at this place.
    Pair(usize),
    /// Numbers and booleans of another kind.
    Number { to: Primitive, is_lossy: bool },
}

/// Whether every value of one kind is a value of the other: `Some(true)` if its bytes are the same.
pub(super) fn widens(from: Primitive, to: Primitive) -> Option<bool> {
    // Bits for whole numbers, and whether they are signed.
    let bits = |kind| match kind {
        Primitive::Uint8 | Primitive::Byte | Primitive::Char => (8, false),
        Primitive::Uint16 | Primitive::Wchar => (16, false),
        Primitive::Uint32 => (32, false),
        Primitive::Uint64 => (64, false),
        Primitive::Int8 => (7, true),
        Primitive::Int16 => (15, true),
        Primitive::Int32 => (31, true),
        Primitive::Int64 => (63, true),
        Primitive::Float => (24, true),
        Primitive::Double => (53, true),
        Primitive::LongDouble => (113, true),
        Primitive::Boolean => (0, false),
    };
    let [(old, is_signed), (new, to_signed)] = [bits(from), bits(to)];
    let is_wider = old <= new && (to_signed || !is_signed) && old > 0;
    match is_same(from, to) {
        true => Some(true),
        false => (is_wider && (is_float(to) || !is_float(from))).then_some(false),
    }
}

pub(super) const fn is_float(kind: Primitive) -> bool {
    matches!(kind, Primitive::Float | Primitive::Double | Primitive::LongDouble)
}

/// Whether every list of one length is a list of the other; `None` where only one of them is a list.
pub(super) const fn lengthens(from: Arity, to: Arity) -> Option<bool> {
    Some(match (from, to) {
        (Arity::One, Arity::One) => true,
        (Arity::One, _) | (_, Arity::One) => return None,
        (Arity::Array(from), Arity::Array(to)) => from == to,
        (_, Arity::UnboundedSequence) => true,
        (Arity::Array(from) | Arity::BoundedSequence(from), Arity::BoundedSequence(to)) => from <= to,
        _ => false,
    })
}

/// Numbers and booleans as those of another kind; all else unchanged.
pub(super) fn convert(conversion: Conversion, value: Value) -> Result<Value, EncodeError> {
    let Conversion::Number { to, is_lossy } = conversion else {
        return Ok(value);
    };
    match value {
        Value::Plain(plain) => fitted(&literal_of(plain), to, is_lossy).map(Value::Plain),
        Value::Plains(plains) => listed(to, plains.iter().map(literal_of), is_lossy),
        value => Ok(value),
    }
}

/// The value of a field of calculated values: one, or all of a list.
pub(super) fn of_literals(
    plan: &TypePlan,
    field: &FieldPlan,
    literals: Vec<Literal>,
    is_lossy: bool,
) -> Result<Value, EncodeError> {
    match (field.arity, field.element, literals.as_slice()) {
        (Arity::One, ElementPlan::Primitive(kind), [one]) => fitted(one, kind, is_lossy).map(Value::Plain),
        (Arity::One, ElementPlan::Text { .. }, [Literal::Integer(number)]) => {
            Converter::new(plan).element(field, &Literal::Text(number.to_string()))
        }
        (Arity::One, _, [one]) => Converter::new(plan).element(field, one),
        (Arity::One, ..) => Err(EncodeError::new("one value", literals.len().to_string())),
        (_, ElementPlan::Primitive(kind), _) => listed(kind, literals.into_iter(), is_lossy),
        _ => Converter::new(plan).field(field, &Literal::List(literals)),
    }
}

fn listed(
    kind: Primitive,
    literals: impl Iterator<Item = Literal>,
    is_lossy: bool,
) -> Result<Value, EncodeError> {
    let mut plains = Plains::new(kind);
    for literal in literals {
        let fits = plains.push(fitted(&literal, kind, is_lossy)?);
        debug_assert!(fits, "it was made of this kind");
    }
    Ok(Value::Plains(plains))
}

pub(super) fn literal_of(plain: Plain) -> Literal {
    match plain.scalar() {
        Scalar::Bool(value) => Literal::Bool(value),
        Scalar::I8(value) => Literal::Integer(value.into()),
        Scalar::U8(value) => Literal::Integer(value.into()),
        Scalar::I16(value) => Literal::Integer(value.into()),
        Scalar::U16(value) => Literal::Integer(value.into()),
        Scalar::I32(value) => Literal::Integer(value.into()),
        Scalar::U32(value) => Literal::Integer(value.into()),
        Scalar::I64(value) => Literal::Integer(value.into()),
        Scalar::U64(value) => Literal::Integer(value.into()),
        Scalar::F32(value) => Literal::Float(value.into()),
        Scalar::F64(value) => Literal::Float(value),
        // A plain value has no text.
        Scalar::Text(_) | Scalar::Wide(_) => Literal::Null,
    }
}

/// A number or boolean as one of another kind.
fn fitted(literal: &Literal, kind: Primitive, is_lossy: bool) -> Result<Plain, EncodeError> {
    let literal = match *literal {
        Literal::Bool(value) if kind != Primitive::Boolean => Literal::Integer(value.into()),
        Literal::Integer(value @ (0 | 1)) if kind == Primitive::Boolean => Literal::Bool(value == 1),
        Literal::Float(value)
            if !is_float(kind) && (value.fract() == 0.0 || is_lossy && value.is_finite()) =>
        {
            Literal::Integer(value.round() as i128)
        }
        ref other => other.clone(),
    };
    let plain = Plain::of_literal(kind, &literal)?;
    let is_exact = match (&literal, plain.scalar()) {
        (Literal::Float(value), Scalar::F32(rounded)) => f64::from(rounded) == *value || value.is_nan(),
        (Literal::Integer(value), Scalar::F32(rounded)) => rounded as i128 == *value,
        (Literal::Integer(value), Scalar::F64(rounded)) => rounded as i128 == *value,
        _ => true,
    };
    if is_exact || is_lossy {
        return Ok(plain);
    }
    Err(EncodeError::new(
        "a value that the type holds exactly, or lossy: true",
        literal.noun(),
    ))
}
