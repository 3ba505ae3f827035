//! A message as YAML in flow style, on one line: `{data: hello}`.

use super::{
    TextOptions, list_summary, number, shown_text, write_json_string,
    yaml::{write_yaml_key, write_yaml_string},
};
use crate::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};

/// A visitor that appends YAML in flow style.
pub struct FlowVisitor<'p, 'o> {
    plan: &'p TypePlan,
    out: &'o mut Vec<u8>,
    options: &'p TextOptions,
    end: usize,
    /// For each open struct whether a field precedes the next one.
    open: Vec<bool>,
    is_hidden: bool,
    is_cut: bool,
}

impl<'p, 'o> FlowVisitor<'p, 'o> {
    /// Appends to `out`.
    pub fn new(plan: &'p TypePlan, out: &'o mut Vec<u8>, options: &'p TextOptions) -> Self {
        Self {
            plan,
            end: out.len().saturating_add(options.bytes_max),
            out,
            options,
            open: Vec::new(),
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

    fn summary(&mut self, field: &FieldPlan, count: u64) {
        write_json_string(self.out, &list_summary(self.plan, field, count));
    }
}

impl<'a> Visitor<'a> for FlowVisitor<'_, '_> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        if !self.has_room() {
            return false;
        }
        if let Some(follows) = self.open.last_mut()
            && std::mem::replace(follows, true)
        {
            self.out.extend_from_slice(b", ");
        }
        write_yaml_key(self.out, &field.name);
        self.out.extend_from_slice(b": ");
        true
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        match value {
            Scalar::Text(text) => write_yaml_string(self.out, &shown_text(text.to_str(), self.options)),
            Scalar::Wide(text) => {
                write_yaml_string(self.out, &shown_text(text.to_text().into(), self.options));
            }
            value => number::write(self.out, value, &number::YAML),
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if !self.options.lists {
            return self.summary(field, values.len() as u64);
        }
        self.is_cut |= !number::write_list(self.out, values, self.options, self.end, &number::YAML);
    }

    fn begin_struct(&mut self, _: &StructPlan) {
        self.out.push(b'{');
        self.open.push(false);
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.out.push(b'}');
        self.open.pop();
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        self.is_hidden = !self.options.lists;
        if self.is_hidden {
            self.summary(field, count);
        } else {
            self.out.push(b'[');
        }
    }

    fn wants_item(&mut self, index: u64) -> bool {
        if self.is_hidden || !self.has_room() {
            return false;
        }
        if index > 0 {
            self.out.extend_from_slice(b", ");
        }
        let is_shown = self.options.length_max.is_none_or(|most| index < most as u64);
        if !is_shown {
            self.out.extend_from_slice(b"\"...\"");
        }
        is_shown
    }

    fn end_list(&mut self, _: &FieldPlan, _: u64) {
        if !std::mem::take(&mut self.is_hidden) {
            self.out.push(b']');
        }
    }
}
