//! Decodes a payload into a value that is held in memory.

use super::{
    Representation, VALUE_BYTES_MAX,
    value::{Plain, Plains, Value},
};
use crate::{
    dynamic::{
        DecodeError, ElementPlan, FieldPlan, Primitives, StructPlan, TypePlan, value::size_of as bytes_of,
        walk::Walker,
    },
    interface::Arity,
};

/// A message as a value, and how it was encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The message.
    pub value: Value,
    /// How it was encoded.
    pub representation: Representation,
    /// Bytes after the last field, as in [`Walked`](crate::dynamic::Walked).
    pub bytes_left: usize,
}

impl TypePlan {
    /// Decodes a whole message.
    ///
    /// # Errors
    /// When the payload does not fit the definition, or its values would take more memory than
    /// [`VALUE_BYTES_MAX`].
    pub fn decode(&self, payload: &[u8]) -> Result<Decoded, DecodeError> {
        let decode = || {
            let mut tree = Tree {
                walker: Walker {
                    plan: self,
                    cursor: self.cursor(payload)?,
                },
                bytes_left: VALUE_BYTES_MAX,
            };
            let representation = tree.walker.cursor.representation();
            let value = tree.structure(self.root())?;
            Ok(Decoded {
                value,
                representation,
                bytes_left: tree.walker.cursor.remaining(),
            })
        };
        decode().map_err(|error: DecodeError| error.in_type(self.type_name()))
    }
}

struct Tree<'p, 'a> {
    walker: Walker<'p, 'a>,
    /// Memory that may still be used.
    bytes_left: u64,
}

impl<'p> Tree<'p, '_> {
    fn spend(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let needed = (bytes + size_of::<Value>()) as u64;
        match self.bytes_left.checked_sub(needed) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(DecodeError::new(
                self.walker.cursor.offset(),
                format!("values of at most {VALUE_BYTES_MAX} bytes of memory"),
                "more",
            )),
        }
    }

    fn structure(&mut self, structure: &'p StructPlan) -> Result<Value, DecodeError> {
        self.spend(0)?;
        if structure.is_empty {
            // One byte without meaning.
            self.walker.skip_struct(structure)?;
            return Ok(Value::Struct(Vec::new()));
        }
        let mut fields = Vec::with_capacity(structure.fields.len());
        for field in &structure.fields {
            let value = self.field(field).map_err(|error| error.in_field(&field.name))?;
            fields.push(value);
        }
        Ok(Value::Struct(fields))
    }

    fn field(&mut self, field: &'p FieldPlan) -> Result<Value, DecodeError> {
        if field.arity == Arity::One {
            return self.element(field);
        }
        let count = self.walker.count_of(field)?;
        if let ElementPlan::Primitive(kind) = field.element {
            let values = self.walker.cursor.primitives(kind, count)?;
            self.spend(values.bytes().len())?;
            return Ok(Value::Plains(Plains {
                kind,
                bytes: lowest_first(values),
            }));
        }
        self.spend(0)?;
        let mut items = Vec::new();
        for index in 0..count {
            let item = self.element(field).map_err(|error| error.in_item(index))?;
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn element(&mut self, field: &'p FieldPlan) -> Result<Value, DecodeError> {
        let cursor = &mut self.walker.cursor;
        let value = match field.element {
            ElementPlan::Struct(index) => return self.structure(self.walker.plan.structure(index)),
            ElementPlan::Primitive(kind) => {
                let bytes = lowest_first(cursor.primitives(kind, 1)?);
                Value::Plain(Plain::of_bytes(kind, &bytes))
            }
            ElementPlan::Text { length_max } => Value::Text(cursor.text(length_max)?.0.to_owned()),
            ElementPlan::WideText { length_max } => {
                Value::Wide(cursor.wide_text(length_max)?.units().collect())
            }
        };
        let content = match &value {
            Value::Text(text) => text.len(),
            Value::Wide(units) => 2 * units.len(),
            _ => 0,
        };
        self.spend(content)?;
        Ok(value)
    }
}

/// The values' bytes, each with the lowest first.
fn lowest_first(values: Primitives<'_>) -> Vec<u8> {
    let mut bytes = values.bytes().to_owned();
    if !values.is_little_endian() {
        bytes
            .chunks_exact_mut(bytes_of(values.kind()))
            .for_each(<[u8]>::reverse);
    }
    bytes
}
