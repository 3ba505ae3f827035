//! Values of messages that are held in memory, bit for bit.

use super::Literal;
use crate::{
    dynamic::{
        EncodeError,
        value::{Scalar, scalar_of, size_of},
    },
    interface::Primitive,
};

/// A value: a whole message or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, a boolean or a character.
    Plain(Plain),
    /// All elements of an array or a sequence of plain values.
    Plains(Plains),
    /// The bytes of a `string`, without the zero at its end.
    Text(Vec<u8>),
    /// The 16-bit characters of a `wstring`.
    Wide(Vec<u16>),
    /// The fields of a struct, in the order of its definition; none for a struct that was defined without fields.
    Struct(Vec<Value>),
    /// All elements of an array or a sequence of texts or structs.
    List(Vec<Value>),
}

impl Value {
    /// How an error names it.
    pub(super) fn noun(&self) -> String {
        match self {
            Self::Plain(plain) => format!("a {}", crate::dynamic::plan::primitive_name(plain.kind)),
            Self::Plains(plains) => format!(
                "{} values of {}",
                plains.len(),
                crate::dynamic::plan::primitive_name(plains.kind)
            ),
            Self::Text(_) => "a string".to_owned(),
            Self::Wide(_) => "a wstring".to_owned(),
            Self::Struct(fields) => format!("a struct of {} fields", fields.len()),
            Self::List(items) => format!("a list of {}", items.len()),
        }
    }
}

/// A plain value with its kind. As a `uint8`, a `byte` and a `char` it is the same.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Plain {
    pub(super) kind: Primitive,
    /// Its bits, the upper ones zero.
    bits: u128,
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        is_same(self.kind, other.kind) && self.bits == other.bits
    }
}

impl Plain {
    /// A value of its bytes, the lowest first.
    pub(super) fn of_bytes(kind: Primitive, little_endian: &[u8]) -> Self {
        let mut bits = [0; 16];
        bits[..little_endian.len()].copy_from_slice(little_endian);
        Self {
            kind,
            bits: u128::from_le_bytes(bits),
        }
    }

    /// The value of this kind that a literal is.
    ///
    /// # Errors
    /// One that it is not: out of range, or no number.
    pub fn of_literal(kind: Primitive, literal: &Literal) -> Result<Self, EncodeError> {
        super::convert::plain(kind, literal)
    }

    /// The kind of value.
    pub const fn kind(self) -> Primitive {
        self.kind
    }

    /// The value; `long double` is rounded.
    pub fn scalar(self) -> Scalar<'static> {
        scalar_of(self.kind, &self.bits.to_le_bytes(), true)
    }

    /// Its bytes, the lowest first; those beyond its size are zero.
    pub(super) const fn bytes(self) -> [u8; 16] {
        self.bits.to_le_bytes()
    }
}

macro_rules! from_numbers {
    ($($number:ty => $kind:ident),*) => {$(
        impl From<$number> for Plain {
            fn from(value: $number) -> Self {
                Self::of_bytes(Primitive::$kind, &value.to_le_bytes())
            }
        }

        impl From<$number> for Value {
            fn from(value: $number) -> Self {
                Self::Plain(value.into())
            }
        }
    )*};
}

from_numbers!(
    i8 => Int8, u8 => Uint8, i16 => Int16, u16 => Uint16, i32 => Int32, u32 => Uint32,
    i64 => Int64, u64 => Uint64, f32 => Float, f64 => Double
);

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Plain(Plain::of_bytes(Primitive::Boolean, &[u8::from(value)]))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// A list of plain values of one kind. As `uint8`, `byte` and `char` they are the same.
#[derive(Clone, Debug, Eq)]
pub struct Plains {
    pub(super) kind: Primitive,
    /// Each value's bytes, the lowest first.
    pub(super) bytes: Vec<u8>,
}

impl PartialEq for Plains {
    fn eq(&self, other: &Self) -> bool {
        is_same(self.kind, other.kind) && self.bytes == other.bytes
    }
}

impl Plains {
    /// The values whose bytes these are, one after another, each with the lowest byte first; `None` when they do not divide into whole
    /// values.
    pub fn of_bytes(kind: Primitive, bytes: Vec<u8>) -> Option<Self> {
        bytes
            .len()
            .is_multiple_of(size_of(kind))
            .then_some(Self { kind, bytes })
    }

    /// An empty list.
    pub const fn new(kind: Primitive) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
        }
    }

    /// The kind of its values.
    pub const fn kind(&self) -> Primitive {
        self.kind
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of(self.kind)
    }

    /// True for an empty list.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a value; false, and nothing is added, when it is of another kind.
    #[must_use]
    pub fn push(&mut self, value: Plain) -> bool {
        let fits = is_same(self.kind, value.kind);
        if fits {
            self.bytes.extend_from_slice(&value.bytes()[..size_of(self.kind)]);
        }
        fits
    }

    /// All values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Plain> {
        self.bytes
            .chunks_exact(size_of(self.kind))
            .map(|bytes| Plain::of_bytes(self.kind, bytes))
    }
}

/// Whether values of two kinds have the same type in Rust and the same bytes: `uint8`, `byte` and `char`.
pub(in crate::dynamic) const fn is_same(one: Primitive, other: Primitive) -> bool {
    const fn group(kind: Primitive) -> Primitive {
        match kind {
            Primitive::Byte | Primitive::Char => Primitive::Uint8,
            Primitive::Wchar => Primitive::Uint16,
            kind => kind,
        }
    }
    group(one) as u8 == group(other) as u8
}
