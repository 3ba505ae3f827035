//! Values as JSON and YAML texts have them: their type is only known from a definition.

use super::json;
use crate::yaml;

/// Longest JSON or YAML text that is read, in bytes.
pub const LITERAL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A value as a text has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`, or nothing after a key of YAML. For a struct it is one without fields, else it is refused.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// Any other number as a text has it: it is rounded once, to the width of its field.
    Decimal(String),
    /// A text in quotes.
    Text(String),
    /// A scalar of YAML: a number, a boolean or a text, as the field requires.
    Scalar(String),
    /// A list.
    List(Vec<Literal>),
    /// Fields by name; no name occurs twice.
    Map(Vec<(String, Literal)>),
}

/// Why a text is not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiteralError {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// The text is not YAML.
    #[error("not YAML: {0}")]
    Yaml(#[from] yaml::YamlError),
    /// The text is too long.
    #[error("a value of {0} bytes of text is longer than {LITERAL_BYTES_MAX}")]
    TooLong(usize),
}

impl Literal {
    /// Reads a JSON text.
    ///
    /// # Errors
    /// A text that is not JSON, has a key twice, or is longer or deeper than the bounds.
    pub fn from_json(text: &str) -> Result<Self, LiteralError> {
        check_length(text)?;
        json::read(text)
    }

    /// Reads the first document of a YAML text.
    ///
    /// # Errors
    /// A text that is not YAML, has a key twice or an alias, or is longer or deeper than the bounds.
    pub fn from_yaml(text: &str) -> Result<Self, LiteralError> {
        check_length(text)?;
        Ok(of_node(yaml::parse(text)?))
    }

    /// How an error names it.
    pub(in crate::dynamic) fn noun(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Decimal(text) => text.clone(),
            Self::Text(text) | Self::Scalar(text) => shown(text),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// A text in quotes, its beginning only when it is long.
pub(super) fn shown(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

fn check_length(text: &str) -> Result<(), LiteralError> {
    if text.len() > LITERAL_BYTES_MAX {
        return Err(LiteralError::TooLong(text.len()));
    }
    Ok(())
}

/// Converts a YAML node, which is only as deep as the parser allows.
fn of_node(node: yaml::Node) -> Literal {
    match node.value {
        yaml::Value::Null => Literal::Null,
        yaml::Value::Scalar(text) => Literal::Scalar(text),
        yaml::Value::Sequence(items) => Literal::List(items.into_iter().map(of_node).collect()),
        yaml::Value::Map(entries) => {
            let entries = entries.into_iter().map(|(name, node)| (name, of_node(node)));
            Literal::Map(entries.collect())
        }
    }
}
