//! A message as a YAML block: structs by indentation, lists of plain values on one line.

use super::{TextOptions, list_summary, number, shown_text, write_json_string};
use crate::dynamic::{ElementPlan, FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};

/// A visitor that appends YAML.
pub struct YamlVisitor<'p, 'o> {
    plan: &'p TypePlan,
    out: &'o mut Vec<u8>,
    options: &'p TextOptions,
    end: usize,
    indent: usize,
    /// The open structs and lists.
    open: Vec<Open>,
    is_cut: bool,
}

enum Open {
    /// A struct; whether its first field follows the `- ` of a list.
    Struct { after_dash: bool, is_first: bool },
    /// A list of structs, each after a `- `.
    Block,
    /// A list of texts on one line.
    Line,
    /// A list written as a summary only.
    Hidden,
}

impl<'p, 'o> YamlVisitor<'p, 'o> {
    /// Appends to `out`, which ends with a key and its colon.
    pub fn new(plan: &'p TypePlan, out: &'o mut Vec<u8>, indent: usize, options: &'p TextOptions) -> Self {
        let end = out.len().saturating_add(options.bytes_max);
        Self {
            plan,
            out,
            options,
            end,
            indent,
            open: Vec::new(),
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

    fn new_line(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + self.indent, b' ');
    }

    /// The space after a key's colon; elements of a list have their own.
    fn space(&mut self) {
        if !matches!(self.open.last(), Some(Open::Line)) {
            self.out.push(b' ');
        }
    }

    fn summary(&mut self, field: &FieldPlan, count: u64) {
        self.space();
        write_json_string(self.out, &list_summary(self.plan, field, count));
    }
}

impl<'a> Visitor<'a> for YamlVisitor<'_, '_> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        if !self.has_room() {
            return false;
        }
        let on_line = match self.open.last_mut() {
            Some(Open::Struct { after_dash, is_first }) => {
                let on_line = *after_dash && *is_first;
                *is_first = false;
                on_line
            }
            _ => false,
        };
        if !on_line {
            self.new_line();
        }
        write_yaml_key(self.out, &field.name);
        self.out.push(b':');
        true
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        self.space();
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
        self.space();
        self.is_cut |= !number::write_list(self.out, values, self.options, self.end, &number::YAML);
    }

    fn begin_struct(&mut self, structure: &StructPlan) {
        let after_dash = matches!(self.open.last(), Some(Open::Block));
        if structure.is_empty {
            self.out
                .extend_from_slice(if after_dash { b"{}" } else { b" {}" });
        }
        // The fields of the message itself are at the indentation that was given.
        if !self.open.is_empty() {
            self.indent += 2;
        }
        self.open.push(Open::Struct {
            after_dash,
            is_first: true,
        });
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.open.pop();
        if !self.open.is_empty() {
            self.indent -= 2;
        }
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        if !self.options.lists {
            self.summary(field, count);
            return self.open.push(Open::Hidden);
        }
        match field.element {
            ElementPlan::Struct(_) if count > 0 => self.open.push(Open::Block),
            _ => {
                self.out.extend_from_slice(b" [");
                self.open.push(Open::Line);
            }
        }
    }

    fn wants_item(&mut self, index: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        match self.open.last() {
            Some(Open::Block) => {
                self.new_line();
                self.out.extend_from_slice(b"- ");
            }
            Some(Open::Line) if index > 0 => self.out.extend_from_slice(b", "),
            Some(Open::Line) => {}
            _ => return false,
        }
        let is_shown = self.options.length_max.is_none_or(|most| index < most as u64);
        if !is_shown {
            self.out.extend_from_slice(b"\"...\"");
        }
        is_shown
    }

    fn end_list(&mut self, _: &FieldPlan, _: u64) {
        if let Some(Open::Line) = self.open.pop() {
            self.out.push(b']');
        }
    }
}

/// Appends the name of a field as a key.
pub(super) fn write_yaml_key(out: &mut Vec<u8>, name: &str) {
    // Readers of YAML 1.1 take a key of this name for a boolean. `y` and `n` are names to them, and to `ros2 topic echo`.
    if name.len() > 1 && is_word(name) {
        write_json_string(out, name);
    } else {
        out.extend_from_slice(name.as_bytes());
    }
}

/// Appends a text: unchanged when every YAML reader reads it as that text, else in quotes.
pub fn write_yaml_string(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    let begin = out.len();
    write_json_string(out, text);
    // JSON texts may contain these, YAML texts only as escapes.
    if text.contains(NOT_IN_YAML) {
        let quoted = String::from_utf8_lossy(&out[begin..]).into_owned();
        out.truncate(begin);
        let escaped = quoted
            .replace(NOT_IN_YAML[0], "\\ufffe")
            .replace(NOT_IN_YAML[1], "\\uffff");
        out.extend_from_slice(escaped.as_bytes());
    }
}

/// Characters that no YAML text may contain and JSON texts may.
const NOT_IN_YAML: [char; 2] = ['\u{fffe}', '\u{ffff}'];

/// Letters, digits and `_ / . -`, beginning with a letter, `_` or `/`, and not a word with a meaning in YAML
/// 1.1 or 1.2.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '/'))
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/' | b'.' | b'-'))
        && !is_word(text)
}

/// True for words that YAML 1.1 or 1.2 reads as a boolean or as null.
fn is_word(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_mean_something_else_are_quoted() {
        let text = |text: &str| {
            let mut out = Vec::new();
            write_yaml_string(&mut out, text);
            String::from_utf8(out).unwrap()
        };
        for plain in ["base_link", "/imu/data", "a.b-c"] {
            assert_eq!(text(plain), plain);
        }
        for quoted in [
            "", "yes", "NO", "12", "-1", ".inf", "a: b", "a, b", "~", "null", "#x", "é", "y",
        ] {
            assert_eq!(text(quoted), format!("\"{quoted}\""));
        }
    }
}
