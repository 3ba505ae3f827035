//! Lists of plain values as views of a payload.

use super::value::{Scalar, scalar_of, size_of};
use crate::interface::Primitive;

/// An array or a sequence of numbers or booleans, as the payload holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Primitives<'a> {
    pub(super) kind: Primitive,
    pub(super) bytes: &'a [u8],
    pub(super) little_endian: bool,
}

impl<'a> Primitives<'a> {
    /// The kind of its values.
    pub fn kind(self) -> Primitive {
        self.kind
    }

    /// Number of values.
    pub fn len(self) -> usize {
        self.bytes.len() / size_of(self.kind)
    }

    /// True for an empty list.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of the values, in the byte order of [`Primitives::is_little_endian`].
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Byte order of numbers of more than one byte.
    pub fn is_little_endian(self) -> bool {
        self.little_endian
    }

    /// True for `uint8`, `byte` and `char`: raw bytes.
    pub fn is_octets(self) -> bool {
        is_octet(self.kind)
    }

    /// The value at `index`; `None` beyond the end.
    pub fn get(self, index: usize) -> Option<Scalar<'a>> {
        let size = size_of(self.kind);
        let begin = index.checked_mul(size)?;
        let bytes = self.bytes.get(begin..begin.checked_add(size)?)?;
        Some(scalar_of(self.kind, bytes, self.little_endian))
    }

    /// The first values, at most `count`.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        let bytes = count.saturating_mul(size_of(self.kind)).min(self.bytes.len());
        Self {
            bytes: &self.bytes[..bytes],
            ..self
        }
    }

    /// All values in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Scalar<'a>> {
        self.bytes
            .chunks_exact(size_of(self.kind))
            .map(move |bytes| scalar_of(self.kind, bytes, self.little_endian))
    }
}

/// True for the one-byte kinds that hold a raw byte, not a number or a boolean.
pub(super) const fn is_octet(kind: Primitive) -> bool {
    matches!(kind, Primitive::Uint8 | Primitive::Byte | Primitive::Char)
}
