//! Forms in configuration files that serde does not read by itself: one value or a list, texts with a meaning, a map
//! below others.

use holdall_model::yaml::{self, YamlError};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error, SeqAccess, Visitor},
};
use std::{
    fmt::{self, Display},
    marker::PhantomData,
    str::FromStr,
};

/// Reads the value below these keys; each must be the only one of its map.
///
/// # Errors
/// Another key, or a value that `T` refuses.
pub(crate) fn read_below<T: DeserializeOwned>(text: &str, keys: &[&str]) -> Result<T, YamlError> {
    let root = yaml::parse(text)?;
    let mut node = &root;
    for key in keys {
        if let Some((other, value)) = node.as_map()?.iter().find(|(other, _)| other != key) {
            return Err(value.error(format!("unknown field `{other}`, expected `{key}`")));
        }
        node = node.require(key)?;
    }
    yaml::read_node(node)
}

/// One value or a list; `None` when the key is absent or has no value.
pub(crate) struct Many<T>(pub Option<Vec<T>>);

impl<T> Default for Many<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        fn parse<T: FromStr<Err: Display>, E: Error>(text: &str) -> Result<T, E> {
            text.parse()
                .map_err(|error| E::custom(format!("{error}, found {text:?}")))
        }

        impl<'de, T: FromStr<Err: Display>> Visitor<'de> for Reader<T> {
            type Value = Many<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_unit<E: Error>(self) -> Result<Many<T>, E> {
                Ok(Many(None))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Many<T>, E> {
                Ok(Many(Some(vec![parse(text)?])))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Many<T>, A::Error> {
                let mut values = Vec::new();
                while let Some(text) = items.next_element::<String>()? {
                    values.push(parse(&text)?);
                }
                Ok(Many(Some(values)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// A text that may be empty, which means nothing in these files.
#[derive(Clone)]
pub(crate) struct TextOrNone(pub Option<String>);

impl FromStr for TextOrNone {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Some(text.to_owned()).filter(|text| !text.is_empty())))
    }
}

/// A whole number of one or more, for `deserialize_with`.
pub(crate) fn positive<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialOrd + From<u8>,
{
    Some(T::deserialize(deserializer)?)
        .filter(|number| *number >= T::from(1))
        .ok_or_else(|| D::Error::custom("expected a number of one or more"))
}

/// A list of one or more, for `deserialize_with`.
pub(crate) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Some(Vec::deserialize(deserializer)?)
        .filter(|values| !values.is_empty())
        .ok_or_else(|| D::Error::custom("expected at least one, found none"))
}

/// A value by the text that it is written as, for `deserialize_with`.
pub(crate) fn text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}

/// The way back from [`text`], for `serialize_with`.
pub(crate) fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// The name that results have for a value of an enumeration.
pub(crate) fn name_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// `Display` and `FromStr` of enumerations by the names that results have for their values.
macro_rules! by_name {
    ($($name:ty),+) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::suite::config::values::name_of(self))
            }
        }

        impl std::str::FromStr for $name {
            type Err = serde::de::value::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                serde::Deserialize::deserialize(serde::de::IntoDeserializer::into_deserializer(text))
            }
        }
    )+};
}
pub(crate) use by_name;
