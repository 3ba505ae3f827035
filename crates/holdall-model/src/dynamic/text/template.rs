//! The text around a type's values, known before any message is read.

use super::number::{JSON, Notation, PLAIN};
use crate::{
    dynamic::{ElementPlan, FieldPlan, StructPlan, TypePlan},
    interface::Arity,
};

/// Types with more values are written by a walk: a type may name another one many times, on many levels.
const ENTRIES_MAX: usize = 4096;
/// Texts before a value up to this length are copied without a call.
const SHORT_BYTES: usize = 32;

/// The texts around the values of a type, in the order of its definition.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    pub entries: Vec<Entry>,
    /// Text after the last value.
    pub after: Literal,
    /// Bytes of all texts.
    pub bytes: usize,
}

/// A value, with the text before it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub before: Literal,
    pub form: Form,
    /// Occurs once in a message.
    pub is_single: bool,
}

/// How a value is written.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// A number or a boolean.
    Number(&'static Notation),
    /// Numbers in brackets.
    Numbers,
    /// Numbers as one cell each.
    Cells,
    /// Numbers in brackets, in one cell.
    NumbersCell,
    /// A text in quotes.
    Text,
    /// A text as a cell.
    TextCell,
    /// Texts or structs, whose entries follow.
    List(ListForm),
}

/// How a list of texts or structs is written.
#[derive(Clone, Debug)]
pub(super) struct ListForm {
    /// The entry after those of an element.
    pub end: usize,
    /// Text after each element.
    pub after: Literal,
    /// Whether the list is in brackets, with commas between the elements.
    pub has_brackets: bool,
    /// Whether the list is one cell.
    pub is_cell: bool,
}

/// A text that is known in advance.
#[derive(Clone, Debug, Default)]
pub(super) struct Literal {
    head: [u8; SHORT_BYTES],
    length: usize,
    /// The text, if it is longer than `head`.
    long: Box<[u8]>,
}

impl Literal {
    fn new(text: &[u8]) -> Self {
        let mut literal = Self {
            length: text.len(),
            ..Self::default()
        };
        match literal.head.get_mut(..text.len()) {
            Some(head) => head.copy_from_slice(text),
            None => literal.long = text.into(),
        }
        literal
    }

    #[inline]
    pub fn append(&self, out: &mut Vec<u8>) {
        if self.length > SHORT_BYTES {
            return out.extend_from_slice(&self.long);
        }
        let end = out.len() + self.length;
        // A length that is known here is copied without a call.
        out.extend_from_slice(&self.head);
        out.truncate(end);
    }
}

/// Which notation a part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Json,
    /// Cells, each after a comma. Arrays up to this length have a cell for each element.
    Cells(u64),
}

struct Builder<'p> {
    plan: &'p TypePlan,
    entries: Vec<Entry>,
    /// The text since the last value.
    pending: Vec<u8>,
    bytes: usize,
    /// Number of lists around the next value.
    depth: usize,
}

impl Template {
    /// The template of a type; `None` if it has too many values.
    pub fn new(plan: &TypePlan, style: Style) -> Option<Self> {
        if entries(plan) > ENTRIES_MAX {
            return None;
        }
        let mut builder = Builder {
            plan,
            entries: Vec::new(),
            pending: Vec::new(),
            bytes: 0,
            depth: 0,
        };
        builder.structure(plan.root(), style);
        let after = builder.literal();
        Some(Self {
            entries: builder.entries,
            after,
            bytes: builder.bytes,
        })
    }
}

/// Number of entries of a type, at least.
fn entries(plan: &TypePlan) -> usize {
    let mut counts: Vec<usize> = Vec::new();
    // Structs follow the structs that they contain.
    for index in 0..plan.structure_count() {
        let of_field = |field: &FieldPlan| match field.element {
            ElementPlan::Struct(inner) => counts.get(inner).copied().unwrap_or(1).saturating_add(1),
            _ => 1,
        };
        let fields = &plan.structure(index).fields;
        counts.push(fields.iter().map(of_field).fold(0, usize::saturating_add));
    }
    counts[plan.root_index()]
}

impl Builder<'_> {
    fn literal(&mut self) -> Literal {
        self.bytes += self.pending.len();
        let literal = Literal::new(&self.pending);
        self.pending.clear();
        literal
    }

    fn entry(&mut self, form: Form) {
        let before = self.literal();
        let is_single = self.depth == 0;
        self.entries.push(Entry {
            before,
            form,
            is_single,
        });
    }

    fn structure(&mut self, structure: &StructPlan, style: Style) {
        if style != Style::Json {
            if !structure.is_empty {
                structure.fields.iter().for_each(|field| self.field(field, style));
            }
            return;
        }
        self.pending.push(b'{');
        for (index, field) in structure.fields.iter().enumerate() {
            if structure.is_empty {
                break;
            }
            if index > 0 {
                self.pending.push(b',');
            }
            self.pending.push(b'"');
            self.pending.extend_from_slice(field.name.as_bytes());
            self.pending.extend_from_slice(b"\":");
            self.field(field, style);
        }
        self.pending.push(b'}');
    }

    fn field(&mut self, field: &FieldPlan, style: Style) {
        if field.arity == Arity::One {
            return self.element(field, style);
        }
        let is_plain = matches!(field.element, ElementPlan::Primitive(_));
        match (style, field.arity) {
            // No values come for an array without any.
            (Style::Json, Arity::Array(0)) if is_plain => self.pending.extend_from_slice(b"[]"),
            (Style::Json, _) if is_plain => self.entry(Form::Numbers),
            (Style::Json, _) => self.list(field, style, true, false),
            (Style::Cells(most), Arity::Array(count)) if count <= most => match (is_plain, count) {
                (true, 0) => {}
                (true, _) => {
                    self.pending.push(b',');
                    self.entry(Form::Cells);
                }
                (false, _) => self.list(field, style, false, false),
            },
            (Style::Cells(_), _) => {
                self.pending.push(b',');
                match is_plain {
                    true => self.entry(Form::NumbersCell),
                    false => self.list(field, Style::Json, true, true),
                }
            }
        }
    }

    /// A value, a text or a struct.
    fn element(&mut self, field: &FieldPlan, style: Style) {
        let form = match (field.element, style) {
            (ElementPlan::Struct(index), _) => {
                let plan = self.plan;
                return self.structure(plan.structure(index), style);
            }
            (ElementPlan::Primitive(_), Style::Json) => Form::Number(&JSON),
            (ElementPlan::Primitive(_), Style::Cells(_)) => Form::Number(&PLAIN),
            (_, Style::Json) => Form::Text,
            (_, Style::Cells(_)) => Form::TextCell,
        };
        if style != Style::Json {
            self.pending.push(b',');
        }
        self.entry(form);
    }

    fn list(&mut self, field: &FieldPlan, style: Style, has_brackets: bool, is_cell: bool) {
        let at = self.entries.len();
        let form = ListForm {
            end: 0,
            after: Literal::default(),
            has_brackets,
            is_cell,
        };
        self.entry(Form::List(form));
        self.depth += 1;
        self.element(field, style);
        self.depth -= 1;
        let (after, end) = (self.literal(), self.entries.len());
        if let Form::List(form) = &mut self.entries[at].form {
            (form.after, form.end) = (after, end);
        }
    }
}
