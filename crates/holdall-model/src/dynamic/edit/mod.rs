//! Changes fields of payloads and copies everything else byte for byte.
//!
//! ```text
//! header.frame_id = "base"                     a field, its new value as JSON
//! transforms[*].header.frame_id = "map"        a field of all elements of a list
//! covariance[0] = 0.1   poses[-1] = {}         an element; negative from the end
//! header.stamp = {"sec": 1}                    a struct; fields left out have their defaults
//! ranges = [1, 2.5, "NaN"]                     a list
//! ```

use super::{
    DecodeError, ElementPlan, EncodeError, FieldPlan, StructPlan, TypePlan,
    cursor::HEAD_BYTES,
    encode::{Converter, Literal, LiteralError, Value, Writer},
    expression::{ExpressionError, FieldPath},
    select::{Step, place},
    walk::Walker,
};
use crate::interface::{Arity, Primitive};
use std::{collections::BTreeMap, sync::Arc};

/// Longest assignment, in bytes: it comes from a command line.
const ASSIGNMENT_BYTES_MAX: usize = 1 << 20;
/// More bytes than this after the last field are not padding: `rmw_serialize` of Fast DDS adds some that have no
/// meaning.
const PADDING_BYTES_MAX: usize = 7;

/// Why an assignment cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssignmentError {
    /// There is no `=`, or nothing before it.
    #[error("expected a field, = and its value as JSON, for example header.frame_id = \"base\"")]
    Form,
    /// The text is too long.
    #[error("it is longer than {ASSIGNMENT_BYTES_MAX} bytes")]
    TooLong,
    /// The path is not that of a field.
    #[error(transparent)]
    Path(#[from] ExpressionError),
    /// The value is not JSON.
    #[error("the value of {path} is {source}")]
    Json {
        /// The path as written.
        path: String,
        /// The fault in it; a text in JSON has quotes.
        source: LiteralError,
    },
    /// The value does not fit the field.
    #[error(transparent)]
    Value(#[from] EncodeError),
    /// Two assignments change the same field.
    #[error("{first} and {second} change the same field")]
    Twice {
        /// The path of one.
        first: String,
        /// The path of the other.
        second: String,
    },
}

/// Why a payload cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// It does not fit its definition.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It was probably written with another definition.
    #[error(
        "{type_name}: {bytes} bytes follow the last field; it may have been written with another definition"
    )]
    Longer {
        /// The type.
        type_name: String,
        /// Their number.
        bytes: usize,
    },
    /// The result would be too long.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// An assignment that fits a type.
#[derive(Clone, Debug)]
struct Assignment {
    path: String,
    steps: Vec<Step>,
    is_list: bool,
    value: Value,
}

/// Assignments to fields of the messages of one type.
#[derive(Clone, Debug)]
pub struct Editor {
    plan: Arc<TypePlan>,
    assignments: Vec<Assignment>,
    texts: Option<Arc<Texts>>,
}

/// Texts that get another value wherever they are, in fields of certain names.
#[derive(Debug)]
struct Texts {
    /// Names of the fields, whatever struct they are in.
    fields: &'static [&'static str],
    /// New values by old.
    values: BTreeMap<Vec<u8>, Value>,
}

impl Texts {
    /// The new value of a text, which may end in a zero.
    fn value_of(&self, field: &FieldPlan, text: &[u8]) -> Option<&Value> {
        if !self.fields.contains(&field.name.as_str()) {
            return None;
        }
        self.values.get(text.strip_suffix(&[0]).unwrap_or(text))
    }
}

impl Editor {
    /// Parses assignments and checks them against a type.
    ///
    /// # Errors
    /// The first that cannot be parsed, names a field that the type does not have, or a value that does not fit;
    /// two that change the same field.
    pub fn compile(plan: Arc<TypePlan>, texts: &[&str]) -> Result<Self, AssignmentError> {
        let assignments = texts
            .iter()
            .map(|text| compile(&plan, text))
            .collect::<Result<Vec<_>, _>>()?;
        for (index, first) in assignments.iter().enumerate() {
            let second = assignments[index + 1..]
                .iter()
                .find(|second| overlaps(&first.steps, &second.steps));
            if let Some(second) = second {
                return Err(AssignmentError::Twice {
                    first: first.path.clone(),
                    second: second.path.clone(),
                });
            }
        }
        Ok(Self {
            plan,
            assignments,
            texts: None,
        })
    }

    /// Assigns a value to the field at `path`: the index of a field, of an element where that is a list, of a field of the element, and so on, as
    /// [`TypePlan::path_to`] has it. `None` if the type has no such field.
    pub fn assigning(plan: Arc<TypePlan>, path: &[usize], value: Value) -> Option<Self> {
        let (mut structure, mut steps, mut is_list) = (plan.root(), Vec::new(), false);
        let mut path = path.iter();
        while let Some(index) = path.next() {
            let field = structure.fields.get(*index)?;
            steps.push(Step::Field(*index));
            is_list = field.arity != Arity::One;
            if is_list && let Some(item) = path.next() {
                steps.push(Step::Item(i64::try_from(*item).ok()?));
                is_list = false;
            }
            if let ElementPlan::Struct(inner) = field.element {
                structure = plan.structure(inner);
            }
        }
        let assignment = Assignment {
            path: String::new(),
            steps,
            is_list,
            value,
        };
        Some(Self {
            plan,
            assignments: vec![assignment],
            texts: None,
        })
    }

    /// Also gives texts another value in all fields of these names, at any depth; `values` has the new texts by the old.
    #[must_use]
    pub fn replacing(mut self, fields: &'static [&'static str], values: &BTreeMap<String, String>) -> Self {
        let is_text = |field: &FieldPlan| matches!(field.element, ElementPlan::Text { .. });
        let has_some = (0..self.plan.structure_count())
            .flat_map(|index| &self.plan.structure(index).fields)
            .any(|field| is_text(field) && fields.contains(&field.name.as_str()));
        self.texts = has_some.then(|| {
            let values = values.iter();
            Arc::new(Texts {
                fields,
                values: values
                    .map(|(old, new)| (old.clone().into_bytes(), Value::Text(new.clone().into_bytes())))
                    .collect(),
            })
        });
        self
    }

    /// True when no message would be changed.
    pub fn is_idle(&self) -> bool {
        self.assignments.is_empty() && self.texts.is_none()
    }

    /// The type of the messages.
    pub fn type_name(&self) -> &str {
        self.plan.type_name()
    }

    /// The paths of the fields that are changed, in the order of the assignments.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.assignments.iter().map(|assignment| assignment.path.as_str())
    }

    /// Writes a payload with its fields changed; `out` is overwritten. The encoding and all other
    /// fields are unchanged; padding, too, if its length stays the same. Returns the number of values that each
    /// assignment wrote, 0 when no list has the elements that it names; if texts are replaced, one more number
    /// counts these.
    ///
    /// # Errors
    /// A payload that does not fit the type. The content of `out` is then undefined.
    pub fn apply(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<Vec<u64>, EditError> {
        self.edit(payload, out).map_err(|error| match error {
            EditError::Decode(error) => error.in_type(self.type_name()).into(),
            EditError::Encode(error) => error.in_type(self.type_name()).into(),
            other => other,
        })
    }

    fn edit(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<Vec<u64>, EditError> {
        let plan = &*self.plan;
        let cursor = plan.cursor(payload)?;
        let representation = cursor.representation();
        let mut options = [0; 2];
        options.copy_from_slice(&payload[2..HEAD_BYTES]);
        let mut editing = Editing {
            plan,
            payload,
            walker: Walker { plan, cursor },
            writer: Writer::begin(out, representation, options),
            written: vec![0; self.assignments.len() + usize::from(self.texts.is_some())],
            texts: self.texts.as_deref(),
        };
        let all: Vec<Rest<'_>> = self
            .assignments
            .iter()
            .enumerate()
            .map(|(index, assignment)| Rest {
                index,
                assignment,
                steps: &assignment.steps,
            })
            .collect();
        editing.structure(plan.root(), &all)?;
        let left = editing.walker.cursor.remaining();
        if editing.walker.cursor.is_longer() {
            return Err(EditError::Longer {
                type_name: plan.type_name().to_owned(),
                bytes: left,
            });
        }
        let written = std::mem::take(&mut editing.written);
        editing.end(left)?;
        Ok(written)
    }
}

fn compile(plan: &TypePlan, text: &str) -> Result<Assignment, AssignmentError> {
    if text.len() > ASSIGNMENT_BYTES_MAX {
        return Err(AssignmentError::TooLong);
    }
    let (path, json) = text.split_once('=').ok_or(AssignmentError::Form)?;
    let (path, json) = (path.trim(), json.trim());
    if path.is_empty() || json.is_empty() {
        return Err(AssignmentError::Form);
    }
    let typed = FieldPath::parse(plan, path)?;
    let literal = Literal::from_json(json).map_err(|source| AssignmentError::Json {
        path: path.to_owned(),
        source,
    })?;
    let mut converter = Converter::new(plan);
    let value = if typed.is_list {
        converter.field(&typed.field, &literal)
    } else {
        converter.element(&typed.field, &literal)
    };
    Ok(Assignment {
        path: path.to_owned(),
        steps: typed.steps,
        is_list: typed.is_list,
        value: value.map_err(|error| error.in_field(path))?,
    })
}

/// Whether one path is within the other. Elements that are counted from different ends may be the same one; the
/// later assignment then counts.
fn overlaps(first: &[Step], second: &[Step]) -> bool {
    first.iter().zip(second).all(|pair| match pair {
        (Step::All, Step::Item(_)) | (Step::Item(_), Step::All) => true,
        (one, other) => one == other,
    })
}

/// An assignment below a struct, a field or an element, with the rest of its path.
#[derive(Clone, Copy)]
struct Rest<'e> {
    index: usize,
    assignment: &'e Assignment,
    steps: &'e [Step],
}

/// A payload that is being copied.
struct Editing<'p, 'a, 'o> {
    plan: &'p TypePlan,
    payload: &'a [u8],
    walker: Walker<'p, 'a>,
    writer: Writer<'o>,
    /// Values written by each assignment; if texts are replaced, the last number counts these.
    written: Vec<u64>,
    texts: Option<&'o Texts>,
}

/// A place in the input, before padding and a value.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    /// The output needs the same padding, which need not be zero.
    is_same_phase: bool,
}

impl<'p, 'a> Editing<'p, 'a, '_> {
    fn place(&self) -> Place {
        Place {
            offset: self.walker.cursor.offset(),
            is_same_phase: self.walker.cursor.phase() == self.writer.phase(),
        }
    }

    /// The bytes read since a place, with their padding; `None` when the output needs another padding.
    fn read_since(&self, place: Place) -> Option<&'a [u8]> {
        self.payload
            .get(place.offset..self.walker.cursor.offset())
            .filter(|_| place.is_same_phase)
    }

    fn structure(&mut self, structure: &'p StructPlan, below: &[Rest<'_>]) -> Result<(), EditError> {
        for (index, field) in structure.fields.iter().enumerate() {
            let inside: Vec<_> = below
                .iter()
                .filter_map(|rest| match rest.steps {
                    [Step::Field(wanted), steps @ ..] if *wanted == index => Some(Rest { steps, ..*rest }),
                    _ => None,
                })
                .collect();
            self.field(field, &inside).map_err(|error| {
                in_path(
                    error,
                    |it| it.in_field(&field.name),
                    |it| it.in_field(&field.name),
                )
            })?;
        }
        Ok(())
    }

    fn field(&mut self, field: &'p FieldPlan, below: &[Rest<'_>]) -> Result<(), EditError> {
        let whole = |rest: &&Rest<'_>| rest.steps.is_empty() && rest.assignment.is_list;
        if let Some(rest) = below.iter().find(whole) {
            self.walker.skip_field(field)?;
            self.writer.field(self.plan, field, &rest.assignment.value)?;
            self.written[rest.index] += 1;
            return Ok(());
        }
        if below.is_empty() && self.copied_whole(field)? {
            return Ok(());
        }
        if field.arity == Arity::One {
            return self.element(field, below);
        }
        let begin = self.place();
        let count = self.walker.count_of(field)?;
        let head = self.writer.begin_list(field)?;
        match self.read_since(begin).filter(|_| head.is_none()) {
            Some(bytes) => self.writer.block(bytes)?,
            None if matches!(field.arity, Arity::Array(_)) => {}
            // A number of 32 bits, as it was read.
            None => self.writer.count(usize::try_from(count).unwrap_or(usize::MAX))?,
        }
        match field.element {
            ElementPlan::Primitive(kind) if below.is_empty() => self.primitives(kind, count)?,
            _ => self.items(field, count, below)?,
        }
        self.writer.end_list(head);
        Ok(())
    }

    fn primitives(&mut self, kind: Primitive, count: u64) -> Result<(), EditError> {
        let begin = self.place();
        let values = self.walker.cursor.primitives(kind, count)?;
        match self.read_since(begin) {
            Some(bytes) => self.writer.block(bytes)?,
            None => self.writer.copy(kind, values.bytes())?,
        }
        Ok(())
    }

    fn items(&mut self, field: &'p FieldPlan, count: u64, below: &[Rest<'_>]) -> Result<(), EditError> {
        for index in 0..count {
            let inside: Vec<_> = below
                .iter()
                .filter_map(|rest| match rest.steps {
                    [Step::All, steps @ ..] => Some(Rest { steps, ..*rest }),
                    [Step::Item(item), steps @ ..] if place(*item, count) == Some(index) => {
                        Some(Rest { steps, ..*rest })
                    }
                    _ => None,
                })
                .collect();
            self.element(field, &inside)
                .map_err(|error| in_path(error, |it| it.in_item(index), |it| it.in_item(index)))?;
        }
        Ok(())
    }

    /// Copies a field whose size the type fixes, with its padding, when that needs no change.
    fn copied_whole(&mut self, field: &FieldPlan) -> Result<bool, EditError> {
        let cursor = &mut self.walker.cursor;
        let Some(sizes) = &field.sizes else {
            return Ok(false);
        };
        if cursor.is_second_version() || cursor.phase() != self.writer.phase() {
            return Ok(false);
        }
        self.writer.block(cursor.block(sizes[cursor.phase()])?)?;
        Ok(true)
    }

    fn element(&mut self, field: &'p FieldPlan, below: &[Rest<'_>]) -> Result<(), EditError> {
        // The last one wins if an element is named from both ends.
        if let Some(rest) = below.iter().rfind(|rest| rest.steps.is_empty()) {
            self.walker.skip_element(field)?;
            self.writer.element(self.plan, field, &rest.assignment.value)?;
            self.written[rest.index] += 1;
            return Ok(());
        }
        let begin = self.place();
        let cursor = &mut self.walker.cursor;
        match field.element {
            ElementPlan::Struct(index) => self.structure(self.plan.structure(index), below)?,
            ElementPlan::Primitive(kind) => self.primitives(kind, 1)?,
            ElementPlan::Text { length_max } => {
                let text = cursor.text_with_end(length_max)?;
                if let Some(value) = self.texts.and_then(|texts| texts.value_of(field, text)) {
                    self.writer.element(self.plan, field, value)?;
                    self.count_replaced();
                    return Ok(());
                }
                match self.read_since(begin) {
                    Some(bytes) => self.writer.block(bytes)?,
                    None => self.writer.copy_text(text)?,
                }
            }
            ElementPlan::WideText { length_max } => {
                let text = cursor.wide_text(length_max)?;
                match self.read_since(begin) {
                    Some(bytes) => self.writer.block(bytes)?,
                    None => self.writer.copy_wide(text)?,
                }
            }
        }
        Ok(())
    }

    fn count_replaced(&mut self) {
        if let Some(count) = self.written.last_mut() {
            *count += 1;
        }
    }

    /// Ends the payload as the input ends: with the same padding when its length fits, else padded to the same
    /// multiple.
    fn end(mut self, left: usize) -> Result<(), EditError> {
        let padding = self.walker.cursor.block(left)?;
        let body = self.payload.len() - HEAD_BYTES;
        let multiple = [4, 8]
            .into_iter()
            .find(|multiple| left < *multiple && body.is_multiple_of(*multiple));
        match multiple {
            _ if left == 0 || left > PADDING_BYTES_MAX => {}
            Some(multiple) if self.writer.phase() % multiple != (body - left) % multiple => {
                self.writer.end_at_multiple(multiple, left);
            }
            _ => self.writer.block(padding)?,
        }
        Ok(())
    }
}

/// Puts a step before the path of an error.
fn in_path(
    error: EditError,
    decode: impl FnOnce(DecodeError) -> DecodeError,
    encode: impl FnOnce(EncodeError) -> EncodeError,
) -> EditError {
    match error {
        EditError::Decode(error) => decode(error).into(),
        EditError::Encode(error) => encode(error).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests;
