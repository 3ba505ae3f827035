//! Reads JSON without rounding: serde_json would round numbers to doubles, not always to the nearest one.

use super::{Literal, LiteralError};
use std::collections::HashSet;

/// Deepest nesting that is followed; messages need 50 at most.
const DEPTH_MAX: usize = 128;

/// Reads one JSON value.
pub(super) fn read(text: &str) -> Result<Literal, LiteralError> {
    // serde_json checks the text: the code below only divides it.
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|error| LiteralError::Json(error.to_string()))?;
    Reader { rest: text }.value(0)
}

/// The rest of a text that is known to be JSON.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn value(&mut self, depth: usize) -> Result<Literal, LiteralError> {
        if depth > DEPTH_MAX {
            let reason = format!("values are nested deeper than {DEPTH_MAX} levels");
            return Err(LiteralError::Json(reason));
        }
        self.skip_blanks();
        match self.rest.bytes().next() {
            Some(b'{') => self.map(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.text().map(Literal::Text),
            _ => {
                let end = self.rest.find([',', ']', '}', ' ', '\n', '\r', '\t']);
                Ok(plain(self.take(end.unwrap_or(self.rest.len()))))
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Literal, LiteralError> {
        self.take(1);
        let mut items = Vec::new();
        while !self.ends_at(']') {
            items.push(self.value(depth + 1)?);
        }
        Ok(Literal::List(items))
    }

    fn map(&mut self, depth: usize) -> Result<Literal, LiteralError> {
        self.take(1);
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        while !self.ends_at('}') {
            let name = self.text()?;
            // The colon.
            self.skip_blanks();
            self.take(1);
            let value = self.value(depth + 1)?;
            if !seen.insert(name.clone()) {
                return Err(LiteralError::Json(format!("the key {name} occurs twice")));
            }
            entries.push((name, value));
        }
        Ok(Literal::Map(entries))
    }

    /// Skips blanks and a comma; whether the list or map then ends.
    fn ends_at(&mut self, end: char) -> bool {
        self.skip_blanks();
        self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
        self.skip_blanks();
        // At the end of the text there is nothing more, either.
        let is_end = self.rest.is_empty() || self.rest.starts_with(end);
        if is_end {
            self.take(1);
        }
        is_end
    }

    /// A text in quotes.
    fn text(&mut self) -> Result<String, LiteralError> {
        let mut is_escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        let quoted = self.take(end.map_or(self.rest.len(), |end| end + 2));
        serde_json::from_str(quoted).map_err(|error| LiteralError::Json(error.to_string()))
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
    }

    /// The next bytes, as many as there are.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// A number, `true`, `false` or `null`.
fn plain(text: &str) -> Literal {
    match text {
        "null" => Literal::Null,
        "true" => Literal::Bool(true),
        "false" => Literal::Bool(false),
        // As a floating point number it has a sign.
        "-0" => Literal::Decimal(text.to_owned()),
        number => match number.parse() {
            Ok(number) => Literal::Integer(number),
            Err(_) => Literal::Decimal(number.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same value as serde_json has it, as far as its numbers are exact.
    fn same(literal: &Literal, value: &serde_json::Value) -> bool {
        use serde_json::Value;
        match (literal, value) {
            (Literal::Null, Value::Null) => true,
            (Literal::Bool(one), Value::Bool(other)) => one == other,
            (Literal::Integer(one), Value::Number(other)) => one.to_string() == other.to_string(),
            (Literal::Decimal(text), Value::Number(_)) => text.parse::<f64>().is_ok(),
            (Literal::Text(one), Value::String(other)) => one == other,
            (Literal::List(one), Value::Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
            }
            (Literal::Map(one), Value::Object(other)) => {
                one.len() == other.len() && one.iter().all(|(name, one)| same(one, &other[name]))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn texts_are_read_as_serde_json_reads_them(
            text in "([\\[\\]{}:, \n]|\"[a-b\\\\\"/nu0-9d€]{0,4}\"|-?[0-9]{1,4}(\\.[0-9])?(e[0-9])?|null|true|\"k\":){0,10}"
        ) {
            if let Ok(literal) = read(&text) {
                match serde_json::from_str(&text) {
                    Ok(value) => prop_assert!(same(&literal, &value), "{}", text),
                    // 0.1e310: the field's type decides what we make of it.
                    Err(error) => prop_assert!(error.to_string().contains("out of range"), "{}: {}", text, error),
                }
            }
        }

        #[test]
        fn nested_texts_are_read_as_serde_json_reads_them(
            leaves in prop::collection::vec("[ -~é€\n]{0,6}", 1..6), shape in 0..4_u8,
        ) {
            let quoted: Vec<String> = leaves.iter().map(|leaf| serde_json::to_string(leaf).unwrap()).collect();
            let text = match shape {
                0 => format!(" [ {} ] ", quoted.join(" , ")),
                1 => format!("[[{}],[],{{}}]", quoted.join(",")),
                2 => format!("{{\"a\" : [{}] , \"b\":{{}}}}", quoted.join(",\n")),
                _ => format!("{{{}: -1.5e3 , \"x\\u0078\":[]}}", quoted[0]),
            };
            if let Ok(literal) = read(&text) {
                prop_assert!(same(&literal, &serde_json::from_str(&text).unwrap()), "{}", text);
            } else {
                prop_assert_eq!(shape, 3);
            }
        }
    }

    #[test]
    fn a_text_with_more_after_its_value_is_refused() {
        for text in ["1 2", "{} x", "\"a\"b", "", "[1,]", "01", "nan"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read(" -7 ").unwrap(), Literal::Integer(-7));
        assert_eq!(read("1e3").unwrap(), Literal::Decimal("1e3".to_owned()));
    }
}
