//! A message as JSON on one line.

use super::{TextOptions, list_summary, number, shown_text};
use crate::{
    dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor},
    text::one_line,
};

/// A visitor that appends JSON.
pub struct JsonVisitor<'p, 'o> {
    plan: &'p TypePlan,
    out: &'o mut Vec<u8>,
    options: &'p TextOptions,
    /// Longest text, in bytes.
    end: usize,
    /// A key or an element precedes the next one, so a comma is needed.
    follows: bool,
    is_cut: bool,
}

impl<'p, 'o> JsonVisitor<'p, 'o> {
    /// Appends to `out`.
    pub fn new(plan: &'p TypePlan, out: &'o mut Vec<u8>, options: &'p TextOptions) -> Self {
        let end = out.len().saturating_add(options.bytes_max);
        Self {
            plan,
            out,
            options,
            end,
            follows: false,
            is_cut: false,
        }
    }

    /// Continues the text of another visitor; `follows` is what its [`Self::follows`] returned.
    #[must_use]
    pub fn resumed(mut self, follows: bool) -> Self {
        self.follows = follows;
        self
    }

    /// Whether a key or an element precedes the next one.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// True when writing stopped because the text became too long.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn has_room(&mut self) -> bool {
        self.is_cut |= self.out.len() > self.end;
        !self.is_cut
    }

    fn comma(&mut self) {
        if self.follows {
            self.out.push(b',');
        }
        self.follows = true;
    }
}

impl<'a> Visitor<'a> for JsonVisitor<'_, '_> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        if !self.has_room() {
            return false;
        }
        self.comma();
        self.out.push(b'"');
        // Names are letters, digits and `_`: no character needs an escape.
        self.out.extend_from_slice(field.name.as_bytes());
        self.out.extend_from_slice(b"\":");
        true
    }

    #[inline]
    fn scalar(&mut self, value: Scalar<'a>) {
        match value {
            Scalar::Text(text) => write_json_string(self.out, &shown_text(text.to_str(), self.options)),
            Scalar::Wide(text) => {
                write_json_string(self.out, &shown_text(text.to_text().into(), self.options));
            }
            value => number::write(self.out, value, &number::JSON),
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if !self.options.lists {
            let summary = list_summary(self.plan, field, values.len() as u64);
            return write_json_string(self.out, &summary);
        }
        self.is_cut |= !number::write_list(self.out, values, self.options, self.end, &number::JSON);
    }

    fn begin_struct(&mut self, _: &StructPlan) {
        self.out.push(b'{');
        self.follows = false;
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.out.push(b'}');
        self.follows = true;
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        if self.options.lists {
            self.out.push(b'[');
            self.follows = false;
        } else {
            write_json_string(self.out, &list_summary(self.plan, field, count));
        }
    }

    fn wants_item(&mut self, index: u64) -> bool {
        if !self.options.lists || !self.has_room() {
            return false;
        }
        self.comma();
        let is_shown = self.options.length_max.is_none_or(|most| index < most as u64);
        if !is_shown {
            self.out.extend_from_slice(b"\"...\"");
        }
        is_shown
    }

    fn end_list(&mut self, _: &FieldPlan, _: u64) {
        if self.options.lists {
            self.out.push(b']');
        }
        self.follows = true;
    }
}

/// Appends a text in quotes, escaped for JSON and for terminals ([`is_control`](crate::text::is_control)).
pub fn write_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(may_need_escape) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let Some(c) = from.chars().next() else { break };
        let (this, after) = from.split_at(c.len_utf8());
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            _ => out.extend_from_slice(one_line(this).as_bytes()),
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

/// Control characters begin with these bytes in UTF-8, and few others do.
const fn may_need_escape(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7f | 0xc2 | 0xd8 | 0xe2 | 0xef)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::is_control;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_is_read_back(text in "\\PC{0,20}|[\\x00-\\x7f\u{80}-\u{9f}\u{2028}\"\\\\]{0,20}") {
            let mut out = Vec::new();
            write_json_string(&mut out, &text);
            prop_assert!(!String::from_utf8_lossy(&out).contains(is_control));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
