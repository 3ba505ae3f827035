//! One field of a message in any notation: a visitor that passes on the value at a path.

use crate::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, Visitor};

/// Most steps of a path.
const STEPS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(u64),
}

/// The path of a field in a message: `pose.position.x`, `ranges[0]`, `poses[2].position`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<Step>);

impl FieldPath {
    /// Reads a path; whether a type has such a field shows when its messages are read.
    ///
    /// # Errors
    /// One sentence about the part that is not a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is not the path of a field, such as pose.position.x or ranges[0]");
        let mut steps = Vec::new();
        for part in text.split('.') {
            let mut pieces = part.split('[');
            let name = pieces.next().unwrap_or_default();
            if name.is_empty()
                || !name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                return Err(refused());
            }
            steps.push(Step::Field(name.to_owned()));
            for piece in pieces {
                let index = piece.strip_suffix(']').and_then(|index| index.parse().ok());
                steps.push(Step::Item(index.ok_or_else(refused)?));
            }
        }
        if steps.len() > STEPS_MAX {
            return Err(refused());
        }
        Ok(Self(steps))
    }

    /// A visitor that passes on the value at the path to `inner`.
    pub(super) fn select<'v, V>(&'v self, inner: &'v mut V) -> Selected<'v, V> {
        Selected {
            steps: &self.0,
            inner,
            at: 0,
            starts: Vec::new(),
            inside: 0,
            passes: false,
            is_found: false,
        }
    }
}

/// See [`FieldPath::select`].
pub(super) struct Selected<'v, V> {
    steps: &'v [Step],
    inner: &'v mut V,
    /// Steps that the walk has taken.
    at: usize,
    /// Steps that the walk had taken where each open struct above the path began: one field of it is on the path.
    starts: Vec<usize>,
    /// Structs and lists that are open below the path.
    inside: usize,
    /// Whether the current element is one before that of the path.
    passes: bool,
    /// Whether the value was passed on.
    pub is_found: bool,
}

impl<V> Selected<'_, V> {
    /// Whether the next value is the one at the path.
    fn is_here(&self) -> bool {
        self.at == self.steps.len() && self.inside == 0 && !self.is_found
    }

    /// Whether the part that begins now is passed on.
    fn begins(&mut self) -> bool {
        let begins = self.inside > 0 || self.is_here();
        self.inside += usize::from(begins);
        begins
    }

    /// Whether the part that ends now was passed on.
    fn ends(&mut self) -> bool {
        let ends = self.inside > 0;
        self.inside -= usize::from(ends);
        self.is_found |= ends && self.inside == 0;
        ends
    }
}

impl<'a, V: Visitor<'a>> Visitor<'a> for Selected<'_, V> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        if self.inside > 0 {
            return self.inner.wants_field(field);
        }
        let is_next = matches!(self.steps.get(self.at), Some(Step::Field(name)) if *name == field.name);
        let wants = is_next && !self.passes && self.starts.last() == Some(&self.at);
        self.at += usize::from(wants);
        wants
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        if self.inside > 0 {
            self.inner.scalar(value);
        } else if self.is_here() {
            self.inner.scalar(value);
            self.is_found = true;
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if self.inside > 0 {
            return self.inner.primitives(field, values);
        }
        if self.is_here() {
            self.inner.primitives(field, values);
            self.is_found = true;
        } else if let Some([Step::Item(index)]) = self.steps.get(self.at..)
            && let Some(value) = usize::try_from(*index).ok().and_then(|index| values.get(index))
        {
            self.inner.scalar(value);
            self.is_found = true;
        }
    }

    fn begin_struct(&mut self, structure: &StructPlan) {
        if self.begins() {
            self.inner.begin_struct(structure);
        } else {
            self.starts.push(self.at);
        }
    }

    fn end_struct(&mut self, structure: &StructPlan) {
        if self.ends() {
            self.inner.end_struct(structure);
        } else {
            self.starts.pop();
        }
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        if self.begins() {
            self.inner.begin_list(field, count);
        }
    }

    fn wants_item(&mut self, index: u64) -> bool {
        if self.inside > 0 {
            return self.inner.wants_item(index);
        }
        let Some(Step::Item(wanted)) = self.steps.get(self.at) else {
            return false;
        };
        self.passes = index < *wanted;
        self.at += usize::from(index == *wanted);
        index <= *wanted
    }

    fn end_list(&mut self, field: &FieldPlan, count: u64) {
        if self.ends() {
            self.inner.end_list(field, count);
        }
        self.passes = false;
    }
}
