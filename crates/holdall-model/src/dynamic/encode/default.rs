//! Default values as `.msg` and IDL files write them.

use super::Literal;
use crate::{
    dynamic::{ElementPlan, FieldPlan},
    interface::{Arity, Definition, FieldDefault, Primitive},
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
        ElementPlan::Primitive(Primitive::Boolean) => Literal::Bool(boolean(text)?),
        ElementPlan::Primitive(_) => Literal::Scalar(text.to_owned()),
    })
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// The constants of a type of a definition, in order; those whose texts have no value of their type are left out.
pub fn constants(definition: &Definition, type_name: &str) -> Vec<(String, Literal)> {
    let values = definition.constants(type_name).into_iter();
    values
        .filter_map(|constant| {
            let value = constant_value(&constant.type_name, &constant.value)?;
            Some((constant.name, value))
        })
        .collect()
}

fn constant_value(type_name: &str, value: &FieldDefault) -> Option<Literal> {
    let (FieldDefault::Msg(text) | FieldDefault::Idl(text)) = value;
    let text = text.trim();
    Some(match (type_name, value) {
        ("string" | "wstring", FieldDefault::Msg(_)) => Literal::Text(without_quotes(text)),
        ("string" | "wstring", FieldDefault::Idl(_)) => {
            Literal::Text(unescaped(text.strip_prefix('L').unwrap_or(text))?)
        }
        ("bool" | "boolean", _) => Literal::Bool(boolean(text)?),
        ("float" | "double" | "float32" | "float64", _) => Literal::Float(text.parse().ok()?),
        _ => Literal::Integer(integer(text)?),
    })
}

/// A whole number as Python reads it: decimal, or with the prefix of another base.
fn integer(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits.trim_start()),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let bases = [("0x", 16), ("0o", 8), ("0b", 2)];
    let (digits, base) = bases
        .iter()
        .find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, *base)))
        .unwrap_or((lower.as_str(), 10));
    let number = i128::from_str_radix(digits, base).ok()?;
    Some(if is_negative { -number } else { number })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{InterfaceSource, SourceFormat};

    fn of(type_name: &str, format: SourceFormat, text: &str) -> Vec<(String, Literal)> {
        let file = crate::interface::defining_type(type_name).to_owned();
        let lookup = |name: &str| {
            (name == file).then(|| InterfaceSource {
                format,
                text: text.to_owned().into(),
            })
        };
        constants(&Definition::resolve(type_name, lookup).unwrap(), type_name)
    }

    #[test]
    fn constants_have_the_values_of_their_types() {
        let msg = "uint8 A=1\nint8 B=-3 # c\nuint16 H=0xFF\nfloat32 F=1.5\nbool T=True\nstring S= \"a b\"\nstring P=plain text\nint32 x\n";
        let expected = [
            ("A", Literal::Integer(1)),
            ("B", Literal::Integer(-3)),
            ("H", Literal::Integer(255)),
            ("F", Literal::Float(1.5)),
            ("T", Literal::Bool(true)),
            ("S", Literal::Text("a b".to_owned())),
            ("P", Literal::Text("plain text".to_owned())),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(of("a/msg/A", SourceFormat::Msg, msg), expected);
        let srv = "uint8 ONE=1\n---\nuint8 TWO=2\n";
        assert_eq!(
            of("a/srv/S_Response", SourceFormat::Srv, srv),
            [("TWO".to_owned(), Literal::Integer(2))]
        );
        let idl = "module a { module msg { module A_Constants { const octet ONE = 1; const long NEG = -7; const string NAME = \"x\\ty\"; \
                   const boolean ON = TRUE; }; struct A { long x; }; }; };";
        let expected = [
            ("ONE", Literal::Integer(1)),
            ("NEG", Literal::Integer(-7)),
            ("NAME", Literal::Text("x\ty".to_owned())),
            ("ON", Literal::Bool(true)),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(of("a/msg/A", SourceFormat::Idl, idl), expected);
    }
}
