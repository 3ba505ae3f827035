//! Encodes values as CDR by a stored definition: the counterpart of the decoder.
//!
//! - [`TypePlan::encode_json`] and [`TypePlan::encode_yaml`] make a payload of a text. Fields that the text
//!   leaves out have the default of their definition, else zero, an empty text, an empty list.
//! - [`TypePlan::value_of`] makes a [`Value`] of a [`Literal`], [`TypePlan::decode`] of a payload;
//!   [`TypePlan::encode`] makes a payload of a `Value`.
//!
//! The payload that a value was decoded from comes back byte for byte, if its padding is zero, its empty texts
//! have their zero, and it ends with its last field.
//!
//! Crates for CDR (`cdr-encoding`, `cdr`) serialize Rust types that are known when the program is compiled; here
//! the type is only known when the bag is open, so values are written along its [`TypePlan`].
//!
//! A number out of range, a text or a list beyond its bound, an array of another length, and the name of a
//! field that the type does not have are refused with the path of the field. Payloads are bounded by
//! [`PAYLOAD_BYTES_MAX`], values by [`VALUE_BYTES_MAX`], texts by [`LITERAL_BYTES_MAX`].

mod convert;
mod default;
mod json;
mod literal;
mod tree;
mod value;
mod writer;

#[cfg(test)]
pub(super) mod tests;

pub use default::constants;
pub use literal::{LITERAL_BYTES_MAX, Literal, LiteralError};
pub use tree::Decoded;
pub use value::{Plain, Plains, Value};

pub(super) use convert::Converter;
pub(super) use default::DefaultText;
pub(super) use value::is_same;
pub(super) use writer::Writer;

use super::{EncodeError, TypePlan};

/// Longest payload that is made, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Most memory for the values of one message, in bytes: a definition of a few lines can have billions of
/// elements.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

/// How a payload is encoded. The default is the form that ROS 2 writes: plain CDR, little endian, wide
/// characters of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    /// Byte order of numbers.
    pub little_endian: bool,
    /// Plain XCDR2 instead of XCDR1.
    pub second_version: bool,
    /// Size of a character of a `wstring`.
    pub wide_slots: WideSlots,
}

impl Default for Representation {
    fn default() -> Self {
        Self {
            little_endian: true,
            second_version: false,
            wide_slots: WideSlots::Four,
        }
    }
}

/// Bytes that a 16-bit character of a `wstring` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WideSlots {
    /// Two, as XTypes has it (Fast-CDR from version 2 where it is used without ROS 2).
    Two,
    /// Four (ROS 2 over Fast DDS and Cyclone DDS).
    Four,
}

/// Why a text is not a message of a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeTextError {
    /// The text is neither JSON nor YAML, or beyond the bounds.
    #[error(transparent)]
    Literal(#[from] LiteralError),
    /// A value that does not fit the type.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl TypePlan {
    /// The payload of a message that is written as JSON, as ROS 2 encodes it.
    ///
    /// # Errors
    /// A text that is not JSON, or a value that does not fit the type.
    pub fn encode_json(&self, text: &str) -> Result<Vec<u8>, EncodeTextError> {
        self.encode_literal(&Literal::from_json(text)?)
    }

    /// The payload of a message that is written as YAML, as ROS 2 encodes it.
    ///
    /// # Errors
    /// A text that is not YAML, or a value that does not fit the type.
    pub fn encode_yaml(&self, text: &str) -> Result<Vec<u8>, EncodeTextError> {
        self.encode_literal(&Literal::from_yaml(text)?)
    }

    fn encode_literal(&self, literal: &Literal) -> Result<Vec<u8>, EncodeTextError> {
        let mut payload = Vec::new();
        let value = self.value_of(literal)?;
        self.encode(&value, Representation::default(), &mut payload)?;
        Ok(payload)
    }

    /// Encodes a value; `payload` is overwritten.
    ///
    /// # Errors
    /// A value that does not fit the type, or a payload that would be too long. The content of `payload` is then
    /// undefined.
    pub fn encode(
        &self,
        value: &Value,
        representation: Representation,
        payload: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut writer = Writer::begin(payload, representation, [0, 0]);
        writer
            .structure(self, self.root(), value)
            .map_err(|error| error.in_type(self.type_name()))
    }
}
