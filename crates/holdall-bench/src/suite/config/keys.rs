//! Takes the keys of a YAML map one after the other and refuses those that remain.

use holdall_model::yaml::{Node, Value, YamlError};
use serde::{
    Serialize,
    de::{
        DeserializeOwned, IntoDeserializer,
        value::{Error as ValueError, StrDeserializer},
    },
};

/// A map whose keys are taken by name.
pub struct Keys<'a> {
    node: &'a Node,
    taken: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    /// Starts with all keys untaken.
    ///
    /// # Errors
    /// When `node` is not a map.
    pub fn of(node: &'a Node) -> Result<Self, YamlError> {
        node.as_map()?;
        Ok(Self {
            node,
            taken: Vec::new(),
        })
    }

    /// The value of a key that may be absent; a key without a value counts as absent.
    pub fn optional(&mut self, key: &'a str) -> Option<&'a Node> {
        self.taken.push(key);
        self.node
            .get(key)
            .filter(|node| !matches!(node.value, Value::Null))
    }

    /// The value of a key that must be present.
    ///
    /// # Errors
    /// When it is missing.
    pub fn required(&mut self, key: &'a str) -> Result<&'a Node, YamlError> {
        self.taken.push(key);
        self.node.require(key)
    }

    /// Refuses every key that was not taken.
    ///
    /// # Errors
    /// The first such key, with the known ones.
    pub fn finish(mut self) -> Result<(), YamlError> {
        for (key, value) in self.node.as_map()? {
            if !self.taken.contains(&key.as_str()) {
                self.taken.sort_unstable();
                return Err(value.error(format!(
                    "unknown key {key}; expected one of {}",
                    self.taken.join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// A number with a fraction, finite.
///
/// # Errors
/// Anything else.
pub fn decimal(node: &Node) -> Result<f64, YamlError> {
    node.as_str()?
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
        .ok_or_else(|| node.expected("a number"))
}

/// A whole number of one or more.
///
/// # Errors
/// Anything else.
pub fn positive<T: std::str::FromStr + PartialOrd + From<u8>>(node: &Node) -> Result<T, YamlError> {
    let number: T = node.as_number()?;
    if number < T::from(1) {
        return Err(node.expected("a number of one or more"));
    }
    Ok(number)
}

/// A value of an enumeration by the name that results have for it.
///
/// # Errors
/// A name that does not exist.
pub(crate) fn named<T: DeserializeOwned>(node: &Node) -> Result<T, YamlError> {
    let text: StrDeserializer<'_, ValueError> = node.as_str()?.into_deserializer();
    T::deserialize(text).map_err(|error| node.error(error.to_string()))
}

/// The name that results have for a value of an enumeration.
pub(crate) fn name_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// One value, or a list of at least one.
///
/// # Errors
/// An empty list, or what `one` refuses.
pub(crate) fn one_or_more<T>(
    node: &Node,
    one: impl Fn(&Node) -> Result<T, YamlError>,
) -> Result<Vec<T>, YamlError> {
    match &node.value {
        Value::Sequence(items) if items.is_empty() => {
            Err(node.error("expected a list of one or more values, found none"))
        }
        Value::Sequence(items) => items.iter().map(one).collect(),
        _ => Ok(vec![one(node)?]),
    }
}
