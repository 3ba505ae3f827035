//! Walks a payload along its plan and hands each value to a visitor.

use super::{
    cursor::Cursor,
    error::DecodeError,
    plan::{ElementPlan, FieldPlan, StructPlan, TypePlan},
    primitives::Primitives,
    value::Scalar,
};
use crate::interface::Arity;

/// Receives a message's values, in the order of its definition.
///
/// A struct is `begin_struct`, its fields, `end_struct`; a field is `wants_field`, then one `scalar`, one
/// `primitives`, one struct, or `begin_list`, `wants_item` with a value for each element, `end_list`. Structs
/// that were defined without fields have none.
pub trait Visitor<'a> {
    /// Whether to visit the field's value; otherwise it is skipped.
    fn wants_field(&mut self, _field: &FieldPlan) -> bool {
        true
    }

    /// A value.
    fn scalar(&mut self, value: Scalar<'a>);

    /// All elements of an array or a sequence of plain values.
    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>);

    /// A struct begins.
    fn begin_struct(&mut self, _structure: &StructPlan) {}

    /// A struct ends.
    fn end_struct(&mut self, _structure: &StructPlan) {}

    /// An array or a sequence of structs or texts begins.
    fn begin_list(&mut self, field: &FieldPlan, count: u64);

    /// Whether to visit the element at `index`; after the first refusal the rest is skipped.
    fn wants_item(&mut self, _index: u64) -> bool {
        true
    }

    /// The list ends.
    fn end_list(&mut self, field: &FieldPlan, count: u64);
}

/// Results of a walk in addition to the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Bytes after the last field: padding (DDS sends multiples of four), and the bytes that `rmw_serialize`
    /// of Fast DDS adds because it estimates the length.
    pub bytes_left: usize,
    /// More bytes are left than any writer adds: the message was probably written with another definition.
    pub is_longer: bool,
}

impl TypePlan {
    /// Walks a payload and calls `visitor` with its values.
    ///
    /// # Errors
    /// When the payload does not fit the definition; the visitor has then received the values before the
    /// fault.
    pub fn walk<'a, V: Visitor<'a>>(
        &self,
        payload: &'a [u8],
        visitor: &mut V,
    ) -> Result<Walked, DecodeError> {
        let mut walk = || {
            let mut walker = Walker {
                plan: self,
                cursor: self.cursor(payload)?,
            };
            walker.structure(self.root(), visitor)?;
            Ok(Walked {
                bytes_left: walker.cursor.remaining(),
                is_longer: walker.cursor.is_longer(),
            })
        };
        walk().map_err(|error: DecodeError| error.in_type(self.type_name()))
    }

    /// Opens a payload and determines the width of its wide characters.
    pub(super) fn cursor<'a>(&self, payload: &'a [u8]) -> Result<Cursor<'a>, DecodeError> {
        let cursor = Cursor::open(payload)?;
        if !self.has_wide_text() {
            return Ok(cursor);
        }
        // Four bytes a character fit a message of two bytes a character only where every wide text is empty, or
        // has one character before padding.
        let fits = |slot_bytes: usize, ends: fn(&Cursor<'a>) -> bool| {
            let mut trial = Walker {
                plan: self,
                cursor: cursor.clone().with_wide_slots(slot_bytes),
            };
            trial.skip_struct(self.root()).is_ok() && ends(&trial.cursor)
        };
        let is_four = fits(4, |cursor| cursor.remaining() < 4)
            || (!fits(2, |cursor| cursor.remaining() < 8) && fits(4, |_| true));
        Ok(if is_four {
            cursor.with_wide_slots(4)
        } else {
            cursor
        })
    }
}

/// A walk in progress.
pub(super) struct Walker<'p, 'a> {
    pub plan: &'p TypePlan,
    pub cursor: Cursor<'a>,
}

impl<'p, 'a> Walker<'p, 'a> {
    fn structure<V: Visitor<'a>>(
        &mut self,
        structure: &'p StructPlan,
        visitor: &mut V,
    ) -> Result<(), DecodeError> {
        visitor.begin_struct(structure);
        if structure.is_empty {
            // One byte without meaning.
            self.skip_struct(structure)?;
            visitor.end_struct(structure);
            return Ok(());
        }
        for field in &structure.fields {
            let visited = if visitor.wants_field(field) {
                self.field(field, visitor)
            } else {
                self.skip_field(field)
            };
            visited.map_err(|error| error.in_field(&field.name))?;
        }
        visitor.end_struct(structure);
        Ok(())
    }

    fn field<V: Visitor<'a>>(&mut self, field: &'p FieldPlan, visitor: &mut V) -> Result<(), DecodeError> {
        if field.arity == Arity::One {
            return self.element(field, visitor);
        }
        let count = self.count_of(field)?;
        if let ElementPlan::Primitive(kind) = field.element {
            visitor.primitives(field, self.cursor.primitives(kind, count)?);
            return Ok(());
        }
        visitor.begin_list(field, count);
        for index in 0..count {
            if !visitor.wants_item(index) {
                for index in index..count {
                    self.skip_element(field).map_err(|error| error.in_item(index))?;
                }
                break;
            }
            self.element(field, visitor)
                .map_err(|error| error.in_item(index))?;
        }
        visitor.end_list(field, count);
        Ok(())
    }

    #[inline]
    fn element<V: Visitor<'a>>(&mut self, field: &'p FieldPlan, visitor: &mut V) -> Result<(), DecodeError> {
        match field.element {
            ElementPlan::Struct(index) => return self.structure(self.plan.structure(index), visitor),
            _ => visitor.scalar(self.scalar(field)?),
        }
        Ok(())
    }

    /// One value of a field that holds no structs.
    #[inline]
    pub fn scalar(&mut self, field: &FieldPlan) -> Result<Scalar<'a>, DecodeError> {
        match field.element {
            ElementPlan::Primitive(kind) => self.cursor.scalar(kind),
            ElementPlan::Text { length_max } => self.cursor.text(length_max).map(Scalar::Text),
            ElementPlan::WideText { length_max } => self.cursor.wide_text(length_max).map(Scalar::Wide),
            ElementPlan::Struct(_) => Err(DecodeError::new(self.cursor.offset(), "a value", "a struct")),
        }
    }

    /// Reads the number of a list's elements, up to the first element.
    pub(crate) fn count_of(&mut self, field: &FieldPlan) -> Result<u64, DecodeError> {
        if !matches!(field.element, ElementPlan::Primitive(_)) {
            self.cursor.list_head()?;
        }
        match field.arity {
            Arity::One => Ok(1),
            Arity::Array(count) => {
                self.cursor.check_room(count, field.element_bytes_min)?;
                Ok(count)
            }
            Arity::BoundedSequence(most) => self.cursor.count(Some(most), field.element_bytes_min),
            Arity::UnboundedSequence => self.cursor.count(None, field.element_bytes_min),
        }
    }

    pub(crate) fn skip_struct(&mut self, structure: &'p StructPlan) -> Result<(), DecodeError> {
        for field in &structure.fields {
            self.skip_field(field)
                .map_err(|error| error.in_field(&field.name))?;
        }
        Ok(())
    }

    /// Skips a field, at once where its size is known.
    pub(crate) fn skip_field(&mut self, field: &'p FieldPlan) -> Result<(), DecodeError> {
        if let Some(sizes) = &field.sizes
            && !self.cursor.is_second_version()
        {
            return self.cursor.skip(sizes[self.cursor.phase()]);
        }
        if field.arity == Arity::One {
            return self.skip_element(field);
        }
        let count = self.count_of(field)?;
        self.skip_elements(field, 0..count)
    }

    /// Skips elements of a list that was begun.
    pub(crate) fn skip_elements(
        &mut self,
        field: &'p FieldPlan,
        indices: std::ops::Range<u64>,
    ) -> Result<(), DecodeError> {
        if let ElementPlan::Primitive(kind) = field.element {
            let count = indices.end.saturating_sub(indices.start);
            return self.cursor.primitives(kind, count).map(drop);
        }
        for index in indices {
            self.skip_element(field).map_err(|error| error.in_item(index))?;
        }
        Ok(())
    }

    pub(crate) fn skip_element(&mut self, field: &'p FieldPlan) -> Result<(), DecodeError> {
        match field.element {
            ElementPlan::Struct(index) => {
                let structure = self.plan.structure(index);
                match structure.sizes() {
                    Some(sizes) if !self.cursor.is_second_version() => {
                        self.cursor.skip(sizes[self.cursor.phase()])
                    }
                    _ => self.skip_struct(structure),
                }
            }
            _ => self.scalar(field).map(drop),
        }
    }
}
