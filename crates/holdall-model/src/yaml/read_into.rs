//! Reads a YAML text into types that derive `Deserialize`: configuration files with few keys.

use super::{Node, Value, YamlError, parse};
use serde::{
    de::{
        self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
        value::StringDeserializer,
    },
    forward_to_deserialize_any,
};
use std::fmt::{self, Display};

/// Reads the first document of a text into a value.
///
/// # Errors
/// As [`parse`], and a value that `T` does not have: with its line and the keys above it.
pub fn read_into<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    read_node(&parse(text)?)
}

/// Reads a part of a document into a value.
///
/// # Errors
/// As [`read_into`].
pub fn read_node<T: DeserializeOwned>(node: &Node) -> Result<T, YamlError> {
    T::deserialize(Reading(node)).map_err(|error| {
        let keys = error.keys.iter().rev().cloned().collect::<Vec<_>>().join(".");
        let colon = if keys.is_empty() { "" } else { ": " };
        YamlError::new(
            error.line.unwrap_or(node.line),
            format!("{keys}{colon}{}", error.reason),
        )
    })
}

/// Why a value could not be read, with where it is.
#[derive(Debug)]
struct Refused {
    /// `None` until the error has left the value that it is about.
    line: Option<usize>,
    /// The keys above the value, innermost first.
    keys: Vec<String>,
    reason: String,
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: Display>(reason: T) -> Self {
        Self {
            line: None,
            keys: Vec::new(),
            reason: reason.to_string(),
        }
    }
}

impl From<YamlError> for Refused {
    fn from(error: YamlError) -> Self {
        Self {
            line: Some(error.line),
            ..de::Error::custom(error.reason)
        }
    }
}

impl Refused {
    fn at(mut self, node: &Node) -> Self {
        self.line.get_or_insert(node.line);
        self
    }

    fn below(mut self, key: &str) -> Self {
        self.keys.push(key.to_owned());
        self
    }
}

/// The methods of numbers: a scalar's text in the range of the type.
macro_rules! numbers {
    ($($method:ident $visit:ident $number:ty),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            visitor.$visit(self.0.as_number::<$number>()?)
        }
    )*};
}

/// A value that is being read.
#[derive(Clone, Copy)]
struct Reading<'de>(&'de Node);

impl<'de> de::Deserializer<'de> for Reading<'de> {
    type Error = Refused;

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let number = self
            .0
            .as_str()?
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite());
        visitor.visit_f64(number.ok_or_else(|| self.0.expected("a number"))?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bool(self.0.as_bool()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor
            .visit_borrowed_str(self.0.as_str()?)
            .map_err(|error: Refused| error.at(self.0))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match &self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let items = Items(self.0.as_sequence()?.iter());
        visitor.visit_seq(items).map_err(|error| error.at(self.0))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        let items = self.0.as_sequence()?;
        if items.len() != len {
            return Err(self
                .0
                .error(format!("expected a list of {len}, found {}", items.len()))
                .into());
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let entries = Entries {
            entries: self.0.as_map()?.iter(),
            value: None,
        };
        visitor.visit_map(entries).map_err(|error| error.at(self.0))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_map(visitor)
    }

    /// Variants without data only.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let name: StringDeserializer<Refused> = self.0.as_str()?.to_owned().into_deserializer();
        visitor.visit_enum(name).map_err(|error| error.at(self.0))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Scalar(_) => self.deserialize_str(visitor),
            Value::Sequence(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct newtype_struct tuple_struct identifier ignored_any
    }
}

/// The items of a list.
struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        self.0
            .next()
            .map(|node| seed.deserialize(Reading(node)))
            .transpose()
    }
}

/// The entries of a map.
struct Entries<'de> {
    entries: std::slice::Iter<'de, (String, Node)>,
    /// The entry whose key was read last.
    value: Option<&'de (String, Node)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        self.value = self.entries.next();
        let Some((key, node)) = self.value else {
            return Ok(None);
        };
        let key: StringDeserializer<Refused> = key.clone().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|error| error.at(node))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        let (key, node) = self
            .value
            .take()
            .ok_or_else(|| <Refused as de::Error>::custom("a value is read before its key"))?;
        seed.deserialize(Reading(node))
            .map_err(|error: Refused| error.at(node).below(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Level {
        Fast,
        Slow,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct File {
        number: u64,
        signed: Option<i32>,
        is_on: bool,
        level: Option<Level>,
        texts: Vec<String>,
        pairs: Vec<(String, String)>,
        more: BTreeMap<String, String>,
        inner: Option<Box<File>>,
    }

    #[test]
    fn values_are_read_as_their_types() {
        let text = "number: 7\nsigned: -3\nis_on: yes\nlevel: Slow\ntexts: [a, 2]\npairs:\n- [x, y]\n\
                    more: {k: 'v w'}\ninner: {number: 8}\n";
        let file: File = read_into(text).unwrap();
        let inner = File {
            number: 8,
            ..File::default()
        };
        assert_eq!(
            file,
            File {
                number: 7,
                signed: Some(-3),
                is_on: true,
                level: Some(Level::Slow),
                texts: vec!["a".to_owned(), "2".to_owned()],
                pairs: vec![("x".to_owned(), "y".to_owned())],
                more: BTreeMap::from([("k".to_owned(), "v w".to_owned())]),
                inner: Some(Box::new(inner)),
            }
        );
        assert_eq!(read_into::<Option<File>>("# nothing\n").unwrap(), None);
        assert_eq!(read_into::<File>("signed:\nlevel: ~\n").unwrap(), File::default());
    }

    #[test]
    fn a_value_that_is_refused_has_its_line_and_its_keys() {
        for (text, line, words) in [
            (
                "is_on: true\nnumber: -1\n",
                2,
                "number: expected a whole number in range, found \"-1\"",
            ),
            (
                "inner:\n  number: a\n",
                2,
                "inner.number: expected a whole number",
            ),
            ("number: 1\nnubmer: 2\n", 2, "unknown field `nubmer`"),
            ("level: Slower\n", 1, "level: unknown variant `Slower`"),
            (
                "pairs:\n- [a, b]\n- [a]\n",
                3,
                "pairs: expected a list of 2, found 1",
            ),
            ("texts: {a: b}\n", 1, "texts: expected a list, found a map"),
            ("- a\n", 1, "expected a map, found a list"),
            ("a: [\n", 2, ""),
        ] {
            let error = read_into::<File>(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.reason.contains(words), "{text}: {error}");
        }
    }
}
