//! Evaluates a checked expression on the values that were found.

use crate::dynamic::{Scalar, encode::Literal, select::Found};
use regex::Regex;
use std::{borrow::Cow, cmp::Ordering};

/// A part of a checked expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Or(Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    Match {
        text: Box<Node>,
        regex: Regex,
        /// Whether a match makes it true (`=~`) or false (`!~`).
        wanted: bool,
    },
    Calculate(Operator, Box<Node>, Box<Node>),
    Negative(Box<Node>),
    Absolute(Box<Node>),
    /// Number of characters of a text.
    Characters(Box<Node>),
    Slot(usize),
    Integer(i128),
    Float(f64),
    Text(String),
    Bool(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn from_sign(sign: &str) -> Option<Self> {
        Some(match sign {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// `None`: the values have no order, because one is NaN.
    fn holds(self, order: Option<Ordering>) -> bool {
        match (self, order) {
            (Self::Unequal, order) => order != Some(Ordering::Equal),
            (_, None) => false,
            (Self::Equal, Some(order)) => order.is_eq(),
            (Self::Less, Some(order)) => order.is_lt(),
            (Self::LessOrEqual, Some(order)) => order.is_le(),
            (Self::Greater, Some(order)) => order.is_gt(),
            (Self::GreaterOrEqual, Some(order)) => order.is_ge(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(crate) fn from_sign(sign: &str) -> Option<Self> {
        Some(match sign {
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Remainder,
            _ => return None,
        })
    }
}

/// An intermediate value.
#[derive(Clone, Debug)]
enum Value<'a> {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Cow<'a, str>),
}

/// The result of a boolean node.
pub(super) fn boolean(node: &Node, slots: &[Found<'_>]) -> bool {
    match node {
        Node::Or(left, right) => boolean(left, slots) || boolean(right, slots),
        Node::And(left, right) => boolean(left, slots) && boolean(right, slots),
        Node::Not(inner) => !boolean(inner, slots),
        Node::Bool(value) => *value,
        Node::Compare(comparison, left, right) => compares(*comparison, left, right, slots),
        Node::Match { text, regex, wanted } => {
            let matches = |value: Value<'_>| match value {
                Value::Text(text) => regex.is_match(&text) == *wanted,
                _ => false,
            };
            any(text, slots, matches)
        }
        node => matches!(single(node, slots), Some(Value::Bool(true))),
    }
}

/// The value of a node that is a number or a boolean; `None` if a list is too short.
pub(super) fn number(node: &Node, slots: &[Found<'_>]) -> Option<f64> {
    match single(node, slots)? {
        Value::Bool(value) => Some(f64::from(u8::from(value))),
        value => float(&value),
    }
}

/// All values of a node, in order; none if a list is too short.
pub(super) fn literals(node: &Node, slots: &[Found<'_>]) -> Vec<Literal> {
    let mut found = Vec::new();
    each(node, slots, &mut |value| {
        found.push(match value {
            Value::Bool(value) => Literal::Bool(value),
            Value::Integer(value) => Literal::Integer(value),
            Value::Float(value) => Literal::Float(value),
            Value::Text(text) => Literal::Text(text.into_owned()),
        });
        true
    });
    found
}

/// One side may have many values; the other has one or none.
fn compares(comparison: Comparison, left: &Node, right: &Node, slots: &[Found<'_>]) -> bool {
    if has_many(left, slots) {
        let Some(right) = single(right, slots) else {
            return false;
        };
        return any(left, slots, |left| comparison.holds(order(&left, &right)));
    }
    let Some(left) = single(left, slots) else {
        return false;
    };
    any(right, slots, |right| comparison.holds(order(&left, &right)))
}

fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (left, right) => float(left)?.partial_cmp(&float(right)?),
    }
}

fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// True when a slot below has more than one value.
fn has_many(node: &Node, slots: &[Found<'_>]) -> bool {
    match node {
        Node::Slot(slot) => matches!(slots[*slot], Found::Many(_) | Found::All(_)),
        Node::Calculate(_, left, right) => has_many(left, slots) || has_many(right, slots),
        Node::Negative(inner) | Node::Absolute(inner) | Node::Characters(inner) => has_many(inner, slots),
        _ => false,
    }
}

/// Whether a condition holds for any of a node's values.
fn any<'s>(node: &'s Node, slots: &'s [Found<'_>], mut holds: impl FnMut(Value<'s>) -> bool) -> bool {
    let mut found = false;
    each(node, slots, &mut |value| {
        found = found || holds(value);
        !found
    });
    found
}

/// Calls `next` with each value of a node until it returns false.
fn each<'s>(node: &'s Node, slots: &'s [Found<'_>], next: &mut dyn FnMut(Value<'s>) -> bool) {
    match node {
        Node::Slot(slot) => match &slots[*slot] {
            Found::Many(values) => {
                values.iter().map(|scalar| value(*scalar)).all(&mut *next);
            }
            Found::All(values) => {
                values.iter().map(value).all(&mut *next);
            }
            Found::Nothing | Found::One(_) | Found::Length(_) => {
                single(node, slots).map(&mut *next);
            }
        },
        Node::Negative(inner) => each(inner, slots, &mut |value| negative(value).is_none_or(&mut *next)),
        Node::Absolute(inner) => each(inner, slots, &mut |value| absolute(value).is_none_or(&mut *next)),
        Node::Characters(inner) => each(inner, slots, &mut |value| {
            characters(&value).is_none_or(&mut *next)
        }),
        Node::Calculate(operator, left, right) if has_many(left, slots) => {
            if let Some(right) = single(right, slots) {
                each(left, slots, &mut |left| {
                    calculate(*operator, &left, &right).is_none_or(&mut *next)
                });
            }
        }
        Node::Calculate(operator, left, right) => {
            if let Some(left) = single(left, slots) {
                each(right, slots, &mut |right| {
                    calculate(*operator, &left, &right).is_none_or(&mut *next)
                });
            }
        }
        node => {
            single(node, slots).map(next);
        }
    }
}

/// The value of a node that has one; `None` if a list is too short.
fn single<'s>(node: &'s Node, slots: &'s [Found<'_>]) -> Option<Value<'s>> {
    match node {
        Node::Integer(value) => Some(Value::Integer(*value)),
        Node::Float(value) => Some(Value::Float(*value)),
        Node::Text(text) => Some(Value::Text(Cow::Borrowed(text))),
        Node::Slot(slot) => match &slots[*slot] {
            Found::One(scalar) => Some(value(*scalar)),
            Found::Length(count) => Some(Value::Integer((*count).into())),
            Found::Nothing | Found::Many(_) | Found::All(_) => None,
        },
        Node::Negative(inner) => negative(single(inner, slots)?),
        Node::Absolute(inner) => absolute(single(inner, slots)?),
        Node::Characters(inner) => characters(&single(inner, slots)?),
        Node::Calculate(operator, left, right) => {
            calculate(*operator, &single(left, slots)?, &single(right, slots)?)
        }
        Node::Or(..)
        | Node::And(..)
        | Node::Not(_)
        | Node::Compare(..)
        | Node::Match { .. }
        | Node::Bool(_) => Some(Value::Bool(boolean(node, slots))),
    }
}

fn value(scalar: Scalar<'_>) -> Value<'_> {
    match scalar {
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::I8(value) => Value::Integer(value.into()),
        Scalar::U8(value) => Value::Integer(value.into()),
        Scalar::I16(value) => Value::Integer(value.into()),
        Scalar::U16(value) => Value::Integer(value.into()),
        Scalar::I32(value) => Value::Integer(value.into()),
        Scalar::U32(value) => Value::Integer(value.into()),
        Scalar::I64(value) => Value::Integer(value.into()),
        Scalar::U64(value) => Value::Integer(value.into()),
        Scalar::F32(value) => Value::Float(value.into()),
        Scalar::F64(value) => Value::Float(value),
        Scalar::Text(text) => Value::Text(text.to_str()),
        Scalar::Wide(text) => Value::Text(Cow::Owned(text.to_text())),
    }
}

fn negative(value: Value<'_>) -> Option<Value<'_>> {
    match value {
        Value::Integer(value) => Some(Value::Integer(value.checked_neg()?)),
        Value::Float(value) => Some(Value::Float(-value)),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

fn absolute(value: Value<'_>) -> Option<Value<'_>> {
    match value {
        Value::Integer(value) => Some(Value::Integer(value.checked_abs()?)),
        Value::Float(value) => Some(Value::Float(value.abs())),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

fn characters<'a>(value: &Value<'_>) -> Option<Value<'a>> {
    match value {
        Value::Text(text) => Some(Value::Integer(text.chars().count() as i128)),
        _ => None,
    }
}

/// Integers stay integers where they can; a result beyond 127 bits, and each division with a remainder, is a float.
fn calculate<'a>(operator: Operator, left: &Value<'_>, right: &Value<'_>) -> Option<Value<'a>> {
    if let (Value::Integer(left), Value::Integer(right)) = (left, right) {
        let exact = match operator {
            Operator::Add => left.checked_add(*right),
            Operator::Subtract => left.checked_sub(*right),
            Operator::Multiply => left.checked_mul(*right),
            Operator::Remainder => left.checked_rem(*right),
            Operator::Divide if left.checked_rem(*right) == Some(0) => left.checked_div(*right),
            Operator::Divide => None,
        };
        if let Some(exact) = exact {
            return Some(Value::Integer(exact));
        }
    }
    let (left, right) = (float(left)?, float(right)?);
    Some(Value::Float(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    }))
}
