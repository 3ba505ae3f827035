//! The bytes around a message's bulk: a valid CDR encoding of a type whose main sequence has the requested
//! number of bytes.

use holdall_model::interface::{
    Arity, Definition, Element, Field, IndividualTypeDescription, InterfaceError, InterfaceSource, Primitive,
    SourceFormat, bundle::Bundle,
};
use std::{borrow::Cow, collections::BTreeMap};

/// Encapsulation of little-endian CDR.
const ENCAPSULATION: [u8; 4] = [0, 1, 0, 0];

/// The definition of [`super::super::config::MSG_TYPE_DEFAULT`], which belongs to no ROS distribution.
const BYTE_ARRAY: &str = "byte[] data\n";

/// A message whose fixed arrays are larger than this is not a realistic benchmark.
const ENCODED_BYTES_MAX: usize = 64 << 20;

/// A type that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The definition is not available.
    #[error("cannot make messages of type {type_name}: {source}")]
    Definition {
        /// The type.
        type_name: String,
        /// The reason.
        source: InterfaceError,
    },
    /// The type's fixed arrays are too large.
    #[error(
        "cannot make messages of type {type_name}: a value of it takes more than {ENCODED_BYTES_MAX} bytes"
    )]
    TooLarge {
        /// The type.
        type_name: String,
    },
}

/// A message of a type with all fields zero or empty, except its first sequence of plain values, which holds
/// the bulk.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The type's definition with all its dependencies.
    pub definition: Definition,
    /// Bytes before the bulk.
    pub head: Vec<u8>,
    /// Length of the bulk; less than requested by less than an element, 0 where the type has no sequence.
    pub bulk_bytes: usize,
    /// Bytes after the bulk.
    pub tail: Vec<u8>,
}

impl Frame {
    /// The frame of `type_name` with a bulk of `bulk_bytes`.
    ///
    /// # Errors
    /// A type whose definition is not available, or whose fixed part is too large.
    pub fn new(type_name: &str, bulk_bytes: usize) -> Result<Self, FrameError> {
        let definition = definition(type_name).map_err(|source| FrameError::Definition {
            type_name: type_name.to_owned(),
            source,
        })?;
        let description = definition.description();
        let mut encoder = Encoder {
            types: description
                .referenced_type_descriptions
                .iter()
                .map(|nested| (nested.type_name.as_str(), *nested))
                .collect(),
            out: ENCAPSULATION.to_vec(),
            wanted_bytes: bulk_bytes,
            bulk: None,
            is_too_large: false,
        };
        encoder.structure(description.type_description);
        if encoder.is_too_large {
            return Err(FrameError::TooLarge {
                type_name: type_name.to_owned(),
            });
        }
        let (at, bulk_bytes) = encoder.bulk.unwrap_or((encoder.out.len(), 0));
        let tail = encoder.out.split_off(at);
        let head = encoder.out;
        Ok(Self {
            definition,
            head,
            bulk_bytes,
            tail,
        })
    }

    /// Length of a whole message.
    pub fn message_bytes(&self) -> usize {
        self.head.len() + self.bulk_bytes + self.tail.len()
    }
}

fn definition(type_name: &str) -> Result<Definition, InterfaceError> {
    if type_name != super::super::config::MSG_TYPE_DEFAULT {
        return Bundle::embedded().define(type_name);
    }
    Definition::resolve(type_name, |wanted| {
        (wanted == type_name).then_some(InterfaceSource {
            format: SourceFormat::Msg,
            text: Cow::Borrowed(BYTE_ARRAY),
        })
    })
}

/// Writes values of zero; the bulk is not written to `out`, only its position is recorded.
struct Encoder<'a> {
    types: BTreeMap<&'a str, &'a IndividualTypeDescription>,
    out: Vec<u8>,
    wanted_bytes: usize,
    /// Offset in `out` and length.
    bulk: Option<(usize, usize)>,
    is_too_large: bool,
}

impl Encoder<'_> {
    fn structure(&mut self, structure: &IndividualTypeDescription) {
        for field in &structure.fields {
            self.field(field);
        }
    }

    fn field(&mut self, field: &Field) {
        match field.field_type.arity {
            Arity::One => self.element(&field.field_type.element),
            Arity::Array(count) => {
                for _ in 0..count {
                    self.element(&field.field_type.element);
                    if self.is_too_large {
                        return;
                    }
                }
            }
            Arity::BoundedSequence(_) => self.count(0),
            Arity::UnboundedSequence => self.sequence(&field.field_type.element),
        }
    }

    /// Empty, but for the first one of plain values.
    fn sequence(&mut self, element: &Element) {
        let bytes = match element {
            Element::Primitive(primitive) if self.bulk.is_none() => size_of_primitive(*primitive),
            _ => return self.count(0),
        };
        // A count is 32 bits wide.
        let count = u32::try_from(self.wanted_bytes / bytes).unwrap_or(u32::MAX);
        self.count(count);
        if count > 0 {
            self.align(bytes);
        }
        self.bulk = Some((self.out.len(), count as usize * bytes));
    }

    fn element(&mut self, element: &Element) {
        match element {
            Element::Primitive(primitive) => {
                let bytes = size_of_primitive(*primitive);
                self.align(bytes);
                self.out.resize(self.out.len() + bytes, 0);
            }
            // An empty string is its closing zero; an empty wide one has none.
            Element::String { wide: false, .. } => {
                self.count(1);
                self.out.push(0);
            }
            Element::String { wide: true, .. } => self.count(0),
            Element::Nested(name) => {
                if let Some(nested) = self.types.get(name.as_str()).copied() {
                    self.structure(nested);
                }
            }
        }
        self.is_too_large |= self.out.len() > ENCODED_BYTES_MAX;
    }

    fn count(&mut self, count: u32) {
        self.align(4);
        self.out.extend_from_slice(&count.to_le_bytes());
    }

    /// Alignment counts from the end of the encapsulation, including the bulk, which is not in `out`.
    fn align(&mut self, to: usize) {
        let bulk = self.bulk.map_or(0, |(_, bytes)| bytes);
        let at = self.out.len() - ENCAPSULATION.len() + bulk;
        self.out.resize(self.out.len() + at.next_multiple_of(to) - at, 0);
    }
}

/// Bytes of a value, and its alignment: no implementation that sends `long double` (16 bytes) aligns it to 8.
const fn size_of_primitive(primitive: Primitive) -> usize {
    match primitive {
        Primitive::Int8 | Primitive::Uint8 | Primitive::Char | Primitive::Boolean | Primitive::Byte => 1,
        Primitive::Int16 | Primitive::Uint16 | Primitive::Wchar => 2,
        Primitive::Int32 | Primitive::Uint32 | Primitive::Float => 4,
        Primitive::Int64 | Primitive::Uint64 | Primitive::Double => 8,
        Primitive::LongDouble => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::config::MSG_TYPE_DEFAULT;

    #[test]
    fn a_byte_array_is_a_count_and_its_bytes() {
        let frame = Frame::new(MSG_TYPE_DEFAULT, 1000).unwrap();
        assert_eq!(frame.head, [0, 1, 0, 0, 0xE8, 3, 0, 0]);
        assert_eq!((frame.bulk_bytes, frame.tail.len()), (1000, 0));
    }

    /// stamp 8, frame_id 4 + 1, height at 16, width at 20, encoding 4 + 1, is_bigendian at 29, step at 32,
    /// count at 36.
    #[test]
    fn an_image_holds_its_pixels_in_data() {
        let frame = Frame::new("sensor_msgs/msg/Image", 6_220_800).unwrap();
        assert_eq!(frame.head.len(), 4 + 40);
        assert_eq!(frame.head[40..], 6_220_800_u32.to_le_bytes());
        assert_eq!(frame.message_bytes(), 44 + 6_220_800);
    }

    /// The bulk of a scan is its ranges, `float32[]`; the intensities follow as an empty sequence.
    #[test]
    fn elements_wider_than_a_byte_are_counted() {
        let frame = Frame::new("sensor_msgs/msg/LaserScan", 1002).unwrap();
        assert_eq!(frame.bulk_bytes, 1000);
        assert_eq!(frame.head[frame.head.len() - 4..], 250_u32.to_le_bytes());
        assert_eq!(frame.tail, [0; 4]);
    }

    #[test]
    fn types_without_a_sequence_have_their_own_size() {
        let frame = Frame::new("sensor_msgs/msg/Imu", 400).unwrap();
        assert_eq!((frame.bulk_bytes, frame.tail.len()), (0, 0));
        // Header 13, padded to 16; orientation 32 + 72, two vectors 24 + 72 each.
        assert_eq!(frame.message_bytes(), 4 + 16 + 104 + 96 + 96);
    }

    #[test]
    fn unknown_types_are_refused() {
        let error = Frame::new("no_such/msg/Thing", 1).unwrap_err().to_string();
        assert!(error.contains("no_such/msg/Thing"), "{error}");
    }
}
