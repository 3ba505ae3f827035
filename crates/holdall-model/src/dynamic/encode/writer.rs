//! A payload that is being written, with aligned and bounded writes.

use super::{
    PAYLOAD_BYTES_MAX, Representation, WideSlots,
    value::{Plains, Value, is_same},
};
use crate::{
    dynamic::{
        ElementPlan, EncodeError, FieldPlan, StructPlan, TypePlan, WideText, cursor::HEAD_BYTES,
        plan::primitive_name, value::size_of,
    },
    interface::{Arity, Primitive},
};

/// Writes values one after the other.
pub(in crate::dynamic) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    representation: Representation,
}

/// Position of a list's length in bytes, which is filled in at the list's end; `None` for a list without one.
pub(in crate::dynamic) type ListHead = Option<usize>;

impl<'o> Writer<'o> {
    /// Overwrites `out` with an encapsulation; `options` are its last two bytes.
    pub fn begin(out: &'o mut Vec<u8>, representation: Representation, options: [u8; 2]) -> Self {
        let kind = u8::from(representation.little_endian) + if representation.second_version { 6 } else { 0 };
        out.clear();
        out.extend_from_slice(&[0, kind, options[0], options[1]]);
        Self { out, representation }
    }

    /// Bytes written after the encapsulation.
    fn at(&self) -> usize {
        self.out.len() - HEAD_BYTES
    }

    /// Alignment of the next value's offset, 0 to 7.
    pub fn phase(&self) -> usize {
        self.at() & 7
    }

    /// Fills with zeros up to a multiple of `size`, at most eight (four in XCDR2).
    fn align(&mut self, size: usize) {
        let most = if self.representation.second_version { 4 } else { 8 };
        self.fill(size.min(most));
    }

    /// Pads a payload to a multiple of `size`, where the original ended with `padding` bytes. Some writers store
    /// the number of these bytes in the encapsulation.
    pub(crate) fn end_at_multiple(&mut self, size: usize, padding: usize) {
        let before = self.out.len();
        self.fill(size);
        let now = self.out.len() - before;
        let options = &mut self.out[HEAD_BYTES - 1];
        if usize::from(*options & 3) == padding {
            *options = (*options & !3) | (now & 3) as u8;
        }
    }

    /// Fills with zeros up to a multiple of `size`.
    fn fill(&mut self, size: usize) {
        let end = self.at().next_multiple_of(size) + HEAD_BYTES;
        self.out.resize(end, 0);
    }

    /// Appends bytes that are already encoded for this place.
    pub fn block(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        // Padding may add seven.
        if bytes.len() > PAYLOAD_BYTES_MAX.saturating_sub(self.out.len() + 8) {
            let expected = format!("a message of at most {PAYLOAD_BYTES_MAX} bytes");
            return Err(EncodeError::new(expected, "more"));
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends values whose bytes are in the order of the payload; empty lists are not aligned.
    pub fn copy(&mut self, kind: Primitive, bytes: &[u8]) -> Result<(), EncodeError> {
        if !bytes.is_empty() {
            self.align(size_of(kind));
        }
        self.block(bytes)
    }

    /// Appends values whose bytes have the lowest first.
    fn plains(&mut self, kind: Primitive, little_endian: &[u8]) -> Result<(), EncodeError> {
        let size = size_of(kind);
        if self.representation.little_endian || size == 1 {
            return self.copy(kind, little_endian);
        }
        self.copy(kind, little_endian)?;
        let begin = self.out.len() - little_endian.len();
        self.out[begin..].chunks_exact_mut(size).for_each(<[u8]>::reverse);
        Ok(())
    }

    /// The number of a list's elements or a text's characters.
    pub fn count(&mut self, count: usize) -> Result<(), EncodeError> {
        let count = u32::try_from(count)
            .map_err(|_| EncodeError::new(format!("at most {} elements", u32::MAX), count.to_string()))?;
        self.plains(Primitive::Uint32, &count.to_le_bytes())
    }

    /// A `string` with its zero.
    fn text(&mut self, text: &[u8]) -> Result<(), EncodeError> {
        self.count(text.len().saturating_add(1))?;
        self.block(text)?;
        self.block(&[0])
    }

    /// A `string` as it was in another payload, with its zero if it has one.
    pub(crate) fn copy_text(&mut self, text: &[u8]) -> Result<(), EncodeError> {
        self.count(text.len())?;
        self.block(text)
    }

    /// A `wstring` of a payload with the same representation.
    pub(crate) fn copy_wide(&mut self, text: WideText<'_>) -> Result<(), EncodeError> {
        self.count(text.len())?;
        self.block(text.bytes)
    }

    fn wide(&mut self, units: &[u16]) -> Result<(), EncodeError> {
        self.count(units.len())?;
        for unit in units {
            match self.representation.wide_slots {
                WideSlots::Two => self.plains(Primitive::Uint16, &unit.to_le_bytes())?,
                WideSlots::Four => self.plains(Primitive::Uint32, &u32::from(*unit).to_le_bytes())?,
            }
        }
        Ok(())
    }

    /// In XCDR2, lists of anything but plain values begin with their length in bytes.
    pub fn begin_list(&mut self, field: &FieldPlan) -> Result<ListHead, EncodeError> {
        if !self.representation.second_version || matches!(field.element, ElementPlan::Primitive(_)) {
            return Ok(None);
        }
        self.count(0)?;
        Ok(Some(self.out.len()))
    }

    /// Ends a list that was begun.
    pub fn end_list(&mut self, head: ListHead) {
        if let Some(begin) = head {
            // A payload is shorter than 2^30 bytes.
            let length = u32::try_from(self.out.len() - begin).unwrap_or(u32::MAX);
            let bytes = if self.representation.little_endian {
                length.to_le_bytes()
            } else {
                length.to_be_bytes()
            };
            self.out[begin - 4..begin].copy_from_slice(&bytes);
        }
    }

    /// A struct.
    pub fn structure(
        &mut self,
        plan: &TypePlan,
        structure: &StructPlan,
        value: &Value,
    ) -> Result<(), EncodeError> {
        let Value::Struct(fields) = value else {
            return Err(EncodeError::new(&structure.type_name, value.noun()));
        };
        if structure.is_empty && fields.is_empty() {
            return self.block(&[0]);
        }
        if structure.is_empty || fields.len() != structure.fields.len() {
            let count = if structure.is_empty {
                0
            } else {
                structure.fields.len()
            };
            let expected = format!("the {count} fields of {}", structure.type_name);
            return Err(EncodeError::new(expected, fields.len().to_string()));
        }
        for (field, value) in structure.fields.iter().zip(fields) {
            self.field(plan, field, value)
                .map_err(|error| error.in_field(&field.name))?;
        }
        Ok(())
    }

    /// All that a field holds.
    pub fn field(&mut self, plan: &TypePlan, field: &FieldPlan, value: &Value) -> Result<(), EncodeError> {
        if field.arity == Arity::One {
            return self.element(plan, field, value);
        }
        match (field.element, value) {
            (ElementPlan::Primitive(kind), Value::Plains(plains)) if is_same(kind, plains.kind) => {
                self.plain_list(field, kind, plains)
            }
            (ElementPlan::Primitive(_), _) => Err(misfit(plan, field, value)),
            (_, Value::List(items)) => {
                let head = self.begin_list(field)?;
                self.list_count(field, items.len())?;
                for (index, item) in items.iter().enumerate() {
                    self.element(plan, field, item)
                        .map_err(|error| error.in_item(index as u64))?;
                }
                self.end_list(head);
                Ok(())
            }
            _ => Err(misfit(plan, field, value)),
        }
    }

    fn plain_list(&mut self, field: &FieldPlan, kind: Primitive, plains: &Plains) -> Result<(), EncodeError> {
        self.list_count(field, plains.len())?;
        self.plains(kind, &plains.bytes)
    }

    /// The number of elements, unless the type fixes it.
    fn list_count(&mut self, field: &FieldPlan, count: usize) -> Result<(), EncodeError> {
        check_count(field.arity, count as u64)?;
        match field.arity {
            Arity::Array(_) => Ok(()),
            _ => self.count(count),
        }
    }

    /// One value of a field's element type.
    pub fn element(&mut self, plan: &TypePlan, field: &FieldPlan, value: &Value) -> Result<(), EncodeError> {
        match (field.element, value) {
            (ElementPlan::Struct(index), _) => self.structure(plan, plan.structure(index), value),
            (ElementPlan::Primitive(kind), Value::Plain(plain)) if is_same(kind, plain.kind) => {
                self.plains(kind, &plain.bytes()[..size_of(kind)])
            }
            (ElementPlan::Text { length_max }, Value::Text(text)) => {
                check_length(text.len(), length_max, "bytes")?;
                self.text(text)
            }
            (ElementPlan::WideText { length_max }, Value::Wide(units)) => {
                check_length(units.len(), length_max, "characters")?;
                self.wide(units)
            }
            (ElementPlan::Primitive(kind), _) => Err(EncodeError::new(primitive_name(kind), value.noun())),
            _ => Err(EncodeError::new(field.element_text(plan), value.noun())),
        }
    }
}

fn misfit(plan: &TypePlan, field: &FieldPlan, value: &Value) -> EncodeError {
    EncodeError::new(field.type_text(plan), value.noun())
}

/// Refuses a list that is longer than its bound, and an array of another length.
pub(super) fn check_count(arity: Arity, count: u64) -> Result<(), EncodeError> {
    match arity {
        Arity::Array(exactly) if count != exactly => Err(EncodeError::new(
            format!("a list of {exactly}"),
            format!("a list of {count}"),
        )),
        Arity::BoundedSequence(most) if count > most => Err(EncodeError::new(
            format!("a list of at most {most}"),
            format!("a list of {count}"),
        )),
        _ => Ok(()),
    }
}

/// Refuses a text that is longer than its bound.
pub(super) fn check_length(length: usize, length_max: Option<u64>, unit: &str) -> Result<(), EncodeError> {
    match length_max.filter(|most| length as u64 > *most) {
        None => Ok(()),
        Some(most) => Err(EncodeError::new(
            format!("a text of at most {most} {unit}"),
            format!("{length}"),
        )),
    }
}
