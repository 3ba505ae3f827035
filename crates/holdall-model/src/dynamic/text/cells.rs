//! A message as cells on one line, as `ros2 topic echo --csv` writes it: every value in the order of the definition, lists element by element.

use super::{TextOptions, compiled::quote, list_summary, number, plain, shown_count, shown_text};
use crate::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};

/// Most elements between two looks at the length of the text.
const LOOK_EVERY: usize = 1024;

/// A visitor that appends cells with commas between them; texts are in quotes where they need them (RFC 4180). A list or a struct without
/// elements is one empty cell.
pub struct CellsVisitor<'p, 'o> {
    plan: &'p TypePlan,
    out: &'o mut Vec<u8>,
    options: &'p TextOptions,
    begin: usize,
    end: usize,
    /// Whether a cell precedes the next one.
    follows: bool,
    is_hidden: bool,
    is_cut: bool,
}

impl<'p, 'o> CellsVisitor<'p, 'o> {
    /// Appends to `out`.
    pub fn new(plan: &'p TypePlan, out: &'o mut Vec<u8>, options: &'p TextOptions) -> Self {
        let begin = out.len();
        Self {
            plan,
            end: begin.saturating_add(options.bytes_max),
            out,
            options,
            begin,
            follows: false,
            is_hidden: false,
            is_cut: false,
        }
    }

    /// True when writing stopped because the text became too long.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn has_room(&mut self) -> bool {
        self.is_cut |= self.out.len() > self.end;
        !self.is_cut
    }

    fn text(&mut self, text: &str) {
        self.next();
        quote(self.out, text.as_bytes());
    }

    fn next(&mut self) {
        if self.follows {
            self.out.push(b',');
        }
        self.follows = true;
    }

    fn summary(&mut self, field: &FieldPlan, count: u64) {
        let summary = list_summary(self.plan, field, count);
        self.text(&summary);
    }
}

impl<'a> Visitor<'a> for CellsVisitor<'_, '_> {
    fn wants_field(&mut self, _: &FieldPlan) -> bool {
        self.has_room()
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        match value {
            Scalar::Text(_) | Scalar::Wide(_) => {
                let text = plain(value);
                self.text(&shown_text(text.into(), self.options));
            }
            // As Python writes them.
            Scalar::Bool(value) => self.text(if value { "True" } else { "False" }),
            value => {
                self.next();
                number::write(self.out, value, &number::PLAIN);
            }
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if !self.options.lists {
            return self.summary(field, values.len() as u64);
        }
        if values.is_empty() {
            return self.next();
        }
        let shown = shown_count(values.len(), self.options);
        for (index, value) in values.first(shown).iter().enumerate() {
            if index % LOOK_EVERY == 0 && !self.has_room() {
                return;
            }
            self.scalar(value);
        }
        if shown < values.len() {
            self.text("...");
        }
    }

    fn begin_struct(&mut self, structure: &StructPlan) {
        if structure.is_empty && self.out.len() > self.begin {
            self.next();
        }
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        self.is_hidden = !self.options.lists;
        if self.is_hidden {
            self.summary(field, count);
        } else if count == 0 {
            self.next();
        }
    }

    fn wants_item(&mut self, index: u64) -> bool {
        if self.is_hidden || !self.has_room() {
            return false;
        }
        let is_shown = self.options.length_max.is_none_or(|most| index < most as u64);
        if !is_shown {
            self.text("...");
        }
        is_shown
    }

    fn end_list(&mut self, _: &FieldPlan, _: u64) {
        self.is_hidden = false;
    }
}
