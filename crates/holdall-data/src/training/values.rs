//! The numbers of a feature out of a message: fields by path, parts of arrays, elements by their names.

use super::mapping::{Dtype, Feature};
use holdall_bag::decode::Fields;
use holdall_model::{
    dynamic::columns::{Array, Batch, ColumnBuilder, ColumnOptions, UnknownField},
    interface::Primitive,
};
use std::{ops::Range, sync::Arc};

/// Numbers that a feature has at most.
const NUMBERS_MAX: usize = 1 << 20;

/// A number of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// As an integer; floats are cut off, as casts of numpy do.
    pub fn as_i64(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => value as i64,
        }
    }
}

/// The value of a feature in one message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    Numbers(Vec<Number>),
    Text(String),
}

/// A field, and which of its elements are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    field: String,
    part: Option<Range<usize>>,
}

impl Path {
    /// Reads `a.b`, `a.b[2]` or `a.b[0:6]`.
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a field; expected a.b, a.b[2] or a.b[0:6]");
        let Some((field, part)) = text.split_once('[') else {
            return Ok(Self {
                field: text.to_owned(),
                part: None,
            });
        };
        let part = part.strip_suffix(']').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| bad());
        let part = match part.split_once(':') {
            Some((from, until)) => number(from)?..number(until)?,
            None => number(part)?..number(part)?.saturating_add(1),
        };
        if field.is_empty() || part.is_empty() || part.end > NUMBERS_MAX {
            return Err(bad());
        }
        Ok(Self {
            field: field.to_owned(),
            part: Some(part),
        })
    }

    /// Whether a column is the field, or in it.
    fn has(&self, column: &str) -> bool {
        let rest = column.strip_prefix(&self.field);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Reads one feature out of the messages of a type.
#[derive(Clone, Debug)]
pub(super) struct Extractor {
    fields: Fields,
    builder: ColumnBuilder,
    paths: Vec<Path>,
    dtype: Dtype,
    /// The field of names, and the wanted ones.
    order: Option<(String, Vec<String>)>,
}

impl Extractor {
    /// # Errors
    /// A field that the type does not have, or a malformed path.
    pub fn new(fields: &Fields, feature: &Feature) -> Result<Self, String> {
        let paths = feature.fields.iter().map(|text| Path::parse(text));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let named = feature.names_field.iter().cloned();
        let options = ColumnOptions {
            fields: paths.iter().map(|path| path.field.clone()).chain(named).collect(),
            ..ColumnOptions::default()
        };
        let unknown = |error: UnknownField| error.to_string();
        Ok(Self {
            fields: fields.clone(),
            builder: ColumnBuilder::new(Arc::clone(fields.plan()), &options).map_err(unknown)?,
            paths,
            dtype: feature.dtype,
            order: feature
                .names_field
                .as_ref()
                .map(|field| (field.clone(), feature.names.clone())),
        })
    }

    /// The values of a message.
    ///
    /// # Errors
    /// A payload that does not fit the type; a value that is not a number; an array that lacks wanted elements.
    pub fn read(&mut self, payload: &[u8]) -> Result<Values, String> {
        let payload = self.fields.payload(payload);
        payload
            .and_then(|payload| self.builder.push(&payload))
            .map_err(|error| error.to_string())?;
        let batch = self.builder.take();
        if self.dtype == Dtype::String {
            return text(&batch, &self.paths[0]).map(Values::Text);
        }
        let places = match &self.order {
            Some((field, wanted)) => Some(places(&batch, field, wanted)?),
            None => None,
        };
        let mut numbers = Vec::new();
        for path in &self.paths {
            let before = numbers.len();
            for column in batch.columns.iter().filter(|column| path.has(&column.name)) {
                append(&column.array, &mut numbers)
                    .map_err(|()| format!("{} is neither a number nor a list of numbers", column.name))?;
            }
            keep_part(&mut numbers, before, path, places.as_deref())?;
        }
        if numbers.len() > NUMBERS_MAX {
            return Err(format!("a feature has at most {NUMBERS_MAX} numbers"));
        }
        Ok(Values::Numbers(numbers))
    }

    /// The names of its numbers if the mapping has none: the fields, with numbers if there are several.
    pub fn names(&self, count: usize) -> Vec<String> {
        let one_each = self.paths.len() == count;
        let named = self.paths.iter().map(|path| match &path.part {
            Some(part) if part.len() == 1 => format!("{}[{}]", path.field, part.start),
            _ => path.field.clone(),
        });
        if one_each {
            return named.collect();
        }
        let first = if self.paths.len() == 1 {
            self.paths[0].field.as_str()
        } else {
            "value"
        };
        (0..count).map(|place| format!("{first}[{place}]")).collect()
    }
}

/// Leaves only the wanted elements of those appended since `before`.
fn keep_part(
    numbers: &mut Vec<Number>,
    before: usize,
    path: &Path,
    places: Option<&[usize]>,
) -> Result<(), String> {
    let found = numbers.len() - before;
    let missing = |place: usize| {
        format!(
            "{} has {found} numbers, so that there is no [{place}]",
            path.field
        )
    };
    if let Some(part) = &path.part {
        if part.end > found {
            return Err(missing(part.end - 1));
        }
        numbers.truncate(before + part.end);
        numbers.drain(before..before + part.start);
    }
    if let Some(places) = places {
        let all = numbers.split_off(before);
        for place in places {
            numbers.push(*all.get(*place).ok_or_else(|| missing(*place))?);
        }
    }
    Ok(())
}

/// Where the wanted names are in a message's list of names.
fn places(batch: &Batch, field: &str, wanted: &[String]) -> Result<Vec<usize>, String> {
    let column = batch.columns.iter().find(|column| column.name == field);
    let Some(Array::List { items, .. } | Array::Fixed { items, .. }) = column.map(|column| &column.array)
    else {
        return Err(format!("{field} is not a list of texts"));
    };
    let Array::Text { offsets, bytes } = &**items else {
        return Err(format!("{field} is not a list of texts"));
    };
    let place = |offset: i64| usize::try_from(offset).unwrap_or_default();
    let names: Vec<&[u8]> = offsets
        .windows(2)
        .map(|pair| &bytes[place(pair[0])..place(pair[1])])
        .collect();
    let find = |name: &String| {
        let found = names.iter().position(|known| *known == name.as_bytes());
        found.ok_or_else(|| format!("{field} has no {name:?}"))
    };
    wanted.iter().map(find).collect()
}

fn text(batch: &Batch, path: &Path) -> Result<String, String> {
    let column = batch.columns.iter().find(|column| column.name == path.field);
    match column.map(|column| &column.array) {
        Some(Array::Text { bytes, .. }) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(format!("{} is not a text", path.field)),
    }
}

/// Appends the numbers of a column of one row.
fn append(array: &Array, numbers: &mut Vec<Number>) -> Result<(), ()> {
    macro_rules! each {
        ($bytes:expr, $type:ty, $number:expr) => {
            for value in $bytes.as_chunks::<{ size_of::<$type>() }>().0 {
                numbers.push($number(<$type>::from_le_bytes(*value)));
            }
        };
    }
    match array {
        Array::Plain { kind, bytes, .. } => match kind {
            Primitive::Boolean | Primitive::Uint8 | Primitive::Byte | Primitive::Char => {
                each!(bytes, u8, |value| Number::Int(i64::from(value)));
            }
            Primitive::Int8 => each!(bytes, i8, |value| Number::Int(i64::from(value))),
            Primitive::Int16 => each!(bytes, i16, |value| Number::Int(i64::from(value))),
            Primitive::Uint16 | Primitive::Wchar => each!(bytes, u16, |value| Number::Int(i64::from(value))),
            Primitive::Int32 => each!(bytes, i32, |value| Number::Int(i64::from(value))),
            Primitive::Uint32 => each!(bytes, u32, |value| Number::Int(i64::from(value))),
            Primitive::Int64 => each!(bytes, i64, Number::Int),
            Primitive::Uint64 => each!(bytes, u64, |value: u64| Number::Int(value.cast_signed())),
            Primitive::Float => each!(bytes, f32, |value| Number::Float(f64::from(value))),
            Primitive::Double | Primitive::LongDouble => each!(bytes, f64, Number::Float),
        },
        Array::Octets { bytes, .. } => each!(bytes, u8, |value| Number::Int(i64::from(value))),
        Array::List { items, .. } | Array::Fixed { items, .. } => append(items, numbers)?,
        Array::Text { .. } | Array::Struct { .. } => return Err(()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_paths_with_parts() {
        let path = |text| Path::parse(text).unwrap();
        assert_eq!(path("a.b[2]").part, Some(2..3));
        assert_eq!(path("a[0:6]").part, Some(0..6));
        assert!(path("a.b").has("a.b.c") && path("a.b").has("a.b") && !path("a.b").has("a.bc"));
        for bad in ["a[", "a[]", "a[2:1]", "[1]", "a[x]", "a[1]b"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }
}
