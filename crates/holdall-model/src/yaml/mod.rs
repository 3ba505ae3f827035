//! Reads YAML text into a small tree with bounds on size and depth, or into types, and quotes scalars for writing.
//!
//! Bags hold YAML in `metadata.yaml`, in MCAP metadata records and in SQLite tables, written by several
//! programs over the years with any key order and any quoting. All scalars stay text, as in yaml-cpp: the
//! caller decides what a scalar means. Anchors, aliases and merge keys never occur in those texts and are
//! refused.

mod read_into;

pub use read_into::{read_into, read_node};
use saphyr_parser::{Event, Parser, ScanError, Span};
use std::fmt::Write;

/// Longest text that is read, in bytes: a bag of 100 000 topics needs about 60 MB.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Deepest nesting that is followed; `metadata.yaml` needs 8.
const DEPTH_MAX: usize = 32;

/// Why a YAML text could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct YamlError {
    /// Line in the text, from 1.
    pub line: usize,
    /// One sentence.
    pub reason: String,
}

impl YamlError {
    /// An error at a line, counted from 1.
    pub fn new(line: usize, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }
}

/// A value in the text, with its line.
#[derive(Clone, Debug)]
pub struct Node {
    /// Line in the text, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// The content of a [`Node`].
#[derive(Clone, Debug)]
pub enum Value {
    /// Text as written, quotes and escapes resolved.
    Scalar(String),
    /// Nothing, or `~`, or `null`, without quotes.
    Null,
    /// A list.
    Sequence(Vec<Node>),
    /// A map in the order of the text; no key occurs twice.
    Map(Vec<(String, Node)>),
}

impl Value {
    /// The name of its kind in error messages.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "a value",
            Self::Null => "nothing",
            Self::Sequence(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// An error at this node.
    pub fn error(&self, reason: impl Into<String>) -> YamlError {
        YamlError::new(self.line, reason)
    }

    /// An error that names the expected and the found value.
    pub fn expected(&self, wanted: &str) -> YamlError {
        match &self.value {
            Value::Scalar(text) => self.error(format!("expected {wanted}, found {text:?}")),
            other => self.error(format!("expected {wanted}, found {}", other.kind())),
        }
    }

    /// The entries of a map; an empty value counts as an empty map.
    pub fn as_map(&self) -> Result<&[(String, Self)], YamlError> {
        match &self.value {
            Value::Map(entries) => Ok(entries),
            Value::Null => Ok(&[]),
            _ => Err(self.expected("a map")),
        }
    }

    /// The items of a list; an empty value counts as an empty list.
    pub fn as_sequence(&self) -> Result<&[Self], YamlError> {
        match &self.value {
            Value::Sequence(items) => Ok(items),
            Value::Null => Ok(&[]),
            _ => Err(self.expected("a list")),
        }
    }

    /// A scalar's text; an empty value counts as empty text.
    pub fn as_str(&self) -> Result<&str, YamlError> {
        match &self.value {
            Value::Scalar(text) => Ok(text),
            Value::Null => Ok(""),
            _ => Err(self.expected("a text")),
        }
    }

    /// A scalar that is a decimal number in the range of `T`.
    pub fn as_number<T: std::str::FromStr>(&self) -> Result<T, YamlError> {
        match &self.value {
            Value::Scalar(text) => text.parse().map_err(|_| self.expected("a whole number in range")),
            _ => Err(self.expected("a whole number")),
        }
    }

    /// A truth value in any of YAML 1.1's spellings.
    pub fn as_bool(&self) -> Result<bool, YamlError> {
        let Value::Scalar(text) = &self.value else {
            return Err(self.expected("true or false"));
        };
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Ok(true),
            "false" | "no" | "off" | "n" => Ok(false),
            _ => Err(self.expected("true or false")),
        }
    }

    /// The value of a key that may be absent.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The value of a key that must be present.
    pub fn require(&self, key: &str) -> Result<&Self, YamlError> {
        self.as_map()?;
        self.get(key)
            .ok_or_else(|| self.error(format!("the key {key} is missing")))
    }
}

/// Reads the first document of a text.
///
/// # Errors
/// When the text is not YAML, is larger or deeper than any bag needs, repeats a key, or holds
/// aliases.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(YamlError::new(
            1,
            format!("the text is longer than {TEXT_BYTES_MAX} bytes"),
        ));
    }
    let mut builder = Builder {
        parser: Parser::new_from_str(text.trim_start_matches('\u{feff}')),
    };
    loop {
        let (event, span) = builder.next()?;
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd | Event::DocumentEnd => {
                return Ok(Node {
                    line: 1,
                    value: Value::Null,
                });
            }
            event => return builder.node(event, line_of(span), 0),
        }
    }
}

/// Lines of the parser's spans count from 1.
fn line_of(span: Span) -> usize {
    span.start.line()
}

/// Turns the parser's events into a tree.
struct Builder<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
}

impl<'a> Builder<'a> {
    /// The next event.
    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(scan_error(&error)),
            None => Err(YamlError::new(1, "the text ends in the middle of a value")),
        }
    }

    /// The node that begins with `event`.
    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, YamlError> {
        if depth > DEPTH_MAX {
            return Err(YamlError::new(
                line,
                format!("values are nested deeper than {DEPTH_MAX} levels"),
            ));
        }
        let value = match event {
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => self.sequence(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            Event::Alias(_) => return Err(YamlError::new(line, "aliases are not supported")),
            other => return Err(YamlError::new(line, format!("unexpected {other:?}"))),
        };
        Ok(Node { line, value })
    }

    /// The items up to the end of the list.
    fn sequence(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Sequence(items)),
                (event, span) => items.push(self.node(event, line_of(span), depth + 1)?),
            }
        }
    }

    /// The entries up to the end of the map.
    fn map(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let (key, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Map(entries)),
                (Event::Scalar(key, ..), span) => (key.into_owned(), line_of(span)),
                (_, span) => return Err(YamlError::new(line_of(span), "a key is not a plain text")),
            };
            if !seen.insert(key.clone()) {
                return Err(YamlError::new(line, format!("the key {key} occurs twice")));
            }
            let (event, span) = self.next()?;
            let node = self.node(event, line_of(span), depth + 1)?;
            entries.push((key, node));
        }
    }
}

/// A scalar's value; unquoted `~`, `null` and empty text are null.
fn scalar(text: &str, style: saphyr_parser::ScalarStyle) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" if style == saphyr_parser::ScalarStyle::Plain => Value::Null,
        _ => Value::Scalar(text.to_owned()),
    }
}

/// The parser's error as a [`YamlError`].
fn scan_error(error: &ScanError) -> YamlError {
    YamlError::new(error.marker().line(), error.info())
}

/// Appends a string scalar as yaml-cpp writes it: plain where YAML allows that in a block, else in double
/// quotes.
pub(crate) fn write_scalar(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{feff}' => out.push_str("\\ufeff"),
            '\u{2028}' | '\u{2029}' => write_escape(out, "u", 4, c),
            c if c.is_control() || c == '\u{a0}' => write_escape(out, "x", 2, c),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends a character as `\x` and two digits, or `\u` and four.
fn write_escape(out: &mut String, letter: &str, digits: usize, c: char) {
    write!(out, "\\{letter}{:0digits$x}", u32::from(c)).expect("writing to a String cannot fail");
}

/// Whether yaml-cpp would write this text without quotes in block context.
fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    if matches!(text, "~" | "null" | "Null" | "NULL") || text.ends_with(' ') || starts_document_marker(text) {
        return false;
    }
    let first_forbidden = " ,[]{}#&*!|>'\"%@`".contains(first);
    let indicator = |c: char| "-?:".contains(c);
    if first_forbidden || (indicator(first) && matches!(text[1..].chars().next(), None | Some(' '))) {
        return false;
    }
    let mut previous = '\0';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let ends_key = c == ':' && matches!(rest.peek(), None | Some(' '));
        let begins_comment = c == '#' && previous == ' ';
        if ends_key || begins_comment || c.is_control() || "\u{a0}\u{feff}\u{2028}\u{2029}".contains(c) {
            return false;
        }
        previous = c;
    }
    true
}

/// `---` and `...` at the beginning of a line end a document.
fn starts_document_marker(text: &str) -> bool {
    text.starts_with("---") || text.starts_with("...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_any_quoting_and_order() {
        let node = parse("b: 'x y'\na: \"1\\n2\"\nc: [1, 2]\nd: ~\n").unwrap();
        assert_eq!(node.require("a").unwrap().as_str().unwrap(), "1\n2");
        assert_eq!(node.require("b").unwrap().as_str().unwrap(), "x y");
        assert_eq!(
            node.require("c").unwrap().as_sequence().unwrap()[1]
                .as_number::<u8>()
                .unwrap(),
            2
        );
        assert!(node.require("d").unwrap().as_map().unwrap().is_empty());
    }

    #[test]
    fn names_the_line_of_a_missing_key() {
        let error = parse("a:\n  b: 1\n")
            .unwrap()
            .require("a")
            .unwrap()
            .require("c")
            .unwrap_err();
        assert_eq!(error, YamlError::new(2, "the key c is missing"));
    }

    #[test]
    fn refuses_texts_that_could_grow_without_bound() {
        let bomb = "a: &a [x, x]\nb: [*a, *a]\n";
        assert_eq!(
            parse(bomb).unwrap_err(),
            YamlError::new(2, "aliases are not supported")
        );
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(parse(&deep).unwrap_err().reason.contains("nested deeper than 32"));
        let deeper = "[".repeat(100_000);
        assert!(parse(&deeper).is_err());
        let mut block = String::new();
        for depth in 0..1000 {
            block.push_str(&" ".repeat(depth));
            block.push_str("a:\n");
        }
        assert!(parse(&block).is_err());
    }

    #[test]
    fn refuses_a_key_given_twice() {
        assert_eq!(
            parse("a: 1\na: 2\n").unwrap_err(),
            YamlError::new(2, "the key a occurs twice")
        );
    }

    #[test]
    fn empty_text_is_an_empty_map() {
        assert!(parse("").unwrap().as_map().unwrap().is_empty());
        assert!(parse("# only a comment\n").unwrap().as_map().unwrap().is_empty());
    }

    #[test]
    fn quotes_only_where_needed() {
        let written = |text| {
            let mut out = String::new();
            write_scalar(&mut out, text);
            out
        };
        assert_eq!(written(""), "\"\"");
        assert_eq!(written("plain text"), "plain text");
        assert_eq!(written("/a:b#c"), "/a:b#c");
        assert_eq!(written("a: b"), "\"a: b\"");
        assert_eq!(written("a #b"), "\"a #b\"");
        assert_eq!(written("~"), "\"~\"");
        assert_eq!(written("line\n\"two\""), "\"line\\n\\\"two\\\"\"");
        assert_eq!(written("- x"), "\"- x\"");
        assert_eq!(written("-x"), "-x");
        assert_eq!(written("42"), "42");
    }

    proptest! {
        #[test]
        fn every_written_scalar_reads_back(text in "\\PC*|[ -~\\n\\t\\r\u{0}-\u{20}\u{80}-\u{a5}]{0,12}|[-?:# '\"~.&*!]{0,6}") {
            let mut out = String::from("k: ");
            write_scalar(&mut out, &text);
            let node = parse(&out).unwrap();
            prop_assert_eq!(node.require("k").unwrap().as_str().unwrap(), text.as_str());
        }

        #[test]
        fn no_text_panics(text in "[ \\n:\\[\\]{}&*!|>'\"%@`,#?a-]{0,40}") {
            let _ = parse(&text);
        }
    }
}
