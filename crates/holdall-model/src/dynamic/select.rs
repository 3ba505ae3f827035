//! Takes a few values out of a payload and skips the rest.

use super::{
    error::DecodeError,
    plan::{ElementPlan, FieldPlan, StructPlan, TypePlan},
    primitives::Primitives,
    value::Scalar,
    walk::Walker,
};
use crate::interface::Arity;
use serde_json::Value;

/// One step of the path to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The field at this index of its struct.
    Field(usize),
    /// The element at this index of a list; from the end where negative.
    Item(i64),
    /// Every element of a list.
    All,
}

/// The form in which the end of a path is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The value.
    Value,
    /// The number of elements of a list.
    Length,
    /// `sec` and `nanosec` of a struct, as seconds.
    Seconds,
}

/// Values of one path that are shown.
const SHOWN_MAX: usize = 8;

/// The result for one path.
#[derive(Clone, Debug, Default)]
pub(super) enum Found<'a> {
    /// Nothing: the list is shorter.
    #[default]
    Nothing,
    /// A value.
    One(Scalar<'a>),
    /// Several values.
    Many(Vec<Scalar<'a>>),
    /// All values of a plain list.
    All(Primitives<'a>),
    /// A number of elements.
    Length(u64),
}

impl<'a> Found<'a> {
    fn add(&mut self, value: Scalar<'a>) {
        *self = match std::mem::take(self) {
            Found::One(first) => Found::Many(vec![first, value]),
            Found::Many(mut values) => {
                values.push(value);
                Found::Many(values)
            }
            _ => Found::One(value),
        };
    }

    /// As a JSON value; of many, the first ones.
    pub fn to_json(&self) -> Value {
        let list = |values: &mut dyn Iterator<Item = Scalar<'_>>| {
            Value::Array(values.take(SHOWN_MAX).map(Scalar::to_json).collect())
        };
        match self {
            Found::Nothing => Value::Null,
            Found::One(value) => value.to_json(),
            Found::Many(values) => list(&mut values.iter().copied()),
            Found::All(values) => list(&mut values.iter()),
            Found::Length(count) => Value::from(*count),
        }
    }
}

/// The paths that are wanted of a struct, merged so that one pass finds all.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Wanted fields by index, in order.
    fields: Vec<(usize, Wanted)>,
}

/// The wanted parts of a field or an element.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Slots for the value itself.
    values: Vec<usize>,
    /// Slots for the length of the list.
    lengths: Vec<usize>,
    /// Slots for a time in seconds.
    seconds: Vec<usize>,
    /// The wanted fields of a struct.
    inner: Selection,
    /// The wanted elements.
    items: Vec<(Option<i64>, Wanted)>,
}

impl Selection {
    /// Adds a path; its value goes into `slot`.
    pub fn add(&mut self, steps: &[Step], taken: Taken, slot: usize) {
        let [Step::Field(index), rest @ ..] = steps else {
            return;
        };
        let at = match self.fields.binary_search_by_key(index, |(field, _)| *field) {
            Ok(at) => at,
            Err(at) => {
                self.fields.insert(at, (*index, Wanted::default()));
                at
            }
        };
        self.fields[at].1.add(rest, taken, slot);
    }

    fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Fills `slots` from a payload; reads no further than needed.
    pub fn find<'a>(
        &self,
        plan: &TypePlan,
        payload: &'a [u8],
        slots: &mut [Found<'a>],
    ) -> Result<(), DecodeError> {
        let mut find = || {
            let mut walker = Walker {
                plan,
                cursor: plan.cursor(payload)?,
            };
            walker.select(self, plan.root(), slots, false)
        };
        find().map_err(|error: DecodeError| error.in_type(plan.type_name()))
    }
}

impl Wanted {
    fn add(&mut self, steps: &[Step], taken: Taken, slot: usize) {
        let item = match steps {
            [] => {
                match taken {
                    Taken::Value => self.values.push(slot),
                    Taken::Length => self.lengths.push(slot),
                    Taken::Seconds => self.seconds.push(slot),
                }
                return;
            }
            [Step::Field(_), ..] => return self.inner.add(steps, taken, slot),
            [Step::Item(index), ..] => Some(*index),
            [Step::All, ..] => None,
        };
        let at = match self.items.iter().position(|(known, _)| *known == item) {
            Some(at) => at,
            None => {
                self.items.push((item, Wanted::default()));
                self.items.len() - 1
            }
        };
        self.items[at].1.add(&steps[1..], taken, slot);
    }
}

impl<'p, 'a> Walker<'p, 'a> {
    /// Takes the wanted fields of a struct. With `to_end`, the cursor must end up after the struct.
    fn select(
        &mut self,
        wanted: &Selection,
        structure: &'p StructPlan,
        slots: &mut [Found<'a>],
        to_end: bool,
    ) -> Result<(), DecodeError> {
        let mut next = 0;
        for (at, (index, wanted_field)) in wanted.fields.iter().enumerate() {
            self.skip_fields(structure, next..*index)?;
            let field = &structure.fields[*index];
            let is_last = !to_end && at + 1 == wanted.fields.len();
            self.select_field(wanted_field, field, slots, !is_last)
                .map_err(|error| error.in_field(&field.name))?;
            next = index + 1;
        }
        if to_end {
            self.skip_fields(structure, next..structure.fields.len())?;
        }
        Ok(())
    }

    fn skip_fields(
        &mut self,
        structure: &'p StructPlan,
        range: std::ops::Range<usize>,
    ) -> Result<(), DecodeError> {
        for field in &structure.fields[range] {
            self.skip_field(field)
                .map_err(|error| error.in_field(&field.name))?;
        }
        Ok(())
    }

    fn select_field(
        &mut self,
        wanted: &Wanted,
        field: &'p FieldPlan,
        slots: &mut [Found<'a>],
        to_end: bool,
    ) -> Result<(), DecodeError> {
        if field.arity == Arity::One {
            return self.select_element(&[wanted], field, slots, to_end);
        }
        let count = self.count_of(field)?;
        for slot in &wanted.lengths {
            slots[*slot] = Found::Length(count);
        }
        if let ElementPlan::Primitive(kind) = field.element {
            let values = self.cursor.primitives(kind, count)?;
            select_primitives(wanted, values, slots);
            return Ok(());
        }
        let last = last_wanted(wanted, count);
        for index in 0..last {
            let items: Vec<&Wanted> = wanted
                .items
                .iter()
                .filter(|(item, _)| item.is_none_or(|item| place(item, count) == Some(index)))
                .map(|(_, wanted)| wanted)
                .collect();
            let selected = if items.is_empty() {
                self.skip_elements(field, index..index + 1)
            } else {
                let is_last = !to_end && index + 1 == last;
                self.select_element(&items, field, slots, !is_last)
                    .map_err(|error| error.in_item(index))
            };
            selected?;
        }
        if to_end {
            self.skip_elements(field, last..count)?;
        }
        Ok(())
    }

    /// Takes the parts of one value or struct that several paths want.
    fn select_element(
        &mut self,
        wanted: &[&Wanted],
        field: &'p FieldPlan,
        slots: &mut [Found<'a>],
        to_end: bool,
    ) -> Result<(), DecodeError> {
        let ElementPlan::Struct(index) = field.element else {
            let value = self.scalar(field)?;
            for slot in wanted.iter().flat_map(|wanted| &wanted.values) {
                slots[*slot].add(value);
            }
            return Ok(());
        };
        let structure = self.plan.structure(index);
        let begin = self.cursor.clone();
        for slot in wanted.iter().flat_map(|wanted| &wanted.seconds) {
            self.cursor = begin.clone();
            if let Some(seconds) = self.seconds(structure)? {
                slots[*slot].add(Scalar::F64(seconds));
            }
        }
        self.cursor = begin.clone();
        // Several paths meet here only where an index and `*` are both used on one list: each reads it
        // separately.
        let inner: Vec<&Selection> = wanted
            .iter()
            .map(|wanted| &wanted.inner)
            .filter(|inner| !inner.is_empty())
            .collect();
        for (at, selection) in inner.iter().enumerate() {
            if at > 0 {
                self.cursor = begin.clone();
            }
            self.select(selection, structure, slots, to_end && at + 1 == inner.len())?;
        }
        if inner.is_empty() && to_end {
            self.skip_struct(structure)?;
        }
        Ok(())
    }

    /// A time or a duration: its first field in seconds, its second in nanoseconds.
    fn seconds(&mut self, structure: &'p StructPlan) -> Result<Option<f64>, DecodeError> {
        let [first, second] = structure.fields.as_slice() else {
            return Ok(None);
        };
        Ok(match (self.scalar(first)?, self.scalar(second)?) {
            (Scalar::I32(seconds), Scalar::U32(nanos)) => Some(f64::from(seconds) + f64::from(nanos) * 1e-9),
            _ => None,
        })
    }
}

fn select_primitives<'a>(wanted: &Wanted, values: Primitives<'a>, slots: &mut [Found<'a>]) {
    for (item, wanted) in &wanted.items {
        for slot in &wanted.values {
            match item {
                // Nested lists come one after the other.
                None if matches!(slots[*slot], Found::Nothing) => slots[*slot] = Found::All(values),
                None => {
                    if let Found::All(before) = slots[*slot] {
                        slots[*slot] = Found::Many(before.iter().collect());
                    }
                    values.iter().for_each(|value| slots[*slot].add(value));
                }
                Some(index) => {
                    let at = place(*index, values.len() as u64).and_then(|at| usize::try_from(at).ok());
                    if let Some(value) = at.and_then(|at| values.get(at)) {
                        slots[*slot].add(value);
                    }
                }
            }
        }
    }
}

/// The position that an index names in a list of `count`; `None` beyond its end or before its start.
pub(super) fn place(index: i64, count: u64) -> Option<u64> {
    let place = if index < 0 {
        count.checked_sub(index.unsigned_abs())?
    } else {
        index.unsigned_abs()
    };
    (place < count).then_some(place)
}

/// Elements after this one are not wanted.
fn last_wanted(wanted: &Wanted, count: u64) -> u64 {
    let ends = wanted.items.iter().map(|(item, _)| match item {
        None => count,
        Some(index) => place(*index, count).map_or(0, |place| place + 1),
    });
    ends.max().unwrap_or(0)
}
