//! Compiles a pair of definitions into the few operations that re-encode a payload.

use super::{
    definition::{Ros1Arity, Ros1Definition, Ros1Element, Ros1Field},
    matching::{Matching, Step, Structs, structs},
};
use crate::interface::{Arity, Definition, Element, FieldType, InterfaceError, Primitive};
use std::cell::Cell;

/// Most operations of one plan; the largest known types have some hundreds.
const OPERATIONS_MAX: usize = 1 << 14;

/// Most fields that are compiled; nested ones count each time that they occur.
const FIELDS_MAX: u32 = 1 << 16;

/// One operation. ROS 1 packs values without gaps; CDR aligns each to its size, counted from the start of the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The next `bytes` are the same in both from an aligned offset: plain values, and arrays and structs of
    /// them.
    Copy { align: usize, bytes: u64 },
    /// The next `bytes` of ROS 1 are skipped.
    Leave { bytes: u64 },
    /// Zeros for a field that ROS 1 does not have.
    Zeros { align: usize, bytes: u64 },
    /// Seconds and nanoseconds, which ROS 2 has in other ranges than ROS 1.
    Moment { is_duration: bool },
    /// A text: CDR counts and stores a zero after it.
    Text,
    /// An empty text for a field that ROS 1 does not have.
    EmptyText,
    /// A count, and that number of elements of `element_bytes` that are the same in both.
    CopySequence { align: usize, element_bytes: u64 },
    /// A count; the next `body` operations run that many times. Each run reads at least `source_bytes_min`.
    Sequence { body: usize, source_bytes_min: u64 },
    /// The next `body` operations run `count` times.
    Array { count: u64, body: usize },
}

/// The operations that re-encode the payloads of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub type_name: String,
    pub operations: Vec<Operation>,
}

impl Plan {
    /// Compiles the fields that `matching` paired.
    pub fn compile(
        source: &Ros1Definition,
        target: &Definition,
        matching: &Matching<'_>,
    ) -> Result<Self, InterfaceError> {
        let compiler = Compiler {
            source,
            targets: structs(target),
            matching,
            fields: Cell::new(0),
        };
        let mut block = Block::default();
        compiler
            .append_struct(&mut block, source.type_name(), target.type_name())
            .map_err(|TooMany| InterfaceError::TooLarge {
                type_name: target.type_name().to_owned(),
                what: "steps to convert a message",
                limit: OPERATIONS_MAX,
            })?;
        Ok(Self {
            type_name: source.type_name().to_owned(),
            operations: block.operations,
        })
    }
}

/// Nested types that expand into more operations than a plan may have.
struct TooMany;

/// Operations so far, and the fewest ROS 1 bytes that they read.
#[derive(Default)]
struct Block {
    operations: Vec<Operation>,
    source_bytes_min: u64,
    /// Operations that belong to a loop or precede one: never extended.
    closed: usize,
}

impl Block {
    fn push(&mut self, operation: Operation, source_bytes: u64) -> Result<(), TooMany> {
        self.source_bytes_min = self.source_bytes_min.saturating_add(source_bytes);
        let open = self.operations[self.closed..].last_mut();
        if let (Some(Operation::Copy { align, bytes }), Operation::Copy { align: next, bytes: more }) =
            (open, operation)
            // After an offset aligned for the first, there is no gap before the second.
            && *align >= next
            && bytes.is_multiple_of(next as u64)
            && let Some(sum) = bytes.checked_add(more)
        {
            *bytes = sum;
            return Ok(());
        }
        self.operations.push(operation);
        if self.operations.len() > OPERATIONS_MAX {
            return Err(TooMany);
        }
        Ok(())
    }

    /// Appends `head` and the operations of `body`, which it repeats.
    fn push_loop(&mut self, head: Operation, source_bytes: u64, body: Block) -> Result<(), TooMany> {
        self.push(head, source_bytes)?;
        self.operations.extend(body.operations);
        self.closed = self.operations.len();
        if self.operations.len() > OPERATIONS_MAX {
            return Err(TooMany);
        }
        Ok(())
    }

    /// The only operation of this block, if it is a copy that can be repeated without gaps.
    fn repeatable_copy(&self) -> Option<(usize, u64)> {
        match self.operations[..] {
            [Operation::Copy { align, bytes }] if bytes.is_multiple_of(align as u64) => Some((align, bytes)),
            _ => None,
        }
    }
}

struct Compiler<'a> {
    source: &'a Ros1Definition,
    targets: Structs<'a>,
    matching: &'a Matching<'a>,
    fields: Cell<u32>,
}

impl Compiler<'_> {
    fn append_struct(&self, block: &mut Block, ros1_name: &str, ros2_name: &str) -> Result<(), TooMany> {
        let (Some(from), Some(to)) = (self.source.structs.get(ros1_name), self.targets.get(ros2_name)) else {
            return Ok(());
        };
        for step in self.matching.steps(ros1_name, ros2_name) {
            self.fields.set(self.fields.get() + 1);
            if self.fields.get() > FIELDS_MAX {
                return Err(TooMany);
            }
            match *step {
                Step::Take { source, target } => {
                    self.append_field(block, &from.fields[source], &to.fields[target].field_type)?;
                }
                Step::Leave { source } => {
                    let bytes = match from.fields[source].element {
                        Ros1Element::Primitive(primitive) => primitive_bytes(primitive).unwrap_or(0) as u64,
                        _ => 0,
                    };
                    block.push(Operation::Leave { bytes }, bytes)?;
                }
                Step::Default { target } => self.append_default(block, &to.fields[target].field_type)?,
            }
        }
        Ok(())
    }

    fn append_field(&self, block: &mut Block, from: &Ros1Field, to: &FieldType) -> Result<(), TooMany> {
        if from.arity == Ros1Arity::One {
            return self.append_element(block, &from.element, &to.element);
        }
        let mut body = Block::default();
        self.append_element(&mut body, &from.element, &to.element)?;
        match (from.arity, body.repeatable_copy()) {
            (Ros1Arity::Array(0), _) => Ok(()),
            (Ros1Arity::Array(count), Some((align, bytes))) => {
                let bytes = bytes.saturating_mul(count);
                block.push(Operation::Copy { align, bytes }, bytes)
            }
            (Ros1Arity::Array(count), None) => {
                let source_bytes = body.source_bytes_min.saturating_mul(count);
                let head = Operation::Array {
                    count,
                    body: body.operations.len(),
                };
                block.push_loop(head, source_bytes, body)
            }
            (_, Some((align, element_bytes))) => {
                block.push(Operation::CopySequence { align, element_bytes }, 4)
            }
            (_, None) => {
                let head = Operation::Sequence {
                    body: body.operations.len(),
                    source_bytes_min: body.source_bytes_min,
                };
                block.push_loop(head, 4, body)
            }
        }
    }

    fn append_element(&self, block: &mut Block, from: &Ros1Element, to: &Element) -> Result<(), TooMany> {
        match (from, to) {
            (Ros1Element::Primitive(primitive), _) => {
                let bytes = primitive_bytes(*primitive).unwrap_or(1);
                let copy = Operation::Copy {
                    align: bytes,
                    bytes: bytes as u64,
                };
                block.push(copy, bytes as u64)
            }
            (Ros1Element::Time, _) => block.push(Operation::Moment { is_duration: false }, 8),
            (Ros1Element::Duration, _) => block.push(Operation::Moment { is_duration: true }, 8),
            (Ros1Element::String, _) => block.push(Operation::Text, 4),
            (Ros1Element::Nested(from), Element::Nested(to)) => self.append_struct(block, from, to),
            (Ros1Element::Nested(_), _) => Ok(()),
        }
    }

    fn append_default(&self, block: &mut Block, to: &FieldType) -> Result<(), TooMany> {
        match (to.arity, &to.element) {
            (Arity::One, element) => self.append_default_element(block, element),
            (Arity::BoundedSequence(_) | Arity::UnboundedSequence, _) => {
                block.push(Operation::Zeros { align: 4, bytes: 4 }, 0)
            }
            (Arity::Array(count), Element::Primitive(primitive)) => {
                let align = primitive_bytes(*primitive).unwrap_or(1);
                let bytes = (align as u64).saturating_mul(count);
                block.push(Operation::Zeros { align, bytes }, 0)
            }
            (Arity::Array(count), element) => {
                let mut body = Block::default();
                self.append_default_element(&mut body, element)?;
                let head = Operation::Array {
                    count,
                    body: body.operations.len(),
                };
                block.push_loop(head, 0, body)
            }
        }
    }

    fn append_default_element(&self, block: &mut Block, to: &Element) -> Result<(), TooMany> {
        match to {
            Element::Primitive(primitive) => {
                let align = primitive_bytes(*primitive).unwrap_or(1);
                block.push(
                    Operation::Zeros {
                        align,
                        bytes: align as u64,
                    },
                    0,
                )
            }
            Element::String { .. } => block.push(Operation::EmptyText, 0),
            Element::Nested(name) => {
                let fields = self
                    .targets
                    .get(name.as_str())
                    .map_or(&[][..], |found| &found.fields);
                fields
                    .iter()
                    .try_for_each(|field| self.append_default(block, &field.field_type))
            }
        }
    }
}

/// Size and alignment of a value, the same in ROS 1 and CDR; `None` for those that only IDL has.
pub(super) const fn primitive_bytes(primitive: Primitive) -> Option<usize> {
    Some(match primitive {
        Primitive::Int8 | Primitive::Uint8 | Primitive::Boolean | Primitive::Byte => 1,
        Primitive::Int16 | Primitive::Uint16 => 2,
        Primitive::Int32 | Primitive::Uint32 | Primitive::Float => 4,
        Primitive::Int64 | Primitive::Uint64 | Primitive::Double => 8,
        Primitive::LongDouble | Primitive::Char | Primitive::Wchar => return None,
    })
}
