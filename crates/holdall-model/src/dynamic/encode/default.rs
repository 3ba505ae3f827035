//! Default values as `.msg` and IDL files write them.

use super::Literal;
use crate::{
    dynamic::{ElementPlan, FieldPlan},
    interface::{Arity, FieldDefault, Primitive},
};

/// The default of a field, as its definition has it.
#[derive(Clone, Debug)]
pub(in crate::dynamic) struct DefaultText(FieldDefault);

impl DefaultText {
    pub const fn new(default: FieldDefault) -> Self {
        Self(default)
    }

    /// The text in the definition.
    pub fn text(&self) -> &str {
        match &self.0 {
            FieldDefault::Msg(text) | FieldDefault::Idl(text) => text,
        }
    }

    /// The value; `None` when the text has another form.
    pub fn literal(&self, field: &FieldPlan) -> Option<Literal> {
        let is_list = field.arity != Arity::One;
        match (&self.0, is_list) {
            (FieldDefault::Msg(text), false) => one(field, text),
            (FieldDefault::Msg(text), true) => list(field, text.strip_prefix('[')?.strip_suffix(']')?),
            (FieldDefault::Idl(text), false) if is_text(field) => Some(Literal::Text(unescaped(text)?)),
            (FieldDefault::Idl(text), false) => one(field, text),
            // rosidl writes a list as a text with a tuple of Python.
            (FieldDefault::Idl(text), true) => {
                let text = unescaped(text)?;
                list(
                    field,
                    text.strip_prefix('(')?.strip_suffix(')')?.trim_end_matches(','),
                )
            }
        }
    }
}

const fn is_text(field: &FieldPlan) -> bool {
    matches!(
        field.element,
        ElementPlan::Text { .. } | ElementPlan::WideText { .. }
    )
}

/// One value by the rules of `rosidl_adapter`.
fn one(field: &FieldPlan, text: &str) -> Option<Literal> {
    let text = text.trim();
    Some(match field.element {
        ElementPlan::Struct(_) => return None,
        ElementPlan::Text { .. } | ElementPlan::WideText { .. } => Literal::Text(without_quotes(text)),
        ElementPlan::Primitive(Primitive::Boolean) => {
            Literal::Bool(match text.to_ascii_lowercase().as_str() {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return None,
            })
        }
        ElementPlan::Primitive(_) => Literal::Scalar(text.to_owned()),
    })
}

/// A text without the quotes around it, in which only that quote is escaped.
fn without_quotes(text: &str) -> String {
    for quote in ['"', '\''] {
        let inside = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inside) = inside {
            return inside.replace(&format!("\\{quote}"), &quote.to_string());
        }
    }
    text.to_owned()
}

/// Elements with commas between, which may be inside quotes.
fn list(field: &FieldPlan, text: &str) -> Option<Literal> {
    let mut items = Vec::new();
    if text.trim().is_empty() {
        return Some(Literal::List(items));
    }
    let mut begin = 0;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        let is_first = text[begin..at].trim().is_empty();
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' | '\'' if quote.is_none() && is_first && is_text(field) => quote = Some(c),
            c if quote == Some(c) => quote = None,
            ',' if quote.is_none() => {
                items.push(one(field, &text[begin..at])?);
                begin = at + 1;
            }
            _ => {}
        }
    }
    items.push(one(field, &text[begin..])?);
    Some(Literal::List(items))
}

/// An IDL text without its quotes and escapes.
fn unescaped(text: &str) -> Option<String> {
    let inside = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut plain = String::with_capacity(inside.len());
    let mut rest = inside.chars();
    while let Some(c) = rest.next() {
        plain.push(match c {
            '\\' => match rest.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'v' => '\u{b}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'a' => '\u{7}',
                'x' => hex(&mut rest, 2)?,
                'u' => hex(&mut rest, 4)?,
                other => other,
            },
            c => c,
        });
    }
    Some(plain)
}

fn hex(rest: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let text: String = rest.take(digits).collect();
    char::from_u32(u32::from_str_radix(&text, 16).ok()?)
}
