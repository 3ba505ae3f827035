//! Payloads of one type as columns: a plan compiled to runs of fixed offsets, from which only the wanted fields are copied.
//!
//! A [`ColumnBuilder`] takes payloads one after another and appends a row for each. Consecutive fields of fixed size, nested structs
//! included, are one run: its length and the offsets of the wanted fields are known in advance for each of the eight alignments at which it
//! can begin. Texts and sequences end a run. Unwanted fields are skipped without being read.
//!
//! Values are checked as [`TypePlan::walk`] checks them: both accept the same payloads. Memory is bounded by the payloads: a count is accepted
//! only when that many elements can follow.

mod array;
mod compile;
mod run;
#[cfg(test)]
mod tests;

pub use array::{Array, Batch, Column};
pub(super) use compile::{Load, Program};
pub(super) use run::{Sink, run};

use super::{DecodeError, Scalar, StructPlan, TypePlan, Visitor, plan::FieldPlan, primitives::Primitives};
use crate::interface::NESTING_MAX;
use array::{Buffers, Shape};
use std::{collections::BTreeMap, sync::Arc};

/// Which fields become columns, and in which form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Fields by name, with dots between the levels (`header.stamp`, `poses.position.x`); empty for all.
    pub fields: Vec<String>,
    /// A struct is one column with the columns of its fields inside. Otherwise each of its fields is a column with a dotted name. Structs in
    /// lists always stay structs.
    pub nested: bool,
    /// A struct whose fields are all numbers of one kind (`x`, `y`, `z`) is one column with that many numbers for each row.
    pub vectors: bool,
}

/// A field that a type does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{type_name} has no field {field}; it has {known}")]
pub struct UnknownField {
    /// The struct that was searched.
    pub type_name: String,
    /// The name, from the message on.
    pub field: String,
    /// The names that it has.
    pub known: String,
}

/// Characters of a field's name in a sentence.
const SHOWN_MAX: usize = 200;

/// The wanted part of a struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Wanted {
    /// All fields.
    #[default]
    Whole,
    /// These fields.
    Part(BTreeMap<String, Wanted>),
}

impl Wanted {
    fn of(fields: &[String]) -> Self {
        if fields.is_empty() {
            return Self::Whole;
        }
        let mut wanted = Self::Part(BTreeMap::new());
        for field in fields {
            // No type is nested deeper, so that a longer path fails at its beginning.
            wanted.add(&mut field.split('.').take(NESTING_MAX + 2));
        }
        wanted
    }

    fn add<'a>(&mut self, names: &mut impl Iterator<Item = &'a str>) {
        match (names.next(), self) {
            (None, wanted) => *wanted = Self::Whole,
            (Some(_), Self::Whole) => {}
            (Some(name), Self::Part(fields)) => fields
                .entry(name.to_owned())
                .or_insert_with(|| Self::Part(BTreeMap::new()))
                .add(names),
        }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Whole => Some(self),
            Self::Part(fields) => fields.get(name),
        }
    }

    /// A name of any length, for a sentence.
    fn shown(name: &str) -> String {
        match name.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}...", &name[..end]),
            None => name.to_owned(),
        }
    }

    /// Refuses names that the struct does not have.
    fn check(&self, plan: &TypePlan, structure: &StructPlan, path: &str) -> Result<(), UnknownField> {
        let Self::Part(fields) = self else {
            return Ok(());
        };
        for (name, inner) in fields {
            let full = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let found = structure.field(name).filter(|_| !structure.is_empty);
            let inner_structure = found.map(|(_, field)| field.structure_of(plan));
            match (inner_structure, inner) {
                (Some(Some(inner_structure)), inner) => inner.check(plan, inner_structure, &full)?,
                (Some(None), Self::Whole) => {}
                (Some(None), Self::Part(_)) => {
                    return Err(UnknownField {
                        type_name: structure.type_name.clone(),
                        field: Self::shown(&format!("{full}.{}", inner.first_name())),
                        known: format!("{name} without fields"),
                    });
                }
                (None, _) => {
                    let known: Vec<&str> = structure
                        .fields
                        .iter()
                        .filter(|_| !structure.is_empty)
                        .map(|field| field.name.as_str())
                        .collect();
                    return Err(UnknownField {
                        type_name: structure.type_name.clone(),
                        field: Self::shown(&full),
                        known: known.join(", "),
                    });
                }
            }
        }
        Ok(())
    }

    fn first_name(&self) -> &str {
        match self {
            Self::Part(fields) => fields.keys().next().map_or("", String::as_str),
            Self::Whole => "",
        }
    }
}

impl FieldPlan {
    /// The struct that the field holds, one or many of it.
    fn structure_of<'p>(&self, plan: &'p TypePlan) -> Option<&'p StructPlan> {
        match self.element {
            super::ElementPlan::Struct(index) => Some(plan.structure(index)),
            _ => None,
        }
    }
}

/// The steps that give all fields of a type, for XCDR1 and for XCDR2.
pub(super) fn whole(plan: &TypePlan) -> [Program; 2] {
    let options = ColumnOptions {
        nested: true,
        ..ColumnOptions::default()
    };
    [8, 4].map(|align_max| compile::compile(plan, &Wanted::Whole, &options, align_max).0)
}

/// Makes columns of payloads.
#[derive(Clone, Debug)]
pub struct ColumnBuilder {
    plan: Arc<TypePlan>,
    /// Programs for XCDR1, which aligns to eight, and for XCDR2, which aligns to four.
    programs: [Program; 2],
    shapes: Vec<(String, Shape)>,
    buffers: Buffers,
    rows: usize,
}

impl ColumnBuilder {
    /// Compiles a plan for the wanted fields.
    ///
    /// # Errors
    /// A field that the type does not have.
    pub fn new(plan: Arc<TypePlan>, options: &ColumnOptions) -> Result<Self, UnknownField> {
        let wanted = Wanted::of(&options.fields);
        wanted.check(&plan, plan.root(), "")?;
        let (first, shapes, buffers) = compile::compile(&plan, &wanted, options, 8);
        // The same columns in the same order: only the offsets differ.
        let (second, _, _) = compile::compile(&plan, &wanted, options, 4);
        Ok(Self {
            plan,
            programs: [first, second],
            shapes,
            buffers,
            rows: 0,
        })
    }

    /// The type.
    pub fn plan(&self) -> &Arc<TypePlan> {
        &self.plan
    }

    /// Number of rows since the last [`ColumnBuilder::take`].
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that the rows take.
    pub fn bytes(&self) -> usize {
        self.buffers.bytes()
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A payload that does not fit the type; no row is appended then.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        if run(&self.plan, &self.programs, &mut self.buffers, payload).is_some() {
            self.rows += 1;
            return Ok(());
        }
        for (_, shape) in &self.shapes {
            shape.truncate(&mut self.buffers, self.rows);
        }
        // Found again by the walk, which describes the place.
        self.plan.walk(payload, &mut Ignored)?;
        Err(DecodeError::new(0, "a message of this type", "another one").in_type(self.plan.type_name()))
    }

    /// The columns without rows.
    pub fn take_none(&self) -> Batch {
        let mut empty = Self {
            plan: Arc::clone(&self.plan),
            programs: [Program::new(), Program::new()],
            shapes: self.shapes.clone(),
            buffers: self.buffers.emptied(),
            rows: 0,
        };
        empty.take()
    }

    /// The rows so far as columns; the builder is empty then.
    pub fn take(&mut self) -> Batch {
        let rows = std::mem::take(&mut self.rows);
        let columns = self
            .shapes
            .iter()
            .map(|(name, shape)| Column {
                name: name.clone(),
                array: shape.take(&mut self.buffers, rows),
            })
            .collect();
        Batch { rows, columns }
    }
}

/// A visitor that wants nothing.
struct Ignored;

impl<'a> Visitor<'a> for Ignored {
    fn scalar(&mut self, _value: Scalar<'a>) {}
    fn primitives(&mut self, _field: &FieldPlan, _values: Primitives<'a>) {}
    fn begin_list(&mut self, _field: &FieldPlan, _count: u64) {}
    fn end_list(&mut self, _field: &FieldPlan, _count: u64) {}
}
